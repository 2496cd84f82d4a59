"""Item pipelines that complete items by look-ups over HTTP, such as the place of an address.

A look-up is made once for each key: concurrent items share it, answers and failures are cached in memory and, where
REDIS_PIPELINE_URL names a server, for all processes and later crawls.

Fixed: the names of the classes, methods, counters and settings, which projects write or read.
"""

import asyncio
import contextlib
import importlib
import logging
import time
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self
from urllib.parse import quote

import msgspec
from itemadapter import ItemAdapter
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured

from gossamer.errors import BadInput, BadSetting
from gossamer.model.crawl import Rate
from gossamer.scrapy.options import abort
from gossamer.scrapy.pipelines.background import BackgroundLoop, outcome
from gossamer.scrapy.pipelines.cache import CacheAway, Cached, LookupCache, Throttle
from gossamer.settings.crawl import parse_rate

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

LOOKUP_SETTINGS: Final[dict[str, tuple[Any, str]]] = {
    "GEO_PIPELINE_URL": ("", "Address of a look-up; `{key}` stands for the item's address. Empty: the pipeline is off"),
    "GEO_PIPELINE_RATE": ("5/1", "Look-ups, as HITS/SECONDS, of all processes that share a cache"),
    "GEO_PIPELINE_CONCURRENCY": (16, "Look-ups that a process has in flight"),
    "GEO_PIPELINE_TIMEOUT": (10, "Seconds for the whole answer"),
    "GEO_PIPELINE_TRIES": (3, "Times that a look-up is made if the server is away or asks to slow down"),
    "GEO_PIPELINE_CACHE_SECONDS": (2592000, "Life of an answer in both caches"),
    "GEO_PIPELINE_FAILURE_SECONDS": (600, "Time for which a failure is kept, so that the look-up is not made again"),
    "GEO_PIPELINE_MEMORY": (10000, "Answers and failures that are kept in memory"),
    "REDIS_PIPELINE_URL": ("", "Valkey or Redis server of the shared cache. Empty: memory only, a rate per process"),
}
"""Default and meaning by name. Other pipelines have their own prefix, and the same REDIS_PIPELINE_URL."""

_ANSWER_BYTES: Final = 1 << 20
"""Longest answer of the HTTP server."""
_TOO_LONG: Final = f"the answer has more than {_ANSWER_BYTES:,} bytes"
_MAX_REDIRECTS: Final = 5
"""Redirects of one attempt that are followed. Each is a request at the rate of look-ups."""
_VALUE_BYTES: Final = 1 << 16
"""Longest value that is kept, as JSON: it bounds the memory."""
_WARNING_SECONDS: Final = 60.0
"""Shortest time between two warnings of a cache that is away."""
_POLL_SECONDS: Final = 0.1
"""Longest pause before the cache is asked again for a look-up that another process makes."""
_RETRY_SECONDS: Final = 1.0
"""Pause before a look-up is made again; doubles."""


class LookupFailed(Exception):
    """A look-up gave no answer; `may_retry` if another attempt may give one."""

    def __init__(self, reason: str, *, may_retry: bool = False) -> None:
        super().__init__(reason)
        self.may_retry = may_retry


class _Result(NamedTuple):
    """Outcome of a look-up: `value`, or else `failure` (the reason). `shared`: it was in the shared cache."""

    value: Any
    failure: str
    shared: bool
    expires: float
    """Monotonic time from which the result counts no more."""


