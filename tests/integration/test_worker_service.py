"""A worker of a service: requests with the terms that services submit, put into the frontier directly."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.bus.base import Topics
from gossamer.fakeweb import Ending, WebSpec, html, plain, redirect, serve
from gossamer.fakeweb.answer import Answer
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import BudgetScope, Crawl, CrawlId, CrawlState, DomainPolicy, Run, Terms
from gossamer.model.info import CrawlInfo
from gossamer.model.record import ItemRecord, PageRecord
from gossamer.model.request import Batch, Payload, pack
from gossamer.policy.urls import fingerprint, host, registered_domain, spider_seed
from gossamer.settings import Settings
from gossamer.telemetry.tally import Tally
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.valkey.shards import Shards
from gossamer.wiring.frontier import connect
from gossamer.wiring.service import bus_worker_settings, make_bus, make_bus_sink
from gossamer.wiring.worker import open_worker
from tests.servers.bad_http import Reset, run_bad_server
from tests.servers.crawling import records_of, settings_for
from tests.servers.heard import listening
from tests.servers.http_proxy import run_http_proxy
from tests.servers.nginx import run_nginx
from tests.servers.socks5 import Socks5, run_socks5

POLITE = DomainPolicy(hits=10_000, window_seconds=1, moderated=False)


@dataclass
class Request:
    """One submission, as a service makes it: what it does not say is left to the operator."""

    url: str
    terms: Terms = field(default_factory=lambda: Terms(maxdepth=0))
    payload: Payload = field(default_factory=Payload)
    spider: str = "link"
    priority: int = 1

    def batch(self, secret: int) -> Batch:
        """On its own, as it enters the frontier."""
        mark = fingerprint(
            self.url,
            seed=spider_seed(secret, self.spider),
            method=self.payload.method,
            body=self.payload.body,
        )
        domain = registered_domain(host(self.url))
        return Batch(self.spider, domain, self.priority, 0, [self.url], [mark], [pack(self.payload)])


class Service:
    """A frontier of its own, and workers of the pool `shared` for it."""

    def __init__(self, folder: Path, frontier: ValkeyFrontier, address: str) -> None:
        self.folder = folder
        self.frontier = frontier
        self.address = address
        self.said: list[str] = []
        self.tally = Tally()
        """Counts of the last worker that has ended."""

    async def submit(self, *requests: Request, crawl: str = "c", max_pages: int | None = None) -> Run:
        run = await self.frontier.open_crawl(Crawl(id=CrawlId("app", crawl), max_pages=max_pages))
        for request in requests:
            await self.frontier.add(run, request.terms, [request.batch(self.frontier.secret)], seeds=True)
        return run

    def settings(self, **changed: Any) -> Settings:
        changed.setdefault("allow_networks", ("127.0.0.0/8",))
        return settings_for(self.folder, ["*.test:127.0.0.1"], **changed)

    async def work(self, run: Run, **changed: Any) -> CrawlInfo:
        """Until the run is over. Its figures."""
        async with open_worker(
            self.settings(**changed), self.frontier, pool="shared", run=run, say=self.said.append
        ) as worker:
            await asyncio.wait_for(worker.run(), 60)
            self.tally = worker.tally()
        info = await self.frontier.crawl_info(run.crawl.id)
        assert info is not None
        return info

    async def pages(self, *requests: Request, max_pages: int | None = None, **changed: Any) -> list[PageRecord]:
        """Submit, work to the end, and read what came out."""
        run = await self.submit(*requests, max_pages=max_pages)
        await self.work(run, **changed)
        return self.records()

    def records(self) -> list[PageRecord]:
        return [record for record in records_of(self.folder / "pages.jsonl") if isinstance(record, PageRecord)]


@contextlib.asynccontextmanager
async def open_service(folder: Path) -> AsyncIterator[Service]:
    """Yield a service with an empty frontier, whose files are in the folder."""
    async with EmbeddedValkey(folder / "valkey", name="test", appendfsync="no") as server:
        frontier = await connect(settings_for(folder), server.address)
        try:
            await frontier.set_domain_policy(None, POLITE)
            yield Service(folder, frontier, server.address)
        finally:
            await frontier.close()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with open_service(tmp_path) as found:
        yield found


async def test_what_a_request_does_not_say_is_the_operators(service: Service) -> None:
    """No user agent, no scope, depth 0: the operator's user agent, one page, none of its links."""
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("a.test", "/", html('<a href="/next">next</a>'))
        url = f"http://a.test:{web.port}/"
        (page,) = await service.pages(Request(url, Terms(maxdepth=0, attrs={"n": [1, None]})), fetch__user_agent="op/1")
        assert (page.success, page.url, page.attrs, page.depth) == (True, url, {"n": [1, None]}, 0)
        assert page.request_headers["User-Agent"] == ["op/1"]
        assert [(record.path, record.agent) for record in web.log()] == [("/robots.txt", "op/1"), ("/", "op/1")]


