"""The dashboard on a real service: its pages, who may see them, and what a browser finds in them."""

import asyncio
import contextlib
import re
import shlex
import time
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import msgspec
import pytest

from gossamer.control.stats import INTAKE
from gossamer.dashboard.app import OWN_ROUTES
from gossamer.dashboard.crawl_section import ROUTES
from gossamer.dashboard.sessions import COOKIE, SESSION_SECONDS, Sessions
from gossamer.fetch.robots_service import RobotsRecord, pack
from gossamer.history.audit import HistoryAudit
from gossamer.history.store import HistoryStore
from gossamer.model.crawl import Crawl, CrawlId
from gossamer.model.info import CrawlInfo
from gossamer.model.request import Outcome, Settlement
from gossamer.policy.robots import RobotsOutcome
from tests.servers.browser import beyond_the_keyboard, beyond_the_sides, browser, unusable

from .conftest import Service, Start

TOKEN = "a long wörd nobody guesses"
HOSTILE = "<img/src=x/onerror=alert(1)>"
PAGES = [*OWN_ROUTES, *(path for path, route in ROUTES.items() if route.method == "GET")]
CHANGES = [path for path, route in ROUTES.items() if route.method == "POST"]
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def submit(service: Service, crawlid: str, **fields: str) -> httpx.Response:
    form = {"url": "http://a.test/", "appid": "shop", "crawlid": crawlid, **fields}
    return await service.http.post("/ui/crawls/submit", data=form)


async def text(service: Service, path: str, **query: str) -> str:
    answer = await service.http.get(f"/ui{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_a_browser_is_sent_to_the_dashboard_and_a_program_gets_the_state(service: Service) -> None:
    sent = await service.http.get("/", headers=BROWSER)
    assert (sent.status_code, sent.headers["location"]) == (303, "/ui/")
    below = {**BROWSER, "X-Forwarded-Prefix": "/below/us"}  # of a proxy that serves the service there
    assert (await service.http.get("/", headers=below)).headers["location"] == "/below/us/ui/"
    page = (await service.http.get("/ui/", headers=below)).text
    links = set(re.findall(r'(?:href|src|action|data-refresh)="(/[^"]*)"', page))
    assert links
    assert all(link.startswith("/below/us/ui/") for link in links)
    for accepted in ("*/*", "application/json", "application/json, text/html"):
        answer = await service.http.get("/", headers={"Accept": accepted})
        assert answer.json()["node_health"] == "GREEN"


async def test_a_crawl_is_submitted_shown_listed_and_stopped(service: Service) -> None:
    sent = await submit(service, "spring", maxdepth="2", allowed_domains="a.test\nb.test")
    assert (sent.status_code, sent.headers["location"]) == (303, "/ui/crawl?appid=shop&crawlid=spring")
    for page in ("/", "/crawls"):
        assert "spring" in await text(service, page)
    page = await text(service, "/crawl", appid="shop", crawlid="spring")
    assert "Stop the crawl" in page
    assert "a.test" in page
    assert re.search(r"Waiting, by priority: <b>\d+</b>: 1<", page)
    stopped = await service.http.post("/ui/crawl/stop", data={"appid": "shop", "crawlid": "spring"})
    assert stopped.status_code == 303
    page = await text(service, "/crawl", appid="shop", crawlid="spring")
    assert "Stop the crawl" not in page
    assert 'class="state stopped"' in page


async def test_a_crawl_whose_counts_were_repaired_says_so_everywhere(service: Service) -> None:
    """Pages of it may be missing: on its page, by REST and in the answer on the bus."""
    await submit(service, "spring")
    crawl = CrawlId("shop", "spring")
    assert await service.frontier.maintain() == 0
    info = {"uuid": "i", "appid": "shop", "crawlid": "spring", "spiderid": "link", "action": "info"}
    assert "lost a part of its writes" not in await text(service, "/crawl", appid="shop", crawlid="spring")
    assert "repairs" not in (await service.feed(info))["data"]
    counters = service.context.prefix + f":{{0}}:c:{crawl.token}"
    await service.context.shards.command(counters, "HINCRBY", counters, "q:link", 5)
    assert await service.frontier.repair(crawl)
    assert "lost a part of its writes" in await text(service, "/crawl", appid="shop", crawlid="spring")
    assert (await service.http.get("/v1/crawls/shop/spring")).json()["repairs"] == 1
    assert (await service.http.get("/v1/crawls")).json()["items"][0]["repairs"] == 1
    assert (await service.feed(info))["data"]["repairs"] == 1


async def test_the_list_has_a_filter_in_its_address(service: Service) -> None:
    for appid, crawlid in (("shop", "one"), ("news", "two")):
        await submit(service, crawlid, appid=appid)
    shown = await text(service, "/crawls", appid="news", state="running")
    assert "two" in shown
    assert ">one<" not in shown


async def test_the_form_has_every_field_of_the_api_and_shows_the_same_request(service: Service) -> None:
    schema = (await service.http.get("/openapi.json")).json()["components"]["schemas"]["CrawlRequest"]
    page = await text(service, "/crawls/new")
    assert set(re.findall(r'id="f-(\w+)"', page)) == set(schema["properties"])
    form = {"url": "http://a.test/?a='b'", "appid": "shop", "crawlid": "c", "max_pages": "5", "sitemaps": "yes"}
    shown = (await service.http.post("/ui/crawls/preview?part=live", data=form)).text
    assert '"max_pages": 5' in unescape(shown)
    assert "gossamer feed '{" in unescape(shown)
    # The command is one that the shell reads as the same request.
    command = unescape(re.findall(r"<pre[^>]*>(gossamer feed .*)</pre>", shown)[0])
    assert shlex.split(command)[2] == (
        '{"url":"http://a.test/?a=\'b\'","appid":"shop","crawlid":"c","max_pages":5,"sitemaps":true}'
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"crawlid": "a b"}, {"crawlid": "must be printable, without white space"}),
        ({"max_pages": "many"}, {"max_pages": "must be an integer"}),
        ({"headers": "{"}, {"headers": "must be an object"}),
        ({"headers": "[" * 5000}, {"headers": "must be an object"}),
        ({"extract": '{"fields": []}'}, {"extract": "fields: must be an object"}),
        (
            {"max_pages": "many", "crawlid": "a b", "maxdepth": "-1"},
            {
                "crawlid": "must be printable, without white space",
                "maxdepth": "must be at least 0",
                "max_pages": "must be an integer",
            },
        ),
        ({"rate": "fast"}, {"rate": "must be HITS/SECONDS, like 10/60"}),
        ({"url": ""}, {"url": "Fill in this field."}),
    ],
)
async def test_bad_input_is_told_at_its_fields_and_the_form_keeps_what_was_typed(
    service: Service, fields: dict[str, str], told: dict[str, str]
) -> None:
    answer = await submit(service, **({"crawlid": "c", "maxdepth": "0"} | fields))
    assert answer.status_code == 400
    page = unescape(answer.text)
    assert dict(re.findall(r'id="e-(\w+)">(.*?)</p>', page)) == told
    assert set(re.findall(r' aria-invalid="true" aria-describedby="e-(\w+) h-\1" id="f-\1"', page)) == set(told)
    summary = re.findall(r'role="alert"[^>]*>(.*?)</div>', page)[0]
    assert set(re.findall(r'<a href="#f-(\w+)">', summary)) == set(told)
    assert ("<details open>" in page) == bool(told.keys() & {"headers", "extract"})
    assert ">headers</a>: must" in summary or "headers" not in told
    assert ">Name of the crawl</a>: must" in summary or "crawlid" not in told
    kept = await submit(service, "a b", useragent="kept")
    assert 'value="kept"' in kept.text
    assert "<details open>" in kept.text


