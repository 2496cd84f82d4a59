"""One fetch an origin and day whoever asks; what each answer means; how processes share it."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

import ada_url
import pytest

from gossamer.errors import BlockedAddress, ConnectFailed, ConnectionLost, FrontierUnavailable, ProxyFailed
from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.robots_rules import RobotsVerdict
from gossamer.fetch.robots_service import NamedSitemaps, RobotsRecord, RobotsService, RobotsUnavailable, pack, unpack
from gossamer.net.resolve import Resolver
from gossamer.policy.robots import MAX_BYTES, RobotsOutcome
from gossamer.worker.robots import MemoryRobotsStore

UA = "gossamer/0.1"
DISALLOW_PRIVATE = b"User-agent: *\nDisallow: /private\nCrawl-delay: 3\nSitemap: https://a.test/map.xml\n"


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole HTTP answer."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Site:
    """A web server on a real socket: each host has a row of answers to `/robots.txt`; the last one stays."""

    port: int = 0
    rows: dict[str, list[bytes]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    """As received, in lower case."""
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)
    answer_now: asyncio.Event = field(default_factory=asyncio.Event)

    def origin(self, host: str) -> str:
        """Of a host name that the resolver's override leads here."""
        return f"http://{host}.test:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one answer after the other. An empty answer cuts the connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ", 2)[1]
                lower = head.lower()
                host = lower[lower.index("\r\nhost: ") + 8 :].split(".test", 1)[0]
                self.requests.append((host, path))
                self.heads.append(lower)
                self.was_asked.set()
                await self.answer_now.wait()
                row = self.rows.get(host, [answer(404)])
                reply = row.pop(0) if len(row) > 1 else row[0]
                if not reply:
                    break
                writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def unavailable(
    clock: "Clock", seconds: float, reason: str, *, since: float | None = None, of: float = 24 * 3600
) -> RobotsUnavailable:
    """Asked again in so long, and given up so long after it began: now, or `since`."""
    begun = clock.seconds if since is None else since
    return RobotsUnavailable(clock.seconds + seconds, reason, begun + of)


class Clock:
    """Unix seconds that pass when told to."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Answers at once unless `answer_now` is cleared."""
    site = Site()
    site.answer_now.set()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    yield site
    server.close()


@dataclass(frozen=True)
class Answer:
    """As much of an answer as the service reads."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    truncated: bool = False


class Fetcher:
    """One request a connection to an address that the guard approved; every `.test` host is this machine."""

    def __init__(self) -> None:
        self.resolver = Resolver(overrides={"*.test": "127.0.0.1"})
        self.exchanges: list[FetchRequest] = []

    async def fetch(self, exchange: FetchRequest) -> Answer:
        """The Fetch contract."""
        self.exchanges.append(exchange)
        if exchange.proxy is not None:
            raise ProxyFailed(exchange.proxy)
        url = ada_url.URL(exchange.url)
        port = int(url.port or 80)
        (ip, *_) = await self.resolver.addresses(url.hostname, port, allow_private=exchange.allow_private)
        try:
            reader, writer = await asyncio.open_connection(ip, port)
        except OSError as exc:
            raise ConnectFailed(str(exc)) from exc
        try:
            head = [f"GET {url.pathname} HTTP/1.1", f"Host: {url.host}", *map(": ".join, exchange.headers)]
            writer.write("\r\n".join([*head, "", ""]).encode())
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
            headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
            body = await reader.readexactly(int(dict(headers)["Content-Length"]))
            return Answer(int(first.split()[1]), headers, body)
        except (asyncio.IncompleteReadError, ConnectionError) as exc:
            raise ConnectionLost from exc
        finally:
            writer.close()


@pytest.fixture
def fetcher() -> Fetcher:
    """Shared by the services of a test."""
    return Fetcher()


@pytest.fixture
def clock() -> Clock:
    """A clock for services and their store."""
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryRobotsStore:
    """What several services share."""
    return MemoryRobotsStore(clock=clock)


@pytest.fixture
def service(fetcher: Fetcher, store: MemoryRobotsStore, clock: Clock) -> RobotsService:
    """As one worker has it."""
    return RobotsService(fetcher.fetch, store, now=clock, poll_seconds=0.001)


async def check(service: RobotsService, template: FetchRequest) -> RobotsVerdict | RobotsUnavailable:
    """Ask about the template's own URL."""
    return await service.check(template.url, user_agent=UA, template=template, explain=True)


