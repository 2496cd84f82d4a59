"""Dispatch of requests from the bus (the message broker), the REST API and the commands: crawl requests are submitted
to the frontier (the store of requests that wait), others are answered.

To add a built-in kind of request, write a class with `handle` here and name it in `built_in_handlers`; its schema and
its rank (a message is compared with the schemas of all kinds in this order) belong into `model.messages.reader`. A
handler must be safe to call again with the same request. Fixed: the names of kinds and plug-ins (senders and statistics
use them), and the signature of `Handler`, which plug-ins implement. Fields of answers belong to
`model.messages.answers`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from gossamer.control import domains, stats
from gossamer.control.admission import (
    AdmittedRequest,
    RequestValidator,
    SubmitResult,
    submit,
    unknown_spiders,
    with_logins,
    without_browsers,
)
from gossamer.control.domains import DEFAULT_POLICY, Blacklist
from gossamer.control.stats import Counters
from gossamer.control.stops import KeptCrawls, stop_crawl
from gossamer.errors import BadInput, RequestRejected
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, CrawlState, DomainPolicy, WhenBlacklisted
from gossamer.model.info import AppInfo, CrawlInfo
from gossamer.model.messages import answers
from gossamer.model.messages.answers import MAX_NAMED_DOMAINS, CrawlBacklog
from gossamer.model.messages.reader import MessageReader
from gossamer.model.messages.requests import ActionRequest, DomainRequest, StatsRequest

CRAWL = "crawl"
"""The only kind of request without an answer: it is submitted to the frontier. Fixed, as all names of kinds."""
_PAGE_SIZE = 1000
"""Crawls or domains that are read from the frontier in one call, and crawls in one answer about an application. Larger
pages mean fewer calls, each of which takes the server longer."""
_MIN_NAMED_DOMAINS = 10
"""Domains that an answer about an application lists for each crawl at least, however many crawls there are. Above
MAX_NAMED_DOMAINS / _PAGE_SIZE, a higher number makes the largest answers larger."""


class Handler(Protocol):
    """Answers requests of one kind. Plug-ins implement this, too."""

    async def handle(self, request: Any, *, format_1_0: bool) -> list[dict[str, Any]]:
        """Return the messages to send, each with an `appid`. `format_1_0`: in the format of Scrapy Cluster 1.0.

        Raises RequestRejected. Errors of the frontier, the bus, sinks and the history are outages, after which the
        call is repeated with the same request."""
        ...


class RequestDispatcher:
    """Reads, submits and answers requests. Has no state of its own, so it may be shared."""

    def __init__(
        self,
        frontier: ValkeyFrontier,
        reader: MessageReader,
        validator: RequestValidator,
        handlers: Mapping[str, Handler],
        *,
        now: Callable[[], float],
        format_1_0: bool = False,
        keep_up_to_date: Callable[[Sequence[AdmittedRequest]], Awaitable[Mapping[CrawlId, RequestRejected]]]
        | None = None,
    ) -> None:
        """`handlers`: by kind of request, every kind of the reader but CRAWL. `now`: returns epoch seconds.
        `format_1_0`: answers have the format of Scrapy Cluster 1.0 unless the caller of `handle` chooses.
        `keep_up_to_date`: gets requests with `recrawl` before they are submitted, and returns the crawls that cannot be
        kept up to date, with the reason. May raise SinkError."""
        self._frontier = frontier
        self._reader = reader
        self._validator = validator
        self._handlers = handlers
        self.now = now
        self._format_1_0 = format_1_0
        self._keep_up_to_date = keep_up_to_date
        self._blacklist = Blacklist(frontier)

    def read(self, value: bytes | dict[str, Any], *, sent_at: float | None = None) -> tuple[str, Any]:
        """Return the kind and the request; a crawl request as AdmittedRequest. Raises RequestRejected.

        `sent_at`: epoch seconds when a request that had to wait was sent. If it has expired since, it is
        still read."""
        kind, request = self._reader.read(value)
        return kind, self._validator.admit(request, sent_at=sent_at) if kind == CRAWL else request

    def readable_fields(self, value: bytes | dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a rejected message, for the answer to it; empty if it is not a JSON object."""
        try:
            return self._reader.decode_object(value) if isinstance(value, bytes) else value
        except RequestRejected:
            return {}

    async def check(self, requests: Sequence[AdmittedRequest]) -> list[RequestRejected | None]:
        """Return why each request would be rejected in the cluster's current state, in order; None: it would not be."""
        spiders = await unknown_spiders(self._frontier, requests)
        browsers = await without_browsers(self._frontier, requests)
        logins = await with_logins(self._frontier, requests)
        return [next(filter(None, faults), None) for faults in zip(spiders, browsers, logins, strict=True)]

    async def submit(self, requests: Sequence[AdmittedRequest]) -> list[SubmitResult]:
        """Submit crawl requests to the frontier. Return the result of each, in order: rejected ones have a
        reason. Raises errors of the frontier; the call may then be repeated with the same objects."""
        faults = await self.check(requests)
        if self._keep_up_to_date is not None:
            kept = {at: one for at, one in enumerate(requests) if faults[at] is None and one.terms.recrawl is not None}
            refused = await self._keep_up_to_date([*kept.values()]) if kept else {}
            faults = [refused.get(kept[at].crawl.id) if at in kept else fault for at, fault in enumerate(faults)]
        valid = [request for request, fault in zip(requests, faults, strict=True) if fault is None]
        submitted = iter(await submit(self._frontier, valid) if valid else [])
        blacklisted = await self._blacklist.among({request.domain for request in valid}) if valid else {}
        results = []
        for request, fault in zip(requests, faults, strict=True):
            if fault is not None:
                results.append(SubmitResult(added=False, reason=fault.reason, field=fault.field))
            else:
                results.append(_with_blacklist(next(submitted), blacklisted.get(request.domain)))
        return results

    async def blacklisted(self, requests: Sequence[AdmittedRequest]) -> list[WhenBlacklisted | None]:
        """Return whether each request would be held or dropped because its domain is blacklisted, in order; None: its
        domain is not."""
        found = await self._blacklist.among({request.domain for request in requests})
        return [found.get(request.domain) for request in requests]

    async def ended(self, requests: Sequence[AdmittedRequest]) -> dict[CrawlId, CrawlState]:
        """Return the crawls of these requests that reject them because they were stopped or have expired.

        Left out are crawls whose requests here are all fresh (begin with an empty set of seen URLs) or for another
        spider: these may still be accepted."""
        spiders: dict[CrawlId, set[str]] = {}
        for request in requests:
            if not request.fresh:
                spiders.setdefault(request.crawl.id, set()).add(request.spider)
        found = await asyncio.gather(*(self._frontier.crawl_info(crawl) for crawl in spiders))
        return {
            info.crawl: info.state
            for info in found
            if info is not None
            and info.state in (CrawlState.STOPPED, CrawlState.EXPIRED)
            and spiders[info.crawl] & info.spiders.keys()
        }

    async def handle(self, kind: str, request: Any, *, format_1_0: bool | None = None) -> list[dict[str, Any]]:
        """Return the answers to a request of any kind but `crawl`. `format_1_0`: in the format of Scrapy Cluster 1.0
        (True) or 1.2 (False); None: in the cluster's."""
        return await self._handlers[kind].handle(
            request, format_1_0=self._format_1_0 if format_1_0 is None else format_1_0
        )


