"""What large pages hold of the budget of bodies: until they are committed or given up, and never for ever."""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from gossamer.commit.committer import Committer
from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.fakeweb import WebSpec, html, plain, redirect, serve
from gossamer.fakeweb.answer import Answer
from gossamer.fetch.budget import ByteBudget
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, DomainPolicy, Terms
from gossamer.model.record import Output, PageRecord
from gossamer.model.request import MAX_DEATHS, Outcome, Settlement
from gossamer.sinks.open import open_sinks
from gossamer.telemetry.logs import Troubles
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.wiring.frontier import connect
from gossamer.wiring.worker import open_worker
from gossamer.worker.records import bare_record
from tests.servers.crawling import records_of, settings_for
from tests.servers.crawls import info, open_crawl

SIZE = 1_000_000
PAGES = 4


@asynccontextmanager
async def a_frontier(folder: Path) -> AsyncIterator[ValkeyFrontier]:
    async with EmbeddedValkey(folder / "valkey", name="test", appendfsync="no") as server:
        frontier = await connect(settings_for(folder), server.address)
        try:
            await frontier.set_domain_policy(None, DomainPolicy(hits=10_000, window_seconds=1, moderated=False))
            yield frontier
        finally:
            await frontier.close()


@asynccontextmanager
async def a_committer(folder: Path, budget: ByteBudget) -> AsyncIterator[tuple[Committer, list[FinishedLease]]]:
    """One whose `run` is the caller's to begin, and large pages that are finished and count in the budget."""
    async with a_frontier(folder) as frontier:
        await open_crawl(frontier, [f"http://a{number}.test/" for number in range(PAGES)], Terms())
        holder = await frontier.open_leaseholder(pool="shared", spiders=["link"])
        (sink,) = open_sinks([str(folder / "pages.jsonl")], spool_dir=folder / "spool")
        try:
            pages = []
            for lease in await holder.lease(limit=PAGES):
                output = Output(record=bare_record(lease, now=0.0, reason="test", exception=""))
                budget.retain(SIZE)
                pages.append(
                    FinishedLease(
                        Settlement(lease, Outcome.FAILED, "test"),
                        [output],
                        size=SIZE,
                        on_released=partial(budget.release, SIZE),
                    )
                )
            assert budget.retained_bytes == PAGES * SIZE
            yield Committer(frontier, holder, sink, Retrier(Troubles(None))), pages
        finally:
            await sink.close()
            await holder.close()


async def test_a_page_is_kept_until_it_is_committed(tmp_path: Path) -> None:
    """Not less: what waits for the output is in memory. Not longer, and once."""
    budget = ByteBudget(SIZE)
    async with a_committer(tmp_path, budget) as (committer, pages):
        for page in pages:
            await committer.put(page)
        assert budget.retained_bytes == PAGES * SIZE
        committer.stop_lingering()
        running = asyncio.create_task(committer.run())
        await asyncio.wait_for(committer.wait_until_drained(), 60)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert budget.retained_bytes == 0
        for page in pages:
            page.release_outputs()
        assert budget.retained_bytes == 0
    assert len(list(records_of(tmp_path / "pages.jsonl"))) == PAGES


async def test_a_page_that_is_given_up_is_let_go(tmp_path: Path) -> None:
    """Its lease is another worker's now."""
    budget = ByteBudget(SIZE)
    async with a_committer(tmp_path, budget) as (committer, pages):
        for page in pages:
            await committer.put(page)
        lease = pages[0].settlement.lease
        await committer._frontier._commands.call(  # type: ignore[attr-defined]
            0, "reclaim", 10_000, 3_600_000, 200, lease.worker, 0, MAX_DEATHS
        )
        await committer._holder.heartbeat()
        running = asyncio.create_task(committer.run())
        await asyncio.wait_for(committer.wait_until_drained(), 60)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert (budget.retained_bytes, committer.pending) == (0, 0)
    assert list(records_of(tmp_path / "pages.jsonl")) == []


async def test_a_page_that_failed_with_a_large_body_is_counted_until_it_is_committed(tmp_path: Path) -> None:
    packed = (("Content-Type", "text/html"), ("Content-Encoding", "gzip"))
    text = os.urandom(SIZE // 2).hex().encode()
    async with serve(WebSpec(hosts=1, pages=1)) as web, a_frontier(tmp_path) as frontier:
        web.mount("a.test", "/", Answer(headers=packed, body=text))  # plain: it cannot be decoded
        settings = settings_for(tmp_path, ["*.test:127.0.0.1"])
        run = await open_crawl(frontier, [f"http://a.test:{web.port}/"], Terms(maxdepth=0))
        async with open_worker(settings, frontier, pool="shared", run=run) as worker:
            fetcher, holder = worker._fetcher, worker._holder
            budget = fetcher._budget
            (lease,) = await holder.lease(limit=1)
            finished = await fetcher.process(lease)
            assert (finished.settlement.outcome, finished.outputs[0].body) == (Outcome.FAILED, text)
            assert budget.retained_bytes >= SIZE
            finished.release_outputs()
            assert budget.retained_bytes == 0


async def test_a_crawl_ends_however_small_the_budget(tmp_path: Path) -> None:
    """One large page at a time then. Redirects with a large body, whose targets' robots.txt is fetched meanwhile, do
    not stand in their own way, nor does a page that cannot be decoded."""
    text = os.urandom(SIZE // 2).hex()
    packed = (("Content-Type", "text/html"), ("Content-Encoding", "gzip"))
    async with serve(WebSpec(hosts=1, pages=1)) as web, a_frontier(tmp_path) as frontier:
        urls = []
        for number in range(8):
            name, onward = f"a{number}.test", f"www.a{number}.test"
            web.mount(onward, "/robots.txt", plain(f"# {text[:200_000]}\nUser-agent: *\nDisallow: /no\n"))
            web.mount(onward, "/", Answer(headers=packed, body=gzip.compress(f"<p>{text}".encode(), 1)))
            away = redirect(f"http://{onward}:{web.port}/")
            web.mount(name, "/", Answer(status=away.status, headers=away.headers, body=text.encode()))
            web.mount(name, "/links", html("".join(f"<a href=/{at}>" for at in range(400)) + text))
            web.mount(name, "/broken", Answer(headers=packed, body=text.encode()))
            urls += [f"http://{name}:{web.port}{path}" for path in ("/", "/links", "/broken")]
        settings = settings_for(tmp_path, ["*.test:127.0.0.1"], fetch__bodies_in_flight=1, fetch__timeout=30.0)
        run = await open_crawl(frontier, urls, Terms(maxdepth=0))
        async with open_worker(settings, frontier, pool="shared", run=run) as worker:
            await asyncio.wait_for(worker.run(), 60)
        assert (await info(frontier)).state is CrawlState.FINISHED
    records = {record.url: record for record in records_of(tmp_path / "pages.jsonl") if isinstance(record, PageRecord)}
    assert records.keys() == set(urls)
    assert {(record.url.rpartition("/")[2], record.success, record.reason) for record in records.values()} == {
        ("", True, ""),
        ("links", True, ""),
        ("broken", False, "decode"),
    }
    assert all(text in record.body for record in records.values() if record.success)
