"""Sources of fields: what CSS, XPath, JSON-LD, `meta` elements and regular expressions find on a page.

`fields.py` builds the fields of extraction rules from these. A source is looked up in a scope: the page, or the element
of one item. Every page has limits of items, text and time, which its values count against.

Safe to change: the limits. Fixed: what a source finds on a given page, because running crawls have stored rules.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from selectolax.lexbor import LexborNode

from gossamer.errors import BadExtraction, BadInput
from gossamer.extract.document import HtmlDocument, element_html, element_text, node_text, parse_for_xpath
from gossamer.extract.links import base_of
from gossamer.extract.selectors import CssSelector, XPathSelector, attribute_of, compile_css, compile_xpath
from gossamer.extract.structured import json_ld, look_up, metas, scalar
from gossamer.extract.values import Converter, clean
from gossamer.model.extraction import FieldType, ItemField, Path

MAX_ITEMS = 10_000
"""Items of one page, nested ones included. May be changed: a page near the limits takes memory and time."""
MAX_CHARACTERS = 8 * 1024 * 1024
"""Length of all values of one page. Nested elements repeat the same text, so a small page could fill the memory."""
MAX_SECONDS = 2.0
"""Time for one page, checked between two values. The worker's other requests wait meanwhile."""


class LimitReached(Exception):
    """Raised at MAX_ITEMS, MAX_CHARACTERS or MAX_SECONDS."""


class PageScope:
    """A page that fields are taken from, with what several of them need, each part made on first use."""

    def __init__(self, document: HtmlDocument, url: str) -> None:
        self.document = document
        self.url = url
        self._items_left = MAX_ITEMS
        self.characters_left = MAX_CHARACTERS
        """Length of values that the page may still have; negative after the limit."""
        self._deadline = time.perf_counter() + MAX_SECONDS

    @cached_property
    def node(self) -> LexborNode:
        """The page's `html` element."""
        root = self.document.root
        return root if root is not None else HtmlDocument("<html>").root  # type: ignore[return-value]

    @cached_property
    def base(self) -> str:
        """URL that relative links are resolved against."""
        tree = self.document.tree
        return self.document.base or (tree and base_of(tree, self.url)) or self.url

    @cached_property
    def json_ld(self) -> list[Any]:
        tree = self.document.tree
        return json_ld(tree) if tree is not None else []

    @cached_property
    def metas(self) -> dict[str, list[str]]:
        tree = self.document.tree
        return metas(tree) if tree is not None else {}

    @cached_property
    def text(self) -> str:
        """The HTML."""
        return self.document.data.decode("utf-8", "replace")

    def spend_item(self) -> None:
        """Count an item. Raises LimitReached."""
        self._items_left -= 1
        if self._items_left < 0 or time.perf_counter() > self._deadline:
            raise LimitReached

    def spend(self, value: object) -> None:
        """Count a value. Raises LimitReached."""
        self.characters_left -= len(value) if isinstance(value, str) else 8
        if self.characters_left < 0:
            raise LimitReached


@dataclass(slots=True)
class Scope:
    """Where the fields of one item are looked for: the whole page, or one element of it."""

    page: PageScope
    node: LexborNode
    is_page: bool

    @property
    def html(self) -> str:
        return self.page.text if self.is_page else self.node.html or ""

    @property
    def xpath_root(self) -> Any:
        """Element of lxml for this scope. None: there is none."""
        if self.is_page:
            return self.page.document.xpath_root
        root = parse_for_xpath(self.html)
        body = root.find("body") if root is not None else None
        return body[0] if body is not None and len(body) else root


def checked(path: Path, check: Callable[[], Any]) -> Any:
    """Return the result of `check`, with its BadInput raised as a fault at this path."""
    try:
        return check()
    except BadExtraction:
        raise
    except BadInput as fault:
        raise BadExtraction(fault.detail, path) from None


# --- reading values ---------------------------------------------------------------------------------------------------

Finder = Callable[[Scope], Iterator[Any]]
"""Yields what a source finds, in order: texts, or scalars of JSON-LD."""


