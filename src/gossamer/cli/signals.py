"""Ctrl-C, SIGTERM and a closed terminal end a command with a line and exit code 130: from its first moment to its last.

This runs before anything else is imported, so it needs little itself. And nothing here raises: an exception out of a
signal handler comes up wherever the program just is, in a finalizer of the import machinery too, where it is printed
and forgotten.
"""

import os
import signal
import time
from _thread import start_new_thread
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

EXIT_CODE = 130

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR = b"\x1b[?25h"

_listener: Callable[[], None] | None = None


def watch() -> None:
    """From now on these signals end the process only as this module says.

    As long as nobody listens there is nothing that would have to be ended in good order, and the process ends at once.
    That may be in the middle of anything: as with SIGKILL, nothing that was stored is lost.
    """
    for number in _SIGNALS:
        # nohup has a command outlive its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _signalled)


def listen(listener: Callable[[], None]) -> None:
    """Call it for every signal from now on, instead of ending. It must never raise, nor wait for a lock."""
    global _listener
    _listener = listener


def end_now(sentence: str, code: int = EXIT_CODE) -> NoReturn:
    """Say this (nothing if empty) and be gone, whatever is under way. Safe in a signal handler and in any thread."""
    try:
        begin = b"\r" + _SHOW_CURSOR if os.isatty(2) else b""
        os.write(2, begin + (f"gossamer: {sentence}\n".encode(errors="replace") if sentence else b""))
    except OSError:
        pass
    os._exit(code)


def end_within(seconds: float, sentence: str, code: int = EXIT_CODE) -> None:
    """End so, should the process still be there after these seconds."""

    def wait() -> None:
        time.sleep(seconds)
        end_now(sentence, code)

    # Not `threading`, whose locks the interrupted code may hold.
    start_new_thread(wait, ())


def _signalled(number: int, frame: FrameType | None) -> None:
    if _listener is None:
        end_now("Interrupted.")
    _listener()
