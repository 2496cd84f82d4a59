"""Compiled extraction rules: from the document of a page to its items.

`compile_extraction` checks everything that can be checked before a crawl. `CompiledExtraction.extract` then never
raises for the content of a page, and every page has limits of items, text and time.

Safe to change: the limits. Fixed: what a rule finds on a given page, because running crawls have stored rules; and that
an item's keys have the order of the rule, after `page_url`, because they become columns.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import re2
from selectolax.lexbor import LexborNode

from gossamer.errors import BadExtraction, BadInput
from gossamer.extract.document import HtmlDocument, element_html, element_text, node_text, parse_for_xpath
from gossamer.extract.links import base_of
from gossamer.extract.selectors import CssSelector, XPathSelector, attribute_of, compile_css, compile_xpath
from gossamer.extract.structured import json_ld, look_up, metas, scalar
from gossamer.extract.values import Converter, clean, converter
from gossamer.model.extraction import Extraction, FieldType, ItemField, ItemRule, Path
from gossamer.policy.scope import RegexSet, check_regex

MAX_ITEMS = 10_000
"""Items of one page, nested ones included. May be changed: a page near the limits takes memory and time."""
MAX_CHARACTERS = 8 * 1024 * 1024
"""Length of all values of one page. Nested elements repeat the same text, so a small page could fill the memory."""
MAX_SECONDS = 2.0
"""Time for one page, checked between two values. The worker's other requests wait meanwhile."""

_COMPILED_BYTES = 2000
_COMPILED_FIELD_BYTES = 3000
"""Approximate memory of compiled rules and of a field, measured. Tuning only: larger ones keep fewer rules compiled."""


@dataclass(slots=True)
class RuleResult:
    """What one rule found on one page."""

    rule: int
    """Position of the rule."""
    items: list[dict[str, Any]] = field(default_factory=list)
    found: set[str] = field(default_factory=set)
    """Names of the rule's fields that had a value in at least one match, also in one that became no item."""
    lacking: dict[str, int] = field(default_factory=dict)
    """Number of matches that became no item, by the required field that they lack."""
    matches: int = 0
    """Number of elements that `each` found; 1 without `each`."""


@dataclass(slots=True)
class PageItems:
    """Items of one page."""

    results: list[RuleResult] = field(default_factory=list)
    """One for each rule that is for this URL."""
    cut: bool = False
    """True: a limit was reached; there may be more items on the page."""

    @property
    def items(self) -> list[dict[str, Any]]:
        """All items: those of the first rule, then those of the next."""
        return [item for result in self.results for item in result.items]


class CompiledExtraction:
    """Compiled rules of a crawl. It keeps nothing of the pages, so that many crawls and pages may share it."""

    def __init__(self, extraction: Extraction) -> None:
        """Raises BadExtraction with the place of the first selector, expression or type that cannot be used."""
        single = len(extraction.rules) == 1
        self._rules = [_Rule(rule, at, () if single else ("rules", at)) for at, rule in enumerate(extraction.rules)]
        self.rules = extraction.rules
        self.estimated_bytes = (
            _COMPILED_BYTES
            + sum(rule.urls.estimated_bytes for rule in self._rules)
            + _COMPILED_FIELD_BYTES * sum(map(_count_fields, (rule.fields for rule in extraction.rules)))
        )
        """Approximate memory of the compiled rules."""

    def is_for(self, url: str) -> bool:
        """Return whether a rule is for pages at this URL."""
        return any(rule.is_for(url) for rule in self._rules)

    def extract(self, document: HtmlDocument, url: str) -> PageItems | None:
        """Return the items of a page whose response URL is `url`. None: it is too costly to parse, so nothing was
        looked for."""
        if document.tree is None:
            return None
        page = _PageScope(document, url)
        found = PageItems()
        for rule in self._rules:
            if rule.is_for(url):
                try:
                    found.results.append(rule.extract(page))
                except _LimitReached as limit:
                    found.results.append(limit.result or RuleResult(rule.number))
                    found.cut = True
                    break
        return found