async def test_an_unconfined_request_follows_links_anywhere(service: Service) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("a.test", "/", html(f'<a href="http://b.test:{web.port}/there">there</a>'))
        web.mount("b.test", "/there", html(f'<a href="http://c.test:{web.port}/">too deep</a>'))
        pages = await service.pages(Request(f"http://a.test:{web.port}/", Terms(maxdepth=1)))
    assert sorted((page.url.rpartition("/")[2], page.depth) for page in pages) == [("", 0), ("there", 1)]


async def test_method_body_headers_and_cookie_go_out_as_submitted(service: Service) -> None:
    async with listening() as (port, heard):
        terms = Terms(
            maxdepth=0, useragent="them/2", cookie="a=1; b=2", headers={"X-Crawl": "yes", "Accept": "text/x"},
            secrets_for=("a.test",),
        )  # fmt: skip
        payload = Payload(
            method="POST", body=b"q=\x00\xff", headers={"Content-Type": "application/x-thing", "X-Crawl": "own"}
        )
        (page,) = await service.pages(Request(f"http://a.test:{port}/form", terms, payload))
    (request,) = heard
    assert request.head.startswith("POST /form HTTP/1.1\r\n")
    assert request.body == b"q=\x00\xff"
    wanted = {"user-agent": "them/2", "cookie": "a=1; b=2", "x-crawl": "own", "accept": "text/x"}
    assert {name: request.header(name) for name in wanted} == wanted
    assert request.header("content-type") == "application/x-thing"
    assert page.success
    assert page.request_headers["Content-Type"] == ["application/x-thing"]


async def test_a_requests_own_secret_headers_do_not_follow_a_redirect_to_another_domain(service: Service) -> None:
    """Those that a spider gave to one request; the same domain gets them, and the others go on everywhere."""
    answers: dict[str, bytes] = {}
    async with listening(answers) as (port, heard):
        answers["/in"] = b"302 Found\r\nLocation: /within"
        answers["/within"] = f"302 Found\r\nLocation: http://b.test:{port}/out".encode()
        own = {"Authorization": "Bearer own", "Cookie": "own=1", "X-Key": "own-key", "X-Plain": "plain"}
        terms = Terms(maxdepth=0, cookie="crawl=1", secret_headers=("x-key",), secrets_for=("a.test", "b.test"))
        (page,) = await service.pages(Request(f"http://a.test:{port}/in", terms, Payload(headers=own)))
    names = ("authorization", "cookie", "x-key", "x-plain")
    got = [[request.header(name) for name in names] for request in heard]
    assert got == [[*own.values()], [*own.values()], [None, "crawl=1", None, "plain"]]
    assert page.response_url == f"http://b.test:{port}/out"


@pytest.mark.parametrize(("status", "method", "body"), [(303, "GET", b""), (302, "GET", b""), (307, "POST", b"q=1")])
async def test_a_redirect_of_a_post_keeps_or_loses_its_body(
    service: Service, status: int, method: str, body: bytes
) -> None:
    """As the Fetch standard has it; the record tells the way."""
    answers = {"/form": f"{status} Elsewhere\r\nLocation: /done".encode()}
    async with listening(answers) as (port, heard):
        payload = Payload(method="POST", body=b"q=1", headers={"Content-Type": "text/x"})
        (page,) = await service.pages(Request(f"http://a.test:{port}/form", payload=payload))
    assert [request.head.split(" ", 2)[:2] for request in heard] == [["POST", "/form"], [method, "/done"]]
    assert heard[1].body == body
    assert heard[1].header("content-type") == ("text/x" if body else None)
    assert page.success
    assert page.response_url.endswith("/done")
    assert [hop.status for hop in page.redirects] == [status]


