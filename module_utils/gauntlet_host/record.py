"""What stood on the host before Gauntlet first set anything, and what one run changes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import Iterable

from .host import Host, HostError
from .settings import Setting

RECORD = "/var/lib/gauntlet/host-tuning.json"


class Record:
    """What Gauntlet found before it first set anything, on the host; {} before that.

    {"settings": {name: {"spec": …, "originals": {target: {"value", "identity"}}}}, "simulated": [name, …],
     "refused": {"name target": the value that did not take}}
    """

    def __init__(self, host: Host):
        self.host = host
        try:
            content = json.loads(host.text(RECORD) or "{}")
        except ValueError as error:
            raise HostError(f"{RECORD} is damaged, the original values with it: {error}; move it away") from error
        self.settings: dict = content.get("settings", {})
        self.simulated: list = content.get("simulated", [])
        self.refused: dict = content.get("refused", {})

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget settings that were given back."""
        self.settings = {name: entry for name, entry in self.settings.items() if name in names}
        self.refused = {key: value for key, value in self.refused.items() if key.split(" ")[0] in names}

    def save(self, change: Change) -> None:
        """Raises HostError where it cannot be written: what cannot be undone is not done."""
        if change.check:
            return
        content = {"settings": self.settings, "simulated": self.simulated, "refused": self.refused}
        text = json.dumps(content, indent=1, sort_keys=True) + "\n" if self.settings else None
        try:
            replace(self.host, RECORD, text)
        except OSError as error:
            raise HostError(f"{RECORD} cannot be written, so nothing is set: {error.strerror}") from error


class Change:
    """What one run did or would do: changed targets, files, and what did not take with the reason."""

    def __init__(self, check: bool, record: Record):
        self.check, self.record = check, record
        self.targets: list[dict] = []
        self.files: list[dict] = []
        self.refused: list[str] = []

    @property
    def changed(self) -> bool:
        return bool(self.targets or self.files)

    def write(self, setting: Setting, target: str, before: str, value: str) -> None:
        """Set one target. A check expects what was refused last time to be refused again."""
        key = f"{setting.name} {target}"
        if not self.check:
            try:
                setting.write(target, value)
            except HostError as error:
                self.refuse(key, value, f"{setting.name}: {error}")
                return
            self.record.refused.pop(key, None)
        elif self.record.refused.get(key) == value:
            self.refused.append(f"{setting.name}: {target} did not take {value} last time")
            return
        self.targets.append({"setting": setting.name, "target": target, "before": before, "after": value})

    def refuse(self, key: str, value: str, sentence: str) -> None:
        self.record.refused[key] = value
        self.refused.append(sentence)


@contextlib.contextmanager
def lock(host: Host, check: bool):
    """One at a time: at boot the unit and a playbook may meet."""
    if check:
        yield
        return
    folder = host.path(os.path.dirname(RECORD))
    try:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        file = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise HostError(f"{os.path.dirname(RECORD)} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def replace(host: Host, name: str, text: str | None) -> bool:
    """Whether the file was not as it should be. Written whole: temporary file, then renamed; None removes it."""
    if host.bytes(name) == (None if text is None else text.encode()):
        return False
    path = host.path(name)
    if text is None:
        os.unlink(path)
        return True
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o644)
    os.rename(f"{path}.new", path)
    return True
