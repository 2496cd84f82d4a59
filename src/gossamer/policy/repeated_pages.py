"""Finds pages that are the same under many paths of a site: a refusal, or the front page, that comes in place of each.

A worker process counts for itself. For nearly all pages only title and size are compared with those of the pages
before; the text is compared where many in a row were alike.
"""

from typing import Final
from urllib.parse import urlsplit

from gossamer.model.record import PageRefusal
from gossamer.policy.refusal_rules import MOST_BYTES, VERSION

ALIKE: Final = 10
"""Pages in a row with one title and nearly one size, after which their texts are compared."""
SAME: Final = 10
"""Further pages with the same text and other paths, after which one more is none. Fewer would also be found in the
archive of a site with some empty pages."""
_NEARLY_BYTES: Final = 512
"""Difference of sizes that the URL of a page and the number of its refusal make."""
_SITES: Final = 1024
"""Titles of sites that are remembered, and as many older ones."""
_TITLE_WITHIN: Final = 2048
_TITLE_BYTES: Final = 200
_BEGIN_BYTES: Final = 64
_BEGINS: Final = (b"<html", b"<!doc", b"<head", b"<body")
"""Beginnings of pages, which data do not have."""


class _AlikePages:
    """Pages of a host with one title."""

    __slots__ = ("compared", "count", "known", "known_size", "paths", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0
        """Pages in a row of nearly this size."""
        self.compared = 0
        """Fingerprint of the text that was compared last; 0: none was."""
        self.paths: list[str] = []
        """Paths of the pages with that text."""
        self.known = 0
        """Fingerprint of the text that is no page; 0: there is none yet."""
        self.known_size = -1


class RepeatedPages:
    """The latest pages of the sites that a worker process fetches from. Bounded: old ones are forgotten."""

    def __init__(self) -> None:
        self._new: dict[tuple[str, str, bytes], _AlikePages] = {}
        self._old: dict[tuple[str, str, bytes], _AlikePages] = {}

    def may_repeat(self, crawl: str, host: str, body: bytes) -> bool:
        """Count a page of a host with the status 200, and return whether it is worth `find`: False for nearly all
        pages. Then a second call for the page counts nothing."""
        size = len(body)
        if size > MOST_BYTES:
            return False
        title = _title(body)
        if title is None:
            return False
        alike = self._of(crawl, host, title, size)
        if alike.known and abs(size - alike.known_size) <= _NEARLY_BYTES:
            return True
        if abs(size - alike.size) > _NEARLY_BYTES:
            alike.size, alike.count = size, 0
        if alike.count >= ALIKE:
            return True
        alike.count += 1
        return False

    def find(self, crawl: str, host: str, body: bytes, *, url: str) -> PageRefusal | None:
        """Return the refusal that a page is for which `may_repeat` was True: the same as that of many other paths.
        None: it is not, or it names the address that it is a copy of (`rel=canonical`)."""
        from gossamer.policy.page_fingerprints import fingerprint, names_canonical  # late: few pages get here

        title = _title(body) or b""
        alike = self._of(crawl, host, title, len(body))
        source = body.lower()
        if names_canonical(source):
            alike.count = 0
            return None
        text = fingerprint(source, url)
        if text == alike.known:
            name = title.partition(b">")[2].decode("utf-8", "replace").strip()
            evidence = ["status 200", f"title {name}" if name else "no title"]
            evidence.append(f"the same page as at {SAME} other paths, such as {alike.paths[0]}")
            evidence += [f"size {len(body)}", "no canonical URL"]
            return PageRefusal(kind="same", rule="same_page", evidence=evidence, version=VERSION)
        if text != alike.compared:
            alike.compared, alike.count, alike.paths = text, alike.count if not alike.compared else 0, []
        path = urlsplit(url).path
        if path not in alike.paths:
            alike.paths.append(path)
        if len(alike.paths) >= SAME:
            alike.known, alike.known_size = text, len(body)
        return None

    def _of(self, crawl: str, host: str, title: bytes, size: int) -> _AlikePages:
        """Return the pages of a host with a title."""
        key = (crawl, host, title)
        alike = self._new.get(key)
        if alike is None:
            if len(self._new) >= _SITES:
                self._old, self._new = self._new, {}
            alike = self._new[key] = self._old.pop(key) if key in self._old else _AlikePages(size)
        return alike


def _title(body: bytes) -> bytes | None:
    """Return the beginning of the title of a page, with its tag; empty: the page has none that begins within so many
    bytes. None: this is no page."""
    begin = body.find(b"<title", 0, _TITLE_WITHIN)
    if begin < 0:
        begin = body.find(b"<TITLE", 0, _TITLE_WITHIN)
    if begin >= 0:
        return body[begin : begin + _TITLE_BYTES].partition(b"</")[0]
    return b"" if body[:_BEGIN_BYTES].lstrip()[:5].lower() in _BEGINS else None
