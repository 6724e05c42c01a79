"""What the measuring core writes is what the analysis reads: a small campaign against the scripted engine."""

import csv

import pytest

from analysis import read, report, study, terminal
from analysis.findings import Findings
from gauntlet import measure, observe
from gauntlet.calibrate import lag
from gauntlet.calibrate.engine import Engine
from gauntlet.calibrate.script import Script
from tests.measuring import cell, job

PROMPTS = [{"id": f"p{i}", "text": f"Prompt number {i}."} for i in range(4)]


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """Three rounds of a baseline and a method of three tokens a step that leaves its output at token 5; closing."""
    monkeypatch.setattr(lag, "measure", lambda concurrency: {"p50": 0.1, "p99": 0.5, "chunks": 1})
    monkeypatch.setattr(observe, "SETTLE_S", 0.0)
    scripts = {
        "autoregressive": Script.of({"ttft_s": 0.005, "step_s": 0.01}),
        "ngram": Script.of({"ttft_s": 0.005, "step_s": 0.012, "tokens": [3], "draft": 7, "diverge_at": 5}),
    }
    rounds = [(method, repeat, False) for repeat in range(3) for method in scripts] + [("autoregressive", 3, True)]
    for method, repeat, closing in rounds:
        server = Engine(scripts[method]).start()
        folder = tmp_path / f"{method}-{repeat}"
        folder.mkdir()
        one = cell(method=method, prompts=PROMPTS, output_tokens=22)
        # the plan's specification, as far as a comparison reads it
        one["specification"] = {"workload": one["workload"], "arguments": {"method": method}, "concurrency": 1}
        path = job(
            folder, server.base_url, [one], method=method, repeat=repeat, closing=closing,
            results=str(tmp_path / "results" / "lab1"),
        )  # fmt: skip
        assert measure.Run(path).run() == 0
        server.stop()
    return tmp_path / "results"


def test_a_campaign_from_the_first_byte_to_the_report(campaign, tmp_path):
    """Speed-up, three factors, losslessness with its control, drift: all from files that nobody wrote for this test."""
    found = Findings(study.make(read(campaign)))
    assert not found.study.problems
    (one,) = found.study.comparisons
    assert one.method.acceptance.value == 3.0
    # 21 tokens behind the prefill's at 10 ms each, against 7 steps of 12 ms: 2.5 in the decode phase
    assert one.decode_speedup.value == pytest.approx(2.5, rel=0.15)
    assert one.speedup.has_interval
    assert one.speedup.prompts == 4
    step, baseline = one.step_ms
    assert step / baseline == pytest.approx(1.2, rel=0.15)
    same = one.same_output
    assert (same.asked, len(same.differing), same.asked_again, same.varying) == (12, 12, 4, 0)
    assert found.study.drifts[0].change.value == pytest.approx(1, rel=0.1)
    text = terminal.closing(found)
    assert "not real: scripted engine" in text
    assert "differs 12/12" in text
    report.write(found.study, tmp_path / "report", ("html", "tex"))
    (row,) = csv.DictReader((tmp_path / "report/tables/losslessness.csv").open())
    assert (row["identical"], row["first"], row["control"]) == ("0", "token 5", "4 of 4 identical")
