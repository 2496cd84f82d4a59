"""Positions in charts, which a template draws as SVG, so that the page of a report needs no script and no library."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

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


class Tick(NamedTuple):
    """A number of the vertical axis, and the line that belongs to it."""

    y: float
    """Pixels from the top."""
    text: str


class ChartColumn(NamedTuple):
    """The rectangles of a bar. Positions and widths are in percent of the chart, heights in pixels."""

    bar: Bar
    x: float
    width: float
    parts: list[tuple[str, float, float]]
    """Class, distance from the top, and height of each."""


class ColumnChart(NamedTuple):
    """Positions of a chart with a column for each bar. `templates/charts.html.j2` draws it."""

    ticks: list[Tick]
    columns: list[ChartColumn]
    labels: list[tuple[str, float]]
    """Texts below the axis, each with its distance from the beginning in percent."""
    axis_width: int = _AXIS_WIDTH
    height: int = _TOP + _PLOT_HEIGHT + _BOTTOM
    label_y: int = _TOP + _PLOT_HEIGHT + 18


def columns(bars: Sequence[Bar], at_edges: bool = False) -> ColumnChart:
    """Return the positions of a chart. `at_edges`: labels stand where a column begins, not below its middle, because
    they are limits of time or size."""
    step, top = _ticks(max((bar.total for bar in bars), default=0))
    ticks = [Tick(_TOP + _PLOT_HEIGHT * (1 - value / top), _short(value)) for value in range(0, top + 1, step)]
    slot = 100 / max(len(bars), _FEW_BARS)  # width of a bar's place, in percent of the chart
    filled = _SLOT_FILLED_AT_EDGES if at_edges else _SLOT_FILLED
    margin = 0 if at_edges else (1 - filled) / 2
    found = [_column(bar, slot * (index + margin), slot * filled, top) for index, bar in enumerate(bars) if bar.total]
    labelled = [index for index, bar in enumerate(bars) if bar.has_label]
    if bars and not labelled:
        labelled = [0]
    every = max(1, ceil(len(labelled) / MAX_LABELS))  # only every so many labels fit
    labels = [(bars[index].label, slot * (index if at_edges else index + 0.5)) for index in labelled[::every]]
    return ColumnChart(ticks, found, labels)


def _column(bar: Bar, x: float, width: float, top: int) -> ChartColumn:
    """Return the rectangles of one column. `top`: number of pages for which a bar has the full height."""
    y, parts = float(_TOP + _PLOT_HEIGHT), []
    for count, kind in ((bar.good, "good"), (bar.bad, "bad")):
        if count:
            size = max(1.0, _PLOT_HEIGHT * count / top)
            y -= size
            parts.append((kind, y, size))
    return ChartColumn(bar, x, width, parts)


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
