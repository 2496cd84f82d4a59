"""The reference page of the messages, made from their schemas."""

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

from gossamer.model.messages import reader
from gossamer.model.messages.reader import MAX_MESSAGE_BYTES, MAX_NESTING
from gossamer.model.record import ItemRecord, PageRecord

_TABLE = ("| field | type | meaning |", "|---|---|---|")
_OLD_FORMAT = "_1_0"
"""End of the name of a message in the format of Scrapy Cluster 1.0."""
_GROUPS = (
    (
        "Requests",
        reader.REQUESTS,
        "Send requests to `<prefix>.incoming` (or to `/feed`). Programs for Scrapy Cluster 1.0 may send crawls to "
        "`<prefix>.incoming_urls` and actions to `<prefix>.inbound_actions`; both topics accept every request. The "
        "fields of a request decide its kind: it is the first one below whose schema it satisfies. A field that is "
        "null counts as absent; if a name occurs twice, the last value counts. Unknown fields are rejected by name. "
        f"So are messages of more than {MAX_MESSAGE_BYTES:,} bytes (the operator may set another limit) and messages "
        f"nested more than {MAX_NESTING} levels deep.",
    ),
    (
        "Answers",
        reader.ANSWERS,
        "Answers go to `<prefix>.outbound_firehose` and to `<prefix>.outbound_<appid>`. An answer may be sent more "
        "than once, with the same `uuid`. A rejection goes to `<prefix>.outbound_<appid>` only if that topic exists, "
        "because an earlier answer or a consumer created it. Actions from `<prefix>.inbound_actions` are answered in "
        "the format of Scrapy Cluster 1.0.",
    ),
    (
        "Events",
        reader.EVENTS,
        "Events go to the same topics, after the last page of their crawl. An event is sent at least once; "
        "repetitions have the same `event_id`.",
    ),
    (
        "Results",
        reader.RESULTS,
        "Results go to `<prefix>.crawled_firehose` and to `<prefix>.crawled_<appid>`. A result is sent at least once; "
        "repetitions have the same `request_id`.",
    ),
    (
        "Changes",
        reader.CHANGES,
        "Changes go to `<prefix>.changes`. A change is sent at least once; repetitions have the same `id`.",
    ),
    (
        "Dead letters",
        ("dead_letter",),
        "Rejected requests, and messages that their topics could not take, are in `<prefix>.dead_letter`.",
    ),
    ("REST", reader.REST, "Messages that only the REST service uses."),
)

_PRINTABLE = "must be printable, without white space"
"""Rule of the ids, which stands once on the page."""
_MANY = 4
"""Number of messages from which a field that they share is explained once."""
_COMBINED = ("crawler", "all")
"""Statistics that consist of others, whose examples stand on the page."""
_RECORDS = {"page": PageRecord, "item": ItemRecord}
"""Messages whose fields are those of a record, which records.md explains."""
_KINDS = {"string": "string", "number": "number", "integer": "integer", "boolean": "boolean", "object": "object"}


def messages_page() -> str:
    """Return docs/reference/messages.md."""
    lines = [
        "# Messages",
        "",
        "Every message is one JSON object in UTF-8. Fields and types are those of Scrapy Cluster 1.2, with some added.",
        "Times are epoch seconds. `<prefix>` is the setting `topics.prefix`, by default `demo`. In the name of a",
        "topic, characters of an `<appid>` that are not allowed there become underscores, and a digest is appended.",
        "The schemas (JSON Schema, draft 2020-12) are in the package, at `gossamer/model/messages/schemas`; each",
        "message below names its file.",
        "",
        "A consumer tells messages apart by their fields: results have `type` (`page` or `item`); events, rejections",
        "and the answers to `stop` and domain requests have `action`; statistics have `stats`; changes have `change`;",
        "information has none of these.",
        "",
        "## Fields of many messages",
        "",
        "A field that is `optional` may be absent. Ids (`appid`, `crawlid`, `uuid`) are printable, without white "
        "space.",
        "",
        *_TABLE,
        *_shared_rows(),
        "",
    ]
    for title, names, about in _GROUPS:
        lines += [f"## {title}", "", about, ""]
        for name in names:
            newer = name.removesuffix(_OLD_FORMAT)
            lines += _message(name, reader.schema(name), None if newer == name else reader.schema(newer))
    lines += _PLUGINS
    return "\n".join(lines).rstrip() + "\n"


