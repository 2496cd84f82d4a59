"""The answers to actions, statistics and domain requests."""

from collections.abc import Callable, Mapping
from typing import Any

from gossamer.control import domains, stats
from gossamer.control.domains import EVERY_DOMAIN
from gossamer.control.stats import Counters
from gossamer.errors import BadInput, RequestRejected
from gossamer.frontier.base import Frontier
from gossamer.model.crawl import CrawlId, CrawlState, DomainPolicy
from gossamer.model.info import AppInfo, CrawlInfo
from gossamer.model.messages import answers
from gossamer.model.messages.answers import MAX_NAMED_DOMAINS, CrawlBacklog
from gossamer.model.messages.requests import ActionRequest, DomainRequest, StatsRequest

_PAGE = 1000
_FEWEST_DOMAINS = 10
"""Of each crawl in an answer about an application, where it has so many."""


async def pending(frontier: Frontier, crawl: CrawlId, *, spider: str) -> CrawlBacklog | None:
    """What waits of a crawl for one spider, by domain; `spider` empty: for all. None: no such crawl. Counters only: its
    cost grows with the domains, not with the requests."""
    info = await frontier.crawl_info(crawl)
    if info is None:
        return None
    found = CrawlBacklog(crawl, total=waiting(info, spider), expires=int(info.expires_at(spider)))
    cursor = ""
    while True:
        domains, cursor = await frontier.crawl_domains(crawl, cursor=cursor, limit=_PAGE)
        for domain in domains:
            found.add_domain(domain, spider)
        if not cursor:
            return found


