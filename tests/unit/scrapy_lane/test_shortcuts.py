"""Which parts of Scrapy the add-on's shorter way may replace, and signals and log lines without receivers."""

import ast
import asyncio
import functools
import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scrapy
from pydispatch import dispatcher  # type: ignore[import-untyped]
from scrapy import signals
from scrapy.core.downloader import Downloader
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.downloadermiddlewares.stats import DownloaderStats
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Request, Response
from scrapy.logformatter import LogFormatter
from scrapy.signalmanager import SignalManager
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.spidermiddlewares.referer import RefererMiddleware
from scrapy.utils.log import LogCounterHandler
from scrapy.utils.test import get_crawler
from twisted.internet.defer import Deferred, succeed

from gossamer.scrapy.shortcuts import middlewares, notices, pages, parts

if scrapy.version_info[:2] < (2, 15):
    pytest.skip("get_crawler needs a reactor", allow_module_level=True)

# --- the versions -----------------------------------------------------------------------------------------------------

DIGESTS: dict[str, set[str]] = {
    "core/engine.py:ExecutionEngine._start_scheduled_request": {"2c6ffcdb"},
    "core/engine.py:ExecutionEngine._start_scheduled_requests": {"b6f85533"},
    "core/engine.py:ExecutionEngine._handle_downloader_output": {"7c1a108a", "bdc26f99"},
    "core/engine.py:ExecutionEngine._download": {"4e10b24a"},
    "core/engine.py:ExecutionEngine.crawl": {"2ace2a18"},
    "core/engine.py:ExecutionEngine._schedule_request": {"11e7359c"},
    "core/engine.py:ExecutionEngine._remove_request": {"4d7f1dfb"},
    "core/engine.py:ExecutionEngine.needs_backout": {"535be9b6"},
    "core/engine.py:ExecutionEngine._process_start_next": {"014cdb88", "d17f4c84"},
    "core/scraper.py:Scraper.enqueue_scrape": {"75140e1f"},
    "core/scraper.py:Scraper._scrape_next": {"3d5fde7b"},
    "core/scraper.py:Scraper._scrape": {"02388e44"},
    "core/scraper.py:Scraper._wait_for_processing": {"6aa4ac1d"},
    "core/scraper.py:Scraper.call_spider_async": {"d172f926", "ff686d78"},
    "core/scraper.py:Scraper.handle_spider_error": {"925d04a3", "571de1c5"},
    "core/scraper.py:Scraper.handle_spider_output_async": {"051071e9"},
    "core/scraper.py:Scraper._process_spidermw_output_async": {"a1856178", "f9b4bf14"},
    "core/scraper.py:Scraper.start_itemproc_async": {"bd1287cb", "239af1c4"},
    "core/scraper.py:Scraper._check_if_closing": {"9aca7d25"},
    "core/scraper.py:Slot.add_response_request": {"6b36c9e6"},
    "core/scraper.py:Slot.next_response_request_deferred": {"9f50a99e"},
    "core/scraper.py:Slot.finish_response": {"5025b9dd"},
    "core/spidermw.py:SpiderMiddlewareManager._process_spider_input": {"39213053"},
    "core/spidermw.py:SpiderMiddlewareManager._evaluate_iterable": {"cc880789", "f39badfc"},
    "core/spidermw.py:SpiderMiddlewareManager._process_spider_exception": {"bf2b6e60", "259ce6f2"},
    "core/spidermw.py:SpiderMiddlewareManager._process_spider_output": {"2a0139f1"},
    "core/spidermw.py:SpiderMiddlewareManager._process_callback_output": {"1fd86eee"},
    "core/spidermw.py:SpiderMiddlewareManager.scrape_response_async": {"58bf930d", "d5c7bd45"},
    "core/spidermw.py:SpiderMiddlewareManager._get_process_spider_output": {"1bf59022"},
    "core/spidermw.py:SpiderMiddlewareManager._add_middleware": {"97a9c12d"},
    "core/downloader/__init__.py:Downloader.fetch": {"653f1c72"},
    "core/downloader/__init__.py:Downloader._enqueue_request": {"a091bae3"},
    "core/downloader/__init__.py:Downloader._process_queue": {"13f595e1"},
    "core/downloader/__init__.py:Downloader._download": {"1ba1dd1a", "03fd388d"},
    "core/downloader/__init__.py:Downloader._wait_for_download": {"3e888a3c"},
    "core/downloader/__init__.py:Slot.free_transfer_slots": {"53c4643b"},
    "core/downloader/middleware.py:DownloaderMiddlewareManager.download_async": {"85953f79", "04cb9b9a"},
    "core/downloader/middleware.py:DownloaderMiddlewareManager._process_request": {"cd80e9d6"},
    "core/downloader/middleware.py:DownloaderMiddlewareManager._process_response": {"ab945781"},
    "core/downloader/middleware.py:DownloaderMiddlewareManager._process_exception": {"2383b882"},
    "core/downloader/middleware.py:DownloaderMiddlewareManager._handle_mw_method": {"51fc5ad7"},
    "core/downloader/middleware.py:DownloaderMiddlewareManager._add_middleware": {"d5d77b27"},
    "core/downloader/handlers/__init__.py:DownloadHandlers.download_request_async": {"aaedf4bb"},
    "pipelines/__init__.py:ItemPipelineManager.process_item_async": {"0dac8e2d"},
    "middleware.py:MiddlewareManager._process_chain": {"143b03e3"},
    "utils/signal.py:send_catch_log": {"cdf63d31"},
    "utils/signal.py:send_catch_log_async": {"b1437f04"},
    "utils/signal.py:_send_catch_log_asyncio": {"09e99608"},
    "signalmanager.py:SignalManager.send_catch_log": {"8ba4565a"},
    "signalmanager.py:SignalManager.send_catch_log_async": {"ab2831e7"},
    "utils/asyncio.py:_parallel_asyncio": {"57e626d5", "ff3e2861"},
    "utils/defer.py:aiter_errback": {"64c3e301"},
    "utils/defer.py:ensure_awaitable": {"eee7d27b"},
    "utils/defer.py:_schedule_coro": {"37d95d1f"},
    "utils/spider.py:iterate_spider_output": {"341b9999"},
    "utils/misc.py:warn_on_generator_with_return_value": {"660db3be"},
    "utils/log.py:LogCounterHandler.emit": {"58e750bc", "5dfc9ac8"},
    "utils/log.py:logformatter_adapter": {"0d5e223a", "fa84cd5a"},
    "utils/request.py:request_httprepr": {"98285647"},
    "http/headers.py:Headers.normkey": {"6ccdb165"},
    "http/headers.py:Headers.normvalue": {"c1865ee6"},
    "http/headers.py:Headers._tobytes": {"98fd9198"},
    "spidermiddlewares/base.py:BaseSpiderMiddleware.process_spider_output_async": {"358cbde5"},
    "spidermiddlewares/base.py:BaseSpiderMiddleware._get_processed": {"2e6577d6"},
    "spidermiddlewares/depth.py:DepthMiddleware.process_spider_output_async": {"56e0ac45", "50c364a2"},
    "spidermiddlewares/httperror.py:HttpErrorMiddleware.process_spider_input": {"174f15cf"},
    "downloadermiddlewares/offsite.py:OffsiteMiddleware.process_request": {"e8b893b5", "0a9cf183"},
    "downloadermiddlewares/offsite.py:OffsiteMiddleware.should_follow": {"caa88483", "7f46efa6"},
    "downloadermiddlewares/offsite.py:OffsiteMiddleware.get_host_regex": {"1ddcbe31", "c95d041d"},
    "downloadermiddlewares/httpauth.py:HttpAuthMiddleware.process_request": {"6d143101", "0f56a155"},
    "downloadermiddlewares/downloadtimeout.py:DownloadTimeoutMiddleware.process_request": {"d7453af0"},
    "downloadermiddlewares/defaultheaders.py:DefaultHeadersMiddleware.process_request": {"cdb6ee30"},
    "downloadermiddlewares/useragent.py:UserAgentMiddleware.process_request": {"64581571"},
    "downloadermiddlewares/retry.py:RetryMiddleware.process_response": {"10e0c548"},
    "downloadermiddlewares/redirect.py:RedirectMiddleware.process_response": {"867ae94b"},
    "downloadermiddlewares/httpcompression.py:HttpCompressionMiddleware.process_request": {"2e51dc5f"},
    "downloadermiddlewares/httpcompression.py:HttpCompressionMiddleware.process_response": {
        "f590c79f",
        "3850bd44",
        "aa8b16c8",
    },
    "downloadermiddlewares/cookies.py:CookiesMiddleware.process_request": {"b502dbfc"},
    "downloadermiddlewares/cookies.py:CookiesMiddleware.process_response": {"dbd41c81"},
    "downloadermiddlewares/httpproxy.py:HttpProxyMiddleware.process_request": {"4196f690"},
    "downloadermiddlewares/httpproxy.py:HttpProxyMiddleware._set_proxy_and_creds": {"9e5ce08e"},
    "downloadermiddlewares/stats.py:DownloaderStats.process_request": {"170291d7"},
    "downloadermiddlewares/stats.py:DownloaderStats.process_response": {"66a0eafc"},
    "spidermiddlewares/referer.py:RefererMiddleware.get_processed_request": {"ce930df4"},
    "spidermiddlewares/referer.py:RefererMiddleware.policy": {"e5f482b6", "a7b58639"},
    "spidermiddlewares/referer.py:NoReferrerWhenDowngradePolicy.referrer": {"4efebf6a"},
    "spidermiddlewares/referer.py:ReferrerPolicy.stripped_referrer": {"46d4d10d"},
    "spidermiddlewares/referer.py:ReferrerPolicy.strip_url": {"84d24661"},
    "spidermiddlewares/referer.py:ReferrerPolicy.tls_protected": {"d3214ec2"},
    "downloadermiddlewares/offsite.py:OffsiteMiddleware.request_scheduled": {"4a8c1c9f"},
    "statscollectors.py:StatsCollector.inc_value": {"30abc947"},
    "statscollectors.py:StatsCollector.__getattribute__": {"9f1c2bba"},
    "downloadermiddlewares/stats.py:get_header_size": {"687d6e40"},
    "http/headers.py:Headers.setdefault": {"4b0c088b"},
}
"""Digests of the functions that have a shorter way, in all versions that were compared. A new one means: read what has
changed in Scrapy, change the shorter way, then add the digest, or raise NEWEST in parts.py."""

