"""Which files of a folder are the model, and whether they are whole."""

from pathlib import Path

from gauntlet.errors import GauntletError


def require_whole(folder: Path, weights: dict) -> None:
    """Raises GauntletError when the files of a staged folder are not the model that was asked for."""
    entry = weights.get("entry")
    if weights["format"] == "gguf":
        with open(folder / entry, "rb") as file:
            if file.read(4) != b"GGUF":
                raise GauntletError(f"{entry} does not begin with GGUF: it is not such a file")
