"""A request and its response, as data, with the limits of both.

Redirects, cookies and retries are the caller's task: every hop of a redirect needs its own check of scope (which URLs a
crawl may follow), robots.txt and address, and counts as a hit: a request to its site by the rate limit.

The operator's settings replace the defaults of `header_bytes`, `body_bytes` and all timeouts but `idle`. Nothing here
is stored, so fields may be added; the client sets every field of a response.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from gossamer.fetch.faults import ResponseFault
from gossamer.model.record import Rendering

if TYPE_CHECKING:
    from gossamer.fetch.backend import PageLoad

REDIRECT_STATUSES = frozenset((301, 302, 303, 307, 308))
"""Statuses whose Location is followed (RFC 9110, section 15.4): fixed. 300 offers a choice, and 304 has no target."""


def first_header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """Return the value of the first header of this lower-case name; None: there is none."""
    length = len(name)
    for key, value in headers:
        if len(key) == length and key.lower() == name:
            return value
    return None


def header_lines(headers: Iterable[tuple[str, str]], name: str) -> list[str]:
    """Return the values of all headers of this lower-case name."""
    length = len(name)
    return [value for key, value in headers if len(key) == length and key.lower() == name]


def redirect_location(status: int, headers: Iterable[tuple[str, str]]) -> str | None:
    """Return the Location that a response redirects to; None: it is no redirect, because its status is none or because
    it has no Location, or an empty one."""
    return (first_header(headers, "location") or None) if status in REDIRECT_STATUSES else None


class FetchRequest(msgspec.Struct):
    """HTTP request. It may be changed until it is passed to a client."""

    url: str
    """Canonical http or https URL (WHATWG serialisation). Its user and password become an Authorization header unless
    `headers` has one; a fragment is not sent."""
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    """All headers in the order to send, except those that the client sets itself (see `request.OWNED`). Equal headers
    are encoded once and cached."""
    body: bytes = b""
    proxy: str | None = None
    """`http://`, `https://`, `socks5://` or `socks5h://` URL, with user and password if needed; see `dial.py`."""
    insecure: bool = False
    """True: accept any certificate, and weak keys and ciphers."""
    allow_private: bool = False
    """True: the URL's host may have an address outside the public internet."""
    keep_wire: bool = False
    """True: also keep the body as it was sent, for an archive."""
    guard_proxy: bool = False
    """True: the proxy's address must be public, too, because not the operator named the proxy but the sender of a
    request, who may not reach the operator's own networks."""
    body_bytes: int | None = None
    """Limit of the body, as sent and as decoded; None: the client's `ResponseLimits.body_bytes`."""
    whole_only: bool = False
    """True: a part of a body is of no use, as for `ResponseLimits.whole_only`. Needs `body_bytes`."""
    decoded_bytes: int | None = None
    """Limit of the response's `body` where it is another than that of the body as sent: a longer body is cut, but
    complete in `wire_body`, from which `fetch/piecewise.py` decodes it (see `encodings`). Needs `keep_wire`."""
    send_by: float | None = None
    """Latest time on the monotonic clock to send the request; `math.inf`: no limit. Set for a request that was charged
    as one hit of its site.

    A request that has no connection by then raises NotSentInTime. It is sent at most once: when a kept connection is
    lost before the first byte, ConnectionLost is raised as `repeatable`, because a second try would be a second hit.
    None: the request is not charged, and the client may repeat it.
    """
    connect_allowance: float = 0.0
    """Seconds after `send_by` in which the request may be sent, too, as far as it needs them to open a connection."""
    page: "PageLoad | None" = None
    """Rules for what the page loads, for a browser that renders it. The HTTP client ignores it."""


class Timings(msgspec.Struct):
    """Seconds that each phase took; 0.0 for a phase that did not happen, such as connecting on a kept connection."""

    dns: float = 0.0
    connect: float = 0.0
    """TCP, and the handshake with the proxy if there is one."""
    tls: float = 0.0
    stalled: float = 0.0
    """Part of `connect` and `tls` for which the event loop of this process stood still."""
    first_byte: float = 0.0
    """From the last byte of the request to the first of the response."""
    total: float = 0.0
    """From the call to the decoded body, including waits for a free connection and for memory."""

    @property
    def connecting(self) -> float:
        """Seconds that opening the connection took, without stalls of this process."""
        return max(0.0, self.connect + self.tls - self.stalled)


