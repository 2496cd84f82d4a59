"""A worker in a process of its own, to be killed at any moment. Arguments: address, prefix, file for what it settled.

It leases, adds what the pages link to, settles, and writes each page it settled to its file; until the crawl ends.
"""

import asyncio
import sys
from pathlib import Path

from contract.frontier.asking import a_batch, of_living
from contract.frontier.graph import links, url
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.request import Outcome, Settlement

HEARTBEAT_SECONDS = 0.5
CRAWL = CrawlId("app", "stress")


async def main(address: str, prefix: str, log: Path) -> None:
    frontier = await ValkeyFrontier.connect(address, prefix=prefix, dead_after_seconds=HEARTBEAT_SECONDS)
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    with log.open("a") as out:
        while True:
            leases = await seat.lease(limit=16)
            for lease in leases:
                found = [url(page) for page in links(int(lease.url.rpartition("/")[2]))]
                batches = [a_batch(domain, [path], depth=lease.depth + 1) for domain, path in found]
                await frontier.add(lease.run, lease.terms, batches)
            await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
            out.writelines(f"{lease.url}\n" for lease in of_living(seat, leases))
            out.flush()
            await frontier.maintain()
            if not leases:
                info = await frontier.crawl_info(CRAWL)
                if info is not None and info.state is not CrawlState.RUNNING:
                    break
                await seat.wait_for_work(timeout_seconds=0.1)
    await seat.close()
    await frontier.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
