"""The JSON Schemas (draft 2020-12) of every message, as they lie in `schemas/`."""

from functools import cache
from importlib import resources
from typing import Any

import msgspec

REQUESTS = ("crawl", "action", "stats", "domain", "poll")
"""What comes in."""


@cache
def schema(name: str) -> dict[str, Any]:
    """The schema of this name. Do not change it: copy it first. Raises FileNotFoundError for one that is none."""
    text = (resources.files("gossamer.model.messages") / "schemas" / f"{name}.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(text)
    return found