class FetchResponse(msgspec.Struct):
    """HTTP response, whatever its status."""

    url: str
    status: int
    """100 to 999, but never the status of an interim (1xx) response."""
    reason: str
    http_version: str
    """`1.0`, `1.1` or `2`."""
    headers: list[tuple[str, str]]
    """Decoded as Latin-1, in the order and letter case received. Trailers of a chunked body are not included."""
    request_head: bytes
    response_head: bytes
    """Raw bytes from the first line to the empty line. `request_head` does not include the proxy's credentials. Of
    HTTP/2, both are in the form of HTTP/1.1, and `response_head` begins with `HTTP/2`."""
    body: bytes
    """Without content encodings, at most `ResponseLimits.body_bytes`."""
    wire_body: bytes | None
    """Body as received, with its content encoding but without chunk framing; None unless requested (`keep_wire`)."""
    truncated: bool
    """True: the body is incomplete, because it exceeded its limit (the connection was closed), its encoding ended early
    or was damaged, or the connection was lost within it."""
    ip: str
    """Address of the server. Empty when a proxy looked the name up."""
    port: int
    reused: bool
    """True: the connection had served another request before."""
    timings: Timings
    received_bytes: int
    """Bytes received for this response: heads, framing and body, without TLS."""
    headers_by_name: dict[str, list[str]] | None = None
    """Values of `headers` by name, spelled as sent, of a plain head: one with one Content-Type at most, and without
    X-Robots-Tag. None: they were not collected."""
    faults: tuple[ResponseFault, ...] = ()
    """Faults of the response that did not lose it."""
    encodings: tuple[str, ...] = ()
    """Content encodings of `wire_body`, where the request asked for `decoded_bytes`."""
    moved_to: str | None = None
    """URL that a script or a `<meta>` of the rendered page leads to. None: nowhere, or the page was not rendered."""
    rendering: Rendering | None = None
    """Course of the rendering. None: the page was not rendered."""
    screenshot: bytes = b""
    """Screenshot of the rendered page, as PNG. Empty: there is none."""
    render_choice: str = ""
    """Decision whether to render the page, as its record has it. Empty: the crawl leaves no choice."""


KIB = 1024
MIB = 1024 * KIB


class ResponseLimits(msgspec.Struct, frozen=True):
    """Bounds on one response. Each exists because some server on the web exceeds it: larger ones accept more servers
    and let a hostile one take more memory or time."""

    header_bytes: int = 64 * KIB
    """Status line and headers together, including interim (1xx) responses. Also the limit of chunk framing between two
    body bytes, and of trailers. All framing of a chunked body together may take this much plus the body's size."""
    headers: int = 512
    """Header lines in one response."""
    body_bytes: int = 5 * MIB
    """Body size, both as sent and as decoded. A longer body is cut and the response marked as truncated."""
    whole_only: bool = False
    """True: a body whose Content-Length exceeds `body_bytes` is not read, and the response marked as truncated."""
    bomb_ratio: int = 100
    """A body that expands by more than this ratio (decoded to sent bytes) and beyond `bomb_bytes` is refused. Must stay
    well above 20, which honest HTML reaches, and below 1032, the most that deflate can reach."""
    bomb_bytes: int = 2 * MIB
    """Decoded size below which no ratio is suspicious: long runs of spaces do occur."""
    encodings: int = 3
    """Nested content encodings. More than one is a server's mistake, so a larger number is hardly ever of use."""
    interim: int = 8
    """Interim (1xx) responses before the final one."""


class Timeouts(msgspec.Struct, frozen=True):
    """Timeouts of the phases of a request, in seconds. Longer ones wait for slower servers, and let a silent server
    hold a connection and a request of the worker for as long.

    One coarse timer checks all but `connect`, so they end late by up to an eighth of the shortest one, and at most a
    quarter of a second.
    """

    connect: float = 10.0
    """Connecting, TLS handshake and proxy handshake, for all addresses of the host together."""
    first_byte: float = 30.0
    """From the last byte of the request to the first of the response."""
    idle: float = 30.0
    """Between two pieces of the response."""
    total: float = 120.0
    """The whole request, including the wait for a free connection. Nothing else ends a response that arrives byte by
    byte."""
