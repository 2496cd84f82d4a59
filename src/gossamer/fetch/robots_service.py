"""Asks each origin for its robots.txt once a day, however many workers want to know, and answers for its URLs."""

import asyncio
import time
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import ada_url
import msgspec

from gossamer.errors import (
    BlockedAddress,
    ConnectFailed,
    ConnectTimeout,
    DnsFailed,
    FetchError,
    ProxyFailed,
    TlsFailed,
)
from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.robots_rules import RobotsRules, RobotsVerdict
from gossamer.policy import robots as policy
from gossamer.policy.retry import parse_retry_after
from gossamer.policy.robots import RobotsOutcome
from gossamer.policy.urls import location_target


class RobotsStore(Protocol):
    """Records by origin (`https://host:port`), with an end of life. A record is opaque bytes."""

    async def load(self, origin: str) -> bytes | None:
        """The record that was saved last and has not ended; None: nobody knows yet."""

    async def claim(self, origin: str, seconds: float) -> bool:
        """True: the caller is the one to fetch it, for that long. False: somebody else is at it."""

    async def save(self, origin: str, record: bytes, ttl_seconds: float) -> None:
        """Keep the record in place of an earlier one. It may end the claim on the origin. May be repeated."""

    async def release(self, origin: str) -> None:
        """End the caller's claim without a record: it could not ask. May be repeated."""


