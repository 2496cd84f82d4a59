"""Puts the results of a comparison into the README: `python -m bench.publish figures.json --note "…"`.

`figures.json` is what `make bench ARGS="--json figures.json"` has written. Writes `bench/figures.json` (what the README
shows of it), the plot `docs/images/field.svg`, and the table between the marks of the README. Without a file: writes
plot and table again from `bench/figures.json`.
"""

import argparse
import math
import re
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import msgspec

from bench.places import ROOT

FIGURES = ROOT / "bench" / "figures.json"
PLOT = ROOT / "docs" / "images" / "field.svg"
README = ROOT / "README.md"
_TABLE = re.compile(r"(<!-- field -->\n).*?(<!-- /field -->)", re.DOTALL)

_SITES = {
    "A": ("12 KB, 20 links", "connections kept"),
    "B": ("138 KB, 226 links", "connections kept"),
    "C": ("138 KB, 226 links", "a new TLS connection each"),
}
_SHOWN = {
    "bare-rust": "bare Rust (hyper, lol_html)",
    "spider": "spider (Rust), no bodies",
    "bare-go": "bare Go (net/http, x/net/html)",
    "gossamer": "Gossamer, durable on disk",
    "gossamer-2": "Gossamer, two processes",
    "colly": "colly (Go)",
    "scrapling": "Scrapling (Python)",
    "scrapy": "Scrapy (Python)",
    "crawlee": "Crawlee (Node)",
    "scrapy-redis": "scrapy-redis (Python)",
}
"""Rows of table and plot, from above."""
_OURS = ("gossamer", "gossamer-2")


class Figures(msgspec.Struct):
    """Figures of a run that the README shows."""

    machine: str
    note: str
    """Date and manner of the measurement."""
    sites: dict[str, dict[str, float]]
    """Pages per CPU-second without start and end, by the names of site and crawler."""


def reduced(results: dict[str, Any], note: str) -> Figures:
    """Return the figures for the README from the file that `python -m bench --json` has written."""
    sites = {
        site["name"]: {
            row["crawler"]: round(row["running_pages_per_cpu_second"], 1)
            for row in site["rows"]
            if row["crawler"] in _SHOWN and not row["note"] and row["running_pages_per_cpu_second"]
        }
        for site in results["sites"]
    }
    return Figures(results["machine"], note, sites)


def table(figures: Figures) -> str:
    """Return the figures as a Markdown table, with the ratios of Gossamer to each crawler in brackets."""
    names = [name for name in _SITES if name in figures.sites]
    lines = [
        "| | " + " | ".join(", ".join(_SITES[name]) for name in names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    for crawler, title in _SHOWN.items():
        cells = [_cell(figures.sites[name], crawler) for name in names]
        if any(cells):
            shown = f"**{title}**" if crawler == "gossamer" else title
            lines.append(f"| {shown} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + f"\n\n{figures.note}\n"


def _cell(site: dict[str, float], crawler: str) -> str:
    value, ours = site.get(crawler), site.get("gossamer")
    if value is None:
        return ""
    text = f"{value:,.0f}"
    if crawler == "gossamer":
        return f"**{text}**"
    return f"{text} ({ours / value:.2g} x)" if ours else text


# --- the plot ---------------------------------------------------------------------------------------------------------

_LABELS, _PANEL, _GAP, _TOP, _ROW, _MARGIN = 230, 200, 16, 58, 24, 12
_INK, _PALE, _OTHER, _GOSSAMER = "#24292f", "#d0d7de", "#6e7781", "#0b6bcb"
_FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"


def plot(figures: Figures) -> str:
    """Return the figures as an SVG picture: a panel for each site, a dot for each crawler, on a logarithmic axis."""
    sites = [name for name in _SITES if name in figures.sites]
    crawlers = [name for name in _SHOWN if any(name in figures.sites[site] for site in sites)]
    values = [value for site in sites for value in figures.sites[site].values()]
    low, high = math.floor(math.log10(min(values))), math.log10(max(values)) + 0.85  # the value is right of the dot
    bottom = _TOP + _ROW * len(crawlers)
    width = _LABELS + (_PANEL + _GAP) * len(sites) + _MARGIN
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {bottom + 44}' {_FONT} font-size='12'>",
        "<title>Pages per CPU-second of Gossamer and other crawlers</title>",
        f"<rect width='{width}' height='{bottom + 44}' fill='white'/>",
    ]
    for row, crawler in enumerate(crawlers):
        weight = " font-weight='bold'" if crawler in _OURS else ""
        parts.append(_text(_LABELS - 12, _TOP + _ROW * row + 16, _SHOWN[crawler], f"text-anchor='end'{weight}"))
    for place, site in enumerate(sites):
        left = _LABELS + (_PANEL + _GAP) * place
        parts += _panel(figures.sites[site], crawlers, left, bottom, low, high)
        parts.append(_text(left, 20, _SITES[site][0], "font-weight='bold'"))
        parts.append(_text(left, 38, _SITES[site][1]))
    parts.append(_text(_LABELS, bottom + 36, "pages per CPU-second, logarithmic; the server of a frontier counted in"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    site: dict[str, float], crawlers: list[str], left: float, bottom: float, low: float, high: float
) -> list[str]:
    """Return the axis and the dots of one site."""

    def across(value: float) -> float:
        return left + _PANEL * (math.log10(value) - low) / (high - low)

    parts = []
    for power in range(low, math.floor(high) + 1):  # type: ignore[call-overload]  # low is whole
        x = across(10.0**power)
        parts.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{_TOP - 6}' y2='{bottom}' stroke='{_PALE}'/>")
        parts.append(_text(x, bottom + 16, f"{10**power:,}", f"text-anchor='middle' fill='{_OTHER}'"))
    for row, crawler in enumerate(crawlers):
        if crawler not in site:
            continue
        x, y, value = across(site[crawler]), _TOP + _ROW * row + 12, site[crawler]
        colour, weight = (_GOSSAMER, " font-weight='bold'") if crawler in _OURS else (_OTHER, "")
        parts.append(f"<line x1='{left}' x2='{x:.1f}' y1='{y}' y2='{y}' stroke='{colour}' stroke-width='2'/>")
        parts.append(f"<circle cx='{x:.1f}' cy='{y}' r='5' fill='{colour}'/>")
        parts.append(_text(x + 9, y + 4, f"{value:,.0f}", weight.strip()))
    return parts


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    fill = "" if "fill=" in attributes else f" fill='{_INK}'"
    return f"<text x='{x:.1f}' y='{y:.1f}'{fill} {attributes}>{escape(text)}</text>"


def with_table(readme: str, figures: Figures) -> str:
    """Return the README's text with the table of these figures. Raises ValueError if it has no marks for the table."""
    text, count = _TABLE.subn(lambda found: found[1] + table(figures) + found[2], readme)
    if count != 1:
        raise ValueError("README.md: the marks of the table are not there once")
    return text


def main() -> None:
    """Write the figures, the plot and the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.publish", description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="?", help="file that `python -m bench --json` has written")
    parser.add_argument("--note", default="", help="sentence below the table: when and how it was measured")
    arguments = parser.parse_args()
    if arguments.results:
        figures = reduced(msgspec.json.decode(arguments.results.read_bytes()), arguments.note)
        FIGURES.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    figures = msgspec.json.decode(FIGURES.read_bytes(), type=Figures)
    PLOT.write_text(plot(figures))
    README.write_text(with_table(README.read_text(), figures))


if __name__ == "__main__":
    main()
