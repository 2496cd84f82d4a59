"""Fetches each origin's robots.txt once a day for all workers, and decides whether URLs may be fetched.

An origin is scheme, host and port. Fixed: the packed form of `RobotsRecord` and the text of `_key`, which are in the
frontier's store; the order of the steps (load, claim, load again, fetch, save), because with another order two workers
could fetch the same file; and the meaning of statuses and failures, which RFC 9309 sets (`policy/robots.py`). The guard
(`net/guard.py`) refuses connections to private addresses; an insecure request accepts any certificate.
"""

import asyncio
import secrets
import time
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import ada_url
import msgspec

from gossamer.errors import (
    BlockedAddress,
    ConnectFailed,
    ConnectTimeout,
    DecodeFailed,
    DnsFailed,
    FetchError,
    Http2Needed,
    ProxyFailed,
    TlsFailed,
)
from gossamer.fetch.exchange import REDIRECT_STATUSES, FetchRequest, FetchResponse, first_header, redirect_location
from gossamer.fetch.faults import ResponseFault
from gossamer.fetch.robots_rules import RobotsRules, RobotsVerdict
from gossamer.policy import robots as policy
from gossamer.policy.retry import parse_retry_after
from gossamer.policy.robots import RobotsOutcome
from gossamer.policy.urls import redirect_target


class RobotsStore(Protocol):
    """Store of robots.txt records, shared by workers. A record is opaque bytes with a lifetime, under an origin as
    `_key` spells it (`https://example.com`)."""

    async def load(self, origin: str) -> bytes | None:
        """Return the last saved record that has not expired; None: there is none."""

    async def claim(self, origin: str, seconds: float, *, owner: str) -> bool:
        """Claim the fetch of an origin's robots.txt. Returns True if the caller is to fetch it within that time, False
        if another worker does so. May be repeated: an `owner` keeps its claim, whose first answer may have been
        lost."""

    async def save(self, origin: str, record: bytes, ttl_seconds: float) -> None:
        """Save a record in place of an earlier one. May end the claim on the origin. May be repeated."""

    async def release(self, origin: str) -> None:
        """End the caller's claim without a record. May be repeated."""


class RobotsRecord(msgspec.Struct, frozen=True, array_like=True):
    """Result of the request for an origin's robots.txt. Times are Unix seconds by the clock of the worker that fetched
    it.

    Stored as an array, so the order of the fields is fixed; a new field goes to the end and needs a default. The values
    of RobotsOutcome are stored, too. A record that cannot be read is fetched again, which loses the count of failures.
    """

    outcome: RobotsOutcome
    asked_at: float
    """Time of the response or failure."""
    body: bytes = b""
    """RULES only: the file as received, at most 500 KiB."""
    truncated: bool = False
    """True: the body ends within a line."""
    detail: str = ""
    """Short description of what came instead of rules: `404`, `connect: …`."""
    attempt: int = 0
    """UNREACHABLE only: number of failures in a row."""
    failing_since: float = 0.0
    """UNREACHABLE only: time of the first of these failures."""
    retry_at: float = 0.0
    """UNREACHABLE only: earliest time of the next request."""

    @property
    def until(self) -> float:
        """Time until which the record counts."""
        return self.retry_at if self.outcome is RobotsOutcome.UNREACHABLE else self.asked_at + policy.LIFETIME_SECONDS

    @property
    def ttl_seconds(self) -> float:
        """Time for which a store keeps the record. A failure must be kept longer than it counts (`until`), because the
        next one continues its count."""
        return policy.LIFETIME_SECONDS * (2 if self.outcome is RobotsOutcome.UNREACHABLE else 1)


_COMPRESSED_FROM_BYTES = 512
"""Size from which a record is compressed. Less saves memory of the store and costs CPU."""
_MAX_UNPACKED_BYTES = 2 * policy.MAX_BYTES
"""Bound on a decompressed record, because a manipulated one must not fill this process's memory. Must exceed the
longest body and the other fields, or such records could be saved but not read."""

# First byte of a packed record. Stored: fixed.
_RAW = b"\x00"
_COMPRESSED = b"\x01"


def pack(record: RobotsRecord) -> bytes:
    """Pack a record for a store: a byte that says whether the rest is compressed, and the record as MessagePack."""
    raw = msgspec.msgpack.encode(record)
    return _RAW + raw if len(raw) < _COMPRESSED_FROM_BYTES else _COMPRESSED + zlib.compress(raw, 1)


