"""The reference pages say what the code says."""

import re
from pathlib import Path

import pytest

from gossamer.cli.app import all_commands
from gossamer.cli.help import is_command_line
from gossamer.cli.parser import ProgramCommand
from gossamer.settings.rows import rows
from tools.reference.pages import all_pages

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return all_pages()


def test_the_pages_are_as_the_code_makes_them(pages: dict[str, str]) -> None:
    """When this fails: `python -m tools.reference`."""
    for name, text in pages.items():
        assert (REFERENCE / name).read_text() == text, name


@pytest.mark.parametrize("command", all_commands(), ids=lambda command: command.path)
def test_a_command_that_needs_a_value_shows_how_to_write_it(command: ProgramCommand) -> None:
    if any(one.is_required for one in command.parameters):
        shown = [text for text in command.paragraphs if is_command_line(text)]
        assert any(f"{command.path} " in text for text in shown), "its docstring has no line with an example"


def test_no_row_of_a_table_is_torn(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        for line in text.splitlines():
            if name.endswith(".md") and line.startswith("|"):
                assert line.endswith("|"), f"{name}: {line}"


@pytest.mark.parametrize("name", ["cli.md", "settings.md", "metrics.md"])
def test_a_page_shows_the_texts_as_they_are_written(pages: dict[str, str], name: str) -> None:
    """A backslash in a table is shown by MkDocs, what looks like a tag is not shown, and stars make italics."""
    for line in re.sub(r"`[^`]*`", "", pages[name]).splitlines():
        if not line.startswith("    "):  # a command
            assert not re.search(r"\\|<(?!/?code>|!--)|(?<!\*)\*(?!\*)", line), line


def test_every_flag_and_setting_is_there_with_a_meaning() -> None:
    page = (REFERENCE / "cli.md").read_text()
    for command in all_commands():
        for one in command.parameters:
            assert one.help, f"{command.path} {one.name} says nothing of itself"
            assert not re.search(r"(?<!\.)\.\.(?!\.)", one.help), f"{one.name}: a second full stop: {one.help}"
            assert all(flag in page for flag in one.flags)
    assert not [line for line in page.splitlines() if line.count("Default: ") > 1]
    table = (REFERENCE / "settings.md").read_text()
    for name, variable, _, meaning in rows():
        assert meaning
        assert f"| `{name}` |" in table
        assert variable == f"GOSSAMER_{name.replace('.', '__').upper()}", "the page has no column of variables"


def test_the_flag_that_stands_for_a_meaning_is_where_its_link_leads() -> None:
    page = (REFERENCE / "cli.md").read_text()
    links = re.findall(r"\[`(-[-a-z0-9]+)`\]\(cli\.md#([-a-z]+)\)", (REFERENCE / "settings.md").read_text())
    assert links
    for flag, anchor in links:
        title = anchor.replace("-", " ")
        section = next(one for one in page.split("\n## ") if one.lower().startswith(f"{title}\n"))
        assert re.search(rf"^- `{flag}[`, ]", section, re.MULTILINE), (flag, anchor)


def test_every_option_of_the_reference_shows_the_value_that_it_takes() -> None:
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line.startswith("- `--environment shared|isolated`")]
    assert not [line for line in page.splitlines() if re.match(r"- `[^`]* `", line)]