def compile_extraction(extraction: Extraction) -> CompiledExtraction:
    """Return the compiled rules. Raises BadExtraction."""
    return CompiledExtraction(extraction)


def rule_label(rule: ItemRule, at: int, count: int) -> str:
    """Return the name of a rule for people. `at`: its position; `count`: number of rules."""
    return rule.name or ("rule" if count == 1 else f"rules[{at}]")


def _count_fields(fields: Mapping[str, ItemField]) -> int:
    return sum(1 + (_count_fields(each.fields) if each.fields else 0) for each in fields.values())


class _LimitReached(Exception):
    """Raised at MAX_ITEMS, MAX_CHARACTERS or MAX_SECONDS. `result`: what the rule has found until then."""

    result: RuleResult | None = None


class _PageScope:
    """A page that fields are taken from, with what several of them need, each part made on first use."""

    def __init__(self, document: HtmlDocument, url: str) -> None:
        self.document = document
        self.url = url
        self._items_left = MAX_ITEMS
        self._characters_left = MAX_CHARACTERS
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
        return (tree and base_of(tree, self.url)) or self.url

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
        """Count an item. Raises _LimitReached."""
        self._items_left -= 1
        if self._items_left < 0 or time.perf_counter() > self._deadline:
            raise _LimitReached

    def spend(self, value: object) -> None:
        """Count a value. Raises _LimitReached."""
        self._characters_left -= len(value) if isinstance(value, str) else 8
        if self._characters_left < 0:
            raise _LimitReached


@dataclass(slots=True)
class _Scope:
    """Where the fields of one item are looked for: the whole page, or one element of it."""

    page: _PageScope
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


class _Rule:
    """One compiled rule."""

    def __init__(self, rule: ItemRule, number: int, path: Path) -> None:
        self.number = number
        for at, url in enumerate(rule.urls):
            _checked((*path, "urls", at), lambda url=url: check_regex(url, "urls", linear=True))  # type: ignore[misc]
        self.urls = RegexSet(rule.urls, "urls")
        self._each = None if rule.each is None else _each_selector(rule.each, (*path, "each"))
        self._fields = _Fields(rule.fields, (*path, "fields"))

    def is_for(self, url: str) -> bool:
        """Return whether the rule is for pages at this URL."""
        return not self.urls.texts or self.urls.matches(url)

    def extract(self, page: _PageScope) -> RuleResult:
        """Return what the rule finds. Raises _LimitReached with what was found until then."""
        result = RuleResult(self.number)
        try:
            for scope in _scopes(page, page.node, self._each):
                result.matches += 1
                item: dict[str, Any] = {"page_url": page.url}
                if self._fields.read(scope, item, result):
                    result.items.append(item)
        except _LimitReached as limit:
            limit.result = result
            raise
        return result


def _scopes(page: _PageScope, node: LexborNode, each: CssSelector | None) -> Iterator[_Scope]:
    """Yield the scope of the page, or one for each match of `each` in an element."""
    if each is None:
        yield _Scope(page, node, node is page.node)
        return
    for match in each.select(node):
        if match.mem_id != node.mem_id:  # a nested item is inside its outer one
            yield _Scope(page, match, False)


class _Fields:
    """The compiled fields of a rule, or of a nested item."""

    def __init__(self, fields: Mapping[str, ItemField], path: Path) -> None:
        self._fields = [(name, _compile_field(field, (*path, name))) for name, field in fields.items()]

    def read(self, scope: _Scope, item: dict[str, Any], result: RuleResult | None = None) -> bool:
        """Add the fields to an item. Returns whether it is one: it has at least one value and no required one is
        missing. `result`: notes what was found. Raises _LimitReached."""
        scope.page.spend_item()
        any_found, lacking = False, ""
        for name, compiled in self._fields:
            value = compiled.read(scope)
            if value is None:
                item[name] = compiled.missing()
                lacking = lacking or (name if compiled.required else "")
                continue
            item[name] = value
            any_found = any_found or compiled.is_evidence(value)
            if result is not None and compiled.is_evidence(value):
                result.found.add(name)
        if lacking and result is not None and any_found:
            result.lacking[lacking] = result.lacking.get(lacking, 0) + 1
        return any_found and not lacking


