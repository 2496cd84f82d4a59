"""Links by which a feed names its hub and itself (W3C WebSub, section 4): in Link headers, or before its entries."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from gossamer.errors import BadUrl
from gossamer.policy.urls import BaseUrl

_HEAD_BYTES = 64 * 1024
"""Beginning of a feed in which the links stand."""
_ELEMENT = re.compile(rb"<(?:[\w.-]+:)?link\b([^<>]*+)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(rb"""(?:^|\s)(rel|href)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)
_HEADER_LINK = re.compile(r"""<([^<>]*+)>((?:\s*+;\s*+[\w*-]++\s*+=\s*+(?:"[^"]*+"|[^\s;,"]++))*+)""")
_HEADER_REL = re.compile(r""";\s*+rel\s*+=\s*+(?:"([^"]*+)"|([^\s;,"]++))""", re.IGNORECASE)
_MOST_LINKS = 100
"""Links of a feed that are looked at."""


class HubLinks(NamedTuple):
    """Canonical URLs; empty: there is none."""

    hub: str
    topic: str


def hub_links(headers: Iterable[tuple[str, str]], body: bytes, url: str) -> HubLinks:
    """Return the first hub and the topic that a response names; its headers count before its body. `url`: canonical, of
    the response. Never raises."""
    base = BaseUrl(url)
    found: dict[str, str] = {}
    for links in (_of_headers(headers), _of_body(body[:_HEAD_BYTES])):
        for relations, target in links:
            for relation in {"hub", "self"} & set(relations.lower().split()) - found.keys():
                with suppress(BadUrl):
                    found[relation] = base.join(target)
    return HubLinks(found.get("hub", ""), found.get("self", ""))


def _of_headers(headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield relations and targets of Link headers (RFC 8288)."""
    for name, value in headers:
        if name.lower() == "link":
            for count, link in enumerate(_HEADER_LINK.finditer(value)):
                if count < _MOST_LINKS and (relation := _HEADER_REL.search(link[2])):
                    yield relation[1] or relation[2] or "", link[1].strip()


def _of_body(start: bytes) -> Iterator[tuple[str, str]]:
    """Yield relations and targets of the elements `link` before the first entry."""
    head = re.split(rb"<(?:[\w.-]+:)?(?:entry|item)\b", start, maxsplit=1, flags=re.IGNORECASE)[0]
    for count, element in enumerate(_ELEMENT.finditer(head)):
        if count >= _MOST_LINKS:
            return
        found = {one[1].lower(): one[2] or one[3] or b"" for one in _ATTRIBUTE.finditer(element[1])}
        if b"rel" in found and b"href" in found:
            target = found[b"href"].decode("utf-8", "replace").replace("&amp;", "&").strip()
            yield found[b"rel"].decode("utf-8", "replace"), target
