"""What a measuring client said, as lines for people. Nothing parses them."""


class Teller:
    """Turns the client's events into sentences, and remembers what failed."""

    def __init__(self, host: str):
        self.host, self.failed = host, []

    def sentences(self, events: list[dict]) -> list[str]:
        return [f"{self.host}: {text}" for event in events if (text := self._say(event))]

    def failure(self, status: int) -> str:
        """Why the client did not measure everything; '' when it did."""
        if not status:
            return ""
        return "; ".join(self.failed) or f"the measuring client ended with status {status} and without a word"

    def _say(self, event: dict) -> str:
        what = event.get("event")
        where = f"cell {event.get('n')}/{event.get('of')} {_short(event.get('cell', ''))}"
        if what == "job_started":
            return f"{event['deployment']}: {event['cells']} cells"
        if what == "cell_started":
            left = event.get("estimate_s")
            return f"{where}" + (f", about {left:.0f} s" if left else "")
        if what == "cell_finished":
            return f"{where}: {self._finished(event)}"
        if what in ("cell_failed", "job_failed"):
            self.failed.append(f"{_short(event.get('cell', ''))}: {event['reason']}".removeprefix(": "))
            return f"{where if 'cell' in event else 'failed'}: {event['reason']}"
        return ""

    def _finished(self, event: dict) -> str:
        speed = event.get("tokens_per_s")
        said = f"{speed:.1f} tokens/s" if speed is not None else "no tokens"
        if event.get("acceptance_length"):
            said += f", acceptance length {event['acceptance_length']:.2f}"
        if not event["valid"]:
            said += "; not valid: " + ", ".join(reason["code"] for reason in event["reasons"])
        if event.get("remaining_s") is not None:
            said += f"; {event['remaining_s']:.0f} s left"
        return said


def _short(cell: str) -> str:
    """The cell without its hash: people know it by its words."""
    return cell.rpartition("-")[0] or cell
