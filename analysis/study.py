"""What a results tree allows to be said: its cells, and each method beside the baseline that was measured like it.

A cell here is everything valid that was measured under one specification and one set of conditions of one host.
A speed-up never crosses hosts, conditions, models, tp, engine builds, workloads or concurrencies.
"""

import json
import math
import re
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from analysis import doubts, statistics
from analysis.grouping import natural
from analysis.statistics import Estimate, Sums
from analysis.tree import Problem, Results
from gauntlet.errors import GauntletError

SYNTHETIC = "synthetic"
RATIOS = {
    "speed": ("tokens", "seconds"),  # completion tokens per second from sent to last token
    "decode": ("decode_tokens", "decode_seconds"),  # tokens after the first chunk per second after it
    "acceptance": ("produced", "steps"),  # tokens of decode steps per verify step, prefill's token apart
    "per_node": ("accepted", "drafted"),  # accepted per verified node
}


@dataclass(eq=False)
class Cell:
    """One specification on one host under one set of conditions; `sums` by figure: server starts × prompts."""

    attempts: pd.DataFrame
    starts: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    figures: dict[str, np.ndarray] = field(default_factory=dict)
    latency: dict[str, tuple] = field(default_factory=dict)  # name -> (n, p50, p90, p99) of requests, ms
    outputs: dict[str, list[str]] = field(default_factory=dict)  # prompt as sent (sha256) -> sha256 of its outputs
    _sums: dict = field(default_factory=dict)

    def __post_init__(self):
        first = self.attempts.iloc[0]
        self.document: dict = first["document"]
        self.host, self.cell_id, self.spec_id = first["host"], first["cell_id"], first["spec_id"]
        self.model, self.method, self.family, self.tp = (
            first["model"],
            first["method"],
            first["family"],
            int(first["tp"]),
        )
        self.engine, self.engine_build, self.workload = first["engine"], first["engine_build"], first["workload"]
        self.concurrency, self.conditions_id = int(first["concurrency"]), first["conditions_id"]
        self.baseline, self.closing = bool(first["baseline"]), bool(first["closing"])
        self.specification: dict = self.document["specification"]
        self.conditions: dict = self.document["conditions"]
        self.declared: dict = self.specification.get("deployment") or {}

    @property
    def valid(self) -> bool:
        return bool(self.starts)

    @property
    def name(self) -> str:
        """Unique in the results, and the same in every run over them."""
        return f"{self.host}/{self.cell_id}/{self.conditions_id[:8]}{'/closing' if self.closing else ''}"

    @property
    def place(self) -> tuple:
        """Where a method can be compared with others: all that must be equal for a speed-up."""
        workload = json.dumps(self.specification.get("workload"), sort_keys=True)
        return (*self.series, self.workload, workload, self.concurrency)

    @property
    def series(self) -> tuple:
        return (self.host, self.conditions_id, self.model, self.tp, self.engine, self.engine_build)

    @cached_property
    def documents(self) -> list[dict]:
        """cell.json of every valid attempt."""
        return list(self.attempts.loc[self.attempts["valid"], "document"])

    @cached_property
    def reasons(self) -> list[str]:
        """Why attempts of this cell may not be quoted."""
        refused = self.attempts.loc[~self.attempts["valid"], "document"]
        reasons = [reason for document in refused for reason in document["validity"].get("reasons", [])]
        return sorted({f"{reason.get('code')}: {reason.get('detail')}" for reason in reasons})

    @cached_property
    def notes(self) -> list[str]:
        """What must stand beside this method's numbers."""
        return list(dict.fromkeys(note for document in self.attempts["document"] for note in document["notes"]))

    @cached_property
    def requests(self) -> int:
        return int(self.figures["requests"].sum()) if self.valid else 0

    @cached_property
    def budget(self) -> int | None:
        """Draft tokens of a family's member: an argument that ends in 'budget', else the -b<N> of its name."""
        arguments = self.declared.get("arguments") or {}
        told = [value for flag, value in arguments.items() if flag.endswith("budget")]
        named = re.search(r"-b(\d+)$", self.method)
        return int(told[0]) if told else int(named.group(1)) if named else None

    @cached_property
    def context(self) -> int | None:
        """Prompt length of a workload whose prompts are all equally long, as those of a context sweep are."""
        if not self.valid:
            return None
        lengths = set((self.figures["prompt_tokens"] / np.maximum(self.figures["requests"], 1)).ravel().tolist())
        return int(lengths.pop()) if len(lengths) == 1 else None

    @property
    def hybrid(self) -> bool:
        """Whether the model carries recurrent state beside its KV cache, as far as arguments and server tell."""
        told = [*(self.declared.get("arguments") or {}), *(self.document.get("server") or {})]
        return any("mamba" in name or "linear-attn" in name for name in told)

    @cached_property
    def prompt_tokens(self) -> float:
        """Mean prompt length of its requests."""
        return float(self.figures["prompt_tokens"].sum() / self.requests) if self.valid else math.nan

    def summary(self, name: str, share: str = "") -> float:
        """A figure of cell.json's summary, the median over valid attempts; NaN when none has it."""
        values = [document["summary"].get(name) for document in self.documents]
        values = [value.get(share) if share and value else value for value in values]
        values = [value for value in values if value is not None]
        return float(np.median(values)) if values else math.nan

    @cached_property
    def tokens_per_s(self) -> Estimate:
        """Completion tokens over the measured windows, all valid attempts together; aggregate over streams."""
        tokens = np.array([[document["summary"].get("completion_tokens") or 0] for document in self.documents], float)
        windows = np.array([[document["window_s"]] for document in self.documents], float)
        return statistics.alone(Sums(tokens, windows, self.name)) if self.valid else Estimate(math.nan)

    def sums(self, ratio: str, prompts: tuple[str, ...] | None = None) -> Sums:
        """One of RATIOS on the given prompts (all when None)."""
        found = self._sums.get((ratio, prompts))
        if found is None:
            columns = slice(None) if prompts is None else [self.prompts.index(prompt) for prompt in prompts]
            over, under = (self.figures[name][:, columns] for name in RATIOS[ratio])
            found = self._sums[ratio, prompts] = Sums(over, under, self.name)
        return found

    def estimate(self, ratio: str) -> Estimate:
        """One of RATIOS over all prompts; not measured where the server does not say, or nothing is drafted."""
        if not self.valid or self.figures[RATIOS[ratio][1]].sum() == 0:
            return Estimate(math.nan, reason="not measured")
        return statistics.alone(self.sums(ratio))

    @cached_property
    def acceptance(self) -> Estimate:
        return self.estimate("acceptance")

    @cached_property
    def survival(self) -> list[float]:
        """Share of verify steps in which at least the first, second, … drafted token was accepted."""
        lists = [document["summary"].get("acceptance_position_counts") or [] for document in self.documents]
        steps = np.sum([np.pad(one, (0, max(map(len, lists)) - len(one))) for one in lists if one], axis=0)
        if not np.size(steps) or not steps.sum():
            return []
        return (steps[::-1].cumsum()[::-1] / steps.sum())[1:].tolist()

    @cached_property
    def telling(self) -> dict:
        """The figures that tell whether others mislead."""
        return doubts.figures(self)


