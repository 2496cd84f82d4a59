"""Sloppy heads mended, sound ones left alone, ambiguous ones left for the parser to refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.fetch.faults import ResponseFault
from gossamer.fetch.head_repair import repair_head


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
        (b"A B: c\r\nD: e\r\n\r\n", b"D: e\r\n\r\n"),
        (b"A: b\x01c\rd\r\n\r\n", b"A: b c d\r\n\r\n"),
        (b"what\r\n is this\r\nA: b\r\n\r\n", b"A: b\r\n\r\n"),
        (b"B: c\r\nContent-Length: two\r\nA: b\r\n\r\n", b"B: c\r\nA: b\r\n\r\n"),
        (b"Content-Length: 02, 2\r\nA: b\r\n\r\n", b"Content-Length: 2\r\nA: b\r\n\r\n"),
        (b"Content-Length: 2\r\nTransfer-Encoding: identity\r\n\r\n", b"Content-Length: 2\r\n\r\n"),
        (b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
    ],
)
def test_what_is_mended(sloppy: bytes, mended: bytes) -> None:
    """Each rule, alone."""
    assert repair_head(b"HTTP/1.1 200 OK\r\n" + sloppy) == b"HTTP/1.1 200 OK\r\n" + mended


@pytest.mark.parametrize(
    ("sloppy", "mended"),
    [
        (b"HTTP/1.1 404 Not Found", b"HTTP/1.1 404 Not Found"),
        (b"HTTP/1.0 404", b"HTTP/1.0 404"),
        (b"http/2.0 404 Not Found", b"HTTP/1.1 404 Not Found"),
        (b"HTTP 404", b"HTTP/1.0 404 "),
        (b"HTTP/1.1  404Not\rFound", b"HTTP/1.1 404 Not Found"),
        (b"HTTP/1.1 not found", b"HTTP/1.1 200 "),
        (b"HTTP/1.1", b"HTTP/1.1 200 "),
        (b"HTTP/1.1 2000 OK", b"HTTP/1.1 2000 OK"),
    ],
)
def test_status_lines(sloppy: bytes, mended: bytes) -> None:
    """A status that is none is left for the parser to refuse."""
    assert repair_head(sloppy + b"\r\nA: b\r\n\r\n") == mended + b"\r\nA: b\r\n\r\n"


def test_only_what_changes_something_is_a_fault() -> None:
    def faults(head: bytes) -> set[str]:
        found: set[ResponseFault] = set()
        repair_head(head + b"\r\n\r\n", found)
        return set(found)

    assert faults(b"HTTP/1.1 200 OK\nA : b\n c\nContent-Length: 2\nContent-Length: 2") == set()
    assert faults(b"HTTP/1.1 200 OK\r\nA B: c") == {"header_line"}
    assert faults(b"HTTP/1.1 200 OK\r\nA: \x02b") == {"header_line"}
    assert faults(b"http/1.1 200 OK\r\nContent-Length: x") == {"status_line", "content_length"}


@given(st.binary(max_size=100))
def test_mending_twice_changes_nothing(head: bytes) -> None:
    """And whatever it is given it answers."""
    once = repair_head(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
    assert repair_head(once) == once
