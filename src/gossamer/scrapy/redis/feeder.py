"""Start messages of scrapy-redis projects: taking them from Redis keys, parsing them, and feeding their requests.

Other programs push messages (URLs, or JSON objects) into a project's keys. Their requests go into the frontier, the
queue that all processes of the crawl share.

Fixed: the names of keys and fields, which other programs use; and that a message leaves the processing key only after
its requests are in the frontier (`_feed_batch`): a process that is killed would otherwise take messages with it.
"""

import asyncio
import base64
import json
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
from scrapy import FormRequest, Request, Spider
from scrapy.crawler import Crawler

from gossamer.commit.retrier import Retrier
from gossamer.errors import BadInput, FrontierError, FrontierUnavailable
from gossamer.policy.urls import canonical
from gossamer.scrapy.engine import EngineAdapter
from gossamer.scrapy.redis.connection import SCRIPTS, RedisConnection
from gossamer.scrapy.scheduler import Scheduler
from gossamer.telemetry.logs import Troubles

log = logging.getLogger(__name__)

T = TypeVar("T")

# --- keys -------------------------------------------------------------------------------------------------------------

_LEASE_SECONDS = 30.0
"""Seconds after which a message that its process neither finished nor kept goes to another process. Longer delays the
messages of killed processes (docs/howto/from-scrapy-redis.md promises half a minute); shorter lets a slow process's
messages be crawled twice."""
_KEEP_SECONDS = _LEASE_SECONDS / 3
"""Seconds after which a process keeps its messages for another lease. Must stay well below `_LEASE_SECONDS`: a call may
fail and be repeated."""
_DEAD_SECONDS = 7 * 86400
"""Seconds that dead letters (messages that cannot be used) are kept. docs/howto/from-scrapy-redis.md promises a
week."""


class TakenMessage(NamedTuple):
    """A message that this process has taken from its key."""

    entry: bytes
    """The message in the processing key: `token:number:score|message`, as scripts/take.lua writes it. Stored: fixed."""
    data: bytes
    """The message as another program pushed it."""

    @classmethod
    def parse(cls, entry: bytes) -> "TakenMessage":
        return cls(entry, entry.partition(b"|")[2])

    @property
    def score(self) -> bytes:
        """The message's score in a sorted set; empty in a list or a set."""
        return self.entry.partition(b"|")[0].split(b":")[2]


class MessageKey:
    """A Redis key that holds messages. A message moves from the key to `<key>:processing`, and then it is done.

    Invalid messages go to `<key>:dead` for a week. All calls raise FrontierUnavailable and may be repeated. Both names
    are documented and stored: fixed.
    """

    def __init__(self, connection: RedisConnection, key: str, *, kind: str) -> None:
        """`kind` is list, set or zset: the type of an empty key when messages are given back to it."""
        self._connection = connection
        self.key = key
        self._kind = kind
        self._processing = connection.sibling_key(key, "processing")
        self.dead = connection.sibling_key(key, "dead")

    async def take(self, limit: int) -> list[TakenMessage]:
        """Take at most `limit` messages: a list's oldest, a sorted set's highest, or any of a set. Messages whose lease
        has ended in another process come first.

        Raises BadInput where the key has another type."""
        keys = [self.key, self._processing]
        arguments: list[int | str | bytes] = [limit, int(_LEASE_SECONDS * 1000), uuid.uuid4().hex]
        try:
            entries = await self._call("take", keys, arguments)
        except FrontierUnavailable:
            raise
        except FrontierError as error:
            if "WRONGTYPE" in str(error):  # scripts/take.lua answers this
                raise BadInput(f"{self.key} is not a list, a set or a sorted set") from None
            raise
        return [TakenMessage.parse(entry) for entry in entries]

    async def keep(self, taken: Sequence[TakenMessage]) -> None:
        """Keep messages for another lease, because they take longer."""
        await self._call(
            "extend_lease", [self._processing], [int(_LEASE_SECONDS * 1000), *(message.entry for message in taken)]
        )

    async def done(self, taken: Sequence[TakenMessage]) -> None:
        """Forget messages whose requests are in the frontier."""
        if taken:
            shards = await self._connection.shards()
            await shards.command(self._processing, "ZREM", self._processing, *(message.entry for message in taken))

    async def give_back(self, taken: Sequence[TakenMessage]) -> None:
        """Put messages back into the key, as if they had not been taken."""
        rows = [part for message in taken for part in (message.entry, message.score, message.data)]
        await self._call("put_back", [self.key, self._processing], [self._kind, *rows])

    async def bury(self, message: TakenMessage, reason: str) -> None:
        """Move an invalid message to the dead letters: a JSON object with `reason`, `at` (epoch seconds) and `message`,
        or `message_base64` where the message is not UTF-8. Users read these fields: fixed."""
        letter: dict[str, object] = {"reason": reason, "at": time.time()}
        try:
            letter["message"] = message.data.decode()
        except UnicodeDecodeError:
            letter["message_base64"] = base64.b64encode(message.data).decode()
        arguments: list[int | str | bytes] = [_DEAD_SECONDS, message.entry, msgspec.json.encode(letter)]
        await self._call("dead_letter", [self.dead, self._processing], arguments)

    async def _call(self, name: str, keys: list[str], arguments: Sequence[int | str | bytes]) -> list[bytes]:
        """Run a script of this package. Return its answer; empty for one that is not a list."""
        shards = await self._connection.shards()
        answer = await shards.call(0, SCRIPTS[name], keys, list(arguments))
        return answer if isinstance(answer, list) else []


