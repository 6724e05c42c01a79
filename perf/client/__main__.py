"""Gauntlet's client, aiperf and SGLang's serving benchmark against one scripted server. See README.md."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import requests

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from perf import machine, results  # noqa: E402
from perf.client import tools, truth  # noqa: E402

CHUNKS = 100
SCRIPT = {"ttft_s": 0.1, "step_s": 0.01, "first_tokens": 1, "same_output": True, "context": 1 << 20}
CELLS = [f"{concurrency}x{tokens}" for concurrency in (1, 16, 64, 256) for tokens in (1, 4)] + ["16x4stop"]
REQUESTS = {1: 8, 16: 128, 64: 512, 256: 2048}
SHORTEST_PROMPT = 64
SERVER_CORE, CLIENT_CORE = 0, 1
LOAD_NEEDED = 0.99
DIGEST_S = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python perf/client", description=__doc__)
    parser.add_argument("--tools", default=",".join(tools.ALL))
    parser.add_argument(
        "--cells", default=",".join(CELLS), help="concurrency x tokens a chunk; 'stop': the server stops early"
    )
    parser.add_argument("--nice", type=int, default=0, help="of server and clients alike, where others use the machine")
    options = parser.parse_args()
    chosen = [tools.ALL[name]() for name in options.tools.split(",")]
    cells = options.cells.split(",")
    before = machine.load()
    rows = []
    with Server(options.nice) as server:
        for cell in cells:
            for tool in chosen:
                rows.append({"cell": cell, "tool": tool.name, **measure(server, tool, cell)})
                print(line(rows[-1]), flush=True)
    text = report(rows, before, options.nice)
    print(text)
    if options.tools == parser.get_default("tools") and options.cells == parser.get_default("cells"):
        results.write("Client", text)


class Server:
    """The scripted engine in a process of its own, on a core of its own."""

    def __init__(self, nice: int):
        self.nice = nice

    def __enter__(self):
        command = [sys.executable, "-m", "gauntlet.calibrate", "serve", "--port", "0"]
        self.process = subprocess.Popen(
            pinned(SERVER_CORE, command, self.nice), stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.url = self.process.stderr.readline().rstrip(")\n").rpartition(" ")[2]
        return self

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait()

    def play(self, script: dict, prepare: list[dict]) -> None:
        answer = requests.post(f"{self.url}/script", json={"script": script, "prepare": prepare}, timeout=120)
        answer.raise_for_status()

    def log(self) -> list[dict]:
        return requests.get(f"{self.url}/script/log", timeout=120).json()["log"]


def pinned(core: int, command: list, nice: int) -> list[str]:
    return ["nice", "-n", str(nice), "taskset", "--cpu-list", str(core), *map(str, command)]


def measure(server: Server, tool: tools.Tool, cell: str) -> dict:
    """One tool in one cell: its errors against the server's log, its CPU and its memory."""
    stop, concurrency, per_chunk = cell.endswith("stop"), *map(int, cell.removesuffix("stop").split("x"))
    count, tokens = REQUESTS[concurrency], 1 + CHUNKS * per_chunk
    texts = ["x" * (SHORTEST_PROMPT + i) for i in range(count)]
    script = {**SCRIPT, "tokens": [per_chunk], "stop_after": tokens * 2 // 3 if stop else None}
    prepare = [
        {"path": "/v1/completions", "body": {"prompt": text, "max_tokens": tokens, "stream_options": tool.usage}}
        for text in texts
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server.play(script, prepare)
        prompts = tool.prompts(folder, texts, tokens)
        command = tool.command(server.url, folder, prompts, count, tokens, concurrency)
        used = watch(pinned(CLIENT_CORE, command, server.nice), {**os.environ, **tool.environment}, folder)
        log = [entry for entry in server.log() if entry["prompt_tokens"] >= SHORTEST_PROMPT]
        if used["status"] or not log:
            print((folder / "log.txt").read_text()[-3000:], file=sys.stderr)
            return {"failed": f"exit status {used['status']}"}
        said, speed = tool.read(folder)
    first, last = min(entry["arrived"] for entry in log), max(entry["t"][-1] for entry in log)
    cpu = used["cpu"](first, None if tool.parses_later else last + DIGEST_S)
    chunks = sum(len(entry["t"]) for entry in log)
    return {
        **truth.compare(log, said, speed, concurrency),
        "cpu_us": 1e6 * cpu / chunks,
        "memory_mib": used["memory_mib"],
    }


def watch(command: list[str], environment: dict, folder: Path) -> dict:
    """Run a tool to its end; CPU of its process tree over time (s), its largest PSS (MiB), its exit status."""
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=ROOT)
        os.setpriority(os.PRIO_PROCESS, 0, 19)  # reading /proc takes milliseconds: never those of server or client
        samples, memory, number = [(time.monotonic(), 0.0)], 0, 0
        while process.poll() is None:
            pids = machine.tree(process.pid)
            samples.append((time.monotonic(), machine.cpu_s(pids)))
            if number % 10 == 0:
                memory = max(memory, machine.pss_kib(pids))
            number += 1
            time.sleep(0.1)
        os.setpriority(os.PRIO_PROCESS, 0, 0)

    def cpu(start: float, end: float | None) -> float:
        """CPU seconds between two moments; None: to the end of the tool."""
        before = max((used for t, used in samples if t <= start), default=0.0)
        return max(used for t, used in samples if end is None or t <= end) - before

    return {"status": process.returncode, "memory_mib": memory / 1024, "cpu": cpu}


HEAD = ["C", "tokens a chunk", "client", "TTFT error p50", "p99 (ms)", "TPOT error p99 (ms)", "wrong token counts",
        "tokens/s error", "load reached", "CPU µs/chunk", "memory (MiB)"]  # fmt: skip


def fields(row: dict) -> list[str]:
    concurrency, _, per_chunk = row["cell"].partition("x")
    start = [concurrency, per_chunk.replace("stop", ", early stop"), row["tool"]]
    if "failed" in row:
        return [*start, row["failed"], *[""] * (len(HEAD) - 4)]
    short = "" if row["load"] >= LOAD_NEEDED else " (too little: not compared)"
    wrong = f"{row['wrong_tokens']} of {row['requests']}" + (f", {row['missing']} missing" if row["missing"] else "")
    return [
        *start, number(row["ttft_p50_ms"], 2), number(row["ttft_p99_ms"], 1), number(row["tpot_p99_ms"], 3), wrong,
        f"{row['speed_error']:+.2%}", f"{row['load']:.1%}{short}", number(row["cpu_us"], 0),
        number(row["memory_mib"], 0),
    ]  # fmt: skip


def number(value: float | None, digits: int) -> str:
    return "not told" if value is None else f"{value:.{digits}f}"


def line(row: dict) -> str:
    return " | ".join(fields(row))


def report(rows: list[dict], load_before: float, nice: int) -> str:
    """The section of RESULTS.md."""
    table = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    table += ["| " + line(row) + " |" for row in rows]
    return "\n".join([
        f"{machine.described()}; load before {load_before:.1f}, nice {nice}; server on core {SERVER_CORE}, client on "
        f"core {CLIENT_CORE}. {CHUNKS} chunks a request at 100 chunks/s after 100 ms.",
        "",
        *table,
        "",
        *goals(rows),
    ])  # fmt: skip


def goals(rows: list[dict]) -> list[str]:
    """What was aimed at, and whether this run has it."""
    good = [row for row in rows if "failed" not in row]
    ours = {row["cell"]: row for row in good if row["tool"] == "Gauntlet"}
    exact = all(not row["wrong_tokens"] and not row["missing"] for row in ours.values())
    said = [
        f"- Token counts exact in every cell: {_yes(exact)}.",
        f"- Tokens/s within 0.1 %: {_yes(all(abs(r['speed_error']) <= 0.001 for r in ours.values()))}.",
        f"- Load of 99 %: {_yes(all(r['load'] >= LOAD_NEEDED for r in ours.values()))}.",
    ]
    for cell, own in ours.items():
        peers = [row for row in good if row["cell"] == cell and row["tool"] != "Gauntlet"]
        for peer in peers:
            marked = "" if peer["load"] >= LOAD_NEEDED else " (load not reached: not compared)"
            ttft = peer["ttft_p99_ms"] / own["ttft_p99_ms"] if peer["ttft_p99_ms"] else float("nan")
            said.append(
                f"- {cell}, {peer['tool']}: TTFT error p99 {ttft:.1f} x Gauntlet's, CPU per chunk "
                f"{peer['cpu_us'] / own['cpu_us']:.1f} x{marked}"
            )
    return [*said, better(good, ours)]


def better(rows: list[dict], ours: dict[str, dict]) -> str:
    """Where a peer that offered the load is ahead, and why."""
    figures = {"CPU per chunk": "cpu_us", "TTFT error p99": "ttft_p99_ms", "memory": "memory_mib"}
    peers = [row for row in rows if row["cell"] in ours and row["load"] >= LOAD_NEEDED]
    ahead = [
        f"{row['tool']} at {row['cell']} ({name} {row[key] / ours[row['cell']][key]:.1f} x)"
        for row in peers
        for name, key in figures.items()
        if row[key] is not None and row[key] < ours[row["cell"]][key]
    ]
    why = (
        "The Rust client parses on native threads without Python's lock; Gauntlet keeps the bytes and parses in Python."
    )
    return f"- A peer is better: {', '.join(ahead)}. {why}" if ahead else "- No peer is better in any figure."


def _yes(good: bool) -> str:
    return "yes" if good else "no"


if __name__ == "__main__":
    main()
