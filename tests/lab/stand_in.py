"""What the stand-in model needs on a lab host: a folder of weights for it and one for its drafter, without content."""

import base64
import contextlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path

from .runner import Lab, booted

HOST = "labserve"  # the one that tests share
LISTENING = "ss -Hltn sport = :30000 | grep -q ."  # its port is taken
TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 8192,
    "vocab_size": 32000,
}  # fmt: skip
DRAFTER = {**TARGET, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000}


@contextlib.contextmanager
def served(hosts: str, folder: Path) -> Iterator[Lab]:
    """Lab hosts made fresh, provisioned with the stand-in, and taken away afterwards."""
    with booted(hosts, folder) as lab:
        _provide(lab)
        lab.play("site.yml").ok()
        yield lab


def _provide(lab: Lab) -> None:
    commands = []
    for role, config in (("model", TARGET), ("drafter", DRAFTER)):
        commands.append(f"mkdir -p /opt/stand-in/{role}")
        for name, data in (("config.json", json.dumps(config).encode()), ("model.safetensors", _safetensors())):
            commands.append(f"echo {base64.b64encode(data).decode()} | base64 -d > /opt/stand-in/{role}/{name}")
    lab.ssh(" && ".join(commands))


def _safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * 4
