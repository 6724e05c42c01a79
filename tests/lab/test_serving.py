"""SGLang's unit, env file, readiness and stop on a real systemd, with the scripted engine in SGLang's place.

What a GPU would show is in the recordings; here it is the machinery around the engine that must hold: what is refused
and in which words, what is named when a start fails, and that stopped means stopped.
"""

import base64
import json
import re
import zipfile

import pytest

from .runner import ROOT
from .stand_in import HOST, LISTENING

pytestmark = pytest.mark.lab

UNIT = "sglang@{}.service"


@pytest.fixture(scope="module")
def host(served):
    return served


def deployments(lab):
    """{method: name}"""
    names = lab.ssh("ls /etc/gauntlet/deployments").split()
    return {name.split(".")[1]: name.removesuffix(".env") for name in names}


def test_a_second_run_changes_nothing(host):
    host.play("site.yml").unchanged()


def test_the_env_file_is_the_catalogs_eagle3_under_sglangs_names(host):
    text = host.ssh(f"cat /etc/gauntlet/deployments/{deployments(host)['eagle3']}.env")
    for words in (
        "--speculative-algorithm EAGLE3", "--speculative-num-steps 3", "--speculative-eagle-topk 1",
        "--speculative-num-draft-tokens 4", "--speculative-draft-model-path /srv/gauntlet/models/stand-in-eagle3",
        "--model-path /srv/gauntlet/models/stand-in", "--host 127.0.0.1", "CUDA_VISIBLE_DEVICES=0", "HF_HUB_OFFLINE=1",
    ):  # fmt: skip
        assert words in text


def test_systemd_has_nothing_against_the_units(host):
    said = host.ssh("systemd-analyze verify /etc/systemd/system/sglang@.service 2>&1 || true", check=False)
    assert not [line for line in said.splitlines() if "sglang@" in line], said


def test_the_exposure_is_small(host):
    name = deployments(host)["eagle3"]
    said = host.ssh(f"systemd-analyze security --no-pager {UNIT.format(name)} | tail -1")
    assert float(re.search(r"(\d+\.\d+)", said)[1]) <= 4.0, said


def test_the_literal_command(host):
    """ansible-playbook bench.yml -e method=eagle3"""
    run = host.play("bench.yml", method="eagle3").ok()
    assert "eagle3" in run.output
    cells = [json.loads(path.read_text()) for path in (host.results / HOST).glob("[!.]*/[!.]*/cell.json")]
    assert {cell["method"] for cell in cells} == {"autoregressive", "eagle3"}
    for cell in cells:
        assert cell["simulated"] == ["scripted engine"], "nobody may take it for a measurement"
        assert cell["invocation"]["unit"].startswith("sglang@stand-in.")
        assert cell["summary"]["completed"] == cell["summary"]["requests"] > 0
    drafting = next(cell for cell in cells if cell["method"] == "eagle3")
    assert drafting["summary"]["acceptance_length"] > 1
    assert host.ssh("systemctl list-units --plain --no-legend 'sglang@*'") == ""


def test_without_the_manifest_nothing_is_served_and_the_journal_says_why(host):
    name = deployments(host)["eagle3"]
    host.ssh("mv /srv/gauntlet/models/stand-in-eagle3/.gauntlet-manifest.json /root/m")
    try:
        host.ssh(f"systemctl start {UNIT.format(name)}", check=False)
        host.until(f"systemctl is-failed --quiet {UNIT.format(name)}")
        state = host.ssh(f"systemctl show -p ActiveState,ExecMainStatus,NRestarts --value {UNIT.format(name)}")
        assert state.split() == ["78", "0", "failed"] or set(state.split()) == {"78", "0", "failed"}
        said = host.ssh(f"journalctl -u {UNIT.format(name)} -n 20 --no-pager -o cat")
        assert "the drafter is not staged" in said and "restage.yml" in said
    finally:
        host.ssh("mv /root/m /srv/gauntlet/models/stand-in-eagle3/.gauntlet-manifest.json")
        host.ssh(f"systemctl reset-failed {UNIT.format(name)}", check=False)


ENVIRONMENT = """
- hosts: {host}
  gather_facts: false
  tasks:
    - python_environment:
        path: /opt/gauntlet/engines/mismatch
        locks: ["{root}/requirements/agent.txt"]
        wheels: {wheels}
"""


def wheel(folder, name, version, requires=()):
    """A package without content that states what it asks for."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        stated = "".join(f"Requires-Dist: {one}\n" for one in requires)
        information = f"{name}-{version}.dist-info"
        archive.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{stated}"
        )
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", f"{information}/METADATA,,\n{information}/WHEEL,,\n")
    return str(path)


def test_the_founding_mismatch_is_caught_when_it_is_installed(host, tmp_path):
    """A compressed-tensors that SGLang did not ask for: package, found, wanted; nothing half made is left."""
    wheels = [wheel(tmp_path, "sglang", "0.5.23", ["compressed-tensors==0.18.0"]),
              wheel(tmp_path, "compressed_tensors", "0.20.1")]  # fmt: skip
    play = tmp_path / "environment.yml"
    play.write_text(ENVIRONMENT.format(host=HOST, root=ROOT, wheels=json.dumps(wheels)))
    wanted = "compressed-tensors: found 0.20.1, but sglang 0.5.23 wants compressed-tensors==0.18.0"
    host.play(str(play)).refused(re.escape(wanted))
    assert host.ssh("ls -A /opt/gauntlet/engines | grep -c mismatch || true") == "0"


PLAY = """
- hosts: {host}
  gather_facts: false
  vars:
    ansible_python_interpreter: /opt/gauntlet/agent/bin/python
  tasks:
    - serving_deployment:
        deployment: {deployment}
        port: 30000
        timeout: {timeout}
        state: {state}
        catalog: ["{root}/catalog"]
