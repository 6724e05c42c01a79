"""One host's part of the plan: what is measured, what is left, in which order its servers start."""

from collections import defaultdict

from gauntlet.identity import conditions_id
from gauntlet.plan import feasibility
from gauntlet.plan.cells import Cells
from gauntlet.plan.deployments import Candidate
from gauntlet.plan.estimate import Estimates
from gauntlet.plan.measured import Measured, stop_on_other_conditions

Start = tuple[int, bool]  # repeat, closing


def schedule(
    plan: dict,
    name: str,
    host: dict,
    own: list[Candidate],
    cells: Cells,
    attempts: list[dict],
    estimates: Estimates,
    campaign: dict,
    on_other_conditions: str | None,
) -> None:
    """Add a host's activations, counts, deployments, cells and reasons to the plan."""
    today = host.get("conditions")
    counts = dict.fromkeys(("measured", "to_measure", "infeasible", "unavailable", "pending"), 0)
    # what is not observed cannot differ: then, as with keep, attempts count under any conditions
    judged = conditions_id(today) if today and on_other_conditions != "keep" else None
    measured = Measured(attempts)
    to_measure: dict[str, dict[Start, list[dict]]] = {}
    conflicts: list[dict] = []
    served: dict[str, None] = {}  # deployments with a cell that can be measured here, today or ever

    def leave(cell: dict, state: str, reason: str) -> None:
        counts[state] += 1
        plan["not_run"].append({"cell_id": cell["id"], "host": name, "state": state, "reason": reason})

    for candidate in own:
        deployment = candidate.deployment
        starts = _starts(campaign, deployment)
        plan["deployments"][deployment["name"]] = deployment
        predicted = None if candidate.verdict else feasibility.prediction(deployment, candidate.model, host)
        missing_starts = to_measure[deployment["name"]] = defaultdict(list)
        for cell in cells.of(candidate):
            content = cells.content(cell["workload"])
            plan["cells"][cell["id"]] = {key: value for key, value in cell.items() if key != "id"} | {
                "estimate_s": estimates.cell(cell, deployment, content, candidate.model["estimate"])
            }
            verdict = candidate.verdict or feasibility.cell(deployment, content, cell["concurrency"], predicted)
            if verdict:
                leave(cell, *verdict)
                continue
            served[deployment["name"]] = None
            for profile in campaign["tuning"] or [None]:
                here = profile is None or profile == host.get("tuning")
                done = measured.starts(cell, judged if here else None, profile)
                missing = [start for start in starts if start not in done]
                if not missing:
                    leave(cell, "measured", f"{len(starts)} of {len(starts)} server starts")
                elif not here:
                    leave(cell, "pending", _bring(profile, host.get("tuning"), name))
                else:
                    counts["to_measure"] += 1
                    for start in missing:
                        missing_starts[start].append(cell)
                    if judged and on_other_conditions is None:
                        conflicts += [a for a in measured.of(cell, profile) if a["conditions_id"] != judged]

    if conflicts:
        stop_on_other_conditions(name, today, conflicts)
    activations = _ordered(own, to_measure, plan["cells"])
    plan["hosts"][name] = {
        "deployments": list(served),
        "activations": activations,
        "estimate_s": sum(activation["estimate_s"] for activation in activations),
        "counts": counts,
    }


def _starts(campaign: dict, deployment: dict) -> list[Start]:
    """The server starts a cell is measured in; the baseline once more at the end shows drift."""
    closing = [(campaign["repeats"], True)] if campaign["closing"] and deployment["baseline"] else []
    return [(repeat, False) for repeat in range(campaign["repeats"])] + closing


def _bring(profile: str, observed: str | None, name: str) -> str:
    now = f"{name} is {observed}" if observed else f"no tuning profile was observed on {name}"
    command = f"ansible-playbook site.yml -e host_tuning_state={'present' if profile == 'tuned' else 'absent'}"
    return f"tuning {profile}: {now}; bring it with: {command}"


def _ordered(
    own: list[Candidate], to_measure: dict[str, dict[Start, list[dict]]], known: dict[str, dict]
) -> list[dict]:
    """Rounds outermost, so that no method has a part of the day to itself; in a round group by group, its baseline
    first, cheap ones first; each deployment started once a round."""

    def cost(candidate: Candidate) -> float:
        cells = {cell["id"] for start in to_measure[candidate.deployment["name"]].values() for cell in start}
        return candidate.model["estimate"]["start_s"] + sum(known[cell]["estimate_s"] for cell in sorted(cells))

    costs = {candidate.deployment["name"]: cost(candidate) for candidate in own}
    groups: dict[tuple, float] = defaultdict(float)
    for candidate in own:
        groups[candidate.group] += costs[candidate.deployment["name"]]
    order = sorted(own, key=lambda c: (
        groups[c.group], c.group, not c.deployment["baseline"], costs[c.deployment["name"]], c.deployment["name"],
    ))  # fmt: skip
    activations = []
    rounds = {start for starts in to_measure.values() for start in starts}
    for repeat, closing in sorted(rounds, key=lambda start: start[::-1]):
        for candidate in order:
            cells = to_measure[candidate.deployment["name"]].get((repeat, closing))
            if cells:
                ids = sorted((cell["id"] for cell in cells), key=lambda cell: (known[cell]["estimate_s"], cell))
                seconds = candidate.model["estimate"]["start_s"] + sum(known[cell]["estimate_s"] for cell in ids)
                activations.append({
                    "deployment": candidate.deployment["name"], "repeat": repeat, "closing": closing,
                    "cells": ids, "estimate_s": seconds,
                })  # fmt: skip
    return activations
