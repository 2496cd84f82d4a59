"""A small web for measuring crawlers: `python -m gossamer.fakeweb.benchmark`, started by `gossamer bench`.

It has chains of index pages, each with links to details and to the next index, and an API. Every answer comes after a
fixed time. The server is simpler and faster than the fake web: it keeps no journal. Fixed: the paths, which the
benchmark spider asks for.
"""

import asyncio
import contextlib
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Annotated

import msgspec

from gossamer.model import DATA_DIR

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
_HTML = b"text/html; charset=utf-8"

PIPELINES = {
    "none": "no work",
    "wait": "wait, and let others work meanwhile",
    "block": "stop the whole process",
    "cpu": "compute",
    "threads": "block one of --slots threads",
    "store": "wait for one of --slots connections, and keep it",
}
"""Kinds of work that the pipeline does with an item, each with its meaning. Must be those of the benchmark spider."""

SITE, SPIDER, PIPELINE, RESULTS = "The site", "The spider", "The pipeline", "Results"
"""Groups of options in the help, in their order."""


def _knob(panel: str, least: int, metavar: str, description: str) -> msgspec.Meta:
    """Return what the help says of an option with a number, and its least value."""
    return msgspec.Meta(ge=least, description=description, extra={"panel": panel, "metavar": metavar})


class BenchmarkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a benchmark, for its web and its spider."""

    items: Annotated[int, _knob(SITE, 1, "N", "Items to scrape in all")] = 1000
    items_per_page: Annotated[int, _knob(SITE, 1, "N", "Items on each detail page")] = 1
    links: Annotated[int, _knob(SITE, 1, "N", "Detail pages that an index page links to")] = 100
    starts: Annotated[int, _knob(SITE, 1, "N", "Start requests, each for a chain of index pages of its own")] = 1
    response_time: Annotated[float, _knob(SITE, 0, "SECONDS", "Time that the server takes for a page")] = 0.25
    page_bytes: Annotated[int, _knob(SITE, 0, "BYTES", "Size of a page")] = 2000
    concurrency: Annotated[int, _knob(SPIDER, 1, "N", "Requests in flight: Scrapy's CONCURRENT_REQUESTS")] = 16
    item_concurrency: Annotated[
        int, _knob(SPIDER, 1, "N", "Items of a page that are in the pipeline at once: Scrapy's CONCURRENT_ITEMS")
    ] = 100
    held_bytes: Annotated[
        int,
        _knob(
            SPIDER, 1, "BYTES",
            "Responses in memory at which Scrapy pauses its downloads: SCRAPER_SLOT_MAX_ACTIVE_SIZE",
        ),
    ] = 5_000_000  # fmt: skip
    processes: Annotated[
        int, _knob(SPIDER, 1, "N", "Processes, which share the start requests: give --starts at least as many")
    ] = 1
    pipeline: str = "none"
    """One of PIPELINES."""
    pipeline_time: Annotated[float, _knob(PIPELINE, 0, "SECONDS", "Time of the pipeline's work for each item")] = 0.0
    slots: Annotated[int, _knob(PIPELINE, 1, "N", "Threads of --pipeline threads, connections of store")] = 10
    api_calls: Annotated[
        int, _knob(PIPELINE, 0, "N", "Requests to the server's API that the pipeline sends for each item")
    ] = 0
    api_time: Annotated[float, _knob(PIPELINE, 0, "SECONDS", "Time that the server takes for one of these")] = 1.0
    direct: bool = False
    """True: these requests do not go through the crawler's downloader."""
    data_dir: str = DATA_DIR
    log_seconds: Annotated[
        float, _knob(RESULTS, 0, "SECONDS", "Time from one line of figures to the next. 0: no lines")
    ] = 1.0
    measured: bool = True
    """False: without the performance view, to see what it costs."""

    @property
    def pages(self) -> int:
        """Number of details."""
        return math.ceil(self.items / self.items_per_page)

    @property
    def knobs(self) -> dict[str, int | float | str | bool]:
        """Options on which the throughput depends, by name."""
        others = {"items", "data_dir", "log_seconds", "measured"}
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name not in others}


class BenchmarkWeb:
    """Answers of the web."""

    def __init__(self, options: BenchmarkOptions) -> None:
        self._options = options
        self._detail = self._html(b"<h1>A detail</h1>")
        self._api = _HEAD % (b"application/json", 11) + b'{"price":1}'

    def answer(self, path: str) -> tuple[float, bytes]:
        """Return the answer, and the seconds after which it is sent."""
        options = self._options
        kind, *numbers = path.strip("/").split("/")
        if kind == "api":
            return options.api_time, self._api
        if kind == "index" and len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            return options.response_time, self._index(int(numbers[0]), int(numbers[1]))
        return options.response_time, self._detail

    def _index(self, chain: int, number: int) -> bytes:
        """Return an index page: details whose number leaves the remainder `chain` belong to the chain."""
        options = self._options
        first = number * options.links
        own = math.ceil(max(0, options.pages - chain) / options.starts)
        details = range(first, min(first + options.links, own))
        links = [f'<a class="next" href="/index/{chain}/{number + 1}">next</a>'] if first + options.links < own else []
        links += [f'<a href="/detail/{chain + each * options.starts}">detail</a>' for each in details]
        return self._html("".join(links).encode())

    def _html(self, content: bytes) -> bytes:
        filling = b"<!-- " + b"." * max(0, self._options.page_bytes - len(content) - 9) + b" -->"
        return _HEAD % (_HTML, len(content) + len(filling)) + content + filling


class _BenchmarkConnection(asyncio.Protocol):
    """A connection with keep-alive. Answers come in the order of their times; clients do not pipeline."""

    def __init__(self, web: BenchmarkWeb) -> None:
        self._web = web
        self._read = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        while b"\r\n\r\n" in self._read:
            head, _, self._read = self._read.partition(b"\r\n\r\n")
            seconds, answer = self._web.answer(head.split(b" ", 2)[1].decode("latin-1"))
            asyncio.get_running_loop().call_later(seconds, self._send, answer)

    def _send(self, answer: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(answer)


async def serve_until_stdin_closes(options: BenchmarkOptions) -> None:
    """Print the address, and serve until standard input is closed, so that the server does not outlive its parent; or
    until SIGINT or SIGTERM."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    web = BenchmarkWeb(options)
    server = await loop.create_server(lambda: _BenchmarkConnection(web), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    # A daemon: after a signal, the program ends without waiting for standard input.
    threading.Thread(target=_read_to_end, args=[lambda: loop.call_soon_threadsafe(ended.set)], daemon=True).start()
    async with server:
        await ended.wait()


def _read_to_end(at_end: Callable[[], object]) -> None:
    """Read standard input to its end, and call the function. Not `sys.stdin`: at the end of the program, Python waits
    for its lock."""
    while os.read(0, 4096):
        pass
    with contextlib.suppress(RuntimeError):  # the loop has ended
        at_end()


if __name__ == "__main__":
    asyncio.run(serve_until_stdin_closes(msgspec.json.decode(sys.argv[1], type=BenchmarkOptions)))