@dataclass(eq=False)
class Comparison:
    """Two cells on the prompts that both answered: usually a method's and its baseline's."""

    method: Cell
    baseline: Cell

    @cached_property
    def prompts(self) -> tuple[str, ...]:
        theirs = set(self.baseline.prompts)
        return tuple(prompt for prompt in self.method.prompts if prompt in theirs)

    def ratio(self, name: str, prompts: tuple[str, ...] | None = None) -> Estimate:
        """One of RATIOS, method over baseline."""
        prompts = self.prompts if prompts is None else prompts
        if not prompts:
            return Estimate(math.nan, reason="no prompt in common")
        return statistics.compare(self.method.sums(name, prompts), self.baseline.sums(name, prompts))

    @cached_property
    def speedup(self) -> Estimate:
        """Completion tokens per second of request (sent → last token), method over baseline."""
        return self.ratio("speed")

    @cached_property
    def decode_speedup(self) -> Estimate:
        """The same of the decode phase alone: acceptance length × baseline step time / method step time."""
        return self.ratio("decode")

    @cached_property
    def step_ms(self) -> tuple[float, float]:
        """(method, baseline) effective duration of a decode step on the common prompts: acceptance / decode speed."""
        steps = []
        for cell in (self.method, self.baseline):
            acceptance = cell.sums("acceptance", self.prompts).ratio
            acceptance = 1.0 if math.isnan(acceptance) else acceptance
            speed = cell.sums("decode", self.prompts).ratio
            steps.append(1000 * acceptance / speed if speed > 0 else math.nan)
        return steps[0], steps[1]

    @cached_property
    def same_output(self) -> "SameOutput":
        ours, theirs = self.method.outputs, self.baseline.outputs
        shared = [prompt for prompt in ours if prompt in theirs]
        return SameOutput(
            asked=len(shared),
            differing=tuple(prompt for prompt in shared if not set(ours[prompt]) <= set(theirs[prompt])),
            asked_again=sum(len(theirs[prompt]) > 1 for prompt in shared),
            varying=sum(len(set(theirs[prompt])) > 1 for prompt in shared),
        )


