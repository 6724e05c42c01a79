"""Conclusions that were wrong elsewhere: the same figures in a results tree are flagged, not repeated.

The figures are those of tests/cases/42, 44, 45 and 47 as people reported them.
"""

import csv
import json
import re
from pathlib import Path

import pytest

from analysis import compare, read, report, study
from analysis.__main__ import main
from analysis.findings import Findings
from analysis.html import warnings
from tests.synthetic import AUTOREGRESSIVE, Method, Workload, attempts, save

EDIT = Workload("edit", 4)
CASES = Path(__file__).parent.parent / "cases"


def reported(name):
    """'Output token throughput (tok/s): 414.75' -> {'Output token throughput (tok/s)': 414.75}."""
    lines = (CASES / "42-peak-below-average" / name).read_text().splitlines()
    pairs = (line.rsplit(":", 1) for line in lines if ":" in line)
    return {key.strip(): float(value) for key, value in pairs if re.fullmatch(r"[\d.]+", value.strip())}


def as_fast_as(rows, tokens_per_s, concurrency=1, tokens=None):
    """Requests of a closed loop that together have this speed."""
    for place, row in enumerate(rows):
        row["completion_tokens"] = tokens or row["completion_tokens"]
        seconds = row["completion_tokens"] * concurrency / tokens_per_s
        row["sent"] = row["scheduled"] = place // concurrency * seconds
        row["first"], row["last"] = row["sent"] + 0.01, row["sent"] + seconds
        row["ended"] = row["last"]


def make(root, edit=None, chunks=None, methods=(AUTOREGRESSIVE,), workload=EDIT, **options):
    for cell, rows in attempts(methods, [workload], **options):
        if edit:
            edit(cell, rows)
            cell["summary"]["completion_tokens"] = sum(row["completion_tokens"] for row in rows)
            cell["window_s"] = max(row["ended"] for row in rows)
            cell["summary"]["tokens_per_s"] = cell["summary"]["completion_tokens"] / cell["window_s"]
        save(root, cell, rows, chunks(rows) if chunks else ())


def studied(root):
    return study.make(read(root), synthetic=True)


def doubts(root):
    return [sentence for found in studied(root).doubts.values() for sentence in found]


def test_42_time_per_token_that_is_a_time_per_chunk(tmp_path):
    """8.72 ms beside 292 tokens/s at concurrency 1: the corrected figure is 3.42 ms."""
    told = reported("a.txt")

    def edit(cell, rows):
        as_fast_as(rows, told["Output token throughput (tok/s)"])
        cell["summary"]["tpot_ms"] |= {"p50": told["Median ITL (ms)"]}

    make(tmp_path, edit, workload=Workload("edit", 4, output=256))
    (sentence,) = doubts(tmp_path)
    assert "chunks were counted as tokens" in sentence
    assert "3.42 ms" in sentence


@pytest.mark.parametrize("name", ["b.txt", "c.txt"])
def test_42_a_peak_below_the_average(name, tmp_path):
    """Most tokens came in no chunk that was counted; what is made of chunks is wrong."""
    told = reported(name)
    average, peak = told["Output token throughput (tok/s)"], told["Peak output token throughput (tok/s)"]
    concurrency = int(told.get("Max request concurrency", 1))
    workload = Workload("edit", 8 * concurrency, output=4000)

    def hidden(rows):
        ends = [(row["sent"], row["last"]) for row in rows]
        return [
            {"index": place, "t": [begin + 1e-3 + k for k in range(int(end - begin))],
             "n": [round((k + 1) * peak / concurrency) for k in range(int(end - begin))]}
            for place, (begin, end) in enumerate(ends)
        ]  # fmt: skip

    make(
        tmp_path, lambda cell, rows: as_fast_as(rows, average, concurrency), hidden, workload=workload,
        concurrency=(concurrency,),
    )  # fmt: skip
    found = doubts(tmp_path)
    assert found
    assert any("peak" in sentence and "below the average" in sentence for sentence in found)


