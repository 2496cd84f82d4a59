"""HTML document of one page: parsed once, for its links, for the fields of extraction rules, and for `Page.css`.

A page that a parser would take too long for has no tree: its links are read from pieces, its fields are not looked for.
Safe to change: MAX_PARSED_BYTES, as its text says. Fixed: that no content makes a method raise.
"""

from collections.abc import Iterator
from typing import Any

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from gossamer.extract.encoding import decode_as, is_utf8
from gossamer.extract.flatten import flatten, is_costly

MAX_PARSED_BYTES = 2 * 1024 * 1024
"""Longer HTML is cut before parsing. May be changed: a larger value finds more links of long pages, and the parser's
tree takes up to forty times as much memory."""

_PARSE_ONLY = int(LexborDocumentOptions.WO_EVENTS)
"""Option of the parser. Without it the parser also changes the tree as a browser would after parsing. Nothing
here needs that, and it takes half as long again."""


class HtmlDocument:
    """HTML of one page. It is parsed when a tree is asked for, and the tree lives as long as the document."""

    __slots__ = ("_tree", "_xpath_root", "cut", "data", "is_costly")

    def __init__(self, html: bytes | str, encoding: str | None = None) -> None:
        """`encoding`: Python codec of the bytes, as `extract.encoding.decode` returns it; None: UTF-8."""
        self.cut = False
        """True: the HTML was longer than MAX_PARSED_BYTES; the rest is missing."""
        if isinstance(html, bytes) and encoding is not None and not is_utf8(encoding):
            self.cut = len(html) > MAX_PARSED_BYTES
            html = decode_as(html[:MAX_PARSED_BYTES], encoding)
        data = html if isinstance(html, bytes) else html[: MAX_PARSED_BYTES + 1].encode("utf-8", "replace")
        if len(data) > MAX_PARSED_BYTES:
            self.cut = True
            data = data[:MAX_PARSED_BYTES]
        self.data = data
        """The HTML in UTF-8, perhaps with invalid bytes."""
        self.is_costly = is_costly(data)
        """True: a parser might take far more time or memory than the page's size suggests."""
        self._tree: LexborHTMLParser | None = None
        self._xpath_root: Any = None

    @property
    def tree(self) -> LexborHTMLParser | None:
        """Tree of the whole page. None: it would be too costly to parse."""
        if self._tree is None and not self.is_costly:
            self._tree = _parse(self.data)
        return self._tree

    @property
    def root(self) -> LexborNode | None:
        """The page's `html` element. None: the page is too costly to parse."""
        tree = self.tree
        return None if tree is None else tree.root

    def trees(self) -> Iterator[LexborHTMLParser]:
        """Yield trees that together have every link: the tree of the page, or several of its pieces."""
        tree = self.tree
        if tree is not None:
            yield tree
        else:
            for piece in flatten(self.data):
                yield _parse(piece)

    @property
    def xpath_root(self) -> Any:
        """The page's `html` element for lxml, which must be installed. None: it is too costly to parse, or empty."""
        if self._xpath_root is None and not self.is_costly:
            self._xpath_root = parse_for_xpath(self.data)
        return self._xpath_root


def parse_for_xpath(html: bytes | str) -> Any:
    """Return the root element of HTML for lxml, which must be installed. None: there is none."""
    from lxml import etree
    from lxml import html as lxml_html

    try:
        data = html.encode("utf-8", "replace") if isinstance(html, str) else html
        return lxml_html.document_fromstring(data, parser=lxml_html.HTMLParser(encoding="utf-8"))
    except (etree.LxmlError, ValueError, AssertionError):
        return None


def _parse(html: bytes) -> LexborHTMLParser:
    """Parse HTML. Returns an empty tree if the parser fails."""
    try:
        return LexborHTMLParser(html, options=_PARSE_ONLY)
    except Exception:  # out of memory, or a limit of the parser: a hostile page has no links
        return LexborHTMLParser(b"", options=_PARSE_ONLY)
