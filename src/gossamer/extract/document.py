"""HTML document of one page: parsed once, for its links, for the fields of extraction rules, and for `Page.css`.

A page that a parser would take too long for has no tree: its links are read from pieces, its fields are not looked for.
Of a page that is longer than MAX_PARSED_BYTES, the beginning has a tree; its links are read from pieces of the whole.
`flatten.py` counts tags, which is cheap, and takes every page with very many for such a page. Most of them are long
tables and indexes, whose elements do not nest deeply; `is_nested_deeply` finds these by walking through the tags, and
they are parsed all the same.

Fixed: no content makes a method raise; and the depth that is
counted here is never less than a parser's, whatever the page. Each rule below says why it is not, and a test compares
with the parser.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gossamer.extract.encoding import decode_as, is_utf8

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_MAX_TAGS = 100_000
"""A page with more tags is not walked through. Each tag takes one or two microseconds."""

_MAX_DEPTH = 500
"""Elements that may be open at once. The parser's time grows with this times the tags, 0.1 s for each 50 million."""

# In the body, the parser ignores these outside of tables and selects, or closes an open one first. So there is at most
# one of each between two elements that are counted.
_UNCOUNTED = frozenset(b"p option td th tr tbody thead tfoot caption colgroup html head body".split())
_VOID = frozenset(
    b"area base basefont bgsound br col command embed frame hr img input keygen link meta param source track wbr"
    b"".split()
)
_ENDED_BY: dict[bytes, frozenset[bytes]] = {
    b"li": frozenset((b"li",)),
    b"dd": frozenset((b"dd", b"dt")),
    b"dt": frozenset((b"dd", b"dt")),
}
"""Elements that an open element of these names ends, if it is the innermost one."""
_IMPLIED = frozenset((b"li", b"dd", b"dt"))
"""Elements whose end tag may be missing: the end of an element around them closes them."""
# The end tags of these close all open _IMPLIED ones inside them (HTML standard, "generate implied end tags").
_BLOCKS = frozenset(
    b"address article aside blockquote button center details dialog dir div dl fieldset figcaption figure footer "
    b"header hgroup main menu nav ol pre section summary ul".split()
)
# Formatting elements, which the parser opens again in the next paragraph or cell if they are still open.
_FORMATTING = frozenset(b"b big code em font i nobr s small strike strong tt u".split())
_FOREIGN = frozenset((b"svg", b"math"))
"""Elements in which other rules hold."""
# Within these alone, `/>` ends an element.
_DRAWING = frozenset(
    b"svg g path use circle rect line polygon polyline ellipse defs symbol clippath mask lineargradient radialgradient "
    b"stop".split()
)
_SLASH = ord("/")
# A script that may go on behind its first end tag.
_ESCAPED_SCRIPT = re.compile(rb"<!--.*?<script", re.IGNORECASE | re.DOTALL)


def is_nested_deeply(html: bytes) -> bool:
    """Return whether the elements of a page may nest so deeply that parsing it would take far too long or much memory.

    In doubt True. Takes one or two microseconds a tag.
    """
    # Imported late, as below: with the compiled extension most crawls parse no page.
    from gossamer.extract.flatten import MAX_REOPENED, MAX_TAG_BYTES, RAW_NAME, TAG_NAME, TOKEN

    if html.count(b"<") > _MAX_TAGS or b"<![CDATA[" in html:  # in drawings, tags in CDATA are text
        return True
    walk = _Walk()
    for match in TOKEN.finditer(html):
        name = match[TAG_NAME]
        if name is None:
            if match[RAW_NAME] is not None and walk.is_doubtful(match):
                return True
            continue
        if match.end() - match.start() > MAX_TAG_BYTES:  # a parser compares all attributes of a tag with each other
            return True
        if html[match.start() + 1] == _SLASH:
            walk.end(name.lower())
        else:
            walk.start(name.lower(), is_closed=html[match.end() - 2] == _SLASH)
        if len(walk.open) > _MAX_DEPTH or walk.reopened > MAX_REOPENED:
            return True
    return False


