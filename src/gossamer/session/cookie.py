"""One cookie, and its rules by RFC 6265bis (draft-ietf-httpbis-rfc6265bis): what a Set-Cookie header says, and which
requests get it.

The name of each step is that of the standard. SameSite is read by no rule here, because a crawler makes all requests
itself, as a person does who types an address.
"""

import re
from datetime import UTC, datetime

import msgspec

from gossamer.policy.urls import host, is_address, is_public_suffix

MOST_BYTES = 4096
"""Longest name and value together; a longer cookie is ignored. Fixed by the standard, like the next two."""
_MOST_ATTRIBUTE_BYTES = 1024
_LONGEST_LIFE_SECONDS = 400 * 86400.0
_NOT_SENT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f;]")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SECONDS = re.compile(r"-?\d+")
_EARLIEST = float("-inf")


class Cookie(msgspec.Struct, frozen=True, array_like=True):
    """A cookie as it is kept. The order of the fields is stored: new ones are added at the end, with a default."""

    name: str
    """Empty: a cookie without a name, which is sent as its value alone."""
    value: str
    domain: str
    """Host that it was set by or, if it has a Domain, that domain."""
    path: str
    host_only: bool
    """True: only this host gets it. False: also the subdomains of `domain`."""
    secure: bool
    """True: only requests over TLS get it."""
    created: float
    """Unix time."""
    expires: float | None = None
    """Unix time. None: it lives as long as its session."""
    http_only: bool = False
    """True: scripts of pages may not read it."""
    of_login: bool = False
    """True: a login has set it, or a person has given it. It makes room last."""

    @property
    def identity(self) -> tuple[str, str, str, bool]:
        """Cookies with the same identity replace each other."""
        return self.name, self.domain, self.path, self.host_only

    @property
    def is_valid(self) -> bool:
        """True: it can stand in a Cookie header, and a Set-Cookie header could have set it."""
        bad = _NOT_SENT.search(self.name + self.value) or "=" in self.name
        return not bad and bool(self.name or self.value) and len(self.name) + len(self.value) <= MOST_BYTES

    @property
    def text(self) -> str:
        """The cookie as a Cookie header has it."""
        return f"{self.name}={self.value}" if self.name else self.value

    def is_expired(self, now: float) -> bool:
        """Return whether the cookie has no effect any more. `now`: Unix time."""
        return self.expires is not None and self.expires <= now

    def goes_to(self, url: str) -> bool:
        """Return whether a request for this canonical URL gets the cookie, if it is not expired."""
        name = _host(url)
        if name != self.domain if self.host_only else not _is_below(name, self.domain):
            return False
        if self.secure and not url.startswith("https:"):
            return False
        return _is_path_below(_path(url), self.path)

    def hides(self, other: "Cookie") -> bool:
        """Return whether this secure cookie may not be overlaid with `other`, which an insecure response sets."""
        near = _is_below(other.domain, self.domain) or _is_below(self.domain, other.domain)
        return self.secure and self.name == other.name and near and _is_path_below(other.path, self.path)


def parse_set_cookie(value: str, url: str, *, now: float) -> Cookie | None:
    """Return the cookie that a Set-Cookie header of the response at this canonical URL sets; None: it is ignored.

    `now`: Unix time. A cookie that the header removes is returned as an expired one."""
    if _CONTROLS.search(value):
        return None
    pair, *parts = value.split(";")
    name, equals, content = pair.partition("=")
    name, content = (name.strip(" \t"), content.strip(" \t")) if equals else ("", pair.strip(" \t"))
    if not (name or content) or len(name) + len(content) > MOST_BYTES:
        return None
    attributes = _attributes(parts)
    secure, is_tls = "secure" in attributes, url.startswith("https:")
    if secure and not is_tls:
        return None
    here = _host(url)
    domain = attributes.get("domain", "").removeprefix(".").lower()
    if domain and (not domain.isascii() or (is_public_suffix(domain) and domain != here)):
        return None
    host_only = not domain or (domain == here and (is_address(here) or is_public_suffix(here)))
    if domain and not _is_below(here, domain):
        return None
    path = attributes.get("path", "")
    if not _permits_prefix(name or content, secure=secure, host_only=not domain, path=path):
        return None
    return Cookie(
        name,
        content,
        here if host_only else domain,
        path if path.startswith("/") else default_path(url),
        host_only,
        secure,
        now,
        _expires(attributes, now),
        "httponly" in attributes,
    )


def default_path(url: str) -> str:
    """Return the path of a cookie that names none: the directory of the canonical URL, without its last slash."""
    return _path(url).rpartition("/")[0] or "/"


def _attributes(parts: list[str]) -> dict[str, str]:
    """Return the attributes of a Set-Cookie header by their lower-case names. Of several, the last one counts."""
    found = {}
    for part in parts:
        name, _, value = part.partition("=")
        value = value.strip(" \t")
        if len(value) <= _MOST_ATTRIBUTE_BYTES:
            found[name.strip(" \t").lower()] = value
    return found


def _permits_prefix(name: str, *, secure: bool, host_only: bool, path: str) -> bool:
    """Return whether a cookie has what the prefix of its name promises."""
    lower = name.lower()
    if lower.startswith("__secure-"):
        return secure
    return not lower.startswith("__host-") or (secure and host_only and path == "/")


def _expires(attributes: dict[str, str], now: float) -> float | None:
    """Return the end of a cookie's life. None: it names none. Max-Age counts before Expires."""
    age = attributes.get("max-age", "")
    if _SECONDS.fullmatch(age):
        return _EARLIEST if age[0] == "-" or not age.strip("0") else now + min(int(age[:12]), _LONGEST_LIFE_SECONDS)
    at = parse_cookie_date(attributes["expires"]) if "expires" in attributes else None
    return None if at is None else min(at, now + _LONGEST_LIFE_SECONDS)


_DELIMITERS = re.compile(r"[\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?!\d)")
_DAY = re.compile(r"(\d{1,2})(?!\d)")
_YEAR = re.compile(r"(\d{2,4})(?!\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def parse_cookie_date(text: str) -> float | None:
    """Return the Unix time of a cookie-date, in any order of its parts (section 5.1.1); None: it is none."""
    clock: tuple[int, ...] | None = None
    day = month = year = None
    for token in _DELIMITERS.split(text):
        if clock is None and (match := _TIME.match(token)):
            clock = tuple(map(int, match.groups()))
        elif day is None and (match := _DAY.match(token)):
            day = int(match[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (match := _YEAR.match(token)):
            year = int(match[1])
    if clock is None or day is None or month is None or year is None:
        return None
    if year < 100:
        year += 1900 if year >= 70 else 2000
    try:
        hour, minute, second = clock
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp() if year >= 1601 else None
    except ValueError:
        return None


def _host(url: str) -> str:
    return host(url).removesuffix(".")


def _path(url: str) -> str:
    """Return the path of a canonical URL."""
    return "/" + url.split("/", 3)[3].partition("?")[0].partition("#")[0]


def _is_below(name: str, domain: str) -> bool:
    """Return whether a host domain-matches a domain: it is the domain, or a name below it."""
    return name == domain or (name.endswith(f".{domain}") and not is_address(name))


def _is_path_below(path: str, prefix: str) -> bool:
    """Return whether a path path-matches the path of a cookie."""
    return path == prefix or (path.startswith(prefix) and (prefix.endswith("/") or path[len(prefix)] == "/"))
