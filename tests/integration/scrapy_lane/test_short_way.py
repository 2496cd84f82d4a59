"""The add-on's shorter way through Scrapy's engine: a project sees the same calls, signals, lines and statistics."""

import asyncio
import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gossamer.scrapy.shortcuts.parts import is_known_version
from tests.integration.scrapy_lane.lane import prefix
from tests.servers.bad_http import run_bad_server
from tests.servers.scraping import Scraper
from tests.servers.valkey import Server

SPIDERS = Path(__file__).parent / "short_way_spiders.py"
NAMES = "tests.integration.scrapy_lane.spiders"  # run_spider.py loads the file under this name
HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


def answer(body: bytes, head: bytes = HTML) -> list[bytes]:
    """An answer that says that the connection ends, as it does. Else Scrapy might send the next request on it."""
    return [head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body]


PAGE = answer(b"<html><body>a page</body></html>")
QUERIES = (
    "list", "one", "nothing", "coroutine", "asynchronous", "broken", "at-once", "broken-coroutine", "return", "items",
    "auth", "post", "flags", "agent", "proxy", "far", "far0", "far1", "far2", "far3", "link", "followed", "cookie",
)  # fmt: skip
SCRIPTS: dict[str, list[Any]] = {
    "/page": PAGE,
    **{f"/page?{query}": PAGE for query in QUERIES},
    **dict.fromkeys(("/404", "/404?silent", "/404?allowed"), answer(b"no", b"HTTP/1.1 404 Not Found\r\n")),
    **dict.fromkeys(("/500", "/500?once"), answer(b"", b"HTTP/1.1 500 Internal Server Error\r\n")),
    **dict.fromkeys(("/moved", "/moved?stay"), answer(b"", b"HTTP/1.1 302 Found\r\nLocation: /page?link\r\n")),
    "/refresh": answer(b'<meta http-equiv="refresh" content="0; url=/page?link">'),
    "/gzip": answer(gzip.compress(b"<p>packed"), HTML + b"Content-Encoding: gzip\r\n"),
    **dict.fromkeys(("/cookie", "/cookie?none", "/cookie?jar"), answer(b"x", HTML + b"Set-Cookie: a=1; Path=/\r\n")),
    "/head": [HTML + b"Connection: close\r\nContent-Length: 5\r\n\r\n"],
    "/short": [HTML + b"Content-Length: 50\r\n\r\nhello"],
}
CHANGING = (
    "start_time", "finish_time", "elapsed_time_seconds", "memusage/", "downloader/response_bytes_", "responses_per",
    "items_per", "performance/",
)  # fmt: skip
"""Statistics that differ from run to run."""
SCHEDULERS = ("scheduler/", "dupefilter/", "gossamer/", "log_count/DEBUG")
"""Statistics that depend on the scheduler. Scrapy's logs a link that it drops."""

BUSY = {"log_count/DEBUG", "log_count/WARNING"}
"""Statistics to which Gossamer's own lines about a busy machine are added. The lines of Scrapy are compared one by
one."""


class Seen:
    """All that a crawl has shown."""

    def __init__(self, folder: Path, stats: Mapping[str, Any], heads: list[bytes], port: int) -> None:
        text = re.sub("0x[0-9a-f]+", "ADDRESS", (folder / "one.events").read_text().replace(str(port), "PORT"))
        self.cases: dict[str, list[Any]] = defaultdict(list)
        for case, kind, details in json.loads(text):
            self.cases[case].append([kind, *details])
        self.lines = sorted(map(str, self.cases.pop("log", [])))
        self.is_short = ["Flow._run"] in self.cases.pop("task", [])
        self.patches = len(self.cases.pop("patch", []))
        self.stats = {name: value for name, value in stats.items() if not name.startswith(CHANGING)}
        self.heads = sorted(head.replace(str(port).encode(), b"PORT") for head in heads)

    def forget_scheduler(self) -> None:
        """Forget what only one of the schedulers does."""
        self.stats = {name: value for name, value in self.stats.items() if not name.startswith(SCHEDULERS)}
        for case, events in self.cases.items():
            self.cases[case] = [event for event in events if event[0] != "dropped"]


async def crawl(
    folder: Path, server: Server, way: str, *, few: bool = False, spider: str = "cases", **settings: Any
) -> Seen:
    """`way`: short, long (Scrapy's engine with the frontier) or stock (without the frontier). `few`: some cases."""
    own: dict[str, Any] = {
        "EXTENSIONS": {f"{NAMES}.Witness": 0},
        "LOG_LEVEL": "DEBUG",
        "GOSSAMER_PREFIX": prefix(folder),
        "GOSSAMER_FAST_ENGINE": way == "short",
    }
    own = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in (own | settings).items()}
    async with run_bad_server(SCRIPTS) as bad:
        frontier = None if way == "stock" else server.address
        arguments = {"site": f"http://127.0.0.1:{bad.port}", "few": "yes" if few else ""}

        def run() -> Any:
            with Scraper(folder, spider, frontier=frontier, settings=own, arguments=arguments, file=SPIDERS) as running:
                return running.finish(120)

        done = await asyncio.to_thread(run)
        assert done.exit_code == 0, done.log[-3000:]
        return Seen(folder, done.stats, bad.requests, bad.port)