INHERITED: dict[str, str | None] = {"http/headers.py:Headers.setdefault": None}
"""Methods that some versions have from another class."""


def functions(file: Path) -> Iterator[tuple[str, str]]:
    """Name and digest of a module's functions, and of the methods of its classes, without their docstrings."""
    text = file.read_text()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, digest(node, text)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}", digest(inner, text)


def digest(node: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> str:
    body = node.body
    if len(body) > 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    lines = text.splitlines()[body[0].lineno - 1 : node.end_lineno]
    return hashlib.sha256("\n".join(line.strip() for line in lines).encode()).hexdigest()[:8]


def test_the_code_that_has_a_shorter_way_is_that_which_was_compared() -> None:
    if not parts.is_known_version():
        pytest.skip("Scrapy's own way is used with this version")
    root = Path(str(scrapy.__file__)).parent
    files = {name.partition(":")[0] for name in DIGESTS}
    found = {f"{file}:{name}": found for file in files for name, found in functions(root / file)}
    unknown = [name for name, known in DIGESTS.items() if found.get(name) not in {*known, INHERITED.get(name, "")}]
    assert not unknown


@pytest.mark.parametrize(
    ("version", "known"), [((2, 15, 2), False), ((2, 16, 0), True), ((2, 19, 7), True), ((2, 20, 0), False)]
)
def test_a_version_that_was_not_compared_goes_its_own_way(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], known: bool
) -> None:
    monkeypatch.setattr(scrapy, "version_info", version)
    assert parts.is_known_version() is known