async def test_the_same_url_with_other_bodies_is_other_requests(service: Service) -> None:
    async with listening() as (port, heard):
        url = f"http://a.test:{port}/search"
        bodies = [Payload(method="POST", body=body) for body in (b"1", b"2", b"1")]
        pages = await service.pages(*(Request(url, payload=payload) for payload in bodies), Request(url))
    assert sorted(request.body for request in heard) == [b"", b"1", b"2"]
    assert len({page.request_id for page in pages}) == len(pages) == 3


async def test_a_request_goes_through_its_own_proxy(service: Service, tmp_path: Path) -> None:
    """Others in the same crawl do not, unless the operator has one for all."""
    (tmp_path / "www").mkdir()
    with run_nginx(tmp_path / "www", tmp_path) as nginx, run_http_proxy(user="u", password="secret") as port:
        async with run_socks5(Socks5(names={"b.test": "127.0.0.1", "c.test": "127.0.0.1"})) as socks:
            terms = {
                "http://127.0.0.1": Terms(maxdepth=0, proxy=f"http://u:secret@127.0.0.1:{port}"),
                "http://b.test": Terms(maxdepth=0, proxy=f"socks5h://127.0.0.1:{socks.port}"),
                "http://c.test": Terms(maxdepth=0),
            }
            requests = [Request(f"{start}:{nginx.port}/echo", asked) for start, asked in terms.items()]
            pages = await service.pages(*requests)
            assert {host for host, _ in socks.asked} == {"b.test"}
            run = await service.submit(requests[-1], crawl="operators")
            await service.work(run, fetch__proxy=f"socks5h://127.0.0.1:{socks.port}")
            assert {host for host, _ in socks.asked} == {"b.test", "c.test"}
    assert len(pages) == 3
    assert all(page.body.startswith("GET gossamer/") for page in pages)


async def test_a_private_address_is_the_operators_to_allow(service: Service) -> None:
    """A request cannot: not by its host, not by its proxy, not by where it redirects."""
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("a.test", "/", redirect(f"http://127.0.0.1:{web.port}/secret"))
        urls = [f"http://127.0.0.1:{web.port}/", f"http://localhost:{web.port}/", f"http://a.test:{web.port}/"]
        requests = [Request(url, Terms(maxdepth=0)) for url in urls]
        requests.append(Request("http://1.1.1.1/", Terms(maxdepth=0, proxy=f"http://127.0.0.1:{web.port}")))
        pages = await service.pages(*requests, allow_networks=())
        assert [record.path for record in web.log() if record.host != "a.test"] == []
        assert sorted(page.url for page in pages) == sorted(request.url for request in requests)
        assert all(not page.success for page in pages)
        assert {page.reason for page in pages} == {"blocked_address"}
        # Where the operator names the network it is fetched.
        run = await service.submit(Request(urls[0]), crawl="allowed")
        await service.work(run)
        assert service.records()[-1].status_code == 421  # the fake web has no such host, but it was asked


async def test_max_pages_is_never_exceeded_and_ends_the_run(service: Service) -> None:
    async with serve(WebSpec(hosts=1, pages=60, out_degree=8)) as web:
        run = await service.submit(Request(web.url(), Terms(maxdepth=9)), max_pages=7)
        info = await service.work(run)
        assert info.state is CrawlState.FINISHED
        assert info.total().fetched == 7
        assert info.total().dropped["budget"] > 0
        assert len([record for record in web.log() if record.path != "/robots.txt"]) == 7
    assert len(service.records()) == 7


