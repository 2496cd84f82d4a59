"""Extraction rules: which items a crawl takes from its pages, without code.

One object describes them, the same in a file for `--extract`, in the field `extract` of requests (the schema
`crawl.json` repeats its shape; a test compares) and in the stored options of a crawl:

    rules:                                   # or the keys of the only rule
    - urls: ['/p/']                          # RE2; absent: every page
      each: .product                         # absent: one item a page
      fields:
        title: h1                            # short form, as for --field
        price: {css: .price, type: price, required: true}
        offers: {each: .offer, fields: {seller: .seller}}

`read_extraction` reads it, and names the place of a fault. Whether selectors parse is checked by `extract/fields.py`.

Fixed: names and defaults of keys, and what a short form means, because users' files and running crawls contain them;
keys and types may be added. Stored rules omit defaults, so no default may change.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from gossamer.errors import BadExtraction, BadInput

# Limits. With lower ones, workers would refuse rules of running crawls.
MAX_BYTES = 32 * 1024
"""Largest object, as JSON. Each worker of a crawl holds the compiled rules."""
MAX_RULES = 50
"""Largest number of rules, and of expressions for the URLs of one rule."""
MAX_FIELDS = 200
"""Largest number of fields of all rules together, nested ones included."""
MAX_NESTED = 5
"""Levels of fields: 1 is a rule without nested fields."""
MAX_NAME_LENGTH = 100
"""Longest name of a rule or field, in characters."""
MAX_TEXT_LENGTH = 1000
"""Longest selector, path or expression, in characters."""


class FieldType(StrEnum):
    """Type of a field's value."""

    TEXT = "text"
    """Text without surplus white space. Argument: `lower`, `upper` or `title` for the case of its letters."""
    NUMBER = "number"
    """Number. Argument: the decimal mark, `.` (default) or `,`, which decides only where both would be possible."""
    PRICE = "price"
    """Amount of a price. Argument: the decimal mark."""
    CURRENCY = "currency"
    """Currency of a price, as written."""
    DATE = "date"
    """Date or time in ISO 8601. Argument: languages (`en,de`), or a format with `%` (`%d.%m.%Y`)."""
    URL = "url"
    """Absolute URL."""
    HTML = "html"
    """HTML of the element."""
    COUNT = "count"
    """Number of matches."""


_WITH_ARGUMENT = (FieldType.TEXT, FieldType.NUMBER, FieldType.PRICE, FieldType.DATE)
"""Types that may have an argument behind a colon, as in `number:,`. Types may be added, none removed."""
SOURCES = ("css", "xpath", "jsonld", "meta", "regex")
"""Sources of a field. The short form writes all but CSS as a prefix with a colon. `regex` must stay the last: with
another source it searches the texts that this one finds."""
_FIELD_KEYS = (*SOURCES, "attribute", "type", "list", "required", "default", "each", "fields")
"""Keys of a field: the fields of ItemField, but `argument`, which is part of the type."""
_RULE_KEYS = ("name", "urls", "each", "fields")
"""Keys of a rule: the fields of ItemRule."""
PAGE_URL = "page_url"
"""First field of every item: the URL of its page."""


class ItemField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One field of an item."""

    css: str | None = None
    xpath: str | None = None
    jsonld: str | None = None
    """Path of keys in JSON-LD objects: `offers.price`, or `Product.name` with the type of the object."""
    meta: str | None = None
    """Name or property of a `meta` element: `og:title`."""
    regex: str | None = None
    """RE2 expression; its first group counts, else the whole match. Alone: in the HTML; with another source: in its
    text."""
    attribute: str | None = None
    """Attribute of the element that `css` finds. None: its text."""
    type: FieldType = FieldType.TEXT
    argument: str = ""
    """Argument of the type, written behind it with a colon. Empty: none."""
    list: bool = False
    """True: all matches as a list; False: the first one that has a value of this type."""
    required: bool = False
    """True: there is no item without this field."""
    default: Any = None
    """Value of the field if it is missing."""
    each: str | None = None
    """CSS selector: one nested item for each match. Then, and with `css`, `fields` are taken from the element."""
    fields: "dict[str, ItemField] | None" = None


class ItemRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields of the items of some pages."""

    name: str = ""
    urls: tuple[str, ...] = ()
    """RE2 expressions, one of which is found in the URL of the response. Empty: every page."""
    each: str | None = None
    """CSS selector: one item for each match. None: one item for each page."""
    fields: dict[str, ItemField]