@pytest.mark.parametrize(
    ("language", "rules"),
    [
        ("en", {"rate": "must be HITS/SECONDS, like 10/60", "crawlid": "must be printable, without white space"}),
        ("de", {"rate": "muss ANFRAGEN/SEKUNDEN sein, wie 10/60", "login": "darf höchstens 64 Buchstaben, Ziffern"}),
    ],
)
async def test_a_field_has_its_rule_before_in_the_words_of_its_fault(
    service: Service, language: str, rules: dict[str, str]
) -> None:
    spoken = {"Accept-Language": language}
    page = (await service.http.get("/ui/crawls/new", headers=spoken)).text
    form = {"url": "http://a.test/", "appid": "shop", "crawlid": "a b", "rate": "fast", "login": "a b"}
    faulty = (await service.http.post("/ui/crawls/submit", data=form, headers=spoken)).text
    for name, rule in rules.items():
        assert f" {rule[0].upper()}{rule[1:]}" in re.findall(f'id="h-{name}">(.*?)</p>', page)[0]
        assert rule in re.findall(f'id="e-{name}">(.*?)</p>', faulty)[0]


async def test_a_crawl_is_run_again_or_goes_deeper_with_its_options_and_without_its_secrets(service: Service) -> None:
    await submit(
        service, "old", maxdepth="2", max_pages="7", rate="5/2", allowed_domains="a.test\nb.test", cookie="secret",
        headers='{"X-Team": "a", "Authorization": "secret"}', sitemaps="yes", deny_regex="/x",
    )  # fmt: skip
    made = (await service.http.get("/v1/crawls/shop/old/request")).json()
    options = {"maxdepth": 2, "max_pages": 7, "rate": "5/2", "allowed_domains": ["a.test", "b.test"]}
    options |= {"sitemaps": True, "deny_regex": ["/x"], "headers": {"X-Team": "a"}, "appid": "shop", "crawlid": "old"}
    assert (made["request"], made["left_out"], made["submissions"]) == (options, ["cookie", "headers"], 1)
    record = {"type": "page", "appid": "shop", "crawlid": "old", "success": True, "url": "http://a.test/", "depth": 0}
    failed = {**record, "success": False, "reason": "http_404", "url": "http://a.test/2"}
    deeper = {**record, "url": "http://a.test/deeper", "depth": 1}
    records = [deeper, record, failed, deeper, record]
    await service.context.bus.publish(
        service.context.topics.crawled_by("shop"), list(map(msgspec.json.encode, records))
    )
    for like, changed in (("again", {"fresh": True}), ("further", {"maxdepth": 3})):
        page = await text(service, "/crawls/new", appid="shop", crawlid="old", like=like)
        assert "cookie, headers" in page
        assert ">\nhttp://a.test/\nhttp://a.test/2</textarea>" in page
        first, second = msgspec.json.decode(unescape(re.findall(r"<pre[^>]*>(\[.*?\])</pre>", page, re.DOTALL)[0]))
        assert first == {**options, "url": "http://a.test/", **changed}
        assert second == {**options, "url": "http://a.test/2", **(changed if like == "further" else {})}
    assert (await service.http.get("/ui/crawls/new?like=again&appid=no&crawlid=no")).status_code == 404
    new = await text(service, "/crawls/new")
    assert 'name="appid" value="dashboard"' in new
    assert re.search(r'name="crawlid" value="crawl-\d{4}-\d{6}"', new)


async def test_a_crawl_whose_failures_were_retried_keeps_its_addresses_its_start_and_its_options(
    service: Service,
) -> None:
    """A retry begins a run, in which none of the addresses has a record before the retry ends."""
    await submit(service, "old", retries="0")
    worker = await service.frontier.open_leaseholder(pool="shared", spiders=["link"])
    [lease] = await worker.lease(limit=1)
    await worker.settle([Settlement(lease, Outcome.FAILED, "http_500")])
    await worker.close()
    crawl = CrawlId("shop", "old")
    record = {"type": "page", "appid": "shop", "crawlid": "old", "success": False, "url": "http://a.test/", "depth": 0}
    await service.context.bus.publish(service.context.topics.crawled_by("shop"), [msgspec.json.encode(record)])
    first = await until_finished(service, "old")
    assert first.first_started == first.started
    assert (await service.http.post("/v1/crawls/shop/old/retry")).json()["run"] == 2
    home = service.context.prefix + f":{{0}}:h:{crawl.token}"
    later = int(first.started * 1000) + 600_000  # as if it had come ten minutes later
    await service.context.shards.command(home, "HSET", home, "started", later)
    found = (await service.http.get("/v1/crawls/shop/old")).json()
    assert (found["first_started"], found["started"]) == (first.started, later / 1000)
    for path in ("/crawl", "/crawls"):
        page = await text(service, path, appid="shop", crawlid="old")
        assert re.search(rf'data-epoch="{first.started}">[^<]*</time> \(Run 2: <time data-epoch="{later / 1000}"', page)
    page = await text(service, "/crawls/new", appid="shop", crawlid="old", like="again")
    assert ">\nhttp://a.test/</textarea>" in page
    assert re.search(r'<details open>.*name="retries" value="0"', page, re.DOTALL)
    assert "<details open>" not in await text(service, "/crawls/new")


