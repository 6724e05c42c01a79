"""Real and reported streams have known answers; a field that is missing is named, never zero."""

import json

import pytest

from gauntlet import lossless, timing
from gauntlet.cell import rows
from gauntlet.client import Answer, Trace, Window
from gauntlet.dialects import get
from gauntlet.dialects.llamacpp import step_ends
from gauntlet.errors import GauntletError
from tests.measuring import RECORDINGS, case, recording


def read(name, dialect="sglang"):
    return get(dialect).read(*recording(name))


def records(*names):
    """Request records of recorded streams, as a cell stores them."""
    answers = [Answer(i, {"prompt_id": name}, Trace(0, 0.0), read(name)) for i, name in enumerate(names)]
    return rows(Window(answers, 0.0, 1.0, 1.0, 0.0, 1, 1))[0]


@pytest.mark.parametrize(
    ("name", "tokens", "steps", "accepted"),
    [
        ("smollm2-ngram.edit", 192, 156, 35),
        ("smollm2-ngram.prose", 256, 176, 85),
        ("smollm2-dflash.edit", 192, 184, 7),
        ("eagle3-tree-simulated.edit", 256, 81, 175),
        ("smollm2-ar.prose", 256, None, None),
    ],
)
def test_recorded_speculation(name, tokens, steps, accepted):
    """Tokens, verify steps and accepted drafts of real SGLang; a chunk is a step, the first is the prefill's."""
    reading = read(f"{name}.generate_stream.sse")
    assert (reading.completion_tokens, reading.verify_steps, reading.accepted) == (tokens, steps, accepted)
    assert len(reading.output_ids) == tokens and reading.n[-1] == tokens and reading.n[0] == 1
    assert reading.error is None and reading.anomalies == []
    if steps:
        assert len(reading.t) == steps + 1


def test_acceptance_is_a_ratio_of_sums_without_the_prefill_token():
    """191/156 for the edit prompt alone; over two prompts the sums are divided, not the ratios averaged."""
    edit, prose = (f"smollm2-ngram.{name}.generate_stream.sse" for name in ("edit", "prose"))
    assert timing.acceptance_length(records(edit)) == 191 / 156
    assert timing.acceptance_length(records(edit, prose)) == (191 + 255) / (156 + 176)


def test_tokens_cut_by_the_length_are_not_counted():
    """EAGLE-3's last step proposed more than was left: 81 steps + 175 accepted + 1 = 257, and 256 were given."""
    reading = read("eagle3-tree-simulated.edit.generate_stream.sse")
    assert reading.verify_steps + reading.accepted + 1 == 257
    (record,) = records("eagle3-tree-simulated.edit.generate_stream.sse")
    assert timing.acceptance_length([record]) == 255 / 81


@pytest.mark.parametrize(("prompt", "first"), [("edit", None), ("repeat", None), ("prose", 132)])
def test_recorded_losslessness(prompt, first):
    """Two prompts are identical under n-gram speculation, prose differs first at output token 132."""
    ours, theirs = records(f"smollm2-ngram.{prompt}.generate_stream.sse", f"smollm2-ar.{prompt}.generate_stream.sse")
    found = lossless.compare(ours, theirs)
    assert (found["identical"], found["first_divergence"], found["unit"]) == (first is None, first, "token")
    assert found["matching_share"] == (1.0 if first is None else 132 / 256)


@pytest.mark.parametrize(("name", "reserved"), [("smollm2-ngram", 9000), ("eagle3-tree-simulated", 9016)])
def test_an_overflow_inside_a_200_stream_is_a_failure(name, reserved):
    """The native route refuses with status 200; EAGLE-3's message counts its 16 reserved tokens."""
    reading = read(f"{name}.overflow_stream.sse")
    assert reading.error["status"] == 400 and f"({reserved} tokens)" in reading.error["message"]
    assert reading.completion_tokens is None


