"""Sloppy heads mended, sound ones left alone, ambiguous ones left for the parser to refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.fetch.response import repair_head


@pytest.mark.parametrize(
    ("sloppy", "mended"),
    [
        (b"A: b\nC: d\n\n", b"A: b\r\nC: d\r\n\r\n"),
        (b"A: b\r\n  c\r\n\td\r\n\r\n", b"A: b c d\r\n\r\n"),
        (b"A : b\r\n\r\n", b"A: b\r\n\r\n"),
        (b"no colon\r\n: no name\r\nA: b\r\n\r\n", b"A: b\r\n\r\n"),
        (b"Content-Length: 2\r\ncontent-length: 2\r\n\r\n", b"Content-Length: 2\r\n\r\n"),
        (b"Content-Length: 2, 2\r\n\r\n", b"Content-Length: 2\r\n\r\n"),
        (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"),
        (b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n", b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n"),
        (b"A: b\0c\r\n\r\n", b"A: b\0c\r\n\r\n"),
    ],
)
def test_what_is_mended(sloppy: bytes, mended: bytes) -> None:
    """Each rule, alone."""
    assert repair_head(b"HTTP/1.1 200 OK\r\n" + sloppy) == b"HTTP/1.1 200 OK\r\n" + mended


@given(st.binary(max_size=100))
def test_mending_twice_changes_nothing(head: bytes) -> None:
    """And whatever it is given it answers."""
    once = repair_head(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
    assert repair_head(once) == once
