"""Whether a deployment fits is decided by arithmetic before days are lost; the arithmetic must be the release's own.

Held against: configs of 16 public models, pools that real SGLang 0.5.16 printed on an H200, slot counts from public
logs, and the founding failure once in each generation of the formulas.
"""

import csv
import json
from pathlib import Path

import pytest

from gauntlet import memory
from gauntlet.errors import GauntletError
from gauntlet.memory.shape import sliding_bytes_per_token

CASES = Path(__file__).parents[1] / "cases"
RECORDINGS = Path(__file__).parents[1] / "recordings" / "sglang-0.5.16-h200"
CONFIGS = CASES / "33-config-facts"
FACTS = json.loads((CONFIGS / "expected.json").read_text())
H200 = 140.39
RTX_PRO_6000 = 95.59  # nvidia-smi's total of a 96 GB card, GiB


def config(name):
    return json.loads((CONFIGS / name / "config.json").read_text())


QWEN = memory.shape(config("qwen3.6-27b"))
KIMI = memory.shape(config("kimi-k2.5"))
DFLASH = {
    "architectures": ["DFlashDraftModel"], "num_hidden_layers": 5, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "block_size": 16, "max_position_embeddings": 262144,
}  # fmt: skip
DRAFTER = memory.shape(DFLASH)


class TestShapes:
    """Case 33: every family hides the numbers elsewhere."""

    @pytest.mark.parametrize("name", FACTS)
    def test_every_fact_of_every_model(self, name):
        wanted, shape = FACTS[name], memory.shape(config(name))
        got = {
            "kv_bytes_per_token_bf16": lambda: memory.bytes_per_token(shape),
            "kv_bytes_per_token_fp8": lambda: memory.bytes_per_token(shape, kv_dtype="fp8_e4m3"),
            "kv_bytes_full_layers_per_token_bf16": lambda: memory.bytes_per_token(shape),
            "full_bytes_per_token_bf16": lambda: memory.bytes_per_token(shape),
            "swa_bytes_per_token_bf16": lambda: sliding_bytes_per_token(shape),
            "attn_layers": lambda: shape["full"]["layers"],
            "linear_layers": lambda: shape["linear"]["layers"],
            "state_bytes_per_slot_ssm_fp32": lambda: memory.bytes_per_slot(shape, dtype="float32")[1],
            "state_bytes_per_slot_ssm_bf16": lambda: memory.bytes_per_slot(shape, dtype="bfloat16")[1],
            "conv_bytes_per_slot": lambda: memory.bytes_per_slot(shape)[0],
            "bytes_per_sequence_bf16": lambda: {
                n: memory.bytes_per_sequence(shape, int(n)) for n in wanted["bytes_per_sequence_bf16"]
            },
        }
        assert {key: got[key]() for key in wanted if key != "trap"} == {k: v for k, v in wanted.items() if k != "trap"}

    def test_a_block_size_is_found_inside_and_outside_of_dflash_config(self):
        assert memory.shape(config("draft-dflash-qwen3-4b"))["block_size"] == 16
        assert memory.shape(config("draft-dflash2-nested"))["block_size"] == 16

    def test_a_drafter_with_few_positions_says_so_and_its_kv_size_is_refused_not_guessed(self):
        drafter = memory.shape(config("draft-eagle3-llama3.3-70b"))
        assert drafter["context_window"] == 2048
        with pytest.raises(GauntletError, match="unknown layout"):
            memory.bytes_per_token(drafter)

    @pytest.mark.parametrize(
        "broken",
        [
            {"num_hidden_layers": 4, "layer_types": ["full_attention", "surprise", "full_attention", "surprise"]},
            {"num_hidden_layers": 4, "layer_types": ["full_attention"]},
            {"num_hidden_layers": None},
            {"num_hidden_layers": 4, "linear_num_value_heads": 8},
            {"num_hidden_layers": 4, "hidden_size": 100, "num_attention_heads": 3},
        ],
    )
    def test_an_unknown_layout_is_refused(self, broken):
        with pytest.raises(GauntletError):
            memory.shape({"architectures": ["NewModel"], **broken})

    def test_tensor_parallelism_divides_kv_until_a_head_is_left_and_never_mla(self):
        assert [memory.bytes_per_token(QWEN, tp) for tp in (1, 4, 8)] == [65536, 16384, 16384]
        assert [memory.bytes_per_token(KIMI, tp) for tp in (1, 8)] == [70272, 70272]


def recorded(name):
    return memory.figures((RECORDINGS / f"{name}.log").read_text().splitlines())


def predicted(shape, arguments, printed, drafter=None):
    """The prediction from what this start had: weights as loaded, fraction as resolved."""
    return memory.predict(
        shape,
        {"mem-fraction-static": printed["fraction"], "context-length": 32768, **arguments},
        tp=1, gpu_memory=H200, weights=printed["weights_gib"], release="0.5.16",
        drafter=drafter, drafter_weights=printed.get("draft_weights_gib", 0.0),
    )  # fmt: skip