def row(site: Site, *answers: bytes, host: str = "a") -> str:
    """Set a host's answers; its origin."""
    site.rows[host] = list(answers)
    return site.origin(host)


async def test_rules_are_fetched_once_and_hold_for_a_day(site: Site, service: RobotsService, clock: Clock) -> None:
    """Verdict, rule and delay of every URL come from one request; a day later it is asked for again."""
    origin = row(site, answer(200, DISALLOW_PRIVATE), answer(404))
    for _ in range(3):
        assert await check(service, FetchRequest(f"{origin}/private/x")) == RobotsVerdict(
            False, "Disallow: /private", 3
        )
        assert await check(service, FetchRequest(f"{origin}/public")) == RobotsVerdict(True, "no rule applies", 3)
    assert site.requests == [("a", "/robots.txt")]
    clock.seconds += 24 * 3600 - 1
    assert not (await service.check(f"{origin}/private", user_agent=UA, template=FetchRequest(origin))).allowed  # type: ignore[union-attr]
    clock.seconds += 1
    assert await check(service, FetchRequest(f"{origin}/private")) == RobotsVerdict(True, "no robots.txt (404)", None)
    assert len(site.requests) == 2


async def test_the_cached_verdict_is_that_of_a_check_while_the_rules_hold(
    site: Site, service: RobotsService, clock: Clock
) -> None:
    """Before the file is known, after its day, and during an outage there is none, so that a caller checks."""
    origin, broken = row(site, answer(200, DISALLOW_PRIVATE)), row(site, answer(500), host="b")
    urls = [f"{origin}/private/x", f"{origin}/public"]

    def cached(url: str) -> RobotsVerdict | None:
        return service.check_cached(url, user_agent=UA, insecure=False)

    assert [cached(url) for url in urls] == [None, None]
    checked = [await service.check(url, user_agent=UA, template=FetchRequest(url)) for url in urls]
    assert [cached(url) for url in urls] == checked == [RobotsVerdict(False, "", 3), RobotsVerdict(True, "", 3)]
    await service.check(f"{broken}/", user_agent=UA, template=FetchRequest(broken))
    assert cached(f"{broken}/") is None
    clock.seconds += 24 * 3600
    assert [cached(url) for url in urls] == [None, None]


async def test_the_request_names_the_crawler_and_gives_no_secrets(
    site: Site, service: RobotsService, fetcher: Fetcher, store: MemoryRobotsStore
) -> None:
    """Cookies, credentials and bodies of the page's request stay out of it."""
    headers = (("Cookie", "secret=1"), ("Authorization", "secret"), ("User-Agent", "other"))
    row(site, answer(404))
    url = f"http://user:secret@a.test:{site.port}/"
    await check(service, FetchRequest(url, method="POST", headers=headers, body=b"secret"))
    (head,) = site.heads
    assert "user-agent: gossamer/0.1\r\n" in head
    assert "secret" not in head
    assert await store.load(site.origin("a")) is not None
    assert head.startswith("get /robots.txt ")
    assert [exchange.url for exchange in fetcher.exchanges] == [f"{site.origin('a')}/robots.txt"]


async def test_sitemaps(site: Site, service: RobotsService) -> None:
    """Those the file names; none where there is no file; and it says so when there was no answer."""
    named, absent, broken = row(site, answer(200, DISALLOW_PRIVATE)), site.origin("b"), row(site, b"", host="c")
    for origin, expected in ((named, ("https://a.test/map.xml",)), (absent, ())):
        found = await service.sitemaps(f"{origin}/", user_agent=UA, template=FetchRequest(origin))
        assert found == NamedSitemaps(expected, 0)
    found = await service.sitemaps(f"{broken}/", user_agent=UA, template=FetchRequest(broken))
    assert isinstance(found, RobotsUnavailable)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451, 304])
async def test_no_such_file_allows_everything(site: Site, service: RobotsService, status: int) -> None:
    """RFC 9309, section 2.3.1.3."""
    origin = row(site, answer(status, b"User-agent: *\nDisallow: /"))
    assert await check(service, FetchRequest(f"{origin}/a")) == RobotsVerdict(True, f"no robots.txt ({status})", None)


