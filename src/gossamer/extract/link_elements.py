"""Elements of a tree that link to other documents: anchors and areas, frames, and those of documents inside the page.

Every reader of links uses this module. The compiled extension reads the same elements without a tree
(`native/src/scan.rs`), and tests compare both.
"""

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from gossamer.extract.document import HtmlDocument

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

    LinkElement: TypeAlias = tuple[LexborNode, dict[str, str | None], str]

_RARE = ("area", "iframe", "frame", "noframes")
"""Elements that most pages do not have, besides `a`."""
# Elements of drawings and of formulas in which elements are those of HTML again (HTML standard, "HTML integration
# points" and "MathML text integration points").
_HTML_IN_SVG = frozenset(("foreignobject", "desc", "title"))
_HTML_IN_MATH = frozenset(("mi", "mo", "mn", "ms", "mtext"))
_HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))


_TEXT_ATTRIBUTES = {"area": "alt", "iframe": "title", "frame": "title"}
"""Attribute with the text of a link, by the name of its element; others have their text inside."""


class Inside(Enum):
    """Document inside of a page. In `noframes` no other `noframes` is read, and in `srcdoc` neither is."""

    NOFRAMES = 0
    SRCDOC = 1


def link_elements(tree: "LexborHTMLParser", inside: Inside | None = None) -> "Iterator[LinkElement]":
    """Yield each element that links to a document, in the order of the page, with its attributes and its target.

    These are `a` and `area` with an href (in drawings and formulas, also an `a` with an xlink:href), `iframe` and
    `frame` with a src, and those of `noframes` and `srcdoc`, which are documents inside of the page. `inside`: the tree
    is such a document.
    """
    rare = [name for name in _RARE if tree.tags(name)]
    is_foreign = ForeignContent()
    for node in tree.css(",".join(("a", *rare))) if rare else tree.tags("a"):
        name = node.tag
        attributes = node.attributes
        if name == "a":
            href = attributes.get("href")
            if href is None and "xlink:href" in attributes and is_foreign(node):
                href = attributes["xlink:href"]
            if href is not None:
                yield node, attributes, href
        elif not is_foreign(node):
            yield from _rare_links(node, attributes, inside)


def _rare_links(
    node: "LexborNode", attributes: dict[str, str | None], inside: Inside | None
) -> "Iterator[LinkElement]":
    """Yield the links of an element of HTML that most pages do not have."""
    if node.tag == "area":
        href = attributes.get("href")
        if href is not None:
            yield node, attributes, href
    elif node.tag == "noframes":
        if inside is None:  # to a parser its content is text
            yield from _inner_links(node.text(), Inside.NOFRAMES)
    else:
        src = attributes.get("src")
        if src:
            yield node, attributes, src
        srcdoc = attributes.get("srcdoc")
        if srcdoc is not None and inside is not Inside.SRCDOC:
            yield from _inner_links(srcdoc, Inside.SRCDOC)


def _inner_links(html: str, inside: Inside) -> "Iterator[LinkElement]":
    """Yield the links of a document inside of a page."""
    for tree in HtmlDocument(html).trees():
        yield from link_elements(tree, inside)


def link_text(node: "LexborNode") -> str:
    """Return the text by which a person recognises a link."""
    name = _TEXT_ATTRIBUTES.get(node.tag or "")
    return node.text() if name is None else node.attributes.get(name) or ""


class ForeignContent:
    """Tells whether elements of one tree belong to a drawing or a formula. Each parent is looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        """Kind of the children of an element, by its `mem_id`: `svg`, `math`, `annotation-xml` (of a formula), or empty
        for those of HTML."""

    def __call__(self, node: "LexborNode") -> bool:
        """Return whether an element is one of a drawing or formula, not of HTML."""
        path: list[LexborNode] = []
        parent = node.parent
        while parent is not None and parent.mem_id not in self._known:
            path.append(parent)
            parent = parent.parent
        kind = "" if parent is None else self._known[parent.mem_id]
        for element in reversed(path):
            kind = _kind_inside(element, kind)
            self._known[element.mem_id] = kind
        return bool(kind)


def _kind_inside(element: "LexborNode", kind: str) -> str:
    """Return the kind of the elements inside of an element, which is of this kind itself."""
    name = (element.tag or "").lower()
    if not kind:
        return name if name in ("svg", "math") else ""
    if kind == "svg":
        return "" if name in _HTML_IN_SVG else kind
    if kind == "annotation-xml" and name == "svg":
        return name
    if name == "annotation-xml":
        return "" if (element.attributes.get("encoding") or "").lower() in _HTML_TYPES else name
    return "" if name in _HTML_IN_MATH else "math"
