"""The list of commands."""

from pathlib import Path

import typer.main

from gossamer.cli import options
from gossamer.cli.app import COMMANDS, load
from tests.servers.crawling import gossamer


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    """It is kept apart, so that the list is there before any command is imported."""
    group = typer.main.get_command(load())
    first_sentences = {name: command.get_short_help_str(1000) for name, command in group.commands.items()}  # type: ignore[attr-defined]
    assert {name: words for name, (_, words) in COMMANDS.items()} == first_sentences


def test_help_is_wrapped_to_the_terminal_and_not_as_the_source_is() -> None:
    group = typer.main.get_command(load("crawl"))
    words = group.commands["crawl"].help or ""  # type: ignore[attr-defined]
    assert "\n\n" in words
    assert "\n" not in words.replace("\n\n", "")


def test_help_names_the_log_level_that_the_command_uses() -> None:
    group = typer.main.get_command(load())
    for name in ("up", "serve"):
        [option] = [param for param in group.commands[name].params if param.name == "log_level"]  # type: ignore[attr-defined]
        assert option.help.endswith(f"Default: {options.SERVICE_LOG_LEVEL}.")


def test_no_flag_of_the_help_shows_a_value(tmp_path: Path) -> None:
    """A value that it does not take would be crawled as a site."""
    for arguments in (["--help"], ["crawl", "--help"], ["crawls", "delete", "--help"], ["crawls", "--help"]):
        said = gossamer(*arguments, cwd=tmp_path).stdout
        assert "--help" in said
        assert "bool" not in said.lower()