def unpack(packed: bytes | None) -> RobotsRecord | None:
    """Return the record that a store returned; None: there was none, or it is in a format of another version."""
    if not packed:
        return None
    raw = packed[1:]
    try:
        if packed.startswith(_COMPRESSED):
            raw = zlib.decompressobj().decompress(raw, _MAX_UNPACKED_BYTES)
        return msgspec.msgpack.decode(raw, type=RobotsRecord)
    except (zlib.error, msgspec.DecodeError):
        return None


Fetch = Callable[[FetchRequest], Awaitable[FetchResponse]]
"""Sends one request through the address guard and returns its response. Raises FetchError."""
Reroute = Callable[[Fetch], Fetch]
"""Makes a function that sends a request through other proxies, too, where one of them gets no useful response."""

_NO_CONNECTION = (BlockedAddress, DnsFailed, ConnectFailed, ConnectTimeout, Http2Needed, TlsFailed)
"""Failures that the fetch of a page of the origin would also have. They are raised and not stored, so that the page's
own request fails, and is retried, by the rules for pages."""


class RobotsUnavailable(msgspec.Struct, frozen=True):
    """The origin's robots.txt is unavailable, so that nothing of the origin may be fetched now."""

    retry_at: float
    """Unix time of the next request for the robots.txt; the caller should send the origin nothing until then."""
    reason: str
    """Short description of the failure."""
    given_up_at: float
    """Unix time from which the origin's requests are refused; see `patience_seconds` of the service."""


class NamedSitemaps(NamedTuple):
    """Sitemaps that a robots.txt names."""

    urls: tuple[str, ...]
    """Canonical URLs."""
    invalid: int
    """Number of lines that name no http or https URL."""


class _CachedRules(msgspec.Struct, frozen=True):
    """A record, and the rules in it."""

    record: RobotsRecord
    """Without its body."""
    robots: RobotsRules
    bytes: int
    """Approximate memory of both."""


class _TaskKey(NamedTuple):
    """Key of a fetch that several callers of one process share. Callers that reach the origin differently share none:
    one caller may be forbidden what another is allowed."""

    key: str
    allow_private: bool
    proxy: str | None
    guard_proxy: bool


_SAME_START_SECONDS = 3.0
"""A failure that is stored at most this time before the start of a process counts as one that the process has seen:
another process of the same command may have met it. 0 asks failing servers more often."""
_CLOCK_SECONDS = 300.0
"""Time by which a record may be from the future: more than clocks of machines usually differ. A later one is that of a
clock that was wrong, and does not count, or the site would wait until then."""
_CLAIM_MARGIN_SECONDS = 5.0
"""Time that a claim outlasts the longest fetch. It may be longer, but not shorter than saving a record takes, or two
workers fetch the file. Longer delays the others after a worker died while fetching."""
_MAX_POLL_SECONDS = 1.0
"""Longest pause before the store is asked again for a file that another worker fetches."""
_MAX_UNSAVED = 100
"""Files that were fetched while the store was away. The callers ask again when it is back, and save them then."""
_RELEASE_SECONDS = 1.0
"""Longest wait for the release of claims at the end."""
_MAX_DETAIL_CHARACTERS = 200
"""Most characters of a failure's description in a record."""

_HAVE_RULES = (RobotsOutcome.RULES, RobotsOutcome.ALLOW_ALL)
# Approximate memory of parsed rules: a fixed part, and bytes for each byte of the file (measured). They decide how soon
# the cache is full.
_RULES_BYTES = 4096
_PARSED_FACTOR = 24


