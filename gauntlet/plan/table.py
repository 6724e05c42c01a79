"""The plan as one table for a terminal."""

import re
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
        count = states.get((host, deployment), Counter())
        activations = starts.get((host, deployment), [])
        to_measure = len({cell for activation in activations for cell in activation["cells"]})
        the = plan["deployments"][deployment]
        rows.append((
            host, the["model"], _method(the), the["tp"],
            sum(count.values()) + to_measure, count["measured"], to_measure,
            count["infeasible"] + count["unavailable"], count["pending"], len(activations),
            words(sum(activation["estimate_s"] for activation in activations)),
        ))  # fmt: skip
    return rows


def _method(deployment: dict) -> str:
    profile = deployment["environment_profile"]
    return deployment["method"] if profile == "default" else f"{deployment['method']} [{profile}]"


def _cells(line: tuple, widths: list[int]) -> list[str]:
    return [
        str(value).ljust(width) if column < NUMBERS else str(value).rjust(width)
        for column, (value, width) in enumerate(zip(line, widths, strict=True))
    ]


def _reasons(plan: dict) -> list[str]:
    """Why cells are not measured, a line a deployment and reason; arithmetic in brackets stays in the file."""
    reasons: Counter = Counter()
    for left in plan["not_run"]:
        if left["state"] != "measured":
            the = plan["deployments"][plan["cells"][left["cell_id"]]["deployment"]]
            where = f"{the['model']}, {_method(the)}, tp {the['tp']}"
            reasons[where, left["state"], re.sub(r" \(.*\)$", "", left["reason"])] += 1
    lines = [f"{where}: {count} cells {state}, {reason}" for (where, state, reason), count in reasons.items()]
    return ["", *lines] if lines else []


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
    for host, groups in plan["lost"].items():
        stays = " and ".join(f"{model} tp {tp}" for model, tp in groups)
        if stays:
            lines.append(f"{host}: cannot be reached; it has begun {stays}, which stays for it (or: --limit '!{host}')")
    return lines
