"""JSON Schemas (draft 2020-12) of all messages except dead letters, loaded from `schemas/`. Their `examples` are valid.

The reader of requests and the REST service use the schemas of REQUESTS. The generated reference and the tests iterate
over all the tuples, in their order, which may change freely. Names are also those of the files, and stand in the
reference: a new message needs a file and a name here; a message that clients send or read must not lose its own.
"""

from functools import cache
from importlib import resources
from typing import Any

import msgspec

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
"""Messages sent in reply to a request."""

EVENTS = ("finished", "expired", "stopped")
"""Messages about the end of a crawl."""

RESULTS = ("page", "item", "page_1_0")
"""Messages with the output of a crawl."""

REST = ("poll", "rest_answer", "rest_root")
"""Bodies that only the REST API has."""


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the schema of this name. It is shared: copy it before you change it. Raises FileNotFoundError."""
    text = (resources.files("gossamer.model.messages") / "schemas" / f"{name}.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(text)
    return found
