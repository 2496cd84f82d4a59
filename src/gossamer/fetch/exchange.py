"""A request and its response, as data, with the limits of both.

Redirects, cookies and retries are the caller's task: every hop needs its own scope, robots.txt, address and budget.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

REDIRECT_STATUSES = frozenset((301, 302, 303, 307, 308))


def first_header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """Return the value of the first header of this lower-case name; None: there is none."""
    return next((value for key, value in headers if key.lower() == name), None)


class FetchRequest(msgspec.Struct, frozen=True):
    """HTTP request."""

    url: str
    """Canonical http or https URL (WHATWG serialisation). Its user and password become an Authorization header unless
    `headers` has one; a fragment is not sent."""
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    """All headers in the order to send, except those that the client sets itself (see `request.OWNED`). Passing the
    same tuple again is cheap: its encoding is cached."""
    body: bytes = b""
    proxy: str | None = None
    """`http://`, `socks5://` or `socks5h://` URL, with user and password if needed; see `dial.py`."""
    insecure: bool = False
    """Accept any certificate, and weak keys and ciphers."""
    allow_private: bool = False
    """The URL's host may have an address outside the public internet."""
    keep_wire: bool = False
    """Also keep the body as it was sent, for an archive."""
    guard_proxy: bool = False
    """Check the proxy's address like any other: it was not named by the operator, but by a person who may not reach all
    networks."""
    body_bytes: int | None = None
    """Limit of the body, as sent and as decoded; None: the client's `ResponseLimits.body_bytes`."""
    send_by: float | None = None
    """Latest time on the monotonic clock to send the request on the hit that it was charged; `math.inf`: no limit.

    A request that has no connection by then raises NotSentInTime. It is sent at most once: when a kept connection is
    lost before the first byte, ConnectionLost is raised as `repeatable`. None: the request needs no hit.
    """


class Timings(msgspec.Struct):
    """Seconds that each phase took; 0.0 for a phase that did not happen, such as connecting on a kept connection."""

    dns: float = 0.0
    connect: float = 0.0
    """TCP, and the handshake with the proxy if there is one."""
    tls: float = 0.0
    first_byte: float = 0.0
    """From the last byte of the request to the first of the response."""
    total: float = 0.0
    """From the call to the decoded body, including waits for a free connection and for memory."""


class FetchResponse(msgspec.Struct):
    """HTTP response, whatever its status."""

    url: str
    status: int
    """100 to 999, but never the status of an interim (1xx) response."""
    reason: str
    http_version: str
    """`1.0` or `1.1`."""
    headers: list[tuple[str, str]]
    """Decoded as Latin-1, in the order and letter case sent. Trailers of a chunked body are not included."""
    request_head: bytes
    response_head: bytes
    """Raw bytes from the first line to the empty line. `request_head` does not include the proxy's credentials."""
    body: bytes
    """Without content encodings, at most `ResponseLimits.body_bytes`."""
    wire_body: bytes | None
    """Body as sent, with its content encoding but without chunk framing; None unless requested."""
    truncated: bool
    """True: the body is incomplete, because it exceeded its limit (the connection was closed) or its encoding ended
    early."""
    ip: str
    """Address of the server. Empty when a proxy looked the name up."""
    port: int
    reused: bool
    """True: the connection had served another request before."""
    timings: Timings
    received_bytes: int
    """Bytes received for this response: heads, framing and body, without TLS."""


KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """Bounds on one response. Each exists because some server on the web exceeds it."""

    header_bytes: int = 64 * KIB
    """Status line and headers together, including interim (1xx) responses. Also the limit of chunk framing between two
    body bytes, and of trailers. All framing of a chunked body may take this much plus the body's size."""
    headers: int = 512
    """Header lines in one response."""
    body_bytes: int = 5 * MIB
    """Body size, both as sent and as decoded. A longer body is cut and the response marked as truncated."""
    bomb_ratio: int = 100
    """A body that expands by more than this ratio (decoded to sent bytes) and beyond `bomb_bytes` is refused. Honest
    HTML reaches 20; deflate can reach 1032 at most."""
    bomb_bytes: int = 2 * MIB
    """Size below which no ratio is suspicious: long runs of spaces do occur."""
    encodings: int = 3
    """Nested content encodings."""
    interim: int = 8
    """Interim (1xx) responses before the final one."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of the phases of a request, in seconds.

    A coarse clock measures them: up to an eighth of the shortest one, and at most a quarter of a second, may be added.
    """

    connect: float = 10.0
    """Connecting, TLS handshake and proxy handshake, for all addresses of the host together."""
    first_byte: float = 30.0
    """From the last byte of the request to the first of the response."""
    idle: float = 30.0
    """Between two pieces of the response."""
    total: float = 120.0
    """The whole request, including the wait for a free connection. Ends a server that sends a byte a second."""
