"""Compiled extraction rules: from the document of a page to its items.

A rule yields one item for a page, or one for each element that its selector `each` matches. A field of the rule takes
its value from the page or that element by a source: a CSS selector, XPath, JSON-LD, a `meta` element or a regular
expression. `CompiledExtraction` checks everything that can be checked before a crawl. Its `extract` then never raises
for the content of a page, and every page has limits of items, text and time.

Fixed: what a rule finds on a given page, because running crawls have stored rules; and that an item's keys have the
order of the rule, after `page_url`, because they become columns.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import re2
from selectolax.lexbor import LexborNode

from gossamer.errors import BadExtraction
from gossamer.extract.document import HtmlDocument
from gossamer.extract.selectors import CssSelector, compile_css
from gossamer.extract.sources import (
    MAX_CHARACTERS,
    LimitReached,
    PageScope,
    Scope,
    all_values,
    finder,
    first_css,
    first_value,
    node_reader,
)
from gossamer.extract.values import converter
from gossamer.model.extraction import (
    PAGE_URL,
    SOURCES,
    Extraction,
    FieldType,
    ItemField,
    ItemRule,
    Path,
    checked,
    read_extraction,
)
from gossamer.policy.scope import UrlExpressions, check_regex

# Approximate memory of a crawl's compiled rules and of each field, measured. With larger numbers, fewer crawls' rules
# are kept compiled.
_COMPILED_BYTES = 2000
_COMPILED_FIELD_BYTES = 3000


@dataclass(slots=True)
class RuleResult:
    """Items and counts of one rule on one page."""

    rule: int
    """Index of the rule in `Extraction.rules`."""
    items: list[dict[str, Any]] = field(default_factory=list)
    matches: int = 0
    """Number of elements that `each` found; 1 without `each`."""
    found: set[str] = field(default_factory=set)
    """Names of the rule's fields that had a value in at least one match, also in one that became no item."""
    lacking: dict[str, int] = field(default_factory=dict)
    """Matches that became no item: name of a required field that has no value there -> number of matches. A match
    without several required fields counts for the first of them; one without any value at all is not counted."""


@dataclass(slots=True)
class PageItems:
    """Items of one page."""

    results: list[RuleResult] = field(default_factory=list)
    """One for each rule that is for this URL."""
    cut: bool = False
    """True: a limit was reached; there may be more items on the page."""
    characters: int = 0
    """Approximate length of all values."""

    @property
    def items(self) -> list[dict[str, Any]]:
        """All items: those of the first rule, then those of the next."""
        return [item for result in self.results for item in result.items]


class CompiledExtraction:
    """Compiled rules of a crawl. It keeps nothing of the pages, so that many crawls and pages may share it."""

    def __init__(self, extraction: Extraction) -> None:
        """Raises BadExtraction with the place of the first selector, expression or type that cannot be used."""
        self._rules = [_Rule(rule, ("rules", index)) for index, rule in enumerate(extraction.rules)]
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
        page = PageScope(document, url)
        found = PageItems()
        try:
            for index, rule in enumerate(self._rules):
                if rule.is_for(url):
                    result = RuleResult(index)
                    found.results.append(result)  # before `extract`, which may end at a limit
                    rule.extract(page, result)
        except LimitReached:
            found.cut = True
        found.characters = MAX_CHARACTERS - page.characters_left
        return found


def check_rules(value: object) -> Extraction:
    """Return the rules that a decoded object describes, which compile here. Raises BadExtraction with the place of the
    first fault in the object."""
    extraction = read_extraction(value)
    try:
        CompiledExtraction(extraction)
    except BadExtraction as fault:
        # Without "rules", the object is the only rule itself: the path loses its beginning, ("rules", 0).
        is_only_rule = isinstance(value, Mapping) and "rules" not in value
        raise BadExtraction(fault.reason, fault.path[2:] if is_only_rule else fault.path) from None
    return extraction


def _count_fields(fields: Mapping[str, ItemField]) -> int:
    """Return the number of fields, nested ones included."""
    return sum(1 + (_count_fields(each.fields) if each.fields else 0) for each in fields.values())


class _Rule:
    """One compiled rule."""

    def __init__(self, rule: ItemRule, path: Path) -> None:
        """`path`: place of the rule in the decoded object, for errors."""
        for index, url in enumerate(rule.urls):
            checked((*path, "urls", index), lambda url=url: check_regex(url, "urls", linear=True))  # type: ignore[misc]
        self.urls = UrlExpressions(rule.urls, "urls", from_host=True)
        self._each = None if rule.each is None else _each_selector(rule.each, (*path, "each"))
        self._fields = _Fields(rule.fields, (*path, "fields"))

    def is_for(self, url: str) -> bool:
        """Return whether the rule is for pages at this URL."""
        return not self.urls.texts or self.urls.matches(url)

    def extract(self, page: PageScope, result: RuleResult) -> None:
        """Add what the rule finds to `result`. Raises LimitReached."""
        for scope in _scopes(page, page.node, self._each):
            result.matches += 1
            item: dict[str, Any] = {PAGE_URL: page.url}
            if self._fields.read(scope, item, result):
                result.items.append(item)


def _scopes(page: PageScope, node: LexborNode, each: CssSelector | None) -> Iterator[Scope]:
    """Yield a scope, in which one item is looked for, for each match of `each` inside of `node`; without `each`, one
    scope for `node` itself. Raises LimitReached."""
    if each is None:
        yield Scope(page, node, is_page=node is page.node)
        return
    page.check(each)
    for match in each.select(node):
        if match.mem_id != node.mem_id:  # a nested item is inside its outer one
            yield Scope(page, match, is_page=False)


