"""The history through the API and the dashboard: crawls of the past, newest first, with failures, rates and ends."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from gossamer.history.domain_uses import DomainUse
from gossamer.history.service_rates import ServiceRate
from gossamer.history.store import HistoryStore
from gossamer.model.crawl import CrawlId
from gossamer.model.json_codec import decode, encode_value
from gossamer.model.messages.history import CrawlEnded, RequestFailed
from gossamer.model.request import Outcome, Settlement
from gossamer.services.historian import Historian
from gossamer.telemetry.metrics import ServiceMetrics
from tests.servers.browser import browser
from tests.servers.valkey import Server

from .conftest import Service, Start, running
from .test_dashboard import HOSTILE, submit, text


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[HistoryStore]:
    store = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    yield store
    await store.close()


@asynccontextmanager
async def remembering(service: Service, history: HistoryStore) -> AsyncIterator[None]:
    """A historian of the service."""
    context = service.context
    role = Historian(
        context.frontier,
        context.bus,
        context.topics,
        history,
        ServiceMetrics(),
        counters=context.counters,
        owner=context.id,
        retention_seconds=1e6,
    )

    async def run() -> None:
        while True:
            await role.run_once()

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await role.close()


@pytest.fixture
async def past(start: Start, history: HistoryStore) -> AsyncIterator[Service]:
    """An API with a history, and a historian beside it."""
    async with start(history=history) as service, remembering(service, history):
        yield service


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - the historian goes on by itself
            await asyncio.sleep(0.05)


async def listed(service: Service, **query: Any) -> list[str]:
    answer = await service.http.get("/v1/crawls", params=query)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["remembered"] is True
    return [item["crawlid"] for item in body["items"]]


async def until_listed(service: Service, name: str, **query: Any) -> None:
    async def is_listed() -> bool:
        return name in await listed(service, **query)

    await until(is_listed)


async def fail(service: Service, crawlid: str, number: int, *, appid: str = "shop", **fields: Any) -> None:
    given = {"reason": "http_503", "status": 503, "error": "", "url": f"http://a.test/{number}", **fields}
    message = RequestFailed(
        appid=appid, crawlid=crawlid, spider="link", request_id=f"r{number}", at=time.time(), **given
    )
    await service.context.bus.publish(service.context.topics.history, [encode_value(message)])


async def test_the_newest_crawl_is_first_on_pages_that_no_other_crawl_moves(past: Service) -> None:
    names = [f"c{number}" for number in range(5)]
    for name in names:
        await submit(past, name)
        await until_listed(past, name)
    first = (await past.http.get("/v1/crawls", params={"limit": 2})).json()
    await submit(past, "new")
    await until_listed(past, "new")
    rest = (await past.http.get("/v1/crawls", params={"limit": 9, "cursor": first["cursor"]})).json()
    assert [item["crawlid"] for item in (*first["items"], *rest["items"])] == names[::-1]
    assert rest["cursor"] == ""
    assert (await past.http.get("/v1/crawls", params={"cursor": "0:1"})).status_code == 400


async def test_filters_find_crawls_by_state_name_and_domain(past: Service) -> None:
    await submit(past, "Spring", url="http://one.test/")
    await submit(past, "autumn", url="http://two.test/")
    await until_listed(past, "Spring")
    await until_listed(past, "autumn")
    assert await listed(past, text="spr") == ["Spring"]
    assert await listed(past, domain="two.test") == ["autumn"]
    assert await listed(past, state="running", domain="three.test") == []
    await past.http.delete("/v1/crawls/shop/Spring")
    assert await listed(past, state="running") == ["autumn"]  # at once: the frontier is asked for what runs
    await until_listed(past, "Spring", state="stopped")


async def test_a_crawl_is_as_it_was_after_the_frontier_forgot_it(
    start: Start, one_server: Server, prefix: str, history: HistoryStore
) -> None:
    async with start(history=history) as service, remembering(service, history):
        await submit(service, "gone", max_pages="7")
        await until_listed(service, "gone")
        before = (await service.http.get("/v1/crawls/shop/gone")).json()
    # A service whose frontier has lost its data.
    async with running(one_server.address, prefix=f"{prefix}-new", history=history) as past, remembering(past, history):
        await until_listed(past, "gone", state="lost")
        after = (await past.http.get("/v1/crawls/shop/gone?domains=")).json()
        now = {"state": "lost", "ended": after["ended"], "queued_by_domain": {"items": [], "cursor": ""}}
        assert after == before | now
        assert after["max_pages"] == 7
        pages = await past.http.get("/v1/crawls/shop/gone/pages")
        assert (pages.status_code, pages.json()["items"]) == (200, [])
        assert (await past.http.get("/v1/crawls/shop/never")).status_code == 404
        for name in ("reasons", "rates", "ends"):
            assert (await past.http.get(f"/v1/crawls/shop/gone/{name}")).status_code == 200
            assert (await past.http.get(f"/v1/crawls/shop/never/{name}")).status_code == 404


async def test_ends_and_rates(past: Service, history: HistoryStore) -> None:
    await submit(past, "one")
    await until_listed(past, "one")
    end = CrawlEnded(event_id="e" * 32, kind="stopped", appid="shop", crawlid="one", run=1, at=time.time(), purged=1)
    await past.context.bus.publish(past.context.topics.history, [encode_value(end)] * 3)

    async def ends() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await past.http.get("/v1/crawls/shop/one/ends")).json()["items"]
        return items

    await until(ends)
    assert await ends() == [
        {"event_id": "e" * 32, "run": 1, "spiderid": None, "state": "stopped", "at": end.at, "purged": 1}
    ]
    rates = (await past.http.get("/v1/crawls/shop/one/rates")).json()
    assert rates["items"][0]["waiting"] == 1


async def test_without_a_history_the_api_says_so(service: Service) -> None:
    await submit(service, "one")
    answer = (await service.http.get("/v1/crawls")).json()
    assert ([item["crawlid"] for item in answer["items"]], answer["remembered"]) == (["one"], False)
    assert (await service.http.get("/v1/crawls?state=lost")).json()["items"] == []
    refused = await service.http.get("/v1/crawls?text=one")
    assert (refused.status_code, "history.database" in refused.text) == (400, True)
    assert (await service.http.get("/v1/crawls/shop/one/reasons")).json() == {
        "items": [], "remembered": False, "history_error": "",
    }  # fmt: skip
    for name in ("rates", "ends"):
        answer = await service.http.get(f"/v1/crawls/shop/one/{name}")
        assert (answer.status_code, "history.database" in answer.text) == (404, True)
    assert "<code>history.database</code>" in await text(service, "/crawls")


async def test_while_the_database_is_away_what_runs_is_shown_and_that_it_is_away(start: Start) -> None:
    """The frontier and the bus know what runs. Only what nothing else knows is an error."""
    store = HistoryStore("postgresql+psycopg://a@127.0.0.1:1/none")
    crawl = "/v1/crawls/shop/one"
    async with start(history=store) as service:
        await submit(service, "one", url="http://a.test/")
        for path, items in (("/v1/crawls", ["one"]), ("/v1/crawls?state=running&limit=1", ["one"])):
            answer = (await service.http.get(path)).json()
            assert ([item["crawlid"] for item in answer["items"]], answer["remembered"]) == (items, False)
            assert "connection failed" in answer["history_error"]
        for path in (f"{crawl}/reasons", f"{crawl}/url?url=http://a.test/"):
            answer = await service.http.get(path)
            assert (answer.status_code, "connection failed" in answer.json()["history_error"]) == (200, True)
        for path in (crawl, f"{crawl}/pages", "/v1/crawls/shop/other/pages"):
            assert (await service.http.get(path)).status_code == 200, path
        only_there = ("?text=o", "?domain=a.test", "?state=lost", "?cursor=MS4wIDE", "/shop/other", "/shop/one/rates")
        for path in only_there:
            answer = await service.http.get(f"/v1/crawls{path}")
            assert (answer.status_code, answer.json()["title"]) == (503, "History unavailable"), path
            assert answer.headers["retry-after"]
        for page in ("", "crawls", "crawl?appid=shop&crawlid=one",
                     "crawl/why?appid=shop&crawlid=one&url=http://a.test/"):  # fmt: skip
            shown = await service.http.get(f"/ui/{page}")
            assert (shown.status_code, "The history is away" in shown.text) == (200, True), page
            assert "a.test" in shown.text or "one" in shown.text
    await store.close()


async def test_the_dashboard_shows_what_was(past: Service, history: HistoryStore, tmp_path: Path) -> None:
    await submit(past, HOSTILE)
    await until_listed(past, HOSTILE)
    for number in range(3):
        await fail(past, HOSTILE, number, url=f"http://a.test/{HOSTILE}", error=HOSTILE)
    await until(lambda: history.failures(CrawlId("shop", HOSTILE), since=0))
    page = await text(past, "/crawl", appid="shop", crawlid=HOSTILE)
    assert HOSTILE not in page
    listed_page = await text(past, "/crawls", text="<img", domain="a.test")
    assert HOSTILE in unescape(listed_page)
    assert 'value="&lt;img"' in listed_page
    address = f"{str(past.http.base_url).rstrip('/')}/ui/crawl?appid=shop&crawlid=%3Cimg/src%3Dx/onerror%3Dalert(1)%3E"

    def show() -> tuple[list[str], list[str]]:
        with browser(tmp_path / "browser") as chrome:
            chrome.open(address)
            chrome.wait("document.querySelectorAll('.uplot').length == 2")
            labels = "[...document.querySelectorAll('[role=img]')].map(each => each.getAttribute('aria-label'))"
            return chrome.evaluate(labels), chrome.faults()

    labels, faults = await asyncio.to_thread(show)
    assert faults == []
    assert any(re.fullmatch(r"Waiting: \d+ now, \d+ at most", label or "") for label in labels)


async def test_the_overview_has_crawls_that_have_ended_with_failures(past: Service) -> None:
    """Most crawls are over when a person looks: what failed must not vanish from what needs attention."""
    await submit(past, "one", url="http://a.test/")
    worker = await past.frontier.open_leaseholder(pool="shared", spiders=["link"])
    [lease] = await worker.lease(limit=1)
    assert "Nothing needs attention." in await text(past, "/")
    await worker.settle([Settlement(lease, Outcome.FAILED, "http_500")])
    await worker.close()
    await until_listed(past, "one", state="finished")
    page = await text(past, "/")
    assert "Nothing needs attention." not in page
    assert re.search(r">one</a> \(finished, .*: failed requests: 1\.", page)


async def test_the_overview_has_the_speed_of_the_service_over_time(past: Service, history: HistoryStore) -> None:
    minute = int(time.time() // 60) - 2
    for each in range(3):
        await history.record_service_rate(ServiceRate(minute + each, 2.5 * each, 7 + each))
    found = (await past.http.get("/v1/rates", params={"minutes": 2})).json()
    assert found["remembered"]
    assert [(row["at"], row["pages_per_second"], row["waiting"]) for row in found["items"]] == [
        (60.0 * (minute + 1), 2.5, 8), (60.0 * (minute + 2), 5.0, 9)
    ]  # fmt: skip
    assert (await past.http.get("/v1/rates", params={"minutes": 1441})).status_code == 400
    shown = unescape(re.findall(r'data-rates="([^"]*)"', await text(past, "/"))[0])
    assert decode(shown.encode())[-2:] == found["items"]


_DRAWN = """((at) => {  // opaque points in the column of a chart that stands for a time
    const rates = JSON.parse(document.getElementById('rates').dataset.rates);
    const chart = document.querySelector('.chart'), canvas = chart.querySelector('canvas');
    const area = chart.querySelector('.u-over').getBoundingClientRect(), whole = canvas.getBoundingClientRect();
    const share = (at - rates[0].at) / (Date.now() / 1000 - rates[0].at);
    const x = (area.left + share * area.width - whole.left) * canvas.width / whole.width;
    const ratio = canvas.height / whole.height, top = (area.top - whole.top) * ratio;  // without the times below it
    const column = canvas.getContext('2d').getImageData(Math.round(x), top, 1, area.height * ratio).data;
    return column.filter((value, place) => (place & 3) === 3 && value > 0).length;
})(%d)"""


async def test_a_chart_has_a_gap_where_no_service_ran(past: Service, history: HistoryStore, tmp_path: Path) -> None:
    minute = int(time.time() // 60)
    for ago in (*range(60, 45, -1), *range(30, 0, -1)):
        await history.record_service_rate(ServiceRate(minute - ago, 5.0, 0))

    def drawn() -> list[int]:
        with browser(tmp_path / "browser") as page:
            page.open(f"{str(past.http.base_url).rstrip('/')}/ui/")
            page.wait("document.querySelector('.chart .u-legend')?.innerText.includes(':')")
            return [page.evaluate(_DRAWN % ((minute - ago) * 60 + 20)) for ago in (52, 38, 15)]

    before, gap, after = await asyncio.to_thread(drawn)
    assert min(before, after) > 50
    assert gap < 10


async def test_a_url_is_explained(past: Service) -> None:
    await submit(past, "one", url="http://a.test/start", allowed_domains="a.test")
    await until_listed(past, "one")
    await fail(past, "one", 7, url="http://a.test/start", reason="http_503")

    async def explained(url: str) -> dict[str, Any]:
        answer = await past.http.get("/v1/crawls/shop/one/url", params={"url": url})
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def has_failure() -> bool:
        return bool((await explained("http://a.test/start"))["failures"])

    await until(has_failure)
    found = await explained("HTTP://A.test/start#x")
    assert (found["url"], found["place"], found["position"], found["scope"]) == (
        "http://a.test/start", "queued", 0, "inside",
    )  # fmt: skip
    assert [failure["reason"] for failure in found["failures"]] == ["http_503"]
    other = await explained("http://b.test/")
    assert (other["seen"], other["place"]) == (False, "unknown")
    assert other["scope"] == "offsite: allowed domains: a.test"
    assert (await past.http.get("/v1/crawls/shop/one/url", params={"url": "ftp://x/"})).status_code == 400
    assert (await past.http.get("/v1/crawls/shop/no/url", params={"url": "http://a.test/"})).status_code == 404
    page = await text(past, "/crawl/why", appid="shop", crawlid="one", url="http://a.test/start")
    assert "waits in its queue" in page
    assert "http_503" in page
    refused = await text(past, "/crawl/why", appid="shop", crawlid="one", url="ftp://x/")
    assert 'role="alert"' in refused
    assert "/ui/crawl/why?appid=shop&amp;crawlid=one" in await text(past, "/crawl", appid="shop", crawlid="one")


async def test_a_url_that_a_retry_has_mended_is_done_before_its_old_failure_and_leads_to_its_record(
    past: Service,
) -> None:
    url = "http://a.test/start"
    await submit(past, "one", url=url, rate="1000/1")
    await until_listed(past, "one")
    worker = await past.frontier.open_leaseholder(pool="shared", spiders=["link"])
    names = {"appid": "shop", "crawlid": "one", "url": url}
    record = {"type": "page", **names, "success": False, "reason": "http_503", "status_code": 503}
    topic = past.context.topics.crawled_by("shop")
    await past.context.bus.publish(topic, [encode_value(record)])
    await fail(past, "one", 1, url=url)

    async def has_old_failure() -> bool:
        return "503" in await text(past, "/crawl/why", **names)

    await until(has_old_failure)
    ends = ((Outcome.FAILED, "http_503", "Failures"), (Outcome.FETCHED, "", "Earlier failures"))
    for outcome, reason, heading in ends:
        [lease] = await worker.lease(limit=1)
        await worker.settle([Settlement(lease, outcome, reason)])
        page = unescape(await text(past, "/crawl/why", **names))
        assert "is done; its record says how" in page
        assert page.index("is done; its record says how") < page.index(f"<h2>{heading}</h2>")
        kinds = re.findall(r'href="/ui/crawl/pages\?appid=shop&crawlid=one&kind=(\w+)&url=', page)
        assert kinds == (["failures"] if outcome is Outcome.FAILED else ["pages", "failures"])
        if outcome is Outcome.FAILED:
            assert (await past.http.post("/v1/crawls/shop/one/retry")).json()["retried"] == 1
    await worker.close()
    mended = {**record, "success": True, "reason": "", "status_code": 200}
    await past.context.bus.publish(topic, [encode_value(mended), encode_value({**mended, "url": "http://a.test/2"})])
    for kind, status in (("pages", "200"), ("failures", "503")):
        found = (await past.http.get(f"/v1/crawls/shop/one/{kind}", params={"url": "HTTP://A.test/start#x"})).json()
        assert [str(each["status_code"]) for each in found["items"]] == [status]
        shown = await text(past, "/crawl/pages", **names, kind=kind)
        assert re.findall(r'<details class="record" open><summary><span class="code[^>]*>(\d+)<', shown) == [status]
        assert "Only records of http://a.test/start." in shown


async def test_a_domain_shows_how_much_of_its_limits_was_used(past: Service, history: HistoryStore) -> None:
    minute = int(time.time() // 60)
    await history.record_domain_uses([DomainUse("a.test", minute, 7.5, most=9, hits=10, window=60.0)])
    found = (await past.http.get("/v1/domains/a.test/use")).json()
    assert found["remembered"]
    assert found["items"] == [{"at": minute * 60.0, "used": 7.5, "most": 9, "hits": 10, "window": 60.0}]
    page = await text(past, "/domain", domain="a.test")
    shown = unescape(re.findall(r'data-rates="([^"]*)"', page)[0])
    assert decode(shown.encode()) == [{"at": minute * 60.0, "used": 7.5, "allowed": 10}]
    assert "The last 24 hours" in page
