"""Results of `page.css(...)` and `page.xpath(...)`: lists of elements, texts or attribute values.

Spiders, the Python API and `gossamer shell` use them. They behave like the selectors of Scrapy (parsel), which a test
compares: `::text` gives the text nodes directly inside an element, `get()` the first result, `getall()` all.

Fixed: the names of methods and what they return, because spiders outside this project use them; methods may be added.
CSS works on the tree of the HTML parser lexbor, XPath on a tree of lxml that is made on first use, which costs about
ten times as much as a CSS selector.
"""

import re as regex
from collections.abc import Callable
from typing import Any, SupportsIndex, overload

from selectolax.lexbor import LexborNode

from gossamer.extract.document import HtmlDocument
from gossamer.extract.selectors import compile_css, compile_xpath


class Selector:
    """One result of a selector: an element, a text, or the value of an attribute."""

    __slots__ = ("_node",)

    def __init__(self, node: Any) -> None:
        """`node`: element of lexbor or of lxml, or a text."""
        self._node = node

    @property
    def is_text(self) -> bool:
        """True: a text or the value of an attribute; False: an element."""
        return isinstance(self._node, str)

    def get(self) -> str:
        """Return the HTML of an element, or the text itself."""
        node = self._node
        if isinstance(node, str):
            return node
        if isinstance(node, LexborNode):
            return node.html or ""
        return _lxml_html(node)

    def getall(self) -> list[str]:
        """Return `get` in a list."""
        return [self.get()]

    @property
    def attrib(self) -> dict[str, str]:
        """Attributes of the element; an attribute without a value is empty."""
        node = self._node
        if isinstance(node, str):
            return {}
        attributes = node.attributes if isinstance(node, LexborNode) else node.attrib
        return {name: value or "" for name, value in attributes.items()}

    def css(self, selector: str) -> "SelectorList":
        """Return what the CSS selector matches in this element, which counts too. Raises BadInput."""
        return select_css(_lexbor_node(self._node), selector)

    def xpath(self, expression: str) -> "SelectorList":
        """Return what the XPath expression matches from this element. Raises BadInput."""
        return select_xpath(lambda: _lxml_node(self._node), expression)

    def re(self, pattern: str | regex.Pattern[str]) -> list[str]:
        """Return all matches of a regular expression in `get()`: their groups if it has some, else the whole match."""
        return matches(pattern, self.get())

    def re_first(self, pattern: str | regex.Pattern[str], default: str | None = None) -> str | None:
        """Return the first match; `default`: there is none."""
        return next(iter(self.re(pattern)), default)

    def __bool__(self) -> bool:
        return bool(self.get())

    def __str__(self) -> str:
        return self.get()

    def __repr__(self) -> str:
        text = self.get()
        return f"<Selector {text[:_SHOWN_CHARACTERS]!r}{'…' if len(text) > _SHOWN_CHARACTERS else ''}>"


_SHOWN_CHARACTERS = 60
"""Characters of a result that its `repr` shows."""


class SelectorList(list[Selector]):
    """Results of a selector, in document order. Methods with the name of a Selector's work on all of them."""

    @overload
    def __getitem__(self, at: SupportsIndex) -> Selector: ...
    @overload
    def __getitem__(self, at: slice) -> "SelectorList": ...
    def __getitem__(self, at: SupportsIndex | slice) -> "Selector | SelectorList":
        return SelectorList(super().__getitem__(at)) if isinstance(at, slice) else super().__getitem__(at)

    @overload
    def get(self) -> str | None: ...
    @overload
    def get(self, default: str) -> str: ...
    def get(self, default: str | None = None) -> str | None:
        """Return the first result as text: HTML of an element, text, or attribute. `default`: nothing was found."""
        return self[0].get() if self else default

    def getall(self) -> list[str]:
        """Return every result as text."""
        return [one.get() for one in self]

    @property
    def attrib(self) -> dict[str, str]:
        """Attributes of the first element; empty if nothing was found."""
        return self[0].attrib if self else {}

    def css(self, selector: str) -> "SelectorList":
        """Return what the CSS selector matches in each of the elements. Raises BadInput."""
        return SelectorList(found for one in self for found in one.css(selector))

    def xpath(self, expression: str) -> "SelectorList":
        """Return what the XPath expression matches from each of the elements. Raises BadInput."""
        return SelectorList(found for one in self for found in one.xpath(expression))

    def re(self, pattern: str | regex.Pattern[str]) -> list[str]:
        """Return all matches of a regular expression in all results."""
        return [found for one in self for found in one.re(pattern)]

    def re_first(self, pattern: str | regex.Pattern[str], default: str | None = None) -> str | None:
        """Return the first match of a regular expression; `default`: there is none."""
        return next((found for one in self for found in one.re(pattern)), default)


