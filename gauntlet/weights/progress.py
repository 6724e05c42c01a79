"""What a person watching wants to know, as JSON lines in a file that somebody else reads."""

import json
import threading
import time
from pathlib import Path

from gauntlet.weights.space import human

EVERY_S = 1.0


def sentence(line: dict) -> str:
    """A progress line for the terminal."""
    if line["event"] == "note":
        return line["what"]
    done = f"{line['event']} {line['what']}: file {min(line['files'] + 1, line['of'])} of {line['of']}"
    rate = f"{human(line['bytes'])} of {human(line['total'])}, {line['gb_per_s']:.2f} GB/s"
    left = "" if line["remaining_s"] is None else f", {line['remaining_s']:.0f} s left"
    return f"{done}, {rate}{left}"


class Progress:
    """Bytes and files done of a phase; writes a line a second at most, to `path` (None: nowhere).

    Line: `{"event": phase, "what", "bytes", "total", "files", "of", "gb_per_s", "remaining_s"}`.
    """

    def __init__(self, path: Path | None = None):
        self._path = path
        self._lock = threading.Lock()
        self.start("", "", 0, 0)

    def start(self, phase: str, what: str, total: int, files: int) -> None:
        self.phase, self.what, self.total, self.of = phase, what, total, files
        self.bytes = self.files = 0
        self._began = time.monotonic()
        self._said = self._began

    def add(self, n: int) -> None:
        with self._lock:
            self.bytes += n
            if self._path and time.monotonic() - self._said >= EVERY_S:
                self._line()

    def reached(self, total: int) -> None:
        """For a phase that is only seen from outside: so many bytes are there."""
        self.add(max(0, total - self.bytes))

    def file_done(self) -> None:
        with self._lock:
            self.files += 1

    def say(self, sentence: str) -> None:
        self._write({"event": "note", "what": sentence})

    def _line(self) -> None:
        self._said = time.monotonic()
        rate = self.bytes / (self._said - self._began)
        self._write(
            {
                "event": self.phase,
                "what": self.what,
                "bytes": self.bytes,
                "total": self.total,
                "files": self.files,
                "of": self.of,
                "gb_per_s": round(rate / 1e9, 3),
                "remaining_s": round((self.total - self.bytes) / rate, 1) if rate else None,
            }
        )

    def _write(self, line: dict) -> None:
        if self._path:
            with open(self._path, "a") as file:
                file.write(json.dumps(line) + "\n")