def test_42_honest_chunks_are_not_doubted(tmp_path):
    """The neighbour whose chunks hold every token stays quotable."""

    def honest(rows):
        return [
            {"index": place, "t": [row["first"] + k * (row["last"] - row["first"]) / 199 for k in range(200)],
             "n": list(range(1, 201))}
            for place, row in enumerate(rows)
        ]  # fmt: skip

    make(tmp_path, lambda cell, rows: as_fast_as(rows, 100.0), honest, workload=Workload("edit", 4, output=200))
    assert not doubts(tmp_path)


@pytest.fixture
def builds(tmp_path):
    """Case 44: two builds in two trees and in one; the bad one counts 127 tokens where 1000 were asked for."""
    with (CASES / "44-same-wall-time-7x-throughput" / "results.csv").open() as stream:
        told = {row["build"]: row for row in csv.DictReader(stream)}
    for build, row in told.items():
        speed, latency = float(row["output_tok_s"]), float(row["request_latency_ms"]) / 1000

        def edit(cell, rows, speed=speed, latency=latency):
            as_fast_as(rows, speed, tokens=round(speed * latency))
            for one in rows:
                one["expected_tokens"], one["chunks"] = 1000, 2

        for root in (tmp_path / build, tmp_path / "both"):
            make(root, edit, workload=Workload("chat", 4, context=1000), engine_build=build)
    return tmp_path


