"""Sitemaps of one site take turns: few large ones, or many small ones, at a time."""

import asyncio
from collections.abc import Callable

from gossamer.extract.sitemap import MAX_BYTES
from gossamer.worker.sitemaps import MAX_SITEMAP_BYTES, SitemapTurns


class Readers:
    """Tasks that each read one sitemap, as long as the test wants."""

    def __init__(self, turns: SitemapTurns) -> None:
        self._turns = turns
        self._ends: list[tuple[asyncio.Event, Callable[[int], None], list[int]]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self, count: int, *, domain: str = "a.test", crawl: str = "x") -> None:
        self.tasks += [asyncio.create_task(self._read(crawl, domain)) for _ in range(count)]
        await self.settle()

    async def _read(self, crawl: str, domain: str) -> None:
        async with self._turns.take(crawl, domain) as record:
            end: tuple[asyncio.Event, Callable[[int], None], list[int]] = (asyncio.Event(), record, [])
            self._ends.append(end)
            try:
                await end[0].wait()
                record(end[2][0])
            finally:
                self._ends.remove(end)

    async def end_one(self, entries: int) -> None:
        event, _, count = self._ends[0]
        count.append(entries)
        event.set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(200):
            await asyncio.sleep(0)

    @property
    def reading(self) -> int:
        return len(self._ends)


async def test_one_sitemap_of_unknown_size_is_read_at_a_time() -> None:
    readers = Readers(SitemapTurns())
    await readers.begin(3)
    assert readers.reading == 1
    await readers.begin(2, domain="b.test")
    await readers.begin(2, crawl="y")
    assert readers.reading == 3  # one of each site and crawl
    for task in readers.tasks:
        task.cancel()


async def test_small_ones_are_read_together_until_a_large_one_was_read() -> None:
    readers = Readers(SitemapTurns())
    await readers.begin(30)
    await readers.end_one(5_000)
    assert readers.reading == 4
    await readers.end_one(10)
    assert readers.reading == 4
    await readers.end_one(20_000)
    for left in (3, 2, 2, 2):
        assert readers.reading == left
        await readers.end_one(10)
    await readers.end_one(50_000)
    assert readers.reading == 1
    for task in readers.tasks:
        task.cancel()


async def test_a_cancelled_reader_gives_its_turn_back() -> None:
    readers = Readers(SitemapTurns())
    await readers.begin(4)
    readers.tasks[0].cancel()
    readers.tasks[1].cancel()  # this one waits
    await readers.settle()
    assert readers.reading == 1
    await readers.end_one(50_000)
    assert readers.reading == 1
    await readers.end_one(50_000)
    assert readers.reading == 0


def test_one_byte_more_than_the_parser_reads_is_fetched() -> None:
    assert MAX_SITEMAP_BYTES == MAX_BYTES + 1
