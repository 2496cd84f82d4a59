"""Form for a crawl request: its fields come from the schema `crawl`, so it has every field that the API has."""

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from gossamer.model.messages.reader import schema

_FIRST: Final = (
    "url", "appid", "crawlid", "maxdepth", "max_pages", "allowed_domains", "rate", "spiderid", "sitemaps", "markdown",
)  # fmt: skip
"""Fields that most people need; the others are behind a heading that opens."""


class FormField(NamedTuple):
    """Field of the form."""

    name: str
    kind: str
    """text, number, checkbox, choice, list (one value a line), json, or lines (a request for each line)."""
    help: str
    rule: str
    """Rule for its values, in the words of the error for one that breaks it. Empty: the schema has no words."""
    choices: tuple[str, ...]
    is_required: bool
    is_first: bool


@cache
def form_fields() -> tuple[FormField, ...]:
    """Return the fields in the order of the form."""
    definition = schema("crawl")
    required, properties = set(definition["required"]), definition["properties"]
    names = [*_FIRST, *(name for name in properties if name not in _FIRST)]
    return tuple(_field(name, properties[name], is_required=name in required) for name in names)


def _field(name: str, definition: Mapping[str, Any], *, is_required: bool) -> FormField:
    choices = tuple(choice for choice in definition.get("enum", ()) if isinstance(choice, str) and choice)
    kind = {"integer": "number", "number": "number", "boolean": "checkbox", "object": "json"}.get(
        str(definition.get("type")), "text"
    )
    if choices:
        kind = "choice"
    elif definition.get("type") == "array":
        items = definition.get("items", {})
        kind = "list" if items.get("type") == "string" or "enum" in items else "json"
    if name == "url":
        kind = "lines"
    about, rule = definition.get("description", ""), definition.get("x-means", "")
    return FormField(name, kind, about, rule, choices, is_required, name in _FIRST)


def request_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that a filled form stands for, without its empty fields. The API checks the values, also texts
    where a number or JSON is wanted, so that it names all faults together."""
    request: dict[str, Any] = {}
    for field in form_fields():
        text = given.get(field.name, "").strip()
        if not text:
            continue
        if field.kind == "checkbox":
            request[field.name] = True
        elif field.kind == "list":
            request[field.name] = [line.strip() for line in text.splitlines() if line.strip()]
        elif field.kind in ("number", "json"):
            try:
                request[field.name] = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                request[field.name] = text
        else:
            request[field.name] = text
    return request


def requests_of(given: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the requests that a filled form stands for: one for each line of its URL. Only the first one begins a new
    run, because the others belong to it."""
    request = request_of(given)
    urls = [line.strip() for line in given.get("url", "").splitlines() if line.strip()]
    if len(urls) < 2:
        return [request]
    return [
        {name: url if name == "url" else value for name, value in request.items() if number == 0 or name != "fresh"}
        for number, url in enumerate(urls)
    ]


def texts_of(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the filled form for a request: the reverse of `request_of`."""
    texts = {}
    for field in form_fields():
        value = request.get(field.name)
        if value is None or value is False:
            continue
        if field.kind == "checkbox":
            texts[field.name] = "yes"
        elif field.kind == "list":
            texts[field.name] = "\n".join(value)
        elif value is True:  # of `render`, which also has words
            texts[field.name] = "always"
        else:
            texts[field.name] = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return texts


def command_of(requests: Sequence[Mapping[str, Any]]) -> str:
    """Return the command that sends the same requests."""
    lines = [msgspec.json.encode(request).decode() for request in requests]
    if len(lines) == 1:
        return shlex.join(["gossamer", "feed", *lines])
    return "\n".join(["gossamer feed - <<'EOF'", *lines, "EOF"])
