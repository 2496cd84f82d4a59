"""The frontier or the bus away: said at once, and everything goes on when they are back."""

import asyncio
from html import unescape
from pathlib import Path

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
                    is_told = "does not answer" in page
                    return "" if is_told and shown in page and "</html>" in page else f"{path}: {page}"

                assert [
                    wrong for wrong in await asyncio.gather(*(told(*each) for each in pages.items())) if wrong
                ] == []
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