@pytest.mark.parametrize("status", [500, 502, 503, 599, 429])
async def test_a_server_in_trouble_is_unavailable(
    site: Site, service: RobotsService, clock: Clock, status: int
) -> None:
    """RFC 9309, section 2.3.1.4; and it is not asked again before its time."""
    origin = row(site, answer(status))
    for _ in range(3):
        assert await check(service, FetchRequest(f"{origin}/")) == unavailable(clock, 60, str(status))
    assert len(site.requests) == 1


async def test_an_unreachable_origin_is_asked_with_backoff_and_given_up_after_a_day(
    site: Site, service: RobotsService, clock: Clock
) -> None:
    """60 s doubling to an hour; after 24 hours its requests are refused; it may come back."""
    origin = row(site, b"")
    begin, delays = clock.seconds, []
    while isinstance(found := await check(service, FetchRequest(f"{origin}/")), RobotsUnavailable):
        assert found.reason == "connection_lost"
        delays.append(found.retry_at - clock.seconds)
        clock.seconds = found.retry_at
    assert delays[:8] == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert clock.seconds - begin >= 24 * 3600
    assert found == RobotsVerdict(False, "robots.txt unreachable for 24 h (connection_lost)", None, unreachable=True)
    row(site, answer(404))
    assert not (await check(service, FetchRequest(f"{origin}/"))).allowed  # type: ignore[union-attr]
    clock.seconds += 3600
    assert (await check(service, FetchRequest(f"{origin}/"))).allowed  # type: ignore[union-attr]


async def test_a_person_waits_no_longer_than_the_patience(
    site: Site, fetcher: Fetcher, store: MemoryRobotsStore, clock: Clock
) -> None:
    """It is asked a last time when the patience ends; and a new command asks at once, whatever is stored."""
    origin = row(site, answer(500))
    service = RobotsService(fetcher.fetch, store, now=clock, patience_seconds=100)
    begin, waits = clock.seconds, []
    while isinstance(found := await check(service, FetchRequest(f"{origin}/")), RobotsUnavailable):
        assert found.given_up_at == begin + 100
        waits.append(found.retry_at - clock.seconds)
        clock.seconds = found.retry_at
    assert waits == [60, 40]
    assert found == RobotsVerdict(False, "robots.txt unreachable for 100 s (500)", None, unreachable=True)
    assert len(site.requests) == 3
    assert await service.known_outage(f"{origin}/", insecure=False) is None
    clock.seconds += 30
    again = RobotsService(fetcher.fetch, store, now=clock, patience_seconds=100)
    assert await check(again, FetchRequest(f"{origin}/")) == unavailable(clock, 100, "500", since=clock.seconds, of=100)
    assert len(site.requests) == 4
    row(site, answer(404))
    clock.seconds += 100
    assert (await check(again, FetchRequest(f"{origin}/"))).allowed  # type: ignore[union-attr]


async def test_a_failure_that_a_clock_ahead_has_stored_makes_no_site_wait(
    site: Site, fetcher: Fetcher, store: MemoryRobotsStore, service: RobotsService, clock: Clock
) -> None:
    template = FetchRequest(f"{row(site, answer(503), answer(503), answer(404))}/")
    begun = clock.seconds
    clock.seconds += 9 * 3600
    ahead = RobotsService(fetcher.fetch, store, now=clock)
    assert isinstance(await check(ahead, template), RobotsUnavailable)
    clock.seconds = begun
    assert await check(service, template) == unavailable(clock, 120, "503")
    clock.seconds += 120
    assert await check(service, template) == RobotsVerdict(True, "no robots.txt (404)", None)


async def test_processes_of_one_command_ask_once_and_a_wanted_pause_is_kept(
    site: Site, fetcher: Fetcher, store: MemoryRobotsStore, clock: Clock
) -> None:
    origin = row(site, answer(503, **{"Retry-After": "90"}))
    first = RobotsService(fetcher.fetch, store, now=clock, patience_seconds=80)
    assert isinstance(found := await check(first, FetchRequest(f"{origin}/")), RobotsUnavailable)
    assert found.retry_at == clock.seconds + 90
    clock.seconds += 2
    second = RobotsService(fetcher.fetch, store, now=clock, patience_seconds=80)
    assert isinstance(await check(second, FetchRequest(f"{origin}/")), RobotsUnavailable)
    clock.seconds += 80
    assert not (await check(second, FetchRequest(f"{origin}/"))).allowed  # type: ignore[union-attr]
    assert len(site.requests) == 1


