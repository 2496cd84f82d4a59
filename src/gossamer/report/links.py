"""Second reading of the records: titles of pages, and which pages link to those that failed or are in a sitemap.

The first reading is in store.py. Links come from the records if they list them (`--links`), else from the bodies. Only
links to URLs of interest are kept (those that failed, were redirected or are in a sitemap), so that a site of any size
needs little memory. A key is the number that stands for a URL. Fixed: a page counts once for each URL that it links to,
and never for itself.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from html import unescape

from selectolax.lexbor import LexborHTMLParser, LexborNode

from gossamer.errors import BadUrl
from gossamer.extract.document import HtmlDocument
from gossamer.extract.encoding import is_html, is_utf8
from gossamer.extract.link_elements import link_elements, link_text
from gossamer.extract.links import base_of, head_hrefs, with_encoded_query
from gossamer.policy.urls import BaseUrl, canonical, directory, origin
from gossamer.report.records import PageFacts
from gossamer.report.store import PageOutcome, PageStore, key_of

LINKS_KEPT = 1000
"""Pages that are named of those that link to one URL; all are counted. More take disk and time."""
_MAX_TITLE = 300
"""Characters of a title that are kept."""
_MAX_TEXT = 100
"""Characters of an anchor's text that are kept."""
_MEMORY = 50_000
"""Resolved links that are remembered, because the pages of a site share most of theirs."""
_SNIFFED = 2048
"""Beginning of a body that shows whether it is HTML where its type does not say so."""
_MAX_LINKS = 20_000
"""Different links of one page that are looked at. A larger number finds more links of pages that are lists, and lets a
hostile page take more time."""
_BATCH = 1000
"""Rows that are inserted at once."""
_TITLE = re.compile(rb"<title[^>]*+>(.*?)</title", re.IGNORECASE | re.DOTALL)
_TITLE_WITHIN = 64 * 1024
"""Beginning of a page that is too costly to parse in which its title is looked for."""


