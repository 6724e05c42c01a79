"""Attempts of a real SGLang on real cards: what the parser, the counters and validity assume is what it sends."""

import gzip
import json
from pathlib import Path

import pytest

import analysis
from gauntlet import lossless

RESULTS = Path(__file__).parents[2] / "docs/measured/h200/results"
ATTEMPTS = sorted(RESULTS.glob("*/*/*/cell.json"))


def cells(**wanted):
    read = [(json.loads(path.read_text()), path.parent) for path in ATTEMPTS]
    return [(cell, folder) for cell, folder in read if all(cell[key] == value for key, value in wanted.items())]


def requests(folder):
    with gzip.open(folder / "requests.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def test_all_of_it_is_read_and_quotable():
    found, _ = analysis.load(RESULTS)
    assert len(found) == len(ATTEMPTS) == 22
    assert found["valid"].all()


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
    for cell, folder in cells(model="qwen3-8b-shared"):
        wanted = {"context-3k-short": 3000, "context-30k-short": 30000}[cell["workload"]]
        assert {r["prompt_tokens"] for r in requests(folder)} == {wanted}


def test_a_drafter_of_nothing_accepts_nothing():
    """Dummy weights: every verify step gives its one token, and the prefill's token is not counted as a step's."""
    for method in ("eagle3", "dflash"):
        assert {cell["summary"]["acceptance_length"] for cell, _ in cells(model="qwen3-8b-shared", method=method)} == {
            1.0
        }


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
