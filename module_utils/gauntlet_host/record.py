"""What stood on the host before Gauntlet first set anything, and what one run changes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os

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
        self.before = host.text(RECORD)
        content = json.loads(self.before) if self.before else {}
        self.settings: dict = content.get("settings", {})
        self.simulated: list = content.get("simulated", [])
        self.refused: dict = content.get("refused", {})

    def text(self) -> str | None:
        if not self.settings:
            return None
        content = {"settings": self.settings, "simulated": self.simulated, "refused": self.refused}
        return json.dumps(content, indent=1, sort_keys=True) + "\n"


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