async def test_every_failure_leaves_one_record_with_its_reason(service: Service, unused_tcp_port: int) -> None:
    scripts = {
        "/robots.txt": [b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"],
        "/not-http": [b"SSH-2.0-OpenSSH_9.6\r\n"],
        "/reset": [Reset()],
        "/half": [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"],
        "/bad-gzip": [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope"],
    }
    async with serve(WebSpec(hosts=1, pages=1)) as web, run_bad_server(scripts) as bad:
        web.mount("a.test", "/error", html("broken", status=500))
        web.mount("a.test", "/loop", redirect("/loop"))
        web.mount("a.test", "/nowhere", redirect("javascript:alert(1)"))
        web.mount("a.test", "/busy", Answer(status=429, headers=(("Retry-After", "0"),)))
        web.mount("a.test", "/stalled", Answer(body=b"xx", ending=Ending.STALL))
        web.mount("a.test", "/robots.txt", plain("User-agent: *\nDisallow: /private"))
        a, b = f"http://a.test:{web.port}", f"http://b.test:{bad.port}"
        wanted = {
            f"{a}/missing": "http_404",
            f"{a}/error": "http_500",
            f"{a}/busy": "http_429",
            f"{a}/loop": "redirect_loop",
            f"{a}/nowhere": "bad_redirect",
            f"{a}/private": "robots",
            f"{a}/stalled": "total_timeout",
            f"{b}/not-http": "bad_response",
            f"{b}/reset": "connection_lost",
            f"{b}/half": "connection_lost",
            f"{b}/bad-gzip": "decode",
            f"http://c.test:{unused_tcp_port}/": "connect",
            "http://no-such-name.invalid/": "dns",
        }
        requests = [Request(url, Terms(maxdepth=0, retries=1, attrs={"of": url})) for url in wanted]
        run = await service.submit(*requests)
        info = await service.work(run, fetch__timeout=0.5)
    records = service.records()
    assert {record.url: record.reason for record in records} == wanted
    assert len(records) == len(wanted)
    assert not any(record.success for record in records)
    assert all(record.attrs == {"of": record.url} for record in records)
    assert info.state is CrawlState.FINISHED
    assert info.total().done == len(wanted)


# --- robots.txt as the operator's choice ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "ignoring", "others"),
    [("obey", "robots", "robots"), ("allow-override", "", "robots"), ("ignore", "", "")],
)
async def test_robots_is_the_operators_choice(service: Service, setting: str, ignoring: str, others: str) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("a.test", "/robots.txt", plain("User-agent: *\nDisallow: /"))
        for path in ("/1", "/2"):
            web.mount("a.test", path, html("page"))
        a = f"http://a.test:{web.port}"
        pages = await service.pages(
            Request(f"{a}/1", Terms(maxdepth=0, ignore_robots=True)),
            Request(f"{a}/2", Terms(maxdepth=0)),
            fetch__robots=setting,
        )
        assert {page.url[-1]: page.reason for page in pages} == {"1": ignoring, "2": others}
        assert ("/robots.txt" in [record.path for record in web.log()]) == (setting != "ignore")


async def test_what_is_waited_for_is_said_and_shown(service: Service) -> None:
    """A site whose robots.txt answers 5xx keeps its pages waiting; another site's pages do not wait."""
    said = asyncio.Event()

    def say(sentence: str) -> None:
        service.said.append(sentence)
        said.set()

    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("a.test", "/robots.txt", html("", status=503))
        web.mount("b.test", "/", html("fine"))
        a, b = f"http://a.test:{web.port}", f"http://b.test:{web.port}"
        await service.submit(Request(f"{a}/"), Request(f"{a}/2"), Request(f"{b}/"))
        async with open_worker(service.settings(), service.frontier, pool="shared", say=say) as worker:
            task = asyncio.create_task(worker.run())
            await asyncio.wait_for(said.wait(), 60)
            tally = worker.tally()
            assert list(tally.waits) == [a]
            assert tally.waits[a].reason == "503"
            worker.stop()
            await asyncio.wait_for(task, 60)
        assert service.said == [
            f"The robots.txt of {a} cannot be fetched (503), so the site's pages wait. "
            "They fail if it still cannot in 24 h (--robots-patience)."
        ]


async def test_a_worker_asks_where_its_requests_come_from(service: Service) -> None:
    """Two that come from two addresses do not share a budget kept per address: one alone could fetch one page."""
    await service.frontier.set_domain_policy(None, DomainPolicy(hits=1, window_seconds=3600, scope=BudgetScope.IP))
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("ip.test", "/", [plain("192.0.2.1"), plain("192.0.2.2")])
        run = await service.submit(*(Request(f"http://a.test:{web.port}{path}") for path in ("/1", "/2", "/3")))
        settings = service.settings(fetch__egress_url=f"http://ip.test:{web.port}/")
        for done in (1, 2):
            async with open_worker(settings, service.frontier, pool="shared") as worker:
                task = asyncio.create_task(worker.run())
                await _until(service, run, lambda info: info.total().done == done)  # noqa: B023
                worker.stop()
                await asyncio.wait_for(task, 60)
        assert len([record for record in web.log() if record.host == "a.test" and record.path != "/robots.txt"]) == 2


async def test_each_proxy_is_its_own_egress(service: Service) -> None:
    """Workers behind one proxy share its address's budget, those behind another have another."""
    await service.frontier.set_domain_policy(None, DomainPolicy(hits=1, window_seconds=3600, scope=BudgetScope.IP))
    with run_http_proxy() as one, run_http_proxy() as other:
        async with serve(WebSpec(hosts=1, pages=1)) as web:
            run = await service.submit(*(Request(f"http://127.0.0.1:{web.port}{path}") for path in ("/1", "/2", "/3")))
            for done, port in ((1, one), (2, other)):
                settings = service.settings(fetch__proxy=f"http://127.0.0.1:{port}")
                async with open_worker(settings, service.frontier, pool="shared") as worker:
                    task = asyncio.create_task(worker.run())
                    await _until(service, run, lambda info: info.total().done == done)  # noqa: B023
                    worker.stop()
                    await asyncio.wait_for(task, 60)
            assert len([record for record in web.log() if record.path != "/robots.txt"]) == 2


# --- spiders ----------------------------------------------------------------------------------------------------------

RELAY = """
from gossamer.worker.spider import Follow, Spider

class Relay(Spider):
    async def parse(self, page):
        yield Follow(url="/goods", spider="goods")
"""


@pytest.fixture
def relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], None]:
    """Install a package with `relay`, which sends links to `goods`, and other names for the built-in spider."""
    folder = tmp_path / "installed"
    about = folder / "relay_spiders-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: relay-spiders\nVersion: 1.0\n")
    (folder / "relay_spiders.py").write_text(RELAY)
    monkeypatch.syspath_prepend(str(folder))

    def install(names: Sequence[str]) -> None:
        lines = ["[gossamer.spiders]", "relay = relay_spiders:Relay"]
        lines += [f"{name} = gossamer.worker.spider:LinkSpider" for name in names]
        (about / "entry_points.txt").write_text("\n".join(lines))

    install(())
    return install


