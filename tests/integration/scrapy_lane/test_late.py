"""A hit is meant for when it was charged: what Scrapy itself held up asks for another one."""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from gossamer.control import domains
from gossamer.fakeweb import Answer, FakeWeb
from gossamer.fakeweb.answer import plain
from gossamer.model.crawl import DomainPolicy
from gossamer_fakeweb.log import is_page, max_in_any_window
from tests.servers.valkey import Server

from .lane import HOST, asking, at, counts, page, scraper

HITS, WINDOW_SECONDS = 6, 1.0
ROBOTS_MS = 1500.0
"""Longer than the window: the hits of those that wait for it are free again, and handed out again."""
BLUR_SECONDS = 0.4


async def test_what_waited_for_a_robots_txt_does_not_go_all_at_once(
    tmp_path: Path, server: Server, web: FakeWeb
) -> None:
    paths = [f"/{number}" for number in range(14)]
    for path in paths:
        web.mount(HOST, path, page())
    allowed = plain("User-agent: *\nAllow: /\n")
    web.mount(HOST, "/robots.txt", Answer(headers=allowed.headers, body=allowed.body, delay_ms=ROBOTS_MS))
    async with asking(tmp_path, server) as frontier:
        policy = DomainPolicy(hits=HITS, window_seconds=WINDOW_SECONDS, moderated=False)
        await domains.change_policy(frontier, None, policy)
    seeds = [at(web, path) for path in paths]
    with scraper(tmp_path, server, "links", seeds, ROBOTSTXT_OBEY="true", CONCURRENT_REQUESTS_PER_DOMAIN="16") as one:
        await asyncio.to_thread(one.finish)
    asked = [record for record in web.log() if is_page(record)]
    assert len(asked) == len(paths)
    assert max_in_any_window(asked, HOST, WINDOW_SECONDS - BLUR_SECONDS) <= HITS


class HeldRobots:
    """A site whose robots.txt is answered only after `released` is set, and the paths that it was asked for."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.asked: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                self.asked[path] += 1
                if path == "/robots.txt":
                    await self.released.wait()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def test_a_process_that_was_taken_for_dead_does_not_send_what_waited_in_it(
    tmp_path: Path, server: Server
) -> None:
    site = HeldRobots()
    async with await asyncio.start_server(site.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        seeds = [f"http://{HOST}:{port}/{number}" for number in range(5)]
        async with asking(tmp_path, server) as frontier:
            await domains.change_policy(frontier, None, DomainPolicy(hits=50, window_seconds=1.0, moderated=False))
        with scraper(tmp_path, server, "links", seeds, ROBOTSTXT_OBEY="true") as first:
            await _until(lambda: site.asked["/robots.txt"] == 1)
            # A request that the first process has not leased yet would let the other one ask before anything is late.
            await _has_leased(tmp_path, server, len(seeds))
            first.process.send_signal(signal.SIGSTOP)
            with scraper(tmp_path, server, "links", seeds, name="two", ROBOTSTXT_OBEY="true") as second:
                await _until(lambda: site.asked["/robots.txt"] == 2)
                first.process.send_signal(signal.SIGCONT)
                await _until(lambda: "worker_stale" in first.log)
                site.released.set()
                await asyncio.to_thread(second.finish)
            await asyncio.to_thread(first.finish)
    assert {path: count for path, count in site.asked.items() if path != "/robots.txt"} == {
        f"/{number}": 1 for number in range(5)
    }


async def _has_leased(folder: Path, server: Server, count: int) -> None:
    while (await counts(folder, server, "links")).leased < count:  # noqa: ASYNC110
        await asyncio.sleep(0.05)  # what is awaited happens in another process


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # what is awaited happens in another process
