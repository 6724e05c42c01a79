"""What SGLang's arguments say of speculative decoding, resolved as its releases resolve them.

{'algorithm': 'DFLASH' | … | None, 'steps', 'topk', 'draft_tokens': verify width D or None, 'tree', 'overlap': bool}
Source: handle_speculative_decoding of the wheels 0.5.12 to 0.5.23 (server_args.py, arg_groups/speculative_hook.py),
and pull request 29907 for DDTREE.
"""

from gauntlet.engines import releases

AUTOMATIC = {"STANDALONE": (3, 1, 4)}  # steps, topk, draft tokens when none of the three is given
LLAMA = (5, 4, 8)
DEFAULT = (3, 1, 4)
NEEDS_DRAFTER = {"EAGLE3", "STANDALONE", "DFLASH", "DDTREE", "DSPARK"}
BLOCK = 16  # DFLASH without a block size anywhere


def resolve(arguments: dict, release: str, drafter: dict | None = None, architecture: str = "") -> dict:
    """Partial or contradictory arguments give None where SGLang would have failed; preflight says why."""
    algorithm = str(arguments.get("speculative-algorithm") or "").upper() or None
    if algorithm == "DFLASH" and arguments.get("speculative-dflash-enable-ddtree"):
        algorithm = "DDTREE"
    steps, topk, tokens = (
        _integer(arguments.get(f"speculative-{name}")) for name in ("num-steps", "eagle-topk", "num-draft-tokens")
    )
    if algorithm in ("NEXTN", "EAGLE", "EAGLE3", "STANDALONE"):
        if steps is topk is tokens is None:
            automatic = LLAMA if architecture in ("LlamaForCausalLM", "Grok1ForCausalLM") else DEFAULT
            steps, topk, tokens = AUTOMATIC.get(algorithm, automatic)
        if topk == 1 and steps is not None:
            tokens = steps + 1
    elif algorithm in ("DFLASH", "DDTREE"):
        block = _integer(arguments.get("speculative-dflash-block-size")) or tokens or (drafter or {}).get("block_size")
        steps, topk, tokens = 1, 1, block or BLOCK
        if algorithm == "DDTREE":
            tokens = (_integer(arguments.get("speculative-ddtree-budget")) or tokens - 1) + 1
    elif algorithm == "NGRAM":
        steps, topk, tokens = 1, _integer(arguments.get("speculative-ngram-max-bfs-breadth")) or 10, tokens or 12
    return {
        "algorithm": algorithm,
        "steps": steps,
        "topk": topk,
        "draft_tokens": tokens if algorithm else None,
        "tree": algorithm == "DDTREE" or (algorithm not in (None, "DFLASH") and (topk or 1) > 1),
        "overlap": _overlap(algorithm, topk, arguments, releases.parse(release)),
    }


def _overlap(algorithm: str | None, topk: int | None, arguments: dict, release: tuple) -> bool:
    """Whether the scheduler overlaps with the GPU; early releases turned it off for most drafting."""
    if arguments.get("disable-overlap-schedule") or algorithm == "DDTREE":
        return False
    if release < (0, 5, 14):
        return algorithm not in ("DFLASH", "NGRAM") and not (algorithm and (topk or 1) > 1)
    return True


def _integer(value: object) -> int | None:
    return None if value in (None, "") else int(value)  # type: ignore[call-overload]