async def keep_while(work: Awaitable[T], keep: Callable[[], Awaitable[object]]) -> T:
    """Return the result of `work`, which handles taken messages. Call `keep`, which keeps them for another lease, as
    often as needed meanwhile: no other process takes them, however long the work takes.

    Where the work is cancelled or `keep` fails, the messages' last lease runs out, and another process takes them."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_KEEP_SECONDS)
            if not task.done():
                await keep()
        return task.result()
    finally:
        task.cancel()


# --- feeding ----------------------------------------------------------------------------------------------------------

_POLL_SECONDS = 0.1
"""Seconds between two looks at empty keys: Redis cannot wait for sets and sorted sets. Shorter costs calls; must stay a
tenth of a second at most, which redis/settings.py promises."""


@dataclass(slots=True)
class _Batch:
    """Messages, and the requests made of them."""

    messages: list[tuple[MessageKey, TakenMessage]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def by_key(self) -> list[tuple[MessageKey, list[TakenMessage]]]:
        """Return the messages grouped by the key that they came from."""
        groups: dict[str, tuple[MessageKey, list[TakenMessage]]] = {}
        for key, message in self.messages:
            groups.setdefault(key.key, (key, []))[1].append(message)
        return list(groups.values())


class Feeder:
    """Feeds the requests of start messages to the frontier while the spider runs.

    A message leaves the processing key only when its requests are in the frontier, so a process that dies loses none;
    another process takes its messages. Invalid messages become dead letters, the others of their batch are fed.
    """

    def __init__(
        self,
        crawler: Crawler,
        keys: Sequence[MessageKey],
        *,
        batch_size: int,
        make_requests: Callable[[bytes], Any],
        on_work: Callable[[], None],
        next_requests: Callable[[], Iterable[Any]] | None,
    ) -> None:
        """Create a feeder; `run` does the work.

        It takes at most `batch_size` messages at once, from the first key that has any. `make_requests` returns the
        spider's requests for a message. `on_work` is called whenever there was work. `next_requests` is the project's
        own method, which is called in a thread; None: the project has none.
        """
        self._engine = EngineAdapter(crawler.engine)
        self._keys = keys
        self._batch_size = batch_size
        self._make_requests = make_requests
        self._on_work = on_work
        self._next_requests = next_requests
        self._loop = asyncio.get_running_loop()
        self._fetched: list[tuple[MessageKey, TakenMessage]] = []
        """Messages that the project's `next_requests` has fetched in its current call."""
        self._retrier = Retrier(Troubles())
        assert crawler.engine is not None
        assert crawler.stats is not None
        self._crawl = crawler.engine.crawl
        self._stats = crawler.stats

    async def run(self) -> None:
        """Feed until the task is cancelled, the spider closes, or a key turns out to have another type."""
        scheduler = self._engine.scheduler
        if not isinstance(scheduler, Scheduler):
            keys = ", ".join(key.key for key in self._keys)
            log.critical("SCHEDULER is not gossamer.scrapy.redis.scheduler.Scheduler: nothing is read from %s", keys)
            return
        try:
            while not scheduler.is_closing:
                if not await self._feed_batch(scheduler):
                    if scheduler.has_pending_requests():
                        self._on_work()
                    await asyncio.sleep(_POLL_SECONDS)
        except BadInput as error:
            log.critical("%s. Nothing is read from it", error)

    async def _feed_batch(self, scheduler: Scheduler) -> bool:
        """Feed one batch. False: there is none, or the crawl takes none now.

        The order must stay: take messages, hand their requests to the engine, wait until these are in the frontier,
        forget the messages. Where the crawl takes none of them, the messages are given back."""
        if scheduler.is_stopped:
            return False
        if self._next_requests is None:
            batch = await self._make_batch()
        else:
            batch = await self._call_project(self._next_requests)
        if not (batch.messages or batch.requests):
            return False
        self._on_work()
        if not scheduler.is_closing:
            for request in batch.requests:
                self._crawl(request)
            if await keep_while(scheduler.start_requests_stored(), lambda: self._keep(batch)):
                self._stats.inc_value("gossamer/start_messages", len(batch.messages))
                for key, taken in batch.by_key():
                    await self._retrier.call_frontier(lambda key=key, taken=taken: key.done(taken))  # type: ignore[misc]
                return True
        for key, taken in batch.by_key():
            await self._retrier.call_frontier(lambda key=key, taken=taken: key.give_back(taken))  # type: ignore[misc]
        return False

    async def _keep(self, batch: _Batch) -> None:
        """Keep the batch's messages for another lease."""
        for key, taken in batch.by_key():
            await self._retrier.call_frontier(lambda key=key, taken=taken: key.keep(taken))  # type: ignore[misc]

    # --- from messages to requests ------------------------------------------------------------------------------------

    async def _make_batch(self) -> _Batch:
        """Take messages and let the spider make their requests. A message may have no request; then it is done."""
        batch = _Batch()
        for key, message in await self._take(self._keys, self._batch_size):
            try:
                requests = as_requests(self._make_requests(message.data))
            except Exception as fault:
                await self._bury(key, message, fault)
                continue
            if not requests:
                log.debug("Request not made from data: %r", message.data)
            batch.requests += requests
            batch.messages.append((key, message))
        return batch

    async def _call_project(self, next_requests: Callable[[], Iterable[Any]]) -> _Batch:
        """Return the requests of the project's `next_requests`. It may block, so it runs in a thread."""
        self._fetched = []
        try:
            requests = await asyncio.to_thread(lambda: as_requests(list(next_requests())))
        except Exception as fault:
            for key, message in self._fetched:
                await self._bury(key, message, fault)
            if not self._fetched:
                log.exception("next_requests failed")
            return _Batch()
        return _Batch(self._fetched, requests)

    def fetch(self, names: Sequence[str], limit: int) -> list[bytes]:
        """Return messages of the first of these keys that has any. Only for the thread of `next_requests`."""
        if threading.current_thread() is threading.main_thread():
            raise RuntimeError("fetch_data is called by next_requests, which Gossamer calls; do not call it yourself")
        keys = [key for key in self._keys if key.key in names]
        taken = asyncio.run_coroutine_threadsafe(self._take(keys, limit), self._loop).result()
        self._fetched += taken
        return [message.data for _, message in taken]

    def bury(self, data: bytes, fault: Exception) -> None:
        """Move a message that `fetch` returned to the dead letters. Only for the thread of `next_requests`."""
        index = next(index for index, (_, message) in enumerate(self._fetched) if message.data == data)
        key, message = self._fetched.pop(index)
        asyncio.run_coroutine_threadsafe(self._bury(key, message, fault), self._loop).result()

    async def _take(self, keys: Sequence[MessageKey], limit: int) -> list[tuple[MessageKey, TakenMessage]]:
        """Take at most `limit` messages from the first key that has any."""
        for key in keys:
            taken = await self._retrier.call_frontier(lambda key=key: key.take(limit))  # type: ignore[misc]
            if taken:
                return [(key, message) for message in taken]
        return []

    async def _bury(self, key: MessageKey, message: TakenMessage, fault: Exception) -> None:
        """Move a message to the dead letters, with the error as the reason."""
        reason = fault.detail if isinstance(fault, BadInput) else f"{type(fault).__name__}: {fault}"
        log.error("A message of %s goes to %s: %s", key.key, key.dead, reason)
        self._stats.inc_value("gossamer/start_messages/dead")
        await self._retrier.call_frontier(lambda: key.bury(message, reason))


