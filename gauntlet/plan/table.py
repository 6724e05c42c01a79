"""The plan as one table for a terminal."""

from collections import Counter

from gauntlet.plan.estimate import words

HEAD = ("host", "model", "method", "tp", "cells", "measured", "to measure", "not possible", "pending", "starts", "time")
NUMBERS = 3  # columns that stand left; the rest are numbers


def table(plan: dict) -> str:
    """A row a deployment, then why cells are not measured, then what is left."""
    lines = [HEAD, *_rows(plan)]
    widths = [max(len(str(line[column])) for line in lines) for column in range(len(HEAD))]
    shown = ["  ".join(_cells(line, widths)).rstrip() for line in lines]
    return "\n".join([*shown, *_reasons(plan), *_totals(plan)])


def _rows(plan: dict) -> list[tuple]:
    states: dict[tuple, Counter] = {}
    for left in plan["not_run"]:
        deployment = plan["cells"][left["cell_id"]]["deployment"]
        states.setdefault((left["host"], deployment), Counter())[left["state"]] += 1
    starts: dict[tuple, list[dict]] = {}
    for host, part in plan["hosts"].items():
        for activation in part["activations"]:
            starts.setdefault((host, activation["deployment"]), []).append(activation)
    rows = []
    for host, deployment in dict.fromkeys([*starts, *states]):
        count, activations = states.get((host, deployment), Counter()), starts.get((host, deployment), [])
        to_measure = len({cell for activation in activations for cell in activation["cells"]})
        model, method, tp = _slug(deployment)
        rows.append((
            host, model, method, tp, sum(count.values()) + to_measure, count["measured"], to_measure,
            count["infeasible"] + count["unavailable"], count["pending"], len(activations),
            words(sum(activation["estimate_s"] for activation in activations)),
        ))  # fmt: skip
    return rows


def _slug(deployment: str) -> tuple[str, str, str]:
    """'qwen3.6-27b.ddtree-b15.tp1-0a1b2c3d' -> its model, method and tp; dots may be in the model's name."""
    model, method, last = deployment.rsplit(".", 2)
    return model, method, last.removeprefix("tp").partition("-")[0]


def _cells(line: tuple, widths: list[int]) -> list[str]:
    return [
        str(value).ljust(width) if column < NUMBERS else str(value).rjust(width)
        for column, (value, width) in enumerate(zip(line, widths, strict=True))
    ]


def _reasons(plan: dict) -> list[str]:
    reasons = Counter((left["state"], left["reason"]) for left in plan["not_run"] if left["state"] != "measured")
    return [""] * bool(reasons) + [f"{count} cells {state}: {reason}" for (state, reason), count in reasons.items()]


def _totals(plan: dict) -> list[str]:
    lines = [""]
    for host, part in plan["hosts"].items():
        counts = part["counts"]
        measured = f"{counts['measured']} cells measured already"
        if counts["to_measure"]:
            work = f"{counts['to_measure']} cells to measure in {len(part['activations'])} server starts"
            lines.append(f"{host}: {work}, about {words(part['estimate_s'])}; {measured}")
        else:
            lines.append(f"{host}: nothing to measure; {measured}")
    return lines
