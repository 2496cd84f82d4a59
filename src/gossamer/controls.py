"""Replaces control characters in texts of servers and pages, which would act on a terminal or disturb a page."""

import re

_CONTROLS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"  # direction of text, ends of lines, byte order
    "\ud800-\udfff"  # no characters: a stream refuses the whole text
)
_IN_LINES = re.compile(f"[{_CONTROLS}]")
_IN_ONE_LINE = re.compile(f"[\t\n{_CONTROLS}]")


def without_controls(text: str, *, one_line: bool = False) -> str:
    """Return a text of the same length with U+FFFD for its control characters. The tab and the line end stay, except in
    `one_line`."""
    return (_IN_ONE_LINE if one_line else _IN_LINES).sub("\N{REPLACEMENT CHARACTER}", text)
