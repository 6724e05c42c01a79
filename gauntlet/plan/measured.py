"""What is measured already: attempts at home against today's conditions."""

from collections import defaultdict
from collections.abc import Iterable

from gauntlet.errors import GauntletError
from gauntlet.identity import conditions_id, difference

SHOWN = 12  # differing paths that are worth a line


class Measured:
    """The valid attempts of one host. An attempt is a short record of its cell.json: {host, cell_id, spec_id, repeat,
    closing, valid, conditions_id, conditions, tuning, window_s}."""

    def __init__(self, attempts: Iterable[dict]):
        self._cells: dict[str, list[dict]] = defaultdict(list)
        for attempt in attempts:
            if attempt["valid"]:
                self._cells[attempt["cell_id"]].append(attempt)

    def of(self, cell: dict, tuning: str | None = None) -> list[dict]:
        """The cell's attempts, of one tuning profile where one is given."""
        return [
            attempt
            for attempt in self._cells.get(cell["id"], ())
            if attempt["spec_id"] == cell["spec_id"] and tuning in (None, attempt.get("tuning"))
        ]

    def starts(self, cell: dict, conditions: str | None = None, tuning: str | None = None) -> set[tuple[int, bool]]:
        """(repeat, closing) that need no measuring again, under these conditions or, when None, under any."""
        return {
            (attempt["repeat"], attempt["closing"])
            for attempt in self.of(cell, tuning)
            if conditions in (None, attempt["conditions_id"])
        }


def stop_on_other_conditions(host: str, today: dict, conflicts: list[dict]) -> None:
    """GauntletError that shows what differs between today's conditions and those of attempts that are in the way."""
    if not conflicts:
        return
    now = conditions_id(today)
    by_conditions: dict[str, list[dict]] = defaultdict(list)
    for attempt in conflicts:
        by_conditions[attempt["conditions_id"]].append(attempt)
    parts = []
    for earlier, attempts in by_conditions.items():
        differing = difference(attempts[0].get("conditions") or {}, today)
        lines = [f"    {path}: {_short(a)} -> {_short(b)}" for path, a, b in differing[:SHOWN]]
        if len(differing) > SHOWN:
            lines.append(f"    and {len(differing) - SHOWN} more")
        cells = len({attempt["cell_id"] for attempt in attempts})
        parts.append("\n".join([f"  {cells} cells, conditions {str(earlier)[:8]} -> {now[:8]}:", *lines]))
    raise GauntletError(
        f"{host} is not what it was when cells of this plan were measured; say whether that matters\n"
        + "\n".join(parts)
        + "\n  -e conditions=keep  the earlier attempts count"
        + "\n  -e conditions=anew  they are measured again, the earlier ones stay"
    )


def _short(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
