"""Where this system runs: on a machine of its own or in a container, and within which limits."""

from __future__ import annotations

import re

from .host import Host

LIMITS = {"memlock": "Max locked memory", "nofile": "Max open files"}


def container(host: Host) -> str | None:
    """The container manager's name (`lxc`, `systemd-nspawn`, `docker`, …), None on a machine of its own.

    The same traces systemd-detect-virt follows; read here because it may not be installed and may not be run as root.
    """
    for name in ("/run/systemd/container", "/run/host/container-manager"):
        if text := host.text(name):
            return text
    environment = (host.bytes("/proc/1/environ") or b"").decode("utf-8", "replace")
    if found := re.search(r"(?:^|\0)container=([^\0]+)", environment):
        return found.group(1)
    if host.exists("/.dockerenv"):
        return "docker"
    if host.exists("/run/.containerenv"):
        return "podman"
    if answer := host.command("systemd-detect-virt", "--container"):
        return answer.strip()
    return None


def is_proxmox(host: Host) -> bool:
    return host.exists("/etc/pve/local") or host.which("pveversion") is not None


def limits(host: Host, process: str = "1") -> dict:
    """Hard limits of a process: those of process 1 cap every unit. {"memlock": bytes or "unlimited", …}."""
    text = host.text(f"/proc/{process}/limits") or ""
    found = {}
    for name, title in LIMITS.items():
        row = re.search(rf"^{title}\s+\S+\s+(\S+)", text, re.MULTILINE)
        if row:
            found[name] = int(row.group(1)) if row.group(1).isdigit() else row.group(1)
    return found


def cgroup(host: Host) -> dict:
    """What this system's own control group (v2 or v1) allows: memory in bytes or None, CPU quota, CPU and node sets."""
    memory = host.number("/sys/fs/cgroup/memory.max")
    if memory is None:
        memory = host.number("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    return {
        # v1 says "no limit" with a number near 2^63
        "memory_bytes": memory if memory is not None and memory < 1 << 60 else None,
        "cpu_max": host.text("/sys/fs/cgroup/cpu.max"),
        **sets(host),
    }


def sets(host: Host, process: str = "1") -> dict:
    """CPUs and memory nodes a process may use, as the kernel writes lists: {"cpus": "0-47", "mems": "0"}."""
    status = host.text(f"/proc/{process}/status") or ""
    found = dict(re.findall(r"^(Cpus|Mems)_allowed_list:\s*(\S+)", status, re.MULTILINE))
    return {"cpus": found.get("Cpus"), "mems": found.get("Mems")}


def restrictions(host: Host) -> list[str]:
    """What of this host's file systems will stand in the way, as sentences: read-only where we keep files, noexec where
    programs are put. The last mount at a place is the one that is seen."""
    mounts = {}
    for line in (host.text("/proc/mounts") or "").splitlines():
        _, where, _, options = line.split()[:4]
        mounts[where] = options.split(",")
    found = []
    for where, options in sorted(mounts.items()):
        if where in ("/", "/etc", "/opt", "/var", "/var/lib") and "ro" in options:
            found.append(f"{where} is read-only: nothing below it can be kept over a reboot")
        if where in ("/", "/tmp", "/var/tmp", "/home", "/root", "/opt") and "noexec" in options:
            found.append(f"{where} is noexec: programs there do not start")
    return found
