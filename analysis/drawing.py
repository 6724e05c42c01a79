"""Figures drawn by matplotlib: the same bytes for the same data."""

import io
import math
import textwrap
from colorsys import hls_to_rgb, rgb_to_hls

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import TwoSlopeNorm, to_hex, to_rgb
from matplotlib.ticker import FuncFormatter, NullLocator

from analysis.figures import Figure, Panel, Series
from analysis.grouping import groups, natural

# Okabe and Ito 2008: told apart with every kind of colour blindness; yellow left out, it does not show on white
HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKS = "osD^vPX*<>"
BASELINE = "#6b6b6b"
HEAT = "PuOr"
LABEL = 28  # characters of a line
STYLE = {
    "svg.hashsalt": "gauntlet", "svg.fonttype": "path", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.edgecolor": "#888888", "xtick.color": "#444444", "ytick.color": "#444444", "axes.labelcolor": "#333333",
    "grid.color": "#e4e4e4", "axes.axisbelow": True, "figure.constrained_layout.use": True, "legend.frameon": False,
}  # fmt: skip


class Palette:
    """A colour and a mark for every method, the same in every figure; members of a family share a hue."""

    def __init__(self, figures: list[Figure]):
        named = {
            (series.name, series.family) for figure in figures for panel in figure.panels for series in panel.series
        }
        families = groups(sorted(named, key=lambda pair: (pair[1], natural(pair[0]))), lambda pair: pair[1])
        baselines = families.pop("", [])  # several where an environment has one each
        self._look = {one: (BASELINE, MARKS[number % len(MARKS)]) for number, one in enumerate(baselines)}
        for hue, members in zip(_cycle(HUES, len(families)), families.values(), strict=True):
            for number, (name, family) in enumerate(members):
                colour = _shade(hue, number / (len(members) - 1)) if len(members) > 1 else hue
                self._look[name, family] = colour, MARKS[number % len(MARKS)]

    def __getitem__(self, series: Series) -> tuple[str, str]:
        return self._look.get((series.name, series.family), (BASELINE, "o"))


def draw(figure: Figure, palette: Palette, watermark: str = "") -> tuple[str, bytes]:
    """(SVG text, PNG bytes)."""
    with plt.rc_context(STYLE):
        drawn = {"dots": _dots, "lines": _lines, "heat": _heat, "plane": _plane}[figure.kind](figure, palette)
        if watermark:
            drawn.text(
                0.5, 0.5, watermark, fontsize=min(60, 11 * drawn.get_figwidth()), color="#cc0000", alpha=0.13,
                ha="center", va="center", rotation=18, weight="bold",
            )  # fmt: skip
        svg, png = io.StringIO(), io.BytesIO()
        drawn.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        drawn.savefig(png, format="png", dpi=144, metadata={"Software": None})
        plt.close(drawn)
    text = svg.getvalue()
    return text[text.index("<svg") :], png.getvalue()


def _dots(figure: Figure, palette: Palette):
    """Panels of rows, a row a method; shared so that panels compare."""
    names = sorted({series.name for panel in figure.panels for series in panel.series}, key=natural)
    labels = [folded(name) for name in names]
    lines = sum(label.count("\n") + 1 for label in labels)
    drawn, axes = _grid(figure, 3.0, 0.62 + 0.25 * lines, share_y=True)
    _widen(drawn, max(0.0, _inches(labels) - 1.5))
    for axis, panel in zip(axes, figure.panels, strict=False):
        _reference(axis.axvline, panel)
        for series in panel.series:
            colour, mark = palette[series]
            row, value = names.index(series.name), series.points[0].y
            if value.has_interval:
                axis.plot([value.low, value.high], [row, row], color=colour, linewidth=2.4, solid_capstyle="butt")
            face = colour if value.has_interval else "white"
            axis.plot([value.value], [row], marker=mark, markersize=6, color=colour, markerfacecolor=face)
        axis.set_title(panel.title)
        axis.set_yticks(range(len(names)), labels)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.grid(axis="x")
    drawn.supxlabel(figure.x, fontsize=9, color="#333333")
    return drawn


