"""What the documentation points at is there: files, headings, commands, options, settings."""

import contextlib
import io
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.cli.app import all_commands, command_in
from gossamer.cli.parser import HelpWanted
from gossamer.errors import BadInput
from gossamer.fakeweb.__main__ import main as fake_web
from gossamer.platform_client.secret_variables import SECRET_VARIABLES
from gossamer.scrapy.options import PROJECT_SETTINGS
from gossamer.settings.rows import rows

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "bench" / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    (?! )(.+)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
VARIABLE = re.compile(r"\bGOSSAMER_[A-Z0-9_]+[A-Z0-9]\b")
ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=")
NOT_SETTINGS = {
    "GOSSAMER_NATIVE",
    "GOSSAMER_HYPOTHESIS",
    "GOSSAMER_WHATWG_DATA",
    "GOSSAMER_PLATFORM_URL",
    "GOSSAMER_PLATFORM_USERNAME",
    "GOSSAMER_PLATFORM_BUILDER",
    "GOSSAMER_WEBHOOK_NETWORKS",
    *SECRET_VARIABLES,
}
"""Variables that are no settings: the tests read them, or the commands for Scrapy projects (platform/client), or the
manager (its keys)."""

ABOUT_OTHER_PROGRAMS = {ROOT / "CONTRIBUTING.md", ROOT / "bench" / "README.md"}
"""Pages that speak of other programs' options, too."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def fake_web_flags() -> set[str]:
    """The options that the fake web's own help names."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        fake_web(["--help"])
    return set(re.findall(r"--[a-z][a-z-]*", told.getvalue()))


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them: lower case, no punctuation, dashes for spaces."""
    text = FENCE.sub("", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def command_lines(text: str) -> Iterator[str]:
    """What a reader would type: in blocks (after `$` where output follows) and in the text."""
    for kind, block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if kind == "":
                yield line
            elif kind == "console" and line.startswith("$ "):
                yield line.removeprefix("$ ")
    prose = FENCE.sub("", text)
    yield from INDENTED.findall(prose)
    yield from INLINE.findall(prose)


def words_of(line: str) -> Iterator[list[str]]:
    """The programs of a pipeline with their arguments, variables in front left out; nothing where it is no command."""
    for part in re.split(r" (?:[|<>]|\|\|) |   #|  \(", line):
        try:
            words = shlex.split(part)
        except ValueError:  # a quotation mark that is none: prose, or output
            continue
        while words and ASSIGNMENT.match(words[0]):
            words.pop(0)
        if words:
            yield words


def called(page: Path, *program: str) -> list[list[str]]:
    """The arguments of every call of that program on the page."""
    size = len(program)
    return [
        words[size:]
        for line in command_lines(page.read_text())
        for words in words_of(line)
        if tuple(words[:size]) == program
    ]


@every_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    """To a file or folder of the project; where a heading is named, to that heading."""
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{link} leaves the project"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


@every_page
def test_every_gossamer_command_is_understood(page: Path) -> None:
    """The commands exist, and so do their options. The text may leave out arguments, and a value at its end."""
    for arguments in called(page, "gossamer"):
        if not arguments or arguments[0].startswith("-"):
            continue
        fault = ""
        try:
            command, words = command_in(arguments)
            command.read([word for word in words if word != "[options]"])
        except HelpWanted:
            continue
        except BadInput as error:
            fault = str(error)
        assert not fault or re.match(r"Missing |.* requires an argument\.$|([A-Z]+): cannot use '\1'", fault), fault


@every_page
def test_every_option_of_the_fake_web_exists(page: Path) -> None:
    """What `python -m gossamer.fakeweb` is given, it knows."""
    for arguments in called(page, "python", "-m", "gossamer.fakeweb"):
        given = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
        assert given <= fake_web_flags()


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ABOUT_OTHER_PROGRAMS], ids=name_of)
def test_every_option_in_the_text_exists(page: Path) -> None:
    """`--option` alone in the text is an option of some command."""
    known = {flag for command in all_commands() for one in command.parameters for flag in one.flags} | fake_web_flags()
    for code in INLINE.findall(FENCE.sub("", page.read_text())):
        if re.match(r"--[a-z]", code):
            flag = re.split(r"[ =,]", code)[0]
            assert flag in known | {"--help"}, f"{code}: no such option"


@every_page
def test_every_setting_exists(page: Path) -> None:
    """Variables of the environment, and what stands in examples of gossamer.toml."""
    text = page.read_text()
    known = {variable for _, variable, _, _ in rows()} | NOT_SETTINGS | set(PROJECT_SETTINGS)
    assert {variable for variable in VARIABLE.findall(text) if variable != "GOSSAMER_A__B"} <= known
    names = {name for name, _, _, _ in rows()}
    for kind, block in FENCE.findall(text):
        if kind != "toml" or "[project]" in block:
            continue
        for section, values in tomllib.loads(block).items():
            given = [f"{section}.{name}" for name in values] if isinstance(values, dict) else [section]
            assert set(given) <= names
