"""Loading of Lua scripts: each is assembled from a file and the files that this one includes.

A script defines all its functions anew in each call, and the server looks for each local that a function refers to in a
list of those that functions of the script refer to. So an assembled script is as short as possible:

- Functions that nothing uses are left out.
- Functions that a command names in a line `-- seldom: name, name`, and what only they use, are defined when one of them
  is first called.
- The values of constants (in capitals) are put in the places of their names.
- Tables and variables that files declare at their top, and the names of the functions that most others use, come first,
  and everything else is one function behind them: what belongs to the surrounding function is found without a search.

Assembling takes a tenth of the time in which a crawl starts, so assembled scripts are kept in a file each, where Python
keeps compiled modules.

Safe to change: how scripts are assembled. That changes their digests, but every process loads the scripts of its own
release.
"""

import contextlib
import hashlib
import os
import re
import sys
from collections import Counter
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

# How the files of a folder of scripts are found and joined. May be changed together with all those files: their lines
# `-- include`, and their names. Compiled when they are needed first, which is seldom.
_INCLUDE = r"(?m)^-- include (\w+)[ \t]*$"
_COMMENT = r"(?m)^[ \t]*(?:--.*)?\n"
"""Empty lines, and comments on lines of their own, which are left out. Must not match a first line `#!lua`: the server
needs it."""
_CONSTANTS = r"(?m)^local ([A-Z_, ]+) = (.*?)(?: --.*)?\n"
"""A line that declares locals in capitals. Those with numbers or texts are constants. No text of a script has one of
their names as a word."""
_WORD = r"([A-Z][A-Z_]+)\b"
"""A name of a constant, as far as can be seen."""
_NUMBER_CHARACTERS = frozenset("0123456789.e*^ -")
_DECLARATION = r"(?m)^local (?:function (\w+)\(.*\n(?:[ \t].*\n)*end|([a-z_, ]+)(?: = (?:\{\}|nil|, )+)?(?: --.*)?)\n"
"""A function that takes several lines, all of them indented except for the first and the last; or a line that declares
empty tables and variables."""
_SELDOM = r"(?m)^-- seldom: (.*(?:\n--   .*)*)"
_SELDOM_TABLE = "seldom"
"""Table of an assembled script that has the seldom functions, once they are defined."""
_WORDS = r"\w+"
_UPVALUES = 53
"""Variables and names of functions before the function of everything else, at most. Lua allows that function to use 60
of others; six belong to what comes before the first declaration."""
_SUFFIX = ".lua"
_INCLUDES_FOLDER = "include"


class _BlockKind(Enum):
    FUNCTION, STATE, TEXT = range(3)


class Script(msgspec.Struct, frozen=True):
    """A Lua script and the digest under which the server caches it."""

    name: str
    source: str
    """A first line `#!lua flags=allow-oom` lets the script run when the server's memory is full (Redis 7.0 and later,
    EVAL flags)."""
    undeclared_keys: bool = False
    """The script touches keys of its slot that no call declares. While a slot's keys are being moved between two
    nodes, such a script can run on neither: the caller raises FrontierUnavailable, and may call again later."""
    sha: bytes = b""
    """40 lower-case hexadecimal digits, as SCRIPT LOAD returns them."""

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False)
        msgspec.structs.force_setattr(self, "sha", digest.hexdigest().encode())


