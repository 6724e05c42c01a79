"""The arguments of the catalog, judged by the real SGLang wheel: what it accepts and refuses is not what we believe.

A GPU is pretended (`sglang_check.py`), for the wheel is installed without CUDA. `make wheel` builds the environment.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from gauntlet import catalog
from gauntlet.engines import sglang
from gauntlet.preflight import run, sentence

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "tests/cases/33-config-facts"
BUILD = "sglang-0.5.23"
GPU = {"capability": [12, 0], "memory_mib": 97887, "count": 8}
CATALOG = catalog.load([ROOT / "catalog"])
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
         "max_position_embeddings": 131072, "vocab_size": 128256}  # fmt: skip
EAGLE3 = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000}
DFLASH = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 17408,
          "num_hidden_layers": 5, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
          "block_size": 16, "num_target_layers": 64, "vocab_size": 248320, "max_position_embeddings": 262144,
          "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [1, 16, 31, 46, 61]}}  # fmt: skip
KIMI = json.loads((CONFIGS / "kimi-k2.5/config.json").read_text())
KIMI_EAGLE3 = {**EAGLE3, "hidden_size": 7168, "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 112,
               "vocab_size": 163840, "max_position_embeddings": 262144}  # fmt: skip
MODELS = {"qwen": json.loads((CONFIGS / "qwen3.6-27b/config.json").read_text()), "llama": LLAMA, "eagle3": EAGLE3,
          "dflash": DFLASH, "kimi": KIMI, "kimi-eagle3": KIMI_EAGLE3}  # fmt: skip


def deployment(name, target, arguments, drafter=None, tp=1):
    weights = {"model": {"id": target}, **({"drafter": {"id": drafter}} if drafter else {})}
    return {
        "name": name,
        "engine": "sglang",
        "engine_build": BUILD,
        "tp": tp,
        "arguments": arguments,
        "weights": weights,
    }


def of_catalog(method, target, drafter=None, model="qwen3.6-27b", tp=1, **changes):
    """The arguments that the plan makes of the catalog: the model's, the method's over them."""
    layers = [CATALOG.models[model]["engines"]["sglang"], CATALOG.methods[method]["engines"]["sglang"]]
    arguments = {flag: value for layer in layers for flag, value in layer["arguments"].items()} | changes
    return deployment(f"{method}-{target}-tp{tp}", target, arguments, drafter, tp)


FINE = [
    of_catalog("autoregressive", "qwen"),
    of_catalog("mtp", "qwen"),
    of_catalog("ngram", "qwen"),
    of_catalog("dflash", "qwen", "dflash"),
    of_catalog("dflash", "qwen", "dflash", tp=4),
    of_catalog("eagle3", "kimi", "kimi-eagle3", model="kimi-k2.6", tp=8),
]
REFUSED = {
    "topk without steps": ({"speculative-algorithm": "EAGLE3", "speculative-eagle-topk": 4}, "give all three, or none"),
    "steps without topk": ({"speculative-algorithm": "EAGLE3", "speculative-num-steps": 3}, "give all three, or none"),
    "a tree that this release does not have": ({"speculative-algorithm": "DDTREE", "page-size": 1}, "this build knows"),
    "a flag of another engine": ({"gpu-memory-utilization": 0.9}, "does not know it"),
    "a backend that does not exist": ({"attention-backend": "magic"}, "refuses it.*magic"),
}


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """All deployments of this file asked at once, as the module does it on a host."""
    python = subprocess.run([ROOT / "scripts/sglang_wheel"], capture_output=True, text=True, check=True).stdout.strip()
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "engines").mkdir()
    (folder / "engines" / BUILD).symlink_to(Path(python).parents[1])
    for name, config in MODELS.items():
        (folder / "models" / name).mkdir(parents=True)
        (folder / "models" / name / "config.json").write_text(json.dumps(config))
    refused = [
        deployment(name, "llama", arguments, "dflash" if "tree" in name else "eagle3")
        for name, (arguments, _) in REFUSED.items()
    ]
    options = {"models": str(folder / "models"), "engines_folder": str(folder / "engines"), "cache": folder / "cache",
               "libexec": str(ROOT / "roles/serving/files"), "pretend": GPU}  # fmt: skip
    first = run.run([*FINE, *refused], **options)
    assert run.run([*FINE, *refused], **options) == first, "the kept answer is the answer"
    return first


def errors(answer, name):
    return [sentence(one) for one in answer["findings"] if one["deployment"] == name and one["level"] == "error"]


def test_the_pinned_release_knows_what_the_catalog_needs(answer):
    asked = answer["builds"][BUILD]
    assert asked["version"] == "0.5.23"
    assert {"DFLASH", "EAGLE3", "EAGLE", "NGRAM"} <= set(asked["algorithms"])
    assert "DDTREE" not in asked["algorithms"], "it is in no release; if it is now, the catalog can say so"


@pytest.mark.parametrize("one", FINE, ids=lambda one: one["name"])
def test_what_the_catalog_says_is_accepted(answer, one):
    assert errors(answer, one["name"]) == []


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_start_is_refused_with_what_to_change(answer, name):
    found = errors(answer, name)
    assert any(re.search(REFUSED[name][1], one, re.DOTALL) for one in found), found


def test_the_prediction_uses_what_the_release_resolved(answer):
    """The fraction that SGLang chose, its strategy for states, its cap on requests: not our idea of its defaults."""
    prediction = answer["predictions"]["dflash-qwen-tp4"]
    assert prediction["slots_per_request"] == 5, "extra_buffer with overlap"
    assert prediction["requested"] == 48, "its default when it drafts"


def test_every_renamed_flag_is_one_that_the_release_has():
    python = subprocess.run([ROOT / "scripts/sglang_wheel"], capture_output=True, text=True, check=True).stdout.strip()
    asked = subprocess.run(
        [python, ROOT / "roles/serving/files/sglang_check.py"],
        input=json.dumps({"gpu": GPU, "pretend": True, "deployments": []}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    flags = json.loads(asked.stdout)["flags"]
    for _, new, _ in sglang.RENAMED:
        assert new in flags, f"--{new} is gone; what is its name now?"
