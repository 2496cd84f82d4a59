"""Conditions on items, as clients write them.

    price=10          the field has this value          price!=10       it has another one, or none
    price>=10         it is at least 10 (also > <= <)   title~shoe      its text contains this, in whatever case
    brand             the item has the field            !brand          it has not, or the field is null or empty
    address.city=Bonn   a field of a field

Pure: no I/O. Fixed: the forms, which clients write.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gossamer.errors import BadInput

MAX_FILTERS: Final = 20
"""Largest number of conditions of a request."""
_FORM: Final = re.compile(
    r"(?P<absent>!?)(?P<field>[^=!~<>]+)(?:(?P<operator>!=|>=|<=|=|~|>|<)(?P<value>.*))?", re.DOTALL
)


class ItemFilter(NamedTuple):
    """A condition on one field of an item."""

    field: str
    operator: str
    """One of = != >= <= > < ~, or `exists` or `absent`."""
    value: str = ""

    def accepts(self, item: Any) -> bool:
        """Return whether an item meets the condition."""
        found = _field(item, self.field)
        return _OPERATORS[self.operator](found, self.value)


def parse_filter(text: str) -> ItemFilter:
    """Return the condition that a client has written. Raises BadInput."""
    form = _FORM.fullmatch(text)
    if form is None or (form["absent"] and form["operator"]):
        raise BadInput(
            f"filter: cannot read {text!r}. Write FIELD=VALUE, FIELD!=VALUE, FIELD>=NUMBER, FIELD~TEXT, FIELD or !FIELD"
        )
    if form["operator"] is None:
        return ItemFilter(form["field"], "absent" if form["absent"] else "exists")
    if form["operator"] in _COMPARISONS and _number(form["value"]) is None:
        raise BadInput(f"filter: {form['value']!r} in {text!r} is not a number")
    return ItemFilter(form["field"], form["operator"], form["value"])


def parse_filters(texts: Sequence[str]) -> list[ItemFilter]:
    """Return the conditions of a request, all of which an item must meet. Raises BadInput."""
    if len(texts) > MAX_FILTERS:
        raise BadInput(f"filter: {len(texts)} conditions are too many; the largest number is {MAX_FILTERS}")
    return [parse_filter(text) for text in texts]


_ABSENT: Final = object()


def _field(item: Any, name: str) -> Any:
    """Return the value of a field. `_ABSENT`: there is none."""
    if not isinstance(item, Mapping):
        return _ABSENT
    if name in item:
        return item[name]
    first, _, rest = name.partition(".")
    return _field(item[first], rest) if rest and first in item else _ABSENT


def _number(value: Any) -> float | int | None:
    """Return a number, an integer as it is: it may be larger than a float can be. None: the value is no number."""
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _equals(found: Any, value: str) -> bool:
    if isinstance(found, str):
        return found == value
    if isinstance(found, list):
        return any(_equals(each, value) for each in found)
    if found is _ABSENT:
        return False
    number = _number(found)
    return json.dumps(found) == value if number is None else number == _number(value)


def _contains(found: Any, value: str) -> bool:
    if isinstance(found, list):
        return any(_contains(each, value) for each in found)
    if found is _ABSENT or found is None:
        return False
    return value.casefold() in (found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)).casefold()


def _compared(compare: Callable[[float, float], bool]) -> Callable[[Any, str], bool]:
    def check(found: Any, value: str) -> bool:
        one, other = _number(found), _number(value)
        return one is not None and other is not None and compare(one, other)

    return check


_COMPARISONS: Final[Mapping[str, Callable[[Any, str], bool]]] = {
    ">=": _compared(lambda one, other: one >= other),
    "<=": _compared(lambda one, other: one <= other),
    ">": _compared(lambda one, other: one > other),
    "<": _compared(lambda one, other: one < other),
}
_OPERATORS: Final[Mapping[str, Callable[[Any, str], bool]]] = {
    **_COMPARISONS,
    "=": _equals,
    "!=": lambda found, value: not _equals(found, value),
    "~": _contains,
    "exists": lambda found, _: found is not _ABSENT,
    "absent": lambda found, _: found is _ABSENT or found in (None, "", [], {}),
}
