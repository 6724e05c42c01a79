"""A job end to end against the scripted engine: what is stored, what is refused, what survives."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gauntlet import attempt, dialects, gpu_samples, measure, observe, prompts
from gauntlet.calibrate import lag
from gauntlet.calibrate.engine import Engine
from gauntlet.calibrate.script import Script
from gauntlet.dialects.sglang import SGLang
from gauntlet.errors import GauntletError
from gauntlet.validity import RULES
from tests.measuring import FAST, attempts, cell, deployment, job, progress

INSIDE_SPREAD = {"{p50, p90, p99, mean, n}"}
LAG = {"p50": 0.1, "p99": 0.5, "chunks": 1}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Calibration has its own test; counters are not waited for."""
    monkeypatch.setattr(lag, "measure", lambda concurrency: LAG)
    monkeypatch.setattr(observe, "SETTLE_S", 0.0)


@pytest.fixture
def engine():
    """engine(overrides=…, **script) -> a running scripted engine."""
    started = []

    def start(overrides=None, facts=None, key=None, **script):
        started.append(Engine(Script.of({**FAST, **script}), facts=facts, key=key).start())
        started[-1].overrides = {n: Script.of(one, started[-1].script) for n, one in (overrides or {}).items()}
        return started[-1]

    yield start
    for one in started:
        one.stop()


def run(folder, server, cells=None, **more):
    """(exit status, attempts) of a job."""
    path = job(folder, server.base_url, cells or [cell()], **more)
    return measure.Run(path).run(), attempts(folder)


def codes(made):
    return [reason["code"] for reason in made["validity"]["reasons"]]


