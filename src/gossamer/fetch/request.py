"""Encodes requests: parses origins (scheme, host, port) from URLs and builds request heads.

Fixed: the checks before a head is built, because a line end that reaches it would add headers or a whole request; and
the empty line at the very end of a head, before which `client.py` inserts the password of a proxy.
"""

import base64
import re
from typing import TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

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
how the message is framed or encoded. Everything that checks or drops such headers uses this list. A header may be
added; requests that name it are then refused. None may be removed."""

# What may be sent, besides path and query, which `head` checks. Each of these is as wide as its standard allows; a
# wider one would let a URL or a header break out of its line.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # header name or method: RFC 9110, section 5.6.2
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")  # header value: visible characters, blanks, everything beyond ASCII
_AUTHORITY = re.compile(r'[!"$-.0-;=A-Z\[\]_-{}~]+')  # host and port: WHATWG URL, without forbidden host code points

_PORTS = {"http": 80, "https": 443}
"""Ports of URLs that name none: fixed."""
_AFTER_SCHEME = len("https://")
"""Position from which a `/` of a canonical URL is in its path. In `http://` too, because a host has a character."""
_MAX_CACHED = 4096
"""Origins, and lists of headers, whose encoded forms are kept; at this number all are forgotten. More take memory,
fewer are encoded again."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class Origin(msgspec.Struct, frozen=True, cache_hash=True):
    """Scheme, host and port that the requests of a URL go to."""

    scheme: str
    host: str
    """Host as in the URL; an IPv6 address without its brackets."""
    port: int
    authority: str
    """Value of the Host header: without user, without a default port."""
    credentials: str = ""
    """Value of an Authorization header from the URL's user and password; empty when it has none."""

    @property
    def secure(self) -> bool:
        """True: the origin uses TLS."""
        return self.scheme == "https"

    def __repr__(self) -> str:
        return f"Origin({self.scheme}://{self.authority})"  # without credentials, which must not reach logs


def parse_origin(prefix: str) -> Origin:
    """Parse the origin of a canonical URL; `prefix` is the part before the path. Raises BadUrl."""
    scheme, separator, rest = prefix.partition("://")
    if not separator or scheme not in _PORTS:
        raise BadUrl(prefix)
    userinfo, at, authority = rest.rpartition("@")
    host, colon, port = authority.rpartition(":")
    if not colon or port.endswith("]"):  # no port: the last colon is in an IPv6 address
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
    """Return the value of an Authorization header (RFC 7617)."""
    return "Basic " + base64.b64encode(user + b":" + password).decode("ascii")


def check_headers(headers: tuple[tuple[str, str], ...]) -> None:
    """Raise BadInput for a header that must not be sent: one with invalid characters (above all line ends) or one of
    OWNED."""
    for name, value in headers:
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadInput(f"the header {name!r}: {value!r:.60} is not a text")
        if not _TOKEN.fullmatch(name):
            raise BadInput(f"{name!r} is not a valid header name")
        if not _VALUE.fullmatch(value):
            raise BadInput(f"the value of header {name!r} contains invalid characters")
        if name.lower() in OWNED:
            raise BadInput(f"header {name!r} is set by the client itself")


class RequestEncoder:
    """Encoder of request heads. Origins and header lists that recur are encoded once."""

    def __init__(self) -> None:
        self._origins: dict[str, Origin] = {}
        # Encoded headers, and whether an Authorization is among them.
        self._headers: dict[tuple[tuple[str, str], ...], tuple[bytes, bool]] = {}

    def split(self, url: str) -> tuple[Origin, str]:
        """Return the origin and the request target (path and query) of a canonical URL. Raises BadUrl."""
        slash = url.find("/", _AFTER_SCHEME)
        prefix, target = (url, "/") if slash < 0 else (url[:slash], url[slash:])
        origin = self._origins.get(prefix)
        if origin is None:
            origin = parse_origin(prefix)
            _cache(self._origins, prefix, origin)
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
        """Return request line and headers, with the empty line after them.

        `through_proxy`: the request line has the whole URL, for a plain HTTP proxy. `headers` are the caller's, which
        `check_headers` checks here. Raises BadUrl or BadInput for an invalid request.
        """
        if method != "GET" and (method == "CONNECT" or not _TOKEN.fullmatch(method)):
            raise BadInput(f"{method!r} is not a valid method")
        # Printable ASCII without the space; the methods of str are quicker here than an expression.
        if not (target.isascii() and target.isprintable()) or " " in target:
            raise BadUrl(target)
        known = self._headers.get(headers)
        if known is None:
            check_headers(headers)
            known = _encode(headers)
            _cache(self._headers, headers, known)
        encoded, has_authorization = known
        absolute = f"{origin.scheme}://{origin.authority}" if through_proxy else ""
        lines = f"{method} {absolute}{target} HTTP/1.1\r\nHost: {origin.authority}\r\n"
        if origin.credentials and not has_authorization:
            lines += f"Authorization: {origin.credentials}\r\n"
        if body_bytes or method in ("POST", "PUT", "PATCH"):  # servers expect the length of these even if it is 0
            lines += f"Content-Length: {body_bytes}\r\n"
        return lines.encode("ascii") + encoded


def _encode(headers: tuple[tuple[str, str], ...]) -> tuple[bytes, bool]:
    """Return the lines of checked headers, of the client's own, and the empty line; and whether one is
    Authorization."""
    lines = [name.encode("ascii") + b": " + _bytes(value) + b"\r\n" for name, value in headers]
    lines.append(f"Accept-Encoding: {ACCEPT_ENCODING}\r\n".encode("ascii"))
    # HTTP/1.1 keeps connections alive by itself; servers that respond with 1.0 need this header.
    lines.append(b"Connection: keep-alive\r\n\r\n")
    return b"".join(lines), any(name.lower() == "authorization" for name, _ in headers)


def _bytes(value: str) -> bytes:
    """Return a header's value as it is sent."""
    # A value beyond Latin-1 is sent as UTF-8, as servers would read it.
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def _cache(memory: dict[Key, Value], key: Key, value: Value) -> None:
    """Remember a value. A full memory is emptied before."""
    if len(memory) >= _MAX_CACHED:
        memory.clear()
    memory[key] = value


_EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_PAGE = re.compile(r"https?://[A-Za-z0-9.-]+(?::\d+)?(?:/[!-'*-~]*)?")
"""A URL of printable ASCII without parentheses, which would end that part of the User-Agent header, as spaces would."""


def contact_address(value: object) -> object:
    """Return the value of `fetch.contact`. Raises BadInput for what is neither a URL nor an e-mail address."""
    if not isinstance(value, str) or not value:
        return value
    address = value.strip().removeprefix("mailto:")
    if _EMAIL.fullmatch(address) or _PAGE.fullmatch(address):
        return address
    raise BadInput(f"cannot use {value!r:.100}. Write a URL or an e-mail address: https://example.org/bot")
