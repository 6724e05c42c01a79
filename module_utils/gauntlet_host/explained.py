"""Settings that are verified and explained but not written: firmware, boot loader and module options decide them."""

from __future__ import annotations

import os
import re
import stat

from . import gpu, pci, place
from .host import Absent, Host, Unreadable
from .settings import Setting, lxc_lines
from .topology import cpu_list

GPU_PATTERNS = [{"vendor": "10de", "device_class": "03*"}, {"vendor": "1002", "device_class": "03*"}]


class Explained(Setting):
    written = False
    at_boot = False


class OnGpuPath(Explained):
    """A register of GPUs, of the bridges above them, or of both."""

    with_gpus = with_bridges = True

    def found(self):
        devices = pci.devices(self.host)
        gpus = [d for d in devices if any(pci.matches(d, **pattern) for pattern in GPU_PATTERNS)]
        asked = {gpu.address: gpu for gpu in gpus} if self.with_gpus else {}
        if self.with_bridges:
            asked.update((bridge.address, bridge) for gpu in gpus for bridge in pci.ancestors(gpu, devices))
        return {address: self._value(device) for address, device in sorted(asked.items())}

    def _value(self, device):
        registers = device.decode()
        if registers["state"] == pci.NONE:
            return Absent(pci.NONE)
        if registers["state"] != "ok":
            return Unreadable(registers["state"])
        return self.show(registers)

    def show(self, registers: dict):
        raise NotImplementedError


class Acs(OnGpuPath):
    """Request and completion redirection send traffic between GPUs up to the root complex and back."""

    with_gpus = False

    def show(self, registers):
        if registers["acs"] is None:
            return Absent("no ACS capability")
        return " ".join(bit for bit in registers["acs"] if bit in ("ReqRedir", "CmpltRedir")) or "off"

    def how(self, target):
        return f"setpci -s {target} ECAP_ACS+6.w=0:0c on the machine itself, at every boot; not possible inside a VM"


class Aspm(OnGpuPath):
    def show(self, registers):
        return registers["aspm"] or Absent("no link")

    def how(self, target):
        return f"pcie_aspm=off {command_line_place(self.host)}"


class Link(OnGpuPath):
    """Lanes and speed against what both ends can do; a link rests at a lower speed while its GPU idles."""

    with_bridges = False

    def found(self):
        devices = pci.devices(self.host)
        by_address = {device.address: device for device in devices}
        values = {}
        for address, shown in super().found().items():
            above = pci.parent(by_address[address], devices)
            limit = (above.decode().get("link") if above else None) or {}
            values[address] = self._against(shown, limit) if isinstance(shown, dict) else shown
        return values

    def show(self, registers):
        return registers["link"] or Absent("no link")

    @staticmethod
    def _against(link, above):
        width = min(link["max_width"], above.get("max_width") or link["max_width"])
        speed = min(link["max_speed"] or 0, above.get("max_speed") or link["max_speed"] or 0)
        state = "full" if link["width"] >= width else "narrow"
        rest = "" if link["speed"] == speed else f" of {speed:g}, the rest speed of an idle GPU?"
        return f"{state}: x{link['width']} of x{width} at {link['speed']:g}{rest} GT/s"

    def holds(self, target, value):
        return value.startswith(self.wanted(target))

    def how(self, target):
        return f"reseat {target} or its riser, look at the firmware's bifurcation; under load: lspci -vv -s {target}"


class Bar1(Explained):
    """BAR1 that covers the whole memory, so that peers can reach all of it."""

    def found(self):
        values = {}
        for card in gpu.gpus(self.host):
            size = gpu.bar1_mib(self.host, f"{pci.DEVICES}/{card['address']}")
            if size is None or card["memory.total"] is None:
                values[card["address"]] = Unreadable("neither sysfs nor the driver tells its size")
            else:
                covers = "covers" if size >= card["memory.total"] else "smaller than"
                values[card["address"]] = f"{covers} the memory: {size} MiB of {card['memory.total']:.0f}"
        return values

    def holds(self, target, value):
        return value.startswith(self.wanted(target))

    def how(self, target):
        return "Above 4G Decoding and Resizable BAR in the firmware, reboot; nvidia-smi -q -d MEMORY shows BAR1"


class Iommu(Explained):
    """`wanted`: a list of accepted modes: off, identity, DMA, DMA-FQ."""

    def found(self):
        if not self.host.exists("/sys/class/iommu") and not self.host.exists("/sys/kernel"):
            return {}
        groups = self.host.entries("/sys/kernel/iommu_groups")
        types = {self.host.text(f"/sys/kernel/iommu_groups/{group}/type") for group in groups}
        return {"iommu": "+".join(sorted(t for t in types if t)) or ("unknown" if groups else "off")}

    def wanted(self, target):
        return " or ".join(self.spec["wanted"])

    def holds(self, target, value):
        return value in self.spec["wanted"]

    def kept(self, target):
        given = [o for o in _options(self.host) if re.match(r"(amd_|intel_)?iommu(\.passthrough)?=", o)]
        return f"/proc/cmdline: {' '.join(given)}" if given else None

    def how(self, target):
        return f"iommu=pt or iommu=off amd_iommu=off {command_line_place(self.host)}"


