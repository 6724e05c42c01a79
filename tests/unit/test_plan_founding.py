"""The two founding campaigns, cell by cell, on eight cards of 96 GB: what is measured and what cannot be."""

import math
from pathlib import Path

import pytest

from gauntlet import catalog, plan
from gauntlet.identity import spec_id

CATALOG = Path(__file__).parents[2] / "catalog"
CARDS = [{"index": n, "memory.total": 97887.0} for n in range(8)]
# DDTree is in no release: the build of its open change has a name of its own
HOST = {"engine_builds": {"sglang": "sglang-0.5.23-ddtree"}, "conditions": {"gpus": CARDS}}

STREAMS = (1, 2, 4, 8, 16, 32, 64)
QWEN_CELLS = {
    "short-128": STREAMS, "short-512": STREAMS, "short-2048": STREAMS, "context-3k": STREAMS,
    "context-30k": (1, 2, 4, 8), "context-100k": (1, 2), "agentic": (1, 2, 4, 8, 16),
}  # fmt: skip
# requests that the server runs at once: below 64 where the states of the linear layers do not fit
QWEN_RUNNING = {
    "autoregressive": {1: 18, 4: 64, 8: 64},
    "dflash": {1: 3, 4: 40, 8: 64},
    "ddtree-b8": {1: 5, 4: 64, 8: 64},
    "ddtree-b12": {1: 4, 4: 50, 8: 64},
    "ddtree-b15": {1: 3, 4: 42, 8: 64},
    "ddtree-b16": {1: 3, 4: 40, 8: 64},
    "ddtree-b32": {1: 1, 4: 22, 8: 51},
    "ddtree-b64": {1: 0, 4: 11, 8: 27},
}
KIMI_CELLS = {
    "short-128": STREAMS[:6], "short-512": STREAMS[:6], "short-2048": STREAMS[:6], "context-3k": STREAMS[:6],
    "context-30k": (1, 2, 4), "context-100k": (1,), "agentic": (1, 4, 8),
}  # fmt: skip
# flags that make the method, as the releases (DDTree: the open change) spell them
FLAGS = {
    "autoregressive": {},
    "dflash": {"speculative-algorithm": "DFLASH", "speculative-draft-model-path": "${drafter}"},
    "eagle3": {
        "speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "${drafter}", "speculative-num-steps": 3,
        "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 4,
    },
    **{
        f"ddtree-b{budget}": {
            "speculative-algorithm": "DDTREE", "speculative-draft-model-path": "${drafter}", "page-size": 1,
            "speculative-ddtree-budget": budget, "attention-backend": "flashinfer" if budget < 16 else "triton",
        }
        for budget in (8, 12, 15, 16, 32, 64)
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def ours():
    return catalog.load([CATALOG])


@pytest.fixture(scope="module")
def qwen(ours):
    return plan.make(ours, {"campaign": "qwen3.6-27b"}, {"ct200": HOST}, [])


def planned(made):
    """{(method, tp, workload, concurrency): 'to_measure' or the state it was left in}"""
    left = {entry["cell_id"]: entry["state"] for entry in made["not_run"]}
    states = {}
    for name, cell in made["cells"].items():
        deployment = made["deployments"][cell["deployment"]]
        key = deployment["method"], deployment["tp"], cell["workload"], cell["concurrency"]
        assert key not in states
        states[key] = left.get(name, "to_measure")
    return states


def running(tp, width, slots, drafter=3.46e9):
    """SGLang 0.5.18's joint solution, written down once more: slots K of S bytes, r a request, D = verify width."""
    gib = 1 << 30
    free = 97887 / 1024 - 1.3
    rest = free * 0.85 - (55.56e9 + drafter) / gib / tp - 0.1
    budget = rest * 0.9 / 1.9
    state = 48 * ((48 * 128 + 2 * 16 * 128) / tp * 3 * 2 + 48 / tp * 128 * 128 * 4) / gib
    width_share = (1 + width / slots) if width else 1
    return min(64, math.floor((budget - state * (1 + width)) / (state * width_share)) // slots)


def test_the_table_is_the_arithmetic_of_the_release():
    """5 slots a request with the overlap scheduler, 4 without, which is DDTree's lot."""
    for tp in (1, 4, 8):
        assert QWEN_RUNNING["autoregressive"][tp] == running(tp, 0, 5, drafter=0)
        assert QWEN_RUNNING["dflash"][tp] == running(tp, 16, 5)
        for budget in (8, 12, 15, 16, 32, 64):
            assert QWEN_RUNNING[f"ddtree-b{budget}"][tp] == running(tp, budget + 1, 4)


def test_qwen_cell_by_cell(qwen):
    expected = {
        (method, tp, workload, concurrency): "to_measure" if concurrency <= running else "infeasible"
        for method, at_tp in QWEN_RUNNING.items()
        for tp, running in at_tp.items()
        for workload, concurrencies in QWEN_CELLS.items()
        for concurrency in concurrencies
    }
    assert len(expected) == 8 * 3 * 39
    assert planned(qwen) == expected


def test_kimi_cell_by_cell(ours):
    made = plan.make(ours, {"campaign": "kimi-k2.6"}, {"ct200": HOST}, [])
    expected = {
        (method, 8, workload, concurrency): "unavailable" if method == "dflash" else "to_measure"
        for method in ("autoregressive", "eagle3", "dflash")
        for workload, concurrencies in KIMI_CELLS.items()
        for concurrency in concurrencies
    }
    assert planned(made) == expected
    assert {left["reason"].partition(" is ")[0] for left in made["not_run"]} == {"drafter: kimi-k2.6-dflash"}


def test_kimis_dflash_is_measured_where_the_drafter_lies(ours):
    host = {**HOST, "store": ["kimi-k2.6", "kimi-k2.6-dflash"]}
    made = plan.make(ours, {"campaign": "kimi-k2.6", "method": "dflash"}, {"ct200": host}, [])
    assert set(planned(made).values()) == {"to_measure"}
    drafted = [d for d in made["deployments"].values() if d["method"] == "dflash"]
    assert "nobody here has served it" in " ".join(drafted[0]["notes"])


def test_each_method_has_its_flags_and_every_other_flag_is_the_baselines(ours, qwen):
    kimi = plan.make(ours, {"campaign": "kimi-k2.6"}, {"ct200": HOST}, [])
    own = {flag for flags in FLAGS.values() for flag in flags} | {"speculative-draft-attention-backend"}
    for made in (qwen, kimi):
        common = [{f: v for f, v in d["arguments"].items() if f not in own} for d in made["deployments"].values()]
        assert all(arguments == common[0] for arguments in common)
        for deployment in made["deployments"].values():
            flags = FLAGS[deployment["method"]]
            assert {flag: deployment["arguments"].get(flag) for flag in flags} == flags


def test_notes_that_must_stand_beside_the_numbers(qwen):
    notes = {d["method"]: " ".join(d["notes"]) for d in qwen["deployments"].values()}
    assert "do not run on the same kernels" in notes["ddtree-b16"]
    assert "do not run on the same kernels" not in notes["ddtree-b15"]
    assert "without the overlap scheduler" in notes["ddtree-b8"]
    assert "delays admission" in notes["dflash"]


def test_an_eagle_reserve_counts_and_a_block_drafters_does_not(ours, qwen):
    """SGLang keeps max(topk x steps, draft tokens) free for the EAGLE family and nothing for DFLASH."""
    kimi = plan.make(ours, {"campaign": "kimi-k2.6"}, {"ct200": HOST}, [])
    reserves = {d["method"]: d["reserve"] for made in (qwen, kimi) for d in made["deployments"].values()}
    assert reserves == dict.fromkeys(reserves, 0) | {"eagle3": 4}


def test_every_cell_carries_the_document_that_its_identity_is_the_hash_of(qwen):
    for name in qwen["cells"]:
        cell = plan.cell(qwen, name)
        assert cell["spec_id"] == spec_id(cell["specification"])
        assert cell["id"].endswith(f".{cell['workload']}.c{cell['concurrency']}-{cell['spec_id'][:8]}")
        assert cell["workload_content"]["requests"] >= cell["concurrency"]


def test_a_server_starts_once_a_round_and_the_baseline_first_and_last(qwen):
    activations = qwen["hosts"]["ct200"]["activations"]
    rounds = [
        [a for a in activations if (a["repeat"], a["closing"]) == start] for start in ((0, 0), (1, 0), (2, 0), (3, 1))
    ]
    assert sum(rounds, []) == activations
    for activations in rounds:
        names = [a["deployment"] for a in activations]
        assert len(set(names)) == len(names)
    first = {}
    for activation in rounds[0]:
        the = qwen["deployments"][activation["deployment"]]
        first.setdefault(the["tp"], the["method"])
    assert set(first.values()) == {"autoregressive"}
    assert {qwen["deployments"][a["deployment"]]["method"] for a in rounds[3]} == {"autoregressive"}
    assert len(rounds[0]) == 23  # 24 deployments; ddtree-b64 on one card does not start, and is not even written
    assert sorted(qwen["hosts"]["ct200"]["deployments"]) == sorted(a["deployment"] for a in rounds[0])


def test_a_release_leaves_ddtree_unavailable_before_anything_starts(ours):
    release = {**HOST, "engine_builds": {"sglang": "sglang-0.5.23"}}
    made = plan.make(ours, {"campaign": "qwen3.6-27b"}, {"ct200": release}, [])
    states = planned(made)
    assert {state for (method, *_), state in states.items() if method.startswith("ddtree")} == {"unavailable"}
    assert {QWEN_RUNNING[m][tp] >= c for (m, tp, _, c), state in states.items() if state == "to_measure"} == {True}
    old = {**HOST, "engine_builds": {"sglang": "sglang-0.5.10.post1"}}
    reasons = {left["reason"] for left in plan.make(ours, {"campaign": "qwen3.6-27b"}, {"ct200": old}, [])["not_run"]}
    assert "build: sglang-0.5.10.post1 does not know DFLASH, 0.5.11 is the first that does" in reasons
