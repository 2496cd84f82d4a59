"""Sources of fields: what CSS, XPath, JSON-LD, `meta` elements and regular expressions find on a page.

`fields.py` builds the fields of extraction rules from these. A source is looked up in a scope: the page, or the element
of one item. Every page has limits of items, text and time, which its values count against.

JSON-LD on the web is often broken. What people's editors and templates leave in it is tolerated: comments, trailing
commas and semicolons, CDATA, HTML comments, quotes as entities, several objects in one script, NaN. No function raises
for the content of a page.

Fixed: what a source finds on a given page and the meaning of paths, because running crawls have stored rules.
"""

import html
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from gossamer.errors import BadExtraction
from gossamer.extract.document import HtmlDocument, element_html, element_text, node_text, parse_for_xpath
from gossamer.extract.links import base_of
from gossamer.extract.selectors import CssSelector, XPathSelector, attribute_of, compile_css, compile_xpath
from gossamer.extract.values import Converter, clean
from gossamer.model.extraction import FieldType, ItemField, Path, checked

MAX_SCRIPTS = 50
"""Number of JSON-LD scripts of a page that are read. More take time."""
MAX_SCRIPT_CHARACTERS = 1024 * 1024
"""Length of all JSON-LD of a page together; the rest is not read. Repairing a megabyte takes 50 ms."""
_MAX_DEPTH = 40
"""Levels of nested objects in which a path is looked for. Stays below Python's recursion limit."""

# `type` may have parameters and any case: `Application/LD+JSON; charset=utf-8`.
_SCRIPTS = 'script[type^="application/ld+json" i]'


def json_ld(tree: LexborHTMLParser) -> list[Any]:
    """Return the JSON values in the page's JSON-LD scripts, in order. Scripts without any are left out."""
    found: list[Any] = []
    left = MAX_SCRIPT_CHARACTERS
    for script in tree.css(_SCRIPTS)[:MAX_SCRIPTS]:
        text = script.text()
        if len(text) > left:
            break
        left -= len(text)
        found += parse_json_ld(text)
    return found


# --- reading broken JSON ----------------------------------------------------------------------------------------------

_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda _name: None)
"""Decoder that accepts line breaks in strings, and reads NaN and infinities as null."""
# The beginnings of HTML comments and CDATA around a script.
_WRAPPERS = re.compile(r"\A[\s\ufeff]*+(?:(?:<!--|//\s*<!\[CDATA\[|/\*\s*<!\[CDATA\[\s*\*/|<!\[CDATA\[)[\s\ufeff]*+)++")
# What is no JSON: `parse_json_ld` replaces all but the strings, which are matched so that nothing in them is.
_PARTS = re.compile(
    r"""
    "(?:[^"\\]|\\.)*+(?:"|\Z)             # a string, which stays as it is
    |/\*.*?(?:\*/|\Z)                     # comments
    |//[^\n]*+
    |,(?=(?:\s|//[^\n]*+|/\*.*?\*/)*+[\]}])   # a comma before a closing bracket
    """,
    re.VERBOSE | re.DOTALL,
)
# Characters that may stand between two values of one script, and what may end a script.
_BETWEEN = " \t\r\n;,\ufeff"
_ENDS = ("-->", "]]>", "//]]>", "// ]]>", "/*]]>", "/* ]]>")


def parse_json_ld(text: str) -> list[Any]:
    """Return the JSON values in the text of a script, repaired where needed; those before a fault that remains."""
    values, complete = _values(text)
    if complete:
        return values
    repaired = _WRAPPERS.sub("", text)
    if '"' not in repaired and "&" in repaired:
        repaired = html.unescape(repaired)
    repaired = _PARTS.sub(lambda part: part[0] if part[0][0] == '"' else " ", repaired)
    again, _ = _values(repaired)
    return again if len(again) >= len(values) else values


def _values(text: str) -> tuple[list[Any], bool]:
    """Return the JSON values at the beginning of a text, one after another, and whether nothing else is there."""
    values: list[Any] = []
    at, end = 0, len(text)
    while True:
        while at < end and text[at] in _BETWEEN:
            at += 1
        if at == end or text.startswith(_ENDS, at):
            return values, True
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return values, False
        values.append(value)


