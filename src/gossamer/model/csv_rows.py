"""Rows of a CSV file (RFC 4180, in UTF-8, with a newline at the end of rows), and its columns for the fields of items.

Arrays and objects become JSON text, true and false these words, and null an empty cell. A guarded row has no cell that
a spreadsheet runs as a formula.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from gossamer.model.json_codec import encode_value, to_json_types

OTHER_FIELDS = "other_fields"
"""Column that holds, as a JSON object, the fields of an item that have no column. Fixed: users read it by name."""
MAX_COLUMNS = 900
"""Maximum number of columns for the fields of items. Must stay below 999, the number of values that an old SQLite takes
in one statement, with room for the other columns."""
_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')
"""Cells that are written in quotes. May match more; those with a comma, a quote or a line break must match (RFC
4180)."""
_FORMULA = re.compile("\\s*[=+\\-@＝＋－＠]|[\t\r\n]")
"""Beginnings of cells that spreadsheets run as formulas, after OWASP's page on CSV injection. None may be removed: the
names of settings promise this protection."""
_PLAIN = re.compile(r"-?\d[\d.]*(?:e[+-]?\d+)?|true|false", re.IGNORECASE)
"""Cells that are written without quotes where all text has them: numbers. May match less."""


def _quoted(text: str) -> str:
    """Return a cell in quotes."""
    return '"' + text.replace('"', '""') + '"'


def _guarded(text: str) -> str:
    """Return a cell of text that is no formula. In quotes, no spreadsheet takes a semicolon or tab as its end."""
    return _quoted(f"'{text}" if _FORMULA.match(text) else text) if text else ""


def csv_row(values: Sequence[object], *, guard: bool) -> bytes:
    """Return a row of these values. `guard`: no cell is a formula of a spreadsheet."""
    cells = [_guarded_cell(value) if guard else _cell(value) for value in values]
    line = ",".join(cells) if cells != [""] else '""'  # readers skip an empty line
    try:
        return f"{line}\n".encode()
    except UnicodeEncodeError:
        return f"{to_json_types(line)}\n".encode()


def guarded_row(cells: Sequence[str]) -> bytes:
    """Return a row of the cells of a guarded file."""
    return ",".join([cell if _PLAIN.fullmatch(cell) else _guarded(cell) for cell in cells]).encode() + b"\n"


def unguarded(text: str) -> str:
    """Return the text of a cell, or the name of a column, of a guarded file as it was before."""
    return text[1:] if text[:1] == "'" and _FORMULA.match(text[1:]) else text


def add_columns(columns: dict[str, None], names: Iterable[str]) -> bool:
    """Add the fields of an item to the columns, which are in order. Return False if there are more than MAX_COLUMNS:
    one column is then for all others, and none is to be added after it."""
    for name in names:
        if name in columns:
            continue
        if len(columns) >= MAX_COLUMNS:
            columns[OTHER_FIELDS] = None
            return False
        columns[name] = None
    return True


def with_others(fields: dict[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """Return the fields of an item with those that have no column in OTHER_FIELDS, if there is that column."""
    if OTHER_FIELDS not in columns or all(name in columns for name in fields):
        return fields
    return {**fields, OTHER_FIELDS: {name: value for name, value in fields.items() if name not in columns}}


def _cell(value: object) -> str:
    """Return a value as a cell, in quotes if it needs them."""
    text = _cell_text(value)
    return _quoted(text) if _NEEDS_QUOTES.search(text) else text


def _guarded_cell(value: object) -> str:
    return _cell(value) if isinstance(value, bool | int | float) else _guarded(_cell_text(value))


def _cell_text(value: object) -> str:
    """Return a value as the text of a cell, without NUL."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if value is None:
        return ""
    encoded = encode_value(value).decode()
    if encoded.startswith('"'):  # a date, for example, is text in JSON
        return str(msgspec.json.decode(encoded)).replace("\0", "\ufffd")
    return "" if encoded == "null" else encoded
