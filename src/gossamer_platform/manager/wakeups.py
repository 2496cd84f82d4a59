"""Wakes nodes that wait for work, and clients that wait for a version, in this manager and in all others.

Managers on one PostgreSQL database tell each other by LISTEN and NOTIFY. A notice may be lost, with its manager or its
connection: nodes and clients that wait also look by themselves now and then. Fixed: the words of notices, which
managers of different releases exchange.
"""

import asyncio
import json
import logging
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from gossamer.errors import BadInput
from gossamer.model.json_codec import encode_value
from gossamer.pauses import happens_within
from gossamer_platform.link import AttemptId
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.wire import BareSignal, Woken

log = logging.getLogger("gossamer.platform.manager")

_SIGNALS_KEPT: Final = 1000
"""Signals that are kept for nodes that are between two calls."""
_RETRY_SECONDS: Final = 1.0
"""Pause before the connection is made again."""


class WakeUps:
    """Notices of one manager. Belongs to its event loop."""

    def __init__(self, database: StateDatabase, *, on_listed: Callable[[], None]) -> None:
        """`on_listed` is called when a version's listing may have come to an end."""
        self._database = database
        self._on_listed = on_listed
        self._name = uuid.uuid4().hex[:12]
        """Name of this process: a node's cursor from another manager means nothing here."""
        self._count = 0
        self._woken = asyncio.Event()
        """Set and replaced at each notice."""
        self._signals: deque[tuple[int, BareSignal]] = deque(maxlen=_SIGNALS_KEPT)
        self._is_closed = False
        self._outbox: set[str] = set()
        self._sending: asyncio.Task[None] | None = None

    def wake_nodes(self) -> None:
        """There is work for nodes."""
        self._note({"kind": "work"})

    def wake_clients(self) -> None:
        """A version's listing has come to an end."""
        self._note({"kind": "listed"})

    def send_signal(self, attempt: AttemptId, number: int) -> None:
        """Send a signal that does not stop the job to the node that has the attempt."""
        self._note({"kind": "signal", "job": attempt.job, "attempt": attempt.number, "signal": number})

    def _note(self, notice: dict[str, Any]) -> None:
        self._receive(notice)
        if self._database.is_shared:
            self._outbox.add(encode_value({**notice, "from": self._name}).decode())
            if self._sending is None or self._sending.done():
                self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        """Send what is in the outbox. Equal notices that come in the meantime are one."""
        while self._outbox:
            notices, self._outbox = self._outbox, set()
            try:
                await self._database.notify(sorted(notices))
            except Exception as error:  # the others look by themselves
                log.warning("other managers could not be told of new work: %s", error)

    def _receive(self, notice: dict[str, Any]) -> None:
        if notice["kind"] == "listed":
            self._on_listed()
            return
        self._count += 1
        if notice["kind"] == "signal":
            attempt = AttemptId(notice["job"], notice["attempt"])
            self._signals.append((self._count, BareSignal(attempt, notice["signal"])))
        woken, self._woken = self._woken, asyncio.Event()
        woken.set()

    async def wait(self, cursor: str, seconds: float) -> Woken:
        """Return when there was a notice after the one that the cursor names, or after the time."""
        name, _, count = cursor.partition(":")
        seen = int(count) if name == self._name and count.isdigit() else -1
        if seen == self._count and not self._is_closed:
            await happens_within(self._woken, seconds)
        signals = [signal for number, signal in self._signals if 0 <= seen < number]
        return Woken(f"{self._name}:{self._count}", signals)

    def close(self) -> None:
        """Answer all that wait, now and later, because the manager stops."""
        self._is_closed = True
        self._woken.set()

    async def listen(self, stopping: asyncio.Event) -> None:
        """Receive the notices of other managers until `stopping` is set."""
        while self._database.is_shared and not stopping.is_set():
            listening = asyncio.create_task(self._database.listen(self._hear))
            stopped = asyncio.create_task(stopping.wait())
            await asyncio.wait({listening, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if not listening.done():
                listening.cancel()
            [error] = await asyncio.gather(listening, return_exceptions=True)
            if isinstance(error, BadInput):
                log.warning("%s", error)
            elif isinstance(error, Exception):
                raise error
            if not stopping.is_set():
                await asyncio.sleep(_RETRY_SECONDS)

    def _hear(self, text: str) -> None:
        notice = json.loads(text)
        if notice.get("from") != self._name and notice.get("kind") in ("work", "listed", "signal"):
            self._receive(notice)
