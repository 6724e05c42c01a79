"""What a results tree allows to be said: its cells, and each method beside the baseline that was measured like it.

A cell here is everything valid that was measured under one specification and one set of conditions of one host.
A speed-up never crosses hosts, conditions, models, tp, engine builds, workloads or concurrencies.
"""

import json
import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from analysis import statistics
from analysis.statistics import Estimate, Sums
from analysis.tree import Problem, Results
from gauntlet.errors import GauntletError

SYNTHETIC = "synthetic"
FIGURES = ("tokens", "seconds", "decode_tokens", "decode_seconds", "steps", "produced", "drafted", "accepted")


@dataclass(frozen=True)
class Cell:
    """One specification on one host under one set of conditions; figures are summed by server start and prompt."""

    attempts: pd.DataFrame
    starts: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    figures: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: dict[str, set[str]] = field(default_factory=dict)  # prompt -> sha256 of every output it got

    def __getattr__(self, name: str):
        if name.startswith("_") or name not in self.attempts.columns:
            raise AttributeError(name)
        return self.attempts[name].iloc[0]

    @property
    def valid(self) -> bool:
        return bool(self.starts)

    @property
    def documents(self) -> list[dict]:
        return list(self.attempts["document"])

    @cached_property
    def reasons(self) -> list[str]:
        """Why attempts of this cell may not be quoted."""
        found = [
            reason for doc in self.documents if not doc["validity"]["valid"] for reason in doc["validity"]["reasons"]
        ]
        return sorted({f"{reason['code']}: {reason['detail']}" for reason in found})

    @property
    def tokens_per_s(self) -> float:
        """Completion tokens over the measured windows, all valid attempts together."""
        valid = self.attempts[self.attempts["valid"]]
        tokens = sum(doc["summary"]["completion_tokens"] for doc in valid["document"])
        return tokens / valid["window_s"].sum() if len(valid) else math.nan

    def sums(self, over: str, under: str, prompts: list[str] | None = None) -> Sums:
        """Two figures on the given prompts (all when None), one row a server start."""
        columns = slice(None) if prompts is None else [self.prompts.index(prompt) for prompt in prompts]
        return Sums(self.figures[over][:, columns], self.figures[under][:, columns])

    @cached_property
    def acceptance(self) -> Estimate:
        """Tokens produced by decode steps per verify step (ratio of sums, prefill's token apart)."""
        if self.baseline or not self.valid or self.figures["steps"].sum() == 0:
            return Estimate(math.nan, reason="drafts nothing, or the server does not say")
        return statistics.ratio(self.sums("produced", "steps"))


@dataclass(frozen=True)
class Comparison:
    """A method's cell beside its baseline's, on the prompts that both answered."""

    method: Cell
    baseline: Cell

    @cached_property
    def prompts(self) -> list[str]:
        return [prompt for prompt in self.method.prompts if prompt in set(self.baseline.prompts)]

    @cached_property
    def speedup(self) -> Estimate:
        """Completion tokens per second of request (sent → last token), method over baseline."""
        return self._over("tokens", "seconds")

    @cached_property
    def decode_speedup(self) -> Estimate:
        """The same of the decode phase alone (first → last token): acceptance length × step time ratio."""
        return self._over("decode_tokens", "decode_seconds")

    def _over(self, tokens: str, seconds: str) -> Estimate:
        return statistics.speedup(
            self.method.sums(tokens, seconds, self.prompts), self.baseline.sums(tokens, seconds, self.prompts)
        )

    @cached_property
    def identical(self) -> tuple[int, int, int]:
        """(prompts whose outputs the baseline gave too, prompts compared, prompts on which the baseline varies)."""
        ours, theirs = self.method.outputs, self.baseline.outputs
        shared = [prompt for prompt in self.prompts if ours.get(prompt) and theirs.get(prompt)]
        same = sum(ours[prompt] <= theirs[prompt] for prompt in shared)
        return same, len(shared), sum(len(theirs[prompt]) > 1 for prompt in shared)


@dataclass(frozen=True)
class Study:
    """Everything that tables, figures and findings are made from."""

    cells: list[Cell]
    comparisons: list[Comparison]
    without_baseline: list[Cell]
    problems: list[Problem]

    @property
    def simulated(self) -> list[str]:
        """What was not real in any attempt."""
        return sorted({text for cell in self.cells for doc in cell.documents for text in doc["simulated"]})

    def comparison_of(self, cell: Cell) -> Comparison | None:
        return next((found for found in self.comparisons if found.method is cell), None)


