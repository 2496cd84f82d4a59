"""Distributed crawl without a shared queue: one job finds links, and jobs on other servers fetch them in batches.

    ADDONS = {"gossamer.scrapy.DistributedLinks": 0}

The first job is a `CrawlSpider`. The links of one of its rules are not followed. They are collected in batches, and
each batch becomes a job of the same spider on one of several servers with Scrapyd's interface, in turn. Such a job gets
the links as start URLs, fetches them, and treats each as a page of that rule. What the rule's `process_request` has set
(method, headers, cookies, body, meta, cb_kwargs) is handed over as JSON; a request that JSON cannot hold is followed by
the first job itself.

- A link is handed over once: the fingerprint of its request is kept in JOBDIR, or in memory without one.
- A batch counts as handed over when a server has acknowledged it; `gossamer/platform_client/batches.py` describes how
  lost answers are treated. A restart in the same JOBDIR continues with what is left.
- A batch that every server refuses for good is set aside, and the crawl ends as failed.
- The files that jobs write appear under their names when they are complete.

Fixed: the names of settings, which are those of the book that introduced this way of crawling.
"""

import json
import logging
import os
import posixpath
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urldefrag

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.spiders import CrawlSpider
from scrapy.utils.defer import maybe_deferred_to_future

from gossamer.errors import BadInput
from gossamer.platform_client.batches import (
    BATCH_BYTES,
    CALL_SECONDS,
    LOOK_SECONDS,
    BatchSender,
    BatchServer,
    LinkStore,
)
from gossamer.scrapy.feeds import whole_storages

log = logging.getLogger(__name__)

DISTRIBUTED_SETTINGS: Final[dict[str, tuple[Any, str]]] = {
    "DISTRIBUTED_TARGET_RULE": (-1, "Index of the rule whose links are handed over: 1 is the second. -1: none are"),
    "DISTRIBUTED_BATCH_SIZE": (1000, "Links of a batch. A batch of long links is smaller: 64 kB at most"),
    "DISTRIBUTED_TARGET_HOSTS": ([], "Servers that get the batches, in turn: addresses such as http://node1:6800"),
    "DISTRIBUTED_TARGET_FEED_URL": (
        "",
        "Feed that a batch's job writes beside the project's own, such as ftp://USER:PASSWORD@HOST/%(batch)s.jl. "
        "%(batch)s is the job's name, %(name)s the spider's, %(time)s the time of its start. Without %(time)s, a job "
        "that is tried again replaces its file",
    ),
    "DISTRIBUTED_START_URLS": (
        "",
        "JSON list of links: URLs, or objects with `url`, `method`, `headers`, `cookies`, `body`, `meta`, `cb_kwargs` "
        "and `dont_filter`. The job of a batch has it; set it by hand to try single pages",
    ),
    "DISTRIBUTED_PROJECT": ("", "Project on the servers. Empty: SCRAPY_PROJECT, which jobs have, else BOT_NAME"),
    "DISTRIBUTED_GIVE_UP": (
        600,
        "Seconds in which no server accepts a batch, after which the crawl ends with the reason "
        "`distributed_undelivered`",
    ),
}
"""Default and meaning of each setting by its name."""

_POSITION: Final = 100
"""Position among the spider middlewares: behind all others, so that only links that would be followed are handed
over."""
_CLOSE_SECONDS: Final = 30.0
"""Time for handing over what is left when a spider is closed early."""
_FIELDS: Final[dict[str, type | tuple[type, ...]]] = {
    "url": str,
    "method": str,
    "headers": dict,
    "cookies": (dict, list),
    "body": str,
    "meta": dict,
    "cb_kwargs": dict,
    "dont_filter": bool,
}
"""Fields of a link that is more than a URL, with their types: arguments of `scrapy.Request`."""
_OWN_META: Final = frozenset({"rule", "link_text", "depth"})
"""Keys of `meta` that Scrapy sets itself; they are not handed over."""
_FORMATS: Final = {".jl": "jsonlines", ".jsonl": "jsonlines", ".json": "json", ".csv": "csv", ".xml": "xml"}
"""Formats of a feed by the ending of its address; any other is jsonlines."""


class DistributedLinks:
    """Scrapy add-on: adds the spider middleware, and the feed of a batch's job."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Change the settings."""
        for name, (default, _) in DISTRIBUTED_SETTINGS.items():
            settings.setdefault(name, default, priority="default")
        settings.setdefault_in_component_priority_dict("SPIDER_MIDDLEWARES", LinkBatches, _POSITION)
        feed = settings["DISTRIBUTED_TARGET_FEED_URL"]
        if not settings["DISTRIBUTED_START_URLS"] or not feed:
            return
        form = _FORMATS.get(posixpath.splitext(feed)[1], "jsonlines")
        settings.set("FEEDS", {**settings.getdict("FEEDS"), feed: {"format": form, "overwrite": True}}, "cmdline")
        settings.set("FEED_STORAGES", {**whole_storages(), **settings.getdict("FEED_STORAGES")}, "cmdline")


