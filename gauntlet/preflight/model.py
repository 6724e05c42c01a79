"""Rules of model, ranks and placement."""

from collections.abc import Iterator

from gauntlet.preflight.case import Case, error, warning

P2P_LEVELS = {"LOC", "NVL", "PIX", "PXB", "PHB", "SYS"}


def heads(case: Case) -> Iterator[dict]:
    for role, shape in (("model", case.target_shape), ("drafter", case.drafter_shape)):
        if not shape or case.tp == 1:
            continue
        if (shape["heads"] or 0) % case.tp:
            yield error(
                f"tp {case.tp}",
                f"{shape['heads']} attention heads of the {role} do not divide by it",
                "choose a tp that does",
            )
        kv = shape["full"].get("kv_heads")
        if kv and (kv % case.tp if kv >= case.tp else case.tp % kv):
            yield error(
                f"tp {case.tp}", f"{kv} KV heads of the {role} can neither be split nor repeated evenly over it",
                "choose a tp that divides them or that they divide",
            )  # fmt: skip
        linear = shape.get("linear")
        if linear and linear["heads"] % case.tp:
            yield error(
                f"tp {case.tp}",
                f"{linear['heads']} state heads of the {role} do not divide by it",
                "choose a tp that does",
            )


def state_strategy(case: Case) -> Iterator[dict]:
    """Hybrid models, drafting and the prefix cache: which strategy a release wants, in its own spelling."""
    hybrid = case.hybrid or not case.target  # without a config the flags themselves say that the model is one
    new = case.release >= (0, 5, 14)
    flag = "mamba-radix-cache-strategy" if new else "mamba-scheduler-strategy"
    strategy = str(case.arguments.get(flag) or "auto")
    radix_off = bool(case.arguments.get("disable-radix-cache"))
    if not hybrid or (not case.target and flag not in case.arguments):
        return
    if radix_off and strategy.startswith("extra_buffer") and not new:
        yield error(
            f"--{flag} {strategy} with --disable-radix-cache", "the buffer is for the cache that is off",
            f"remove --{flag} (overlap works without it then), or keep the radix cache",
        )  # fmt: skip
    if new or radix_off or not case.spec["algorithm"]:
        return
    if not strategy.startswith("extra_buffer"):
        yield error(
            f"{case.spec['algorithm']} with --{flag} {strategy} and the radix cache",
            "this release refuses that combination on hybrid models",
            f"set --{flag} extra_buffer{_v2(case)} (5 state slots a request instead of 3; 4 without overlap), or "
            "--disable-radix-cache (1 slot)",
        )
    elif _v2(case):
        yield error(
            f"{case.spec['algorithm']} with --{flag} {strategy}",
            "this release needs its second speculative worker for it",
            "set SGLANG_ENABLE_SPEC_V2=1 in the environment",
        )  # fmt: skip


def _v2(case: Case) -> str:
    """Off by default up to 0.5.10."""
    return (
        ""
        if case.switched_on("SGLANG_ENABLE_SPEC_V2") or case.release >= (0, 5, 11)
        else " and SGLANG_ENABLE_SPEC_V2=1 in the environment"
    )


def placement(case: Case) -> Iterator[dict]:
    visible = case.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        numbers = [part.strip() for part in str(visible).split(",")]
        if not all(part.isdigit() for part in numbers):
            yield error(
                f"CUDA_VISIBLE_DEVICES={visible}", "SGLang reads it as integers", "name GPUs by number, not by UUID"
            )
        elif len(numbers) < case.tp:
            yield error(f"CUDA_VISIBLE_DEVICES={visible}", f"tp {case.tp} needs {case.tp} GPUs", "name as many")
    if case.arguments.get("numa-node") is not None and case.environment.get("GAUNTLET_NUMA_NODE") is not None:
        yield error(
            "--numa-node and GAUNTLET_NUMA_NODE", "both bind the process, against each other", "keep one of them"
        )
    if case.switched_on("SGLANG_EXPOSE_OWN_ENV_VARS"):
        yield error(
            "SGLANG_EXPOSE_OWN_ENV_VARS", "/server_info would show the environment, secrets with it", "remove it"
        )
    level = case.environment.get("NCCL_P2P_LEVEL")
    if level is not None and str(level).upper() not in P2P_LEVELS:
        yield error(
            f"NCCL_P2P_LEVEL={level}", "numbers of it mean different things in different tables",
            f"use a word: {', '.join(sorted(P2P_LEVELS))}",
        )  # fmt: skip
    if "LL128" in str(case.environment.get("NCCL_PROTO", "")).upper():
        yield warning(
            f"NCCL_PROTO={case.environment['NCCL_PROTO']}", "LL128 corrupts data on platforms that do not support it",
            "use LL or Simple unless a tuner plugin chooses",
        )  # fmt: skip


RULES = (heads, state_strategy, placement)
