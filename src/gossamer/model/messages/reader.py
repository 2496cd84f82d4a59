"""Schemas of messages, and parsing: from bytes to a request, or to one sentence that names the invalid field and why.

The JSON Schemas (draft 2020-12) of all messages except dead letters are in `schemas/`; their `examples` are valid. The
tuples below name them. The generated reference and the tests go through all of these names; the reader of requests and
the REST service use those of REQUESTS. A new message needs a file in `schemas/` and a name here. The name of a message
that clients send or read must stay.

To add a field to a built-in request, change its schema in `schemas/` and its struct in `requests.py`; a rule that a
schema cannot express belongs into `built_in_kinds`. A schema's own keyword `x-means` says in words what its pattern or
bounds demand. Fixed: the names and ranks of the built-in kinds. The ranks decide what a message is. Reasons are for
people, so their wording may change; the field beside them is read by programs.
"""

import base64
import binascii
import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any, TypeVar

import msgspec

from gossamer.errors import BadInput, RequestRejected
from gossamer.extras import install_advice
from gossamer.model.crawl import HITS_RANGE, WINDOW_SECONDS_RANGE
from gossamer.model.json_codec import InvalidJson, UnexpectedJson, decode
from gossamer.model.messages.requests import (
    ActionRequest,
    CrawlRequest,
    DomainRequest,
    StatsRequest,
    parse_rate,
)

try:
    import jsonschema_rs
except ModuleNotFoundError:  # an extra that need not be installed
    jsonschema_rs = None  # type: ignore[assignment]

REQUESTS = ("crawl", "action", "stats", "domain")
"""Messages that the bus and `/feed` accept."""

ANSWERS = (
    "info",
    "info_app",
    "info_1_0",
    "info_app_1_0",
    "stop",
    "domain_answer",
    "stats_answer",
    "rejected",
    "duplicate",
    "blacklisted",
)
"""Messages sent in reply to a request. A name with `_1_0` is the same message for clients of version 1.0 of Scrapy
Cluster, the crawler that Gossamer succeeds (setting `topics.wire`)."""

EVENTS = ("finished", "expired", "stopped")
"""Messages about the end of a crawl."""

RESULTS = ("page", "item", "page_1_0")
"""Messages with the output of a crawl."""

CHANGES = ("change",)
"""Messages about the pages of crawls that are kept up to date."""

REST = ("poll", "rest_answer", "rest_root")
"""Bodies that only the REST API has."""


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the schema of this name. It is shared: copy it before you change it. Raises FileNotFoundError."""
    text = (resources.files("gossamer.model.messages") / "schemas" / f"{name}.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(text)
    return found


# --- reading ----------------------------------------------------------------------------------------------------------

_T = TypeVar("_T")

MAX_MESSAGE_BYTES = 1024 * 1024
"""Default limit; a larger message is rejected without being parsed. Parsing takes several times its size in memory."""
MAX_NESTING = 100
"""Levels of arrays and objects that a message may have. May be smaller, or somewhat larger: encoders for the frontier
and the outputs recurse, and fail at about 1,000 levels."""

_MAX_NAME = 100
"""Characters of a field's name in a rejection. The name quotes the sender, and every rejection is stored and sent, so a
larger value lets a sender fill the topics; a smaller one cuts names."""
_MAX_FAULTS = 10
"""Fields that a rejection names. Each costs a validation of the message."""
_MAX_REASON = 300
"""Characters of a reason in a rejection."""
_TOO_DEEP = f"is nested more than {MAX_NESTING} levels deep"
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1
"""Integers that MessagePack can store in the frontier (the store of waiting requests): fixed by that format."""


@dataclass(frozen=True)
class RequestLimits:
    """Limits that the operator sets on requests. None: only the schema's limit."""

    maxdepth: int | None = None
    message_bytes: int = MAX_MESSAGE_BYTES
    app_render: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By application: fields about rendered pages that its crawl requests get if they have none. They must be valid."""

    def completed(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return a crawl request with the fields of its application."""
        own = self.app_render.get(given["appid"])
        return given if not own or any(map(is_about_rendering, given)) else {**own, **given}


def is_about_rendering(field: str) -> bool:
    """Return whether a field of a crawl request is about rendered pages."""
    return field == "wait_for_browser" or field.startswith("render")


