"""Figures that mislead, from real reports, and the rules that no fault of the scripted engine reaches."""

import csv
import json

import pytest

from gauntlet import observe, validity
from gauntlet.client import Answer, Trace, load_reached
from gauntlet.errors import GauntletError
from gauntlet.gpu_samples import summary as gpu_summary
from gauntlet.validity import contradictions, limits
from tests.measuring import CASES


def report(name):
    """A bench_serving report of case 42, under our names."""
    names = {
        "Output token throughput (tok/s)": "tokens_per_s", "Peak output token throughput (tok/s)": "peak_tokens_per_s",
        "Median ITL (ms)": "tpot_ms", "Total generated tokens": "completion_tokens",
        "Total generated tokens (retokenized)": "retokenized_tokens", "Max request concurrency": "concurrency",
    }  # fmt: skip
    (path,) = CASES.glob(f"42-*/{name}.txt")
    rows = (line.partition(":")[::2] for line in path.read_text().splitlines())
    return {names[key.strip()]: float(value) for key, value in rows if key.strip() in names}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a", ["8.72 ms per token beside 292.3 tokens/s at concurrency 1", "(3.42 ms per token)"]),
        ("b", ["the peak of 111 tokens/s is below the average of 414.75"]),
        ("c", ["the peak of 5 tokens/s is below the average", "6400.0 tokens were generated and 32.0 were found"]),
    ],
)
def test_chunks_counted_as_tokens(name, words):
    """Case 42: three reports whose chunk-based fields cannot be true."""
    figures = report(name)
    said = "; ".join(contradictions(figures, figures.get("concurrency")))
    assert all(word in said for word in words)


def test_counted_tokens_against_latency():
    """Case 44: 145.73 and 19.59 tok/s, requests 4 % apart: the count differs, not the speed."""
    (path,) = CASES.glob("44-*/results.csv")
    bad, good = (
        contradictions(
            {
                "tokens_per_s": float(row["output_tok_s"]), "e2e_ms": float(row["request_latency_ms"]),
                "expected_tokens": int(row["requested_output_tokens"]),
            },
            int(row["concurrency"]),
        )
        for row in csv.DictReader(path.open())
    )  # fmt: skip
    assert good == [] and "about 127 tokens a request were counted where 1000 were asked for" in bad[0]


def test_a_second_token_in_the_same_read():
    """Case 45: 8 us after the first token is one network read, no decoding step; nulls are not measured, not wrong."""
    (aiperf,), (other,) = CASES.glob("45-*/aiperf.json"), CASES.glob("45-*/inference-perf.json")
    second = json.loads(aiperf.read_text())["time_to_second_token"]
    assert "the second token came 8 us after the first" in contradictions({"time_to_second_token_ms": second}, 1)[0]
    successes = json.loads(other.read_text())["successes"]
    figures = {"tpot_ms": successes["latency"]["time_per_output_token"],
               "tokens_per_s": successes["throughput"]["output_tokens_per_sec"]}  # fmt: skip
    assert contradictions(figures, 1) == []


def test_our_own_figures_are_asked_too():
    """The same rules judge every attempt; figures that are true pass."""
    assert contradictions({"tokens_per_s": 100.0, "tpot_ms": {"p50": 9.8}, "e2e_ms": {"mean": 2560.0}}, 1) == []
    assert contradictions({"tokens_per_s": 100.0, "tpot_ms": {"p50": 30.0}}, 1) != []


def test_limits_are_checked():
    """A typo in an inventory must not leave the default in force unseen."""
    assert limits({"lag_p99_ms": 50})["lag_p99_ms"] == 50 and limits(None) == validity.LIMITS
    with pytest.raises(GauntletError, match="did you mean 'lag_p99_ms'"):
        limits({"lag_p99": 50})
    with pytest.raises(GauntletError, match="it takes a number"):
        limits({"lag_p99_ms": "5"})


def traces(*spans):
    return [Answer(i, {}, Trace(0, start, sent=start, ended=end)) for i, (start, end) in enumerate(spans)]


def test_load_reached():
    """Two workers, always busy until the last start: 1. One of them idle for half of that time: 3/4."""
    assert load_reached(traces((0, 1), (0, 2), (1, 3), (2, 3)), 2) == 1.0
    assert load_reached(traces((0, 1), (0, 2), (2, 3)), 2) == 0.75
    assert load_reached(traces((0, 1), (0, 2)), 2) == 1.0


def test_foreign_cpu():
    """CPU that is neither the server's nor the client's, over all cores; unknown without the server's processes."""
    cores = observe.os.cpu_count() or 1
    before, after = observe.Cpu(0, 100, 10), observe.Cpu(10, 100 + 8 * cores, 10 + 5 * cores)
    assert observe.foreign_share(before, after, client_s=1 * cores) == pytest.approx(0.2)
    assert observe.foreign_share(observe.Cpu(0, 1, None), after, 1) is None
    assert observe.foreign_share(before, observe.Cpu(0.001, after.machine, before.server), 0) == 1, "ticks are coarse"
    cell = {"client": {"foreign_cpu_share": 0.2, "load_1m": 0, "cpus": 2}}
    assert list(validity._host(cell, [], limits({}))) == ["20% of the CPU went to neither server nor client"]


def test_gpu_samples_with_what_drivers_do_not_tell():
    """[N/A] and torn lines are not zeros."""
    rows = [
        "0, 2400, [N/A], 300.5, 60, 100, 90, 5, 16, 0x0000000000000008",
        "0, 2200, [N/A], 299.5, 61, 120, 92, 4, 16, 0x0",
        "0, 22",
    ]
    (found,) = gpu_summary(rows)
    assert (found["sm_mhz"], found["memory_mhz"], found["samples"], found["pcie_gen"]) == (2300, None, 2, 4)
    assert found["throttle"] == ["hw_slowdown"] and found["throttled_share"] == 0.5


def test_a_cache_that_nobody_knows_is_not_cold():
    """Fail closed: not emptied and cached tokens not told."""
    cell, record = {"cache": {"flushed": False}}, {"turn": 0, "error": None, "cached_tokens": None}
    assert list(validity._cache(cell, [record], limits({})))
    assert not list(validity._cache(cell, [{**record, "cached_tokens": 3}], limits({})))
    assert not list(validity._cache({"cache": {"flushed": True}}, [record], limits({})))


@pytest.mark.parametrize(("cap", "capped"), [(None, False), (4, False), (3, True)])
def test_a_cap_that_the_server_only_knows_once_it_runs(cap, capped):
    """Memory for states can cap requests below what was asked for; the declared number would hide it."""
    cell = {"concurrency": 4, "server": {"max_running_requests": cap}}
    said = list(validity.RULES["server_capped"](cell, [], {}))
    assert said == (["the server runs 3 requests at once, so of 4 some waited for others"] if capped else [])