async def test_a_crawl_without_a_depth_says_before_and_after_that_it_follows_no_links(service: Service) -> None:
    hint = "links are not followed"
    assert hint in await text(service, "/crawls/new")
    for fields, is_told in (({}, True), ({"maxdepth": "1"}, False), ({"spiderid": "wandering"}, False)):
        crawlid = f"c{len(fields)}{is_told}{fields.get('maxdepth', '')}"
        form = {"url": "http://a.test/", "appid": "shop", "crawlid": crawlid, **fields}
        shown = (await service.http.post("/ui/crawls/preview?part=live", data=form)).text
        assert (hint in shown) is is_told, fields
        await submit(service, crawlid, **fields, rate="1000/1")
        assert "followed no links" not in await text(service, "/crawl", appid="shop", crawlid=crawlid)
        worker = await service.frontier.open_leaseholder(pool="shared", spiders=["link", "wandering"])
        while not (leases := await worker.lease(limit=1)):  # noqa: ASYNC110 - the domain's turn comes by itself
            await asyncio.sleep(0.05)
        await worker.settle([Settlement(leases[0], Outcome.FETCHED)])
        await worker.close()
        await until_finished(service, crawlid)
        page = await text(service, "/crawl", appid="shop", crawlid=crawlid)
        assert ("followed no links" in page) is is_told, fields
        assert page.count("like=further") == 1 + is_told


async def test_a_crawl_that_is_idle_before_it_finishes_says_so(service: Service) -> None:
    await service.frontier.open_crawl(Crawl(id=CrawlId("shop", "idle"), idle_seconds=60.0))
    await submit(service, "idle")
    assert 'class="state running"' in await text(service, "/crawls")
    worker = await service.frontier.open_leaseholder(pool="shared", spiders=["link"])
    [lease] = await worker.lease(limit=1)
    assert 'class="state running"' in await text(service, "/crawls")
    await worker.settle([Settlement(lease, Outcome.FETCHED)])
    await worker.close()
    for path in ("/", "/crawls", "/crawl"):
        page = await text(service, path, appid="shop", crawlid="idle")
        assert 'class="state finishing">finishing<' in page
    assert "the crawl finishes in some seconds" in page


async def until_finished(service: Service, crawlid: str) -> CrawlInfo:
    """Maintain the frontier until a crawl of the application `shop` has finished, and return what it says of it."""
    while (info := await service.frontier.crawl_info(CrawlId("shop", crawlid))) is None or info.ended is None:
        await service.frontier.maintain()
    return info


async def test_a_crawl_that_takes_no_requests_is_run_again_under_a_new_name(service: Service) -> None:
    await submit(service, "old", maxdepth="2")
    running = await text(service, "/crawl", appid="shop", crawlid="old")
    assert "like=" not in running  # its addresses are seen: nothing would be added
    await service.http.delete("/v1/crawls/shop/old")
    assert "like=again" in await text(service, "/crawl", appid="shop", crawlid="old")
    for like in ("again", "further"):
        page = await text(service, "/crawls/new", appid="shop", crawlid="old", like=like)
        assert "old has been stopped" in page
        names = re.findall(r'name="crawlid" value="(old-\d{4}-\d{6})"', page)
        assert (await submit(service, names[0])).status_code == 303


async def test_a_paused_crawl_says_so_everywhere(service: Service) -> None:
    await submit(service, "old", maxdepth="2")
    await service.frontier.set_paused(CrawlId("shop", "old"), paused=True)
    assert (await service.http.get("/v1/crawls/shop/old")).json()["paused"]
    [limit] = (await service.http.get("/v1/crawls/shop/old/pace")).json()["items"]
    assert (limit["limited_by"], limit["least_seconds"]) == ("crawl_paused", None)
    crawl = {"appid": "shop", "crawlid": "old"}
    assert "gossamer crawls resume shop/old" in await text(service, "/crawl", **crawl)
    assert "gossamer crawls resume shop/old" in await text(service, "/crawl/why", **crawl, url="http://a.test/")
    assert 'class="state paused"' in await text(service, "/crawls")
    await service.frontier.set_paused(CrawlId("shop", "old"), paused=False)
    assert "resume" not in await text(service, "/crawl", **crawl)


async def test_a_form_takes_many_addresses_each_of_which_is_a_request(service: Service) -> None:
    urls = [f"http://a{number}.test/" for number in range(3)]
    sent = await submit(service, "many", url="\n".join(urls))
    assert sent.status_code == 303
    assert (await service.http.get("/v1/crawls/shop/many")).json()["total"]["added"] == 3
    refused = await submit(service, "many", url="http://c.test/\nno address\nhttp://d.test/")
    assert "no address" in unescape(re.findall(r'role="alert"[^>]*>(.*?)</div>', refused.text)[0])
    assert (await service.http.get("/v1/crawls/shop/many")).json()["total"]["added"] == 5
    too_many = await submit(service, "many", url="\n".join(f"http://b{number}.test/" for number in range(101)))
    assert too_many.status_code == 400
    assert (await service.http.get("/v1/crawls/shop/many")).json()["total"]["added"] == 5


async def test_a_crawl_has_a_report_that_a_browser_runs_nothing_of(service: Service) -> None:
    names = {"appid": "shop", "crawlid": EVIL}
    await submit(service, EVIL)
    record = {"type": "page", **names, "url": f"http://a.test/{EVIL}", "success": False, "reason": EVIL, "body": WORSE}
    await service.context.bus.publish(service.context.topics.crawled_by("shop"), [msgspec.json.encode(record)])
    frame = await text(service, "/crawl/report", **names)
    address = unescape(re.findall(r'<iframe[^>]* src="([^"]*)"', frame)[0])
    report = await service.http.get(address)
    assert report.status_code == 200
    assert "<!-- Gossamer report -->" in report.text
    assert EVIL not in report.text
    assert "script-src" not in report.headers["content-security-policy"]
    assert report.headers["content-security-policy"].startswith("sandbox allow-popups; default-src 'none'")
    assert report.headers["content-security-policy"].endswith("frame-ancestors 'self'")
    await submit(service, "empty")
    none = await service.http.get("/v1/crawls/shop/empty/report")
    assert (none.status_code, none.json()["detail"]) == (404, "the bus keeps no pages of shop/empty")
    told = await service.http.get("/ui/crawl/report/page?appid=shop&crawlid=empty")
    assert (told.status_code, "the bus keeps no pages" in told.text) == (404, True)
    assert told.headers["content-security-policy"].endswith("frame-ancestors 'self'")  # the page shows it, too
    with contextlib.ExitStack() as others:
        for _ in range(8):
            others.enter_context(service.app.state.reports.one_more())
        refused = await service.http.get("/v1/crawls/shop/empty/report")
        assert (refused.status_code, refused.json()["title"]) == (503, "Too many reports")
    assert (await service.http.get("/v1/crawls/shop/empty/report")).status_code == 404
    failures = service.http.get(f"/ui/crawl/pages?{urlencode({**names, 'kind': 'failures', 'reason': 'http_503'})}")
    assert "Nothing here yet." in (await failures).text