def _with_blacklist(result: SubmitResult, when_blacklisted: WhenBlacklisted | None) -> SubmitResult:
    """Return the result of a request, with what the blacklist does to its domain (None: nothing) if it was added."""
    return replace(result, blacklisted=when_blacklisted) if result.added and when_blacklisted else result


class CheckedHandler:
    """Implements Handler with a plug-in's handler, and checks its answers."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def handle(self, request: Any, *, format_1_0: bool) -> list[dict[str, Any]]:
        """Return the plug-in's answers. Raises TypeError if they cannot be published, and any error of the plug-in."""
        found: Any = await self._handler.handle(request, format_1_0=format_1_0)
        if not isinstance(found, list) or not all(
            isinstance(answer, dict) and isinstance(answer.get("appid"), str) for answer in found
        ):
            raise TypeError("a handler must return a list of dictionaries, each with an appid")
        msgspec.json.encode(found)
        return found


# --- the built-in handlers --------------------------------------------------------------------------------------------

_PLUGINS = {"info": "InfoMonitor", "stop": "StopMonitor", "stats": "StatsMonitor", "domain": "ZookeeperMonitor"}
"""Scrapy Cluster's plug-in under whose name an answer is counted, by action or kind of request. Clients read the names
in the statistics: fixed."""


def built_in_handlers(
    frontier: ValkeyFrontier,
    counters: Counters,
    *,
    now: Callable[[], float],
    allow_default_policy: bool = False,
    kept: KeptCrawls | None = None,
) -> Mapping[str, Any]:
    """Return the handlers of the built-in kinds, by kind. `allow_default_policy`: a domain request may change the
    default policy. `kept`: None: the service keeps no crawl up to date."""
    return {
        "action": ActionHandler(frontier, counters, now=now, kept=kept),
        "stats": StatsHandler(frontier, counters, now=now),
        "domain": DomainHandler(frontier, counters, now=now, allow_default_policy=allow_default_policy),
    }