# --- paths ------------------------------------------------------------------------------------------------------------


class _VisitBudget:
    """Objects and lists that may still be visited for one path. The functions below share and count it down."""

    left = 20_000  # more let a hostile page take more time


def look_up(values: list[Any], path: str) -> list[Any]:
    """Return what a path leads to in JSON-LD: texts, numbers, truth values and objects, in order.

    A path is a row of keys with dots: `offers.price`. Each element of a list counts; a number selects one: `image.0`. A
    first key with a capital letter is a type: `Product.name` looks in objects of that type, wherever they are. Without
    a type, a path begins at the objects of a script, or of its `@graph`.
    """
    keys, budget = path.split("."), _VisitBudget()
    if keys[0][:1].isupper():  # a type
        starts = [thing for value in values for thing in _of_type(value, keys[0], budget, 0)]
        keys = keys[1:]
    else:
        starts = [thing for value in values for thing in _top_objects(value, budget, 0)]
    found: list[Any] = []
    for start in starts:
        found += _follow(start, keys, budget, 0)
    return found


def _top_objects(value: Any, budget: _VisitBudget, depth: int) -> Iterator[dict[str, Any]]:
    """Yield the objects of a script, those of its `@graph` included."""
    budget.left -= 1
    if budget.left < 0 or depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for part in value:
            yield from _top_objects(part, budget, depth + 1)
    elif isinstance(value, dict):
        yield value
        if isinstance(graph := value.get("@graph"), list | dict):
            yield from _top_objects(graph, budget, depth + 1)


def _of_type(value: Any, name: str, budget: _VisitBudget, depth: int) -> Iterator[dict[str, Any]]:
    """Yield the objects of a type, at any depth, the outer ones first."""
    budget.left -= 1
    if budget.left < 0 or depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for part in value:
            yield from _of_type(part, name, budget, depth + 1)
    elif isinstance(value, dict):
        if _has_type(value.get("@type"), name):
            yield value
        for part in value.values():
            if isinstance(part, dict | list):
                yield from _of_type(part, name, budget, depth + 1)


def _has_type(types: Any, name: str) -> bool:
    """Return whether one of the types is this one, with or without the vocabulary: `http://schema.org/Product`."""
    return any(
        isinstance(one, str) and (one == name or one.replace("#", "/").rpartition("/")[2] == name)
        for one in (types if isinstance(types, list) else (types,))
    )


def _follow(value: Any, keys: list[str], budget: _VisitBudget, depth: int) -> list[Any]:
    """Return what the keys lead to from this value."""
    budget.left -= 1
    if budget.left < 0 or depth > _MAX_DEPTH or value is None:
        return []
    if isinstance(value, list):
        if keys and keys[0].isdecimal():
            index = int(keys[0]) if len(keys[0]) < 6 else len(value)  # no list has a million elements
            return _follow(value[index], keys[1:], budget, depth + 1) if index < len(value) else []
        return [found for part in value for found in _follow(part, keys, budget, depth + 1)]
    if not keys:
        return [value]
    if not isinstance(value, dict):
        return [value] if keys == ["0"] else []  # a single value, where other pages have a list
    return _follow(value.get(keys[0]), keys[1:], budget, depth + 1)


# Keys whose value stands for an object, as a text or as an address; the first that is present counts. Fixed.
_SCALAR_KEYS = ("@value", "name", "url", "@id")
_URL_KEYS = ("url", "contentUrl", "@id")


def scalar(value: Any, *, is_url: bool = False) -> str | int | float | bool | None:
    """Return the text or number that stands for a value; None: nothing does. An object stands for its `name` or,
    `is_url`, its address."""
    if not isinstance(value, dict):
        return value if isinstance(value, str | int | float | bool) else None
    for key in _URL_KEYS if is_url else _SCALAR_KEYS:
        part = value.get(key)
        if isinstance(part, list) and part:
            part = part[0]
        if isinstance(part, str | int | float | bool):
            return part
    return None


# --- meta -------------------------------------------------------------------------------------------------------------

_META_NAMES = ("property", "name", "itemprop", "http-equiv")  # attributes that name a `meta` element


