"""Whether an attempt may be quoted. Fail closed: what cannot be shown to be right is a reason against it.

The limits are inventory data (`limits` of the job); these are the defaults, stored with every result.
"""

from collections.abc import Callable, Iterable, Mapping

from gauntlet.errors import GauntletError
from gauntlet.names import unknown

LIMITS = {
    "failed_requests": 0,  # requests
    "cached_tokens_per_request": 32,  # tokens of a first turn that came from a cache: a chat template's head, no more
    "counter_tolerance": 0,  # tokens between the server's counters and the sums over requests
    "lag_p99_ms": 5.0,  # the client's own lag, calibrated at the highest concurrency
    "foreign_cpu_share": 0.10,  # of all cores, used by neither server nor client during the window
    "load_per_cpu": 1.0,  # 1 min load per core before the window, where the server's own share cannot be told
    "throttled_share": 0.0,  # of the GPU samples, slowed down by heat or power brake
    "warmup_tolerance": 0.10,  # relative difference of two consecutive warm-up windows
    "warmup_windows": 6,  # at most
    "load_reached": 0.99,  # of the closed loop's load
}


def limits(given: Mapping | None) -> dict:
    """The defaults with `given` on top. GauntletError on a name that is no limit or a value that is no number."""
    found = dict(LIMITS)
    for name, value in (given or {}).items():
        if name not in LIMITS:
            raise unknown("limit", name, LIMITS)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise GauntletError(f"the limit {name} is {value!r}; it takes a number")
        found[name] = value
    return found


