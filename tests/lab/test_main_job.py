"""The main job on a real host, in the order of a campaign's life; each step stands on the one before.

check → converge → unchanged → out-of-band changes repaired → bench → unchanged → one attempt deleted → killed in the
middle → reboot → restage → verify.
"""

import json
import re
import shutil
import subprocess
import time

import pytest

from .runner import ROOT

pytestmark = pytest.mark.lab


def attempts(lab):
    return sorted(p.parent for p in (lab.results / lab.host).glob("[!.]*/[!.]*/cell.json"))


def test_check_mode_predicts_a_fresh_host(lab):
    run = lab.play("site.yml", "--check").ok()
    assert len(run.changes) > 5, "on a fresh host nearly everything is still to come"
    assert lab.ssh("ls /opt/gauntlet /etc/gauntlet /srv/gauntlet 2>/dev/null", check=False) == "", (
        "check mode writes nothing"
    )


def test_site_converges(lab):
    run = lab.play("site.yml").ok()
    assert run.changes
    assert lab.ssh("findmnt -no FSTYPE /srv/gauntlet/models") == "tmpfs"


def test_a_second_run_changes_nothing(lab):
    lab.play("site.yml").unchanged()
    lab.play("site.yml", "--check").unchanged()


# What is altered by hand, and the task that owns it.
DAMAGE = {
    "sed -i 's/^GAUNTLET_PORT=.*/GAUNTLET_PORT=1/' $(ls /etc/gauntlet/deployments/*.env | head -1)": "env file",
    "sed -i 's/^NoNewPrivileges=.*/NoNewPrivileges=no/' /etc/systemd/system/llamacpp@.service": "template unit",
    "chmod 0777 /opt/gauntlet/libexec/llamacpp_server.py": "programs",
    "rm -r /opt/gauntlet/agent/lib/python3*/site-packages/requests": "agent environment",
}
BYTE = "printf X | dd of=$(ls /srv/gauntlet/models/*/*.gguf) bs=1 seek=5000000 conv=notrunc status=none"
STOPPED = "systemctl stop srv-gauntlet-models.mount"


@pytest.mark.parametrize("damage", [DAMAGE | {BYTE: "Weights"}, {STOPPED: "mounted|Weights"}], ids=["files", "mount"])
def test_what_was_altered_by_hand_is_reported_and_repaired(lab, damage):
    """Check mode sees each thing that was altered, and the next run repairs exactly those."""
    for command in damage:
        lab.ssh(command)
    for run in (lab.play("site.yml", "--check").ok(), lab.play("site.yml").ok()):
        for command, task in damage.items():
            assert any(re.search(task, change) for change in run.changes), f"nobody sees: {command}; {run.changes}"
        others = [change for change in run.changes if not re.search("|".join(damage.values()), change)]
        assert not others, f"these were not altered and changed all the same: {others}"


def test_then_all_is_as_it_was(lab):
    lab.play("site.yml").unchanged()


def test_bench_check_prints_the_plan_and_touches_nothing(lab):
    run = lab.play("bench.yml", "--check", method="ngram").unchanged()
    for method in ("autoregressive", "ngram-simple", "ngram-mod"):  # a family and its baseline
        assert method in run.output
    assert attempts(lab) == []


def test_one_method_brings_its_baseline(lab):
    run = lab.play("bench.yml", method="ngram-simple", workload="edit", concurrency="1").ok()
    methods = {json.loads((a / "cell.json").read_text())["method"] for a in attempts(lab)}
    assert methods == {"autoregressive", "ngram-simple"}
    assert re.search(r"ngram-simple.*\d\.\d\d", run.output), "the closing table has a speed-up"
    assert lab.ssh("systemctl list-units --plain --no-legend 'llamacpp@*' 'gauntlet-bench*'") == "", (
        "what it started it stops"
    )


def test_measured_is_measured(lab):
    before = attempts(lab)
    run = lab.play("bench.yml", method="ngram-simple", workload="edit", concurrency="1").unchanged()
    assert re.search(r"\d+ cells? measured already", run.output)
    assert attempts(lab) == before


