"""A worker with several proxies, of which one fails and one is banned."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gossamer.fakeweb import WebSpec, serve
from gossamer.model.crawl import BudgetScope, DomainPolicy, Terms
from gossamer.policy.proxies import ProxyPool, ProxyRests
from gossamer.wiring.worker import open_worker
from tests.integration.test_worker_service import Request, Service, _until, open_service
from tests.servers.certificates import Authority
from tests.servers.forwarding import ForwardingProxy, run_forwarding
from tests.servers.http_proxy import run_http_proxy
from tests.servers.nginx import run_nginx
from tests.servers.socks5 import Socks5, run_socks5


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with open_service(tmp_path) as found:
        yield found


def requests_for(port: int, *hosts: str, pages: int = 12) -> list[Request]:
    return [
        Request(f"http://{host}:{port}/p/{page}", Terms(maxdepth=0)) for host in hosts for page in range(1, pages + 1)
    ]


def listed(*proxies: ForwardingProxy) -> str:
    return " ".join(proxy.url for proxy in proxies)


async def test_requests_take_turns_and_none_goes_out_directly(service: Service) -> None:
    one, two, three = ForwardingProxy(), ForwardingProxy(), ForwardingProxy()
    async with serve(WebSpec(hosts=1, pages=20)) as web, run_forwarding(one, two, three):
        pages = await service.pages(*requests_for(web.port, "site0.test"), fetch__proxy=listed(one, two, three))
        seen = len([record for record in web.log() if record.path != "/robots.txt"])
    assert [page.status_code for page in pages] == [200] * 12
    assert seen == 12
    assert [proxy.pages("site0.test") for proxy in (one, two, three)] == [4, 4, 4]


async def test_a_domain_keeps_its_proxy(service: Service) -> None:
    proxies = [ForwardingProxy() for _ in range(3)]
    hosts = [f"site{number}.test" for number in range(8)]
    async with serve(WebSpec(hosts=8, pages=20)) as web, run_forwarding(*proxies):
        await service.pages(
            *requests_for(web.port, *hosts, pages=4), fetch__proxy=listed(*proxies), fetch__proxy_sticky=True
        )
    for host in hosts:
        assert sorted(proxy.pages(host) for proxy in proxies) == [0, 0, 4]


async def test_a_proxy_that_is_away_costs_no_attempt_and_comes_back(service: Service) -> None:
    """Nothing is retried, because the site saw nothing; when the proxy listens again, it is used again."""
    good, late = ForwardingProxy(), ForwardingProxy()
    async with serve(WebSpec(hosts=1, pages=80)) as web, run_forwarding(good):
        async with run_forwarding(late):
            pass  # its port is free now
        settings = {"fetch__proxy": listed(late, good), "fetch__proxy_rest": 0.01, "fetch__proxy_longest_rest": 0.02}
        first = await service.pages(*requests_for(web.port, "site0.test"), **settings)
        assert {(page.status_code, page.attempt) for page in first} == {(200, 0)}
        assert good.pages("site0.test") == 12
        assert service.tally.proxies.keys() == {"unusable"}
        async with run_forwarding(late):
            run = await service.submit(*requests_for(web.port, "site0.test", pages=60), crawl="later")
            await service.work(run, **settings)
    assert late.pages("site0.test") > 0


async def test_a_site_that_bans_a_proxy_is_fetched_through_others(service: Service) -> None:
    for status in (403, 429):
        banned, good = ForwardingProxy(bans={"site0.test": status}), ForwardingProxy()
        async with serve(WebSpec(hosts=2, pages=20)) as web, run_forwarding(banned, good):
            run = await service.submit(*requests_for(web.port, "site0.test", "site1.test"), crawl=f"c{status}")
            await service.work(run, fetch__proxy=listed(banned, good))
        assert service.tally.proxies.keys() == {"refused"}
        assert banned.pages("site1.test") > 0  # only that site refuses it
        assert good.pages("site0.test") == 12
    assert {page.status_code for page in service.records()} == {200}
    assert len(service.records()) == 2 * 24


@pytest.mark.parametrize("robots", [429, 503, -1, -2])
async def test_a_robots_txt_that_one_proxy_does_not_get_is_fetched_through_another(
    service: Service, robots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal of one proxy, or silence, must not make the site's pages wait for a minute."""
    monkeypatch.setattr("gossamer.worker.proxies._ROBOTS_TRY_SECONDS", 0.2)
    banned, good = ForwardingProxy(robots=robots), ForwardingProxy()
    async with serve(WebSpec(hosts=1, pages=20)) as web, run_forwarding(banned, good):
        pages = await service.pages(
            *requests_for(web.port, "site0.test"),
            fetch__proxy=listed(banned, good), fetch__proxy_ban_statuses=(403, 429, 503),
        )  # fmt: skip
    assert {(page.status_code, page.attempt) for page in pages} == {(200, 0)}
    assert (banned.robots_asked(), good.robots_asked()) == (1, 1)
    assert service.tally.proxies == {"refused" if robots > 0 else "no_response": 1}
    assert good.pages("site0.test") == 12  # the refused one rests


