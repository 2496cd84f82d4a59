"""Reading what was sent: JSON, alone or a line each."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request

from gossamer.api.problems import bad_request
from gossamer.errors import RequestRejected
from gossamer.model.messages.read import decode

_LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/jsonlines")
NDJSON = _LINES[0]


def media_type(request: Request) -> str:
    """Of the body, without parameters, lower-case; '' where nothing is said."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_lines(request: Request) -> bool:
    """Whether the body is JSON by lines."""
    return media_type(request) in _LINES


def decoded(value: bytes) -> Any:
    """The JSON in these bytes. Raises RequestRejected, with the reason in words."""
    if not value.strip():
        raise RequestRejected("the body is empty")
    return decode(value)


async def read_object(request: Request) -> dict[str, Any]:
    """The body, a JSON object. Raises RequestRejected."""
    found = decoded(await request.body())
    if not isinstance(found, dict):
        raise RequestRejected("this is JSON, but no object")
    return found


def lines(value: bytes) -> Sequence[bytes]:
    """The lines that hold something."""
    return [line for line in value.splitlines() if line.strip()]


def check_known(given: dict[str, Any], known: Sequence[str]) -> None:
    """Raises Problem that names a field which is not one of these."""
    for field in given:
        if field not in known:
            raise bad_request(f"unknown field; there are {', '.join(known)}", where=field)