class LinkFinder:
    """Finds titles and links of pages, and writes them to the store in batches."""

    def __init__(self, store: PageStore) -> None:
        """The store must have all pages."""
        self.pages_with_links = 0
        """Pages whose links are known: the record lists them, or has the body."""
        self.pages_without_links = 0
        """Fetched pages whose links are unknown, because the record has neither."""
        self._store = store
        self._is_kept = bytearray(store.added)
        """1 for each page that the store has, by its number; 0: a later record of the same URL replaces it."""
        for (number,) in store.query("SELECT id FROM pages"):
            self._is_kept[number] = 1
        wanted = store.query(
            "SELECT key FROM pages WHERE outcome = ? OR hops > 0 UNION SELECT key FROM listed ORDER BY 1",
            (int(PageOutcome.FAILED),),
        )
        self._wanted = array("q", (key for (key,) in wanted))
        """Keys of the URLs of interest, in ascending order. Below, a position is that of a key in this array."""
        self._counts = array("L", bytes(array("L").itemsize * len(self._wanted)))  # all 0
        """By position: number of pages that link to the URL."""
        self._remembered: dict[tuple[str, str], int] = {}
        """Position of a link by (site or folder of its page, text of the link)."""
        self._links: list[tuple[int, int, str]] = []
        """Rows of the table `links` that are not inserted yet."""
        self._titles: list[tuple[int, str]] = []
        """Rows of the table `titles` that are not inserted yet."""

    def read(self, number: int, page: PageFacts) -> None:
        """Take title and links from the page with this number in the store."""
        if number >= len(self._is_kept) or not self._is_kept[number] or not page.success:
            return
        title, found = self._parse(page)
        if title:
            self._titles.append((number, title))
        if found is None:
            self.pages_without_links += 1
        else:
            self.pages_with_links += 1
            self._keep(number, page, found)
        if len(self._titles) >= _BATCH or len(self._links) >= _BATCH:
            self._flush()

    def finish(self) -> None:
        """Write what is left. Then the store can be asked who links to what."""
        self._flush()
        rows = ((key, count) for key, count in zip(self._wanted, self._counts, strict=True) if count)
        self._store.insert("INSERT INTO targets VALUES(?, ?)", rows)
        self._store.database.execute("CREATE INDEX links_target ON links(target)")

    def _flush(self) -> None:
        """Write the collected titles and links into the store."""
        self._store.insert("INSERT INTO titles VALUES(?, ?)", self._titles)
        self._store.insert("INSERT INTO links VALUES(?, ?, ?)", self._links)
        self._titles.clear()
        self._links.clear()

    def _keep(self, number: int, page: PageFacts, found: dict[int, str]) -> None:
        """Count links, and keep the first ones. `found`: text of each link by the position of its URL."""
        own = (key_of(page.url), key_of(page.final_url))
        for position, text in found.items():
            key = self._wanted[position]
            if key in own:
                continue
            self._counts[position] += 1
            if self._counts[position] <= LINKS_KEPT:
                # Cut first, with room for surplus white space: an anchor's text may have megabytes.
                clean = " ".join(text[: 4 * _MAX_TEXT].split())[:_MAX_TEXT]
                self._links.append((key, number, clean.encode("utf-8", "replace").decode()))

    def _parse(self, page: PageFacts) -> tuple[str, dict[int, str] | None]:
        """Return the title, and the texts of the links to URLs of interest, by position; None: they are unknown."""
        if page.body is None:
            return "", self._listed(page) if page.links else None
        if not is_html(page.content_type, page.body[:_SNIFFED].encode("utf-8", "replace")):
            return "", self._listed(page)
        document = HtmlDocument(page.text())
        links = self._listed(page) if page.links else self._resolved(page, document)
        return _title_of(document), links

    def _listed(self, page: PageFacts) -> dict[int, str]:
        """Return the links that the record lists."""
        found: dict[int, str] = {}
        for link in page.links:
            position = self._position(link.url.partition("#")[0])
            if position >= 0:
                found.setdefault(position, link.text)
        return found

    def _resolved(self, page: PageFacts, document: HtmlDocument) -> dict[int, str]:
        """Return the links of a parsed page: all that a crawl may follow. This runs for each link of each page."""
        found: dict[int, str] = {}
        try:
            url = canonical(page.final_url)
        except BadUrl:
            return found
        base = None
        # In a page that is not in UTF-8, queries of links are encoded as the page is. None: it is in UTF-8.
        charset = None if is_utf8(page.encoding) or not page.encoding else page.encoding
        seen: set[str] = set()
        for tree in document.trees():
            if base is None:  # the first tree has the page's `base` element, if there is one
                url = base_of(tree, url) or url
                base = BaseUrl(url)
                # /x means the same on a whole site, and x in a whole directory, so most links are remembered below.
                site, folder = origin(url), directory(url)
            for element, target in _hrefs(tree):
                href = target.strip()
                if href in seen:
                    continue
                if len(seen) >= _MAX_LINKS:
                    return found
                seen.add(href)
                begin = href[:1]
                # What such a link means depends on the page itself, so it is not remembered for others.
                if begin in ("", "?", "#") or charset is not None:
                    position = self._resolve(base, href, charset)
                else:
                    known = (site if begin == "/" else folder, href)
                    remembered = self._remembered.get(known)
                    if remembered is not None:
                        position = remembered
                    else:
                        position = self._resolve(base, href, charset)
                        if len(self._remembered) >= _MEMORY:
                            self._remembered.clear()
                        self._remembered[known] = position
                if position >= 0 and position not in found:
                    found[position] = "" if element is None else link_text(element)
        return found

    def _resolve(self, base: BaseUrl, href: str, charset: str | None) -> int:
        """Return the position of the URL that a link leads to; -1: it is of no interest, or not valid."""
        target = href.partition("#")[0] if "#" in href else href
        try:
            return self._position(base.join(target if charset is None else with_encoded_query(target, charset)))
        except BadUrl:
            return -1

    def _position(self, url: str) -> int:
        """Return the position of a URL in `_wanted`; -1: it is of no interest."""
        key = key_of(url)
        position = bisect_left(self._wanted, key)
        return position if position < len(self._wanted) and self._wanted[position] == key else -1


def _hrefs(tree: LexborHTMLParser) -> Iterator[tuple[LexborNode | None, str]]:
    """Yield each link that a crawl may follow, with its element; None: it is a `link rel=next` or a refresh."""
    for element, _, href in link_elements(tree):
        yield element, href
    for href in head_hrefs(tree):
        yield None, href


def _title_of(document: HtmlDocument) -> str:
    """Return the title of a page on one line, cut where it is very long; empty if there is none."""
    tree = document.tree
    if tree is None:  # too costly to parse
        match = _TITLE.search(document.data, 0, _TITLE_WITHIN)
        text = unescape(match[1].decode("utf-8", "replace")) if match else ""
    else:
        element = tree.css_first("head > title") or tree.css_first("title")
        text = element.text() if element is not None else ""
    return " ".join(text[: 4 * _MAX_TITLE].split())[:_MAX_TITLE].encode("utf-8", "replace").decode()
