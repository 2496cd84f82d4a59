"""The JSON Schemas (draft 2020-12) of every message, as they lie in `schemas/`. Their `examples` are valid."""

from functools import cache
from importlib import resources
from typing import Any

import msgspec

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
