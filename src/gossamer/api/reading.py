"""Names in paths. An id may hold any printable character, an encoded slash too: paths are split, then decoded."""

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote, unquote, unquote_to_bytes

from fastapi import Depends, Path, Request
from starlette.convertors import Convertor, register_url_convertor

from gossamer.api.problems import bad_request
from gossamer.errors import RequestRejected
from gossamer.model.crawl import CrawlId
from gossamer.model.messages.reader import decode_json

_KEPT = "!$&'()*+,;=:@~"
"""Besides letters, digits and -._: what a path segment may hold as it is (RFC 3986, pchar)."""


def normal(raw: bytes) -> str:
    """A path as it was sent, each segment encoded in one way, so that routes match it. Raises Problem for a path
    that is no UTF-8."""
    segments = [unquote_to_bytes(segment) for segment in raw.partition(b"?")[0].split(b"/")]
    try:
        return "/".join(quote(segment.decode(), safe=_KEPT) for segment in segments)
    except UnicodeDecodeError:
        raise bad_request("the path is not UTF-8") from None


def encoded(*names: str) -> str:
    """Names as segments of a path."""
    return "/".join(quote(name, safe=_KEPT) for name in names)


class _Name(Convertor[str]):
    """One segment, decoded: `{appid:name}`."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return encoded(value)


register_url_convertor("name", _Name())

CRAWL = "/v1/crawls/{appid:name}/{crawlid:name}"


async def _crawl(
    appid: Annotated[str, Path(description="The application that owns the crawl", examples=["shop"])],
    crawlid: Annotated[str, Path(description="The crawl's name there", examples=["prices"])],
) -> CrawlId:
    return CrawlId(appid, crawlid)


TheCrawl = Annotated[CrawlId, Depends(_crawl)]
"""What an endpoint under CRAWL says to get its crawl."""


_LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/jsonlines")
NDJSON = _LINES[0]


def media_type(request: Request) -> str:
    """Of the body, without parameters, lower-case; '' where nothing is said."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_lines(request: Request) -> bool:
    """Whether the body is JSON by lines."""
    return media_type(request) in _LINES


def decoded(value: bytes) -> Any:
    """The JSON in these bytes. Raises RequestRejected, with the reason in words."""
    if not value.strip():
        raise RequestRejected("the body is empty")
    return decode_json(value)


async def read_object(request: Request) -> dict[str, Any]:
    """The body, a JSON object. Raises RequestRejected."""
    found = decoded(await request.body())
    if not isinstance(found, dict):
        raise RequestRejected("the body must be a JSON object")
    return found


def lines(value: bytes) -> Sequence[bytes]:
    """The lines that hold something."""
    return [line for line in value.splitlines() if line.strip()]


def check_known(given: dict[str, Any], known: Sequence[str]) -> None:
    """Raises Problem that names a field which is not one of these."""
    for field in given:
        if field not in known:
            raise bad_request(f"unknown field; there are {', '.join(known)}", where=field)