async def test_a_link_to_a_spider_that_is_elsewhere_waits_for_it(
    service: Service, relay: Callable[[Sequence[str]], None]
) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("a.test", "/", html("list"))
        web.mount("a.test", "/goods", html("goods"))
        run = await service.submit(Request(f"http://a.test:{web.port}/", Terms(maxdepth=1), spider="relay"))
        async with open_worker(service.settings(), service.frontier, pool="shared") as worker:
            task = asyncio.create_task(worker.run())
            await _until(service, run, lambda info: info.total().queued == 1 and info.total().fetched == 1)
            worker.stop()
            await asyncio.wait_for(task, 60)
        relay(["goods"])
        info = await service.work(run)
        assert info.state is CrawlState.FINISHED
        assert [(page.spiderid, page.body) for page in service.records()] == [("relay", "list"), ("goods", "goods")]
        assert service.said == []


async def test_a_worker_serves_the_spider_of_a_file(service: Service, tmp_path: Path) -> None:
    (tmp_path / "goods.py").write_text(
        "from gossamer import Spider\n\nclass Goods(Spider):\n    def parse(self, page): return {'text': page.text}"
    )
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("a.test", "/", html("lamp"))
        run = await service.submit(Request(f"http://a.test:{web.port}/", spider="goods"))
        references = [f"{tmp_path}/goods.py"]
        async with open_worker(service.settings(), service.frontier, pool="shared", spiders=references) as worker:
            task = asyncio.create_task(worker.run())
            await _until(service, run, lambda info: info.total().fetched == 1)
            await service.frontier.spiders.refresh(["goods"])
            assert "goods" in service.frontier.spiders.names(), "the service would refuse requests for it"
            worker.stop()
            await asyncio.wait_for(task, 60)
        (item,) = [one for one in records_of(service.folder / "pages.jsonl") if isinstance(one, ItemRecord)]
        assert (item.item, item.spiderid) == ({"text": "lamp"}, "goods")


