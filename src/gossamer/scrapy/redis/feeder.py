"""Brings start messages into the frontier as they come, whatever else the spider is doing."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

from scrapy import FormRequest, Request, Spider
from scrapy.crawler import Crawler

from gossamer.commit.retrier import Retrier
from gossamer.errors import BadInput
from gossamer.policy.urls import canonical
from gossamer.scrapy.engine import EngineDoor
from gossamer.scrapy.redis.presence import LEASE_SECONDS, StartKey, TakenMessage
from gossamer.scrapy.scheduler import Scheduler
from gossamer.telemetry.logs import Troubles

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
"""An empty key is looked at so often. Sets and sorted sets cannot be waited for, and this costs next to nothing."""


@dataclass(slots=True)
class _Batch:
    """Messages and the requests made of them."""

    messages: list[tuple[StartKey, TakenMessage]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def by_key(self) -> list[tuple[StartKey, list[TakenMessage]]]:
        groups: dict[str, tuple[StartKey, list[TakenMessage]]] = {}
        for key, one in self.messages:
            groups.setdefault(key.key, (key, []))[1].append(one)
        return list(groups.values())


class Feeder:
    """A message leaves its key for the processing key, and that only when its requests are in the frontier: a process
    that dies in between loses none, and what it took comes again. Bad ones are buried, their neighbours are not."""

    def __init__(
        self,
        crawler: Crawler,
        keys: Sequence[StartKey],
        *,
        most: int,
        make: Callable[[bytes], Any],
        worked: Callable[[], None],
        own: Callable[[], Iterable[Any]] | None = None,
    ) -> None:
        """`most` messages at once, of the first key that has any; `make`: the spider's requests for a message; `worked`
        is told when there was something to do. `own`: a `next_requests` of the project's; it is called in a thread."""
        self._engine = EngineDoor(crawler.engine)
        self._keys = keys
        self._most = most
        self._make = make
        self._worked = worked
        self._own = own
        self._loop = asyncio.get_running_loop()
        self._fetched: list[tuple[StartKey, TakenMessage]] = []
        self._retrier = Retrier(Troubles())
        assert crawler.engine is not None
        assert crawler.stats is not None
        self._crawl = crawler.engine.crawl
        self._stats = crawler.stats

    async def run(self) -> None:
        """Until it is cancelled, or the spider closes, or there is nothing that could be read."""
        scheduler = self._engine.scheduler
        if not isinstance(scheduler, Scheduler):
            keys = ", ".join(key.key for key in self._keys)
            log.critical("SCHEDULER is not gossamer.scrapy.redis.scheduler.Scheduler: nothing is read from %s", keys)
            return
        try:
            while not scheduler.closing:
                if not await self._round(scheduler):
                    if scheduler.has_pending_requests():
                        self._worked()
                    await asyncio.sleep(LOOK_SECONDS)
        except BadInput as error:
            log.critical("%s. Nothing is read from it", error)

    async def _round(self, scheduler: Scheduler) -> bool:
        """Feed one batch. False: there is none, or it is not wanted now."""
        if scheduler.stopped:
            return False
        batch = await (self._made() if self._own is None else self._own_made(self._own))
        if not (batch.messages or batch.requests):
            return False
        self._worked()
        if not scheduler.closing:
            for request in batch.requests:
                self._crawl(request)
            if await self._stored(scheduler, batch):
                self._stats.inc_value("gossamer/start_messages", len(batch.messages))
                for key, taken in batch.by_key():
                    await self._retrier.call_frontier(lambda key=key, taken=taken: key.done(taken))  # type: ignore[misc]
                return True
        for key, taken in batch.by_key():
            await self._retrier.call_frontier(lambda key=key, taken=taken: key.give_back(taken))  # type: ignore[misc]
        return False

    # --- from messages to requests ------------------------------------------------------------------------------------

    async def _made(self) -> _Batch:
        batch = _Batch()
        for key, one in await self._take(self._keys, self._most):
            try:
                made = requests_of(self._make(one.message))
            except Exception as fault:
                await self._bury(key, one, fault)
                continue
            if not made:
                log.debug("Request not made from data: %r", one.message)
            batch.requests += made
            batch.messages.append((key, one))
        return batch

    async def _own_made(self, own: Callable[[], Iterable[Any]]) -> _Batch:
        """What the project's `next_requests` gives. It may block, so it runs in a thread."""
        self._fetched = []
        try:
            requests = await asyncio.to_thread(lambda: requests_of(list(own())))
        except Exception as fault:
            for key, one in self._fetched:
                await self._bury(key, one, fault)
            if not self._fetched:
                log.exception("next_requests failed")
            return _Batch()
        return _Batch(self._fetched, requests)

    def fetch(self, names: Sequence[str], most: int) -> list[bytes]:
        """Return messages of the first of these keys that has any. Only for the thread in which `own` runs."""
        if threading.current_thread() is threading.main_thread():
            raise RuntimeError("fetch_data is called by next_requests, which Gossamer calls; do not call it yourself")
        keys = [key for key in self._keys if key.key in names]
        taken = asyncio.run_coroutine_threadsafe(self._take(keys, most), self._loop).result()
        self._fetched += taken
        return [one.message for _, one in taken]

    def bury(self, message: bytes, fault: Exception) -> None:
        """Put a message that `fetch` returned among the dead letters. Only for that thread."""
        at = next(at for at, (_, one) in enumerate(self._fetched) if one.message == message)
        key, one = self._fetched.pop(at)
        asyncio.run_coroutine_threadsafe(self._bury(key, one, fault), self._loop).result()

    async def _take(self, keys: Sequence[StartKey], most: int) -> list[tuple[StartKey, TakenMessage]]:
        for key in keys:
            taken = await self._retrier.call_frontier(lambda key=key: key.take(most))  # type: ignore[misc]
            if taken:
                return [(key, one) for one in taken]
        return []

    async def _bury(self, key: StartKey, one: TakenMessage, fault: Exception) -> None:
        reason = fault.detail if isinstance(fault, BadInput) else f"{type(fault).__name__}: {fault}"
        log.error("A message of %s goes to %s: %s", key.key, key.dead, reason)
        self._stats.inc_value("gossamer/start_messages/dead")
        await self._retrier.call_frontier(lambda: key.bury(one, reason))

    async def _stored(self, scheduler: Scheduler, batch: _Batch) -> bool:
        stored = asyncio.ensure_future(scheduler.stored())
        try:
            last = time.monotonic()
            while not stored.done():
                await asyncio.wait([stored], timeout=LEASE_SECONDS / 3)
                if not stored.done() and time.monotonic() - last >= LEASE_SECONDS / 4:
                    last = time.monotonic()
                    for key, taken in batch.by_key():
                        await self._retrier.call_frontier(lambda key=key, taken=taken: key.keep(taken))  # type: ignore[misc]
            return stored.result()
        finally:
            stored.cancel()


