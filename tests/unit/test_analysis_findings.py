"""Sentences are what people remember: each must be carried by the data, and none may come from chance."""

import re

import numpy as np
import pytest

from analysis import compare, study, tables, tree
from analysis.findings import Findings
from analysis.html import warnings
from tests.synthetic import AUTOREGRESSIVE, Method, Noise, Workload, attempts

BUDGETS = (8, 15, 32)


def gathered(made):
    """What `tree.read` would read of attempts, without the disk: hundreds of data sets are made here."""
    return tree._assemble([tree._batch([(cell, tree._columns(rows)) for cell, rows in made], [])], [])


def findings(methods, workloads, **options):
    return Findings(study.make(gathered(attempts(methods, workloads, **options)), synthetic=True))


def texts(found, kind=None):
    return [one.text for one in found.all() if kind in (None, one.kind)]


def ddtree(*truths):
    return [
        Method(f"ddtree-b{budget}", acceptance, step, "ddtree", drafted=budget)
        for budget, (acceptance, step) in zip(BUDGETS, truths, strict=True)
    ]


def flipping(seed, share):
    """Greedy output that changes now and then for everybody, as batch size alone can make it do."""
    random = np.random.default_rng(seed)

    def edit(cell, rows):
        for row in rows:
            if random.random() < share:
                row["output_sha256"] += "'"

    return edit


def test_two_hundred_data_sets_without_any_effect():
    """Who looks often enough finds something: with nothing there, at most one report in twenty may speak."""
    methods = [AUTOREGRESSIVE, Method("copy", 1.0, 1.0), *ddtree((3, 3), (3, 3), (3, 3))]
    workloads = [Workload("long", context=4000), Workload("longer", context=9000)]
    spoke = [
        seed
        for seed in range(200)
        if findings(
            methods, workloads, closing=("autoregressive",), seed=seed, edit=flipping(seed, 0.05),
            noise=Noise(start=0.01, prompt=0.03, request=0.02),
        ).all()
    ]  # fmt: skip
    assert len(spoke) <= 10, f"data sets {spoke} without effect gave findings"


def test_a_true_effect_is_found_and_its_rival_named():
    """The sentence of the issue: who is fastest, by how much, on what evidence, and who cannot be told from it."""
    found = findings(
        [AUTOREGRESSIVE, *ddtree((2.8, 2.0), (2.8, 1.5), (2.81, 1.5))],
        [Workload("edit")],
        noise=Noise(0.004, 0.01, 0.01),
    )
    (sentence,) = texts(found, "fastest")
    assert sentence.startswith(("ddtree-b15 is fastest at C=1 on edit", "ddtree-b32 is fastest at C=1 on edit"))
    assert "× [" in sentence
    assert "n = 3 starts × 8 prompts" in sentence
    assert "is not distinguishable from it" in sentence
    assert "b8" not in sentence


def test_every_finding_names_its_cells():
    """A number that leads nowhere cannot be defended."""
    found = findings([AUTOREGRESSIVE, Method("ngram", 2.0, 1.2)], [Workload("edit")])
    known = {cell.cell_id for cell in found.study.cells}
    assert found.all()
    assert all(one.cells and set(one.cells) <= known for one in found.all())


def test_two_repeats_give_no_finding_and_the_report_says_so():
    """However large the effect: the spread between two starts is unknown."""
    found = findings([AUTOREGRESSIVE, Method("ngram", 2.0, 1.2)], [Workload("edit")], repeats=2)
    assert not found.all()
    assert any("fewer than 3 repeats of ngram" in warning for warning in warnings(found))


def test_break_even_has_an_interval():
    """A method that wins alone and loses in a crowd stops paying somewhere between."""
    method = Method("eagle3", 2.0, 1.25, by_concurrency={1: 1.0, 4: 1.3, 16: 2.4})
    found = findings([AUTOREGRESSIVE, method], [Workload("edit", passes=8)], concurrency=(1, 4, 16))
    (sentence,) = texts(found, "break-even")
    assert "stops paying at about C=" in sentence
    assert not texts(found, "slower"), "the same fact told twice"
    ((_, point),) = found.break_even
    assert 4 < point.low < point.value < point.high < 16


def test_the_best_budget_is_reported_on_prompts_that_did_not_choose_it():
    """Best of many on the same data flatters: of equal budgets the winner must not look better."""
    noise = Noise(start=0.002, prompt=0.15, request=0.005)
    chosen, reported = [], []
    for seed in range(30):
        found = findings(
            [AUTOREGRESSIVE, *ddtree((3, 2), (3, 2), (3, 2))], [Workload("edit", 16)], seed=seed, noise=noise
        )
        (budget,) = found.budgets
        halves = budget.chosen.prompts[::2]
        chosen.append(budget.chosen.ratio("speed", halves).value)
        reported.append(budget.reported.value)
    assert np.mean(chosen) > 1.5 * 1.02, "the choosing half flatters: else this test shows nothing"
    assert np.mean(reported) == pytest.approx(1.5, rel=0.02)


