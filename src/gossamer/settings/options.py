"""Options that set settings: how the command line, the Python API and requests to a service write each of them.

A setting has its option beside its type and description, in `field_of`. From there come the flags and their help, the
options of `gossamer.crawl` and `gossamer.get` (crawling/typed_options.py), the ranges of the request schema, the
completion and the reference. Fixed: names of options, which stand in people's scripts and programs.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from gossamer.errors import BadInput
from gossamer.net.resolve import parse_override

# Titles of the panels in `--help`, each a group of options.
WHAT = "What to crawl"
HOW_FAST = "How fast"
EXTRACT = "What to take from the pages"
OUTPUT = "Output"
REQUESTS = "Requests"
WHERE = "Where it runs"
DISPLAY = "Display"
PANELS = (WHAT, HOW_FAST, EXTRACT, OUTPUT, REQUESTS, WHERE, DISPLAY)
"""In the order of the help."""

MOST_NESTED = 100
"""Maximum number of nested arrays and objects in `attrs`. Raised only to a few hundred, where common JSON readers
fail."""


class SettingOption(NamedTuple):
    """An option that sets a setting."""

    panel: str
    metavar: str | None = None
    """Name of the value in the help. None: a flag without a value."""
    of: Literal["crawl", "requests", "others"] = "crawl"
    """crawl: `gossamer crawl` and gossamer.crawl have the option. requests: they, and what fetches a single page, such
    as gossamer.get. others: only commands that name it."""
    name: str = ""
    """Name of the option in programs. Empty: that of the setting."""
    flags: tuple[str, ...] = ()
    """Empty: the name, as a flag."""
    many: bool | None = None
    """True: the flag may be repeated. None: it may if the setting is a list or a table of texts."""
    convert: Callable[[Any], Any] | None = None
    """Converts a value that was typed, or that a program gave, into one of the setting. None: there are no other forms
    than those of every setting of its type."""
    help: str = ""
    """Help of the command line. Empty: the setting's description and default."""
    default: str = ""
    """Default that the help names if it is not that of the setting. Only text: the command must set it."""
    python_type: str = ""
    """Type in programs, as their type checkers read it. Empty: that of the setting."""
    python: str = ""
    """Description for programs. Empty: that of the setting."""
    field: str = ""
    """Field of a crawl request with the same meaning, which accepts the same values."""


def texts(value: Any) -> Any:
    """Return a text, or several, as a tuple of texts. Anything else is returned unchanged, for the check of its
    type."""
    if isinstance(value, str | os.PathLike):
        return (value,)
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, Mapping | bytes) else value


def headers(value: Any) -> dict[str, str]:
    """Return headers from a table, or from texts like `NAME:VALUE`. Raises BadInput."""
    if isinstance(value, Mapping):
        for name, text in value.items():
            if not isinstance(text, str | int | float):
                raise BadInput(f"{name} is {text!r:.100}. Write a text.")
        return {str(name): str(text) for name, text in value.items()}
    found = {}
    for text in texts(value):
        name, colon, rest = text.partition(":")
        if not colon or not name.strip():
            raise BadInput(f"cannot read {text!r}. Write NAME:VALUE.")
        found[name.strip()] = rest.strip()
    return found


def overrides(value: Any) -> dict[str, str]:
    """Return addresses by host from a table, or from texts like `HOST:ADDRESS`. Raises BadInput."""
    if isinstance(value, Mapping):
        value = [f"{name}:{address}" for name, address in value.items()]
    return dict(map(parse_override, texts(value)))


def json_object(value: Any) -> dict[str, Any]:
    """Return a table, or the JSON object in a text. Raises BadInput."""
    if isinstance(value, Mapping):
        return dict(value)
    import json  # late: few commands need it

    try:
        found = json.loads(value)
    except RecursionError:
        raise BadInput(f"nested more than {MOST_NESTED} levels deep. Make the object flatter.") from None
    except ValueError as error:
        raise BadInput(f'cannot read JSON: {error}. Write an object like {{"name": "value"}}.') from None
    if not isinstance(found, dict):
        raise BadInput(f'{value!r:.80} is not a JSON object. Write one like {{"name": "value"}}.')
    return found


def outputs(value: Any) -> Any:
    """Return outputs in a form that their setting accepts: a path, a list of paths, or records by path."""
    return dict(value) if isinstance(value, Mapping) else texts(value)


def selectors(value: Any) -> tuple[str, ...]:
    """Return fields as `NAME=SELECTOR` from a table, or as they are. Raises BadInput."""
    if not isinstance(value, Mapping):
        return tuple(texts(value))
    for name, selector in value.items():
        if "=" in str(name):
            raise BadInput(f"{name!r:.100} is no name of a field. Write one without =.")
        if not isinstance(selector, str):
            raise BadInput(f"{name} is {selector!r:.100}. Write a text like '.price @number', or use extract.")
    return tuple(f"{name}={selector}" for name, selector in value.items())


def moment(value: Any) -> str:
    """Return a time as the setting `expires` has it."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.3f}"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value)
