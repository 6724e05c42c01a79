"""MaxReadReq of the selected devices: the largest read one request may ask for, bits 14:12 of Device Control."""

from __future__ import annotations

from . import pci
from .host import Host, HostError

# a device that asks for nothing has no use for the setting
NOT_A_REQUESTER = ("event collector",)
BUS_PERF = "pci=pcie_bus_perf on the kernel command line sets MaxReadReq itself and undoes this at boot and on hot-plug"


def select(host: Host, patterns: list[dict]) -> list[pci.Device]:
    """Devices that match any of the patterns; a pattern has vendor, device_class, address, driver, each optional."""
    return [d for d in pci.devices(host) if any(pci.matches(d, **pattern) for pattern in patterns)]


def settable(device: pci.Device) -> dict:
    """The registers of a device whose MaxReadReq means something. Raises HostError that says why it does not."""
    registers = device.decode()
    if registers["state"] != "ok":
        raise HostError(registers["state"])
    if registers["type"] in NOT_A_REQUESTER:
        raise HostError(f"an {registers['type']} issues no reads")
    return registers


def request(device: pci.Device, size: int | None, check: bool = False) -> dict:
    """Bring one device to `size` bytes; None only reads.

    -> {"address", "id", "driver", "type", "before", "after", "outcome", "why"}; outcome is `unchanged`, `changed`,
    `read-only` (the register kept its value), `capped` (it took another one) or `skipped`. A check predicts `changed`:
    whether a register is read-only shows only when it is written.
    """
    result = {"address": device.address, "id": device.id, "driver": device.driver, "type": None}
    result.update(before=None, after=None, why=None)
    try:
        registers = settable(device)
        before = after = registers["max_read_request"]
        result.update(type=registers["type"], before=before, after=before)
        if size and before != size:
            after = size if check else device.set_max_read_request(size).get("max_read_request")
    except HostError as error:
        return {**result, "outcome": "skipped", "why": str(error)}
    result["after"] = after
    if after == (size or before):
        return {**result, "outcome": "unchanged" if before == after else "changed"}
    if after == before:
        return {**result, "outcome": "read-only", "why": f"the register stays at {before}: this device fixes it"}
    return {**result, "outcome": "capped", "why": f"the device took {after}, not {size}"}


def warnings(host: Host) -> list[str]:
    options = (host.text("/proc/cmdline") or "").split()
    values = [value for o in options if o.startswith("pci=") for value in o[4:].split(",")]
    return [BUS_PERF] if "pcie_bus_perf" in values else []