@dataclass(frozen=True)
class SameOutput:
    """The method's outputs beside the baseline's to the same prompt as sent, and the baseline's beside its own.

    A prompt is sent with the salt of its repeat, so the baseline answers the same one again only at the end of a
    campaign or in another attempt of that repeat: that is the control.
    """

    asked: int
    differing: tuple[str, ...]  # prompts to which the method gave an output that the baseline never gave
    asked_again: int  # prompts that the baseline answered more than once
    varying: int  # of those, the ones on which it does not agree with itself


@dataclass(frozen=True)
class Drift:
    """The baseline at the end of a campaign over the same cells in its rounds."""

    series: tuple
    change: Estimate
    cells: tuple[str, ...]
    conditions_changed: bool


@dataclass(eq=False)
class Study:
    """Everything that tables, figures and findings are made from."""

    cells: list[Cell]
    comparisons: list[Comparison]
    without_baseline: list[Cell]
    drifts: list[Drift]
    problems: list[Problem]
    doubts: dict[str, list[str]]  # a cell's name -> why neither it nor its speed-up is quoted
    remarks: dict[str, list[str]]  # a cell's name -> what to know beside its numbers

    @cached_property
    def simulated(self) -> list[str]:
        """What was not real in any attempt."""
        return sorted({text for cell in self.cells for doc in cell.attempts["document"] for text in doc["simulated"]})

    @cached_property
    def _by_method(self) -> dict[str, Comparison]:
        return {comparison.method.name: comparison for comparison in self.comparisons}

    def comparison_of(self, cell: Cell) -> Comparison | None:
        return self._by_method.get(cell.name)