# --- the project's own code -------------------------------------------------------------------------------------------


def test_a_part_is_scrapys_only_if_nothing_of_it_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    class OwnDownloader(Downloader):
        pass

    crawler = get_crawler()
    assert parts.is_stock(Downloader(crawler), Downloader, ("fetch", "_download"))
    assert not parts.is_stock(OwnDownloader(crawler), Downloader, ("fetch",))
    assert not parts.is_stock(Downloader(crawler), Downloader, ("fetch", "no_such_method"))
    changed = Downloader(crawler)
    changed.fetch = lambda request: None  # type: ignore[method-assign, assignment, misc]
    assert not parts.is_stock(changed, Downloader, ("fetch",))
    original = Downloader.fetch

    @functools.wraps(original)
    def measured(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    monkeypatch.setattr(Downloader, "fetch", measured)
    assert not parts.is_stock(Downloader(crawler), Downloader, ("fetch",))


def test_a_method_is_scrapys_only_in_exactly_its_class() -> None:
    class OwnRetry(RetryMiddleware):
        pass

    class OwnMiddleware(BaseSpiderMiddleware):
        pass

    crawler = get_crawler()
    stock = RetryMiddleware.from_crawler(crawler)
    assert parts.is_stock_method(stock.process_response, RetryMiddleware)
    assert not parts.is_stock_method(OwnRetry.from_crawler(crawler).process_response, RetryMiddleware)
    assert not parts.is_stock_method(OwnMiddleware(crawler).get_processed_item, BaseSpiderMiddleware)
    assert not parts.is_stock_method(len, RetryMiddleware)


@pytest.mark.parametrize(
    "url",
    [
        "http://site.test/", "http://site.test/a/b.html?x=1&y=%20", "https://site.test:8080/a#b", "http://site.test",
        "http://site.test/a;b", "http://site.test//a", "http://site.test/a?", "http://site.test/?a;b=1", "http://[::1]/a",
        "data:,x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("headers", [{}, {"A": ["1", "2"], "B": "3"}, {"A": []}])
@pytest.mark.parametrize("body", ["", "body"])
def test_bytes_are_counted_as_downloader_stats_counts_them(url: str, headers: dict[str, Any], body: str) -> None:
    counted = []
    for is_short in (True, False):
        crawler = get_crawler()
        middleware = DownloaderStats.from_crawler(crawler)
        request = Request(url, method="POST", headers=headers, body=body)
        response = Response(url, status=404, headers=headers, body=body.encode())
        if not (is_short and middlewares._request_stats(middleware)(request)):
            middleware.process_request(request)
        if not (is_short and middlewares._response_stats(middleware)(request, response)):
            middleware.process_response(request, response)
        assert crawler.stats is not None
        counted.append(crawler.stats.get_stats())
    assert counted[0] == counted[1]


@pytest.mark.parametrize("domains", [None, [], ["site.test"], ["other.test", "site.test"], ["127.0.0.1"]])
@pytest.mark.parametrize(
    "url",
    [
        "http://site.test/", "https://www.site.test:8080/a?b", "http://site.test.other/", "http://xsite.test/", "http://127.0.0.1/",
        "http://site.test", "http://me@site.test/", "data:,x",
    ],
)  # fmt: skip
def test_a_request_is_on_the_site_as_offsite_middleware_decides(domains: list[str] | None, url: str) -> None:
    crawler = get_crawler()
    crawler.spider = crawler._create_spider("a")
    crawler.spider.allowed_domains = domains  # type: ignore[attr-defined]
    middleware = OffsiteMiddleware.from_crawler(crawler)
    middleware.spider_opened(crawler.spider)
    step = middlewares._offsite(middleware)
    try:
        middleware.process_request(Request(url))
    except IgnoreRequest:
        assert not step(Request(url))
    assert step(Request(url, dont_filter=True))
    assert step(Request("http://site.test/")) is (domains is None or "127.0.0.1" not in domains)
    crawler.spider.allowed_domains = ["changed.test"]  # type: ignore[attr-defined]
    if "_allowed_domains" in vars(middleware):  # Scrapy 2.18 and later look at the attribute each time
        assert not step(Request("http://site.test/"))


@pytest.mark.parametrize("policy", ["", "no-referrer", "origin", "nonsense"])
@pytest.mark.parametrize("of_request", ["", "origin"])
@pytest.mark.parametrize("page", ["http://me:x@a.test:80/b?c#d", "https://a.test/", "file:///a", "data:,x"])
@pytest.mark.parametrize("link", ["http://a.test/", "https://b.test/", "s3://b/c", "ftp://a.test/"])
@pytest.mark.parametrize("setting", ["scrapy.spidermiddlewares.referer.DefaultReferrerPolicy", "same-origin"])
@pytest.mark.filterwarnings("ignore:Could not load referrer policy")
def test_requests_get_the_referer_that_scrapys_middleware_sets(
    policy: str, of_request: str, page: str, link: str, setting: str
) -> None:
    middleware = RefererMiddleware.from_crawler(get_crawler(settings_dict={"REFERRER_POLICY": setting}))
    step = pages._referer_step(middleware)
    assert (step is None) is (setting == "same-origin")
    response = Response(page, headers={"Referrer-Policy": policy} if policy else None)
    found = []
    for process in (step or middleware._get_processed, middleware._get_processed):
        for headers in (None, {"Referer": "own"}):
            request = Request(link, headers=headers, meta={"referrer_policy": of_request} if of_request else None)
            assert process(request, response) is request
            found.append(request.headers)
    assert found[:2] == found[2:]


# --- signals ----------------------------------------------------------------------------------------------------------


class Receivers:
    """Receivers of all forms."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def some(self, item: Any) -> str:
        self.got.append(("some", item))
        return "some"

    def all(self, **named: Any) -> None:
        self.got.append(("all", sorted(named)))

    def default(self, item: Any, other: Any = 5, *rest: Any) -> None:
        self.got.append(("default", item, other, rest))

    def none(self) -> None:
        self.got.append("none")

    def broken(self, item: Any) -> None:
        self.got.append("broken")
        raise ValueError("a receiver's error")

    def __call__(self, item: Any) -> None:
        self.got.append(("call", item))

    async def later(self, item: Any) -> None:
        await asyncio.sleep(0)
        self.got.append(("later", item))

    async def broken_later(self) -> None:
        raise ValueError("a receiver's error")

    def deferred(self, item: Any) -> "Deferred[Any]":
        self.got.append(("deferred", item))
        return succeed(None)


@pytest.mark.parametrize("for_all_senders", [False, True])
async def test_signals_reach_the_receivers_that_scrapy_finds(
    for_all_senders: bool, caplog: pytest.LogCaptureFixture
) -> None:
    results, got, lines = [], [], []
    for is_short in (True, False):
        sender, receivers = object(), Receivers()
        manager = SignalManager(sender)
        methods = [receivers.some, receivers.all, receivers.default, receivers.none, receivers.broken, receivers]
        methods += [receivers.deferred]
        for method in methods:
            manager.connect(method, signals.item_scraped)
        manager.connect(receivers.all, signals.item_dropped)
        manager.connect(Receivers().some, signals.item_scraped)  # dies at once
        if for_all_senders:
            dispatcher.connect(receivers.none, signals.item_scraped)
            dispatcher.connect(receivers.all, dispatcher.Any, sender)
        send = notices.Signals(sender).send if is_short else manager.send_catch_log
        caplog.clear()
        found = send(signals.item_scraped, item=1, spider=None)
        results.append([getattr(method, "__name__", "call") + str(type(result)) for method, result in found])
        got.append(receivers.got)
        lines.append([(line.name, line.levelname, line.msg, bool(line.exc_info)) for line in caplog.records])
        if for_all_senders:
            dispatcher.disconnect(receivers.none, signals.item_scraped)
            dispatcher.disconnect(receivers.all, dispatcher.Any, sender)
    assert results[0] == results[1]
    assert got[0] == got[1]
    assert len(got[0]) >= 7
    assert lines[0] == lines[1]
    assert len(lines[0]) == 2


async def test_asynchronous_receivers_are_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    sender, receivers = object(), Receivers()
    manager = SignalManager(sender)
    assert notices.Signals(sender).send_to_all(signals.item_scraped, item=1) is None
    manager.connect(receivers.some, signals.item_scraped)
    assert notices.Signals(sender).send_to_all(signals.item_scraped, item=1) is None
    assert receivers.got == [("some", 1)]
    manager.connect(receivers.later, signals.item_scraped)
    manager.connect(receivers.broken_later, signals.item_scraped)
    manager.connect(receivers.deferred, signals.item_scraped)
    with pytest.warns(match="returned a Deferred"):
        waiting = notices.Signals(sender).send_to_all(signals.item_scraped, item=2)
    assert waiting is not None
    await waiting
    assert receivers.got[1:3] == [("some", 2), ("deferred", 2)]
    assert ("later", 2) in receivers.got
    assert any(line.name == "scrapy.utils.signal" and line.exc_info for line in caplog.records)


# --- log lines --------------------------------------------------------------------------------------------------------


class Shown(logging.Handler):
    """A handler that shows its lines."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.shown: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.shown.append(record.getMessage())


def counter(level: int) -> LogCounterHandler:
    return LogCounterHandler(get_crawler(), level=level)


@pytest.mark.parametrize(
    ("handlers", "is_hidden", "count"),
    [
        ([], True, 0),
        ([logging.NullHandler()], True, 0),
        ([logging.NullHandler(), counter(logging.DEBUG)], True, 1),
        ([counter(logging.INFO), Shown(logging.INFO)], True, 0),
        ([counter(logging.DEBUG), Shown(logging.INFO)], True, 1),
        ([counter(logging.DEBUG), Shown(logging.DEBUG)], False, 0),
        ([Shown(logging.NOTSET)], False, 0),
    ],
)
def test_a_debug_line_is_hidden_if_no_handler_shows_it(
    handlers: list[logging.Handler], is_hidden: bool, count: int
) -> None:
    logger = logging.Logger("a", logging.DEBUG)
    logger.handlers = handlers
    lines = notices.LogLines(
        handlers[-1].crawler if handlers and hasattr(handlers[-1], "crawler") else get_crawler(), LogFormatter()
    )
    assert lines._hides(logger) is is_hidden
    for handler in handlers:
        if isinstance(handler, LogCounterHandler):
            assert handler.crawler.stats is not None
            assert handler.crawler.stats.get_value("log_count/DEBUG", 0) == count


def hidden(logger: logging.Logger) -> bool:
    return notices.hidden_counters(logger) is not None


def test_a_line_that_a_filter_or_another_class_may_see_is_not_hidden() -> None:
    class OwnLogger(logging.Logger):
        pass

    assert not hidden(OwnLogger("a", logging.DEBUG))
    filtered = logging.Logger("a", logging.DEBUG)
    filtered.addFilter(lambda record: True)
    assert not hidden(filtered)
    counting = logging.Logger("a", logging.DEBUG)
    counting.handlers = [counter(logging.DEBUG)]
    counting.handlers[0].addFilter(lambda record: False)
    assert not hidden(counting)
    above = logging.Logger("above", logging.DEBUG)
    above.handlers = [Shown(logging.DEBUG)]
    below = logging.Logger("above.below", logging.DEBUG)
    below.parent = above
    assert not hidden(below)
    below.propagate = False
    assert hidden(below)
    assert hidden(logging.Logger("b", logging.INFO))


def test_a_formatter_of_the_project_is_called_for_hidden_lines_too() -> None:
    called = []

    class OwnFormatter(LogFormatter):
        def crawled(self, request: Any, response: Any, spider: Any) -> Any:
            called.append(request)
            return None

    lines = notices.LogLines(get_crawler(), OwnFormatter())
    lines.crawled("a request", SimpleNamespace(flags=[], status=200), None)
    assert called == ["a request"]
