"""How long a cell and a server start take: from earlier attempts, else from the model's declared defaults."""

from collections.abc import Iterable

from gauntlet.plan import workload

WARM_UP_ROUNDS = 2  # windows of one request a stream, at the least


class Estimates:
    """Seconds. Earlier attempts count for their own cell on any host, then for the same work under another spec."""

    def __init__(self, attempts: Iterable[dict]):
        self._cells: dict[str, float] = {}
        self._alike: dict[tuple, float] = {}
        for attempt in sorted(attempts, key=lambda attempt: attempt["started_utc"] or ""):  # the latest one wins
            if attempt["window_s"]:
                self._cells[attempt["cell_id"]] = attempt["window_s"]
                self._alike[_work(attempt)] = attempt["window_s"]

    def cell(self, cell: dict, deployment: dict, content: dict, defaults: dict) -> float:
        """Warm-up and window of a cell."""
        window = self._cells.get(cell["id"])
        if window is None and self._alike:
            window = self._alike.get(_work({**deployment, **cell}))
        if window is None:
            window = declared(cell, content, defaults)
        return window * (1 + WARM_UP_ROUNDS * cell["concurrency"] / cell["requests"])


def declared(cell: dict, content: dict, defaults: dict) -> float:
    """A cell's window by the model's `estimate`: output at tokens_per_s x concurrency^scaling, plus its prompts."""
    requests = cell["requests"] * workload.turns(content) / len(content["prompts"])
    speed = defaults["tokens_per_s"] * cell["concurrency"] ** defaults["scaling"]
    prompt = (content["context_tokens"] or 0) / defaults["prefill_tokens_per_s"]
    return requests * (content["output_tokens"] / speed + prompt)


def words(seconds: float) -> str:
    """'40 s', '12 min', '3 h 05 min'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def _work(of: dict) -> tuple:
    return of["model"], of["method"], of["tp"], of["workload"], of["concurrency"]