class LinkBatches:
    """Spider middleware: hands links over, or starts with the links of a batch."""

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._crawler = crawler
        self._rule = settings.getint("DISTRIBUTED_TARGET_RULE")
        self._size = max(1, settings.getint("DISTRIBUTED_BATCH_SIZE"))
        self._start_links = _links(settings["DISTRIBUTED_START_URLS"])
        self._store: LinkStore | None = None
        self._sender: BatchSender | None = None
        self._close_seconds = _CLOSE_SECONDS
        self._lost = 0
        """Number of links that could not be stored."""
        hosts = settings.getlist("DISTRIBUTED_TARGET_HOSTS")
        if self._start_links or self._rule < 0:
            return
        if not hosts:
            raise BadInput("DISTRIBUTED_TARGET_HOSTS is empty, so there is no server for the links of the rule")
        project = settings["DISTRIBUTED_PROJECT"] or os.environ.get("SCRAPY_PROJECT", "") or settings["BOT_NAME"]
        if "." in project:  # outside of jobs the variable may be the name of a settings module
            project = settings["BOT_NAME"]
        self._servers = [BatchServer(str(host), project) for host in hosts]
        self._warned: set[str] = set()
        folder = Path(settings["JOBDIR"]) if settings["JOBDIR"] else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._store = LinkStore(folder)  # here, because an error of a signal's handler would not end the crawl
        crawler.signals.connect(self._opened, signal=signals.spider_opened)
        crawler.signals.connect(self._idle, signal=signals.spider_idle)
        crawler.signals.connect(self._closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "LinkBatches":
        return cls(crawler)

    def _opened(self, spider: Spider) -> None:
        assert self._store is not None
        if self._rule >= len(getattr(spider, "rules", ())):
            log.warning(
                "no links are handed over: spider %s has no rule %d (DISTRIBUTED_TARGET_RULE counts from 0)",
                spider.name,
                self._rule,
            )
        feed = self._crawler.settings["DISTRIBUTED_TARGET_FEED_URL"]
        given = {"DISTRIBUTED_TARGET_FEED_URL": feed} if feed else {}
        self._sender = BatchSender(self._store, self._servers, spider.name, given, self._crawler.stats)
        self._sender.start()

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Replace the spider's start requests by those of the batch, if the job has one."""
        if not self._start_links:
            async for one in start:
                yield one
            return
        spider = self._crawler.spider
        for link in self._start_links:
            fields: dict[str, Any] = {"url": link} if isinstance(link, str) else dict(link)
            if isinstance(spider, CrawlSpider) and self._rule >= 0:
                fields["meta"] = {**fields.get("meta", {}), "rule": self._rule, "link_text": ""}
                yield Request(**fields, callback=spider._callback, errback=spider._errback)
            else:
                yield Request(**fields)

    async def process_spider_output(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Take the links of the rule out of what the spider yields."""
        taken: list[tuple[bytes | None, str]] = []
        try:
            async for one in result:
                if self._store is not None and isinstance(one, Request) and one.meta.get("rule") == self._rule:
                    link = self._link(one, response.url)
                    if link:
                        taken.append((None if one.dont_filter else self._fingerprint(one), link))
                        continue
                yield one
        finally:  # also when the callback has failed after these links
            self._add(taken)

    def _link(self, request: Request, page_url: str) -> str:
        """Return a request of the rule as a link of the store. Empty: it cannot be handed over; that is logged once for
        the same fields."""
        fields = _fields(request, page_url)
        foreign = [name for name, value in fields.items() if not _is_json(value)]
        foreign += self._foreign_callbacks(request)
        meta = fields.get("meta", {})
        if "meta" in foreign:
            foreign += [f"meta[{key!r}]" for key, value in meta.items() if not _is_json(value)]
            foreign.remove("meta")
        link = "" if foreign else json.dumps(fields) if len(fields) > 1 else request.url
        if len(link) > BATCH_BYTES:
            foreign.append(f"its length: more than {BATCH_BYTES} bytes")
        if not foreign:
            return link
        self._count("distributed/followed", 1)
        what = ", ".join(foreign)
        if what not in self._warned:
            self._warned.add(what)
            log.warning(
                "requests of rule %d, such as %s, are followed here, because this cannot be handed over: %s",
                self._rule,
                request,
                what,
            )
        return ""

    def _foreign_callbacks(self, request: Request) -> Iterator[str]:
        """Yield the names of the callbacks that the job of a batch would not call."""
        spider = self._crawler.spider
        callbacks, errback = [None, getattr(spider, "parse", None)], None
        if isinstance(spider, CrawlSpider):
            callbacks, errback = [spider._callback], spider._errback
        if request.callback not in callbacks:
            yield "callback"
        if request.errback != errback:
            yield "errback"

    def _add(self, links: list[tuple[bytes | None, str]]) -> None:
        """Store links, and make batches of them."""
        if not links or self._store is None:
            return
        try:
            new = self._store.add(links)
        except sqlite3.Error:
            log.exception("%d links cannot be stored, so they are not handed over", len(links))
            self._lost += len(links)
            return
        self._count("distributed/links", new)
        self._count("distributed/duplicates", len(links) - new)
        self._store.make_batches(self._size, everything=False)

    def _fingerprint(self, request: Request) -> bytes:
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None
        return fingerprinter.fingerprint(request)

    def _count(self, name: str, count: int) -> None:
        if count:
            assert self._crawler.stats is not None
            self._crawler.stats.inc_value(name, count)

    def _idle(self, spider: Spider) -> None:
        """Keep the spider open until all batches are handed over. If any link cannot be handed over, end the crawl as
        failed."""
        assert self._store is not None
        assert self._sender is not None
        try:
            self._store.make_batches(self._size, everything=True)
            left, aside = self._store.count_left(), self._store.count_aside()
        except sqlite3.Error:
            log.exception("links cannot be read, so they are not handed over")
            raise CloseSpider("distributed_undelivered") from None
        if not left:
            if aside or self._lost:
                raise CloseSpider("distributed_undelivered")
            return
        silent_seconds = time.monotonic() - self._sender.accepted_at
        if silent_seconds < self._crawler.settings.getfloat("DISTRIBUTED_GIVE_UP"):
            raise DontCloseSpider
        log.error("links cannot be handed over: no server of DISTRIBUTED_TARGET_HOSTS accepts them")
        self._close_seconds = 0.0
        raise CloseSpider("distributed_undelivered")

    async def _closed(self, spider: Spider, reason: str) -> None:
        """Hand over what is left, within a limited time."""
        from twisted.internet.threads import deferToThread

        await maybe_deferred_to_future(deferToThread(self._finish))

    def _finish(self) -> None:
        store, sender = self._store, self._sender
        if store is None or sender is None:
            return
        store.make_batches(self._size, everything=True)
        deadline = time.monotonic() + self._close_seconds
        while store.count_left() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        sender.ending.set()
        sender.join(CALL_SECONDS)
        if left := store.count_left():
            log.error("%d links were not handed over; with JOBDIR the next run continues with them", left)
        if aside := store.count_aside():
            where = (
                f"{store.aside_file} has them and the reasons" if store.aside_file else "only JOBDIR would keep them"
            )
            log.error("%d links are set aside: each server refused their batches; %s", aside, where)
        self._count("distributed/undelivered", left + aside + self._lost)
        self._store = None
        if not sender.is_alive():
            store.close()


def _fields(request: Request, page_url: str) -> dict[str, Any]:
    """Return the fields of a request that differ from those of a plain one: `_FIELDS`, always with `url`.

    Bytes that are no UTF-8 stay bytes. `page_url`: page with the link; Scrapy's own header Referer is left out.
    """
    headers = {_text(name): [_text(value) for value in values] for name, values in request.headers.items()}
    if headers.get("Referer") == [urldefrag(page_url).url]:
        del headers["Referer"]
    fields = {
        "method": "" if request.method == "GET" else request.method,
        "headers": headers,
        "cookies": request.cookies,
        "body": _text(request.body),
        "meta": {name: value for name, value in request.meta.items() if name not in _OWN_META},
        "cb_kwargs": request.cb_kwargs,
        "dont_filter": request.dont_filter,
    }
    return {"url": request.url, **{name: value for name, value in fields.items() if value}}


def _text(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _is_json(value: Any) -> bool:
    """Return whether a value is the same after it was written as JSON and read; a tuple becomes a list, say."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError, RecursionError):
        return False


def _links(text: Any) -> list[Any]:
    """Return the links in a setting: a JSON list, or a list. Raises BadInput."""
    try:
        found = json.loads(text) if isinstance(text, str) and text else text or []
    except ValueError as error:
        raise BadInput(f"DISTRIBUTED_START_URLS: cannot read JSON: {error}") from None
    if not isinstance(found, list | tuple) or not all(isinstance(link, str) or _is_link(link) for link in found):
        raise BadInput(
            'DISTRIBUTED_START_URLS is not a JSON list of URLs, such as ["https://example.com/"], or of objects with '
            f"these fields: {', '.join(_FIELDS)}"
        )
    return list(found)


def _is_link(link: Any) -> bool:
    return (
        isinstance(link, dict)
        and "url" in link
        and all(name in _FIELDS and isinstance(value, _FIELDS[name]) for name, value in link.items())
    )
