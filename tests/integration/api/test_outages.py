"""The frontier or the bus away: said at once, and everything goes on when they are back."""

import asyncio
from html import unescape
from pathlib import Path

import pytest

from gossamer.dashboard import service as page_calls
from gossamer.dashboard.crawl_section import ROUTES
from gossamer.history.audit import HistoryAudit
from gossamer.history.store import HistoryStore
from tests.servers.cluster_faults import paused
from tests.servers.valkey import standalone

from .conftest import running
from .test_past import remembering, until_listed

PROBLEM = "application/problem+json"
CRAWL = {"appid": "shop", "crawlid": "prices", "url": "https://example.com/"}


async def test_a_frontier_that_is_away_is_told_and_waited_for() -> None:
    with standalone() as server:
        async with running(
            server.address, prefix="t", feed_wait_seconds=0.2, max_requests_per_second=100_000
        ) as service:
            http = service.http
            await service.feed(CRAWL)
            question = {"uuid": "u", "appid": "shop", "stats": "queue"}
            server.kill()
            for method, path, body in (
                ("POST", "/v1/crawls", CRAWL),
                ("GET", "/v1/crawls", None),
                ("GET", "/v1/crawls/shop/prices", None),
                ("GET", "/v1/crawls/shop/prices/pages", None),
                ("DELETE", "/v1/crawls/shop/prices", None),
                ("GET", "/v1/domains", None),
                ("PUT", "/v1/domains/a.example", {"hits": 1}),
                ("GET", "/v1/workers", None),
                ("GET", "/v1/stats", None),
                ("GET", "/v1/queues", None),
            ):
                answer = await http.request(method, path, json=body)
                assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM), (path, answer.text)
                assert int(answer.headers["retry-after"]) > 0
            for sent in (CRAWL, question):
                answer = await http.post("/feed", json=sent)
                assert answer.status_code == 500
                assert answer.json()["error"]["message"] == "Unable to connect to Redis"
            answer = await http.post("/poll", json={"poll_id": "u"})
            assert (answer.status_code, answer.json()["error"]["message"]) == (500, "Unable to connect to Redis")
            ready = await http.get("/readyz")
            assert (ready.status_code, ready.json()["frontier"]) == (503, False)
            assert (await http.get("/")).json()["node_health"] == "RED"
            assert (await http.get("/healthz")).status_code == 200
            assert (await http.get("/metrics")).status_code == 200

            server.start()
            async with asyncio.timeout(60):
                while (await http.get("/readyz")).status_code != 200:
                    pass
            assert (await http.get("/v1/crawls/shop/prices")).json()["total"]["queued"] == 1
            assert (await service.feed(question))["data"]["queues"]["total_backlog"] == 1


async def test_a_dashboard_says_soon_that_the_frontier_hangs_and_shows_what_is_known(tmp_path: Path) -> None:
    """A frozen server keeps its connections, so calls of the API itself wait for half a minute."""
    history = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    with standalone() as server:
        async with running(server.address, prefix="t", history=history) as service, remembering(service, history):
            await service.feed(CRAWL)
            await until_listed(service, "prices")
            pages = {"": "prices", "crawls": "prices", "crawl?appid=shop&crawlid=prices": "prices"}
            pages |= {"domain?domain=a.test": "", "workers": "", "bus": "", "domains": ""}
            for path in pages:
                assert (await service.http.get(f"/ui/{path}")).status_code == 200
            with paused(server):

                async def told(path: str, shown: str) -> str:
                    try:
                        async with asyncio.timeout(10):  # far below the half minute, and far above the deadline
                            page = unescape((await service.http.get(f"/ui/{path}")).text)
                    except TimeoutError:
                        return f"{path} hangs"
                    is_told = "not answer" in page
                    return "" if is_told and shown in page and "</html>" in page else f"{path}: {page}"

                report = "crawl/report/page?appid=shop&crawlid=prices"
                assert "Nothing needs attention" not in (await service.http.get("/ui/")).text
                asked = (told(*each) for each in (*pages.items(), (report, "No report can be made now: ")))
                assert [wrong for wrong in await asyncio.gather(*asked) if wrong] == []
    await history.close()


async def test_a_change_without_an_answer_is_told_soon_and_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page does not say whether it was made: that happens when the frozen server goes on. It leads back to the
    dashboard's page that has the form, and to no other place."""
    monkeypatch.setattr(page_calls, "_CHANGE_SECONDS", 0.5)
    history = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    with standalone() as server:
        async with running(server.address, prefix="t", history=history, audit=HistoryAudit(history)) as service:
            for crawlid in ("prices", "old"):
                await service.feed({**CRAWL, "crawlid": crawlid})
            letter = {"topic": service.context.topics.incoming, "message": "{}", "message_encoding": "text"}
            names = {"appid": "shop", "crawlid": "old"}
            forms: dict[str, dict[str, str]] = {
                "/crawls/submit": {**CRAWL, "url": "https://example.com/new"}, "/crawl/stop": names,
                "/crawl/retry": names, "/domain/change": {"domain": "a.test", "hits": "7"}, "/bus/replay": letter,
            }  # fmt: skip
            previews = {"/crawls/preview", "/domain/preview"}
            assert {path for path, route in ROUTES.items() if route.method == "POST"} == forms.keys() | previews
            with paused(server):
                root = str(service.http.base_url).rstrip("/")
                referers = [f"{root}/ui/domains?a=b&c", "http://evil.test/ui/domains", f"{root}/v1/x", "", "//ui/"]
                shown = ["/ui/domains?a=b&c", "/ui/", "/ui/", "/ui/", "/ui/"]

                async def send(path: str, referer: str, link: str) -> None:
                    async with asyncio.timeout(10):
                        headers = {"Referer": referer} if referer else {}
                        answer = await service.http.post(f"/ui{path}", data=forms[path], headers=headers)
                    assert (answer.status_code, "Not known whether it was done" in answer.text) == (503, True), path
                    assert f'href="{link}">See how it is now</a>' in unescape(answer.text)

                await asyncio.gather(*map(send, forms, referers, shown))
            async with asyncio.timeout(60):
                while True:
                    entries = (await service.http.get("/v1/audit")).json()["items"]
                    if len(entries) == len(forms) + 2 and all(entry["outcome"] != "begun" for entry in entries):
                        break
            assert (await service.http.get("/v1/crawls/shop/prices")).json()["total"]["added"] == 2
            assert (await service.http.get("/v1/domains/a.test")).json()["policy"] == {"hits": 7}
            topics = (await service.http.get("/v1/topics")).json()["of_requests"]
            assert [topic["messages"] for topic in topics] == [1]
    await history.close()


async def test_a_frontier_that_is_full_refuses_new_crawls_only() -> None:
    with standalone(options={"maxmemory-policy": "noeviction"}) as server:
        async with running(server.address, prefix="t") as service:
            await service.feed(CRAWL)
            server.command("CONFIG", "SET", "maxmemory", "1")
            answer = await service.http.post("/v1/crawls", json={**CRAWL, "url": "https://example.com/2"})
            assert (answer.status_code, answer.json()["title"]) == (503, "Frontier full")
            assert int(answer.headers["retry-after"]) > 0
            assert (await service.http.get("/v1/crawls/shop/prices")).status_code == 200
