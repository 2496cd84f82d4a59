"""Answers and events as they go out, field for field as Scrapy Cluster's, ours added."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gossamer.model.crawl import CrawlEvent, CrawlId, CrawlState
from gossamer.model.info import AppInfo

Shares = Mapping[int, int]
"""Requests that wait, by priority."""


def domain_share(shares: Shares, blacklisted: str = "") -> dict[str, Any]:
    """One domain's part of an info answer. `blacklisted`: `held` or `dropped`, where it is on the blacklist."""
    share: dict[str, Any] = {
        "total": sum(shares.values()),
        "high_priority": max(shares, default=0),
        "low_priority": min(shares, default=0),
    }
    return share | ({"blacklisted": blacklisted} if blacklisted else {})


def crawl_info(
    crawl: CrawlId,
    *,
    uuid: str,
    spider: str,
    total: int,
    domains: Mapping[str, Shares],
    total_domains: int,
    expires: int,
    now: float,
    blacklisted: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The answer to an info request with a crawlid. `expires`: epoch seconds, 0 for never. `blacklisted`: by domain,
    what becomes of its requests."""
    answer: dict[str, Any] = {
        "uuid": uuid,
        "server_time": int(now),
        "appid": crawl.appid,
        "crawlid": crawl.crawlid,
        "spiderid": spider,
        "total_pending": total,
        "total_domains": total_domains,
        "domains": {domain: domain_share(shares, blacklisted.get(domain, "")) for domain, shares in domains.items()},
    }
    return answer | ({"expires": str(expires)} if expires else {})


def app_info(
    appid: str,
    *,
    uuid: str,
    spider: str,
    whole: AppInfo,
    crawls: Mapping[str, dict[str, Any]],
    cursor: str,
    now: float,
) -> dict[str, Any]:
    """The answer to an info request without one; `crawls`: a page of them, made by `app_crawl`. `cursor`: of the next
    page, '' at the end."""
    answer: dict[str, Any] = {
        "uuid": uuid,
        "server_time": int(now),
        "appid": appid,
        "spiderid": spider,
        "total_pending": whole.waiting,
        "total_crawlids": whole.crawls,
        "total_domains": whole.domains,
        "crawlids": dict(crawls),
    }
    return answer | ({"cursor": cursor} if cursor else {})


def app_crawl(*, total: int, domains: Mapping[str, Shares], total_domains: int, expires: int) -> dict[str, Any]:
    """One crawl's part of an application's info."""
    found: dict[str, Any] = {
        "total": total,
        "distinct_domains": total_domains,
        "domains": {domain: domain_share(shares) for domain, shares in domains.items()},
    }
    return found | ({"expires": expires} if expires else {})


def info_1_0(answer: dict[str, Any]) -> dict[str, Any]:
    """An info answer as Scrapy Cluster 1.0 gave it: priorities at the top, no domains."""
    if "crawlids" not in answer:
        return _flattened(answer)
    crawls = {name: _flattened(crawl) for name, crawl in answer["crawlids"].items()}
    for crawl in crawls.values():
        crawl.pop("distinct_domains", None)
        if "expires" in crawl:
            crawl["expires"] = str(crawl["expires"])
    return answer | {"crawlids": crawls}


def page_1_0(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A page or an item as Scrapy Cluster 1.0 sent it: `headers` for `response_headers`, and `attrs` never null."""
    renamed = {"headers" if name == "response_headers" else name: value for name, value in fields.items()}
    return renamed | {"attrs": fields["attrs"] or {}}


def without_zone(timestamp: str) -> str:
    """A time in UTC as Scrapy Cluster writes it: ISO 8601 without a zone. Other texts are returned as they are."""
    return timestamp.removesuffix("+00:00").removesuffix("Z")


def _flattened(part: dict[str, Any]) -> dict[str, Any]:
    domains = part["domains"].values()
    kept = {name: value for name, value in part.items() if name not in ("domains", "total_domains")}
    return kept | {
        "high_priority": max((share["high_priority"] for share in domains), default=0),
        "low_priority": min((share["low_priority"] for share in domains), default=0),
    }


def stopped(crawl: CrawlId, *, uuid: str, spider: str, purged: int, now: float) -> dict[str, Any]:
    """The answer to a stop request."""
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
    """The answer to a domain request. `error`: why nothing was changed."""
    answer = {"uuid": uuid, "server_time": int(now), "action": action, "domain": domain, "appid": appid}
    return answer | ({"error": error} if error else {})


def stats(body: Mapping[str, Any], *, kind: str, uuid: str, appid: str, now: float) -> dict[str, Any]:
    """The answer to a stats request; `body` as the kind has it."""
    return {**body, "stats": kind, "appid": appid, "uuid": uuid, "server_time": int(now)}


def event(told: CrawlEvent, *, now: float) -> dict[str, Any]:
    """A crawl, or one spider's part of it, is over. Told at least once; drop a repeat by `event_id`.

    `spiderid` is always there, as the original's consumers expect; empty: all of the crawl."""
    message: dict[str, Any] = {
        "action": told.kind.value,
        "event_id": told.event_id,
        "appid": told.crawl.appid,
        "crawlid": told.crawl.crawlid,
        "spiderid": told.spider,
        "run": told.run,
        "server_time": int(told.at or now),
    }
    if told.kind.value == "expired":
        message["total_expired"] = told.purged
    elif told.kind.value == "stopped":
        message["total_purged"] = told.purged
    return message


def expired_request(crawl: CrawlId, *, spider: str, url: str, event_id: str, now: float) -> dict[str, Any]:
    """The answer to a crawl request that expired while it waited on the bus: an `expired` event of no run."""
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
"""The action of a refusal."""
_ECHOED = {"uuid": 100, "appid": 100, "crawlid": 100, "spiderid": 100, "url": 2000}
"""What a refusal says of the request, so that its sender knows which was meant; characters at most."""


def rejected(given: Mapping[str, Any], *, field: str, reason: str, now: float) -> dict[str, Any]:
    """Why a request was not taken; with its own ids and URL, as far as they are texts, cut where they are long."""
    known = {name: value[:most] for name, most in _ECHOED.items() if isinstance(value := given.get(name), str)}
    return {
        **known,
        "action": REJECTED,
        "field": field,
        "reason": reason,
        "server_time": int(now),
    }


def duplicate(crawl: CrawlId, *, spider: str, url: str, now: float) -> dict[str, Any]:
    """The answer to a crawl request whose URL this run of the crawl has seen already: it added nothing."""
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


def blacklisted(crawl: CrawlId, *, spider: str, url: str, domain: str, result: str, now: float) -> dict[str, Any]:
    """The answer to a crawl request that was added though its domain is on the blacklist. `result`: held or dropped."""
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
    """What is kept of a refused message: where it came from, as it came (`base64` where it is no UTF-8), and why."""
    return {
        "topic": topic,
        "message": value,
        "message_encoding": encoding,
        "field": field,
        "reason": reason,
        "timestamp": now,
    }
