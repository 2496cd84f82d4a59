"""Finds pages that are the same under many paths of a site: a refusal, or the front page, that comes in place of each.

A worker process counts for itself. For nearly all pages only title and size are compared with those of the pages
before; the text is compared where many in a row were alike.
"""

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gossamer.model.record import PageRefusal
from gossamer.policy.refusal_rules import LARGEST_BYTES, MOST_BYTES, VERSION

ALIKE: Final = 10
"""Pages in a row with one title and nearly one size, after which their texts are compared."""
SAME: Final = 10
"""Further pages with the same text and other paths, after which one more is none. Fewer would also be found in the
archive of a site with some empty pages."""
_IN_TURN: Final = 2
"""Sizes and texts that may take turns. With more, the empty pages among others would be found."""
_KNOWN: Final = 4
"""Texts of a title that are known to be none of pages."""
_NEARLY_BYTES: Final = 512
"""Difference of sizes that the URL of a page and the number of its refusal make."""
_SITES: Final = 1024
"""Titles of sites that are remembered, and as many older ones."""
_TITLE_WITHIN: Final = 2048
_TITLE_BYTES: Final = 200
_BEGIN_BYTES: Final = 64
_BEGINS: Final = (b"<html", b"<!doc", b"<head", b"<body", b"<meta", b"<link", b"<scri", b"<styl", b"<!--", b"<?xml")
"""Beginnings of pages, which data and parts of pages do not have."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class Repeat(NamedTuple):
    """A page that is the same as many others."""

    refusal: PageRefusal
    text: int
    """Fingerprint of its text, by which another process knows it (`remember`)."""


class _AlikePages:
    """Pages of a host with one title."""

    __slots__ = ("count", "known", "sizes", "texts")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        """Sizes of the latest pages, at most two that take turns."""
        self.count = 0
        """Pages in a row of nearly these sizes."""
        self.texts: dict[int, list[str]] = {}
        """Paths of the pages whose texts were compared, by fingerprints of these: at most two that take turns."""
        self.known: dict[int, tuple[int, str]] = {}
        """Size and one path, or none, of texts that are no pages, by fingerprint."""


class RepeatedPages:
    """The latest pages of the sites that a worker process fetches from. Bounded: old ones are forgotten."""

    def __init__(self) -> None:
        self._new: dict[tuple[str, str, bytes], _AlikePages] = {}
        self._old: dict[tuple[str, str, bytes], _AlikePages] = {}

    def may_repeat(self, crawl: str, host: str, body: bytes) -> bool:
        """Count a page of a host with the status 200, and return whether it is worth `find`: False for nearly all
        pages. Then a second call for the page counts nothing."""
        size = len(body)
        if size > LARGEST_BYTES:
            return False
        title = _title(body)
        if title is None:
            return False
        alike = self._of(crawl, host, title)
        if alike.known and any(abs(size - known) <= _NEARLY_BYTES for known, _ in alike.known.values()):
            return True
        for one in alike.sizes:
            if abs(size - one) <= _NEARLY_BYTES:
                break
        else:
            if len(alike.sizes) >= _IN_TURN:
                alike.sizes, alike.count = [], 0
            alike.sizes.append(size)
        if alike.count >= ALIKE:
            return True
        alike.count += 1
        return False

    def find(self, crawl: str, host: str, body: bytes, *, url: str) -> Repeat | None:
        """Return the refusal that a page is for which `may_repeat` was True: the same as that of many other paths.
        None: it is not, or it names the address that it is a copy of (`rel=canonical`)."""
        from gossamer.policy.page_fingerprints import fingerprint, names_canonical  # late: few pages get here

        title = _title(body) or b""
        alike = self._of(crawl, host, title)
        source = body.lower()
        if names_canonical(source):
            alike.count = 0
            return None
        text = fingerprint(source, url, whole=len(body) > MOST_BYTES)
        if text in alike.known:
            name, other = title.partition(b">")[2].decode("utf-8", "replace").strip(), alike.known[text][1]
            evidence = ["status 200", f"title {name}" if name else "no title"]
            same = "as when it was refused before"
            if other:
                same = f"as at {SAME} other paths, such as {other}, after {ALIKE} of this title and size"
            evidence += [f"the same page {same}", f"size {len(body)}", "no canonical URL"]
            return Repeat(PageRefusal(kind="same", rule="same_page", evidence=evidence, version=VERSION), text)
        if text not in alike.texts:
            if len(alike.texts) >= _IN_TURN:
                alike.texts, alike.count = {}, 0
            alike.texts[text] = []
        paths, path = alike.texts[text], urlsplit(url).path
        if path not in paths:
            paths.append(path)
        if len(paths) >= SAME * len(alike.texts):
            self._know(alike, text, len(body), paths[0])
        return None

    def remember(self, crawl: str, host: str, body: bytes, *, text: int) -> None:
        """Take a text for that of no page if a page has it, because another process has found that. `body`: of the
        page, for which `may_repeat` and `find` are to be called then. `text`: as in `Repeat`."""
        title = _title(body)
        if title is not None:
            self._know(self._of(crawl, host, title), text, len(body), "")

    @staticmethod
    def _know(alike: _AlikePages, text: int, size: int, path: str) -> None:
        """Take a text for that of no page."""
        if text in alike.known:
            return
        if len(alike.known) >= _KNOWN:
            del alike.known[next(iter(alike.known))]
        alike.known[text] = size, path

    def _of(self, crawl: str, host: str, title: bytes) -> _AlikePages:
        """Return the pages of a host with a title."""
        key = (crawl, host, title)
        alike = self._new.get(key)
        if alike is None:
            if len(self._new) >= _SITES:
                self._old, self._new = self._new, {}
            alike = self._new[key] = self._old.pop(key) if key in self._old else _AlikePages()
        return alike


def _title(body: bytes) -> bytes | None:
    """Return the beginning of the title of a page, with its tag; empty: the page has none that begins within so many
    bytes, or nothing at all. None: this is no page."""
    begin = body.find(b"<title", 0, _TITLE_WITHIN)
    if begin < 0:
        begin = body.find(b"<TITLE", 0, _TITLE_WITHIN)
    if begin >= 0:
        return body[begin : begin + _TITLE_BYTES].partition(b"</")[0]
    text = body[:_BEGIN_BYTES].removeprefix(_BYTE_ORDER_MARK).lstrip().lower()
    return b"" if text.startswith(_BEGINS) or not (text or body.strip()) else None
