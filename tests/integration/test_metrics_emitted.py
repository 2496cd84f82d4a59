"""What the metrics of a running service count, wherever in its processes it happens."""

import asyncio
from pathlib import Path

import httpx

from gossamer.bus.streams import StreamsBus
from gossamer.control.stats import Counters
from gossamer.fakeweb import FakeWeb, WebSpec, html
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, DomainPolicy, Terms
from gossamer.model.request import Batch
from gossamer.services.reporter import ServiceReporter
from gossamer.telemetry.metrics import ServiceMetrics
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.valkey.shards import Shards
from tests.servers import crawls
from tests.servers.crawling import resolving
from tests.servers.service import up
from tests.servers.valkey import standalone, wait_until

HOSTS = 6
LARGE = 400_000
SMALLEST_STREAM = 2**20
TOPIC = "demo.crawled_firehose"


async def leased_by_a_worker_that_dies(address: str, web: FakeWeb) -> None:
    """A crawl all of whose requests are in the hands of somebody who is never heard of again."""
    frontier = await ValkeyFrontier.connect(address, dead_after_seconds=2.0)
    try:
        await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1, moderated=False))
        await crawls.open_crawl(frontier, web.seeds(), Terms(maxdepth=0))
        seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
        assert len(await seat.lease(limit=HOSTS)) == HOSTS
    finally:
        await frontier.close()


async def a_group_that_reads_nothing(address: str) -> None:
    shards = await Shards.connect(address)
    bus = StreamsBus(shards, prefix="gossamer", keep_until_acknowledged=())
    consumer = await bus.consume([TOPIC], group="asleep")
    await consumer.take(at_most=1, wait_seconds=0.01)
    await consumer.close()
    await shards.close()


def test_what_workers_do_is_counted_where_the_service_is_asked(tmp_path: Path) -> None:
    """Requests taken back from the dead, and messages that a full stream lost."""
    with standalone(tcp=True) as server, FakeWeb.start(WebSpec(hosts=HOSTS)) as web:
        for number in range(HOSTS):
            web.mount(f"site{number}.test", "/", html("x" * LARGE))
        asyncio.run(leased_by_a_worker_that_dies(server.address, web))
        asyncio.run(a_group_that_reads_nothing(server.address))
        environment = {
            "GOSSAMER_TOPICS__MAX_BYTES": str(SMALLEST_STREAM),
            "GOSSAMER_TOPICS__MAX_INLINE_BODY": str(2 * LARGE),
        }
        flags = ["--frontier", server.address, *resolving(web.resolve_overrides())]
        with up(tmp_path, *flags, environment=environment) as service, httpx.Client(base_url=service.api) as api:

            def shown() -> list[str]:
                return api.get("/metrics").text.splitlines()

            wait_until(lambda: f"gossamer_pages_total {HOSTS}.0" in shown(), "the pages")
            # The process that took them back may report later than the one that fetched them.
            wait_until(lambda: f"gossamer_reclaimed_total {HOSTS}.0" in shown(), "the requests that were taken back")
            trimmed = 'gossamer_trimmed_total{topic="' + TOPIC
            wait_until(lambda: any(line.startswith(trimmed) for line in shown()), "a trimmed stream")
            assert service.stop() == 0


async def test_an_empty_queue_is_shown_as_empty(tmp_path: Path) -> None:
    metrics = ServiceMetrics()
    async with EmbeddedValkey(tmp_path / "valkey", name="test", appendfsync="no") as server:
        frontier = await ValkeyFrontier.connect(server.address)
        counters = Counters(frontier.connection, prefix="gossamer")
        reporter = ServiceReporter(frontier, counters, metrics, roles=(), dump_seconds=0, id="0" * 12, troubles={})
        await reporter.run_once()
        assert b'gossamer_queued{spider="link"} 0.0' in metrics.render(), "an autoscaler needs a series"
        await crawls.open_crawl(frontier, ["http://a.test/"], Terms())
        await reporter.run_once()
        assert b'gossamer_queued{spider="link"} 1.0' in metrics.render()
        seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
        assert await seat.lease(limit=1)
        await reporter.run_once()
        assert b'gossamer_queued{spider="link"} 0.0' in metrics.render()
        run = await frontier.open_crawl(Crawl(id=CrawlId("app", "rendered")))
        batch = Batch("link", "b.test", 0, 0, ["http://b.test/"], [7], render=True)
        await frontier.add(run, Terms(), [batch], seeds=True)
        await frontier.announce_browser(pool="shared", worker=seat.worker, seconds=60)
        await reporter.run_once()
        shown = metrics.render()
        for line in (
            b'gossamer_queued{spider="link"} 1.0',
            b"gossamer_queued_to_render 1.0",
            b"gossamer_browser_workers 1.0",
        ):
            assert line in shown
        await seat.close()
        await frontier.close()
