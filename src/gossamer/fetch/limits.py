"""How much of an answer is taken, and how long it is waited for. Plain numbers; whoever builds a client picks them."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
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
