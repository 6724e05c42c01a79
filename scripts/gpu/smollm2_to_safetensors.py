"""SmolLM2-135M out of a GGUF as a Hugging Face folder of bf16 safetensors: dequantised, so not the original checkpoint.

usage: smollm2_to_safetensors.py MODEL.gguf OUT_DIR     (needs torch, transformers, gguf)
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file
from transformers import AutoTokenizer

LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
SKIPPED = {"rope_freqs.weight"}


def huggingface_name(name: str) -> str:
    if name.startswith("blk."):
        _, layer, part, _ = name.split(".")
        return f"model.layers.{layer}.{LAYER[part]}.weight"
    return f"{TOP[name.removesuffix('.weight')]}.weight"


def unpermuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows from ggml's rotary layout to Hugging Face's."""
    halves = weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
    return halves.swapaxes(2, 1).reshape(weight.shape)


def main(source: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    reader = GGUFReader(source)
    bulky = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")
    facts = {key: field.contents() for key, field in reader.fields.items() if not key.startswith(bulky)}
    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    tensors = {}
    for tensor in reader.tensors:
        if tensor.name in SKIPPED:
            continue
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for part, count in heads.items():
            if f".{part}." in tensor.name:
                weight = unpermuted(weight, count)
        tensors[huggingface_name(tensor.name)] = torch.from_numpy(np.ascontiguousarray(weight)).to(torch.bfloat16)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tensors["model.embed_tokens.weight"].shape[0],
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads["attn_q"],
        "num_key_value_heads": heads["attn_k"],
        "head_dim": facts["llama.embedding_length"] // heads["attn_q"],
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": float(facts["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": float(facts.get("llama.rope.freq_base", 1e4)),
        "hidden_act": "silu",
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "bfloat16",
        "attention_bias": False,
        "mlp_bias": False,
    }
    (out / "config.json").write_text(json.dumps(config, indent=1))
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.model_max_length = facts["llama.context_length"]  # without one, SGLang's /tokenize answers 500
    tokenizer.save_pretrained(out)
    print(f"{len(tensors)} tensors, {sum(tensor.numel() for tensor in tensors.values()) / 1e6:.1f}M parameters")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