def test_too_few_prompts_choose_no_budget():
    """Half of six prompts can neither choose nor report."""
    assert not findings([AUTOREGRESSIVE, *ddtree((3, 2), (3, 2), (3, 2))], [Workload("edit", 6)]).budgets


def test_drift_of_the_baseline_stands_on_top():
    """A host that slowed down by 8 % meanwhile makes every difference of that size suspect."""
    found = findings(
        [AUTOREGRESSIVE, Method("ngram", 2.0, 1.2)], [Workload("edit")], closing=("autoregressive",), drift=0.92
    )
    assert "the baseline drifted on lab1" in warnings(found)[0]
    assert texts(found)[0] == warnings(found)[0]


def test_a_steady_host_is_not_accused():
    """The closing baseline within the spread of the others says nothing."""
    found = findings([AUTOREGRESSIVE], [Workload("edit")], closing=("autoregressive",))
    assert found.study.drifts
    assert not warnings(found)


def test_a_tree_that_accepts_less_as_it_grows_is_a_finding_with_its_control():
    """On a hybrid model, state that leaks between siblings shows as acceptance that falls with the budget."""
    hybrid = {"mamba-radix-cache-strategy": "extra_buffer"}
    trees = [
        Method(f"ddtree-b{budget}", acceptance, 1.5, "ddtree", arguments=hybrid)
        for budget, acceptance in zip(BUDGETS, (3.4, 3.0, 2.2), strict=True)
    ]
    chain = Method("dflash", 3.3, 1.4, arguments=hybrid)
    found = findings([AUTOREGRESSIVE, *trees, chain], [Workload("edit")])
    (sentence,) = texts(found, "tree")
    assert "(hybrid)" in sentence
    assert "state leaks between siblings" in sentence
    assert "at 8 → " in sentence
    assert "Control: dflash without a tree 3." in sentence


def test_a_tree_that_accepts_more_is_no_finding():
    """What trees are for must not be reported as a fault."""
    assert not texts(findings([AUTOREGRESSIVE, *ddtree((3, 1.5), (3.2, 1.5), (3.4, 1.5))], [Workload("edit")]), "tree")


def test_acceptance_that_falls_with_the_context_is_told_once_for_all_methods():
    """The founding question about 3k, 30k and 100k."""
    method = Method("dflash", 4.0, 1.3, by_workload={"context-100k": 0.4})
    workloads = [Workload("context-3k", context=3000), Workload("context-100k", context=100000)]
    (sentence,) = texts(findings([AUTOREGRESSIVE, method], workloads), "context")
    assert "from 3,000 to 100,000 prompt tokens" in sentence


def test_other_output_is_a_finding_only_beyond_the_control():
    """A method that answers differently is not lossless, unless the baseline differs from itself as often."""

    def broken(cell, rows):
        if cell["method"] == "ngram":
            for row in rows[::2]:
                row["output_sha256"] += "'"

    methods, work = [AUTOREGRESSIVE, Method("ngram", 2.0, 1.2)], [Workload("edit", 16)]
    (sentence,) = texts(findings(methods, work, closing=("autoregressive",), edit=broken), "output")
    assert "24 of 48 outputs differ; asked again, the baseline differs from itself on 0 of 16" in sentence
    assert not texts(findings(methods, work, closing=("autoregressive",), edit=flipping(1, 0.4)), "output")
    assert not texts(findings(methods, work, edit=broken), "output"), "without a control nothing is concluded"


def test_a_speed_up_never_crosses_hosts_builds_or_conditions():
    """The baseline of another machine is no baseline."""
    for other in ({"host": "lab2"}, {"engine_build": "other"}, {"conditions": {"cpu": {"model": "another"}}}):
        parts = [
            *attempts([AUTOREGRESSIVE], [Workload("edit")], **other),
            *attempts([Method("ngram", 2, 1)], [Workload("edit")]),
        ]
        found = Findings(study.make(gathered(parts), synthetic=True))
        assert not found.study.comparisons
        assert any("no baseline for ngram" in warning and "-e method=ngram" in warning for warning in warnings(found))