@pytest.mark.parametrize("dialect", ["sglang", "llamacpp", "openai"])
def test_an_attempt_is_stored_as_documented(tmp_path, engine, dialect):
    """Valid, marked as simulated, files hashed; counts exact and times in order."""
    _, ((made, requests, chunks),) = run(
        tmp_path, engine(tokens=[2], draft=3), dialect=dialect, method="autoregressive"
    )
    assert made["validity"] == {"valid": True, "reasons": [], "limits": made["validity"]["limits"]}
    assert made["simulated"] == ["scripted engine"] and made["summary"]["completion_tokens"] == 16
    assert made["counters"]["agree"] is True and made["cache"]["salt"] and made["warmup"]["converged"]
    folder = tmp_path / "results" / made["cell_id"] / made["attempt"]
    for name, digest in made["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert [request["index"] for request in requests] == [line["index"] for line in chunks] == [0, 1]
    for request, line in zip(requests, chunks, strict=True):
        assert 0 <= request["scheduled"] <= request["sent"] <= request["first"] <= request["last"] <= request["ended"]
        assert line["n"][-1] == 8 and len(line["t"]) == len(line["n"]) == request["chunks"]


def test_every_documented_key_is_stored(tmp_path, engine):
    """docs/results-format.md is the contract of the analysis: each key that it names is there."""
    _, ((made, requests, _),) = run(tmp_path, engine())
    text = (measure.Path(__file__).parents[2] / "docs" / "results-format.md").read_text()
    head, tail = text.split("## requests.jsonl.gz")
    table = [row.split("|")[1] for row in head.splitlines() if row.startswith("| `")]
    assert {word for row in table for word in row.split("`")[1::2]} == made.keys()
    for key in ("cache", "client", "invocation", "warmup", "validity"):
        row = next(row for row in head.splitlines() if row.startswith(f"| `{key}`"))
        assert all(name in row for name in made[key] or ()), row
    assert made["summary"].keys() == set(head.split("`summary`: ")[1].split("`")[1::2]) - INSIDE_SPREAD
    assert requests[0].keys() <= set(tail.split("`")[1::2])


@pytest.mark.parametrize("method", ["autoregressive", "ngram"])
def test_acceptance_against_the_script(tmp_path, engine, method):
    """3 tokens a step after the prefill token: (31 - 1) / 10 over all requests; a baseline has none."""
    server = engine(tokens=[3], draft=7 if method == "ngram" else 0)
    _, ((made, requests, _),) = run(tmp_path, server, [cell(method=method, output_tokens=31)], method=method)
    figures = made["summary"]
    if method == "autoregressive":
        assert figures["acceptance_length"] is figures["verify_steps"] is None
    else:
        assert (figures["acceptance_length"], figures["verify_steps"], figures["drafted_tokens"]) == (3.0, 20, 140)
        assert figures["accepted_tokens"] == 40 and figures["acceptance_source"] == "requests"


FAULTS = {
    "requests_failed": ({"error_after": 2}, {}),
    "usage_missing": ({"drop": ["usage"]}, {"dialect": "openai"}),
    "lengths_wrong": ({"stop_after": 5}, {}),
    "acceptance_missing": ({"draft": 0}, {"method": "ngram"}),
    "cache_not_cold": ({"cached": 100}, {}),
    "counters_disagree": ({"counters_off": 1}, {}),
}


@pytest.mark.parametrize("code", FAULTS)
def test_each_fault_has_its_code_and_spares_the_neighbour(tmp_path, engine, code):
    """One request of the first cell goes wrong (after two of warm-up): that cell says why, the second one is valid."""
    fault, more = FAULTS[code]
    wrong = (2, 3) if code == "acceptance_missing" else (2,)
    server = engine(dict.fromkeys(wrong, fault), tokens=[2], draft=3)
    method = more.pop("method", "autoregressive")
    cells = [cell("one", method=method), cell("two", method=method)]
    failed, ((first, _, _), (second, _, _)) = run(tmp_path, server, cells, method=method, **more)
    assert failed == 0 and codes(first) == [code] and codes(second) == []


def test_server_restarted_inside_the_cell(tmp_path, engine, monkeypatch):
    """Another invocation id, or counters that run backwards: two servers answered."""
    ids = iter(["a", "a", "a", "b"])
    monkeypatch.setattr(
        observe, "invocation",
        lambda unit: {"id": next(ids), "unit": unit, "started_utc": None, "exec_pid": 1, "pids": [os.getpid()]},
    )  # fmt: skip
    limits = {"foreign_cpu_share": 2}
    _, ((first, _, _), (second, _, _)) = run(tmp_path, engine(), [cell("one"), cell("two")], unit="x", limits=limits)
    assert codes(first) == [] and codes(second) == ["server_restarted"]
    assert first["invocation"]["id"] == "a" and "pids" not in first["invocation"]
    assert not observe.same_server(None, None, ({"requests": 5}, {"requests": 2}))
    assert observe.same_server(None, None, ({"requests": 5}, {"requests": 9}))


@pytest.mark.parametrize(
    ("flushed", "uses"), [(True, ["warm-up", "warm-up"]), (False, ["warm-up 0", "warm-up 1"])], ids=["door", "no door"]
)
def test_warm_up_asks_the_same_of_an_emptied_cache(tmp_path, engine, monkeypatch, flushed, uses):
    """Under another salt the answer is another, and so is the speed of a method that drafts from it: seen 338 and 1,513
    tokens/s in turn. A server without a door to empty its cache must be asked under another."""
    asked, salted = [], prompts.Prompts.salt
    monkeypatch.setattr(prompts.Prompts, "salt", lambda self, use: asked.append(use) or salted(self, use))
    monkeypatch.setattr(SGLang, "flush", lambda self: flushed)
    run(tmp_path, engine(), limits={"warmup_windows": 2, "warmup_tolerance": 2})
    assert [use for use in asked if "warm-up" in use] == uses


def test_warm_up_that_does_not_converge(tmp_path, engine):
    """The second window is many times slower than the first and there is no third: shown, kept, not quoted."""
    server = engine({1: {"step_s": 0.1}})
    limits = {"warmup_tolerance": 0.1, "warmup_windows": 2}
    _, ((made, _, _),) = run(tmp_path, server, limits=limits)
    assert codes(made) == ["warmup_not_converged"] and len(made["warmup"]["windows"]) == 2


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ({"lag_p99_ms": 0.4}, "client_lag"),
        ({"load_per_cpu": -1}, "host_load_high"),
        ({"load_reached": 1.1}, "load_not_reached"),
    ],
)
def test_limits_are_the_inventorys(tmp_path, engine, limit, code):
    """The same attempt is valid under one limit and not under another; the limit is stored with it."""
    _, ((made, _, _),) = run(tmp_path, engine(), limits=limit)
    assert codes(made) == [code] and made["validity"]["limits"].items() >= limit.items()


