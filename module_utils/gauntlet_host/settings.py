"""Settings that are written: how each kind is found, set and kept.

A setting is a catalog entry (catalog/settings) with the inventory's choices in it. `found()` answers for all its
targets at once, because some kinds ask one command for eight GPUs.
"""

from __future__ import annotations

import re

from . import gpu, pci, read_request
from .host import Absent, Host, HostError, Unreadable

SYSCTL_FILE = "/etc/sysctl.d/90-gauntlet.conf"
SYSCTL_FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")
BOOT_UNIT = "gauntlet-host-tuning.service"
RULE = "/etc/udev/rules.d/90-gauntlet-host-tuning.rules"


class Setting:
    """What every kind answers; `spec` is the entry. `at_boot` says that the boot unit sets it anew."""

    written = True
    at_boot = True

    def __init__(self, host: Host, spec: dict):
        self.host, self.spec, self.name = host, spec, spec["name"]

    def found(self) -> dict:
        """{target: value as text, or the Absent or Unreadable that says why there is none}."""
        raise NotImplementedError

    def wanted(self, target: str) -> str:
        return str(self.spec["wanted"])

    def holds(self, target: str, value: str) -> bool:
        return value == self.wanted(target)

    def write(self, target: str, value: str) -> None:
        """Raises HostError where the host refuses."""
        raise NotImplementedError

    def identity(self, target: str) -> str | None:
        """What stands at the target: another device in the same slot has no original value of the first one."""
        return None

    def files(self) -> dict:
        """{path: lines} of files that keep the setting; ours alone, several settings may share one."""
        return {}

    def kept(self, target: str) -> str | None:
        """Where the value comes from after a reboot."""
        return None

    def undone_by(self) -> list[str]:
        """Sentences about what on this host will undo the setting."""
        return []

    def how(self, target: str) -> str:
        """The command or file that changes it, for a person."""
        return "ansible-playbook site.yml"


class Sysctl(Setting):
    """`key`: a name as sysctl takes it."""

    @property
    def file(self) -> str:
        return "/proc/sys/" + self.spec["key"].replace(".", "/")

    def found(self):
        key = self.spec["key"]
        value = self.host.text(self.file)
        if value is None and self.host.exists(self.file):
            return {key: Unreadable("needs root")}
        if value is None:
            other = "/sys/" + key.replace(".", "/")
            hint = f": it is {other}, kind sysfs" if self.host.exists(other) else " on this kernel"
            return {key: Absent(f"there is no sysctl {key}{hint}")}
        return {key: " ".join(value.split())}

    def wanted(self, target):
        return " ".join(str(self.spec["wanted"]).split())

    def write(self, target, value):
        self.host.write(self.file, value)

    def files(self):
        # one key that this kernel lacks would fail the whole file
        return {SYSCTL_FILE: [f"{self.spec['key']} = {self.spec['wanted']}"]} if self.host.exists(self.file) else {}

    def kept(self, target):
        names = {}
        for folder in reversed(SYSCTL_FOLDERS):
            names.update((name, f"{folder}/{name}") for name in self.host.entries(folder) if name.endswith(".conf"))
        last = None
        for _, path in sorted(names.items()):
            for line in (self.host.text(path) or "").splitlines():
                key, _, value = line.lstrip("-").partition("=")
                if key.strip().replace("/", ".") == target:
                    last = path, " ".join(value.split())
        if last is None:
            return None
        return last[0] if self.holds(target, last[1]) else f"{last[0]} says {last[1]}"

    def how(self, target):
        return f"sysctl -w {target}={self.wanted(target)}, and that line in {SYSCTL_FILE}"


class Sysfs(Setting):
    """`path`: a file or a pattern of files; a file that offers choices shows the chosen one in brackets."""

    def found(self):
        values = {path: self.host.text(path) for path in self.host.glob(self.spec["path"])}
        return {
            path: Unreadable("needs root") if text is None else (re.findall(r"\[(\S+)\]", text) or [text])[0]
            for path, text in values.items()
        }

    def write(self, target, value):
        self.host.write(target, value)

    def how(self, target):
        return f"echo {self.wanted(target)} > {self.spec['path']}, at every boot"


class MaxReadRequest(Setting):
    """`select`: patterns of devices; `wanted`: bytes."""

    def found(self):
        return {device.address: self._value(device) for device in read_request.select(self.host, self.spec["select"])}

    def _value(self, device):
        try:
            return str(read_request.settable(device)["max_read_request"])
        except HostError as error:
            unknown = str(error) in (pci.NEEDS_ROOT, pci.NOT_RESPONDING, pci.TRUNCATED)
            return (Unreadable if unknown else Absent)(str(error))

    def write(self, target, value):
        result = read_request.request(pci.Device(self.host, target), int(value))
        if result["outcome"] not in ("changed", "unchanged"):
            raise HostError(result["why"])

    def identity(self, target):
        return pci.Device(self.host, target).id

    def undone_by(self):
        return read_request.warnings(self.host)

    def files(self):
        # a device that comes back has lost its settings; the driver is not bound yet when it does
        return {RULE: [_rule(pattern) for pattern in self.spec["select"]]}

    def how(self, target):
        code = pci.READ_SIZES.index(int(self.spec["wanted"]))
        return f"setpci -s {target} CAP_EXP+8.w={code << 12:04x}:7000, at every boot"


