"""What the client says against what the scripted engine did: every token, every form of stream, every failure."""

import json

import pytest

from gauntlet import client, loop
from gauntlet.calibrate.engine import Engine
from gauntlet.calibrate.lag import pair
from gauntlet.calibrate.script import Script
from gauntlet.dialects import get
from gauntlet.errors import GauntletError
from tests.measuring import FAST

DIALECTS = ["sglang", "llamacpp", "openai", "chat"]


@pytest.fixture
def play():
    """play(dialect, tokens=…, **script) -> (window, log of the engine, dialect)."""
    engines = []

    def run(name="sglang", tokens=12, count=1, concurrency=1, overrides=None, prompt=4, cycle=(1,), **script):
        engine = Engine(Script.of({**FAST, "tokens": cycle, **script})).start()
        engines.append(engine)
        engine.overrides = {n: Script.of(one, engine.script) for n, one in (overrides or {}).items()}
        dialect = get("openai" if name == "chat" else name)(engine.base_url)
        dialect.chat = name == "chat"
        window = client.closed_loop(dialect, [[ask(dialect, i, tokens, prompt)] for i in range(count)], concurrency)
        return window, engine.log, dialect

    yield run
    for engine in engines:
        engine.stop()


def ask(dialect, number, tokens, prompt=4):
    ids = [*number.to_bytes(4, "big"), *[97] * (prompt - 4)]
    given = {"ids": ids, "text": bytes(ids).decode("latin-1"), "messages": [{"role": "user", "content": "x" * prompt}]}
    return client.Ask(json.dumps(dialect.body(given, tokens, {}, True)).encode(), {"number": number})


def only(window):
    (answer,) = window.answers
    return answer.trace, answer.reading


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("cycle", [[1], [4], [17], [1, 2, 17], [2.5]])
def test_tokens_and_steps_are_exact(play, dialect, cycle):
    """1 to 17 tokens a chunk, in all dialects: the server's count at each chunk, and arrival after its send."""
    window, (sent,), _ = play(dialect, 40, cycle=cycle, draft=16)
    trace, reading = only(window)
    assert reading.error is None and reading.completion_tokens == 40
    assert reading.n == sent["n"]
    assert all(arrived >= at for arrived, at in zip(reading.t, sent["t"], strict=True))
    assert trace.scheduled <= trace.sent <= reading.t[0] <= trace.ended


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("framing", ["split", "together"])
def test_framing_changes_nothing(play, dialect, framing):
    """Seven bytes a frame, or two steps in one segment: the same answer."""
    window, _, _ = play(dialect, 20, cycle=[3], draft=2, framing=framing, unicode=True)
    reading = only(window)[1]
    plain = only(play(dialect, 20, cycle=[3], draft=2, unicode=True)[0])[1]
    assert reading.error is None
    assert (reading.output_ids, reading.completion_tokens) == (plain.output_ids, plain.completion_tokens)
    if dialect != "llamacpp":  # one byte a token there: half a character is no text
        assert reading.output_text == plain.output_text


@pytest.mark.parametrize("dialect", ["sglang", "llamacpp"])
def test_speculation_is_read_as_it_was(play, dialect):
    """Verify steps, drafted and accepted tokens, also when the server counts accepted tokens behind a stop."""
    window, (sent,), _ = play(dialect, 30, cycle=[3], draft=7, stop_after=20, accepted_past_stop=2)
    reading = only(window)[1]
    assert (reading.completion_tokens, reading.finish_reason) == (20, "stop")
    assert (reading.verify_steps, reading.accepted, reading.drafted) == (
        sent["verify_steps"], sent["accepted"], sent["drafted"],
    )  # fmt: skip


def test_role_empty_and_reasoning_chunks(play):
    """The first token is the first reasoning token, not the role and not the empty chunks before it."""
    window, (sent,), _ = play("chat", 10, empty_chunks=3, reasoning=4)
    reading = only(window)[1]
    assert reading.t[0] >= sent["t"][0] and len(reading.t) == 10
    assert (reading.reasoning_tokens, reading.completion_tokens) == (4, 10)


def test_a_long_prompt_is_sent_whole(play):
    """100,000 token ids in, the server counts as many."""
    reading = only(play("sglang", 2, prompt=100_000)[0])[1]
    assert (reading.prompt_tokens, reading.error) == (100_000, None)


def test_slow_headers_are_part_of_the_first_token(play):
    """Nothing but the wait may change: TTFT is from the request, not from the headers."""
    window, (sent,), _ = play("sglang", 3, headers_s=0.05)
    trace, reading = only(window)
    assert reading.t[0] - trace.sent >= 0.05 + FAST["ttft_s"] and reading.n == sent["n"]


def test_a_kept_connection_that_was_closed_is_opened_anew(play):
    """Keep-alive ends between requests: no failure, and the new connect time is told."""
    window, _, _ = play("sglang", 2, count=3, close=True)
    assert [answer.reading.error for answer in window.answers] == [None] * 3
    assert all(answer.trace.connect_s is not None for answer in window.answers)


