"""Whether a cell fits, why not with its arithmetic, and the cheapest change that makes it fit."""

from collections.abc import Callable

from gauntlet.memory.predict import predict

# a prompt and its answer share the pool with nothing below this; above it a warning says how little is left
NEAR = 1.15
RESERVE = 6  # scheduler: prompts of min(context, pool) - 6 tokens and more are refused


def check(prediction: dict, *, concurrency: int, tokens: int = 0) -> dict:
    """{'feasible': bool, 'reason': sentence with the arithmetic or None, 'warnings': [sentence]}

    tokens: of one request, prompt and answer together; 0 when it is not known.
    """
    arithmetic = "; ".join(prediction["arithmetic"])
    cap, pool = prediction["max_running_requests"], prediction["kv_tokens"]
    window = prediction["context_length"]
    if prediction["failure"]:
        return _no(f"the server would not start: {prediction['failure']} ({arithmetic})")
    if concurrency > cap:
        return _no(f"{concurrency} requests at once, but the server would run {cap} ({arithmetic})")
    if window and tokens > window:
        return _no(f"a request of {tokens} tokens does not fit the context of {window}")
    if tokens and tokens > pool - RESERVE:
        return _no(f"a request of {tokens} tokens does not fit the pool of {pool} ({arithmetic})")
    warnings = list(prediction["warnings"])
    if tokens and concurrency * tokens > pool:
        warnings.append(
            f"{concurrency} requests of {tokens} tokens do not fit the pool of {pool} at once: requests will wait"
        )
    elif tokens and concurrency * tokens * NEAR > pool:
        warnings.append(f"{concurrency} requests of {tokens} tokens nearly fill the pool of {pool}")
    return {"feasible": True, "reason": None, "warnings": warnings}


def _no(reason: str) -> dict:
    return {"feasible": False, "reason": reason, "warnings": []}


def levers(
    shape: dict, arguments: dict, *, concurrency: int, tokens: int = 0, tp: int, tps: tuple[int, ...] = (1, 2, 4, 8),
    environment: dict | None = None, **facts,
) -> list[str]:  # fmt: skip
    """Changes that make the cell fit, cheapest first; each was calculated with the formulas of the release.

    facts: gpu_memory, weights, release, drafter, drafter_weights as `predict` takes them. tps: what the host can have.
    """

    def fits(changes: dict, size: int = tp) -> bool:
        prediction = predict(shape, {**arguments, **changes}, tp=size, environment=environment, **facts)
        return check(prediction, concurrency=concurrency, tokens=tokens)["feasible"]

    found: list[str] = []
    for sentence in _candidates(shape, arguments, concurrency, tp, tps, fits):
        if sentence:
            found.append(sentence)
    return found


def _candidates(shape: dict, arguments: dict, concurrency: int, tp: int, tps: tuple, fits: Callable):
    requested = arguments.get("max-running-requests")
    for fewer in _smaller(int(requested) if requested else 48, concurrency):
        if fits({"max-running-requests": fewer}):
            yield f"max-running-requests {requested or 'default'} → {fewer}"
            break
    fraction = arguments.get("mem-fraction-static")
    if fraction:
        step = next(
            (f for f in (0.8, 0.85, 0.88, 0.9) if f > float(fraction) and fits({"mem-fraction-static": f})), None
        )
        if step:
            yield f"mem-fraction-static {fraction} → {step}"
    if shape.get("linear") and not arguments.get("disable-radix-cache"):
        requests = {"max-running-requests": concurrency}
        if fits({"disable-radix-cache": True, **requests}):
            yield f"disable-radix-cache with max-running-requests {concurrency}"
        for r in (3, 4, 5):
            pinned = {"max-mamba-cache-size": r * concurrency + 1, **requests}
            if fits(pinned):
                yield f"max-mamba-cache-size {r * concurrency + 1} with max-running-requests {concurrency}"
                break
    for size in tps:
        if size > tp and fits({}, size):
            yield f"tp {tp} → {size}"
            break
    state = shape.get("linear") and (arguments.get("mamba-ssm-dtype") or shape["linear"]["dtype"])
    if state == "float32" and fits({"mamba-ssm-dtype": "bfloat16"}):
        yield "mamba-ssm-dtype bfloat16 (changes numerics)"
    if not str(arguments.get("kv-cache-dtype") or "auto").startswith("fp8") and fits({"kv-cache-dtype": "fp8_e4m3"}):
        yield "kv-cache-dtype fp8_e4m3 (changes numerics)"


def _smaller(requested: int, concurrency: int) -> list[int]:
    """Half, a quarter, … of what is requested, not below what the cell needs."""
    found = []
    while requested // 2 >= concurrency:
        requested //= 2
        found.append(requested)
    if concurrency not in found and concurrency < requested:
        found.append(concurrency)
    return found
