"""The peers' environments, built from their locks, and a tokenizer in which a byte is a token."""

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "perf-client"


def python(name: str) -> Path:
    """The interpreter of a peer's environment; made, or made anew when its lock has changed."""
    home, lock = CACHE / name, HERE / f"{name}.txt"
    stamp = home / "lock.txt"
    if not stamp.exists() or stamp.read_text() != lock.read_text():
        shutil.rmtree(home, ignore_errors=True)
        print(f"building {home} from {lock.name}", file=sys.stderr)
        venv.create(home, with_pip=True)
        command = [home / "bin" / "python", "-m", "pip", "install", "-qq", "--no-deps", "--require-hashes", "-r", lock]
        subprocess.run(command, check=True)
        stamp.write_text(lock.read_text())
    return home / "bin" / "python"


HUB, TOKENIZER = CACHE / "hub", "gauntlet/bytes"


def byte_tokenizer() -> Path:
    """A tokenizer of 256 tokens: lengths that the script, the server and every tool count alike.

    Its folder, laid out as a snapshot below HUB, so that it also has a name (TOKENIZER) where a tool takes no folder.
    """
    repository = HUB / f"models--{TOKENIZER.replace('/', '--')}"
    folder = repository / "snapshots" / ("0" * 40)
    folder.mkdir(parents=True, exist_ok=True)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text("0" * 40)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "merges": [],
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "vocab": {letter: i for i, letter in enumerate(_letters())}}  # fmt: skip
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return folder


def _letters() -> list[str]:
    """GPT-2's letters for the 256 bytes (bytes_to_unicode)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    extra = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(extra)) for b in range(256)]