def _rule(pattern: dict) -> str:
    """The udev rule that starts the boot unit when a device of a selection appears."""
    code = pattern.get("device_class", "*").lower()
    asked = {
        "KERNEL": pci.full_address(pattern.get("address", "*")),
        "ATTR{vendor}": f"0x{pattern.get('vendor', '*').lower()}",
        # sysfs has the programming interface behind class and subclass
        "ATTR{class}": f"0x{code}" if code.endswith("*") else f"0x{code}??",
    }
    keys = [f'{key}=="{value}"' for key, value in asked.items() if value not in ("*", "0x*")]
    return ", ".join(
        ['ACTION=="add"', 'SUBSYSTEM=="pci"', *keys, 'TAG+="systemd"', f'ENV{{SYSTEMD_WANTS}}+="{BOOT_UNIT}"']
    )


class Gpu(Setting):
    """`field`: persistence_mode (Enabled, Disabled) or power.limit (W), of every GPU that nvidia-smi lists."""

    OPTIONS = {"persistence_mode": "-pm", "power.limit": "-pl"}

    def found(self):
        if not self.host.which("nvidia-smi"):
            on_bus = read_request.select(self.host, [{"vendor": "10de", "device_class": "03*"}])
            return {device.address: Unreadable("nvidia-smi is not installed") for device in on_bus}
        field = self.spec["field"]
        cards = {card["address"]: card[field] for card in gpu.gpus(self.host)}
        return {
            address: Absent("this GPU does not have it") if value is None else str(value)
            for address, value in cards.items()
        }

    def holds(self, target, value):
        if self.spec["field"] == "power.limit":
            return abs(float(value) - float(self.spec["wanted"])) < 0.5
        return value == self.wanted(target)

    def write(self, target, value):
        value = {"Enabled": "1", "Disabled": "0"}.get(value, value)
        status, output, error = self.host.run("nvidia-smi", "-i", target, self.OPTIONS[self.spec["field"]], value)
        if status:
            # nvidia-smi explains itself on standard output
            raise HostError(f"nvidia-smi refuses: {' '.join((output or error).split())}")

    def how(self, target):
        value = {"Enabled": 1, "Disabled": 0}.get(self.spec["wanted"], self.spec["wanted"])
        return f"nvidia-smi -i {target} {self.OPTIONS[self.spec['field']]} {value}, at every boot"


class Systemd(Setting):
    """`daemon`: logind or manager; `key`, `wanted` as in its configuration file, which is read by the daemon itself."""

    at_boot = False
    DAEMONS = {"logind": ("logind", "Login"), "manager": ("system", "Manager")}

    @property
    def file(self) -> str:
        return f"/etc/systemd/{self.DAEMONS[self.spec['daemon']][0]}.conf.d/90-gauntlet.conf"

    def found(self):
        key = self.spec["key"]
        if not self._runs():
            return {key: Absent("systemd does not run here")}
        if self.spec["daemon"] == "manager":
            answer = self.host.command("systemctl", "show", f"--property={key}")
            value = answer.partition("=")[2].strip() if answer else ""
        else:
            place = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
            answer = self.host.command("busctl", "get-property", *place, key)
            value = answer.split(None, 1)[1].strip().strip('"') if answer else ""
            value = {"true": "yes", "false": "no"}.get(value, value)
        return {key: value or Unreadable(f"systemd does not say {key}")}

    def write(self, target, value):
        """Its file is written with the others; the daemon is told to read it."""

    def files(self):
        section = f"[{self.DAEMONS[self.spec['daemon']][1]}]"
        return {self.file: [section, f"{self.spec['key']}={self.spec['wanted']}"]} if self._runs() else {}

    def _runs(self) -> bool:
        return self.host.exists("/run/systemd/system")

    def kept(self, target):
        line = f"{target}={self.spec['wanted']}"
        for path in self.host.glob(f"{self.file.rpartition('.d/')[0]}.d/*.conf") + [self.file.rpartition(".d/")[0]]:
            if line in (self.host.text(path) or "").splitlines():
                return path
        return None

    def how(self, target):
        return f"{target}={self.spec['wanted']} in {self.file}"


class LxcConfig(Setting):
    """`containers`: ids; `lines`: {key: value} of their configuration, null for a line that must not be there."""

    at_boot = False

    def _file(self, container) -> str:
        return f"/etc/pve/lxc/{container}.conf"

    def found(self):
        values = {}
        for container in self.spec["containers"]:
            text = self.host.text(self._file(container))
            for key in self.spec["lines"]:
                target = f"{container} {key}"
                if text is None:
                    values[target] = Absent(f"there is no container {container} on this node")
                else:
                    values[target] = dict(lxc_lines(text)).get(key, "")
        return values

    def wanted(self, target):
        value = self.spec["lines"][target.split(" ", 1)[1]]
        return "" if value is None else str(value)

    def write(self, target, value):
        container, key = target.split(" ", 1)
        path = self._file(container)
        # only what stands before the first [snapshot] is the container; the rest is its past
        now, bracket, past = (self.host.text(path) or "").partition("\n[")
        lines = [line for line in now.splitlines() if line.partition(":")[0].strip() != key]
        if value:
            lines.append(f"{key}: {value}")
        self.host.write(path, "\n".join(lines) + ("\n" + bracket + past if bracket else ""))

    def kept(self, target):
        return self._file(target.split(" ", 1)[0])

    def how(self, target):
        container, key = target.split(" ", 1)
        line = f"the line '{key}: {self.wanted(target)}'" if self.wanted(target) else f"no line '{key}:'"
        return f"{line} in {self._file(container)}, then pct reboot {container}"


def lxc_lines(text: str) -> list[tuple[str, str]]:
    parts = (line.partition(":") for line in text.partition("\n[")[0].splitlines())
    return [(key.strip(), value.strip()) for key, colon, value in parts if colon and not key.startswith("#")]
