"""The plan decides what is measured, again and again, on machines that cost money by the hour: nothing twice, nothing
silently left out, nothing under conditions that were not asked for."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gauntlet import catalog, plan
from gauntlet.errors import GauntletError
from gauntlet.identity import conditions_id
from gauntlet.plan import attempts as tree
from gauntlet.plan import feasibility

CATALOG = Path(__file__).parents[2] / "catalog"
TODAY = {"kernel": "6.8", "gpus": [], "sysctl": {"vm.swappiness": "60"}}
LAB = {"engine_builds": {"llamacpp": "xllamacpp-2026.10.11549"}, "conditions": TODAY}
GPU = {"engine_builds": {"sglang": "sglang-0.5.23-ddtree"}, "gpus": 8, "conditions": {"gpus": [], "kernel": "6.8"}}


OURS = catalog.load([CATALOG])


@pytest.fixture
def ours():
    return OURS


@pytest.fixture
def lab(ours):
    def lab(attempts=(), hosts=None, **selection):
        return plan.make(ours, {"campaign": "lab", **selection}, hosts or {"lab1": LAB}, list(attempts))

    return lab


def attempt(made, cell_id, repeat=0, host="lab1", conditions=TODAY, **changes):
    """What the results tree would say of one attempt of a planned cell."""
    cell = made["cells"][cell_id]
    deployment = made["deployments"][cell["deployment"]]
    return {
        "host": host, "cell_id": cell_id, "spec_id": cell["spec_id"], "repeat": repeat, "closing": False, "valid": True,
        "conditions_id": conditions_id(conditions), "conditions": conditions, "tuning": None, "window_s": 7.0,
        "started_utc": f"2026-11-29T1{repeat}:00:00+00:00", "workload": cell["workload"],
        "concurrency": cell["concurrency"], **{key: deployment[key] for key in ("model", "method", "tp")}, **changes,
    }  # fmt: skip


def done(made, **changes):
    """Everything that the plan asks for, measured."""
    return [
        attempt(made, cell, activation["repeat"], host, closing=activation["closing"], **changes)
        for host, part in made["hosts"].items()
        for activation in part["activations"]
        for cell in activation["cells"]
    ]


def work(made, host="lab1"):
    """What is measured, but for the baseline once more at the end."""
    starts = [start for start in made["hosts"][host]["activations"] if not start["closing"]]
    return [(start["deployment"], start["repeat"], cell) for start in starts for cell in start["cells"]]


def test_the_baseline_is_measured_once_more_at_the_end(lab):
    """Drift, and the control of losslessness: the same prompts on another start of the same server."""
    starts = lab(method="ngram")["hosts"]["lab1"]["activations"]
    assert [start["closing"] for start in starts] == [False] * 9 + [True]
    assert starts[-1]["deployment"].startswith("smollm2-135m.autoregressive.")


def methods(made):
    return {deployment["method"] for deployment in made["deployments"].values()}


# selection


@pytest.mark.parametrize(
    "method", ["ngram", " ngram ", ["ngram"], "ngram-simple,ngram-mod", ["ngram-mod", "ngram-simple"]]
)
def test_a_method_is_a_name_a_family_or_several_and_brings_its_baseline(lab, method):
    assert methods(lab(method=method)) == {"autoregressive", "ngram-simple", "ngram-mod"}


def test_a_family_on_another_engine_is_its_members_there(ours):
    made = plan.make(ours, {"campaign": "qwen3.6-27b", "method": "ngram", "tp": 8}, {"gpu": GPU}, [])
    assert methods(made) == {"autoregressive", "ngram"}


def test_the_baseline_stays_away_only_when_told(lab):
    assert methods(lab(method="ngram-mod", baseline=False)) == {"ngram-mod"}
    assert methods(lab(method="autoregressive", baseline=False)) == {"autoregressive"}


@pytest.mark.parametrize("value", [2, "2", "02", [2], ["2"], "2,2"])
def test_numbers_come_as_text_too(lab, value):
    made = lab(concurrency=value)
    assert {cell["concurrency"] for cell in made["cells"].values()} == {2}


def test_what_the_campaign_does_not_have_is_taken_in_with_its_other_axes(ours):
    made = plan.make(
        ours, {"campaign": "qwen3.6-27b", "method": "mtp", "tp": "8", "concurrency": "3,64"}, {"gpu": GPU}, []
    )
    assert methods(made) == {"autoregressive", "mtp"}
    assert {c["concurrency"] for c in made["cells"].values() if c["workload"] == "context-100k"} == {3}
    assert {c["concurrency"] for c in made["cells"].values() if c["workload"] == "short-512"} == {3, 64}


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        ({"method": "ngram-smple"}, "unknown method 'ngram-smple'; did you mean 'ngram-simple'?"),
        ({"method": "ngrams"}, "unknown method 'ngrams'; did you mean 'ngram'?"),
        ({"method": "eagle3"}, "smollm2-135m runs on llamacpp, which does not have 'eagle3' (sglang has); possible: a"),
        ({"campaign": "labb"}, "unknown campaign 'labb'; did you mean 'lab'?"),
        ({"campaign": "qwen3.6-27b"}, "qwen3.6-27b: served by sglang, and lab1 has llamacpp"),
        ({"workload": "prosa"}, "unknown workload 'prosa'; did you mean 'prose'?"),
        ({"model": "smollm"}, "unknown model 'smollm'; did you mean 'smollm2-135m'?"),
        ({"model": "kimi-k2.6"}, "campaign 'lab' has no model 'kimi-k2.6', it has smollm2-135m; campaigns that"),
        ({"concurrency": 0}, "concurrency is '0'; it takes whole numbers from 1"),
        ({"concurrency": "1,-2"}, "concurrency is '-2'"),
        ({"concurrency": 1.5}, "concurrency is '1.5'"),
        ({"tp": "three"}, "tp is 'three'; it takes whole numbers from 1, such as -e tp=1,4"),
        ({"tp": True}, "tp is 'True'"),
        ({"baseline": "flase"}, "baseline is 'flase'; it takes true or false"),
        ({"conditions": "kep"}, "conditions is 'kep'; it takes keep (reuse) or anew (measure again)"),
        ({"methods": "ngram"}, "unknown selector 'methods'; did you mean 'method'?"),
        ({"campaign": "lab,smoke"}, "campaign names 2; it takes one of"),
        ({"campaign": ""}, "campaign names none; it takes one of"),
    ],
)  # fmt: skip
def test_a_selector_that_is_wrong_gets_one_sentence(lab, selection, sentence):
    with pytest.raises(GauntletError) as error:
        lab(**selection)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_model_that_the_inventory_does_not_allow_is_said(lab):
    with pytest.raises(GauntletError, match="lab1 may not serve smollm2-135m; its models: kimi-k2.6"):
        lab(hosts={"lab1": {**LAB, "models": ["kimi-k2.6"]}})


@pytest.mark.parametrize(
    ("hosts", "sentence"),
    [
        ({}, "no host to plan for; check --limit"),
        ({"lab1": {}}, "lab1 has no engine builds; set gauntlet_engine_builds"),
        ({"lab1": {**LAB, "condition": {}}}, "lab1: unknown fact of a host 'condition'; did you mean 'conditions'"),
    ],
)
def test_a_host_that_cannot_be_planned_for_is_said(ours, hosts, sentence):
    with pytest.raises(GauntletError, match=sentence):
        plan.make(ours, {"campaign": "lab"}, hosts, [])


# feasibility


@pytest.mark.parametrize(
    ("shape", "tp", "fits"),
    [
        ({"heads": 24, "kv_heads": 4}, 8, True),  # replicated
        ({"heads": 24, "kv_heads": 4}, 2, True),
        ({"heads": 24, "kv_heads": 4}, 3, False),
        ({"heads": 24, "kv_heads": 4}, 6, False),
        ({"heads": 24, "kv_heads": 4}, 16, False),
        ({"heads": 48, "kv_heads": 8, "linear": {"heads": 48, "key_heads": 16}}, 3, False),
        ({"heads": 64, "kv_heads": 64, "full": {"latent_dim": 512}}, 8, True),
        ({}, 7, True),  # a shape that is not known forbids nothing
    ],
)
def test_heads_against_tensor_parallelism_by_the_engines_rule(shape, tp, fits):
    assert (feasibility._heads(shape, tp) is None) == fits


def test_more_cards_than_there_are_is_infeasible(ours):
    made = plan.make(ours, {"campaign": "qwen3.6-27b", "tp": "8,4"}, {"gpu": {**GPU, "gpus": 4}}, [])
    reasons = {left["reason"] for left in made["not_run"]}
    assert reasons == {"tp 8 needs 8 GPUs, gpu has 4"}
    assert {d["tp"] for d in map(made["deployments"].get, made["hosts"]["gpu"]["deployments"])} == {4}


def test_a_context_over_the_window_shows_its_arithmetic_with_the_methods_reserve(ours):
    tight = {**GPU, "engines": {"sglang": {"arguments": {"context-length": 100256}}}}
    made = plan.make(
        ours, {"campaign": "qwen3.6-27b", "method": "mtp", "tp": 8, "workload": "context-100k"}, {"gpu": tight}, []
    )
    states = {made["cells"][left["cell_id"]]["deployment"]: left["reason"] for left in made["not_run"]}
    assert list(states.values()) == [
        "context 100000 + output 256 + reserve 4 = 100260 tokens, more than the window of 100256"
    ]
    assert made["hosts"]["gpu"]["counts"]["to_measure"] == 2  # the baseline fits exactly


def test_an_inventory_that_breaks_what_a_method_needs_is_told(ours):
    """The open DDTree change raises an error on a full tree with another backend, minutes into loading."""
    flashy = {**GPU, "engines": {"sglang": {"arguments": {"attention-backend": "flashinfer"}}}}
    made = plan.make(ours, {"campaign": "qwen3.6-27b", "method": "ddtree", "tp": 8}, {"gpu": flashy}, [])
    cells = made["cells"]
    reasons = {
        made["deployments"][cells[left["cell_id"]]["deployment"]]["method"]: left["reason"] for left in made["not_run"]
    }
    assert reasons.keys() == {"ddtree-b16", "ddtree-b32", "ddtree-b64"}
    assert reasons["ddtree-b16"].startswith("ddtree-b16 needs --attention-backend triton, and the campaign or")


def test_a_method_that_a_campaign_names_and_a_model_cannot_have_is_shown_and_a_familys_member_is_not(ours):
    campaign = {**ours.campaigns["lab"], "methods": ["autoregressive", "eagle3", "ngram"]}
    odd = catalog.Catalog(ours.models, ours.methods, ours.workloads, {"lab": campaign})
    made = plan.make(odd, {"campaign": "lab"}, {"lab1": LAB}, [])
    assert methods(made) == {"autoregressive", "eagle3", "ngram-simple", "ngram-mod"}
    assert made["hosts"]["lab1"]["counts"]["unavailable"] == 4
    assert "eagle3, tp 1: 4 cells unavailable, smollm2-135m runs on llamacpp" in made["table"]


def test_more_streams_than_slots_is_infeasible(lab):
    made = lab(concurrency="2,4")
    assert made["hosts"]["lab1"]["counts"] == {
        "measured": 0, "to_measure": 6, "infeasible": 6, "unavailable": 0, "pending": 0,
    }  # fmt: skip
    assert "ngram-mod, tp 1: 2 cells infeasible, the server runs 2 requests at once" in made["table"]


# what is measured already


def test_measured_again_is_nothing(lab):
    made = lab()
    again = lab(done(made))
    assert len(made["cells"]) == 12 and len(work(made)) == 36
    assert again["hosts"]["lab1"]["activations"] == []
    assert again["hosts"]["lab1"]["counts"]["measured"] == 12
    assert "lab1: nothing to measure; 12 cells measured already" in again["table"]
    assert len(again["hosts"]["lab1"]["deployments"]) == 3  # they are served all the same


@given(st.randoms(use_true_random=False), st.floats(0, 1))
@settings(max_examples=25)
def test_what_is_gone_and_nothing_else_is_measured_again(chance, share):
    made = plan.make(OURS, {"campaign": "lab"}, {"lab1": LAB}, [])
    kept = [a for a in done(made) if chance.random() < share]
    again = plan.make(OURS, {"campaign": "lab"}, {"lab1": LAB}, kept)
    had = {(a["cell_id"], a["repeat"]) for a in kept}
    wanted = [(deployment, repeat, cell) for deployment, repeat, cell in work(made) if (cell, repeat) not in had]
    assert sorted(work(again)) == sorted(wanted)


def test_an_invalid_attempt_and_one_of_another_specification_do_not_count(lab):
    made = lab()
    attempts = done(made)
    attempts[0]["valid"] = False
    attempts[1]["spec_id"] = "0" * 64
    again = work(lab(attempts))
    assert {(cell, repeat) for _, repeat, cell in again} == {(a["cell_id"], a["repeat"]) for a in attempts[:2]}


def test_rounds_are_outermost_and_the_baseline_is_first(lab):
    made = lab()
    order = [
        (a["repeat"], made["deployments"][a["deployment"]]["method"]) for a in made["hosts"]["lab1"]["activations"][:-1]
    ]
    assert [repeat for repeat, _ in order] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [method for _, method in order[::3]] == ["autoregressive"] * 3


def test_estimates_come_from_earlier_attempts_else_from_the_model(lab):
    made = lab()
    slow = [attempt(made, cell, window_s=100.0, valid=False) for cell in made["cells"]]
    assert lab(slow)["hosts"]["lab1"]["estimate_s"] > 5 * made["hosts"]["lab1"]["estimate_s"]
    # the same work under another specification is a better guess than none
    other = [{**a, "cell_id": "x", "spec_id": "y"} for a in slow]
    assert lab(other)["hosts"]["lab1"]["estimate_s"] == lab(slow)["hosts"]["lab1"]["estimate_s"]


def test_the_baseline_under_another_name_is_a_cell_of_its_own(ours):
    twin = {**ours.methods["autoregressive"], "name": "autoregressive-twin", "baseline": False}
    both = catalog.Catalog(ours.models, {**ours.methods, "autoregressive-twin": twin}, ours.workloads, ours.campaigns)
    made = plan.make(both, {"campaign": "lab", "method": "autoregressive-twin"}, {"lab1": LAB}, [])
    baseline = {a["cell_id"]: a for a in done(made) if a["method"] == "autoregressive"}
    again = plan.make(both, {"campaign": "lab", "method": "autoregressive-twin"}, {"lab1": LAB}, done(made))
    assert len({d["spec_id"] for d in made["deployments"].values()}) == 1
    assert again["hosts"]["lab1"]["counts"]["measured"] == 2 * len(baseline)
    only = [a for a in done(made) if a["cell_id"] in baseline]
    left = plan.make(both, {"campaign": "lab", "method": "autoregressive-twin"}, {"lab1": LAB}, only)
    assert left["hosts"]["lab1"]["counts"]["to_measure"] == len(baseline)


# conditions


OTHER = {**TODAY, "kernel": "6.9", "sysctl": {"vm.swappiness": "1"}}


def test_other_conditions_stop_the_plan_and_show_what_differs(lab):
    attempts = done(lab(), conditions=OTHER)
    with pytest.raises(GauntletError) as error:
        lab(attempts)
    for words in (
        "lab1",
        "12 cells",
        "kernel: 6.9 -> 6.8",
        "sysctl.vm.swappiness: 1 -> 60",
        "conditions=keep",
        "=anew",
    ):
        assert words in str(error.value)


def test_keep_reuses_and_anew_measures_again_once(lab):
    attempts = done(lab(), conditions=OTHER)
    assert lab(attempts, conditions="keep")["hosts"]["lab1"]["activations"] == []
    again = lab(attempts, conditions="anew")
    assert len(work(again)) == 36
    assert lab(attempts + done(again))["hosts"]["lab1"]["activations"] == []  # nothing is asked twice


def test_a_host_that_was_not_observed_conflicts_with_nothing(lab):
    attempts = done(lab(), conditions=OTHER)
    blind = {"lab1": {**LAB, "conditions": None}}
    assert lab(attempts, hosts=blind)["hosts"]["lab1"]["activations"] == []


def test_an_attempt_that_is_not_in_the_way_does_not_stop(lab):
    attempts = done(lab(workload="prose"), conditions=OTHER)
    assert len(work(lab(attempts, workload="edit"))) == 18


# environment and tuning as axes


def test_one_nccl_variable_makes_another_deployment_of_the_same_group(ours):
    made = plan.make(ours, {"campaign": "nccl"}, {"gpu": GPU}, [])
    profiles = {d["environment_profile"]: d for d in made["deployments"].values() if d["method"] == "dflash"}
    assert profiles.keys() == {"nccl-default", "nccl-pcie-ll-ring"}
    assert profiles["nccl-pcie-ll-ring"]["environment"]["NCCL_ALGO"] == "Ring"
    assert len({d["name"] for d in profiles.values()}) == 2
    assert "dflash [nccl-pcie-ll-ring]" in made["table"]


def test_of_two_tunings_the_one_on_the_host_is_measured_and_the_other_waits_with_its_command(ours):
    def tuned(profile, attempts=()):
        conditions = {**GPU["conditions"], "mrrs": 4096 if profile == "tuned" else 512}
        host = {**GPU, "tuning": profile, "conditions": conditions}
        return plan.make(ours, {"campaign": "tuning"}, {"gpu": host}, list(attempts)), conditions

    stock, conditions = tuned("stock")
    counts = stock["hosts"]["gpu"]["counts"]
    assert (counts["to_measure"], counts["pending"]) == (8, 8)
    assert (
        "tuning tuned: gpu is stock; bring it with: ansible-playbook site.yml -e host_tuning_state=present"
        in stock["table"]
    )

    first = done(stock, conditions=conditions, tuning="stock")
    after, conditions = tuned("tuned", first)  # no conflict: the attempts under stock are the other half
    counts = after["hosts"]["gpu"]["counts"]
    assert (counts["measured"], counts["to_measure"], counts["pending"]) == (8, 8, 0)
    end, _ = tuned("tuned", first + done(after, conditions=conditions, tuning="tuned"))
    assert end["hosts"]["gpu"]["counts"]["measured"] == 16


# identity of what is planned


def cells(catalogs, host=LAB, campaign="lab"):
    return set(plan.make(catalog.load(catalogs), {"campaign": campaign}, {"h": host}, [])["cells"])


def overlaid(tmp_path, name, change):
    """Our catalog with one file changed by an inventory's own."""
    file = tmp_path / "catalog" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "catalog/prompts").symlink_to(CATALOG / "prompts")
    file.write_text(change((CATALOG / name).read_text()))
    return [CATALOG, tmp_path / "catalog"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("models/smollm2-135m.yml", lambda text: f"# a comment\n{text}"),
        ("models/smollm2-135m.yml", lambda text: text.replace("id: smollm2-135m-q4_1", "id: another-folder")),
        ("models/smollm2-135m.yml", lambda text: text.replace("start_s: 5", "start_s: 500")),
        ("methods/ngram.yml", lambda text: text.replace("Gains depend", "Gain depends")),
        ("workloads/edit.yml", lambda text: text.replace("title: ", "title: Now ")),
        ("campaigns/lab.yml", lambda text: text.replace("repeats: 3", "repeats: 5")),
    ],
)
def test_what_only_people_read_and_where_things_lie_changes_no_hash(tmp_path, name, change):
    assert cells(overlaid(tmp_path, name, change)) == cells([CATALOG])