@pytest.mark.parametrize(("status", "sticky"), [(502, False), (503, True), (504, False)])
async def test_a_proxy_that_answers_robots_txt_with_a_failure_makes_no_page_wait(
    service: Service, status: int, sticky: bool
) -> None:
    """Proxies answer so themselves when they cannot connect. It may be the site, too, so the proxy does not rest."""
    failing, good = ForwardingProxy(), ForwardingProxy()
    async with serve(WebSpec(hosts=1, pages=20)) as web, run_forwarding(failing, good):
        pool = ProxyPool([failing.url, good.url], sticky=sticky, rests=ProxyRests())
        if pool.choose("site0.test", now=0) == good.url:  # the one that a domain keeps
            failing, good = good, failing
        failing.robots = status
        pages = await service.pages(
            *requests_for(web.port, "site0.test"), fetch__proxy=listed(failing, good), fetch__proxy_sticky=sticky
        )
    assert {(page.status_code, page.attempt) for page in pages} == {(200, 0)}
    assert (failing.robots_asked(), good.robots_asked()) == (1, 1)
    assert service.tally.proxies == {}
    assert failing.pages("site0.test") + good.pages("site0.test") == 12


async def test_a_robots_txt_that_no_proxy_gets_is_asked_for_a_few_times(service: Service) -> None:
    proxies = [ForwardingProxy(robots=status) for status in (429, 503, 429, 503, 429)]
    async with serve(WebSpec(hosts=1, pages=20)) as web, run_forwarding(*proxies):
        run = await service.submit(*requests_for(web.port, "site0.test"))
        settings = service.settings(fetch__proxy=listed(*proxies))
        async with open_worker(settings, service.frontier, pool="shared", run=run) as worker:
            working = asyncio.create_task(worker.run())
            await _until(service, run, lambda info: bool(worker.tally().waits))
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        assert web.log() == []
    assert sum(proxy.robots_asked() for proxy in proxies) == 3


async def test_a_robots_txt_that_is_refused_with_403_allows_everything_whichever_proxy_asks(service: Service) -> None:
    """And is no reason to let the proxy rest."""
    proxies = [ForwardingProxy(robots=403) for _ in range(2)]
    async with serve(WebSpec(hosts=1, pages=20)) as web, run_forwarding(*proxies):
        pages = await service.pages(*requests_for(web.port, "site0.test"), fetch__proxy=listed(*proxies))
    assert {page.status_code for page in pages} == {200}
    assert sum(proxy.robots_asked() for proxy in proxies) == 1
    assert service.tally.proxies == {}


async def test_a_ban_of_all_proxies_is_recorded(service: Service) -> None:
    proxies = [ForwardingProxy(bans={"site0.test": 403}) for _ in range(2)]
    async with serve(WebSpec(hosts=1, pages=20)) as web, run_forwarding(*proxies):
        (page,) = await service.pages(
            *requests_for(web.port, "site0.test", pages=1), fetch__proxy=listed(*proxies), fetch__retry_base=0
        )
    assert (page.status_code, page.reason) == (403, "http_403")
    assert [proxy.pages("site0.test") for proxy in proxies] == [1, 1]


