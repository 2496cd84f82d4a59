"""RFC 9309, sections 2.3 to 2.5, over real sockets: what answers mean, redirects, the cache, outages, the limit.

The worker's robots room with its own HTTP client, against a server that follows a script; the clock passes when told.
What a file's lines mean is the table in tests/unit/fetch/test_robots_rfc9309.py.
"""

import gzip
import itertools
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from gossamer.errors import FetchError
from gossamer.fetch.client import HttpClient
from gossamer.fetch.exchange import FetchRequest, ResponseLimits, Timeouts
from gossamer.fetch.robots_rules import RobotsVerdict
from gossamer.fetch.robots_service import RobotsService, RobotsUnavailable
from gossamer.net.resolve import Resolver
from gossamer.policy.robots import MAX_BYTES
from gossamer.worker.robots import MemoryRobotsStore
from tests.servers.bad_http import BadServer, Drip, Endless, Reset, Stall, Step, run_bad_server

UA = "gossamer/0.1"
HOUR = 3600.0
CLOSED = b"User-agent: *\nDisallow: /private\n"


def answer(status: int, body: bytes = b"", *headers: str) -> list[Step]:
    """A whole HTTP answer; the connection is closed behind it."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return ["\r\n".join(lines).encode() + b"\r\n\r\n" + body]


def to(location: str, status: int = 302) -> list[Step]:
    """A redirect."""
    return answer(status, CLOSED, f"Location: {location}")


@dataclass
class Site:
    """One server under any name, the one crawler that asks it, and the clock of both."""

    server: BadServer
    store: MemoryRobotsStore
    seconds: float = 1_700_000_000.0
    service: RobotsService = field(init=False)

    def say(self, steps: list[Step], path: str = "/robots.txt") -> None:
        """What it answers from now on."""
        self.server.scripts[path] = steps

    def origin(self, host: str = "a.test") -> str:
        return f"http://{host}:{self.server.port}"

    async def ask(
        self, path: str = "/private", host: str = "a.test", agent: str = UA
    ) -> RobotsVerdict | RobotsUnavailable:
        url = self.origin(host) + path
        return await self.service.check(url, user_agent=agent, template=FetchRequest(url), explain=True)

    async def allows(self, path: str = "/private", host: str = "a.test") -> bool:
        """Not for an origin that cannot be asked."""
        found = await self.ask(path, host)
        assert isinstance(found, RobotsVerdict), found
        return found.allowed

    @property
    def asked(self) -> list[str]:
        """`host path` of each request, in order."""
        heads = [head.decode() for head in self.server.requests]
        names = [re.search(r"(?im)^host: ([^:\r]+)", head) for head in heads]
        return [f"{name[1] if name else ''} {head.split(' ', 2)[1]}" for name, head in zip(names, heads, strict=True)]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Every name under `.test` is this server; without a script of its own a path is a broken connection."""
    resolver = Resolver(overrides={"*.test": "127.0.0.1"})
    client = HttpClient(
        resolver,
        limits=ResponseLimits(body_bytes=1000),
        timeouts=Timeouts(connect=5, first_byte=0.3, idle=0.3, total=5),
    )
    async with run_bad_server({}) as server:
        site = Site(server, MemoryRobotsStore(clock=lambda: site.seconds))
        site.service = RobotsService(client.fetch, site.store, fetch_seconds=2, now=lambda: site.seconds)
        yield site
        await site.service.close()
        await client.close()


@pytest.mark.parametrize("status", [200, 201, 203, 206, 299])
async def test_2_3_1_1_success_means_its_rules(site: Site, status: int) -> None:
    site.say(answer(status, CLOSED))
    assert not await site.allows()
    assert await site.allows("/public")


@pytest.mark.parametrize("kind", ["text/html", "application/octet-stream", "text/plain; charset=utf-16"])
async def test_2_3_the_content_type_is_nothing(site: Site, kind: str) -> None:
    site.say(answer(200, CLOSED, f"Content-Type: {kind}"))
    assert not await site.allows()


async def test_2_3_1_1_an_empty_file_allows_everything(site: Site) -> None:
    site.say(answer(200))
    assert await site.allows()


async def test_2_3_1_1_a_content_encoding_is_undone(site: Site) -> None:
    site.say(answer(200, gzip.compress(CLOSED), "Content-Encoding: gzip"))
    assert not await site.allows()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_2_3_1_2_a_redirect_is_followed(site: Site, status: int) -> None:
    site.say(to("/rules", status))
    site.say(answer(200, CLOSED), "/rules")
    assert not await site.allows()


