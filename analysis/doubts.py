"""Figures that mislead: what cannot be true of one cell, and differences between two cells that are not speed.

A doubted number is shown with the reason and is neither ranked nor quoted in a finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from analysis.tree import chunks_of
from gauntlet.validity import contradictions

if TYPE_CHECKING:
    from analysis.cell import Cell
    from analysis.comparison import Comparison

POOL_MARGIN = 1.1  # a pool below 1.1 × the working set evicts: pages are rounded up, outputs grow while others wait
HIT_DROP = 0.2  # fewer hits by this share of all prompt tokens: the prefix cache stopped working
SAME_TIME = 0.10  # latencies closer than this are the same speed
PEAK_SHARE = 0.9  # whole seconds do not divide a window evenly: a peak just below the average means nothing
OTHER_TOKENS = 1.25  # tokens a request differ by more than this factor: another output, not another speed


def figures(cell: Cell) -> dict:
    """A cell's figures by the names that `gauntlet.validity.contradictions` reads, and those of `between`."""
    requests, tokens = cell.requests, float(cell.figures["tokens"].sum())
    prompts = float(cell.figures["prompt_tokens"].sum())
    full = cell.figures["full_length"].sum() == requests
    return {
        "tokens_per_s": cell.concurrency * cell.sums("speed").ratio,  # of a loop that is full, without its ends
        "tpot_ms": {"p50": _known(cell.summary("tpot_ms", "p50"))},
        "e2e_ms": {"mean": 1000 * float(cell.figures["seconds"].sum()) / requests},
        "completion_tokens": tokens,
        "tokens_per_request": tokens / requests,
        "expected_tokens": round(cell.figures["expected_tokens"].sum() / requests) if full else None,
        "kv_pool_tokens": _known(_server(cell, "max_total_num_tokens")),
        "working_set_tokens": cell.concurrency * (prompts + tokens) / requests,
        "hit_rate": float(cell.figures["cached_tokens"].sum()) / prompts if prompts else None,
    } | _of_chunks(cell)


def between(ours: Mapping, theirs: Mapping) -> list[str]:
    """Why the ratio of two cells' tokens/s would mislead; absent figures are not judged."""
    found = []
    pool, other_pool = (_pool_ratio(one) for one in (ours, theirs))
    hits, other_hits = (one.get("hit_rate") for one in (ours, theirs))
    if pool and other_pool:
        lost = hits is not None and other_hits is not None and other_hits - hits > HIT_DROP
        if pool < other_pool and (pool < POOL_MARGIN <= other_pool or (lost and pool < 2 * POOL_MARGIN)):
            rate = f", hit rate {hits:.2f} against {other_hits:.2f}" if lost else ""
            found.append(
                f"the KV pool was crossed: {ours['kv_pool_tokens']:,.0f} tokens of pool for a working set of "
                f"{ours['working_set_tokens']:,.0f} ({pool:.2f}×, the other {other_pool:.2f}×{rate}); "
                "that is memory, not the engine or the method"
            )
    tokens, other_tokens = (one.get("tokens_per_request") for one in (ours, theirs))
    time, other_time = ((one.get("e2e_ms") or {}).get("mean") for one in (ours, theirs))
    if tokens and other_tokens and max(tokens, other_tokens) / min(tokens, other_tokens) > OTHER_TOKENS:
        apart = abs(time / other_time - 1) if time and other_time else 1.0
        speed = f"; latency is the same within {apart:.0%}" if apart <= SAME_TIME else ""
        found.append(
            f"{tokens:.0f} tokens a request were counted against {other_tokens:.0f} for the same prompts{speed}: "
            "the token count or the output differs, so tokens/s do not compare"
        )
    return found


def of_cell(cell: Cell) -> list[str]:
    """What cannot be true of one cell's own figures."""
    known = {name: value for name, value in cell.telling.items() if name != "time_to_second_token_ms"}
    return contradictions(known, cell.concurrency)


def of_comparison(comparison: Comparison) -> list[str]:
    """Why a speed-up would mislead: the doubts about either side, and about the two beside each other."""
    ours, theirs = comparison.method, comparison.baseline
    doubted = [f"{cell.method}: {doubt}" for cell in (ours, theirs) for doubt in of_cell(cell)]
    return doubted + between(ours.telling, theirs.telling)


def remarks(cell: Cell) -> list[str]:
    """What was not measured or is an artefact of transport; the cell's other figures stand."""
    found = contradictions({"time_to_second_token_ms": cell.telling.get("time_to_second_token_ms")}, None)
    if cell.figures["streamed"].sum() == 0 and cell.figures["tokens"].max() > 1:
        found.append("times of tokens were not measured: each answer came in one piece (streaming off)")
    return found


def crossed_pools(cells: list[Cell]) -> dict[str, list[str]]:
    """Cells that differ from others of the same method, workload and concurrency because their KV pool is too small."""
    found: dict[str, list[str]] = {}
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        if cell.telling["kv_pool_tokens"]:
            key = (cell.host, cell.model, cell.document["method"], cell.tp, cell.workload, cell.concurrency)
            groups.setdefault(key, []).append(cell)
    for group in groups.values():
        best = max(group, key=lambda cell: _pool_ratio(cell.telling))
        for cell in group:
            crossed = [text for text in between(cell.telling, best.telling) if "KV pool" in text]
            if crossed:
                found[cell.name] = crossed
    return found


def _pool_ratio(one: Mapping) -> float | None:
    pool, wanted = one.get("kv_pool_tokens"), one.get("working_set_tokens")
    return pool / wanted if pool and wanted else None


def _server(cell: Cell, name: str) -> float:
    values = [(document.get("server") or {}).get(name) for document in cell.documents]
    return float(np.median([value for value in values if value is not None] or [np.nan]))


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _of_chunks(cell: Cell) -> dict:
    """Peak tokens/s over whole seconds and the gap behind the first token, from one attempt's chunk times."""
    document = cell.documents[0]
    if not document["folder"]:
        return {}
    times, tokens, gaps = [], [], []
    for line in chunks_of(document["folder"]):
        t, n = line["t"], line.get("n") or []
        if len(t) < 2 or None in n or len(n) != len(t):
            continue
        times += t
        tokens += [n[0], *np.diff(n).tolist()]
        gaps.append(1000 * (t[1] - t[0]))
    if not times:
        return {}
    found = {"time_to_second_token_ms": {"p50": float(np.median(gaps))}}
    peak = float(np.bincount(np.array(times).astype(int), tokens).max())
    if document["window_s"] >= 3 and peak < PEAK_SHARE * document["summary"]["tokens_per_s"]:
        found["peak_tokens_per_s"] = peak
    return found