def first_css(css: CssSelector, read: Callable[[LexborNode], str | None], convert: Converter) -> Callable[[Scope], Any]:
    """Return the reader of the first match that has a value. Most fields are of this kind, so it is the fastest."""

    def first(scope: Scope) -> Any:
        node = css.first(scope.node)
        if node is None:
            return None
        page = scope.page
        found = read(node)
        value = None if found is None else convert(found, page)
        if value is None:
            for other in css.select(scope.node)[1:]:
                found = read(other)
                value = None if found is None else convert(found, page)
                if value is not None:
                    break
            else:
                return None
        page.spend(value)
        return value

    return first


def first_value(find: Finder, convert: Converter) -> Callable[[Scope], Any]:
    def first(scope: Scope) -> Any:
        for found in find(scope):
            value = convert(found, scope.page)
            if value is not None:
                scope.page.spend(value)
                return value
        return None

    return first


def all_values(find: Finder, convert: Converter) -> Callable[[Scope], Any]:
    def read_all(scope: Scope) -> Any:
        values = []
        for found in find(scope):
            value = convert(found, scope.page)
            if value is not None:
                scope.page.spend(value)
                values.append(value)
        return values or None

    return read_all


_ADDRESSES = {FieldType.URL: ("href", "src", "content", "data"), FieldType.DATE: ("datetime", "content")}
"""Attributes that an element holds its value in, by type. Used where a field names none."""


def node_reader(given: ItemField, css: CssSelector, path: Path) -> Callable[[LexborNode], str | None]:
    """Return the function that reads what a field takes from an element. Raises BadExtraction."""
    if css.attribute is not None and given.attribute is not None:
        raise BadExtraction("contradicts ::attr(); write only one of them", (*path, "attribute"))
    name = css.attribute or given.attribute
    if name is not None:
        return lambda node: attribute_of(node, name)
    if given.type is FieldType.HTML:
        return lambda node: node.html
    names = _ADDRESSES.get(given.type, ())
    if not names:
        return node_text

    def read(node: LexborNode) -> str | None:
        attributes = node.attributes
        return next((value for name in names if (value := attributes.get(name))), None) or node_text(node)

    return read


def finder(given: ItemField, source: str, expression: Any, path: Path) -> Finder:
    """Return the function that finds the field's values before their conversion. Raises BadExtraction."""
    text = getattr(given, source)
    match source:
        case "css":
            css = checked((*path, "css"), lambda: compile_css(text))
            find = _css_finder(css, node_reader(given, css, path), count=given.type is FieldType.COUNT)
        case "xpath":
            find = _xpath_finder(checked((*path, "xpath"), lambda: compile_xpath(text)), given.type)
        case "jsonld":
            is_url = given.type is FieldType.URL
            find = _jsonld_finder(text, is_url=is_url)
        case "meta":
            name = text.strip().lower()
            find = lambda scope: iter(scope.page.metas.get(name, ()))  # noqa: E731
        case _:
            return _regex_finder(expression, lambda scope: iter((scope.html,)))
    return find if expression is None else _regex_finder(expression, find)


def _css_finder(css: CssSelector, read: Callable[[LexborNode], str | None], *, count: bool) -> Finder:
    if css.takes_text:
        return lambda scope: iter(css.values(scope.node))
    if count:
        return lambda scope: iter(css.select(scope.node))

    def find(scope: Scope) -> Iterator[Any]:
        for node in css.select(scope.node):
            found = read(node)
            if found is not None:
                yield found

    return find


def _jsonld_finder(path: str, *, is_url: bool) -> Finder:
    def find(scope: Scope) -> Iterator[Any]:
        for found in look_up(scope.page.json_ld, path):
            value = scalar(found, is_url=is_url)
            if value is not None:
                yield value

    return find


def _xpath_finder(xpath: XPathSelector, kind: FieldType) -> Finder:
    def find(scope: Scope) -> Iterator[Any]:
        root = scope.xpath_root
        for found in xpath.select(root) if root is not None else ():
            if isinstance(found, str):
                yield found
            else:
                yield element_html(found) if kind is FieldType.HTML else element_text(found)

    return find


def _regex_finder(expression: Any, texts: Finder) -> Finder:
    """Return a finder of matches in the texts that another one finds: the first group, or the whole match."""

    def find(scope: Scope) -> Iterator[Any]:
        for text in texts(scope):
            for match in expression.finditer(clean(str(text))):
                found = match[1] if expression.groups else match[0]
                if found:
                    yield found

    return find
