"""Late answers of the REST API: a client that waited in vain for the answer to its request gets an id, and polls for
the answer at any process of the API, even after the process that it asked has died.

A process owns the requests that it answers, as long as it gives signs of life: it renews their keys `:owner:` on the
servers of the frontier (the cluster's queue of requests, in Valkey). The first poll after the owner's death hands the
request to the process that was polled. A handler is the code that answers one kind of request.

Fixed: names and contents of the keys, which processes of different versions share; and the order of steps: a request is
stored before its answer, and forgotten by the script that stores the answer, so that it is answered at least once.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec

from gossamer.api.context import ApiContext
from gossamer.errors import BusError, FrontierError, FrontierUnavailable, RequestRejected, SinkError
from gossamer.model.json_codec import encode_value
from gossamer.model.messages import answers
from gossamer.policy.retry import outage_pause
from gossamer.telemetry import logs
from gossamer.valkey.connection import retrying
from gossamer.valkey.scripts import Scripts
from gossamer.web.problems import Problem

log = logging.getLogger("gossamer.api")

_SCRIPTS = Scripts(Path(__file__).with_name("scripts"))

_MAX_PENDING = 1000
"""Most tasks that answer requests in one process. A late request counts twice, for its handler and for the task that
stores its answer; a task that publishes answers on the bus counts, too. More need more memory; with fewer, clients get
503 earlier."""
_MAX_UUID = 100
"""Characters of a request's `uuid` that can serve as its poll id, which is a part of keys. A request with a longer one
gets a random id."""
_PUBLISH_ATTEMPTS = 10
"""Attempts to publish an answer on the bus, with pauses of 10 to 22 s in all. After the last attempt the answer is
missing on the bus, but the client still gets it."""
_HANDOVER_SECONDS = 2.0
"""Time that a process which is closing takes to release its requests. If it is too short, other processes take them
over after the owner's timeout; a longer time delays the stop during an outage."""
_SIGNS_PER_TIMEOUT = 3
"""Signs of life in the owner's timeout: two may be lost. May be larger; must be at least 2, or a request changes its
owner although the owner lives."""
_MAX_REASON_CHARACTERS = 300
"""Longest reason in a rejection that names a handler's error."""

# First part of the reply of scripts/poll.lua; see there for the other parts.
_ANSWERED = 1
_TAKEN_OVER = 2

