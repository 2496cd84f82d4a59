"""Answers and events as they are sent: Scrapy Cluster's fields, with Gossamer's added.

Each function that returns a message names its schema in `schemas/`. Names and types of fields, and the values of
`action`, must not change: clients of Scrapy Cluster read them. A field may be added, together with the schema. `now` is
epoch seconds."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from gossamer.model.crawl import CrawlEvent, CrawlId, CrawlState
from gossamer.model.info import AppInfo, DomainInfo

MAX_NAMED_DOMAINS = 10_000
"""Maximum number of domains listed in one answer; the others are only counted. It bounds the size of the answer; a
larger value may exceed the largest message of the bus."""


class CrawlBacklog(msgspec.Struct):
    """Waiting requests of one crawl, for one spider or for all, from which info answers are made."""

    crawl: CrawlId
    total: int = 0
    domains: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    """Waiting requests by domain and priority; at most MAX_NAMED_DOMAINS domains."""
    total_domains: int = 0
    """Number of domains with waiting requests, listed or not."""
    expires: int = 0
    """Epoch seconds; 0: never."""
    repairs: int = 0
    """As in CrawlInfo."""

    def add_domain(self, domain: DomainInfo, spider: str) -> None:
        """Count a domain if it has waiting requests of this spider; an empty spider means any."""
        by_priority = domain.by_spider.get(spider) if spider else domain.by_priority
        if not by_priority:
            return
        self.total_domains += 1
        if len(self.domains) < MAX_NAMED_DOMAINS:
            self.domains[domain.domain] = by_priority


def domain_share(by_priority: Mapping[int, int], blacklist_result: str = "") -> dict[str, Any]:
    """Return one domain's part of an info answer. `blacklist_result`: `held` or `dropped`; empty: not blacklisted."""
    share: dict[str, Any] = {
        "total": sum(by_priority.values()),
        "high_priority": max(by_priority, default=0),
        "low_priority": min(by_priority, default=0),
    }
    return share | ({"blacklisted": blacklist_result} if blacklist_result else {})