_PLUGINS = [
    "## Custom requests",
    "",
    "An installed package adds a kind of request with an entry point in the group `gossamer.requests`. The name of the",
    "entry point is the name of the kind. Its value is an object, or a class without parameters, that has",
    "",
    "| | |",
    "|---|---|",
    "| `schema` | the JSON Schema as a dictionary, without references to other documents. A field may have the keyword "
    "`x-means`, which explains its pattern or bounds in rejections |",
    "| `rank` | an integer. Kinds are tried in ascending rank, and the first whose schema the message satisfies is "
    "used. The ranks of the built-in kinds: `crawl` 100, `action` 200, `stats` 300, `domain` 400 |",
    "| `async handle(request, *, format_1_0)` | returns the answers: a list of dictionaries, each with an `appid`. "
    "`request` is the message without its nulls; `format_1_0` is true when answers must have the format of Scrapy "
    "Cluster 1.0. May be called again with the same request after a failure |",
    "",
]


@cache
def _shared_rows() -> list[str]:
    """Return the rows of fields that many messages have: one for each field, that of most messages."""
    schemas = [reader.schema(name) for _, names, _ in _GROUPS for name in names]
    counts = Counter(row for schema in schemas for row in _rows(schema))
    chosen: dict[str, str] = {}
    for row, count in counts.most_common():
        if count >= _MANY:
            chosen.setdefault(_field(row), row)
    return [*chosen.values()]


def _message(name: str, schema: dict[str, Any], newer: dict[str, Any] | None) -> Iterator[str]:
    """Yield the section of a message. `newer`: the schema that replaced it; its fields are not repeated."""
    yield f"### {schema['title']}"
    yield ""
    yield f"{schema['description']} (`{name}.json`)"
    yield ""
    elsewhere = _shared_rows()
    others = ", ".join(f"`{_field(row)}`" for row in _rows(schema) if row in elsewhere)
    others = f"[Shared](#fields-of-many-messages): {others}."
    if newer:
        elsewhere = _rows(newer)
        others = f"Its other fields are those of [{newer['title']}](#{newer['title'].lower().replace(' ', '-')})."
    elif record := _RECORDS.get(name):
        elsewhere = [row for row in _rows(schema) if _field(row) in record.__struct_fields__]
        others = f"Its other fields are those of [{name}s in outputs](records.md)."
    rows = [row for row in _rows(schema) if row not in elsewhere] + _rows_of_kinds(schema)
    if rows:
        yield from (*_TABLE, *rows, "")
    if len(rows) < len(_rows(schema)):
        yield from (others, "")
    shown: set[str] = set()
    for example in schema["examples"] if not newer else ():
        if not shown.issuperset(example) and example.get("stats") not in _COMBINED:
            shown.update(example)
            yield "```json"
            yield json.dumps(example, ensure_ascii=False)
            yield "```"
            yield ""


def _field(row: str) -> str:
    return row.split("`")[1]


def _rows(schema: dict[str, Any]) -> list[str]:
    """Return the rows of the fields that each message of the schema has."""
    return [_row(field, part, required=field in schema["required"]) for field, part in schema["properties"].items()]


def _rows_of_kinds(schema: dict[str, Any]) -> list[str]:
    """Return the rows of the fields that only some kinds of the message have."""
    kinds: dict[str, list[str]] = {}
    for branch in schema.get("oneOf", ()):
        for field, part in branch["properties"].items():
            if field != "stats":
                row = _row(field, _resolved(part, schema), required=field in branch["required"])
                kinds.setdefault(row, []).append(f"`{branch['properties']['stats']['const']}`")
    return [f"{row.removesuffix(' |')}. Only in {', '.join(of)} |" for row, of in kinds.items()]


def _row(field: str, part: dict[str, Any], *, required: bool) -> str:
    meaning = part.get("description", "")
    if "enum" not in part and (rule := part.get("x-means", _PRINTABLE)) != _PRINTABLE:
        meaning += f"; {rule}"
    if part.get("default") or ("default" in part and "Empty:" not in meaning):
        meaning += f". Default: `{json.dumps(part['default'])}`"
    kind = _type(part)
    if not required and "default" not in part and "bsent" not in meaning:
        kind += ", optional"
    return f"| `{field}` | {kind} | {meaning.replace('|', chr(92) + '|')} |"


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
        distinct = "distinct " if part.get("uniqueItems") else ""
        if "enum" in part["items"]:
            return f"list of {distinct}{_type(part['items']).removeprefix('one of ')}"
        most = f"at most {part['maxItems']:,} " if "maxItems" in part else "list of "
        return f"{most}{distinct}{_KINDS[part['items']['type']]}s"
    return _KINDS[part["type"]] + _range(part)


def _range(part: dict[str, Any]) -> str:
    low, high = part.get("minimum", part.get("minLength")), part.get("maximum", part.get("maxLength"))
    unit = " characters" if part["type"] == "string" else ""
    more = f", more than {part['exclusiveMinimum']}" if "exclusiveMinimum" in part else ""
    if high is not None and high >= 2**53 - 1:  # no real limit: the largest integer that is safe in JSON
        high = None
    if low is not None and high is not None:
        return f", {low:,}–{high:,}{unit}"
    if high is not None:
        return f"{more}, at most {high:,}{unit}"
    return f", at least {low:,}{unit}" if low else more