class Extraction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All rules of a crawl. A page may yield items by several of them."""

    rules: tuple[ItemRule, ...]


RULE = "rule"
"""Name of an only rule that has none of its own."""


def rule_label(rule: ItemRule, index: int, count: int) -> str:
    """Return the name of a rule for people. `index`: its position from 0; `count`: number of rules."""
    return rule.name or (RULE if count == 1 else f"rules[{index}]")


def field_names(extraction: Extraction) -> list[str]:
    """Return the names of the fields of all rules, each once, in their order."""
    return list(dict.fromkeys(name for rule in extraction.rules for name in rule.fields))


Path = tuple[str | int, ...]
"""Place in a decoded object, for errors: keys and positions from the outside, as in ("rules", 0, "fields", "price")."""


def checked(path: Path, check: Callable[[], Any]) -> Any:
    """Return the result of `check`, with its BadInput raised as a fault at this path."""
    try:
        return check()
    except BadExtraction:
        raise
    except BadInput as fault:
        raise BadExtraction(fault.detail, path) from None


def read_extraction(value: object) -> Extraction:
    """Return the rules that a decoded JSON, YAML or TOML object describes. Raises BadExtraction with the place of the
    first fault."""
    given = _mapping(value, ())
    reader = _RuleReader()
    if "rules" in given:
        _check_keys(given, ("rules",), ())
        rules = given["rules"]
        if not isinstance(rules, list | tuple) or not rules:
            raise BadExtraction("must be a list of rules", ("rules",))
        if len(rules) > MAX_RULES:
            raise BadExtraction(f"has {len(rules):,} rules; at most {MAX_RULES} are accepted", ("rules",))
        extraction = Extraction(rules=tuple(reader.rule(rule, ("rules", at)) for at, rule in enumerate(rules)))
    else:
        extraction = Extraction(rules=(reader.rule(given, ()),))
    try:
        size = len(msgspec.json.encode(extraction))
    except (UnicodeEncodeError, RecursionError, TypeError):
        raise BadExtraction("holds text that is not valid Unicode, or a value that JSON does not have") from None
    if size > MAX_BYTES:
        raise BadExtraction(f"has {size:,} bytes; at most {MAX_BYTES:,} are accepted")
    return extraction


class _RuleReader:
    """Reads rules, and counts their fields. `path`: place of a value in the whole object. All raise BadExtraction."""

    def __init__(self) -> None:
        self._count = 0
        """Number of fields so far."""

    def rule(self, value: object, path: Path) -> ItemRule:
        """Return a rule. An empty path: it is the whole object, so a key may be meant to be `rules`."""
        given = _mapping(value, path)
        _check_keys(given, (*_RULE_KEYS, "rules") if not path else _RULE_KEYS, path)
        if "fields" not in given:
            raise BadExtraction("is missing; write NAME: SELECTOR for each field", (*path, "fields"))
        urls = given.get("urls", ())
        if isinstance(urls, str):
            urls = (urls,)
        if not isinstance(urls, list | tuple) or len(urls) > MAX_RULES:
            raise BadExtraction(f"must be a list of at most {MAX_RULES} expressions", (*path, "urls"))
        return ItemRule(
            name=_text(given.get("name", ""), (*path, "name"), longest=MAX_NAME_LENGTH, may_be_empty=True),
            urls=tuple(_text(url, (*path, "urls", at)) for at, url in enumerate(urls)),
            each=_optional_text(given, "each", path),
            fields=self.fields(given["fields"], (*path, "fields"), 1),
        )

    def fields(self, value: object, path: Path, level: int) -> dict[str, ItemField]:
        """Return the fields of a rule (level 1) or of a nested item, by name."""
        given = _mapping(value, path)
        if not given:
            raise BadExtraction("is empty; write NAME: SELECTOR for each field", path)
        if level > MAX_NESTED:
            raise BadExtraction(f"is nested more than {MAX_NESTED} levels deep", path)
        self._count += len(given)
        if self._count > MAX_FIELDS:
            raise BadExtraction(f"makes more than {MAX_FIELDS} fields in all", path)
        return {self._name(name, path, level): self.field(field, (*path, name), level) for name, field in given.items()}

    @staticmethod
    def _name(name: str, path: Path, level: int) -> str:
        """Return the name of a field. Raises BadExtraction if it cannot be one."""
        if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
            raise BadExtraction(f"a name must have 1 to {MAX_NAME_LENGTH} printable characters", (*path, name[:100]))
        if level == 1 and name == PAGE_URL:
            raise BadExtraction(f"every item begins with {PAGE_URL} by itself; choose another name", (*path, name))
        return name

    def field(self, value: object, path: Path, level: int) -> ItemField:
        """Return a field in its short or its long form."""
        if isinstance(value, str):
            return read_short_form(value, path)
        given = _mapping(value, path, or_text=True)
        _check_keys(given, _FIELD_KEYS, path)
        sources = {name: text for name in SOURCES if (text := _optional_text(given, name, path)) is not None}
        kind, argument = _type(_text(given.get("type", "text"), (*path, "type")), (*path, "type"))
        field = ItemField(
            **sources,
            attribute=_optional_text(given, "attribute", path),
            type=kind,
            argument=argument,
            list=_flag(given, "list", path),
            required=_flag(given, "required", path),
            default=_default(given.get("default"), (*path, "default")),
            each=_optional_text(given, "each", path),
            fields=self.fields(given["fields"], (*path, "fields"), level + 1) if "fields" in given else None,
        )
        _check_field(field, set(given), path)
        return field


def _check_field(field: ItemField, given: set[str], path: Path) -> None:
    """Raise BadExtraction for keys that contradict each other, or lack another one. `given`: the keys that the user
    wrote, because one with the default value contradicts, too."""
    sources = [name for name in SOURCES if name in given]
    # A field that holds items: `css` or `each` only say where these are.
    if field.fields is not None:
        odd = given - {"css", "each", "fields", "required"}
        if odd:
            raise BadExtraction(
                "contradicts fields; beside it only css, each and required may stand", (*path, sorted(odd)[0])
            )
        if field.css is not None and field.each is not None:
            raise BadExtraction("contradicts css: each is for repeated items, css for a single one", (*path, "each"))
        return
    # A field with values of its own: from one source, or from `regex` in the texts of another.
    if field.each is not None:
        raise BadExtraction("needs fields; for a list of values, write css and list: true", (*path, "each"))
    others = [name for name in sources if name != "regex"]
    if not sources:
        raise BadExtraction(f"has no source; write one of {', '.join(SOURCES)}", path)
    if len(others) > 1:
        raise BadExtraction(f"has {' and '.join(others)}; write only one of them", path)
    if field.attribute is not None and field.css is None:
        raise BadExtraction("needs css: it is the attribute of the element that css finds", (*path, "attribute"))
    if field.type is FieldType.HTML and (field.css is None and field.xpath is None):
        raise BadExtraction("html needs css or xpath", (*path, "type"))
    if field.required and field.default is not None:
        raise BadExtraction("contradicts required: there is no item without the field", (*path, "default"))
    if field.type is FieldType.COUNT and field.list:
        raise BadExtraction("contradicts the type count, which is one number", (*path, "list"))


# --- the short form ---------------------------------------------------------------------------------------------------

# Texts, not compiled: most processes read no rules, and `re` keeps what it has compiled. They match the
# last ` @word:argument` of a text; the `@attribute` behind a selector, without a space; the prefix that names a source.
_MODIFIER = r"(?:^|\s)@(?P<word>[A-Za-z_-]+)(?::(?P<argument>(?:[^@\s]|\s+(?![@\s]))*))?\s*$"
_ATTRIBUTE = r"(?s)(?P<selector>.*[^/\s]|)@(?P<name>[A-Za-z_:][\w:.-]*)$"
_PREFIX = rf"(?i)({'|'.join(SOURCES)}):"


def read_short_form(text: str, path: Path = ()) -> ItemField:
    """Return the field for `SELECTOR[@attribute] [@type[:argument]] [@list] [@required]`. Raises BadExtraction.

    A prefix selects another source than CSS: `xpath:…`, `jsonld:…`, `meta:…`, `regex:…`. An attribute without a
    selector belongs to the element itself."""
    _text(text, path)
    rest = text.strip()
    prefix = re.match(_PREFIX, rest)
    source = prefix[1].lower() if prefix else "css"
    kind, argument = FieldType.TEXT, ""
    words: set[str] = set()  # `list`, `required`, and `type` for any type
    while (modifier := re.search(_MODIFIER, rest)) is not None:
        word = modifier["word"]
        if word in ("list", "required") and modifier["argument"] is None:
            words.add(word)
        elif word in FieldType.__members__.values():
            kind, argument = _type(modifier[0].strip()[1:], path)
            if "type" in words:
                raise BadExtraction(f"{text!r:.200} has two types", path)
            words.add("type")
        elif source != "css" or modifier.start() == 0:
            break  # part of the expression, or the attribute of the element itself
        else:
            raise BadExtraction(_unknown_word(text, word), path)
        rest = rest[: modifier.start()].rstrip()
    attribute = None
    if prefix:
        rest = rest[prefix.end() :].strip()
    elif (found := re.match(_ATTRIBUTE, rest)) is not None:
        rest, attribute = found["selector"].strip() or ".", found["name"].lower()
    if not rest:
        advice = "; the page's own URL is page_url, which each item has" if text.strip() == "@url" else ""
        raise BadExtraction(f"{text!r:.200} has no selector{advice}", path)
    field = ItemField(
        **{source: rest},  # type: ignore[arg-type]
        attribute=attribute,
        type=kind,
        argument=argument,
        list="list" in words,
        required="required" in words,
    )
    _check_field(field, {source}, path)
    return field


def _close_matches(word: str, known: Iterable[str], *, n: int) -> list[str]:
    """Return the known words that are most like this one."""
    import difflib  # imported late: only mistakes need it

    return difflib.get_close_matches(word, list(known), n=n)


def _unknown_word(text: str, word: str) -> str:
    """Return the sentence on a word behind `@` that means nothing."""
    known = [*FieldType, "list", "required"]
    similar = _close_matches(word, known, n=1)
    hint = f"did you mean @{similar[0]}?" if similar else f"write one of {', '.join(f'@{name}' for name in known)}."
    return f"{text!r:.200} has the unknown @{word}; {hint} An attribute follows its selector without a space: img@src"


def _type(text: str, path: Path) -> tuple[FieldType, str]:
    """Return the type and its argument. Raises BadExtraction."""
    name, colon, argument = text.partition(":")
    argument = argument.strip()
    try:
        kind = FieldType(name.strip())
    except ValueError:
        similar = _close_matches(name, FieldType, n=1)
        hint = f"; did you mean {similar[0]}?" if similar else f"; write one of {', '.join(FieldType)}"
        raise BadExtraction(f"unknown type {name!r:.100}{hint}", path) from None
    if colon and kind not in _WITH_ARGUMENT:
        raise BadExtraction(f"the type {kind} has no argument", path)
    if kind in (FieldType.NUMBER, FieldType.PRICE) and argument not in ("", ".", ","):
        raise BadExtraction(f"the decimal mark of {kind} is . or , and not {argument!r:.20}", path)
    return kind, argument


# --- parts of an object -----------------------------------------------------------------------------------------------


# These return or check a value that a user wrote, and raise BadExtraction with its place.


def _mapping(value: object, path: Path, *, or_text: bool = False) -> Mapping[str, Any]:
    """Return an object. `or_text`: a text is possible here, too, which the message says."""
    if not isinstance(value, Mapping):
        raise BadExtraction("must be an object" + (" or a text" if or_text else ""), path)
    for key in value:
        if not isinstance(key, str):
            raise BadExtraction(f"the key {key!r:.100} must be a text; put it into quotes", path)
    return value


def _check_keys(given: Mapping[str, Any], known: tuple[str, ...], path: Path) -> None:
    """Check that an object has known keys only."""
    for key in given:
        if key not in known:
            similar = _close_matches(key[:MAX_NAME_LENGTH], known, n=1)
            hint = f"; did you mean {similar[0]}?" if similar else f"; the keys are {', '.join(known)}"
            raise BadExtraction(f"unknown key{hint}", (*path, key[:MAX_NAME_LENGTH]))


def _text(value: object, path: Path, *, longest: int = MAX_TEXT_LENGTH, may_be_empty: bool = False) -> str:
    """Return a text of at most `longest` characters."""
    if not isinstance(value, str) or not (value.strip() or may_be_empty):
        raise BadExtraction("must be a text" + ("" if may_be_empty else ", which is not empty"), path)
    if len(value) > longest:
        raise BadExtraction(f"has {len(value):,} characters; at most {longest:,} are accepted", path)
    return value


def _optional_text(given: Mapping[str, Any], key: str, path: Path) -> str | None:
    """Return the text under a key. None: the object does not have it."""
    return _text(given[key], (*path, key)) if given.get(key) is not None else None


def _flag(given: Mapping[str, Any], key: str, path: Path) -> bool:
    """Return the boolean under a key; False if the object does not have it."""
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise BadExtraction("must be true or false", (*path, key))
    return value


def _default(value: object, path: Path) -> object:
    """Return a default that every output can hold: a text, a number, true, false, or a list of these."""
    for part in value if isinstance(value, list) else (value,):
        fits = part is None or isinstance(part, str | bool)
        if isinstance(part, int | float) and not isinstance(part, bool):
            fits = math.isfinite(part) and -(2**63) <= part < 2**64
        if not fits:
            raise BadExtraction("must be a text, a number, true, false, or a list of these", path)
    return value
