"""Lay fake PCI devices, NUMA nodes, governors and kernel settings over /sys and /proc of a lab host.

Plain files in a tmpfs: lspci, setpci, numactl -H and sysctl read and write them unmodified, and a reboot brings the
originals back, as it does on hardware. They have no kernel behind them: a reserved bit can be written, a function level
reset does nothing, memory cannot be bound to the second node.
"""

import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

TREE = Path("/run/lab-fake-hardware")
CPU = Path("/sys/devices/system/cpu")
SETTINGS = {"kernel/numa_balancing": 1, "vm/swappiness": 60, "vm/zone_reclaim_mode": 0}

# PCI Express device types (Base Specification 7.5.3.2)
ENDPOINT, ROOT_PORT, UPSTREAM, DOWNSTREAM, EVENT_COLLECTOR = 0x0, 0x4, 0x5, 0x6, 0xA
HOST_BRIDGE, BRIDGE, GPU, NETWORK, SMBUS, COLLECTOR = 0x060000, 0x060400, 0x030200, 0x020000, 0x0C0500, 0x080700
AMD, BROADCOM, NVIDIA, MELLANOX = 0x1022, 0x1000, 0x10DE, 0x15B3


@dataclass
class Function:
    """A PCI function. `kind` None: no capability list. `buses`: primary, secondary, subordinate bus of a bridge."""

    address: str
    vendor: int
    device: int
    code: int
    kind: int | None = None
    control: int = 0  # Device Control of the Express capability, as the firmware left it
    capability: int = 0x60  # where the Express capability stands
    node: int = 0
    buses: tuple[int, int, int] | None = None
    driver: str = ""
    size: int = 4096  # of `config`: 256 for conventional PCI, 64 as a reader without privileges is given
    dead: bool = False  # answers all ones, as a device that fell off the bus

    def config(self) -> bytes:
        if self.dead:
            return b"\xff" * self.size
        space = bytearray(4096)
        struct.pack_into("<HHHHI", space, 0, self.vendor, self.device, 0x0406, 0, self.code << 8 | 0xA1)
        if self.buses:
            space[0x0E] = 1
            space[0x18:0x1B] = bytes(self.buses)
        else:
            struct.pack_into("<HH", space, 0x2C, self.vendor, self.device)
        if self.kind is not None:
            self._capabilities(space)
        return bytes(space[: self.size])

    def _capabilities(self, space: bytearray) -> None:
        """Power management, then Express; errors (0x100) and on ports access control (0x148) in the extended space."""
        port, link = self.kind in (ROOT_PORT, DOWNSTREAM), 0x105 if self.has_link else 0  # 16 lanes of 32 GT/s
        flags = 2 | self.kind << 4 | port << 8
        can = 0x10008E21 if self.kind == ENDPOINT else 0x8022
        space[0x06], space[0x34] = 0x10, 0x40
        struct.pack_into("<BBH", space, 0x40, 0x01, self.capability, 3)
        struct.pack_into("<BBHIHH", space, self.capability, 0x10, 0, flags, can, self.control, 0)
        struct.pack_into("<IHH", space, self.capability + 0x0C, link, 0, link)
        struct.pack_into("<I", space, self.capability + 0x2C, 0x3E if link else 0)
        struct.pack_into("<I", space, 0x100, 0x0001 | 2 << 16 | (0x148 << 20 if port else 0))
        if port:
            struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x1F, 0x1D)  # redirecting peers to the root

    @property
    def has_link(self) -> bool:
        return self.kind not in (None, EVENT_COLLECTOR)

    def files(self) -> dict[str, bytes]:
        text = {
            "vendor": f"0x{self.vendor:04x}",
            "device": f"0x{self.device:04x}",
            "subsystem_vendor": f"0x{self.vendor:04x}",
            "subsystem_device": f"0x{self.device:04x}",
            "class": f"0x{self.code:06x}",
            "revision": "0xa1",
            "irq": "0",
            "enable": "1",
            "numa_node": str(self.node),
            "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13),
        }
        if self.has_link:
            text |= dict.fromkeys(("current_link_speed", "max_link_speed"), "32.0 GT/s PCIe")
            text |= dict.fromkeys(("current_link_width", "max_link_width"), "16")
        return {"config": self.config(), **{name: f"{value}\n".encode() for name, value in text.items()}}


