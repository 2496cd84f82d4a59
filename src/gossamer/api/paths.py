"""Names in paths. An id may hold any printable character, an encoded slash too: paths are split, then decoded."""

from typing import Annotated
from urllib.parse import quote, unquote, unquote_to_bytes

from fastapi import Depends, Path
from starlette.convertors import Convertor, register_url_convertor

from gossamer.api.problems import bad_request
from gossamer.model.crawl import CrawlId

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
