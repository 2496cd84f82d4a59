"""Charts as SVG, drawn here so that the page of a report needs no script and no library.

Bars have positions in percent and heights in pixels: a chart is as wide as its place, and its text keeps its size on a
phone. Colours come from classes, because the page's Content-Security-Policy refuses `style`. Every text goes through
`escape`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from markupsafe import Markup, escape

_PLOT_HEIGHT = 150
"""Height of the longest bar in pixels."""
_TOP = 10
"""Room in pixels for the texts above the bars."""
_BOTTOM = 26
"""Room in pixels for the texts below the bars."""
_AXIS_WIDTH = 46
"""Room in pixels for the texts of the vertical axis, beside the bars."""
_SLOT_FILLED = 0.8
"""Share of its place that a bar fills."""
_SLOT_FILLED_AT_EDGES = 0.94
"""Share where bars are neighbours in time or size."""
_FEW_BARS = 6
"""Fewer bars than this are drawn as if there were so many, so that a single one does not fill the chart."""
_TICK_STEPS = (1, 2, 5, 10)
"""Steps between the numbers of the vertical axis, times a power of ten."""
_TICKS = 5
"""Maximum number of ticks of the vertical axis, besides 0."""
MAX_LABELS = 6
"""Maximum number of labels of the horizontal axis, so that they do not meet on a phone."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart, in two parts: pages that were fetched (good), and those that failed (bad)."""

    label: str
    """Text below the bar."""
    good: int
    bad: int = 0
    range: str = ""
    """Values that the bar stands for, in the table beside the chart. Empty: the label says it."""
    has_label: bool = True
    """False: the chart leaves the label out, because those of other bars are round numbers or times."""

    @property
    def name(self) -> str:
        """Name of the bar in a table."""
        return self.range or self.label

    @property
    def total(self) -> int:
        """Length of the bar."""
        return self.good + self.bad


def column_chart(bars: Sequence[Bar], label: str, *, unit: str = "pages", at_edges: bool = False) -> Markup:
    """Return a chart with a column for each bar. `label`: its description for people who cannot see it. `at_edges`:
    labels stand where a column begins, not below its middle, because they are limits of time or size."""
    step, top = _ticks(max((bar.total for bar in bars), default=0))
    height = _TOP + _PLOT_HEIGHT + _BOTTOM
    slot = 100 / max(len(bars), _FEW_BARS)  # width of a bar's place, in percent of the chart
    axis, plot = _grid(step, top)
    filled = _SLOT_FILLED_AT_EDGES if at_edges else _SLOT_FILLED
    for index, bar in enumerate(bars):
        margin = 0 if at_edges else (1 - filled) / 2
        plot += _column(bar, slot * (index + margin), slot * filled, top, unit)
    labelled = [index for index, bar in enumerate(bars) if bar.has_label]
    if bars and not labelled:
        labelled = [0]
    every = max(1, ceil(len(labelled) / MAX_LABELS))  # only every so many labels fit
    for count, index in enumerate(labelled[::every]):
        x = slot * (index if at_edges else index + 0.5)
        plot.append(_label(bars[index].label, x, is_odd=count % 2 == 1))
    return Markup(  # noqa: S704 (texts are escaped)
        f'<div class="chart"><svg class="axis" width="{_AXIS_WIDTH}" height="{height}" aria-hidden="true">'
        f'{"".join(axis)}</svg><svg class="plot" width="100%" height="{height}" role="img" '
        f'aria-label="{escape(label)}">{"".join(plot)}</svg></div>'
    )


def row_bar(share: float, *, bad: bool = False) -> Markup:
    """Return a horizontal bar for a row of a table, which has its number beside it."""
    width = max(0.0, min(100.0, share * 100))
    kind = "bad" if bad else "good"
    return Markup(  # noqa: S704 (only numbers)
        f'<svg class="rowbar" width="100%" height="8" aria-hidden="true"><rect class="rest" width="100%" height="8"/>'
        f'<rect class="{kind}" width="{width:.2f}%" height="8"/></svg>'
    )


def _grid(step: int, top: int) -> tuple[list[str], list[str]]:
    """Return the numbers of the vertical axis, every `step` from 0 to `top`, and the lines that belong to them."""
    axis, lines = [], []
    for value in range(0, top + 1, step):
        y = _TOP + _PLOT_HEIGHT * (1 - value / top)
        axis.append(f'<text class="tick" x="{_AXIS_WIDTH - 8}" y="{y + 4:.1f}">{_short(value)}</text>')
        kind = "grid" if value else "base"
        lines.append(f'<line class="{kind}" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
    return axis, lines


def _column(bar: Bar, x: float, width: float, top: int, unit: str) -> list[str]:
    """Return the rectangles of one column, with a title that a browser shows beside the pointer.

    `x`, `width`: in percent of the chart. `top`: number of pages for which a bar has the full height."""
    if not bar.total:
        return []
    base = float(_TOP + _PLOT_HEIGHT)
    title = f"{bar.name}: {bar.good:,} {unit}" + (f", {bar.bad:,} failed" if bar.bad else "")
    parts = [f"<g><title>{escape(title)}</title>"]
    for count, kind in ((bar.good, "good"), (bar.bad, "bad")):
        if count:
            size = max(1.0, _PLOT_HEIGHT * count / top)
            base -= size
            parts.append(f'<rect class="{kind}" x="{x:.3f}%" y="{base:.2f}" width="{width:.3f}%" height="{size:.2f}"/>')
    return [*parts, "</g>"]


def _label(text: str, x: float, *, is_odd: bool) -> str:
    """Return a label below the axis, `x` percent from its beginning. The class `odd` marks every other one: the style
    sheet of the page hides those on a phone."""
    kind = ("start" if x == 0 else "middle") + (" odd" if is_odd else "")
    return f'<text class="{kind}" x="{x:.3f}%" y="{_TOP + _PLOT_HEIGHT + 18}">{escape(text)}</text>'


def _ticks(most: int) -> tuple[int, int]:
    """Return the step of an axis from 0 to at least `most`, and its end: whole and round numbers, with at most _TICKS
    steps."""
    size = 1
    while True:
        for factor in _TICK_STEPS:
            step = factor * size
            count = ceil(max(most, 1) / step)
            if count <= _TICKS:
                return step, step * count
        size *= 10


def _short(value: int) -> str:
    """Return a round number in the width of the axis: `2,000`, `150k`, `3M`."""
    for least, unit, letter in ((1_000_000, 1_000_000, "M"), (10_000, 1000, "k")):
        if value >= least:
            return f"{value / unit:g}{letter}"
    return f"{value:,}"