class MemoryRobotsStore:
    """A store for one process: a single fetch, or a test. Bounded; the oldest record makes room."""

    def __init__(self, *, max_records: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds, never going back."""
        self._max_records = max_records
        self._clock = clock
        self._records: dict[str, tuple[bytes, float]] = {}
        self._claims: dict[str, float] = {}

    async def load(self, origin: str) -> bytes | None:
        """See RobotsStore."""
        record, end = self._records.get(origin, (None, 0.0))
        return record if end > self._clock() else None

    async def claim(self, origin: str, seconds: float) -> bool:
        """See RobotsStore."""
        now = self._clock()
        if self._claims.get(origin, now) > now:
            return False
        self._claims = {other: end for other, end in self._claims.items() if end > now}
        self._claims[origin] = now + seconds
        return True

    async def save(self, origin: str, record: bytes, ttl_seconds: float) -> None:
        """See RobotsStore."""
        self._claims.pop(origin, None)
        self._records.pop(origin, None)
        while len(self._records) >= self._max_records:
            del self._records[next(iter(self._records))]
        self._records[origin] = (record, self._clock() + ttl_seconds)

    async def release(self, origin: str) -> None:
        """See RobotsStore."""
        self._claims.pop(origin, None)


class RobotsRecord(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of asking an origin. Times are Unix seconds by the clock of whoever asked."""

    outcome: RobotsOutcome
    asked_at: float
    body: bytes = b""
    """Of RULES: as received, at most 500 KiB."""
    truncated: bool = False
    """The body ends within a line."""
    detail: str = ""
    """In a few words what came instead of rules: `404`, `connect: …`."""
    attempt: int = 0
    """Of UNREACHABLE: failures in a row."""
    failing_since: float = 0.0
    """Of UNREACHABLE: when the first of them was."""
    retry_at: float = 0.0
    """Of UNREACHABLE: not to be asked again before."""

    @property
    def given_up_at(self) -> float:
        """Of UNREACHABLE: from when on the origin's requests are dropped rather than kept waiting."""
        return self.failing_since + policy.UNREACHABLE_LIMIT_SECONDS

    @property
    def until(self) -> float:
        """When to ask again."""
        return self.retry_at if self.outcome is RobotsOutcome.UNREACHABLE else self.asked_at + policy.LIFETIME_SECONDS

    @property
    def ttl_seconds(self) -> float:
        """How long a store keeps it. A failure is kept longer than it counts: the next one must know since when."""
        return policy.LIFETIME_SECONDS * (2 if self.outcome is RobotsOutcome.UNREACHABLE else 1)


_PACKED_FROM_BYTES = 512


def pack(record: RobotsRecord) -> bytes:
    """For a store. The first byte says whether the rest is compressed."""
    raw = msgspec.msgpack.encode(record)
    return b"\x00" + raw if len(raw) < _PACKED_FROM_BYTES else b"\x01" + zlib.compress(raw, 1)


def unpack(packed: bytes | None) -> RobotsRecord | None:
    """Of what a store held; None where it held nothing, or nothing this version can read."""
    if not packed:
        return None
    raw = packed[1:]
    try:
        if packed[0] == 1:
            # Bounded, because whoever can write to the store must not be able to fill this process's memory.
            raw = zlib.decompressobj().decompress(raw, 2 * policy.MAX_BYTES)
        return msgspec.msgpack.decode(raw, type=RobotsRecord)
    except (zlib.error, msgspec.DecodeError):
        return None


class RobotsResponse(Protocol):
    """What is read of an answer; the client's `Fetched` has it, and more."""

    @property
    def status(self) -> int:
        """Of the answer itself: redirects are followed here."""

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """Names in any case."""

    @property
    def body(self) -> bytes:
        """Decoded."""

    @property
    def truncated(self) -> bool:
        """The body was longer."""


Fetch = Callable[[FetchRequest], Awaitable[RobotsResponse]]
"""One request, one answer, through the address guard. Raises FetchError."""

_NO_CONNECTION = (BlockedAddress, DnsFailed, ConnectFailed, ConnectTimeout, TlsFailed)

_REDIRECTS = frozenset((301, 302, 303, 307, 308))


@dataclass(frozen=True, slots=True)
class RobotsUnavailable:
    """The origin's robots.txt could not be had, so nothing of the origin may be fetched now."""

    retry_at: float
    """Unix seconds; until then the origin is not asked again and is best blocked."""
    reason: str
    """What happened, in a few words."""
    given_up_at: float
    """Unix seconds; from then on its requests are refused."""


@dataclass(frozen=True, slots=True)
class _CachedRules:
    record: RobotsRecord
    robots: RobotsRules
    bytes: int


class RobotsService:
    """The verdict of an origin's robots.txt on a URL. Belongs to one event loop.

    What is known is kept here, bounded by bytes, and shared with other processes through the store. One fetch per
    origin at a time: within the process callers wait for the same one, across processes the store's claim decides.
    """

    def __init__(
        self,
        fetch: Fetch,
        store: RobotsStore,
        *,
        cache_bytes: int = 64 * 1024 * 1024,
        fetch_seconds: float = 30.0,
        poll_seconds: float = 0.05,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`fetch_seconds`: the longest that one robots.txt may take, redirects included; a claim lasts a little longer.

        `cache_bytes`: about how much memory parsed files may take. `poll_seconds`: the first wait for another process
        that is at it; it doubles up to a second. `now`: Unix time in seconds.
        """
        self._fetch = fetch
        self._store = store
        self._cache_bytes = cache_bytes
        self._fetch_seconds = fetch_seconds
        self._poll_seconds = poll_seconds
        self._now = now
        self._cache: OrderedDict[str, _CachedRules] = OrderedDict()
        self._cached_bytes = 0
        self._tasks: dict[tuple[str, bool, str | None, bool], asyncio.Task[_CachedRules]] = {}

    async def check(
        self, url: str, *, user_agent: str, template: FetchRequest, explain: bool = False
    ) -> RobotsVerdict | RobotsUnavailable:
        """May this user agent fetch this canonical URL?

        `template` says how the origin is reached: its `proxy`, `insecure` and `allow_private` count (the last for the
        origin's own host only, not for where it redirects). Its headers, and user and password in the URL, are not
        sent: they may be secrets, and all share what is found.
        `explain` fills in the verdict's `rule`.

        By RFC 9309: no such file (4xx, or redirects without end) allows everything. Where there is no answer (5xx, 429,
        time-outs, broken connections) the origin is RobotsUnavailable and asked again with backoff, and after 24 h the
        verdict is a refusal. A redirect to an address that the guard blocks is no answer either, but waiting for one
        would be in vain: the verdict is a refusal at once, for a day. Raises what keeps the page from being asked for
        just the same, which is not remembered (BlockedAddress, DnsFailed, ConnectFailed, ConnectTimeout, TlsFailed,
        ProxyFailed), and what the store raises.
        May be repeated.
        """
        known = await self._get(url, user_agent, template)
        if known.record.outcome is RobotsOutcome.DISALLOW_ALL:
            return RobotsVerdict(False, f"robots.txt cannot be had ({known.record.detail})", None)
        unavailable = self._unavailable(known.record)
        if unavailable is None:
            verdict = known.robots.verdict(url, user_agent, explain=explain)
            if explain and known.record.outcome is RobotsOutcome.ALLOW_ALL:
                return replace(verdict, rule=f"no robots.txt ({known.record.detail})")
            return verdict
        if self._now() >= known.record.given_up_at:
            return RobotsVerdict(False, f"robots.txt unreachable for 24 h ({known.record.detail})", None)
        return unavailable

    async def known_outage(self, url: str, *, insecure: bool) -> RobotsUnavailable | None:
        """What requests of this canonical URL's origin wait for, as the store knows it; None: for no robots.txt. Asks
        no site. Raises what the store raises."""
        record = unpack(await self._store.load(_key(_origin(url), insecure=insecure)))
        if record is None or self._now() >= record.given_up_at:
            return None
        return self._unavailable(record)

    async def sitemaps(
        self, url: str, *, user_agent: str, template: FetchRequest
    ) -> tuple[str, ...] | RobotsUnavailable:
        """The sitemaps that the origin's robots.txt names, as canonical URLs; empty when it names none. See `check`."""
        known = await self._get(url, user_agent, template)
        return self._unavailable(known.record) or known.robots.sitemaps

    @property
    def cached_bytes(self) -> int:
        """About how much memory the parsed files take now."""
        return self._cached_bytes

    async def close(self) -> None:
        """Give up what is under way. May be repeated."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    def _unavailable(record: RobotsRecord) -> RobotsUnavailable | None:
        if record.outcome is not RobotsOutcome.UNREACHABLE:
            return None
        return RobotsUnavailable(record.retry_at, record.detail, record.given_up_at)

    async def _get(self, url: str, user_agent: str, template: FetchRequest) -> _CachedRules:
        origin = _origin(url)
        key = _key(origin, insecure=template.insecure)
        known = self._cache.get(key)
        if known is not None and known.record.until > self._now():
            self._cache.move_to_end(key)
            return known
        key_of_task = (key, template.allow_private, template.proxy, template.guard_proxy)
        task = self._tasks.get(key_of_task)
        if task is None:
            headers = (("User-Agent", user_agent), ("Accept", "text/plain,*/*;q=0.5"))
            request = msgspec.structs.replace(
                template,
                url=f"{origin}/robots.txt",
                method="GET",
                headers=headers,
                body=b"",
                keep_wire=False,
                # Whatever is taken of a page: of this file neither less nor, from who sends without end, more.
                body_bytes=policy.MAX_BYTES,
            )
            task = asyncio.get_running_loop().create_task(self._load_or_fetch(key, request))
            self._tasks[key_of_task] = task
            task.add_done_callback(lambda done: self._forget(key_of_task, done))
        # Shielded: one caller giving up must not fail the others that wait for the same file.
        return await asyncio.shield(task)

    def _forget(self, key_of_task: tuple[str, bool, str | None, bool], done: asyncio.Task[_CachedRules]) -> None:
        self._tasks.pop(key_of_task, None)
        if not done.cancelled():
            done.exception()  # looked at, since every caller may have given up by now

    async def _load_or_fetch(self, key: str, request: FetchRequest) -> _CachedRules:
        claim_seconds = self._fetch_seconds + 5.0
        deadline = asyncio.get_running_loop().time() + 2 * claim_seconds
        pause = self._poll_seconds
        while True:
            record = unpack(await self._store.load(key))
            if record is None or record.until <= self._now():
                if await self._store.claim(key, claim_seconds):
                    break
                if asyncio.get_running_loop().time() < deadline:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, 1.0)
                    continue
                # Others claimed it again and again and none has said a word.
                record = self._failure(record, "nobody who asked came back", None)
            return self._keep(key, record)
        # Once more: between loading and claiming, the one who held the claim may have finished.
        earlier = unpack(await self._store.load(key))
        if earlier is None or earlier.until <= self._now():
            try:
                earlier = await self._fetch_within_limit(request, earlier)
            except FetchError:
                # Nothing was learnt. Holding on to the claim would stall those who may or can reach the origin.
                await self._store.release(key)
                raise
            await self._store.save(key, pack(earlier), earlier.ttl_seconds)
        return self._keep(key, earlier)

    def _keep(self, key: str, record: RobotsRecord) -> _CachedRules:
        robots = RobotsRules(record.body, truncated=record.truncated)
        # The body is not needed any more; parsed, it takes several times its size.
        known = _CachedRules(msgspec.structs.replace(record, body=b""), robots, 4096 + 24 * len(record.body))
        replaced = self._cache.pop(key, None)
        self._cached_bytes += known.bytes - (replaced.bytes if replaced else 0)
        self._cache[key] = known
        while self._cached_bytes > self._cache_bytes and len(self._cache) > 1:
            self._cached_bytes -= self._cache.popitem(last=False)[1].bytes
        return known

    async def _fetch_within_limit(self, request: FetchRequest, earlier: RobotsRecord | None) -> RobotsRecord:
        try:
            async with asyncio.timeout(self._fetch_seconds):
                return await self._follow(request, earlier)
        except TimeoutError:
            return self._failure(earlier, f"no answer within {self._fetch_seconds:g} s", None)

    async def _follow(self, request: FetchRequest, earlier: RobotsRecord | None) -> RobotsRecord:
        origin_host = ada_url.URL(request.url).host
        for hop in range(policy.MAX_REDIRECTS + 1):
            try:
                fetched = await self._fetch(request)
            except FetchError as exc:
                # Whoever cannot be connected to for this cannot be for the page either: that is its failure to retry.
                if isinstance(exc, ProxyFailed) or (hop == 0 and isinstance(exc, _NO_CONNECTION)):
                    raise
                if isinstance(exc, BlockedAddress):
                    return RobotsRecord(
                        RobotsOutcome.DISALLOW_ALL, self._now(), detail=f"it leads to {exc.detail}"[:200]
                    )
                return self._failure(earlier, f"{exc.kind}: {exc.detail}" if exc.detail else exc.kind, None)
            if fetched.status not in _REDIRECTS:
                return self._judge(fetched, earlier)
            location = _header(fetched, "location")
            target = None if location is None else location_target(request.url, location)
            if target is None:
                return RobotsRecord(RobotsOutcome.ALLOW_ALL, self._now(), detail=f"{fetched.status} to nowhere")
            same_host = ada_url.URL(target).host == origin_host
            request = msgspec.structs.replace(request, url=target, allow_private=request.allow_private and same_host)
        return RobotsRecord(RobotsOutcome.ALLOW_ALL, self._now(), detail=f"more than {policy.MAX_REDIRECTS} redirects")

    def _judge(self, fetched: RobotsResponse, earlier: RobotsRecord | None) -> RobotsRecord:
        outcome = policy.meaning(fetched.status)
        if outcome is RobotsOutcome.UNREACHABLE:
            wanted = _header(fetched, "retry-after")
            return self._failure(earlier, str(fetched.status), wanted)
        if outcome is RobotsOutcome.ALLOW_ALL:
            return RobotsRecord(outcome, self._now(), detail=str(fetched.status))
        truncated = fetched.truncated or len(fetched.body) > policy.MAX_BYTES
        return RobotsRecord(outcome, self._now(), body=fetched.body[: policy.MAX_BYTES], truncated=truncated)

    def _failure(self, earlier: RobotsRecord | None, detail: str, retry_after: str | None) -> RobotsRecord:
        now = self._now()
        attempt, since = 1, now
        if earlier is not None and earlier.outcome is RobotsOutcome.UNREACHABLE:
            attempt, since = earlier.attempt + 1, earlier.failing_since
        wanted = None if retry_after is None else parse_retry_after(retry_after, now=now)
        return RobotsRecord(
            RobotsOutcome.UNREACHABLE,
            now,
            detail=detail[:200],
            attempt=attempt,
            failing_since=since,
            retry_at=now + policy.ask_again_delay(attempt, retry_after_seconds=wanted),
        )


def _origin(url: str) -> str:
    """Scheme, host and port of a canonical URL, without the user and password it may have."""
    start = url.index("://") + 3
    authority = url[start : url.index("/", start)]
    return url[:start] + authority.rpartition("@")[2]


def _key(origin: str, *, insecure: bool) -> str:
    # A certificate that is not to be checked makes reachable what is unreachable for others.
    return f"insecure {origin}" if insecure and origin.startswith("https:") else origin


def _header(fetched: RobotsResponse, name: str) -> str | None:
    return next((value for key, value in fetched.headers if key.lower() == name), None)
