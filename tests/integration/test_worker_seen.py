"""What a worker remembers as seen is what the frontier has, whatever the terms under which it was offered."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gossamer.fakeweb import FakeWeb, WebSpec, html, serve
from gossamer.frontier.base import AddResult
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import DomainPolicy, Run, Terms
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.wiring.worker import open_worker
from tests.servers import crawls
from tests.servers.crawling import settings_for

HELD = "http://held.test/"
"""A seed whose domain is blacklisted: the run goes on as long as it waits."""


class WatchedFrontier(ValkeyFrontier):
    """Calls `before_add` before links are offered to it."""

    before_add: Callable[[], None] | None = None

    async def add(self, *arguments: Any, **options: Any) -> AddResult:
        if self.before_add is not None:
            self.before_add()
        return await super().add(*arguments, **options)


class Scene:
    """A frontier whose clock the test sets, a web, and a worker at work."""

    def __init__(self, web: FakeWeb, frontier: WatchedFrontier, clock: list[float]) -> None:
        self.web, self.frontier, self.clock = web, frontier, clock

    async def submit(self, path: str, terms: Terms) -> Run:
        return await crawls.open_crawl(self.frontier, [f"http://a.test:{self.web.port}{path}"], terms)

    async def until_done(self) -> None:
        """Return when nothing but the held request is left."""
        async with asyncio.timeout(60):
            while True:
                total = (await crawls.info(self.frontier)).total()
                if total.queued == 1 and not total.leased and not total.later:
                    return
                await asyncio.sleep(0.01)


@asynccontextmanager
async def at_work(folder: Path) -> AsyncIterator[Scene]:
    clock = [1_800_000_000.0]
    async with (
        EmbeddedValkey(folder / "valkey", name="test", appendfsync="no") as server,
        serve(WebSpec(hosts=1)) as web,
    ):
        frontier = await WatchedFrontier.connect(server.address, clock=lambda: clock[0])
        try:
            await frontier.set_domain_policy(None, DomainPolicy(hits=10_000, window_seconds=1, moderated=False))
            await frontier.set_domain_policy("held.test", DomainPolicy(blacklisted=True))
            await crawls.open_crawl(frontier, [HELD], Terms())
            async with open_worker(settings_for(folder, ["*.test:127.0.0.1"]), frontier, pool="shared") as worker:
                running = asyncio.create_task(worker.run())
                yield Scene(web, frontier, clock)
                worker.stop()
                await asyncio.wait_for(running, 60)
        finally:
            await frontier.close()


async def test_links_dropped_with_expired_terms_are_fetched_for_another_submission(tmp_path: Path) -> None:
    """The first submission expires while its page is in flight. The second never does, and finds the same links."""
    links = html('<a href="/x">x</a><a href="/y">y</a>')
    async with at_work(tmp_path) as scene:
        for path in ("/first", "/second"):
            scene.web.mount("a.test", path, links)
        for path in ("/x", "/y"):
            scene.web.mount("a.test", path, html("no links"))
        expires = scene.clock[0] + 60
        await scene.submit("/first", Terms(expires=expires))

        def expire() -> None:
            scene.clock[0] = expires + 1

        scene.frontier.before_add = expire
        await scene.until_done()
        total = (await crawls.info(scene.frontier)).total()
        assert (total.fetched, total.links_dropped) == (1, {"expired": 2})
        await scene.submit("/second", Terms())
        await scene.until_done()
        total = (await crawls.info(scene.frontier)).total()
        assert (total.fetched, total.links_dropped) == (4, {"expired": 2})
        pages = [record.path for record in scene.web.log() if record.path != "/robots.txt"]
        assert pages[:2] == ["/first", "/second"]
        assert sorted(pages[2:]) == ["/x", "/y"]
