"""Figures: drawn once with matplotlib, the same bytes for the same study."""

import io
import math
from dataclasses import dataclass

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from analysis.study import Study

# Okabe & Ito 2008: distinguishable with every kind of colour blindness
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
BASELINE = "#767676"
STYLE = {
    "svg.hashsalt": "gauntlet", "svg.fonttype": "path", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "grid.color": "#dddddd", "figure.constrained_layout.use": True,
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A drawn figure; `workload` and `tp` are what the report's filters look at ('' for all)."""

    name: str
    title: str
    caption: str
    svg: str
    png: bytes
    workload: str = ""
    tp: str = ""


def make(study: Study) -> list[Figure]:
    """Every figure that this study has the data for."""
    watermark = "SYNTHETIC" if "synthetic" in study.simulated else ""
    figures = []
    with plt.rc_context(STYLE):
        for (host, model, tp), group in _by(study.comparisons, lambda c: (c.method.host, c.method.model, c.method.tp)):
            figures.append(_speedups(host, model, tp, group, watermark))
    return figures


def _speedups(host, model, tp, comparisons, watermark) -> Figure:
    panels = _by(comparisons, lambda c: (c.method.workload, c.method.concurrency))
    methods = list(dict.fromkeys(c.method.method for c in comparisons))
    columns = min(4, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = (2.2 + 2.3 * columns, rows * (0.7 + 0.28 * len(methods)) + 0.4)
    drawn, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, sharex=True, sharey=True)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, ((workload, concurrency), group) in zip(axes.flat, panels, strict=False):
        axis.axvline(1, color=BASELINE, linewidth=1.2, linestyle=(0, (4, 2)))
        for comparison in group:
            _interval(axis, methods.index(comparison.method.method), comparison.speedup, methods)
        axis.set_title(f"{workload} · C={concurrency}")
        axis.set_yticks(range(len(methods)), methods)
        axis.set_ylim(len(methods) - 0.5, -0.5)
        axis.grid(axis="x")
    drawn.supxlabel("speed-up over the baseline (×), 95 % interval", fontsize=9)
    return _figure(
        f"speedup-{host}-{model}-tp{tp}", f"Speed-up by method: {model}, TP{tp}, {host}",
        "Tokens per second of request, method over baseline on the same prompts. Dashed: the baseline (1.0). "
        "A hollow mark has no interval.", drawn, watermark, tp=str(tp),
    )  # fmt: skip


def _interval(axis, row, estimate, methods) -> None:
    colour = COLOURS[row % len(COLOURS)]
    if estimate.has_interval:
        axis.plot([estimate.low, estimate.high], [row, row], color=colour, linewidth=2.2, solid_capstyle="butt")
    axis.plot(
        [estimate.value], [row], marker="o", markersize=5.5, color=colour,
        markerfacecolor=colour if estimate.has_interval else "white",
    )  # fmt: skip


def _by(items, key) -> list[tuple]:
    groups: dict = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())


def _figure(name, title, caption, drawn, watermark, workload="", tp="") -> Figure:
    if watermark:
        drawn.text(0.5, 0.5, watermark, fontsize=34, color="#cc0000", alpha=0.16, ha="center", va="center", rotation=20)
    svg, png = io.StringIO(), io.BytesIO()
    drawn.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    drawn.savefig(png, format="png", dpi=150, metadata={"Software": None})
    plt.close(drawn)
    text = svg.getvalue()
    return Figure(name, title, caption, text[text.index("<svg") :], png.getvalue(), workload, tp)
