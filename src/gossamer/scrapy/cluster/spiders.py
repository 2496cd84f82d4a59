"""Spiders that the service's crawl requests are for."""

import random
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from gossamer.extract.encoding import decode, is_html
from gossamer.extract.links import LinkExtractor, Links
from gossamer.policy.scope import compile_scope
from gossamer.scrapy.cluster.pipelines import BusPipeline
from gossamer.scrapy.cluster.records import RawResponseItem, plain_headers
from gossamer.scrapy.live import CURRENT
from gossamer.worker.context import scope_of


class ClusterSpider(Spider):
    """Gets what crawl requests with its name as `spiderid` ask for, whatever crawls they belong to.

    `response.meta` has what the request said (`appid`, `crawlid`, `attrs`, `maxdepth`, ...) and where it stands
    (`curdepth`, `priority`). What the spider yields travels under the same terms. It never closes by itself.
    """

    ignores_maxdepth = False
    """True: links are followed at any depth, whatever `maxdepth` the crawl request asks for."""

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """The cluster's scheduler, whatever the project's; the rest only where the project does not say."""
        super().update_settings(settings)
        settings.set("SCHEDULER", "gossamer.scrapy.cluster.scheduler.Scheduler", priority="spider")
        for name, value in (
            ("COOKIES_ENABLED", False),  # crawls of many people share the process: no jar
            ("RETRY_ENABLED", False),  # the frontier does it: another worker may have more luck
            ("ROBOTSTXT_OBEY", True),
            ("TELNETCONSOLE_ENABLED", False),
        ):
            settings.set(name, value, priority="addon")
        settings.setdefault_in_component_priority_dict("ITEM_PIPELINES", BusPipeline, 100)
        # `scrapy crawl` lays the process's settings over a spider's once more: what is no stronger than there is lost.
        there = settings.getpriority("ITEM_PIPELINES") or 0
        stronger = max(there + 1, SETTINGS_PRIORITIES["spider"])
        settings.set("ITEM_PIPELINES", settings.getdict("ITEM_PIPELINES"), priority=stronger)

    async def start(self) -> AsyncIterator[Any]:
        """Nothing: requests are fed."""
        return
        yield

    @property
    def _logger(self) -> Any:
        """As Scrapy Cluster's spiders call it."""
        return self.logger

    def reconstruct_headers(self, response: Response) -> dict[str, list[str]]:
        """All values of all response headers, as text that survives JSON."""
        return plain_headers(response.headers)

    def page(self, response: Response, links: Iterable[tuple[str, str]] = ()) -> RawResponseItem:
        """The item of a page; the pipeline fills in what is not about its links."""
        return RawResponseItem(links=[{"url": url, "text": text} for url, text in links])

    def links(self, response: Response) -> Links:
        """The page's links: `urls` in scope of its crawl request, canonical; `texts` all of them with their texts."""
        live = CURRENT.get()
        terms = live.lease.terms if live is not None else None
        extractor = LinkExtractor(
            compile_scope() if terms is None else scope_of(terms),
            seed=0,
            follow_nofollow=terms is not None and terms.follow_nofollow,
            texts=True,
        )
        said = (response.headers.get(b"Content-Type") or b"").decode("latin-1")
        if not is_html(said, response.body):
            return Links()
        return extractor.extract(response.body, response.url, encoding=decode(response.body, said)[1])

    def deeper(self, response: Response) -> bool:
        """Whether the crawl request wants links of this page followed."""
        maxdepth = response.meta.get("maxdepth")
        return self.ignores_maxdepth or maxdepth is None or response.meta.get("curdepth", 0) < maxdepth


class LinkSpider(ClusterSpider):
    """Every page, and every link in scope down to the depth."""

    name = "link"

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        """The page and its links."""
        links = self.links(response)
        yield self.page(response, links.texts or ())
        if self.deeper(response):
            for url in links.urls:
                yield Request(url)


class WanderingSpider(ClusterSpider):
    """Every page, and one random link of each; `attrs["step"]` counts the steps.

    The walk may visit a page again. It ends when its crawl is stopped or expires, at a limit of pages, and at a page
    without a link in scope. `maxdepth` does not end it.
    """

    name = "wandering"
    ignores_maxdepth = True

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        """The page and one of its links, at the page's own priority."""
        attrs = dict(response.meta.get("attrs") or {})
        step = attrs.setdefault("step", 0)
        links = self.links(response)
        item = self.page(response, links.texts or ())
        item["attrs"] = attrs
        yield item
        others = [url for url in links.urls if url != response.url]
        if others:
            live = CURRENT.get()
            onward = {**attrs, "step": step + 1 if isinstance(step, int) else 1}
            yield Request(
                # A page that is read again after a crash leads to the same link, and not to a second walk.
                random.Random(live.lease.request_id if live else None).choice(others),
                meta={"attrs": onward, "priority": response.meta.get("priority", 0)},
                dont_filter=True,
            )