def differences(one: Seen, other: Seen) -> list[Any]:
    """All that two crawls have shown differently."""
    found: list[Any] = [
        (case, one.cases[case], other.cases[case])
        for case in sorted({*one.cases, *other.cases})
        if one.cases[case] != other.cases[case]
    ]
    found += [
        (name, one.stats.get(name), other.stats.get(name))
        for name in sorted({*one.stats, *other.stats} - BUSY)
        if one.stats.get(name) != other.stats.get(name)
    ]
    found += [("line", line) for line in (Counter(one.lines) - Counter(other.lines))]
    found += [("line of the other", line) for line in (Counter(other.lines) - Counter(one.lines))]
    found += [("sent", head) for head in {*one.heads} ^ {*other.heads}]
    return found


async def test_a_project_sees_what_it_sees_of_scrapys_engine(tmp_path: Path, server: Server) -> None:
    short, long, stock = [await crawl(tmp_path / way, server, way) for way in ("short", "long", "stock")]
    assert not differences(short, long)
    assert (short.is_short, long.is_short, stock.is_short) == (is_known_version(), False, False)
    assert len(short.cases) > 60
    assert len(short.lines) > 60
    # Without the frontier, there are other statistics of the scheduler, and links that are known are dropped later.
    for seen in (short, stock):
        seen.forget_scheduler()
    assert not differences(short, stock)


async def test_callbacks_that_only_one_request_has_are_forgotten(tmp_path: Path, server: Server) -> None:
    seen = await crawl(tmp_path, server, "short", spider="partials")
    assert seen.stats["downloader/response_count"] == 21
    ((kind, left),) = [event for event in seen.cases["none"] if event[0] == "left"]
    assert left <= 2, kind  # the last one may still be in use


async def test_lines_that_no_handler_shows_are_counted_all_the_same(tmp_path: Path, server: Server) -> None:
    settings = {"LOG_ENABLED": False, "LINES_FROM": "INFO"}
    short, long = [await crawl(tmp_path / way, server, way, **settings) for way in ("short", "long")]
    assert not differences(short, long)
    assert not any("DEBUG" in line for line in short.lines)
    assert short.stats["log_count/DEBUG"] > 60


SCRAPYS = "scrapy.downloadermiddlewares"
PROJECTS: dict[str, dict[str, Any]] = {
    "downloader": {
        "DOWNLOADER_MIDDLEWARES": {
            f"{SCRAPYS}.retry.RetryMiddleware": None,
            f"{NAMES}.OwnRetry": 550,
            f"{SCRAPYS}.cookies.CookiesMiddleware": None,
            f"{NAMES}.OwnCookies": 700,
            f"{SCRAPYS}.defaultheaders.DefaultHeadersMiddleware": None,
            f"{NAMES}.OwnHeaders": 400,
            f"{NAMES}.OwnDownloaderMiddleware": 450,
        },
        "DOWNLOAD_HANDLERS": {"http": f"{NAMES}.OwnHandler"},
        "STATS_CLASS": f"{NAMES}.OwnStats",
        "LOG_FORMATTER": f"{NAMES}.OwnFormatter",
    },
    "spider": {
        "SPIDER_MIDDLEWARES": {
            "scrapy.spidermiddlewares.depth.DepthMiddleware": None,
            f"{NAMES}.OwnDepth": 900,
            f"{NAMES}.OwnOutput": 950,
            f"{NAMES}.OwnInput": 100,
        },
    },
    "generator": {"SPIDER_MIDDLEWARES": {f"{NAMES}.OwnGenerator": 500, f"{NAMES}.OwnOutput": 950}},
}


@pytest.mark.parametrize("project", PROJECTS)
async def test_what_a_project_overrides_is_called_as_before(tmp_path: Path, server: Server, project: str) -> None:
    short, long = [await crawl(tmp_path / way, server, way, **PROJECTS[project]) for way in ("short", "long")]
    assert not differences(short, long)
    assert short.is_short == is_known_version()
    kinds = {event[0] for events in short.cases.values() for event in events}
    own = {
        "downloader": ("retry", "headers", "request", "response", "exception", "line", "handler"),
        "spider": ("output", "input", "rescue"),
        "generator": ("output", "generator"),
    }
    assert kinds >= {f"own {part}" for part in own[project]}


PATCHED = (
    "_download", "crawl", "_handle_downloader_output", "downloader.fetch", "downloader._enqueue_request",
    "downloader.handlers.download_request_async", "downloader.middleware.download_async", "scraper.enqueue_scrape",
    "scraper.call_spider_async", "scraper.handle_spider_output_async", "scraper.start_itemproc_async",
    "scraper.itemproc.process_item_async", "scraper.spidermw.scrape_response_async", "signals.send_catch_log",
)  # fmt: skip


@pytest.mark.parametrize("method", PATCHED)
async def test_a_method_that_an_extension_wraps_is_called(tmp_path: Path, server: Server, method: str) -> None:
    extensions = {f"{NAMES}.Witness": 0, f"{NAMES}.PatchesEngine": 1}
    seen = await crawl(tmp_path / "short", server, "short", few=True, EXTENSIONS=extensions, PATCH=method)
    assert seen.patches >= 3


@pytest.mark.parametrize(
    "method",
    [
        f"{SCRAPYS}.stats.DownloaderStats.process_request",
        f"{SCRAPYS}.redirect.RedirectMiddleware.process_response",
        "scrapy.core.scraper.Scraper._scrape",
        "scrapy.spidermiddlewares.base.BaseSpiderMiddleware._get_processed",
    ],
)
async def test_a_method_that_a_library_wraps_in_scrapys_class_is_called(
    tmp_path: Path, server: Server, method: str
) -> None:
    extensions = {f"{NAMES}.Witness": 0, f"{NAMES}.PatchesClass": 1}
    seen = await crawl(tmp_path / "short", server, "short", few=True, EXTENSIONS=extensions, PATCH=method)
    assert seen.patches >= 3
