"""Records of requests that Scrapy ran, as the bus carries them to a service's clients.

Gossamer's own worker (the fast worker) publishes the same record types, so a change of what a field holds must be made
in gossamer/worker/records.py, too. Fixed: the names of fields, Scrapy Cluster's and Gossamer's, which clients read, and
the reasons (`http_404`).
"""

import base64
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Any

import msgspec
from scrapy import Field, Item
from scrapy.http import Headers, Response
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.python.failure import Failure

from gossamer.extract.encoding import content_type_of, decode
from gossamer.model.messages.secret_fields import REDACTED
from gossamer.model.record import ItemRecord, Output, PageRecord, RecordLink, RedirectHop
from gossamer.model.request import Lease, unpack
from gossamer.policy.secrets import SecretHeaders
from gossamer.policy.words import status_phrase
from gossamer.scrapy.leasing import ActiveLease
from gossamer.worker.records import EXCEPTION_CHARACTERS, bare_record, timestamp


class RawResponseItem(Item):
    """A page, with Scrapy Cluster's fields and a few of Gossamer's.

    BusPipeline takes missing fields from the response, the crawl request and the lease (the request as the frontier
    has given it to this process), and publishes the others as they are. Spiders set fields by these names: a field may
    be added if PageRecord has it, too; none may be renamed.
    """

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
    """Text or bytes."""
    links = Field()
    """List of mappings with `url` and `text`."""
    attrs = Field()
    success = Field()
    exception = Field()
    encoding = Field()
    timestamp = Field()
    reason = Field()
    content_type = Field()


def plain_headers(headers: Headers) -> dict[str, list[str]]:
    """Return all values of all headers as text (Latin-1, as on the wire), which JSON can hold."""
    return {
        name.decode("latin-1"): [value.decode("latin-1") for value in values]
        for name, values in headers.items()
        if values
    }


def _item_headers(value: Any) -> dict[str, list[str]]:
    """Return the headers of an item: Scrapy's Headers, or a mapping from names to one value or several."""
    if isinstance(value, Headers):
        return plain_headers(value)
    headers: dict[str, list[str]] = {}
    for name, given in dict(value or {}).items():
        values = given if isinstance(given, list | tuple) else [given]
        headers[_text(name)] = [_text(one) for one in values]
    return headers


