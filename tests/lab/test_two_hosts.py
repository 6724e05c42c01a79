"""Two equal hosts share a campaign: at once, each cell once, a comparison never across hosts, one failing alone.

The scripted engine's waits are long and cost no processor: two hosts on one small machine do not share its speed.
"""

import itertools
import json
import re
from collections import Counter
from datetime import datetime, timedelta

import pytest

from . import stand_in
from .killing import Bench, freeze_client, kill_host
from .runner import Lab

pytestmark = pytest.mark.lab

ONE, TWO = "labone", "labtwo"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with stand_in.served(f"{ONE},{TWO}", tmp_path_factory.mktemp("pair")) as pair:
        yield pair


def stored(lab, **wanted):
    """The cell.json of every attempt at home that is as wanted."""
    cells = [json.loads(path.read_text()) for path in lab.results.glob("*/[!.]*/[!.]*/cell.json")]
    return [cell for cell in cells if all(cell[key] == value for key, value in wanted.items())]


def times(cells):
    """From the start of the server to the end of the window, of each cell."""
    return [
        (datetime.fromisoformat(cell["invocation"]["started_utc"]),
         datetime.fromisoformat(cell["started_utc"]) + timedelta(seconds=cell["window_s"]))
        for cell in cells
    ]  # fmt: skip


def spent(cells):
    """Seconds from the start of the first server to the end of the last window."""
    begun, ended = zip(*times(cells), strict=True)
    return (max(ended) - min(begun)).total_seconds()


def what(cells):
    return Counter((cell["cell_id"], cell["repeat"]) for cell in cells)


def groups(cells):
    """{tp: (hosts, methods)} of the comparison groups; the model is one."""
    tps = {cell["tp"] for cell in cells}
    return {
        tp: ({c["host"] for c in cells if c["tp"] == tp}, {c["method"] for c in cells if c["tp"] == tp}) for tp in tps
    }


def test_two_hosts_measure_at_once_and_share_what_one_does_alone(pair, tmp_path, capsys):
    """That it takes about half the time is printed only: the two campaigns are measured at different moments, and this
    machine may do something else in one of them."""
    alone = Lab(ONE, tmp_path)
    alone.play("site.yml").ok()  # its own share was half of it
    alone.play("bench.yml", concurrency="1").ok()
    pair.play("bench.yml", concurrency="1").ok()
    by_one, by_two = stored(alone), stored(pair)
    assert what(by_two) == what(by_one) and set(what(by_two).values()) == {1}
    assert sorted((hosts.pop(), methods) for hosts, methods in groups(by_two).values()) == [
        (ONE, {"autoregressive", "eagle3"}), (TWO, {"autoregressive", "eagle3"}),
    ]  # fmt: skip
    ratio = spent(by_two) / spent(by_one)
    with capsys.disabled():
        print(f"\n  one host {spent(by_one):.0f} s, two {spent(by_two):.0f} s: {ratio:.2f}", end="", flush=True)
    there, here = (times(stored(pair, host=host)) for host in (ONE, TWO))
    assert any(a < d and c < b for (a, b), (c, d) in itertools.product(there, here)), "one host waited for the other"


def test_a_host_that_dies_leaves_its_share_to_itself(pair):
    """Nobody takes it over, for a speed-up is of one host; what the other one measured stands."""
    share = {cell["tp"]: cell["host"] for cell in stored(pair, concurrency=1)}
    bench = Bench(pair.command("bench.yml", concurrency="2"))
    dying = Lab(TWO, pair.folder)
    freeze_client(dying)
    kill_host(dying)
    assert bench.end() != 0
    assert {cell["host"] for cell in stored(pair, concurrency=2)} == {ONE}
    by_one = what(stored(pair, concurrency=2))
    assert len(by_one) == 2, "the other host's share is whole"

    again = pair.play("bench.yml", concurrency="2").refused(f"lab host '{TWO}' is not up")
    assert re.search(rf"{TWO}: cannot be reached; it has begun stand-in tp \d, which stays for it", again.output)
    assert f"{ONE}: nothing to measure" in again.output
    assert what(stored(pair, concurrency=2)) == by_one

    pair.play("playbooks/lab.yml").ok()
    run = pair.play("restage.yml", concurrency="2", resume=True).ok()
    assert f"{ONE}: nothing to measure" in run.output and f"{TWO}: 2 cells to measure" in run.output
    cells = stored(pair, concurrency=2)
    assert len(cells) == 4 and set(what(cells).values()) == {1}
    assert {cell["tp"]: cell["host"] for cell in cells} == share
