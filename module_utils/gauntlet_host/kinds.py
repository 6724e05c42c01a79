"""The kinds of settings by name; a new one is a class and a line here."""

from __future__ import annotations

from . import explained, settings
from .host import Host, HostError

KINDS = {
    "sysctl": settings.Sysctl,
    "sysfs": settings.Sysfs,
    "max_read_request": settings.MaxReadRequest,
    "gpu": settings.Gpu,
    "systemd": settings.Systemd,
    "lxc_config": settings.LxcConfig,
    "acs": explained.Acs,
    "aspm": explained.Aspm,
    "link": explained.Link,
    "bar1": explained.Bar1,
    "iommu": explained.Iommu,
    "module_option": explained.ModuleOption,
    "command_line": explained.CommandLine,
    "ceiling": explained.Ceiling,
    "containers_running": explained.ContainersRunning,
    "device_nodes": explained.DeviceNodes,
}


def make(host: Host, spec: dict) -> settings.Setting:
    if spec["kind"] not in KINDS:
        raise HostError(f"setting {spec['name']} is of kind '{spec['kind']}'; known: {', '.join(sorted(KINDS))}")
    return KINDS[spec["kind"]](host, spec)
