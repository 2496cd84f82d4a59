"""Records of pages and items, made from a response or from the reason why there is none.

Fixed: names, types and units of the fields, which `model/record.py` defines and readers of outputs and messages use.
"""

import base64
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from gossamer.fetch.exchange import FetchResponse, Timings
from gossamer.model.record import ItemRecord, PageRecord, RecordLink, RedirectHop, WireExchange
from gossamer.model.request import Lease
from gossamer.policy.secrets import redacted_head
from gossamer.worker.attempt import Attempt

EXCEPTION_CHARACTERS = 2000
"""Characters of an error's text that a record keeps. More only make failed records larger."""
LARGE_BYTES = 64 * 1024
"""Size from which a page counts in the budget of bytes; smaller pages are bounded well enough by their number. Also the
part of a redirect's body that is kept. A larger value leaves more memory uncounted."""


class PageText(NamedTuple):
    """A body as text."""

    text: str | None
    """None: the body is binary."""
    encoding: str
    """Python codec of the text; empty where there is none."""
    content_type: str
    """Value of the Content-Type header; empty where there is none."""
    is_apart: bool = False
    """True: the text was not made, because no output wants it in the record. It is the body, in UTF-8."""


NO_TEXT = PageText(None, "", "")
"""Text of a request without a response."""
_NO_RESPONSE = FetchResponse("", 0, "", "", [], b"", b"", b"", None, False, "", 0, False, Timings(), 0)
"""Values of a record without a response."""


def page_record(
    attempt: Attempt,
    fetched: FetchResponse | None,
    decoded: PageText,
    *,
    now: float,
    failure: str = "",
    exception: str = "",
    links: Collection[tuple[str, str]] = (),
) -> PageRecord:
    """Return the record of a request that ended.

    `fetched` None: there was no response, or no request. `decoded`: a binary body goes into the record as base64.
    `now`: Unix time. `failure`: reason why the request failed or was dropped; empty: it succeeded.
    """
    lease, crawl, answer = attempt.lease, attempt.lease.run.crawl.id, fetched or _NO_RESPONSE
    if fetched is None or decoded.is_apart:
        body, body_encoding = "", "text"
    elif decoded.text is None:
        body, body_encoding = base64.b64encode(fetched.body).decode(), "base64"
    else:
        body, body_encoding = decoded.text, "text"
    return PageRecord(
        appid=crawl.appid,
        crawlid=crawl.crawlid,
        spiderid=lease.spider,
        request_id=attempt.request_id,
        attempt=lease.attempt,
        depth=lease.depth,
        url=lease.url,
        response_url=attempt.url,
        status_code=answer.status,
        status_msg=answer.reason,
        response_headers=answer.headers_by_name or _grouped(answer.headers),
        request_headers=attempt.context.shown_headers(attempt.headers()),
        body=body,
        body_encoding=body_encoding,  # type: ignore[arg-type]
        encoding=decoded.encoding,
        content_type=decoded.content_type,
        links=[RecordLink(url, text) for url, text in links] if links else [],
        attrs=attempt.attrs,
        timestamp=timestamp(now),
        success=not failure,
        reason=failure,
        exception=exception[:EXCEPTION_CHARACTERS] if exception else "",
        redirects=[RedirectHop(url, status) for url, status in attempt.chain] if attempt.chain else [],
        timings=_timings(fetched.timings) if fetched else {},
        ip=answer.ip,
        truncated=answer.truncated,
        rendering=answer.rendering,
        render_choice=answer.render_choice,
    )


def bare_record(lease: Lease, *, now: float, reason: str, exception: str) -> PageRecord:
    """Return the record of a request that could not be started, from its lease (the frontier's description) alone."""
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


def file_record(url: str, *, content_type: str, text: PageText, now: float) -> PageRecord:
    """Return the record of a page that was read from a file. `url`: the page's URL, or that of the file."""
    return PageRecord(
        appid="",
        crawlid="",
        spiderid="",
        request_id="",
        attempt=0,
        depth=0,
        url=url,
        response_url=url,
        status_code=200,
        status_msg="",
        response_headers={"Content-Type": [content_type]} if content_type else {},
        request_headers={},
        body=text.text or "",
        body_encoding="text",
        encoding=text.encoding,
        content_type=content_type,
        links=[],
        attrs=None,
        timestamp=timestamp(now),
        success=True,
        reason="",
        exception="",
        redirects=[],
        timings={},
        ip="",
        truncated=False,
    )


def item_record(page: PageRecord, item: dict[str, Any]) -> ItemRecord:
    """Return the record of an item, with the identity of its page."""
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
    """Return the request and response as they were sent. `body`: the request's body. `hidden`: names of request headers
    whose values are left out."""
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
    """Return a Unix time as UTC in ISO 8601, to the microsecond."""
    second = int(now // 1)
    return f"{_second(second)}.{int((now - second) * 1_000_000):06d}+00:00"


@lru_cache(maxsize=4)
def _second(second: int) -> str:
    """Return a whole second as text; cached, because the records of one second share it."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _grouped(headers: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the values of headers by name, spelled as sent."""
    grouped: dict[str, list[str]] = {}
    for name, value in headers:
        if name in grouped:
            grouped[name].append(value)
        else:
            grouped[name] = [value]
    return grouped


def _timings(timings: Timings) -> dict[str, float]:
    """Return the seconds that each step took, to the microsecond. On a kept connection most took none."""
    return {
        "dns": timings.dns and _microseconds(timings.dns),
        "connect": timings.connect and _microseconds(timings.connect),
        "tls": timings.tls and _microseconds(timings.tls),
        "first_byte": _microseconds(timings.first_byte),
        "total": _microseconds(timings.total),
    }


def _microseconds(seconds: float) -> float:
    """Return seconds, to the microsecond. `round` takes twice as long, and this runs for each page."""
    return int(seconds * 1e6 + 0.5) / 1e6


def without_long_body(fetched: FetchResponse) -> FetchResponse:
    """Cut the body of a redirect, which is no page of its own.

    It would stay in memory along the whole chain without being counted, because bytes that count in the budget must
    never wait for another response, such as the robots.txt of the redirect's target.
    """
    wire = fetched.wire_body
    if len(fetched.body) <= LARGE_BYTES and (wire is None or len(wire) <= LARGE_BYTES):
        return fetched
    return msgspec.structs.replace(
        fetched,
        body=fetched.body[:LARGE_BYTES],
        wire_body=None if wire is None else wire[:LARGE_BYTES],
        truncated=True,
    )
