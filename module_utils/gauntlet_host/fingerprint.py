"""What makes two hosts comparable (`stable`), what varies from minute to minute (`volatile`), what was not readable."""

from __future__ import annotations

import json
import os
import platform
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

from . import gpu, pci, place, topology, verify
from .host import Host, HostError
from .record import Record

CPU = "/sys/devices/system/cpu"
ALL_REDUCE = "/var/lib/gauntlet/all_reduce.json"  # what the module all_reduce found last
# NCCL reads them in every process; the later one, in the home of an engine's service, wins
NCCL_FILES = ("/etc/nccl.conf", "/var/lib/gauntlet/engines/*/.nccl.conf")
THP = "/sys/kernel/mm/transparent_hugepage"
SYSCTLS = ("kernel.numa_balancing", "vm.swappiness", "vm.zone_reclaim_mode", "vm.max_map_count", "vm.overcommit_memory")
MODULE_OPTIONS = {
    "nvidia": "/proc/driver/nvidia/params",
    "nvidia_uvm": "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
}
# storage, network, display, accelerators: what a transfer to or from a GPU may cross, beside the bridges above
ENDPOINT_CLASSES = (0x0108, 0x0200, 0x0207, 0x0300, 0x0302, 0x1200)
GPU_CLASSES = (0x0300, 0x0302, 0x1200)
ASPEED = 0x1A03  # the display of a management controller, not a GPU
# options of the kernel command line that name this boot or this disk, not how the kernel behaves
BOOT_NAMES = re.compile(r"^(BOOT_IMAGE|initrd|root|rootflags|resume|UUID|boot|systemd\.machine_id)=")


def fingerprint(host: Host, hypervisor: dict | None = None) -> dict:
    """{"stable": {...}, "volatile": {...}, "unreadable": ["<what>: <why>", ...]}.

    `hypervisor` is the fingerprint of the machine under a container: it goes along, and its tuning counts for both.

    Every key is present on every host; None or an empty list says that the host has no such thing, `unreadable` says
    what this user may not see.
    """
    with ThreadPoolExecutor() as pool:
        # each nvidia-smi starts its own driver session: side by side they cost the slowest, not the sum
        cards_asked = pool.submit(gpu.gpus, host)
        links_asked = pool.submit(host.command, "nvidia-smi", "topo", "-m")
        peers_asked = pool.submit(host.command, "nvidia-smi", "topo", "-p2p", "r")
        devices = pci.devices(host)
        tree, links_now = _tree(host, devices)
        cards = cards_asked.result()
        link_table, peer_table = links_asked.result(), peers_asked.result()

    nodes = topology.numa_nodes(host)
    gpus = _gpus(host, devices, cards)
    pairs = _links(host, devices, gpus, link_table)
    groups = topology.tensor_parallel_groups([g for g in gpus if g["index"] is not None], pairs, nodes)
    inside = place.container(host)
    meminfo = host.text("/proc/meminfo") or ""
    stable = {
        "cpu": _cpu(host),
        "memory_gib": _kib(meminfo, "MemTotal", 1 << 20),
        "swap_gib": _kib(meminfo, "SwapTotal", 1 << 20),
        "numa": {name: {"cpus": node["cpus"], "distance": node["distance"]} for name, node in nodes.items()},
        "kernel": host.text("/proc/sys/kernel/osrelease") or platform.release(),
        "command_line": [o for o in (host.text("/proc/cmdline") or "").split() if not BOOT_NAMES.match(o)],
        "os": _os_name(host),
        "board": {
            name: host.text(f"/sys/class/dmi/id/{name}")
            for name in ("sys_vendor", "product_name", "board_name", "bios_version")
        },
        "gpus": [{key: value for key, value in card.items() if key not in VOLATILE_GPU} for card in gpus],
        "gpu_links": {f"{a}-{b}": code for (a, b), code in pairs.items()},
        "peer_access": _peers(host, peer_table),
        "tp_groups": groups,
        "tp_environment": topology.group_environment(groups),
        "pcie": tree,
        "iommu": _iommu(host),
        "module_options": _module_options(host),
        "nccl_conf": _nccl_conf(host),
        "sysctl": {key: host.text(f"/proc/sys/{key.replace('.', '/')}") for key in SYSCTLS},
        "transparent_hugepage": {
            name: _chosen(host.text(f"{THP}/{name}")) for name in ("enabled", "shmem_enabled", "defrag")
        },
        "container": inside,
        "proxmox": place.is_proxmox(host),
        "cgroup": place.cgroup(host),
        "limits": place.limits(host),
    }
    volatile = {
        "host": host.text("/proc/sys/kernel/hostname"),
        "boot_id": host.text("/proc/sys/kernel/random/boot_id"),
        "uptime_s": _first_float(host.text("/proc/uptime")),
        "load_1m": _first_float(host.text("/proc/loadavg")),
        "memory_available_gib": _kib(meminfo, "MemAvailable", 1 << 20),
        "numa_memory_gib": {name: node["memory_gib"] for name, node in nodes.items()},
        "cpu_mhz": _cpu_mhz(host),
        "gpus": [{key: card[key] for key in ("index", *VOLATILE_GPU)} for card in gpus],
        "pcie_links": links_now,
        "user": os.geteuid() if host.root == "/" else None,
        "tuning_profile": verify.profile(host),
        "simulated": [f"host tuning: {name}" for name in Record(host).simulated],
        "restrictions": place.restrictions(host),
        "all_reduce": _last_all_reduce(host),
        "hypervisor": hypervisor,
    }
    if hypervisor:
        under = hypervisor["volatile"]
        volatile["simulated"] += under["simulated"]
        # a container is tuned when it and its machine are; their settings are different ones
        if under["tuning_profile"] != volatile["tuning_profile"]:
            volatile["tuning_profile"] = "mixed"
    return {"stable": stable, "volatile": volatile, "unreadable": sorted(host.unreadable)}


