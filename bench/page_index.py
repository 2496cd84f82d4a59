"""Speed and size of the page index, on SQLite and on PostgreSQL: select what is due, settle visits. Wanted are 5,000
pages a second each, and at most 200 bytes a page besides its URL. Both write to the disk at each commit.

python -m bench.page_index                                    # 1,000,000 pages on both, ten minutes
python -m bench.page_index --pages 20000 --visits 10000       # half a minute
"""

import argparse
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from gossamer.fresh.database import SqliteIndex
from gossamer.fresh.index import BEFORE_ALL, PageIndex
from gossamer.fresh.page import Fetch, Found, short_hash
from tests.servers.postgresql import postgresql

BATCH = 64
"""Pages of a batch of the worker."""
_ETAG = '"{:x}-{:x}"'


def fetch_of(number: int, at: float, visit: int, chance: random.Random) -> Fetch:
    """Return a fetch of a page, whose URL has 60 characters."""
    changed = visit and chance.random() < 0.3
    return Fetch(
        url=f"https://www{number % 50}.example.com/articles/2026/{number:09}-some-words.html",
        request_id=f"{visit:08x}{number:024x}",
        at=at,
        found=Found.CONTENT,
        depth=2,
        status=200,
        body=hash((number, visit if changed else 0)) or 1,
        text=short_hash(hash((number, visit if changed else 0, "text"))),
        sketch=number.to_bytes(8, "big") * 4,
        link_set=short_hash(hash((number, "links"))),
        etag=_ETAG.format(number * 2654435761 % 2**40, number % 65536),
        modified="Tue, 03 Nov 2026 10:00:00 GMT",
    )


class Figures(NamedTuple):
    """Result for one database."""

    select: float
    """Pages a second that are selected because they are due."""
    settle: float
    """Visits a second that are settled."""
    settle_cpu: float
    """Visits that are settled in a second of this process's CPU time. A server's own is not counted."""
    size: float
    """Bytes a page, besides its URL."""

    def row(self, name: str) -> str:
        """Return the figures as a line."""
        return (
            f"{name:<10} select due {self.select:>8,.0f} pages/s; settle in batches of {BATCH} {self.settle:>6,.0f} "
            f"pages/s ({self.settle_cpu:,.0f} a CPU second); {self.size:.0f} bytes a page besides the URL"
        )


def measure(index: PageIndex, pages: int, visits: int) -> Figures:
    """Fill an empty index, and measure."""
    chance = random.Random(1)
    now = 1_790_000_000.0
    for first in range(0, pages, 5000):
        numbers = range(first, min(first + 5000, pages))
        index.settle([fetch_of(number, now, 0, chance) for number in numbers])
    for visit in range(1, 21):  # pages with a long history
        chosen = {chance.randrange(pages) for _ in range(visits // 20)}
        index.settle([fetch_of(number, now + visit * 86_400, visit, chance) for number in chosen])
    now += 60 * 86_400
    begun = time.perf_counter()
    current = index.begin_round(now, most=visits)
    found, after = [], BEFORE_ALL
    while some := index.visits(current, after=after, limit=1000):
        after = some[-1].key
        found += some
    select = len(found) / (time.perf_counter() - begun)
    fetches = [fetch_of(int(page.url.rpartition("/")[2][:9]), now + 1, 99, chance) for page in found]
    begun, used = time.perf_counter(), time.process_time()
    for first in range(0, len(fetches), BATCH):
        index.settle(fetches[first : first + BATCH])
    seconds, used = time.perf_counter() - begun, time.process_time() - used
    return Figures(select, len(found) / seconds, len(found) / used, size_of(index, pages))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--visits", type=int, default=64_000, help="visits that are measured")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), help="only this one")
    arguments = parser.parse_args()
    for name in (arguments.database,) if arguments.database else ("sqlite", "postgresql"):
        with ExitStack() as stack:
            if name == "sqlite":
                address = str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "index.sqlite")
            else:
                server = stack.enter_context(postgresql(is_durable=True))
                address = server.new_database().replace("+psycopg", "")
            index = PageIndex.open(address, "bench", crawl_id="bench")
            stack.callback(index.close)
            figures = measure(index, arguments.pages, min(arguments.visits, arguments.pages))
        print(figures.row(name), flush=True)
    return 0


def size_of(index: PageIndex, pages: int) -> float:
    """Return the size of the tables of pages and their indexes for each page, without the URLs."""
    database = index._database
    [(urls,)] = database.rows("SELECT sum(length(origin) + length(path)) FROM pages JOIN sites ON number = site")
    tables = ("pages", "sites", "visits")
    if isinstance(database, SqliteIndex):
        names = ", ".join(f"'{name}'" for name in tables)
        [(size,)] = database.rows(
            f"SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name IN ({names}))"
        )
    else:
        [(size,)] = database.rows("SELECT " + " + ".join(f"pg_total_relation_size('{name}')" for name in tables))
    return float((size - urls) / pages)


if __name__ == "__main__":
    sys.exit(main())
