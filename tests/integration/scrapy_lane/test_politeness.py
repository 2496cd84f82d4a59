"""Three Scrapy processes as the web sees them: no budget and no cap exceeded, also while policies change."""

import asyncio
import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.control import domains
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.model.crawl import BudgetScope, DomainPolicy
from gossamer_fakeweb.log import is_page
from tests.integration.scrapy_lane.lane import asking, scraper
from tests.politeness.checker import BLUR_SECONDS, Change, check
from tests.politeness.rules import rule_of
from tests.politeness.stall import Stall
from tests.politeness.usage import Usage, usage
from tests.politeness.verdict import hit_of
from tests.servers.punctual import make_punctual
from tests.servers.resetting import resetting_server
from tests.servers.valkey import Server

DEFAULT = DomainPolicy(hits=3, window_seconds=1.0)
POLICIES = {
    "site1.test": DomainPolicy(hits=8, window_seconds=2.0, moderated=False, concurrency=3),
    "site2.test": DomainPolicy(hits=2, window_seconds=1.0, scope=BudgetScope.IP),
    "site3.test": DomainPolicy(hits=4, window_seconds=2.0, scope=BudgetScope.TYPE, elastic=False),
    "site4.test": DomainPolicy(hits=1, window_seconds=1.0, scope=BudgetScope.TYPE_IP, moderated=False),
    "site5.test": DomainPolicy(hits=20, window_seconds=1.0, moderated=False, concurrency=2),
}
CHANGES = {
    None: DomainPolicy(hits=1, window_seconds=1.0),
    "site1.test": DomainPolicy(hits=3),
    "site2.test": DomainPolicy(hits=4, window_seconds=2.0, moderated=False),
    "site5.test": DomainPolicy(scale=0.0),
}
EGRESSES = ("e0", "e1", "e0")
REQUESTS = 50
"""Before the changes, and again after them."""
_TURNS = 6
"""So often, about, a busy machine interrupts a request on that way."""
_PATIENCE_SECONDS = 180.0
"""Three processes start at once, on a machine that may have much else to do."""


@pytest.fixture
def slow_web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=6, pages=2000, page_bytes=500, out_degree=10, latency_ms=60)) as running:
        make_punctual(running.pid)
        yield running


async def test_three_processes_keep_to_every_budget(tmp_path: Path, server: Server, slow_web: FakeWeb) -> None:
    own = dict(POLICIES)
    timelines = {
        f"site{n}.test": [Change(rule_of(own.get(f"site{n}.test", DomainPolicy()), DEFAULT))] for n in range(6)
    }
    async with asking(tmp_path, server) as frontier:
        for name, policy in (*own.items(), (None, DEFAULT)):
            await domains.change_policy(frontier, name, policy)
        with contextlib.ExitStack() as stack, Stall() as stall:
            for number, egress in enumerate(EGRESSES):
                agent = {"USER_AGENT": f"p{number}/{egress}", "GOSSAMER_EGRESS": egress}
                stack.enter_context(scraper(tmp_path, server, "links", slow_web.seeds(), name=f"p{number}", **agent))
            await _until(slow_web, REQUESTS // 2)
            # From here on: while they start, the machine is theirs, and what it delays is no politeness of ours.
            begin = time.monotonic()
            await _until(slow_web, REQUESTS)
            default = DEFAULT
            for changed, change in CHANGES.items():
                asked = time.monotonic()
                after = await domains.change_policy(frontier, changed, change)
                answered = time.monotonic()
                if changed is None:
                    default = after
                else:
                    own[changed] = after
                for site in timelines if changed is None else (changed,):
                    rule = rule_of(own.get(site, DomainPolicy()), default)
                    if rule != timelines[site][-1].rule:
                        timelines[site].append(Change(rule, asked, answered))
            await _until(slow_web, len(slow_web.log()) + REQUESTS)
            end = time.monotonic()
            log = slow_web.log()
    # Between its scheduler and the wire a Scrapy process computes for long, and waits each time it is made to.
    blur = BLUR_SECONDS + _TURNS * stall.longest_seconds
    used = Usage()
    for site, timeline in timelines.items():
        hits = [hit_of(record, "links") for record in log if is_page(record) and record.host == site]
        judged = check(timeline, [hit for hit in hits if hit.at >= begin], blur_seconds=blur)
        assert judged.faults == [], (site, timeline, blur)
        used += usage(timeline, hits, span=(begin, end), spiders=["links"], egresses=sorted({*EGRESSES}))
    print(f"{len(log)} requests, {used.share:.1%} of {used.allowed:.0f} request seconds")
    assert math.isfinite(used.used)


@pytest.mark.parametrize("addons", ["{}", '{"gossamer.scrapy.Addon": 0}'])
async def test_a_server_that_resets_reused_connections_gets_no_more_than_its_budget(
    tmp_path: Path, server: Server, addons: str
) -> None:
    """Each repeated request takes another hit, and after two resets each request has its own connection."""
    pages, hits = 20, 5
    async with asking(tmp_path, server) as frontier:
        await domains.change_policy(frontier, "site0.test", DomainPolicy(hits=hits, window_seconds=1.0))
        async with resetting_server(pages) as site:
            seed = f"http://site0.test:{site.port}/"
            with scraper(tmp_path, server, "links", [seed], RETRY_ENABLED="False", ADDONS=addons) as running:
                done = await asyncio.to_thread(running.finish)
    assert len(done.items) == pages + 1
    assert len(site.times) == pages + 1 + site.resets
    assert all(site.times[at + hits] - site.times[at] > 0.8 for at in range(len(site.times) - hits))
    assert site.resets == site.reused == 2


async def _until(web: FakeWeb, requests: int) -> None:
    """Until it has seen so many."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            if (await asyncio.to_thread(web.stats)).requests >= requests:
                return
            await asyncio.sleep(0.05)
