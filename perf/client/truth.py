"""The server's log against a tool's figures."""

from gauntlet.timing import percentile


def request(entry: dict) -> dict:
    """What one request was in truth: seconds and tokens."""
    t, n = entry["t"], entry["n"]
    return {
        "ttft_s": t[0] - entry["arrived"],
        "tpot_s": (t[-1] - t[0]) / (n[-1] - n[0]),
        "tokens": entry["completion_tokens"],
    }


def load(log: list[dict], concurrency: int) -> float:
    """Share of the closed loop's load that reached the server while there was work for all."""
    arrivals = sorted(entry["arrived"] for entry in log)
    if len(arrivals) <= concurrency:
        return 1.0
    start, until = arrivals[0], arrivals[-1]
    busy = sum(max(0.0, min(entry["t"][-1], until) - entry["arrived"]) for entry in log)
    return busy / (concurrency * (until - start))


def tokens_per_s(log: list[dict]) -> float:
    """Tokens over the time from the first arrival to the last send."""
    span = max(entry["t"][-1] for entry in log) - min(entry["arrived"] for entry in log)
    return sum(entry["completion_tokens"] for entry in log) / span


def compare(log: list[dict], said: dict[int, dict], speed: float, concurrency: int) -> dict:
    """Errors of a tool: `said` is {prompt tokens: {ttft_s, tpot_s, tokens}}, `speed` its tokens/s."""
    truth = {entry["prompt_tokens"]: request(entry) for entry in log}
    missing = len(truth.keys() - said.keys())
    both = [(truth[key], said[key]) for key in truth.keys() & said.keys()]

    def errors(figure: str) -> list[float]:
        return [abs(ours[figure] - theirs[figure]) for ours, theirs in both if theirs[figure] is not None]

    ttft, tpot = errors("ttft_s"), errors("tpot_s")
    true_speed = tokens_per_s(log)
    return {
        "requests": len(truth),
        "missing": missing,
        "wrong_tokens": sum(ours["tokens"] != theirs["tokens"] for ours, theirs in both),
        "ttft_p50_ms": 1000 * percentile(ttft, 0.5) if ttft else None,
        "ttft_p99_ms": 1000 * percentile(ttft, 0.99) if ttft else None,
        "tpot_p99_ms": 1000 * percentile(tpot, 0.99) if tpot else None,
        "speed_error": speed / true_speed - 1,
        "load": load(log, concurrency),
        "late_ms": 1000 * max(entry["late"] for entry in log),
    }
