"""Weights from another host that has them, over ssh.

The other host answers by `python -m gauntlet.weights.serve`, which its authorized_keys force for the key that is used
here: it gives out published snapshots and nothing else, whatever is asked.
"""

import json
import subprocess
from dataclasses import dataclass

from gauntlet.errors import GauntletError

TIMEOUT_S = 30


@dataclass(frozen=True)
class Peer:
    """`ssh`: the whole command up to and with the destination, `["ssh", "-i", key, "root@10.77.0.2"]`."""

    name: str
    ssh: list[str]

    def manifest(self, weights_id: str) -> dict:
        """The manifest of its snapshot. Raises GauntletError when it has none or does not answer."""
        try:
            done = subprocess.run([*self.ssh, "manifest", weights_id], capture_output=True, timeout=TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GauntletError(f"{self.name} does not answer: {error}") from error
        if done.returncode:
            raise GauntletError(f"{self.name}: {_last_line(done.stderr)}")
        return json.loads(done.stdout)

    def open(self, weights_id: str, name: str) -> "Stream":
        return Stream(self, [*self.ssh, "file", weights_id, name])


class Stream:
    """The bytes of one file; the end is only believed when the other side says that it was the end."""

    def __init__(self, peer: Peer, command: list[str]):
        self._peer = peer
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def fileno(self) -> int:
        return self._process.stdout.fileno()

    def readinto(self, buffer) -> int:
        n = self._process.stdout.readinto(buffer)
        if not n and self._process.wait():
            raise OSError(f"{self._peer.name}: {_last_line(self._process.stderr.read())}")
        return n

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _last_line(stderr: bytes) -> str:
    return (stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
