"""Describes errors of a spider's code by the place in the user's own files, for records and for terminals.

A traceback through Gossamer's own modules and libraries tells the writer of a spider little; the line of the spider
that led there tells most. Safe to change: the wording. Tests and docs quote some of it.
"""

import os
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import gossamer

_FOREIGN = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in (sysconfig.get_path("stdlib"), os.path.dirname(gossamer.__file__))
)
"""Folders whose files are never the user's own, even below the spider's folder."""
_MAX_FRAMES = 8
"""Calls of the user's own code that are shown, the innermost ones. Free to change."""


class CodePlace(NamedTuple):
    """A line of the user's code that was being executed."""

    file: str
    """Path as Python knows it."""
    line: int
    function: str
    source: str
    """The line itself, without indentation; empty if it cannot be read."""

    def __str__(self) -> str:
        return f"{shown_path(self.file)}, line {self.line}, in {self.function}"


def places_of_error(error: BaseException, home: str) -> list[CodePlace]:
    """Return the calls in the error's traceback that are in the user's own files, as `places_of` does; if none is,
    those of its cause: Python replaces a StopIteration that leaves a coroutine."""
    at: BaseException | None = error
    while at is not None:
        places = places_of(traceback.extract_tb(at.__traceback__), home)
        if places:
            return places
        at = at.__cause__
    return []


def places_of(frames: Iterable[traceback.FrameSummary], home: str) -> list[CodePlace]:
    """Return those of the calls that are in the user's own files, the innermost last. `home`: file of the spider; its
    folder is the user's. Empty: no call is."""
    folder = os.path.join(os.path.dirname(os.path.realpath(home)), "") if home else ""
    own = [frame for frame in frames if _is_own(frame.filename, folder)]
    return [
        CodePlace(frame.filename, frame.lineno or 0, frame.name, (frame.line or "").strip())
        for frame in own[-_MAX_FRAMES:]
    ]


def _is_own(file: str, folder: str) -> bool:
    path = os.path.realpath(file)
    return (
        bool(folder)
        and path.startswith(folder)
        and "site-packages" not in path[len(folder) :]
        and not path.startswith(_FOREIGN)
    )


def shown_path(file: str) -> str:
    """Return a path for a person: relative if the file is in the working folder or below it."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def error_text(error: BaseException) -> str:
    """Return type and message of an error in one piece."""
    message = str(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def record_text(error: BaseException, home: str) -> str:
    """Return the error as a record has it: type, message, and the innermost line of the user's own code. Its file is
    named relative to the spider's folder, because records go to other machines."""
    places = places_of_error(error, home)
    if not places:
        return error_text(error)
    file = os.path.relpath(places[-1].file, os.path.dirname(home))
    return f"{error_text(error)} ({file}, line {places[-1].line}, in {places[-1].function})"


def terminal_text(error: BaseException, home: str) -> str:
    """Return the error for a terminal, on several lines: the calls of the user's own code, then the error."""
    lines = []
    for place in places_of_error(error, home):
        lines.append(f"  {place}")
        if place.source:
            lines.append(f"    {place.source}")
    return "\n".join([*lines, f"  {error_text(error)}"])
