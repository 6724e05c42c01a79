"""PCI configuration space: decode it, find devices, and set MaxReadReq without touching another bit.

Register names and bits: PCI Express Base Specification 5.0, 7.5.3 (Express capability), 7.7.8 (ACS), 7.8.6 (Resizable
BAR); offsets as in linux/pci_regs.h.
"""

from __future__ import annotations

import os
from fnmatch import fnmatch

from .host import Host, HostError

DEVICES = "/sys/bus/pci/devices"
READ_SIZES = (128, 256, 512, 1024, 2048, 4096)
READ_SHIFT, READ_MASK = 12, 0x7000
FUNCTION_LEVEL_RESET = 0x8000

EXPRESS, ACS = 0x10, 0x000D
TYPES = {
    0: "endpoint",
    1: "legacy endpoint",
    4: "root port",
    5: "upstream",
    6: "downstream",
    7: "PCIe to PCI bridge",
    8: "PCI to PCIe bridge",
    9: "integrated endpoint",
    10: "event collector",
}
SPEEDS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}  # GT/s
ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
ASPM = ("off", "L0s", "L1", "L0s L1")

# why a configuration space has no Express capability to show; "none" is a fact, the others are not
NONE, NEEDS_ROOT, NOT_RESPONDING, TRUNCATED = "no PCIe capability", "needs root", "not responding", "truncated"


def word(config: bytes, offset: int) -> int:
    return int.from_bytes(config[offset : offset + 2], "little")


def dword(config: bytes, offset: int) -> int:
    return int.from_bytes(config[offset : offset + 4], "little")


def find_capability(config: bytes, wanted: int) -> tuple[int | None, str | None]:
    """(offset, None) of a capability, or (None, why there is none to see).

    The kernel shows only the 64 bytes of the standard header to an unprivileged reader; a device that fell off the bus
    reads as all ones.
    """
    if len(config) < 64:
        return None, TRUNCATED
    if config[:64] == b"\xff" * 64 or word(config, 0) == 0xFFFF:
        return None, NOT_RESPONDING
    if not word(config, 6) & 0x10:
        return None, NONE
    if len(config) == 64:
        return None, NEEDS_ROOT
    pointer = config[0x14 if config[0x0E] & 0x7F == 2 else 0x34] & ~3
    seen = set()
    while pointer >= 0x40 and pointer not in seen:
        if pointer + 2 > len(config):
            return None, TRUNCATED
        seen.add(pointer)
        if config[pointer] == wanted:
            return pointer, None
        pointer = config[pointer + 1] & ~3
    return None, NONE


def find_extended(config: bytes, wanted: int) -> int | None:
    """Offset of an extended capability, None where there is none or where the file ends at 256 bytes."""
    pointer, seen = 0x100, set()
    while pointer >= 0x100 and pointer + 8 <= len(config) and pointer not in seen:
        seen.add(pointer)
        header = dword(config, pointer)
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == wanted:
            return pointer
        pointer = header >> 20 & ~3
    return None


def payload_size(code: int) -> int | None:
    """Bytes of a MaxPayload or MaxReadReq code; None for the two reserved codes."""
    return READ_SIZES[code] if code < len(READ_SIZES) else None


def decode(config: bytes) -> dict:
    """What the Express, ACS and Resizable BAR registers say.

    `state` is "ok" or the reason why there is nothing else. With "ok": `type`, `cap` and `devctl` (offset and value),
    `max_payload`, `max_payload_supported`, `max_read_request` (bytes, None for a reserved code), `ext_tag`,
    `relaxed_ordering`, `link` {speed, width, max_speed, max_width; GT/s and lanes} or None, `aspm`, `acs` (list of the
    bits that are on, None without the capability).
    """
    cap, why = find_capability(config, EXPRESS)
    if cap is None:
        return {"state": why}
    if cap + 0x14 > len(config):
        return {"state": TRUNCATED}
    control = word(config, cap + 8)
    kind = TYPES.get(word(config, cap + 2) >> 4 & 15, "unknown")
    link_cap, link_control, link_status = dword(config, cap + 12), word(config, cap + 16), word(config, cap + 18)
    acs = find_extended(config, ACS)
    return {
        "state": "ok",
        "type": kind,
        "cap": cap,
        "devctl": control,
        "max_payload": payload_size(control >> 5 & 7),
        "max_payload_supported": payload_size(dword(config, cap + 4) & 7),
        "max_read_request": payload_size(control >> READ_SHIFT & 7),
        "ext_tag": bool(control & 0x100),
        "relaxed_ordering": bool(control & 0x10),
        "link": None
        if not link_cap & 15
        else {
            "speed": SPEEDS.get(link_status & 15),
            "width": link_status >> 4 & 63,
            "max_speed": SPEEDS.get(link_cap & 15),
            "max_width": link_cap >> 4 & 63,
        },
        "aspm": ASPM[link_control & 3] if link_cap & 15 else None,
        "acs": None if acs is None else [n for bit, n in enumerate(ACS_BITS) if word(config, acs + 6) >> bit & 1],
    }