async def test_a_crawl_that_sites_have_refused_says_so(service: Service) -> None:
    await submit(service, "spring")
    assert "Sites have refused" not in await text(service, "/crawl", appid="shop", crawlid="spring")
    worker = await service.frontier.open_leaseholder(pool="shared", spiders=["link"])
    [lease] = await worker.lease(limit=1)
    await worker.settle([Settlement(lease, Outcome.FAILED, "refused_captcha")])
    await worker.close()
    page = await text(service, "/crawl", appid="shop", crawlid="spring")
    assert "Sites have refused pages (captcha 1), and sent 0." in page


async def test_what_failed_is_retried_from_its_page(service: Service) -> None:
    await submit(service, "spring")
    worker = await service.frontier.open_leaseholder(pool="shared", spiders=["link"])
    [lease] = await worker.lease(limit=1)
    assert "Retry" not in await text(service, "/crawl", appid="shop", crawlid="spring")
    await worker.settle([Settlement(lease, Outcome.FAILED, "http_500")])
    await worker.close()
    page = await text(service, "/crawl", appid="shop", crawlid="spring")
    assert "Retry what failed" in page
    assert "Retry these" in page
    assert "Retry this URL" in await text(service, "/crawl/why", appid="shop", crawlid="spring", url="http://a.test/")
    form = {"appid": "shop", "crawlid": "spring", "reason": "http_500"}
    failures = {"appid": "shop", "crawlid": "spring", "kind": "failures"}
    for reason, retry in (("", "Retry what failed"), ("http_500", "Retry these")):  # where they are listed
        shown = await text(service, "/crawl/pages", **failures, reason=reason)
        assert f'name="reason" value="{reason}"><button>{retry}</button>' in shown
    assert "<button>Retry" not in await text(service, "/crawl/pages", **failures, reason="http_404")
    for retried, told in ((1, "Requests that wait again: 1."), (0, "Nothing was left to retry.")):
        sent = await service.http.post("/ui/crawl/retry", data=form)
        assert sent.headers["location"] == f"/ui/crawl?appid=shop&crawlid=spring&retried={retried}"
        assert told in (await service.http.get(sent.headers["location"])).text
    assert "<button>Retry" not in await text(service, "/crawl/pages", **failures)  # nothing is left to retry
    refused = await service.http.post("/ui/crawl/retry", data={"appid": "shop", "crawlid": "no"})
    assert refused.status_code == 404


async def test_a_change_of_a_policy_is_previewed(service: Service) -> None:
    form = {"domain": "a.test", "hits": "7", "window": "2"}
    shown = (await service.http.post("/ui/domain/preview?part=live", data=form)).text
    assert re.findall(r'changed">([^<]*)<', shown) == ["7", "2"]
    wrong = (await service.http.post("/ui/domain/preview?part=live", data={**form, "hits": "x"})).text
    assert "hits: cannot read x. Write a number." in wrong
    for text in ("true", '"7"', "[7]", "1e999", "NaN"):
        wrong = (await service.http.post("/ui/domain/preview?part=live", data={**form, "hits": text})).text
        assert f"hits: cannot read {text}. Write a number." in unescape(wrong)
    assert (await service.http.get("/v1/domains/a.test")).json()["policy"] == {}


async def test_a_domains_policy_is_shown_and_changed(service: Service) -> None:
    page = await text(service, "/domain", domain="a.test")
    assert "at most 1 in 1 s." in page
    assert '<span class="label">the default policy</span>' in page
    change = {"domain": "a.test", "hits": "7", "window": "2.5", "blacklisted": "yes"}
    changed = await service.http.post("/ui/domain/change", data=change)
    assert changed.status_code == 303
    assert "The change is made." in (await service.http.get(changed.headers["location"])).text
    policy = (await service.http.get("/v1/domains/a.test")).json()["policy"]
    assert (policy["hits"], policy["window"], policy["blacklisted"]) == (7, 2.5, True)
    assert "the default policy</span>" not in await text(service, "/domain", domain="a.test")
    assert "a.test" in await text(service, "/domains")
    refused = await service.http.post("/ui/domain/change", data={"domain": "a.test", "hits": "0"})
    assert "hits" in re.findall(r'role="alert"[^>]*>(.*?)</div>', refused.text)[0]
    refused = await service.http.post("/ui/domain/change", data={"domain": "a.test", "window": "abc"})
    assert 'id="e-window">cannot read abc. Write a number.' in refused.text
    await service.http.post("/ui/domain/change", data={"domain": "a.test", "remove": "yes"})
    assert "hits" not in (await service.http.get("/v1/domains/a.test")).json()["policy"]


async def test_the_policy_of_all_other_domains_is_listed_previewed_and_changed(service: Service) -> None:
    listed = await text(service, "/domains")
    assert 'href="/ui/domain?domain=%2A">All other domains</a>' in listed
    page = await text(service, "/domain", domain="*")
    assert "at most 1 in 1 s." in page
    assert "robots.txt" not in page
    form = {"domain": "*", "hits": "7", "window": "2"}
    shown = (await service.http.post("/ui/domain/preview?part=live", data=form)).text
    assert re.findall(r'changed">([^<]*)<', shown) == ["7", "2"]
    changed = await service.http.post("/ui/domain/change", data=form)
    assert changed.headers["location"] == "/ui/domain?domain=%2A&changed=yes"
    assert "The change is made." in (await service.http.get(changed.headers["location"])).text
    assert (await service.http.get("/v1/domains/*")).json()["policy"] == {"hits": 7, "window": 2.0}
    assert "at most 7 in 2 s." in await text(service, "/domain", domain="a.test")
    refused = await service.http.post("/ui/domain/change", data={"domain": "*", "hits": "0"})
    assert "hits" in re.findall(r'role="alert"[^>]*>(.*?)</div>', refused.text)[0]
    await service.http.post("/ui/domain/change", data={"domain": "*", "remove": "yes"})
    assert (await service.http.get("/v1/domains/*")).json()["policy"] == {}


