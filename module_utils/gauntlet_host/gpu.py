"""GPUs as their driver describes them; without a driver, as the PCI bus does."""

from __future__ import annotations

from .host import Host
from .pci import full_address

# fields every driver since R450 knows: one unknown field fails the whole query
TEXT = ("name", "uuid", "driver_version", "vbios_version", "persistence_mode", "compute_mode", "ecc.mode.current")
NUMBERS = (
    "memory.total",
    "power.limit",
    "power.default_limit",
    "power.min_limit",
    "power.max_limit",
    "clocks.max.sm",
    "clocks.max.memory",
    "clocks.sm",
    "clocks.mem",
    "temperature.gpu",
    "power.draw",
    "memory.used",
    "utilization.gpu",
)
QUERY = ("index", "pci.bus_id", *TEXT, *NUMBERS)


def gpus(host: Host) -> list[dict]:
    """One dict a GPU in nvidia-smi's order (that is CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID).

    `address` is as in sysfs; memory in MiB, power in W, clocks in MHz, temperature in °C. A figure that the driver does
    not give is None.
    """
    answer = host.command("nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits")
    if answer is not None:
        return [described for line in answer.splitlines() if (described := _row(line)) is not None]
    return [_from_proc(host, address) for address in host.entries("/proc/driver/nvidia/gpus")]


def _row(line: str) -> dict | None:
    values = [None if value.startswith("[") or value == "N/A" else value for value in map(str.strip, line.split(","))]
    if len(values) != len(QUERY):
        return None
    row = dict(zip(QUERY, values))
    for name in NUMBERS:
        row[name] = _float(row[name])
    row["index"] = int(row["index"])
    # nvidia-smi writes the domain with eight digits
    row["address"] = full_address(row.pop("pci.bus_id")[-12:])
    return row


def _float(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _from_proc(host: Host, address: str) -> dict:
    lines = (host.text(f"/proc/driver/nvidia/gpus/{address}/information") or "").splitlines()
    given = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return {
        **dict.fromkeys(QUERY[2:]),
        "index": None,
        "address": full_address(address),
        "name": given.get("Model"),
        "uuid": given.get("GPU UUID"),
        "vbios_version": given.get("Video BIOS"),
        "driver_version": host.text("/sys/module/nvidia/version"),
    }


def bar1_mib(host: Host, folder: str) -> int | None:
    """Size in MiB of BAR1, the window through which peers and the CPU see the memory.

    The second region that exists: BAR0 is 64 bits wide on some GPUs, and then takes two of the six registers.
    """
    lines = (host.text(f"{folder}/resource") or "").splitlines()[:6]
    try:
        regions = [(int(start, 16), int(end, 16)) for start, end, _ in (line.split() for line in lines)]
    except ValueError:
        return None
    sizes = [end - start + 1 for start, end in regions if end]
    return sizes[1] >> 20 if len(sizes) > 1 else None
