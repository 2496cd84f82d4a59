"""Waiting for what librdkafka says of each message, in its thread."""

import asyncio
import contextlib
import threading
from typing import Any

from gossamer.bus.kafka_client import translated


class Pending:
    """One call of `publish`: its future is done when the last of its messages is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self._loop = loop
        self._left = count
        self._error: Any = None
        self._lock = threading.Lock()
        self.future: asyncio.Future[None] = loop.create_future()

    def delivered(self, error: Any, message: Any) -> None:
        """Called by the producer's thread for every message."""
        self.failed(error)

    def failed(self, error: Any) -> None:
        """One is done with, and how; None: well."""
        with self._lock:
            self._error = self._error or error
            self._left -= 1
            if self._left:
                return
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(translated(self._error))