def socket(bus: int, node: int) -> list[Function]:
    """One socket's devices: a root port with a switch and four GPUs behind it, another with a network adapter."""
    gpus = range(bus + 3, bus + 7)
    port = {"vendor": AMD, "device": 0x153E, "code": BRIDGE, "kind": ROOT_PORT, "control": 0x2937, "capability": 0x58}
    switch = {"vendor": BROADCOM, "device": 0xC030, "code": BRIDGE, "control": 0x0837, "capability": 0x68}
    functions = [
        Function(f"{bus:02x}:00.0", AMD, 0x153A, HOST_BRIDGE, size=256),
        Function(f"{bus:02x}:01.1", buses=(bus, bus + 1, gpus[-1]), driver="pcieport", **port),
        Function(f"{bus + 1:02x}:00.0", kind=UPSTREAM, buses=(bus + 1, bus + 2, gpus[-1]), driver="pcieport", **switch),
        *(
            Function(f"{bus + 2:02x}:{slot:02x}.0", kind=DOWNSTREAM, buses=(bus + 2, below, below), driver="pcieport",
                     **switch)
            for slot, below in enumerate(gpus)
        ),
        *(Function(f"{own:02x}:00.0", NVIDIA, 0x2BB5, GPU, ENDPOINT, 0x2937, driver="nvidia") for own in gpus),
        Function(f"{bus:02x}:03.1", buses=(bus, bus + 7, bus + 7), driver="pcieport", **port),
        Function(f"{bus + 7:02x}:00.0", MELLANOX, 0x1021, NETWORK, ENDPOINT, 0x2937, driver="mlx5_core"),
    ]  # fmt: skip
    for function in functions:
        function.node = node
    return functions


def machine() -> list[Function]:
    """Two sockets, and what a careless tool trips over."""
    return [
        *socket(0x00, node=0),
        *socket(0x80, node=1),
        Function("00:00.3", AMD, 0x153C, COLLECTOR, EVENT_COLLECTOR, capability=0x48),
        Function("00:04.1", AMD, 0x153E, BRIDGE, ROOT_PORT, 0x2937, 0x58, buses=(0, 8, 8), driver="pcieport"),
        Function("08:00.0", NVIDIA, 0x2BB5, GPU, ENDPOINT, dead=True),
        Function("00:14.0", AMD, 0x790B, SMBUS, ENDPOINT, size=64),
    ]


def write(files: dict[str, object], folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())


def pci(folder: Path) -> None:
    for function in machine():
        place = folder / "devices" / f"0000:{function.address}"
        write(function.files(), place)
        if function.driver:
            driver = folder / "drivers" / function.driver
            driver.mkdir(parents=True, exist_ok=True)
            (place / "driver").symlink_to(os.path.relpath(driver, place))


def nodes(folder: Path, cpus: int, memory_kb: int) -> None:
    """This machine's processors and memory, in two halves."""
    half = max(1, cpus // 2)
    for node, mine in enumerate((range(half), range(half, cpus))):
        files = {
            "cpulist": f"{mine[0]}-{mine[-1]}" if len(mine) > 1 else ",".join(map(str, mine)),
            "cpumap": f"{sum(1 << cpu for cpu in mine):x}",
            "distance": "10 21" if node == 0 else "21 10",
            "meminfo": "\n".join(f"Node {node} {key}: {memory_kb // 2:>12} kB" for key in ("MemTotal", "MemFree")),
            "numastat": "\n".join(f"{key} 0" for key in ("numa_hit", "numa_miss", "numa_foreign", "other_node")),
        }
        write(files, folder / f"node{node}")
    write(dict.fromkeys(("online", "possible", "has_cpu", "has_memory", "has_normal_memory"), "0-1"), folder)


def governors(folder: Path, cpus: int) -> None:
    files = {"scaling_governor": "powersave", "scaling_available_governors": "performance powersave"}
    for cpu in range(cpus):
        write(files, folder / f"cpu{cpu}/cpufreq")


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def main() -> None:
    cpus = os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * (os.sysconf("SC_PAGE_SIZE") // 1024)
    pci(TREE / "pci")
    nodes(TREE / "node", cpus, memory)
    governors(TREE / "cpu", cpus)
    write(SETTINGS, TREE / "settings")
    (TREE / "work").mkdir()
    mount("--bind", TREE / "pci", "/sys/bus/pci")
    mount("--bind", TREE / "node", "/sys/devices/system/node")
    mount("-t", "overlay", "-o", f"lowerdir={CPU},upperdir={TREE}/cpu,workdir={TREE}/work", "overlay", CPU)
    for setting in SETTINGS:
        mount("--bind", TREE / "settings" / setting, f"/proc/sys/{setting}")


if __name__ == "__main__":
    main()
