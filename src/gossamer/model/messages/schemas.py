"""The JSON Schemas (draft 2020-12) of every message, as they lie in `schemas/`. Their `examples` are valid."""

import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from gossamer.errors import RequestRejected

REQUESTS = ("crawl", "action", "stats", "domain")
"""What comes in by the bus and by `/feed`."""

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
"""What is said to requests."""

EVENTS = ("finished", "expired", "stopped")
"""What is said of crawls, asked or not."""

RESULTS = ("page", "item", "page_1_0")
"""What crawls bring."""

REST = ("poll", "rest_answer", "rest_root")
"""What only the REST interface has."""

EVERY = (*REQUESTS, *ANSWERS, *EVENTS, *RESULTS, "dead_letter", *REST)


@cache
def schema(name: str) -> dict[str, Any]:
    """The schema of this name. Do not change it: copy it first. Raises FileNotFoundError for one that is none."""
    text = (resources.files("gossamer.model.messages") / "schemas" / f"{name}.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(text)
    return found


MOST_BYTES = 1024 * 1024
"""Of a message; a larger one is refused unread."""

MOST_NESTED = 100
"""Levels of arrays and objects."""

LONGEST_AHEAD_SECONDS = 100 * 365 * 86400
"""How far from now a crawl may expire."""

TOO_DEEP = f"is nested more than {MOST_NESTED} levels deep"

_SMALLEST, _LARGEST = -(2**63), 2**64 - 1


@dataclass(frozen=True)
class RequestLimits:
    """How much of what the original limited a request may ask. None: whatever the schema allows."""

    maxdepth: int | None = None
    domain_max_pages: int | None = None
    message_bytes: int = MOST_BYTES


def check_json(value: object, field: str) -> None:
    """Whether it can travel: at most MOST_NESTED levels, integers of 64 bits, finite numbers. Raises RequestRejected.

    `field`: which part of the message it is."""
    level, depth = [value], 0
    while level:
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict | list):
                if depth == MOST_NESTED:
                    raise RequestRejected(TOO_DEEP, field=field)
                inner += part.values() if isinstance(part, dict) else part
            elif isinstance(part, int):
                if not _SMALLEST <= part <= _LARGEST:
                    raise RequestRejected("holds an integer of more than 64 bits", field=field)
            elif isinstance(part, float) and not math.isfinite(part):
                raise RequestRejected("holds NaN or an infinity, which JSON does not have", field=field)
        level, depth = inner, depth + 1
