"""Charts as SVG, drawn here, so that the page needs no script and no library.

Bars have positions in percent and heights in pixels: a chart is as wide as its place, and its text keeps its size on a
phone. Colours come from classes, because the page's Content-Security-Policy refuses `style`. Safe to change: sizes and
ticks. Every text goes through `escape`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_PLOT_HEIGHT = 150
_TOP = 10
_BOTTOM = 26
_AXIS_WIDTH = 46
_SLOT_FILLED = 0.8
"""Part of its place that a bar fills."""
_FEW_BARS = 6
"""Fewer bars than this are drawn as if there were so many, so that a single one does not fill the chart."""
_TICK_STEPS = (1, 2, 2.5, 5, 10)
_TICKS = 4
_LABELS = 6
"""Labels of the horizontal axis at most, so that they do not meet on a phone."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its good and its bad part."""

    label: str
    """Text below the bar; also its name in the table beside the chart."""
    good: int
    bad: int = 0

    @property
    def total(self) -> int:
        """Length of the bar."""
        return self.good + self.bad


def column_chart(bars: Sequence[Bar], label: str, *, unit: str = "pages", at_edges: bool = False) -> Markup:
    """Return a chart with a column for each bar. `label`: its description for people who cannot see it. `at_edges`:
    labels stand where a column begins, not below its middle, because they are points in time."""
    top = _nice_top(max((bar.total for bar in bars), default=0))
    height = _TOP + _PLOT_HEIGHT + _BOTTOM
    slots = max(len(bars), _FEW_BARS)
    axis, plot = _grid(top)
    for place, bar in enumerate(bars):
        plot += _column(bar, place, slots, top, unit)
    step = max(1, -(-len(bars) // _LABELS))
    for place in range(0, len(bars), step):
        plot.append(_label(bars[place].label, place, slots, at_edges=at_edges))
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


def _grid(top: int) -> tuple[list[str], list[str]]:
    """Return the numbers of the vertical axis, and the lines that belong to them."""
    axis, lines = [], []
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        if value != int(value):
            continue
        y = _TOP + _PLOT_HEIGHT * (1 - tick / _TICKS)
        axis.append(f'<text class="tick" x="{_AXIS_WIDTH - 8}" y="{y + 4:.1f}">{int(value):,}</text>')
        kind = "base" if tick == 0 else "grid"
        lines.append(f'<line class="{kind}" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
    return axis, lines


def _column(bar: Bar, place: int, slots: int, top: int, unit: str) -> list[str]:
    """Return the rectangles of one column, with a title that a browser shows beside the pointer."""
    if not bar.total:
        return []
    width = 100 / slots * _SLOT_FILLED
    x = 100 / slots * place + 100 / slots * (1 - _SLOT_FILLED) / 2
    base = float(_TOP + _PLOT_HEIGHT)
    title = f"{bar.label}: {bar.good:,} {unit}" + (f", {bar.bad:,} failed" if bar.bad else "")
    parts = [f"<g><title>{escape(title)}</title>"]
    for count, kind in ((bar.good, "good"), (bar.bad, "bad")):
        if count:
            size = max(1.0, _PLOT_HEIGHT * count / top)
            base -= size
            parts.append(f'<rect class="{kind}" x="{x:.3f}%" y="{base:.2f}" width="{width:.3f}%" height="{size:.2f}"/>')
    return [*parts, "</g>"]


def _label(text: str, place: int, slots: int, *, at_edges: bool) -> str:
    x = 100 / slots * (place if at_edges else place + 0.5)
    anchor = "start" if at_edges and place == 0 else "middle"
    y = _TOP + _PLOT_HEIGHT + 18
    return f'<text class="label {anchor}" x="{x:.3f}%" y="{y}">{escape(text)}</text>'


def _nice_top(most: int) -> int:
    """Return the end of an axis that begins at 0: a round number, of which the quarters are whole if it is large."""
    if most <= _TICKS:
        return _TICKS
    size = int(10 ** (len(str(most)) - 1))
    for step in _TICK_STEPS:
        top = step * size
        if top >= most:
            return -(-int(top) // _TICKS) * _TICKS
    return 10 * size
