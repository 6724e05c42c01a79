"""A results tree of the founding campaigns' shape, synthetic inside and out: what a report must be able to draw."""

from tests.synthetic import Method, Workload, write

CONCURRENCY = (1, 2, 4, 8, 16, 32)
CROWDED = {1: 1.0, 2: 1.02, 4: 1.08, 8: 1.2, 16: 1.45, 32: 2.4}
WIDER = {1: 1.0, 4: 0.42, 8: 0.33}
TASTE = {"arithmetic": 1.2, "prose": 0.4, "context-30k": 0.8, "context-100k": 0.5}
AUTOREGRESSIVE = Method("autoregressive", baseline=True, by_tp=WIDER)
DFLASH = Method("dflash", 3.6, 1.35, drafted=15, by_concurrency=CROWDED, by_tp=WIDER, by_workload=TASTE)
EAGLE3 = Method(
    "eagle3", 3.1, 1.45, drafted=16, by_concurrency=CROWDED, by_tp=WIDER, notes=("the overlap scheduler is disabled",)
)
DDTREE = [
    Method(
        f"ddtree-b{budget}", acceptance, step, "ddtree", drafted=budget, by_concurrency=CROWDED, by_tp=WIDER,
        by_workload=TASTE, arguments={"speculative-ddtree-budget": budget},
    )
    for budget, acceptance, step in (
        (8, 3.7, 1.38), (12, 3.9, 1.42), (15, 4.0, 1.44), (16, 4.0, 1.52), (32, 4.15, 1.68), (64, 4.2, 2.05),
    )
]  # fmt: skip
SHORT = [Workload("code", 12, passes=6), Workload("arithmetic", 12, passes=6)]
CONTEXTS = [
    Workload("context-3k", 6, context=3_000), Workload("context-30k", 6, context=30_000),
    Workload("context-100k", 6, context=100_000),
]  # fmt: skip


def build(root):
    """Qwen: every method at TP1, TP 1/4/8 alone, contexts; Kimi: EAGLE-3 and DFlash at TP8 to 32 streams."""
    qwen = {"host": "ct200", "model": "qwen3.6-27b", "campaign": "qwen3.6-27b", "engine": "sglang",
            "engine_build": "sglang-0.5.23-ddtree"}  # fmt: skip
    methods = [AUTOREGRESSIVE, DFLASH, *DDTREE]
    write(root, methods, SHORT, **qwen)
    write(root, [AUTOREGRESSIVE, DFLASH], SHORT[:1], concurrency=CONCURRENCY, **qwen)
    write(root, methods, SHORT[:1], tp=(4, 8), **qwen)
    write(root, methods, CONTEXTS, prefill_tokens_per_s=8000.0, **qwen)
    kimi = qwen | {"model": "kimi-k2.6", "campaign": "kimi-k2.6", "step_ms": 40.0}
    write(root, [AUTOREGRESSIVE, EAGLE3, DFLASH], SHORT[:1], tp=(8,), concurrency=CONCURRENCY, **kimi)
    return root