class LookupPipeline:
    """Base class of pipelines that look something up for each item.

    An item whose look-up fails passes on unchanged. Counters, each with the pipeline's name before it: `misses`
    (look-ups that were made), `already_set` (items that had the value, or whose value was in the shared cache), `hits`
    (items whose value was in memory, or on its way), `failures` (items without value), `retries`, `cache_errors`.
    """

    name: ClassVar[str] = "lookup_pipeline"
    """Prefix of counters and keys and, in capitals, of settings. Each subclass has its own."""
    source: ClassVar[str] = "key"
    """Field of the item that is looked up."""
    target: ClassVar[str] = "value"
    """Field of the item that gets the value."""

    def __init__(self, crawler: Crawler) -> None:
        """Read the settings. Raises NotConfigured without a URL, BadInput for a value that cannot be used."""
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._prefix = self.name.upper()
        self._settings = crawler.settings
        self.url = str(crawler.settings.get(f"{self._prefix}_URL") or "")
        if not self.url:
            raise NotConfigured(f"{self._prefix}_URL is not set")
        if not self.url.startswith(("http://", "https://")) or "{key}" not in self.url:
            raise BadInput(f"{self._prefix}_URL: write an address with {{key}}, such as http://host/geocode?q={{key}}")
        rate = self._rate()
        self._life_seconds = self._number("CACHE_SECONDS")
        self._failure_seconds = self._number("FAILURE_SECONDS")
        self._memory_size = int(self._number("MEMORY"))
        self._tries = int(self._number("TRIES"))
        self._timeout_seconds = self._number("TIMEOUT")
        concurrency = int(self._number("CONCURRENCY"))
        self._memory: OrderedDict[str, _Result] = OrderedDict()
        """The most recently used result last."""
        self._running: dict[str, asyncio.Task[_Result]] = {}
        """Look-ups on their way. Scrapy bounds the items in pipelines, and so these."""
        self._next_warning = 0.0
        self._cache: LookupCache | None = None
        self._loop = BackgroundLoop(self.name)
        try:
            self._loop.submit(self._open(rate, concurrency)).result()
        except BadInput as error:
            self._loop.close()
            raise BadInput(f"REDIS_PIPELINE_URL: {error.detail}") from None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline. A setting that cannot be used stops the start, with a message of one line."""
        try:
            return cls(crawler)
        except BadInput as error:
            abort(BadSetting(error.detail))

    # --- what subclasses override -------------------------------------------------------------------------------------

    def key(self, item: Any) -> str | None:
        """Return what is looked up for the item. None: nothing. A list's first value counts."""
        value = ItemAdapter(item).get(self.source)
        if isinstance(value, list | tuple):
            value = value[0] if value else None
        return " ".join(str(value).split()) or None if value is not None else None

    def parse(self, answer: Any) -> Any:
        """Return the value in the JSON of an answer, itself JSON. Raises LookupFailed if there is none."""
        return answer

    # ------------------------------------------------------------------------------------------------------------------

    async def process_item(self, item: Any) -> Any:
        """Return the item, with the value unless the look-up fails."""
        adapter = ItemAdapter(item)
        if adapter.get(self.target):
            self._count("already_set")
            return item
        key = self.key(item)
        if key is None:
            return item
        remembered, is_own = self._remembered(key), False
        if remembered is not None:
            result = remembered
        else:
            result, is_own = await outcome(self._loop.submit(self._shared_look_up(key)))
        if result.failure:
            self._count("failures")
            return item
        if result.shared:
            self._count("already_set")
        elif not is_own:
            self._count("hits")
        # A copy, because later pipelines may change the value of one item.
        adapter[self.target] = msgspec.json.decode(result.value)
        return item

    async def close_spider(self) -> None:
        """Disconnect. Look-ups end with their items, before this."""
        await outcome(self._loop.submit(self._close()))
        self._loop.close()

    def _remembered(self, key: str) -> _Result | None:
        """Return the result in memory; None: there is none. May be called in any thread."""
        result = self._memory.get(key)
        if result is None or time.monotonic() >= result.expires:
            return None
        with contextlib.suppress(KeyError):  # the other thread may have removed it
            self._memory.move_to_end(key)
        return result

    # --- in the background loop ---------------------------------------------------------------------------------------

    async def _open(self, rate: Rate, concurrency: int) -> None:
        import httpx

        # httpx loads them with the first request, which would begin late.
        for module in ("httpcore", "anyio", "anyio._backends._asyncio"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        address = self._settings.get("REDIS_PIPELINE_URL")
        if address:
            # More than one attempt and the pause after it, so that no other process takes the look-up over.
            seconds = self._timeout_seconds + 30
            self._cache = LookupCache(str(address), self.name, rate, claim_seconds=seconds)
        self._throttle = Throttle(rate)
        self._slots = asyncio.Semaphore(concurrency)
        # Not httpx's own redirects: each is a request that needs a turn, and httpx reads all of their bodies.
        headers = {"Accept-Encoding": "gzip"}
        self._client = httpx.AsyncClient(timeout=self._timeout_seconds, headers=headers, follow_redirects=False)

    async def _close(self) -> None:
        await self._client.aclose()
        if self._cache is not None:
            await self._cache.close()

    async def _shared_look_up(self, key: str) -> tuple[_Result, bool]:
        """Return the result of a look-up, and whether it was begun for this item."""
        result = self._remembered(key)  # it may have come since
        if result is not None:
            return result, False
        task = self._running.get(key)
        is_own = task is None
        if task is None:
            task = self._running[key] = asyncio.create_task(self._look_up(key))
            task.add_done_callback(lambda _: self._running.pop(key, None))
        # An item that is cancelled must not take the look-up from the others.
        return await asyncio.shield(task), is_own

    async def _look_up(self, key: str) -> _Result:
        result = await self._cached(key) or await self._make(key)
        self._memory[key] = result
        while len(self._memory) > self._memory_size:
            self._memory.popitem(last=False)
        return result

    async def _cached(self, key: str) -> _Result | None:
        """Return the result that the shared cache has; None: there is none, or the cache is away."""
        if self._cache is None or self._cache.away:
            return None
        try:
            return self._from_cache(await self._cache.read(key))
        except CacheAway as error:
            self._cache_failed(error)
            return None

    def _from_cache(self, cached: Cached | None) -> _Result | None:
        if cached is None or cached.state not in ("answer", "failure"):
            return None
        if cached.state == "failure":
            return self._failure(cached.text.decode(errors="replace") or "failed", shared=True)
        try:
            msgspec.json.decode(cached.text)
        except msgspec.DecodeError:  # another program's
            return self._failure("the cached answer is not JSON", shared=True)
        return _Result(cached.text, "", True, time.monotonic() + self._life_seconds)

    def _failure(self, reason: str, *, shared: bool) -> _Result:
        return _Result(None, reason, shared, time.monotonic() + self._failure_seconds)

    async def _make(self, key: str) -> _Result:
        """Make the look-up, or wait for the process that makes it."""
        async with self._slots:
            for attempt in range(self._tries):
                if attempt:
                    self._count("retries")
                    await asyncio.sleep(_RETRY_SECONDS * 2 ** min(attempt - 1, 4))
                found = await self._turn(key)
                if found is not None:
                    return found
                if not attempt:
                    self._count("misses")
                try:
                    value = _encode(await self._request(key))
                except LookupFailed as error:
                    reason = str(error) or "failed"
                    if error.may_retry and attempt + 1 < self._tries:
                        continue
                    log.warning("%s: %.200r: %s", self.name, key, reason)
                    await self._settle(key, None, reason)
                    return self._failure(reason, shared=False)
                await self._settle(key, value, "")
                return _Result(value, "", False, time.monotonic() + self._life_seconds)
        raise AssertionError("there is at least one attempt")

    async def _turn(self, key: str) -> _Result | None:
        """Return None at the moment at which this process may make the look-up, or else the result of another one."""
        while self._cache is not None and not self._cache.away:
            try:
                cached = await self._cache.claim(key)
            except CacheAway as error:
                self._cache_failed(error)
                break
            if cached.state == "go":
                return None
            if cached.state == "wait":
                await asyncio.sleep(min(cached.seconds, _POLL_SECONDS))
                continue
            return self._from_cache(cached)
        await self._throttle.wait()
        return None

    async def _settle(self, key: str, value: bytes | None, failure: str) -> None:
        if self._cache is None or self._cache.away:
            return
        life_seconds = self._failure_seconds if value is None else self._life_seconds
        try:
            await self._cache.settle(key, answer=value, failure=failure, life_seconds=life_seconds)
        except CacheAway as error:
            self._cache_failed(error)

    def _cache_failed(self, error: Exception) -> None:
        self._count("cache_errors")
        now = time.monotonic()
        if now >= self._next_warning:
            log.warning("%s: the cache %s is away: %s; look-ups go on without it", self.name, self._cache, error)
            self._next_warning = now + _WARNING_SECONDS

    async def _request(self, key: str) -> Any:
        """Return the value that the server has for the key. Raises LookupFailed."""
        url = self.url.replace("{key}", quote(key, safe="", errors="replace"))
        try:
            request = self._client.build_request("GET", url)
            for hop in range(_MAX_REDIRECTS + 1):
                if hop and await self._turn(key) is not None:
                    raise LookupFailed("another process has made it", may_retry=True)
                async with asyncio.timeout(self._timeout_seconds):
                    response, body = await self._send(request)
                if response.next_request is None:
                    break
                request = response.next_request
            else:
                raise LookupFailed(f"more than {_MAX_REDIRECTS} redirects")
        except LookupFailed:
            raise
        except TimeoutError:
            raise LookupFailed(f"no answer in {self._timeout_seconds:g} s", may_retry=True) from None
        except Exception as error:  # of the HTTP client: an item must not be lost because of it
            raise LookupFailed(str(error) or type(error).__name__, may_retry=True) from None
        if response.status_code != 200:
            is_passing = response.status_code in (408, 429) or response.status_code >= 500
            raise LookupFailed(f"status {response.status_code}", may_retry=is_passing)
        try:
            return self.parse(msgspec.json.decode(body))
        except LookupFailed:
            raise
        except msgspec.DecodeError:
            raise LookupFailed("the answer is not JSON") from None
        except Exception as error:  # of a project's `parse`: it concerns this answer, and the item passes on
            raise LookupFailed(f"the answer has another form: {error!r}") from None

    async def _send(self, request: "httpx.Request") -> "tuple[httpx.Response, bytes]":
        """Return the response, and its body unless it is a redirect. Raises LookupFailed and the client's errors."""
        response = await self._client.send(request, stream=True)
        try:
            body = bytearray()
            if response.next_request is None:
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > _ANSWER_BYTES:
                        raise LookupFailed(_TOO_LONG)
            return response, _decompressed(bytes(body), response.headers.get("content-encoding", ""))
        finally:
            await response.aclose()

    # --- settings -----------------------------------------------------------------------------------------------------

    def _count(self, event: str) -> None:
        self._stats.inc_value(f"{self.name}/{event}")

    def _rate(self) -> Rate:
        text = str(self._settings.get(f"{self._prefix}_RATE") or LOOKUP_SETTINGS["GEO_PIPELINE_RATE"][0])
        try:
            return parse_rate(text)
        except BadInput as error:
            raise BadInput(f"{self._prefix}_RATE: {error.detail}") from None

    def _number(self, name: str) -> float:
        """Return a setting that is a number over 0; 0 or nothing: the default. Raises BadInput."""
        value = self._settings.get(f"{self._prefix}_{name}") or LOOKUP_SETTINGS[f"GEO_PIPELINE_{name}"][0]
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = -1.0
        if not 0 < number < 1e10 or (name in ("MEMORY", "TRIES", "CONCURRENCY") and number < 1):
            raise BadInput(f"{self._prefix}_{name}: {value!r} is not a number over 0")
        return number


def _decompressed(body: bytes, encoding: str) -> bytes:
    """Return the content of a body. Raises LookupFailed. Not httpx's decoding: it does not bound the result."""
    if not body or encoding.strip().lower() in ("", "identity"):
        return body
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        raise LookupFailed(f"the answer has the encoding {encoding[:50]!r}")
    try:
        content = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(body, _ANSWER_BYTES + 1)
    except zlib.error as error:
        raise LookupFailed(f"the answer cannot be decompressed: {error}") from None
    if len(content) > _ANSWER_BYTES:
        raise LookupFailed(_TOO_LONG)
    return content


def _encode(value: Any) -> bytes:
    """Return the JSON of a value. Raises LookupFailed for one that the caches do not keep."""
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise LookupFailed(f"the value is not JSON: {error}") from None
    if len(text) > _VALUE_BYTES:
        raise LookupFailed(f"the value has more than {_VALUE_BYTES:,} bytes")
    return text


class GeocodingPipeline(LookupPipeline):
    """Puts the place of an item's `address` into its `location`, as `{"lat": …, "lon": …}`.

    For services whose answers have the form of Google's: `GEO_PIPELINE_URL =
    "https://geo.example/maps/api/geocode/json?sensor=false&address={key}"`.
    """

    name = "geo_pipeline"
    source = "address"
    target = "location"

    def parse(self, answer: Any) -> Any:
        """Return latitude and longitude of the first result. Raises LookupFailed if there is none."""
        status = answer.get("status")
        if status != "OK":
            may_retry = status in ("OVER_QUERY_LIMIT", "UNKNOWN_ERROR")
            raise LookupFailed(f"the service says {status!s:.100}", may_retry=may_retry)
        place = answer["results"][0]["geometry"]["location"]
        return {"lat": float(place["lat"]), "lon": float(place["lng"])}
