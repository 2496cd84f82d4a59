"""Speed and size of the page index: select what is due, settle visits.

python -m bench.page_index                                    # SQLite, 1,000,000 pages, some minutes
python -m bench.page_index --pages 100000 --index postgresql://me@localhost/bench
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from gossamer.fresh.index import PageIndex
from gossamer.fresh.page import Fetch, Found

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
        text=hash((number, visit if changed else 0, "text")) or 1,
        sketch=number.to_bytes(8, "big") * 4,
        link_set=hash((number, "links")) or 1,
        etag=_ETAG.format(number * 2654435761 % 2**40, number % 65536),
        modified="Tue, 03 Nov 2026 10:00:00 GMT",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--visits", type=int, default=64_000, help="visits that are measured")
    parser.add_argument("--index", default="")
    arguments = parser.parse_args()
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        index = PageIndex.open(arguments.index or f"{folder}/index.sqlite", "bench", crawl_id="bench")
        now = 1_790_000_000.0
        begun = time.perf_counter()
        for first in range(0, arguments.pages, 5000):
            numbers = range(first, min(first + 5000, arguments.pages))
            index.settle([fetch_of(number, now, 0, chance) for number in numbers])
        print(f"first round: {arguments.pages / (time.perf_counter() - begun):,.0f} pages/s")
        for visit in range(1, 21):  # pages with a long history
            numbers = [chance.randrange(arguments.pages) for _ in range(arguments.visits // 20)]
            index.settle([fetch_of(number, now + visit * 86_400, visit, chance) for number in set(numbers)])
        now += 60 * 86_400
        begun = time.perf_counter()
        current = index.begin_round(now, only_due=True, most=arguments.visits)
        found, after = [], -(1 << 63)
        while pages := index.visits(current, after=after, limit=1000):
            after = pages[-1].key
            found += pages
        print(f"select due: {len(found) / (time.perf_counter() - begun):,.0f} pages/s")
        numbers = [int(page.url.rpartition("/")[2][:9]) for page in found]
        begun, used = time.perf_counter(), time.process_time()
        for first in range(0, len(numbers), BATCH):
            index.settle([fetch_of(number, now + 1, 99, chance) for number in numbers[first : first + BATCH]])
        seconds, used = time.perf_counter() - begun, time.process_time() - used
        rates = f"{len(numbers) / seconds:,.0f} pages/s, {len(numbers) / used:,.0f} a CPU second"
        print(f"settle, in batches of {BATCH}: {rates}")
        print(f"bytes a page, besides its URL: {size_of(index, Path(folder), arguments.pages):.0f}")
        index.close()
    return 0


def size_of(index: PageIndex, folder: Path, pages: int) -> float:
    """Return the size of the tables of pages for each page, without the URLs."""
    database = index._database
    [(urls,)] = database.rows("SELECT sum(length(url)) FROM pages")
    if (path := folder / "index.sqlite").exists():
        database.run("PRAGMA wal_checkpoint(TRUNCATE)")
        [(unused,)] = database.rows("SELECT sum(length(change) + length(id) * 2 + 40) FROM changes")
        size = path.stat().st_size - unused  # about what the changes take, of which the latest million are kept
    else:
        [(size,)] = database.rows("SELECT pg_total_relation_size('pages')")
    return float((size - urls) / pages)


if __name__ == "__main__":
    sys.exit(main())