Answer = dict[str, Any] | None
"""An answer as it is sent; None: the request has no answer."""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that is being answered."""

    poll_id: str
    """The id that the client polls for; requests with the same `uuid` share it."""
    id: str
    """Unique id of the request."""
    value: bytes
    """The request as JSON."""
    kind: str
    """Kind of the request, which decides on its handler."""
    request: Any
    """The parsed request."""
    given: dict[str, Any]
    """The fields as the client sent them."""


class PendingRequests:
    """The requests that this process answers. `close` leaves them to other processes.

    Keys: `{prefix:poll}:<poll id>` (list: answers) and the same with `:asked` (hash: requests by id), which expire
    after `answer_retention_seconds`; and with `:owner:<id>` (exists while a process answers the request), which expires
    after `owner_timeout_seconds`. The braces must stay: they keep all keys on one server of a Valkey cluster.
    """

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._handling: dict[asyncio.Task[Answer], PendingRequest] = {}
        """Running handlers."""
        self._background: set[asyncio.Task[None]] = set()
        """Tasks that store late answers, or publish answers on the bus. `close` cancels them."""
        self._owned: dict[str, str] = {}
        """Poll ids of the late requests that this process owns, by request id. `close` releases them."""

    async def ask(self, kind: str, request: Any, given: dict[str, Any]) -> tuple[Answer, str]:
        """Answer a request. Return the answer and an empty id; or None and the id to poll for, if the answer is late.

        `given`: the fields as the client sent them. Raises the handler's errors if they come in time."""
        if len(self._handling) + len(self._background) >= _MAX_PENDING:
            raise Problem(
                503, "Too busy", f"{_MAX_PENDING} requests wait for their answers", headers={"Retry-After": "1"}
            )
        uuid = given.get("uuid")
        poll_id = uuid if isinstance(uuid, str) and 0 < len(uuid) <= _MAX_UUID else token_hex(16)
        pending = PendingRequest(poll_id, token_hex(8), encode_value(given), kind, request, given)
        task = self._start(pending)
        if await self._is_in_time(task):
            return task.result(), ""
        self._spawn(self._complete_late(task, pending, is_stored=False))
        return None, poll_id

    async def poll(self, poll_id: str) -> tuple[bool, Any]:
        """Return (True, answer), and forget the answer; (False, None) if there is none. Raises FrontierError.

        If the owner of the request has died, this process answers it. An error of the handler is then not raised, but
        answered with a rejection at a later poll."""
        outcome, *parts = await self._call("poll", poll_id, self._owner_timeout_ms)
        if outcome == _ANSWERED:
            return True, msgspec.Raw(parts[0])
        if outcome == _TAKEN_OVER:
            request_id, value = parts
            return await self._take_over(poll_id, request_id.decode(), value)
        return False, None

    async def close(self) -> None:
        """Stop answering, and release the late requests, so that the next poll hands them to another process."""
        owned = dict(self._owned)  # copied first: a task that is cancelled removes its request
        tasks = [*self._handling, *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(FrontierError, TimeoutError):
            async with asyncio.timeout(_HANDOVER_SECONDS):
                for request_id, poll_id in owned.items():
                    key = self._key(poll_id)
                    await self._context.shards.command(key, "DEL", f"{key}:owner:{request_id}")

    # --- answering ----------------------------------------------------------------------------------------------------

    def _start(self, pending: PendingRequest) -> asyncio.Task[Answer]:
        """Start the handler of a request. It goes on after a client has given up."""
        task = asyncio.create_task(self._handle(pending))
        self._handling[task] = pending
        task.add_done_callback(lambda done: self._handling.pop(done, None))
        return task

    async def _is_in_time(self, task: asyncio.Task[Answer]) -> bool:
        """Wait for a handler as long as a client waits. Return whether it has ended."""
        await asyncio.wait({task}, timeout=self._context.feed_wait_seconds)
        return task.done()

    async def _handle(self, pending: PendingRequest) -> Answer:
        """Run the handler, and publish all its answers on the bus. Return the one for the client: that with the
        client's `uuid`, else the first."""
        messages = await self._context.dispatcher.handle(pending.kind, pending.request)
        if not messages:
            return None
        self._spawn(self._publish(messages))
        for message in messages:
            if message.get("uuid") == pending.poll_id:
                return message
        return messages[0]

    async def _take_over(self, poll_id: str, request_id: str, value: bytes) -> tuple[bool, Any]:
        """Answer a request whose owner has died. Return as `poll`. `value`: the request as the owner stored it."""
        dispatcher = self._context.dispatcher
        try:
            given = dispatcher.readable_fields(value)
            kind, request = dispatcher.read(given)
        except RequestRejected as fault:  # this process lacks a plug-in that the owner had
            log.warning("%s %s", logs.HANDLER_BROKE, fault)
            return False, None
        pending = PendingRequest(poll_id, request_id, value, kind, request, given)
        task = self._start(pending)
        # An error is not the answer to a poll: the background task repeats the request, or stores a rejection.
        if not await self._is_in_time(task) or task.exception() is not None:
            self._spawn(self._complete_late(task, pending, is_stored=True))
            return False, None
        answer = task.result()
        # No answer is stored, because the client gets it now; the call only forgets the request.
        await self._call("store_answer", poll_id, request_id, "", self._retention_ms)
        return True, answer

    async def _complete_late(self, task: asyncio.Task[Answer], pending: PendingRequest, *, is_stored: bool) -> None:
        """Wait for a late answer, with signs of life until then, and store it. `is_stored`: True if the request is
        stored already."""
        request_stored = asyncio.Event()
        if is_stored:
            request_stored.set()
        self._owned[pending.id] = pending.poll_id
        try:
            renewing = asyncio.create_task(self._renew_ownership(pending, request_stored))
            try:
                answer = encode_value(await self._final_answer(task, pending))
            finally:
                renewing.cancel()
                await asyncio.wait({renewing})
            timeout = self._context.answer_retention_seconds
            if not request_stored.is_set():  # `store_answer` ignores unknown requests
                await retrying(lambda: self._store_request(pending, pending.value), timeout_seconds=timeout)
            await retrying(
                lambda: self._call("store_answer", pending.poll_id, pending.id, answer, self._retention_ms),
                timeout_seconds=timeout,
            )
        finally:
            # The entry may be gone: after an outage this process may have taken over its own request, and run two of
            # these tasks for it.
            self._owned.pop(pending.id, None)

    async def _renew_ownership(self, pending: PendingRequest, request_stored: asyncio.Event) -> None:
        """Store the request, then keep it owned by this process, until cancelled."""
        while True:
            with contextlib.suppress(FrontierError):
                await self._store_request(pending, b"" if request_stored.is_set() else pending.value)
                request_stored.set()
            await asyncio.sleep(self._context.owner_timeout_seconds / _SIGNS_PER_TIMEOUT)

    async def _store_request(self, pending: PendingRequest, value: bytes) -> None:
        """Store the request (an empty `value`: it is stored already), and renew this process's ownership."""
        await self._call(
            "store_request", pending.poll_id, pending.id, value, self._retention_ms, self._owner_timeout_ms
        )

    async def _final_answer(self, task: asyncio.Task[Answer], pending: PendingRequest) -> Answer:
        """Return the answer, after outages too. A request that fails otherwise is answered with a rejection."""
        attempt = 0
        while True:
            try:
                return await task
            except FrontierError as error:
                # The client no longer waits for the response, so it cannot repeat the request.
                log.info("the answer for %s is delayed: %s", pending.poll_id, error)
            except RequestRejected as fault:
                return self._rejection(pending, fault)
            except Exception as error:
                log.exception("%s %s", logs.HANDLER_BROKE, pending.kind)
                reason = f"its handler failed: {type(error).__name__}: {error}"[:_MAX_REASON_CHARACTERS]
                return self._rejection(pending, RequestRejected(reason))
            attempt += 1
            await asyncio.sleep(outage_pause(attempt, random=random.random()))
            task = self._start(pending)

    def _rejection(self, pending: PendingRequest, fault: RequestRejected) -> dict[str, Any]:
        """Return the answer that says why a request is rejected."""
        return answers.rejected(pending.given, field=fault.field, reason=fault.reason, now=self._context.clock())

    async def _publish(self, messages: list[dict[str, Any]]) -> None:
        """Publish answers on the bus. The client gets its answer even if the bus is unavailable."""
        for attempt in range(1, _PUBLISH_ATTEMPTS + 1):
            try:
                await self._context.publish_answers(messages)
                return
            except (BusError, SinkError, FrontierUnavailable) as error:
                last_error = error
            await asyncio.sleep(outage_pause(attempt, random=random.random()))
        log.warning("an answer could not be published on the bus: %s", last_error)

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work in a background task, which `close` cancels."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._on_background_done)

    def _on_background_done(self, task: asyncio.Task[None]) -> None:
        """Forget a background task, and log its error."""
        self._background.discard(task)
        # Asking for the exception also keeps asyncio from logging it once more.
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a late answer could not be stored: %s", error)

    async def _call(self, script: str, poll_id: str, *arguments: str | bytes | int) -> Any:
        """Run a script (scripts/*.lua) on the keys of a poll id."""
        # The 0 is a shard's number, for messages only: the key decides which server is called.
        return await self._context.shards.call(0, _SCRIPTS[script], [self._key(poll_id)], arguments)

    def _key(self, poll_id: str) -> str:
        return f"{{{self._context.prefix}:poll}}:{poll_id}"

    @property
    def _retention_ms(self) -> int:
        return max(1, int(self._context.answer_retention_seconds * 1000))

    @property
    def _owner_timeout_ms(self) -> int:
        return max(1, int(self._context.owner_timeout_seconds * 1000))
