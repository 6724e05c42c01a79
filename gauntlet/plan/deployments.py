"""Which deployments a campaign means on a host, each with its specification or the reason why it cannot be."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gauntlet import engines
from gauntlet.catalog import Catalog
from gauntlet.errors import GauntletError
from gauntlet.identity import spec_id
from gauntlet.plan import feasibility
from gauntlet.plan.selection import Selection, members, narrowed


@dataclass
class Candidate:
    """One deployment with the (workload, concurrency) pairs that are asked of it."""

    deployment: dict
    model: dict
    method: dict
    pairs: dict[tuple[str, int], None] = field(default_factory=dict)
    verdict: feasibility.Verdict | None = None  # for all of its cells

    @property
    def group(self) -> tuple[str, int]:
        """Comparison group: a speed-up is only within it."""
        return self.deployment["model"], self.deployment["tp"]


def candidates(catalog: Catalog, selection: Selection, name: str, host: dict) -> list[Candidate]:
    """The deployments of the selection on a host, in the order of the campaign. Raises GauntletError on a method that
    was asked for and that no model of the campaign can have here."""
    campaign = catalog.get("campaigns", selection.campaign)
    found: dict[str, Candidate] = {}
    refused: dict[str, list[str]] = {}
    models = _models(catalog, campaign, selection, host, name)
    for model in models:
        for block, method, tp in _blocks(catalog, campaign, selection):
            engine, reason = feasibility.engine(model, method, host, name)
            if engine is None:
                if _asked(selection, method):
                    refused.setdefault(method["name"], []).append(reason)
                    continue
                if _came_with_family(catalog, campaign, method):
                    continue
                engine = next(iter(model["engines"]))
            for profile, environment in _environments(catalog, campaign, tp).items():
                made = _deployment(model, method, tp, engine, campaign, host, profile, environment)
                candidate = found.setdefault(made["name"], Candidate(made, model, method))
                candidate.verdict = feasibility.Verdict("unavailable", reason) if reason else feasibility.deployment(
                    made, model, method, host, name
                )  # fmt: skip
                candidate.pairs.update(dict.fromkeys(block))
    possible = [
        m
        for m in catalog.methods
        if any(feasibility.engine(model, catalog.methods[m], host, name)[0] for model in models)
    ]
    _refuse(selection, catalog, refused, possible)
    return [candidate for candidate in found.values() if candidate.pairs]


def _models(catalog: Catalog, campaign: dict, selection: Selection, host: dict, name: str) -> list[dict]:
    wanted = selection.models or tuple(campaign["models"])
    allowed = host.get("models")
    models = [model for model in wanted if allowed is None or model in allowed]
    if not models:
        raise GauntletError(f"{name} may not serve {', '.join(wanted)}; its models: {', '.join(allowed) or 'none'}")
    entries = [catalog.get("models", model) for model in models]
    if servable := [model for model in entries if set(model["engines"]) & set(host["engine_builds"])]:
        return servable
    wanted_engines = " or ".join(dict.fromkeys(engine for model in entries for engine in model["engines"]))
    builds = " and ".join(sorted(host["engine_builds"])) or "no engine"
    raise GauntletError(
        f"{', '.join(models)}: served by {wanted_engines}, and {name} has {builds} (gauntlet_engine_builds)"
    )


def _environments(catalog: Catalog, campaign: dict, tp: int) -> dict[str, dict]:
    """Profile -> variables. A list names settings of the kind environment, of which one may be for one tp alone (a
    graph file for eight GPUs breaks a group of four); a mapping holds the variables itself."""
    given = campaign["environments"]
    if isinstance(given, dict):
        return {profile: variables or {} for profile, variables in given.items()}
    settings = {profile: catalog.get("settings", profile) for profile in given}
    for profile, setting in settings.items():
        if setting.get("kind") != "environment":
            raise GauntletError(f"campaign '{campaign['name']}': setting '{profile}' is not of the kind environment")
    return {name: setting["environment"] for name, setting in settings.items() if setting.get("tp") in (None, tp)}


def _blocks(catalog: Catalog, campaign: dict, selection: Selection) -> Iterator[tuple[list, dict, int]]:
    """(pairs of workload and concurrency, method, tp), block by block of the matrix, the baseline first."""
    blocks = campaign["matrix"]
    methods = [members(block["methods"] or campaign["methods"], catalog) for block in blocks]
    tps = [block["tp"] or campaign["tp"] for block in blocks]
    anywhere = {
        "methods": {method for block in methods for method in block},
        "tp": {tp for block in tps for tp in block},
        "workloads": {workload for block in blocks for workload in block["workloads"]},
        "concurrency": {concurrency for block in blocks for concurrency in block["concurrency"]},
    }
    asked = tuple(members(selection.methods, catalog))
    for block, own_methods, own_tps in zip(blocks, methods, tps, strict=True):
        workloads = narrowed(block["workloads"], selection.workloads, anywhere["workloads"])
        concurrencies = narrowed(block["concurrency"], selection.concurrencies, anywhere["concurrency"])
        pairs = [(workload, concurrency) for workload in workloads for concurrency in concurrencies]
        chosen = [catalog.methods[method] for method in narrowed(own_methods, asked, anywhere["methods"])]
        baselines = [m for m in (catalog.methods[method] for method in own_methods) if m["baseline"]]
        if selection.baseline:
            chosen = baselines + [method for method in chosen if method not in baselines]
        else:
            chosen = [method for method in chosen if not method["baseline"] or method["name"] in asked]
        for tp in narrowed(own_tps, selection.tps, anywhere["tp"]):
            for method in chosen:
                yield pairs, method, tp


def _asked(selection: Selection, method: dict) -> bool:
    return bool({method["name"], method["family"]} & set(selection.methods))


def _came_with_family(catalog: Catalog, campaign: dict, method: dict) -> bool:
    """A member that a family's name brought along is left out in silence where it cannot be; a named one is shown."""
    names = {name for block in (campaign, *campaign["matrix"]) for name in block["methods"] or ()}
    alone = sum(entry["family"] == method["family"] for entry in catalog.methods.values()) == 1
    return not alone and method["family"] in names and method["name"] not in names - {method["family"]}