@pytest.mark.parametrize(
    ("name", "change", "changed"),
    [
        ("models/smollm2-135m.yml", lambda text: text.replace("b179c952", "c179c952"), 12),
        ("models/smollm2-135m.yml", lambda text: text.replace("parallel: 2", "parallel: 3"), 12),
        ("methods/ngram.yml", lambda text: text.replace("ngram-size-n: 12", "ngram-size-n: 7"), 4),
        ("workloads/edit.yml", lambda text: text.replace("output_tokens: 96", "output_tokens: 97"), 6),
        ("workloads/edit.yml", lambda text: text + "temperature: 0.5\n", 6),
    ],
)
def test_what_a_server_or_a_request_sees_changes_the_hash(tmp_path, name, change, changed):
    assert len(cells(overlaid(tmp_path, name, change)) - cells([CATALOG])) == changed


@pytest.mark.parametrize(
    "change",
    [
        {"environment_by_tp": {"1": {"OMP_NUM_THREADS": 1}}},
        {"engines": {"llamacpp": {"environment_by_tp": {"1": {"OMP_NUM_THREADS": 1}}}}},
        {"engines": {"llamacpp": {"arguments": {"batch-size": 64}}}},
        {"engines": {"llamacpp": {"environment": {"GGML_X": "1"}}}},
        {"engine_builds": {"llamacpp": "xllamacpp-2027"}},
    ],
)
def test_what_the_inventory_adds_to_a_server_changes_every_hash(change):
    assert not cells([CATALOG], LAB | change) & cells([CATALOG])