def as_requests(made: Any) -> list[Request]:
    """Return what a project made of a message as a list. Raises BadInput for anything that is not a request."""
    if made is None:
        return []
    requests = list(made) if isinstance(made, Iterable) else [made]
    for request in requests:
        if not isinstance(request, Request):
            raise BadInput(f"make_request_from_data returned {request!r}, which is not a Request")
    return requests


# --- parsing ----------------------------------------------------------------------------------------------------------


class BadMessage(BadInput):
    """The start message is not valid."""

    only_detail = False


_SCALARS = (str, int, float)
"""Types of JSON that a form field may have; each is sent as text."""

_REQUEST_FIELDS = {
    "headers": dict, "cookies": (dict, list), "cb_kwargs": dict, "body": str, "priority": int, "dont_filter": bool,
    "flags": list, "encoding": str, "callback": MethodType, "errback": MethodType,
}  # fmt: skip
"""Types of the fields of a message's `request` object. Every name is one of Request's parameters and documented: more
may be added, none renamed."""


def parse_message(data: bytes | str, encoding: str, spider: Spider | None = None) -> Request:
    """Return the request of a message: a URL, or a JSON object with scrapy-redis's fields and a `request` object.

    scrapy-redis's fields are `url`, `method` and `meta`; all others are form fields. The `request` object holds what
    could be taken for a form field: `headers`, `cookies` and `cb_kwargs` (objects), `body` (text), `priority`,
    `dont_filter`, `flags`, `encoding`, and `callback` and `errback` (names of the spider's methods). The request is
    never dropped as a duplicate, unless that object sets `dont_filter` to false. Raises BadMessage with the reason.
    """
    if isinstance(data, bytes):
        try:
            data = data.decode(encoding)
        except (UnicodeDecodeError, LookupError) as fault:
            raise BadMessage(f"it is not {encoding}: {fault}") from None
    text = data.strip()
    if not text.startswith("{"):
        return FormRequest(_checked_url(text), dont_filter=True)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise BadMessage(f"it is not JSON: {fault}") from None
    return _parse_fields(fields, spider)


