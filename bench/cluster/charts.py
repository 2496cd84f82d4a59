"""Line charts as SVG, without a library."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 86, 24, 62, 56
_INK, _PALE, _GREY = "#24292f", "#d0d7de", "#57606a"
_COLOURS = ("#0b6bcb", "#bc4c00", "#1a7f37", "#8250df", "#6e7781")
_FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its name in the legend."""

    name: str
    points: Sequence[tuple[float, float]]
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a chart."""

    label: str
    low: float
    high: float
    is_logarithmic: bool = False

    def place(self, value: float) -> float:
        """Return where a value is between the ends of the axis, 0 to 1, or beyond."""
        if self.is_logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return the values that are shown."""
        if self.is_logarithmic:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            return [10.0**power for power in powers]
        rough = (self.high - self.low) / _TICKS
        unit = 10 ** math.floor(math.log10(rough))
        step = min((unit * factor for factor in (1, 2, 2.5, 5, 10)), key=lambda size: abs(size - rough))
        first = math.ceil(self.low / step - 1e-9)
        return [step * number for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def chart(title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> str:
    """Return the picture. Points beyond the axes are left out."""
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    bottom = _TOP + height

    def across(value: float) -> float:
        return _LEFT + width * x.place(value)

    def up(value: float) -> float:
        return bottom - height * y.place(value)

    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' {_FONT} font-size='12'>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{_WIDTH}' height='{_HEIGHT}' fill='white'/>",
        _text(_LEFT, 22, title, "font-weight='bold' font-size='14'"),
    ]
    for tick in x.ticks():
        place = across(tick)
        parts.append(f"<line x1='{place:.1f}' x2='{place:.1f}' y1='{_TOP}' y2='{bottom}' stroke='{_PALE}'/>")
        parts.append(_text(place, bottom + 18, _number(tick), f"text-anchor='middle' fill='{_GREY}'"))
    for tick in y.ticks():
        place = up(tick)
        parts.append(f"<line x1='{_LEFT}' x2='{_LEFT + width}' y1='{place:.1f}' y2='{place:.1f}' stroke='{_PALE}'/>")
        parts.append(_text(_LEFT - 8, place + 4, _number(tick), f"text-anchor='end' fill='{_GREY}'"))
    parts.append(_text(_LEFT + width / 2, bottom + 42, x.label, "text-anchor='middle'"))
    middle = _TOP + height / 2
    parts.append(_text(18, middle, y.label, f"text-anchor='middle' transform='rotate(-90 18 {middle:.0f})'"))
    at = float(_LEFT)
    for line, colour in zip(lines, _COLOURS, strict=False):
        dashes = " stroke-dasharray='6 4'" if line.is_dashed else ""
        inside = [
            (across(a), up(b)) for a, b in line.points if -1e-9 <= x.place(a) <= 1 + 1e-9 and y.place(b) <= 1 + 1e-9
        ]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in inside)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'{dashes}/>")
        parts.append(f"<line x1='{at}' x2='{at + 22}' y1='44' y2='44' stroke='{colour}' stroke-width='3'{dashes}/>")
        parts.append(_text(at + 28, 48, line.name))
        at += 46 + 6.4 * len(line.name)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    fill = "" if "fill=" in attributes else f" fill='{_INK}'"
    return f"<text x='{x:.1f}' y='{y:.1f}'{fill} {attributes}>{escape(text)}</text>"
