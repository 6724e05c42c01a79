"""What cost days in the founding campaign must cost a sentence: every rule with its whole kind, both ways."""

import json
import shlex
from pathlib import Path

import pytest

from gauntlet import preflight

CASES = Path(__file__).parents[1] / "cases"
QWEN = json.loads((CASES / "33-config-facts/qwen3.6-27b/config.json").read_text())
LLAMA = json.loads((CASES / "33-config-facts/llama-3.3-70b/config.json").read_text())
DEEPSEEK = json.loads((CASES / "33-config-facts/deepseek-v3/config.json").read_text())
EAGLE3 = {
    "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
}  # fmt: skip
EAGLE = {**EAGLE3, "architectures": ["LlamaForCausalLMEagle"]}
DFLASH = {
    "architectures": ["DFlashDraftModel"], "num_hidden_layers": 5, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "block_size": 16, "max_position_embeddings": 262144,
}  # fmt: skip


def check(arguments, target=LLAMA, drafter=None, release="sglang-0.5.23", tp=1, environment=None, build=None):
    deployment = {
        "name": "d", "engine": "sglang", "engine_build": release, "tp": tp, "arguments": arguments,
        "environment": environment or {},
        "weights": {"model": {"id": "m"}, "drafter": {"id": "x"} if drafter else None},
    }  # fmt: skip
    configs = {"model": target, **({"drafter": drafter} if drafter else {})}
    return preflight.findings(deployment, configs, build)


def errors(*args, **options):
    return [preflight.sentence(one) for one in check(*args, **options) if one["level"] == "error"]


def algorithm(name, **flags):
    return {"speculative-algorithm": name, **{f"speculative-{k.replace('_', '-')}": v for k, v in flags.items()}}


class TestThreeNumbers:
    @pytest.mark.parametrize("name", ["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "eagle3"])
    @pytest.mark.parametrize(
        "given",
        [
            {"num_steps": 3}, {"eagle_topk": 4}, {"num_draft_tokens": 4}, {"num_steps": 3, "eagle_topk": 1},
            {"num_steps": 3, "num_draft_tokens": 4}, {"eagle_topk": 1, "num_draft_tokens": 4},
        ],
    )  # fmt: skip
    def test_a_part_of_them_is_refused_and_the_rest_named(self, name, given):
        drafter = EAGLE3 if name.upper() == "EAGLE3" else EAGLE
        (only,) = errors(algorithm(name, **given), drafter=drafter)
        assert "give all three, or none" in only
        for flag in ("num-steps", "eagle-topk", "num-draft-tokens"):
            assert flag in only

    @pytest.mark.parametrize("given", [{}, {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}])
    def test_none_and_all_are_fine(self, given):
        assert errors(algorithm("EAGLE3", **given), drafter=EAGLE3) == []

    @pytest.mark.parametrize(("tokens", "fine"), [(3, False), (4, True), (5, False)])
    def test_a_chain_is_steps_plus_one_wide(self, tokens, fine):
        found = errors(algorithm("EAGLE3", num_steps=3, eagle_topk=1, num_draft_tokens=tokens), drafter=EAGLE3)
        assert (found == []) == fine
        assert fine or "set --speculative-num-draft-tokens 4" in found[0]

    @pytest.mark.parametrize(("tokens", "fine"), [(16, True), (37, True), (38, False)])
    def test_a_tree_is_no_wider_than_its_nodes(self, tokens, fine):
        """16 of 36 drafted nodes were seen served by SGLang 0.5.16."""
        found = errors(algorithm("EAGLE3", num_steps=3, eagle_topk=4, num_draft_tokens=tokens), drafter=EAGLE3)
        assert (found == []) == fine


class TestDrafter:
    """Case 14 and what belongs to it."""

    @pytest.mark.parametrize("target", [QWEN, LLAMA])
    def test_the_flags_of_the_case(self, target):
        words = shlex.split((CASES / "14-eagle3-without-draft/flags.txt").read_text())
        arguments = {words[n].removeprefix("--"): words[n + 1] for n in range(0, len(words), 2)}
        assert any("name the drafter's path" in one for one in errors(arguments, target=target))

    @pytest.mark.parametrize("name", ["EAGLE3", "STANDALONE", "DFLASH", "DDTREE"])
    def test_who_needs_a_drafter_says_so(self, name):
        assert any("without --speculative-draft-model-path" in one for one in errors(algorithm(name)))

    def test_who_carries_its_own_does_not(self):
        assert errors(algorithm("EAGLE"), target=DEEPSEEK) == []
        assert errors(algorithm("NEXTN"), target=QWEN) == []

    @pytest.mark.parametrize(
        ("name", "drafter", "words"),
        [
            ("EAGLE", EAGLE3, "accepts exactly 1.00"), ("NEXTN", EAGLE3, "accepts exactly 1.00"),
            ("EAGLE3", DFLASH, "no EAGLE-3 drafter"), ("EAGLE3", EAGLE, "no EAGLE-3 drafter"),
            ("DFLASH", EAGLE3, "no DFlash drafter"),
        ],
    )  # fmt: skip
    def test_the_wrong_kind_of_drafter(self, name, drafter, words):
        assert any(words in one for one in errors(algorithm(name), drafter=drafter))

    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            ({"dflash_block_size": 8}, "trained for 16"), ({"num_draft_tokens": 12}, "trained for 16"),
            ({"dflash_block_size": 16, "num_draft_tokens": 8}, "they are one setting"),
            ({"draft_window_size": 8}, "smaller than the block"),
        ],
    )  # fmt: skip
    def test_a_block_that_is_not_the_drafters(self, flags, words):
        assert any(words in one for one in errors(algorithm("DFLASH", **flags), target=QWEN, drafter=DFLASH))

    def test_the_drafters_own_block_is_fine_said_or_not(self):
        for flags in ({}, {"dflash_block_size": 16}, {"num_draft_tokens": 16}, {"draft_window_size": 16}):
            assert errors(algorithm("DFLASH", **flags), target=QWEN, drafter=DFLASH) == []

    def test_a_block_size_inside_dflash_config_counts_too(self):
        nested = {**DFLASH, "block_size": None, "dflash_config": {"block_size": 16}}
        assert any("trained for 16" in one for one in errors(algorithm("DFLASH", num_draft_tokens=8), drafter=nested))