@pytest.mark.parametrize(("location", "path"), [("/caf\xe9", "/caf%E9"), ("/é".encode().decode("latin-1"), "/%C3%A9")])
async def test_2_3_1_2_a_location_of_raw_bytes(site: Site, location: str, path: str) -> None:
    """UTF-8 as browsers send it, or whatever bytes it had."""
    site.say([f"HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: {location}\r\n\r\n".encode("latin-1")])
    site.say(answer(200, CLOSED), path)
    assert not await site.allows()


async def test_2_3_1_2_secrets_of_a_location_are_not_sent(site: Site) -> None:
    """What it finds is everybody's."""
    site.say(to(f"http://me:secret@b.test:{site.server.port}/rules"))
    site.say(answer(200, CLOSED), "/rules")
    assert not await site.allows()
    assert not any(b"uthorization" in head for head in site.server.requests)


@pytest.mark.parametrize(("hops", "allowed"), [(1, False), (5, False), (6, True)])
async def test_2_3_1_2_five_redirects_across_hosts(site: Site, hops: int, allowed: bool) -> None:
    """And the rules found hold for the origin that was asked about, not for where they were."""
    paths = ["/robots.txt", *(f"/{n}" for n in range(1, hops + 1))]
    for number, (path, following) in enumerate(itertools.pairwise(paths), 1):
        site.say(to(f"{site.origin(f'h{number}.test')}{following}"), path)
    site.say(answer(200, CLOSED), paths[-1])
    assert await site.allows() is allowed
    assert site.asked == ["a.test /robots.txt", *(f"h{n}.test /{n}" for n in range(1, min(hops, 5) + 1))]


async def test_2_3_1_2_a_loop_ends_and_counts_as_absent(site: Site) -> None:
    site.say(to("/robots.txt"))
    found = await site.ask()
    assert found == RobotsVerdict(True, "no robots.txt (more than 5 redirects)", None)
    assert len(site.asked) == 6


async def test_2_3_1_2_what_the_end_of_a_chain_means(site: Site) -> None:
    """A redirect to what is absent is absence, one to what is broken an outage."""
    site.say(to("/end"))
    site.say(answer(404), "/end")
    assert await site.allows()
    site.say(answer(500), "/end")
    assert isinstance(await site.ask(host="b.test"), RobotsUnavailable)
    site.say([Reset()], "/end")
    assert isinstance(await site.ask(host="c.test"), RobotsUnavailable)


async def test_2_3_1_2_a_redirect_between_origins_is_remembered_for_each(site: Site) -> None:
    """Both ask: what one of them was sent to says nothing about the other."""
    site.say(to(site.origin("b.test") + "/rules"))
    site.say(answer(200, CLOSED), "/rules")
    assert not await site.allows()
    site.say(answer(404))
    assert await site.allows(host="b.test")
    assert not await site.allows()


@pytest.mark.parametrize("location", ["", "mailto:a@b.test", "ftp://b.test/", "http://[", "javascript:0"])
async def test_2_3_1_2_a_redirect_to_no_web_page_counts_as_absent(site: Site, location: str) -> None:
    site.say(to(location) if location else answer(302, CLOSED))
    assert await site.allows()


async def test_2_3_1_2_a_redirect_without_a_target_counts_as_absent(site: Site) -> None:
    site.say(answer(302, CLOSED, "Location: "))
    assert await site.ask() == RobotsVerdict(True, "no robots.txt (302 to nowhere)", None)
    assert len(site.asked) == 1


async def test_2_3_1_2_a_redirect_into_a_private_network_closes_the_site(site: Site) -> None:
    """Its address is never connected to."""
    site.say(to("http://127.0.0.2/robots.txt"))
    found = await site.ask()
    assert isinstance(found, RobotsVerdict)
    assert not found.allowed
    assert len(site.asked) == 1


