"""What the bus is told of a request that Scrapy worked on: the same record as the fast worker's."""

import base64
import http
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from scrapy import Field, Item
from scrapy.http import Headers, Response
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.python.failure import Failure

from gossamer.extract.encoding import decode
from gossamer.model.record import ItemRecord, Output, PageRecord, RecordLink, RedirectHop
from gossamer.model.request import Lease, unpack
from gossamer.policy.secrets import REDACTED, SecretHeaders
from gossamer.scrapy.live import LiveRequests
from gossamer.worker.records import EXCEPTION_CHARACTERS, bare_record, timestamp


class RawResponseItem(Item):
    """A page, with Scrapy Cluster's fields and Gossamer's. What is left out the pipeline fills in from the answer, the
    crawl request and the lease; what is set is published as it is."""

    appid = Field()
    crawlid = Field()
    spiderid = Field()
    url = Field()
    response_url = Field()
    status_code = Field()
    status_msg = Field()
    response_headers = Field()
    request_headers = Field()
    body = Field()
    """Text, or bytes."""
    links = Field()
    """Of mappings with `url` and `text`."""
    attrs = Field()
    success = Field()
    exception = Field()
    encoding = Field()
    timestamp = Field()
    reason = Field()
    content_type = Field()


def plain_headers(headers: Headers) -> dict[str, list[str]]:
    """Every value of every header, as text that JSON can say (Latin-1, as on the wire)."""
    return {
        name.decode("latin-1"): [value.decode("latin-1") for value in values]
        for name, values in headers.items()
        if values
    }


def headers_of(value: Any) -> dict[str, list[str]]:
    """Headers as an item has them, whatever their form: Scrapy's, or a mapping of text or bytes to one or to many."""
    if isinstance(value, Headers):
        return plain_headers(value)
    found: dict[str, list[str]] = {}
    for name, given in dict(value or {}).items():
        many = given if isinstance(given, list | tuple) else [given]
        found[_text(name)] = [_text(one) for one in many]
    return found


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


_OWN = frozenset(("body", "links", "request_headers", "response_headers"))
"""Fields of an item that are read; the others are taken as they are."""


def failure_output(lease: Lease, live: LiveRequests | None, *, reason: str, now: float, redact: bool) -> Output:
    """Of a request without a page. `live` None: it was not begun. `redact`: see `page_output`."""
    if live is None:
        return Output(record=bare_record(lease, now=now, reason=reason, exception=""))
    answer, exception = live.answer, ""
    if isinstance(answer, Failure):
        exception = f"{type(answer.value).__name__}: {answer.value}"
        answer = answer.value.response if isinstance(answer.value, HttpError) else None
    record = _record(live, answer if isinstance(answer, Response) else None, now=now)
    if redact:
        _hide_secrets(record, lease)
    record.success, record.reason, record.exception = False, reason, exception[:EXCEPTION_CHARACTERS]
    return Output(record=record, body=answer.body if isinstance(answer, Response) else b"")


def page_output(item: Mapping[str, Any], live: LiveRequests, *, now: float, redact: bool) -> Output:
    """Of a RawResponseItem that the lease's callback yielded. `redact`: without the values of secret request headers.
    Raises msgspec.ValidationError for a field that is not what the message says."""
    answer = live.answer if isinstance(live.answer, Response) else None
    record = _record(live, answer, now=now)
    body = answer.body if answer is not None else b""
    if not 200 <= record.status_code < 400:
        record.success, record.reason = False, f"http_{record.status_code}"
    for name, value in item.items():
        if name not in _OWN:
            setattr(record, name, value)
    for name in ("request_headers", "response_headers"):
        if name in item:
            setattr(record, name, headers_of(item[name]))
    if redact:
        _hide_secrets(record, live.lease)
    if "links" in item:
        record.links = links_of(item["links"] or ())
    given = item.get("body")
    if isinstance(given, bytes):
        if given != body:
            body = given
            record.body, record.body_encoding, _ = _body(given, record.content_type)
    elif given is not None and given != record.body and (answer is None or given != getattr(answer, "text", None)):
        record.body, record.body_encoding, body = str(given), "text", str(given).encode("utf-8", "replace")
    return Output(record=msgspec.convert(msgspec.to_builtins(record), PageRecord), body=body)


def item_output(item: dict[str, Any], live: LiveRequests, *, now: float) -> Output:
    """Of any other item."""
    lease = live.lease
    answer = live.answer
    return Output(
        record=ItemRecord(
            appid=lease.run.crawl.id.appid,
            crawlid=lease.run.crawl.id.crawlid,
            spiderid=lease.spider,
            request_id=_request_id(lease),
            attempt=lease.attempt,
            url=answer.url if isinstance(answer, Response) else lease.url,
            attrs=live.request.meta.get("attrs"),
            timestamp=timestamp(now),
            item=msgspec.to_builtins(item, enc_hook=str),
        )
    )


def links_of(links: Iterable[Any]) -> list[RecordLink]:
    """Mappings or pairs, as links of a record."""
    return [
        RecordLink(str(one["url"]), str(one.get("text", "")))
        if isinstance(one, Mapping)
        else RecordLink(*map(str, one))
        for one in links
    ]


def _record(live: LiveRequests, response: Response | None, *, now: float) -> PageRecord:
    lease, meta = live.lease, live.request.meta
    record = bare_record(lease, now=now, reason="", exception="")
    record.request_id = _request_id(lease)
    record.success = True
    record.attrs = meta.get("attrs")
    record.response_url = live.request.url
    record.request_headers = plain_headers(live.request.headers)
    came_by = meta.get("redirect_urls") or []
    statuses = meta.get("redirect_reasons") or []
    record.redirects = [
        RedirectHop(str(url), status if isinstance(status, int) else 0)
        for url, status in zip(came_by, [*statuses, *([0] * len(came_by))], strict=False)
    ]
    if came_by:
        record.url = str(came_by[0])
    if response is None:
        return record
    said = response.headers.get(b"Content-Type") or b""
    record.content_type = said.decode("latin-1")
    record.response_url = response.url
    record.status_code = response.status
    record.status_msg = _phrase(response.status)
    record.response_headers = plain_headers(response.headers)
    record.body, record.body_encoding, record.encoding = _body(response.body, record.content_type)
    record.ip = str(response.ip_address or "")
    record.truncated = "dataloss" in response.flags
    if (latency := meta.get("download_latency")) is not None:
        record.timings = {"total": round(latency, 6)}
    return record


def _hide_secrets(record: PageRecord, lease: Lease) -> None:
    names = SecretHeaders(lease.terms).names
    record.request_headers = {
        name: [REDACTED] * len(values) if name.lower() in names else values
        for name, values in record.request_headers.items()
    }


def _request_id(lease: Lease) -> str:
    return unpack(lease.payload).request_id or lease.request_id


def _body(body: bytes, content_type: str) -> tuple[str, Any, str]:
    """(body, body_encoding, encoding)."""
    if not body:
        return "", "text", ""
    text, encoding, strict = decode(body, content_type)
    return (text, "text", encoding) if strict else (base64.b64encode(body).decode(), "base64", encoding)


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""
