"""How many parameters an engine makes up when it serves a shape without weights (`--load-format dummy`).

Counted by the layers that SGLang builds for an architecture, norms and biases left out: their share is under 0.1 %.
"""

from gauntlet.errors import GauntletError


def parameters(config: dict) -> int:
    """Parameters of a parsed config.json, a target's or a drafter's; GauntletError for an unknown architecture."""
    architecture = (config.get("architectures") or ["no architecture"])[0]
    if architecture not in COUNTS:
        raise GauntletError(
            f"parameters of {architecture} are not counted here, only of {', '.join(sorted(COUNTS))}; without weights "
            "on disk their memory is not known"
        )
    return COUNTS[architecture](config)


def _attention(config: dict) -> int:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    dim = config.get("head_dim") or hidden // heads
    return 2 * hidden * (heads + config["num_key_value_heads"]) * dim


def _mlp(config: dict) -> int:
    return 3 * config["hidden_size"] * config["intermediate_size"]


def _vocabulary(config: dict) -> int:
    return config["vocab_size"] * config["hidden_size"]


def _dense(config: dict) -> int:
    tables = 1 if config.get("tie_word_embeddings") else 2
    return config["num_hidden_layers"] * (_attention(config) + _mlp(config)) + tables * _vocabulary(config)


def _dflash(config: dict) -> int:
    """Embedding and head are the target's; its tapped states enter through one projection."""
    taps = len(config["dflash_config"]["target_layer_ids"])
    layers = config["num_hidden_layers"] * (_attention(config) + _mlp(config))
    return layers + taps * config["hidden_size"] ** 2


def _eagle3(config: dict) -> int:
    """Attention reads embedding and state side by side; three tapped states enter through one projection."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    dim = config.get("head_dim") or hidden // heads
    twice = hidden * (heads + 2 * config["num_key_value_heads"]) * dim  # q, k and v read twice the width
    layers = config["num_hidden_layers"] * (_attention(config) + twice + _mlp(config))
    return layers + 3 * hidden**2 + 2 * _vocabulary(config)


def _qwen3_next(config: dict) -> int:
    """Every layer is a mixture of experts, whatever mlp_only_layers says; the query of full attention has a gate."""
    hidden, kinds = config["hidden_size"], config["layer_types"]
    experts = 3 * hidden * config["num_experts"] * config["moe_intermediate_size"]
    experts += 3 * hidden * config["shared_expert_intermediate_size"] + hidden * (config["num_experts"] + 1)
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    linear = hidden * (2 * keys + 2 * values + 2 * config["linear_num_value_heads"]) + values * hidden
    full = _attention(config) + hidden * config["num_attention_heads"] * config["head_dim"]
    mixed = kinds.count("full_attention") * full + kinds.count("linear_attention") * linear
    return mixed + config["num_hidden_layers"] * experts + 2 * _vocabulary(config)


COUNTS = {
    "Qwen3ForCausalLM": _dense,
    "LlamaForCausalLM": _dense,
    "DFlashDraftModel": _dflash,
    "LlamaForCausalLMEagle3": _eagle3,
    "Qwen3NextForCausalLM": _qwen3_next,
}