def test_what_an_inventory_says_of_one_tensor_parallelism_is_for_it_alone():
    """A graph file for eight GPUs breaks a group of four."""
    assert cells([CATALOG], LAB | {"engines": {"llamacpp": {"environment_by_tp": {"2": {"A": "1"}}}}}) == cells(
        [CATALOG]
    )


def test_what_an_inventory_says_of_an_engine_is_checked(lab):
    """A variable that is dropped in silence is a number under another name."""
    for said, sentence in (
        ({"llamacpp": {"enviroment": {"A": 1}}}, "lab1: gauntlet_engines, llamacpp: .*did you mean 'environment'"),
        ({"llamacp": {}}, "unknown engine 'llamacp'; did you mean 'llamacpp'"),
    ):
        with pytest.raises(GauntletError, match=sentence):
            lab(hosts={"lab1": LAB | {"engines": said}})


def test_the_file_that_is_served_is_in_the_hash(tmp_path):
    """A repository may have several quantisations, all with their digests; the one that is served is the model."""

    def serving(name):
        def change(text):
            text = text.replace("  files:\n", "  files:\n    other.gguf: {size: 1, sha256: aa}\n")
            return text.replace("entry: SmolLM2-135M-Instruct.Q4_1.gguf", f"entry: {name}")

        return cells(overlaid(tmp_path / name, "models/smollm2-135m.yml", change))

    assert not serving("other.gguf") & serving("SmolLM2-135M-Instruct.Q4_1.gguf")