async def test_where_no_proxy_works_the_request_fails_and_names_no_address(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    gone = ForwardingProxy(), ForwardingProxy(password="other")
    async with serve(WebSpec(hosts=1, pages=20)) as web, run_forwarding(gone[1]):
        async with run_forwarding(gone[0]):
            pass
        text = " ".join(f"http://user:hidden@127.0.0.1:{proxy.port}" for proxy in gone)
        (page,) = await service.pages(
            *requests_for(web.port, "site0.test", pages=1),
            fetch__proxy=text, fetch__retries=1, fetch__retry_base=0.01, fetch__proxy_rest=0.05,
        )  # fmt: skip
        assert web.log() == []  # nothing went out directly
    assert page.reason == "proxy"
    assert "of 2" in page.exception or "all 2 proxies rest" in page.exception
    written = (service.folder / "pages.jsonl").read_text() + caplog.text + " ".join(service.said)
    assert "hidden" not in written
    for proxy in gone:
        assert str(proxy.port) not in json.dumps(page.exception) + " ".join(service.said)


@pytest.mark.parametrize("count", [1, 3])
async def test_proxies_of_an_application_that_cannot_be_used_are_counted_and_named_once(
    service: Service, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    gone = [ForwardingProxy() for _ in range(count)]
    async with run_forwarding(*gone):
        pass  # their ports are free now
    pages = await service.pages(
        *requests_for(9, "site0.test", pages=3),
        fetch__app_proxies={"app": listed(*gone)}, fetch__retries=1, fetch__retry_base=0.01, fetch__proxy_rest=0.05,
        fetch__robots="ignore",
    )  # fmt: skip
    assert {page.reason for page in pages} == {"proxy"}
    assert service.tally.proxies.keys() == {"unusable"}
    (told,) = [one for one in service.said if "application app" in one]
    assert ("The proxy of" if count == 1 else "None of the 3 proxies of") in told
    assert caplog.text.count("trouble_began proxies:app: ") == caplog.text.count("trouble_began") == 1
    assert service.tally.troubles == ["proxies:app"]
    assert not any(str(proxy.port) in told + caplog.text for proxy in gone)


async def test_a_single_proxy_that_comes_back_ends_the_trouble(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    away, began = ForwardingProxy(), asyncio.Event()
    async with run_forwarding(away):
        pass  # its port is free now
    settings = service.settings(
        fetch__proxy=away.url, fetch__retries=20, fetch__retry_base=0.01, fetch__robots="ignore"
    )

    def say(message: str) -> None:
        if "The proxy of the application app cannot be used" in message:
            began.set()

    async with serve(WebSpec(hosts=1, pages=20)) as web:
        run = await service.submit(*requests_for(web.port, "site0.test", pages=3))
        async with open_worker(settings, service.frontier, pool="shared", run=run, say=say) as worker:
            task = asyncio.create_task(worker.run())
            await asyncio.wait_for(began.wait(), 60)
            async with run_forwarding(away):
                await asyncio.wait_for(task, 60)
            assert worker.tally().troubles == []
    assert [page.status_code for page in service.records()] == [200] * 3
    assert caplog.text.count("trouble_began proxies: ") == 1
    assert caplog.text.count("trouble_ended proxies") == 1


async def test_the_proxies_of_a_request_and_of_an_application(service: Service) -> None:
    operators, apps, own = ForwardingProxy(), ForwardingProxy(), ForwardingProxy()
    async with serve(WebSpec(hosts=1, pages=20)) as web, run_forwarding(operators, apps, own):
        settings = {"fetch__proxy": operators.url, "fetch__app_proxies": {"app": apps.url}}
        await service.pages(Request(f"http://site0.test:{web.port}/p/1"), **settings)
        run = await service.submit(
            Request(f"http://site0.test:{web.port}/p/2", Terms(maxdepth=0, proxy=own.url)), crawl="own"
        )
        await service.work(run, **settings)
    assert [proxy.pages("site0.test") for proxy in (operators, apps, own)] == [0, 1, 1]


async def test_headers_and_keys_reach_the_proxy_and_no_one_else(service: Service) -> None:
    api = ForwardingProxy(password="Basic S0VZOg==")
    async with serve(WebSpec(hosts=1, pages=20)) as web, run_forwarding(api):
        text = f"http://KEY:@127.0.0.1:{api.port}\n  X-Proxy-Country: de"
        (page,) = await service.pages(*requests_for(web.port, "site0.test", pages=1), fetch__proxy=text)
    assert page.status_code == 200
    assert {one.headers["x-proxy-country"] for one in api.asked} == {"de"}
    assert "country" not in json.dumps(page.request_headers).lower()


async def test_a_tunnel_gets_headers_of_its_own_proxy_only(service: Service, tmp_path: Path) -> None:
    """One pool of an HTTP proxy with headers, which makes a tunnel for an https URL, and of a SOCKS5 proxy."""
    api = ForwardingProxy(password="Basic S0VZOg==")
    for folder in ("authority", "www"):
        (tmp_path / folder).mkdir()
    authority = Authority(tmp_path / "authority")
    for page in range(4):
        (tmp_path / "www" / f"{page}").write_text("behind")
    with run_nginx(tmp_path / "www", tmp_path, chain=authority.issue("site0.test")) as site:
        async with run_forwarding(api), run_socks5(Socks5(names={"site0.test": "127.0.0.1"})) as socks:
            text = f"http://KEY:@127.0.0.1:{api.port}\n  X-Proxy-Country: de\nsocks5h://127.0.0.1:{socks.port}"
            pages = await service.pages(
                *(Request(f"https://site0.test:{site.tls_port}/{page}") for page in range(4)),
                fetch__proxy=text, fetch__ca_file=str(authority.ca), fetch__robots="ignore",
            )  # fmt: skip
    assert [page.status_code for page in pages] == [200] * 4
    assert {one.headers["x-proxy-country"] for one in api.asked} == {"de"}
    assert "country" not in json.dumps([page.request_headers for page in pages]).lower()
    assert socks.asked == [("site0.test", site.tls_port)] * len(socks.asked)
    assert len(api.asked) >= 1 <= len(socks.asked)
    assert service.tally.proxies == {}


async def test_a_site_that_is_down_makes_no_proxy_rest_for_others(service: Service, unused_tcp_port: int) -> None:
    """Through processes of a real proxy, which answer 502 for the site that is down."""
    with run_http_proxy() as one, run_http_proxy() as two:
        async with serve(WebSpec(hosts=1, pages=20)) as web:
            requests = [Request(f"https://localhost:{unused_tcp_port}/{page}") for page in range(6)]
            requests += [Request(f"http://127.0.0.1:{web.port}/p/{page}") for page in range(6)]
            pages = await service.pages(
                *requests,
                fetch__proxy=f"http://127.0.0.1:{one} http://127.0.0.1:{two}", fetch__retries=0, fetch__robots="ignore",
            )  # fmt: skip
    reached = [page for page in pages if page.status_code]
    assert len(reached) == 6
    assert len(pages) == 12


# --- a budget for each address ----------------------------------------------------------------------------------------


async def test_budgets_of_addresses_are_exact_for_all_workers_together(service: Service) -> None:
    """Three hits in an hour for each of two proxies: six pages by two workers, three through each proxy."""
    policy = DomainPolicy(hits=3, window_seconds=3600, moderated=False, concurrency=16, scope=BudgetScope.IP)
    await service.frontier.set_domain_policy(None, policy)
    one, two = ForwardingProxy(), ForwardingProxy()
    async with serve(WebSpec(hosts=2, pages=40)) as web, run_forwarding(one, two):
        run = await service.submit(*requests_for(web.port, "site0.test", "site1.test", pages=30))
        settings = service.settings(fetch__proxy=listed(one, two), fetch__proxy_budget="address")
        async with (
            open_worker(settings, service.frontier, pool="shared") as first,
            open_worker(settings, service.frontier, pool="shared") as second,
        ):
            tasks = [asyncio.create_task(worker.run()) for worker in (first, second)]
            await _until(service, run, lambda info: info.total().done == 12)
            for worker in (first, second):
                worker.stop()
            await asyncio.wait_for(asyncio.gather(*tasks), 60)
    for site in ("site0.test", "site1.test"):
        assert [proxy.pages(site) for proxy in (one, two)] == [3, 3]


async def test_the_budget_of_all_proxies_together_does_not_grow_with_their_number(service: Service) -> None:
    policy = DomainPolicy(hits=3, window_seconds=3600, moderated=False, concurrency=16)
    await service.frontier.set_domain_policy(None, policy)
    proxies = [ForwardingProxy() for _ in range(3)]
    async with serve(WebSpec(hosts=1, pages=40)) as web, run_forwarding(*proxies):
        run = await service.submit(*requests_for(web.port, "site0.test", pages=30))
        for budget in ("shared", "address"):
            settings = service.settings(fetch__proxy=listed(*proxies), fetch__proxy_budget=budget)
            async with open_worker(settings, service.frontier, pool="shared") as worker:
                task = asyncio.create_task(worker.run())
                await _until(service, run, lambda info: info.total().done == 3)
                worker.stop()
                await asyncio.wait_for(task, 60)
    assert sum(proxy.pages("site0.test") for proxy in proxies) == 3


async def test_with_budgets_of_addresses_failing_and_banned_proxies_are_left_out(service: Service) -> None:
    policy = DomainPolicy(hits=50, window_seconds=1, moderated=False, concurrency=16, scope=BudgetScope.IP)
    await service.frontier.set_domain_policy(None, policy)
    away, banned, good = ForwardingProxy(), ForwardingProxy(bans={"site0.test": 403}), ForwardingProxy()
    async with serve(WebSpec(hosts=2, pages=20)) as web, run_forwarding(banned, good):
        async with run_forwarding(away):
            pass  # its port is free now
        pages = await service.pages(
            *requests_for(web.port, "site0.test", "site1.test"),
            fetch__proxy=listed(away, banned, good), fetch__proxy_budget="address",
        )  # fmt: skip
    assert [page.status_code for page in pages] == [200] * 24
    assert good.pages("site0.test") == 12
    assert good.pages("site1.test") + banned.pages("site1.test") == 12


async def test_with_budgets_of_addresses_a_request_may_not_name_others(service: Service) -> None:
    one, two = ForwardingProxy(), ForwardingProxy()
    async with serve(WebSpec(hosts=1, pages=20)) as web, run_forwarding(one, two):
        request = Request(f"http://site0.test:{web.port}/p/1", Terms(maxdepth=0, proxy=one.url))
        (page,) = await service.pages(request, fetch__proxy=listed(one, two), fetch__proxy_budget="address")
        assert web.log() == []
    assert page.reason == "bad_request"
    assert "fetch.proxy_budget" in page.exception
