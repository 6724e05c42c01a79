"""Weights into a tmpfs: Gauntlet beside cp, cp with sha256sum, rsync, and parallel dd as the ceiling, in turns.

    sudo python perf/staging.py [--gb 4] [--shards 8] [--rounds 5] [--folder DIR] [--write]

Safetensors shards are made in a folder on disk and proven once as a store. Each round copies them by each tool into the
same emptied tmpfs, first with the page cache of the source given up, then with all of it in the page cache; what came
from the disk is counted, so that neither is taken for the other. What compares between machines are the ratios;
`--write` puts them into perf/RESULTS.md. Refuses a machine that is busy. Installs rsync (requirements/debian-perf.txt).
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perf import machine, results

ROOT = Path(__file__).resolve().parents[1]
ID = "shards"
CEILING, CHECKED = "parallel dd bs=16M, the ceiling", "cp -r, sha256sum -c"
VERIFIED, UNVERIFIED = "Gauntlet, verified (xxh3-128)", "Gauntlet, unverified"
FIRST = "Gauntlet, first time (sha256 and xxh3-128)"
GOALS = ((VERIFIED, CHECKED, 3.0), (VERIFIED, CEILING, 0.75), (UNVERIFIED, CEILING, 0.9))  # times as fast, at least
MEMORY = 300e6  # bytes that Gauntlet may use at most
BUSY = 0.5  # load a core, above which nothing is measured
STAGE = """
import json, sys
from pathlib import Path
from gauntlet.weights import staging
from gauntlet.weights.options import Options
from gauntlet.weights.shelf import Shelf
from gauntlet.weights.sources import Places
weights, store, mount, verify = sys.argv[1:]
places = Places(Shelf(Path(store), memory=False))
options = Options(verify=verify)
(line,) = staging.present([json.loads(weights)], Shelf(Path(mount), memory=True), places, options)["snapshots"]
assert line["state"] == "staged", line
"""


def make(folder: Path, size: int, shards: int) -> None:
    """Shards whose bytes do not repeat within what a disk or a tool could notice, each a whole safetensors file."""
    folder.mkdir(parents=True)
    block, index = os.urandom(32 << 20), {}
    for n in range(shards):
        name, length = f"model-{n + 1:05d}-of-{shards:05d}.safetensors", size // shards
        header = json.dumps({f"t{n}": {"dtype": "U8", "shape": [length], "data_offsets": [0, length]}}).encode()
        with open(folder / name, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            for start in range(0, length, len(block)):
                turn = (start // len(block) * 7919 + n * 104729) % len(block)
                file.write((block[turn:] + block[:turn])[: length - start])
            os.fsync(file.fileno())
        index[f"t{n}"] = name
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    names = sorted(path.name for path in folder.iterdir())
    sums = subprocess.run(["sha256sum", *names], cwd=folder, capture_output=True, check=True)
    (folder.parent / "SHA256SUMS").write_bytes(sums.stdout)


@contextmanager
def tmpfs(size: int):
    """A tmpfs as the role mounts it, where this kernel takes huge pages."""
    folder = tempfile.mkdtemp(prefix="perf-staging-")
    for options in (f"size={size},huge=within_size", f"size={size}"):
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "perf", folder], capture_output=True).returncode == 0:
            break
    else:
        sys.exit("a tmpfs cannot be mounted: this needs root")
    try:
        yield Path(folder), options
    finally:
        subprocess.run(["umount", folder], check=True)
        os.rmdir(folder)


def entry(source: Path, sums: bool) -> str:
    """A catalog entry for the shards, with the hashes that a hub would give or without."""
    found = {"id": ID, "format": "safetensors", "source": {"kind": "local", "path": str(source)}}
    if sums:
        lines = (source.parent / "SHA256SUMS").read_text().splitlines()
        known = dict(reversed(line.split()) for line in lines)
        found["files"] = {n: {"size": (source / n).stat().st_size, "sha256": sha} for n, sha in known.items()}
    return json.dumps(found)


def tools(source: Path, mount: Path, jobs: int) -> dict[str, list[str]]:
    """Each tool as an argument list, the ceiling first."""
    base = source.parent

    def dd(size: str) -> list[str]:
        each = f"dd if={source}/@ of={mount}/@ bs={size} status=none"
        return ["sh", "-c", f"ls {source} | xargs -P {jobs} -I@ {each}"]

    def ours(store: str, verify: str, sums: bool = False) -> list[str]:
        return [sys.executable, "-c", STAGE, entry(source, sums), str(base / store), str(mount), verify]

    found = {
        CEILING: dd("16M"),
        "parallel dd bs=2M": dd("2M"),
        "cp -r": ["cp", "-r", str(source), str(mount)],
        CHECKED: [
            "sh",
            "-ec",
            f"cp -r {source} {mount}; cd {mount}/{source.name}; sha256sum -c --quiet {base}/SHA256SUMS",
        ],
        "rsync -a": ["rsync", "-a", str(source), str(mount)],
        VERIFIED: ours("store", "always"),
        UNVERIFIED: ours("store", "never"),
        FIRST: ours("first", "always", sums=True),
    }
    return found


def cold(source: Path) -> None:
    for path in source.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def warm(source: Path) -> None:
    for path in source.iterdir():
        with open(path, "rb", buffering=0) as file:
            while file.read(16 << 20):
                pass


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def touch(mount: Path, size: int, jobs: int) -> None:
    """Fills the mount, so that every tool is given memory that was in use a moment ago.

    The host of a virtual machine takes back what is free, and giving it again takes longer than the copy.
    """
    empty(mount)
    fill = f"dd if=/dev/zero of={mount}/@ bs=2M count={size // jobs >> 21} status=none"
    subprocess.run(["sh", "-c", f"seq {jobs} | xargs -P {jobs} -I@ {fill}"], check=True)


def once(command: list[str], mount: Path, base: Path) -> dict[str, float]:
    """{"wall", "cpu"} in seconds, {"memory"} at most and {"disk"} read in bytes, of one run into an emptied tmpfs."""
    empty(mount)
    shutil.rmtree(base / "first", ignore_errors=True)  # what was proven once is not proven again
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        most = max(most, machine.pss_kib(machine.tree(process.pid)))
        time.sleep(0.02)
    wall = time.monotonic() - began
    if process.returncode:
        sys.exit(f"{command} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu, "memory": most * 1024, "disk": (after.ru_inblock - before.ru_inblock) * 512}


def measure(source: Path, mount: Path, size: int, jobs: int, rounds: int) -> dict[str, dict[str, list[dict]]]:
    """{condition: {tool: [runs]}}, the tools in turns."""
    commands = tools(source, mount, jobs)
    once(commands[FIRST], mount, source.parent)  # warms the interpreter up
    os.rename(source.parent / "first", source.parent / "store")  # and proves the store
    found = {condition: {tool: [] for tool in commands} for condition in ("disk", "page cache")}
    for _ in range(rounds):
        for condition, runs in found.items():
            for tool, command in commands.items():
                warm(source)
                touch(mount, size, jobs)
                if condition == "disk":
                    cold(source)
                run = once(command, mount, source.parent)
                share = run["disk"] / size
                if round(share, 1) != float(condition == "disk"):
                    sys.exit(f"{tool} was to read from {condition}, and had {share:.0%} from the disk")
                runs[tool].append(run)
    return found


def compared(runs: dict[str, list[dict]], tool: str, other: str) -> float:
    """How many times as fast as another a tool is: the median of the ratios within each round."""
    return statistics.median(b["wall"] / a["wall"] for a, b in zip(runs[tool], runs[other], strict=True))


def rendered(found: dict, size: int) -> str:
    """A table a condition: medians, and ratios of wall time within each round."""
    lines = []
    for condition, tools_ in found.items():
        lines += [
            "",
            f"From {condition}:",
            "",
            f"| tool | GB/s | of the ceiling | times {CHECKED} | CPU s | memory MB |",
        ]
        lines += ["|---|---|---|---|---|---|"]
        for tool, runs in tools_.items():
            wall, cpu, memory = (statistics.median(run[key] for run in runs) for key in ("wall", "cpu", "memory"))
            of, times = (compared(tools_, tool, other) for other in (CEILING, CHECKED))
            lines.append(
                f"| {tool} | {size / wall / 1e9:.2f} | {of:.0%} | {times:.1f} | {cpu:.1f} | {memory / 1e6:.0f} |"
            )
        lines += ["", *goals(tools_)]
    return "\n".join(lines)


def goals(runs: dict[str, list[dict]]) -> list[str]:
    lines = []
    for tool, other, wanted in GOALS:
        found = compared(runs, tool, other)
        lines.append(f"- {tool}: {found:.2f} times {other}, to be at least {wanted}: {_met(found >= wanted)}")
    most = max(run["memory"] for tool in (VERIFIED, UNVERIFIED, FIRST) for run in runs[tool])
    return [*lines, f"- memory: {most / 1e6:.0f} MB at most, to be below {MEMORY / 1e6:.0f}: {_met(most < MEMORY)}"]


def _met(met: bool) -> str:
    return "met" if met else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=4.0)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=2 * os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on the disk that is meant; the default is a temporary one")
    parser.add_argument("--write", action="store_true", help="into perf/RESULTS.md")
    parser.add_argument("--busy", action="store_true", help="measure although the machine is busy")
    asked = parser.parse_args()
    if not asked.busy and machine.load() > BUSY * os.cpu_count():
        sys.exit(
            f"the load is {machine.load():.1f} on {os.cpu_count()} cores: nothing that is measured now is worth keeping"
        )
    subprocess.run([ROOT / "scripts/bootstrap", "--debian", "requirements/debian-perf.txt"], check=True)
    size, load = int(asked.gb * 1e9), machine.load()
    with tempfile.TemporaryDirectory(dir=asked.folder) as base, tmpfs(int(size * 1.2) + (64 << 20)) as (mount, options):
        source = Path(base) / "shards"
        make(source, size, asked.shards)
        found = measure(source, mount, size, asked.jobs, asked.rounds)
    what = f"{asked.gb:g} GB in {asked.shards} safetensors shards into a tmpfs ({options}), {asked.jobs} at a time"
    text = f"{machine.described()}; load {load:.1f} before. {what}, median of {asked.rounds} rounds in turns.\n"
    text += rendered(found, size)
    print(text)
    if asked.write:
        results.write("staging", text)


if __name__ == "__main__":
    main()
