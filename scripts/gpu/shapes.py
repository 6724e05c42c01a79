"""Model folders that SGLang serves with --load-format dummy: shapes without weights.

usage: shapes.py OUT_DIR     (needs tokenizers and transformers)
qwen3-8b, qwen3-8b-dflash, qwen3-8b-eagle3: a dense target and two drafter shapes.
hybrid-27b, hybrid-27b-dflash: the Qwen3.6-27B attention shape (48 linear + 16 full layers, 4 KV heads) as qwen3_next.
"""

import json
import pathlib
import sys
import sysconfig

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 8192
out = pathlib.Path(sys.argv[1])


def tokenizer():
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    files = [str(p) for p in pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")]
    bpe.train(
        files,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"],
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|endoftext|>", pad_token="<|endoftext|>", model_max_length=131072
    )
    fast.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return fast


def write(name, config, fast):
    folder = out / name
    fast.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}))


common = {
    "vocab_size": VOCABULARY,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "dtype": "bfloat16",
    "torch_dtype": "bfloat16",
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
    "rope_theta": 1e6,
}
dense = dict(
    common,
    architectures=["Qwen3ForCausalLM"],
    model_type="qwen3",
    hidden_size=4096,
    intermediate_size=12288,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
)
hybrid = dict(
    common,
    architectures=["Qwen3NextForCausalLM"],
    model_type="qwen3_next",
    hidden_size=5120,
    intermediate_size=17408,
    num_hidden_layers=64,
    num_attention_heads=24,
    num_key_value_heads=4,
    head_dim=256,
    partial_rotary_factor=0.25,
    linear_conv_kernel_dim=4,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    linear_num_key_heads=16,
    linear_num_value_heads=48,
    full_attention_interval=4,
    decoder_sparse_step=1,
    mlp_only_layers=list(range(64)),
    num_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
    norm_topk_prob=True,
    layer_types=["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(64)],
)


def dflash(target, **changes):
    layers = target["num_hidden_layers"]
    taps = [1, layers // 4, layers // 2, 3 * layers // 4, layers - 3]
    return dict(
        dense,
        architectures=["DFlashDraftModel"],
        hidden_size=target["hidden_size"],
        intermediate_size=target["intermediate_size"],
        num_hidden_layers=5,
        block_size=16,
        num_target_layers=layers,
        dflash_config={"mask_token_id": 3, "target_layer_ids": taps},
        **changes,
    )


fast = tokenizer()
write("qwen3-8b", dense, fast)
write("qwen3-8b-dflash", dflash(dense), fast)
write(
    "qwen3-8b-eagle3",
    dict(
        common,
        architectures=["LlamaForCausalLMEagle3"],
        model_type="llama",
        hidden_size=4096,
        intermediate_size=12288,
        num_hidden_layers=1,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        draft_vocab_size=VOCABULARY,
    ),
    fast,
)
write("hybrid-27b", hybrid, fast)
write("hybrid-27b-dflash", dflash(hybrid), fast)
