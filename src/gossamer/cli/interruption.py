"""What Ctrl-C, SIGTERM and a closed terminal do to work under way: the first drains it, the second ends it at once."""

import asyncio
import os
import signal
import time
from _thread import start_new_thread
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import NoReturn, Self

from gossamer.cli import interruption as signals
from gossamer.errors import Interrupted

GRACE_SECONDS = 3.0
"""How long what ends at once may take to give back what it holds."""


class Interruption:
    """A context manager, entered in the task that does the work.

    As long as there is no `drain`, nothing is under way: the first signal cancels the task. After `ending` there is
    nothing left to stop: the first signal only says that the end is near. The second leaves three seconds for giving
    back what is held, the third none. It stays in charge when the context is left, so that a late Ctrl-C does not cut
    the summary off. Where the task was cancelled, Interrupted is raised in the end.
    """

    def __init__(self, drain: Callable[[], None] | None, say: Callable[[str], None]) -> None:
        self.drain = drain
        self.met = False
        self.last_words = "Stopped at once; what was under way will be done again."
        """Said where the end cannot be waited for."""
        self.before = ""
        """What there is to know for who interrupts before there is anything to drain."""
        self._say = say
        self._count = 0
        self._ending = False
        self._left = False

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        signals.listen(self._signalled)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._left = True
        if self.met and isinstance(error, asyncio.CancelledError):
            raise Interrupted(self.before) from None

    def ending(self) -> None:
        """The work is done or was stopped; what comes now ends by itself."""
        self._ending = True

    def hurry(self) -> None:
        """What comes now must not take longer than the grace."""
        signals.end_within(GRACE_SECONDS, self.last_words)

    def _signalled(self) -> None:
        self.met = True
        self._count += 1
        if self._count > 2:
            signals.end_now(self.last_words)
        if self._count == 2 or self._left:
            self.hurry()
        if not self._left:
            self._loop.call_soon_threadsafe(self._first if self._count == 1 else self._second)

    def _first(self) -> None:
        if self._ending:
            self._say("Ending; press Ctrl-C again to end at once.")
        elif self.drain is not None:
            self._say("Finishing what is under way; press Ctrl-C again to stop at once.")
            self.drain()
        elif self._task is not None:
            self._task.cancel()

    def _second(self) -> None:
        if not self._ending and self._task is not None:
            self._task.cancel()


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
