"""No text of a server or a page acts on a terminal, and each is shown whatever it has."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.controls import without_controls

_ANY = st.text(st.characters(exclude_categories=()))


_CATEGORIES = ("Cc", "Zl", "Zp", "Cs")
_DIRECTIONS = ("RLO", "LRO", "RLE", "LRE", "RLI", "LRI")


@given(_ANY)
def test_nothing_is_left_that_acts_on_a_terminal_or_cannot_be_written(text: str) -> None:
    for one_line in (False, True):
        shown = without_controls(text, one_line=one_line)
        assert len(shown) == len(text)
        shown.encode()
        kept = set() if one_line else {"\t", "\n"}
        assert not [char for char in shown if unicodedata.category(char) in _CATEGORIES and char not in kept]
        assert not [char for char in shown if unicodedata.bidirectional(char) in _DIRECTIONS]
        assert without_controls(shown, one_line=one_line) == shown


@pytest.mark.parametrize(
    "text", ["plain", "grüße", "版本一", "a\u200cb\u200d", "👩\u200d👩\u200d👧", "سلام", "a\u00a0b", "\U000f0000"]
)
def test_other_texts_stay(text: str) -> None:
    assert without_controls(text) == without_controls(text, one_line=True) == text


def test_lines_and_tabs() -> None:
    assert without_controls("a\tb\nc\r\x1b[2J") == "a\tb\nc\ufffd\ufffd[2J"
    assert without_controls("a\tb\nc", one_line=True) == "a\ufffdb\ufffdc"