async def test_a_form_changes_the_blacklist_only_where_its_mark_was_changed(service: Service) -> None:
    """Otherwise other changes would take a domain from the blacklist on which the default policy has it."""
    await service.http.post("/ui/domain/change", data={"domain": "*", "blacklisted": "yes"})
    page = await text(service, "/domain", domain="a.test")
    assert re.search(r'name="blacklisted" value="yes" checked', page)
    sent = dict(re.findall(r'name="(domain|was_blacklisted)" value="([^"]*)"', page))
    await service.http.post("/ui/domain/change", data={**sent, "blacklisted": "yes", "hits": "7"})
    assert (await service.http.get("/v1/domains/a.test")).json()["policy"] == {"hits": 7}
    await service.http.post("/ui/domain/change", data=sent)
    assert (await service.http.get("/v1/domains/a.test")).json()["policy"] == {"hits": 7, "blacklisted": False}


async def test_a_part_of_a_page_is_the_same_without_its_frame(service: Service) -> None:
    await submit(service, "spring")
    for path, query in (
        ("/", {}),
        ("/crawls", {}),
        ("/workers", {}),
        ("/crawl", {"appid": "shop", "crawlid": "spring"}),
    ):
        part = await text(service, path, **query, part="live")
        assert "<html" not in part
        assert len(part) > 100


async def test_every_address_and_every_form_is_answered_with_a_page_whose_links_exist(service: Service) -> None:
    """Also a part that a page does not have, the address of a form, and a form that is refused."""
    letter = {"topic": service.context.topics.incoming, "message": "{}", "field": "", "reason": "no", "timestamp": 1.0}
    await service.context.bus.publish(service.context.topics.dead_letter, [msgspec.json.encode(letter)] * 21)
    for path in ("/login", *PAGES):
        answer = await service.http.get(f"/ui{path}", params={"part": "x"})
        assert answer.status_code < 500, path
        assert "text/html" in answer.headers["content-type"]
        assert answer.headers["content-security-policy"].endswith("frame-ancestors 'none'")
    await submit(service, "spring")
    for path in PAGES:
        page = await service.http.get(f"/ui{path}", params={"domain": "a.test", "appid": "shop", "crawlid": "spring"})
        await _follow(service, path, page.text)
    for path in CHANGES:
        opened = await service.http.get(f"/ui{path}")
        assert (opened.status_code, opened.headers["allow"]) == (405, "POST")
        assert "takes forms only" in opened.text
        refused = await service.http.post(f"/ui{path}", data={"domain": "a.test", "hits": "x"})
        assert refused.status_code < 500, path
        await _follow(service, path, refused.text)


async def _follow(service: Service, path: str, page: str) -> None:
    """Check that the addresses on a page exist."""
    for address in set(re.findall(r'(?:href|data-refresh)="(/ui/[^"]*)"', page)):
        found = await service.http.get(unescape(address))
        about = ("needs a history", "the bus keeps no pages")
        assert found.status_code == 200 or any(text in found.text for text in about), (path, address)


async def test_texts_of_others_are_never_part_of_the_page(service: Service) -> None:
    await submit(service, HOSTILE, appid=HOSTILE)
    for path, query in (("/", {}), ("/crawls", {}), ("/crawl", {"appid": HOSTILE, "crawlid": HOSTILE}),
                        ("/crawl/pages", {"appid": HOSTILE, "crawlid": HOSTILE, "reason": HOSTILE}),
                        ("/domain", {"domain": "a.test"})):  # fmt: skip
        page = await text(service, path, **query)
        assert HOSTILE not in page
        assert "alert(1)" in page or path == "/domain"
    for path in PAGES:
        answer = await service.http.get(
            f"/ui{path}", params=dict.fromkeys(("domain", "appid", "crawlid", "q"), HOSTILE)
        )
        assert HOSTILE not in answer.text


async def test_an_unknown_crawl_and_an_unknown_page_are_told(service: Service) -> None:
    for path in ("/crawl?appid=no&crawlid=no", "/crawl?appid=no", "/crawl", "/nothing"):
        answer = await service.http.get(f"/ui{path}")
        assert answer.status_code == 404
        assert "Not possible (404)" in answer.text


async def test_a_german_browser_gets_german_pages(service: Service) -> None:
    answer = await service.http.get("/ui/", headers={"Accept-Language": "fr;q=0.3, de-AT, en;q=0.8"})
    assert '<html lang="de">' in answer.text
    assert "Kein Crawl läuft." in answer.text
    assert "<strong>0,0</strong>" in answer.text
    german = {"Accept-Language": "de"}
    for path, form, told in (
        (
            "crawls/submit",
            {"url": "http://a.test/", "appid": "shop", "crawlid": "a b"},
            "druckbar und ohne Leerzeichen",
        ),
        ("domain/change", {"domain": "a.test", "hits": "0"}, "a.test: hits: muss eine ganze Zahl von 1 bis"),
        ("crawl/stop", {"appid": "no", "crawlid": "no"}, "einen Crawl no/no gibt es nicht"),
        ("bus/replay", {"topic": "no"}, "topic: muss eines von "),
    ):
        refused = await service.http.post(f"/ui/{path}", data=form, headers=german)
        assert told in unescape(refused.text), path
    unknown = await service.http.get("/ui/bus?topics=!", headers=german)
    assert "Die Eingabe ist nicht gültig: cursor: not a cursor" in unknown.text


async def test_a_rejected_request_is_shown_with_its_reason_mended_and_sent_again(service: Service) -> None:
    bus, topics = service.context.bus, service.context.topics
    assert "No request was rejected." in await text(service, "/bus")
    letter = {"topic": topics.incoming, "message": HOSTILE, "message_encoding": "text", "field": "maxdepth",
              "reason": "must be at least 0", "timestamp": 1.0}  # fmt: skip
    await bus.publish(topics.dead_letter, [msgspec.json.encode(letter), b"\xffno letter"])
    page = await text(service, "/bus")
    assert "maxdepth: must be at least 0" in page
    assert HOSTILE not in page
    assert "not a dead letter of Gossamer" in page
    first = (await service.http.get("/v1/dead-letters", params={"limit": 1})).json()
    assert ([each["field"] for each in first["items"]], first["more"]) == (["maxdepth"], True)
    rest = (await service.http.get("/v1/dead-letters", params={"cursor": first["cursor"]})).json()
    assert ([each["topic"] for each in rest["items"]], rest["more"]) == ([""], False)
    form = {"topic": topics.incoming, "message": '{"mended": 1}', "message_encoding": "text"}
    sent = await service.http.post("/ui/bus/replay", data=form)
    assert (sent.status_code, sent.headers["location"]) == (303, "/ui/bus?sent=yes")
    reader = await bus.read([topics.incoming], from_beginning=True)
    assert [message.value for message in await reader.take(at_most=10, wait_seconds=5)] == [b'{"mended": 1}']
    await reader.close()
    for bad in ({"topic": topics.crawled}, {"message_encoding": "base64"}, {"message_encoding": "x"}):
        refused = await service.http.post("/ui/bus/replay", data={**form, **bad})
        assert refused.status_code == 400
        assert re.search(r'role="alert">[^<]+<', refused.text)
    shown = (await service.http.get("/v1/topics")).json()
    assert {"name": topics.incoming, "messages": 1, "is_of_requests": True} in shown["items"]


