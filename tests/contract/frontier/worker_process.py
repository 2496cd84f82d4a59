"""A worker in a process of its own, to be killed at any moment. Arguments: address, prefix, file for what it settled,
the lanes that it takes: plain, browser or both; one: all pages are in the lane plain.

It leases, adds what the pages link to, settles, and writes each page it settled to its file; until the crawl ends.
Where there are two lanes, a page that is in the wrong one goes to the other.
"""

import asyncio
import sys
from pathlib import Path

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.request import Lease, Outcome, Settlement

from .asking import a_batch, of_living
from .graph import begins_rendered, ends_rendered, links, url

HEARTBEAT_SECONDS = 0.5
CRAWL = CrawlId("app", "stress")


def settlement(lease: Lease, *, moves: bool) -> Settlement:
    """A page is fetched, or goes to its own lane."""
    is_wrong = moves and lease.render != ends_rendered(int(lease.url.rpartition("/")[2]))
    return Settlement(lease, Outcome.SWITCHED if is_wrong else Outcome.FETCHED)


async def work(address: str, prefix: str, log: Path, lanes: str) -> None:
    moves = lanes != "one"
    frontier = await ValkeyFrontier.connect(address, prefix=prefix, dead_after_seconds=HEARTBEAT_SECONDS)
    seat = await frontier.open_leaseholder(
        pool="shared", spiders=["link"], plain=lanes != "browser", browser=lanes in ("browser", "both")
    )
    with log.open("a") as out:
        while True:
            leases = await seat.lease(limit=16)
            settlements = [settlement(lease, moves=moves) for lease in leases]
            fetched = [one.lease for one in settlements if one.outcome is Outcome.FETCHED]
            for lease in fetched:
                found = [url(page) for page in links(int(lease.url.rpartition("/")[2]))]
                batches = [
                    a_batch(domain, [path], depth=lease.depth + 1, render=moves and begins_rendered(int(path)))
                    for domain, path in found
                ]
                await frontier.add(lease.run, lease.terms, batches)
            await seat.settle(settlements)
            out.writelines(f"{lease.url}\n" for lease in of_living(seat, fetched))
            out.flush()
            await frontier.maintain()
            if not leases:
                info = await frontier.crawl_info(CRAWL)
                if info is not None and info.state is not CrawlState.RUNNING:
                    break
                await seat.wait_for_work(timeout_seconds=0.1)
    await seat.close()
    await frontier.close()


def main() -> None:
    asyncio.run(work(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
