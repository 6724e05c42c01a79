"""The main job on a real host, in the order of a campaign's life; each step stands on the one before.

check → converge → unchanged → out-of-band changes repaired → bench → unchanged → reboot → restage → verify.
"""

import json
import re

import pytest

from .runner import attempts

pytestmark = pytest.mark.lab


def test_check_mode_predicts_a_fresh_host(lab):
    run = lab.play("site.yml", "--check").ok()
    assert len(run.changes) > 5, "on a fresh host nearly everything is still to come"
    assert lab.ssh("ls /opt/gauntlet /etc/gauntlet /srv/gauntlet 2>/dev/null", check=False) == "", (
        "check mode writes nothing"
    )


def test_site_converges(lab):
    lab.ssh("echo umask 077 >/root/.bashrc")  # a hardened root: the service reads what it makes all the same
    assert lab.ssh("umask") == "0077"
    run = lab.play("site.yml").ok()
    assert run.changes
    assert lab.ssh("findmnt -no FSTYPE /srv/gauntlet/models") == "tmpfs"


def test_a_second_run_changes_nothing(lab):
    """What somebody added to the units is not ours to remove, and is said."""
    drop_in = "/etc/systemd/system/llamacpp@.service.d"
    lab.ssh(f"mkdir {drop_in} && echo '[Service]' >{drop_in}/override.conf")
    assert drop_in in lab.play("site.yml").unchanged().output
    lab.ssh(f"rm -r {drop_in}")


# What is altered by hand, and the task that owns it.
DAMAGE = {
    "printf '\\377' >>$(ls /etc/gauntlet/deployments/*.env | head -1)": "env file",
    "sed -i 's/^NoNewPrivileges=.*/NoNewPrivileges=no/' /etc/systemd/system/llamacpp@.service": "template unit",
    "chmod 0777 /opt/gauntlet/libexec/llamacpp_server.py": "programs",
    "rm -r /opt/gauntlet/agent/lib/python3*/site-packages/requests": "agent environment",
    "rm /opt/gauntlet/agent/bin/python": "agent environment",
    "chmod 0700 $(readlink -f /opt/gauntlet/engines/*)/lib/python3*/site-packages": "each engine build",
    "chmod 0700 /etc/gauntlet/deployments": "The way to",
    "mount -o remount,exec,suid,size=50% /srv/gauntlet/models": "size and options",
    "printf X | dd of=$(ls /srv/gauntlet/models/*/*.gguf) bs=1 seek=5000000 conv=notrunc status=none": "Weights",
}


def test_what_was_altered_by_hand_is_reported_and_repaired(lab):
    """Check mode sees each thing that was altered, the next run repairs exactly those, and then there is nothing left
    to see; that a real run then changes nothing is said after the reboot."""
    lab.ssh(" && ".join(DAMAGE))
    for run in (lab.play("site.yml", "--check").ok(), lab.play("site.yml").ok()):
        for command, task in DAMAGE.items():
            assert any(re.search(task, change) for change in run.changes), f"nobody sees: {command}; {run.changes}"
        others = [change for change in run.changes if not re.search("|".join(DAMAGE.values()), change)]
        assert not others, f"these were not altered and changed all the same: {others}"
    lab.play("site.yml", "--check").unchanged()


def test_bench_check_prints_the_plan_and_touches_nothing(lab):
    run = lab.play("bench.yml", "--check", method="ngram").unchanged()
    for method in ("autoregressive", "ngram-simple", "ngram-mod"):  # a family and its baseline
        assert method in run.output
    assert attempts(lab) == []


def test_one_method_brings_its_baseline(lab):
    run = lab.play("bench.yml", method="ngram-simple", workload="edit", concurrency="1").ok()
    methods = {json.loads((a / "cell.json").read_text())["method"] for a in attempts(lab)}
    assert methods == {"autoregressive", "ngram-simple"}
    row = r"ngram-simple +edit +1 +[\d.,]+ +\d+\.\d\d"  # method, workload, C, tokens/s, speed-up
    assert re.search(row, run.output), "the closing table has a speed-up"
    assert lab.ssh("systemctl list-units --plain --no-legend 'llamacpp@*' 'gauntlet-bench*'") == "", (
        "what it started it stops"
    )


def test_measured_is_measured(lab):
    before = attempts(lab)
    run = lab.play("bench.yml", method="ngram-simple", workload="edit", concurrency="1").unchanged()
    assert re.search(r"\d+ cells? measured already", run.output)
    assert attempts(lab) == before


def test_the_report_is_of_what_was_measured(lab, tmp_path):
    asked = {"report_output": str(tmp_path), "report_format": "html"}
    assert lab.play("report.yml", **asked).ok().changes
    page = (tmp_path / "report.html").read_text()
    assert lab.host in page and "ngram-simple" in page
    lab.play("report.yml", **asked).unchanged()


def test_a_reboot_is_survived(lab):
    deployment = lab.ssh("ls /etc/gauntlet/deployments | grep autoregressive | sed 's/.env$//'")
    lab.ssh(f"systemctl start llamacpp@{deployment}")
    lab.play("restage.yml").unchanged()
    lab.reboot()
    run = lab.play("restage.yml").ok()
    assert "rebooted" in run.output and "not rebooted" not in run.output
    assert re.search(r"together \d+\.\d s", run.output), "how long it took"
    assert run.changes
    assert lab.ssh("findmnt -no FSTYPE /srv/gauntlet/models") == "tmpfs"
    lab.play("restage.yml").unchanged()
    lab.play("site.yml").unchanged()
    lab.ssh(f"systemctl stop llamacpp@{deployment}")


def test_verify_says_ok(lab):
    lab.play("verify.yml").unchanged()