async def test_a_rejected_request_names_its_crawl_and_needs_attention_until_it_is_sent_again(service: Service) -> None:
    bus, topics = service.context.bus, service.context.topics
    message = '{"appid": "shop", "crawlid": "spring", "url": "http://a.test/", "maxdepth": -1}'
    letter = {"topic": topics.incoming, "message": message, "message_encoding": "text", "field": "maxdepth",
              "reason": "must be at least 0", "timestamp": time.time(), "id": "x", "resent": {}}  # fmt: skip
    assert "rejected" not in await text(service, "/")
    await bus.publish(topics.dead_letter, [msgspec.json.encode(letter)])
    await service.context.counters.add(INTAKE, {"fail": 1})
    overview = await text(service, "/")
    assert "not sent again: 1. shop/spring: maxdepth: must be at least 0." in overview
    assert "Nothing needs attention" not in overview
    page = await text(service, "/bus")
    assert f"shop/spring · {topics.incoming} · " in page
    assert "Sent again" not in page
    form = dict(re.findall(r'name="(topic|message_encoding|letter)" value="([^"]*)"', page))
    assert (await service.http.post("/ui/bus/replay", data={**form, "message": "{}"})).status_code == 303
    page = await text(service, "/bus")
    assert re.search(r"Sent again <time [^>]*>[^<]*</time> \(local 127.0.0.1\)", page)
    assert "rejected" not in await text(service, "/")
    [listed] = (await service.http.get("/v1/dead-letters")).json()["items"]
    assert (listed["id"], listed["resent"]["actor"]) == (form["letter"], "local")
    key = f"{{{service.context.prefix}:resent}}:{listed['id']}"
    assert 0 < await service.context.shards.command(key, "TTL", key) <= 30 * 86400
    unknown = await service.http.post("/v1/dead-letters/replay", json={**form, "message": "{}", "letter": "x" * 32})
    assert unknown.status_code == 400


async def test_each_topic_says_what_it_holds(service: Service) -> None:
    topics = service.context.topics
    names = (*topics.requests, topics.crawled, topics.crawled_by("shop"), topics.outbound, topics.outbound_to("shop"),
             topics.dead_letter, topics.history, topics.changes)  # fmt: skip
    for name in names:
        await service.context.bus.publish(name, [b"{}"])
    page = await text(service, "/bus")
    rows = dict(re.findall(r'<tr><td>(demo\.\w+)(?: .*?)?</td><td class="reason">([^<]*)</td>', page))
    assert rows.keys() == set(names)
    assert len(set(rows.values())) == len(names)
    assert "–" not in rows.values()


async def test_records_and_rejections_of_other_programs_are_shown_whatever_their_fields_are(service: Service) -> None:
    """One of them must not hide all others."""
    await submit(service, "spring")
    names = {"type": "page", "appid": "shop", "crawlid": "spring", "url": "http://a.test/number-7"}
    odd: list[Any] = [None, 7, "x", [7], ["x"], [{}], {"x": 7}, {"x": ["y", 7, None]}]
    fields = ("url", "links", "response_headers", "body", "status_code", "content_type", "timestamp", "depth")
    records = [{**names, name: value} for name in fields for value in odd]
    topic = service.context.topics.crawled_by("shop")
    await service.context.bus.publish(topic, [msgspec.json.encode(record) for record in [*records, names]])
    following, found = f"/ui/crawl/pages?{urlencode({'appid': 'shop', 'crawlid': 'spring'})}", 0
    while following:
        page = await service.http.get(following)
        assert page.status_code == 200, page.text
        found += page.text.count('<details class="record">')
        following = next(map(unescape, re.findall(r'href="([^"]+)" rel="next"', page.text)), "")
    assert found == len(records) + 1
    letters = [{"topic": "x", "message": "{}", "timestamp": time} for time in (1e300, -1e12, 1.0)]
    await service.context.bus.publish(
        service.context.topics.dead_letter, [msgspec.json.encode(each) for each in letters]
    )
    assert (await text(service, "/bus")).count('<details class="record">') == len(letters)


def shown_in(page: str) -> list[int]:
    """The numbers of the records on a page, in order."""
    return [int(number) for number in re.findall(r"<summary>.*?number-(\d+)", page)]


async def test_what_the_bus_has_comes_latest_first_and_leads_to_what_is_older(service: Service) -> None:
    """Rejected requests, pages, failures and items alike; and each page costs only what it shows."""
    bus, topics = service.context.bus, service.context.topics
    await submit(service, "spring")
    names = {"appid": "shop", "crawlid": "spring"}
    letters = [
        {"topic": topics.incoming, "message": "{}", "reason": f"number-{n}", "timestamp": 1.0} for n in range(45)
    ]
    page = {"type": "page", **names, "success": True}
    records = {
        "pages": [{**page, "url": f"http://a.test/number-{n}"} for n in range(45)],
        "failures": [{**page, "success": False, "url": f"http://a.test/number-{n}", "reason": "x"} for n in range(45)],
        "items": [{**page, "type": "item", "url": f"http://a.test/number-{n}", "item": {"n": n}} for n in range(45)],
    }
    await bus.publish(topics.dead_letter, [msgspec.json.encode(letter) for letter in letters])
    for of_kind in records.values():
        await bus.publish(topics.crawled_by("shop"), [msgspec.json.encode(record) for record in of_kind])
    for address in ("/ui/bus", *(f"/ui/crawl/pages?{urlencode({**names, 'kind': kind})}" for kind in records)):
        found, following = [], address
        while following:
            shown = (await service.http.get(following)).text
            assert len(shown_in(shown)) <= 20
            assert ("Latest" in shown) is (following != address)
            found += shown_in(shown)
            following = next(map(unescape, re.findall(r'href="([^"]+)" rel="next"', shown)), "")
        assert found == list(range(44, -1, -1)), address


