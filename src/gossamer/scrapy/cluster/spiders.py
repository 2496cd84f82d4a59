"""Base class of spiders for a service's crawl requests, and the spiders `link` and `wandering` made of it.

A crawl request's options, such as its `maxdepth`, are its terms. The frontier is the queue that all workers share.

Fixed: the spiders' names, which crawl requests name as `spiderid`; the methods, attributes and keys of meta, which
projects from Scrapy Cluster use; and the settings below, each for the reason beside it.
"""

import random
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from gossamer.extract.encoding import decode, is_html
from gossamer.extract.links import LinkExtractor, Links
from gossamer.policy.robots import asks_nofollow
from gossamer.policy.scope import compile_scope, scope_of
from gossamer.scrapy.cluster.pipelines import BusPipeline
from gossamer.scrapy.cluster.records import RawResponseItem, content_type_of_response, plain_headers
from gossamer.scrapy.leasing import CURRENT_LEASE

_PIPELINE_POSITION = 100
"""Position of BusPipeline among the item pipelines (0 to 1000, lowest first). It publishes what the pipelines before it
return. Must not move: projects place their own pipelines before or after it, by docs/howto/from-scrapy-cluster.md."""


class ClusterSpider(Spider):
    """Spider that gets all crawl requests with its name as `spiderid`, of any crawl. It never closes by itself.

    `response.meta` has the crawl request's fields (`appid`, `crawlid`, `attrs`, `maxdepth`, ...) and the request's
    place in the crawl (`curdepth`, `priority`). Requests that the spider yields have the same terms.
    """

    ignores_maxdepth = False
    """True: links are followed at any depth, whatever `maxdepth` the crawl request sets. The scheduler and the encoder
    of requests read it by this name."""

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Set the cluster's scheduler in any case, and other settings where the project does not set them."""
        super().update_settings(settings)
        settings.set("SCHEDULER", "gossamer.scrapy.cluster.scheduler.Scheduler", priority="spider")
        for name, value in (
            ("COOKIES_ENABLED", False),  # a cookie jar would mix the crawls that share this process
            ("RETRY_ENABLED", False),  # the frontier retries, on any worker
            ("ROBOTSTXT_OBEY", True),  # as Gossamer's own worker does; a crawl request may be allowed to ignore it
            ("TELNETCONSOLE_ENABLED", False),  # a console that runs code
        ):
            settings.set(name, value, priority="addon")
        settings.setdefault_in_component_priority_dict("ITEM_PIPELINES", BusPipeline, _PIPELINE_POSITION)
        # `scrapy crawl` applies the process's settings once more, after the spider's. They would replace a value that
        # has no higher priority than theirs.
        project_priority = settings.getpriority("ITEM_PIPELINES") or 0
        priority = max(project_priority + 1, SETTINGS_PRIORITIES["spider"])
        settings.set("ITEM_PIPELINES", settings.getdict("ITEM_PIPELINES"), priority=priority)

    async def start(self) -> AsyncIterator[Any]:
        """Yield nothing: all requests come from the service."""
        return
        yield  # never reached; it makes the method a generator

    @property
    def _logger(self) -> Any:
        """The spider's logger, under its name in Scrapy Cluster."""
        return self.logger

    def reconstruct_headers(self, response: Response) -> dict[str, list[str]]:
        """Return all values of all response headers as text, which JSON can hold."""
        return plain_headers(response.headers)

    def page(self, response: Response, links: Iterable[tuple[str, str]] = ()) -> RawResponseItem:
        """Return the item of a page with these links (URL, text). The pipeline fills in all other fields."""
        return RawResponseItem(links=[{"url": url, "text": text} for url, text in links])

    def links(self, response: Response) -> Links:
        """Return the page's links. `urls`: canonical, in scope of the crawl request; `texts`: all links with texts."""
        active = CURRENT_LEASE.get()
        terms = active.lease.terms if active is not None else None  # None: `scrapy parse`, outside of a crawl
        extractor = LinkExtractor(
            compile_scope() if terms is None else scope_of(terms),
            seed=0,  # for the links' fingerprints, which nothing here reads
            follow_nofollow=terms is not None and terms.follow_nofollow,
            texts=True,
        )
        content_type = content_type_of_response(response)
        headers = ((name, value) for name, values in plain_headers(response.headers).items() for value in values)
        if not is_html(content_type, response.body, headers):
            return Links()
        tags = [line.decode("latin-1") for line in response.headers.getlist(b"X-Robots-Tag")]
        request = response.request
        agent = (request.headers.get(b"User-Agent") if request is not None else None) or b""
        return extractor.extract(
            response.body,
            response.url,
            encoding=decode(response.body, content_type)[1],
            nofollow=asks_nofollow(tags, agent.decode("latin-1")),
        )

    def follows_links(self, response: Response) -> bool:
        """Return whether the crawl request's `maxdepth` allows links of this page to be followed."""
        maxdepth = response.meta.get("maxdepth")
        return self.ignores_maxdepth or maxdepth is None or response.meta.get("curdepth", 0) < maxdepth


class LinkSpider(ClusterSpider):
    """Publishes every page, and follows every link in scope down to `maxdepth`."""

    name = "link"

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        """Yield the page and requests for its links."""
        links = self.links(response)
        yield self.page(response, links.texts or ())
        if self.follows_links(response):
            for url in links.urls:
                yield Request(url)


class WanderingSpider(ClusterSpider):
    """Publishes every page, and follows one random link of each. `attrs["step"]` counts the steps.

    The walk may visit a page again. It ends when its crawl is stopped or expires, at a limit of pages, or at a page
    without a link in scope. `maxdepth` does not end it.
    """

    name = "wandering"
    ignores_maxdepth = True

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        """Yield the page and a request for one of its links, at the page's own priority."""
        attrs = dict(response.meta.get("attrs") or {})
        step = attrs.setdefault("step", 0)
        links = self.links(response)
        item = self.page(response, links.texts or ())
        item["attrs"] = attrs
        yield item
        candidates = [url for url in links.urls if url != response.url]
        if candidates:
            active = CURRENT_LEASE.get()
            next_attrs = {**attrs, "step": step + 1 if isinstance(step, int) else 1}
            # Seeded by the request: a page that is fetched again after a crash leads to the same link, not to a second
            # walk.
            choice = random.Random(active.lease.request_id if active else None).choice(candidates)
            meta = {"attrs": next_attrs, "priority": response.meta.get("priority", 0)}
            yield Request(choice, meta=meta, dont_filter=True)
