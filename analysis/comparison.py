"""Two cells beside each other on the prompts that both answered."""

import math
from dataclasses import dataclass
from functools import cached_property

from analysis import statistics
from analysis.cell import Cell
from analysis.statistics import Estimate


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
            told = cell.sums("acceptance", self.prompts).ratio
            length = 1.0 if cell.baseline else cell.acceptance.value if math.isnan(told) else told
            speed = cell.sums("decode", self.prompts).ratio
            steps.append(1000 * length / speed if speed > 0 else math.nan)
        return steps[0], steps[1]

    @cached_property
    def same_output(self) -> "SameOutput":
        """Compared at temperature 0 alone: sampled outputs differ by design."""
        greedy = self.method.greedy and self.baseline.greedy
        ours, theirs = (self.method.outputs, self.baseline.outputs) if greedy else ({}, {})
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
