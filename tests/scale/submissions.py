"""Many submissions, each with attributes of its own, through one worker: its memory does not grow with their number."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.base import Submission, SubmissionResult
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, DomainPolicy, Terms
from gossamer.model.request import Batch
from gossamer.policy.urls import fingerprint, host, registered_domain, spider_seed
from gossamer_fakeweb.log import is_page
from tests.scale.sampling import Sampler, memory_of
from tests.servers.crawling import command, resolving
from tests.servers.valkey import standalone

GROWTH_BYTES = 50 * 2**20
"""The worker's memory may grow by less than this."""
PAGES = 100
"""Submissions of one crawl; each crawl has a host."""
_WARM_SHARE = 0.02
"""The worker's memory after this share of the pages is what its growth is measured from."""
_AT_ONCE = 1000
_POOL = "shared"


@dataclass(frozen=True, slots=True)
class Fed:
    """What came of it. Memory in bytes."""

    submissions: int
    fetched: int
    before: int
    """Memory of the worker when it was warm."""
    most: int
    """The most memory it had from then on."""

    @property
    def growth(self) -> int:
        return self.most - self.before


def submissions(count: int, *, say: Callable[[str], None] = lambda _: None) -> Fed:
    """Submit `count` pages, each under terms of its own, and let one worker fetch them and follow their links to the
    other pages of the same host. `say` hears now and then how far it is."""
    spec = WebSpec(hosts=max(1, count // PAGES), pages=PAGES, page_bytes=2000)
    with (
        tempfile.TemporaryDirectory(prefix="submissions-") as name,
        FakeWeb.start(spec) as web,
        standalone() as server,
    ):
        fed = asyncio.run(_feed(server.address, web))
        log = Path(name, "log")
        with log.open("wb") as file:
            worker = subprocess.Popen(
                command(
                    "worker", "--frontier", server.address, "--pool", _POOL, "-o", "-", "--quiet",
                    *resolving(["*.test:127.0.0.1"]),
                ),
                cwd=name,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                env={**os.environ, "GOSSAMER_FETCH__ROBOTS": "ignore"},
            )  # fmt: skip
            try:
                with Sampler(
                    lambda: {"pages": web.stats().requests, "memory": memory_of(worker.pid)}, every_seconds=0.5
                ) as sampler:
                    asyncio.run(_until_done(server.address, worker, lambda: say(str(web.stats().requests))))
                worker.terminate()
                assert worker.wait(60) == 0, log.read_text()
            finally:
                worker.kill()
                worker.wait()
        fetched = len({(record.host, record.path) for record in web.log() if is_page(record)})
    warm = [sample.figures["memory"] for sample in sampler.samples if sample.figures["pages"] >= _WARM_SHARE * fed]
    return Fed(fed, fetched, int(warm[0]), int(max(warm)))


async def _feed(address: str, web: FakeWeb) -> int:
    frontier = await ValkeyFrontier.connect(address)
    try:
        await frontier.set_domain_policy(None, DomainPolicy(hits=100_000, window_seconds=1, moderated=False))
        seed = spider_seed(frontier.secret, "link")
        every = [(number, web.site.url(number, page)) for number in range(web.spec.hosts) for page in range(PAGES)]
        for first in range(0, len(every), _AT_ONCE):
            some = []
            for at, (number, url) in enumerate(every[first : first + _AT_ONCE], first):
                domain = registered_domain(host(url))
                attrs = {"job": at, "tags": [f"tag {at}", "common"], "note": f"{at} " * 40}
                terms = Terms(maxdepth=1, allowed_domains=(domain,), attrs=attrs)
                batch = Batch("link", domain, 1, 0, [url], [fingerprint(url, seed=seed)])
                some.append(Submission(Crawl(id=CrawlId("scale", str(number))), terms, [batch]))
            assert all(isinstance(answer, SubmissionResult) for answer in await frontier.submit(some))
        return len(every)
    finally:
        await frontier.close()


async def _until_done(address: str, worker: "subprocess.Popen[bytes]", say: Callable[[], None]) -> None:
    frontier = await ValkeyFrontier.connect(address)
    try:
        while worker.poll() is None:
            waiting = sum(part.queued for part in await frontier.backlog())
            held = sum(part.leased for part in await frontier.workers())
            if not waiting and not held and worker.poll() is None:
                return
            say()
            await asyncio.sleep(2)
        raise AssertionError("the worker ended")
    finally:
        await frontier.close()