VOLATILE_GPU = (
    "uuid",
    "clocks.sm",
    "clocks.mem",
    "temperature.gpu",
    "power.draw",
    "memory.used",
    "utilization.gpu",
)


def _gpus(host: Host, devices: list, cards: list[dict]) -> list[dict]:
    """The driver's GPUs with what the bus adds; a GPU without a driver has only the bus's side."""
    known = {card["address"]: card for card in cards}
    blank = dict.fromkeys(gpu.QUERY[2:])
    found = []
    for device in devices:
        if device.class_code not in GPU_CLASSES or device.vendor == ASPEED:
            continue
        card = known.get(device.address) or {**blank, "index": None, "address": device.address}
        answers = device.decode()["state"] != pci.NOT_RESPONDING
        if not answers:
            host.note(f"GPU {device.address}", pci.NOT_RESPONDING)
        found.append(
            {
                **card,
                "id": device.id,
                "driver": device.driver,
                "numa_node": device.numa_node,
                "bar1_mib": gpu.bar1_mib(host, device.folder),
                "responding": answers,
            }
        )
    on_bus = {card["address"] for card in found}
    # a container may see the driver's devices without their place in sysfs
    elsewhere = {"id": None, "driver": None, "numa_node": None, "bar1_mib": None, "responding": True}
    return found + [{**card, **elsewhere} for card in cards if card["address"] not in on_bus]


def _links(host: Host, devices: list, gpus: list[dict], table: str | None) -> dict:
    """{(index, index): code}; from nvidia-smi, which knows NVLink, else from the bridges."""
    indexed = {card["index"]: card["address"] for card in gpus if card["index"] is not None}
    if table and len(indexed) > 1:
        try:
            cells = topology.parse_matrix(table)["cells"]
            return {(a, b): cells[f"GPU{a}"][f"GPU{b}"] for a, b in combinations(sorted(indexed), 2)}
        except (HostError, KeyError) as error:
            host.note("nvidia-smi topo -m", str(error))
    by_address = {device.address: device for device in devices}
    placed = {index: by_address[address] for index, address in indexed.items() if address in by_address}
    return {(a, b): topology.link(placed[a], placed[b], devices) for a, b in combinations(sorted(placed), 2)}


def _peers(host: Host, table: str | None) -> str | None:
    if not table or "GPU1" not in table:
        return None
    try:
        return topology.peer_access(topology.parse_matrix(table))[1]
    except HostError as error:
        host.note("nvidia-smi topo -p2p r", str(error))
        return None


def _tree(host: Host, devices: list) -> tuple[dict, dict]:
    """({address: what stays}, {address: link as it is now}): a link rests at a low speed while its GPU idles."""
    ends = [d for d in devices if d.class_code in ENDPOINT_CLASSES and d.vendor != ASPEED]
    above = {d.address: pci.ancestors(d, devices) for d in ends}
    shown = {d.address: d for d in ends}
    shown.update((bridge.address, bridge) for chain in above.values() for bridge in chain)
    tree, links = {}, {}
    for address, device in sorted(shown.items()):
        registers = device.decode()
        if registers["state"] in (pci.NEEDS_ROOT, pci.TRUNCATED):
            host.note(f"{pci.DEVICES}/{address}/config", registers["state"])
        bridge = pci.parent(device, devices)
        link = registers.get("link") or _sysfs_link(host, device)
        tree[address] = {
            "id": device.id,
            "class": f"{device.class_code:04x}",
            "parent": bridge.address if bridge else None,
            "numa_node": device.numa_node,
            "state": registers["state"],
            **{key: registers.get(key) for key in ("type", "max_payload", "max_read_request", "acs", "aspm")},
            **{key: link[key] if link else None for key in ("width", "max_width", "max_speed")},
        }
        if link:
            links[address] = {key: link[key] for key in ("speed", "width")}
    return tree, links