class RobotsService:
    """Decides by an origin's robots.txt whether URLs may be fetched. Belongs to one event loop.

    Records are cached here, bounded by bytes, and shared with other processes through the store. An origin's file is
    fetched once at a time: callers in a process share one fetch, and processes agree by the store's claim.
    """

    def __init__(
        self,
        fetch: Fetch,
        store: RobotsStore,
        *,
        patience_seconds: float | None = None,
        cache_bytes: int = 64 * 1024 * 1024,
        fetch_seconds: float = 30.0,
        poll_seconds: float = 0.05,
        now: Callable[[], float] = time.time,
        on_sitemaps: Callable[[str, tuple[str, ...]], None] | None = None,
    ) -> None:
        """`patience_seconds`: time for which the requests of an origin wait for a robots.txt that cannot be fetched. It
        is counted from the first failure, or from the start of this process if that is later: failures from before the
        start are tried again. None: a day from the first failure in any process.

        `fetch_seconds`: longest fetch of one robots.txt, including redirects; a claim lasts a little longer.

        `cache_bytes`: approximate memory of the cached files. `poll_seconds`: first pause before the store is asked
        again for a file that another process fetches; it doubles. `now`: Unix time in seconds. `on_sitemaps`: called
        with an origin, as `_key` spells it, and the sitemaps that its robots.txt names.
        """
        self._fetch = fetch
        self._store = store
        self._patience_seconds = patience_seconds
        self._cache_bytes = cache_bytes
        self._fetch_seconds = fetch_seconds
        self._poll_seconds = poll_seconds
        self._now = now
        self._on_sitemaps = on_sitemaps
        self._began = now()
        self._cache: OrderedDict[str, _CachedRules] = OrderedDict()
        self._cached_bytes = 0
        self._tasks: dict[_TaskKey, asyncio.Task[_CachedRules]] = {}
        self._owner = secrets.token_hex(8)
        self._claimed: set[str] = set()
        """Keys that this process has claimed and not yet saved or released."""
        self._unsaved: OrderedDict[_TaskKey, RobotsRecord] = OrderedDict()
        """Records that could not be saved yet."""

    async def check(
        self,
        url: str,
        *,
        user_agent: str,
        template: FetchRequest,
        explain: bool = False,
        reroute: Reroute | None = None,
    ) -> RobotsVerdict | RobotsUnavailable:
        """Return whether this user agent may fetch this canonical URL.

        `template` says how the origin is reached, by its `proxy`, `guard_proxy`, `insecure` and `allow_private` (the
        last for the origin's own host only, not for the targets of redirects). Its headers, and user and password in
        the URL, are not sent: they may be secrets, and all workers share the result. `explain` fills in the verdict's
        `rule`. `reroute` None: the file is fetched through the template's proxy only.

        By RFC 9309: if there is no such file (4xx, or endless redirects), everything is allowed. If there is no valid
        response (5xx, 429, timeouts, broken connections), the result is RobotsUnavailable, the origin is asked again
        with backoff, and after the patience the verdict is a refusal. A redirect to an address that the guard blocks is
        a refusal at once, for a day, because waiting would not help.

        Raises the failures that would also prevent the fetch of the page, which are not stored (BlockedAddress,
        DnsFailed, ConnectFailed, ConnectTimeout, Http2Needed, TlsFailed, ProxyFailed), and errors of the store.
        """
        known = await self._get(url, user_agent, template, reroute)
        if known.record.outcome is RobotsOutcome.DISALLOW_ALL:
            return RobotsVerdict(
                allowed=False, rule=f"robots.txt is unavailable ({known.record.detail})", crawl_delay=None
            )
        unavailable = self._unavailable(known.record)
        if unavailable is None:
            verdict = known.robots.verdict(url, user_agent, explain=explain)
            if explain and known.record.outcome is RobotsOutcome.ALLOW_ALL:
                return msgspec.structs.replace(verdict, rule=f"no robots.txt ({known.record.detail})")
            return verdict
        if self._now() < unavailable.given_up_at:
            return unavailable
        patience = self._patience_seconds
        waited = f"{policy.UNREACHABLE_LIMIT_SECONDS / 3600:g} h" if patience is None else f"{patience:,.0f} s"
        rule = f"robots.txt unreachable for {waited} ({known.record.detail})"
        return RobotsVerdict(allowed=False, rule=rule, crawl_delay=None, unreachable=True)

    def check_cached(self, url: str, *, user_agent: str, insecure: bool) -> RobotsVerdict | None:
        """Return the verdict of `check` if this process has the origin's rules, else None. `insecure`: as in the
        template."""
        key = _key(_origin(url), insecure=insecure)
        known = self._cache.get(key)
        if known is None or known.record.outcome not in _HAVE_RULES or not self._is_current(known.record):
            return None
        self._cache.move_to_end(key)
        return known.robots.verdict(url, user_agent, explain=False)

    async def known_outage(self, url: str, *, insecure: bool) -> RobotsUnavailable | None:
        """Return the outage of the robots.txt of this canonical URL's origin that workers have stored; None: there is
        none, or the workers wait for it no longer. `insecure`: of the crawl's requests.

        Reads only the store and fetches nothing. Raises errors of the store."""
        record = unpack(await self._store.load(_key(_origin(url), insecure=insecure)))
        if record is None or record.outcome is not RobotsOutcome.UNREACHABLE:
            return None
        # The patience of the workers, which began before this process.
        patience = policy.UNREACHABLE_LIMIT_SECONDS if self._patience_seconds is None else self._patience_seconds
        given_up_at = record.failing_since + patience
        return None if self._now() >= given_up_at else RobotsUnavailable(record.retry_at, record.detail, given_up_at)

    async def sitemaps(
        self, url: str, *, user_agent: str, template: FetchRequest, reroute: Reroute | None = None
    ) -> NamedSitemaps | RobotsUnavailable:
        """Return the sitemaps that the origin's robots.txt names. See `check`."""
        known = await self._get(url, user_agent, template, reroute)
        return self._unavailable(known.record) or NamedSitemaps(known.robots.sitemaps, known.robots.invalid_sitemaps)

    @property
    def cached_bytes(self) -> int:
        """Approximate memory of the cached files."""
        return self._cached_bytes

    async def close(self) -> None:
        """Cancel fetches in progress, and leave them to other workers. May be repeated."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        claimed, self._claimed = self._claimed, set()
        releases = [asyncio.ensure_future(self._store.release(key)) for key in claimed]
        if releases:
            _, late = await asyncio.wait(releases, timeout=_RELEASE_SECONDS)
            for release in late:
                release.cancel()
            await asyncio.gather(*releases, return_exceptions=True)

    def _unavailable(self, record: RobotsRecord) -> RobotsUnavailable | None:
        """Return the outage that a record describes; None: it describes none."""
        if record.outcome is not RobotsOutcome.UNREACHABLE:
            return None
        return RobotsUnavailable(record.retry_at, record.detail, self._given_up_at(record.failing_since))

    def _given_up_at(self, failing_since: float) -> float:
        """Return the time from which the origin's requests are refused, if its first failure was at this time."""
        if self._patience_seconds is None:
            return failing_since + policy.UNREACHABLE_LIMIT_SECONDS
        return max(failing_since, self._began) + self._patience_seconds

    def _is_current(self, record: RobotsRecord) -> bool:
        """Return whether a record is neither too old nor from the future."""
        return record.asked_at - _CLOCK_SECONDS <= self._now() < record.until

    def _counts(self, record: RobotsRecord) -> bool:
        """Return whether a stored record is still in force. A person who starts a crawl again may have mended the
        server, so a failure from before that does not count."""
        if not self._is_current(record):
            return False
        is_old = self._patience_seconds is not None and record.asked_at < self._began - _SAME_START_SECONDS
        return not (is_old and record.outcome is RobotsOutcome.UNREACHABLE)

    async def _get(self, url: str, user_agent: str, template: FetchRequest, reroute: Reroute | None) -> _CachedRules:
        """Return the rules for a URL: from the cache, or of a fetch that concurrent callers share."""
        origin = _origin(url)
        key = _key(origin, insecure=template.insecure)
        known = self._cache.get(key)
        if known is not None and self._is_current(known.record):
            self._cache.move_to_end(key)
            return known
        task_key = _TaskKey(key, template.allow_private, template.proxy, template.guard_proxy)
        task = self._tasks.get(task_key)
        if task is None:
            headers = (("User-Agent", user_agent), ("Accept", "text/plain,*/*;q=0.5"))
            request = msgspec.structs.replace(
                template,
                url=f"{origin}/robots.txt",
                method="GET",
                headers=headers,
                body=b"",
                keep_wire=False,
                body_bytes=policy.MAX_BYTES,  # whatever the limit of pages is
            )
            fetch = self._fetch if reroute is None else reroute(self._fetch)
            task = asyncio.get_running_loop().create_task(self._load_or_fetch(task_key, request, fetch))
            self._tasks[task_key] = task
            task.add_done_callback(lambda done: self._forget(task_key, done))
        # Shielded: a cancelled caller must not fail the others that wait for the same file.
        return await asyncio.shield(task)

    def _forget(self, task_key: _TaskKey, done: asyncio.Task[_CachedRules]) -> None:
        """Forget a fetch that has ended. What it found is in the cache."""
        self._tasks.pop(task_key, None)
        if not done.cancelled():
            done.exception()  # retrieved, because all callers may have been cancelled by now

    async def _load_or_fetch(self, task_key: _TaskKey, request: FetchRequest, fetch: Fetch) -> _CachedRules:
        """Return the stored record if it still counts; else fetch the file, or wait for the worker that fetches it.

        Repeats until one of these ends it:
        - the store has a record that still counts: it is returned
        - this worker gets the claim: it fetches the file and saves the record
        - after twice the life of a claim, neither: the file counts as unreachable, which is not saved

        Raises errors of the store. A caller that repeats the call goes on where it was: its claim is still its own, and
        a record that could not be saved is not fetched again.
        """
        key, owner = task_key.key, f"{self._owner}:{hash(task_key)}"
        claim_seconds = self._fetch_seconds + _CLAIM_MARGIN_SECONDS
        deadline = asyncio.get_running_loop().time() + 2 * claim_seconds
        pause = self._poll_seconds
        while True:
            record = unpack(await self._store.load(key))
            if record is None or not self._counts(record):
                if task_key in self._unsaved or await self._store.claim(key, claim_seconds, owner=owner):
                    break
                if asyncio.get_running_loop().time() < deadline:  # another worker fetches it
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _MAX_POLL_SECONDS)
                    continue
                # Other workers claimed it again and again, and none saved a record.
                record = self._failure(record, "no worker that claimed it has saved it", None)
            return self._keep(key, record)
        self._claimed.add(key)
        # Load again: the previous holder of the claim may have saved it between our load and our claim.
        record = unpack(await self._store.load(key))
        if record is None or not self._counts(record):
            record = await self._fetch_and_save(task_key, request, fetch, record)
        self._claimed.discard(key)
        self._unsaved.pop(task_key, None)
        return self._keep(key, record)

    async def _fetch_and_save(
        self, task_key: _TaskKey, request: FetchRequest, fetch: Fetch, earlier: RobotsRecord | None
    ) -> RobotsRecord:
        """Fetch the file under this worker's claim, and save it. `earlier`: the expired record, if there is one."""
        key, record = task_key.key, self._unsaved.get(task_key)
        if record is None or not self._counts(record):
            try:
                record = await self._fetch_within_limit(fetch, request, earlier)
            except FetchError:
                # There is no result. Keeping the claim would delay workers that can reach the origin.
                await self._store.release(key)
                self._claimed.discard(key)
                raise
            self._unsaved[task_key] = record
            if len(self._unsaved) > _MAX_UNSAVED:
                self._unsaved.popitem(last=False)
        await self._store.save(key, pack(record), record.ttl_seconds)
        return record

    def _keep(self, key: str, record: RobotsRecord) -> _CachedRules:
        """Parse a record into the cache. The least recently used ones make room, but never this one."""
        robots = RobotsRules(record.body, truncated=record.truncated, url=f"{key.removeprefix(_INSECURE)}/robots.txt")
        if robots.sitemaps and self._on_sitemaps is not None:
            self._on_sitemaps(key, robots.sitemaps)
        size = _RULES_BYTES + _PARSED_FACTOR * len(record.body)
        known = _CachedRules(msgspec.structs.replace(record, body=b""), robots, size)
        replaced = self._cache.pop(key, None)
        self._cached_bytes += known.bytes - (replaced.bytes if replaced else 0)
        self._cache[key] = known
        while self._cached_bytes > self._cache_bytes and len(self._cache) > 1:
            self._cached_bytes -= self._cache.popitem(last=False)[1].bytes
        return known

    async def _fetch_within_limit(
        self, fetch: Fetch, request: FetchRequest, earlier: RobotsRecord | None
    ) -> RobotsRecord:
        """Fetch the file as `_follow` does. A fetch that takes too long counts as a failure."""
        try:
            async with asyncio.timeout(self._fetch_seconds):
                return await self._follow(fetch, request, earlier)
        except TimeoutError:
            return self._failure(earlier, f"no answer within {self._fetch_seconds:g} s", None)

    async def _follow(self, fetch: Fetch, request: FetchRequest, earlier: RobotsRecord | None) -> RobotsRecord:
        """Fetch the file, following redirects. `earlier`: the expired record, whose count of failures continues.

        A request that fails has one of three results:
        - the page's own request would fail, too (the proxy, the origin cannot be connected to, or needs HTTP/2): raised
        - a redirect leads to an address that the guard blocks: everything is disallowed
        - any other failure: the file is unreachable
        """
        origin_host = ada_url.URL(request.url).host
        for hop in range(policy.MAX_REDIRECTS + 1):
            try:
                fetched = await _fetch_readable(fetch, request)
            except FetchError as exc:
                # A site that redirects its robots.txt to https redirects its pages, too.
                if isinstance(exc, ProxyFailed | Http2Needed) or (hop == 0 and isinstance(exc, _NO_CONNECTION)):
                    raise
                if isinstance(exc, BlockedAddress):
                    detail = f"it leads to {exc.detail}"[:_MAX_DETAIL_CHARACTERS]
                    return RobotsRecord(RobotsOutcome.DISALLOW_ALL, self._now(), detail=detail)
                return self._failure(earlier, f"{exc.kind}: {exc.detail}" if exc.detail else exc.kind, None)
            if fetched.status not in REDIRECT_STATUSES:
                return self._judge(fetched, earlier)
            location = redirect_location(fetched.status, fetched.headers)
            target = None if location is None else redirect_target(request.url, location)
            if target is None:
                return RobotsRecord(RobotsOutcome.ALLOW_ALL, self._now(), detail=f"{fetched.status} to nowhere")
            same_host = ada_url.URL(target).host == origin_host
            request = msgspec.structs.replace(request, url=target, allow_private=request.allow_private and same_host)
        return RobotsRecord(RobotsOutcome.ALLOW_ALL, self._now(), detail=f"more than {policy.MAX_REDIRECTS} redirects")

    def _judge(self, fetched: FetchResponse, earlier: RobotsRecord | None) -> RobotsRecord:
        """Return the record of a response that is no redirect."""
        outcome = policy.classify_status(fetched.status)
        if outcome is RobotsOutcome.UNREACHABLE:
            wanted = first_header(fetched.headers, "retry-after")
            return self._failure(earlier, str(fetched.status), wanted)
        if outcome is RobotsOutcome.ALLOW_ALL:
            return RobotsRecord(outcome, self._now(), detail=str(fetched.status))
        truncated = fetched.truncated or len(fetched.body) > policy.MAX_BYTES
        return RobotsRecord(outcome, self._now(), body=fetched.body[: policy.MAX_BYTES], truncated=truncated)

    def _failure(self, earlier: RobotsRecord | None, detail: str, retry_after: str | None) -> RobotsRecord:
        """Return the record of a further failure. `retry_after`: value of that header; None: there was none."""
        now = self._now()
        attempt, since = 1, now
        if earlier is not None and earlier.outcome is RobotsOutcome.UNREACHABLE:
            attempt, since = earlier.attempt + 1, min(earlier.failing_since, now)
        wanted = None if retry_after is None else parse_retry_after(retry_after, now=now)
        retry_at = now + policy.unreachable_delay(attempt, retry_after_seconds=wanted)
        if not wanted and now < (given_up_at := self._given_up_at(since)):
            retry_at = min(retry_at, given_up_at)  # asked a last time when the patience ends
        return RobotsRecord(
            RobotsOutcome.UNREACHABLE,
            now,
            detail=detail[:_MAX_DETAIL_CHARACTERS],
            attempt=attempt,
            failing_since=since,
            retry_at=retry_at,
        )


async def _fetch_readable(fetch: Fetch, request: FetchRequest) -> FetchResponse:
    """Return the response. A body that is not encoded, although its headers say so, is taken as it is: as a page it
    would fail, but here the site's wishes can be read."""
    try:
        return await fetch(request)
    except DecodeFailed as error:
        response: FetchResponse | None = error.response
        if response is None or ResponseFault.CONTENT_ENCODING not in response.faults:
            raise
        return response


def _origin(url: str) -> str:
    """Return scheme, host and port of a canonical URL, without its user and password."""
    start = url.index("://") + len("://")
    authority = url[start : url.index("/", start)]
    return url[:start] + authority.rpartition("@")[2]


_INSECURE = "insecure "
"""Beginning of the name of an origin whose certificates are not checked."""


def _key(origin: str, *, insecure: bool) -> str:
    """Return the name under which an origin's record is stored; `worker/robots.py` takes the origin out of it."""
    # Without certificate checks an origin may be reachable that is unreachable with them.
    return f"{_INSECURE}{origin}" if insecure and origin.startswith("https:") else origin
