"""What cannot be, decided before a server starts: with its arithmetic, or with what is missing."""

import re
from typing import NamedTuple

from gauntlet import memory
from gauntlet.engines import releases
from gauntlet.errors import GauntletError

# SGLang keeps max(topk x steps, draft tokens) free behind a prompt for these, nothing for the others
# (tokenizer_manager._validate_one_request, 0.5.10 to 0.5.23)
RESERVING = {"EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP"}
RELEASE = re.compile(r"[a-z]+-\d+\.\d+\.\d+(\.post\d+)?")  # a build that is a release and nothing but
GIB = 1 << 30
MIB_PER_GIB = 1024


class Verdict(NamedTuple):
    """Why a cell is not measured: state is 'infeasible' or 'unavailable'."""

    state: str
    reason: str


def engine(model: dict, method: dict, host: dict, name: str) -> tuple[str | None, str | None]:
    """(engine, None), or (None, the sentence why this model cannot have this method on this host)."""
    of_model = [engine for engine in model["engines"] if engine in host["engine_builds"]]
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
    if reason := _unknown_algorithm(deployment):
        return Verdict("unavailable", reason)
    if reason := _unmet(deployment):
        return Verdict("infeasible", reason)
    if reason := _parallelism(deployment, model, host, name):
        return Verdict("infeasible", reason)
    return None


def cell(deployment: dict, content: dict, concurrency: int, predicted: dict | None = None) -> Verdict | None:
    """What forbids one cell of a deployment that can be started, or None."""
    context, output, reserve = content["context_tokens"] or 0, content["output_tokens"], deployment["reserve"]
    window, needed = deployment["context_length"], context + output + reserve
    if needed > window:
        sum_of = f"context {context} + output {output} + reserve {reserve} = {needed} tokens"
        return Verdict("infeasible", f"{sum_of}, more than the window of {window}")
    running = deployment["max_running_requests"]
    if running is not None and concurrency > running:
        return Verdict("infeasible", f"the server runs {running} requests at once")
    return _memory(predicted, concurrency, needed) if predicted else None


