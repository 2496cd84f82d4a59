"""Text and values that every database and every form of JSON can express.

PostgreSQL refuses NUL in text, and NaN and Infinity in JSON; no database takes a lone surrogate (half of a character
beyond U+FFFF). A client's request with such text is refused where it enters. What a program reports is changed instead:
a report that is refused would be repeated for ever. Pure: no I/O.
"""

import json
import math
import re
from typing import Any, Final

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
_ESCAPED: Final = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
"""Such characters in JSON of ASCII, and the halves of good characters, which are then left alone."""


def is_storable(text: str) -> bool:
    """Return whether a text has neither NUL nor lone surrogates."""
    return _UNSTORABLE.search(text) is None


def storable_text(text: str) -> str:
    """Return the text with U+FFFD for each NUL and each lone surrogate."""
    return _UNSTORABLE.sub("\ufffd", text)


def storable(value: Any) -> Any:
    """Return a value of JSON with texts as `storable_text` has them, and None for NaN and Infinity."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, dict):
        return {storable(key): storable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [storable(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def storable_json(value: Any) -> str:
    """Return a value as JSON that databases take."""
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:  # NaN or Infinity
        return json.dumps(storable(value))
    return json.dumps(storable(value)) if _ESCAPED.search(text) else text


def unstorable_place(value: Any, place: str = "") -> str | None:
    """Return the place of the first text that is not storable, such as `arguments.name`. None: there is none. A name
    that is not storable is not shown."""
    if isinstance(value, str):
        return None if is_storable(value) else place
    if isinstance(value, dict):
        pairs = ((name, each) for name, each in value.items())
        return next((found for name, each in pairs if (found := _unstorable_in(place, name, each)) is not None), None)
    if isinstance(value, list):
        return next((found for each in value if (found := unstorable_place(each, place)) is not None), None)
    return None


def _unstorable_in(place: str, name: str, value: Any) -> str | None:
    if not is_storable(name):
        return place
    return unstorable_place(value, f"{place}.{name}".removeprefix("."))