def _failed(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    failed = [r for r in records if r["error"]]
    if len(failed) > limit["failed_requests"]:
        first = failed[0]["error"]
        yield f"{len(failed)} of {len(records)} requests failed; the first: {first['kind']}: {first['message']}"


def _usage(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    for field in ("completion_tokens", "prompt_tokens"):
        count = sum(r["error"] is None and r[field] is None for r in records)
        if count:
            yield f"{count} requests without {field} from the server"


def _lengths(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    ignore_eos = cell["ignore_eos"]
    for r in records:
        if r["error"] is not None or r["completion_tokens"] is None:
            continue
        asked, got = r["expected_tokens"], r["completion_tokens"]
        must_be_full = ignore_eos or r["finish_reason"] == "length"
        if got > asked or (must_be_full and got != asked):
            yield f"{r['prompt_id']}: {got} completion tokens, {asked} were asked for (finish: {r['finish_reason']})"
        if r["expected_prompt_tokens"] is not None and r["prompt_tokens"] != r["expected_prompt_tokens"]:
            yield f"{r['prompt_id']}: {r['prompt_tokens']} prompt tokens, {r['expected_prompt_tokens']} were sent"
        if "ids_missing" in r["anomalies"] or "ids_after_stop" in r["anomalies"]:
            yield f"{r['prompt_id']}: the token ids are not as many as the server's count of {got}"


def _acceptance(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    if not cell["speculates"]:
        return
    decoded = [r for r in records if r["error"] is None and (r["completion_tokens"] or 0) > 1]
    if decoded and cell["summary"]["acceptance_length"] is None:
        yield "the server told no verify steps (spec_verify_ct, draft_n) for a method that drafts"


def _cache(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    first_turns = [r for r in records if r["turn"] == 0 and r["error"] is None]
    told = [r["cached_tokens"] for r in first_turns if r["cached_tokens"] is not None]
    warm = [tokens for tokens in told if tokens > limit["cached_tokens_per_request"]]
    if warm:
        yield f"{len(warm)} first turns found up to {max(warm)} tokens in the prefix cache"
    if not cell["cache"]["flushed"] and len(told) < len(first_turns):
        yield "the cache could not be emptied and the server does not tell cached tokens"


def _counters(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    if cell["counters"]["agree"] is False:
        yield "; ".join(cell["counters"]["differ"])


def _lag(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    lag = cell["client"]["lag_ms"]
    if lag is None:
        yield "the client was not calibrated"
    elif lag["p99"] > limit["lag_p99_ms"]:
        yield f"p99 of the client's lag is {lag['p99']:.1f} ms"


def _host(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    client = cell["client"]
    foreign = client["foreign_cpu_share"]
    if foreign is not None:
        if foreign > limit["foreign_cpu_share"]:
            yield f"{foreign:.0%} of the CPU went to neither server nor client"
    elif client["load_1m"] / client["cpus"] > limit["load_per_cpu"]:
        yield f"load {client['load_1m']:.2f} on {client['cpus']} cores before the window"


def _clocks(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    for gpu in cell["gpu"] or []:
        if gpu["throttled_share"] > limit["throttled_share"]:
            yield f"GPU {gpu['index']}: {gpu['throttled_share']:.0%} of samples slowed: {', '.join(gpu['throttle'])}"


def _warmup(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    if not cell["warmup"]["converged"]:
        speeds = ", ".join(f"{speed:.1f}" for speed in cell["warmup"]["windows"])
        yield f"warm-up windows did not agree: {speeds} tokens/s"


def _server(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    if not cell["same_server"]:
        yield "another start of the server answered before the end of the window"


def _capped(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    cap = (cell.get("server") or {}).get("max_running_requests")
    if cap is not None and cell["concurrency"] > cap:
        yield f"the server runs {cap} requests at once, so of {cell['concurrency']} some waited for others"


def _load(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    reached = cell["client"]["load_reached"]
    if reached < limit["load_reached"]:
        yield f"{reached:.1%} of concurrency {cell['concurrency']} was reached"


def _figures(cell: dict, records: list[dict], limit: dict) -> Iterable[str]:
    return contradictions(cell["summary"], cell["concurrency"])


RULES: dict[str, Callable[[dict, list[dict], dict], Iterable[str]]] = {
    "requests_failed": _failed,
    "usage_missing": _usage,
    "lengths_wrong": _lengths,
    "acceptance_missing": _acceptance,
    "cache_not_cold": _cache,
    "counters_disagree": _counters,
    "client_lag": _lag,
    "host_load_high": _host,
    "clocks_throttled": _clocks,
    "warmup_not_converged": _warmup,
    "server_restarted": _server,
    "server_capped": _capped,
    "load_not_reached": _load,
    "figures_disagree": _figures,
}


def judge(cell: dict, records: list[dict], limit: dict) -> dict:
    """{valid, reasons: [{code, detail}], limits}: one reason a code, the first few details joined."""
    reasons = []
    for code, rule in RULES.items():
        details = list(rule(cell, records, limit))
        if details:
            more = f" (and {len(details) - 3} more)" if len(details) > 3 else ""
            reasons.append({"code": code, "detail": "; ".join(details[:3]) + more})
    return {"valid": not reasons, "reasons": reasons, "limits": limit}


def contradictions(figures: Mapping, concurrency: int | None) -> list[str]:
    """Figures of one report that cannot all be true; each is a sentence. Absent or null figures are not judged.

    Reads `tokens_per_s`, `peak_tokens_per_s`, `tpot_ms` (p50), `e2e_ms` (mean), `completion_tokens`,
    `retokenized_tokens`, `expected_tokens` (per request, end of text ignored), `time_to_second_token_ms` (p50); so that
    other tools' reports can be asked too.
    """
    found = []
    speed, peak = figures.get("tokens_per_s"), figures.get("peak_tokens_per_s")
    if speed and peak is not None and peak < speed:
        found.append(f"the peak of {peak:g} tokens/s is below the average of {speed:g}: chunks were counted as tokens")
    tpot = _of(figures.get("tpot_ms"), "p50")
    if concurrency == 1 and speed and tpot and tpot * speed / 1000 > 1.5:
        found.append(
            f"{tpot:.2f} ms per token beside {speed:.1f} tokens/s at concurrency 1: chunks were counted as tokens "
            f"({1000 / speed:.2f} ms per token)"
        )
    counted, again = figures.get("completion_tokens"), figures.get("retokenized_tokens")
    if counted and again is not None and abs(counted - again) > 0.2 * counted:
        found.append(f"{counted} tokens were generated and {again} were found in the text: most of it was not seen")
    asked, latency = figures.get("expected_tokens"), _of(figures.get("e2e_ms"), "mean")
    if asked and latency and speed and concurrency:
        per_request = speed * latency / 1000 / concurrency
        if per_request < 0.8 * asked:
            found.append(
                f"about {per_request:.0f} tokens a request were counted where {asked} were asked for: the token count "
                "or the output differs, not the speed"
            )
    second = _of(figures.get("time_to_second_token_ms"), "p50")
    if second is not None and second < 0.05:
        found.append(f"the second token came {1000 * second:.0f} us after the first: one read held both")
    return found


def _of(figure: object, key: str) -> float | None:
    return figure.get(key) if isinstance(figure, Mapping) else figure if isinstance(figure, int | float) else None
