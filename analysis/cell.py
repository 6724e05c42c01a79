"""A cell: everything that was measured under one specification and one set of conditions of one host, summed by server
start and prompt."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from analysis import doubts, statistics
from analysis.grouping import groups, natural
from analysis.statistics import Estimate, Sums
from analysis.tree import Results
from gauntlet import identity

RATIOS = {
    "speed": ("tokens", "seconds"),  # completion tokens per second from sent to last token
    "decode": ("decode_tokens", "decode_seconds"),  # tokens after the first chunk per second after it
    "acceptance": ("produced", "steps"),  # tokens of decode steps per verify step, prefill's token apart
    "per_node": ("accepted", "drafted"),  # accepted per verified node
}
DEPLOYMENT = ("engine", "engine_build", "tp", "arguments", "environment", "weights")  # of a specification
MADE_UP = "SGLANG_SIMULATE"  # an acceptance that SGLang was told to pretend
LATENCIES = ("ttft", "ttft_scheduled", "tpot", "e2e")


@dataclass(eq=False)
class Cell:
    """One specification on one host under one set of conditions; `sums` by figure: server starts × prompts."""

    attempts: pd.DataFrame
    starts: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    figures: dict[str, np.ndarray] = field(default_factory=dict)
    latency: dict[str, tuple] = field(default_factory=dict)  # name -> (n, p50, p90, p99) of requests, ms
    outputs: dict[str, list[str]] = field(default_factory=dict)  # prompt as sent (sha256) -> sha256 of its outputs
    variant: str = ""  # what tells a row from others of its method: see _tell_apart
    content: str = ""  # and from others of its workload
    _sums: dict = field(default_factory=dict)

    def __post_init__(self):
        first = self.attempts.iloc[0]
        self.document: dict = first["document"]
        self.host, self.cell_id, self.spec_id = first["host"], first["cell_id"], first["spec_id"]
        self.model, self.family, self.tp = first["model"], first["family"], int(first["tp"])
        self.engine, self.engine_build = first["engine"], first["engine_build"]
        self.concurrency, self.conditions_id = int(first["concurrency"]), first["conditions_id"]
        self.baseline, self.closing = bool(first["baseline"]), bool(first["closing"])
        self.specification: dict = self.document["specification"]
        self.conditions: dict = self.document["conditions"]
        self.declared = {key: self.specification[key] for key in DEPLOYMENT if key in self.specification}
        self.greedy = (self.specification.get("sampling") or {}).get("temperature", 0) == 0

    @property
    def method(self) -> str:
        """The method as rows and figures name it: what is made up or its own stands wherever its numbers appear."""
        made_up = any(text.startswith(MADE_UP) for text in self.document["simulated"])
        return self.document["method"] + " (simulated)" * made_up + (f" [{self.variant}]" if self.variant else "")

    @property
    def workload(self) -> str:
        return self.document["workload"] + (f" [{self.content}]" if self.content else "")

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
        named = re.search(r"-b(\d+)$", self.document["method"])
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
        """Acceptance length; of the server's counters, over starts alone, where requests do not tell their steps."""
        found = self.estimate("acceptance")
        counted = [
            document for document in self.documents if document["summary"].get("acceptance_source") == "counters"
        ]
        if not math.isnan(found.value) or not counted:
            return found
        told = [
            (one["summary"]["completion_tokens"], one["summary"]["completed"], one["summary"]["verify_steps"])
            for one in counted
        ]
        tokens, requests, steps = (np.array(column, float)[:, None] for column in zip(*told, strict=True))
        return statistics.alone(Sums(tokens - requests, steps, self.name))

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


def cells(results: Results) -> list[Cell]:
    """Every cell of what was read, in the order in which a table shows them; only valid attempts are summed."""
    attempts = results.cells.sort_values("attempt", kind="stable")
    attempts = [group for _, group in attempts.groupby(["host", "conditions_id", "spec_id", "closing"], sort=False)]
    row_cell = np.full(len(results.cells), -1)
    for number, group in enumerate(attempts):
        row_cell[group.index[group["valid"]]] = number
    measured = _Measured(results, row_cell, len(attempts))
    found = [Cell(group, *measured.of(number)) for number, group in enumerate(attempts)]
    _tell_apart(found)
    return sorted(found, key=_order)


def _order(cell: Cell) -> tuple:
    host, model, workload, method = map(natural, (cell.host, cell.model, cell.workload, cell.method))
    return (host, model, cell.tp, workload, cell.concurrency, not cell.baseline, method, cell.cell_id, cell.closing)


def _tell_apart(cells: list[Cell]) -> None:
    """No two rows of one name: a method of several declarations at one tp carries what is its own, at every tp, so that
    sweeps find their own: the environment's profile where that tells them apart, else variables, flags and weights.
    A workload of several contents carries a digest of its own."""

    def of_method(cell: Cell) -> tuple:
        host, conditions, model, _, engine, build = cell.series
        return host, conditions, model, engine, build, cell.method

    for same in groups(cells, of_method).values():
        by_tp = groups(same, lambda cell: cell.tp).values()
        if all(len(set(map(_declaration, one))) == 1 for one in by_tp):
            continue
        for one in by_tp:
            common = frozenset.intersection(*map(_declaration, one))
            pairs = {(cell.document.get("environment_profile"), _declaration(cell)) for cell in one}
            named = len({profile for profile, _ in pairs if profile}) == len(pairs)
            for cell in one:
                own = " ".join(f"{name}={value}" for name, value in sorted(_declaration(cell) - common))
                cell.variant = cell.document["environment_profile"] if named else own
    for same in groups(cells, lambda cell: (cell.host, cell.model, cell.workload)).values():
        contents = [_content(cell) for cell in same]
        if len(set(contents)) > 1:
            for cell, content in zip(same, contents, strict=True):
                cell.content = content[:8]


