"""Hosts that break HTTP itself: they stall, reset, lie about lengths, or never come to an end.

Cases may be added freely; their names are fixed. The bytes are the test: each case goes wrong in one place of an answer
(RFC 9112), so change a case only to make that clearer.
"""

from gossamer.fakeweb.answer import Answer, Reset, Send, Silence, Step
from gossamer_fakeweb.hostile.case import Case, Cases, always

# Beginnings of answers: headers still open; closed, with chunks to follow; closed, with a million bytes to follow.
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = OK + b"Content-Length: 1000000\r\n\r\n"
PIECE = b"<p>and on and on</p>\r\n" * 3000
SLOW_SECONDS = 1.0
"""Pause between two bytes of hosts that send a byte at a time. Must stay below the idle limits of crawlers (seconds
without data), so that only a limit for the whole answer ends them."""


def scripted(about: str, *steps: Step | bytes, status: int = 200) -> Case:
    """Return a case that performs these steps for every path; bytes are sent once. `status`: for the log, 0: none is
    sent."""
    script = tuple(Send(step) if isinstance(step, bytes) else step for step in steps)
    return always(about, Answer(status=status, script=script))


def _slow(data: bytes) -> Send:
    """Return a step that sends the data again and again, with a pause in between."""
    return Send(data, times=0, pause_seconds=SLOW_SECONDS)


STAGES: Cases = {
    "silent-request": scripted("never answers", Silence(), status=0),
    "silent-headers": scripted("stops within the headers", OK + b"X-A", Silence()),
    "silent-body": scripted("stops within the body", LONG + b"<p>", Silence()),
    "silent-chunk": scripted("stops within a chunk", CHUNKED + b"ff\r\n<p>", Silence()),
    "silent-chunks": scripted("stops between two chunks", CHUNKED + b"3\r\n<p>\r\n", Silence()),
    "silent-trailers": scripted("stops within the trailers", CHUNKED + b"3\r\n<p>\r\n0\r\nX-A", Silence()),
    "reset-request": scripted("resets when it is asked", Reset(), status=0),
    "reset-headers": scripted("resets within the headers", OK + b"X-A", Reset()),
    "reset-body": scripted("resets within the body", LONG + b"<p>", Reset()),
    "reset-chunks": scripted("resets between two chunks", CHUNKED + b"3\r\n<p>\r\n", Reset()),
    "closed-request": scripted("hangs up when it is asked", b"", status=0),
    "closed-headers": scripted("hangs up within the headers", OK + b"X-A"),
    "closed-body": scripted("hangs up within the body", LONG + b"<p>"),
    "closed-chunks": scripted("hangs up between two chunks", CHUNKED + b"3\r\n<p>\r\n"),
}
"""Gone or silent at each stage of an answer."""

ENDLESS: Cases = {
    "endless-headers": scripted("headers without end", OK, Send(b"X-Filler: nothing\r\n" * 50, times=0)),
    "endless-header": scripted("one header without end", OK + b"X-Filler: ", Send(b"y" * 5000, times=0)),
    "endless-status": scripted("a status line without end", b"HTTP/1.1 200 ", Send(b"OK " * 2000, times=0)),
    "endless-blank": scripted("empty lines before the answer, without end", Send(b"\r\n" * 500, times=0)),
    "endless-interim": scripted("100 Continue, again and again", Send(b"HTTP/1.1 100 Continue\r\n\r\n" * 9, times=0)),
    "endless-body": scripted("a body without length or end", OK + b"\r\n", Send(PIECE, times=0)),
    "endless-chunks": scripted("chunks without end", CHUNKED, Send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE), times=0)),
    "endless-tiny-chunks": scripted("chunks of one byte, without end", CHUNKED, Send(b"1\r\nx\r\n" * 2000, times=0)),
    "endless-extension": scripted("a chunk extension without end", CHUNKED + b"3;", Send(b"x=y;" * 1000, times=0)),
    "endless-trailers": scripted("trailers without end", CHUNKED + b"0\r\n", Send(b"X-A: b\r\n" * 500, times=0)),
    "slow-headers": scripted("a header a second, without end", OK, _slow(b"X-A: b\r\n")),
    "slow-body": scripted("a byte a second, without end", OK + b"\r\n", _slow(b"x")),
    "slow-length": scripted("a byte a second of 10 GB", OK + b"Content-Length: 10000000000\r\n\r\n", _slow(b"x")),
    "slow-chunks": scripted("a chunk of one byte a second", CHUNKED, _slow(b"1\r\nx\r\n")),
    "slow-status": scripted("the status line at a byte a second", b"HTTP/1.1 200 ", _slow(b"O")),
}
"""Never come to an end, fast or slowly."""

LIES: Cases = {
    "length-too-long": scripted(
        "a terabyte announced, three bytes sent", OK, b"Content-Length: 1099511627776\r\n\r\n<p>"
    ),
    "length-too-short": scripted("two bytes announced, a page sent", OK + b"Content-Length: 2\r\n\r\n" + PIECE),
    "length-negative": scripted("a negative length", OK + b"Content-Length: -1\r\n\r\n<p>"),
    "length-huge": scripted("a length of 4,000 digits", OK + b"Content-Length: " + b"9" * 4000 + b"\r\n\r\n<p>"),
    "length-twice": scripted("two lengths", OK + b"Content-Length: 3\r\nContent-Length: 9\r\n\r\n<p>"),
    "length-and-chunks": scripted(
        "a length and chunks", OK + b"Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n<p>\r\n0\r\n\r\n"
    ),
    "second-answer": scripted(
        "an unsolicited second answer behind the first", (OK + b"Content-Length: 3\r\n\r\n<p>") * 2
    ),
    "chunk-negative": scripted("a chunk of negative size", CHUNKED + b"-3\r\n<p>\r\n0\r\n\r\n"),
    "chunk-overflow": scripted("a chunk size of 40 digits", CHUNKED + b"f" * 40 + b"\r\n<p>"),
    "protocol-switch": scripted(
        "switches the protocol", b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n?"
    ),
    "protocol-none": scripted("a page without HTTP", b"<html><p>Hello</p></html>"),
    "protocol-ssh": scripted("speaks SSH", b"SSH-2.0-OpenSSH_9.2\r\n", Silence()),
    "protocol-tls": scripted("speaks TLS on a plain port", b"\x15\x03\x01\x00\x02\x02\x46"),
    "protocol-noise": scripted("all bytes there are", bytes(range(256)) * 100),
    "status-zero": scripted("status 000", b"HTTP/1.1 000 \r\n\r\n"),
    "status-high": scripted("status 999", b"HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n"),
    "headers-nul": scripted("NUL bytes in the headers", OK + b"X\0A: b\0\r\nContent-Length: 3\r\n\r\n<p>"),
    "headers-bare": scripted("headers without colons", OK + b"what\r\nis\r\nthis\r\nContent-Length: 3\r\n\r\n<p>"),
    "headers-many": scripted("5,000 headers", OK + b"a: b\r\n" * 5000 + b"Content-Length: 3\r\n\r\n<p>"),
    "headers-cookies": scripted(
        "400 cookies", OK + b"Set-Cookie: " + b"x" * 90 + b"=y\r\n" + b"Set-Cookie: a=b\r\n" * 400 + b"\r\n<p>"
    ),
    "headers-type": scripted(
        "a Content-Type of 50,000 characters", OK[:17] + b"Content-Type: text/html;" + b" " * 50_000 + b"\r\n\r\n<p>"
    ),
}
"""Contradict themselves or the protocol."""

CASES: Cases = {**STAGES, **ENDLESS, **LIES}
