"""A small web for measuring crawlers: `python -m gossamer.fakeweb.benchmark`, started by `gossamer bench spider`.

It has chains of index pages, each with links to details and to the next index, and an API. Every answer comes after a
fixed time. The server is simpler and faster than the fake web: it keeps no journal. Fixed: the paths, which the
benchmark spider asks for.
"""

import asyncio
import math
import sys

import msgspec

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
_HTML = b"text/html; charset=utf-8"


class BenchmarkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a benchmark, for its web and its spider. All times in seconds."""

    items: int = 1000
    items_per_page: int = 1
    links: int = 100
    """Links to details on an index page."""
    starts: int = 1
    """Chains of index pages, each with a start request of its own."""
    response_time: float = 0.25
    page_bytes: int = 2000
    concurrency: int = 16
    """CONCURRENT_REQUESTS."""
    item_concurrency: int = 100
    """CONCURRENT_ITEMS."""
    held_bytes: int = 5_000_000
    """SCRAPER_SLOT_MAX_ACTIVE_SIZE."""
    pipeline: str = "none"
    """none, wait, block, cpu, threads or store: what the pipeline does with an item."""
    pipeline_time: float = 0.0
    """Time that it takes for an item."""
    slots: int = 10
    """Threads of the pipeline `threads`, and items that the pipeline `store` handles at once."""
    api_calls: int = 0
    """Calls of the API that the pipeline makes for an item."""
    api_time: float = 1.0
    direct: bool = False
    """True: the calls do not go through the crawler's downloader."""
    processes: int = 1
    data_dir: str = ".gossamer"
    log_seconds: float = 1.0
    measured: bool = True
    """False: without the performance view, to see what it costs."""

    @property
    def pages(self) -> int:
        """Number of details."""
        return math.ceil(self.items / self.items_per_page)


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
    """Print the address, and serve until standard input is closed, so that the server does not outlive its parent."""
    loop = asyncio.get_running_loop()
    web = BenchmarkWeb(options)
    server = await loop.create_server(lambda: _BenchmarkConnection(web), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve_until_stdin_closes(msgspec.json.decode(sys.argv[1], type=BenchmarkOptions)))
