"""A campaign that is killed wherever it hurts ends as one that was not: each cell measured, none twice, nothing left.

Twenty SIGKILLs at random moments, of the controller, of the measuring client and of the lab host, in every phase of
bench.yml. The seed of the moments is printed; GAUNTLET_SEED=<seed> gives the same order and the same moments, as shares
of the time that each phase takes on this machine.
"""

import itertools
import json
import os
import random
import time
from collections import Counter

import pytest

from . import stand_in
from .killing import PHASES, Bench, Witness, kill_client, kill_host

pytestmark = pytest.mark.lab

HOST = "labresume"
REPEATS = 5
STOCK = [[1, 2, 4], [8]]  # concurrencies: when a story finds everything measured, it is told of those that are left
# Stories are told in random order. A story is one bench.yml after another, each with what is killed while it runs; all
# that is left of it then is killed, too.
STORIES = [
    [[("taking up", "controller")]],
    [[("taking up", "controller")]],
    [[("planning", "controller")]],
    [[("starting", "controller")]],
    [[("measuring", "controller")]],
    [[("stopping", "controller")]],
    [[("bringing home", "controller")]],
    [[("measuring", "client"), ("starting", "controller")]],
    [[("measuring", "client"), ("stopping", "controller")]],
    [[("measuring", "client"), ("bringing home", "controller")]],
    [[("measuring", "controller")], [("taking up", "client"), ("planning", "controller")]],
    [[("starting", "host")]],
    [[("measuring", "host")]],
    [[("stopping", "host")]],
    [[("bringing home", "host")]],
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with stand_in.served(HOST, tmp_path_factory.mktemp("resume")) as lab:
        yield lab


class Campaign:
    """One campaign, killed again and again."""

    def __init__(self, lab, chance, log):
        self.lab, self.chance, self.log = lab, chance, log
        self.asked, self.left = STOCK[0], STOCK[1:]
        self.took = dict(PHASES)  # learnt from each run
        self.hits: list[tuple[str, str]] = []
        self.down = False

    def run(self, kills):
        """One bench.yml, as a person starts it after what happened before."""
        while not self.reached(kills):
            assert self.left, f"all is measured, and {kills} is still to come:\n{self.said[-5000:]}"
            self.asked = self.asked + self.left.pop(0)
            self.log(f"all measured: concurrency {self.asked[-1]} too")

    def reached(self, kills):
        """False when the run was over before its kills were done."""
        playbooks = ["playbooks/lab.yml", "restage.yml"] if self.down else []
        bench, self.down = Bench(self.lab.command(*playbooks, "bench.yml", **self.selection())), False
        try:
            for phase, target in kills:
                share = self.chance.random()
                if not bench.reach(phase, share * self.took[phase]):
                    return False
                self.kill(bench, target, share)
        finally:
            bench.kill()
            self.said = bench.output
        self.took |= bench.took()
        return True

    def selection(self):
        return {"concurrency": ",".join(map(str, self.asked))}

    def kill(self, bench, target, share):
        (phase, since), moment = bench.phases[-1], time.monotonic()
        if target == "client" and not kill_client(self.lab):
            return  # it has just ended
        if target == "controller":
            bench.kill()
            phase, since = bench.phases[-1]  # it may have gone on until it died
        if target == "host":
            kill_host(self.lab)
            self.down = True
            status, over = bench.end(), bench.phases[-1][0] == "closing"
            assert (status or over) and "Traceback" not in bench.output, "a run whose host is gone says so, and ends"
        self.hits.append((phase, target))
        self.log(f"{len(self.hits):2} {target} in {phase}, after {max(0, moment - since):.2f} s (share {share:.2f})")

    def missing(self):
        """Phases that were hit less than twice: a phase may end before its moment comes."""
        count = Counter(phase for phase, _ in self.hits)
        return [phase for phase in PHASES if count[phase] < 2]


def test_twenty_kills_and_nothing_is_measured_twice(lab, capsys):
    seed = os.environ.get("GAUNTLET_SEED") or str(random.randrange(10**6))
    chance = random.Random(seed)

    def log(text):
        with capsys.disabled():
            print(f"\n  {text}", end="", flush=True)

    log(f"GAUNTLET_SEED={seed}")
    witness, campaign = Witness(lab), Campaign(lab, chance, log)
    for story in chance.sample(STORIES, len(STORIES)):
        for kills in story:
            campaign.run(kills)
    for _ in range(20):
        if campaign.missing() or len(campaign.hits) < 20:
            campaign.run([((campaign.missing() or ["planning"])[0], "controller")])
    assert not campaign.missing() and len(campaign.hits) >= 20, f"seed {seed}: {campaign.hits}"

    for playbook in ["playbooks/lab.yml", "restage.yml"] if campaign.down else []:
        lab.play(playbook).ok()
    lab.play("bench.yml", **campaign.selection()).ok()
    home = {path.parent: json.loads(path.read_text()) for path in (lab.results / HOST).glob("[!.]*/[!.]*/cell.json")}
    assert [cell["validity"]["reasons"] for cell in home.values() if cell["validity"]["reasons"]] == []
    cells = itertools.product(["autoregressive", "eagle3"], campaign.asked, range(REPEATS))
    assert Counter((c["method"], c["concurrency"], c["repeat"]) for c in home.values()) == Counter(cells)

    finished = {}
    for job, events in witness.testimony():
        for event in events:
            one = event.get("cell"), job["repeat"]
            if event["event"] == "cell_started":
                assert one not in finished, f"seed {seed}: measured as {finished.get(one)}, and begun again"
            elif event["event"] == "cell_finished" and event["valid"]:
                finished[one] = event["attempt"]
    stored = {(cell["cell_id"], cell["repeat"]): cell["attempt"] for cell in home.values()}
    assert finished.items() <= stored.items(), f"seed {seed}: what was measured is not what came home"

    assert [path.name for path in (lab.results / HOST).rglob(".*")] == []
    left = "find /var/lib/gauntlet/results /var/lib/gauntlet/owners /var/lib/gauntlet/active -mindepth 1; "
    left += "systemctl list-units --plain --no-legend 'sglang@*' 'gauntlet-bench*'; ls /var/lib/gauntlet/jobs"
    assert lab.ssh(left).split() == ["job.json", "job.progress.jsonl"]