@pytest.mark.parametrize("bits", ["0x0000000000000000", "0x0000000000000004", "0x0000000000000040"])
def test_throttled_clocks(tmp_path, engine, monkeypatch, bits):
    """Heat makes a cell invalid, the power cap and full clocks do not."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho '0, 2400, 12481, 310.5, 60, 40000, 98, 5, 16, {bits}'\nexec sleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    begin = gpu_samples.Sampler.__enter__

    def begun(sampler):
        """No window without a sample, however short it is and however long a shell takes to start."""
        begin(sampler)
        while not os.fstat(sampler.file.fileno()).st_size:
            assert sampler.process.poll() is None
            time.sleep(0.005)
        return sampler

    monkeypatch.setattr(gpu_samples.Sampler, "__enter__", begun)
    _, ((made, _, _),) = run(tmp_path, engine())
    assert codes(made) == (["clocks_throttled"] if bits.endswith("40") else [])
    assert made["gpu"][0]["sm_mhz"] == 2400 and made["gpu"][0]["pcie_gen"] == 5


def test_every_code_is_raised_somewhere():
    """A rule without a fault that raises it is a rule that nobody has seen work."""
    shown = {*FAULTS, "server_restarted", "warmup_not_converged", "client_lag", "host_load_high", "load_not_reached"}
    assert shown | {"clocks_throttled", "figures_disagree", "server_capped"} == set(RULES)


def test_a_second_run_measures_nothing(tmp_path, engine):
    """A measurement is a resource: what is measured is skipped, and no request is sent."""
    server = engine()
    run(tmp_path, server)
    asked = server.count
    failed, stored = run(tmp_path, server, job_id="job-2")
    assert failed == 0 and len(stored) == 1 and server.count == asked
    assert progress(tmp_path)[-2]["event"] == "cell_skipped"


def test_an_invalid_attempt_is_measured_again_by_the_next_job_only(tmp_path, engine):
    """Within a job that is resumed it stands; the next job tries again and keeps both."""
    server = engine({2: {"stop_after": 3}})
    run(tmp_path, server)
    assert len(run(tmp_path, server)[1]) == 1
    _, stored = run(tmp_path, server, job_id="job-2")
    assert [made["validity"]["valid"] for made, _, _ in stored] == [False, True]


def test_other_conditions_are_another_measurement(tmp_path, engine):
    """The plan decided to measure anew; what was measured under other conditions does not stand in the way."""
    server = engine()
    run(tmp_path, server)
    _, stored = run(tmp_path, server, job_id="job-2", conditions_id="d")
    assert [made["conditions_id"] for made, _, _ in stored] == ["c", "d"]


def test_a_killed_job_loses_the_cell_in_flight_only(tmp_path, engine):
    """kill -9 in the second cell: the first is whole, nothing half is left, the next run measures the second."""
    cells = [cell("quick"), cell("slow")]
    server = engine({4: {"ttft_s": 600}})  # the second cell's first
    path = job(tmp_path, server.base_url, cells)
    root = measure.Path(__file__).parents[2]
    client = subprocess.Popen([sys.executable, "-m", "gauntlet.measure", str(path)], cwd=root, start_new_session=True)
    deadline = time.monotonic() + 60
    while not any(e["event"] == "cell_started" and e["n"] == 2 for e in _said(tmp_path)):
        assert client.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()
    assert [made["workload"] for made, _, _ in attempts(tmp_path)] == ["quick"]
    server.overrides = {}  # the kill may have come before it was asked
    _, stored = run(tmp_path, server, cells)
    assert sorted(made["workload"] for made, _, _ in stored) == ["quick", "slow"]


def _said(folder):
    """What was said so far; the last line may be half written."""
    path = folder / "job.progress.jsonl"
    said = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in said if line.endswith("\n")]


def test_a_server_that_goes_away(tmp_path, engine):
    """The server dies in the first cell: it is kept as invalid, the next ones fail with a sentence, the run goes on."""
    server = engine({3: {"reset_after": 2}})
    original = server._send

    def dying(connection, script, *rest):
        original(connection, script, *rest)
        if script.reset_after is not None and connection.sock.fileno() < 0:
            server._stop = True

    server._send = dying
    failed, ((made, requests, _),) = run(tmp_path, server, [cell("one"), cell("two"), cell("three")])
    assert "requests_failed" in codes(made) and requests[0]["error"] is None
    reasons = [event["reason"] for event in progress(tmp_path) if event["event"] == "cell_failed"]
    assert (
        failed == 2
        and len(reasons) == 2
        and all("server_gone" in reason or "does not answer" in reason for reason in reasons)
    )


def test_another_model_is_refused_before_measuring(tmp_path, engine):
    """Numbers of the wrong model are worse than none."""
    server = engine(facts={"model_path": "/srv/gauntlet/models/other-0a1b"})
    planned = deployment(weights={"model": {"id": "wanted-9f8e"}})
    with pytest.raises(GauntletError, match="serves /srv/gauntlet/models/other-0a1b.*planned with wanted-9f8e"):
        run(tmp_path, server, deployment=planned)
    assert server.count == 0 and progress(tmp_path)[-1]["event"] == "job_failed"


@pytest.mark.parametrize("dialect", ["sglang", "llamacpp"])
def test_a_prompt_that_cannot_fit_is_refused_with_its_arithmetic(tmp_path, engine, dialect):
    """prompt + output + reserve against the window, before the server says 400."""
    server = engine(context=100)
    cells = [cell(prompts=[{"id": "long", "text": "x" * 70}], output_tokens=20)]
    failed, stored = run(tmp_path, server, cells, dialect=dialect, deployment=deployment(reserve=16))
    reason = progress(tmp_path)[-2]["reason"]
    assert (failed, stored) == (1, []) and "91 prompt + 20 output + 16 reserved" in reason and "= 127 tokens" in reason


def test_a_400_keeps_the_servers_arithmetic(tmp_path, engine):
    """Where only the server can count, its sentence reaches the person."""
    failed, _ = run(tmp_path, engine(context=60), [cell(output_tokens=50)], dialect="openai")
    reason = progress(tmp_path)[-2]["reason"]
    assert failed == 1 and "answers 400" in reason and "maximum context length of 60" in reason


def test_401_names_the_secret(tmp_path, engine):
    """A job without its key fails with the name of what is missing."""
    with pytest.raises(GauntletError, match="401: it wants an API key, none is named"):
        run(tmp_path, engine(key="k"))
    endpoint = {"base_url": "http://127.0.0.1:1", "dialect": "sglang", "api_key_file": str(tmp_path / "absent")}
    with pytest.raises(GauntletError, match="absent .* cannot be read: No such file"):
        measure.connect(endpoint)


def test_a_full_disk_tears_nothing(tmp_path, engine, monkeypatch):
    """The attempt is not stored, the folder is as before, and the sentence says where and how much is free."""

    def full(path, data):
        path.write_bytes(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(attempt, "_write", full)
    with pytest.raises(GauntletError, match="cannot be stored in .*No space left on device .*MiB free"):
        run(tmp_path, engine())
    assert list((tmp_path / "results").glob("*/*")) == [] and list((tmp_path / "results").glob("*/.*")) == []


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("dialect", ["sglang", "llamacpp"])
def test_context_is_exact_in_tokens(tmp_path, engine, dialect, chat):
    """777 tokens asked, 777 counted by the server, every request with another beginning."""
    cells = [cell(kind="context", context_tokens=777, chat=chat, prompts=[{"id": "t", "text": "A line.\n" * 20}] * 2)]
    _, ((made, requests, _),) = run(tmp_path, engine(), cells, dialect=dialect)
    assert [request["prompt_tokens"] for request in requests] == [777, 777] and codes(made) == []
    assert len({request["prompt_sha256"] for request in requests}) == 2


def test_methods_and_the_closing_baseline_are_asked_the_same(tmp_path, engine):
    """Pairs stay pairs: prompts depend on workload, concurrency and repeat, no more; closing asks what round 0 did."""
    asked = {}
    for name, more in {
        "base": {}, "ngram": {"method": "ngram"}, "second": {"repeat": 1}, "closing": {"repeat": 2, "closing": True},
    }.items():  # fmt: skip
        folder = tmp_path / name
        folder.mkdir()
        server = engine(tokens=[2], draft=3)
        _, ((_, requests, _),) = run(folder, server, [cell(method=more.get("method", "autoregressive"))], **more)
        asked[name] = [request["prompt_sha256"] for request in requests]
    assert asked["base"] == asked["ngram"] == asked["closing"] and not set(asked["base"]) & set(asked["second"])


TALK = {"kind": "multi_turn", "chat": True, "prompts": [
    {"id": "t", "conversation": [{"role": "system", "content": "S"}, *({"role": "user", "content": q} for q in "abc")]},
    {"id": "u", "conversation": [{"role": "user", "content": q} for q in "xy"]},
]}  # fmt: skip


@pytest.mark.parametrize("dialect", ["sglang", "llamacpp", "openai"])
def test_conversations_replay_the_baselines_answers(tmp_path, engine, dialect):
    """The method answers otherwise, and is asked the very same turns all the same; turns follow one another."""
    run(tmp_path, engine(), [cell("talk", **TALK)], dialect=dialect)
    other = engine(diverge_at=2, tokens=[2], draft=3)
    _, ((_, theirs, _), (made, ours, _)) = run(
        tmp_path, other, [cell("talk", method="ngram", **TALK)], method="ngram", dialect=dialect, job_id="job-2"
    )
    assert [r["turn"] for r in ours] == [0, 1, 2, 0, 1] and [r["conversation"] for r in ours] == ["t#0"] * 3 + [
        "u#1"
    ] * 2
    assert [r["prompt_sha256"] for r in ours] == [r["prompt_sha256"] for r in theirs]
    assert all(a["output_text"] != b["output_text"] for a, b in zip(ours, theirs, strict=True))
    for earlier, later in zip(ours, ours[1:], strict=False):
        assert later["scheduled"] >= earlier["ended"]


def test_conversations_without_a_baseline_wait_for_it(tmp_path, engine):
    """History that nobody recorded is not made up."""
    failed, stored = run(tmp_path, engine(), [cell("talk", method="ngram", **TALK)], method="ngram")
    assert (failed, stored) == (1, []) and "measure the baseline first" in progress(tmp_path)[-2]["reason"]


def test_an_old_release_that_cannot_tokenise_messages(tmp_path, engine):
    """Chat then goes through the chat route, and acceptance comes from the server's counters: said, not hidden."""
    server = engine(tokens=[3], draft=7)
    door = server._side_door
    server._side_door = lambda path, body: (400, {}) if "messages" in body else door(path, body)
    cells = [cell(method="ngram", chat=True, output_tokens=31)]
    _, ((made, requests, _),) = run(tmp_path, server, cells, method="ngram")
    assert made["summary"]["acceptance_source"] == "counters" and made["summary"]["acceptance_length"] == 3.0
    assert requests[0]["output_ids"] is None and codes(made) == []


