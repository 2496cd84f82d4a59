"""Names of projects, versions and files: which are allowed, which belong together, and the order of versions.

Pure: no I/O. Scrapyd's rules are marked as such; its files and its clients depend on them, so they must not change.
"""

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
    """The name leads out of its folder."""

    only_detail = True


def check_file_name(name: str, shown: str) -> None:
    """Raise UnsafeName with the text `shown` unless the name can be that of one file or folder."""
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode()) > _MAX_NAME_BYTES:
        raise UnsafeName(shown)


def sanitized(version: str) -> str:
    """Return the version's name as Scrapyd writes it into the name of a file."""
    return _UNSAFE.sub("_", version)


def same_version(one: str, other: str) -> bool:
    """Return whether Scrapyd would store both under one file name."""
    return sanitized(one) == sanitized(other)


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