async def pending_of_app(
    frontier: Frontier, appid: str, *, spider: str, cursor: str = ""
) -> tuple[AppInfo, list[CrawlBacklog], str]:
    """What waits of an application in all, a page of its crawls that have something waiting, and the next page's cursor
    ('' at the end). Raises BadInput for a cursor that is none."""
    whole = await frontier.app_info(appid, spider=spider)
    page, following = await frontier.list_crawls(appid=appid, state=CrawlState.RUNNING, cursor=cursor, limit=_PAGE)
    infos = [info for info in page if waiting(info, spider)]
    most = max(_FEWEST_DOMAINS, MAX_NAMED_DOMAINS // max(1, len(infos)))
    domains = await frontier.first_domains([info.crawl for info in infos], limit=most)
    found = []
    for info, shares in zip(infos, domains, strict=True):
        one = CrawlBacklog(info.crawl, total=waiting(info, spider), expires=int(info.expires_at(spider)))
        for domain in shares:
            one.add_domain(domain, spider)
        if len(shares) == most:  # more of them than are named
            one.total_domains = max(one.total_domains, info.domains)
        found.append(one)
    return whole, found, following


def waiting(info: CrawlInfo, spider: str) -> int:
    """Requests of this spider that are queued or due later; empty: of all."""
    part = info.spiders.get(spider) if spider else info.total()
    return part.queued + part.later if part else 0


_COUNTED = {"info": "InfoMonitor", "stop": "StopMonitor", "stats": "StatsMonitor", "domain": "ZookeeperMonitor"}
"""Under which of the original's plug-ins an answer is counted."""


class ActionHandler:
    """`info` and `stop`."""

    def __init__(self, frontier: Frontier, counters: Counters, *, now: Callable[[], float]) -> None:
        self._frontier = frontier
        self._counters = counters
        self._now = now
        self._blacklist = domains.Blacklist(frontier)

    async def handle(self, request: ActionRequest, *, old: bool) -> list[dict[str, Any]]:
        if request.action == "stop":
            answer = await self._stop(request)
        elif request.crawlid is not None:
            answer = await self._crawl_info(request, request.crawlid)
        else:
            answer = await self._app_info(request)
        await self._counters.add(stats.ACTIONS, {"total": 1, f"plugins:{_COUNTED[request.action]}": 1})
        return [answers.info_1_0(answer) if old and request.action == "info" else answer]

    async def _stop(self, request: ActionRequest) -> dict[str, Any]:
        crawl = CrawlId(request.appid, request.crawlid or "")
        purged = await self._frontier.stop_crawl(crawl, spider=request.spiderid)
        return answers.stopped(crawl, uuid=request.uuid, spider=request.spiderid, purged=purged, now=self._now())

    async def _crawl_info(self, request: ActionRequest, crawlid: str) -> dict[str, Any]:
        crawl = CrawlId(request.appid, crawlid)
        found = await pending(self._frontier, crawl, spider=request.spiderid) or CrawlBacklog(crawl)
        return answers.crawl_info(
            found,
            uuid=request.uuid,
            spider=request.spiderid,
            blacklisted=await self._blacklist.of(found.domains),
            now=self._now(),
        )

    async def _app_info(self, request: ActionRequest) -> dict[str, Any]:
        try:
            whole, found, cursor = await pending_of_app(
                self._frontier, request.appid, spider=request.spiderid, cursor=request.cursor
            )
        except BadInput as refusal:
            raise RequestRejected(refusal.detail, field="cursor") from None
        return answers.app_info(
            request.appid,
            totals=whole,
            cursor=cursor,
            uuid=request.uuid,
            spider=request.spiderid,
            crawls=found,
            now=self._now(),
        )


class StatsHandler:
    """`stats`."""

    def __init__(self, frontier: Frontier, counters: Counters, *, now: Callable[[], float]) -> None:
        self._frontier = frontier
        self._counters = counters
        self._now = now

    async def handle(self, request: StatsRequest, *, old: bool) -> list[dict[str, Any]]:
        del old  # the same in both
        await self._counters.add(stats.ACTIONS, {"total": 1, f"plugins:{_COUNTED['stats']}": 1})
        body = await stats.body(self._frontier, self._counters, request.stats)
        return [answers.stats(body, kind=request.stats, uuid=request.uuid, appid=request.appid, now=self._now())]


class DomainHandler:
    """`domain-update` and its three siblings, which the original kept in ZooKeeper."""

    def __init__(
        self, frontier: Frontier, counters: Counters, *, now: Callable[[], float], default_policy: bool
    ) -> None:
        """`default_policy`: whether the domain `*` stands for the default policy; else it is refused."""
        self._frontier = frontier
        self._counters = counters
        self._now = now
        self._default_policy = default_policy

    async def handle(self, request: DomainRequest, *, old: bool) -> list[dict[str, Any]]:
        del old
        error = None
        try:
            await self._change(request)
        except BadInput as refusal:
            error = refusal.detail
        await self._counters.add(stats.ACTIONS, {"total": 1, f"plugins:{_COUNTED['domain']}": 1})
        return [
            answers.domain_changed(
                uuid=request.uuid,
                appid=request.appid,
                action=request.action,
                domain=request.domain,
                error=error,
                now=self._now(),
            )
        ]

    async def _change(self, request: DomainRequest) -> None:
        match request.action:
            case "domain-update":
                policy = DomainPolicy(hits=request.hits, window_seconds=float(request.window), scale=request.scale)
                await domains.put(self._frontier, self._named(request.domain), policy)
            case "domain-remove":
                await domains.remove(self._frontier, self._named(request.domain))
            case "blacklist-update" | "blacklist-remove":
                on = request.action == "blacklist-update"
                await domains.blacklist(self._frontier, request.domain, blacklisted=on)

    def _named(self, domain: str) -> str | None:
        """The domain whose policy is meant; None: the default policy. Raises BadInput where that is not allowed."""
        if domain != EVERY_DOMAIN:
            return domain
        if not self._default_policy:
            raise BadInput("* is the policy of every domain, and the operator allows no change of it by a request")
        return None


def built_in(
    frontier: Frontier, counters: Counters, *, now: Callable[[], float], default_policy: bool = False
) -> Mapping[str, Any]:
    """The handlers of the built-in kinds, by kind. `default_policy`: whether a domain request may change that."""
    return {
        "action": ActionHandler(frontier, counters, now=now),
        "stats": StatsHandler(frontier, counters, now=now),
        "domain": DomainHandler(frontier, counters, now=now, default_policy=default_policy),
    }
