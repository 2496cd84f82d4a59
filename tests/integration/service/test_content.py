"""Text and Markdown in a service: requests on the bus and over REST, and a worker that other crawls share."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gossamer.fakeweb import WebSpec, html, serve
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.content import ContentOptions
from gossamer.model.crawl import Crawl, CrawlId, DomainPolicy, Terms
from gossamer.model.record import PageRecord
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.wiring.frontier import connect
from gossamer.wiring.worker import open_worker
from tests.servers.crawling import records_of, settings_for
from tests.servers.crawls import info, open_crawl, until_over
from tests.servers.service import talking, up

ARTICLE = "<html><body><main><h1>Title</h1><p>" + "A sentence of the text. " * 30 + "</p></main></body></html>"
SLOW = "<html><body><main><table>" + ("<tr>" + "<td>cell</td>" * 60 + "</tr>") * 12000 + "</table></main></body></html>"
"""Takes far longer than the other crawl in the test."""
REQUEST = {"appid": "testapp", "maxdepth": 0}


async def test_requests_on_the_bus_and_over_rest_get_markdown(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1), mounts={("a.test", "/"): html(ARTICLE)}) as web:
        url = f"http://a.test:{web.port}/"

        def run() -> Any:
            return up(tmp_path, "--resolve", "a.test:127.0.0.1")

        with run() as service:
            async with talking(service) as talk:
                await talk.say({**REQUEST, "crawlid": "bus", "url": url, "markdown": True})
                [page] = await talk.until(talk.topics.crawled_by("testapp"), lambda found: len(found) == 1)
                assert page["content"]["markdown"].startswith("# Title\n\nA sentence of the text.")
                async with httpx.AsyncClient() as client:
                    answer = await client.post(
                        f"{service.api}/feed",
                        json={**REQUEST, "crawlid": "rest", "url": url, "text": True, "chunk": 300},
                    )
                assert answer.status_code == 200, answer.text
                found = await talk.until(talk.topics.crawled_by("testapp"), lambda found: len(found) >= 5)
    chunks = [message["item"] for message in found if message["type"] == "item"]
    assert [chunk["chunk"] for chunk in chunks] == [1, 2, 3]
    assert chunks[0]["headings"] == ["Title"]
    assert [message["content"] for message in found[1:] if message["type"] == "page"] == [None]


@pytest.mark.parametrize(
    ("fields", "field", "offered"),
    [
        ({"markdown": True}, "markdown", "no"),
        ({"text": True}, "text", "no"),
        ({"chunk": 500}, "chunk", "yes"),
        ({"text_in": "items"}, "text_in", "yes"),
        ({"text": True, "markdown": True, "chunk": 500}, "chunk", "yes"),
        ({"markdown": True, "chunk": 10}, "chunk", "yes"),
    ],
)
def test_a_request_that_cannot_be_served_is_rejected_with_the_field(
    services: dict[str, str], fields: dict[str, Any], field: str, offered: str
) -> None:
    answer = httpx.post(
        f"{services[offered]}/feed", json={**REQUEST, "crawlid": "x", "url": "http://a.test/", **fields}
    )
    assert answer.status_code == 400, answer.text
    assert field in answer.text


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Addresses of the API of a service that offers text, and of one that does not."""
    with (
        up(tmp_path_factory.mktemp("yes"), command="serve") as offering,
        up(tmp_path_factory.mktemp("no"), command="serve", environment={"GOSSAMER_SERVICE__TEXT": "false"}) as other,
    ):
        yield {"yes": offering.api, "no": other.api}


@pytest.fixture
async def frontier(tmp_path: Path) -> AsyncIterator[ValkeyFrontier]:
    async with EmbeddedValkey(tmp_path / "valkey", name="test", appendfsync="no") as server:
        found = await connect(settings_for(tmp_path), server.address)
        try:
            await found.set_domain_policy(None, DomainPolicy(hits=10_000, window_seconds=1, moderated=False))
            yield found
        finally:
            await found.close()


async def test_pages_that_wait_for_text_do_not_hold_up_another_crawl(tmp_path: Path, frontier: ValkeyFrontier) -> None:
    """All slots of the worker would be taken by the first crawl. Stopping gives its requests back."""
    slow, plain = CrawlId("app", "slow"), CrawlId("app", "plain")
    hosts = range(12)
    mounts = {(f"slow{host}.test", "/"): html(SLOW) for host in hosts} | {
        (f"plain{host}.test", "/"): html("<p>short</p>") for host in hosts
    }
    settings = settings_for(
        tmp_path, ["*:127.0.0.1"], worker__concurrency=4, worker__drain=0.5, text__processes=1, text__cpu=600.0,
        text__memory=4 << 30, allow_networks=("127.0.0.0/8",),
    )  # fmt: skip
    async with serve(WebSpec(hosts=1, pages=1), mounts=mounts) as web:
        terms = Terms(maxdepth=0, content=ContentOptions(markdown=True))
        seeds = [f"http://slow{host}.test:{web.port}/" for host in hosts]
        await open_crawl(frontier, seeds, terms, crawl=Crawl(id=slow))
        async with open_worker(settings, frontier, pool="shared") as worker:
            running = asyncio.create_task(worker.run())
            async with asyncio.timeout(60):
                while len([one for one in web.log() if one.path == "/"]) < 2:  # noqa: ASYNC110 (another process)
                    await asyncio.sleep(0.01)
                seeds = [f"http://plain{host}.test:{web.port}/" for host in hosts]
                await open_crawl(frontier, seeds, Terms(maxdepth=0), crawl=Crawl(id=plain))
                done = await until_over(frontier, plain, every_seconds=0.05)
            assert done.total().fetched == len(hosts)
            assert (await info(frontier, slow)).total().fetched == 0
            worker.stop()
            await running
    left = (await info(frontier, slow)).total()
    assert (left.fetched, left.added - left.done) == (0, len(hosts))


async def test_a_worker_without_the_extra_says_so_in_the_record(
    tmp_path: Path, frontier: ValkeyFrontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.extract.content_pool.has_trafilatura", lambda: False)
    settings = settings_for(tmp_path, ["*:127.0.0.1"], allow_networks=("127.0.0.0/8",))
    async with serve(WebSpec(hosts=1, pages=1), mounts={("a.test", "/"): html(ARTICLE)}) as web:
        terms = Terms(maxdepth=0, content=ContentOptions(markdown=True))
        run = await open_crawl(frontier, [f"http://a.test:{web.port}/"], terms)
        async with open_worker(settings, frontier, pool="shared", run=run) as worker:
            await asyncio.wait_for(worker.run(), 60)
    [page] = records_of(tmp_path / "pages.jsonl")
    assert isinstance(page, PageRecord)
    assert page.success
    assert page.content is not None
    assert page.content.error == "unavailable"