def test_a_deleted_attempt_is_measured_again_and_only_it(lab):
    before = attempts(lab)
    victim = next(a for a in before if ".autoregressive." in a.parent.name and a.name.startswith("r1-"))
    shutil.rmtree(victim)
    lab.play("bench.yml", method="ngram-simple", workload="edit", concurrency="1").ok()
    new = set(attempts(lab)) - set(before)
    assert [(a.parent.name, a.name[:3]) for a in new] == [(victim.parent.name, "r1-")]


def test_a_killed_run_is_found_and_finished(lab):
    """Ansible dies in the middle; the measurement does not notice, and the next run attaches to it."""
    asked = {"method": "ngram-simple", "workload": "edit", "concurrency": 2, "baseline": False}
    command = lab.command("bench.yml", **asked)
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen(command, cwd=ROOT, start_new_session=True, **silent)
    deadline = time.monotonic() + 120
    while "active" not in lab.ssh("systemctl is-active gauntlet-bench.service", check=False).split():
        assert run.poll() is None and time.monotonic() < deadline, "the measurement never started"
        time.sleep(0.5)
    subprocess.run(["pkill", "-9", "--session", str(run.pid)], check=True)  # its workers and its ssh too
    run.kill()
    run.wait(timeout=10)
    assert lab.ssh("systemctl is-active gauntlet-bench.service", check=False) == "active", "it does not notice"
    again = lab.play("bench.yml", **asked).ok()
    assert re.search("attach|still running|goes on", again.output)
    names = [(a.parent.name, a.name.split("-")[0]) for a in attempts(lab)]
    assert len(names) == len(set(names)), "nothing was measured twice"
    assert sum(".edit.c2-" in cell for cell, _ in names) == 2, "a start each"


def test_a_reboot_is_survived(lab):
    deployment = lab.ssh("ls /etc/gauntlet/deployments | grep autoregressive | sed 's/.env$//'")
    lab.ssh(f"systemctl start llamacpp@{deployment}")
    lab.play("restage.yml").unchanged()
    lab.reboot()
    run = lab.play("restage.yml").ok()
    assert re.search("reboot", run.output)
    assert run.changes
    assert lab.ssh("findmnt -no FSTYPE /srv/gauntlet/models") == "tmpfs"
    lab.play("restage.yml").unchanged()
    lab.play("site.yml").unchanged()
    lab.ssh(f"systemctl stop llamacpp@{deployment}")


def test_verify_says_ok(lab):
    lab.play("verify.yml").unchanged()


BAD = {
    "unknown method": ({"method": "ngarm"}, "unknown method 'ngarm'; did you mean 'ngram'"),
    "unknown campaign": ({"campaign": "labb"}, "unknown campaign 'labb'; did you mean 'lab'"),
    "unknown workload": ({"workload": "edti"}, "unknown workload 'edti'; did you mean 'edit'"),
    "concurrency 0": ({"concurrency": "0"}, "concurrency.*0"),
    "tp in words": ({"tp": "three"}, "tp.*three"),
    "a method this model cannot have": ({"method": "eagle3"}, "eagle3.*(autoregressive|ngram)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence(lab, case):
    extra, sentence = BAD[case]
    lab.play("bench.yml", **extra).refused(sentence)


def test_a_taken_port_is_named(lab):
    lab.ssh("systemd-run --unit=squatter python3 -m http.server --bind 127.0.0.1 30000")
    shutil.rmtree(next(a for a in attempts(lab) if ".autoregressive." in a.parent.name))
    try:
        lab.play("bench.yml", method="autoregressive", workload="edit", concurrency="1").refused("port 30000.*squatter")
    finally:
        lab.ssh("systemctl stop squatter")


def test_a_results_folder_that_cannot_be_written_is_said_first(lab, tmp_path):
    (tmp_path / "file").write_text("")
    lab.play("bench.yml", gauntlet_results=str(tmp_path / "file")).refused("results folder")