async def test_without_patience_a_site_is_given_up_at_once(site: Site, fetcher: Fetcher, clock: Clock) -> None:
    origin = row(site, answer(500))
    service = RobotsService(fetcher.fetch, MemoryRobotsStore(), now=clock, patience_seconds=0)
    assert not (await check(service, FetchRequest(f"{origin}/"))).allowed  # type: ignore[union-attr]


async def test_nobody_listening_is_the_pages_own_failure(service: RobotsService, unused_tcp_port: int) -> None:
    """Its retries decide; waiting a day for robots.txt would only hide it."""
    for _ in range(2):
        with pytest.raises(ConnectFailed):
            await check(service, FetchRequest(f"http://a.test:{unused_tcp_port}/"))


async def test_a_server_that_never_answers_is_unavailable(site: Site, fetcher: Fetcher, clock: Clock) -> None:
    """Whatever the client's own timeouts are."""
    site.answer_now.clear()
    service = RobotsService(fetcher.fetch, MemoryRobotsStore(), fetch_seconds=0.05, now=clock)
    found = await check(service, FetchRequest(f"{site.origin('a')}/"))
    assert found == unavailable(clock, 60, "no answer within 0.05 s")
    site.answer_now.set()


async def test_retry_after_lengthens_the_backoff(site: Site, service: RobotsService, clock: Clock) -> None:
    """Up to an hour, and it cannot shorten it."""
    for host, wish, seconds in (("a", "900", 900), ("b", "5", 60), ("c", "999999", 3600)):
        origin = row(site, answer(503, Retry_After=wish), host=host)
        assert await check(service, FetchRequest(f"{origin}/")) == unavailable(clock, seconds, "503")


async def test_redirects_are_followed_across_hosts(site: Site, service: RobotsService) -> None:
    """RFC 9309, section 2.3.1.2: the rules found there hold for the origin asked about."""
    origin = row(
        site,
        answer(301, Location="/moved.txt"),
        answer(302, Location=f"{site.origin('b')}/b.txt"),
    )
    row(site, answer(308, Location=f"//c.test:{site.port}/c.txt#x"), host="b")
    row(site, answer(200, DISALLOW_PRIVATE), host="c")
    assert await check(service, FetchRequest(f"{origin}/private")) == RobotsVerdict(False, "Disallow: /private", 3)
    assert site.requests == [("a", "/robots.txt"), ("a", "/moved.txt"), ("b", "/b.txt"), ("c", "/c.txt")]


async def test_five_redirects_are_followed_and_a_sixth_is_not(site: Site, service: RobotsService) -> None:
    """More count as no file: everything is allowed."""
    hop = answer(302, Location="/again")
    five = row(site, *[hop] * 5, answer(200, DISALLOW_PRIVATE))
    assert not (await check(service, FetchRequest(f"{five}/private"))).allowed  # type: ignore[union-attr]
    endless = row(site, hop, host="b")
    expected = RobotsVerdict(True, "no robots.txt (more than 5 redirects)", None)
    assert await check(service, FetchRequest(f"{endless}/private")) == expected
    assert [host for host, _ in site.requests].count("b") == 6


@pytest.mark.parametrize("headers", [{}, {"Location": "file:///etc/passwd"}, {"Location": "http://["}])
async def test_a_redirect_to_nowhere_counts_as_no_file(
    site: Site, service: RobotsService, headers: dict[str, str]
) -> None:
    """And nothing else than http and https is followed."""
    origin = row(site, answer(302, **headers))
    assert await check(service, FetchRequest(f"{origin}/")) == RobotsVerdict(
        True, "no robots.txt (302 to nowhere)", None
    )