def test_a_reused_connection_has_no_connect_time(play):
    """A figure that was not measured is None, never 0."""
    window, _, _ = play("sglang", 2, count=2)
    assert [answer.trace.connect_s is None for answer in window.answers] == [False, True]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ({"error_after": 3}, "server", "scripted error in mid-stream"),
        ({"reset_after": 3}, "connection_lost", ""),
        ({"status": 500}, "refused", "scripted refusal"),
        ({"status": 400}, "refused", "scripted refusal"),
    ],
)
def test_one_failure_leaves_its_neighbours(play, dialect, fault, kind, words):
    """An error in mid-stream, a reset, a refusal: that request failed and says how, the next one is whole."""
    window, _, _ = play(dialect, 8, count=3, overrides={1: fault})
    errors = [answer.reading.error for answer in window.answers]
    assert errors[0] is None and errors[2] is None
    assert errors[1]["kind"] == kind and words in errors[1]["message"]


def test_nobody_listens():
    """A server that is gone is told apart from one that breaks off."""
    engine = Engine(Script()).start()
    dialect = get("sglang")(engine.base_url)
    engine.stop()
    window = client.closed_loop(dialect, [[ask(dialect, 0, 2)]], 1)
    assert only(window)[1].error["kind"] == "server_gone"


def test_401_names_the_secret():
    """Which key file is missing or refused, and never the key."""
    engine = Engine(Script(), key="right").start()
    try:
        for key_file, words in (
            (None, "none is named"),
            ("/etc/gauntlet/secrets/api", "/etc/gauntlet/secrets/api is refused"),
        ):
            dialect = get("sglang")(engine.base_url, "wrong", key_file)
            error = only(client.closed_loop(dialect, [[ask(dialect, 0, 2)]], 1))[1].error
            assert error["status"] == 401 and words in error["message"] and "wrong" not in error["message"]
    finally:
        engine.stop()


def test_several_processes_read_the_same(play):
    """From C > 32 the load is spread; every request comes back once, tokens exact."""
    window, sent, _ = play("sglang", 5, count=80, concurrency=40)
    assert window.processes == window.threads == 2
    assert sorted(answer.conversation for answer in window.answers) == list(range(80))
    assert all(answer.reading.completion_tokens == 5 for answer in window.answers)
    assert len(pair(window.answers, sent)) == 80 * 5


def test_the_loop_is_closed(play):
    """A worker's next request is due the moment its last one ended; no more than C are under way."""
    window, sent, _ = play("sglang", 6, count=9, concurrency=3)
    for worker in range(3):
        own = [answer.trace for answer in window.answers if answer.trace.worker == worker]
        assert all(later.scheduled == earlier.ended for earlier, later in zip(own, own[1:], strict=False))
    for entry in sent:
        under_way = [e for e in sent if e["arrived"] <= entry["arrived"] <= e["t"][-1]]
        assert len(under_way) <= 3


def test_long_answers_are_parsed_in_time(play, monkeypatch):
    """Beyond the memory kept for later, a request is parsed when it is over; nothing is lost by that."""
    monkeypatch.setattr(loop, "KEEP_BYTES", 0)
    window, sent, _ = play("sglang", 5, count=3)
    assert [answer.reading.n for answer in window.answers] == [entry["n"] for entry in sent]


def test_a_stream_that_was_not_read_is_no_calibration(play):
    """Lag is only lag when client and server speak of the same chunks."""
    window, sent, _ = play("sglang", 5)
    sent[0]["n"] = sent[0]["n"][:-1]
    with pytest.raises(GauntletError, match="not read as it was sent"):
        pair(window.answers, sent)


def test_a_turn_heard_of_while_others_connect_is_asked_at_once(monkeypatch):
    """The wake-up for a turn that was made during the first connects is read there; what it was for must not wait for
    the next arrival of anybody, which may be long in coming."""
    engine = Engine(Script.of({**FAST, "tokens": (1,)})).start()
    dialect = get("sglang")(engine.base_url)
    conversation = [ask(dialect, 0, 4), client.Ask(None, {}, lambda readings: ask(dialect, 1, 4))]
    sweep, waits = loop.Loop._sweep, []

    def watched(self, seconds):
        waits.append((bool(self._ready), seconds))
        heard = sweep(self, seconds)
        while seconds == 0 and len(waits) == 1 and not self._ready:  # the one connect takes that long
            heard = sweep(self, 0.01) or heard
        return heard

    monkeypatch.setattr(loop.Loop, "_sweep", watched)
    try:
        window = client.closed_loop(dialect, [conversation], 1)
    finally:
        engine.stop()
    assert [answer.reading.completion_tokens for answer in window.answers] == [4, 4]
    assert (True, 0.0) in waits and all(seconds == 0 for ready, seconds in waits if ready)