async def test_workers_processes_and_their_troubles_come_by_pages(service: Service) -> None:
    """The overview counts them all, in an answer of one size."""
    counters = service.context.counters
    seats = [await service.frontier.open_leaseholder(pool="shared", spiders=["link"]) for _ in range(55)]
    await asyncio.gather(*(seat.lease(limit=1) for seat in seats))  # a worker is one that has asked for work
    for number, seat in enumerate(seats):
        fact = {"name": seat.worker, "version": f"1.{number}", "pages_per_second": 1.0, "finding": "all is well"}
        await counters.report_facts(f"here:{number}", fact)
        await counters.report_facts(f"service-{number:02}:1", {"roles": ["rest"], "version": "1.0"})
        await counters.report_troubles(f"here:{number}", {"app_output": f"trouble of {number}"})
    found: dict[str, list[str]] = {"workers": [], "services": []}
    for name, link, entry, most in (
        ("workers", "workers", r"<tr><td>([^<]+?)</td><td class=\"n\">\d", 50),
        ("services", "processes", r"(service-\d\d):", 20),
    ):
        address = "/ui/workers"
        while address:
            page = (await service.http.get(address)).text
            shown = re.findall(entry, page)
            assert len(shown) <= most
            assert page.count("trouble of") == 20
            assert ">35 more<" in page
            found[name] += shown
            address = next(map(unescape, re.findall(rf'href="([^"]*)" rel="next">More {link}', page)), "")
    assert found == {
        "workers": sorted(seat.worker for seat in seats),
        "services": [f"service-{number:02}" for number in range(55)],
    }
    counts = (await service.http.get("/v1/worker-counts")).json()
    assert (counts["workers"], counts["services"], counts["pages_per_second"]) == (55, 55, 55.0)
    assert (len(counts["versions"]), len(counts["troubles"]), counts["trouble_count"]) == (10, 20, 55)
    overview = await text(service, "/")
    assert overview.count("trouble of") == 20
    for seat in seats:
        await seat.close()


async def test_topics_come_by_pages(service: Service) -> None:
    """An application more has topics of its own, so their number has no bound. Those of requests come first."""
    await service.context.bus.publish(service.context.topics.incoming, [b"{}"])
    for number in range(45):
        await service.context.bus.publish(service.context.topics.crawled_by(f"app-{number}"), [b"{}"])
    found: list[str] = []
    following = "/ui/bus"
    while following:
        page = (await service.http.get(following)).text
        names = re.findall(r"<tr><td>([^ <]+)", page)
        assert len(names) <= 21
        found += names
        following = next(map(unescape, re.findall(r'href="([^"]+)" rel="next">More topics', page)), "")
    assert found[0] == service.context.topics.incoming
    assert found[1:] == sorted(set(found[1:]))
    assert {service.context.topics.crawled_by(f"app-{number}") for number in range(45)} <= set(found)


# --- who may --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES, *CHANGES])
async def test_with_a_token_no_page_is_shown_without_a_session(start: Start, path: str) -> None:
    method = "POST" if path in CHANGES else "GET"
    async with start(token=TOKEN) as service:
        for cookie in ("", "x", "9999999999.x.y", Sessions("another").begin(now=1e12), Sessions(TOKEN).begin(now=0)):
            answer = await service.http.request(method, f"/ui{path}", headers={"Cookie": f"{COOKIE}={cookie}"})
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/ui/login?to=" if method == "GET" else "/ui/login")


async def test_the_token_is_entered_once(start: Start) -> None:
    async with start(token=TOKEN) as service:
        wrong = await service.http.post("/ui/login", data={"token": "no"})
        assert (wrong.status_code, COOKIE in wrong.cookies) == (403, False)
        entered = await service.http.post("/ui/login?to=/crawls", data={"token": TOKEN})
        assert (entered.status_code, entered.headers["location"]) == (303, "/ui/crawls")
        cookie = entered.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/ui", f"Max-Age={SESSION_SECONDS}"} <= set(cookie.split("; "))
        assert TOKEN not in cookie
        assert "Log out" in await text(service, "/")  # the client keeps the cookie
        await service.http.post("/ui/logout")
        assert (await service.http.get("/ui/")).status_code == 303


@pytest.mark.parametrize(
    "to", ["//evil.test/", "https://evil.test/", "\\\\evil.test", "javascript:alert(1)", "@evil.test"]
)
async def test_a_login_leads_to_no_other_site(start: Start, to: str) -> None:
    async with start(token=TOKEN) as service:
        answer = await service.http.post("/ui/login", params={"to": to}, data={"token": TOKEN})
        target = httpx.URL("http://here.test/").join(answer.headers["location"])
        assert (target.host, target.path.startswith("/ui/")) == ("here.test", True)


@pytest.mark.parametrize("path", [*CHANGES, "/login"])
@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://evil.test"}]
)
async def test_a_page_of_another_site_changes_nothing(start: Start, path: str, headers: dict[str, str]) -> None:
    async with start(token=TOKEN) as service:
        service.http.cookies.set(COOKIE, (await service.http.post("/ui/login", data={"token": TOKEN})).cookies[COOKIE])
        answer = await service.http.post(f"/ui{path}", headers=headers, data={"token": TOKEN})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["evil.test", "", "127.0.0.1.evil.test"])
async def test_without_a_token_only_this_machine_is_served(service: Service, host: str) -> None:
    answer = await service.http.get("/ui/", headers={"Host": host})
    assert answer.status_code in (400, 403)


# --- a real browser ---------------------------------------------------------------------------------------------------


async def test_what_a_browser_shows_follows_the_crawl(service: Service, tmp_path: Path) -> None:
    """The page that is open when the crawl comes shows it, without being loaded again."""
    loop = asyncio.get_running_loop()

    def watch() -> list[str]:
        with browser(tmp_path) as chrome:
            chrome.open(f"{str(service.http.base_url).rstrip('/')}/ui/crawls")
            chrome.evaluate("window.isSamePage = true")
            asyncio.run_coroutine_threadsafe(submit(service, "later"), loop).result()
            chrome.wait("window.isSamePage && document.getElementById('main').innerText.includes('later')")
            return chrome.faults()

    assert await asyncio.to_thread(watch) == []


async def test_a_person_submits_a_crawl_and_stops_it(service: Service, tmp_path: Path) -> None:
    """Forms work as a browser sends them, with the origin that it names."""

    def act() -> list[str]:
        with browser(tmp_path) as chrome:
            chrome.open(f"{str(service.http.base_url).rstrip('/')}/ui/crawls/new")
            for name, value in (("url", "http://a.test/"), ("appid", "shop"), ("crawlid", "spring")):
                chrome.evaluate(f"document.getElementById('f-{name}').value = '{value}'")
            chrome.evaluate("document.querySelector('form.request button.primary').click()")
            chrome.wait("location.pathname === '/ui/crawl' && document.readyState === 'complete'")
            # A part that is the same is left alone. While the frontier is away, the page stays as it is, and says so.
            chrome.evaluate("window.part = document.querySelector('[data-refresh]'); refresh(part)")
            chrome.evaluate("window.counts = document.getElementById('counts'); refresh(part)")
            chrome.evaluate("window.fetch = async () => new Response('away', {status: 503}); refresh(part)")
            assert chrome.evaluate("!stale.hidden && counts === document.getElementById('counts')")
            chrome.evaluate("document.querySelector('button.danger').click()")
            chrome.wait("document.querySelector('.state.stopped')")
            return [fault for fault in chrome.faults() if not fault.startswith("dialog: Stop this crawl?")]

    assert await asyncio.to_thread(act) == []