class ActionHandler:
    """Answers `info` and `stop`. Implements Handler."""

    def __init__(
        self, frontier: ValkeyFrontier, counters: Counters, *, now: Callable[[], float], kept: KeptCrawls | None
    ) -> None:
        self._frontier = frontier
        self._counters = counters
        self._now = now
        self._kept = kept
        self._blacklist = Blacklist(frontier)

    async def handle(self, request: ActionRequest, *, format_1_0: bool) -> list[dict[str, Any]]:
        if request.action == "stop":
            answer = await self._stop(request)
        elif request.crawlid is not None:
            answer = await self._crawl_info(request, request.crawlid)
        else:
            answer = await self._app_info(request)
        await self._counters.add(stats.ACTIONS, {"total": 1, f"plugins:{_PLUGINS[request.action]}": 1})
        return [answers.info_1_0(answer) if format_1_0 and request.action == "info" else answer]

    async def _stop(self, request: ActionRequest) -> dict[str, Any]:
        """Stop a crawl, or one spider's part of it, and return the answer with the number of purged requests."""
        crawl = CrawlId(request.appid, request.crawlid or "")
        found = await stop_crawl(self._frontier, self._kept, crawl, spider=request.spiderid)
        return answers.stop_answer(
            crawl, uuid=request.uuid, spider=request.spiderid, purged=found.purged, now=self._now()
        )

    async def _crawl_info(self, request: ActionRequest, crawlid: str) -> dict[str, Any]:
        """Return the answer about one crawl; about an unknown one, that nothing waits."""
        crawl = CrawlId(request.appid, crawlid)
        backlog = await crawl_backlog(self._frontier, crawl, spider=request.spiderid) or CrawlBacklog(crawl)
        return answers.crawl_info(
            backlog,
            uuid=request.uuid,
            spider=request.spiderid,
            blacklist_results=await self._blacklist.among(backlog.domains),
            now=self._now(),
        )

    async def _app_info(self, request: ActionRequest) -> dict[str, Any]:
        """Return the answer about all crawls of an application, or a page of them."""
        try:
            totals, crawls, cursor = await _app_backlog(
                self._frontier, request.appid, spider=request.spiderid, cursor=request.cursor
            )
        except BadInput as error:
            raise RequestRejected(error.detail, field="cursor") from None
        return answers.app_info(
            request.appid,
            totals=totals,
            crawls=crawls,
            cursor=cursor,
            uuid=request.uuid,
            spider=request.spiderid,
            now=self._now(),
        )


async def crawl_backlog(frontier: ValkeyFrontier, crawl: CrawlId, *, spider: str) -> CrawlBacklog | None:
    """Return a crawl's waiting requests for one spider; an empty spider means all. None: no such crawl.

    Reads counters only, so the cost grows with the number of domains, not of requests."""
    info = await frontier.crawl_info(crawl)
    if info is None:
        return None
    backlog = CrawlBacklog(
        crawl, total=_waiting(info, spider), expires=int(info.expires_at(spider)), repairs=info.repairs
    )
    cursor = ""
    while True:
        page, cursor = await frontier.crawl_domains(crawl, cursor=cursor, limit=_PAGE_SIZE)
        for domain in page:
            backlog.add_domain(domain, spider)
        if not cursor:
            return backlog


