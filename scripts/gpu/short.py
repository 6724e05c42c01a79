#!/usr/bin/env python3
"""As much as fits into a few minutes on one card: servers start side by side, and one is measured at a time.

usage: short.py OUT_FOLDER SECONDS     (on the GPU machine, after scripts/gpu/prepare)

site.yml provisions, and servers start as soon as their weights are staged, while it still checks them. bench.yml
measures the baseline, is killed in the middle and goes on. The drafting deployments of the same plan wait on other
ports and are measured by the same client (`python -m gauntlet.measure`) afterwards; SmolLM2, whose speed is not the
point, while the baseline still loads. The starts that must fail come last, or at once on a second card, which then
shows the hybrid shape on one card and on two. OUT_FOLDER gets one archive, renewed every few seconds, so that a run
that is cut off keeps what it has.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import ansible.module_utils
import crosscheck
import failures
import record
from planned import HOST, ROOT, known, planned

from gauntlet import engines, identity, job, services, serving

BEGUN = time.monotonic()
LOG = Path("/var/tmp/gauntlet-run/log")
AGENT = "/opt/gauntlet/agent/bin/python"
RESULTS = Path("/var/lib/gauntlet/results")
LIMITS = {"foreign_cpu_share": 1.0}  # idle servers of SGLang poll, each on a core of its own
MANAGER = services.manager()
CARDS = subprocess.run("nvidia-smi -L | grep -c GPU", shell=True, capture_output=True, text=True, check=False).stdout
GPUS = max(1, int(CARDS.strip() or 0))
ANSIBLE = ["ansible-playbook", "-i", str(ROOT / "inventory/gpu_local")]


def say(text: str) -> None:
    line = f"[{time.monotonic() - BEGUN:6.1f}] {text}"
    print(line, flush=True)
    with (LOG / "short.log").open("a") as file:
        file.write(line + "\n")


def guarded(name: str, function, *arguments):
    """A step that fails says so and leaves the others."""
    begun = time.monotonic()
    try:
        result = function(*arguments)
        say(f"{name}: done in {time.monotonic() - begun:.1f} s")
        return result
    except Exception as error:
        say(f"{name}: {type(error).__name__}: {str(error)[:600]}")
        return None


def background(name: str, function, *arguments) -> threading.Thread:
    thread = threading.Thread(target=guarded, args=(name, function, *arguments), daemon=True)
    thread.start()
    return thread


def play(name: str, *words: str, seconds: float = 150) -> int:
    with (LOG / f"{name}.log").open("w") as log:
        done = subprocess.run([*ANSIBLE, *words], stdout=log, stderr=log, cwd=ROOT, timeout=seconds, check=False)
    recap = [line for line in (LOG / f"{name}.log").read_text().splitlines() if "changed=" in line]
    say(f"{name}: rc {done.returncode} {' '.join(recap[-1:])}")
    return done.returncode


def conditions() -> dict:
    """The stable part of this host's fingerprint, as bench.yml stores it."""
    ansible.module_utils.__path__.append(str(ROOT / "module_utils"))
    from ansible.module_utils.gauntlet_host.fingerprint import fingerprint
    from ansible.module_utils.gauntlet_host.host import Host

    return fingerprint(Host("/"))["stable"]


def provisioned(campaign: str, made: dict) -> None:
    """site.yml has begun, and the weights of the campaign are staged: all that comes before them is there."""
    run = background(f"site.{campaign}", play, f"site.{campaign}", "site.yml", "-e", f"campaign={campaign}")
    wanted = {w["id"] for d in made["deployments"].values() for w in d["weights"].values() if w}
    manifests = [Path(engines.MODELS, name, ".gauntlet-manifest.json") for name in wanted]
    while run.is_alive() and not all(path.exists() for path in manifests):
        time.sleep(0.3)
    say(f"{campaign}: {sum(path.exists() for path in manifests)} of {len(manifests)} weights are staged")