class TestShorterDrafter:
    """Case 15: the limit is named, as an error where SGLang was told to run over it."""

    FOLDER = CASES / "15-draft-context-shorter"
    TARGET = json.loads((FOLDER / "target-config.json").read_text())
    DRAFT = json.loads((FOLDER / "draft-config.json").read_text())
    ENVIRONMENT = dict(line.split("=") for line in (FOLDER / "env").read_text().split())

    def test_the_case(self):
        found = errors(algorithm("EAGLE3"), target=self.TARGET, drafter=self.DRAFT, environment=self.ENVIRONMENT)
        assert "the drafter has 2048 positions, the context 131072" in found[0]
        assert "--context-length 2048" in found[0]

    def test_without_the_override_it_is_a_warning(self):
        (only,) = check(algorithm("EAGLE3"), target=self.TARGET, drafter=self.DRAFT)
        assert only["level"] == "warning"

    @pytest.mark.parametrize("context", [1024, 2048])
    def test_a_context_within_its_reach_is_fine(self, context):
        assert check({**algorithm("EAGLE3"), "context-length": context}, target=self.TARGET, drafter=self.DRAFT) == []


class TestTrees:
    BASE = {**algorithm("DDTREE"), "page-size": 1}

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"page-size": 64}, "set --page-size 1"),
            ({"speculative-ddtree-budget": 16}, "set --attention-backend triton, or a budget of at most 15"),
            ({"speculative-ddtree-budget": 64, "attention-backend": "flashinfer"}, "only the triton backend"),
            (
                {"speculative-ddtree-budget": 16, "attention-backend": "triton", "prefill-attention-backend": "fa3"},
                "triton",
            ),
        ],
    )
    def test_what_ddtree_cannot(self, changes, words):
        assert any(words in one for one in errors({**self.BASE, **changes}, target=QWEN, drafter=DFLASH))

    @pytest.mark.parametrize(
        "changes",
        [{"speculative-ddtree-budget": n} for n in (8, 12, 15)]
        + [{"speculative-ddtree-budget": n, "attention-backend": "triton"} for n in (15, 16, 32, 64)],
    )
    def test_what_it_can(self, changes):
        assert errors({**self.BASE, **changes}, target=QWEN, drafter=DFLASH) == []

    @pytest.mark.parametrize(
        ("release", "backend", "fine"),
        [("sglang-0.5.12.post1", "triton", False), ("sglang-0.5.12.post1", "flashinfer", True),
         ("sglang-0.5.16", "triton", True), ("sglang-0.5.16", "flashmla", False)],
    )  # fmt: skip
    def test_paged_trees_by_release(self, release, backend, fine):
        arguments = {**algorithm("EAGLE3", num_steps=3, eagle_topk=4, num_draft_tokens=8), "page-size": 16,
                     "attention-backend": backend}  # fmt: skip
        assert (errors(arguments, drafter=EAGLE3, release=release) == []) == fine


