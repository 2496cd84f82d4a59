"""A spider that writes down all that a project can see of Scrapy's engine, and a project that overrides much of it."""

import asyncio
import functools
import gc
import json
import logging
import os
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import scrapy
from scrapy import signals
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.defaultheaders import DefaultHeadersMiddleware
from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.exceptions import DropItem, IgnoreRequest
from scrapy.http import Response
from scrapy.logformatter import LogFormatter
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.misc import load_object
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

EVENTS: list[tuple[str, str, Any]] = []
"""(case, kind of the event, details). Cases run one after the other, but their order may differ."""


def note(case: object, kind: str, *details: Any) -> None:
    EVENTS.append((str(case), kind, details))


def case_of(thing: Any) -> str:
    """The case that a request, response, item or failure belongs to."""
    if isinstance(thing, Failure):
        thing = thing.request if hasattr(thing, "request") else getattr(thing.value, "response", None)
    if isinstance(thing, dict):
        return str(thing.get("case"))
    if thing is None:
        return "none"
    try:
        return str(thing.meta.get("case", "unknown"))
    except AttributeError:
        return str(thing.request.meta.get("case", "unknown"))


def item_of(item: Any) -> str:
    """The case of an item, with its number: items of a page may overtake each other."""
    return f"{case_of(item)} {item['number']}"


def looks(request: scrapy.Request) -> list[Any]:
    """All of a request but what differs from run to run."""
    meta = {key: value for key, value in request.meta.items() if key not in ("download_latency",)}
    headers = {name.decode(): [value.decode() for value in values] for name, values in request.headers.items()}
    return [
        request.method, request.url, request.body.decode(), meta, headers, request.cookies, request.priority,
        request.dont_filter, request.flags, request.cb_kwargs, getattr(request.callback, "__name__", None),
        getattr(request.errback, "__name__", None), type(request).__name__,
    ]  # fmt: skip


class Witness:
    """An extension with a receiver for each signal; it writes the events to a file at the end."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        connect = crawler.signals.connect
        for name in (
            "request_scheduled", "request_dropped", "request_reached_downloader", "request_left_downloader",
        ):  # fmt: skip
            connect(getattr(self, name), signal=getattr(signals, name))
        connect(self.response_downloaded, signal=signals.response_downloaded)
        connect(self.response_received, signal=signals.response_received)
        connect(self.item_scraped, signal=signals.item_scraped)
        connect(self.item_scraped_later, signal=signals.item_scraped)
        connect(self.item_scraped_wrong, signal=signals.item_scraped)
        connect(self.item_dropped, signal=signals.item_dropped)
        connect(self.item_error, signal=signals.item_error)
        connect(self.spider_error, signal=signals.spider_error)
        connect(self.everything, signal=signals.response_received)
        connect(self.save, signal=signals.engine_stopped)
        self.lines = Lines(crawler.settings.get("LINES_FROM", "DEBUG"))
        logging.root.addHandler(self.lines)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "Witness":
        return cls(crawler)

    def request_scheduled(self, request: scrapy.Request, spider: scrapy.Spider) -> None:
        note(case_of(request), "scheduled", request.url)
        if "refuse" in request.url:
            raise IgnoreRequest("by a receiver")

    def request_dropped(self, request: scrapy.Request) -> None:
        note(case_of(request), "dropped", request.url)

    def request_reached_downloader(self, request: scrapy.Request) -> None:
        note(case_of(request), "reached", looks(request), self.places(request)[:-1])

    def request_left_downloader(self, request: scrapy.Request, spider: scrapy.Spider) -> None:
        note(case_of(request), "left", request.url, self.places(request)[:-1])

    def response_downloaded(self, response: Response, request: scrapy.Request) -> None:
        note(case_of(request), "downloaded", response.status, response.request is request, self.places(request)[:-1])

    def response_received(self, response: Response, request: scrapy.Request, spider: scrapy.Spider) -> None:
        note(case_of(request), "received", response.status, response.request is request, self.places(request)[:-1])

    def everything(self, **given: Any) -> None:
        note(case_of(given["request"]), "arguments", sorted(given))

    def item_scraped(self, item: Any, response: Any, spider: scrapy.Spider) -> None:
        request = getattr(response, "request", None)
        note(item_of(item), "scraped", dict(item), getattr(response, "url", None), self.places(request)[-1])

    async def item_scraped_later(self, item: Any) -> None:
        await asyncio.sleep(0)
        note(item_of(item), "scraped later", item["number"])

    def item_scraped_wrong(self, item: Any) -> None:
        if item.get("wrong receiver"):
            raise ValueError("a receiver's error")

    def item_dropped(self, item: Any, exception: Exception) -> None:
        note(item_of(item), "item dropped", str(exception))

    def item_error(self, item: Any, failure: Failure) -> None:
        note(item_of(item), "item error", failure.getErrorMessage())

    def spider_error(self, failure: Failure, response: Response) -> None:
        note(case_of(response), "spider error", failure.getErrorMessage(), failure.getTraceback().count("broken"))

    def places(self, request: scrapy.Request) -> list[str]:
        """The engine's sets that a request is in."""
        engine = self.crawler.engine
        assert engine is not None
        sets = {
            "in progress": engine._slot.inprogress,
            "downloader": engine.downloader.active,
            "scraper": engine.scraper.slot.active,
            **{f"active {key}": slot.active for key, slot in engine.downloader.slots.items()},
            **{f"transferring {key}": slot.transferring for key, slot in engine.downloader.slots.items()},
        }
        busy = engine.scraper.slot.active_size > 0, engine.scraper.slot.is_idle(), engine.spider_is_idle()
        return [*(name for name, requests in sets.items() if request in requests), str(busy)]

    def save(self) -> None:
        logging.root.removeHandler(self.lines)
        path = Path(os.environ["SPIDER_STATS"])
        path.write_text(json.dumps(dict(self.crawler.stats.get_stats()), default=str))
        path.with_suffix(".events").write_text(json.dumps(EVENTS, default=str))