async def _app_backlog(
    frontier: ValkeyFrontier, appid: str, *, spider: str, cursor: str
) -> tuple[AppInfo, list[CrawlBacklog], str]:
    """Return an application's totals, one page of its crawls with waiting requests, and the cursor of the next page
    (empty: there is none). Raises BadInput for an invalid cursor. `expires` of a crawl is in epoch seconds."""
    totals = await frontier.app_info(appid, spider=spider)
    page, next_cursor = await frontier.list_crawls(
        appid=appid, state=CrawlState.RUNNING, cursor=cursor, limit=_PAGE_SIZE
    )
    infos = [info for info in page if _waiting(info, spider)]
    limit = max(_MIN_NAMED_DOMAINS, MAX_NAMED_DOMAINS // max(1, len(infos)))
    domains_of_each = await frontier.first_domains([info.crawl for info in infos], limit=limit)
    backlogs = []
    for info, found in zip(infos, domains_of_each, strict=True):
        backlog = CrawlBacklog(info.crawl, total=_waiting(info, spider), expires=int(info.expires_at(spider)))
        for domain in found:
            backlog.add_domain(domain, spider)
        if len(found) == limit:  # there may be more domains than were read
            backlog.total_domains = max(backlog.total_domains, info.domains)
        backlogs.append(backlog)
    return totals, backlogs, next_cursor


def _waiting(info: CrawlInfo, spider: str) -> int:
    """Return how many requests of this spider are queued or wait for a retry; an empty spider means all."""
    counts = info.spiders.get(spider) if spider else info.total()
    return counts.waiting if counts else 0


class StatsHandler:
    """Answers `stats`. Implements Handler."""

    def __init__(self, frontier: ValkeyFrontier, counters: Counters, *, now: Callable[[], float]) -> None:
        self._frontier = frontier
        self._counters = counters
        self._now = now

    async def handle(self, request: StatsRequest, *, format_1_0: bool) -> list[dict[str, Any]]:
        del format_1_0  # both formats are the same
        await self._counters.add(stats.ACTIONS, {"total": 1, f"plugins:{_PLUGINS['stats']}": 1})
        body = await stats.body(self._frontier, self._counters, request.stats)
        return [answers.stats(body, kind=request.stats, uuid=request.uuid, appid=request.appid, now=self._now())]


class DomainHandler:
    """Answers `domain-update`, `domain-remove`, `blacklist-update` and `blacklist-remove`. Implements Handler.

    Scrapy Cluster kept these settings in ZooKeeper. Requests change only the fields of a policy that they can name:
    others, which the operator has set by REST, a command or a file, stay."""

    def __init__(
        self, frontier: ValkeyFrontier, counters: Counters, *, now: Callable[[], float], allow_default_policy: bool
    ) -> None:
        """`allow_default_policy`: the domain `*` stands for the default policy; else it is rejected."""
        self._frontier = frontier
        self._counters = counters
        self._now = now
        self._allow_default_policy = allow_default_policy

    async def handle(self, request: DomainRequest, *, format_1_0: bool) -> list[dict[str, Any]]:
        del format_1_0  # both formats are the same
        reason = None
        try:
            await self._change(request)
        except BadInput as error:
            reason = error.detail
        await self._counters.add(stats.ACTIONS, {"total": 1, f"plugins:{_PLUGINS['domain']}": 1})
        return [
            answers.domain_changed(
                uuid=request.uuid,
                appid=request.appid,
                action=request.action,
                domain=request.domain,
                error=reason,
                now=self._now(),
            )
        ]

    async def _change(self, request: DomainRequest) -> None:
        """Change the domain's policy, or its place on the blacklist, as the request asks. Raises BadInput."""
        match request.action:
            case "domain-update":
                await domains.change_policy(self._frontier, self._target(request.domain), _changes(request))
            case "domain-remove":
                await domains.remove_rate_limit(self._frontier, self._target(request.domain))
            case "blacklist-update" | "blacklist-remove":
                blacklisted = request.action == "blacklist-update"
                await domains.set_blacklisted(self._frontier, request.domain, blacklisted=blacklisted)

    def _target(self, domain: str) -> str | None:
        """Return the domain; None for the default policy. Raises BadInput if the operator does not allow its change."""
        if domain != DEFAULT_POLICY:
            return domain
        if not self._allow_default_policy:
            raise BadInput("* is the default policy of all domains; the operator does not allow requests to change it")
        return None


def _changes(request: DomainRequest) -> DomainPolicy:
    """Return the fields that a `domain-update` sets. Both `hits` and `window` are a whole limit, as in Scrapy Cluster:
    without a scale, it is 1."""
    scale = request.scale
    if scale is None and request.hits and request.window:
        scale = 1.0
    return DomainPolicy(
        hits=request.hits or None, window_seconds=float(request.window) if request.window else None, scale=scale
    )
