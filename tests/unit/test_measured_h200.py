"""Attempts of a real SGLang on real cards: what the parser, the counters and validity assume is what it sends."""

import gzip
import json
from pathlib import Path

import pytest

import analysis
from analysis import study, terminal
from analysis.findings import Findings
from gauntlet import lossless

RESULTS = Path(__file__).parents[2] / "docs/measured/h200/results"
ATTEMPTS = sorted(RESULTS.glob("*/*/*/cell.json"))


def cells(**wanted):
    read = [(json.loads(path.read_text()), path.parent) for path in ATTEMPTS]
    return [(cell, folder) for cell, folder in read if all(cell[key] == value for key, value in wanted.items())]


def requests(folder):
    with gzip.open(folder / "requests.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def test_all_of_it_is_read_and_all_but_two_attempts_are_quotable():
    """One asked for more than the server runs at once, as predicted; one had warm-up windows that did not agree."""
    found, _ = analysis.load(RESULTS)
    assert len(found) == len(ATTEMPTS) == 42
    refused = [(cell["cell_id"], cell["validity"]["reasons"]) for cell, _ in cells() if not cell["validity"]["valid"]]
    assert {cell_id.rpartition("-")[0]: [reason["code"] for reason in reasons] for cell_id, reasons in refused} == {
        "hybrid-27b-shape.dflash.tp1.short-128.c32": ["server_capped"],
        "smollm2-135m.ngram.tp1.prose.c1": ["warmup_not_converged"],
    }


@pytest.mark.parametrize("path", ATTEMPTS, ids=lambda path: path.parent.parent.name)
def test_sglangs_counters_are_the_sums_over_its_requests(path):
    cell, records = json.loads(path.read_text()), requests(path.parent)
    delta = cell["counters"]["delta"]
    assert delta["completion_tokens"] == sum(r["completion_tokens"] for r in records)
    assert delta["prompt_tokens"] == sum(r["prompt_tokens"] for r in records)
    assert delta["requests"] == len(records)
    if not cell["baseline"]:
        assert delta["verify_steps"] == sum(r["verify_steps"] for r in records)


def test_contexts_are_exact_in_tokens():
    for cell, folder in cells(model="qwen3-8b-shape"):
        wanted = {"context-1k": 1024, "context-3k-short": 3000, "context-30k-short": 30000}[cell["workload"]]
        assert {r["prompt_tokens"] for r in requests(folder)} == {wanted}


def test_a_drafter_of_nothing_accepts_nothing():
    """Dummy weights: every verify step gives its one token, and the prefill's token is not counted as a step's."""
    for method in ("eagle3", "dflash"):
        assert {cell["summary"]["acceptance_length"] for cell, _ in cells(model="qwen3-8b-shape", method=method)} == {
            1.0
        }


@pytest.mark.parametrize(("tp", "attempts", "within"), [(1, 20, 0.01), (2, 12, 0.02)])
def test_memory_was_predicted_before_the_start(tp, attempts, within):
    """What SGLang printed, stored with each attempt beside what was predicted on that host. With two cards: before
    NCCL's share of each was known."""
    shapes = [cell["observed"].get("memory") for cell, _ in cells(tp=tp) if "shape" in cell["model"]]
    stored = [memory for memory in shapes if memory]
    assert len(stored) == attempts
    for memory in stored:
        printed, predicted = memory["printed"], memory["predicted"]
        assert printed["kv_tokens"] == pytest.approx(predicted["kv_tokens"], rel=within)
        assert printed["max_running_requests"] == predicted["max_running_requests"] and not memory["differs"]


def test_made_up_acceptance_says_so():
    """Acceptance that SGLang was told to pretend is stored so, in the identity too, and shown so in every table."""
    simulated = [cell for cell, _ in cells(method="eagle3-topk4")]
    assert {tuple(cell["simulated"]) for cell in simulated} == {("SGLANG_SIMULATE_ACC_LEN=3.2",)}
    assert all(cell["specification"]["environment"]["SGLANG_SIMULATE_ACC_LEN"] == "3.2" for cell in simulated)
    table = terminal.closing(Findings(study.make(analysis.read(RESULTS))))
    assert table.count("eagle3-topk4 (simulated)") == 2


def test_both_benchmarks_agree():
    """Gauntlet and SGLang's own serving benchmark took turns on one server: tokens/s within two per cent."""
    rows = json.loads((RESULTS.parent / "crosscheck.json").read_text())
    assert [(row["concurrency"], row["turn"]) for row in rows] == [(1, 0), (16, 0), (1, 1), (16, 1)]
    for row in rows:
        assert row["gauntlet"]["completion_tokens"] == row["sglang"]["completion_tokens"]
        assert row["gauntlet"]["tokens_per_s"] == pytest.approx(row["sglang"]["tokens_per_s"], rel=0.02)


def test_the_baseline_is_identical_to_itself_and_speculation_is_not():
    """The control: only beside it can a difference be laid to the method."""

    def outputs(**wanted):
        ((_, folder),) = cells(model="smollm2-135m", workload="edit", **wanted)
        return {r["prompt_id"]: r["output_ids"] for r in requests(folder)}

    first, again = (outputs(method="autoregressive", closing=closing) for closing in (False, True))
    assert first == again
    other = outputs(method="ngram")
    differing = sorted(lossless.prefix(first[key], other[key]) for key in first if first[key] != other[key])
    assert differing == [59, 77]


def test_rows_of_two_environments_are_told_apart():
    """Two cards under two NCCL profiles: the one is the other's comparison only if it can be seen which is which."""
    made = study.make(analysis.read(RESULTS))
    on_two = [cell for cell in made.cells if cell.tp == 2]
    assert {cell.method.partition(" [")[0] for cell in on_two} == {"autoregressive", "dflash"}
    ring = [cell for cell in on_two if cell.method.endswith(" [NCCL_ALGO=Ring NCCL_P2P_LEVEL=SYS NCCL_PROTO=LL]")]
    assert len(on_two) == 12 and len(ring) == 6
    assert all(made.comparison_of(cell).baseline.declared["environment"] == cell.declared["environment"]
               for cell in on_two if not cell.baseline)  # fmt: skip
