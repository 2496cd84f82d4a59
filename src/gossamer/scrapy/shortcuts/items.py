"""Passes items through the pipelines of a crawler. An item whose pipelines do not wait needs no task.

Fixed: pipelines get items in Scrapy's order, and dropped and failed items have the log lines and signals that Scrapy
gives them.
"""

import inspect
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any

import scrapy
from scrapy import signals
from scrapy.core.scraper import Scraper
from scrapy.exceptions import DropItem
from scrapy.http import Response
from scrapy.pipelines import ItemPipelineManager
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.log import logformatter_adapter
from scrapy.utils.python import global_object_name
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gossamer.scrapy.shortcuts.notices import LogLines, Signals
from gossamer.scrapy.shortcuts.parts import is_stock

_log = logging.getLogger("scrapy.core.scraper")  # the name that users know from Scrapy's lines


class ItemProcessing:
    """Passes items through the pipelines."""

    def __init__(self, engine: Any, notices: Signals, lines: LogLines) -> None:
        self._crawler = engine.crawler
        self._scraper: Scraper = engine.scraper
        self._notices = notices
        self._lines = lines
        pipelines = engine.scraper.itemproc
        names = ("process_item_async", "_process_chain", "_add_middleware")
        self._pipelines: ItemPipelineManager = pipelines
        self._is_stock = is_stock(pipelines, ItemPipelineManager, names)

    def begin(self, item: Any, response: Response) -> Coroutine[Any, Any, None] | None:
        """Do what `Scraper.start_itemproc_async` does, as far as nothing waits. Return the rest, if there is one."""
        if not self._is_stock:
            return self._scraper.start_itemproc_async(item, response=response)
        slot = self._scraper.slot
        assert slot is not None
        slot.itemproc_size += 1
        rest: Coroutine[Any, Any, None] | None = None
        try:
            rest = self._process(item, response)
        finally:
            if rest is None:
                slot.itemproc_size -= 1
        return rest

    def _process(self, item: Any, response: Response) -> Coroutine[Any, Any, None] | None:
        needing_spider = self._pipelines._mw_methods_requiring_spider
        output = item
        try:
            for position, method in enumerate(self._pipelines.methods["process_item"]):
                assert method is not None
                result = method(output, self._crawler.spider) if method in needing_spider else method(output)
                if result is not output and (isinstance(result, Deferred) or inspect.isawaitable(result)):
                    return self._finish(item, result, position, response)
                output = result
        except Exception as error:
            return self._finish_failed(item, error, response)
        waiting = self._scraped(output, response)
        return None if waiting is None else self._end_with(waiting)

    async def _finish(self, item: Any, result: Any, position: int, response: Response) -> None:
        """Wait for the pipeline at this position, then pass the item through the others."""
        slot = self._scraper.slot
        assert slot is not None
        methods = list(self._pipelines.methods["process_item"])
        needing_spider = self._pipelines._mw_methods_requiring_spider
        try:
            try:
                output = await ensure_awaitable(result, _warn=global_object_name(methods[position]))
                for method in methods[position + 1 :]:
                    assert method is not None
                    result = method(output, self._crawler.spider) if method in needing_spider else method(output)
                    output = await ensure_awaitable(result, _warn=global_object_name(method))
            except Exception as error:
                await self._fail(item, error, response)
            else:
                waiting = self._scraped(output, response)
                if waiting is not None:
                    await waiting
        finally:
            slot.itemproc_size -= 1

    async def _finish_failed(self, item: Any, error: Exception, response: Response) -> None:
        slot = self._scraper.slot
        assert slot is not None
        try:
            await self._fail(item, error, response)
        finally:
            slot.itemproc_size -= 1

    async def _end_with(self, waiting: Awaitable[Any]) -> None:
        """Wait for the receivers of a signal."""
        slot = self._scraper.slot
        assert slot is not None
        try:
            await waiting
        finally:
            slot.itemproc_size -= 1

    def _scraped(self, output: Any, response: Response) -> Awaitable[Any] | None:
        """Log the item and send the signal. Return what is left to wait for."""
        spider = self._crawler.spider
        self._lines.scraped(output, response, spider, self._extra)
        return self._notices.send_to_all(signals.item_scraped, item=output, response=response, spider=spider)

    def _extra(self, item: Any) -> dict[str, Any]:
        """Return further attributes of the log lines about an item."""
        spider = self._crawler.spider
        return {"spider": spider, "item": item} if scrapy.version_info[:2] >= (2, 19) else {"spider": spider}

    async def _fail(self, item: Any, error: Exception, response: Response) -> None:
        """Log the item that a pipeline has dropped or failed with, and send the signal."""
        spider, formatter = self._crawler.spider, self._scraper.logformatter
        try:
            raise error
        except DropItem as drop:
            line = formatter.dropped(item, drop, response, spider)
            if line is not None:
                _log.log(*logformatter_adapter(line), extra=self._extra(item))
            waiting = self._notices.send_to_all(
                signals.item_dropped, item=item, response=response, spider=spider, exception=drop
            )
        except Exception as fault:
            line = formatter.item_error(item, fault, response, spider)
            _log.log(*logformatter_adapter(line), extra=self._extra(item), exc_info=True)
            waiting = self._notices.send_to_all(
                signals.item_error,
                item=item,
                response=response,
                spider=spider,
                failure=Failure(),  # type: ignore[no-untyped-call]
            )
        if waiting is not None:
            await waiting
