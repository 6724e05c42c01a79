"""The check of a host's deployments from what is staged there: errors and warnings come with what fits instead."""

import json
from pathlib import Path

import pytest

from gauntlet.errors import GauntletError
from gauntlet.preflight import run, sentence

CASES = Path(__file__).parents[1] / "cases"
QWEN = json.loads((CASES / "33-config-facts/qwen3.6-27b/config.json").read_text())
DFLASH = {
    "architectures": ["DFlashDraftModel"], "num_hidden_layers": 5, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "block_size": 16, "max_position_embeddings": 262144,
}  # fmt: skip
GIB = 1 << 30
CARD = {"capability": [12, 0], "memory_mib": 97887, "count": 8}


@pytest.fixture
def host(tmp_path):
    """The founding weights as staged: configs, and files of their size that hold nothing."""
    for name, config, size in (("m", QWEN, 51.7), ("d", DFLASH, 3.3)):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        with (folder / "model.safetensors").open("wb") as file:
            file.truncate(int(size * GIB))
    return tmp_path


def check(host, arguments, release="0.5.23", card=CARD, **changes):
    """A build of the scripted engine: everything but SGLang's own word."""
    deployment = {
        "name": "d", "engine": "sglang", "engine_build": f"sglang-{release}-scripted", "tp": 1, "environment": {},
        "arguments": {"speculative-algorithm": "DFLASH", "context-length": 32768, **arguments},
        "weights": {"model": {"id": "m"}, "drafter": {"id": "d"}}, **changes,
    }  # fmt: skip
    return run.run([deployment], models=str(host / "models"), pretend=card, cache=host / "cache")


def said(answer, level):
    return [sentence(one) for one in answer["findings"] if one["level"] == level]


STARVES = {"mem-fraction-static": 0.75, "max-running-requests": 8}


def test_the_founding_failure_is_an_error_with_what_fits(host):
    answer = check(host, {**STARVES, "mamba-scheduler-strategy": "extra_buffer"}, "0.5.12.post1")
    (only,) = said(answer, "error")
    assert "max_running_request is zero" in only and "for all requested requests" in only
    assert "what fits: max-running-requests 8 → 4" in only


def test_a_cap_below_what_was_given_is_a_warning_whose_advice_was_calculated(host):
    answer = check(host, STARVES)
    assert said(answer, "error") == []
    (only,) = said(answer, "warning")
    assert "max-running-requests 8: the server will run" in only
    assert "disable-radix-cache" in only or "tp 1 → 2" in only
    assert "max-running-requests 8 →" not in only


def test_no_more_gpus_are_advised_than_there_are(host):
    assert "tp 1 →" in said(check(host, STARVES), "warning")[0]
    assert "tp 1 →" not in said(check(host, STARVES, card=CARD | {"count": 1}), "warning")[0]


def test_what_fits_says_nothing(host):
    answer = check(host, {"mem-fraction-static": 0.85, "max-running-requests": 2})
    assert answer["findings"] == []


def test_the_prediction_is_kept_for_the_start(host):
    answer = check(host, {"mem-fraction-static": 0.85, "max-running-requests": 2})
    assert run.predicted("d", host / "cache") == json.loads(json.dumps(answer["predictions"]["d"]))
    assert run.predicted("another", host / "cache") is None


def test_weights_that_are_not_staged_are_said_so(host):
    with pytest.raises(GauntletError, match="stage the weights first"):
        check(host, {}, weights={"model": {"id": "elsewhere"}})


def test_other_engines_have_nothing_to_check(host):
    assert check(host, {}, engine="llamacpp") == {"findings": [], "predictions": {}, "builds": {}}


def test_a_build_that_cannot_be_asked_is_named(host):
    deployment = {"name": "d", "engine": "sglang", "engine_build": "sglang-0.5.23", "tp": 1, "environment": {},
                  "arguments": {}, "weights": {"model": {"id": "m"}}}  # fmt: skip
    options = {"models": str(host / "models"), "engines_folder": str(host), "libexec": str(host), "cache": host / "c"}
    with pytest.raises(GauntletError, match=r"sglang-0\.5\.23 cannot be asked"):
        run.run([deployment], pretend=CARD, **options)
    python = host / "sglang-0.5.23/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 'ImportError: no kernel' >&2; exit 1\n")
    python.chmod(0o755)
    with pytest.raises(GauntletError, match="cannot be imported: ImportError: no kernel"):
        run.run([deployment], pretend=CARD, **options)
