"""Standard input, output and error: there or not, read by somebody or not."""

import contextlib
import errno
import os
import re
import stat
import sys
from typing import TextIO

from gossamer.errors import SinkError

_PASSWORD = re.compile(r"(?<=://)([^/?#@:\s]*):[^/?#\s]*@")
_NAMES = {0: "stdin", 1: "stdout", 2: "stderr"}

missing: set[int] = set()
"""Which of 0, 1 and 2 were closed when the program began."""


def open_missing() -> None:
    """Put /dev/null in the place of those that are closed (`2>&-`), before a file or socket gets their number."""
    for number, name in _NAMES.items():
        try:
            os.fstat(number)
        except OSError:
            missing.add(number)
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def shown(text: str) -> str:
    """The text without the passwords of the addresses in it."""
    return _PASSWORD.sub(r"\1:***@", text)


def say(sentence: str) -> None:
    """A sentence for a person. Like `note`."""
    note(f"gossamer: {sentence}")


def note(line: str) -> None:
    """A line on standard error, without passwords. Never raises: what nobody reads stops no crawl."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{shown(line)}\n")
        sys.stderr.flush()


def show(text: str, *, on_stderr: bool = False) -> None:
    """An answer and a line end on standard output; where nobody reads it any more, nothing happens. Raises SinkError
    where it could not be written for another reason."""
    stream = sys.stderr if on_stderr else sys.stdout
    try:
        stream.write(f"{text}\n")
        stream.flush()
    except OSError as error:
        if error.errno == errno.EPIPE or (error.errno == errno.EIO and _is_terminal(stream)):
            return
        raise SinkError(f"standard {'error' if on_stderr else 'output'}: {error.strerror}") from None


def _is_terminal(stream: TextIO) -> bool:
    """`isatty` says no of one that was closed."""
    return stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