def _lines(figure: Figure, palette: Palette):
    drawn, axes = _grid(figure, 3.6, 2.7, share_y=figure.share_y)
    for axis, panel in zip(axes, figure.panels, strict=False):
        _reference(axis.axhline, panel)
        for series in panel.series:
            colour, mark = palette[series]
            x = [point.x for point in series.points]
            axis.plot(x, [p.y.value for p in series.points], color=colour, marker=mark, markersize=4.5, linewidth=1.5)
            axis.fill_between(
                x,
                [p.y.low for p in series.points],
                [p.y.high for p in series.points],
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
        axis.set_title(panel.title)
        axis.set_ylim(bottom=0)
        axis.grid()
        _x_axis(axis, figure, panel)
    drawn.supxlabel(figure.x, fontsize=9, color="#333333")
    drawn.supylabel(figure.y, fontsize=9, color="#333333")
    _legend(drawn, figure, palette)
    return drawn


def _plane(figure: Figure, palette: Palette):
    drawn, axes = _grid(figure, 3.4, 2.9, share_y=True, share_x=True)
    points = [point for panel in figure.panels for series in panel.series for point in series.points]
    right = 1.12 * max(1.0, *(point.x for point in points))
    upper = 1.12 * max(point.y.value for point in points)
    for axis, panel in zip(axes, figure.panels, strict=False):
        for product in (0.5, 1, 1.5, 2, 3, 4, 6, 8):
            at = min(right, upper / product)
            if at > 0.25 * right or at * product >= upper:
                axis.plot([0, right], [0, right * product], color="#bbbbbb", linewidth=1.6 if product == 1 else 0.8)
                axis.annotate(
                    f"{product:g}×", (at, at * product), fontsize=7.5, color="#777777", ha="right", va="top",
                    xytext=(-2, -1), textcoords="offset points",
                )  # fmt: skip
        for series in panel.series:
            colour, mark = palette[series]
            axis.plot([series.points[0].x], [series.points[0].y.value], marker=mark, color=colour, markersize=7)
        axis.set_xlim(0, right)
        axis.set_ylim(0, upper)
        axis.set_title(panel.title)
    drawn.supxlabel(figure.x, fontsize=9, color="#333333")
    drawn.supylabel(figure.y, fontsize=9, color="#333333")
    _legend(drawn, figure, palette)
    return drawn


def _heat(figure: Figure, palette: Palette):
    """Prompts down, methods across, the value written in each field."""
    panel = figure.panels[0]
    rows, columns = len(figure.ticks), len(panel.series)
    values = [[math.nan] * columns for _ in range(rows)]
    size = (1.6 + 0.075 * max(map(len, figure.ticks)) + 0.85 * columns, 1.3 + 0.26 * rows)
    drawn, axis = plt.subplots(figsize=size)
    shown = [point.y.value for series in panel.series for point in series.points if not math.isnan(point.y.value)]
    scale = heat_scale(shown)
    for column, series in enumerate(panel.series):
        for point in series.points:
            values[int(point.x)][column] = point.y.value
            sure = point.y.excludes_one
            if not math.isnan(point.y.value):
                dark = is_dark(scale(point.y.value))
                colour = ("white" if dark else "#111111") if sure else ("#dddddd" if dark else "#888888")
                axis.text(column, point.x, f"{point.y.value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    image = axis.imshow(values, cmap=HEAT, norm=scale, aspect="auto")
    axis.set_xticks(
        range(columns), [folded(series.name) for series in panel.series], rotation=30, ha="left", rotation_mode="anchor"
    )
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.set_yticks(range(rows), figure.ticks)
    for side in axis.spines.values():
        side.set_visible(False)
    bar = drawn.colorbar(image, ax=axis, shrink=min(1.0, 3.2 / size[1]), aspect=14, label="speed-up (×)")
    bar.outline.set_visible(False)
    return drawn


def heat_scale(values: list[float]) -> TwoSlopeNorm:
    """Speed-ups to 0..1, the baseline in the middle."""
    return TwoSlopeNorm(1, min(0.5, *values), max(1.5, *values))


def is_dark(shade: float) -> bool:
    """Whether a field of that shade takes white ink."""
    return abs(shade - 0.5) > 0.33


def _grid(figure: Figure, width: float, height: float, share_y: bool = False, share_x: bool | None = None):
    """(figure, its axes): up to three panels side by side."""
    columns = figure.across
    rows = math.ceil(len(figure.panels) / columns)
    drawn, axes = plt.subplots(
        rows, columns, figsize=(max(4.8, width * columns + 0.6), height * rows + 0.75), squeeze=False,
        sharex=figure.kind == "dots" if share_x is None else share_x, sharey=share_y,
    )  # fmt: skip
    for axis in axes.flat[len(figure.panels) :]:
        axis.set_visible(False)
    for axis in axes.flat[max(0, len(figure.panels) - columns) : len(figure.panels)]:
        axis.tick_params(labelbottom=True)
    return drawn, list(axes.flat)


def top(panels: list[Panel]) -> float:
    """The upper end of an axis that holds every value and interval."""
    values = [point.y for panel in panels for series in panel.series for point in series.points]
    values += [panel.baseline for panel in panels if panel.baseline]
    return 1.06 * max(value.high if value.has_interval else value.value for value in values)


def _reference(line, panel: Panel) -> None:
    """The baseline across a panel, with its interval where it has one."""
    if panel.baseline is None:
        return
    if panel.baseline.has_interval:
        span = {"axhline": "axhspan", "axvline": "axvspan"}[line.__name__]
        getattr(line.__self__, span)(panel.baseline.low, panel.baseline.high, color=BASELINE, alpha=0.15, linewidth=0)
    line(panel.baseline.value, color=BASELINE, linewidth=1.3, linestyle=(0, (4, 2)))


def _x_axis(axis, figure: Figure, panel: Panel) -> None:
    at = sorted({point.x for series in panel.series for point in series.points})
    if figure.ticks:
        axis.set_xticks([int(x) for x in at], [figure.ticks[int(x)] for x in at])
        axis.margins(x=0.12)
        return
    if figure.log_x:
        axis.set_xscale("log", base=2)
    axis.set_xticks(at)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1000:g}k" if x >= 1000 else f"{x:g}"))
    axis.xaxis.set_minor_locator(NullLocator())


def _legend(drawn, figure: Figure, palette: Palette) -> None:
    named = {series.name: series for panel in figure.panels for series in panel.series}
    handles = []
    for name in sorted(named, key=lambda name: (named[name].family, natural(name))):
        colour, mark = palette[named[name]]
        handles.append(plt.Line2D([], [], color=colour, marker=mark, markersize=5, linewidth=1.5, label=folded(name)))
    if len(handles) > 1:
        drawn.legend(handles=handles, loc="outside right center", fontsize=8.5)
        _widen(drawn, max(0.0, _inches([handle.get_label() for handle in handles]) - 1.0))


def folded(name: str) -> str:
    """A long name on several lines; words longer than a line stay whole."""
    return textwrap.fill(name, LABEL, break_long_words=False, break_on_hyphens=False)


def _inches(labels: list[str]) -> float:
    """About how wide the longest line of some labels is drawn."""
    return 0.075 * max(len(line) for label in labels for line in label.splitlines())


def _widen(drawn, inches: float) -> None:
    """Room for labels beside the panels, which keep theirs."""
    drawn.set_figwidth(drawn.get_figwidth() + inches)


def _shade(colour: str, share: float) -> str:
    """The hue from dark (0) to light (1)."""
    hue, _, saturation = rgb_to_hls(*to_rgb(colour))
    return to_hex(hls_to_rgb(hue, 0.22 + 0.5 * share, saturation))


def _cycle(colours: tuple[str, ...], count: int) -> list[str]:
    return [colours[i % len(colours)] for i in range(count)]
