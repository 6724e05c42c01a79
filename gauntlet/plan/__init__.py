"""The plan: catalog and observations -> what each host is to measure, in which order, and what it is not, and why.

    plan = make(catalog, selection, hosts, attempts)      pure: reads no host and no clock
    save(plan, path); plan = load(path)                   a file on the controller; it may be large
    cell(plan, cell_id)                                   the CELL that a job carries, with its prompts

hosts: {name: HOST}. HOST = {"engine_builds": {engine: build}, and where known "conditions": the stable part of the
fingerprint, "gpus": count, "gpu_memory": bytes of the smallest, "models": allowed names, "store": ids of the weights it
has, "tuning": observed profile, "environment_by_tp": {tp: variables} as its topology asks for, "engines": {engine:
{"arguments", "environment", "environment_by_tp"}} of the inventory}.
attempts: as `plan.attempts.read` gives them.

Plan = {"schema": 1, "campaign", "selection", "made_utc",
  "hosts": {host: {"deployments": [name…], "estimate_s",
            "activations": [{"deployment", "repeat", "closing", "cells": [cell_id…], "estimate_s"}],
            "counts": {"measured", "to_measure", "infeasible", "unavailable", "pending"}}},
  "deployments": {name: DEPLOYMENT}, "workloads": {name: content}, "client": {…},
  "cells": {cell_id: {"spec_id", "deployment", "workload", "concurrency", "requests", "estimate_s"}},
  "not_run": [{"cell_id", "host", "state", "reason"}], "lost": {host: [[model, tp]] that stay for it},
  "table": text for a terminal}
"""

import json
import os
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from gauntlet import engines
from gauntlet.catalog import Catalog
from gauntlet.errors import GauntletError
from gauntlet.names import unknown
from gauntlet.plan import selection as selections
from gauntlet.plan import sharing, workload
from gauntlet.plan.cells import Cells
from gauntlet.plan.deployments import candidates
from gauntlet.plan.estimate import Estimates, declared
from gauntlet.plan.schedule import schedule
from gauntlet.plan.table import table

HOST = (
    "engine_builds", "conditions", "gpus", "gpu_memory", "models", "store", "tuning", "environment_by_tp", "engines",
)  # fmt: skip
OF_ENGINE = ("arguments", "environment", "environment_by_tp")


def make(
    catalog: Catalog, selection: dict, hosts: dict[str, dict], attempts: list[dict], now: datetime | None = None,
    lost: Collection[str] = (),
) -> dict:  # fmt: skip
    """The plan. `lost`: hosts that should be here and cannot be reached. GauntletError on a selector that is wrong, on
    a method that none of the models can have, and on attempts under other conditions when the selection does not say
    what to do with them."""
    _check(hosts)
    chosen = selections.read(selection, catalog)
    campaign = catalog.campaigns[chosen.campaign]
    cells = Cells(catalog, campaign)
    offers = {name: candidates(catalog, chosen, name, host) for name, host in sorted(hosts.items())}
    costs = {name: _costs(cells, offer) for name, offer in offers.items()}
    shares = sharing.split(hosts, costs, attempts, lost)
    estimates = Estimates(attempts)
    plan = {
        "schema": 1,
        "campaign": chosen.campaign,
        "selection": chosen.words(),
        "made_utc": now.isoformat(timespec="seconds") if now else None,
        "hosts": {},
        "deployments": {},
        "cells": {},
        "workloads": {},
        "client": campaign["client"],
        "not_run": [],
        "lost": {name: sorted(map(list, shares[name])) for name in lost},
    }
    for name, offer in offers.items():
        own = [candidate for candidate in offer if candidate.group in shares[name]]
        theirs = [attempt for attempt in attempts if attempt["host"] == name]
        schedule(plan, name, hosts[name], own, cells, theirs, estimates, campaign, chosen.conditions)
    planned = sorted({cell["workload"] for cell in plan["cells"].values()})
    plan["workloads"] = {name: cells.content(name) for name in planned}
    plan["table"] = table(plan)
    return plan


def cell(plan: dict, cell_id: str) -> dict:
    """{"id", "spec_id", "deployment", "workload", "concurrency", "specification", "workload_content", "client",
    "estimate_s"}: a cell as a measuring job carries it."""
    short = plan["cells"][cell_id]
    content = plan["workloads"][short["workload"]]
    return {
        "id": cell_id,
        **{key: short[key] for key in ("spec_id", "deployment", "workload", "concurrency", "estimate_s")},
        "specification": {
            **plan["deployments"][short["deployment"]]["specification"],
            "workload": {**workload.specification(content), "requests": short["requests"]},
            "sampling": content["sampling"],
            "concurrency": short["concurrency"],
            "client": plan["client"],
        },
        "workload_content": {**content, "requests": short["requests"]},
        "client": plan["client"],
    }


def save(plan: dict, path: Path) -> None:
    """Write the plan, whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            json.dump(plan, file, ensure_ascii=False, separators=(",", ":"))
        partial.rename(path)
    except OSError as error:
        raise GauntletError(f"cannot write the plan {path}: {error.strerror}") from None


def load(path: Path) -> dict:
    """A plan from its file."""
    try:
        return json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise GauntletError(f"{path} is no plan: {error}") from None


def utc_now() -> datetime:
    return datetime.now(UTC)


def _check(hosts: dict[str, dict]) -> None:
    if not hosts:
        raise GauntletError("there is no host to plan for; check --limit and the inventory")
    for name, host in hosts.items():
        for key in host:
            if key not in HOST:
                raise GauntletError(f"{name}: {unknown('fact of a host', key, HOST)}")
        for engine, given in (host.get("engines") or {}).items():
            engines.get(engine)
            for key in given:
                if key not in OF_ENGINE:
                    raise GauntletError(f"{name}: gauntlet_engines, {engine}: {unknown('key', key, OF_ENGINE)}")
        if not isinstance(host.get("engine_builds"), dict):
            raise GauntletError(f"{name} has no engine builds; set gauntlet_engine_builds in its inventory")


def _costs(cells: Cells, offer: list) -> dict[sharing.Group, float]:
    """Declared seconds of each group: a function of the catalog alone."""
    costs: dict[sharing.Group, float] = {}
    for candidate in offer:
        costs.setdefault(candidate.group, 0.0)
        if candidate.verdict is None:
            defaults = candidate.model["estimate"]
            costs[candidate.group] += defaults["start_s"] + sum(
                declared(cell, cells.content(cell["workload"]), defaults) for cell in cells.of(candidate)
            )
    return costs