def matches(pattern: str | regex.Pattern[str], text: str) -> list[str]:
    """Return all matches of a regular expression: the group `extract` if it has one, else all groups of each match,
    else the whole match. A group that took no part is empty."""
    compiled = regex.compile(pattern)
    if "extract" in compiled.groupindex:
        return [match["extract"] or "" for match in compiled.finditer(text)]
    if compiled.groups:
        return [group or "" for match in compiled.finditer(text) for group in match.groups()]
    return [match[0] for match in compiled.finditer(text)]


# --- CSS --------------------------------------------------------------------------------------------------------------


def select_css(node: LexborNode | None, selector: str) -> SelectorList:
    """Return what the CSS selector matches below (or at) a node. None: there is no tree. Raises BadInput."""
    css = compile_css(selector)
    if node is None:
        return SelectorList()
    found = css.values(node) if css.takes_text or css.attribute is not None else css.select(node)
    return SelectorList(map(Selector, found))


def _lexbor_node(node: Any) -> LexborNode | None:
    """Return an element as one of a lexbor tree; None: it is a text."""
    if isinstance(node, str):
        return None
    return node if isinstance(node, LexborNode) else _as_lexbor(node)


# --- XPath ------------------------------------------------------------------------------------------------------------


def select_xpath(root: Callable[[], Any], expression: str) -> SelectorList:
    """Return what the XPath expression matches from a node of lxml, which `root` returns; None: there is no tree.
    Raises BadInput."""
    xpath = compile_xpath(expression)  # before `root`, which needs lxml: this says how to install it
    node = root()
    return SelectorList(map(Selector, xpath.select(node))) if node is not None else SelectorList()


_FRAMES = frozenset(("html", "head", "body"))
"""Elements that every document has once; a parser of fragments drops them. Fixed by HTML."""


def _lxml_node(node: Any) -> Any:
    """Return an element as one of an lxml tree; None: it is a text.

    An element of a lexbor tree becomes the root of a tree of its own, so that an expression finds what is in it, but
    not what is around it.
    """
    if not isinstance(node, LexborNode):
        return None if isinstance(node, str) else node
    from lxml import html

    try:
        if node.tag in _FRAMES:
            root = html.document_fromstring(node.html or "")
            return root if node.tag == "html" else root.find(node.tag)
        return html.fragment_fromstring(node.html or "")
    except Exception:
        return None


def _lxml_html(node: Any) -> str:
    """Return the HTML of an lxml element, without the text after it."""
    from lxml import html

    return str(html.tostring(node, encoding="unicode", with_tail=False))


_TABLE_PARTS = {
    "tr": "<table><tbody>",
    "td": "<table><tbody><tr>",
    "th": "<table><tbody><tr>",
    "thead": "<table>",
    "tbody": "<table>",
    "tfoot": "<table>",
    "caption": "<table>",
    "colgroup": "<table>",
    "col": "<table><colgroup>",
}
"""Elements that an HTML parser drops outside a table, and what has to be opened before them. Fixed by HTML."""


def _as_lexbor(element: Any) -> LexborNode | None:
    """Return an lxml element as one of a lexbor tree of its own."""
    tag = str(element.tag)
    tree = HtmlDocument(_TABLE_PARTS.get(tag, "") + _lxml_html(element)).tree
    return tree.css_first(tag) if tree is not None else None