class TestStateStrategy:
    """Case 12: verdict for each set of flags, advice in the spelling of the release."""

    SETS = json.loads((CASES / "12-spec-needs-extra-buffer/flag-sets.json").read_text())

    @pytest.mark.parametrize("row", SETS, ids=lambda row: row["flags"])
    def test_the_sets_of_the_case(self, row):
        words, arguments = shlex.split(row["flags"]), {}
        for n, word in enumerate(words):
            if word.startswith("--"):
                value = words[n + 1] if n + 1 < len(words) and not words[n + 1].startswith("--") else True
                arguments[word[2:]] = value
        environment = dict([row["env"].split("=")]) if row.get("env") else {}
        found = errors(arguments, target=QWEN, drafter=DFLASH if "DFLASH" in row["flags"] else None,
                       release=f"sglang-{row['release']}", environment=environment)  # fmt: skip
        assert (found == []) == row["ok"], found

    @pytest.mark.parametrize("release", ["0.5.9", "0.5.10", "0.5.12.post1", "0.5.13.post1"])
    def test_old_releases_get_the_old_spelling_and_what_it_costs(self, release):
        found = errors(algorithm("NEXTN"), target=QWEN, release=f"sglang-{release}")
        assert "set --mamba-scheduler-strategy extra_buffer" in found[0]
        assert "5 state slots a request instead of 3" in found[0]
        assert ("SGLANG_ENABLE_SPEC_V2=1" in found[0]) == (release < "0.5.11" or release == "0.5.9")

    @pytest.mark.parametrize("release", ["0.5.14", "0.5.16", "0.5.23"])
    def test_new_releases_choose_it_themselves(self, release):
        assert errors(algorithm("NEXTN"), target=QWEN, release=f"sglang-{release}") == []

    def test_a_model_without_states_is_left_alone(self):
        assert errors(algorithm("EAGLE3"), drafter=EAGLE3, release="sglang-0.5.12") == []


class TestHeads:
    @pytest.mark.parametrize(("tp", "fine"), [(1, True), (2, True), (4, True), (8, True), (3, False), (5, False)])
    def test_query_kv_and_state_heads_against_tp(self, tp, fine):
        assert (errors({}, target=QWEN, tp=tp) == []) == fine

    def test_the_drafters_heads_count_too(self):
        found = errors(algorithm("DFLASH"), target=LLAMA, drafter={**DFLASH, "num_attention_heads": 20}, tp=8)
        assert "of the drafter" in found[0]


class TestPlacement:
    @pytest.mark.parametrize(
        ("environment", "words"),
        [
            ({"CUDA_VISIBLE_DEVICES": "GPU-8f1c"}, "not by UUID"), ({"CUDA_VISIBLE_DEVICES": "0"}, "needs 2 GPUs"),
            ({"NCCL_P2P_LEVEL": "4"}, "use a word"), ({"SGLANG_EXPOSE_OWN_ENV_VARS": "1"}, "secrets with it"),
        ],
    )  # fmt: skip
    def test_what_would_break_or_mislead(self, environment, words):
        assert words in errors({}, tp=2, environment=environment)[0]

    def test_one_way_to_bind_a_node(self):
        found = errors({"numa-node": [0]}, environment={"GAUNTLET_NUMA_NODE": "0"})
        assert "keep one of them" in found[0]

    def test_ll128_is_warned_of(self):
        assert check({}, environment={"NCCL_PROTO": "LL,LL128,Simple"})[0]["level"] == "warning"

    def test_what_is_right_is_left_alone(self):
        environment = {"CUDA_VISIBLE_DEVICES": "0,1", "NCCL_P2P_LEVEL": "SYS", "NCCL_PROTO": "LL"}
        assert check({}, tp=2, environment=environment) == []


class TestWhatTheBuildSays:
    BUILD = {"version": "0.5.23", "flags": {"page-size": 1, "speculative-algorithm": None,
                                            "mamba-radix-cache-strategy": "auto"},
             "algorithms": ["DFLASH", "EAGLE", "EAGLE3"]}  # fmt: skip

    def test_a_flag_it_does_not_know_is_named(self):
        assert "--speculative-ddtree-budget" in errors({"speculative-ddtree-budget": 8}, build=self.BUILD)[0]

    def test_a_renamed_flag_is_spelled_for_the_release_before_it_is_asked(self):
        assert errors({"mamba-scheduler-strategy": "extra_buffer"}, target=QWEN, build=self.BUILD) == []

    def test_an_algorithm_it_does_not_know_is_named_with_those_it_knows(self):
        found = errors(algorithm("DDTREE"), target=QWEN, drafter=DFLASH, build=self.BUILD)
        assert any("this build knows DFLASH, EAGLE, EAGLE3" in one for one in found)

    def refusal(self, **error):
        return {**self.BUILD, "deployments": {"d": {"ok": False, "error": {"message": "", **error}, "warnings": []}}}

    def test_its_own_refusal_is_passed_on_with_kind_and_place(self):
        build = self.refusal(kind="ValueError", message="no such backend", where="hook.py:3 in f")
        assert "ValueError: no such backend (hook.py:3 in f)" in errors({}, build=build)[0]

    def test_a_bare_assert_shows_the_line_that_asserted(self):
        build = self.refusal(kind="AssertionError", code="assert a and b", where="hook.py:3 in f")
        assert "AssertionError: assert a and b" in errors({}, build=build)[0]

    def test_a_rule_that_explains_the_refusal_speaks_alone(self):
        build = {
            **self.refusal(kind="AssertionError", code="and cfg.speculative_num_draft_tokens is None"),
            "flags": {},
        }
        (only,) = errors(algorithm("EAGLE3", eagle_topk=4), drafter=EAGLE3, build=build)
        assert "give all three, or none" in only
