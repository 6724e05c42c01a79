"""The facts of a model's config.json that its memory depends on. Every family hides them elsewhere.

A shape is
    {'architecture': str, 'layers': int, 'heads': int, 'kv_heads': int, 'context_window': int or None,
     'multimodal': bool,
     'full':    {'layers', 'kv_heads', 'key_dim', 'value_dim'}                attention with a KV cache of every token
              | {'layers', 'latent_dim', 'rope_dim', 'index_bytes'}           MLA: one latent row, not divided by tp
     'sliding': {'layers', 'kv_heads', 'key_dim', 'value_dim', 'window'}      or absent
     'linear':  {'layers', 'conv_dim', 'conv_kernel', 'heads', 'state_dim', 'head_dim', 'dtype'}  or absent: states of
                fixed size a request (Mamba, gated delta net)
     'block_size', 'mask_token_id', 'target_layers': of a DFlash drafter, or absent}
A layout that is not known is refused, never guessed.
"""

from gauntlet.errors import GauntletError

STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
KV_BYTES = {"auto": 2, "bfloat16": 2, "bf16": 2, "float16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}
BLOCK = 128  # DeepSeek's sparse attention has a float32 scale for each so many fp8 values
LINEAR = {"linear_attention", "mamba", "recurrent", "M"}
FULL = {"full_attention", "attention", "*"}
SLIDING = {"sliding_attention", "local_attention"}


def shape(config: dict) -> dict:
    """The shape of a parsed config.json; GauntletError names what is missing or unknown."""
    architecture = (config.get("architectures") or ["unknown architecture"])[0]
    text = {**config, **(config.get("text_config") or {})}
    where = f"config.json of {architecture}"
    layers = _integer(text, "num_hidden_layers", where)
    heads = text.get("num_attention_heads")
    counts = _layer_counts(text, layers, where)
    found = {
        "architecture": architecture,
        "layers": layers,
        "heads": heads,
        "kv_heads": text.get("num_key_value_heads") or heads,
        "context_window": text.get("max_position_embeddings"),
        "multimodal": any(key in config for key in ("vision_config", "audio_config")),
        "full": _full(text, counts["full"], where),
    }
    if counts["sliding"]:
        found["sliding"] = _sliding(text, counts["sliding"], where)
    if counts["linear"]:
        found["linear"] = _linear(text, counts["linear"], where)
    return found | _drafter(config)


def _integer(text: dict, key: str, where: str) -> int:
    value = text.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise GauntletError(f"{where}: unknown layout, it has no {key}")
    return value


def _layer_counts(text: dict, layers: int, where: str) -> dict[str, int]:
    """How many layers keep every token, a window of tokens, or a state."""
    if "full_layers" in text or "swa_layers" in text:
        return {"full": text.get("full_layers", 0), "sliding": text.get("swa_layers", 0), "linear": 0}
    if "attention_layers" in text and "mamba_layers" in text:
        return {"full": text["attention_layers"], "sliding": 0, "linear": text["mamba_layers"]}
    kinds = text.get("layer_types") or text.get("layers_block_type") or list(text.get("hybrid_override_pattern") or "")
    if kinds:
        # a pattern of letters names feed-forward layers too ('-'), which keep nothing
        unknown = sorted({kind for kind in kinds if kind not in LINEAR | FULL | SLIDING | {"-"}})
        if unknown:
            raise GauntletError(f"{where}: unknown layout, layers of the type {', '.join(map(repr, unknown))}")
        if len(kinds) != layers:
            raise GauntletError(f"{where}: {len(kinds)} layer types for {layers} layers")
        return {
            "full": sum(kind in FULL for kind in kinds),
            "sliding": sum(kind in SLIDING for kind in kinds),
            "linear": sum(kind in LINEAR for kind in kinds),
        }
    if interval := text.get("full_attention_interval"):
        return {"full": layers // interval, "sliding": 0, "linear": layers - layers // interval}
    if "linear_num_value_heads" in text or "mamba_num_heads" in text or "ssm_state_size" in text:
        raise GauntletError(f"{where}: unknown layout, it has states but does not say in which layers")
    return {"full": layers, "sliding": 0, "linear": 0}


def _head_dim(text: dict, where: str) -> int | None:
    """Stated, or hidden size over heads; several families state another size. None: it is not said."""
    hidden, heads = text.get("hidden_size"), text.get("num_attention_heads")
    if text.get("head_dim") or not (hidden and heads):
        return text.get("head_dim")
    if hidden % heads:
        raise GauntletError(f"{where}: unknown layout, no head_dim and {hidden} is not a multiple of {heads} heads")
    return hidden // heads


def _full(text: dict, layers: int, where: str) -> dict:
    if "kv_lora_rank" in text:
        index = text.get("index_head_dim") or 0
        return {
            "layers": layers,
            "latent_dim": _integer(text, "kv_lora_rank", where),
            "rope_dim": _integer(text, "qk_rope_head_dim", where),
            "index_bytes": index + index // BLOCK * 4,
        }
    if text.get("global_head_dim"):  # a family whose full layers differ from its sliding ones
        key = value = text["global_head_dim"]
    else:
        key = _head_dim(text, where)
        value = text.get("v_head_dim") or key
    heads = text.get("num_global_key_value_heads") or text.get("num_key_value_heads") or text.get("num_attention_heads")
    return {"layers": layers, "kv_heads": heads, "key_dim": key, "value_dim": value}


def _sliding(text: dict, layers: int, where: str) -> dict:
    key = text.get("swa_head_dim") or _head_dim(text, where)
    return {
        "layers": layers,
        "kv_heads": text.get("swa_num_key_value_heads") or _integer(text, "num_key_value_heads", where),
        "key_dim": key,
        "value_dim": text.get("swa_v_head_dim") or key,
        "window": _integer(text, "sliding_window", where),
    }


def _linear(text: dict, layers: int, where: str) -> dict:
    if "linear_num_value_heads" in text:  # gated delta net: a key-by-value matrix a value head, q, k and v convolved
        heads, keys = text["linear_num_value_heads"], _integer(text, "linear_num_key_heads", where)
        key, value = _integer(text, "linear_key_head_dim", where), _integer(text, "linear_value_head_dim", where)
        convolved = heads * value + 2 * keys * key
        kernel, head, state = _integer(text, "linear_conv_kernel_dim", where), value, key
    elif "mamba_num_heads" in text:  # Mamba2: x and the groups' B and C convolved
        heads, head = text["mamba_num_heads"], _integer(text, "mamba_head_dim", where)
        state = text.get("ssm_state_size") or _integer(text, "mamba_d_state", where)
        convolved = heads * head + 2 * (text.get("n_groups") or 1) * state
        kernel = text.get("conv_kernel") or _integer(text, "mamba_d_conv", where)
    else:
        raise GauntletError(f"{where}: unknown layout of its {layers} layers with states")
    return {
        "layers": layers, "heads": heads, "head_dim": head, "state_dim": state, "conv_dim": convolved,
        "conv_kernel": kernel, "dtype": text.get("mamba_ssm_dtype") or "float32",
    }  # fmt: skip


def _drafter(config: dict) -> dict:
    """What a DFlash drafter says of itself; newer ones put block_size inside dflash_config."""
    inner = config.get("dflash_config") or {}
    found = {
        "block_size": config.get("block_size") or inner.get("block_size"),
        "mask_token_id": inner.get("mask_token_id"),
        "target_layers": config.get("num_target_layers"),
    }
    return {key: value for key, value in found.items() if value is not None}


def bytes_per_token(shape: dict, tp: int = 1, kv_dtype: str = "auto") -> int:
    """KV bytes of one token on one rank in the layers that keep every token.

    SGLang's pool_configurator: max(1, kv heads // tp) x (key + value dim) x layers x bytes; MLA is not divided by tp.
    """
    size, full = _kv_bytes(kv_dtype), shape["full"]
    if "latent_dim" in full:
        row = (full["latent_dim"] + full["rope_dim"]) * size
        if full["index_bytes"] and size == 1:  # latent in fp8 with scales, rope part in bfloat16
            row = full["latent_dim"] + full["latent_dim"] // BLOCK * 4 + full["rope_dim"] * 2
        return full["layers"] * (row + full["index_bytes"])
    return _kv_row(full, tp) * full["layers"] * size


def sliding_bytes_per_token(shape: dict, tp: int = 1, kv_dtype: str = "auto") -> int:
    """The same for the layers that keep a window."""
    sliding = shape.get("sliding")
    return _kv_row(sliding, tp) * sliding["layers"] * _kv_bytes(kv_dtype) if sliding else 0


def bytes_per_sequence(shape: dict, tokens: int, tp: int = 1, kv_dtype: str = "auto") -> int:
    """KV bytes of one sequence: every token in full layers, at most the window in sliding ones."""
    window = shape["sliding"]["window"] if "sliding" in shape else 0
    return bytes_per_token(shape, tp, kv_dtype) * tokens + sliding_bytes_per_token(shape, tp, kv_dtype) * min(
        tokens, window
    )


def bytes_per_slot(shape: dict, tp: int = 1, dtype: str | None = None) -> tuple[int, int]:
    """(convolution, state) bytes of one request's states on one rank; (0, 0) without such layers.

    SGLang's mamba_utils: [conv_dim / tp x (kernel - 1) x 2 B + heads / tp x head_dim x state_dim x b] x layers.
    """
    linear = shape.get("linear")
    if not linear:
        return 0, 0
    size = STATE_BYTES.get(dtype or linear["dtype"])
    if size is None:
        raise GauntletError(
            f"states of the type '{dtype or linear['dtype']}' are unknown; {', '.join(STATE_BYTES)} are"
        )
    convolution = linear["conv_dim"] // tp * (linear["conv_kernel"] - 1) * 2 * linear["layers"]
    state = linear["heads"] // tp * linear["head_dim"] * linear["state_dim"] * size * linear["layers"]
    return convolution, state


def _kv_row(attention: dict, tp: int) -> int:
    if not attention["kv_heads"] or not attention["key_dim"]:
        raise GauntletError("unknown layout: the config.json does not say how many KV heads of which size it has")
    return max(1, attention["kv_heads"] // tp) * (attention["key_dim"] + attention["value_dim"])


def _kv_bytes(dtype: str) -> int:
    if dtype not in KV_BYTES:
        raise GauntletError(f"a KV cache of the type '{dtype}' is unknown; {', '.join(KV_BYTES)} are")
    return KV_BYTES[dtype]