class _CompiledField:
    """A field that can be read from a scope."""

    def __init__(self, given: ItemField, read: Callable[[_Scope], Any]) -> None:
        self.read = read
        """Returns the value; None: there is none. A list is never empty. Raises _LimitReached."""
        self.required = given.required
        self._default = given.default
        self._is_list = given.list or given.each is not None

    def missing(self) -> Any:
        """Return the value of an item without this field."""
        if self._default is None and self._is_list:
            return []
        return list(self._default) if isinstance(self._default, list) else self._default

    @staticmethod
    def is_evidence(value: Any) -> bool:
        """Return whether a value shows that something was found: a count of 0 does not."""
        return value != 0 or isinstance(value, bool)


def _compile_field(given: ItemField, path: Path) -> _CompiledField:
    """Return the compiled field. Raises BadExtraction."""
    if given.fields is not None:
        return _CompiledField(given, _nested(given, given.fields, path))
    source = next(name for name in ("css", "xpath", "jsonld", "meta", "regex") if getattr(given, name) is not None)
    expression = None
    if given.regex is not None:
        _checked((*path, "regex"), lambda: check_regex(given.regex or "", "regex", linear=True))
        options = re2.Options()
        options.log_errors = False
        expression = re2.compile(given.regex, options)
    if given.type is FieldType.COUNT:
        find = _finder(given, source, expression, path)
        return _CompiledField(given, lambda scope: sum(1 for _ in find(scope)))
    convert = _checked((*path, "type"), lambda: converter(given.type, given.argument))
    if source == "css" and expression is None and not given.list:
        css = _checked((*path, "css"), lambda: compile_css(given.css or ""))
        if not css.takes_text:
            return _CompiledField(given, _first_css(css, _node_reader(given, css, path), convert))
    find = _finder(given, source, expression, path)
    return _CompiledField(given, _all_values(find, convert) if given.list else _first_value(find, convert))


def _nested(given: ItemField, fields: Mapping[str, ItemField], path: Path) -> Callable[[_Scope], Any]:
    """Return the reader of nested items: a list for `each`, else one or None."""
    compiled = _Fields(fields, (*path, "fields"))
    if given.each is not None:
        each = _each_selector(given.each, (*path, "each"))

        def read_all(scope: _Scope) -> Any:
            items: list[dict[str, Any]] = []
            for inner in _scopes(scope.page, scope.node, each):
                item: dict[str, Any] = {}
                if compiled.read(inner, item):
                    items.append(item)
            return items or None

        return read_all
    css = None if given.css is None else _each_selector(given.css, (*path, "css"))

    def read_one(scope: _Scope) -> Any:
        inner = scope
        if css is not None:
            node = css.first(scope.node)
            if node is None:
                return None
            inner = _Scope(scope.page, node, False)
        item: dict[str, Any] = {}
        return item if compiled.read(inner, item) else None

    return read_one


def _each_selector(text: str, path: Path) -> CssSelector:
    css = _checked(path, lambda: compile_css(text))
    if css.takes_text or css.attribute is not None:
        raise BadExtraction(f"{text!r} selects texts; select the elements, without ::text or ::attr()", path)
    return css


def _checked(path: Path, check: Callable[[], Any]) -> Any:
    """Return the result of `check`, with its BadInput raised as a fault at this path."""
    try:
        return check()
    except BadExtraction:
        raise
    except BadInput as fault:
        raise BadExtraction(fault.detail, path) from None


# --- reading values ---------------------------------------------------------------------------------------------------

_Finder = Callable[[_Scope], Iterator[Any]]
"""Yields what a source finds, in order: texts, or scalars of JSON-LD."""


