"""How GPUs hang together: NUMA nodes, the links between pairs, which ones to take for a tensor-parallel group."""

from __future__ import annotations

import re
from itertools import combinations

from .host import Host, HostError
from .pci import Device, ancestors

NODES = "/sys/devices/system/node"

# nvidia-smi topo -m, nearest first; NV<n> (NVLink) is nearer than all
LINKS = ("PIX", "PXB", "PHB", "NODE", "SYS")
# nvidia-smi topo -p2p: not links but whether the driver lets a pair reach each other
PEER = {
    "OK": "available",
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by a registry key",
    "U": "unknown",
}
LABEL = re.compile(r"GPU\d+|NIC\d+|mlx\d+_\d+")
UNDERLINE = re.compile(r"\x1b\[\d*m")  # nvidia-smi underlines the header even into a pipe
CODE = re.compile(r"NV\d+|" + "|".join((*LINKS, *PEER, "X")))


def cpu_list(text: str) -> list[int]:
    """'0-2,8' -> [0, 1, 2, 8]."""
    numbers: list[int] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        first, _, last = part.partition("-")
        try:
            numbers.extend(range(int(first), int(last or first) + 1))
        except ValueError:
            raise HostError(f"'{text}' is not a CPU list such as 0-47,96-143") from None
    return numbers


def numa_nodes(host: Host) -> dict:
    """{node: {"cpus": "0-47,96-143", "distance": [10, 32], "memory_gib": 755}}, node as a string; {} without NUMA."""
    nodes = {}
    for folder in host.entries(NODES):
        if not re.fullmatch(r"node\d+", folder):
            continue
        total = re.search(r"MemTotal:\s+(\d+) kB", host.text(f"{NODES}/{folder}/meminfo") or "")
        nodes[folder[4:]] = {
            "cpus": host.text(f"{NODES}/{folder}/cpulist") or "",
            "distance": [int(d) for d in (host.text(f"{NODES}/{folder}/distance") or "").split()],
            "memory_gib": round(int(total.group(1)) / 1048576) if total else None,
        }
    return nodes


def link(a: Device, b: Device, everything: list[Device]) -> str:
    """The link of two devices in nvidia-smi's words, from the bridges above; never NVLink, which PCI cannot see."""
    above_a, above_b = ancestors(a, everything), ancestors(b, everything)
    shared = [bridge for bridge in above_a if bridge in above_b]
    if shared:
        # a port of the same switch on each side and the switch's upstream port above: still one switch
        crossed = above_a.index(shared[0]) + above_b.index(shared[0]) + 1
        return "PIX" if crossed <= 3 else "PXB"
    if a.numa_node != b.numa_node:
        return "SYS"
    roots = {(chain[-1] if chain else device).bus for device, chain in ((a, above_a), (b, above_b))}
    return "PHB" if len(roots) == 1 else "NODE"


def parse_matrix(text: str) -> dict:
    """The table of `nvidia-smi topo -m`, `-mp` or `-p2p r`, read by tokens so that a wrapped table is joined again.

    -> {"kind": "links" | "peer access", "gpus": [...], "nics": [...], "cells": {row: {column: code}},
        "affinity": {gpu: {"cpus": "0-47,96-143" or None, "numa": "0" or None}}}
    Raises HostError for a table that is cut or mixed: half a topology is worse than none.
    """
    tokens = UNDERLINE.sub("", text).split("Legend:")[0].split()
    columns: list[str] = []
    for token in tokens:
        if not LABEL.fullmatch(token):
            break
        if token in columns:
            break
        columns.append(token)
    if not columns:
        raise HostError("no topology table: it begins with a line of GPU0, GPU1, …")
    cells: dict = {}
    affinity: dict = {}
    at = len(columns)
    while at < len(tokens):
        row, at = tokens[at], at + 1
        codes = tokens[at : at + len(columns)]
        if not LABEL.fullmatch(row) or not codes or not CODE.fullmatch(codes[0]):
            continue  # the words of the affinity columns
        if row not in columns:
            raise HostError(f"the topology table is cut: row {row} has no column")
        good = all(CODE.fullmatch(code) for code in codes)
        if not good or len(codes) != len(columns) or codes[columns.index(row)] != "X":
            raise HostError(f"the topology table is cut or badly wrapped: row {row} does not have {len(columns)} cells")
        cells[row] = {column: code for column, code in zip(columns, codes) if column != row}
        at += len(columns)
        if row.startswith("GPU"):
            after = [None if value == "N/A" else value for value in tokens[at : at + 2] if not LABEL.fullmatch(value)]
            affinity[row] = dict(zip(("cpus", "numa"), (*after, None, None)))
    missing = [label for label in columns if label not in cells]
    if missing:
        raise HostError(f"the topology table is cut: no row for {', '.join(missing)}")
    used = {code for row in cells.values() for code in row.values()}
    peer = used & set(PEER)
    if peer and peer != used:
        raise HostError(f"the table mixes links and peer access: {', '.join(sorted(used))}")
    return {
        "kind": "peer access" if peer else "links",
        "gpus": [label for label in columns if label.startswith("GPU")],
        "nics": [label for label in columns if not label.startswith("GPU")],
        "cells": cells,
        "affinity": affinity,
    }


def peer_access(matrix: dict) -> tuple[bool, str]:
    """(whether every pair may reach each other, the sentence to advise with) of a peer-access table."""
    if matrix["kind"] != "peer access":
        raise HostError("this is a table of links; peer access is `nvidia-smi topo -p2p r`")
    refused = sorted({code for row in matrix["cells"].values() for code in row.values()} - {"OK"})
    if not refused:
        return True, "peer-to-peer is available between all GPUs"
    why = ", ".join(f"{code} = {PEER[code]}" for code in refused)
    return False, f"peer-to-peer is not available ({why}): NCCL goes through host memory; NCCL_P2P_LEVEL has no effect"


def cost(code: str) -> int:
    """Order of links, for adding up: NVLink is 0."""
    return LINKS.index(code) + 1 if code in LINKS else 0


def group_environment(groups: dict) -> dict:
    """{size: variables} for the groups that are not simply the first GPUs, which an engine takes by itself.

    nvidia-smi counts by bus address; CUDA counts by speed unless it is told otherwise.
    """
    return {
        size: {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, group["gpus"]))}
        for size, group in groups.items()
        if group["gpus"] != list(range(int(size)))
    }


def tensor_parallel_groups(gpus: list[dict], links: dict, nodes: dict) -> dict:
    """Which GPUs a group of 1, 2, 4, … takes: fewest NUMA nodes, then nearest links, then lowest index.

    gpus: [{"index", "numa_node"}]; links: {(i, j): code} for i < j. -> {"4": {"gpus": [0, 1, 2, 3], "numa_nodes": [0],
    "cpus": "0-47,96-143"}}; `cpus` is None where the nodes are not known.
    """
    node = {gpu["index"]: gpu["numa_node"] for gpu in gpus}
    groups = {}
    size = 1
    while size <= len(gpus):
        chosen = min(
            combinations(sorted(node), size),
            key=lambda group: (
                len({node[i] for i in group}),
                sum(cost(links.get(pair, "SYS")) for pair in combinations(group, 2)),
                group,
            ),
        )
        on = sorted({node[i] for i in chosen if node[i] is not None})
        cpus = [nodes[str(n)]["cpus"] for n in on if str(n) in nodes]
        groups[str(size)] = {"gpus": list(chosen), "numa_nodes": on, "cpus": ",".join(cpus) or None}
        size *= 2
    return groups
