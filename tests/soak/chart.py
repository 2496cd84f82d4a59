"""Line charts as a PNG: panels under each other over one horizontal axis."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

WIDTH, PANEL = 1200, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 30, 48, 44
_TICKS = 6
_INK, _GRID, _PAPER = "#222222", "#dddddd", "#ffffff"
COLOURS = ("#1f6fb4", "#d1495b", "#2e8b57", "#b8860b")


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: a value for each place on the horizontal axis."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves that share a scale, which begins at zero."""

    title: str
    lines: Sequence[Line]


def draw(
    path: Path, across: str, places: Sequence[float], panels: Sequence[Panel], *, mark: float | None = None
) -> None:
    """Write the chart. `across` names the horizontal axis; `mark`: a place on it that gets an upright line."""
    image = Image.new("RGB", (WIDTH, PANEL * len(panels)), _PAPER)
    pen = ImageDraw.Draw(image)
    for number, panel in enumerate(panels):
        _panel(pen, PANEL * number, across, places, panel, mark)
    image.save(path)


def _panel(
    pen: ImageDraw.ImageDraw, top: int, across: str, places: Sequence[float], panel: Panel, mark: float | None
) -> None:
    small, large = ImageFont.load_default(13), ImageFont.load_default(17)
    last = max(places, default=1.0) or 1.0
    most = max((value for line in panel.lines for value in line.values), default=1.0) or 1.0
    low, high = top + PANEL - _BOTTOM, top + _TOP

    def at(place: float, value: float) -> tuple[float, float]:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * place / last, low - (low - high) * value / (most * 1.05)

    pen.text((_LEFT, top + 12), panel.title, _INK, large)
    for value in _round_steps(most):
        y = at(0, value)[1]
        pen.line((_LEFT, y, WIDTH - _RIGHT, y), _GRID)
        pen.text((_LEFT - 8, y), f"{value:,g}", _INK, small, anchor="rm")
    for place in _round_steps(last):
        x = at(place, 0)[0]
        pen.line((x, low, x, low + 5), _INK)
        pen.text((x, low + 8), f"{place:,.0f}", _INK, small, anchor="ma")
    pen.text((WIDTH - _RIGHT, low + 26), across, _INK, small, anchor="ra")
    if mark is not None:
        pen.line((*at(mark, 0), *at(mark, most)), "#888888")
    pen.line((_LEFT, low, WIDTH - _RIGHT, low), _INK)
    right = WIDTH - _RIGHT
    for line, colour in reversed(list(zip(panel.lines, COLOURS, strict=False))):
        points = [at(place, value) for place, value in zip(places, line.values, strict=True)]
        if len(points) > 1:
            pen.line(points, colour, 2, joint="curve")
        pen.text((right, top + 14), line.name, colour, small, anchor="ra")
        right -= int(pen.textlength(line.name, small)) + 24


def _round_steps(most: float) -> Iterator[float]:
    """Round numbers from 0 to `most`, about six of them."""
    rough = most / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return (step * number for number in range(int(most / step) + 1))