def _content(cell: Cell) -> str:
    """A digest of what a workload asks, however often."""
    workload = cell.specification.get("workload")
    if isinstance(workload, dict):
        workload = {name: value for name, value in workload.items() if name != "requests"}
    return identity.digest([workload, cell.specification.get("sampling")])


def _declaration(cell: Cell) -> frozenset:
    """(name, value) of all that a deployment declares beside its engine's build."""
    flat = {**(cell.declared.get("arguments") or {}), **(cell.declared.get("environment") or {})}
    weights = {role: entry.get("id") for role, entry in (cell.declared.get("weights") or {}).items() if entry}
    return frozenset((name, str(value)) for name, value in {**flat, **weights}.items())


class _Measured:
    """Successful requests of valid attempts, sorted by cell, as arrays.

    A prompt is what the bootstrap draws; all turns and passes of one prompt are drawn together.
    """

    def __init__(self, results: Results, row_cell: np.ndarray, count: int):
        rows = results.requests
        cell = row_cell[rows["attempt"].to_numpy()]
        keep = (cell >= 0) & rows["error"].isna().to_numpy() & rows["completion_tokens"].notna().to_numpy()
        order = np.flatnonzero(keep)[np.argsort(cell[keep], kind="stable")]
        cell, rows = cell[order], rows.iloc[order]
        self.ends = np.searchsorted(cell, np.arange(count + 1))
        self.start, self.starts = pd.factorize(results.cells["start"].to_numpy()[rows["attempt"].to_numpy()], sort=True)
        self.prompt, self.prompts = _ranked(rows["prompt_id"])
        self.sent, self.output = (rows[name].astype(object).to_numpy() for name in ("prompt_sha256", "output_sha256"))
        self.figures, self.latency = _figures(lambda name: rows[name].to_numpy(), (rows["finish_reason"] == "length"))

    def of(self, number: int) -> tuple:
        """(starts, prompts, figures, latency, outputs) of one cell."""
        begin, end = self.ends[number : number + 2]
        if begin == end:
            return ()
        here = slice(begin, end)
        starts, start = np.unique(self.start[here], return_inverse=True)
        prompts, prompt = np.unique(self.prompt[here], return_inverse=True)
        place, shape = start * len(prompts) + prompt, (len(starts), len(prompts))
        figures = {
            name: np.bincount(place, values[here], minlength=shape[0] * shape[1]).reshape(shape)
            for name, values in self.figures.items()
        }
        outputs: dict[str, list[str]] = {}
        for sent, output in zip(self.sent[here], self.output[here], strict=True):
            if isinstance(sent, str) and isinstance(output, str):
                outputs.setdefault(sent, []).append(output)
        latency = {name: _quantiles(values[here]) for name, values in self.latency.items()}
        return tuple(self.starts[starts]), tuple(self.prompts[prompts]), figures, latency, outputs


def _ranked(labels: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """(codes, names) of a categorical, codes in the order of the names: what was read first must not matter."""
    names = labels.cat.categories.to_numpy().astype(str)
    order = np.argsort(names)
    rank = np.append(np.argsort(order), -1)
    return rank[labels.cat.codes.to_numpy()], names[order]


def _figures(of: Callable[[str], np.ndarray], full_length: pd.Series) -> tuple[dict, dict]:
    """What is summed, 0 where it was not told, and the latencies in ms, NaN where they were not measured."""
    tokens, steps = of("completion_tokens"), of("verify_steps")
    decode_tokens, decode_seconds = tokens - of("first_chunk_tokens"), of("last") - of("first")
    streamed = ~np.isnan(decode_tokens) & ~np.isnan(decode_seconds) & (of("chunks") > 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(streamed & (decode_tokens > 0), decode_seconds / decode_tokens, np.nan)
    summed = {
        "requests": np.ones(len(tokens)), "streamed": streamed.astype(float), "full_length": full_length.astype(float),
        "prompt_tokens": of("prompt_tokens"), "cached_tokens": of("cached_tokens"),
        "expected_tokens": of("expected_tokens"), "tokens": tokens, "seconds": of("last") - of("sent"),
        "decode_tokens": np.where(streamed, decode_tokens, 0), "decode_seconds": np.where(streamed, decode_seconds, 0),
        "steps": steps, "produced": np.where(np.isnan(steps), 0, tokens - 1), "drafted": of("drafted"),
        "accepted": of("accepted"),
    }  # fmt: skip
    seconds = (of("first") - of("sent"), of("first") - of("scheduled"), tpot, of("ended") - of("scheduled"))
    latency = {name: 1000 * values for name, values in zip(LATENCIES, seconds, strict=True)}
    return {name: np.nan_to_num(np.asarray(values, float)) for name, values in summed.items()}, latency


def _quantiles(values: np.ndarray) -> tuple:
    """(n, p50, p90, p99)."""
    values = values[~np.isnan(values)]
    return (len(values), *(np.percentile(values, [50, 90, 99]) if len(values) else [math.nan] * 3))
