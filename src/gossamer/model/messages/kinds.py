"""Kinds of request: a schema, a rank, and what is made of a message that fits."""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jsonschema_rs
import msgspec

from gossamer.errors import BadInput, RequestRejected
from gossamer.model.messages.requests import ActionRequest, CrawlRequest, DomainRequest, StatsRequest
from gossamer.model.messages.schemas import RequestLimits, schema

_T = TypeVar("_T")


@dataclass(frozen=True)
class RequestKind:
    """A kind of request: the first by rank whose schema a message satisfies is meant.

    Raises BadInput for a schema that is none, or that refers to one elsewhere."""

    name: str
    schema: Mapping[str, Any]
    rank: int
    build: Callable[[dict[str, Any]], Any]
    """Makes the request of a valid message; RequestRejected for what a schema cannot say."""

    validator: Any = field(init=False, repr=False, compare=False)
    """Of the schema, compiled."""

    def __post_init__(self) -> None:
        try:
            given = dict(self.schema)
            jsonschema_rs.meta.validate(given)
            # Offline: a schema that has to be fetched from somewhere is refused here, not when a message comes.
            object.__setattr__(self, "validator", jsonschema_rs.validator_for(given, offline=True))
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
            raise BadInput(f"the schema of {self.name}: {(str(error) or 'is none').splitlines()[0]}") from None


def built_in(limits: RequestLimits) -> list[RequestKind]:
    """The kinds that Scrapy Cluster has, under its ranks."""

    def crawl(given: dict[str, Any]) -> CrawlRequest:
        for name, most in (("maxdepth", limits.maxdepth), ("domain_max_pages", limits.domain_max_pages)):
            if most is not None and given.get(name, 0) > most:
                raise RequestRejected(f"must be at most {most} here; the operator set this limit", field=name)
        if "body_base64" in given:
            _check_base64(given)
        if "rate" in given and not _possible(given["rate"]):
            raise RequestRejected("must be HITS/SECONDS with at least 1 hit in 0.001 to 604800 seconds", field="rate")
        return _convert(given, CrawlRequest)

    return [
        RequestKind("crawl", schema("crawl"), 100, crawl),
        RequestKind("action", schema("action"), 200, lambda given: _convert(given, ActionRequest)),
        RequestKind("stats", schema("stats"), 300, lambda given: _convert(given, StatsRequest)),
        RequestKind("domain", schema("domain"), 400, _domain),
    ]


def _convert(given: dict[str, Any], into: type[_T]) -> _T:
    return msgspec.convert(given, into, strict=False)  # 2.0 is an integer to JSON Schema


def _domain(given: dict[str, Any]) -> DomainRequest:
    request = _convert(given, DomainRequest)
    if request.action == "domain-update":
        for name in ("hits", "window"):
            if not getattr(request, name):
                raise RequestRejected("must be at least 1 for a domain-update", field=name)
    return request


def _check_base64(given: dict[str, Any]) -> None:
    if "body" in given:
        raise RequestRejected("contradicts body; send one of them", field="body_base64")
    try:
        base64.b64decode(given["body_base64"], validate=True)
    except (binascii.Error, ValueError):
        raise RequestRejected("is no base64", field="body_base64") from None


def _possible(rate: str) -> bool:
    hits, _, seconds = rate.partition("/")
    return 1 <= int(hits) <= 1_000_000 and 0.001 <= float(seconds or 1) <= 604800
