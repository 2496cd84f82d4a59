"""Reads proxies: URLs, lists of them, and files of such lists.

A list is text: URLs with white space between them, and below a URL the headers for that proxy, one `Name: value` a
line. Lines that begin with `#` are comments. Programs keep a list as this text, so that settings, the terms of a crawl
and a file have one form.

Fixed: the form of a list, which users write; that no error shows a user, a password or the value of a header.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from gossamer.errors import BadInput
from gossamer.fetch.request import basic_credentials
from gossamer.net.credentials import ENCODE, hide_secrets
from gossamer.net.names import domain_name
from gossamer.option_names import label
from gossamer.policy.proxies import MAX_PROXIES

_DEFAULT_PORTS = {"http": 8080, "https": 443, "socks5": 1080, "socks5h": 1080}
"""Supported kinds of proxy, each with the port of a URL that names none. A changed port would send the requests of
existing settings to another port."""
_MAX_FIELD_BYTES = 255
"""Longest user or password: in SOCKS5 (RFC 1929), one byte gives its length."""
_MAX_FILE_BYTES = 1024 * 1024
"""Longest file of proxies. It bounds memory."""
_MAX_SHARED_CHARACTERS = 8000
"""Longest list that is stored with a crawl. It is sent with every call that hands out requests."""
_MAX_BUDGETED = 100
"""Proxies with budgets of their own. Each adds work to the frontier for every domain."""
_HEADER = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]+([\x20-\x7e]*)")
_OWNED = frozenset(("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade"))
"""Headers that decide where a request goes and where it ends."""

_ADVICE = "Write http://, https://, socks5:// or socks5h:// with host and port, for example http://proxy.example:3128"
"""Advice of the errors. It has no sample of a password, because commands show stars instead of one."""


class Proxy(msgspec.Struct, frozen=True):
    """A proxy's address, protocol and credentials."""

    scheme: str
    """`http`, `https` (HTTP over TLS to the proxy itself), `socks5` or `socks5h`."""
    host: str
    port: int
    user: bytes = b""
    password: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers that only the proxy gets: with each request for an http URL, and with CONNECT for an https URL."""

    def __repr__(self) -> str:
        return f"Proxy({self.scheme}://{self.host}:{self.port})"  # without user and password, which must not reach logs

    @property
    def resolves_names(self) -> bool:
        """True: the proxy gets the target's name instead of its address."""
        return self.scheme != "socks5"

    @property
    def authorization(self) -> str:
        """Value of a Proxy-Authorization header; empty when the proxy has no user."""
        return basic_credentials(self.user, self.password) if self.user else ""

    @property
    def header_lines(self) -> str:
        """Headers for the proxy, with its credentials, as they are sent."""
        pairs = [("Proxy-Authorization", self.authorization)] if self.authorization else []
        return "".join(f"{name}: {value}\r\n" for name, value in (*pairs, *self.headers))

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"


def parse_proxy(text: str) -> Proxy:
    """Parse a proxy's URL, with lines of headers below it if there are any. Raises BadInput, without secrets, unless it
    is `http://`, `https://`, `socks5://` or `socks5h://` with a host."""
    url, *lines = text.split("\n")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if not host.isascii():
            host = domain_name(host)
        user, password = unquote_to_bytes(parts.username or ""), unquote_to_bytes(parts.password or "")
    except (ValueError, BadInput) as exc:
        raise BadInput(f"cannot read the proxy's URL, its host or its port. {_ADVICE}") from exc
    if "@" in url and "@" not in parts.netloc:
        raise BadInput(f"cannot use {hide_secrets(url):.200} as a proxy. {ENCODE}")
    if parts.scheme not in _DEFAULT_PORTS or not host or port == 0:
        address = urlsplit(hide_secrets(url)).netloc.rpartition("@")[2]
        given = f"{parts.scheme}://{address:.200}" if parts.scheme else "a proxy without http:// before it"
        raise BadInput(f"cannot use {given}. {_ADVICE}")
    if len(user) > _MAX_FIELD_BYTES or len(password) > _MAX_FIELD_BYTES:
        raise BadInput(f"user and password of proxy {host} may have 255 bytes each")
    if lines and parts.scheme not in ("http", "https"):
        raise BadInput(f"proxy {host}: only an http:// or https:// proxy can have headers")
    headers = tuple(_parse_header(line, host) for line in lines)
    return Proxy(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], user, password, headers)


def _parse_header(line: str, host: str) -> tuple[str, str]:
    """Return name and value of a header for the proxy `host`. Raises BadInput."""
    match = _HEADER.fullmatch(line)
    if match is None:
        raise BadInput(f"proxy {host}: a header is NAME: VALUE on one line, in ASCII")
    if match[1].lower() in _OWNED:
        raise BadInput(f"proxy {host}: the header {match[1]} cannot be set")
    return match[1], match[2].rstrip()