class _Walk:
    """Elements that may be open at one place of a page."""

    def __init__(self) -> None:
        self.open: list[bytes] = []
        """Names, the innermost last. The parser may have closed some of them."""
        self.reopened = 0
        """Upper bound of the formatting elements that the parser has reopened."""
        self._formatting = 0
        self._foreign = 0
        """Number of open `svg` and `math`: in them no element is void or uncounted."""
        self._only_drawings = True
        """False: something else was in a drawing, so the parser may have left it."""

    def is_doubtful(self, raw: re.Match[bytes]) -> bool:
        """Return whether an element of raw text may hold elements after all: in a drawing, where its text is none, and
        a script whose end is not its first end tag."""
        text = raw[0]
        if self._foreign and text.count(b"<") > 2:
            return True
        from gossamer.extract.flatten import RAW_NAME

        return raw[RAW_NAME].lower() == b"script" and _ESCAPED_SCRIPT.search(text) is not None

    def start(self, name: bytes, *, is_closed: bool) -> None:
        """Note a start tag. `is_closed`: it ends with a slash."""
        innermost = self.open[-1] if self.open else b""
        if self._foreign:
            if name not in _DRAWING:
                self._only_drawings = False
            elif is_closed and self._only_drawings and innermost in _DRAWING:
                return
        elif name in _VOID:
            return
        elif name in _UNCOUNTED:
            self.reopened += self._formatting
            return
        elif innermost and name in _ENDED_BY and innermost in _ENDED_BY[name]:
            self._pop()
        self.open.append(name)
        self._formatting += name in _FORMATTING
        self._foreign += name in _FOREIGN

    def end(self, name: bytes) -> None:
        """Note an end tag. It counts only where its element is the innermost one, because the parser may ignore it
        otherwise."""
        at = len(self.open) - 1
        if name in _BLOCKS and not self._foreign:
            while at >= 0 and self.open[at] in _IMPLIED:
                at -= 1
        if at >= 0 and self.open[at] == name:
            while len(self.open) > at:
                self._pop()
        else:
            self.reopened += self._formatting

    def _pop(self) -> None:
        """Close the innermost open element."""
        name = self.open.pop()
        self._formatting -= name in _FORMATTING
        self._foreign -= name in _FOREIGN


MAX_PARSED_BYTES = 2 * 1024 * 1024
"""Part of a page that is parsed into one tree, which takes up to forty times as much memory."""


@cache
def _parser() -> "Callable[[bytes], LexborHTMLParser]":
    """Return the parser, which is imported late: with the compiled extension most crawls need none."""
    from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser

    # Without this option the parser also changes the tree as a browser would after parsing. Nothing here needs that,
    # and it takes half as long again.
    return partial(LexborHTMLParser, options=int(LexborDocumentOptions.WO_EVENTS))


class HtmlDocument:
    """HTML of one page. It is parsed when a tree is asked for, and the tree lives as long as the document."""

    # Class attributes, because most documents never change these. None may be mutable.
    cut = False
    """True: the HTML is longer than MAX_PARSED_BYTES, so the tree lacks its end. Its links are read all the same."""
    base = ""
    """Canonical URL that relative links are resolved against. Empty: `LinkExtractor` has not read the links yet."""
    _is_costly: bool | None = None
    _is_parsable: bool | None = None
    """False: the page nests too deeply to be parsed as a whole. None: that was not looked at yet."""
    _tree: "LexborHTMLParser | None" = None
    _xpath_root: Any = None

    def __init__(self, html: bytes | str, encoding: str | None = None) -> None:
        """`encoding`: Python codec of the bytes, as `extract.encoding.decode` returns it; None: UTF-8."""
        if encoding is not None and not is_utf8(encoding) and isinstance(html, bytes):
            html = decode_as(html, encoding)
        self.data = html if isinstance(html, bytes) else html.encode("utf-8", "replace")
        """The HTML in UTF-8, perhaps with invalid bytes."""
        if len(self.data) > MAX_PARSED_BYTES:
            self.cut = True

    @property
    def _parsed(self) -> bytes:
        """The part of the HTML that the tree is made of."""
        return self.data[:MAX_PARSED_BYTES] if self.cut else self.data

    @property
    def is_costly(self) -> bool:
        """True: a parser might take far more time or memory than the page's size suggests."""
        if self._is_costly is None:
            from gossamer.extract.flatten import is_costly

            self._is_costly = is_costly(self._parsed)
        return self._is_costly

    @property
    def tree(self) -> "LexborHTMLParser | None":
        """Tree of the page; if it is `cut`, of its beginning. None: it would be too costly to parse.

        A page that is costly by its number of tags is looked at more closely here, which takes time."""
        if self._is_parsable is None:
            self._is_parsable = not (self.is_costly and is_nested_deeply(self._parsed))
        if self._tree is None and self._is_parsable:
            self._tree = _parse(self._parsed)
        return self._tree

    @property
    def root(self) -> "LexborNode | None":
        """The page's `html` element. None: the page is too costly to parse."""
        tree = self.tree
        return None if tree is None else tree.root

    def trees(self, kept: frozenset[bytes] | None = None) -> "Iterator[LexborHTMLParser]":
        """Yield trees that together have every link: the tree of the page, or several of its pieces. `kept`: names of
        the elements that pieces have; None: those that readers of links want."""
        if not self.cut and (self._tree is not None or not self.is_costly):
            tree = self.tree
            if tree is not None:
                yield tree
        else:
            from gossamer.extract.flatten import LINK_TAGS, flatten

            for piece in flatten(self.data, kept or LINK_TAGS):
                yield _parse(piece)

    @property
    def xpath_root(self) -> Any:
        """The page's `html` element for lxml, which must be installed. None: it is too costly to parse, or empty."""
        if self._xpath_root is None and self.tree is not None:
            self._xpath_root = parse_for_xpath(self._parsed)
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