class ModuleOption(Explained):
    """`module`, `option`: what the loaded module says, not what a file under /etc/modprobe.d hopes."""

    def found(self):
        module, option = self.spec["module"], self.spec["option"]
        target = f"{module} {option}"
        if not self.host.exists(f"/sys/module/{module}"):
            return {target: Absent(f"module {module} is not loaded")}
        if module == "nvidia":
            given = re.search(rf"^{option}: (.*)$", self.host.text("/proc/driver/nvidia/params") or "", re.MULTILINE)
            value = given.group(1).strip('"') if given else None
        else:
            value = self.host.text(f"/sys/module/{module}/parameters/{option}")
        return {target: Unreadable(f"{module} does not show {option}") if value is None else value}

    def holds(self, target, value):
        wanted = self.wanted(target)
        return value == wanted or {value, wanted} in ({"Y", "1"}, {"N", "0"})

    def kept(self, target):
        module, option = target.split(" ")
        for path in self.host.glob("/etc/modprobe.d/*.conf"):
            text = self.host.text(path) or ""
            if re.search(rf"^\s*options\s+{module.replace('_', '[-_]')}\s.*\b{option}=", text, re.MULTILINE):
                return path
        return None

    def how(self, target):
        module, option = target.split(" ")
        return (
            f"'options {module} {option}=\"{self.wanted(target)}\"' in /etc/modprobe.d/gauntlet.conf, "
            "update-initramfs -u -k all, reboot"
        )


class CommandLine(Explained):
    """`wanted`: options that must be on the kernel command line; `unwanted`: options that must not."""

    def found(self):
        given = set(_options(self.host))
        asked = [*self.spec.get("wanted", []), *self.spec.get("unwanted", [])]
        return {option: "given" if option in given else "not given" for option in asked}

    def wanted(self, target):
        return "given" if target in self.spec.get("wanted", []) else "not given"

    def kept(self, target):
        file = boot_loader(self.host)[0]
        return file if file and target in re.split(r"[\s\"']+", self.host.text(file) or "") else None

    def how(self, target):
        verb = "add" if self.wanted(target) == "given" else "remove"
        return f"{verb} {target} {command_line_place(self.host)}"


class Ceiling(Explained):
    """`limit`: memlock or nofile; the hard limit of process 1 is what no unit of this system can exceed."""

    def found(self):
        value = place.limits(self.host).get(self.spec["limit"])
        return {self.spec["limit"]: Unreadable("/proc/1/limits does not say") if value is None else str(value)}

    def wanted(self, target):
        wanted = str(self.spec["wanted"])
        return wanted if wanted == "unlimited" else f"at least {wanted}"

    def holds(self, target, value):
        if value == "unlimited":
            return True
        return str(self.spec["wanted"]) != "unlimited" and int(value) >= int(self.spec["wanted"])

    def how(self, target):
        inside = place.container(self.host)
        if inside and inside != "lxc":
            return f"the {target} limit that {inside} starts this container with"
        if inside:
            return (
                f"lxc.prlimit.{target}: {self.spec['wanted']} in /etc/pve/lxc/<id>.conf of its hypervisor, pct reboot"
            )
        return f"DefaultLimit{target.upper()}= in /etc/systemd/system.conf, then reboot"


class ContainersRunning(Explained):
    """Containers of a Proxmox node against what their configuration says: its lines count from the next start on."""

    LIMITS = {f"lxc.prlimit.{name}": name for name in place.LIMITS}
    SETS = {"lxc.cgroup2.cpuset.cpus": "cpus", "lxc.cgroup2.cpuset.mems": "mems"}

    def found(self):
        values = {}
        for path in self.host.glob("/etc/pve/lxc/*.conf"):
            container = path.rpartition("/")[2][:-5]
            asked = [key for key, _ in lxc_lines(self.host.text(path) or "") if key in {**self.LIMITS, **self.SETS}]
            process = (self.host.command("lxc-info", "-n", container, "-p", "-H") or "").strip()
            if asked and not process:
                values[container] = Absent(f"container {container} is not running")
            elif asked:
                now = {**place.limits(self.host, process), **place.sets(self.host, process)}
                names = {**self.LIMITS, **self.SETS}
                values.update((f"{container} {key}", str(now.get(names[key]))) for key in asked)
        return values

    def wanted(self, target):
        container, _, key = target.partition(" ")
        return dict(lxc_lines(self.host.text(f"/etc/pve/lxc/{container}.conf") or "")).get(key, "running")

    def holds(self, target, value):
        wanted = self.wanted(target)
        if target.split(" ")[1] in self.SETS:
            return cpu_list(value) == cpu_list(wanted)
        return value == wanted

    def how(self, target):
        return f"pct reboot {target.split()[0]}"


