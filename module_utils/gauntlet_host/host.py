"""A machine seen through its files and its commands; everything else in this package reads through it."""

from __future__ import annotations

import glob
import os
import subprocess

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class HostError(ValueError):
    """A host that cannot be read or set as asked, as one clear sentence."""


class Absent(HostError):
    """What is asked about does not exist on this host: reported, not a fault."""


class Unreadable(HostError):
    """It exists, and this user or this container may not see it."""


class Host:
    """Files below `root`; commands only from below it too, so a test's root never touches the real machine.

    `unreadable` collects what exists but refused to be read: "<path>: needs root".
    """

    def __init__(self, root: str = "/"):
        self.root = root
        self.unreadable: list[str] = []

    def path(self, name: str) -> str:
        return os.path.join(self.root, name.lstrip("/"))

    def bytes(self, name: str, limit: int = -1) -> bytes | None:
        """The file's content, or None where it is absent or refuses to be read (then noted in `unreadable`)."""
        try:
            with open(self.path(name), "rb", buffering=0) as file:
                return file.read() if limit < 0 else file.read(limit)
        except PermissionError:
            self.note(name, "needs root")
        except OSError:
            # sysfs answers ENODATA, EINVAL, EIO for attributes a device does not have
            pass
        return None

    def text(self, name: str) -> str | None:
        content = self.bytes(name)
        return None if content is None else content.decode("utf-8", "replace").strip()

    def number(self, name: str) -> int | None:
        """An integer written as decimal or 0x hex."""
        text = self.text(name)
        try:
            return None if text is None else int(text, 0)
        except ValueError:
            return None

    def note(self, name: str, why: str) -> None:
        line = f"{name}: {why}"
        if line not in self.unreadable:
            self.unreadable.append(line)

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def entries(self, name: str) -> list[str]:
        """Names in a folder, sorted; empty where there is no such folder."""
        try:
            return sorted(os.listdir(self.path(name)))
        except PermissionError:
            self.note(name, "needs root")
        except OSError:
            pass
        return []

    def glob(self, pattern: str) -> list[str]:
        """Paths that match, sorted, as they are called on the host."""
        prefix = self.root.rstrip("/")
        return sorted(path[len(prefix) :] for path in glob.glob(prefix + pattern))

    def link(self, name: str) -> str | None:
        """The last part of a symbolic link's target: how sysfs names a driver or a group."""
        try:
            return os.path.basename(os.readlink(self.path(name)))
        except OSError:
            return None

    def run(self, *argv: str, timeout: float = 20) -> tuple[int, str, str]:
        """(exit status, standard output, standard error) of a command in the C locale; 127 where it is absent."""
        program = self.which(argv[0])
        if program is None:
            return 127, "", f"{argv[0]} is not installed"
        try:
            done = subprocess.run(
                [program, *argv[1:]],
                env={"PATH": SEARCH_PATH, "LC_ALL": "C", "LANG": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return 126, "", str(error)
        return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace").strip()

    def command(self, *argv: str, timeout: float = 20) -> str | None:
        """What a command prints; None where it is absent, fails or takes too long."""
        status, output, _ = self.run(*argv, timeout=timeout)
        return output if status == 0 else None

    def write(self, name: str, content: str) -> None:
        """Write a line into a file of the kernel. Raises HostError that says why it was refused."""
        try:
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(content + "\n")
        except OSError as error:
            raise HostError(f"{name} refuses {content!r}: {error.strerror}") from error

    def which(self, program: str) -> str | None:
        for folder in SEARCH_PATH.split(":"):
            path = os.path.join(self.path(folder), program)
            if os.access(path, os.X_OK):
                return path
        return None
