"""The reader of answers, without a socket: any bytes, cut anywhere, give one answer or a FetchError."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gossamer.compiled import native
from gossamer.errors import BadResponse, ConnectionLost, FetchError, HeadersTooLarge
from gossamer.fetch import response as response_module
from gossamer.fetch.exchange import ResponseLimits
from gossamer.fetch.response import ResponseReader

LIMITS = ResponseLimits(header_bytes=2000, headers=20, body_bytes=500, interim=2)

VALID = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1;x=y\r\n!\r\n0\r\nTrailer: t\r\n\r\n",
    b"HTTP/1.0 404 Not Found\r\n\r\nuntil the end",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
    b"HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200\nX: bare\nContent-Length: 2\n\nhi",
    b"xx http/2 200OK\r\nX Y: dropped\r\n with this\r\nZ: a\x01b\r\nContent-Length: none\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2  \nhi\n1;x=\x01\n!\n0 \nnot a: trailer\n\n",
    b"HTTP/1.1 200 OK\r\nX: folded\r\n  twice\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
]

Reading = tuple[object, ...]


def read(pieces: Sequence[bytes], *, head_only: bool = False) -> Reading:
    """Feed `pieces`, then the end. What came of it, in a form to compare."""
    reader = ResponseReader(LIMITS, head_only=head_only)
    try:
        for piece in pieces:
            if reader.feed(piece):
                break
        else:
            reader.feed_eof()
    except FetchError as error:
        return (type(error),)
    assert reader.complete
    assert len(reader.body) == reader.body_bytes <= LIMITS.body_bytes
    return reader.status, reader.reason, reader.http_version, reader.head, tuple(reader.headers), reader.body


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces, none of them empty."""
    bounds = [0, *sorted({place % len(data) for place in places} - {0}), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


PLACES = st.lists(st.integers(0, 10_000), max_size=8)


@given(st.sampled_from(VALID), PLACES)
def test_where_packets_end_does_not_matter(answer: bytes, places: list[int]) -> None:
    """An answer means the same however the network cuts it."""
    whole = read([answer])
    assert len(whole) > 1, "the example is valid"
    assert read(cut(answer, places)) == whole


@given(st.sampled_from(VALID), PLACES, st.data())
@settings(max_examples=400)
def test_a_damaged_answer_gives_an_answer_or_a_fetch_error(
    answer: bytes, places: list[int], data: st.DataObject
) -> None:
    """Bytes replaced, inserted, cut out: no other exception, and no difference by where packets end."""
    damaged = bytearray(answer)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(damaged)))
        end = data.draw(st.integers(start, min(start + 8, len(damaged))))
        damaged[start:end] = data.draw(
            st.one_of(st.binary(max_size=8), st.sampled_from([b"\r\n", b"\r\n\r\n", b"0", b":"]))
        )
    if damaged:
        pieces = cut(bytes(damaged), places)
        assert read(pieces) == read([bytes(damaged)])
        read(pieces, head_only=True)


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=8))
@example([b"HTTP/1.", b"1 200 OK\r\n\r\n"])
def test_noise_gives_an_answer_or_a_fetch_error(pieces: list[bytes]) -> None:
    """Random bytes, with and without a head before them."""
    read(pieces)
    read([b"HTTP/1.1 200 OK\r\n", *pieces])
    read([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *pieces])


def test_a_kept_connection_is_told_from_one_to_close() -> None:
    """By version, Connection header, framing, and whether anything came that nobody asked for."""
    answers = {
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi": True,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi": False,
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi": False,
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi": True,
        b"HTTP/1.1 204 No Content\r\n\r\n": True,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi!": False,
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi": False,  # what had to be mended is not trusted further
    }
    for answer, kept in answers.items():
        reader = ResponseReader(LIMITS)
        assert reader.feed(answer)
        assert reader.keep_alive is kept, answer


def test_the_raw_head_is_the_final_ones() -> None:
    """Interim answers are skipped; header order, case and repeats are kept."""
    head = b"HTTP/1.1 200 OK\r\nset-COOKIE: a\r\nX: 1\r\nset-COOKIE: b\r\nContent-Length: 0\r\n\r\n"
    reader = ResponseReader(LIMITS)
    assert reader.feed(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + head)
    assert reader.head == head
    assert reader.headers == [("set-COOKIE", "a"), ("X", "1"), ("set-COOKIE", "b"), ("Content-Length", "0")]