def _sysfs_link(host: Host, device: pci.Device) -> dict | None:
    """What an unprivileged reader may know of a link; speeds in GT/s."""
    found = {
        "speed": _first_float(host.text(f"{device.folder}/current_link_speed")),
        "width": host.number(f"{device.folder}/current_link_width"),
        "max_speed": _first_float(host.text(f"{device.folder}/max_link_speed")),
        "max_width": host.number(f"{device.folder}/max_link_width"),
    }
    return found if found["max_width"] else None


def _cpu(host: Host) -> dict:
    info = host.text("/proc/cpuinfo") or ""

    def values(key: str) -> list[str]:
        return re.findall(rf"^{key}\s*:\s*(.*)$", info, re.MULTILINE)

    drivers = host.glob(f"{CPU}/cpu[0-9]*/cpufreq")
    return {
        "model": (values("model name") or values("Model") or [platform.machine()])[0].strip(),
        "microcode": (values("microcode") or [None])[0],
        "logical": len(values("processor")),
        "sockets": len(set(values("physical id"))) or None,
        "online": host.text(f"{CPU}/online"),
        "smt": host.text(f"{CPU}/smt/control"),
        "governor": sorted({g for d in drivers if (g := host.text(f"{d}/scaling_governor"))}),
        "frequency_driver": sorted({g for d in drivers if (g := host.text(f"{d}/scaling_driver"))}),
        "energy_preference": sorted({g for d in drivers if (g := host.text(f"{d}/energy_performance_preference"))}),
        "no_turbo": host.text(f"{CPU}/intel_pstate/no_turbo"),
        "boost": host.text(f"{CPU}/cpufreq/boost"),
        "virtual": bool(re.search(r"^flags\s*:.*\bhypervisor\b", info, re.MULTILINE)),
    }


def _cpu_mhz(host: Host) -> dict | None:
    clocks = [float(v) for v in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", host.text("/proc/cpuinfo") or "", re.MULTILINE)]
    return {"min": min(clocks), "max": max(clocks)} if clocks else None


def _iommu(host: Host) -> dict:
    """`groups` counts them, `types` are the domains in use: identity, DMA, DMA-FQ; no groups means the IOMMU is off."""
    groups = host.entries("/sys/kernel/iommu_groups")
    types = {host.text(f"/sys/kernel/iommu_groups/{group}/type") for group in groups}
    return {
        "groups": len(groups),
        "types": sorted(t for t in types if t),
        "units": len(host.entries("/sys/class/iommu")),
    }


def _module_options(host: Host) -> dict:
    given = (host.text(MODULE_OPTIONS["nvidia"]) or "").splitlines()
    params = dict(line.split(": ", 1) for line in given if ": " in line)
    return {
        "nvidia.RegistryDwords": params.get("RegistryDwords", "").strip('"') if params else None,
        "nvidia_uvm.uvm_disable_hmm": host.text(MODULE_OPTIONS["nvidia_uvm"]),
    }


def _nccl_conf(host: Host) -> dict:
    """Variables that NCCL takes from files: they reach every server, whatever its environment."""
    found = [host.text(path) or "" for pattern in NCCL_FILES for path in host.glob(pattern)]
    lines = [line.strip() for text in found for line in text.splitlines()]
    return dict(sorted(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")))


def _last_all_reduce(host: Host) -> list | None:
    """What the all-reduce between this host's GPUs measured when it was last run."""
    try:
        return json.loads(host.text(ALL_REDUCE) or "null")
    except ValueError as error:
        host.note(ALL_REDUCE, f"not JSON: {error}")
        return None


def _os_name(host: Host) -> str | None:
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', host.text("/etc/os-release") or "", re.MULTILINE)
    return found.group(1) if found else None


def _chosen(text: str | None) -> str | None:
    """'always [madvise] never' -> 'madvise'."""
    found = re.search(r"\[(\S+)\]", text or "")
    return found.group(1) if found else None


def _kib(meminfo: str, name: str, unit: int) -> int | None:
    found = re.search(rf"^{name}:\s+(\d+) kB", meminfo, re.MULTILINE)
    return round(int(found.group(1)) / unit) if found else None


def _first_float(text: str | None) -> float | None:
    found = re.match(r"[\d.]+", text or "")
    return float(found.group()) if found else None
