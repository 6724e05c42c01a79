"""bench.yml on a host that has what it needs: only what is missing is measured, also after a run that was killed, and
what cannot be done is refused in one sentence. The scripted engine answers, so each cell takes seconds."""

import re
import shutil

import pytest

from .killing import CLIENT, Bench, freeze_client, thaw_client
from .runner import Lab, attempts
from .stand_in import LISTENING

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab(served, tmp_path_factory):
    """The served host with a results folder of this file's own."""
    return Lab(served.host, tmp_path_factory.mktemp("bench"))


ASKED = {"campaign": "twice", "method": "eagle3"}


def test_a_deleted_attempt_is_measured_again_and_only_it(lab):
    lab.play("bench.yml", **ASKED, concurrency="1").ok()
    before = attempts(lab)
    assert sorted(a.name[:3] for a in before) == ["r0-", "r0-", "r1-", "r1-"], (
        "two starts of the method, two of its baseline"
    )
    victim = next(a for a in before if ".autoregressive." in a.parent.name and a.name.startswith("r1-"))
    shutil.rmtree(victim)
    lab.play("bench.yml", **ASKED, concurrency="1").ok()
    new = set(attempts(lab)) - set(before)
    assert [(a.parent.name, a.name[:3]) for a in new] == [(victim.parent.name, "r1-")]


def test_a_killed_run_is_found_and_finished(lab):
    """Ansible dies in the middle; the measurement does not notice, and the next run attaches to it."""
    command = lab.command("bench.yml", **ASKED, concurrency=2, baseline=False)
    run = Bench(command)
    try:
        freeze_client(lab)
    finally:
        run.kill()
    assert lab.ssh(f"systemctl show --property SubState --value {CLIENT}") == "running", "it does not notice"
    again = Bench(command)
    try:
        again.hear("a measurement still runs: attached to it")
    finally:
        thaw_client(lab)
    assert again.end() == 0, again.output[-5000:]
    names = [(a.parent.name, a.name.split("-")[0]) for a in attempts(lab)]
    assert len(names) == len(set(names)), "nothing was measured twice"
    assert sum(".brief.c2-" in cell for cell, _ in names) == 2, "a start each"


def test_a_taken_port_is_named_after_the_table_of_what_is_measured(lab):
    """What would fail every start is said once, as the last word, and takes nothing away from what is measured."""
    lab.ssh("systemd-run --unit=squatter python3 -m http.server --bind 127.0.0.1 30000")
    lab.until(LISTENING)
    shutil.rmtree(next(a for a in attempts(lab) if ".autoregressive." in a.parent.name))
    try:
        run = lab.play("bench.yml", campaign="twice", method="autoregressive", concurrency="1")
        run.refused("port 30000.*squatter")
        assert run.output.count("TASK [serving : The deployment answers]") == 0
        assert re.search(r"eagle3 +brief +1 .*Say what failed", run.output, re.DOTALL)
    finally:
        lab.ssh("systemctl stop squatter")


BAD = {
    "unknown method": ({"method": "ngarm"}, "unknown method 'ngarm'; did you mean 'ngram'"),
    "unknown campaign": ({"campaign": "labb"}, "unknown campaign 'labb'; did you mean 'lab'"),
    "unknown workload": ({"workload": "edti"}, "unknown workload 'edti'; did you mean 'edit'"),
    "unknown selector": ({"metod": "ngram"}, "unknown selector 'metod'; did you mean 'method'"),
    "concurrency 0": ({"concurrency": "0"}, "concurrency.*0"),
    "tp in words": ({"tp": "three"}, "tp.*three"),
    "a method this model cannot have": ({"method": "dflash"}, "dflash.*(autoregressive|eagle3)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence(lab, case):
    extra, sentence = BAD[case]
    lab.play("bench.yml", **extra).refused(sentence)


def test_a_results_folder_that_cannot_be_written_is_said_first(lab, tmp_path):
    (tmp_path / "file").write_text("")
    lab.play("bench.yml", gauntlet_results=str(tmp_path / "file")).refused("results folder")