def _parse(html: bytes) -> "LexborHTMLParser":
    """Parse HTML. Returns an empty tree if the parser fails."""
    try:
        return _parser()(html)
    except Exception:  # out of memory, or a limit of the parser: a hostile page has no links
        return _parser()(b"")


# --- text of elements -------------------------------------------------------------------------------------------------

_BREAKING = frozenset(
    (
        "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div", "dl", "dt",
        "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li",
        "main", "nav", "ol", "option", "p", "pre", "section", "select", "summary", "table", "tbody", "td", "tfoot",
        "th", "thead", "title", "tr", "ul",
    )
)  # fmt: skip
"""Elements before and after which a word ends. Others are read as parts of a line."""
_SILENT = frozenset(("script", "style", "template", "noscript"))
"""Elements whose text is for no reader."""


def node_text(node: "LexborNode") -> str:
    """Return the text of an element, with a blank where a block or a line ends, and without that of scripts."""
    only = node.first_child
    if only is None:
        return ""
    if only.next is None and only.tag == "-text":
        return only.text_content or ""
    # All nodes in document order, without recursion: to the first child, else to the next sibling, else to that of the
    # nearest parent that has one.
    pieces: list[str] = []
    current = only
    while True:
        tag = current.tag
        if tag == "-text":
            pieces.append(current.text_content or "")
        elif tag not in _SILENT:
            if tag in _BREAKING:
                pieces.append(" ")
            child = current.first_child
            if child is not None:
                current = child
                continue
        following = current.next
        while following is None:
            parent = current.parent
            if parent is None or parent.mem_id == node.mem_id:
                return "".join(pieces)
            current = parent
            if current.tag in _BREAKING:
                pieces.append(" ")
            following = current.next
        current = following


def element_text(element: Any, attributes: Iterable[str] = ()) -> str:
    """Return the text of an element of lxml, as `node_text` does; instead, the first of these attributes that is not
    empty."""
    pieces: list[str] = []
    value = next(filter(None, map(element.get, attributes)), None)
    if value is None:
        _add_texts(element, pieces)
    return value or "".join(pieces)


def _add_texts(element: Any, pieces: list[str]) -> None:
    """Append the texts of an element and its children, with a blank around elements that break a line."""
    # Recursive: lxml's parser lets elements nest 255 levels deep at most.
    tag = element.tag
    if not isinstance(tag, str) or tag in _SILENT:
        return
    if tag in _BREAKING:
        pieces.append(" ")
    pieces.append(element.text or "")
    for child in element:
        _add_texts(child, pieces)
        pieces.append(child.tail or "")
    if tag in _BREAKING:
        pieces.append(" ")


def element_html(element: Any) -> str:
    """Return the HTML of an element of lxml."""
    from lxml import etree

    return str(etree.tostring(element, encoding="unicode", method="html", with_tail=False))