def split_proxies(text: str) -> tuple[str, ...]:
    """Return the proxies of a list, each once and in their order, as texts for `parse_proxy`. Empty: none.

    Raises BadInput, without secrets, for headers without a proxy and for more than MAX_PROXIES."""
    proxies: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if not _HEADER.fullmatch(line):
            proxies += line.split()
        elif proxies:
            proxies[-1] += f"\n{line}"
        else:
            raise BadInput("a header stands before the first proxy; write it below the URL of its proxy")
    unique = tuple(dict.fromkeys(proxies))
    if len(unique) > MAX_PROXIES:
        raise BadInput(f"{len(unique):,} proxies are more than the limit of {MAX_PROXIES:,}")
    return unique


def parse_proxies(text: str) -> tuple[Proxy, ...]:
    """Parse a list of proxies. Raises BadInput, without secrets, which names the wrong one by its number if there are
    several."""
    proxies = split_proxies(text)
    if text.strip() and not proxies:
        raise BadInput("the list has no proxy")
    parsed = []
    for number, one in enumerate(proxies, 1):
        try:
            parsed.append(parse_proxy(one))
        except BadInput as error:
            raise BadInput(f"proxy {number}: {error}" if len(proxies) > 1 else str(error)) from None
    return tuple(parsed)


def first_proxy(text: str | None) -> str | None:
    """Return the first proxy of a list, for a single request. None: there is none."""
    return next(iter(split_proxies(text or "")), None)


def read_proxies(given: object) -> object:
    """Return the list of proxies that a setting names, as one text. What is neither a text nor a list of texts is
    returned unchanged, for the check of its type.

    A text without `://` names a file. Raises BadInput, with the file's name, if the file cannot be read."""
    if isinstance(given, str):
        return _read_one(given)
    if isinstance(given, Iterable) and not isinstance(given, (bytes, dict)):
        parts = list(given)
        if all(isinstance(part, str) for part in parts):
            return "\n".join(map(_read_one, parts))
    return given


def read_app_proxies(given: object) -> object:
    """Return a table of lists of proxies, each read as by `read_proxies`, which see."""
    return {name: read_proxies(text) for name, text in given.items()} if isinstance(given, Mapping) else given


def check_proxies(text: str, of_apps: Mapping[str, str], *, only_one: bool) -> None:
    """Raise BadInput, without secrets, for the first list with an invalid proxy. `of_apps`: lists by application.
    `only_one`: `fetch.egress_url` is set, which finds the address of a single proxy."""
    lists = {label("proxy"): text, **{f"fetch.app_proxies.{appid}": own for appid, own in of_apps.items()}}
    for name, text in lists.items():
        try:
            count = len(parse_proxies(text))
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from None
        if only_one and count > 1:
            raise BadInput(f"{name}: fetch.egress_url needs a single proxy, not {count}")


def _read_one(text: str) -> str:
    """Return the text, or that of the file with this name."""
    if not text.strip() or "://" in text:
        return text
    try:
        with Path(text).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        shown = hide_secrets(text, web=True)[:200]  # a URL without its scheme may have a password
        raise BadInput(f"{shown} is neither a file of proxies ({reason}) nor a URL. {_ADVICE}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise BadInput(f"{text}: a file of proxies may have {_MAX_FILE_BYTES // 2**20} MiB")
    try:
        decoded = content.decode("utf-8-sig")
        if not parse_proxies(decoded):
            raise BadInput("the file has no proxy")
    except ValueError:
        raise BadInput(f"{text}: it is not UTF-8") from None
    except BadInput as error:
        raise BadInput(f"{text}: {error}") from None
    return decoded


def shared_proxies(text: str) -> str | None:
    """Return the list that a crawl stores in the frontier for all machines that share it. None: there is none, or it is
    too long to be sent with every call, so each machine uses its own setting."""
    return text if 0 < len(text) <= _MAX_SHARED_CHARACTERS else None


def resolve_names(text: str) -> bool:
    """Return whether a list has proxies and all of them look up every name themselves, which this machine need not
    know."""
    proxies = split_proxies(text)
    return bool(proxies) and all(proxy.startswith("socks5h:") for proxy in proxies)


def proxy_budgets(text: str, of_apps: Mapping[str, str]) -> str:
    """Return the list of proxies of which each address has a budget of its own. Raises BadInput where there cannot be
    budgets: too many proxies, or others beside them. `text`, `of_apps`: as for `check_proxies`."""
    count = len(split_proxies(text))
    if not 1 < count <= _MAX_BUDGETED:
        raise BadInput(f"fetch.proxy_budget = address needs 2 to {_MAX_BUDGETED} proxies, not {count}")
    if of_apps:
        raise BadInput("fetch.proxy_budget = address cannot be used with fetch.app_proxies")
    return text


def pool_egress(text: str) -> str:
    """Return the egress (the name of the address that requests leave from) of a list of proxies, which is the same for
    all workers with the same addresses. Empty: no proxy."""
    addresses = sorted({proxy.address for proxy in parse_proxies(text)})
    if len(addresses) < 2:
        return "".join(addresses)
    return f"proxies-{blake2b(' '.join(addresses).encode(), digest_size=6).hexdigest()}"