def metas(tree: LexborHTMLParser) -> dict[str, list[str]]:
    """Return the contents of the page's `meta` elements by their `property`, `name`, `itemprop` or `http-equiv`, in
    lower case."""
    found: dict[str, list[str]] = {}
    for meta in tree.tags("meta"):
        attributes = meta.attributes
        content = attributes.get("content")
        if not content:
            continue
        for name in {(attributes.get(key) or "").strip().lower() for key in _META_NAMES}:
            if name:
                found.setdefault(name, []).append(content)
    return found


MAX_ITEMS = 10_000
"""Items of one page, nested ones included. A page near the limits takes memory and time."""
MAX_CHARACTERS = 8 * 1024 * 1024
"""Length of all values of one page. Nested elements repeat the same text, so a small page could fill the memory. Each
page that is read at the same time may take this much memory."""
MAX_QUADRATIC_TAGS = 20_000
"""Tags of a page beyond which selectors such as `:nth-child()` and `a ~ b` are not matched: their time grows with the
square of the elements of one parent. A page of that many tags takes a second or two."""
MAX_SECONDS = 2.0
"""Time for one page. The worker's other requests wait meanwhile."""


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
        """The JSON values of the page's JSON-LD."""
        tree = self.document.tree
        return json_ld(tree) if tree is not None else []

    @cached_property
    def metas(self) -> dict[str, list[str]]:
        """Contents of the page's `meta` elements, by name."""
        tree = self.document.tree
        return metas(tree) if tree is not None else {}

    @cached_property
    def text(self) -> str:
        """The HTML."""
        return self.document.data.decode("utf-8", "replace")

    @cached_property
    def _is_large(self) -> bool:
        return self.document.data.count(b"<") > MAX_QUADRATIC_TAGS

    def check(self, css: CssSelector) -> None:
        """Raise LimitReached for a selector that might take far too long on this page. Called before each use."""
        if css.is_quadratic and self._is_large:
            raise LimitReached
        self.check_time()

    def check_time(self) -> None:
        """Raise LimitReached if the time for the page is over. Called before whatever a page could make slow."""
        if time.perf_counter() > self._deadline:
            raise LimitReached

    def spend_item(self) -> None:
        """Count an item. Raises LimitReached."""
        self.check_time()
        self._items_left -= 1
        if self._items_left < 0:
            raise LimitReached

    def spend(self, value: object) -> None:
        """Count a value. Raises LimitReached."""
        self.characters_left -= len(value) if isinstance(value, str) else 8  # a number, for example; about
        if self.characters_left < 0:
            raise LimitReached


@dataclass(slots=True)
class Scope:
    """Where the fields of one item are looked for: the whole page, or one element of it."""

    page: PageScope
    node: LexborNode
    """The element; for the whole page, its `html` element."""
    is_page: bool
    """True: the scope is the whole page."""

    @property
    def html(self) -> str:
        """The HTML of the scope."""
        return self.page.text if self.is_page else self.node.html or ""

    @property
    def xpath_root(self) -> Any:
        """Element of lxml for this scope. None: there is none."""
        if self.is_page:
            return self.page.document.xpath_root
        # The parser of lxml puts an element into `html` and `body` or `head`, unless it is one of these itself.
        root = parse_for_xpath(self.html)
        for part in root if root is not None and root.tag != self.node.tag else ():
            if part.tag == self.node.tag:
                return part
            if len(part):
                return part[0]
        return root


# --- reading values ---------------------------------------------------------------------------------------------------

Finder = Callable[[Scope], Iterator[Any]]
"""Yields what a source finds, in order: texts, or scalars of JSON-LD. A reader returns the value of a field, made of
what was found: None where nothing has a value of the field's type."""


def first_css(css: CssSelector, read: Callable[[LexborNode], str | None], convert: Converter) -> Callable[[Scope], Any]:
    """Return the reader of the first match that has a value. Most fields are of this kind, so it is the fastest."""

    def first(scope: Scope) -> Any:
        page = scope.page
        page.check(css)
        node = css.first(scope.node)
        if node is None:
            return None
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
    """Return the reader of the first thing found that has a value."""

    def first(scope: Scope) -> Any:
        for found in find(scope):
            value = convert(found, scope.page)
            if value is not None:
                scope.page.spend(value)
                return value
        return None

    return first