"""


def deploy(lab, method, state, timeout=30):
    deployment = {"name": deployments(lab)[method], "engine": "sglang", "engine_build": "sglang-0.5.23-scripted"}
    play = lab.folder / f"{state}.yml"
    play.write_text(PLAY.format(host=HOST, deployment=json.dumps(deployment), state=state, timeout=timeout, root=ROOT))
    return lab.play(str(play))


@pytest.fixture
def broken(host):
    """The unit's program replaced by another, through a drop-in, as a person would break it."""

    def broken(script):
        text = base64.b64encode(
            f"[Service]\nExecStart=\nExecStart=/bin/sh -c '{script}'\nRestart=no\n".encode()
        ).decode()
        host.ssh("mkdir -p /etc/systemd/system/sglang@.service.d")
        host.ssh(
            f"echo {text} | base64 -d > /etc/systemd/system/sglang@.service.d/broken.conf && systemctl daemon-reload"
        )

    yield broken
    host.ssh(
        "rm -r /etc/systemd/system/sglang@.service.d && systemctl daemon-reload; systemctl stop 'sglang@*'", check=False
    )
    host.ssh("systemctl reset-failed 'sglang@*'", check=False)


def test_a_start_that_fails_is_named_by_its_cause_at_once(host, broken):
    broken('echo "AssertionError: max_running_request is zero"; sleep 1; exit 1')
    deploy(host, "eagle3", "ready", timeout=120).refused("verify states for all of max-running-requests")


def test_an_unknown_failure_shows_its_last_lines_and_the_exit(host, broken):
    broken('echo "something nobody has seen"; exit 3')
    deploy(host, "eagle3", "ready").refused("exit status 3; no known cause[^|]*something nobody has seen")


def test_a_server_that_never_answers_is_no_bare_timeout(host, broken):
    broken("echo Load weight begin. avail mem=1 GB; exec sleep 600")
    run = deploy(host, "eagle3", "ready", timeout=12).refused("loading weights, and the journal has said nothing")
    assert "does not answer after" in "\n".join(run.failures)


def test_a_taken_port_is_refused_by_pid_and_unit(host):
    host.ssh("systemd-run --unit=squatter python3 -m http.server --bind 127.0.0.1 30000")
    host.until(LISTENING)
    try:
        deploy(host, "eagle3", "ready").refused(r"port 30000 is held by .*pid \d+.*of squatter.service")
    finally:
        host.ssh("systemctl stop squatter.service")


def test_stopped_means_stopped(host, broken):
    """Schedulers that ignore SIGTERM and left the process group go with their unit."""
    broken('setsid sh -c "trap : TERM; while :; do sleep 1; done" & exec sleep 600')
    host.ssh(f"systemctl start {UNIT.format(deployments(host)['eagle3'])}")
    host.until("pgrep -u gauntlet -f TERM")
    deploy(host, "eagle3", "stopped", timeout=90).ok()
    assert host.ssh("pgrep -u gauntlet", check=False) == ""
    deploy(host, "eagle3", "stopped").unchanged()


def test_a_secret_reaches_the_service_and_nobody_else(host, tmp_path):
    (tmp_path / "token").write_text("hf_not_a_real_token\n")
    site = {"serving_secrets": {"hf_token": str(tmp_path / "token")}}
    run = host.play("site.yml", **site).ok()
    assert "hf_not_a_real_token" not in run.output
    name = deployments(host)["eagle3"]
    host.ssh(f"systemctl start {UNIT.format(name)}")
    try:
        host.until(LISTENING)
        pid = host.ssh(f"systemctl show -p MainPID --value {UNIT.format(name)}")
        assert "HF_TOKEN=hf_not_a_real_token" in host.ssh(f"tr '\\0' '\\n' < /proc/{pid}/environ | grep HF_TOKEN")
        for place in (f"systemctl show {UNIT.format(name)}", f"tr '\\0' ' ' < /proc/{pid}/cmdline",
                      "cat /etc/gauntlet/deployments/*.env", "cat /etc/systemd/system/sglang@.service",
                      "journalctl -b | grep -v ansible-"):  # our own questions are in it, too  # fmt: skip
            assert host.ssh(f"{place} | grep -c hf_not_a_real || true") == "0", place
        assert host.ssh("stat -c %a /etc/gauntlet/secrets /etc/gauntlet/secrets/hf_token").split() == ["700", "400"]
        assert host.ssh(
            "setpriv --reuid=nobody --clear-groups cat /etc/gauntlet/secrets/hf_token 2>&1 || true"
        ).endswith("Permission denied")
    finally:
        host.ssh(f"systemctl stop {UNIT.format(name)}")
    host.play("site.yml", **site).unchanged()
