"""From the plan to what one host must measure now: the job that the measuring client reads."""

from gauntlet import plan as plans
from gauntlet.errors import GauntletError


def make(plan: dict, host: str, deployment: str, repeat: int, closing: bool = False, **given) -> dict:
    """The job of one activation (one server start) of `deployment` on `host`.

    `given` is what only the host could tell: endpoint, unit, invocation, conditions, observed, limits, results, …
    Raises GauntletError when the plan holds no such activation.
    """
    wanted = (deployment, repeat, closing)
    for start in plan["hosts"].get(host, {}).get("activations", []):
        if (start["deployment"], start["repeat"], start.get("closing", False)) == wanted:
            break
    else:
        raise GauntletError(f"the plan has no start {repeat} of {deployment} for {host}; run bench.yml again")
    the = plan["deployments"][deployment]
    return {
        "schema": 1,
        "host": host,
        "campaign": plan["campaign"],
        "deployment": {key: value for key, value in the.items() if key != "specification"},
        "repeat": repeat,
        "closing": closing,
        "cells": [plans.cell(plan, cell) for cell in start["cells"]],
        "calibrate_concurrency": max(cell["concurrency"] for cell in plan["cells"].values()),
        **given,
        "simulated": sorted({*the.get("simulated", []), *given.get("simulated", [])}),
    }