@pytest.mark.parametrize("dialect", ["sglang", "llamacpp"])
def test_a_server_that_does_not_answer_like_its_weights_is_not_measured(tmp_path, engine, dialect):
    """The right file under the right name, and kernels that compute nonsense: its speed is worth nothing."""
    prompt = "1, 2, 3,"
    right = dialects.get(dialect)(engine().base_url).complete(prompt, 4).output_ids
    assert len(right) == 4
    weights = {"model": {"id": "scripted", "greedy": {"prompt": prompt, "tokens": right}}}
    more = {"dialect": dialect, "deployment": deployment() | {"weights": weights}}
    failed, stored = run(tmp_path, engine(), **more)
    assert (failed, len(stored)) == (0, 1)
    (tmp_path / "other").mkdir()
    with pytest.raises(GauntletError, match="does not answer like it: .* on record are .* Nothing was measured"):
        run(tmp_path / "other", engine(diverge_at=2), **more)
    assert attempts(tmp_path / "other") == []


def test_a_job_that_is_none(tmp_path):
    """One sentence, no traceback."""
    path = tmp_path / "job.json"
    path.write_text("{}")
    with pytest.raises(GauntletError, match="lacks host, campaign"):
        measure.load(path)
    path.write_text("not json")
    with pytest.raises(GauntletError, match="is not a job"):
        measure.load(path)


def test_progress_names_what_people_want(tmp_path, engine):
    """Which cell of how many, how fast, whether it may be quoted."""
    run(tmp_path, engine())
    events = {event["event"]: event for event in progress(tmp_path)}
    assert {
        "job_started",
        "calibration_finished",
        "cell_started",
        "warmup",
        "cell_finished",
        "job_finished",
    } <= events.keys()
    assert events["cell_finished"]["valid"] is True and events["cell_finished"]["of"] == 1
    json.dumps(events)
