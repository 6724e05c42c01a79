"""nvidia-smi at 1 Hz beside a window: it writes into a file by itself, which is read when the window is over."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence

FIELDS = ("index", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "memory.used", "utilization.gpu",
          "pcie.link.gen.current", "pcie.link.width.current", "clocks_throttle_reasons.active")  # fmt: skip
# nvml.h, nvmlClocksThrottleReason*: heat and power brake; an idle clock and the power cap are normal
SLOWED = {0x8: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake"}


class Sampler:
    """`with Sampler() as sampler: …`, then `sampler.summary()`: a list by GPU, or None where there is no nvidia-smi."""

    def __init__(self, command: Sequence[str] | None = None):
        found = shutil.which("nvidia-smi")
        query = (
            [found, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits", "--loop=1"] if found else None
        )
        self.command = list(command) if command else query

    def __enter__(self) -> "Sampler":
        if self.command:
            self.file = tempfile.TemporaryFile("w+")
            self.process = subprocess.Popen(self.command, stdout=self.file, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *error) -> None:
        self.rows = []
        if self.command:
            self.process.terminate()
            self.process.wait()
            self.file.seek(0)
            self.rows = self.file.read().splitlines()
            self.file.close()

    def summary(self) -> list[dict] | None:
        return summary(self.rows) if self.command else None


def summary(rows: Sequence[str]) -> list[dict]:
    """Per GPU: means of clocks (MHz), power (W), temperature (C), utilisation; last memory (MiB), PCIe."""
    by_gpu: dict[str, list[list[str]]] = {}
    for row in rows:
        values = [value.strip() for value in row.split(",")]
        if len(values) == len(FIELDS):
            by_gpu.setdefault(values[0], []).append(values)
    found = []
    for index, samples in sorted(by_gpu.items(), key=lambda pair: int(pair[0])):
        active = [int(sample[9], 16) for sample in samples if sample[9].startswith("0x")]
        reasons = sorted({name for bits in active for bit, name in SLOWED.items() if bits & bit})
        slowed = sum(any(bits & bit for bit in SLOWED) for bits in active)
        last = samples[-1]
        found.append({
            "index": int(index), "samples": len(samples),
            **{key: _mean(samples, column) for key, column in
               (("sm_mhz", 1), ("memory_mhz", 2), ("power_w", 3), ("temperature_c", 4), ("utilization", 6))},
            "memory_mib": _number(last[5]), "pcie_gen": _number(last[7]), "pcie_width": _number(last[8]),
            "throttle": reasons, "throttled_share": slowed / len(samples),
        })  # fmt: skip
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A]
        return None


def _mean(samples: Sequence[Sequence[str]], column: int) -> float | None:
    values = [v for sample in samples if (v := _number(sample[column])) is not None]
    return sum(values) / len(values) if values else None
