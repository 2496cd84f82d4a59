"""What goes onto the wire: an origin from a URL, and the head of a request."""

import base64
import re
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import unquote_to_bytes

from gossamer.errors import BadInput, BadUrl
from gossamer.fetch.decode import ACCEPT_ENCODING

OWNED = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that no crawl, spider or request may set, in lower case: the client sets them itself, or they would change
how the message is framed or encoded. Everything that checks or drops such headers uses this list."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, section 5.6.2
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")  # visible, blanks, and whatever is beyond ASCII
_TARGET = re.compile(r"[!-~]*")
_AUTHORITY = re.compile(r"[^\x00- #/<>?@\\^|\x7f-\U0010ffff]+")  # WHATWG URL: without forbidden host code points
_PORTS = {"http": 80, "https": 443}
_REMEMBERED = 4096

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a URL's requests go."""

    scheme: str
    host: str
    """As in the URL; an IPv6 address without its brackets."""
    port: int
    authority: str
    """For the Host header: without user, without a default port."""
    credentials: str = field(default="", repr=False)
    """For an Authorization header; empty when the URL has no user."""

    @property
    def secure(self) -> bool:
        """Whether it speaks TLS."""
        return self.scheme == "https"


def parse_origin(prefix: str) -> Origin:
    """`prefix` is a canonical URL up to where its path begins. Raises BadUrl."""
    scheme, separator, rest = prefix.partition("://")
    if not separator or scheme not in _PORTS:
        raise BadUrl(prefix)
    userinfo, at, authority = rest.rpartition("@")
    host, colon, port = authority.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = authority, ""
    if not host or not _AUTHORITY.fullmatch(authority) or (port and not (port.isascii() and port.isdigit())):
        raise BadUrl(prefix)
    number = int(port) if port else _PORTS[scheme]
    if not 0 < number < 65536:
        raise BadUrl(prefix)
    user, _, password = userinfo.partition(":")
    credentials = basic_credentials(unquote_to_bytes(user), unquote_to_bytes(password)) if at and userinfo else ""
    return Origin(scheme, host.removeprefix("[").removesuffix("]"), number, authority, credentials)


def basic_credentials(user: bytes, password: bytes) -> str:
    """The value of an Authorization header (RFC 7617)."""
    return "Basic " + base64.b64encode(user + b":" + password).decode("ascii")


def check_headers(headers: tuple[tuple[str, str], ...]) -> None:
    """Raises BadInput for a header that cannot be sent: bad characters (line ends above all) or one of OWNED."""
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise BadInput(f"{name!r} is no header name")
        if not _VALUE.fullmatch(value):
            raise BadInput(f"the value of header {name!r} has characters that no header may have")
        if name.lower() in OWNED:
            raise BadInput(f"header {name!r} is set by the client itself")


class RequestEncoder:
    """Heads of requests, their recurring parts encoded once."""

    def __init__(self) -> None:
        self._origins: dict[str, Origin] = {}
        self._headers: dict[tuple[tuple[str, str], ...], tuple[bytes, bool]] = {}

    def split(self, url: str) -> tuple[Origin, str]:
        """The URL's origin and the target to ask it for (path and query). Raises BadUrl."""
        slash = url.find("/", 8)
        prefix, target = (url, "/") if slash < 0 else (url[:slash], url[slash:])
        origin = self._origins.get(prefix)
        if origin is None:
            origin = parse_origin(prefix)
            _remember(self._origins, prefix, origin)
        if "#" in target:
            target = target.partition("#")[0]
        return origin, target

    def head(
        self,
        origin: Origin,
        target: str,
        method: str,
        headers: tuple[tuple[str, str], ...],
        body_bytes: int,
        *,
        through_proxy: bool = False,
    ) -> bytes:
        """Request line and headers. `through_proxy`: in the absolute form that a plain HTTP proxy needs.

        Raises BadInput for what would not be one request: see `check_headers`.
        """
        if method != "GET" and (method == "CONNECT" or not _TOKEN.fullmatch(method)):
            raise BadInput(f"{method!r} is no method of a request")
        if not _TARGET.fullmatch(target):
            raise BadUrl(target)
        known = self._headers.get(headers)
        if known is None:
            check_headers(headers)
            known = _encode(headers)
            _remember(self._headers, headers, known)
        encoded, authorized = known
        absolute = f"{origin.scheme}://{origin.authority}" if through_proxy else ""
        line = f"{method} {absolute}{target} HTTP/1.1\r\nHost: {origin.authority}\r\n"
        if origin.credentials and not authorized:
            line += f"Authorization: {origin.credentials}\r\n"
        if body_bytes or method in ("POST", "PUT", "PATCH"):
            line += f"Content-Length: {body_bytes}\r\n"
        return line.encode("ascii") + encoded


def _encode(headers: tuple[tuple[str, str], ...]) -> tuple[bytes, bool]:
    # Names are ASCII; a value beyond Latin-1 can only mean UTF-8, which is what such a header would be read as.
    lines = [name.encode("ascii") + b": " + _bytes(value) + b"\r\n" for name, value in headers]
    lines.append(f"Accept-Encoding: {ACCEPT_ENCODING}\r\n".encode("ascii"))
    # HTTP/1.1 keeps connections alive by itself; servers that answer with 1.0 want to be told.
    lines.append(b"Connection: keep-alive\r\n\r\n")
    return b"".join(lines), any(name.lower() == "authorization" for name, _ in headers)


def _bytes(value: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def _remember(memory: dict[Key, Value], key: Key, value: Value) -> None:
    if len(memory) >= _REMEMBERED:
        memory.clear()
    memory[key] = value