def make(results: Results, synthetic: bool = False) -> Study:
    """The study of what was read.

    Raises GauntletError when synthetic attempts are there but not asked for, and when no attempt is valid.
    """
    if not synthetic and any(SYNTHETIC in doc["simulated"] for doc in results.cells["document"]):
        raise GauntletError(
            "these results are synthetic (made by a program, not measured); --synthetic accepts them, watermarked"
        )
    if not results.cells["valid"].any():
        codes = sorted({r["code"] for doc in results.cells["document"] for r in doc["validity"]["reasons"]})
        count = len(results.cells)
        raise GauntletError(
            f"no valid attempt among {count} ({', '.join(codes) or 'no reason given'}): nothing can be quoted; "
            "remove the cause and run bench.yml again"
        )
    cells = _cells(results)
    baselines = {}
    for cell in cells:
        if cell.baseline and cell.valid and not cell.closing:
            baselines.setdefault(_group(cell), []).append(cell)
    comparisons, without = [], []
    for cell in cells:
        if cell.baseline or not cell.valid or cell.closing:
            continue
        candidates = baselines.get(_group(cell), [])
        if candidates:
            comparisons.append(
                Comparison(cell, min(candidates, key=lambda base: (_distance(cell, base), base.cell_id)))
            )
        else:
            without.append(cell)
    return Study(cells, comparisons, without, results.problems)


def _group(cell: Cell) -> tuple:
    workload = json.dumps(cell.documents[0]["specification"].get("workload"), sort_keys=True)
    return (
        cell.host, cell.conditions_id, cell.model, cell.tp, cell.engine, cell.engine_build, cell.workload,
        cell.concurrency, workload,
    )  # fmt: skip


def _distance(cell: Cell, baseline: Cell) -> int:
    """Environment variables in which the two differ: of several baselines the one measured most like the method."""
    ours, theirs = (set((c.documents[0]["specification"].get("environment") or {}).items()) for c in (cell, baseline))
    return len(ours ^ theirs)


def _cells(results: Results) -> list[Cell]:
    attempts = results.cells.sort_values(
        ["host", "model", "tp", "workload", "concurrency", "baseline", "method", "cell_id", "closing", "attempt"],
        ascending=[True] * 5 + [False] + [True] * 4,
    )
    keys = ["host", "conditions_id", "spec_id", "closing"]
    groups = [group for _, group in attempts.groupby(keys, sort=False)]
    row_cell = np.full(len(results.cells), -1)
    for number, group in enumerate(groups):
        row_cell[group.index[group["valid"]]] = number
    requests = _measured(results, row_cell)
    by_cell = dict(tuple(requests.groupby("cell", sort=False)))
    return [_cell(group, by_cell.get(number)) for number, group in enumerate(groups)]


def _measured(results: Results, row_cell: np.ndarray) -> pd.DataFrame:
    """Successful requests of valid attempts with the figures that are summed; `prompt` names one turn of one prompt."""
    rows = results.requests
    cell = row_cell[rows["attempt"].to_numpy()] if len(rows) else np.array([], dtype=int)
    keep = (cell >= 0) & rows["error"].isna().to_numpy() & rows["completion_tokens"].notna().to_numpy()
    rows = rows[keep]
    turn = rows["turn"].fillna(0).astype(int).astype(str)
    many = rows["turn"].fillna(0) > 0
    prompt = rows["prompt_id"].astype(object).astype(str)
    tokens, first = rows["completion_tokens"].fillna(0), rows["first_chunk_tokens"].fillna(1)
    return pd.DataFrame(
        {
            "cell": cell[keep],
            "start": results.cells["start"].to_numpy()[rows["attempt"].to_numpy()],
            "prompt": prompt.where(~many, prompt + "#" + turn),
            "output": rows["output_sha256"].astype(object),
            "tokens": tokens,
            "seconds": rows["last"] - rows["sent"],
            "decode_tokens": tokens - first,
            "decode_seconds": rows["last"] - rows["first"],
            "steps": rows["verify_steps"],
            "produced": (tokens - 1).where(rows["verify_steps"].notna()),
            "drafted": rows["drafted"],
            "accepted": rows["accepted"],
        }
    )


def _cell(attempts: pd.DataFrame, requests: pd.DataFrame | None) -> Cell:
    if requests is None or requests.empty:
        return Cell(attempts)
    start, starts = pd.factorize(requests["start"], sort=True)
    prompt, prompts = pd.factorize(requests["prompt"], sort=True)
    place = start * len(prompts) + prompt
    shape = (len(starts), len(prompts))
    figures = {
        name: np.bincount(place, requests[name].fillna(0), minlength=shape[0] * shape[1]).reshape(shape)
        for name in FIGURES
    }
    outputs: dict[str, set[str]] = {}
    for name, output in zip(requests["prompt"], requests["output"], strict=True):
        if isinstance(output, str):
            outputs.setdefault(name, set()).add(output)
    return Cell(attempts, tuple(starts), tuple(prompts), figures, outputs)
