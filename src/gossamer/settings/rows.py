"""Every setting as a row of help texts and of the reference page."""

from functools import cache
from typing import NamedTuple

from gossamer.settings import Settings
from gossamer.settings.groups import dotted_fields, variable_of


class SettingRow(NamedTuple):
    """A setting, as help texts and the reference page show it."""

    name: str  # with dots: `crawl.depth`
    variable: str  # of the environment
    default: str  # empty: not set
    description: str


@cache
def rows() -> list[SettingRow]:
    """Return all settings, in the order of their groups."""
    return [
        SettingRow(name, variable_of(name), _as_text(field.default), field.description)
        for name, field in dotted_fields(Settings)
    ]


def _as_text(default: object) -> str:
    """Return a default as the reference shows it; empty: there is none."""
    if default is None or default in ((), {}, ""):
        return ""
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    if isinstance(default, bool):
        return "yes" if default else "no"
    return f"{default:.15g}" if isinstance(default, float) else str(default)


@cache
def row_of(name: str) -> SettingRow:
    """Return the row of a setting by its dotted name. Raises KeyError."""
    for row in rows():
        if row.name == name:
            return row
    raise KeyError(name)
