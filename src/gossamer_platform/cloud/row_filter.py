"""Conditions on rows (items, log entries, requests) in Scrapy Cloud's form: `["FIELD", "OPERATOR", [ARGUMENT…]]`.

A row meets a condition if one of the arguments fits; a row without the field meets none but `notexists` and `isempty`.
Fixed: the operators, which are Scrapy Cloud's. Others are refused, because a filter that is ignored gives wrong rows.
"""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import re2

from gossamer.errors import BadInput

_MISSING: Final = object()
_MAX_PATTERN: Final = 200
"""Characters of a regular expression."""


def _compares(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def accepts(value: Any, argument: Any) -> bool:
        try:
            return compare(value, argument)
        except TypeError:  # a number and a text, for example
            return False

    return accepts


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": _compares(operator.lt),
    "<=": _compares(operator.le),
    ">": _compares(operator.gt),
    ">=": _compares(operator.ge),
    "contains": lambda value, argument: str(argument) in str(value),
    "icontains": lambda value, argument: str(argument).lower() in str(value).lower(),
}
_UNARY: Final[Mapping[str, Callable[[Any], bool]]] = {
    "exists": lambda value: value is not _MISSING,
    "notexists": lambda value: value is _MISSING,
    "isempty": lambda value: value is _MISSING or value in (None, "", [], {}),
    "isnotempty": lambda value: value is not _MISSING and value not in (None, "", [], {}),
}


class RowFilter:
    """Condition on a row."""

    def __init__(self, field: str, name: str, arguments: Sequence[Any]) -> None:
        """Raises BadInput for an operator that does not exist."""
        self._field = field.split(".") if field else []
        self._unary = _UNARY.get(name)
        self._binary = _OPERATORS.get(name)
        self._arguments = arguments
        if name == "matches":
            self._binary = _matches(arguments)
        if self._unary is None and (self._binary is None or not arguments):
            known = ", ".join((*_OPERATORS, "matches", *_UNARY))
            raise BadInput(f"filter: {name!r} with {len(arguments)} arguments; there are {known}")

    def accepts(self, row: Any) -> bool:
        """Return whether the row meets the condition."""
        value = row
        for name in self._field:
            value = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
        if self._unary is not None:
            return self._unary(value)
        assert self._binary is not None
        return value is not _MISSING and any(self._binary(value, argument) for argument in self._arguments)


def _matches(arguments: Sequence[Any]) -> Callable[[Any, Any], bool]:
    for pattern in arguments:
        if len(str(pattern)) > _MAX_PATTERN:
            raise BadInput(f"filter: the pattern is longer than {_MAX_PATTERN} characters")
        try:
            re2.compile(str(pattern))
        except re2.error as error:
            raise BadInput(f"filter: {pattern!r} is no regular expression: {error}") from None
    return lambda value, pattern: re2.search(str(pattern), str(value)) is not None


def parse_row_filters(texts: Sequence[str]) -> list[RowFilter]:
    """Return the conditions of the values of a parameter. Raises BadInput."""
    return [_parse(text) for text in texts]


def _parse(text: str) -> RowFilter:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or nested too deep
        found = None
    match found:
        case [str() | None as field, str() as name]:
            return RowFilter(field or "", name, [])
        case [str() | None as field, str() as name, list() as arguments]:
            return RowFilter(field or "", name, arguments)
        case [str() | None as field, str() as name, argument]:
            return RowFilter(field or "", name, [argument])
    raise BadInput(f'filter: {text[:200]!r} cannot be read; write ["FIELD", "OPERATOR", [ARGUMENT]]')