def crawl_info(
    backlog: CrawlBacklog,
    *,
    uuid: str,
    spider: str,
    now: float,
    blacklist_results: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the answer to an info request with a crawlid (schema `info`). `blacklist_results`: blacklisted domains,
    and whether their requests are `held` or `dropped`."""
    answer: dict[str, Any] = {
        "uuid": uuid,
        "server_time": int(now),
        "appid": backlog.crawl.appid,
        "crawlid": backlog.crawl.crawlid,
        "spiderid": spider,
        "total_pending": backlog.total,
        "total_domains": backlog.total_domains,
        "domains": {
            domain: domain_share(by_priority, blacklist_results.get(domain, ""))
            for domain, by_priority in backlog.domains.items()
        },
    }
    if backlog.expires:  # Scrapy Cluster sends this time as text here, and as a number in that about an application
        answer["expires"] = str(backlog.expires)
    if backlog.repairs:
        answer["repairs"] = backlog.repairs
    return answer


def app_info(
    appid: str,
    *,
    uuid: str,
    spider: str,
    totals: AppInfo,
    crawls: Iterable[CrawlBacklog],
    cursor: str,
    now: float,
) -> dict[str, Any]:
    """Return the answer to an info request without a crawlid (schema `info_app`). `crawls`: one page of the
    application's crawls. `cursor`: start of the next page; empty: there is none."""
    answer: dict[str, Any] = {
        "uuid": uuid,
        "server_time": int(now),
        "appid": appid,
        "spiderid": spider,
        "total_pending": totals.waiting,
        "total_crawlids": totals.crawls,
        "total_domains": totals.domains,
        "crawlids": {backlog.crawl.crawlid: _app_crawl(backlog) for backlog in crawls},
    }
    return answer | ({"cursor": cursor} if cursor else {})


def _app_crawl(backlog: CrawlBacklog) -> dict[str, Any]:
    """Return one crawl's part of the answer about an application."""
    found: dict[str, Any] = {
        "total": backlog.total,
        "distinct_domains": backlog.total_domains,
        "domains": {domain: domain_share(by_priority) for domain, by_priority in backlog.domains.items()},
    }
    return found | ({"expires": backlog.expires} if backlog.expires else {})


def info_1_0(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of `crawl_info` or `app_info` in the format of Scrapy Cluster 1.0: highest and lowest priority
    of the whole crawl instead of domains (schemas `info_1_0` and `info_app_1_0`)."""
    if "crawlids" not in answer:
        return _flattened(answer)
    crawls = {name: _flattened(crawl) for name, crawl in answer["crawlids"].items()}
    for crawl in crawls.values():
        del crawl["distinct_domains"]
        if "expires" in crawl:
            crawl["expires"] = str(crawl["expires"])  # text in both answers of version 1.0
    return answer | {"crawlids": crawls}


def page_1_0(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page or an item in the format of Scrapy Cluster 1.0: `headers` for `response_headers`, `attrs` never
    null (schema `page_1_0` for a page)."""
    renamed = {"headers" if name == "response_headers" else name: value for name, value in fields.items()}
    return renamed | {"attrs": fields["attrs"] or {}}


def without_zone(timestamp: str) -> str:
    """Return an ISO 8601 time in UTC without its zone, as Scrapy Cluster writes it. Other strings stay as they are."""
    return timestamp.removesuffix("+00:00").removesuffix("Z")


def _flattened(part: dict[str, Any]) -> dict[str, Any]:
    """Return one crawl's answer, or its part of an answer, without domains, with the priorities over all of them."""
    domains = part["domains"].values()
    kept = {name: value for name, value in part.items() if name not in ("domains", "total_domains")}
    return kept | {
        "high_priority": max((share["high_priority"] for share in domains), default=0),
        "low_priority": min((share["low_priority"] for share in domains), default=0),
    }


def stop_answer(crawl: CrawlId, *, uuid: str, spider: str, purged: int, now: float) -> dict[str, Any]:
    """Return the answer to a stop request (schema `stop`)."""
    return {
        "action": "stop",
        "spiderid": spider,
        "appid": crawl.appid,
        "crawlid": crawl.crawlid,
        "total_purged": purged,
        "uuid": uuid,
        "server_time": int(now),
    }


def domain_changed(
    *, uuid: str, appid: str, action: str, domain: str, now: float, error: str | None = None
) -> dict[str, Any]:
    """Return the answer to a domain request (schema `domain_answer`). `error`: why nothing was changed; None: the
    change was made."""
    answer = {"uuid": uuid, "server_time": int(now), "action": action, "domain": domain, "appid": appid}
    return answer | ({"error": error} if error else {})


def stats(body: Mapping[str, Any], *, kind: str, uuid: str, appid: str, now: float) -> dict[str, Any]:
    """Return the answer to a stats request of this kind (schema `stats_answer`)."""
    return {**body, "stats": kind, "appid": appid, "uuid": uuid, "server_time": int(now)}


def event(
    crawl_event: CrawlEvent, *, now: float, counts: Mapping[str, int] | None = None, login_failed: str = ""
) -> dict[str, Any]:
    """Return the message that a crawl, or one spider's part, has ended (schema `finished`, `expired` or `stopped`).

    The message is sent at least once; a consumer recognises a repetition by `event_id`.

    `spiderid` is always present, because Scrapy Cluster's consumers expect it; empty: the whole crawl. `now` is used
    for an event without a time of its own. `counts`: of the pages, for a run that has finished; None: not known.
    `login_failed`: sentences about failed accounts of its login."""
    message: dict[str, Any] = {
        "action": crawl_event.kind.value,
        "event_id": crawl_event.event_id,
        "appid": crawl_event.crawl.appid,
        "crawlid": crawl_event.crawl.crawlid,
        "spiderid": crawl_event.spider,
        "run": crawl_event.run,
        "server_time": int(crawl_event.at or now),
    }
    if crawl_event.kind is CrawlState.FINISHED and counts:
        message |= counts
    if login_failed:
        message["login_failed"] = login_failed
    if crawl_event.kind.value == "expired":
        message["total_expired"] = crawl_event.purged
    elif crawl_event.kind.value == "stopped":
        message["total_purged"] = crawl_event.purged
    return message


def expired_request(crawl: CrawlId, *, spider: str, url: str, event_id: str, now: float) -> dict[str, Any]:
    """Return the answer to a crawl request that expired while it waited on the bus: an event with run 0, because the
    request joined no run of its crawl (schema `expired`)."""
    return {
        "action": CrawlState.EXPIRED.value,
        "event_id": event_id,
        "appid": crawl.appid,
        "crawlid": crawl.crawlid,
        "spiderid": spider,
        "url": url,
        "run": 0,
        "total_expired": 1,
        "server_time": int(now),
    }


REJECTED = "rejected"
"""The `action` of the answer to an invalid request. Part of the message format: it must not change."""
_ECHOED_FIELDS = {"uuid": 100, "appid": 100, "crawlid": 100, "spiderid": 100, "url": 2000}
"""Fields that a rejection repeats, so that the sender can tell which request it answers, with the number of characters
to which each is cut. The numbers stand in the schema `rejected`, too, as `maxLength`: change both."""


def rejected(given: Mapping[str, Any], *, field: str, reason: str, now: float) -> dict[str, Any]:
    """Return the answer to a rejected request (schema `rejected`). It repeats the request's ids and URL, cut if they
    are long."""
    echoed = {}
    for name, max_characters in _ECHOED_FIELDS.items():
        value = given.get(name)
        if isinstance(value, str):
            echoed[name] = value[:max_characters]
    return {
        **echoed,
        "action": REJECTED,
        "field": field,
        "reason": reason,
        "server_time": int(now),
    }


def duplicate(crawl: CrawlId, *, spider: str, url: str, now: float) -> dict[str, Any]:
    """Return the answer to a crawl request that added nothing, because this run of the crawl has seen its URL (schema
    `duplicate`)."""
    return {
        "action": "duplicate",
        "field": "url",
        "reason": "this run of the crawl has seen this URL already; nothing was added",
        "appid": crawl.appid,
        "crawlid": crawl.crawlid,
        "spiderid": spider,
        "url": url,
        "server_time": int(now),
    }


def blacklisted_answer(
    crawl: CrawlId, *, spider: str, url: str, domain: str, result: str, now: float
) -> dict[str, Any]:
    """Return the answer to a crawl request that was added although its domain is blacklisted (schema `blacklisted`).
    `result`: `held` or `dropped`."""
    return {
        "action": "blacklisted",
        "domain": domain,
        "result": result,
        "appid": crawl.appid,
        "crawlid": crawl.crawlid,
        "spiderid": spider,
        "url": url,
        "server_time": int(now),
    }


def dead_letter(topic: str, value: str, encoding: str, *, field: str, reason: str, now: float) -> dict[str, Any]:
    """Return the dead letter for a rejected message (schema `dead_letter`). `value`: the message as it came;
    `encoding`: `text`, or `base64` if the message is not UTF-8."""
    return {
        "topic": topic,
        "message": value,
        "message_encoding": encoding,
        "field": field,
        "reason": reason,
        "timestamp": now,
    }
