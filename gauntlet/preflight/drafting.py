"""Rules of speculative decoding: where SGLang has a bare assert, or says nothing and measures another thing."""

from collections.abc import Iterator

from gauntlet.engines import speculation
from gauntlet.preflight.case import Case, error, warning

# targets that carry their own draft layers, so that EAGLE needs no drafter (sglang 0.5.23, _handle_eagle_family)
OWN_DRAFT = {
    "DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV4ForCausalLM", "Glm4MoeForCausalLM",
    "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM",
    "BailingMoeV2_5ForCausalLM", "MistralLarge3ForCausalLM", "PixtralForConditionalGeneration", "HYV3ForCausalLM",
    "HYV4ForCausalLM", "Qwen4ExpForConditionalGeneration",
}  # fmt: skip
TRIPLE = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def all_three_or_none(case: Case) -> Iterator[dict]:
    if case.spec["algorithm"] not in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE") or case.arguments.get(
        "speculative-adaptive"
    ):
        return
    given = [flag for flag in TRIPLE if case.arguments.get(flag) is not None]
    if given and len(given) < 3:
        absent = " and ".join(f"--{flag}" for flag in TRIPLE if flag not in given)
        yield error(
            f"{' and '.join('--' + flag for flag in given)} without {absent}",
            "SGLang stops with a bare AssertionError or TypeError", "give all three, or none and let SGLang choose",
        )  # fmt: skip


def chain_width(case: Case) -> Iterator[dict]:
    steps, topk, tokens = (case.number(flag) for flag in TRIPLE)
    if case.spec["algorithm"] in ("DFLASH", "DDTREE", "NGRAM", None) or None in (steps, topk, tokens):
        return
    if topk == 1 and tokens != steps + 1:
        yield error(
            f"--speculative-num-draft-tokens {tokens} with {steps} steps and topk 1",
            f"SGLang silently makes it {steps + 1}, so another thing would be measured than is declared",
            f"set --speculative-num-draft-tokens {steps + 1}",
        )
    elif topk > 1 and tokens - 1 > (drafted := topk + (steps - 1) * topk**2):
        yield error(
            f"--speculative-num-draft-tokens {tokens} with {steps} steps and topk {topk}",
            f"so many steps draft {drafted} nodes, and the tree takes {tokens - 1} of them",
            f"set --speculative-num-draft-tokens to {drafted + 1} or less",
        )


def wants_drafter(case: Case) -> Iterator[dict]:
    algorithm = case.spec["algorithm"]
    if case.has_drafter or algorithm not in speculation.NEEDS_DRAFTER or case.architecture in OWN_DRAFT:
        return
    yield error(
        f"{algorithm} without --speculative-draft-model-path",
        f"SGLang takes {case.architecture or 'the target'} as its own drafter and dies after loading it twice",
        "name the drafter's path",
    )


def drafter_of_the_right_kind(case: Case) -> Iterator[dict]:
    algorithm, drafter = case.spec["algorithm"], case.drafter_architecture
    eagle3 = "eagle3" in drafter.lower()
    if algorithm in ("EAGLE", "NEXTN") and eagle3:
        yield error(
            f"--speculative-algorithm {algorithm} with the EAGLE-3 drafter {drafter}",
            "it runs without an error and accepts exactly 1.00 token a step", "use --speculative-algorithm EAGLE3",
        )  # fmt: skip
    if algorithm == "EAGLE3" and drafter and not eagle3:
        yield error(
            f"--speculative-algorithm EAGLE3 with the drafter {drafter}", "that is no EAGLE-3 drafter",
            "use the algorithm of this drafter, or an EAGLE-3 drafter",
        )  # fmt: skip
    if algorithm in ("DFLASH", "DDTREE") and drafter and "dflash" not in drafter.lower():
        yield error(
            f"--speculative-algorithm {algorithm} with the drafter {drafter}", "that is no DFlash drafter",
            "use a DFlash drafter of this model",
        )  # fmt: skip


def block_size(case: Case) -> Iterator[dict]:
    own = (case.drafter_shape or {}).get("block_size")
    if case.spec["algorithm"] not in ("DFLASH", "DDTREE"):
        return
    block, tokens = case.number("speculative-dflash-block-size"), case.number("speculative-num-draft-tokens")
    if block and tokens and block != tokens and case.spec["algorithm"] == "DFLASH":
        yield error(
            f"--speculative-dflash-block-size {block} and --speculative-num-draft-tokens {tokens}",
            "they are one setting of DFLASH", "give one of them",
        )  # fmt: skip
    wanted = block or tokens
    if wanted and own and wanted != own:
        yield error(
            f"a block of {wanted} tokens", f"the drafter was trained for {own}, and SGLang only logs the mismatch",
            f"set {own} or leave it out",
        )  # fmt: skip
    window = case.number("speculative-draft-window-size")
    if window and window < (wanted or own or speculation.BLOCK):
        yield error(
            f"--speculative-draft-window-size {window}",
            f"it is smaller than the block of {wanted or own or speculation.BLOCK}", "make it at least the block",
        )  # fmt: skip


def tree_rules(case: Case) -> Iterator[dict]:
    backends = {case.arguments.get(f"{kind}attention-backend") for kind in ("", "prefill-", "decode-")} - {None}
    page, topk = case.number("page-size") or 1, case.spec["topk"] or 1
    if case.spec["algorithm"] == "DDTREE":
        budget = case.spec["draft_tokens"] - 1
        block = (case.drafter_shape or {}).get("block_size") or speculation.BLOCK
        if page != 1:
            yield error(f"DDTree with --page-size {page}", "its tree needs pages of one token", "set --page-size 1")
        if budget < 1:
            yield error(f"DDTree with a budget of {budget}", "a tree needs a node", "set a budget of 1 or more")
        if budget > block - 1 and backends != {"triton"}:
            yield error(
                f"DDTree with a budget of {budget}",
                f"above block size - 1 = {block - 1} the tree is full and only the triton backend can verify it",
                f"set --attention-backend triton, or a budget of at most {block - 1}",
            )
    elif topk > 1 and case.spec["algorithm"] in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE"):
        if "trtllm_mha" in backends:
            yield error(
                "topk above 1 with trtllm_mha", "that backend verifies chains only", "set --speculative-eagle-topk 1"
            )
        allowed = {"flashinfer", "fa3"} | ({"triton"} if case.release >= (0, 5, 13) else set())
        if page > 1 and backends - allowed:
            yield error(
                f"topk {topk} with --page-size {page} on {', '.join(sorted(backends))}",
                f"paged trees need {' or '.join(sorted(allowed))}", "set --page-size 1 or one of those backends",
            )  # fmt: skip


def drafter_reach(case: Case) -> Iterator[dict]:
    """A drafter trained for fewer positions than the context: out-of-range reads, or acceptance that falls off."""
    limit = (case.drafter or {}).get("max_position_embeddings")
    target = (case.target.get("text_config") or case.target).get("max_position_embeddings")
    context = case.number("context-length") or target
    if not limit or not context or limit >= context:
        return
    forced = case.switched_on(LONGER)
    yield (error if forced else warning)(
        f"the drafter has {limit} positions, the context {context}",
        "beyond them it reads outside of its tables (an illegal memory access later), or drafts nothing useful",
        f"set --context-length {limit}" + (f" and remove {LONGER}" if forced else "")
        + ", or keep prompts and answers below it",
    )  # fmt: skip


RULES = (
    all_three_or_none,
    chain_width,
    wants_drafter,
    drafter_of_the_right_kind,
    block_size,
    tree_rules,
    drafter_reach,
)