def _first_css(
    css: CssSelector, read: Callable[[LexborNode], str | None], convert: Converter
) -> Callable[[_Scope], Any]:
    """Return the reader of the first match that has a value. Most fields are of this kind, so it is the fastest."""

    def first(scope: _Scope) -> Any:
        node = css.first(scope.node)
        if node is None:
            return None
        page = scope.page
        found = read(node)
        value = None if found is None else convert(found, page.base)
        if value is None:
            for other in css.select(scope.node)[1:]:
                found = read(other)
                value = None if found is None else convert(found, page.base)
                if value is not None:
                    break
            else:
                return None
        page.spend(value)
        return value

    return first


def _first_value(find: _Finder, convert: Converter) -> Callable[[_Scope], Any]:
    def first(scope: _Scope) -> Any:
        for found in find(scope):
            value = convert(found, scope.page.base)
            if value is not None:
                scope.page.spend(value)
                return value
        return None

    return first


def _all_values(find: _Finder, convert: Converter) -> Callable[[_Scope], Any]:
    def read_all(scope: _Scope) -> Any:
        values = []
        for found in find(scope):
            value = convert(found, scope.page.base)
            if value is not None:
                scope.page.spend(value)
                values.append(value)
        return values or None

    return read_all


_ADDRESSES = {FieldType.URL: ("href", "src", "content", "data"), FieldType.DATE: ("datetime", "content")}
"""Attributes that an element holds its value in, by type. Used where a field names none."""


def _node_reader(given: ItemField, css: CssSelector, path: Path) -> Callable[[LexborNode], str | None]:
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


def _finder(given: ItemField, source: str, expression: Any, path: Path) -> _Finder:
    """Return the function that finds the field's values before their conversion. Raises BadExtraction."""
    text = getattr(given, source)
    match source:
        case "css":
            css = _checked((*path, "css"), lambda: compile_css(text))
            find = _css_finder(css, _node_reader(given, css, path), count=given.type is FieldType.COUNT)
        case "xpath":
            find = _xpath_finder(_checked((*path, "xpath"), lambda: compile_xpath(text)), given.type)
        case "jsonld":
            is_url = given.type is FieldType.URL
            find = _jsonld_finder(text, is_url=is_url)
        case "meta":
            name = text.strip().lower()
            find = lambda scope: iter(scope.page.metas.get(name, ()))  # noqa: E731
        case _:
            return _regex_finder(expression, lambda scope: iter((scope.html,)))
    return find if expression is None else _regex_finder(expression, find)


def _css_finder(css: CssSelector, read: Callable[[LexborNode], str | None], *, count: bool) -> _Finder:
    if css.takes_text:
        return lambda scope: iter(css.values(scope.node))
    if count:
        return lambda scope: iter(css.select(scope.node))

    def find(scope: _Scope) -> Iterator[Any]:
        for node in css.select(scope.node):
            found = read(node)
            if found is not None:
                yield found

    return find


def _jsonld_finder(path: str, *, is_url: bool) -> _Finder:
    def find(scope: _Scope) -> Iterator[Any]:
        for found in look_up(scope.page.json_ld, path):
            value = scalar(found, is_url=is_url)
            if value is not None:
                yield value

    return find


def _xpath_finder(xpath: XPathSelector, kind: FieldType) -> _Finder:
    def find(scope: _Scope) -> Iterator[Any]:
        root = scope.xpath_root
        for found in xpath.select(root) if root is not None else ():
            if isinstance(found, str):
                yield found
            else:
                yield element_html(found) if kind is FieldType.HTML else element_text(found)

    return find


def _regex_finder(expression: Any, texts: _Finder) -> _Finder:
    """Return a finder of matches in the texts that another one finds: the first group, or the whole match."""

    def find(scope: _Scope) -> Iterator[Any]:
        for text in texts(scope):
            for match in expression.finditer(clean(str(text))):
                found = match[1] if expression.groups else match[0]
                if found:
                    yield found

    return find