async def test_a_redirect_to_a_private_address_is_not_followed(
    site: Site, service: RobotsService, fetcher: Fetcher
) -> None:
    """Not even where the origin's own host may be private: the permission ends at its name."""
    origin = row(site, answer(302, Location=f"http://127.0.0.1:{site.port}/x"))
    found = await check(service, FetchRequest(f"{origin}/", allow_private=True))
    assert isinstance(found, RobotsVerdict)
    assert not found.allowed
    assert found.rule.startswith("robots.txt is unavailable (it leads to 127.0.0.1")
    assert [exchange.allow_private for exchange in fetcher.exchanges] == [True, False]
    template = FetchRequest(f"{origin}/", allow_private=True)
    assert await service.sitemaps(f"{origin}/", user_agent=UA, template=template) == NamedSitemaps((), 0)


async def test_what_is_waited_for_is_known_without_asking(site: Site, service: RobotsService, clock: Clock) -> None:
    """For whoever asks why nothing of a site is fetched."""
    origin = row(site, answer(503))
    assert await service.known_outage(f"{origin}/page", insecure=False) is None
    assert site.requests == []
    await check(service, FetchRequest(f"{origin}/"))
    begun = clock.seconds
    clock.seconds += 70
    assert await service.known_outage(f"{origin}/page", insecure=False) == RobotsUnavailable(
        begun + 60, "503", begun + 24 * 3600
    )
    clock.seconds = begun + 24 * 3600
    assert await service.known_outage(f"{origin}/page", insecure=False) is None
    assert len(site.requests) == 1


async def test_a_blocked_origin_is_said_and_not_remembered(site: Site, service: RobotsService) -> None:
    """A crawl without the permission must not block the origin for one that has it."""
    url = f"http://127.0.0.1:{site.port}/"
    with pytest.raises(BlockedAddress):
        await check(service, FetchRequest(url))
    assert await check(service, FetchRequest(url, allow_private=True)) == RobotsVerdict(
        True, "no robots.txt (404)", None
    )


async def test_a_broken_proxy_is_said_and_not_remembered(site: Site, service: RobotsService) -> None:
    """It says nothing about the origin."""
    origin = row(site, answer(200, DISALLOW_PRIVATE))
    with pytest.raises(ProxyFailed):
        await check(service, FetchRequest(f"{origin}/", proxy="http://proxy.test:1"))
    assert (await check(service, FetchRequest(f"{origin}/"))).allowed  # type: ignore[union-attr]


async def test_fifty_checks_at_once_cost_one_fetch(site: Site, service: RobotsService) -> None:
    """And one that gives up fails nobody else."""
    origin = row(site, answer(200, DISALLOW_PRIVATE))
    site.answer_now.clear()
    tasks = [asyncio.create_task(check(service, FetchRequest(f"{origin}/private/{n}"))) for n in range(50)]
    await site.was_asked.wait()
    tasks[0].cancel()
    site.answer_now.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [RobotsVerdict(False, "Disallow: /private", 3)] * 49
    assert site.requests == [("a", "/robots.txt")]


async def test_processes_share_one_fetch(site: Site, fetcher: Fetcher, store: MemoryRobotsStore, clock: Clock) -> None:
    """While one is at it the others wait; a later one finds the record."""
    origin = row(site, answer(200, DISALLOW_PRIVATE))
    site.answer_now.clear()

    def worker() -> RobotsService:
        return RobotsService(fetcher.fetch, store, now=clock, poll_seconds=0.001)

    tasks = [asyncio.create_task(check(worker(), FetchRequest(f"{origin}/private"))) for _ in range(5)]
    await site.was_asked.wait()
    site.answer_now.set()
    assert await asyncio.gather(*tasks) == [RobotsVerdict(False, "Disallow: /private", 3)] * 5
    assert not (await check(worker(), FetchRequest(f"{origin}/private"))).allowed  # type: ignore[union-attr]
    assert site.requests == [("a", "/robots.txt")]


async def test_the_backoff_is_shared_too(site: Site, fetcher: Fetcher, store: MemoryRobotsStore, clock: Clock) -> None:
    """A second process does not ask before the time, and its failure is the second one."""
    origin = row(site, answer(500))
    begun = clock.seconds
    for expected in (60, 120, 240):
        service = RobotsService(fetcher.fetch, store, now=clock)
        assert await check(service, FetchRequest(f"{origin}/")) == unavailable(clock, expected, "500", since=begun)
        other = RobotsService(fetcher.fetch, store, now=clock)
        assert await check(other, FetchRequest(f"{origin}/")) == unavailable(clock, expected, "500", since=begun)
        clock.seconds += expected
    assert len(site.requests) == 3