def test_an_argument_given_as_text_or_number_is_one_argument_and_null_takes_it_away():
    as_number = {"engines": {"llamacpp": {"arguments": {"threads": 3, "cache-ram": None}}}}
    as_text = {"engines": {"llamacpp": {"arguments": {"threads": "3", "cache-ram": False}}}}
    assert cells([CATALOG], LAB | as_number) == cells([CATALOG], LAB | as_text)


def test_a_catalog_on_another_path_plans_the_same_cells(tmp_path):
    (tmp_path / "elsewhere").symlink_to(CATALOG)
    assert cells([tmp_path / "elsewhere"]) == cells([CATALOG])


def test_the_plan_is_a_function_of_its_input(ours):
    hosts = {"b": GPU, "a": GPU}
    made = [
        plan.make(catalog.load([CATALOG]), {"campaign": "qwen3.6-27b"}, order, [])
        for order in (hosts, dict(reversed(hosts.items())))
    ]
    assert json.dumps(made[0], sort_keys=True) == json.dumps(made[1], sort_keys=True)


# many hosts


QWEN_ALONE = {"campaign": "qwen3.6-27b", "concurrency": "1", "workload": "short-512"}


def shares(made):
    def group(activation):
        deployment = made["deployments"][activation["deployment"]]
        return deployment["model"], deployment["tp"]

    return {host: {group(activation) for activation in part["activations"]} for host, part in made["hosts"].items()}


