"""Loading of Lua scripts: each is assembled from a file and the files that this one includes.

A script defines all its functions anew in each call, and the server looks for each local that a function refers to in a
list of those that functions of the script refer to. So an assembled script defines little:

- Functions that nothing uses are left out.
- The values of constants (in capitals) are put in the places of their names.
- Tables and variables that files declare at their top come first, and everything else is one function behind them: what
  belongs to the surrounding function is found without a search.
- Functions are fields of one table. A variable for each would have to be made so that it outlives its function, and
  looked for in each definition that refers to it.
- Functions that a command names in a line `-- seldom: name, name`, and what only they use, are defined when one of them
  is first looked for in the table. Of several lines, those before are defined with it.

Assembling takes a tenth of the time in which a crawl starts, so assembled scripts are kept in a file each, where Python
keeps compiled modules.

A script's digest depends on how it is assembled. That does no harm, because every process loads the scripts of its own
release.
"""

import contextlib
import hashlib
import os
import re
import sys
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

# How the files of a folder of scripts are found and joined. All those files use it: their lines `-- include`, and their
# names. Compiled when they are needed first, which is seldom.
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
_DECLARATION = (
    r"(?m)^local (?:function (\w+)\(.*\n(?:[ \t].*\n)*end"
    r"|([a-z_, ]+)(?: = (?:\{\}|nil|, |\{ [nil, ]+ \})+)?(?: --.*)?"
    r"|([A-Z_]+) = (?:[A-Z_ +]+|\{ [^(){}\n]+ \})(?: --.*)?)\n"
)
"""A function that takes several lines, all of them indented except for the first and the last; or a line that declares
empty tables and variables, or in capitals a table or a sum of constants."""
_LOCALS = r"(?m)^local ([\w, ]*\w)"
_FUNCTION_HEAD, _FUNCTION_ASSIGNED = r"^local function (\w+)", r"\1 = function"
_SELDOM = r"(?m)^-- seldom: (.*(?:\n--   .*)*)"
_TABLE, _STEPS = "functions", "steps"
"""Variables of an assembled script: the table of its functions, and how often seldom functions were defined."""
_WORDS = r"\w+"
_FEW_FUNCTIONS = 10
"""A script with fewer is not arranged."""
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
    raises KeyError for one that does not exist, OSError for a file that cannot be read (too many open files), and
    ValueError for an include that does not exist and for files that include each other.
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
        blocks = _Arrangement(blocks, source.seldom).arranged()
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
    seldom: list[list[str]]
    """Functions that most calls of this command do not need. Those of one line are defined together."""


def _used(blocks: list[_Block]) -> list[_Block]:
    """Return the blocks without declarations of what no later block mentions."""
    names: set[str] = set()
    used = []
    for block in reversed(blocks):
        if not block.declares or not block.declares.isdisjoint(names):
            used.append(block)
            names |= block.names
    return used[::-1]


