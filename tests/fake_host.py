"""A host made of files: the /proc and /sys of a machine with PCIe GPUs, as small as a test needs it."""

import os
from pathlib import Path

from module_utils.gauntlet_host.host import Host

CASES = Path(__file__).parent / "cases"
GPU_ID = "10de:2bb5"


def config_space(
    ident=GPU_ID,
    kind=1,
    devctl=0x2937,
    cap=0x60,
    before=((0x01, 0x40), (0x05, 0x48)),
    length=4096,
    buses=None,
    acs=None,
):
    """A configuration space with the Express capability at `cap`, after others; a bridge when `buses` are given.

    kind is the device/port type; acs is the value of the ACS control register, whose capability stands at 0x148 behind
    an empty first extended capability, as a device passed through to a virtual machine shows it.
    """
    space = bytearray(4096)
    vendor, device = (int(part, 16) for part in ident.split(":"))
    put(space, 0x00, vendor)
    put(space, 0x02, device)
    put(space, 0x06, 0x0010)
    if buses:
        space[0x0E] = 1
        space[0x18:0x1B] = bytes(buses)
    chain = [*before, (0x10, cap)]
    space[0x34] = chain[0][1]
    for (ident_, offset), following in zip(chain, [*chain[1:], (0, 0)], strict=True):
        space[offset], space[offset + 1] = ident_, following[1]
    put(space, cap + 2, kind << 4 | 2)
    put(space, cap + 4, 0x8E21)
    put(space, cap + 8, devctl)
    put(space, cap + 12, 0x0100 | 0x05)  # x16 at 32 GT/s
    put(space, cap + 18, 0x0100 | 0x05)
    if acs is not None:
        space[0x100:0x104] = (0x148 << 20).to_bytes(4, "little")
        space[0x148:0x14C] = (1 << 16 | 0x000D).to_bytes(4, "little")
        put(space, 0x14C, 0x001F)
        put(space, 0x14E, acs)
    return bytes(space[:length])


def put(space, offset, value):
    space[offset : offset + 2] = value.to_bytes(2, "little")


class FakeHost(Host):
    """Writes files below a temporary root, then is read like any host."""

    def __init__(self, root):
        super().__init__(str(root))

    def write(self, name, content):
        path = Path(self.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else str(content).encode())
        return path

    def program(self, name, script):
        """A command of this host: a shell script in its /usr/bin."""
        self.write(f"/usr/bin/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)

    def device(self, address, config, class_code="0302", node=0, driver=None, resource=None):
        """A PCI function; vendor and device come from the bytes, or stay the GPU's where it does not respond."""
        folder = f"/sys/bus/pci/devices/{address}"
        gone = config[:2] == b"\xff\xff"
        vendor, device = ("10de", "2bb5") if gone else (config[1::-1].hex(), config[3:1:-1].hex())
        self.write(f"{folder}/config", config)
        for name, value in (("vendor", vendor), ("device", device), ("class", f"{class_code}00")):
            self.write(f"{folder}/{name}", f"0x{value}\n")
        self.write(f"{folder}/numa_node", f"{node}\n")
        if driver:
            os.symlink(f"../../../../bus/pci/drivers/{driver}", self.path(f"{folder}/driver"))
        if resource:
            self.write(f"{folder}/resource", resource)

    def config(self, address):
        return Path(self.path(f"/sys/bus/pci/devices/{address}/config")).read_bytes()


def eight_gpus(root, devctl=0x2937):
    """Two sockets, each with two root ports, a switch of two GPUs under each; an NVMe drive, a management display."""
    host = FakeHost(root)
    for node in (0, 1):
        for switch in (0, 1):
            bus = 0x20 * (node * 2 + switch)
            host.device(
                f"0000:{bus:02x}:01.1",
                config_space(
                    "1022:153e", kind=4, cap=0x58, before=((1, 0x50),), buses=(bus, bus + 1, bus + 4), acs=0x1D
                ),
                "0604",
                node,
            )
            host.device(
                f"0000:{bus + 1:02x}:00.0",
                config_space(
                    "1000:c030", kind=5, devctl=0x0837, cap=0x68, before=((1, 0x40),), buses=(bus + 1, bus + 2, bus + 4)
                ),
                "0604",
                node,
            )
            for port in (0, 1):
                host.device(
                    f"0000:{bus + 2:02x}:{port:02x}.0",
                    config_space(
                        "1000:c030",
                        kind=6,
                        devctl=0x0837,
                        cap=0x68,
                        before=((1, 0x40),),
                        buses=(bus + 2, bus + 3 + port, bus + 3 + port),
                        acs=0x1D,
                    ),
                    "0604",
                    node,
                )
                host.device(
                    f"0000:{bus + 3 + port:02x}:00.0",
                    config_space(devctl=devctl),
                    node=node,
                    driver="nvidia",
                    resource="0x0 0x3ffffff 0x40200\n0x2000000000 0x37ffffffff 0x14220c\n",
                )
        host.write(f"/sys/devices/system/node/node{node}/cpulist", ("0-47,96-143", "48-95,144-191")[node] + "\n")
        host.write(f"/sys/devices/system/node/node{node}/distance", ("10 32", "32 10")[node] + "\n")
        host.write(f"/sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal:       395000000 kB\n")
    host.device("0000:c1:00.0", config_space("144d:a80a", kind=0), "0108", 1, driver="nvme")
    host.device("0000:c2:00.0", config_space("1a03:2000", kind=0), "0300", 0)
    return host
