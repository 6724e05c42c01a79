"""KV tokens, state slots and concurrent requests of a deployment, by the formulas of its release.

Three generations (read from the wheels):
    '0.5.10'  to 0.5.12: model_runner_kv_cache_mixin.py. Verify states are reserved for every requested request, first.
    '0.5.13'  to 0.5.17: kv_cache_configurator.py. Slots and verify states are solved together within the state budget,
              so the automatic number of slots does not depend on max-running-requests.
    '0.5.18'  on: the same with one row of padding in both pools, and the drafter's KV by its own geometry.
Memory is GiB as SGLang's logs write it ("GB").
"""

import math

from gauntlet.engines import releases, speculation
from gauntlet.errors import GauntletError
from gauntlet.memory.shape import bytes_per_slot, bytes_per_token

GIB = 1 << 30
# nvidia-smi's total minus what SGLang finds free before weights: seen 140.40 - 139.09 on an H200
CONTEXT_GIB = 1.3
NCCL_GIB = 0.9  # of a rank's card, with a second rank: seen 139.09 and 138.18 free before weights on an H200
MULTIMODAL_GIB = 0.1
# what a drafter's runner holds beside its weights before the pools are sized: seen 0.09 to 0.11 on an H200
DRAFTER_GIB = 0.1
REQUESTS_WITH_DRAFTING = 48


def generation(release: str) -> str:
    """'0.5.10' | '0.5.13' | '0.5.18', named by the first release that has its formulas."""
    version = releases.parse(release)
    if version < (0, 5, 10):
        raise GauntletError(f"memory of SGLang {release} cannot be predicted: its formulas are known from 0.5.10 on")
    return "0.5.10" if version < (0, 5, 13) else "0.5.13" if version < (0, 5, 18) else "0.5.18"


