"""The files that keep settings over a reboot: written whole, removed when nothing needs them."""

from __future__ import annotations

import contextlib
import json
import os
from importlib import import_module

from . import settings
from .host import Host
from .record import Change, replace

WANTED = "/etc/gauntlet/host-tuning.json"
LIBEXEC = "/opt/gauntlet/libexec"
UNIT = f"/etc/systemd/system/{settings.BOOT_UNIT}"
ENABLED = "/etc/systemd/system/multi-user.target.d/90-gauntlet-host-tuning.conf"

UNIT_TEXT = f"""# Written by Gauntlet's host_tuning; host_tuning_state=absent removes it.
[Unit]
Description=Settings of this host that do not outlive a reboot
After=systemd-modules-load.service systemd-sysctl.service nvidia-persistenced.service
Before=pve-guests.service
ConditionPathExists={WANTED}
# a udev rule starts it once more for a device that appears
StartLimitIntervalSec=0

[Service]
Type=oneshot
WorkingDirectory={LIBEXEC}
ExecStart={{python}} -B -m gauntlet_host.boot
"""
# a drop-in is one more file to write and to remove; `systemctl enable` would be one more state
ENABLED_TEXT = f"[Unit]\nWants={settings.BOOT_UNIT}\n"
PROGRAM = (
    "__init__", "host", "pci", "read_request", "gpu", "place", "topology",
    "settings", "explained", "kinds", "record", "files", "tuning", "boot",
)  # fmt: skip


def sources() -> dict:
    """{file name: text} of this package, wherever it was loaded from: a folder, or the archive of an Ansible module."""
    modules = {name: import_module(f"{__package__}.{name}" if name != "__init__" else __package__) for name in PROGRAM}
    return {f"{name}.py": module.__spec__.loader.get_source(module.__spec__.name) for name, module in modules.items()}


def keep(host: Host, wanted: list, simulated: bool, change: Change) -> set:
    """Write, or remove, everything that keeps `wanted` over a reboot; which daemons must read anew."""
    content: dict = dict.fromkeys(_owned(), None)
    for setting in wanted:
        for path, lines in setting.files().items():
            content[path] = (content[path] or "# Written by Gauntlet's host_tuning.\n") + "\n".join(lines) + "\n"
    boot = [setting.spec for setting in wanted if setting.at_boot]
    if boot:
        python = "/usr/bin/python3" if host.exists("/usr/bin/python3") else host.which("python3") or "/usr/bin/python3"
        content[WANTED] = json.dumps({"settings": boot, "simulated": simulated}, indent=1, sort_keys=True) + "\n"
        content.update({UNIT: UNIT_TEXT.format(python=python), ENABLED: ENABLED_TEXT})
        content.update((f"{LIBEXEC}/gauntlet_host/{name}", text) for name, text in sources().items())
    changed = {path for path, text in content.items() if _write(host, path, text, change)}
    if not boot and not change.check:
        with contextlib.suppress(OSError):
            os.rmdir(host.path(f"{LIBEXEC}/gauntlet_host"))
    return changed


def _owned() -> list[str]:
    daemons = [name for name, _ in settings.Systemd.DAEMONS.values()]
    return [
        settings.SYSCTL_FILE,
        *(f"/etc/systemd/{name}.conf.d/90-gauntlet.conf" for name in daemons),
        WANTED,
        UNIT,
        ENABLED,
        settings.RULE,
        *(f"{LIBEXEC}/gauntlet_host/{name}" for name in sources()),
    ]


def _write(host: Host, path: str, text: str | None, change: Change) -> bool:
    """Whether the file was changed or, in a check, would be."""
    before = host.bytes(path)
    if before == (None if text is None else text.encode()):
        return False
    was = None if before is None else before.decode("utf-8", "replace")
    try:
        if not change.check:
            replace(host, path, text)
    except OSError as error:
        change.refused.append(f"{path} could not be {'removed' if text is None else 'written'}: {error.strerror}")
        return False
    change.files.append({"path": path, "before": was, "after": text})
    return True


def tell(host: Host, paths: set) -> None:
    """Tell whoever reads the changed files."""
    if any(path.startswith("/etc/systemd/system") for path in paths):
        host.run("systemctl", "daemon-reload")
    if settings.RULE in paths:
        host.run("udevadm", "control", "--reload")
    if any(path.startswith("/etc/systemd/logind") for path in paths):
        host.run("systemctl", "kill", "--signal=HUP", "systemd-logind.service")
