"""Servers that speak HTTP badly: each ends in an answer or in the right error, never in a hang or another exception."""

import gc
import gzip
import random
import weakref
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import brotli
import pytest
import zstandard

from gossamer.errors import (
    BadResponse,
    ConnectionLost,
    DecodeBomb,
    DecodeFailed,
    FetchError,
    FirstByteTimeout,
    HeadersTooLarge,
    IdleTimeout,
    TotalTimeout,
)
from gossamer.fetch.client import HttpClient
from gossamer.fetch.exchange import FetchRequest, FetchResponse, ResponseLimits, Timeouts
from gossamer.net.resolve import Resolver
from tests.servers.bad_http import Drip, Endless, NextRequest, Reset, Stall, Step, run_bad_server

LIMITS = ResponseLimits(
    header_bytes=8192, headers=64, body_bytes=100_000, bomb_ratio=100, bomb_bytes=50_000, encodings=3, interim=3
)
PATIENT = Timeouts(connect=30, first_byte=30, idle=30, total=60)
OK = b"HTTP/1.1 200 OK\r\n"
HI = b"Content-Length: 2\r\n\r\nhi"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Case:
    """What a server does and what has to come of it."""

    name: str
    script: list[Step]
    body: bytes | None = None
    error: type[FetchError] | None = None
    truncated: bool = False
    status: int = 200
    method: str = "GET"
    timeouts: Timeouts = PATIENT
    check: Callable[[FetchResponse], bool] = field(default=lambda fetched: True)


def coded(encoding: str, body: bytes) -> list[Step]:
    """An answer with `body` as it is, said to be in `encoding`."""
    return [OK + f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body]


TEXT = b"The thread on which small spiders travel. " * 50
GZIPPED = gzip.compress(TEXT)
NOISE = random.Random(3).randbytes(3000)
RAW_DEFLATE = zlib.compressobj(wbits=-15)
RAW = RAW_DEFLATE.compress(TEXT) + RAW_DEFLATE.flush()