class Device:
    """One function under /sys/bus/pci/devices; `address` is domain:bus:device.function."""

    def __init__(self, host: Host, address: str):
        self.host, self.address, self.folder = host, address, f"{DEVICES}/{address}"
        self.vendor = host.number(f"{self.folder}/vendor") or 0
        self.device = host.number(f"{self.folder}/device") or 0
        self.class_code = (host.number(f"{self.folder}/class") or 0) >> 8
        self.header = host.bytes(f"{self.folder}/config", 64) or b""

    @property
    def id(self) -> str:
        return f"{self.vendor:04x}:{self.device:04x}"

    @property
    def driver(self) -> str | None:
        return self.host.link(f"{self.folder}/driver")

    @property
    def numa_node(self) -> int | None:
        node = self.host.number(f"{self.folder}/numa_node")
        return node if node is not None and node >= 0 else None

    @property
    def is_bridge(self) -> bool:
        return len(self.header) == 64 and self.header[0x0E] & 0x7F == 1

    @property
    def bus(self) -> tuple[str, int]:
        domain, bus, _ = self.address.split(":")
        return domain, int(bus, 16)

    @property
    def buses_below(self) -> range:
        """Bus numbers behind a bridge, secondary to subordinate."""
        return range(self.header[0x19], self.header[0x1A] + 1) if self.is_bridge else range(0)

    def config(self) -> bytes:
        content = self.host.bytes(f"{self.folder}/config", 4096) or b""
        # some kernels answer a long read of a sleeping device short; the header alone is still the header
        return content or self.header

    def decode(self) -> dict:
        return decode(self.config())

    def set_max_read_request(self, size: int) -> dict:
        """Write bits 14:12 of Device Control and nothing else; the decode read back afterwards.

        A 2-byte write: a longer one would reach Device Status, whose bits clear when written.
        Raises HostError where the register cannot be trusted or cannot be written.
        """
        if size not in READ_SIZES:
            raise HostError(f"MaxReadReq {size} is not one of {', '.join(map(str, READ_SIZES))}")
        found = self.decode()
        if found["state"] != "ok":
            raise HostError(f"{self.address}: {found['state']}")
        control = found["devctl"]
        if control & FUNCTION_LEVEL_RESET and "endpoint" in found["type"]:
            raise HostError(f"{self.address}: Device Control reads {control:#06x}, with the reset bit on: not trusted")
        wanted = control & ~READ_MASK | READ_SIZES.index(size) << READ_SHIFT
        path = self.host.path(f"{self.folder}/config")
        try:
            file = os.open(path, os.O_WRONLY)
            try:
                os.pwrite(file, wanted.to_bytes(2, "little"), found["cap"] + 8)
            finally:
                os.close(file)
        except OSError as error:
            raise HostError(f"{self.address}: cannot write {path}: {error.strerror}") from error
        return self.decode()


def devices(host: Host) -> list[Device]:
    return [Device(host, name) for name in host.entries(DEVICES)]


def parent(device: Device, everything: list[Device]) -> Device | None:
    """The bridge above: the one whose bus range holds the device's bus most tightly."""
    domain, bus = device.bus
    above = [d for d in everything if d.bus[0] == domain and bus in d.buses_below and d is not device]
    return min(above, key=lambda d: len(d.buses_below)) if above else None


def ancestors(device: Device, everything: list[Device]) -> list[Device]:
    """Bridges from the device up to its root port, nearest first."""
    chain: list[Device] = []
    above = parent(device, everything)
    while above is not None and above not in chain:
        chain.append(above)
        above = parent(above, everything)
    return chain


def matches(device: Device, vendor: str = "*", device_class: str = "*", address: str = "*", driver: str = "*") -> bool:
    """Shell patterns on what lspci -Dn prints (10de, 0302, 0000:06:00.0) and on the driver's name."""
    return (
        fnmatch(f"{device.vendor:04x}", vendor.lower())
        and fnmatch(f"{device.class_code:04x}", device_class.lower())
        and fnmatch(device.address, full_address(address))
        and fnmatch(device.driver or "", driver)
    )


def full_address(address: str) -> str:
    """06:00.0 -> 0000:06:00.0, lower case, as sysfs has it."""
    address = address.lower()
    return f"0000:{address}" if address.count(":") == 1 else address
