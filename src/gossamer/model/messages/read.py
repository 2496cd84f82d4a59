"""From bytes to a request, or to one sentence that says which field is wrong and why."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import msgspec

from gossamer.errors import BadInput, RequestRejected
from gossamer.model.messages.requests import ActionRequest, CrawlRequest, DomainRequest, StatsRequest
from gossamer.model.messages.schemas import schema

MOST_BYTES = 1024 * 1024
"""Of a message; a larger one is refused unread."""
MOST_NESTED = 100
"""Levels of arrays and objects."""
LONGEST_AHEAD_SECONDS = 100 * 365 * 86400

_NOT_YET = {"render": "pages are not rendered yet", "splash": "pages are not rendered; Splash is not supported"}
"""Fields that will be asked for, and cannot be had."""

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True)
class Limits:
    """How much of what the original limited a request may ask. None: whatever the schema allows."""

    maxdepth: int | None = None
    domain_max_pages: int | None = None
    message_bytes: int = MOST_BYTES


@dataclass(frozen=True)
class Kind:
    """A kind of request: the first by rank whose schema a message satisfies is meant."""

    name: str
    schema: Mapping[str, Any]
    rank: int
    build: Callable[[dict[str, Any]], Any]
    """Makes the request of a valid message; RequestRejected for what a schema cannot say."""

    def __post_init__(self) -> None:
        try:
            jsonschema_rs.meta.validate(dict(self.schema))
        except (jsonschema_rs.ValidationError, ValueError, TypeError) as error:
            raise BadInput(f"the schema of {self.name}: {str(error).splitlines()[0]}") from None


class Reader:
    """Reads messages. Safe to share."""

    def __init__(self, kinds: Sequence[Kind] = (), *, limits: Limits | None = None) -> None:
        """`kinds`: plug-ins beside the built-in ones. Raises BadInput for two of one name."""
        self._limits = limits or Limits()
        everything = sorted([*_built_in(self._limits), *kinds], key=lambda kind: (kind.rank, kind.name))
        if len({kind.name for kind in everything}) != len(everything):
            raise BadInput(f"two kinds of request have one name: {', '.join(kind.name for kind in everything)}")
        self._kinds = [(kind, jsonschema_rs.validator_for(dict(kind.schema))) for kind in everything]

    def read(self, value: bytes | dict[str, Any]) -> tuple[str, Any]:
        """(name of the kind, the request). Nothing in it is changed but that a null counts as absent.

        Raises RequestRejected."""
        message = self.decoded(value) if isinstance(value, bytes) else value
        given = {name: part for name, part in message.items() if part is not None}
        try:
            for kind, validator in self._kinds:
                if validator.is_valid(given):
                    return kind.name, kind.build(given)
            raise self._explained(given)
        except ValueError:  # of the validator, some 250 levels down
            raise RequestRejected(f"this is nested more than {MOST_NESTED} levels deep") from None

    def decoded(self, value: bytes) -> dict[str, Any]:
        """The JSON object in these bytes. Raises RequestRejected."""
        if len(value) > self._limits.message_bytes:
            raise RequestRejected(
                f"the message has {len(value):,} bytes, more than the {self._limits.message_bytes:,} allowed"
            )
        try:
            message = _decode(value)
        except UnicodeDecodeError as error:
            raise RequestRejected(f"this is not UTF-8: {error.reason} at byte {error.start}") from None
        except RecursionError:
            raise RequestRejected(f"this is nested more than {MOST_NESTED} levels deep") from None
        except msgspec.DecodeError as error:
            raise RequestRejected(f"this is no JSON: {error}") from None
        if not isinstance(message, dict):
            raise RequestRejected("this is JSON, but no object")
        return message

    def _explained(self, given: dict[str, Any]) -> RequestRejected:
        for field, why in _NOT_YET.items():
            if field in given:
                return RequestRejected(why, field=field)
        kind, validator = self._likely(given)
        errors = list(validator.iter_errors(given))
        # What is missing explains more than what is too much, and a field of its own more than the whole.
        errors.sort(key=lambda error: (_ORDER.get(error.kind.name, 1), len(list(error.instance_path))))
        return _sentence(errors[0], kind) if errors else RequestRejected("no kind of request looks like this")

    def _likely(self, given: dict[str, Any]) -> tuple[Kind, Any]:
        """The kind whose own fields are there most."""

        def likeness(pair: tuple[Kind, Any]) -> tuple[int, int]:
            known = set(pair[0].schema.get("properties", ()))
            required = set(pair[0].schema.get("required", ()))
            return len(required & given.keys()) - len(given.keys() - known), len(required & given.keys())

        named = [pair for pair in self._kinds if pair[0].name == _NAMED_BY_ACTION.get(str(given.get("action")))]
        return max(named or self._kinds, key=likeness)


_NAMED_BY_ACTION = {
    "info": "action",
    "stop": "action",
    "domain-update": "domain",
    "domain-remove": "domain",
    "blacklist-update": "domain",
    "blacklist-remove": "domain",
}
_ORDER = {"additionalProperties": 0, "required": 2}


def _sentence(error: Any, kind: Kind) -> RequestRejected:
    field = ".".join(map(str, error.instance_path))
    facts = error.kind.as_dict()
    match error.kind.name:
        case "required":
            name = facts["property"]
            return RequestRejected(
                f"is missing from what looks like {_article(kind.name)} {kind.name} request",
                field=f"{field}.{name}".lstrip("."),
            )
        case "additionalProperties":
            name = facts["unexpected"][0]
            known = ", ".join(kind.schema.get("properties", ()))
            return RequestRejected(
                f"unknown field of {_article(kind.name)} {kind.name} request; there are {known}",
                field=f"{field}.{name}".lstrip("."),
            )
        case "type":
            wanted = " or ".join(facts["types"])
            return RequestRejected(f"must be {_article(wanted)} {wanted}", field=field)
        case "minimum":
            return RequestRejected(f"must be at least {facts['limit']}", field=field)
        case "maximum":
            return RequestRejected(f"must be at most {facts['limit']}", field=field)
        case "exclusiveMinimum":
            return RequestRejected(f"must be more than {facts['limit']}", field=field)
        case "minLength":
            return RequestRejected(f"must have at least {facts['limit']} characters", field=field)
        case "maxLength":
            return RequestRejected(f"must have at most {facts['limit']} characters", field=field)
        case "maxItems":
            return RequestRejected(f"must have at most {facts['limit']} items", field=field)
        case "uniqueItems":
            return RequestRejected("names something twice", field=field)
        case "enum":
            return RequestRejected(f"must be one of {', '.join(map(str, facts['options']))}", field=field)
        case "pattern":
            meaning = kind.schema["properties"].get(field, {}).get("description", "")
            return RequestRejected(f"does not fit ({meaning or facts['pattern']})", field=field)
    return RequestRejected(str(error.message)[:300], field=field)


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _built_in(limits: Limits) -> list[Kind]:
    def crawl(given: dict[str, Any]) -> CrawlRequest:
        if "attrs" in given:
            check_json(given["attrs"], "attrs")
        for field in ("maxdepth", "domain_max_pages"):
            most = getattr(limits, field)
            if most is not None and given.get(field, 0) > most:
                raise RequestRejected(f"must be at most {most} here; the operator set this limit", field=field)
        if given.get("expires", 0) > 2**53 // 1000:
            raise RequestRejected("must be epoch seconds, not milliseconds", field="expires")
        if "body" in given and "body_base64" in given:
            raise RequestRejected("contradicts body; send one of them", field="body_base64")
        if "body_base64" in given:
            try:
                base64.b64decode(given["body_base64"], validate=True)
            except (binascii.Error, ValueError):
                raise RequestRejected("is no base64", field="body_base64") from None
        if "rate" in given and not _possible(given["rate"]):
            raise RequestRejected("must be HITS/SECONDS with at least 1 hit in 0.001 to 604800 seconds", field="rate")
        return msgspec.convert(given, CrawlRequest, strict=False)  # 2.0 is an integer to JSON Schema

    return [
        Kind("crawl", schema("crawl"), 100, crawl),
        Kind("action", schema("action"), 200, lambda given: msgspec.convert(given, ActionRequest)),
        Kind("stats", schema("stats"), 300, lambda given: msgspec.convert(given, StatsRequest)),
        Kind("domain", schema("domain"), 400, _domain),
    ]


def _domain(given: dict[str, Any]) -> DomainRequest:
    request = msgspec.convert(given, DomainRequest, strict=False)
    if request.action == "domain-update":
        for field in ("hits", "window"):
            if not getattr(request, field):
                raise RequestRejected("must be at least 1 for a domain-update", field=field)
    return request


def _possible(rate: str) -> bool:
    hits, _, seconds = rate.partition("/")
    return 1 <= int(hits) <= 1_000_000 and 0.001 <= float(seconds or 1) <= 604800


def check_json(value: object, field: str) -> None:
    """Whether it can travel: at most MOST_NESTED levels, integers of 64 bits. Raises RequestRejected."""
    level: list[Any] = [value]
    for _ in range(MOST_NESTED):
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                inner += part.values()
            elif isinstance(part, list):
                inner += part
            elif isinstance(part, int) and not -(2**63) <= part < 2**64:
                raise RequestRejected("holds an integer of more than 64 bits; write it as text", field=field)
        if not inner:
            return
        level = inner
    raise RequestRejected(f"is nested more than {MOST_NESTED} levels deep", field=field)
