"""Requests as they go onto the wire: nothing a caller passes can make two of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import BadInput, BadUrl
from gossamer.fetch.request import OWNED, Origin, RequestEncoder

HEADERS = (("User-Agent", "gossamer/0.1"), ("Accept", "*/*"))


def head(url: str, method: str = "GET", headers: tuple[tuple[str, str], ...] = HEADERS, body_bytes: int = 0) -> bytes:
    """What is sent for `url`."""
    encoder = RequestEncoder()
    return encoder.head(*encoder.split(url), method, headers, body_bytes)


def test_a_plain_get() -> None:
    """Host first, then the caller's headers in their order, then the client's own."""
    assert head("http://example.test/a?b=c#d") == (
        b"GET /a?b=c HTTP/1.1\r\nHost: example.test\r\nUser-Agent: gossamer/0.1\r\nAccept: */*\r\n"
        b"Accept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://a.test/", Origin("http", "a.test", 80, "a.test")),
        ("https://a.test/", Origin("https", "a.test", 443, "a.test")),
        ("https://a.test:8443/x", Origin("https", "a.test", 8443, "a.test:8443")),
        ("http://[::1]/", Origin("http", "::1", 80, "[::1]")),
        ("http://[::1]:81/", Origin("http", "::1", 81, "[::1]:81")),
        ("http://u:p%40@a.test/", Origin("http", "a.test", 80, "a.test", "Basic dTpwQA==")),
    ],
)
def test_origins(url: str, origin: Origin) -> None:
    """Of canonical URLs; user and password become a header and are nowhere else."""
    assert RequestEncoder().split(url)[0] == origin


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.test",
        "ftp://a.test/",
        "http:///x",
        "http://a.test:0/",
        "http://a.test:99999/",
        "http://a b/",
        "file:///x",
    ],
)
def test_what_is_no_http_url_is_refused(url: str) -> None:
    """Before anything is looked up or sent."""
    with pytest.raises(BadUrl):
        RequestEncoder().split(url)


@pytest.mark.parametrize(
    ("method", "url", "headers"),
    [
        ("GET /x HTTP/1.1\r\nX:", "http://a.test/", HEADERS),
        ("CONNECT", "http://a.test/", HEADERS),
        ("", "http://a.test/", HEADERS),
        ("GET", "http://a.test/x y", HEADERS),
        ("GET", "http://a.test/\r\nX: y", HEADERS),
        ("GET", "http://a.test/", (("X", "a\r\nb"),)),
        ("GET", "http://a.test/", (("X", "a\nb"),)),
        ("GET", "http://a.test/", (("X", "a\0b"),)),
        ("GET", "http://a.test/", (("X\r\nY", "a"),)),
        ("GET", "http://a.test/", (("X:", "a"),)),
        ("GET", "http://a.test/", (("", "a"),)),
        *(("GET", "http://a.test/", ((name, "a"),)) for name in sorted(OWNED)),
    ],
)
def test_what_would_break_the_request_is_refused(method: str, url: str, headers: tuple[tuple[str, str], ...]) -> None:
    """Line ends in anything, and headers that would change the framing."""
    with pytest.raises(BadInput):
        head(url, method, headers)


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=3), st.text(max_size=8))
def test_whatever_is_passed_it_is_one_request_or_refused(headers: list[tuple[str, str]], path: str) -> None:
    """One empty line, at the end; one line a header."""
    try:
        sent = head("http://a.test/" + path, headers=tuple(headers))
    except BadInput:
        return
    assert sent.endswith(b"\r\n\r\n")
    assert sent.count(b"\r\n") == sent.count(b"\n") == sent.count(b"\r") == len(headers) + 5


def test_lengths_credentials_and_encodings() -> None:
    """A body's length is said, also of an empty POST; the caller's own Authorization wins."""
    assert b"Content-Length: 3\r\n" in head("http://a.test/", "POST", HEADERS, 3)
    assert b"Content-Length: 0\r\n" in head("http://a.test/", "POST")
    assert b"Content-Length" not in head("http://a.test/")
    assert b"Authorization: Basic dTpw\r\n" in head("http://u:p@a.test/")
    own = head("http://u:p@a.test/", headers=(("authorization", "Bearer x"),))
    assert own.lower().count(b"\r\nauthorization:") == 1


def test_a_proxy_is_asked_in_the_absolute_form() -> None:
    """User and password of the URL are not in it."""
    encoder = RequestEncoder()
    sent = encoder.head(*encoder.split("http://u:p@a.test:81/x"), "GET", (), 0, through_proxy=True)
    assert sent.startswith(b"GET http://a.test:81/x HTTP/1.1\r\nHost: a.test:81\r\n")
