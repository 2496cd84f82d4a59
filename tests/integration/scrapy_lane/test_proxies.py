"""Scrapy processes with several proxies, of which one fails and one is banned; with and without the frontier."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gossamer.control import domains
from gossamer.fakeweb import WebSpec, serve
from gossamer.model.crawl import BudgetScope, DomainPolicy
from tests.integration.scrapy_lane.lane import asking, counts, prefix
from tests.integration.test_fetch_proxies import tls_server
from tests.servers.bad_http import run_bad_server
from tests.servers.certificates import Authority
from tests.servers.forwarding import ForwardingProxy, run_forwarding
from tests.servers.program import until
from tests.servers.scraping import Scraper
from tests.servers.valkey import Server

SPIDERS = Path(__file__).parent / "proxy_spiders.py"
LOUD = {"EXTENSIONS": "{}", "LOG_LEVEL": "DEBUG"}
PLAIN = {"DOWNLOADER_MIDDLEWARES": json.dumps({"gossamer.scrapy.ProxyPoolMiddleware": 740})}


def crawler(
    folder: Path,
    urls: Sequence[str],
    server: Server | None = None,
    *,
    name: str = "one",
    arguments: Mapping[str, str] | None = None,
    **settings: Any,
) -> Scraper:
    """A process that requests these; without a server, it is plain Scrapy."""
    own: dict[str, Any] = PLAIN if server is None else {
        "ADDONS": json.dumps({"gossamer.scrapy.Addon": 0}), "GOSSAMER_PREFIX": prefix(folder),
    }  # fmt: skip
    return Scraper(
        folder, "proxied", frontier=None if server is None else server.address, settings=LOUD | own | settings,
        arguments={"urls": ",".join(urls), **(arguments or {})}, file=SPIDERS, name=name,
    )  # fmt: skip


def urls_at(port: int, *hosts: str, pages: int = 8) -> list[str]:
    return [f"http://{host}:{port}/p/{page}" for host in hosts for page in range(1, pages + 1)]


@pytest.mark.parametrize("shared", [False, True], ids=["plain", "frontier"])
async def test_failing_and_banned_proxies_are_left_out(tmp_path: Path, server: Server, shared: bool) -> None:
    away, banned = ForwardingProxy(), ForwardingProxy(bans={"site0.test": 403})
    good = ForwardingProxy(password="Basic dXNlcjpoaWRkZW4=")
    async with serve(WebSpec(hosts=2, pages=20)) as web, run_forwarding(banned, good):
        async with run_forwarding(away):
            pass  # its port is free now
        proxies = [away.url, banned.url, f"http://user:hidden@127.0.0.1:{good.port}\n  X-Proxy-Country: de"]
        urls = urls_at(web.port, "site0.test", "site1.test")
        with crawler(tmp_path, urls, server if shared else None, GOSSAMER_PROXIES=" ".join(proxies)) as scraper:
            await asyncio.to_thread(scraper.finish)
        seen = [record for record in web.log() if record.path != "/robots.txt"]
    assert sorted((item["url"], item["status"]) for item in scraper.items) == sorted((url, 200) for url in urls)
    assert len(seen) == len(urls)
    assert good.pages("site0.test") == 8
    assert banned.pages("site1.test") > 0
    assert {one.headers.get("x-proxy-country") for one in good.asked} == {"de"}
    written = json.dumps(scraper.items) + scraper.log
    for secret in ("hidden", "dXNlcjpoaWRkZW4", "x-proxy-country", f":{good.port}", f":{away.port}", f":{banned.port}"):
        assert secret not in written.lower().replace(json.dumps(proxies).lower(), "")


async def test_proxies_that_nothing_uses_are_refused(tmp_path: Path, server: Server) -> None:
    """The scheduler alone would let the requests out directly."""
    async with serve(WebSpec(hosts=1, pages=20)) as web:
        settings = {"EXTENSIONS": "{}", "GOSSAMER_PREFIX": prefix(tmp_path), "GOSSAMER_PROXIES": "http://127.0.0.1:1"}
        urls = ",".join(urls_at(web.port, "site0.test"))
        with Scraper(
            tmp_path, "proxied", frontier=server.address, settings=settings, arguments={"urls": urls}, file=SPIDERS
        ) as scraper:
            await asyncio.to_thread(scraper.finish)
        assert web.log() == []
    assert "requests would go out directly" in scraper.log


async def test_a_domain_keeps_its_proxy(tmp_path: Path) -> None:
    proxies = [ForwardingProxy() for _ in range(3)]
    async with serve(WebSpec(hosts=4, pages=20)) as web, run_forwarding(*proxies):
        hosts = [f"site{number}.test" for number in range(4)]
        text = " ".join(proxy.url for proxy in proxies)
        with crawler(
            tmp_path, urls_at(web.port, *hosts), GOSSAMER_PROXIES=text, GOSSAMER_PROXY_STICKY="true"
        ) as scraper:
            await asyncio.to_thread(scraper.finish)
    for host in hosts:
        assert sorted(proxy.pages(host) for proxy in proxies) == [0, 0, 8]


async def test_nothing_goes_out_directly_while_all_proxies_rest(tmp_path: Path) -> None:
    gone = ForwardingProxy(), ForwardingProxy()
    async with serve(WebSpec(hosts=1, pages=20)) as web:
        async with run_forwarding(*gone):
            pass
        text = " ".join(proxy.url for proxy in gone)
        with crawler(
            tmp_path, urls_at(web.port, "site0.test", pages=2), GOSSAMER_PROXIES=text, GOSSAMER_PROXY_PATIENCE="0.2"
        ) as scraper:
            await asyncio.to_thread(scraper.finish)
        assert web.log() == []
    assert len(scraper.items) == 2
    assert all("all 2 proxies rest" in item["error"] for item in scraper.items)
    assert not [proxy for proxy in gone if str(proxy.port) in json.dumps([item["error"] for item in scraper.items])]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ftp://u:hidden@x", "GOSSAMER_PROXIES: cannot use ftp://x"),
        ("socks5://x", "http:// and https:// proxies only"),
        ("https://x", "need gossamer.scrapy.download_handler"),
        ("", "is not set"),
    ],
)
async def test_wrong_proxies_are_refused_at_the_start(tmp_path: Path, given: str, message: str) -> None:
    async with serve(WebSpec(hosts=1, pages=20)) as web:
        with crawler(tmp_path, urls_at(web.port, "site0.test"), GOSSAMER_PROXIES=given) as scraper:
            await asyncio.to_thread(scraper.finish)
        assert web.log() == []
    assert message in scraper.log
    assert not scraper.items


async def until_async(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(until, condition, "requests through the proxies")


BUDGET = {"GOSSAMER_PROXY_BUDGET": "address"}
THREE_AN_HOUR = DomainPolicy(hits=3, window_seconds=3600, moderated=False, concurrency=16, scope=BudgetScope.IP)


async def test_budgets_of_addresses_are_exact_for_all_processes_together(tmp_path: Path, server: Server) -> None:
    """Three hits in an hour for each of two proxies: six pages by two processes, three through each proxy."""
    one, two = ForwardingProxy(), ForwardingProxy()
    sites = ("site0.test", "site1.test")
    async with serve(WebSpec(hosts=2, pages=40)) as web, run_forwarding(one, two):
        async with asking(tmp_path, server) as frontier:
            await domains.change_policy(frontier, None, THREE_AN_HOUR)
        # The other process has another name of a user for one of them, which is the same address.
        lists = [f"{one.url} {two.url}", f"{two.url} http://user:hidden@127.0.0.1:{one.port}"]
        with contextlib.ExitStack() as stack:
            for number, text in enumerate(lists):
                urls = urls_at(web.port, *sites, pages=20)
                settings = BUDGET | {"GOSSAMER_PROXIES": text}
                stack.enter_context(crawler(tmp_path, urls, server, name=f"p{number}", **settings))
            await until_async(lambda: sum(proxy.pages(site) for proxy in (one, two) for site in sites) >= 12)
            while (await counts(tmp_path, server, "proxied")).done < 12:  # noqa: ASYNC110 (of other processes)
                await asyncio.sleep(0.05)
        assert [[proxy.pages(site) for proxy in (one, two)] for site in sites] == [[3, 3], [3, 3]]


async def test_with_budgets_of_addresses_failing_and_banned_proxies_are_left_out(
    tmp_path: Path, server: Server
) -> None:
    away, banned, good = ForwardingProxy(), ForwardingProxy(bans={"site0.test": 403}), ForwardingProxy()
    policy = DomainPolicy(hits=20, window_seconds=1, moderated=False, concurrency=16, scope=BudgetScope.IP)
    async with serve(WebSpec(hosts=2, pages=20)) as web, run_forwarding(banned, good):
        async with run_forwarding(away):
            pass
        async with asking(tmp_path, server) as frontier:
            await domains.change_policy(frontier, None, policy)
        urls = urls_at(web.port, "site0.test", "site1.test")
        settings = BUDGET | {"GOSSAMER_PROXIES": f"{away.url} {banned.url} {good.url}"}
        with crawler(tmp_path, urls, server, **settings) as scraper:
            await asyncio.to_thread(scraper.finish)
    assert sorted((item["url"], item["status"]) for item in scraper.items) == sorted((url, 200) for url in urls)
    assert good.pages("site0.test") == 8
    assert f":{good.port}" not in json.dumps(scraper.items)


async def test_requests_of_the_engine_are_charged_to_the_address_of_their_proxy(tmp_path: Path, server: Server) -> None:
    one, two = ForwardingProxy(), ForwardingProxy()
    async with serve(WebSpec(hosts=2, pages=20)) as web, run_forwarding(one, two):
        async with asking(tmp_path, server) as frontier:
            await domains.change_policy(frontier, None, THREE_AN_HOUR)
        settings = BUDGET | {"GOSSAMER_PROXIES": f"{one.url} {two.url}"}
        more = ",".join(urls_at(web.port, "site1.test", pages=20))
        urls = urls_at(web.port, "site0.test", pages=1)
        with crawler(tmp_path, urls, server, arguments={"downloads": more}, **settings):
            await until_async(lambda: one.pages("site1.test") + two.pages("site1.test") >= 6)
        assert [proxy.pages("site1.test") for proxy in (one, two)] == [3, 3]


async def test_budgets_of_addresses_need_the_frontier(tmp_path: Path) -> None:
    settings = BUDGET | {"GOSSAMER_PROXIES": "http://127.0.0.1:1 http://127.0.0.1:2"}
    with crawler(tmp_path, ["http://site0.test/"], **settings) as scraper:
        await asyncio.to_thread(scraper.finish)
    assert "GOSSAMER_PROXY_BUDGET = address needs the shared frontier" in scraper.log
    assert not scraper.items


OWN_HANDLER = {
    "DOWNLOAD_HANDLERS": json.dumps(
        dict.fromkeys(("http", "https"), "gossamer.scrapy.download_handler.DownloadHandler")
    )
}


@pytest.mark.parametrize("shared", [False, True], ids=["plain", "frontier"])
async def test_proxies_that_speak_tls(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Tunnels and plain requests; one proxy is away, one has another certificate, one bans, one wants a password."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    tls = tls_server(authority.issue("localhost"))
    away, banned = ForwardingProxy(tls=tls), ForwardingProxy(bans={"site0.test": 403}, tls=tls)
    other = ForwardingProxy(tls=tls_server(authority.issue("other.test")))
    good = ForwardingProxy(password="Basic dXNlcjpoaWRkZW4=", tls=tls)
    own = {"GOSSAMER_PREFIX": prefix(tmp_path)} if shared else OWN_HANDLER
    async with (
        serve(WebSpec(hosts=2, pages=20)) as web,
        serve(WebSpec(hosts=2, pages=20), tls=True) as secure,
        run_bad_server({"/": [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]}, tls=tls) as site,
        run_forwarding(banned, other, good),
    ):
        async with run_forwarding(away):
            pass
        addresses = [f"https://localhost:{one.port}" for one in (away, banned, other)]
        text = f"https://user:hidden@localhost:{good.port}\n  X-Proxy-Country: de\n{' '.join(addresses)}"
        urls = urls_at(web.port, "site0.test", "site1.test", pages=4)
        urls += [url.replace("http:", "https:") for url in urls_at(secure.port, "site0.test", "site1.test", pages=4)]
        urls.append(f"https://site2.test:{site.port}/")
        with crawler(tmp_path, urls, server if shared else None, GOSSAMER_PROXIES=text, **own) as scraper:
            await asyncio.to_thread(scraper.finish)
        heads = b"".join(site.requests).decode().lower()
    assert sorted((item["url"], item["status"]) for item in scraper.items) == sorted((url, 200) for url in urls)
    assert {one.headers.get("x-proxy-country") for one in good.asked} == {"de"}
    assert good.pages("site0.test") > 0
    assert other.asked == []
    assert "get / http/1.1" in heads
    assert "proxy" not in heads
    written = json.dumps(scraper.items) + scraper.log
    for secret in ("hidden", "dXNlcjpoaWRkZW4", "x-proxy-country", *(f":{one.port}" for one in (away, banned, good))):
        assert secret not in written.lower().replace(json.dumps(text).lower(), "")
        assert secret.lower() not in heads
