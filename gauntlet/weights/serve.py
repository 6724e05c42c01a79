"""What a host gives to others: `manifest ID` and `file ID NAME`, of snapshots that are published whole.

Forced by authorized_keys (`command="… -m gauntlet.weights.serve MEMORY STORE"`), so the words come from
SSH_ORIGINAL_COMMAND; whoever has the key can read published weights and nothing else.
"""

import json
import os
import sys
from pathlib import Path

from gauntlet.errors import GauntletError
from gauntlet.weights.shelf import Shelf, safe_name


def folder(shelves: list[Shelf], weights_id: str) -> tuple[Path, dict]:
    """Where the first shelf that has a verified snapshot keeps it, and its manifest."""
    for shelf in shelves:
        record = shelf.manifest(weights_id)
        if record and record["verified"]:
            return Path(record["folder"] or shelf.path(weights_id)), record
    raise GauntletError(f"has no verified {weights_id}")


def answer(words: list[str], shelves: list[Shelf], out: int) -> None:
    """Writes what is asked for to a file descriptor. Raises GauntletError."""
    if len(words) == 2 and words[0] == "manifest":
        _, record = folder(shelves, words[1])
        os.write(out, json.dumps(record).encode())
    elif len(words) == 3 and words[0] == "file":
        base, record = folder(shelves, words[1])
        if (name := safe_name(words[2])) not in record["files"]:
            raise GauntletError(f"{name} is not a file of {words[1]}")
        _send(base / record["files"][name].get("path", name), out)
    else:
        raise GauntletError("answers 'manifest ID' and 'file ID NAME'")


def _send(path: Path, out: int) -> None:
    source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        while os.sendfile(out, source, None, 1 << 30):
            pass
    finally:
        os.close(source)


def main() -> None:
    words = os.environ.get("SSH_ORIGINAL_COMMAND", "").split(" ")
    shelves = [Shelf(Path(root), memory=False) for root in sys.argv[1:]]
    try:
        answer(words, shelves, sys.stdout.fileno())
    except (GauntletError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