def _parse_fields(fields: dict[str, Any], spider: Spider | None) -> Request:
    """Return the request of a message that is a JSON object. Raises BadMessage."""
    url = fields.pop("url", None)
    if not url:
        raise BadMessage("it has no url")
    if not isinstance(url, str):
        raise BadMessage(f"url: {url!r} is not text")
    url = _checked_url(url)
    method = fields.pop("method", "GET")
    meta = fields.pop("meta", None) or {}
    further: dict[str, Any] = {}
    if isinstance(fields.get("request"), dict):  # else it is a form field of that name, as in scrapy-redis
        further = fields.pop("request")
    if not isinstance(method, str) or not method.isalpha():
        raise BadMessage(f"method: {method!r} is not an HTTP method")
    if not isinstance(meta, dict):
        raise BadMessage("meta is not an object")
    form: dict[str, Any] = {}  # the other fields, as text or lists of texts
    for name, value in fields.items():
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, _SCALARS) for part in parts):
            raise BadMessage(f"{name} is not a form field: text, a number, or a list of those")
        form[name] = [str(part) for part in parts] if isinstance(value, list) else str(value)
    return _build(url, method.upper(), meta, form, _with_methods(further, spider))


def _build(url: str, method: str, meta: dict[str, Any], form: dict[str, Any], further: dict[str, Any]) -> Request:
    """Return the request. `further`: the message's `request` object. Raises BadMessage."""
    for name, value in further.items():
        if name not in _REQUEST_FIELDS:
            raise BadMessage(f"request.{name} is not known")
        if not isinstance(value, _REQUEST_FIELDS[name]):  # type: ignore[arg-type]
            raise BadMessage(f"request.{name}: {value!r} has the wrong type")
    if "body" in further and form:
        raise BadMessage(f"request.body and a form field ({next(iter(form))}) exclude each other")
    arguments = {"dont_filter": True, "meta": meta, "method": method} | further
    try:
        return FormRequest(url, formdata=form or None, **arguments)
    except (TypeError, ValueError, UnicodeError) as fault:
        raise BadMessage(str(fault)) from None


def _with_methods(further: dict[str, Any], spider: Spider | None) -> dict[str, Any]:
    """Replace the names of callback and errback by the spider's methods."""
    resolved = dict(further)
    for key in ("callback", "errback"):
        name = further.get(key)
        if not isinstance(name, str):
            continue
        if not isinstance(method := getattr(spider, name, None), MethodType):
            raise BadMessage(f"request.{key}: the spider has no method {name}")
        resolved[key] = method
    return resolved


def _checked_url(url: str) -> str:
    """Return the URL, in canonical form if its host is not ASCII: Scrapy spells such a host by IDNA 2003, which is
    another site for some names. Raises BadMessage for a URL that cannot be crawled."""
    try:
        spelled = canonical(url)
    except BadInput as fault:
        raise BadMessage(str(fault)) from None
    return url if urlsplit(url).netloc.isascii() else spelled