class Scripts(dict[str, Script]):
    """Scripts of a package's folder by name, each read on its first use, so that a command starts quickly.

    Each `.lua` file of the folder is a command. A line `-- include name` is replaced by `include/name.lua`, once per
    command, at its first mention. Comments and empty lines are left out of the assembled source. Getting a script
    raises KeyError for one that does not exist, and ValueError for an include that does not exist and for files that
    include each other.
    """

    def __init__(self, folder: Path, *, undeclared_keys: bool = False) -> None:
        """`undeclared_keys` applies to all scripts."""
        super().__init__()
        self._folder = folder
        self._undeclared_keys = undeclared_keys
        self._includes: dict[str, _ScriptFile | None] = {}
        """Included files that were read. None: there is no such file."""
        self._kept = _KeptScripts(folder)

    def __missing__(self, name: str) -> Script:
        script = self._kept.load(name, self._undeclared_keys)
        if script is None:
            script = Script(name, self._assembled(name), self._undeclared_keys)
            self._kept.save(script)
        self[name] = script
        return script

    def _assembled(self, name: str) -> str:
        """Return the source of a script. Raises KeyError and ValueError, see the class."""
        source = _read_file(self._folder, name)
        if source is None:
            raise KeyError(name)
        constants: dict[str, str] = {}
        blocks = _used(self._assemble(name, source, constants, set(), (name,)))
        if source.seldom:
            blocks = _with_seldom(blocks, source.seldom)
        blocks = _arranged(blocks)
        return "".join(constants.get(word, word) for block in blocks for word in block.words)

    def names(self) -> list[str]:
        """Return the names of all scripts, sorted."""
        files = (entry.name for entry in self._folder.iterdir())
        return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))

    def _include(self, name: str) -> "_ScriptFile | None":
        """Return an included file; None: there is none."""
        if name not in self._includes:
            self._includes[name] = _read_file(self._folder / _INCLUDES_FOLDER, name)
        return self._includes[name]

    def _assemble(
        self, name: str, source: "_ScriptFile", constants: dict[str, str], done: set[str], above: tuple[str, ...]
    ) -> "list[_Block]":
        """Return a source with its includes, and add their constants to `constants`. `done`: names that the command has
        already, grows here. `above`: the files through which this one was reached."""
        if twice := constants.keys() & source.constants.keys():
            raise ValueError(f"script {name} has two constants that are called {twice.pop()}")
        constants.update(source.constants)
        blocks = list(source.texts[0])
        for part, text in zip(source.includes, source.texts[1:], strict=True):
            if part in above:
                raise ValueError(f"scripts include each other: {' -> '.join((*above, part))}")
            included = self._include(part)
            if included is None:
                raise ValueError(f"script {name} includes {part}, which does not exist")
            if part not in done:
                done.add(part)
                blocks += self._assemble(part, included, constants, done, (*above, part))
            blocks += text
        return blocks


