#!/usr/bin/env python3
"""What SGLang will report of the deployments of a campaign, calculated beforehand from their shapes.

usage: predictions.py MODELS_FOLDER GPU_MEMORY_MIB CAMPAIGN…     -> JSON: {deployment: {predicted figures}}
MODELS_FOLDER holds the model folders as scripts/gpu/pack carries them.
"""

import json
import sys
from pathlib import Path

from planned import planned

from gauntlet import memory

RELEASE = "0.5.16"
GIB = 1 << 30
BF16 = 2


def parameters(config: dict) -> int:
    """Parameters of a served model or drafter, by the layers that SGLang builds for its architecture."""
    hidden, heads, kv, dim = (
        config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    )
    architecture = config["architectures"][0]
    attention = hidden * heads * dim * 2 + hidden * kv * dim * 2
    mlp = 3 * hidden * config["intermediate_size"]
    layers, vocabulary = config["num_hidden_layers"], config["vocab_size"] * hidden
    if architecture == "DFlashDraftModel":  # the target's embedding and head; its states enter through one projection
        return layers * (attention + mlp) + len(config["dflash_config"]["target_layer_ids"]) * hidden * hidden
    if architecture == "LlamaForCausalLMEagle3":  # attention reads embedding and state side by side; three taps
        wide = hidden * heads * dim * 3 + 2 * hidden * kv * dim * 2
        return layers * (wide + mlp) + 3 * hidden * hidden + 2 * vocabulary
    if architecture == "Qwen3NextForCausalLM":  # every layer is a mixture of experts, whatever mlp_only_layers says
        experts = 3 * hidden * (config["num_experts"] * config["moe_intermediate_size"])
        experts += 3 * hidden * config["shared_expert_intermediate_size"] + hidden * (config["num_experts"] + 1)
        keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
        values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
        linear = hidden * (2 * keys + 2 * values + 2 * config["linear_num_value_heads"]) + values * hidden
        full = attention + hidden * heads * dim  # the query carries a gate
        kinds = config["layer_types"]
        return (
            kinds.count("full_attention") * full
            + kinds.count("linear_attention") * linear
            + layers * experts
            + 2 * vocabulary
        )
    tied = config.get("tie_word_embeddings")
    return layers * (attention + mlp) + vocabulary * (1 if tied else 2)


def weights_of(models: Path, entry: dict | None) -> tuple[dict | None, float]:
    """(shape, GiB) of a weights entry."""
    if not entry:
        return None, 0.0
    config = json.loads((models / Path(entry["source"]["path"]).name / "config.json").read_text())
    return memory.shape(config), parameters(config) * BF16 / GIB


def main(models: Path, gpu_mib: int, campaigns: list[str]) -> dict:
    found = {}
    for campaign in campaigns:
        for deployment in planned(campaign, gpus=8)["deployments"].values():
            shape, weights = weights_of(models, deployment["weights"]["model"])
            drafter, drafter_weights = weights_of(models, deployment["weights"].get("drafter"))
            predicted = memory.predict(
                shape, deployment["arguments"], tp=deployment["tp"], gpu_memory=gpu_mib / 1024, weights=weights,
                release=RELEASE, drafter=drafter, drafter_weights=drafter_weights,
                environment=deployment["environment"],
            )  # fmt: skip
            keys = ("fraction", "kv_tokens", "slots", "max_running_requests", "pools", "rest_gib", "failure")
            found[deployment["name"]] = {
                "weights_gib": round(weights, 2),
                "drafter_gib": round(drafter_weights, 2),
                **{key: predicted[key] for key in keys},
            }
    return found


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]), indent=1))
