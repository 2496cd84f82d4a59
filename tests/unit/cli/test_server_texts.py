"""Texts of a server in tables and sentences of commands."""

import io

from rich.console import Console

from gossamer.cli import targets


def test_texts_of_a_server_neither_control_the_terminal_nor_style_the_table() -> None:
    table = targets.plain_table("name")
    table.add_row("a\x1b[2J\x9b1m[red]b[/nothing]")
    shown = io.StringIO()
    Console(file=shown, force_terminal=True, color_system=None, width=60).print(table)
    assert "a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}1m[red]b[/nothing]" in shown.getvalue()