async def _until(service: Service, run: Run, wanted: Callable[[CrawlInfo], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            info = await service.frontier.crawl_info(run.crawl.id)
            if info is not None and wanted(info):
                return
            await asyncio.sleep(0.01)


async def test_a_request_that_cannot_be_begun_fails_with_a_record_and_harms_no_other(
    service: Service, relay: Callable[[Sequence[str]], None]
) -> None:
    """A spider that does not load, terms and entries of another make: none of them may end the worker."""
    relay(["fine"])
    entries = service.folder / "installed" / "relay_spiders-1.0.dist-info" / "entry_points.txt"
    entries.write_text(f"{entries.read_text()}\nbroken = relay_spiders:Missing\n")
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("a.test", "/", html("page"))
        a = f"http://a.test:{web.port}"
        run = await service.submit(
            Request(f"{a}/1", spider="broken"),
            Request(f"{a}/2", Terms(maxdepth=0, allow_regex=("(",), attrs={"n": 1})),
            Request(f"{a}/", spider="fine"),
        )
        strange = Request(f"{a}/3").batch(service.frontier.secret)
        strange.payloads = [b"\x93 not a payload"]
        await service.frontier.add(run, Terms(maxdepth=0), [strange], seeds=True)
        info = await service.work(run)
        assert {record.path for record in web.log()} == {"/robots.txt", "/"}
    assert info.state is CrawlState.FINISHED
    found = {page.url.removeprefix(a): page for page in service.records()}
    assert {path: page.reason for path, page in found.items()} == {
        "/1": "spider_error",
        "/2": "bad_entry",
        "/3": "bad_entry",
        "/": "",
    }
    assert "broken" in found["/1"].exception
    assert "allow" in found["/2"].exception
    assert found["/2"].attrs == {"n": 1}
    assert info.total().failed == {"spider_error": 1, "bad_entry": 2}


# --- pages on the bus -------------------------------------------------------------------------------------------------


async def test_pages_for_the_bus_name_their_links_and_binaries_are_base64(service: Service) -> None:
    """Links are there although nothing of the page is followed, and although the request did not ask for them."""
    settings = bus_worker_settings(service.settings())
    shards = await Shards.connect(service.address)
    bus = make_bus(settings, shards)
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("a.test", "/", html('<a href="/x">the <b>x</b></a> <a href="http://b.test/" rel=nofollow>b</a>'))
        web.mount("a.test", "/blob", Answer(headers=(("Content-Type", "application/x-thing"),), body=b"\x00\xff\xfe"))
        a = f"http://a.test:{web.port}"
        run = await service.submit(Request(f"{a}/"), Request(f"{a}/blob"), Request(f"{a}/missing"))
        sink = make_bus_sink(settings, bus)
        async with open_worker(settings, service.frontier, pool="shared", run=run, bus=sink) as worker:
            await asyncio.wait_for(worker.run(), 60)
        reader = await bus.read([Topics(settings.topics.prefix).crawled], from_beginning=True)
        found: dict[str, dict[str, Any]] = {}
        async with asyncio.timeout(60):
            while len(found) < 3:
                for message in await reader.take(at_most=10, wait_seconds=1):
                    page = msgspec.json.decode(message.value)
                    found[page["url"].removeprefix(a)] = page
        await reader.close()
    await bus.close()
    await shards.close()
    assert found["/"]["links"] == [{"url": f"{a}/x", "text": "the x"}, {"url": "http://b.test/", "text": "b"}]
    assert (found["/blob"]["body_encoding"], base64.b64decode(found["/blob"]["body"])) == ("base64", b"\x00\xff\xfe")
    assert (found["/missing"]["success"], found["/missing"]["reason"]) == (False, "http_404")
    assert found["/missing"]["links"] == []
