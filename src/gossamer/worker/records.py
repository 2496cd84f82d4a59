"""From what was fetched, or why nothing was, to the record that leaves the system."""

import base64
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from gossamer.fetch.exchange import FetchResponse
from gossamer.model.record import ItemRecord, PageRecord, RecordLink, RedirectHop, WireExchange
from gossamer.model.request import Lease
from gossamer.policy.secrets import redacted_head
from gossamer.worker.attempt import Attempt

EXCEPTION_CHARACTERS = 2000
"""As much of an error's text as a record keeps."""


def page_record(
    attempt: Attempt,
    fetched: FetchResponse | None,
    *,
    now: float,
    success: bool,
    reason: str = "",
    exception: str = "",
    text: str | None = None,
    encoding: str = "",
    content_type: str = "",
    links: Iterable[tuple[str, str]] = (),
) -> PageRecord:
    """The record of a request that ended. `text` None: the body goes in as base64 of its bytes.

    `now` in epoch seconds. `fetched` None: no answer came, or none was asked for.
    """
    lease = attempt.lease
    if fetched is None:
        body, body_encoding = "", "text"
    elif text is None:
        body, body_encoding = base64.b64encode(fetched.body).decode(), "base64"
    else:
        body, body_encoding = text, "text"
    return PageRecord(
        appid=lease.run.crawl.id.appid,
        crawlid=lease.run.crawl.id.crawlid,
        spiderid=lease.spider,
        request_id=attempt.request_id,
        attempt=lease.attempt,
        depth=lease.depth,
        url=lease.url,
        response_url=attempt.url,
        status_code=fetched.status if fetched else 0,
        status_msg=fetched.reason if fetched else "",
        response_headers=_grouped(fetched.headers) if fetched else {},
        request_headers=attempt.shown_headers(),
        body=body,
        body_encoding=body_encoding,  # type: ignore[arg-type]
        encoding=encoding,
        content_type=content_type,
        links=[RecordLink(url, text) for url, text in links],
        attrs=attempt.attrs,
        timestamp=timestamp(now),
        success=success,
        reason=reason,
        exception=exception[:EXCEPTION_CHARACTERS],
        redirects=[RedirectHop(url, status) for url, status in attempt.chain],
        timings=_timings(fetched),
        ip=fetched.ip if fetched else "",
        truncated=fetched.truncated if fetched else False,
    )


def bare_record(lease: Lease, *, now: float, reason: str, exception: str) -> PageRecord:
    """The record of a request that could not even be begun: what is known without looking into it."""
    return PageRecord(
        appid=lease.run.crawl.id.appid,
        crawlid=lease.run.crawl.id.crawlid,
        spiderid=lease.spider,
        request_id=lease.request_id,
        attempt=lease.attempt,
        depth=lease.depth,
        url=lease.url,
        response_url=lease.url,
        status_code=0,
        status_msg="",
        response_headers={},
        request_headers={},
        body="",
        body_encoding="text",
        encoding="",
        content_type="",
        links=[],
        attrs=lease.terms.attrs,
        timestamp=timestamp(now),
        success=False,
        reason=reason,
        exception=exception[:EXCEPTION_CHARACTERS],
        redirects=[],
        timings={},
        ip="",
        truncated=False,
    )


def item_record(page: PageRecord, item: dict[str, Any]) -> ItemRecord:
    """An item of a page, under the page's identity."""
    return ItemRecord(
        appid=page.appid,
        crawlid=page.crawlid,
        spiderid=page.spiderid,
        request_id=page.request_id,
        attempt=page.attempt,
        url=page.response_url,
        attrs=page.attrs,
        timestamp=page.timestamp,
        item=item,
    )


def wire_of(fetched: FetchResponse, body: bytes, now: float, *, hidden: frozenset[str]) -> WireExchange:
    """The exchange as it went over the wire, without the values of the `hidden` request headers; `body` is the
    request's."""
    return WireExchange(
        request_head=redacted_head(fetched.request_head, hidden),
        request_body=body,
        response_head=fetched.response_head,
        response_body=fetched.wire_body or b"",
        ip=fetched.ip,
        url=fetched.url,
        timestamp=timestamp(now),
        truncated=fetched.truncated,
    )


def timestamp(now: float) -> str:
    """UTC in ISO 8601, to the microsecond."""
    second = int(now // 1)
    return f"{_second(second)}.{int((now - second) * 1_000_000):06d}+00:00"


@lru_cache(maxsize=4)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _grouped(headers: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, value in headers:
        if name in grouped:
            grouped[name].append(value)
        else:
            grouped[name] = [value]
    return grouped


def _timings(fetched: FetchResponse | None) -> dict[str, float]:
    if fetched is None:
        return {}
    timings = fetched.timings
    return {
        "dns": round(timings.dns, 6),
        "connect": round(timings.connect, 6),
        "tls": round(timings.tls, 6),
        "first_byte": round(timings.first_byte, 6),
        "total": round(timings.total, 6),
    }