def test_the_openai_route_of_a_recording():
    """Usage counts; chunks without continuous usage do not: the last text chunk carries its finish reason as well."""
    reading = read("smollm2-ngram.edit.completions_stream.sse", "openai")
    assert (reading.completion_tokens, reading.prompt_tokens, reading.token_source) == (192, 172, "usage")
    assert reading.finish_reason == "stop" and set(reading.n) == {None}
    native = read("smollm2-ngram.edit.generate_stream.sse")
    assert reading.output_text == native.output_text


def test_a_role_only_chunk_is_no_token():
    """Its arrival would be a TTFT that no reader ever saw."""
    times, pieces = recording("ar-8b.chat_stream.sse")
    reading = get("openai").read(times, pieces)
    assert reading.t[0] == times[2] and len(reading.t) == 64


def test_spec_fields_by_release():
    """0.5.10 to 0.5.23 name the same three things differently."""
    releases = [
        {"spec_verify_ct": 4, "spec_accept_token_num": 9, "spec_draft_token_num": 12},
        {"spec_verify_ct": 4, "spec_accepted_drafts": 5, "spec_proposed_drafts": 12},
        {"spec_verify_ct": 4, "spec_num_correct_drafts": 5, "spec_num_proposed_drafts": 12},
    ]
    for fields in releases:
        meta = {"prompt_tokens": 3, "completion_tokens": 10, "finish_reason": {"type": "length"}, **fields}
        reading = get("sglang").read([1.0], [_event({"text": "x", "output_ids": list(range(10)), "meta_info": meta})])
        assert (reading.verify_steps, reading.accepted, reading.drafted) == (4, 5, 12)


def test_an_unknown_release_names_what_it_lacks():
    """A renamed count must not become a zero."""
    meta = {"prompt_tokens": 3, "output_token_count": 10, "finish_reason": {"type": "length"}}
    reading = get("sglang").read([1.0], [_event({"text": "x", "meta_info": meta})])
    assert reading.completion_tokens is None
    assert "lacks completion_tokens" in reading.error["message"] and "output_token_count" in reading.error["message"]


def test_incremental_output_is_put_together():
    """--incremental-streaming-output sends each part once."""
    parts = [("a", [1], 1), ("bc", [2, 3], 3), ("d", [4], 4)]
    pieces = []
    for text, ids, n in parts:
        meta = {"prompt_tokens": 1, "completion_tokens": n, "finish_reason": {"type": "stop"} if n == 4 else None}
        pieces.append(_event({"text": text, "output_ids": ids, "meta_info": meta}))
    reading = get("sglang").read([1.0, 2.0, 3.0], pieces)
    assert (reading.output_text, reading.output_ids, reading.n) == ("abcd", [1, 2, 3, 4], [1, 3, 4])


def test_text_that_looks_like_a_count_is_text():
    """A model may write JSON: its quotes are escaped inside JSON, the field's are not."""
    meta = {"prompt_tokens": 1, "completion_tokens": 2, "finish_reason": {"type": "stop"}}
    value = {"text": '{"completion_tokens": 999}', "output_ids": [1, 2], "meta_info": meta}
    assert get("sglang").read([1.0], [_event(value)]).n == [2]


def test_llamacpp_comments_null_content_and_a_lone_space():
    """Pings every 30 s are no tokens, null is no text, " " is a token, and the last line has no end."""
    reading = get("openai").read(*case("21-*/stream.raw"))
    assert (reading.output_text, reading.completion_tokens, reading.prompt_tokens) == (" ok", 2, 20480)
    assert (reading.finish_reason, len(reading.t), reading.error) == ("stop", 2, None)


@pytest.mark.parametrize(("form", "words"), [("old", "context size"), ("new", "context shift")])
@pytest.mark.parametrize("dialect", ["openai", "llamacpp"])
def test_llamacpp_errors_in_mid_stream(form, words, dialect):
    """An SSE field `error`, or an error object: a failed request with the server's words, no success with 0 tokens."""
    reading = get(dialect).read(*case(f"22-*/{form}.raw"))
    assert words in reading.error["message"] and reading.completion_tokens is None


