"""What Ctrl-C, SIGTERM and a closed terminal do to work under way: the first drains it, the second ends it at once."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gossamer.cli import signals
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
