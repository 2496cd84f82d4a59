"""Admitted requests on their way into a real frontier: each one's answer is its own."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gossamer.control.admission import DUPLICATE, AdmittedRequest, submit
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, Terms
from tests.servers.valkey import Server


@pytest.fixture(params=[1, 4], ids=["single", "sharded"])
async def frontier(one_server: Server, request: pytest.FixtureRequest) -> AsyncIterator[ValkeyFrontier]:
    one_server.command("FLUSHALL")
    frontier = await ValkeyFrontier.connect(one_server.address, shards=request.param)
    yield frontier
    await frontier.close()


def asked(
    crawlid: str, url: str, *, spider: str = "link", payload: bytes | None = None, **terms: Any
) -> AdmittedRequest:
    return AdmittedRequest(
        crawl=Crawl(id=CrawlId("app", crawlid)),
        terms=Terms(**terms),
        spider=spider,
        domain=url.split("/")[2],
        priority=0,
        url=url,
        payload=payload,
    )


async def reasons(frontier: ValkeyFrontier, *submissions: AdmittedRequest) -> list[str]:
    answers = await submit(frontier, submissions)
    assert all(answer.added == (not answer.reason) for answer in answers)
    return [answer.reason for answer in answers]


async def test_each_gets_its_own_answer(frontier: ValkeyFrontier) -> None:
    for name, state in [("over", CrawlState.STOPPED), ("late", CrawlState.EXPIRED)]:
        await submit(frontier, [asked(name, "https://a.test/")])
        await frontier.stop_crawl(CrawlId("app", name), state=state)
    await submit(frontier, [asked("part", "https://a.test/", spider="other")])
    await frontier.stop_crawl(CrawlId("app", "part"), spider="other")
    assert await reasons(
        frontier,
        asked("one", "https://a.test/"),
        asked("one", "https://b.test/", attrs={"n": 1}),
        asked("one", "https://a.test/", attrs={"n": 1}),
        asked("over", "https://a.test/2"),
        asked("two", "https://a.test/"),
        asked("one", "https://a.test/"),
        asked("late", "https://a.test/3"),
        asked("two", "https://b.test/", payload=b"x" * (2 << 20)),
        asked("part", "https://a.test/4"),
        asked("part", "https://a.test/4", spider="other"),
        asked("three", "https://a.test/5", domain_max_pending=1),
        asked("three", "https://a.test/6", domain_max_pending=1),
    ) == [
        "",
        "",
        DUPLICATE,
        "This crawl takes no more requests: app/over is stopped",
        "",
        DUPLICATE,
        "This crawl takes no more requests: app/late is expired",
        f"a request's payload is {2 << 20} bytes, at most {1 << 20} fit: https://b.test/",
        "",
        "This crawl takes no more requests: this spider's part of app/part is stopped",
        "",
        "the domain's share of the queue is full",
    ]


async def test_many_crawls_and_one_crawl_of_many(frontier: ValkeyFrontier) -> None:
    own = [asked(str(n), f"https://d{n % 40}.test/{n}", attrs={"n": n}) for n in range(300)]
    shared = [asked("all", f"https://d{n % 40}.test/{n}", payload=b"x" if n % 2 else None) for n in range(300)]
    assert await reasons(frontier, *own, *shared) == [""] * 600
    assert await reasons(frontier, *own, *shared) == [DUPLICATE] * 600
    info = await frontier.crawl_info(CrawlId("app", "all"))
    assert info is not None
    assert info.total().queued == 300


async def test_a_part_expires_with_the_last_of_what_was_submitted(one_server: Server) -> None:
    one_server.command("FLUSHALL")
    now = 1_800_000_000.0
    frontier = await ValkeyFrontier.connect(one_server.address, shards=4, clock=lambda: now)
    soon, later = now + 10, now + 20
    await submit(
        frontier,
        [
            asked("gone", "https://a.test/1", expires=soon),
            asked("kept", "https://a.test/1", expires=soon),
            asked("kept", "https://a.test/2", expires=later),
            asked("always", "https://a.test/1", expires=soon),
            asked("always", "https://a.test/2"),
        ],
    )
    now += 11
    assert await frontier.expire_due() == 1
    now += 10
    assert await frontier.expire_due() == 1
    assert [event.crawl.crawlid for event in await frontier.pending_events()] == ["gone", "kept"]
    await frontier.close()