def _refuse(selection: Selection, catalog: Catalog, refused: dict[str, list[str]], possible: list[str]) -> None:
    """What was asked for, by name or family, must be possible for one of its members at least."""
    for asked in selection.methods:
        wanted = members([asked], catalog)
        if not any(method in possible for method in wanted):
            reasons = dict.fromkeys(reason for method in wanted for reason in refused.get(method, []))
            can = ", ".join(sorted(possible))
            raise GauntletError(f"method '{asked}' cannot be measured here: {'; '.join(reasons)}; possible: {can}")


def _deployment(
    model: dict, method: dict, tp: int, engine: str, campaign: dict, host: dict, profile: str, environment: dict
) -> dict:
    declared = (model["engines"], method["engines"], campaign["engines"], host.get("engines") or {})
    layers = [of.get(engine) or {} for of in declared]
    arguments = _merged(layer.get("arguments") or {} for layer in layers)
    variables = _merged([
        (host.get("environment_by_tp") or {}).get(str(tp)) or {},
        *(layer.get("environment") or {} for layer in layers),
        (layers[-1].get("environment_by_tp") or {}).get(str(tp)) or {},
        environment,
    ])  # fmt: skip
    variables = {name: str(value) for name, value in variables.items()}
    weights = {"model": model["weights"]}
    if method["drafter"]:
        weights["drafter"] = model["drafters"].get(method["drafter"])
    specification = {
        "engine": engine,
        "engine_build": host["engine_builds"].get(engine),
        "tp": tp,
        "arguments": {flag: value if value is True else str(value) for flag, value in arguments.items()},
        "environment": variables,
        "weights": {role: entry and _identity(entry) for role, entry in weights.items()},
    }
    identity = spec_id(specification)
    context_length, max_running_requests = feasibility.limits(engine, arguments, model)
    drafter = weights.get("drafter") or {}
    notes = [*method["notes"], *model["notes"], *([drafter["note"]] if drafter.get("note") else [])]
    return {
        "name": f"{model['name']}.{method['name']}.tp{tp}-{identity[:8]}",
        "spec_id": identity,
        "model": model["name"],
        "method": method["name"],
        "family": method["family"],
        "baseline": method["baseline"],
        "tp": tp,
        "engine": engine,
        "engine_build": specification["engine_build"],
        "arguments": arguments,
        "environment": variables,
        "environment_profile": profile,
        "requires": (method["engines"].get(engine) or {}).get("requires") or {},
        "weights": weights,
        "context_length": context_length,
        "max_running_requests": max_running_requests,
        "reserve": feasibility.context_reserve(engine, arguments),
        "notes": notes,
        "simulated": engines.simulated(specification),
        "specification": specification,
    }


def _merged(layers) -> dict:
    """Later layers win; null and false remove what an earlier one set."""
    merged: dict = {}
    for layer in layers:
        merged |= layer
    return {key: value for key, value in merged.items() if value is not None and value is not False}


def _identity(weights: dict) -> dict:
    """What of a weights entry is content: its source, the digests of its files. Names and local paths are not."""
    source = {key: value for key, value in weights["source"].items() if key != "path"}
    files = {name: file["sha256"] for name, file in weights["files"].items()}
    named = {} if files or source["kind"] != "local" else {"id": weights["id"]}
    if (entry := weights["entry"]) and len(files) != 1:
        named["entry"] = files.get(entry, entry)  # which of them is served
    return {"format": weights["format"], "source": source, "files": files, **named}
