"""Names of projects, versions and files: which are allowed, which belong together, and the order of versions.

Pure: no I/O. Scrapyd's rules are marked as such; its files and its clients depend on them, so they must not change.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

from packaging.version import InvalidVersion, Version

from gossamer.errors import GossamerError

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
"""Characters of a version's name that Scrapyd replaces in the name of the egg's file. Scrapyd's: fixed."""
_MAX_NAME_BYTES: Final = 200
"""Length of a name that becomes a file's name. A file system allows 255 bytes, of which suffixes need some."""


class UnsafeName(GossamerError):
    """The name cannot be that of a file or folder."""

    only_detail = True

    def __init__(self, shown: str, reason: str, *, is_too_long: bool) -> None:
        super().__init__(f"the name {shown!r} cannot be used: {reason}")
        self.shown = shown
        self.is_too_long = is_too_long
        """True: Scrapyd, too, refuses the name without calling it a way out of the folder."""


def check_file_name(name: str, shown: str) -> None:
    """Raise UnsafeName, whose message has the text `shown`, unless the name can be that of one file or folder."""
    length = len(name.encode(errors="replace"))
    if length > _MAX_NAME_BYTES:
        reason = f"{name[:20]}… has {length} bytes; {_MAX_NAME_BYTES} are allowed"
        raise UnsafeName(shown[:_MAX_NAME_BYTES], reason, is_too_long=True)
    reason = ""
    if not name:
        reason = "a part of it is empty"
    elif name in (".", ".."):
        reason = f"'{name}' names another folder"
    elif "/" in name or "\0" in name:
        reason = f"{name!r} has a {'slash' if '/' in name else 'NUL character'}"
    if reason:
        raise UnsafeName(shown, reason, is_too_long=False)


def sanitized(version: str) -> str:
    """Return the version's name as Scrapyd writes it into the name of a file."""
    return _UNSAFE.sub("_", version)


def means_version(name: str, version: str) -> bool:
    """Return whether a client that names a version means this one: exactly, or as Scrapyd's file has it."""
    return name in (version, sanitized(version))


def file_stem(version: str, *, is_taken: bool) -> str:
    """Return the name of a version's file without its ending: Scrapyd's. `is_taken`: a version of another name has that
    one, as 1.0 has it before 1_0. Then a part of the name's digest follows."""
    stem = sanitized(version)
    return f"{stem}-{hashlib.sha256(version.encode()).hexdigest()[:16]}" if is_taken else stem


def in_order(versions: Iterable[tuple[str, float]]) -> list[str]:
    """Return the names of (name, time of deployment), the latest last.

    Names that are versions by PEP 440 are compared as such, so 1.10 follows 1.9. If one name is not (a date, a commit),
    all are sorted by the time of their deployment: there is no order between the two kinds.
    """
    known = list(versions)
    try:
        return [name for name, _ in sorted(known, key=lambda version: (Version(version[0]), version[1]))]
    except InvalidVersion:
        return [name for name, _ in sorted(known, key=lambda version: version[1])]
