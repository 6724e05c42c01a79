"""What Gauntlet remembers on a host across its reboots: which deployment was active, and in which boot it last worked.

`active.json`: `{"deployment", "unit", "since", "boot_id"}`, there while a deployment is meant to be up.
`seen.json`: `{"boot_id", "utc"}`, written whenever Gauntlet has brought the host to its declared state.
Both in /var/lib/gauntlet, which outlives a reboot; times are UTC, "2026-11-29T14:05:01Z".
"""

import json
import os
import time
from pathlib import Path

from gauntlet.errors import GauntletError

FOLDER = Path("/var/lib/gauntlet")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's name for this boot; another one after every reboot."""
    return BOOT_ID.read_text().strip()


def set_active(deployment: str, unit: str, folder: Path = FOLDER) -> None:
    """Remembers the deployment that is up now, so that restage can bring it back after a reboot."""
    _write(folder / "active.json", {"deployment": deployment, "unit": unit, "since": _now(), "boot_id": boot_id()})


def clear_active(folder: Path = FOLDER) -> None:
    """Nothing is meant to be up."""
    (folder / "active.json").unlink(missing_ok=True)


def active(folder: Path = FOLDER) -> dict | None:
    """The deployment that is meant to be up; its `boot_id` is another than the host's after a reboot."""
    return _read(folder / "active.json")


def set_seen(folder: Path = FOLDER) -> bool:
    """Remembers this boot -> whether it was another one than the last."""
    last, now = seen(folder), boot_id()
    if last and last["boot_id"] == now:
        return False
    _write(folder / "seen.json", {"boot_id": now, "utc": _now()})
    return True


def seen(folder: Path = FOLDER) -> dict | None:
    """The boot in which Gauntlet last worked on this host."""
    return _read(folder / "seen.json")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _read(path: Path) -> dict | None:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise GauntletError(f"{path} cannot be read: {error}; remove it to go on") from error


def _write(path: Path, content: dict) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with open(part, "w") as file:
        json.dump(content, file, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