ENCODED = {
    "gzip": GZIPPED,
    "x-gzip": GZIPPED,
    "deflate": zlib.compress(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
}
LETTERS = NOISE.hex().encode() * 5
"""Something that is neither text nor very short when it is encoded."""
PLAIN = (
    b"x", b"hello", b'{"a": 1}', b"<!DOCTYPE html>" + TEXT, "Ünïcödé".encode(), "\ufeffx".encode("utf-16"),
    "Каталог".encode() * 50,
)  # fmt: skip
GZIP, DEFLATE, BROTLI = zlib.compressobj(wbits=31), zlib.compressobj(), brotli.Compressor()
BROKEN = {
    "gzip": GZIP.compress(LETTERS) + GZIP.flush(zlib.Z_SYNC_FLUSH),
    "deflate": DEFLATE.compress(LETTERS) + DEFLATE.flush(zlib.Z_SYNC_FLUSH),
    "br": BROTLI.process(LETTERS) + BROTLI.flush(),
    "zstd": zstandard.compress(LETTERS) + zstandard.compress(b"")[:4],
}
"""Beginnings of encoded data, behind which it goes on."""
WRONG_CHECKSUM = {
    "gzip": gzip.compress(LETTERS)[:-8] + bytes(8),
    "deflate": zlib.compress(LETTERS)[:-4] + bytes(4),
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress(LETTERS)[:-4] + bytes(4),
}
SLOPPY_CHUNKS = (
    b"2  \r\nhi\r\n0\r\n\r\n", b"2\nhi\n0\n\n", b"2\nhi\r\n0\r\n\r\n", b"2\r\nhi\n0\r\n\r\n", b"2\r\nhi\r\n0  \r\n\r\n",
    b"2 ; x\r\nhi\r\n0\r\n\r\n", b'2;\x01 "x\r\nhi\r\n0\r\n\r\n', b"0000000000000000000002\r\nhi\r\n000\r\n\r\n",
    b"2\r\nhi\r\n0\r\nX Y\r\n: b\r\n\r\n", b"2\r\nhi\r\n0\r\nX: \x01\r\n\r\n", b"2\r\nhi\r\n0\r\nX: y\n\n",
)  # fmt: skip
"""Bodies that Chromium reads as `hi`."""
LONG_CHUNKS = b"".join(b"%x\r\n" % 9000 + b"x" * 9000 + b"\r\n" for _ in range(11))


def has_faults(*faults: str) -> Callable[[FetchResponse], bool]:
    """A check that just these were found and repaired."""
    return lambda fetched: fetched.faults == faults


def has_headers(*headers: tuple[str, str]) -> Callable[[FetchResponse], bool]:
    """A check that there are just these, and that others or parts of them were dropped."""
    return lambda fetched: tuple(fetched.headers) == headers and fetched.faults == ("header_line",)


CASES = [
    # Nothing, or not HTTP.
    Case("closes without a word", [], error=ConnectionLost),
    Case("resets without a word", [Reset()], error=ConnectionLost),
    Case("never answers", [Stall()], error=FirstByteTimeout, timeouts=Timeouts(30, 0.2, 30, 60)),
    Case("a banner", [b"SSH-2.0-OpenSSH_9.2\r\n", Stall()], error=BadResponse),
    Case("a mail server", [b"220 mail.example ESMTP\r\n", Stall()], error=BadResponse),
    Case("HTTP/0.9", [b"<html>hi</html>"], error=BadResponse),
    Case("binary noise", [bytes(range(256)), Stall()], error=BadResponse),
    Case("TLS on a plain port", [b"\x15\x03\x01\x00\x02\x02\x46"], error=BadResponse),
    Case("ICY", [b"ICY 200 OK\r\n" + HI], error=BadResponse),
    Case("HTTP/2 preface", [b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", Stall()], error=BadResponse),
    *(
        Case(f"status line {line!r}", [line + b"\r\n" + HI], body=b"hi", check=has_faults("status_line"))
        for line in (
            b"HTTP/2 200 OK",
            b"HTTP/1.7 200 OK",
            b"http/1.1 200 OK",
            b"HTTP 200 OK",
            b"HTTP/ 200 OK",
            b"HTTP/1.x 200 OK",
            b"HTTPS/1.1 200 OK",
            b"HTTP/1.1: 200 OK",
            b"HTTP/1,1 200 OK",
            b"HTTP/1.1  200  OK",
            b"HTTP/1.1 200OK",
            b"HTTP/1.1 200.1 OK",
            b"HTTP/1.1",
            b"HTTP/1.1 ",
            b"HTTP/1.1 fine",
            b"HTTP/1.1 -200 OK",
            b"HTTP/1.1\t200 OK",
            b"HTTP/1.1 200 OK\rX: y",
            b"  HTTP/1.1 200 OK",
            b"xxxxHTTP/1.1 200 OK",
            b"\xef\xbb\xbfHTTP/1.1 200 OK",
        )
    ),
    Case("no reason, another version", [b"HTTP/2 404\r\n" + HI], body=b"hi", status=404),
    Case("five bytes first", [b"xxxxxHTTP/1.1 200 OK\r\n" + HI], error=BadResponse),
    Case("a word first", [b"Status: 200 OK\r\n" + HI], error=BadResponse),
    Case("NUL in the status line", [b"HTTP/1.1 200 OK\0\r\n" + HI], error=BadResponse),
    Case("status zero", [b"HTTP/1.1 0 OK\r\n" + HI], error=BadResponse),
    Case("two-digit status", [b"HTTP/1.1 20 OK\r\n" + HI], error=BadResponse),
    Case("four-digit status", [b"HTTP/1.1 2000 OK\r\n" + HI], error=BadResponse),
    Case("status 999", [b"HTTP/1.1 999 Request denied\r\n" + HI], body=b"hi", status=999),
    Case("no reason", [b"HTTP/1.1 200\r\n" + HI], body=b"hi", check=lambda fetched: fetched.reason == ""),
    Case("empty lines first", [b"\r\n\r\n" + OK + HI], body=b"hi"),
    Case("empty lines for ever", [Endless(b"\r\n" * 500)], error=HeadersTooLarge),
    # Heads.
    Case("ends within the status line", [b"HTTP/1.1 20"], error=ConnectionLost),
    Case("ends within the headers", [OK + b"X-A: b\r\n"], error=ConnectionLost),
    Case("stalls within the headers", [OK, Stall()], error=IdleTimeout, timeouts=Timeouts(30, 30, 0.2, 60)),
    Case(
        "a header byte at a time for ever",
        [OK, Drip(b"X: " + b"y" * 4000, 0.02)],
        error=TotalTimeout,
        timeouts=Timeouts(30, 30, 30, 0.4),
    ),
    Case("byte by byte", [Drip(OK + b"X-A: b\r\n" + HI)], body=b"hi"),
    Case("endless headers", [OK, Endless(b"X-Header: value\r\n" * 50)], error=HeadersTooLarge),
    Case("one endless header", [OK + b"X: ", Endless(b"y" * 1000)], error=HeadersTooLarge),
    Case("endless status line", [b"HTTP/1.1 200 ", Endless(b"K" * 1000)], error=HeadersTooLarge),
    Case("too large at once", [OK + b"X: " + b"y" * 9000 + b"\r\n" + HI], error=HeadersTooLarge),
    Case("too many headers", [OK + b"a:b\r\n" * 65 + HI], error=HeadersTooLarge),
    Case(
        "folded header",
        [OK + b"X-A: b\r\n\t c\r\n" + HI],
        body=b"hi",
        check=lambda fetched: ("X-A", "b c") in fetched.headers,
    ),
    Case("bare LF", [(OK + b"X-A: b\r\n" + HI).replace(b"\r\n", b"\n")], body=b"hi"),
    Case("CRLF and LF mixed", [OK + b"X-A: b\n" + HI], body=b"hi"),
    *(
        Case(
            f"header line {line!r}",
            [OK + line + b"\r\nX-B: c\r\n" + HI],
            body=b"hi",
            check=has_headers(("X-B", "c"), ("Content-Length", "2")),
        )
        for line in (
            b"X Header: v",
            b"X[a]: v",
            b"X(a): v",
            "Xé: v".encode(),
            b"X\xe9: v",
            b"X\x01: v",
            b'"X": v',
            b"X/Y: v",
            b"X@: v",
            b"X=1; Y: 2",
            b"what is this",
            b"what is this\r\n it is folded",
            b": b",
            b" : b",
            b" X: v",
            b"<br />",
            b"<b>Warning</b>: x in <b>y</b>",
            b"HTTP/1.1 200 OK",
        )
    ),
    *(
        Case(
            f"header value {value!r}",
            [OK + b"X-A: " + value + b"\r\n" + HI],
            body=b"hi",
            check=has_headers(("X-A", cleaned), ("Content-Length", "2")),
        )
        for value, cleaned in (
            (b"a\x01b", "a b"),
            (b"a\x7fb", "a b"),
            (b"a\x0b\x0cb", "a  b"),
            (b"a\rb", "a b"),
            (b"\x1b[0m", "[0m"),
            (b"a\rContent-Length: 1", "a Content-Length: 1"),
            (b"a\r\n b\x01c", "a b c"),
        )
    ),
    Case("CR before CRLF", [OK + b"X-A: b\r\r\n" + HI], body=b"hi"),
    Case("control characters in the framing", [OK + b"Transfer-Encoding: chunked\x01\r\n" + HI], body=b"hi"),
    Case("a length with a blank in its name", [OK + b"Content Length: 1\r\n\r\nhi"], body=b"hi"),
    Case(
        "a redirect with a broken line", [b"HTTP/1.1 302 Found\r\nX Y: z\r\nLocation: /x\r\n" + HI], b"hi", status=302
    ),
    Case("NUL in a header", [OK + b"X-A: b\0c\r\n" + HI], error=BadResponse),
    Case("NUL in a header name", [OK + b"X\0A: b\r\n" + HI], error=BadResponse),
    Case("blank before the colon", [OK + b"X-A : b\r\n" + HI], body=b"hi"),
    Case("line without a colon", [OK + b"what is this\r\n" + HI], body=b"hi"),
    Case("header without a name", [OK + b": b\r\n" + HI], body=b"hi"),
    Case(
        "UTF-8 in a header",
        [OK + "X-A: grüß\r\n".encode() + HI],
        body=b"hi",
        check=lambda fetched: dict(fetched.headers)["X-A"].encode("latin-1").decode() == "grüß",
    ),
    # Interim answers and upgrades.
    Case("100 and 103 first", [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK + HI], b"hi"),
    Case("100 byte by byte", [Drip(b"HTTP/1.1 100 Continue\r\n\r\n" + OK + HI)], body=b"hi"),
    Case("100 for ever", [Endless(b"HTTP/1.1 100 Continue\r\n\r\n")], error=BadResponse),
    Case("100 with a length", [b"HTTP/1.1 100 Continue\r\nContent-Length: 7\r\n\r\n" + OK + HI], body=b"hi"),
    Case("only 100", [b"HTTP/1.1 100 Continue\r\n\r\n"], error=ConnectionLost),
    Case("101", [b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw"], error=BadResponse),
    Case("101 without Upgrade", [b"HTTP/1.1 101 Go\r\n\r\nraw", Stall()], error=BadResponse),
    Case("offers an upgrade", [OK + b"Upgrade: h2,h2c\r\nConnection: Upgrade\r\n" + HI], body=b"hi"),
    # Lengths.
    Case("shorter than said", [OK + b"Content-Length: 9\r\n\r\nhi"], error=ConnectionLost),
    Case("shorter, then reset", [OK + b"Content-Length: 9\r\n\r\nhi", Reset()], error=ConnectionLost),
    Case("longer than said", [OK + HI + b"and more"], body=b"hi"),
    Case("a second answer nobody asked for", [OK + HI + OK + HI], body=b"hi"),
    Case("length twice, the same", [OK + b"Content-Length: 2\r\n" + HI], body=b"hi"),
    Case("length as a list, the same", [OK + b"Content-Length: 2, 2\r\n\r\nhi"], body=b"hi"),
    Case("length twice, different", [OK + b"Content-Length: 3\r\n" + HI], error=BadResponse),
    Case("length as a list, different", [OK + b"Content-Length: 2, 3\r\n\r\nhi!"], error=BadResponse),
    *(
        Case(
            f"length {length[:30]!r}",
            [OK + b"Content-Length: " + length + b"\r\n\r\nhi and more"],
            body=b"hi and more",
            check=has_faults("content_length"),
        )
        for length in (
            b"-2",
            b"two",
            b"",
            b"99999999999999999999",
            b"9" * 5000,
            b"+2",
            b"2.0",
            b"2;",
            b"2 bytes",
            b"0x2",
            b"2 2",
            b"1e1",
            b'"2"',
        )
    ),
    Case("length with zeros", [OK + b"Content-Length: 002, 2\r\n\r\nhi and more"], body=b"hi"),
    Case("a length and none", [OK + b"Content-Length: x\r\nContent-Length: 2\r\n\r\nhi"], error=BadResponse),
    Case(
        "two lengths and chunked",
        [CHUNKED[:-2] + b"Content-Length: 7\r\nContent-Length: 9\r\n\r\n2\r\nhi\r\n0\r\n\r\n"],
        b"hi",
    ),
    *(
        Case(
            f"length and transfer encoding {coding!r}",
            [OK + b"Transfer-Encoding: " + coding + b"\r\n" + HI, Stall()],
            b"hi",
        )
        for coding in (b"identity", b"", b"foo")
    ),
    Case(
        "length of the decoded body",
        [OK + b"Content-Encoding: gzip\r\nContent-Length: 2100\r\n\r\n" + GZIPPED],
        body=TEXT,
    ),
    Case(
        "length beyond the decoded body",
        [OK + b"Content-Encoding: gzip\r\nContent-Length: 2101\r\n\r\n" + GZIPPED],
        error=ConnectionLost,
    ),
    Case("length and chunked", [CHUNKED[:-2] + b"Content-Length: 7\r\n\r\n2\r\nhi\r\n0\r\n\r\n"], body=b"hi"),
    Case("10 GB said, 2 bytes sent", [OK + b"Content-Length: 10000000000\r\n\r\nhi"], error=ConnectionLost),
    Case(
        "an endless body",
        [OK + b"Content-Length: 10000000000\r\n\r\n", Endless(b"x" * 10_000)],
        body=b"x" * 100_000,
        truncated=True,
    ),
    Case("endless until closed", [OK + b"\r\n", Endless(b"x" * 10_000)], body=b"x" * 100_000, truncated=True),
    Case("exactly the limit", [OK + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000], body=b"x" * 100_000),
    Case("delimited by closing", [OK + b"\r\nhi"], body=b"hi"),
    Case("HTTP/1.0", [b"HTTP/1.0 200 OK\r\n\r\nhi"], body=b"hi", check=lambda fetched: fetched.http_version == "1.0"),
    Case("closing by reset", [OK + b"\r\nhi", Stall()], error=IdleTimeout, timeouts=Timeouts(30, 30, 0.2, 60)),
    Case(
        "a byte at a time",
        [OK + b"Content-Length: 4000\r\n\r\n", Drip(b"y" * 4000, 0.02)],
        error=TotalTimeout,
        timeouts=Timeouts(30, 30, 30, 0.4),
    ),
    Case("204 with a body", [b"HTTP/1.1 204 No Content\r\n" + HI], body=b"", status=204),
    Case("304 with a length", [b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"], body=b"", status=304),
    Case("HEAD", [OK + b"Content-Length: 9\r\n\r\n", Stall()], body=b"", method="HEAD"),
    Case("HEAD, chunked", [CHUNKED, Stall()], body=b"", method="HEAD"),
    Case("HEAD with a body", [OK + HI], body=b"", method="HEAD"),
    # Chunks.
    Case("chunks", [CHUNKED + b"2\r\nhi\r\n1;x=y\r\n!\r\n0\r\n\r\n"], body=b"hi!"),
    Case("chunks byte by byte", [Drip(CHUNKED + b"2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n")], body=b"hi!"),
    Case(
        "trailers are no headers",
        [CHUNKED + b"2\r\nhi\r\n0\r\nX-T: v\r\n\r\n"],
        b"hi",
        check=lambda f: len(f.headers) == 1,
    ),
    Case("endless trailers", [CHUNKED + b"2\r\nhi\r\n0\r\n", Endless(b"X: y\r\n" * 100)], error=HeadersTooLarge),
    Case("one endless trailer", [CHUNKED + b"2\r\nhi\r\n0\r\nX: ", Endless(b"y" * 1000)], error=HeadersTooLarge),
    Case("endless chunk extension", [CHUNKED + b"2;", Endless(b"y" * 1000)], error=HeadersTooLarge),
    *(
        Case(f"sloppy chunks {body!r}", [CHUNKED + body, Stall()], body=b"hi", check=lambda f: not f.truncated)
        for body in SLOPPY_CHUNKS
    ),
    *(
        Case(f"sloppy chunks byte by byte {body!r}", [Drip(CHUNKED + body), Stall()], body=b"hi")
        for body in SLOPPY_CHUNKS
    ),
    *(
        Case(f"broken chunks {body!r}", [CHUNKED + b"2\r\nhi" + body], error=BadResponse)
        for body in (
            b"0\r\n\r\n",
            b"\r\n\r\n1\r\n!\r\n0\r\n\r\n",
            b"\r\n 1\r\n!\r\n0\r\n\r\n",
            b"\r\n1\t\r\n!\r\n0\r\n\r\n",
            b"\r\n0x1\r\n!\r\n0\r\n\r\n",
            b"\r\n1 x\r\n!\r\n0\r\n\r\n",
            b"\r\n+1\r\n!\r\n0\r\n\r\n",
            b"\r\r\n0\r\n\r\n",
        )
    ),
    Case("sloppy at the end of a long body", [CHUNKED + LONG_CHUNKS + b"0 \n\n"], body=b"x" * 99_000),
    Case(
        "chunked in HTTP/1.0",
        [b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"],
        body=b"hi",
    ),
    Case("chunk size in words", [CHUNKED + b"two\r\nhi\r\n"], error=BadResponse),
    Case("negative chunk", [CHUNKED + b"-2\r\nhi\r\n"], error=BadResponse),
    Case("overflowing chunk", [CHUNKED + b"f" * 20 + b"\r\nhi\r\n"], error=BadResponse),
    Case("chunk longer than said", [CHUNKED + b"2\r\nhi there\r\n0\r\n\r\n"], error=BadResponse),
    Case("no last chunk", [CHUNKED + b"2\r\nhi\r\n"], error=ConnectionLost),
    Case("ends within a chunk", [CHUNKED + b"9\r\nhi"], error=ConnectionLost),
    Case("endless tiny chunks", [CHUNKED, Endless(b"1\r\nx\r\n" * 1000)], error=HeadersTooLarge),
    Case("endless small chunks", [CHUNKED, Endless(b"8\r\nxxxxxxxx\r\n" * 500)], body=b"x" * 100_000, truncated=True),
    Case("1,500 tiny chunks", [CHUNKED + b"1\r\nx\r\n" * 1500 + b"0\r\n\r\n"], body=b"x" * 1500),
    Case("more behind the last chunk", [CHUNKED + b"2\r\nhi\r\n0\r\n\r\nmore"], body=b"hi"),
    Case("chunked twice", [OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"], body=b"hi"),
    Case("not chunked at last", [OK + b"Transfer-Encoding: chunked, identity\r\n\r\nhi"], body=b"hi"),
    Case(
        "gzip as transfer coding",
        [
            OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n%x\r\n" % len(GZIPPED),
            GZIPPED + b"\r\n0\r\n\r\n",
        ],
        body=TEXT,
    ),
    # Encodings.
    Case("gzip", coded("gzip", gzip.compress(TEXT)), body=TEXT),
    Case("x-gzip in capitals", coded("X-GZIP", gzip.compress(TEXT)), body=TEXT),
    Case("gzip in two members", coded("gzip", gzip.compress(TEXT) + gzip.compress(b"end")), body=TEXT + b"end"),
    Case("junk behind gzip", coded("gzip", gzip.compress(TEXT) + b"junk"), body=TEXT),
    *(
        Case(f"{rest!r} behind {name}", coded(name, data + rest), body=TEXT, check=has_faults())
        for name, data in ENCODED.items()
        for rest in (b"junk", b"\n", bytes(5), b"<!-- cached -->" * 500)
    ),
    *(
        Case(f"{name} that is none, {len(text)} bytes", coded(name, text), error=DecodeFailed)
        for name in ENCODED
        for text in PLAIN
    ),
    Case("gzip in nothing", coded("gzip, gzip", gzip.compress(TEXT)), error=DecodeFailed),
    *(
        Case(
            f"{name} broken in the middle",
            coded(name, data + b"\xff" * 99),
            LETTERS,
            None,
            True,
            check=has_faults("body"),
        )
        for name, data in BROKEN.items()
    ),
    *(
        Case(f"{name} that ends early", coded(name, data), LETTERS, truncated=True, check=has_faults("body"))
        for name, data in BROKEN.items()
    ),
    *(
        # Zstandard's last byte comes with the check.
        Case(
            f"{name} with a wrong checksum",
            coded(name, data),
            truncated=True,
            check=lambda f: has_faults("body")(f) and f.body in (LETTERS, LETTERS[:-1]),
        )
        for name, data in WRONG_CHECKSUM.items()
    ),
    Case(
        "a second member that is broken",
        coded("gzip", GZIPPED + WRONG_CHECKSUM["gzip"]),
        TEXT + LETTERS,
        truncated=True,
    ),
    Case("deflate", coded("deflate", zlib.compress(TEXT)), body=TEXT),
    Case("raw deflate", coded("deflate", RAW), body=TEXT),
    Case("brotli", coded("br", brotli.compress(TEXT)), body=TEXT),
    Case("zstd", coded("zstd", zstandard.compress(TEXT)), body=TEXT),
    Case("gzip in gzip", coded("gzip, gzip", gzip.compress(gzip.compress(TEXT))), body=TEXT),
    Case("brotli in gzip", coded("br, gzip", gzip.compress(brotli.compress(TEXT))), body=TEXT),
    Case("four times gzip", coded("gzip,gzip,gzip,gzip", gzip.compress(b"x")), error=DecodeFailed),
    Case("deflate that is not", coded("deflate", b"\xff" * 100), error=DecodeFailed),
    Case("brotli that is not", coded("br", b"\xff" * 100), error=DecodeFailed),
    Case("broken at the beginning", coded("gzip", b"\x1f\x8b\x08" + bytes(7) + b"\x07" * 99), error=DecodeFailed),
    Case("zstd with a huge window", coded("zstd", b"\x28\xb5\x2f\xfd\x00\xb8\x01\x00\x00"), error=DecodeFailed),
    Case("gzip cut off", coded("gzip", gzip.compress(NOISE)[:-400]), truncated=True),
    Case("brotli cut off", coded("br", brotli.compress(NOISE)[:-40]), truncated=True),
    Case("empty gzip", coded("gzip", b""), body=b""),
    Case("identity", coded("identity", TEXT), body=TEXT),
    Case("unknown encoding", coded("utf-8", TEXT), body=TEXT),
    Case("gzip beyond the limit", coded("gzip", gzip.compress(TEXT * 100)), error=DecodeBomb),
    Case("gzip bomb", coded("gzip", gzip.compress(bytes(10_000_000))), error=DecodeBomb),
    Case("deflate bomb", coded("deflate", zlib.compress(bytes(10_000_000))), error=DecodeBomb),
    Case("brotli bomb", coded("br", brotli.compress(bytes(10_000_000))), error=DecodeBomb),
    Case("zstd bomb", coded("zstd", zstandard.compress(bytes(10_000_000))), error=DecodeBomb),
    Case("bomb in a bomb", coded("gzip,gzip", gzip.compress(gzip.compress(bytes(10_000_000)))), error=DecodeBomb),
    # Connections.
    Case("says close and stays", [OK + b"Connection: close\r\n" + HI, Stall()], body=b"hi"),
    Case("keeps alive and waits", [OK + HI, NextRequest(), OK + HI], body=b"hi"),
]


FAILING_BODIES = {
    "shorter than said": ([b"Content-Length: 9\r\n\r\nhi"], ConnectionLost, b"hi"),
    "reset": ([b"Content-Length: 9\r\n\r\nhi", NextRequest(), Reset()], IdleTimeout, b"hi"),
    "stalled": ([b"Content-Length: 9\r\n\r\nhi", Stall()], IdleTimeout, b"hi"),
    "broken chunks": ([b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi there"], BadResponse, b"hi"),
    "chunks that are none": ([b"Transfer-Encoding: chunked\r\n\r\n<p>hi"], BadResponse, b""),
    "endless trailers": (
        [b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n", Endless(b"X: y\r\n" * 100)], HeadersTooLarge, b"hi"
    ),
    "bomb": (coded("gzip", gzip.compress(bytes(10_000_000))), DecodeBomb, b""),
    "four times gzip": (coded("gzip,gzip,gzip,gzip", gzip.compress(b"x")), DecodeFailed, b""),
    "nothing to decode": (coded("gzip", b"\x1f\x8b\x08" + bytes(7) + b"\x07" * 99), DecodeFailed, b""),
    "gzip that is a picture": (coded("gzip", b"\x89PNG\0"), DecodeFailed, b"\x89PNG\0"),
    **{
        f"{name} that is none, {len(text)} bytes": (coded(name, text), DecodeFailed, text)
        for name in ENCODED for text in PLAIN
    },
}  # fmt: skip
"""By name: the steps behind the status line, the error of a page, and the part of the body that is kept."""


def client_for(expected: type[FetchError]) -> HttpClient:
    """A client that is patient, unless its patience is what ends."""
    timeouts = Timeouts(30, 30, 0.1, 60) if expected is IdleTimeout else PATIENT
    return HttpClient(Resolver(overrides={"bad.test": "127.0.0.1"}), limits=LIMITS, timeouts=timeouts)


@pytest.mark.parametrize("status", [200, 206, 302, 403, 404, 503])
@pytest.mark.parametrize("name", FAILING_BODIES)
async def test_a_status_and_its_headers_count_whatever_the_body_is(name: str, status: int) -> None:
    """Also those of a page, which has failed."""
    steps, expected, body = FAILING_BODIES[name]
    script = [steps[0].replace(OK, b""), *steps[1:]]
    script[0] = f"HTTP/1.1 {status} X\r\nLocation: /target\r\n".encode() + script[0]
    client = client_for(expected)
    async with run_bad_server({"/": script}) as server:
        try:
            request = FetchRequest(f"http://bad.test:{server.port}/")
            if status < 300:
                with pytest.raises(expected) as caught:
                    await client.fetch(request)
                fetched = caught.value.response
            else:
                fetched = await client.fetch(request)
            assert (fetched.status, fetched.body) == (status, body)
            assert ("Location", "/target") in fetched.headers
            assert fetched.faults
            assert fetched.truncated is (fetched.faults != ("content_encoding",))
            assert client.bodies_in_flight_bytes == 0
        finally:
            await client.close()
    assert client.open_connections == 0


@pytest.mark.parametrize("name", FAILING_BODIES)
async def test_the_body_of_a_failed_page_is_freed_with_its_error(name: str) -> None:
    """At once. The garbage collector comes so late that many bodies would wait for it."""
    steps, expected, _ = FAILING_BODIES[name]
    client = client_for(expected)
    async with run_bad_server({"/": [OK, *steps]}) as server:
        gc.disable()
        try:
            await client.fetch(FetchRequest(f"http://bad.test:{server.port}/"))
        except expected as error:
            kept = weakref.ref(error)
        finally:
            gc.enable()
            await client.close()
    assert kept() is None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
async def test_a_bad_server_ends_in_an_answer_or_the_right_error(case: Case) -> None:
    """And whatever it was, nothing of it stays behind."""
    client = HttpClient(Resolver(overrides={"bad.test": "127.0.0.1"}), limits=LIMITS, timeouts=case.timeouts)
    async with run_bad_server({"/": case.script}) as server:
        exchange = FetchRequest(f"http://bad.test:{server.port}/", method=case.method, keep_wire=True)
        try:
            if case.error is not None:
                with pytest.raises(FetchError) as caught:
                    await client.fetch(exchange)
                assert type(caught.value) is case.error
            else:
                fetched = await client.fetch(exchange)
                assert (fetched.status, fetched.truncated) == (case.status, case.truncated)
                if case.body is not None:
                    assert fetched.body == case.body
                assert fetched.response_head.lower().startswith(b"http")
                assert case.check(fetched)
            assert client.bodies_in_flight_bytes == 0
        finally:
            await client.close()
    assert client.open_connections == 0