async def test_the_claim_of_a_dead_process_lapses(
    site: Site, service: RobotsService, store: MemoryRobotsStore, clock: Clock
) -> None:
    """Then the next one fetches it."""
    origin = row(site, answer(404))
    assert await store.claim(origin, 35, owner="the dead one")
    waiting = asyncio.create_task(check(service, FetchRequest(f"{origin}/")))
    await asyncio.sleep(0)
    assert not site.requests
    clock.seconds += 35
    assert (await waiting).allowed  # type: ignore[union-attr]
    assert len(site.requests) == 1


async def test_an_insecure_crawl_does_not_answer_for_a_secure_one(fetcher: Fetcher, clock: Clock) -> None:
    """What is reachable without a certificate check is another matter than with it."""
    store = MemoryRobotsStore(clock=clock)
    record = RobotsRecord(RobotsOutcome.RULES, clock.seconds, body=b"User-agent: *\nDisallow: /")
    await store.save("https://a.test", pack(record), 100)
    await store.save("insecure https://a.test", pack(RobotsRecord(RobotsOutcome.ALLOW_ALL, clock.seconds)), 100)
    service = RobotsService(fetcher.fetch, store, now=clock)
    assert not (await check(service, FetchRequest("https://a.test/"))).allowed  # type: ignore[union-attr]
    assert (await check(service, FetchRequest("https://a.test/", insecure=True))).allowed  # type: ignore[union-attr]


async def test_a_file_beyond_the_limit_is_cut_before_it_is_shared(
    site: Site, service: RobotsService, store: MemoryRobotsStore
) -> None:
    """No record is larger than 500 KiB of rules; what stands before the limit holds."""
    origin = row(site, answer(200, b"User-agent: *\nDisallow: /early\n" + b"#\n" * MAX_BYTES + b"Disallow: /late\n"))
    assert not (await check(service, FetchRequest(f"{origin}/early"))).allowed  # type: ignore[union-attr]
    assert (await check(service, FetchRequest(f"{origin}/late"))).allowed  # type: ignore[union-attr]
    record = unpack(await store.load(origin))
    assert record is not None
    assert len(record.body) == MAX_BYTES
    assert record.truncated


async def test_the_memory_is_bounded_by_bytes(site: Site, fetcher: Fetcher, clock: Clock) -> None:
    """What was used last stays; what had to go is found in the store, without another fetch."""
    service = RobotsService(fetcher.fetch, MemoryRobotsStore(clock=clock), cache_bytes=20_000, now=clock)
    origins = [row(site, answer(200, DISALLOW_PRIVATE), host=f"h{n}") for n in range(20)]
    for origin in origins * 2:
        assert not (await check(service, FetchRequest(f"{origin}/private"))).allowed  # type: ignore[union-attr]
    assert service.cached_bytes <= 20_000
    assert len(site.requests) == 20


@pytest.mark.parametrize("packed", [b"", b"\x00", b"\x01", b"\x01garbage", b"\x00\x93\x01", b"\x07abc"])
async def test_a_record_that_cannot_be_read_counts_as_unknown(
    site: Site, service: RobotsService, store: MemoryRobotsStore, packed: bytes
) -> None:
    """As another version may have left it."""
    origin = row(site, answer(404))
    await store.save(origin, packed, 100)
    assert (await check(service, FetchRequest(f"{origin}/"))).allowed  # type: ignore[union-attr]


async def test_close_gives_up_what_is_under_way(site: Site, service: RobotsService) -> None:
    """And may be repeated."""
    site.answer_now.clear()
    waiting = asyncio.create_task(check(service, FetchRequest(f"{site.origin('a')}/")))
    await site.was_asked.wait()
    await service.close()
    await service.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    site.answer_now.set()