def make(results: Results, synthetic: bool = False) -> Study:
    """The study of what was read.

    Raises GauntletError when synthetic attempts are there but not asked for, and when no attempt is valid.
    """
    if not synthetic and any(SYNTHETIC in document["simulated"] for document in results.cells["document"]):
        raise GauntletError("these results are synthetic (made, not measured); --synthetic accepts them, watermarked")
    if not results.cells["valid"].any():
        reasons = [reason for doc in results.cells["document"] for reason in doc["validity"].get("reasons", [])]
        codes = sorted({str(reason.get("code")) for reason in reasons})
        raise GauntletError(
            f"no valid attempt among {len(results.cells)} ({', '.join(codes) or 'no reason given'}): "
            "nothing can be quoted; remove the cause and run bench.yml again"
        )
    cells = _cells(results)
    baselines: dict[tuple, list[Cell]] = {}
    for cell in cells:
        if cell.baseline and cell.valid and not cell.closing:
            baselines.setdefault(cell.place, []).append(cell)
    comparisons, without = [], []
    for cell in cells:
        if cell.baseline or not cell.valid or cell.closing:
            continue
        nearest = min(baselines.get(cell.place, []), key=lambda base: (_distance(cell, base), base.name), default=None)
        if nearest:
            comparisons.append(Comparison(cell, nearest))
        else:
            without.append(cell)
    _share_controls(cells)
    valid = [cell for cell in cells if cell.valid]
    doubted = {cell.name: doubts.of_cell(cell) for cell in valid}
    doubted |= {comparison.method.name: doubts.of_comparison(comparison) for comparison in comparisons}
    crossed = doubts.crossed_pools(valid)
    remarks = {cell.name: [*crossed.get(cell.name, []), *doubts.remarks(cell)] for cell in valid}
    return Study(
        cells, comparisons, without, _drifts(cells), results.problems,
        {name: found for name, found in doubted.items() if found},
        {name: found for name, found in remarks.items() if found},
    )  # fmt: skip


def _distance(cell: Cell, baseline: Cell) -> int:
    """Environment variables in which the two differ: of several baselines the one measured most like the method."""
    ours, theirs = (set((one.declared.get("environment") or {}).items()) for one in (cell, baseline))
    return len(ours ^ theirs)


def _share_controls(cells: list[Cell]) -> None:
    """A baseline's answers at the end of the campaign are the control of its earlier ones."""
    closing = {(cell.host, cell.spec_id): cell for cell in cells if cell.closing}
    for cell in cells:
        again = closing.get((cell.host, cell.spec_id))
        if again is not None and not cell.closing:
            for prompt, outputs in again.outputs.items():
                if prompt in cell.outputs:
                    cell.outputs[prompt] = cell.outputs[prompt] + outputs


def _drifts(cells: list[Cell]) -> list[Drift]:
    """One comparison a series, over all its closing cells together: a test per cell would find drift by chance."""
    opening = {}
    for cell in cells:
        if cell.valid and not cell.closing:
            opening.setdefault((cell.host, cell.spec_id), []).append(cell)
    series: dict[tuple, list[tuple[Cell, Cell]]] = {}
    for closing in cells:
        candidates = opening.get((closing.host, closing.spec_id), [])
        if closing.closing and closing.valid and candidates:
            same = [cell for cell in candidates if cell.conditions_id == closing.conditions_id]
            series.setdefault(closing.series, []).append((closing, (same or candidates)[0]))
    return [
        Drift(
            key,
            _change(pairs),
            tuple(closing.cell_id for closing, _ in pairs),
            any(closing.conditions_id != cell.conditions_id for closing, cell in pairs),
        )
        for key, pairs in series.items()
    ]


def _change(pairs: list[tuple[Cell, Cell]]) -> Estimate:
    """Closing over opening speed: t interval of new starts against the spread between the opening ones."""
    ends, begins = [], []
    for closing, cell in pairs:
        prompts = Comparison(closing, cell).prompts
        for speeds, one in ((ends, closing), (begins, cell)):
            sums = one.sums("speed", prompts)
            speeds.append(dict(zip(one.starts, np.log(sums.over.sum(axis=1) / sums.under.sum(axis=1)), strict=True)))
    end, begin = (
        [float(np.mean([cell[start] for cell in speeds])) for start in set.intersection(*map(set, speeds))]
        for speeds in (ends, begins)
    )
    return statistics.new_against_old(end, begin)


def _cells(results: Results) -> list[Cell]:
    attempts = results.cells.sort_values(
        ["host", "model", "tp", "workload", "concurrency", "baseline", "method", "cell_id", "closing", "attempt"],
        ascending=[True] * 5 + [False] + [True] * 4,
        key=lambda column: column.map(natural) if column.name in ("host", "model", "workload", "method") else column,
    )
    groups = [group for _, group in attempts.groupby(["host", "conditions_id", "spec_id", "closing"], sort=False)]
    row_cell = np.full(len(results.cells), -1)
    for number, group in enumerate(groups):
        row_cell[group.index[group["valid"]]] = number
    by_cell = dict(tuple(_measured(results, row_cell).groupby("cell", sort=False)))
    return [_cell(group, by_cell.get(number)) for number, group in enumerate(groups)]


