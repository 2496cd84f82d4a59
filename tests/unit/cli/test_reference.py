"""The reference pages say what the code says."""

from pathlib import Path

import typer.main

from gossamer.cli.app import load
from gossamer.cli.reference import MADE, cli_page, metrics_page, settings_page
from gossamer.cli.reference_messages import messages_page
from gossamer.settings import rows

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def test_the_pages_are_as_the_tables_make_them() -> None:
    """Else: python -m gossamer.cli.reference docs/reference."""
    assert (REFERENCE / "cli.md").read_text() == cli_page()
    assert (REFERENCE / "settings.md").read_text() == settings_page()
    assert (REFERENCE / "metrics.md").read_text() == metrics_page()
    assert (REFERENCE / "messages.md").read_text() == f"{MADE}\n\n{messages_page()}"


def test_every_flag_and_setting_is_there_with_a_meaning() -> None:
    page = (REFERENCE / "cli.md").read_text()
    for name, command in typer.main.get_command(load()).commands.items():  # type: ignore[attr-defined]
        for param in command.params:
            if param.param_type_name == "option" and not command.hidden:
                assert param.help, f"{name} {param.name} says nothing of itself"
                assert all(f"{flag}" in page for flag in param.opts)
    table = (REFERENCE / "settings.md").read_text()
    for name, variable, _, meaning in rows():
        assert meaning
        assert f"| `{name}` | `{variable}` |" in table