DRAFTING = {"speculative-algorithm": "DFLASH"}
HYBRID = {**QWEN, "multimodal": False}
DENSE = memory.shape({
    "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 131072,
})  # fmt: skip
EAGLE = memory.shape({
    "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128,
})  # fmt: skip


class TestRecordings:
    """Real SGLang 0.5.16 on one H200."""

    @pytest.mark.parametrize(
        ("name", "shape", "arguments", "drafter", "slots"),
        [
            ("hybrid-ar", HYBRID, {"max-running-requests": 8}, None, 193),
            ("hybrid-dflash-maxreq4", HYBRID, {"max-running-requests": 4, **DRAFTING}, DRAFTER, 47),
            ("ar-8b", DENSE, {}, None, None),
            ("dflash-8b", DENSE, DRAFTING, DRAFTER, None),
            (
                "eagle3-tree-simulated",
                DENSE,
                {
                    "speculative-algorithm": "EAGLE3", "speculative-num-steps": 3, "speculative-eagle-topk": 4,
                    "speculative-num-draft-tokens": 16,
                },
                EAGLE,
                None,
            ),
        ],
    )  # fmt: skip
    def test_prediction_is_what_the_server_printed(self, name, shape, arguments, drafter, slots):
        printed = recorded(name)
        prediction = predicted(shape, arguments, printed, drafter)
        assert prediction["slots"] == slots == printed.get("slots")
        assert prediction["kv_tokens"] == pytest.approx(printed["kv_tokens"], rel=0.005)
        assert prediction["max_running_requests"] == printed["max_running_requests"]
        assert memory.compare(prediction, printed) == []

    def test_pools_of_states_are_what_was_allocated(self):
        printed = recorded("hybrid-dflash-maxreq4")
        pools = predicted(
            HYBRID, {"max-running-requests": 4, "speculative-algorithm": "DFLASH"}, printed, DRAFTER
        )["pools"]  # fmt: skip
        assert pools["conv_gib"] == pytest.approx(0.13, abs=0.01)
        assert pools["ssm_gib"] == pytest.approx(6.75, abs=0.01)
        assert pools["intermediate_gib"] == pytest.approx(11.25, abs=0.01)

    def test_a_difference_over_five_percent_is_reported(self):
        printed = recorded("hybrid-ar")
        prediction = predicted(HYBRID, {"max-running-requests": 8}, printed)
        assert "KV tokens" in memory.compare({**prediction, "kv_tokens": 400_000}, printed)[0]


class TestPrintedWordings:
    """Each release words its lines differently; the figures must come out of all of them."""

    def test_old_wording_has_no_dtype_and_mla_has_one_size(self):
        old = ["[2026-05-01 10:00:00 TP0] KV Cache is allocated. #tokens: 11893, K size: 0.36 GB, V size: 0.36 GB"]
        mla = ["[2026-05-01 10:00:00] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 9000, KV size: 0.59 GB"]
        assert memory.figures(old)["kv_gib"] == pytest.approx(0.72)
        assert memory.figures(mla)["kv_gib"] == pytest.approx(0.59)

    def test_only_the_first_rank_counts(self):
        lines = [f"[2026-05-01 10:00:00 TP{n}] Load weight end. type=X, avail mem=40.00 GB, mem usage={n + 1}.00 GB."
                 for n in range(4)]  # fmt: skip
        assert memory.figures(lines)["weights_gib"] == 1.0

    def test_the_cap_by_states_is_read_and_the_final_line_wins(self):
        lines = [
            "max_running_requests is capped to 2 by the mamba state cache (max_mamba_cache_size=12, 5 state slots per "
            "request). To raise it: increase --mamba-full-memory-ratio",
            "max_total_num_tokens=1000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2, "
            "context_len=4096, available_gpu_mem=9.31 GB",
        ]
        assert memory.figures(lines)["max_running_requests"] == 2