# --- hostile texts, and all people ------------------------------------------------------------------------------------

EVIL = HOSTILE
WORSE = "\"'><script>alert(2)</script></pre></textarea>"


async def _hostile(service: Service) -> None:
    """Publish a page, a failure and an item whose every text is hostile."""
    await submit(service, EVIL, appid="shop", useragent=WORSE)
    common = {
        "type": "page", "appid": "shop", "crawlid": EVIL, "spiderid": EVIL, "url": f"http://a.test/{EVIL}{WORSE}",
        "timestamp": EVIL, "depth": EVIL, "content_type": WORSE, "response_headers": {EVIL: [WORSE, EVIL]},
        "links": [{"url": "javascript:alert(3)", "text": EVIL}, {"url": EVIL, "text": WORSE}],
        "body": f"<title>{EVIL}</title>{WORSE}",
    }  # fmt: skip
    records = [
        {**common, "success": True, "status_code": 200},
        {**common, "success": True, "status_code": 200, "url": "javascript:alert(4)"},
        {**common, "success": False, "reason": EVIL, "exception": WORSE, "status_code": None},
        {**common, "success": True, "status_code": 200, "depth": 0},  # of the others, no report can be made
        {**common, "type": "item", "item": {EVIL: WORSE}},
    ]
    topic = service.context.topics.crawled_by("shop")
    await service.context.bus.publish(topic, [msgspec.json.encode(record) for record in records])
    robots = RobotsRecord(RobotsOutcome.RULES, 1000.0, f"{EVIL}{WORSE}".encode(), detail=WORSE)
    await service.frontier.save_robots("a.test", f"http://{EVIL}", pack(robots), ttl_seconds=600)
    facts = {"name": EVIL, "roles": [EVIL], "version": WORSE, "finding": EVIL, "advice": WORSE, "started": 1.0}
    await service.context.counters.report_facts(f"{EVIL}:1", facts)
    await service.context.counters.report_facts(f"{EVIL}:2", {**facts, "name": ""})
    incoming, dead = service.context.topics.incoming, service.context.topics.dead_letter
    await service.context.bus.publish(incoming, [b"{}"])
    letter = {"topic": incoming, "message": WORSE, "field": EVIL, "reason": WORSE, "timestamp": 1.0}
    await service.context.bus.publish(dead, [msgspec.json.encode(letter)])


@pytest.fixture
async def audited(start: Start, tmp_path: Path) -> AsyncIterator[Service]:
    """An API with an audit."""
    history = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    async with start(history=history, audit=HistoryAudit(history)) as service:
        yield service
    await history.close()


async def test_the_audit_shows_changes_newest_first_with_their_outcome(audited: Service) -> None:
    for number in range(101):
        await audited.http.patch(f"/v1/domains/d{number}.test", json={"hits": 1})
    await submit(audited, "spring")
    await audited.http.post("/ui/crawl/stop", data={"appid": "shop", "crawlid": "spring"})
    await audited.http.post("/ui/crawl/stop", data={"appid": "shop", "crawlid": "unknown"})
    page = unescape(await text(audited, "/audit"))
    actions = re.findall(r"<td><code>([a-z.]+)</code></td>", page)
    assert actions == ["crawl.stop", "crawl.stop", "crawl.submit", *["domain.change"] * 97]
    assert page.count('href="/ui/crawl?appid=shop&crawlid=spring">shop/spring</a>') == 2  # submitted, and stopped
    assert 'after={"hits": 1}' in page
    assert re.search(r'class="bad">refused</span> there is no crawl shop/unknown', page)
    more = re.findall(r'<a href="(/ui/audit[^"]*)" rel="next">', page)
    rest = (await audited.http.get(more[0])).text
    assert re.findall(r">(d\d+\.test)</a>", rest) == ["d3.test", "d2.test", "d1.test", "d0.test"]
    assert 'rel="next"' not in rest
    assert "crawl.submit" not in await text(audited, "/audit", action="domain")


@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1280, "light"), (1280, "dark"), (1920, "light")])
async def test_every_page_can_be_used_and_runs_no_script_of_others(
    service: Service, audited: Service, tmp_path: Path, width: int, scheme: str
) -> None:
    await _hostile(service)
    await submit(audited, EVIL, appid=WORSE.replace(" ", ""), url=f"http://a.test/{WORSE}")
    await audited.http.patch("/v1/domains/a.test", json={"hits": 1, "window": 2})
    await audited.http.post(f"/v1/crawls/{quote(EVIL, safe='')}/x/retry", params={"reason": WORSE})
    roots = [f"{str(each.http.base_url).rstrip('/')}/ui" for each in (service, audited)]
    crawl = urlencode({"appid": "shop", "crawlid": EVIL})
    paths = ["", "crawls", "crawls/new", "domains", "domain?domain=a.test", "domain?domain=*", "workers", "bus",
             "login", f"crawl?{crawl}", f"crawl/report?{crawl}", f"crawls/new?{crawl}&like=again",
             f"crawl/why?{crawl}&url=http://a.test/",
             *(f"crawl/pages?{crawl}&kind={kind}" for kind in ("pages", "failures", "items"))]  # fmt: skip

    def visit() -> list[Any]:
        wrong = []
        with browser(tmp_path) as chrome:
            chrome.size(width)
            chrome.scheme(scheme)
            for path in (*(f"{roots[0]}/{path}" for path in paths), f"{roots[1]}/audit"):
                chrome.open(path)
                chrome.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
                found, faults, hidden = unusable(chrome), chrome.faults(), beyond_the_sides(chrome)
                too_wide = chrome.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                if (
                    found
                    or faults
                    or too_wide > 0
                    or hidden
                    or chrome.evaluate("!!document.querySelector('main :is(img, script)')")
                ):
                    wrong.append((path, found, faults, too_wide, hidden))
                if (width, scheme) == (1280, "light"):
                    chrome.size(640)  # as at 200 % zoom
                    if chrome.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
                        wrong.append((path, "too wide at 200 %"))
                    chrome.size(width)
                    if found := beyond_the_keyboard(chrome):
                        wrong.append((path, found))
        return wrong

    assert await asyncio.to_thread(visit) == []