class _Fields:
    """The compiled fields of a rule, or of a nested item."""

    def __init__(self, fields: Mapping[str, ItemField], path: Path) -> None:
        self._fields = [(name, _compile_field(field, (*path, name))) for name, field in fields.items()]

    def read(self, scope: Scope, item: dict[str, Any], result: RuleResult | None = None) -> bool:
        """Fill `item` from a scope. Returns whether it is an item: it has at least one value, and no required field
        is without one.

        `result`: gets the counts; None for a nested item, which is not counted. Raises LimitReached."""
        scope.page.spend_item()
        has_value = False
        first_missing = ""  # name of the first required field without a value
        for name, compiled in self._fields:
            value = compiled.read(scope)
            if value is None:
                item[name] = compiled.missing()
                if compiled.required and not first_missing:
                    first_missing = name
                continue
            item[name] = value
            if compiled.is_evidence(value):
                has_value = True
                if result is not None:
                    result.found.add(name)
        if first_missing and has_value and result is not None:
            result.lacking[first_missing] = result.lacking.get(first_missing, 0) + 1
        return has_value and not first_missing


class _CompiledField:
    """A field that can be read from a scope."""

    def __init__(self, given: ItemField, read: Callable[[Scope], Any]) -> None:
        self.read = read
        """Returns the value; None: there is none. A list is never empty. Raises LimitReached."""
        self.required = given.required
        self._default = given.default
        self._is_list = given.list or given.each is not None
        self._is_count = given.type is FieldType.COUNT

    def missing(self) -> Any:
        """Return what an item gets for this field where nothing was found: its default, or an empty list."""
        if self._default is None and self._is_list:
            return []
        # A copy of a list, because each item may be changed by itself.
        return list(self._default) if isinstance(self._default, list) else self._default

    def is_evidence(self, value: Any) -> bool:
        """Return whether a value shows that something was found: every value does, but for a count of 0, which a field
        of the type `count` has where it found nothing."""
        return not (self._is_count and value == 0)


def _compile_field(given: ItemField, path: Path) -> _CompiledField:
    """Return the field, ready to be read. Raises BadExtraction. There are four kinds of fields:

    - with `fields`: nested items
    - of the type `count`: the number of what the source finds
    - a single value of the elements that a CSS selector matches, as most fields are: a faster reader of the same values
    - any other: the first value or all values that the source finds, each converted to the type
    """
    if given.fields is not None:
        return _CompiledField(given, _nested_reader(given, given.fields, path))
    # `model.extraction` has checked that there is one source, or `regex` with another, whose texts it then searches.
    source = next(name for name in SOURCES if getattr(given, name) is not None)
    expression = None if given.regex is None else _compile_regex(given.regex, path)
    if given.type is FieldType.COUNT:
        find = finder(given, source, expression, path)
        return _CompiledField(given, lambda scope: sum(1 for _ in find(scope)))
    convert = checked((*path, "type"), lambda: converter(given.type, given.argument))
    if given.css is not None and expression is None and not given.list:
        selector = given.css
        css = checked((*path, "css"), lambda: compile_css(selector))
        if not css.takes_text:  # `::text` may yield several texts of one element
            return _CompiledField(given, first_css(css, node_reader(given, css, path), convert))
    find = finder(given, source, expression, path)
    return _CompiledField(given, all_values(find, convert) if given.list else first_value(find, convert))


def _compile_regex(text: str, path: Path) -> Any:
    """Return the RE2 expression of a field. Raises BadExtraction."""
    checked((*path, "regex"), lambda: check_regex(text, "regex", linear=True))
    options = re2.Options()
    options.log_errors = False
    return re2.compile(text, options)


def _nested_reader(given: ItemField, fields: Mapping[str, ItemField], path: Path) -> Callable[[Scope], Any]:
    """Return the reader of a field that holds items itself. With `each` it reads a list, one item for each match;
    without, a single item: from the first match of `css` or, without `css`, from the scope of the outer item. Both
    return None where there is no item."""
    compiled = _Fields(fields, (*path, "fields"))
    if given.each is not None:
        each = _each_selector(given.each, (*path, "each"))

        def read_all(scope: Scope) -> Any:
            items: list[dict[str, Any]] = []
            for inner in _scopes(scope.page, scope.node, each):
                item: dict[str, Any] = {}
                if compiled.read(inner, item):
                    items.append(item)
            return items or None

        return read_all
    css = None if given.css is None else _each_selector(given.css, (*path, "css"))

    def read_one(scope: Scope) -> Any:
        inner = scope
        if css is not None:
            scope.page.check(css)
            node = css.first(scope.node)
            if node is None:
                return None
            inner = Scope(scope.page, node, is_page=False)
        item: dict[str, Any] = {}
        return item if compiled.read(inner, item) else None

    return read_one


def _each_selector(text: str, path: Path) -> CssSelector:
    """Return a compiled selector of elements. Raises BadExtraction for one that selects texts or attributes."""
    css: CssSelector = checked(path, lambda: compile_css(text))
    if css.takes_text or css.attribute is not None:
        raise BadExtraction(f"{text!r} selects texts; select the elements, without ::text or ::attr()", path)
    return css