class Lines(logging.Handler):
    """Notes the lines of Scrapy."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(("scrapy.core.engine", "scrapy.core.scraper", "scrapy.utils.signal", "scrapy.spider",
                                   "scrapy.downloader", "witness", "asyncio")):  # fmt: skip
            item = getattr(record, "item", None)
            note("log", record.name, record.levelname, record.getMessage(), record.exc_info is not None, item,
                 getattr(record, "spider", None) is not None)  # fmt: skip


class Pipeline:
    """Drops, fails, waits, or answers with a Deferred, as the item says."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0

    def process_item(self, item: Any) -> Any:
        match item.get("do"):
            case "drop":
                raise DropItem("not wanted")
            case "fail":
                raise ValueError("cannot do it")
            case "wait":
                return self._wait(item)
            case "deferred":
                done: Deferred[Any] = Deferred()
                asyncio.get_running_loop().call_soon(done.callback, {**item, "deferred": True})
                return done
            case "replace":
                return {**item, "replaced": True}
        return item

    async def _wait(self, item: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.02)
        self.running -= 1
        return {**item, "waited": True}

    def close_spider(self) -> None:
        note("pipeline", "at most", self.most)


class Second:
    """A pipeline behind the other."""

    async def process_item(self, item: Any) -> Any:
        note(item_of(item), "second pipeline", dict(item))
        if item.get("do") == "fail later":
            raise ValueError("cannot do it later")
        return item


