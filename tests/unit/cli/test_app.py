"""The list of commands."""

import re
from pathlib import Path

import pytest

from gossamer import __version__
from gossamer.cli import options
from gossamer.cli.app import COMMAND_GROUPS, COMMANDS, find, parse_and_run
from gossamer.compiled import native
from tests.servers.crawling import gossamer

ROOT = Path(__file__).parents[3]


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    """It is kept apart, so that the list is there before any command is imported."""
    for name, (_, words) in COMMANDS.items():
        paragraph = find(name).paragraphs[0]
        assert paragraph == words or paragraph.startswith(f"{words} ")


def test_the_list_of_commands_has_a_line_for_each_in_80_columns(tmp_path: Path) -> None:
    said = gossamer("--help", cwd=tmp_path, env={"COLUMNS": "80"}).stdout.splitlines()
    assert all(len(line) <= 80 for line in said)
    first = said.index(next(line for line in said if line.startswith("╭─ Crawl ")))
    titles = [line.split("─")[1].strip() for line in said[first:] if line.startswith("╭")]
    assert titles == list(COMMAND_GROUPS)
    assert [line.split()[1] for line in said[first:] if line.startswith("│")] == list(COMMANDS)


def test_commands_that_messages_and_files_name_exist() -> None:
    """In backticks, behind a colon, or on a line of their own. tests/unit/docs checks the documentation."""
    inner = {name: set(found.commands) for name in COMMANDS if (found := find(name)).commands}
    named = re.compile(r"(?:`|: |\n *)gossamer ([a-z]+)(?: ([a-z][a-z-]*)\b(?![=/:.]))?")
    endings = {".py", ".j2", ".js", ".service", ".yaml"}
    for path in (path for name in ("src", "examples", "deploy") for path in (ROOT / name).rglob("*")):
        for command, word in named.findall(path.read_text()) if path.suffix in endings else ():
            assert command in (*COMMANDS, "help"), path
            assert command not in inner or not word or word in inner[command], path


@pytest.mark.parametrize("words", [(), ("crawl",), ("crawls",), ("crawls", "show")])
def test_help_as_a_word_shows_what_the_option_shows(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert parse_and_run([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert parse_and_run(["help", *words]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(("typed", "meant"), [("history", "crawls history"), ("pause", "crawls pause")])
def test_a_command_of_a_group_is_found_by_its_name_alone(
    capsys: pytest.CaptureFixture[str], typed: str, meant: str
) -> None:
    assert parse_and_run([typed]) == 2
    assert f"No such command {typed!r}. Did you mean {meant!r}?" in capsys.readouterr().err


def test_a_mistaken_option_of_the_program_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_and_run(["--verion"]) == 2
    assert "No such option: --verion. Did you mean --version?" in capsys.readouterr().err


def test_help_is_wrapped_to_the_terminal_and_not_as_the_source_is() -> None:
    paragraphs = find("crawl").paragraphs
    assert len(paragraphs) > 3
    assert not [text for text in paragraphs if "\n" in text]


def test_help_names_the_log_level_that_the_command_uses() -> None:
    for name in ("up", "serve"):
        [option] = [one for one in find(name).parameters if one.name == "log_level"]
        assert option.help.endswith(f"Default: {options.SERVICE_LOG_LEVEL}.")


def test_no_flag_of_the_help_shows_a_value(tmp_path: Path) -> None:
    """A value that it does not take would be crawled as a site."""
    for arguments in (["--help"], ["crawl", "--help"], ["crawls", "delete", "--help"], ["crawls", "--help"]):
        said = gossamer(*arguments, cwd=tmp_path).stdout
        assert "--help" in said
        assert "bool" not in said.lower()


@pytest.mark.parametrize("command", ["crawl", "top", "diagnose", "fetch"])
def test_the_help_names_arguments_and_no_types_of_python(tmp_path: Path, command: str) -> None:
    said = gossamer(command, "--help", cwd=tmp_path, env={"COLUMNS": "80"}).stdout
    assert "str]" not in said
    assert "<str>" not in said
    assert "[[" not in said  # twice optional


def test_the_help_of_commands_in_a_group_is_wrapped_as_well(tmp_path: Path) -> None:
    said = gossamer("crawls", "audit", "--help", cwd=tmp_path, env={"COLUMNS": "80"}).stdout
    words = "The audit has"
    paragraph = (words + said.split(words)[1].split("╭")[0]).rstrip().splitlines()
    assert len(paragraph) > 2
    assert all(len(line.strip()) > 60 for line in paragraph[:-1]), paragraph


def test_an_output_after_an_equals_sign_makes_no_folder_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "from.jsonl").write_text('{"type": "page", "url": "http://a.test/", "status_code": 200}\n')
    assert gossamer("report", "from.jsonl", f"-o={tmp_path / 'report.html'}", cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["from.jsonl", "report.html"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dump", "a-topic", "--limit", "x"], "--limit: cannot use 'x'. Write a whole number."),
        (["bench", "--items", "1.5"], "--items: cannot use '1.5'. Write a whole number."),
        (["bench", "--api-time", "long"], "--api-time: cannot use 'long'. Write a number."),
        (["diagnose", "--pages=many"], "--pages: cannot use 'many'. Write a whole number."),
    ],
)
def test_an_option_for_a_number_shows_the_value_that_it_cannot_use(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = gossamer(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"gossamer: {said}\n")


@pytest.mark.parametrize("arguments", [("--version",), ("--version", "crawl")])
def test_the_version_says_whether_the_compiled_extension_is_in_use(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    first, second = gossamer(*arguments, cwd=tmp_path).stdout.splitlines()
    assert first == f"gossamer {__version__}"
    if native is not None:
        assert second == "compiled extension: in use"
    off = gossamer(*arguments, cwd=tmp_path, env={"GOSSAMER_NATIVE": "0"}).stdout.splitlines()
    assert off == [first, "compiled extension: switched off by GOSSAMER_NATIVE=0"]
    (tmp_path / "gossamer_native.py").write_text("INTERFACE = 1\n")
    stale = gossamer(*arguments, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}).stdout.splitlines()
    assert stale[1].startswith("compiled extension: left out, because it is of another version")
    (tmp_path / "gossamer_native.py").write_text("raise ModuleNotFoundError(name='gossamer_native')\n")
    missing = gossamer(*arguments, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}).stdout.splitlines()
    assert missing[1].startswith("compiled extension: not installed. With it, a crawl needs")
