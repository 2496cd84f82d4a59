"""The shared throttle for what bypasses the scheduler, and what sites say about their own pace."""

import asyncio
import random
import time
from collections.abc import Callable

from scrapy import Request
from scrapy.http import Response
from scrapy.settings import BaseSettings

from gossamer.commit.retrier import Retrier
from gossamer.errors import BadUrl
from gossamer.fetch.robots_rules import RobotsRules
from gossamer.frontier.base import Frontier, Leaseholder
from gossamer.model.crawl import Run
from gossamer.policy.retry import parse_retry_after
from gossamer.policy.urls import canonical, host, registered_domain

_PAUSED_SECONDS = 5.0
"""How often a request to a paused domain asks whether it is still paused."""
_LONGEST_SECONDS = 5.0
"""Asked again at the latest after this: the policy may have changed."""
_ROBOTS = "/robots.txt"
_BUSY = (429, 503)


class SharedThrottle:
    """A downloader middleware, next to the downloader. Requests that were leased have their hit; all others (images of
    a pipeline, `engine.download`, what could not be stored) wait here for one, and so does what was leased and held up
    until its hit was not meant for it any more: by a slow robots.txt, above all, for which many wait. robots.txt is
    outside the budget."""

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        retrier: Retrier,
        run: Run,
        spider: str,
        settings: BaseSettings,
        *,
        send_by: Callable[[Request], float | None],
    ) -> None:
        """`send_by`: until when a leased request may be sent on its hit (monotonic); None: it is none."""
        self._frontier = frontier
        self._holder = holder
        self._retrier = retrier
        self._run = run
        self._spider = spider
        self._send_by = send_by
        self._agent = str(settings["ROBOTSTXT_USER_AGENT"] or settings["USER_AGENT"])
        self._delays: dict[str, float] = {}

    async def process_request(self, request: Request) -> None:
        """Return when the request may go."""
        latest = self._send_by(request)
        if latest is not None and time.monotonic() <= latest:
            return
        place = _place(request)
        if place is None or place[1] == _ROBOTS:
            return
        domain = place[0]
        while True:
            wait = await self._retrier.call_frontier(
                lambda: self._holder.charge_hit(self._run, spider=self._spider, domain=domain),
                shard=self._frontier.shard_of(domain),
            )
            if wait == 0.0:
                return
            if wait is None and latest is not None:
                return  # paused since: it has its hit, and a spider that closes would wait for it
            seconds = _PAUSED_SECONDS if wait is None else min(wait, _LONGEST_SECONDS)
            await asyncio.sleep(seconds * (1.0 + 0.1 * random.random()))

    async def process_response(self, request: Request, response: Response) -> Response:
        """Tell the whole cluster what the site asks for: `Retry-After`, and the `Crawl-delay` of its robots.txt."""
        place = _place(request)
        if place is None:
            return response
        domain, path = place
        if response.status in _BUSY and (said := response.headers.get(b"Retry-After")):
            seconds = parse_retry_after(said.decode("latin-1"), now=time.time())
            if seconds:
                await self._retrier.call_frontier(
                    lambda: self._frontier.block_domain(domain, seconds=seconds), shard=self._frontier.shard_of(domain)
                )
        elif path == _ROBOTS and response.status == 200:
            delay = RobotsRules(response.body).verdict("/", self._agent, explain=False).crawl_delay or 0.0
            if self._delays.get(domain, 0.0) != delay:
                self._delays[domain] = delay
                await self._retrier.call_frontier(
                    lambda: self._frontier.set_crawl_delay(domain, seconds=delay), shard=self._frontier.shard_of(domain)
                )
        return response


def _place(request: Request) -> tuple[str, str] | None:
    """(registered domain, path); None for what is not on the web (`data:`, `file:`, `s3:`)."""
    try:
        url = canonical(request.url)
    except BadUrl:
        return None
    return registered_domain(host(url)), url[url.index("/", 8) :].partition("?")[0]
