"""What a host remembers across its reboots: which units were up, and in which boot Gauntlet last worked on it.

`active/<unit>.json`: `{"unit", "since", "boot_id"}`, written by the unit when it starts and removed when it ends other
than by a shutdown; so after a reboot it says what was up, however the machine went down and whoever started the unit.
`owners/<unit>.json`: `{"unit", "owner", "boot_id"}`, who asked for this start of the unit, until it ends.
`seen.json`: `{"boot_id", "utc", "facts"}`, written whenever Gauntlet has brought the host to its declared state; the
facts are what a later look is compared with.
Both in /var/lib/gauntlet; times are UTC, "2026-11-29T14:05:01Z".

A unit calls `python -m gauntlet.hoststate started|stopped UNIT`.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from gauntlet.errors import GauntletError

FOLDER = Path("/var/lib/gauntlet")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's name for this boot; another one after every reboot."""
    return BOOT_ID.read_text().strip()


def started(unit: str, folder: Path = FOLDER) -> None:
    """What was up in an earlier boot is superseded, and who had asked for it: one deployment has the port."""
    for path in [*(folder / "active").glob("*.json"), *(folder / "owners").glob("*.json")]:
        if (_read(path) or {}).get("boot_id") != boot_id():
            path.unlink(missing_ok=True)
    _write(_record(unit, folder), {"unit": unit, "since": utc(), "boot_id": boot_id()})


def stopped(unit: str, folder: Path = FOLDER) -> None:
    _record(unit, folder).unlink(missing_ok=True)
    _owner(unit, folder).unlink(missing_ok=True)


def own(unit: str, owner: str, folder: Path = FOLDER) -> None:
    _write(_owner(unit, folder), {"unit": unit, "owner": owner, "boot_id": boot_id()})


def owned(owner: str, folder: Path = FOLDER) -> list[str]:
    """Units whose present start `owner` asked for, by name."""
    records = filter(None, map(_read, sorted((folder / "owners").glob("*.json"))))
    return [record["unit"] for record in records if record["owner"] == owner]


def owner(unit: str, folder: Path = FOLDER) -> str | None:
    """Who asked for the unit's present start, or for the one that was up when the host went down; None: a person."""
    return (_read(_owner(unit, folder)) or {}).get("owner")


def active(folder: Path = FOLDER) -> list[dict]:
    """Units that are up, or were when the host went down (their `boot_id` is not the host's then), by name."""
    return [record for path in sorted((folder / "active").glob("*.json")) if (record := _read(path))]


def set_seen(facts: dict, folder: Path = FOLDER) -> None:
    """Remembers that Gauntlet worked on this host in this boot, and the facts as they were."""
    last = seen(folder) or {}
    if (last.get("boot_id"), last.get("facts")) != (boot_id(), facts):
        _write(folder / "seen.json", {"boot_id": boot_id(), "utc": utc(), "facts": facts})


def seen(folder: Path = FOLDER) -> dict | None:
    """The boot in which Gauntlet last worked on this host."""
    return _read(folder / "seen.json")


def _record(unit: str, folder: Path) -> Path:
    return folder / "active" / f"{unit}.json"


def _owner(unit: str, folder: Path) -> Path:
    return folder / "owners" / f"{unit}.json"


def utc(seconds: float | None = None) -> str:
    """A moment (seconds since the epoch; None is now) as it is stored and shown."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


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


def _shutting_down() -> bool:
    state = subprocess.run(["systemctl", "is-system-running"], capture_output=True, text=True)
    return state.stdout.strip() == "stopping"


def main() -> None:
    what, unit = sys.argv[1:]
    if what == "started":
        started(unit)
    elif not _shutting_down():
        stopped(unit)


if __name__ == "__main__":
    main()
