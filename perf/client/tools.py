"""How each tool is started, and where its figures are: {prompt tokens: {ttft_s, tpot_s, tokens}} and its tokens/s."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from perf.client import envs


class Tool:
    """A client under test. `command` writes into `folder`, `read` finds it there."""

    name = ""
    environment: dict[str, str] = {}
    usage = {"include_usage": True}
    parses_later = False

    def prompts(self, folder: Path, texts: Sequence[str], tokens: int) -> Path:
        path = folder / "prompts.jsonl"
        path.write_text("".join(json.dumps(self.prompt(text, tokens)) + "\n" for text in texts))
        return path

    def prompt(self, text: str, tokens: int) -> dict:
        return {"text": text}


class Gauntlet(Tool):
    name = "Gauntlet"
    usage = {"include_usage": True, "continuous_usage_stats": True}
    parses_later = True

    def command(self, url, folder, prompts, requests, tokens, concurrency):
        return [sys.executable, "-m", "perf.client.ours", url, prompts, tokens, concurrency, folder / "out.json"]

    def read(self, folder):
        found = json.loads((folder / "out.json").read_text())
        return {int(key): value for key, value in found["said"].items()}, found["speed"]


class AIPerf(Tool):
    name = "aiperf 0.13.0"
    environment = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(envs.HUB)}

    def command(self, url, folder, prompts, requests, tokens, concurrency):
        envs.byte_tokenizer()
        return [
            envs.python("aiperf").parent / "aiperf", "profile", "--model", "scripted", "--url", url,
            "--endpoint-type", "completions", "--streaming", "--tokenizer", envs.TOKENIZER,
            "--input-file", prompts, "--custom-dataset-type", "single_turn",
            "--dataset-sampling-strategy", "sequential",
            "--request-count", requests, "--concurrency", concurrency, "--use-server-token-count",
            "--use-legacy-max-tokens", "--extra-inputs", f"max_tokens:{tokens}", "--extra-inputs", "ignore_eos:true",
            "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics", "--output-artifact-dir", folder / "out",
        ]  # fmt: skip

    def read(self, folder):
        said = {}
        for line in (folder / "out" / "profile_export.jsonl").read_text().splitlines():
            metrics = {name: value["value"] for name, value in json.loads(line)["metrics"].items()}
            said[int(metrics["input_sequence_length"])] = {
                "ttft_s": metrics["time_to_first_token"] / 1000,
                "tpot_s": metrics["inter_token_latency"] / 1000 if "inter_token_latency" in metrics else None,
                "tokens": metrics.get("output_sequence_length"),
            }
        whole = json.loads((folder / "out" / "profile_export_aiperf.json").read_text())
        return said, whole["output_token_throughput"]["avg"]


class SGLang(Tool):
    name = "SGLang 0.5.23 serving"
    module = "sglang.benchmark.serving"
    environment = {"HF_HUB_OFFLINE": "1"}

    def prompt(self, text, tokens):
        return {"conversations": [{"from": "human", "value": text}, {"from": "gpt", "value": "x" * tokens}]}

    def prompts(self, folder, texts, tokens):
        path = folder / "prompts.json"
        path.write_text(json.dumps([self.prompt(text, tokens) for text in texts]))
        return path

    def command(self, url, folder, prompts, requests, tokens, concurrency):
        return [
            envs.python("sglang"), "-m", self.module, "--backend", "sglang-oai", "--base-url", url,
            "--model", "scripted", "--tokenizer", envs.byte_tokenizer(), "--dataset-name", "sharegpt",
            "--dataset-path", prompts, "--sharegpt-output-len", tokens, "--num-prompts", requests,
            "--max-concurrency", concurrency, "--warmup-requests", 0, "--disable-tqdm",
            "--output-file", folder / "out.jsonl", "--output-details",
        ]  # fmt: skip

    def read(self, folder):
        found = json.loads((folder / "out.jsonl").read_text().splitlines()[-1])
        said = {}
        details = zip(found["input_lens"], found["output_lens"], found["ttfts"], found["itls"], strict=True)
        for prompt_tokens, tokens, ttft, itls in details:
            said[prompt_tokens] = {
                "ttft_s": ttft,
                "tpot_s": sum(itls) / (tokens - 1) if tokens > 1 and itls else None,  # (latency - ttft) / (tokens - 1)
                "tokens": tokens,
            }
        return said, found["output_throughput"]


class SGLangRust(SGLang):
    name = "SGLang 0.5.23 serving, Rust client"
    module = "sglang.benchmark.rust_client"


ALL = {"gauntlet": Gauntlet, "aiperf": AIPerf, "sglang": SGLang, "sglang-rust": SGLangRust}