@dataclass(frozen=True)
class RequestKind:
    """A kind of request. A message belongs to the first kind, by rank, whose schema it satisfies.

    Raises BadInput for an invalid schema, and for one that refers to a schema elsewhere."""

    name: str
    schema: Mapping[str, Any]
    rank: int
    """Kinds are tried in ascending rank; with equal ranks, by name."""
    build: Callable[[dict[str, Any]], Any]
    """Returns the request for a valid message. Raises RequestRejected for faults that a schema cannot express."""

    validator: Any = field(init=False, repr=False, compare=False)
    """The compiled schema."""

    def __post_init__(self) -> None:
        if jsonschema_rs is None:
            raise BadInput(f"messages of a crawl service need jsonschema-rs: {install_advice('service')}")
        try:
            given = dict(self.schema)
            jsonschema_rs.meta.validate(given)
            # Offline: a schema with a remote reference fails here, not when a message arrives.
            object.__setattr__(self, "validator", jsonschema_rs.validator_for(given, offline=True))
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
            raise BadInput(f"the schema of {self.name}: {(str(error) or 'is not valid').splitlines()[0]}") from None


class MessageReader:
    """Parses and validates messages. Has no state, so it may be shared."""

    def __init__(self, kinds: Sequence[RequestKind] = (), *, limits: RequestLimits | None = None) -> None:
        """`kinds`: further kinds, of plug-ins. Raises BadInput if two kinds have the same name."""
        self._limits = limits or RequestLimits()
        self._kinds = sorted([*built_in_kinds(self._limits), *kinds], key=lambda kind: (kind.rank, kind.name))
        if len({kind.name for kind in self._kinds}) != len(self._kinds):
            names = ", ".join(kind.name for kind in self._kinds)
            raise BadInput(f"two kinds of request have the same name: {names}")

    def read(self, value: bytes | dict[str, Any]) -> tuple[str, Any]:
        """Return the name of the kind and the request. A field that is null counts as absent.

        `value`: JSON in UTF-8, or a decoded JSON object. Raises RequestRejected."""
        message = self.decode_object(value) if isinstance(value, bytes) else self._check_encodable(value)
        given = {name: part for name, part in message.items() if part is not None}
        for name, part in given.items():
            if not isinstance(part, str):
                _check_json(part, name[:_MAX_NAME])
        for kind in self._kinds:
            if kind.validator.is_valid(given):
                return kind.name, kind.build(given)
        raise _explain(given, self._kinds)

    def decode_object(self, value: bytes) -> dict[str, Any]:
        """Return the JSON object in these bytes. Raises RequestRejected."""
        self._check_size(len(value))
        message = decode_json(value)
        if not isinstance(message, dict):
            raise RequestRejected("the message must be a JSON object")
        return message

    def _check_encodable(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the object if it could have arrived as bytes. Raises RequestRejected."""
        # Encoded only for these checks: of its size as JSON, and for values that JSON does not have.
        try:
            self._check_size(len(msgspec.json.encode(message)))
        except RecursionError:
            raise RequestRejected(f"the message {_TOO_DEEP}") from None
        except UnicodeEncodeError:
            raise RequestRejected("the message holds half of a surrogate pair, which is not valid text") from None
        except (TypeError, OverflowError, ValueError) as error:
            raise RequestRejected(f"the message cannot be encoded as JSON: {error}"[:_MAX_REASON]) from None
        return message

    def _check_size(self, size: int) -> None:
        limit = self._limits.message_bytes
        if size > limit:
            raise RequestRejected(f"the message has {size:,} bytes, more than the {limit:,} allowed")


def decode_json(value: bytes) -> Any:
    """Return the JSON value in these bytes. Raises RequestRejected with the reason."""
    try:
        return decode(value)
    except InvalidJson as error:
        raise RequestRejected(f"the message {error}") from None
    except UnexpectedJson as error:  # a number that no type can hold
        raise RequestRejected(f"the message is not JSON: {error}") from None


def _check_json(value: object, name: str) -> None:
    """Raise RequestRejected for a value that cannot be stored: deeper than MAX_NESTING, with integers of more than 64
    bits, or with numbers that are not finite. `name`: the field it belongs to."""
    # Level by level instead of by recursion, which a hostile message could exhaust.
    level, depth = [value], 0
    while level:
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict | list):
                if depth == MAX_NESTING:
                    raise RequestRejected(_TOO_DEEP, field=name)
                inner += part.values() if isinstance(part, dict) else part
            elif isinstance(part, int):
                if not _MIN_INTEGER <= part <= _MAX_INTEGER:
                    raise RequestRejected("holds an integer of more than 64 bits", field=name)
            elif isinstance(part, float) and not math.isfinite(part):
                raise RequestRejected("holds NaN or an infinity, which JSON does not have", field=name)
        level, depth = inner, depth + 1


# --- the built-in kinds -----------------------------------------------------------------------------------------------


def built_in_kinds(limits: RequestLimits) -> list[RequestKind]:
    """Return Scrapy Cluster's kinds of request, with its ranks. These are fixed, because plug-ins choose ranks between
    them."""

    def build_crawl(given: dict[str, Any]) -> CrawlRequest:
        given = limits.completed(given)
        if limits.maxdepth is not None and given.get("maxdepth", 0) > limits.maxdepth:
            raise RequestRejected(f"must be at most {limits.maxdepth}; the operator set this limit", field="maxdepth")
        if "body_base64" in given:
            _check_base64(given)
        if "rate" in given and not parse_rate(given["rate"]).is_in_range:
            low, high = WINDOW_SECONDS_RANGE
            raise RequestRejected(
                f"must be HITS/SECONDS with at least {HITS_RANGE.low} hit in {low} to {high} seconds", field="rate"
            )
        return _convert(given, CrawlRequest)

    return [
        RequestKind("crawl", schema("crawl"), 100, build_crawl),
        RequestKind("action", schema("action"), 200, lambda given: _convert(given, ActionRequest)),
        RequestKind("stats", schema("stats"), 300, lambda given: _convert(given, StatsRequest)),
        RequestKind("domain", schema("domain"), 400, _domain_request),
    ]


def _convert(given: dict[str, Any], into: type[_T]) -> _T:
    """Return the struct of a message that satisfies its schema."""
    return msgspec.convert(given, into, strict=False)  # 2.0 is an integer to JSON Schema


def _domain_request(given: dict[str, Any]) -> DomainRequest:
    """Return the request. Raises RequestRejected for an update of nothing, or to no hits."""
    request = _convert(given, DomainRequest)
    if request.action == "domain-update":
        for name in ("hits", "window"):
            if given.get(name) == 0:
                raise RequestRejected("must be at least 1 for a domain-update; scale 0 pauses a domain", field=name)
        if not given.keys() & {"hits", "window", "scale"}:
            raise RequestRejected("missing: a domain-update needs hits, window or scale", field="hits")
    return request


def _check_base64(given: dict[str, Any]) -> None:
    """Raise RequestRejected unless the field `body_base64` is base64 and the only body."""
    if "body" in given:
        raise RequestRejected("contradicts body; send only one of the two", field="body_base64")
    try:
        base64.b64decode(given["body_base64"], validate=True)
    except (binascii.Error, ValueError):
        raise RequestRejected("is not base64", field="body_base64") from None


# --- explaining a rejection -------------------------------------------------------------------------------------------

_UNSUPPORTED = {"splash": "Splash is not supported. With render, a browser renders the page"}
"""Fields that users of other crawlers may send, and why they are rejected."""

_TYPICAL_FIELDS: dict[str, dict[str, tuple[str, ...] | None]] = {
    "crawl": {"url": None},
    "action": {"action": ("stop", "info")},
    "domain": {
        "domain": None,
        "action": ("domain-update", "domain-remove", "blacklist-update", "blacklist-remove"),
    },
    "stats": {"stats": None},
}
"""By kind, the fields that are typical of it, with the values that identify it (None: any value). They only improve the
reason of a rejection. Plug-ins have no entry."""


def _explain(given: dict[str, Any], kinds: Sequence[RequestKind]) -> RequestRejected:
    """Return why a message satisfies no schema, judged by the kind that it resembles most."""
    for name, reason in _UNSUPPORTED.items():
        if name in given:
            return RequestRejected(reason, field=name)
    names = ", ".join(kind.name for kind in kinds)
    if not given:
        return RequestRejected(f"the message is empty; the kinds of request are {names}")
    kind = max(kinds, key=lambda kind: _similarity(given, kind))
    properties = kind.schema.get("properties", {})
    if not properties.keys() & given.keys():
        return RequestRejected(f"no kind of request has any of these fields; the kinds are {names}")
    faults = list(islice(_faults(given, kind), _MAX_FAULTS))
    return RequestRejected(faults[0].reason, field=faults[0].field, others=faults[1:])


def _faults(given: dict[str, Any], kind: RequestKind) -> Iterator[RequestRejected]:
    """Yield the first fault of each invalid field of a message, at least one."""
    properties, left = kind.schema.get("properties", {}), dict(given)
    # Unknown fields come first: one may be the misspelt name of a required field, which explains more.
    if kind.schema.get("additionalProperties") is False and "patternProperties" not in kind.schema:
        unknown = [name for name in given if name not in properties]
        for name in unknown:
            del left[name]
            yield _unknown_field("", name, kind)
        if unknown:
            return
    valid = {name: value for example in kind.schema.get("examples", ()) for name, value in example.items()}
    repaired: set[str] = set()
    while True:
        try:
            # `validate` stops at the first fault; a hostile message may have as many as it has bytes.
            kind.validator.validate(left)
            return
        except jsonschema_rs.ValidationError as error:
            fault = _explain_fault(error, kind)
        name = fault.field.partition(".")[0]
        if name in repaired:
            return
        yield fault
        repaired.add(name)
        left.pop(name, None)
        if name in valid:  # it may be required
            left[name] = valid[name]


def _similarity(given: dict[str, Any], kind: RequestKind) -> tuple[int, int]:
    """Return (required fields present minus unknown fields, typical fields present)."""
    present = given.keys()
    known = kind.schema.get("properties", {}).keys()
    required = set(kind.schema.get("required", ()))
    typical = [
        values is None or given[name] in values
        for name, values in _TYPICAL_FIELDS.get(kind.name, {}).items()
        if name in given
    ]
    return len(required & present) - len(present - known), sum(typical)


def _explain_fault(error: Any, kind: RequestKind) -> RequestRejected:
    """Return the rejection for a fault that the JSON Schema validator has found."""
    path = ".".join(str(part)[:_MAX_NAME] for part in error.instance_path)
    facts = error.kind.as_dict()
    meaning = _schema_at(kind, error.schema_path[:-1]).get("x-means")  # the schema's own words, if it has any
    match error.kind.name:
        case "required":
            name = facts["property"]
            reason = f"is missing: what looks like {_article(kind.name)} {kind.name} request needs it"
            if not path and (example := _example(kind, name)):
                reason += f". Write, for example, {example}"
            return RequestRejected(reason, field=_join(path, name))
        case "additionalProperties":
            return _unknown_field(path, facts["unexpected"][0], kind)
        case "type":
            wanted = " or ".join(facts["types"])
            reason = f"must be {_article(wanted)} {wanted}"
        case "pattern" | "minimum" | "maximum" | "enum" if meaning:
            reason = str(meaning)
        case "enum":
            reason = f"must be one of {', '.join(map(str, facts['options']))}"
        case name if name in _REASONS:
            reason = _REASONS[name].format(**facts)
        case _:
            reason = str(error.message)
    return RequestRejected(reason[:_MAX_REASON], field=path)


def _example(kind: RequestKind, name: str) -> str:
    """Return a field with its value from an example of the schema, as JSON; empty: there is none."""
    for example in kind.schema.get("examples", ()):
        if name in example:
            return f'"{name}": {msgspec.json.encode(example[name]).decode()}'
    return ""


_REASONS = {
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
    "uniqueItems": "must not contain the same item twice",
}
"""Reasons by the JSON Schema keyword that failed; the validator's facts replace `{limit}` and `{pattern}`. A keyword
without a line here gets the validator's own sentence."""


def _unknown_field(path: str, name: str, kind: RequestKind) -> RequestRejected:
    """Return the rejection of a field that the schema does not have. `path`: the object that it is in; empty: the
    message itself."""
    where = _join(path, name[:_MAX_NAME])
    if path:
        return RequestRejected("unknown field", field=where)
    similar = difflib.get_close_matches(name[:_MAX_NAME], kind.schema.get("properties", ()), n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    return RequestRejected(f"unknown field of {_article(kind.name)} {kind.name} request{hint}", field=where)


def _schema_at(kind: RequestKind, path: Sequence[Any]) -> dict[str, Any]:
    """Return the part of the schema at this path; empty if the path leads through a `$ref`."""
    part: Any = kind.schema
    for step in path:
        try:
            part = part[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return part if isinstance(part, dict) else {}


def _join(path: str, name: str) -> str:
    """Return the field's name behind the path of the object that has it, as in `headers.Accept`."""
    return f"{path}.{name}" if path else name


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"
