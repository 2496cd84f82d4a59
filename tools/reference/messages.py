"""The reference page of the messages, made from their schemas."""

import json
from collections.abc import Iterator
from typing import Any

from gossamer.model.messages import schemas
from gossamer.model.messages.schemas import MOST_BYTES, MOST_NESTED

_GROUPS = (
    (
        "Requests",
        schemas.REQUESTS,
        "Sent to `<prefix>.incoming` (or `/feed`); those that follow Scrapy Cluster 1.0 send crawls to "
        "`<prefix>.incoming_urls` and actions to `<prefix>.inbound_actions`, where either is taken. Which request is "
        "meant is told by its fields: the first one fits, in the order below. A null counts as absent; of a name that "
        "comes twice the last counts; a field that is not known here is refused by name, and so is a message of more "
        f"than {MOST_BYTES:,} bytes (the operator may set another limit) or nested more than {MOST_NESTED} levels.",
    ),
    (
        "Answers",
        schemas.ANSWERS,
        "Sent to `<prefix>.outbound_firehose` and to `<prefix>.outbound_<appid>`. An answer repeats only under its "
        "`uuid`. A refusal goes to `<prefix>.outbound_<appid>` only where that topic is there: somebody was answered "
        "on it, or reads it. Actions that came by `<prefix>.inbound_actions` are answered in the form of 1.0.",
    ),
    (
        "Events",
        schemas.EVENTS,
        "Sent to the same topics, after the last page of what they are about. Told at least once: a repeat has the "
        "same `event_id`.",
    ),
    (
        "Results",
        schemas.RESULTS,
        "Sent to `<prefix>.crawled_firehose` and to `<prefix>.crawled_<appid>`. Sent at least once: a repeat has the "
        "same `request_id`.",
    ),
    ("Dead letters", ("dead_letter",), "Kept in `<prefix>.dead_letter`: requests that were refused."),
    ("REST", schemas.REST, "What the REST service says beside the above."),
)

_KINDS = {"string": "text", "number": "number", "integer": "integer", "boolean": "boolean", "object": "object"}


def messages_page() -> str:
    """docs/reference/messages.md, without the line that says how it was made."""
    lines = [
        "# Messages",
        "",
        "Every message is one JSON object in UTF-8, in the fields and types of Scrapy Cluster 1.2 with some added.",
        "Times are epoch seconds. `<prefix>` is the operator's, `demo` unless set; an `<appid>` with characters that a",
        "topic's name cannot have is written with underscores and a digest. The schemas (JSON Schema, draft 2020-12)",
        "are in the package, at `gossamer/model/messages/schemas`, one file for each message below.",
        "",
        "What a consumer has before it: `type` tells results (`page`, `item`), `action` tells events, refusals and the",
        "answers to `stop` and domain requests, `stats` tells statistics; what has none of them is information.",
        "",
    ]
    for title, names, about in _GROUPS:
        lines += [f"## {title}", "", about, ""]
        for name in names:
            lines += _message(name, schemas.schema(name))
    lines += _PLUGINS
    return "\n".join(lines).rstrip() + "\n"


_PLUGINS = [
    "## Requests of your own",
    "",
    "An installed package adds a request by an entry point of the group `gossamer.requests`. The entry point's name is",
    "the request's; it leads to an object, or a class without arguments, with",
    "",
    "| | |",
    "|---|---|",
    "| `schema` | its JSON Schema, as a dictionary, with no reference to another document; a field's own keyword "
    "`x-means` says in words what its pattern or bounds demand, for refusals |",
    "| `rank` | an integer; requests are tried in rising rank, and the first whose schema fits is meant. Built in are "
    "`crawl` 100, `action` 200, `stats` 300, `domain` 400 |",
    "| `async handle(request, *, old)` | returns the answers, a list of dictionaries, each with an `appid`. `request` "
    "is the message without its nulls; `old` tells that answers are to have 1.0's form. May be called again with the "
    "same request after a failure |",
    "",
]


def _message(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {schema['title']}"
    yield ""
    yield f"{schema['description']} Schema: `{name}.json`."
    yield ""
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    required = schema["required"]
    for field, part in schema["properties"].items():
        yield _row(field, part, required=field in required)
    for branch in schema.get("oneOf", ()):
        kind = branch["properties"]["stats"]["const"]
        for field, part in branch["properties"].items():
            if field != "stats":
                merged = {**_resolved(part, schema), "of": kind}
                yield _row(field, merged, required=field in branch["required"])
    yield ""
    for example in schema["examples"]:
        yield "```json"
        yield json.dumps(example, ensure_ascii=False)
        yield "```"
        yield ""


def _row(field: str, part: dict[str, Any], *, required: bool) -> str:
    meaning = part.get("description", "")
    if "of" in part:
        meaning = f"Of `{part['of']}`. {meaning}"
    if "x-means" in part:
        meaning += f"; {part['x-means']}"
    if "default" in part:
        meaning += f". Default: `{json.dumps(part['default'])}`"
    elif not required and "bsent" not in meaning:
        meaning += ". May be absent"
    return f"| `{field}` | {_type(part)} | {meaning.replace('|', chr(92) + '|')} |"


def _resolved(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in part:
        return part
    found: dict[str, Any] = schema["$defs"][part["$ref"].rpartition("/")[2]]
    return found


def _type(part: dict[str, Any]) -> str:
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return "one of " + ", ".join(f"`{value}`" for value in part["enum"])
    if isinstance(part["type"], list):
        return " or ".join(_KINDS.get(kind, str(kind)) for kind in part["type"])
    if part["type"] == "array":
        each = ", no two alike" if part.get("uniqueItems") else ""
        most = f", at most {part['maxItems']}" if "maxItems" in part else ""
        return f"list of {_KINDS[part['items']['type']]}s{each}{most}"
    return _KINDS[part["type"]] + _range(part)


def _range(part: dict[str, Any]) -> str:
    low, high = part.get("minimum", part.get("minLength")), part.get("maximum", part.get("maxLength"))
    unit = " characters" if part["type"] == "string" else ""
    more = f", more than {part['exclusiveMinimum']}" if "exclusiveMinimum" in part else ""
    if high is not None and high >= 2**53 - 1:  # what every JSON reader can count to: no limit anybody meets
        high = None
    if low is not None and high is not None:
        return f", {low:,} to {high:,}{unit}"
    if high is not None:
        return f"{more}, at most {high:,}{unit}"
    return f", at least {low:,}{unit}" if low else more