def test_equal_hosts_share_by_comparison_group_and_unequal_ones_measure_all(ours):
    def share(**hosts):
        return shares(plan.make(ours, {"campaign": "qwen3.6-27b"}, hosts, []))

    alone = share(a=GPU)["a"]
    both = share(a=GPU, b=GPU)
    assert both["a"] | both["b"] == alone and not both["a"] & both["b"] and both["a"] and both["b"]
    unequal = share(a=GPU, b={**GPU, "conditions": {**GPU["conditions"], "kernel": "6.9"}})
    assert unequal["a"] == unequal["b"] == alone
    blind = {**GPU, "conditions": None}
    assert share(a=blind, b=blind) == {"a": alone, "b": alone}


def test_a_group_is_never_split_and_brings_its_baseline(ours):
    made = plan.make(ours, {"campaign": "qwen3.6-27b"}, {"a": GPU, "b": GPU}, [])
    for part in made["hosts"].values():
        methods_at = {}
        for name in part["deployments"]:
            the = made["deployments"][name]
            methods_at.setdefault(the["tp"], set()).add(the["method"])
        assert all(len(found) == 8 and "autoregressive" in found for found in methods_at.values())


@given(st.integers(0, 2**32), st.floats(0, 1))
@settings(max_examples=10)
def test_progress_never_moves_a_group_to_another_host(seed, share):
    hosts = {"a": GPU, "b": GPU}
    made = plan.make(OURS, QWEN_ALONE, hosts, [])
    chance = random.Random(seed)
    kept = [a for a in done(made, conditions=GPU["conditions"]) if chance.random() < share]
    more = {"a": GPU, "b": GPU, "c": GPU}
    for attempts, on in ((kept, hosts), (done(made, conditions=GPU["conditions"]), more)):
        again = plan.make(OURS, QWEN_ALONE, on, attempts)
        for host, groups in shares(again).items():
            assert groups <= shares(made).get(host, set())