class ShortWaySpider(scrapy.Spider):
    """Requests the cases, each of which has a callback or errback of its own kind."""

    name = "cases"
    custom_settings = {  # noqa: RUF012 (as projects write it)
        "CONCURRENT_REQUESTS": 1,
        "CONCURRENT_ITEMS": 3,
        "RETRY_TIMES": 1,
        "DEPTH_LIMIT": 2,
        "URLLENGTH_LIMIT": 200,
        "ITEM_PIPELINES": {Pipeline: 1, Second: 2},
        "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
    }
    allowed_domains = ["127.0.0.1"]  # noqa: RUF012

    def __init__(self, site: str, few: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.site = site
        self.few = few

    def case(self, name: str, path: str, **more: Any) -> scrapy.Request:
        meta = {"case": name, **more.pop("meta", {})}
        url = path if "://" in path else self.site + path
        arguments = {"callback": self.parse, "errback": self.on_error, "cb_kwargs": {"name": name}, **more}
        return scrapy.Request(url, meta=meta, dont_filter=True, **arguments)

    async def start(self) -> AsyncIterator[Any]:
        yield {"case": "start item", "number": 0}
        yield self.case("page", "/page", callback=self.parse_links)
        yield self.case("list", "/page?list", callback=self.parse_list)
        if self.few:
            return
        yield self.case("one", "/page?one", callback=self.parse_one)
        yield self.case("nothing", "/page?nothing", callback=self.parse_nothing)
        yield self.case("coroutine", "/page?coroutine", callback=self.parse_in_coroutine)
        yield self.case("asynchronous", "/page?asynchronous", callback=self.parse_asynchronously)
        yield self.case("broken", "/page?broken", callback=self.parse_broken)
        yield self.case("broken at once", "/page?at-once", callback=self.parse_broken_at_once)
        yield self.case("broken coroutine", "/page?broken-coroutine", callback=self.parse_broken_coroutine)
        yield self.case("with return", "/page?return", callback=self.parse_with_return)
        yield self.case("items", "/page?items", callback=self.parse_items)
        yield self.case("missing", "/404")
        yield self.case("missing, no errback", "/404?silent", errback=None)
        yield self.case("missing, but allowed", "/404?allowed", meta={"handle_httpstatus_list": [404]})
        yield self.case("down", "/500")
        yield self.case("down, no retry", "/500?once", meta={"dont_retry": True})
        yield self.case("moved", "/moved")
        yield self.case("moved, not followed", "/moved?stay",
                        meta={"dont_redirect": True, "handle_httpstatus_all": True})  # fmt: skip
        yield self.case("refreshed", "/refresh")
        yield self.case("packed", "/gzip")
        # A jar of their own: other cases may come before or after.
        yield self.case("cookies", "/cookie", callback=self.parse_cookies, cookies={"own": "1"},
                        meta={"cookiejar": "first"})  # fmt: skip
        yield self.case("no cookies", "/cookie?none", meta={"dont_merge_cookies": True})
        yield self.case("other jar", "/cookie?jar", meta={"cookiejar": "other"})
        yield self.case("refused", "http://127.0.0.1:1/")
        yield self.case("refused, no errback", "http://127.0.0.1:1/silent", errback=None)
        yield self.case("broken errback", "http://127.0.0.1:1/broken", errback=self.on_error_broken)
        yield self.case("authorized", "/page?auth", meta={"http_user": "me", "http_pass": "secret"})
        yield self.case("head", "/head", method="HEAD")
        yield self.case("post", "/page?post", method="POST", body="a=b", headers={"X-Own": ["1", "2"]})
        yield self.case("flags", "/page?flags", flags=["mine"], priority=3, meta={"download_timeout": 5.0})
        yield self.case("own agent", "/page?agent", headers={"User-Agent": "own", "Accept": None})
        yield self.case("proxy none", "/page?proxy", headers={"Proxy-Authorization": "x"}, meta={"proxy": None})
        yield self.case("short", "/short")
        yield self.case("too far", "/page?far", callback=self.parse_far)

    def parse(self, response: Response, name: str) -> Iterator[Any]:
        self.look(response)
        yield {"case": name, "number": 0, "url": response.url}

    def look(self, response: Response) -> None:
        headers = {key.decode(): [value.decode() for value in values] for key, values in response.headers.items()}
        request = response.request
        assert request is not None
        task = asyncio.current_task()
        assert task is not None
        note("task", task.get_coro().__qualname__)
        note(case_of(response), "callback", response.status, response.url, headers, response.body.decode(),
             response.flags, looks(request), response.meta is request.meta, response.cb_kwargs is request.cb_kwargs,
             Witness.places(self, request))  # type: ignore[arg-type]  # fmt: skip

    def parse_links(self, response: Response, name: str) -> Iterator[Any]:
        self.look(response)
        yield None
        yield {"case": name, "number": 0}
        yield response.follow("/page?link", self.parse, cb_kwargs={"name": "link"}, meta={"case": "link"})
        yield response.follow("/page?link", self.parse, cb_kwargs={"name": "link"}, meta={"case": "link"})
        yield response.follow("http://elsewhere.test/", self.parse, meta={"case": "offsite"})
        yield response.follow("http://elsewhere.test/2", self.parse, meta={"case": "offsite"})
        yield response.follow("/page?refuse", self.parse, meta={"case": "refused by a receiver"})
        yield response.follow("/page?" + "x" * 300, self.parse, meta={"case": "long"})
        yield {"case": name, "number": 1, "wrong receiver": True}

    def parse_far(self, response: Response, name: str) -> Iterator[Any]:
        self.look(response)
        deeper = f"/page?far{response.meta['depth']}"
        yield response.follow(deeper, self.parse_far, cb_kwargs={"name": name}, meta={"case": "far"})

    def parse_list(self, response: Response, name: str) -> list[Any]:
        self.look(response)
        return [{"case": name, "number": 0}, None, {"case": name, "number": 1}]

    def parse_one(self, response: Response, name: str) -> Any:
        return {"case": name, "number": 0}

    def parse_nothing(self, response: Response, name: str) -> None:
        self.look(response)

    async def parse_in_coroutine(self, response: Response, name: str) -> Any:
        await asyncio.sleep(0)
        return [{"case": name, "number": 0}]

    async def parse_asynchronously(self, response: Response, name: str) -> AsyncIterator[Any]:
        self.look(response)
        yield {"case": name, "number": 0}
        await asyncio.sleep(0)
        yield response.follow("/page?followed", self.parse, cb_kwargs={"name": "followed"}, meta={"case": "followed"})
        raise ValueError("broken asynchronously")

    def parse_broken(self, response: Response, name: str) -> Iterator[Any]:
        yield {"case": name, "number": 0}
        raise ValueError("broken")

    def parse_broken_at_once(self, response: Response, name: str) -> Any:
        raise ValueError("broken")

    async def parse_broken_coroutine(self, response: Response, name: str) -> Any:
        raise ValueError("broken")

    def parse_with_return(self, response: Response, name: str) -> Any:
        yield {"case": name, "number": 0}
        return {"case": name, "number": 1}

    def parse_items(self, response: Response, name: str) -> Iterator[Any]:
        for number, what in enumerate(("drop", "fail", "replace", "deferred", "fail later", *["wait"] * 8)):
            yield {"case": name, "number": number, "do": what}

    def parse_cookies(self, response: Response, name: str) -> Iterator[Any]:
        self.look(response)
        yield response.follow(
            "/page?cookie", self.parse, cb_kwargs={"name": "eaten"}, meta={"case": "eaten", "cookiejar": "first"}
        )

    def on_error(self, failure: Failure) -> Iterator[Any]:
        note(case_of(failure), "errback", failure.type.__name__, looks(failure.request))
        if failure.type.__name__ == "_InvalidOutput":
            note(case_of(failure), "message", failure.getErrorMessage())
        yield {"case": failure.request.meta["case"], "number": 0, "error": failure.type.__name__}

    def on_error_broken(self, failure: Failure) -> Any:
        raise ValueError("broken errback")


class PartialsSpider(scrapy.Spider):
    """Gives each request a callback of its own, and counts at the end how many of these are left."""

    name = "partials"

    def __init__(self, site: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.site = site
        self.callbacks: weakref.WeakSet[Any] = weakref.WeakSet()

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{self.site}/page")

    def parse(self, response: Response, number: int = 0) -> Iterator[Any]:
        if number < 20:
            callback = functools.partial(self.parse, number=number + 1)
            self.callbacks.add(callback)
            yield response.follow("/page", callback, dont_filter=True)

    def closed(self, reason: str) -> None:
        gc.collect()
        note("none", "left", len(self.callbacks))


# --- a project that overrides -----------------------------------------------------------------------------------------


class OwnRetry(RetryMiddleware):
    """Also retries pages that say so."""

    def process_response(self, request: scrapy.Request, response: Response, spider: Any = None) -> Any:
        note(case_of(request), "own retry", response.status)
        return super().process_response(request, response)


class OwnCookies(CookiesMiddleware):
    """Sends one cookie more."""

    def process_request(self, request: scrapy.Request, spider: Any = None) -> Any:
        request.cookies = {**(request.cookies or {}), "more": "1"}
        return super().process_request(request)


class OwnHeaders(DefaultHeadersMiddleware):
    """Changes nothing, and so must be called like any other."""

    def process_request(self, request: scrapy.Request, spider: Any = None) -> Any:
        note(case_of(request), "own headers", sorted(name.decode() for name in request.headers))
        return super().process_request(request)


class OwnDownloaderMiddleware:
    """Asynchronous methods, a response of its own, another request."""

    async def process_request(self, request: scrapy.Request) -> Any:
        await asyncio.sleep(0)
        note(case_of(request), "own request", request.url)
        if request.url.endswith("?coroutine"):
            return scrapy.http.HtmlResponse(request.url, body=b"<p>own", request=request)
        if request.url.endswith("?one"):
            raise IgnoreRequest("by a middleware")
        if request.url.endswith("?post"):
            return 7  # wrong, and Scrapy says so
        return None

    def process_response(self, request: scrapy.Request, response: Response) -> Any:
        note(case_of(request), "own response", response.status)
        if request.url.endswith("?flags") and not request.meta.get("again"):
            return request.replace(meta={**request.meta, "again": True}, dont_filter=True)
        if request.url.endswith("?agent"):
            return None  # wrong, and Scrapy says so
        return response

    async def process_exception(self, request: scrapy.Request, exception: Exception) -> Any:
        note(case_of(request), "own exception", type(exception).__name__)
        if request.url.endswith("/silent"):
            return scrapy.http.TextResponse(request.url, body=b"rescued", request=request)
        return None


class OwnOutput(BaseSpiderMiddleware):
    """Overrides what is done to single requests and items."""

    def get_processed_request(self, request: scrapy.Request, response: Response | None) -> scrapy.Request | None:
        # Noted apart: Scrapy's own way takes some objects ahead of the scheduler, of an unspecified number.
        note(f"{case_of(request)}, output", "own output", request.url)
        return None if request.url.endswith("?followed") else request

    def get_processed_item(self, item: Any, response: Response | None) -> Any:
        if item.get("case") == "list" and item["number"] == 1:
            raise ValueError("broken middleware")
        return {**item, "processed": True}

    def process_spider_exception(self, response: Response, exception: Exception) -> Any:
        note(case_of(response), "own rescue", str(exception))
        return [{"case": case_of(response), "number": 9}] if "at-once" in response.url else None


class OwnInput:
    """Refuses a page."""

    def process_spider_input(self, response: Response) -> None:
        note(case_of(response), "own input", response.status)
        if response.url.endswith("?items"):
            raise ValueError("broken input")


class OwnGenerator:
    """A middleware in the form of before asynchronous ones."""

    def process_spider_output(self, response: Response, result: Any) -> Iterator[Any]:
        for one in result:
            note(case_of(response), "own generator", type(one).__name__)
            yield one

    async def process_spider_output_async(self, response: Response, result: Any) -> AsyncIterator[Any]:
        async for one in result:
            note(case_of(response), "own generator", type(one).__name__)
            yield one


class OwnDepth(DepthMiddleware):
    """Counts differently."""

    def _init_depth(self, response: Response) -> None:
        response.meta.setdefault("depth", 1)
        super()._init_depth(response)


class OwnFormatter(LogFormatter):
    """Hides pages, and shows items in another level."""

    def crawled(self, request: scrapy.Request, response: Response, spider: scrapy.Spider) -> Any:
        note(case_of(request), "own line", response.status)
        return None

    def scraped(self, item: Any, response: Any, spider: scrapy.Spider) -> Any:
        return {"level": logging.INFO, "msg": "Own: %(item)s", "args": {"item": item}}


class OwnHandler(HTTP11DownloadHandler):
    """Notes what it downloads."""

    async def download_request(self, request: scrapy.Request) -> Response:
        note(case_of(request), "own handler", request.url)
        return await super().download_request(request)


class OwnStats(MemoryStatsCollector):
    """Counts its calls."""

    calls: ClassVar[Counter[str]] = Counter()

    def inc_value(self, key: str, count: int = 1, start: int = 0, spider: Any = None) -> None:
        self.calls[key] += 1
        super().inc_value(key, count, start)

    def close_spider(self, spider: Any = None, reason: str | None = None) -> None:
        note("stats", "calls", sorted(self.calls.items()))


class PatchesEngine:
    """An extension that wraps a method of this crawl's engine, or of a part of it, when the spider opens."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        crawler.signals.connect(self.spider_opened, signal=signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "PatchesEngine":
        return cls(crawler)

    def spider_opened(self) -> None:
        *names, last = self.crawler.settings["PATCH"].split(".")
        part: Any = self.crawler.engine
        for name in names:
            part = getattr(part, name)
        setattr(part, last, noted(getattr(part, last)))


class PatchesClass:
    """An extension that wraps a method of one of Scrapy's classes, as libraries do that measure."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "PatchesClass":
        path, _, name = crawler.settings["PATCH"].rpartition(".")
        kind = load_object(path)
        setattr(kind, name, noted(getattr(kind, name)))
        return cls()


def noted(original: Any) -> Any:
    """The function, which notes its calls."""

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        note("patch", original.__name__)
        return original(*args, **kwargs)

    return wrapped