class _Arrangement:
    """Arranges the blocks of a script. First comes what stands before all declarations, then tables and variables, then
    a function of everything else. It begins with the table of functions; the other blocks follow in their order."""

    def __init__(self, blocks: list[_Block], seldom: list[list[str]]) -> None:
        """Raises ValueError for a seldom function that there is not, if two files declare the same, and for a function
        that cannot be in the table."""
        self._blocks = blocks
        self._functions = {
            name: place
            for place, block in enumerate(blocks)
            if block.kind is _BlockKind.FUNCTION
            for name in block.declares
        }
        if missing := {name for group in seldom for name in group} - self._functions.keys():
            raise ValueError(f"not a function that is used: {missing.pop()}")
        names = [name for block in blocks if block.kind is _BlockKind.STATE for name in block.declares]
        if len(set(names)) < len(names):
            raise ValueError(f"declared twice: {max(names, key=names.count)}")
        self._first = next((place for place, block in enumerate(blocks) if block.declares), len(blocks))
        self._bound = self._bound_functions()
        self._groups = self._seldom_groups(seldom)
        in_table = [name for name, place in self._functions.items() if place not in self._bound]
        self._call = re.compile(rf"(?<![\w.:])(?:{'|'.join(in_table)})\b(?=\(|\n)")

    def arranged(self) -> list[_Block]:
        """Return the blocks in their new order."""
        if len(self._functions) < _FEW_FUNCTIONS:
            return self._blocks
        after = list(enumerate(self._blocks))[self._first :]
        state, table, rest = [], [], []
        for place, block in after:
            if place in self._bound or block.kind is _BlockKind.TEXT:
                rest.append(block)
            elif place not in self._groups and block.kind is _BlockKind.STATE:
                state.append(block)
            elif place not in self._groups:
                table.append(_assigned(block, "", ","))
        inside = [_text(f"{_TABLE} = {{ "), *table, _text("}\n"), *self._seldom_definitions(), *rest]
        names = _text(f"local {_TABLE}, {_STEPS} = nil, 0 return (function()\n")
        calls = [self._with_calls(block) for block in inside]
        return [*self._blocks[: self._first], *state, names, *calls, _text("end)()\n")]

    def _bound_functions(self) -> set[int]:
        """Return the places of functions that use a variable of the text above them: they stay there. Raises ValueError
        for one that another function uses which does not stay."""
        variables: set[str] = set()
        bound: set[int] = set()
        for place, block in enumerate(self._blocks[self._first :], self._first):
            if block.kind is _BlockKind.TEXT:
                found = re.findall(_LOCALS, "".join(block.words))
                variables.update(name for names in found for name in names.split(", "))
            elif block.kind is _BlockKind.FUNCTION and not block.names.isdisjoint(variables):
                bound.add(place)
        names = {name for name, place in self._functions.items() if place in bound}
        for name, place in self._functions.items():
            if place not in bound and (used := self._blocks[place].names & names):
                raise ValueError(f"{name} uses {min(used)}, which uses variables that are declared behind {name}")
        return bound

    def _seldom_groups(self, seldom: list[list[str]]) -> dict[int, int]:
        """Return the groups of seldom functions, and of functions, tables and variables that only they use, by
        place."""
        groups = {self._functions[name]: number for number, group in enumerate(seldom) for name in group}
        if stay := groups.keys() & self._bound:
            name = min(self._blocks[stay.pop()].declares)
            raise ValueError(f"a seldom function: {name}, which uses variables of the text above it")
        users_by_name: dict[str, set[int]] = {name: set() for block in self._blocks for name in block.declares}
        for place, block in enumerate(self._blocks if seldom else []):
            for name in block.names & users_by_name.keys():
                users_by_name[name].add(place)
        for place in reversed(range(len(self._blocks))):
            block = self._blocks[place]
            users = {user for name in block.declares for user in users_by_name[name]} - {place}
            if place not in groups and users and users <= groups.keys():
                of_users = {groups[user] for user in users}
                if block.kind is _BlockKind.FUNCTION or len(of_users) == 1:
                    groups[place] = min(of_users)
        return groups

    def _seldom_definitions(self) -> list[_Block]:
        """Return the text that has the seldom functions defined, group by group, when one is looked for in the
        table."""
        if not self._groups:
            return []
        result = [_text(f"setmetatable({_TABLE}, {{ __index = function(_, name) {_STEPS} = {_STEPS} + 1\n")]
        for group in sorted(set(self._groups.values())):
            result.append(_text(f"{'else' if group else ''}if {_STEPS} == {group + 1} then\n"))
            for place in sorted(place for place, own in self._groups.items() if own == group):
                block = self._blocks[place]
                result.append(block if block.kind is _BlockKind.STATE else _assigned(block, f"{_TABLE}.", ""))
        return [*result, _text(f"else return nil end return {_TABLE}[name] end }})\n")]

    def _with_calls(self, block: _Block) -> _Block:
        """Return a block that finds the functions in the table, and the server's commands without a search."""
        text = "".join(block.words).replace("redis.call(", "call(")
        return _text(self._call.sub(rf"{_TABLE}.\g<0>", text))


def _assigned(block: _Block, table: str, end: str) -> _Block:
    """Return the definition of a function as an assignment."""
    text = "".join(block.words)
    return _text(f"{table}{re.sub(_FUNCTION_HEAD, _FUNCTION_ASSIGNED, text, count=1)[:-1]}{end}\n")


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
    """Return a file. None: there is no such file. Raises OSError if it cannot be read."""
    try:
        with open(f"{folder}/{name}{_SUFFIX}", encoding="utf-8") as file:
            source = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    parts, seldom = re.split(_INCLUDE, source), [re.findall(_WORDS, names) for names in re.findall(_SELDOM, source)]
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
        function, state, fixed = found.groups()
        declared = state.split(", ") if state else [function or fixed]
        kind = _BlockKind.FUNCTION if function else _BlockKind.STATE
        blocks.append(_Block(kind, frozenset(declared), re.split(_WORD, found[0]), _names_in(found[0])))
        end = found.end()
    if end < len(text):
        blocks.append(_text(text[end:]))
    return blocks