def up(deployment: dict, port: int, seconds: float, gpu: int | None = None) -> None:
    """Started on a port of its own, and on another card than the first where one is named; and it answered."""
    if gpu is not None:
        environment = {**deployment["environment"], "CUDA_VISIBLE_DEVICES": str(gpu)}
        deployment = {**deployment, "environment": environment}
    text = engines.env_file(deployment, engines.locate(deployment), port)
    (Path(engines.DEPLOYMENTS) / f"{deployment['name']}.env").write_text(text)
    serving.begin(deployment, port, MANAGER)
    until = time.monotonic() + seconds
    while not (found := serving.poll(deployment, port, MANAGER, 5, known().diagnoses))["ready"]:
        if time.monotonic() > until:
            raise TimeoutError(f"{deployment['name']} is {found['phase']} after {seconds:.0f} s")
    (LOG / f"ready.{deployment['name']}.json").write_text(json.dumps(found, default=str))


def measure(made: dict, deployment: dict, port: int, stable: dict, repeat: int = 0, closing: bool = False) -> None:
    """One activation of the plan by the measuring client, its progress in the log folder."""
    given = {
        "endpoint": {"base_url": f"http://127.0.0.1:{port}", "dialect": "sglang"},
        "unit": engines.instance(deployment),
        "limits": LIMITS,
        "conditions": stable,
        "conditions_id": identity.conditions_id(stable),
        "observed": {},
        "results": str(RESULTS),
    }
    path = LOG / f"job.{deployment['name']}.{repeat}.json"
    path.write_text(json.dumps(job.make(made, HOST, deployment["name"], repeat, closing, **given)))
    done = subprocess.run([AGENT, "-m", "gauntlet.measure", str(path)], capture_output=True, text=True, check=False)
    progress = path.with_suffix(".progress.jsonl").read_text()
    finished = [
        line for line in map(json.loads, progress.splitlines()) if line["event"] in ("cell_finished", "cell_failed")
    ]
    for line in finished:
        told = line.get("reason") or f"{line['tokens_per_s']:.1f} tok/s, acceptance {line['acceptance_length']}"
        say(f"  {line['cell']}: {told} {'' if line.get('valid', True) else line.get('reasons')}")
    if done.returncode:
        say(f"  measuring {deployment['name']} ended with {done.returncode}: {done.stderr[-300:]}")


def down(deployment: dict, port: int) -> None:
    serving.end(engines.instance(deployment), port, MANAGER, 30)


def small_real(stable: dict) -> None:
    """SmolLM2 with real weights: three servers at once, each measured while the others are."""
    while not Path("/opt/gauntlet-models/smollm2-135m/tokenizer_config.json").exists():
        time.sleep(0.5)
    made = planned("small-real")
    provisioned("small-real", made)
    starts = [(d, 30011 + n) for n, d in enumerate(made["deployments"].values())]

    def one(deployment: dict, port: int) -> None:
        up(deployment, port, 240)
        measure(made, deployment, port, stable)
        if deployment["baseline"]:
            measure(made, deployment, port, stable, repeat=1, closing=True)
        guarded(f"record {deployment['method']}", record.record, f"smollm2-{deployment['method']}", recordings(), port)

    threads = [background(f"smollm2 {d['method']}", one, d, port) for d, port in starts]
    for thread in threads:
        thread.join()
    for deployment, port in starts:
        guarded(f"stop {deployment['method']}", down, deployment, port)


def recordings() -> Path:
    folder = LOG / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def refused() -> None:
    """The two bare assertions: SGLang ends before it touches the GPU."""
    diagnoses, found = known().diagnoses, {}
    for number, name in enumerate(("eagle3-topk-only", "eagle3-steps-only")):
        found[name] = failures.force(name, diagnoses, MANAGER, 30021 + number)
        say(f"  {name}: {found[name]['said']}")
    (LOG / "refused.json").write_text(json.dumps(found, indent=1))


def must_fail(gpu: int) -> None:
    """The founding failure and, once it has taken and given back its memory, one that takes all of it."""
    diagnoses, found = known().diagnoses, {}

    def one(name: str, port: int, delay: float) -> None:
        time.sleep(delay)
        found[name] = failures.force(name, diagnoses, MANAGER, port, gpu)
        say(f"  {name}: {found[name]['said']}")
        (LOG / "failures.json").write_text(json.dumps(found, indent=1))

    cases = (("no-slot-for-a-request", 30031, 0), ("out-of-memory", 30032, 12))
    threads = [background(name, one, name, port, delay) for name, port, delay in cases]
    for thread in threads:
        thread.join()


TP, TP_PORT = planned("tp-short", gpus=2), 30004


def on(cards: int) -> dict:
    """The hybrid shape at this tensor parallelism."""
    return next(d for d in TP["deployments"].values() if d["tp"] == cards)


