"""The frontier's Lua scripts: true headers about keys and steps, and a size that a reader can take in."""

import re
from pathlib import Path

import pytest

import gossamer
from gossamer.frontier.lifecycle import TRANSITIONS
from gossamer.frontier.valkey.commands import SCRIPTS
from gossamer.frontier.valkey.keys import KeyPattern
from gossamer.model.request import MAX_DEATHS

PACKAGE = Path(gossamer.__file__).parent
FOLDER = PACKAGE / "frontier" / "valkey" / "scripts"
COMMANDS = {path.stem: path.read_text() for path in FOLDER.glob("*.lua")}
INCLUDES = {path.stem: path.read_text() for path in (FOLDER / "include").glob("*.lua")}

FILE_LINES_AT_MOST = 420
LINES_AT_MOST = 700
ATOMIC_STEPS = {
    "add": 1440,
    "add_many": 1440,
    "request_redirect": 950,
    "import_requests": 1188,
    "lease": 1605,
    "page_budget": 815,
    "pause_run": 782,
    "purge": 855,
    "reclaim": 1215,
    "recount_crawls": 1175,
    "relist_queues": 885,
    "retry_failed": 1030,
    "settle": 1370,
}
"""Commands that may be longer. Each moves requests between queues, windows, budgets and counters in one atomic step, so
it needs the code of all of them (docs/adr/0011-long-scripts.md). The numbers here may only fall."""
LOCALS_AT_MOST = 195
"""Lua allows 200 at the top of a script."""

_LOCAL = re.compile(r"^local (?:function (\w+)|([\w, ]+))", re.MULTILINE)
_KEY = re.compile(r'BASE \.\. "([a-z-]+)')
_TOUCHES = re.compile(r"^-- Touches \(see keys\.py\) (.*(?:\n--  .*)*)", re.MULTILINE)
_TRANSITION = re.compile(r"^-- transition: (\w+) -> (\w+) on (\w+)$", re.MULTILINE)


def locals_of(source: str) -> list[str]:
    """Names that a source declares at its top."""
    return [name.strip() for one, many in _LOCAL.findall(source) for name in (one or many).split(",")]


def assembled(name: str, done: set[str]) -> None:
    for other in re.findall(r"^-- include (\w+)$", COMMANDS.get(name) or INCLUDES[name], re.MULTILINE):
        if other not in done:
            done.add(other)
            assembled(other, done)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_header_names_the_keys_that_a_command_may_touch(name: str) -> None:
    kinds = set(_KEY.findall(SCRIPTS[name].source))
    touched = sorted(pattern.value for pattern in KeyPattern if pattern.kind in kinds)
    assert kinds == {pattern.kind for pattern in KeyPattern if pattern.kind in kinds}, (
        "a key that keys.py does not have"
    )
    header = _TOUCHES.search(COMMANDS[name])
    named = re.split(r"[\s,]+", header[1].replace("\n--", " ").strip()) if header else []
    assert named == touched, f"write: -- Touches (see keys.py) {', '.join(touched)}"


def test_keys_py_has_no_key_that_nothing_touches() -> None:
    python = "".join(path.read_text() for path in (PACKAGE / "frontier").rglob("*.py"))
    kinds = {kind for name in COMMANDS for kind in _KEY.findall(SCRIPTS[name].source)}
    unused = {p for p in KeyPattern if p.kind not in kinds and f"KeyPattern.{p.name}" not in python}
    assert unused <= {KeyPattern.CONFIRMED}  # written by the client itself


def test_the_scripts_take_the_steps_of_the_life_cycle_and_no_others() -> None:
    declared = {match for source in COMMANDS.values() for match in _TRANSITION.findall(source)}
    assert declared == {(before.value, after.value, event.value) for (before, event), after in TRANSITIONS.items()}
    assert not any(_TRANSITION.search(source) for source in INCLUDES.values())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_is_not_longer_than_it_has_to_be(name: str) -> None:
    source = SCRIPTS[name].source
    assert source.count("\n") <= ATOMIC_STEPS.get(name, LINES_AT_MOST)
    assert len(locals_of(source)) <= LOCALS_AT_MOST


def test_a_reader_can_take_in_each_file() -> None:
    assert not {name for name, text in (COMMANDS | INCLUDES).items() if len(text.splitlines()) > FILE_LINES_AT_MOST}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_includes_only_what_it_uses(name: str) -> None:
    parts: set[str] = set()
    assembled(name, parts)
    texts = {part: re.sub(r"--.*", "", INCLUDES[part]) for part in parts} | {"": re.sub(r"--.*", "", COMMANDS[name])}
    for part in parts:
        others = " ".join(text for other, text in texts.items() if other != part)
        used = [one for one in locals_of(INCLUDES[part]) if re.search(rf"\b{one}\b", others)]
        assert used, f"{name} includes {part} and uses nothing of it"


def test_every_include_is_included() -> None:
    parts: set[str] = set()
    for name in COMMANDS:
        assembled(name, parts)
    assert parts == set(INCLUDES)


def test_an_entry_has_room_for_the_deaths_after_which_a_request_is_given_up() -> None:
    room = re.search(r"^local MOST_COUNTED_DEATHS = (\d+)$", INCLUDES["deaths"], re.MULTILINE)
    assert room is not None
    assert int(room[1]) >= MAX_DEATHS