class DeviceNodes(Explained):
    """The NVIDIA device nodes, and on a Proxmox node the containers' permission for them.

    nvidia-uvm is created only when someone asks for it, and its major number is new with every boot or driver: a
    container that started first, or whose configuration names last year's number, gets a GPU that CUDA cannot use.
    """

    NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")

    def found(self):
        if not self.host.exists("/dev/nvidia0") and not self.host.entries("/proc/driver/nvidia/gpus"):
            return {}
        majors = character_majors(self.host.text("/proc/devices") or "")
        values = {node: self._node(node, majors) for node in self.NODES}
        for path in self.host.glob("/etc/pve/lxc/*.conf"):
            container = path.rpartition("/")[2][:-5]
            text = self.host.text(path) or ""
            if "nvidia" in text:
                values[f"container {container}"] = "; ".join(device_faults(text, majors)) or "there"
        return values

    def _node(self, node, majors):
        try:
            status = os.stat(self.host.path(node))
        except OSError:
            return "missing"
        now = majors.get(node.rpartition("/")[2])
        if stat.S_ISCHR(status.st_mode) and now is not None and os.major(status.st_rdev) != now:
            return f"stale: major {os.major(status.st_rdev)}, the kernel's is {now}"
        return "there"

    def wanted(self, target):
        return "there"

    def how(self, target):
        if target.startswith("container"):
            return f"dev0: /dev/nvidia-uvm in /etc/pve/lxc/{target.split()[1]}.conf follows the number; then pct reboot"
        where = "on its hypervisor" if place.container(self.host) else "here, by a unit before pve-guests.service"
        return f"nvidia-modprobe -u -c 0 {where}, then restart the container"


def character_majors(proc_devices: str) -> dict:
    """{driver: major} of /proc/devices' first part."""
    part = proc_devices.partition("Block devices:")[0]
    return {name: int(major) for major, name in re.findall(r"^\s*(\d+) (\S+)$", part, re.MULTILINE)}


def device_faults(configuration: str, majors: dict) -> list[str]:
    """What a container's configuration allows against the numbers the kernel gave: sentences, none when all is well."""
    allowed = {
        int(m) for m in re.findall(r"^lxc\.cgroup2?\.devices\.allow\s*[:=]\s*c\s+(\d+):", configuration, re.MULTILINE)
    }
    if not allowed:
        return []
    named = set(majors.values())
    stale = sorted(allowed - named)
    faults = []
    for driver in ("nvidiactl", "nvidia-uvm"):
        if driver not in majors:
            faults.append(f"the kernel has no {driver}")
        elif majors[driver] not in allowed:
            instead = f", the configuration allows {stale[0]}" if stale else ""
            faults.append(f"{driver} is major {majors[driver]} now{instead}")
    return faults


def _options(host: Host) -> list[str]:
    return (host.text("/proc/cmdline") or "").split()


def boot_loader(host: Host) -> tuple[str | None, str | None]:
    """(file that feeds the kernel command line, command that puts it in force); (None, None) where nothing here does.

    Proxmox with ZFS or on UEFI boots by systemd-boot, where editing /etc/default/grub silently does nothing (Proxmox VE
    Administration Guide, Host Bootloader). The loader leaves its name in an EFI variable; GRUB leaves BOOT_IMAGE=.
    """
    variable = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
    name = (host.bytes(variable) or b"").decode("utf-16-le", "replace")
    grub = any(option.startswith("BOOT_IMAGE=") for option in _options(host))
    if "systemd-boot" in name or (not grub and host.exists("/etc/kernel/cmdline")):
        refresh = "proxmox-boot-tool refresh" if host.which("proxmox-boot-tool") else "kernel-install add-all"
        return "/etc/kernel/cmdline", refresh
    if grub:
        setters = [
            path
            for path in host.glob("/etc/default/grub.d/*.cfg")
            if re.search(r"^\s*GRUB_CMDLINE_LINUX", host.text(path) or "", re.MULTILINE)
        ]
        return (setters or ["/etc/default/grub"])[-1], "update-grub"
    return None, None


def command_line_place(host: Host) -> str:
    file, command = boot_loader(host)
    if file is None or place.container(host):
        return "on the kernel command line of the machine, reboot"
    variable = "" if file == "/etc/kernel/cmdline" else "GRUB_CMDLINE_LINUX_DEFAULT of "
    return f"in {variable}{file}, {command}, reboot"
