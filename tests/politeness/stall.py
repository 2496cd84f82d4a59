"""What the machine itself delays: no program on it can be more punctual than it lets a sleeping thread be."""

import threading
import time
from types import TracebackType
from typing import Self

_NAP_SECONDS = 0.01


class Stall:
    """A context manager; `longest_seconds` is by how much a short sleep lasted too long, at most, while it was open."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            lain_down = time.monotonic()
            if self._over.wait(_NAP_SECONDS):
                return
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - lain_down - _NAP_SECONDS)