class TestSlotTuples:
    """Case 35: slots, pools and caps that people published."""

    ROWS = list(csv.DictReader((CASES / "35-mamba-slot-tuples" / "mamba.csv").open()))
    RATIOS = list(csv.DictReader((CASES / "35-mamba-slot-tuples" / "slots-per-request.csv").open()))

    def one(self, size, requests, tokens, strategy="extra_buffer", **environment):
        return memory.predict(
            HYBRID,
            {
                "mem-fraction-static": 0.85, "max-mamba-cache-size": size, "max-running-requests": requests,
                "speculative-algorithm": "DFLASH", "speculative-num-draft-tokens": tokens,
                "mamba-radix-cache-strategy": strategy, "mamba-ssm-dtype": "bfloat16",
            },
            tp=1, gpu_memory=95.6, weights=20.0, release="0.5.19", drafter=DRAFTER, environment=environment,
        )  # fmt: skip

    @pytest.mark.parametrize("row", [0, 1])
    def test_allocated_states_of_a_public_log(self, row):
        row = self.ROWS[row]
        pools = self.one(int(row["max_mamba_cache_size"]), int(row["max_running_requests"]), 12, "extra_buffer_lazy")[
            "pools"
        ]
        assert pools["ssm_gib"] == pytest.approx(float(row["ssm_gib"]), abs=0.005)
        assert pools["intermediate_gib"] == pytest.approx(float(row["intermediate_ssm_gib"]), abs=0.005)

    @pytest.mark.parametrize(("size", "cap"), [(40, 8), (427, 85)])
    def test_the_cap_is_slots_over_slots_per_request(self, size, cap):
        assert self.one(size, 128, 4)["max_running_requests"] == cap

    @pytest.mark.parametrize("row", RATIOS, ids=lambda row: row["strategy"])
    @pytest.mark.parametrize("skip", [False, True])
    def test_slots_per_request_of_each_strategy(self, row, skip):
        arguments = {
            "disable-radix-cache": {"disable-radix-cache": True},
            "no_buffer": {"mamba-radix-cache-strategy": "no_buffer"},
            "extra_buffer overlap on": {"mamba-radix-cache-strategy": "extra_buffer"},
            "extra_buffer overlap off": {
                "mamba-radix-cache-strategy": "extra_buffer",
                "disable-overlap-schedule": True,
            },
            "extra_buffer_lazy": {"mamba-radix-cache-strategy": "extra_buffer_lazy"},
        }[row["strategy"]]
        prediction = memory.predict(
            HYBRID, {"mem-fraction-static": 0.85, "max-running-requests": 4, **arguments},
            tp=1, gpu_memory=95.6, weights=52.0, release="0.5.23",
            environment={"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "1"} if skip else {},
        )  # fmt: skip
        assert prediction["slots_per_request"] == int(row["S_with_decode_lock_skip" if skip else "S"])

    def test_no_spare_slot_is_warned_of(self):
        assert "no spare slot" in self.one(4, 1, 12, "extra_buffer_lazy")["warnings"][0]
        assert self.one(8, 1, 12, "extra_buffer_lazy")["warnings"] == []


def founding(release, fraction, **arguments):
    """The founding deployment: 27B hybrid in bfloat16 and its DFlash drafter on one 96 GB card, context 32768."""
    strategy = "mamba-scheduler-strategy" if release < "0.5.14" else "mamba-radix-cache-strategy"
    flags = {
        "mem-fraction-static": fraction, "context-length": 32768, "speculative-algorithm": "DFLASH",
        "max-running-requests": 8, strategy: "extra_buffer", **arguments,
    }  # fmt: skip
    facts = {"gpu_memory": RTX_PRO_6000, "weights": 51.7, "drafter": DRAFTER, "drafter_weights": 3.3}
    return flags, {**facts, "release": release, "tp": 1}


class TestFoundingFailure:
    """max_running_request is zero, once in each generation."""

    def test_up_to_0_5_12_eight_requests_starve_and_four_fit(self):
        """At mem-fraction-static 0.75: states for all 8 requests are reserved before anything else."""
        flags, facts = founding("0.5.12.post1", 0.75)
        eight = memory.predict(QWEN, flags, **facts)
        four = memory.predict(QWEN, {**flags, "max-running-requests": 4}, **facts)
        assert eight["failure"] == "max_running_request is zero"
        assert "for all requested requests" in " ".join(eight["arithmetic"])
        assert four["failure"] is None and four["max_running_requests"] == 4
        assert memory.levers(QWEN, flags, concurrency=1, **facts)[0] == "max-running-requests 8 → 4"

    @pytest.mark.parametrize("release", ["0.5.16", "0.5.23"])
    def test_from_0_5_13_on_the_cap_does_not_depend_on_what_is_requested(self, release):
        """At the same fraction the server starts with a cap of 1 or 2, whatever is requested; so that is no advice."""
        flags, facts = founding(release, 0.75)
        caps = {
            memory.predict(QWEN, {**flags, "max-running-requests": n}, **facts)["max_running_requests"]
            for n in (8, 6, 4)
        }
        assert caps == {2} if release == "0.5.16" else caps <= {1, 2}
        cell = memory.check(memory.predict(QWEN, flags, **facts), concurrency=4, tokens=1024)
        assert not cell["feasible"] and "the server would run" in cell["reason"]
        advice = memory.levers(QWEN, flags, concurrency=4, tokens=1024, **facts)
        assert advice and not any(line.startswith("max-running-requests") for line in advice)
        assert any(line.startswith("disable-radix-cache") for line in advice)

    def test_a_tree_of_budget_64_cannot_run_on_one_card_and_the_refusal_is_the_new_guard(self):
        flags, facts = founding("0.5.23", 0.75)
        flags |= {"speculative-algorithm": "DDTREE", "speculative-ddtree-budget": 64}
        prediction = memory.predict(QWEN, flags, **facts)
        assert "hybrid (mamba/linear-attention) state cache" in prediction["failure"].lower()

    @pytest.mark.parametrize("release", ["0.5.12.post1", "0.5.13.post1", "0.5.16", "0.5.18", "0.5.23"])
    @pytest.mark.parametrize("fraction", [0.66, 0.7, 0.75, 0.8, 0.88])
    def test_no_advice_that_does_not_help(self, release, fraction):
        """Every lever, applied, makes the cell fit by the same formulas."""
        flags, facts = founding(release, fraction)
        for lever in memory.levers(QWEN, flags, concurrency=4, tokens=2048, **facts):
            changes, tp = apply(lever), facts["tp"]
            if "tp" in changes:
                tp = changes.pop("tp")
            prediction = memory.predict(QWEN, {**flags, **changes}, **{**facts, "tp": tp})
            assert memory.check(prediction, concurrency=4, tokens=2048)["feasible"], lever


def apply(lever):
    """What a person would change on reading the sentence."""
    changes = {}
    for part in lever.partition(" (")[0].split(" with "):
        words = part.split()
        changes[words[0]] = True if len(words) == 1 else words[-1]
    return {key: int(value) if str(value).isdigit() else value for key, value in changes.items()}


class TestKimi:
    """MLA: one latent row a token on every rank; no states, so nothing but weights and fraction matters."""

    def predict(self, **arguments):
        return memory.predict(
            KIMI, {"mem-fraction-static": 0.9, "context-length": 128000, **arguments},
            tp=8, gpu_memory=RTX_PRO_6000, weights=554.1, release="0.5.23",
        )  # fmt: skip

    def test_a_fifth_of_a_million_tokens_in_bfloat16_and_twice_that_in_fp8(self):
        plain, fp8 = self.predict(), self.predict(**{"kv-cache-dtype": "fp8_e4m3"})
        assert plain["bytes_per_token"] == 70272 and fp8["bytes_per_token"] == 35136
        assert 200_000 < plain["kv_tokens"] < 250_000
        assert fp8["kv_tokens"] == pytest.approx(2 * plain["kv_tokens"], rel=1e-4)

    def test_its_dflash_drafter_costs_3072_bytes_a_token(self):
        drafter = memory.shape({**DFLASH, "num_hidden_layers": 6, "num_attention_heads": 64, "block_size": 8})
        prediction = memory.predict(
            KIMI, {"mem-fraction-static": 0.9, "speculative-algorithm": "DFLASH"}, tp=8, gpu_memory=RTX_PRO_6000,
            weights=554.1, release="0.5.23", drafter=drafter, drafter_weights=6.0,
        )  # fmt: skip
        assert prediction["bytes_per_token"] == 70272 + 3072

    def test_four_cards_cannot_hold_it_and_the_failure_says_so(self):
        prediction = memory.predict(
            KIMI, {"mem-fraction-static": 0.9}, tp=4, gpu_memory=RTX_PRO_6000, weights=554.1, release="0.5.23"
        )
        assert prediction["failure"] == "Loaded weights leave no GPU memory for the KV cache"


class TestCells:
    def test_a_prompt_longer_than_pool_or_context_is_infeasible_with_its_arithmetic(self):
        flags, facts = founding("0.5.23", 0.8, **{"max-running-requests": 1})
        prediction = memory.predict(QWEN, {**flags, "max-total-tokens": 30006}, **facts)
        assert "context of 32768" in memory.check(prediction, concurrency=1, tokens=40000)["reason"]
        assert "pool of 30006" in memory.check(prediction, concurrency=1, tokens=30256)["reason"]

    def test_a_near_miss_is_feasible_and_warned_of(self):
        flags, facts = founding("0.5.23", 0.8, **{"max-running-requests": 1})
        prediction = memory.predict(QWEN, {**flags, "max-total-tokens": 30006}, **facts)
        near = memory.check(prediction, concurrency=1, tokens=28000)
        assert near["feasible"] and "nearly fill" in near["warnings"][0]

    def test_sliding_windows_are_not_guessed(self):
        with pytest.raises(GauntletError, match="sliding-window"):
            memory.predict(memory.shape(config("gpt-oss-120b")), {}, tp=1, gpu_memory=95, weights=60, release="0.5.23")

    def test_a_release_before_the_known_formulas_is_refused(self):
        with pytest.raises(GauntletError, match=r"from 0\.5\.10 on"):
            memory.predict(QWEN, {}, tp=1, gpu_memory=95, weights=52, release="0.5.9")
