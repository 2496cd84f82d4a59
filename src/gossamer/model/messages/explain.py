"""Why a message is no request, in one sentence that names the field.

A schema's own keyword `x-means` says in words what its pattern or its bounds demand."""

import difflib
from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from gossamer.errors import RequestRejected
from gossamer.model.messages.kinds import RequestKind

_LONGEST_NAME = 100
_LONGEST_REASON = 300
"""Characters of what a message's author wrote that go into an answer."""

_NOT_YET = {"render": "pages are not rendered yet", "splash": "pages are not rendered; Splash is not supported"}
"""Fields that will be asked for, and cannot be had."""

_SIGNS: dict[str, tuple[tuple[str, tuple[str, ...] | None], ...]] = {
    "crawl": (("url", None),),
    "action": (("action", ("stop", "info")),),
    "domain": (
        ("domain", None),
        ("action", ("domain-update", "domain-remove", "blacklist-update", "blacklist-remove")),
    ),
    "stats": (("stats", None),),
}
"""Which field tells a kind from others, and (None: any) by which of its values. Plug-ins have no signs."""


def explain(given: dict[str, Any], kinds: Sequence[RequestKind]) -> RequestRejected:
    """What is wrong with a message that no kind's schema takes. The kind that it is most like is taken for meant."""
    for name, why in _NOT_YET.items():
        if name in given:
            return RequestRejected(why, field=name)
    names = ", ".join(kind.name for kind in kinds)
    if not given:
        return RequestRejected(f"the message is empty; there are the requests {names}")
    kind = max(kinds, key=lambda kind: _likeness(given, kind))
    properties = kind.schema.get("properties", {})
    if not properties.keys() & given.keys():
        return RequestRejected(f"no request has such fields; there are the requests {names}")
    # A field that is not known may be a misspelt one that is missing: it explains more.
    if kind.schema.get("additionalProperties") is False and "patternProperties" not in kind.schema:
        for name in given:
            if name not in properties:
                return _unknown("", name, kind)
    try:
        # One fault, not all of them: there may be as many as the message has bytes.
        kind.validator.validate(given)
    except jsonschema_rs.ValidationError as error:
        return _sentence(error, kind)
    raise AssertionError("the message is valid")


def _likeness(given: dict[str, Any], kind: RequestKind) -> tuple[int, int]:
    """How much of what the kind needs is there, less what it does not know; of equal ones the one whose sign is."""
    there = given.keys()
    known = kind.schema.get("properties", {}).keys()
    required = set(kind.schema.get("required", ()))
    signs = [values is None or given[name] in values for name, values in _SIGNS.get(kind.name, ()) if name in given]
    return len(required & there) - len(there - known), sum(signs)


def _sentence(error: Any, kind: RequestKind) -> RequestRejected:
    place = ".".join(str(part)[:_LONGEST_NAME] for part in error.instance_path)
    facts = error.kind.as_dict()
    match error.kind.name:
        case "required":
            a = f"{_article(kind.name)} {kind.name} request"
            return RequestRejected(f"is missing from what looks like {a}", field=_inside(place, facts["property"]))
        case "additionalProperties":
            return _unknown(place, facts["unexpected"][0], kind)
        case "type":
            wanted = " or ".join(facts["types"])
            reason = f"must be {_article(wanted)} {wanted}"
        case "enum":
            reason = f"must be one of {', '.join(map(str, facts['options']))}"
        case "pattern" | "minimum" | "maximum" if meaning := _declared(kind, error.schema_path[:-1]).get("x-means"):
            reason = str(meaning)
        case name if name in _BOUNDS:
            reason = _BOUNDS[name].format(**facts)
        case _:
            reason = str(error.message)
    return RequestRejected(reason[:_LONGEST_REASON], field=place)


_BOUNDS = {
    "pattern": "must match {pattern}",
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "exclusiveMinimum": "must be more than {limit}",
    "exclusiveMaximum": "must be less than {limit}",
    "minLength": "must have at least {limit} characters",
    "maxLength": "must have at most {limit} characters",
    "minItems": "must have at least {limit} items",
    "maxItems": "must have at most {limit} items",
    "minProperties": "must have at least {limit} fields",
    "maxProperties": "must have at most {limit} fields",
    "uniqueItems": "names something twice",
}


def _unknown(place: str, name: str, kind: RequestKind) -> RequestRejected:
    field = _inside(place, name[:_LONGEST_NAME])
    if place:
        return RequestRejected("unknown field", field=field)
    meant = difflib.get_close_matches(name[:_LONGEST_NAME], kind.schema.get("properties", ()), n=1)
    hint = f"; is {meant[0]} meant?" if meant else ""
    return RequestRejected(f"unknown field of {_article(kind.name)} {kind.name} request{hint}", field=field)


def _declared(kind: RequestKind, path: Sequence[Any]) -> dict[str, Any]:
    """The part of the schema at this path; empty where the path leads elsewhere (through a `$ref`)."""
    part: Any = kind.schema
    for step in path:
        try:
            part = part[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return part if isinstance(part, dict) else {}


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"
