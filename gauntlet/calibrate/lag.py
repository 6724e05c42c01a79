"""The client's lag: arrival as the client stamps it minus the moment the scripted engine sent, chunk by chunk."""

import json
import multiprocessing
from collections.abc import Sequence

from gauntlet import client, dialects
from gauntlet.calibrate.engine import Engine
from gauntlet.calibrate.script import Script
from gauntlet.errors import GauntletError
from gauntlet.timing import percentile

CHUNKS = 100
ROUNDS = 2


def _serve(pipe, script: Script) -> None:
    engine = Engine(script)
    pipe.send(engine.base_url)
    engine.serve_alone()


def measure(concurrency: int, script: Script | None = None, chunks: int = CHUNKS) -> dict:
    """{p50, p99} of the lag in ms at `concurrency` streams of 100 chunks/s, against an engine in its own process.

    Raises GauntletError when the client did not read what the script said.
    """
    script = script or Script()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    server = context.Process(target=_serve, args=(there, script), daemon=True)
    server.start()
    try:
        dialect = dialects.get("sglang")(here.recv())
        asks = [_ask(dialect, number, chunks) for number in range(ROUNDS * concurrency)]
        window = client.closed_loop(dialect, asks, concurrency)
        sent = dialect.json("/script/log")["log"]
    finally:
        server.terminate()
        server.join()
    lags = pair(window.answers, sent)
    return {"p50": 1000 * percentile(lags, 0.5), "p99": 1000 * percentile(lags, 0.99), "chunks": len(lags)}


def _ask(dialect, number: int, chunks: int) -> list[client.Ask]:
    body = dialect.body({"ids": _head(number)}, chunks, {}, True)
    return [client.Ask(json.dumps(body).encode(), {"number": number})]


def _head(number: int) -> list[int]:
    """A prompt that tells which request it is."""
    return list(number.to_bytes(4, "big"))


def pair(answers: Sequence[client.Answer], sent: Sequence[dict]) -> list[float]:
    """Lags in seconds: each chunk's arrival minus its send."""
    log = {tuple(entry["head"]): entry for entry in sent}
    lags = []
    for answer in answers:
        number, reading = answer.conversation, answer.reading
        entry = log.get(tuple(_head(number)))
        if reading.error or entry is None or reading.n != entry["n"]:
            why = reading.error["message"] if reading.error else f"{len(reading.t)} chunks arrived"
            raise GauntletError(f"the scripted stream {number} was not read as it was sent: {why}")
        lags += [arrived - at for arrived, at in zip(reading.t, entry["t"], strict=True)]
    return lags
