"""JSON-LD and `meta` elements of a page, for the fields that name them.

JSON-LD on the web is often broken. What people's editors and templates leave in it is tolerated: comments, trailing
commas and semicolons, CDATA, HTML comments, quotes as entities, several objects in one script, NaN. Everything has a
limit, so that no page can stop a worker. No function raises for the content of a page.

Safe to change: the limits, and what else is tolerated. Fixed: the meaning of paths, which stored rules contain.
"""

import html
import json
import re
from collections.abc import Iterator
from typing import Any

from selectolax.lexbor import LexborHTMLParser

MAX_SCRIPTS = 50
"""Number of JSON-LD scripts of a page that are read. May be changed freely: more take time."""
MAX_SCRIPT_CHARACTERS = 1024 * 1024
"""Length of all JSON-LD of a page together; the rest is not read. May be changed: repairing a megabyte takes 50 ms."""
_MAX_DEPTH = 40
"""Levels of nested objects in which a path is looked for. May be changed, but stays below Python's recursion limit."""
_MAX_OBJECTS = 20_000
"""Objects and lists that are visited for one path. Tuning only: more let a hostile page take more time."""

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
_WRAPPERS = re.compile(r"\A[\s\ufeff]*+(?:(?:<!--|//\s*<!\[CDATA\[|/\*\s*<!\[CDATA\[\s*\*/|<!\[CDATA\[)[\s\ufeff]*+)++")
_PARTS = re.compile(
    r"""
    "(?:[^"\\]|\\.)*+(?:"|\Z)             # a string, which stays as it is
    |/\*.*?(?:\*/|\Z)                     # comments
    |//[^\n]*+
    |,(?=(?:\s|//[^\n]*+|/\*.*?\*/)*+[\]}])   # a comma before a closing bracket
    """,
    re.VERBOSE | re.DOTALL,
)
_BETWEEN = " \t\r\n;,\ufeff"
"""Characters that may stand between two values of one script."""


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
        if at == end or text.startswith(("-->", "]]>", "//]]>", "// ]]>", "/*]]>", "/* ]]>"), at):
            return values, True
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return values, False
        values.append(value)


# --- paths ------------------------------------------------------------------------------------------------------------


def look_up(values: list[Any], path: str) -> list[Any]:
    """Return what a path leads to in JSON-LD: texts, numbers, truth values and objects, in order.

    A path is a row of keys with dots: `offers.price`. Each element of a list counts; a number selects one: `image.0`. A
    first key with a capital letter is a type: `Product.name` looks in objects of that type, wherever they are. Without
    a type, a path begins at the objects of a script, or of its `@graph`.
    """
    keys = path.split(".")
    budget = [_MAX_OBJECTS]
    if keys[0][:1].isupper():
        starts = [thing for value in values for thing in _of_type(value, keys[0], budget, 0)]
        keys = keys[1:]
    else:
        starts = [thing for value in values for thing in _top_objects(value, budget, 0)]
    found: list[Any] = []
    for start in starts:
        found += _follow(start, keys, budget, 0)
    return found


def _top_objects(value: Any, budget: list[int], depth: int) -> Iterator[dict[str, Any]]:
    """Yield the objects of a script, those of its `@graph` included."""
    budget[0] -= 1
    if budget[0] < 0 or depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for part in value:
            yield from _top_objects(part, budget, depth + 1)
    elif isinstance(value, dict):
        yield value
        if isinstance(graph := value.get("@graph"), list | dict):
            yield from _top_objects(graph, budget, depth + 1)


def _of_type(value: Any, name: str, budget: list[int], depth: int) -> Iterator[dict[str, Any]]:
    """Yield the objects of a type, at any depth, the outer ones first."""
    budget[0] -= 1
    if budget[0] < 0 or depth > _MAX_DEPTH:
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


def _follow(value: Any, keys: list[str], budget: list[int], depth: int) -> list[Any]:
    """Return what the keys lead to from this value."""
    budget[0] -= 1
    if budget[0] < 0 or depth > _MAX_DEPTH or value is None:
        return []
    if isinstance(value, list):
        if keys and keys[0].isdecimal():
            at = int(keys[0]) if len(keys[0]) < 6 else len(value)
            return _follow(value[at], keys[1:], budget, depth + 1) if at < len(value) else []
        return [found for part in value for found in _follow(part, keys, budget, depth + 1)]
    if not keys:
        return [value]
    if not isinstance(value, dict):
        return [value] if keys == ["0"] else []
    return _follow(value.get(keys[0]), keys[1:], budget, depth + 1)


_SCALAR_KEYS = ("@value", "name", "url", "@id")
_URL_KEYS = ("url", "contentUrl", "@id")


def scalar(value: Any, *, is_url: bool = False) -> str | int | float | bool | None:
    """Return the text or number that stands for a value. An object stands for its `name` or, `is_url`, its address.

    None: nothing stands for it."""
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


_META_NAMES = ("property", "name", "itemprop", "http-equiv")
"""Attributes that name a `meta` element."""


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