class _KeptScripts:
    """Assembled scripts of a folder in files, which count while no file of the folder has changed.

    Like Python's compiled modules they are in a folder `__pycache__`, or under `sys.pycache_prefix`. Nothing is written
    where Python may write no compiled modules.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._state = ""

    def load(self, name: str, undeclared_keys: bool) -> Script | None:
        """Return an assembled script. None: it is not kept, or files have changed since."""
        try:
            with open(self._path(name), encoding="utf-8") as file:
                state, digest = file.readline().split()
                if state != self._folder_state():
                    return None
                script = Script(name, file.read(), undeclared_keys)
        except (OSError, ValueError):  # ValueError: the file was not written to its end
            return None
        return script if script.sha.decode() == digest else None

    def save(self, script: Script) -> None:
        """Keep an assembled script, if the folder can be written to."""
        if sys.dont_write_bytecode:
            return
        path = self._path(script.name)
        unfinished = f"{path}.{os.getpid()}"
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(unfinished, "w", encoding="utf-8") as file:
                file.write(f"{self._folder_state()} {script.sha.decode()}\n{script.source}")
            os.replace(unfinished, path)

    def _path(self, name: str) -> str:
        prefix = sys.pycache_prefix
        return f"{prefix}{self._folder}/{name}.assembled" if prefix else f"{self._folder}/__pycache__/{name}.assembled"

    def _folder_state(self) -> str:
        """Return a digest of the names, sizes and times of all files from which scripts are made, this one included."""
        if not self._state:
            files = [(__file__, os.stat(__file__))]
            for folder in (self._folder, f"{self._folder}/{_INCLUDES_FOLDER}"):
                with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
                    files += [(entry.path, entry.stat()) for entry in entries if entry.name.endswith(_SUFFIX)]
            state = sorted((path, status.st_size, status.st_mtime_ns) for path, status in files)
            self._state = hashlib.sha1(repr(state).encode(), usedforsecurity=False).hexdigest()
        return self._state


class _Block(NamedTuple):
    """A function, a line that declares empty tables and variables, or what is between these."""

    kind: _BlockKind
    declares: frozenset[str]
    """Names that it declares, where it does nothing else."""
    words: list[str]
    """Its text, split at words in capitals."""
    names: frozenset[str]
    """All names in it."""


class _ScriptFile(NamedTuple):
    """A file without comments, empty lines and constants, split at its includes."""

    texts: list[list[_Block]]
    """Texts before, between and behind the includes."""
    includes: list[str]
    constants: dict[str, str]
    """Values by name."""
    seldom: list[str]
    """Functions that most calls of this command do not need."""


def _used(blocks: list[_Block]) -> list[_Block]:
    """Return the blocks without declarations of what no later block mentions."""
    names: set[str] = set()
    used = []
    for block in reversed(blocks):
        if not block.declares or not block.declares.isdisjoint(names):
            used.append(block)
            names |= block.names
    return used[::-1]


def _with_seldom(blocks: list[_Block], seldom: list[str]) -> list[_Block]:
    """Return the blocks with these functions, and what only they use, in a function that defines them. Before all
    others are functions with their names, which call it once. Raises ValueError for a function that there is not, and
    for one that may be called before the last of them stands in the script."""
    places = {
        name: place
        for place, block in enumerate(blocks)
        if block.kind is _BlockKind.FUNCTION
        for name in block.declares
    }
    if missing := set(seldom) - places.keys():
        raise ValueError(f"not a function that is used: {missing.pop()}")
    users: dict[str, set[int]] = {name: set() for name in places}
    for place, block in enumerate(blocks):
        for name in block.names & places.keys():
            if places[name] != place:
                users[name].add(place)
    inside = {places[name] for name in seldom}
    last = max(inside)
    for name, place in reversed(places.items()):
        if users[name] and users[name] <= inside:
            inside.add(place)
    called = [name for name in seldom if not users[name] <= inside]
    if any(block.kind is _BlockKind.TEXT and not block.names.isdisjoint(called) for block in blocks[:last]):
        raise ValueError(f"a seldom function is called before {max(seldom, key=places.__getitem__)} is defined")
    defined = [blocks[place]._replace(kind=_BlockKind.TEXT) for place in sorted(inside)]
    result = [block for place, block in enumerate(blocks) if place not in inside and place <= last]
    result += [_text("define_seldom = function()\n"), *defined]
    variables = [f"{_SELDOM_TABLE}.{name}" for name in called]
    result += [_text(f"{', '.join(variables)} = {', '.join(called)}\nend\n"), *blocks[last + 1 :]]
    names = ["define_seldom", _SELDOM_TABLE]
    state = _Block(_BlockKind.STATE, frozenset(names), [f"local {', '.join(names)} = nil, {{}}\n"], frozenset())
    first = min(places.values())
    return [*result[:first], state, _text(" ".join(map(_stub, called)) + "\n"), *result[first:]]


def _stub(name: str) -> str:
    """Return a function that has this one defined when it is first called."""
    kept = f"{_SELDOM_TABLE}.{name}"
    return f"local function {name}(...) if not {kept} then define_seldom() end return {kept}(...) end"


def _arranged(blocks: list[_Block]) -> list[_Block]:
    """Return the blocks in another order: what comes before all declarations, then the tables and variables and the
    names of the most used functions, then a function of everything else. Raises ValueError if two files declare the
    same."""
    first = next((place for place, block in enumerate(blocks) if block.kind is not _BlockKind.TEXT), len(blocks))
    before, after = blocks[:first], blocks[first:]
    state = [block for block in after if block.kind is _BlockKind.STATE]
    rest = [block for block in after if block.kind is not _BlockKind.STATE]
    names = [name for block in state for name in block.declares]
    if len(set(names)) < len(names):
        raise ValueError(f"declared twice: {max(names, key=names.count)}")
    if not state or not any(block.kind is _BlockKind.FUNCTION for block in rest):
        return blocks
    shared = _most_used(rest, _UPVALUES - len(names))
    state += [_text(f"local {', '.join(shared)}\n")] if shared else []
    rest = [_without_local(block) if not block.declares.isdisjoint(shared) else block for block in rest]
    return [*before, *state, _text("return (function()\n"), *rest, _text("end)()\n")]


def _most_used(blocks: list[_Block], count: int) -> list[str]:
    """Return the names of the functions that most other functions use, at most `count`."""
    users = Counter(
        name for block in blocks if block.kind is _BlockKind.FUNCTION for name in block.names - block.declares
    )
    functions = [name for block in blocks if block.kind is _BlockKind.FUNCTION for name in block.declares]
    return sorted(sorted(name for name in functions if users[name] > 1), key=lambda name: -users[name])[: max(0, count)]


def _without_local(block: _Block) -> _Block:
    """Return the definition of a function whose name is declared elsewhere."""
    return block._replace(words=[block.words[0].removeprefix("local "), *block.words[1:]])


def _text(text: str) -> _Block:
    """Return a block that declares nothing that could be left out."""
    return _Block(_BlockKind.TEXT, frozenset(), re.split(_WORD, text), _names_in(text))


def _names_in(text: str) -> frozenset[str]:
    return frozenset(text.translate(_between_names()).split())


@cache
def _between_names() -> dict[int, str]:
    """Return a table that replaces every character that belongs to no name by a space."""
    return {code: " " for code in range(128) if not re.match(r"\w", chr(code))}


def _read_file(folder: Path, name: str) -> _ScriptFile | None:
    """Return a file. None: there is no such file."""
    try:
        with open(f"{folder}/{name}{_SUFFIX}", encoding="utf-8") as file:
            source = file.read()
    except OSError:  # there is no such file or folder
        return None
    parts, found = re.split(_INCLUDE, source), re.search(_SELDOM, source)
    seldom = re.findall(_WORDS, found[1]) if found else []
    constants: dict[str, str] = {}
    texts = [_split_text(_take_constants(re.sub(_COMMENT, "", text), constants)) for text in parts[::2]]
    return _ScriptFile(texts, parts[1::2], constants, seldom)


def _take_constants(text: str, constants: dict[str, str]) -> str:
    """Return a text without its constants, which are added to `constants`."""

    def take(found: re.Match[str]) -> str:
        values = found[2].split(", ")
        if not all(value[0] == value[-1] == '"' or _NUMBER_CHARACTERS.issuperset(value) for value in values):
            return found[0]
        for name, value in zip(found[1].split(", "), values, strict=True):
            constants[name] = value if value[0] == '"' or value.isalnum() else f"({value})"
        return ""

    return re.sub(_CONSTANTS, take, text)


def _split_text(text: str) -> list[_Block]:
    """Return the blocks of a text."""
    blocks, end = [], 0
    for found in re.finditer(_DECLARATION, text):
        if found.start() > end:
            blocks.append(_text(text[end : found.start()]))
        function, state = found.groups()
        kind, declared = (_BlockKind.FUNCTION, [function]) if function else (_BlockKind.STATE, state.split(", "))
        blocks.append(_Block(kind, frozenset(declared), re.split(_WORD, found[0]), _names_in(found[0])))
        end = found.end()
    if end < len(text):
        blocks.append(_text(text[end:]))
    return blocks