def _measured(results: Results, row_cell: np.ndarray) -> pd.DataFrame:
    """Successful requests of valid attempts with the figures that are summed.

    `prompt` is what the bootstrap draws; all turns and passes of one prompt are drawn together.
    """
    rows = results.requests
    cell = row_cell[rows["attempt"].to_numpy()] if len(rows) else np.array([], dtype=int)
    keep = (cell >= 0) & rows["error"].isna().to_numpy() & rows["completion_tokens"].notna().to_numpy()
    rows = rows[keep]
    tokens, steps = rows["completion_tokens"], rows["verify_steps"]
    decode_tokens, decode_seconds = tokens - rows["first_chunk_tokens"], rows["last"] - rows["first"]
    in_ms = {
        "ttft": rows["first"] - rows["sent"], "ttft_scheduled": rows["first"] - rows["scheduled"],
        "tpot": (decode_seconds / decode_tokens).where((decode_tokens > 0) & (rows["chunks"] > 1)),
        "e2e": rows["ended"] - rows["scheduled"],
    }  # fmt: skip
    streamed = decode_tokens.notna() & decode_seconds.notna() & (rows["chunks"] > 1)
    return pd.DataFrame(
        {
            "cell": cell[keep],
            "start": results.cells["start"].to_numpy()[rows["attempt"].to_numpy()],
            "prompt": rows["prompt_id"].astype(object).astype(str),
            "sent_prompt": rows["prompt_sha256"].astype(object),
            "output": rows["output_sha256"].astype(object),
            "requests": 1.0,
            "streamed": streamed.astype(float),
            "full_length": (rows["finish_reason"] == "length").astype(float),
            "prompt_tokens": rows["prompt_tokens"],
            "cached_tokens": rows["cached_tokens"],
            "expected_tokens": rows["expected_tokens"],
            "tokens": tokens,
            "seconds": rows["last"] - rows["sent"],
            "decode_tokens": decode_tokens.where(streamed),
            "decode_seconds": decode_seconds.where(streamed),
            "steps": steps,
            "produced": (tokens - 1).where(steps.notna()),
            "drafted": rows["drafted"],
            "accepted": rows["accepted"],
        }
        | {f"{name}_ms": 1000 * seconds for name, seconds in in_ms.items()}
    )


SUMMED = (
    "requests", "streamed", "full_length", "prompt_tokens", "cached_tokens", "expected_tokens", "tokens", "seconds",
    "decode_tokens", "decode_seconds", "steps", "produced", "drafted", "accepted",
)  # fmt: skip


def _cell(attempts: pd.DataFrame, requests: pd.DataFrame | None) -> Cell:
    if requests is None or requests.empty:
        return Cell(attempts)
    start, starts = pd.factorize(requests["start"], sort=True)
    prompt, prompts = pd.factorize(requests["prompt"], sort=True)
    place, shape = start * len(prompts) + prompt, (len(starts), len(prompts))
    figures = {
        name: np.bincount(place, requests[name].fillna(0), minlength=shape[0] * shape[1]).reshape(shape)
        for name in SUMMED
    }
    latency = {}
    for name in ("ttft", "ttft_scheduled", "tpot", "e2e"):
        values = requests[f"{name}_ms"].dropna().to_numpy()
        latency[name] = (len(values), *(np.percentile(values, [50, 90, 99]) if len(values) else [math.nan] * 3))
    outputs: dict[str, list[str]] = {}
    for sent, output in zip(requests["sent_prompt"], requests["output"], strict=True):
        if isinstance(sent, str) and isinstance(output, str):
            outputs.setdefault(sent, []).append(output)
    return Cell(attempts, tuple(starts), tuple(prompts), figures, latency, outputs)
