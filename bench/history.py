"""Times the history with many crawls: pages of the list, and what a sample of running crawls costs.

    python -m bench.history [--crawls 100000] [--postgresql]

Fails if the median of a page is over 20 ms, or of a search for a text, which may read all names, over 100 ms. A test
may not measure time; this program does.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from gossamer.history.store import HistoryStore
from gossamer.model.crawl import Crawl, CrawlId, CrawlState
from gossamer.model.info import CrawlInfo, SpiderCounts
from tests.servers.postgresql import postgresql

_BATCH = 2000
_ROUNDS = 30
_LIMIT_SECONDS = 0.02
_SEARCH_LIMIT_SECONDS = 0.1
_START = time.time() - 10 * 86400.0
"""Start of the first crawl. Younger than a history keeps crawls: a historian would delete them meanwhile."""


def crawl(number: int) -> CrawlInfo:
    """Return the crawl of this number. One in a hundred runs."""
    name = CrawlId(f"app{number % 20}", f"crawl-{number}")
    counts = SpiderCounts(added=900, fetched=880, failed={"http_503": 12, "dns": 8}, links_dropped={"offsite": 4000})
    is_running = number % 100 == 0
    return CrawlInfo(
        crawl=name,
        pool="shared",
        state=CrawlState.RUNNING if is_running else CrawlState.FINISHED,
        run=1,
        started=_START + number,
        ended=None if is_running else _START + number + 600,
        domains=0,
        seen=900,
        options=Crawl(id=name),
        spiders={"link": counts},
    )


async def fill(history: HistoryStore, count: int) -> None:
    """Record so many crawls."""
    for first in range(0, count, _BATCH):
        infos = [crawl(number) for number in range(first, min(first + _BATCH, count))]
        domains = {info.crawl: [f"site{first % 997}.example"] for info in infos}
        await history.record_crawls(infos, now=_START + first, domains=domains)


async def tidy(url: str) -> None:
    """Do what PostgreSQL does by itself some time after rows have come."""
    if not url.startswith("sqlite"):
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text("VACUUM ANALYZE"))
        engine.dispose()


async def median(call: Callable[[], Awaitable[Any]]) -> float:
    """Return the median time of a call in seconds."""
    await call()
    times = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        await call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


async def measure(url: str, count: int) -> bool:
    """Print the times; return whether all are within the limit."""
    history = HistoryStore(url)
    begun = time.perf_counter()
    await fill(history, count)
    filled = time.perf_counter() - begun
    print(f"{url.partition(':')[0]}: {count:,} crawls, recorded in {filled:.0f} s ({count / filled:,.0f}/s)")
    await tidy(url)
    _, cursor = await history.crawls(limit=50)
    for _ in range(20):
        _, cursor = await history.crawls(limit=1000, cursor=cursor)
    pages: dict[str, dict[str, Any]] = {
        "first page": {},
        "page after 20,000": {"cursor": cursor},
        "state running": {"state": "running"},
        "state lost (none)": {"state": "lost"},
        "application": {"appid": "app7"},
        "text, many": {"text": "crawl-9"},
        "text, one": {"text": "crawl-77777"},
        "text, none": {"text": "no such crawl"},
        "domain": {"domain": "site3.example"},
        "domain, none": {"domain": "none.example"},
    }
    good = True
    for name, chosen in pages.items():
        seconds = await median(lambda chosen=chosen: history.crawls(limit=50, **chosen))  # type: ignore[misc]
        is_quick = seconds < (_SEARCH_LIMIT_SECONDS if "text" in chosen else _LIMIT_SECONDS)
        good = good and is_quick
        print(f"  {name:20} {seconds * 1000:6.1f} ms{'' if is_quick else '  TOO SLOW'}")
    running = [crawl(number) for number in range(500)]
    seconds = await median(lambda: history.record_crawls(running, now=_START + 10 * 86400.0))
    print(f"  {'record 500 samples':20} {seconds * 1000:6.1f} ms")
    await history.close()
    return good


@contextlib.contextmanager
def addresses(folder: Path, *, with_postgresql: bool) -> Iterator[list[str]]:
    """Yield the addresses of empty databases."""
    found = [f"sqlite:///{folder}/history.db"]
    if not with_postgresql:
        yield found
        return
    with postgresql() as server:
        yield [*found, server.new_database()]


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crawls", type=int, default=100_000)
    parser.add_argument("--postgresql", action="store_true", help="also measure PostgreSQL")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, addresses(Path(folder), with_postgresql=given.postgresql) as urls:
        results = [asyncio.run(measure(url, given.crawls)) for url in urls]
        return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