class FaultyStore(MemoryRobotsStore):
    """Loses its connection in some calls, before or after they have their effect."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.faults: list[tuple[str, int, bool]] = []
        """Method, the number of its call, and whether the call has its effect."""
        self._calls: Counter[str] = Counter()

    async def _fail(self, method: str, call: Coroutine[Any, Any, Any]) -> Any:
        number = self._calls[method]
        self._calls[method] += 1
        if (method, number, False) in self.faults:
            call.close()
            raise FrontierUnavailable("reset")
        answer = await call
        if (method, number, True) in self.faults:
            raise FrontierUnavailable("reset")
        return answer

    async def load(self, origin: str) -> bytes | None:
        return cast(bytes | None, await self._fail("load", super().load(origin)))

    async def claim(self, origin: str, seconds: float, *, owner: str) -> bool:
        return bool(await self._fail("claim", super().claim(origin, seconds, owner=owner)))

    async def save(self, origin: str, record: bytes, ttl_seconds: float) -> None:
        await self._fail("save", super().save(origin, record, ttl_seconds))

    async def release(self, origin: str) -> None:
        await self._fail("release", super().release(origin))


@pytest.mark.parametrize("has_effect", [False, True])
@pytest.mark.parametrize(("method", "number"), [("load", 0), ("claim", 0), ("load", 1), ("save", 0), ("load", 2)])
async def test_a_store_that_is_away_for_a_moment_stops_nobody(
    method: str, number: int, has_effect: bool, site: Site, fetcher: Fetcher, clock: Clock
) -> None:
    """At whatever step: the caller's next call goes on from there, within the claim, and the file is fetched once. No
    time passes here, so a claim that is waited for would never end."""
    origin, store = row(site, answer(200, DISALLOW_PRIVATE)), FaultyStore(clock)
    store.faults = [(method, number, has_effect), ("save", 0, has_effect)]
    service, other = (RobotsService(fetcher.fetch, store, now=clock) for _ in range(2))
    template = FetchRequest(f"{origin}/private")
    while True:
        with contextlib.suppress(FrontierUnavailable):
            found = await asyncio.wait_for(check(service, template), 5)
            break
    assert found == RobotsVerdict(False, "Disallow: /private", 3)
    assert await asyncio.wait_for(check(other, template), 5) == found
    assert site.requests == [("a", "/robots.txt")]


@pytest.mark.parametrize("has_effect", [False, True])
async def test_a_claim_that_could_not_be_released_stops_nobody(
    has_effect: bool, site: Site, fetcher: Fetcher, clock: Clock
) -> None:
    store = FaultyStore(clock)
    store.faults = [("release", 0, has_effect)]
    service = RobotsService(fetcher.fetch, store, now=clock)
    template = FetchRequest("http://a.test:1/")
    with pytest.raises(FrontierUnavailable):
        await check(service, template)
    with pytest.raises(ConnectFailed):
        await asyncio.wait_for(check(service, template), 5)
    assert await store.claim("http://a.test:1", 35, owner="another")


async def test_a_worker_that_ends_leaves_its_fetch_to_another(site: Site, fetcher: Fetcher, clock: Clock) -> None:
    store, origin = MemoryRobotsStore(clock=clock), row(site, answer(404))
    site.answer_now.clear()
    service, other = (RobotsService(fetcher.fetch, store, now=clock) for _ in range(2))
    asking = asyncio.create_task(check(service, FetchRequest(f"{origin}/")))
    await site.was_asked.wait()
    await service.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    site.answer_now.set()
    assert (await asyncio.wait_for(check(other, FetchRequest(f"{origin}/")), 5)).allowed  # type: ignore[union-attr]


async def test_a_process_claims_once_for_each_way_to_the_origin(site: Site, fetcher: Fetcher, clock: Clock) -> None:
    """Callers that reach the origin differently share no fetch, but the file is fetched by one of them at a time."""
    store, origin = MemoryRobotsStore(clock=clock), row(site, answer(404))
    site.answer_now.clear()
    service = RobotsService(fetcher.fetch, store, now=clock, poll_seconds=0.001)
    ways = [FetchRequest(f"{origin}/", allow_private=allowed) for allowed in (False, True)]
    tasks = [asyncio.create_task(check(service, way)) for way in ways]
    await site.was_asked.wait()
    site.answer_now.set()
    await asyncio.gather(*tasks)
    assert len(site.requests) == 1


async def test_the_memory_store_is_bounded_and_forgets(clock: Clock) -> None:
    """The oldest record makes room; a record ends with its time."""
    store = MemoryRobotsStore(max_records=2, clock=clock)
    for origin in ("a", "b", "c"):
        await store.save(origin, origin.encode(), 10)
    assert [await store.load(origin) for origin in ("a", "b", "c")] == [None, b"b", b"c"]
    clock.seconds += 10
    assert await store.load("c") is None