def second_card() -> None:
    """What the first card has no time for: the starts that must fail, then the hybrid shape on one card."""
    must_fail(1)
    up(on(1), TP_PORT, 240, gpu=1)


def attempts() -> int:
    """Attempts of the baseline, on the host and at home."""
    folders = (RESULTS, ROOT / "results" / HOST)
    return len({path.name for folder in folders for path in folder.glob("qwen3-8b-shared.autoregressive*/r*")})


def baseline_killed_and_resumed(deployment: dict) -> None:
    """bench.yml with the baseline: killed once an attempt is there, then run again; nothing of it is left after."""
    words = ["bench.yml", "-e", "campaign=short", "-e", "model=qwen3-8b-shared", "-e", "method=autoregressive"]
    words += ["-e", json.dumps({"benchmark_limits": LIMITS})]
    with (LOG / "campaign.killed.log").open("w") as log:
        first = subprocess.Popen([*ANSIBLE, *words], stdout=log, stderr=log, cwd=ROOT, start_new_session=True)
    until = time.monotonic() + 240
    while attempts() < 1 and time.monotonic() < until and first.poll() is None:
        time.sleep(0.2)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    say(f"bench.yml killed with {attempts()} attempts")
    guarded("resumed", play, "campaign.resumed", *words)
    say(f"  {attempts()} attempts of the baseline")
    if not MANAGER.ended("gauntlet-bench.service")[0]:
        MANAGER.stop("gauntlet-bench.service", 20)
    down(deployment, 30000)


def archive(out: Path, name: str = "short.tgz") -> None:
    with tarfile.open(out / f".{name}", "w:gz", compresslevel=3) as tar:
        for path in (LOG, RESULTS, ROOT / "results", ROOT / ".plans", Path("/var/log/gauntlet"), Path("/etc/gauntlet")):
            if path.exists():
                tar.add(path, path.name if path != ROOT / "results" else "home")
    (out / f".{name}").rename(out / name)


def keep(out: Path) -> None:
    while True:
        time.sleep(15)
        with contextlib.suppress(
            OSError, tarfile.TarError
        ):  # a file that went while it was read: the next round has it
            archive(out)


def main(out: Path, seconds: float) -> None:
    LOG.mkdir(parents=True, exist_ok=True)
    for found in Path("/var/tmp").glob("all_reduce.*"):
        shutil.copy(found, LOG)
    out.mkdir(parents=True, exist_ok=True)
    threading.Thread(target=keep, args=(out,), daemon=True).start()

    def left() -> float:
        return seconds - (time.monotonic() - BEGUN)

    stable = conditions()
    made = planned("short")
    provisioned("short", made)
    of = {d["method"]: d for d in made["deployments"].values() if d["model"] == "qwen3-8b-shared"}
    ports = {"eagle3": 30002, "dflash": 30003}
    waiting = {method: background(f"up {method}", up, of[method], ports[method], 300) for method in ports}
    small = background("smollm2", small_real, stable)
    background("refused", refused)
    second = background("second card", second_card) if GPUS > 1 else None
    time.sleep(30)  # the others are loading by then; the baseline comes last, to be measured in quiet
    guarded("baseline", baseline_killed_and_resumed, of["autoregressive"])
    for method, thread in waiting.items():
        if left() > 40:
            thread.join(max(0, left() - 30))
            guarded(f"measure {method}", measure, made, of[method], ports[method], stable)
    if left() > 90:
        guarded("record eagle3", record.record, "eagle3-chain", recordings(), ports["eagle3"])
        guarded("crosscheck", crosscheck.compare, of["eagle3"], ports["eagle3"], LOG, 1)
    small.join(max(0, min(60, left() - 60)))
    if second:
        second.join(max(0, left() - 60))
        guarded("measure tp 1", measure, TP, on(1), TP_PORT, stable)
        guarded("stop tp 1", down, on(1), TP_PORT)
    for method, port in ports.items():
        guarded(f"stop {method}", down, of[method], port)
    if second and left() > 60:
        guarded("up tp 2", up, on(2), TP_PORT, 120)
        guarded("measure tp 2", measure, TP, on(2), TP_PORT, stable)
    elif left() > 40:
        guarded("must fail", must_fail, 0)
    archive(out)
    say("end")
    archive(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