def test_a_body_ends_at_its_limit() -> None:
    """The rest is not taken; what is there is marked."""
    reader = ResponseReader(LIMITS)
    assert not reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + b"x" * 400)
    assert reader.feed(b"x" * 400)
    assert (len(reader.body), reader.truncated, reader.keep_alive) == (500, True, False)


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([], ConnectionLost),
        ([b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 21 + b"\r\n"], HeadersTooLarge),
        ([b"HTTP/1.1 100 Continue\r\n\r\n"] * 3, BadResponse),
        ([b"\r\n"] * 1100, HeadersTooLarge),
        ([b"HTTP/1.1 100 Continue\r\nX: " + b"y" * 1200 + b"\r\n\r\n"] * 2, HeadersTooLarge),
    ],
)
def test_bounds(pieces: list[bytes], error: type[FetchError]) -> None:
    """Each of them holds however slowly it is approached."""
    assert read(pieces) == (error,)


def test_a_body_that_is_wanted_only_as_a_whole_is_not_read_if_it_is_too_long() -> None:
    limits = msgspec.structs.replace(LIMITS, whole_only=True)
    reader = ResponseReader(limits)
    assert reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 501\r\n\r\n" + b"x" * 100)
    assert (reader.status, reader.truncated, reader.keep_alive, reader.body) == (200, True, False, b"")
    reader = ResponseReader(limits)
    assert reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + b"x" * 500)
    assert (reader.truncated, reader.keep_alive, len(reader.body)) == (False, True, 500)


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "Content-Length",
                "content-length",
                "Connection",
                "Content-Encoding",
                "Transfer-Encoding",
                "Upgrade",
                "X",
                "é",
            ]
        ),
        st.sampled_from(
            ["5", "05", "+5", "5, 5", "600", "close", "Keep-Alive", "upgrade", "gzip", "chunked", "é\t", "", "\x01"]
        ),
        st.sampled_from([": ", ":", " :", ":\t "]),
        st.sampled_from(["\r\n", "\r\n", "\r\n", "\n", "\r\n "]),
    ),
    max_size=4,
)
STATUS_LINES = (
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200 ",
    "HTTP/1.1 200",
    "HTTP/1.0 200 OK",
    "HTTP/1.1 304 é",
    "HTTP/1.1 99 x",
)
LENGTH = ("Content-Length", "5", ": ", "\r\n")


@pytest.mark.skipif(native is None, reason="gossamer_native is not installed: `make setup` builds it where cargo is")
@given(st.sampled_from(STATUS_LINES), HEADERS, st.booleans(), st.sampled_from([b"", b"hel", b"hello", b"hello, too"]))
@example("HTTP/1.1 200 OK", [LENGTH], False, b"hello, too")
@example("HTTP/1.1 200 OK", [LENGTH, ("Connection", "close", ": ", "\r\n")], False, b"hel")
def test_the_extension_reads_heads_as_llhttp_does(
    status_line: str, headers: list[tuple[str, str, str, str]], has_length: bool, body: bytes
) -> None:
    lines = "".join(f"{name}{colon}{value}{end}" for name, value, colon, end in headers)
    length = "Content-Length: 5\r\n" if has_length else ""
    answer = f"{status_line}\r\n{length}{lines}\r\n".encode("latin-1") + body

    def outcome() -> Reading:
        reader = ResponseReader(LIMITS)
        try:
            complete = reader.feed(answer)
            if not complete:
                reader.feed_eof()
        except FetchError as error:
            return type(error), str(error), reader.body_bytes
        by_name = reader.headers_by_name or {}
        assert all(by_name[name] == [v for n, v in reader.headers if n == name] for name in by_name)
        return (
            complete, reader.status, reader.reason, reader.http_version, reader.head, reader.headers, reader.body,
            reader.keep_alive, reader.truncated, reader.content_length, reader.content_encodings, reader.received_bytes,
        )  # fmt: skip

    compiled = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(response_module, "native", None)
        assert outcome() == compiled


@pytest.mark.skipif(native is None, reason="gossamer_native is not installed: `make setup` builds it where cargo is")
@pytest.mark.parametrize(
    ("lines", "is_plain"),
    [
        ("", True),
        ("content-TYPE: text/html\r\n", True),
        ("Content-Type: text/plain\r\ncontent-type: text/html\r\n", False),
        ("Content-Type: text/html\r\nX-ROBOTS-Tag: nofollow\r\n", False),
    ],
)
def test_a_head_that_needs_a_closer_look_is_not_plain(lines: str, is_plain: bool) -> None:
    """Readers of pages look for two types, and for a tag, only where the headers were not collected by name."""
    reader = ResponseReader(LIMITS)
    assert reader.feed(f"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{lines}\r\n".encode())
    assert (reader.headers_by_name is not None) == is_plain
