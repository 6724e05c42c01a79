"""What cannot be, decided before a server starts: with its arithmetic, or with what is missing."""

from typing import NamedTuple

# SGLang keeps max(topk x steps, draft tokens) free behind a prompt for these, nothing for the others
# (tokenizer_manager._validate_one_request, 0.5.10 to 0.5.23)
RESERVING = {"EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP"}
GIB = 1 << 30


class Verdict(NamedTuple):
    """Why a cell is not measured: state is 'infeasible' or 'unavailable'."""

    state: str
    reason: str


def engine(model: dict, method: dict, host: dict, name: str) -> tuple[str | None, str | None]:
    """(engine, None), or (None, the sentence why this model cannot have this method on this host)."""
    builds = host["engine_builds"]
    of_model = [engine for engine in model["engines"] if engine in builds]
    if not of_model:
        return None, (
            f"{model['name']} is served by {' or '.join(model['engines'])}, and {name} has a build of "
            f"{' and '.join(sorted(builds)) or 'no engine'} (gauntlet_engine_builds)"
        )
    shared = [engine for engine in of_model if engine in method["engines"]]
    if not shared:
        return None, (
            f"{model['name']} runs on {' or '.join(of_model)}, which does not have '{method['name']}' "
            f"({' and '.join(method['engines'])} has)"
        )
    if method["models"] is not None and model["name"] not in method["models"]:
        return None, f"'{method['name']}' fits {', '.join(method['models'])}, not {model['name']}"
    if method["drafter"] and method["drafter"] not in model["drafters"]:
        return None, f"drafter: no '{method['drafter']}' drafter is known for {model['name']}"
    return shared[0], None


def deployment(deployment: dict, model: dict, method: dict, host: dict, name: str) -> Verdict | None:
    """What forbids every cell of a deployment, or None."""
    drafter = deployment["weights"].get("drafter")
    if drafter and (reason := _missing(drafter, host)):
        return Verdict("unavailable", f"drafter: {reason}")
    if reason := _unknown_algorithm(deployment, host):
        return Verdict("unavailable", reason)
    if reason := _parallelism(deployment, model, host, name):
        return Verdict("infeasible", reason)
    return None


def cell(deployment: dict, content: dict, concurrency: int) -> Verdict | None:
    """What forbids one cell of a deployment that can be started, or None."""
    context, output, reserve = content["context_tokens"] or 0, content["output_tokens"], deployment["reserve"]
    window = deployment["context_length"]
    if context + output + reserve > window:
        return Verdict(
            "infeasible",
            f"context {context} + output {output} + reserve {reserve} = {context + output + reserve} tokens, more than "
            f"the window of {window}",
        )
    running = deployment["max_running_requests"]
    if running is not None and concurrency > running:
        return Verdict("infeasible", f"concurrency {concurrency}, and the server runs {running} requests at once")
    return None


def limits(engine: str, arguments: dict, model: dict) -> tuple[int, int | None]:
    """(tokens a request may have, requests that run at once or None where the engine decides)."""
    if engine == "llamacpp":  # one window, split evenly between its slots
        slots = int(arguments.get("parallel", 1))
        return min(int(arguments.get("ctx-size", model["context_window"])) // slots, model["context_window"]), slots
    running = arguments.get("max-running-requests")
    return int(arguments.get("context-length", model["context_window"])), None if running is None else int(running)


def context_reserve(method: dict, engine: str, arguments: dict) -> int:
    """Tokens of the window that the engine keeps for the method."""
    if engine != "sglang" or str(arguments.get("speculative-algorithm", "")).upper() not in RESERVING:
        return 0
    shape = method["reserve"]
    return max(shape.get("topk", 0) * shape.get("steps", 0), shape.get("draft_tokens", 0))


def _missing(drafter: dict, host: dict) -> str | None:
    """A drafter that nobody has seen counts as absent until the host's store holds it."""
    if drafter["status"] == "known" or drafter["id"] in (host.get("store") or ()):
        return None
    return f"{drafter['id']} is {drafter['status']}{': ' + drafter['note'] if drafter['note'] else ''}"


def _unknown_algorithm(deployment: dict, host: dict) -> str | None:
    algorithm = deployment["requires"].get("algorithm")
    known = (host.get("algorithms") or {}).get(deployment["engine"])
    if algorithm is None or known is None or algorithm in known:
        return None
    return f"build: {deployment['engine_build']} does not know {algorithm}, it knows {', '.join(sorted(known))}"


def _parallelism(deployment: dict, model: dict, host: dict, name: str) -> str | None:
    tp = deployment["tp"]
    if deployment["engine"] == "llamacpp":
        return None if tp == 1 else f"tp {tp}: llama.cpp is measured at tp 1"
    gpus = host.get("gpus")
    if gpus is not None and tp > gpus:
        return f"tp {tp} needs {tp} GPUs, {name} has {gpus}"
    for role, weights in deployment["weights"].items():
        shape = model["shape"] if role == "model" else (weights or {}).get("shape") or {}
        if reason := _heads(shape, tp):
            return f"tp {tp}: {reason} ({role})"
    return None


def _heads(shape: dict, tp: int) -> str | None:
    """SGLang's rule: every rank needs whole query heads; key/value heads are split evenly or replicated evenly."""
    for key in ("heads", "linear_value_heads", "linear_key_heads"):
        if shape.get(key, 0) % tp:
            return f"{shape[key]} {key.replace('_', ' ')} do not divide by {tp}"
    kv = shape.get("kv_heads")
    if kv and shape.get("attention") != "mla" and (kv % tp if kv >= tp else tp % kv):
        return f"{kv} key/value heads can neither be split nor replicated over {tp} ranks evenly"
    return None
