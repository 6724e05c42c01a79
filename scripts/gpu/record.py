#!/usr/bin/env python3
"""Records what a deployment of a campaign really sends: streams byte by byte, server_info, metrics, its journal.

usage: record.py CAMPAIGN METHOD OUT_FOLDER     (on the GPU machine, after site.yml -e campaign=CAMPAIGN)
`*.sse`: one line a received line, arrival seconds since the request was sent, a tab, the line.
"""

import json
import sys
import time
from pathlib import Path

import requests
from planned import planned

from gauntlet import engines, services, serving

PORT = 30000
PROMPT = "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n\n" * 4
SECRET = ("api_key", "password", "hf_token")


def stream(url: str, body: dict, file: Path) -> None:
    begun, lines = time.monotonic(), []
    with requests.post(url, json=body, stream=True, timeout=120) as answer:
        for line in answer.iter_lines(chunk_size=1):
            lines.append(f"{time.monotonic() - begun:.6f}\t{line.decode()}")
    file.write_text("\n".join(lines) + "\n")


def record(name: str, out: Path, port: int = PORT) -> None:
    """Streams, an overflow, server_info and metrics of the server at `port`."""
    base = f"http://127.0.0.1:{port}"
    sampling = {"max_new_tokens": 96, "temperature": 0, "ignore_eos": True}
    short = {"text": PROMPT, "sampling_params": sampling, "stream": True}
    stream(f"{base}/generate", short, out / f"{name}.generate_stream.sse")
    asked = {"model": "default", "prompt": PROMPT, "max_tokens": 96, "temperature": 0, "stream": True}
    asked["stream_options"] = {"include_usage": True}
    stream(f"{base}/v1/completions", asked, out / f"{name}.completions_stream.sse")
    long = {"input_ids": [7] * 40000, "sampling_params": sampling, "stream": True}
    stream(f"{base}/generate", long, out / f"{name}.overflow_stream.sse")
    info = requests.get(f"{base}/server_info", timeout=60).json()
    hidden = {key: value for key, value in info.items() if not any(word in key for word in SECRET)}
    (out / f"{name}.server_info.json").write_text(json.dumps(hidden, indent=1))
    (out / f"{name}.metrics.txt").write_text(requests.get(f"{base}/metrics", timeout=60).text)


def main(campaign: str, method: str, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    deployment = next(d for d in planned(campaign)["deployments"].values() if d["method"] == method)
    manager, unit = services.manager(), engines.instance(deployment)
    name = f"{campaign}.{method}"
    try:
        serving.begin(deployment, PORT, manager)
        while not serving.poll(deployment, PORT, manager, 30, {})["ready"]:
            pass
        record(name, out)
    finally:
        serving.end(unit, PORT, manager, 60)
        (out / f"{name}.log").write_text("\n".join(line for _, line in manager.journal(unit, None)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
