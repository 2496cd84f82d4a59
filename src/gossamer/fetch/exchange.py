"""One request and one answer, as data. Redirects, cookies and retries are the caller's business: every hop needs its
own scope, robots, address and budget."""

from dataclasses import dataclass

import msgspec


class FetchRequest(msgspec.Struct, frozen=True):
    """What to send."""

    url: str
    """A canonical http or https URL (WHATWG serialisation). User and password in it become an Authorization header
    unless `headers` has one; a fragment is not sent."""
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    """The complete list in the order to send, without what the client owns (see `request.OWNED`). Passing the
    same tuple again and again is cheap."""
    body: bytes = b""
    proxy: str | None = None
    """`http://`, `socks5://` or `socks5h://`, with user and password if need be; see `proxy.py`."""
    insecure: bool = False
    """Accept any certificate, and weak keys and ciphers."""
    allow_private: bool = False
    """The URL's host may be at an address that is not on the public internet."""
    keep_wire: bool = False
    """Keep the body as it was sent, too, for an archive."""
    guard_proxy: bool = False
    """The proxy is judged like any address: not the operator named it, but somebody who may not reach all networks."""
    body_bytes: int | None = None
    """As much of the body is taken, as sent and as decoded; None: the client's own `ResponseLimits.body_bytes`."""
    send_by: float | None = None
    """Until when the request may be sent on the hit that it was charged, on the monotonic clock; `math.inf`: no limit.
    A request that has no connection by then raises NotSentInTime. It is sent once at most: when a kept connection is
    lost before the first byte, ConnectionLost is raised as `repeatable`. None: the request needs no hit."""


class Timings(msgspec.Struct):
    """Seconds each phase took; 0.0 for a phase that did not happen, as connecting on a kept-alive connection."""

    dns: float = 0.0
    connect: float = 0.0
    """TCP, and the proxy's consent where there is one."""
    tls: float = 0.0
    first_byte: float = 0.0
    """From the request's last byte to the answer's first."""
    total: float = 0.0
    """From the call to the decoded body, waiting for a free connection and for room in memory included."""


class FetchResponse(msgspec.Struct):
    """What came back, whatever its status."""

    url: str
    status: int
    """100 to 999, never an interim (1xx) one."""
    reason: str
    http_version: str
    """`1.0` or `1.1`."""
    headers: list[tuple[str, str]]
    """Latin-1 decoded, in the order and the letter case sent. Trailers of a chunked body are not among them."""
    request_head: bytes
    response_head: bytes
    """Raw, from the first line to the empty one. The proxy's credentials are left out of `request_head`."""
    body: bytes
    """Content-decoded, at most `ResponseLimits.body_bytes`."""
    wire_body: bytes | None
    """As sent, content encoding and all, but without the chunks' framing; None unless asked for."""
    truncated: bool
    """There was more: the body exceeded its limit (the connection was closed), or its encoding ended early."""
    ip: str
    """The address the answer came from. Empty when a proxy looked the name up."""
    port: int
    reused: bool
    """The connection had served before."""
    timings: Timings
    received_bytes: int
    """Taken off the wire for this answer: heads, framing and body; inside TLS."""


KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """Bounds on one answer. Each exists because some server on the web exceeds it."""

    header_bytes: int = 64 * KIB
    """Status line and headers together, interim (1xx) answers included; also what framing may come between two bytes
    of a chunked body, and all its trailers. All framing of a chunked body may come to so much and its size."""
    headers: int = 512
    """Header lines in one answer."""
    body_bytes: int = 5 * MIB
    """Of the body, both as sent and as decoded. What exceeds it is cut off and the answer marked as truncated."""
    bomb_ratio: int = 100
    """A body that expands more than this (decoded bytes per sent byte) and beyond `bomb_bytes` is refused. Honest HTML
    reaches 20; what deflate can reach at all is 1032."""
    bomb_bytes: int = 2 * MIB
    """Below this size no ratio is suspicious: long runs of spaces do occur."""
    encodings: int = 3
    """Content encodings on top of each other."""
    interim: int = 8
    """1xx answers before the real one."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each phase of an exchange may take, in seconds. Kept by a coarse clock: up to an eighth of the shortest
    of them, and at most a quarter of a second, may be added."""

    connect: float = 10.0
    """Connecting, the TLS handshake and a proxy's consent, all addresses of the host together."""
    first_byte: float = 30.0
    """From the request's last byte to the answer's first."""
    idle: float = 30.0
    """Between two pieces of the answer."""
    total: float = 120.0
    """The whole exchange, waiting for a free connection included. What ends a server that sends a byte a second."""
