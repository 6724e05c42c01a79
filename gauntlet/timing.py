"""Chunks -> the figures of docs/measurement.md. Pure: seconds in, milliseconds out where the name says so."""

import math
from collections.abc import Iterable, Sequence

from gauntlet.dialects.reading import Reading


def percentile(values: Sequence[float], share: float) -> float:
    """The value at `share` (0..1) of sorted values, linear between neighbours (Hyndman and Fan's type 7)."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def spread(seconds: Iterable[float | None]) -> dict | None:
    """{p50, p90, p99, mean, n} in ms of the values that were measured, or None."""
    values = [1000 * s for s in seconds if s is not None]
    if not values:
        return None
    p50, p90, p99 = (percentile(values, share) for share in (0.5, 0.9, 0.99))
    return {"p50": p50, "p90": p90, "p99": p99, "mean": math.fsum(values) / len(values), "n": len(values)}


def first_chunk_tokens(reading: Reading) -> int | None:
    """Tokens in the first chunk: told, or certain because every chunk was one token; else None."""
    if not reading.t:
        return None
    if reading.n[0] is not None:
        return reading.n[0]
    return 1 if len(reading.t) == reading.completion_tokens else None


def decode_s(record: dict) -> float | None:
    """Seconds from the first chunk to the last: the decode phase."""
    if record["first"] is None or record["chunks"] < 2:
        return None
    return record["last"] - record["first"]


def decode_tokens(record: dict) -> int | None:
    """Tokens of the decode phase: those after the first chunk."""
    if record["completion_tokens"] is None or record["first_chunk_tokens"] is None:
        return None
    return record["completion_tokens"] - record["first_chunk_tokens"]


def tpot_s(record: dict) -> float | None:
    """(last - first) / (tokens - tokens of the first chunk)."""
    seconds, tokens = decode_s(record), decode_tokens(record)
    return seconds / tokens if seconds is not None and tokens else None


def ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


def total(records: Iterable[dict], key: str) -> int | None:
    """The sum over records that have the figure; None when none has."""
    values = [record[key] for record in records if record[key] is not None]
    return sum(values) if values else None


def histogram(records: Iterable[dict]) -> list[int] | None:
    """How many verify steps accepted 0, 1, 2, … drafts, over all requests."""
    lists = [record["accept_histogram"] for record in records if record["accept_histogram"]]
    if not lists:
        return None
    width = max(map(len, lists))
    return [sum(one[i] for one in lists if i < len(one)) for i in range(width)]


def acceptance_length(records: Iterable[dict]) -> float | None:
    """Ratio of sums: tokens of decode steps over verify steps. The first token of a request comes from prefill."""
    told = [r for r in records if r["verify_steps"] and r["completion_tokens"]]
    return ratio(sum(r["completion_tokens"] - 1 for r in told), sum(r["verify_steps"] for r in told))


def step_s(records: Iterable[dict], speculates: bool) -> float | None:
    """Decode time per verify step; for a method that drafts nothing per token. Ratio of sums."""
    seconds = steps = 0.0
    for record in records:
        count = record["verify_steps"] if speculates else decode_tokens(record)
        if (duration := decode_s(record)) is not None and count:
            seconds, steps = seconds + duration, steps + count
    return ratio(seconds, steps)


def summary(records: Sequence[dict], chunks: Sequence[dict], window_s: float, speculates: bool) -> dict:
    """The figures of a whole cell from its request records and chunk lists (docs/results-format.md)."""
    good = [record for record in records if record["error"] is None]
    times = {line["index"]: line["t"] for line in chunks}
    gaps = [b - a for r in good for a, b in zip(times[r["index"]], times[r["index"]][1:], strict=False)]
    started = [r for r in good if r["first"] is not None]
    tokens = total(good, "completion_tokens")
    speeds = [1 / s for r in good if (s := tpot_s(r))]
    step = step_s(good, speculates)
    drafted, accepted = total(good, "drafted"), total(good, "accepted")
    return {
        "requests": len(records),
        "completed": len(good),
        "failed": len(records) - len(good),
        "prompt_tokens": total(good, "prompt_tokens"),
        "completion_tokens": tokens,
        "cached_tokens": total(good, "cached_tokens"),
        "tokens_per_s": ratio(tokens, window_s),
        "request_tokens_per_s_p50": percentile(speeds, 0.5) if speeds else None,
        "ttft_ms": spread(r["first"] - r["sent"] for r in started),
        "ttft_scheduled_ms": spread(r["first"] - r["scheduled"] for r in started),
        "tpot_ms": spread(tpot_s(r) for r in good),
        "chunk_gap_ms": spread(gaps),
        "e2e_ms": spread(r["ended"] - r["scheduled"] for r in good),
        "verify_steps": total(good, "verify_steps") if speculates else None,
        "drafted_tokens": drafted,
        "accepted_tokens": accepted,
        "acceptance_length": acceptance_length(good) if speculates else None,
        "acceptance_source": "requests" if speculates and total(good, "verify_steps") else None,
        "accepted_per_drafted": ratio(accepted, drafted),
        "step_ms": 1000 * step if step is not None else None,
        "acceptance_position_counts": histogram(good),
    }


def with_counters(figures: dict, delta: dict | None) -> dict:
    """Figures whose verify steps come from the server's counters, where its answers do not tell them per request."""
    if figures["acceptance_source"] or figures["failed"] or not (delta or {}).get("verify_steps"):
        return figures
    steps = delta["verify_steps"]
    return {
        **figures,
        "verify_steps": int(steps),
        "acceptance_length": ratio(figures["completion_tokens"] - figures["completed"], steps),
        "acceptance_source": "counters",
    }
