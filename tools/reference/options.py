"""Types of options for Python programs, and fields of the request schema, made from the table of options."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from gossamer.settings import OPTIONS
from gossamer.settings.groups import alternatives

SCHEMA = Path(__file__).parents[2] / "src" / "gossamer" / "model" / "messages" / "schemas" / "crawl.json"
_HEAD = '''"""Types of the options of `gossamer.crawl` and `gossamer.get`. Made by `tools.reference`; do not edit."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from gossamer.crawling.options import ConfigOption, PathLike, StartingOptions, Texts
from gossamer.worker.spider import Spider
'''
_TYPES = {bool: "bool", int: "int", float: "float", str: "str", Path: "PathLike", tuple: "Texts"}


def typed_options() -> str:
    """Return the text of `crawling/typed_options.py`."""
    return "\n\n".join((
        _HEAD,
        "class RequestOptions(ConfigOption, total=False):\n"
        '    """Options of requests. Each is optional; docs/reference/settings.md has the defaults."""\n\n'
        + "\n".join(_lines("requests")) + "\n",
        "class CrawlOptions(RequestOptions, StartingOptions, total=False):\n"
        '    """Options of a crawl. Each is optional; docs/reference/settings.md has the defaults."""\n\n'
        + "\n".join(_lines("crawl")),
    )) + "\n"  # fmt: skip


def _lines(of: str) -> Iterator[str]:
    for name, (_, field, option) in OPTIONS.items():
        if option.of == of:
            yield f"    {name}: {option.python_type or _type(field.kind)}"
            text = f'"""{option.python or field.description}."""'
            yield textwrap.fill(
                text,
                120,
                initial_indent="    ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )


def _type(kind: Any) -> str:
    """Return the type of a setting as a program writes it."""
    [one] = alternatives(kind)
    if get_origin(one) is Literal:
        words = ", ".join(f'"{word}"' for word in get_args(one))
        return f"Literal[{words}]"
    return _TYPES[get_origin(one) or one]


def request_schema() -> str:
    """Return the schema of crawl requests, whose fields accept what the options accept."""
    schema = msgspec.json.decode(SCHEMA.read_bytes())
    for _, field, option in OPTIONS.values():
        if option.field:
            described = schema["properties"].setdefault(option.field, {"description": field.description})
            schema["properties"][option.field] = {**_accepted(field.kind), **described, **_limits(field.kind)}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _accepted(kind: Any) -> dict[str, Any]:
    """Return the type, or the words, of a setting as JSON Schema has it."""
    [one] = alternatives(kind)
    if get_origin(one) is Literal:
        return {}
    return {"type": {bool: "boolean", int: "integer", float: "number"}[one]}


def _limits(kind: Any) -> dict[str, Any]:
    """Return the words or the largest value of a setting. The least value is the request's own: 0 may lift a limit."""
    for one in (kind, *get_args(kind)):
        if get_origin(one) is Literal:
            return {"enum": list(get_args(one))}
        if get_origin(one) is Annotated:
            most = get_args(one)[1].le
            return {"maximum": int(most) if most == int(most) else most}
    return {}