def test_what_a_host_has_begun_stays_for_it_while_it_cannot_be_reached(ours):
    """A comparison is of one host, so whoever took the group over would measure all of it again."""
    made = plan.make(ours, QWEN_ALONE, {"a": GPU, "b": GPU}, [])
    begun = [a for a in done(made, conditions=GPU["conditions"]) if a["method"] == "autoregressive"]
    alone = shares(plan.make(ours, QWEN_ALONE, {"a": GPU}, []))["a"]
    theirs = shares(made)["b"]

    def share(attempts, **more):
        return shares(plan.make(ours, QWEN_ALONE, {"a": GPU}, attempts, **more))["a"]

    assert share(begun, lost=["b"]) == alone - theirs
    assert share([], lost=["b"]) == share(begun) == alone, "nothing begun, or b left out by --limit"
    other = [{**a, "conditions_id": "other"} for a in begun if a["host"] == "b"]
    assert share(other, lost=["b"]) == alone, "it was another machine then"
    table = plan.make(ours, QWEN_ALONE, {"a": GPU}, begun, lost=["b"])["table"]
    assert "b: cannot be reached; it has begun qwen3.6-27b tp" in table and "--limit '!b'" in table


# the results tree, the file


def stored(results, record, **more):
    folder = results / record["host"] / record["cell_id"] / f"r{record['repeat']}-20261129T140501Z-0a1b"
    folder.mkdir(parents=True)
    document = {"schema": 1, **record, "validity": {"valid": record["valid"]}, "observed": {"tuning_profile": "stock"}}
    (folder / "cell.json").write_text(json.dumps(document | more))
    return folder / "cell.json"