def _text(value: Any) -> str:
    """Return a header's name or value as text. Bytes are Latin-1, as on the wire."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


_CONVERTED = frozenset(("body", "links", "request_headers", "response_headers"))
"""Fields of an item that `page_output` converts. All others are published as they are."""


def failure_output(lease: Lease, active: ActiveLease | None, *, reason: str, now: float, redact: bool) -> Output:
    """Return the record of a request without a page. `active` None: the request was not started.

    `redact` hides the values of secret request headers."""
    if active is None:
        return Output(record=bare_record(lease, now=now, reason=reason, exception=""))
    result, exception = active.result, ""
    if isinstance(result, Failure):
        exception = f"{type(result.value).__name__}: {result.value}"
        result = result.value.response if isinstance(result.value, HttpError) else None
    record = _record(active, result if isinstance(result, Response) else None, now=now)
    if redact:
        _hide_secrets(record, lease)
    record.success, record.reason, record.exception = False, reason, exception[:EXCEPTION_CHARACTERS]
    return Output(record=record, body=result.body if isinstance(result, Response) else b"")


def page_output(item: Mapping[str, Any], active: ActiveLease, *, now: float, redact: bool) -> Output:
    """Return the page record of a RawResponseItem that the lease's callback yielded, and the body beside it.

    The item's fields override those of the response; secrets are hidden after that, also in headers that the item sets.
    `now`: epoch seconds. `redact` hides the values of secret request headers. Raises msgspec.ValidationError for a
    field of a wrong type.
    """
    response = active.result if isinstance(active.result, Response) else None
    record = _record(active, response, now=now)
    body = response.body if response is not None else b""
    if not 200 <= record.status_code < 400:
        record.success, record.reason = False, f"http_{record.status_code}"
    for name, value in item.items():
        if name not in _CONVERTED:
            setattr(record, name, value)
    for name in ("request_headers", "response_headers"):
        if name in item:
            setattr(record, name, _item_headers(item[name]))
    if redact:
        _hide_secrets(record, active.lease)
    if "links" in item:
        record.links = _record_links(item["links"] or ())
    # A body that differs from the response's, bytes or text, is the spider's own and replaces it.
    given = item.get("body")
    if isinstance(given, bytes):
        if given != body:
            body = given
            record.body, record.body_encoding, _ = _body_fields(given, record.content_type)
    elif given is not None:
        is_response_text = given == record.body or (response is not None and given == getattr(response, "text", None))
        if not is_response_text:
            record.body, record.body_encoding, body = str(given), "text", str(given).encode("utf-8", "replace")
    # Converted only to check the types: the spider may have set any value.
    return Output(record=msgspec.convert(msgspec.to_builtins(record), PageRecord), body=body)


def item_output(item: dict[str, Any], active: ActiveLease, *, now: float) -> Output:
    """Return the item record of an item that is not a RawResponseItem. Values that JSON does not know become text."""
    lease = active.lease
    result = active.result
    return Output(
        record=ItemRecord(
            appid=lease.run.crawl.id.appid,
            crawlid=lease.run.crawl.id.crawlid,
            spiderid=lease.spider,
            request_id=_request_id(lease),
            attempt=lease.attempt,
            url=result.url if isinstance(result, Response) else lease.url,
            attrs=active.request.meta.get("attrs"),
            timestamp=timestamp(now),
            item=msgspec.to_builtins(item, enc_hook=str),
        )
    )


def _record_links(links: Iterable[Any]) -> list[RecordLink]:
    """Convert mappings with `url` and `text`, or (url, text) pairs, to links of a record."""
    return [
        RecordLink(str(one["url"]), str(one.get("text", "")))
        if isinstance(one, Mapping)
        else RecordLink(*map(str, one))
        for one in links
    ]


def _record(active: ActiveLease, response: Response | None, *, now: float) -> PageRecord:
    """Return the record of a request and, if there is one, its response."""
    lease, meta = active.lease, active.request.meta
    record = bare_record(lease, now=now, reason="", exception="")
    record.request_id = _request_id(lease)
    record.success = True
    record.attrs = meta.get("attrs")
    record.response_url = active.request.url
    record.request_headers = plain_headers(active.request.headers)
    redirect_urls = meta.get("redirect_urls") or []
    statuses = meta.get("redirect_reasons") or []
    record.redirects = [
        # 0 for a redirect without a status, such as that of a meta tag.
        RedirectHop(str(url), status if isinstance(status, int) else 0)
        for url, status in zip(redirect_urls, chain(statuses, repeat(0)), strict=False)
    ]
    if redirect_urls:
        record.url = str(redirect_urls[0])  # the URL before the first redirect
    if response is None:
        return record
    record.content_type = content_type_of_response(response)
    record.response_url = response.url
    record.status_code = response.status
    record.status_msg = status_phrase(response.status)
    record.response_headers = plain_headers(response.headers)
    record.body, record.body_encoding, record.encoding = _body_fields(response.body, record.content_type)
    record.ip = str(response.ip_address or "")
    record.truncated = "dataloss" in response.flags  # Scrapy's flag for a body that ended too early
    if (latency := meta.get("download_latency")) is not None:
        record.timings = {"total": round(latency, 6)}  # seconds, to the microsecond
    return record


def content_type_of_response(response: Response) -> str:
    """Return the Content-Type that counts; empty: there is none."""
    return content_type_of([line.decode("latin-1") for line in response.headers.getlist(b"Content-Type")])


def _hide_secrets(record: PageRecord, lease: Lease) -> None:
    """Replace the values of the record's secret request headers."""
    names = SecretHeaders(lease.terms).names
    record.request_headers = {
        name: [REDACTED] * len(values) if name.lower() in names else values
        for name, values in record.request_headers.items()
    }


def _request_id(lease: Lease) -> str:
    """Return the request's id. A request that was redirected to another domain keeps the id that it had before."""
    return unpack(lease.payload).request_id or lease.request_id


def _body_fields(body: bytes, content_type: str) -> tuple[str, Any, str]:
    """Return body, body_encoding and encoding of a record. Bytes that are not valid text become base64."""
    if not body:
        return "", "text", ""
    text, encoding, strict = decode(body, content_type)
    return (text, "text", encoding) if strict else (base64.b64encode(body).decode(), "base64", encoding)