def limits(engine: str, arguments: dict, model: dict) -> tuple[int, int | None]:
    """(tokens a request may have, requests that run at once or None where the engine decides)."""
    if engine == "llamacpp":  # one window, split evenly between its slots
        slots = int(arguments.get("parallel", 1))
        return min(int(arguments.get("ctx-size", model["context_window"])) // slots, model["context_window"]), slots
    running = arguments.get("max-running-requests")
    return int(arguments.get("context-length", model["context_window"])), None if running is None else int(running)


def context_reserve(engine: str, arguments: dict) -> int:
    """Tokens of the window that the engine keeps for the method."""
    if engine != "sglang" or str(arguments.get("speculative-algorithm", "")).upper() not in RESERVING:
        return 0
    steps = int(arguments.get("speculative-num-steps", 3))
    topk = int(arguments.get("speculative-eagle-topk", 1))
    return max(topk * steps, int(arguments.get("speculative-num-draft-tokens", steps + 1)))


def hardware(host: dict) -> tuple[int | None, float | None]:
    """(GPUs, GiB of the smallest), as the inventory says or as the host's fingerprint does; None: not known."""
    cards = [card for card in (host.get("conditions") or {}).get("gpus") or [] if card.get("index") is not None]
    sizes = [card["memory.total"] / MIB_PER_GIB for card in cards if card.get("memory.total")]
    declared = host.get("gpu_memory")
    return (
        host.get("gpus") or len(cards) or None,
        declared / GIB if declared else min(sizes, default=None),
    )


def prediction(deployment: dict, model: dict, host: dict) -> dict | None:
    """What the server will have, by `gauntlet.memory`; None where a figure that it needs is not known."""
    _, gpu_memory = hardware(host)
    weights = deployment["weights"]
    if deployment["engine"] != "sglang" or not gpu_memory or not model["shape"].get("full"):
        return None
    if any(entry is None or entry["size_bytes"] is None or entry["format"] == "shape" for entry in weights.values()):
        return None
    drafter = weights.get("drafter")
    if drafter and not drafter["shape"].get("full"):
        return None
    try:
        return memory.predict(
            model["shape"],
            deployment["arguments"],
            tp=deployment["tp"],
            gpu_memory=gpu_memory,
            weights=weights["model"]["size_bytes"] / GIB,
            release=deployment["engine_build"],
            drafter=drafter and drafter["shape"],
            drafter_weights=drafter["size_bytes"] / GIB if drafter else 0.0,
            environment=deployment["environment"],
        )
    except GauntletError:  # a layout or a release without formulas is measured, not guessed
        return None


def _memory(predicted: dict, concurrency: int, tokens: int) -> Verdict | None:
    fit = memory.check(predicted, concurrency=concurrency, tokens=tokens)
    if fit["feasible"]:
        return None
    cap = predicted["max_running_requests"]
    if predicted["failure"] or concurrency <= cap:
        return Verdict("infeasible", f"memory: {fit['reason']}")
    # without the cell's own number, so that the cells of a deployment share one sentence
    return Verdict(
        "infeasible", f"memory: the server would run {cap} requests at once ({'; '.join(predicted['arithmetic'])})"
    )


def _missing(drafter: dict, host: dict) -> str | None:
    """A drafter that nobody has seen counts as absent until the host's store holds it."""
    if drafter["status"] == "known" or drafter["id"] in (host.get("store") or ()):
        return None
    return f"{drafter['id']} is {drafter['status']}{': ' + drafter['note'] if drafter['note'] else ''}"


def _unknown_algorithm(deployment: dict) -> str | None:
    """What the build's name says of a release; site.yml's preflight asks the build itself."""
    requires, build = deployment["requires"], deployment["engine_build"]
    algorithm, first = requires.get("algorithm"), requires.get("release")
    if first is None or not RELEASE.fullmatch(build):
        return None
    if first == "none":
        return (
            f"build: no release knows {algorithm}; {build} is one, another build is named <engine>-<release>-<variant>"
        )
    if releases.parse(build) < releases.parse(first):
        return f"build: {build} does not know {algorithm}, {first} is the first that does"
    return None


def _unmet(deployment: dict) -> str | None:
    """Requirements are the method's; arguments of a campaign or an inventory come later and may break them."""
    for key, wanted in deployment["requires"].items():
        flag = key.replace("_", "-")
        if key not in ("algorithm", "release") and str(deployment["arguments"].get(flag)) != str(wanted):
            given = deployment["arguments"].get(flag, "not given")
            return f"{deployment['method']} needs --{flag} {wanted}, and the campaign or the inventory has {given}"
    return None


def _parallelism(deployment: dict, model: dict, host: dict, name: str) -> str | None:
    tp = deployment["tp"]
    if deployment["engine"] == "llamacpp":
        return None if tp == 1 else f"tp {tp}: llama.cpp is measured at tp 1"
    gpus, _ = hardware(host)
    if gpus is not None and tp > gpus:
        return f"tp {tp} needs {tp} GPUs, {name} has {gpus}"
    for role, weights in deployment["weights"].items():
        shape = model["shape"] if role == "model" else (weights or {}).get("shape") or {}
        if reason := _heads(shape, tp):
            return f"tp {tp}: {reason} ({role})"
    return None


def _heads(shape: dict, tp: int) -> str | None:
    """SGLang's rule: every rank needs whole query heads; key/value heads are split evenly or replicated evenly.
    Latent attention keeps one row for all heads, so its key/value heads do not matter."""
    linear = shape.get("linear") or {}
    for count, kind in (
        (shape.get("heads"), "query heads"),
        (linear.get("heads"), "value heads of the linear layers"),
        (linear.get("key_heads"), "key heads of the linear layers"),
    ):
        if count and count % tp:
            return f"{count} {kind} do not divide by {tp}"
    kv = shape.get("kv_heads")
    if kv and "latent_dim" not in (shape.get("full") or {}) and (kv % tp if kv >= tp else tp % kv):
        return f"{kv} key/value heads can neither be split nor replicated evenly over {tp} ranks"
    return None