def test_the_results_tree_gives_what_the_plan_counts(lab, tmp_path):
    made = lab()
    records = done(made)
    for record in records:
        stored(tmp_path, record)
    (tmp_path / "lab1/unfinished/.r0.partial").mkdir(parents=True)
    (tmp_path / "README.md").write_text("not a host")
    read = tree.read(tmp_path, ["lab1", "lab2"])
    assert lab(read)["hosts"]["lab1"]["activations"] == []
    assert {record["tuning"] for record in read} == {"stock"}
    assert read[0]["conditions"] is read[-1]["conditions"]
    assert tree.read(tmp_path, ["lab2"]) == [] == tree.read(tmp_path / "nothing")


def test_results_that_cannot_be_read_are_named(lab, tmp_path):
    made = lab()
    record = done(made)[0]
    file = stored(tmp_path, record)
    file.write_text("{")
    with pytest.raises(GauntletError, match=f"{file} is no attempt"):
        tree.read(tmp_path)
    file.write_text(json.dumps({**json.loads(json.dumps(record)), "validity": {"valid": True}, "schema": 2}))
    with pytest.raises(GauntletError, match="of schema 2"):
        tree.read(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(GauntletError, match="cannot read the results folder"):
        tree.read(tmp_path / "file")


def test_the_plan_goes_through_its_file(lab, tmp_path):
    made = lab()
    plan.save(made, tmp_path / "plans/bench.json")
    loaded = plan.load(tmp_path / "plans/bench.json")
    assert loaded == json.loads(json.dumps(made))
    name = next(iter(loaded["cells"]))
    assert plan.cell(loaded, name) == json.loads(json.dumps(plan.cell(made, name)))
    with pytest.raises(GauntletError, match="is no plan"):
        plan.load(tmp_path / "other.json")