def predict(
    shape: dict,
    arguments: dict,
    *,
    tp: int,
    gpu_memory: float,
    weights: float,
    release: str,
    drafter: dict | None = None,
    drafter_weights: float = 0.0,
    environment: dict | None = None,
) -> dict:
    """What a deployment will have on each GPU.

    shape, drafter: of `gauntlet.memory.shape`. arguments: flags of SGLang without dashes, as in the catalog.
    gpu_memory: GiB of one GPU as nvidia-smi tells; weights, drafter_weights: GiB on disk, all ranks together.
    release: '0.5.23'. environment: variables of the deployment (SGLANG_MAMBA_SSM_DTYPE, …).

    {'generation', 'fraction', 'rest_gib': R, 'kv_tokens', 'bytes_per_token', 'slots': K or None,
     'slots_per_request': r or None, 'max_running_requests': the true cap, 'requested': N or None,
     'pools': {'kv_gib', 'conv_gib', 'ssm_gib', 'intermediate_gib'}, 'headroom_gib': left for graphs and activations,
     'context_length', 'failure': SGLang's own words or None, 'arithmetic': [sentence], 'warnings': [sentence]}
    Raises GauntletError for a layout or release that it has no formula for; it does not guess.
    """
    if "sliding" in shape:
        raise GauntletError(f"memory of {shape['architecture']} is not predicted: it has sliding-window pools")
    now, version = generation(release), releases.parse(release)
    spec = speculation.resolve(arguments, release, drafter, shape["architecture"])
    wanted = _requests(arguments, spec)
    fraction, warnings = _fraction(arguments, gpu_memory, tp, wanted)
    free = gpu_memory - CONTEXT_GIB - (NCCL_GIB if tp > 1 else 0.0)
    rest, headroom = _rest(shape, spec, fraction, free, weights / tp, drafter_weights / tp, version)
    cell = _cell(shape, drafter, spec, arguments, tp, now)
    arithmetic = [
        f"{free:.2f} GiB free of {gpu_memory:.2f}, weights {weights / tp:.2f}"
        + (f" and drafter {drafter_weights / tp:.2f}" if drafter_weights else "")
        + f", fraction {fraction:g}: {rest:.2f} GiB for pools"
    ]
    result = {
        "generation": now, "fraction": fraction, "rest_gib": rest, "bytes_per_token": cell, "requested": wanted,
        "slots": None, "slots_per_request": None, "headroom_gib": headroom, "warnings": warnings,
        "arithmetic": arithmetic, "failure": None, "context_length": _context(shape, arguments),
        "pools": {"kv_gib": 0.0, "conv_gib": 0.0, "ssm_gib": 0.0, "intermediate_gib": 0.0},
    }  # fmt: skip
    states = _states(shape, arguments, environment or {}, spec, wanted, rest, tp, version, result)
    tokens = max(0, math.floor((rest - states) * GIB / cell))
    page = int(arguments.get("page-size") or 1)
    tokens = min(tokens // page * page, int(arguments.get("max-total-tokens") or tokens))
    result["kv_tokens"] = tokens
    result["pools"]["kv_gib"] = tokens * cell / GIB
    arithmetic.append(f"{rest - states:.2f} GiB / {cell} B a token = {tokens} tokens")
    result["max_running_requests"] = _cap(result, tokens)
    result["failure"] = result["failure"] or _failure(result, rest, release)
    if result["failure"]:
        result["max_running_requests"] = 0
    return result


def _requests(arguments: dict, spec: dict) -> int | None:
    given = arguments.get("max-running-requests")
    if given is not None:
        return int(given)
    return REQUESTS_WITH_DRAFTING if spec["algorithm"] else None


def _context(shape: dict, arguments: dict) -> int | None:
    given = arguments.get("context-length")
    return int(given) if given is not None else shape.get("context_window")


def _fraction(arguments: dict, gpu_memory: float, tp: int, wanted: int | None) -> tuple[float, list[str]]:
    """mem-fraction-static as given, or SGLang's heuristic (handle_gpu_memory_settings), which is estimated here."""
    if arguments.get("mem-fraction-static") is not None:
        return float(arguments["mem-fraction-static"]), []
    total = gpu_memory * 1024
    prefill = int(arguments.get("chunked-prefill-size") or (8192 if total >= 60 * 1024 else 4096))
    graphs = 256 if tp < 4 else 512
    graphs = min(graphs, wanted) if wanted else graphs
    reserved = 512 + 1.5 * prefill + 128 * tp + 2 * graphs + 8 * 58  # 58 sizes of prefill graph at 8192
    if total > 60 * 1024:
        reserved = max(reserved, 10240)
    return round((total - reserved) / total, 3), [
        "mem-fraction-static is not given, so SGLang chooses it; give it for an exact prediction"
    ]


def _rest(
    shape: dict, spec: dict, fraction: float, free: float, weights: float, drafter: float, release: tuple
) -> tuple[float, float]:
    """(R: GiB for pools, GiB left for graphs and activations).

    R = A - P(1 - f) where A is free after loading; the drafter is loaded by then from 0.5.14 on.
    """
    late = release < (0, 5, 14)  # the drafter is loaded after the pools, out of the slack
    counted = drafter + DRAFTER_GIB if drafter and not late else 0.0
    slack = free * (1 - fraction)
    vision = MULTIMODAL_GIB if shape.get("multimodal") and release >= (0, 5, 18) else 0.0
    return free - weights - counted - slack - vision, slack - (drafter if late else 0.0)


def _cell(shape: dict, drafter: dict | None, spec: dict, arguments: dict, tp: int, now: str) -> int:
    """Bytes of one token in the pools of target and drafter."""
    dtype = str(arguments.get("kv-cache-dtype") or "auto")
    target = bytes_per_token(shape, tp, dtype)
    if not drafter or not spec["algorithm"]:
        return target
    if spec["algorithm"] in ("DFLASH", "DDTREE") and now == "0.5.18":
        return target + bytes_per_token(drafter, tp, str(arguments.get("speculative-draft-kv-cache-dtype") or dtype))
    if spec["algorithm"] not in ("DFLASH", "DDTREE") and now == "0.5.10":
        return target  # the drafter's pool was taken out of the slack
    layers = shape["full"]["layers"]
    return target * (layers + drafter["full"]["layers"]) // layers


def slots_per_request(arguments: dict, environment: dict, spec: dict, release: tuple) -> tuple[int, str]:
    """(r, why): state slots that one running request needs (`_calculate_mamba_ratio`)."""
    if arguments.get("disable-radix-cache"):
        return 1, "the radix cache is off"
    strategy = str(arguments.get("mamba-radix-cache-strategy") or arguments.get("mamba-scheduler-strategy") or "auto")
    if strategy == "auto":
        paged = int(arguments.get("page-size") or 1) > 1
        buffered = release >= (0, 5, 14) and (spec["overlap"] or paged)
        strategy = "extra_buffer" if buffered else "no_buffer"
    skip = str(environment.get("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK", "")).lower() in ("1", "true")
    if strategy == "no_buffer":
        return 3, "no_buffer"
    extra = 2 if strategy == "extra_buffer" and spec["overlap"] else 1
    overlap = "with overlap" if spec["overlap"] else "without overlap"
    return 3 + extra - skip, f"{strategy} {overlap}"


def _states(
    shape: dict, arguments: dict, environment: dict, spec: dict, wanted: int | None, rest: float, tp: int,
    version: tuple, result: dict,
) -> float:  # fmt: skip
    """GiB that the states of hybrid models take from the pools' R; fills slots, pools and arithmetic of `result`."""
    dtype = environment.get("SGLANG_MAMBA_SSM_DTYPE") or arguments.get("mamba-ssm-dtype")
    convolution, state = bytes_per_slot(shape, tp, dtype)
    slot = (convolution + state) / GIB
    if not slot:
        return 0.0
    now = result["generation"]
    r, why = slots_per_request(arguments, environment, spec, version)
    replay = bool(arguments.get("enable-linear-replayssm-spec"))
    width = 0 if replay else (spec["draft_tokens"] or 0)
    pad = 1 if now == "0.5.18" else 0
    ratio = float(arguments.get("mamba-full-memory-ratio") or 0.9)
    given = arguments.get("max-mamba-cache-size")
    radix_off = bool(arguments.get("disable-radix-cache")) and wanted is not None

    verify = slot * width * wanted if now == "0.5.10" and width else 0.0
    budget = (rest - verify) * ratio / (1 + ratio)
    if given is not None:
        slots, how = int(given), "given"
    elif radix_off:
        slots, how = wanted, "one a request, the radix cache is off"
    elif now == "0.5.10" or not width:
        slots = math.floor((budget - pad * slot) / slot)
        how = f"floor({budget:.2f} GiB / {slot * 1024:.1f} MiB)"
    else:
        slots = math.floor((budget - pad * slot * (1 + width)) / (slot * (1 + width / r)))
        how = f"floor({budget:.2f} GiB / ({slot * 1024:.1f} MiB x (1 + {width}/{r})))"
    running = min(wanted, slots // r) if wanted is not None else slots // r
    if now != "0.5.10":
        verify = slot * width * (running + pad)

    result |= {"slots": slots, "slots_per_request": r}
    result["pools"] |= {
        "conv_gib": (slots + 1) * convolution / GIB,
        "ssm_gib": (slots + 1) * state / GIB,
        "intermediate_gib": (max(running, 0) + 1) * width * state / GIB,
    }
    if verify:
        counted = wanted if now == "0.5.10" else running + pad
        result["arithmetic"].append(
            f"verify states {counted} x {width} x {slot * 1024:.1f} MiB = {verify:.2f} GiB"
            + (" for all requested requests" if now == "0.5.10" else "")
        )
    result["arithmetic"].append(f"{slots} state slots ({how}), {r} a request ({why}): {max(slots, 0) // r} requests")
    if slots <= 0:
        result["failure"] = (
            "max_running_request is zero" if now == "0.5.10"
            else "Not enough GPU memory for hybrid (mamba/linear-attention) state cache"
        )  # fmt: skip
    elif given is not None and running and slots < r * running + 1 and r > 1:
        result["warnings"].append(
            f"max-mamba-cache-size {slots} leaves no spare slot beside {r} for each of {running} requests; "
            f"give at least {r * running + 1}"
        )
    return verify + (slots + pad) * slot


def _cap(result: dict, tokens: int) -> int:
    """The true cap on running requests (`resolve_max_num_reqs`)."""
    context = result["context_length"] or tokens or 1
    estimated = max(min(int(tokens / context * 512), 4096), 2048)
    wanted = result["requested"]
    if result["generation"] == "0.5.10" and wanted is not None:
        cap = min(wanted, estimated)
    else:
        cap = min(wanted if wanted is not None else estimated, tokens // 2)
    if result["slots"] is not None:
        cap = min(cap, max(result["slots"], 0) // result["slots_per_request"])
    return max(cap, 0)


def _failure(result: dict, rest: float, release: str) -> str | None:
    if rest <= 0:
        return (
            "Loaded weights leave no GPU memory for the KV cache"
            if releases.parse(release) >= (0, 5, 14)
            else ("Not enough memory. Please try to increase --mem-fraction-static")
        )
    if result["kv_tokens"] <= 0:
        return "Not enough memory. Please try to increase --mem-fraction-static"
    if result["max_running_requests"] <= 0:
        return (
            "max_running_request is zero" if result["generation"] == "0.5.10"
            else "Hybrid (mamba/linear-attention) state cache is too small to serve any requests"
        )  # fmt: skip
    return None