def _body(content: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(content) + content


BROKEN_BODIES: dict[str, list[Step]] = {
    "a false encoding": [b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain"],
    "a broken encoding": [b"Content-Encoding: br\r\nContent-Length: 9\r\n\r\n" + bytes(9)],
    "half a body": [b"Content-Length: 900\r\n\r\n" + CLOSED],
    "half a body, reset": [b"Content-Length: 900\r\n\r\n" + CLOSED, Reset()],
    "half a body, silence": [b"Content-Length: 900\r\n\r\n" + CLOSED, Stall()],
    "broken chunks": [b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"],
}


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
async def test_a_plain_file_that_is_said_to_be_encoded_is_read(site: Site, encoding: str) -> None:
    """To wait for it, and to fail the site in the end, helps no one: its rules are there."""
    rules = b"User-agent: *\nDisallow: /private\n"
    site.say([b"HTTP/1.1 200 X\r\nContent-Encoding: %s\r\n" % encoding.encode(), _body(rules)])
    assert not await site.allows("/private")
    assert await site.allows("/other")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 418, 451, 499])
async def test_2_3_1_3_a_4xx_allows_everything(site: Site, status: int) -> None:
    site.say(answer(status, b"User-agent: *\nDisallow: /"))
    assert await site.ask() == RobotsVerdict(True, f"no robots.txt ({status})", None)


@pytest.mark.parametrize("steps", BROKEN_BODIES.values(), ids=BROKEN_BODIES)
async def test_2_3_1_3_a_4xx_allows_everything_whatever_its_body_is(site: Site, steps: list[Step]) -> None:
    """And a redirect is followed."""
    site.say([b"HTTP/1.1 404 X\r\n", *steps])
    assert await site.ask() == RobotsVerdict(True, "no robots.txt (404)", None)
    site.say([b"HTTP/1.1 302 X\r\nLocation: /rules\r\n", *steps])
    site.say(answer(200, CLOSED), "/rules")
    assert not await site.allows(host="b.test")


async def test_2_3_1_1_damaged_rules_count_as_far_as_they_can_be_read(site: Site) -> None:
    wire = gzip.compress(CLOSED)[:-8] + bytes(8)
    site.say([b"HTTP/1.1 200 X\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(wire) + wire])
    assert not await site.allows()


OUTAGES: dict[str, list[Step]] = {
    **{str(status): answer(status, CLOSED) for status in (429, 500, 502, 503, 504, 520, 599)},
    "a closed connection": [],
    "a reset": [Reset()],
    "silence": [Stall()],
    "half a head": [b"HTTP/1.1 200 OK\r\nContent-Le"],
    "half a body": [b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + CLOSED],
    "half a body, silence": [b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + CLOSED, Stall()],
    "a body without end, slowly": [b"HTTP/1.1 200 OK\r\n\r\n", Drip(b"#" * 200, 0.1)],
    "headers without end": [b"HTTP/1.1 200 OK\r\n", Endless(b"X-A: " + b"b" * 8000 + b"\r\n")],
    "no HTTP": [b"220 mail.a.test ESMTP\r\n"],
    "a broken encoding": answer(200, b"\x1f\x8b\x08" + bytes(7) + b"\xff no stream", "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("steps", OUTAGES.values(), ids=OUTAGES)
async def test_2_3_1_4_without_an_answer_nothing_is_fetched(site: Site, steps: list[Step]) -> None:
    """Nor asked again before a minute has passed; then the answer counts."""
    site.say(steps)
    for _ in range(2):
        found = await site.ask("/public")
        assert isinstance(found, RobotsUnavailable)
        assert found.retry_at == site.seconds + 60
    assert len(site.asked) == 1
    site.seconds += 59
    site.say(answer(200, CLOSED))
    assert isinstance(await site.ask("/public"), RobotsUnavailable)
    site.seconds += 1
    assert await site.allows("/public")
    assert not await site.allows()
    assert len(site.asked) == 2


async def test_2_3_1_4_waits_double_up_to_an_hour_and_end_after_a_day(site: Site) -> None:
    """From then on requests are refused, while the origin is still asked every hour; a success forgets all that."""
    site.say(answer(503))
    began = site.seconds
    waits = []
    while isinstance(found := await site.ask(), RobotsUnavailable):
        waits.append(found.retry_at - site.seconds)
        site.seconds = found.retry_at
    assert waits[:8] == [60, 120, 240, 480, 960, 1920, HOUR, HOUR]
    assert site.seconds >= began + 24 * HOUR
    assert not found.allowed
    asked = len(site.asked)
    site.seconds += HOUR - 1
    await site.ask()
    assert len(site.asked) == asked
    site.say(answer(200, CLOSED))
    site.seconds += 1
    assert await site.allows("/public")
    site.seconds += 24 * HOUR
    site.say(answer(503))
    found = await site.ask()
    assert isinstance(found, RobotsUnavailable)
    assert found.retry_at == site.seconds + 60


@pytest.mark.parametrize(("wish", "seconds"), [("900", 900), ("1", 60), ("86400", HOUR), ("soon", 60), ("-5", 60)])
async def test_2_3_1_4_retry_after_counts_up_to_an_hour(site: Site, wish: str, seconds: float) -> None:
    site.say(answer(503, b"", f"Retry-After: {wish}"))
    found = await site.ask()
    assert isinstance(found, RobotsUnavailable)
    assert found.retry_at == site.seconds + seconds


async def test_2_4_an_answer_holds_for_a_day(site: Site) -> None:
    """Whatever its own caching headers say; then it is asked for again."""
    site.say(answer(200, CLOSED, "Cache-Control: no-store, max-age=0"))
    assert not await site.allows()
    site.say(answer(404))
    site.seconds += 24 * HOUR - 1
    assert not await site.allows()
    assert len(site.asked) == 1
    site.seconds += 1
    assert await site.allows()
    assert len(site.asked) == 2


async def test_2_4_absence_holds_for_a_day_too(site: Site) -> None:
    site.say(answer(404))
    assert await site.allows()
    site.say(answer(200, CLOSED))
    site.seconds += 24 * HOUR - 1
    assert await site.allows()
    site.seconds += 1
    assert not await site.allows()


async def test_2_4_what_has_become_stale_does_not_stand_in_for_an_outage(site: Site) -> None:
    """The RFC would allow it; but who went down may have closed a door before. Recovery ends the wait."""
    site.say(answer(200, CLOSED))
    assert await site.allows("/public")
    site.say(answer(500))
    site.seconds += 24 * HOUR
    assert isinstance(await site.ask("/public"), RobotsUnavailable)
    site.say(answer(200, CLOSED))
    site.seconds += 60
    assert await site.allows("/public")
    assert not await site.allows()


async def test_2_3_each_origin_has_its_own(site: Site) -> None:
    """A host's file says nothing about another host, not even of the same domain."""
    site.say(answer(200, CLOSED))
    assert not await site.allows(host="a.test")
    site.say(answer(404))
    assert await site.allows(host="www.a.test")
    assert await site.allows(host="A.test.")
    assert not await site.allows(host="a.test")
    assert [asked.split()[0] for asked in site.asked] == ["a.test", "www.a.test", "A.test."]


async def test_2_2_1_one_file_answers_for_every_user_agent(site: Site) -> None:
    site.say(answer(200, b"User-agent: foobot\nDisallow: /\n"))
    for agent, allowed in (("foobot/1", False), ("gossamer/1", True), ("FooBot", False)):
        found = await site.ask(agent=agent)
        assert isinstance(found, RobotsVerdict)
        assert found.allowed is allowed
    assert len(site.asked) == 1


def _long(size: int) -> bytes:
    """So many bytes, then the rule that counts, and one beyond the limit."""
    return b"User-agent: *\n" + b"#\n" * (size // 2) + CLOSED.partition(b"\n")[2]


@pytest.mark.parametrize("encoded", [False, True])
async def test_2_5_at_least_500_kib_are_read_however_little_is_taken_of_pages(site: Site, encoded: bool) -> None:
    """The client's own limit here is 1,000 bytes."""
    body = _long(MAX_BYTES - 100)
    site.say(answer(200, gzip.compress(body), "Content-Encoding: gzip") if encoded else answer(200, body))
    assert not await site.allows()
    assert await site.allows("/public")


ENDLESS: dict[str, list[Step]] = {
    "plain": [b"HTTP/1.1 200 OK\r\n\r\n" + CLOSED, Endless(b"# more\n" * 1000)],
    "chunked": [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n21\r\n" + CLOSED + b"\r\n",
        Endless(b"1000\r\n" + b"#" * 0x1000 + b"\r\n"),
    ],
    "a bomb": answer(200, gzip.compress(CLOSED + b"#" * 50_000_000), "Content-Encoding: gzip"),
    "10 MB": answer(200, _long(0) + b"#\n" * 5_000_000),
}


@pytest.mark.parametrize("steps", ENDLESS.values(), ids=ENDLESS)
async def test_2_5_what_is_longer_is_read_up_to_there(site: Site, steps: list[Step]) -> None:
    """No more is taken or kept than the limit; what stands before it holds."""
    site.say(steps)
    assert not await site.allows()
    assert await site.allows("/public")
    record = await site.store.load(site.origin())
    assert record is not None
    assert len(record) < MAX_BYTES + 1000


@pytest.mark.parametrize(("line", "seconds"), [("2", 2), ("0.5", 0.5), ("86400", 60), ("x", None), ("-1", None)])
async def test_crawl_delay_is_told_up_to_its_cap(site: Site, line: str, seconds: float | None) -> None:
    """Not in the RFC (section 2.2.4 lets crawlers understand more); a minute is the most that is honoured."""
    site.say(answer(200, f"User-agent: *\nCrawl-delay: {line}\n".encode()))
    found = await site.ask()
    assert isinstance(found, RobotsVerdict)
    assert found.crawl_delay == seconds


async def test_who_cannot_be_connected_to_fails_like_a_page(site: Site, unused_tcp_port: int) -> None:
    """Section 2.3.1.4 calls it unreachable; so is every page there, and their retries decide."""
    url = f"http://a.test:{unused_tcp_port}/"
    with pytest.raises(FetchError) as caught:
        await site.service.check(url, user_agent=UA, template=FetchRequest(url))
    assert caught.value.kind == "connect"
