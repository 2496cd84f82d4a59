"""Tables that commands print. Texts of others in them neither style the output nor control the terminal."""

import io
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from gossamer.cli import terminal
from gossamer.controls import without_controls


class PlainTable(Table):
    """Table without lines, whose cells are folded rather than cut."""

    def __init__(self, *headings: str, **options: Any) -> None:
        super().__init__(box=None, **{"padding": (0, 2, 0, 0), "header_style": "dim", "pad_edge": False, **options})
        for heading in headings:
            self.add_column(heading, overflow="fold")

    def add_row(self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False) -> None:
        """Add a row."""
        shown = [Text(cell) if isinstance(cell, str) else cell for cell in cells]
        for cell in shown:
            if isinstance(cell, Text):
                cell.plain = without_controls(cell.plain)
        super().add_row(*shown, style=style, end_section=end_section)


def details_table(rows: Mapping[str, str]) -> PlainTable:
    """Return a table of names and values, without the values that are empty."""
    table = PlainTable(show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        if value and value != "-":
            table.add_row(name, value)
    return table


_ANY_WIDTH = 10_000
"""Columns of an output that is no terminal: rows for a program stay whole."""


class _RenderedText(io.StringIO):
    """Text in memory that rich renders as for standard output."""

    def isatty(self) -> bool:
        return sys.stdout.isatty()


def show(*parts: RenderableType, least_width: int = 0) -> bool:
    """Print tables and texts, each on lines of its own, to standard output, as `terminal.print_result`. `least_width`:
    columns that they have also in a narrower terminal, which wraps the lines."""
    console = Console(file=(page := _RenderedText()), highlight=False, markup=False)
    console.width = max(console.width if console.is_terminal else _ANY_WIDTH, least_width)
    for part in parts:
        console.print(without_controls(part) if isinstance(part, str) else part)
    return terminal.print_result(page.getvalue().removesuffix("\n"), styled=True)