def test_44_sevenfold_throughput_at_the_same_latency_is_not_repeated(builds, capsys):
    """A correctness bug, not a slow build: the comparison concludes the same speed within 4 %."""
    assert main(["compare", str(builds / "bad"), str(builds / "good"), "--synthetic"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "doubted" in said
    assert "7." not in said.split("what differs")[0].replace("127.", "")
    assert "latency is the same within 4%" in said
    assert "about 127 tokens a request were counted where 1000 were asked for" in said
    assert "slower" not in said and "faster" not in said


def test_44_the_report_flags_the_bad_build_alone(builds):
    """The good build's 145.73 tokens/s stand."""
    found = studied(builds / "both")
    assert [name for name in found.doubts if "good" not in name]
    assert len(found.doubts) == 1
    assert "the token count or the output differs, not the speed" in next(iter(found.doubts.values()))[0]
    assert any("about 127" in warning for warning in warnings(Findings(found)))


def test_44_a_method_with_degenerate_output_is_not_ranked(tmp_path):
    """The same trap between a method and its baseline: fewer tokens in the same time is no slowdown."""

    def edit(cell, rows):
        as_fast_as(
            rows, 20.0 if cell["method"] == "broken" else 150.0, tokens=130 if cell["method"] == "broken" else 975
        )
        for row in rows:
            row["expected_tokens"], row["finish_reason"] = 1000, "stop"

    make(tmp_path, edit, methods=(AUTOREGRESSIVE, Method("broken", 2.0, 1.0)), workload=Workload("chat", 8))
    found = studied(tmp_path)
    assert not [one for one in Findings(found).all() if one.kind in ("fastest", "slower")]
    assert "tokens/s do not compare" in " ".join(sum(found.doubts.values(), []))


def test_45_a_second_token_in_the_same_read_is_an_artefact(tmp_path):
    """0.0079 ms to the second token of a request of 6.66 s: flagged, and the other figures stand."""
    told = json.loads((CASES / "45-coalesced-second-token" / "aiperf.json").read_text())
    second = told["time_to_second_token"]["p50"] / 1000

    def chunks(rows):
        return [
            {"index": place, "t": [row["first"], row["first"] + second, row["last"]], "n": [1, 2, 128]}
            for place, row in enumerate(rows)
        ]

    make(tmp_path, chunks=chunks)
    found = studied(tmp_path)
    assert not found.doubts
    assert "one read held both" in " ".join(sum(found.remarks.values(), []))


def test_45_null_is_not_measured_and_never_zero(tmp_path):
    """Streaming was off: no token times, and a dash where others print 0."""
    told = json.loads((CASES / "45-coalesced-second-token" / "inference-perf.json").read_text())
    assert told["successes"]["latency"]["time_per_output_token"] is None

    def edit(cell, rows):
        for row in rows:
            row["first"], row["chunks"], row["first_chunk_tokens"] = row["last"], 1, None
        cell["summary"]["tpot_ms"] = cell["summary"]["chunk_gap_ms"] = None

    make(tmp_path, edit)
    found = studied(tmp_path)
    assert "streaming off" in " ".join(sum(found.remarks.values(), []))
    report.write(found, tmp_path / "report", ("html",))
    with (tmp_path / "report/tables/latency.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    assert row["tpot_p50_ms"] == ""
    assert float(row["e2e_p50_ms"]) > 0


def test_45_a_tiny_negative_delay_drops_no_request(tmp_path):
    """The clock's grain: a request sent 0.73 ms before it was due is a request."""
    told = json.loads((CASES / "45-coalesced-second-token" / "inference-perf.json").read_text())
    early = told["load_summary"]["schedule_delay"]["min"]
    assert early < 0

    def edit(cell, rows):
        for row in rows:
            row["scheduled"] = row["sent"] - early

    make(tmp_path, edit)
    found = studied(tmp_path)
    assert not found.doubts
    assert [cell.requests for cell in found.cells] == [12]


@pytest.fixture
def memory_splits(tmp_path):
    """Case 47: one build, three memory splits at 40 streams and two smoke runs, each in a tree and all in one."""
    with (CASES / "47-kv-pool-threshold-not-regression" / "runs.csv").open() as stream:
        for run in csv.DictReader(stream):
            streams, context = int(run["streams"]), int(run["tokens_per_stream"])

            def edit(cell, rows, run=run, streams=streams, context=context):
                as_fast_as(rows, float(run["output_tok_s"]), streams)
                for row in rows:
                    row["cached_tokens"] = round(float(run["hit_rate"]) * row["prompt_tokens"])
                cell["server"]["max_total_num_tokens"] = int(run["kv_pool_tokens"])

            method = Method("autoregressive", baseline=True, arguments={"mem-fraction-static": run["run"]})
            for root in (tmp_path / run["run"], tmp_path / "all"):
                make(
                    root, edit, methods=(method,), workload=Workload("agents", 40, context=context - 128),
                    concurrency=(streams,),
                )  # fmt: skip
    return tmp_path


def test_47_the_pool_was_crossed_not_the_engine_slower(memory_splits, capsys):
    """254 against 25 tokens/s of the same build: named by pool, working set and hit rate; never 'slower'."""
    a, b = memory_splits / "r0.5", memory_splits / "r0.9"
    assert main(["compare", str(a), str(b), "--synthetic"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "the KV pool was crossed" in said
    assert "1,910,000 tokens of pool for a working set of 2,400,000" in said
    assert "hit rate 0.20 against 0.98" in said
    assert "mem-fraction-static: r0.5 → r0.9" in said
    assert "slower" not in said


def test_47_the_report_flags_both_small_pools_and_not_the_smoke_runs(memory_splits):
    """A cold single stream shows no difference, so it says nothing about the pools either."""
    found = studied(memory_splits / "all")
    crossed = {name for name, texts in found.remarks.items() if "KV pool was crossed" in " ".join(texts)}
    assert len(crossed) == 2
    assert all(".c40-" in name for name in crossed)


def test_47_a_smoke_run_compares_as_it_is(memory_splits):
    """With one stream both pools hold everything: same speed, no doubt."""
    a, b = (compare.side(str(memory_splits / name), "", True) for name in ("smoke-r0.5", "smoke-r0.9"))
    (change,) = compare.changes(a, b)
    assert not change.doubts


def test_47_a_method_whose_drafter_takes_the_pool_away(tmp_path):
    """The same trap between a method and its baseline: it is memory, so it is not ranked."""

    def edit(cell, rows):
        small = cell["method"] == "dflash"
        as_fast_as(rows, 30.0 if small else 250.0, 40)
        cell["server"]["max_total_num_tokens"] = 2_000_000 if small else 3_320_000

    make(
        tmp_path, edit, methods=(AUTOREGRESSIVE, Method("dflash", 3.0, 1.3)), concurrency=(40,),
        workload=Workload("agents", 40, context=60_000 - 128),
    )  # fmt: skip
    found = studied(tmp_path)
    assert "the KV pool was crossed" in " ".join(sum(found.doubts.values(), []))
    assert not [one for one in Findings(found).all() if one.kind == "slower"]