def requests_of(made: Any) -> list[Request]:
    """Return what a message led to as a list. Raises BadInput for anything that is no request."""
    if made is None:
        return []
    found = list(made) if isinstance(made, Iterable) else [made]
    for one in found:
        if not isinstance(one, Request):
            raise BadInput(f"make_request_from_data gave {one!r}, which is no Request")
    return found


class BadMessage(BadInput):
    """This start message cannot be used."""

    only_detail = False


_TEXT = (str, int, float)


def read(data: bytes | str, encoding: str, spider: Spider | None = None) -> Request:
    """A URL, or a JSON object: `url`, and what else scrapy-redis knows: `method`, `meta`, all others as form fields.

    `headers`, `cookies`, `cb_kwargs` as objects, `body` as text, and `priority`, `dont_filter`, `flags`, `callback`,
    `errback` (names of methods of `spider`) in a `request` object: there they cannot be taken for form fields. Never
    filtered unless that object says so. Raises BadMessage with the reason.
    """
    if isinstance(data, bytes):
        try:
            data = data.decode(encoding)
        except (UnicodeDecodeError, LookupError) as fault:
            raise BadMessage(f"it is not {encoding}: {fault}") from None
    text = data.strip()
    if not text.startswith("{"):
        _check(text)
        return FormRequest(text, dont_filter=True)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise BadMessage(f"it is no JSON: {fault}") from None
    return _of(fields, spider)


def _of(fields: dict[str, Any], spider: Spider | None) -> Request:
    url = fields.pop("url", None)
    if not url:
        raise BadMessage("it has no url")
    if not isinstance(url, str):
        raise BadMessage(f"url: {url!r} is no text")
    _check(url)
    method = fields.pop("method", "GET")
    meta = fields.pop("meta", None) or {}
    more = fields.pop("request", {}) if isinstance(fields.get("request"), dict) else {}
    if not isinstance(method, str) or not method.isalpha():
        raise BadMessage(f"method: {method!r} is none")
    if not isinstance(meta, dict):
        raise BadMessage("meta is no object")
    for name, value in fields.items():
        if not isinstance(value, _TEXT) and not (
            isinstance(value, list) and all(isinstance(one, _TEXT) for one in value)
        ):
            raise BadMessage(f"{name} is no form field: text, a number, or a list of those")
    form = {
        name: [str(one) for one in value] if isinstance(value, list) else str(value) for name, value in fields.items()
    }
    return _built(url, method.upper(), meta, form, _resolved(more, spider))


_MORE = {
    "headers": dict, "cookies": (dict, list), "cb_kwargs": dict, "body": str, "priority": int, "dont_filter": bool,
    "flags": list, "encoding": str, "callback": MethodType, "errback": MethodType,
}  # fmt: skip


def _built(url: str, method: str, meta: dict[str, Any], form: dict[str, Any], more: dict[str, Any]) -> Request:
    for name, value in more.items():
        if name not in _MORE:
            raise BadMessage(f"request.{name} is not known")
        if not isinstance(value, _MORE[name]):  # type: ignore[arg-type]
            raise BadMessage(f"request.{name}: {value!r} is of the wrong type")
    if "body" in more and form:
        raise BadMessage(f"request.body and a form field ({next(iter(form))}) exclude each other")
    arguments = {"dont_filter": True, "meta": meta, "method": method} | more
    try:
        return FormRequest(url, formdata=form or None, **arguments)
    except (TypeError, ValueError, UnicodeError) as fault:
        raise BadMessage(str(fault)) from None


def _resolved(more: dict[str, Any], spider: Spider | None) -> dict[str, Any]:
    """With methods in the place of their names."""
    resolved = dict(more)
    for key in ("callback", "errback"):
        name = more.get(key)
        if not isinstance(name, str):
            continue
        if not isinstance(method := getattr(spider, name, None), MethodType):
            raise BadMessage(f"request.{key}: the spider has no method {name}")
        resolved[key] = method
    return resolved


def _check(url: str) -> None:
    try:
        canonical(url)
    except BadInput as fault:
        raise BadMessage(str(fault)) from None
