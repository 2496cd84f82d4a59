"""Answers that come late: whoever asked polls for them, at any process of the API, also when the first one died."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from importlib import resources
from secrets import token_hex
from typing import Any

import msgspec

from gossamer.api.context import ApiContext
from gossamer.api.problems import Problem
from gossamer.errors import BusError, FrontierError, FrontierUnavailable, RequestRejected
from gossamer.model.messages import answers
from gossamer.policy.retry import outage_pause
from gossamer.telemetry import logs as names
from gossamer.valkey.client import Script, load_scripts
from gossamer.valkey.connection import retrying

log = logging.getLogger("gossamer.api")

_SCRIPTS: dict[str, Script] = load_scripts(resources.files("gossamer.api") / "scripts")

MOST = 1000
"""Requests of one process whose answers are under way."""
LONGEST_POLL_ID = 100
_TELL_ATTEMPTS = 10
_GOODBYE_SECONDS = 2.0

Answer = dict[str, Any] | None

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that is being answered."""

    poll_id: str
    id: str
    """Its own: two requests may have one uuid, and then each gets an answer."""
    value: bytes
    kind: str
    request: Any
    given: dict[str, Any]


class PendingRequests:
    """The requests of one process that are being answered. `close` leaves them to the others.

    Keys: `{prefix:poll}:<poll id>` (list: answers), the same with `:asked` (hash: requests by id) and `:owner:<id>`
    (while a process works on it). The first two live for `polled_seconds`, the last for `silent_seconds`.
    """

    def __init__(self, parts: ApiContext) -> None:
        self._parts = parts
        self._asked: dict[asyncio.Task[Answer], PendingRequest] = {}
        self._later: set[asyncio.Task[None]] = set()
        self._parked: dict[str, str] = {}
        """The poll ids of what is late, by the requests' own ids."""

    async def ask(self, kind: str, request: Any, given: dict[str, Any]) -> tuple[Answer, str]:
        """(the answer, ''), or (None, where to poll for it) when it is late. `given`: the request as it came.

        Raises what the handler raises, if it does so before it is late."""
        if len(self._asked) + len(self._later) >= MOST:
            raise Problem(503, "Too busy", f"{MOST} requests wait for their answers", headers={"Retry-After": "1"})
        uuid = given.get("uuid")
        poll_id = uuid if isinstance(uuid, str) and 0 < len(uuid) <= LONGEST_POLL_ID else token_hex(16)
        asked = PendingRequest(poll_id, token_hex(8), _encode(given), kind, request, given)
        task = self._begin(asked)
        if await self._is_in_time(task):
            return task.result(), ""
        self._keep(task, asked, known=False)
        return None, poll_id

    async def poll(self, poll_id: str) -> tuple[bool, Any]:
        """(True, an answer), which is forgotten; (False, None) when there is none. Raises FrontierUnavailable."""
        reply = await self._call("poll", poll_id, self._silent_ms)
        if reply[0] == 1:
            return True, msgspec.Raw(reply[1])
        if reply[0] == 2:
            return await self._take_over(poll_id, reply[1].decode(), reply[2])
        return False, None

    async def close(self) -> None:
        """Stop answering; another process takes over what is polled for."""
        parked = dict(self._parked)
        tasks = [*self._asked, *self._later]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(FrontierError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                for own, poll_id in parked.items():
                    key = self._key(poll_id)
                    await self._parts.shards.command(key, "DEL", f"{key}:owner:{own}")

    # --- answering ----------------------------------------------------------------------------------------------------

    def _begin(self, asked: PendingRequest) -> asyncio.Task[Answer]:
        task = asyncio.create_task(self._answer(asked))
        self._asked[task] = asked
        task.add_done_callback(lambda done: self._asked.pop(done, None))
        return task

    async def _is_in_time(self, task: asyncio.Task[Answer]) -> bool:
        await asyncio.wait({task}, timeout=self._parts.wait_seconds)
        return task.done()

    async def _answer(self, asked: PendingRequest) -> Answer:
        messages = await self._parts.desk.handle(asked.kind, asked.request)
        if messages:
            self._spawn(self._tell(messages))
        own = (message for message in messages if message.get("uuid") == asked.poll_id)
        return next(own, messages[0] if messages else None)

    async def _take_over(self, poll_id: str, own: str, value: bytes) -> tuple[bool, Any]:
        try:
            given = self._parts.desk.readable_fields(value)
            kind, request = self._parts.desk.read(given)
        except RequestRejected as fault:  # this process does not know the plug-in that the other one had
            log.warning("%s %s", names.HANDLER_BROKE, fault)
            return False, None
        asked = PendingRequest(poll_id, own, value, kind, request, given)
        task = self._begin(asked)
        if not await self._is_in_time(task):
            self._keep(task, asked, known=True)
            return False, None
        answer = task.result()
        await self._call("store_answer", poll_id, own, "", self._polled_ms)
        return True, answer

    def _keep(self, task: asyncio.Task[Answer], asked: PendingRequest, *, known: bool) -> None:
        self._spawn(self._see_through(task, asked, known=known))

    async def _see_through(self, task: asyncio.Task[Answer], asked: PendingRequest, *, known: bool) -> None:
        """Say that it is being worked on until it is answered; then leave the answer to be polled."""
        self._parked[asked.id] = asked.poll_id
        kept = asyncio.Event()
        if known:
            kept.set()
        saying = asyncio.create_task(self._say_so(asked, kept))
        try:
            answer = _encode(await self._patiently(task, asked))
        finally:
            saying.cancel()
            await asyncio.wait({saying})
        give_up = self._parts.polled_seconds
        if not kept.is_set():
            await retrying(lambda: self._say(asked, asked.value), timeout_seconds=give_up)
        await retrying(
            lambda: self._call("store_answer", asked.poll_id, asked.id, answer, self._polled_ms),
            timeout_seconds=give_up,
        )
        del self._parked[asked.id]

    async def _say_so(self, asked: PendingRequest, kept: asyncio.Event) -> None:
        while True:
            with contextlib.suppress(FrontierError):
                await self._say(asked, b"" if kept.is_set() else asked.value)
                kept.set()
            await asyncio.sleep(self._parts.silent_seconds / 3)

    async def _say(self, asked: PendingRequest, value: bytes) -> None:
        await self._call("store_request", asked.poll_id, asked.id, value, self._polled_ms, self._silent_ms)

    async def _patiently(self, task: asyncio.Task[Answer], asked: PendingRequest) -> Answer:
        attempt = 0
        while True:
            try:
                return await task
            except FrontierError as error:
                # Whoever asked is gone and polls: it is for us to repeat it.
                log.info("the answer to %s waits: %s", asked.poll_id, error)
            except RequestRejected as fault:
                return self._refusal(asked, fault)
            except Exception as error:
                log.exception("%s %s", names.HANDLER_BROKE, asked.kind)
                why = f"its handler failed: {type(error).__name__}: {error}"[:300]
                return self._refusal(asked, RequestRejected(why))
            attempt += 1
            await asyncio.sleep(outage_pause(attempt, random=random.random()))
            task = self._begin(asked)

    def _refusal(self, asked: PendingRequest, fault: RequestRejected) -> dict[str, Any]:
        return answers.rejected(asked.given, field=fault.field, reason=fault.reason, now=self._parts.clock())

    async def _tell(self, messages: list[dict[str, Any]]) -> None:
        """To the bus: it may be away, and the answer is given all the same."""
        for attempt in range(1, _TELL_ATTEMPTS + 1):
            try:
                return await self._parts.answered(messages)
            except (BusError, FrontierUnavailable) as error:
                trouble = error
            await asyncio.sleep(outage_pause(attempt, random=random.random()))
        log.warning("an answer did not go out on the bus: %s", trouble)
        return None

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._later.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("an answer could not be kept: %s", error)

    async def _call(self, script: str, poll_id: str, *arguments: str | bytes | int) -> Any:
        return await self._parts.shards.call(0, _SCRIPTS[script], [self._key(poll_id)], arguments)

    def _key(self, poll_id: str) -> str:
        return f"{{{self._parts.prefix}:poll}}:{poll_id}"

    @property
    def _polled_ms(self) -> int:
        return max(1, int(self._parts.polled_seconds * 1000))

    @property
    def _silent_ms(self) -> int:
        return max(1, int(self._parts.silent_seconds * 1000))
