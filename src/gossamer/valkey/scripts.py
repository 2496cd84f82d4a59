"""Lua scripts as they travel: one file a command, functions they share included, named by their SHA-1."""

import hashlib
import re
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable

_INCLUDE = re.compile(r"^-- include (\w+)[ \t]*$", re.MULTILINE)
_SUFFIX = ".lua"


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the name the server knows it by."""

    name: str
    source: str
    """A first line `#!lua flags=allow-oom` lets it run when the server's memory is full (Redis 7.0, EVAL flags)."""
    far: bool = False
    """It touches keys of its slot that no call names. While a slot's keys are in two places, it can run in neither."""
    sha: bytes = field(init=False)
    """40 lower-case hexadecimal digits, as SCRIPT LOAD answers."""

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False)
        object.__setattr__(self, "sha", digest.hexdigest().encode())


def load(folder: Traversable, *, far: bool = False) -> dict[str, Script]:
    """Every `.lua` file of a package's folder by its name without the suffix; `far` says of all what it says of one.

    A line `-- include name` is replaced by that file of the same folder: once a script, at its first mention, however
    many files ask for it. Raises ValueError for a name that is not there and for files that include each other.
    """
    sources = {
        entry.name.removesuffix(_SUFFIX): entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(_SUFFIX)
    }
    return {name: Script(name, _assemble(name, sources, set(), ()), far) for name in sorted(sources)}


def _assemble(name: str, sources: dict[str, str], done: set[str], above: tuple[str, ...]) -> str:
    if name in above:
        raise ValueError(f"scripts include each other: {' -> '.join((*above, name))}")
    if name not in sources:
        raise ValueError(f"script {above[-1]} includes {name}, which is not there")
    done.add(name)

    def included(match: re.Match[str]) -> str:
        other = match[1]
        return "" if other in done and other not in above else _assemble(other, sources, done, (*above, name))

    return _INCLUDE.sub(included, sources[name])