def test_an_environment_is_named_at_every_tp_so_that_sweeps_find_their_own():
    default = Method("autoregressive", baseline=True, profile="default")
    ring = Method("autoregressive", baseline=True, environment={"NCCL_ALGO": "Ring"}, profile="ring")
    parts = [*attempts([default], [Workload("edit")], tp=(1, 2)), *attempts([ring], [Workload("edit")], tp=(2,))]
    found = study.make(gathered(parts), synthetic=True)
    assert [(cell.tp, cell.method) for cell in found.cells] == [
        (1, "autoregressive [default]"), (2, "autoregressive [default]"), (2, "autoregressive [ring]"),
    ]  # fmt: skip
    (sweep,) = tables.tp_sweeps(found)
    assert [(cell.tp, cell.method) for cell in sweep] == [
        (1, "autoregressive [default]"),
        (2, "autoregressive [default]"),
    ]


def test_a_method_whose_flags_changed_and_a_workload_whose_prompts_changed_are_told_apart():
    """Attempts of before stay in the results: two rows of one name would leave it open which is which."""
    before, now = (Method("ngram", 2.0, arguments={"size-m": m}) for m in (24, 12))
    found = findings([AUTOREGRESSIVE, before, now], [Workload("edit"), Workload("prose")]).study
    assert {cell.method for cell in found.cells} == {"autoregressive", "ngram [size-m=12]", "ngram [size-m=24]"}
    parts = [*attempts([AUTOREGRESSIVE], [Workload("edit", prompts=8), Workload("prose")], concurrency=(1, 4)),
             *attempts([AUTOREGRESSIVE], [Workload("edit", prompts=6)])]  # fmt: skip
    rows = {cell.workload for cell in study.make(gathered(parts), synthetic=True).cells}
    assert "prose" in rows and len(rows) == 3 and all(re.fullmatch(r"prose|edit \[\w{8}\]", row) for row in rows)


def test_of_several_baselines_the_one_with_the_same_environment_is_taken():
    """An environment axis has a baseline for each value: a method is compared with its own."""
    profile = {"NCCL_PROTO": "LL"}
    slow = Method("autoregressive", baseline=True, step=2.0, environment=profile)
    method = Method("ngram", 2.0, 1.0, environment=profile)
    found = findings([AUTOREGRESSIVE, slow, method], [Workload("edit")])
    (comparison,) = found.study.comparisons
    assert comparison.baseline.declared["environment"] == profile
    assert comparison.speedup.value == pytest.approx(4.0, rel=0.1)
    rows = {cell.method for cell in found.study.cells}
    assert rows == {"autoregressive", "autoregressive [NCCL_PROTO=LL]", "ngram"}, "two rows of one name tell nothing"


def test_the_three_factors_multiply_to_the_decode_speed_up():
    """Speed-up = acceptance length × baseline step / step: a report whose factors do not multiply is wrong."""
    found = findings([AUTOREGRESSIVE, Method("ngram", 2.0, 1.2)], [Workload("edit")])
    (one,) = found.study.comparisons
    step, baseline = one.step_ms
    assert one.method.acceptance.value * baseline / step == pytest.approx(one.decode_speedup.value)
    assert step / baseline == pytest.approx(1.2, rel=0.03)


def test_acceptance_that_only_the_servers_counters_tell():
    """Where requests do not say their steps, the counters do: over starts, without a guess about prompts."""

    def counted(cell, rows):
        if cell["method"] == "ngram":
            for row in rows:
                row["verify_steps"] = row["drafted"] = row["accepted"] = None
            cell["summary"]["acceptance_source"] = "counters"

    methods = [AUTOREGRESSIVE, Method("ngram", 2.0, 1.2)]
    (told,) = findings(methods, [Workload("edit")]).study.comparisons
    (counted,) = findings(methods, [Workload("edit")], edit=counted).study.comparisons
    assert counted.method.acceptance.value == pytest.approx(told.method.acceptance.value)
    assert counted.step_ms == pytest.approx(told.step_ms, rel=0.01)


def test_sampled_outputs_are_not_compared():
    """At a temperature above zero outputs differ by design."""

    def sampled(cell, rows):
        cell["specification"]["sampling"]["temperature"] = 0.7
        for row in rows:
            row["output_sha256"] += cell["method"]

    found = findings(
        [AUTOREGRESSIVE, Method("ngram", 2.0, 1.2)], [Workload("edit")], closing=("autoregressive",), edit=sampled
    )
    assert not texts(found, "output")
    assert found.study.comparisons[0].same_output.asked == 0


def test_compare_pairs_a_method_with_the_declaration_that_differs_least():
    """A side with attempts of before and of now names two rows; the other side has one, under the catalog's name."""
    before, now = (Method("ngram", 2.0, arguments={"size-m": m}) for m in (24, 12))
    one, other = (findings([AUTOREGRESSIVE, *methods], [Workload("edit")]).study for methods in ([before, now], [now]))
    pairs = {change.b.method: change.a.method for change in compare.changes(one, other)}
    assert pairs == {"autoregressive": "autoregressive", "ngram": "ngram [size-m=12]"}