def test_a_chunk_that_repeats_the_text_and_a_second_finish():
    """The count is the server's, the repetition is flagged, a second finish adds nothing."""
    reading = get("openai").read(*case("25-*/stream.raw"))
    assert (reading.completion_tokens, reading.finish_reason, reading.error) == (5, "length", None)
    assert set(reading.anomalies) == {"text_repeated", "duplicate_finish"} and len(reading.t) == 4
    assert reading.output_text == " New York is a city"


def test_an_empty_finish_reason_is_none():
    """Only a non-empty one is final, its chunk's text is kept, and without usage nothing is counted."""
    reading = get("openai").read(*case("26-*/stream.raw"))
    assert (reading.output_text, reading.finish_reason) == ("<think>Hi</think>!.", "length")
    assert reading.completion_tokens is None and reading.token_source is None
    assert reading.anomalies == ["usage_missing"]


def test_llamacpp_steps_from_accepted_counts():
    """A token tells the drafts accepted so far, the first of a step those of its whole step; a stop may cut it."""
    assert step_ends([0, 0, 2, 2, 2, 2]) == [1, 2, 5, 6]
    assert step_ends([0, 3, 3]) == [1, 3]
    assert step_ends([0]) == [1] and step_ends([]) == []


def test_a_stream_that_just_ends_is_a_failure():
    """No finish reason, no [DONE]: nobody knows what was cut off."""
    times, pieces = recording("smollm2-ngram.edit.generate_stream.sse")
    assert get("sglang").read(times[:100], pieces[:100]).error["kind"] == "cut_off"


def test_what_is_no_json_fails_the_request():
    """A proxy's page in the stream is shown as what it is."""
    assert "<html>" in get("openai").read([1.0], [b"data: <html>\n\n"]).error["message"]


def test_counters_of_a_recorded_page():
    """Names with colons and labels; the sums that the requests of that server add up to."""
    text = (RECORDINGS / "smollm2-ngram.metrics.txt").read_text()
    assert get("sglang").counters(text) == {
        "prompt_tokens": 1746.0, "completion_tokens": 2267.0, "verify_steps": 1770.0, "requests": 16.0,
    }  # fmt: skip


def test_a_tree_of_drafts_as_recorded():
    """EAGLE-3 with four children a node: several tokens a chunk, and the acceptance without the prefill's token, which
    SGLang's own figure counts (96 / 31 = 3.10); its counters count the verify steps of all that it answered."""
    topk4 = "../sglang-0.5.16-h200-topk4"
    reading = read(f"{topk4}/generate_stream.sse")
    assert (reading.completion_tokens, reading.verify_steps, reading.accepted, reading.drafted) == (96, 31, 66, 465)
    assert len(reading.n) == 32 and reading.n[:4] == [1, 4, 7, 10]
    (record,) = records(f"{topk4}/generate_stream.sse")
    assert timing.acceptance_length([record]) == pytest.approx(95 / 31)
    assert read(f"{topk4}/completions_stream.sse", "openai").completion_tokens == 96
    assert "40016 tokens" in read(f"{topk4}/overflow_stream.sse").error["message"]  # max(4 x 3, 16) are reserved
    assert get("sglang").counters((RECORDINGS / topk4 / "metrics.txt").read_text()) == {
        "prompt_tokens": 388.0, "completion_tokens": 204.0, "verify_steps": 64.0, "requests": 4.0,
    }  # fmt: skip


def test_an_unknown_dialect_has_a_nearest_name():
    """A typo in an inventory is answered with what was meant."""
    with pytest.raises(GauntletError, match="did you mean 'sglang'"):
        get("sglan")


def _event(value):
    return b"data: " + json.dumps(value).encode() + b"\n\n"
