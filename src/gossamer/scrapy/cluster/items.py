"""The item that becomes a page's message."""

from typing import Any

from scrapy import Field, Item
from scrapy.http import Headers


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