def all_values(find: Finder, convert: Converter) -> Callable[[Scope], Any]:
    """Return the reader of a list of all values."""

    def read_all(scope: Scope) -> Any:
        values = []
        for found in find(scope):
            value = convert(found, scope.page)
            if value is not None:
                scope.page.spend(value)
                values.append(value)
        return values or None

    return read_all


_VALUE_ATTRIBUTES = {FieldType.URL: ("href", "src", "content", "data"), FieldType.DATE: ("datetime", "content")}
"""Attributes that hold the value of an element, by type: the first one present counts if a field names none. Fixed."""


def node_reader(given: ItemField, css: CssSelector, path: Path) -> Callable[[LexborNode], str | None]:
    """Return the function that reads what a field takes from an element. Raises BadExtraction."""
    if css.attribute is not None and given.attribute is not None:
        raise BadExtraction("contradicts ::attr(); write only one of them", (*path, "attribute"))
    name = css.attribute or (given.attribute and given.attribute.lower())  # HTML has them in lower case
    if name is not None:
        return lambda node: attribute_of(node, name)
    if given.type is FieldType.HTML:
        return lambda node: node.html
    names = _VALUE_ATTRIBUTES.get(given.type, ())
    if not names:
        return node_text

    def read(node: LexborNode) -> str | None:
        attributes = node.attributes
        return next((value for name in names if (value := attributes.get(name))), None) or node_text(node)

    return read


def finder(given: ItemField, source: str, expression: Any, path: Path) -> Finder:
    """Return the function that finds the field's values before their conversion. Raises BadExtraction.

    `source`: the field's source, one of `model.extraction.SOURCES`. `expression`: the compiled `regex`; it searches the
    HTML if it is the source, else the texts of the source. None: the field has none."""
    text = getattr(given, source)
    match source:
        case "css":
            css = checked((*path, "css"), lambda: compile_css(text))
            find = _css_finder(css, node_reader(given, css, path), count=given.type is FieldType.COUNT)
        case "xpath":
            find = _xpath_finder(checked((*path, "xpath"), lambda: compile_xpath(text)), given.type)
        case "jsonld":
            find = _jsonld_finder(text, is_url=given.type is FieldType.URL)
        case "meta":
            name = text.strip().lower()
            find = lambda scope: iter(scope.page.metas.get(name, ()))  # noqa: E731
        case _:
            return _regex_finder(expression, lambda scope: iter((scope.html,)))
    return find if expression is None else _regex_finder(expression, find)


def _css_finder(css: CssSelector, read: Callable[[LexborNode], str | None], *, count: bool) -> Finder:
    """`count`: True: yield the elements themselves, which are only counted."""

    def find(scope: Scope) -> Iterator[Any]:
        scope.page.check(css)
        if css.takes_text or count:
            yield from css.values(scope.node) if css.takes_text else css.select(scope.node)
            return
        yield from (found for node in css.select(scope.node) if (found := read(node)) is not None)

    return find


def _jsonld_finder(path: str, *, is_url: bool) -> Finder:
    def find(scope: Scope) -> Iterator[Any]:
        for found in look_up(scope.page.json_ld, path):
            value = scalar(found, is_url=is_url)
            if value is not None:
                yield value

    return find


def _xpath_finder(xpath: XPathSelector, kind: FieldType) -> Finder:
    names = _VALUE_ATTRIBUTES.get(kind, ())

    def find(scope: Scope) -> Iterator[Any]:
        scope.page.check_time()
        for found in xpath.select(scope.xpath_root):
            if not isinstance(found, str):  # an element
                found = element_html(found) if kind is FieldType.HTML else element_text(found, names)
            yield found

    return find


def _regex_finder(expression: Any, texts: Finder) -> Finder:
    """Return a finder of matches in the texts that another one finds: the first group, or the whole match."""

    def find(scope: Scope) -> Iterator[Any]:
        for text in texts(scope):
            for match in expression.finditer(clean(str(text))):
                scope.page.check_time()  # each search may read to the end of the text
                found = match[1] if expression.groups else match[0]
                if found:
                    yield found

    return find
