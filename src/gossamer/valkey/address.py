"""Address of a Valkey or Redis server or cluster: parsing, printing without the password, and the TLS context.

Fixed: the forms that are accepted now, because they stand in people's settings, and that no message or printed address
contains the password.
"""

import re
import ssl
from typing import Any, Self
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

import msgspec

from gossamer.errors import BadInput
from gossamer.net.credentials import ENCODE, MASK, has_password, hide_secrets, hide_secrets_of

_FORMS = "unix:///path/to.sock?db=0, redis://user:password@host:6379/0, rediss://…, redis+cluster://host:port,host:port"
"""Forms of an address, for errors: those that people need most. `Address.parse` must accept each of them."""
_PORT = 6379
"""The servers' default port: fixed."""
_DATABASE_OPTION = "db"
_TLS_OPTIONS = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"})
"""Options in an address that concern TLS. redis-py's names: fixed."""
_NO = frozenset({"no", "none", "false", "0"})
"""Values, in lower case, that switch a check of the certificate off. Anything else leaves it on."""


class Endpoint(msgspec.Struct, frozen=True):
    """Socket that one server listens on: a unix socket (`path`), or a host and a port."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.path or f"{host}:{self.port}"


class Address(msgspec.Struct, frozen=True):
    """A server, or some nodes of a cluster, with credentials and TLS options."""

    endpoints: tuple[Endpoint, ...]
    """One endpoint; for a cluster one or more, which are asked for the other nodes."""
    cluster: bool = False
    tls: bool = False
    user: str = ""
    password: str = ""
    database: int = 0
    """Number of the database; a cluster has only 0."""
    tls_options: tuple[tuple[str, str], ...] = ()
    """Options `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs` and `ssl_check_hostname`, named as in
    redis-py."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `unix://`, `redis://`, `rediss://`, `redis+cluster://` or `rediss+cluster://` (also as `valkey…`).

        Raises BadInput for anything else; its message does not contain the password.
        """
        try:
            netloc, parts = _split(text.strip())
            options = parse_options(parts.query)
            scheme = parts.scheme.replace("valkey", "redis", 1)  # valkeys becomes rediss
            if parts.fragment or (parts.query and not options):
                raise ValueError("# and ? end the host, and options are NAME=VALUE")
            if unknown := options.keys() - _TLS_OPTIONS - {_DATABASE_OPTION}:
                raise ValueError(f"unknown option {min(unknown)}")
            if not scheme.startswith("rediss") and (unused := options.keys() & _TLS_OPTIONS):
                raise ValueError(f"the option {min(unused)} needs TLS: rediss:// or rediss+cluster://")
            if scheme == "unix":
                return cls(
                    (Endpoint(path=_socket_path(parts)),),
                    user=unquote(parts.username or ""),
                    password=unquote(parts.password or ""),
                    database=_database(options.get(_DATABASE_OPTION, "")),
                )
            family, _, kind = scheme.partition("+")
            if family not in ("redis", "rediss") or kind not in ("", "cluster"):
                raise ValueError(f"unknown scheme {parts.scheme!r}" if "://" in text else "no scheme, such as redis://")
            is_cluster = kind == "cluster"
            userinfo, _, hosts = netloc.rpartition("@")
            user, _, password = userinfo.partition(":")
            endpoints = tuple(_endpoint(host) for host in hosts.split(","))
            database = _database(options.get(_DATABASE_OPTION, "") or parts.path.strip("/"))
            if is_cluster and database:
                raise ValueError("a cluster has no databases")
            if not is_cluster and len(endpoints) > 1:
                raise ValueError("several hosts are a cluster's: redis+cluster://")
        except ValueError as exc:
            reason = hide_secrets_of(text, str(exc))
            advice = f". {ENCODE}" if has_password(text) else ""
            raise BadInput(f"server address {hide_secrets(text)}: {reason}; expected one of {_FORMS}{advice}") from None
        return cls(
            endpoints,
            cluster=is_cluster,
            tls=family == "rediss",
            user=unquote(user),
            password=unquote(password),
            database=database,
            tls_options=tuple(sorted((name, value) for name, value in options.items() if name in _TLS_OPTIONS)),
        )

    def __str__(self) -> str:
        """Return the address for a person to read: with `***` for a password, and without TLS options. It cannot be
        parsed again."""
        secret = f"{self.user}:{MASK}@" if self.password else f"{self.user}@" if self.user else ""
        where = ",".join(map(str, self.endpoints))
        if self.endpoints[0].path:
            return f"unix://{secret}{where}" + (f"?db={self.database}" if self.database else "")
        scheme = ("rediss" if self.tls else "redis") + ("+cluster" if self.cluster else "")
        return f"{scheme}://{secret}{where}" + (f"/{self.database}" if self.database else "")

    __repr__ = __str__  # msgspec's own would print the password

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None without TLS. Raises BadInput for a certificate file that cannot be used."""
        if not self.tls:
            return None
        options: dict[str, Any] = dict(self.tls_options)
        try:
            context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
            if "ssl_certfile" in options:
                context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
        except OSError as exc:
            raise BadInput(f"certificate files of {self}: {exc}") from None
        if options.get("ssl_check_hostname", "").lower() in _NO:
            context.check_hostname = False
        if options.get("ssl_cert_reqs", "").lower() in _NO:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def parse_options(query: str) -> dict[str, str]:
    """Return the options of an address, which stand behind its `?`. Raises ValueError, with a sentence, for one without
    a value and for one that is named twice: the person meant something else than would happen."""
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if not value:
            raise ValueError(f"the option {name} has no value; write {name}=VALUE, or leave it out")
        if name in options:
            raise ValueError(f"the option {name} is there twice; write it once")
        options[name] = value
    return options


def with_password(address: str, password: str) -> str:
    """Return the address of a server with this password, which may have any characters. Raises BadInput if the address
    has a password already."""
    if Address.parse(address).password:
        raise BadInput(f"the address {hide_secrets(address)} has a password, and frontier_password names one, too")
    scheme, separator, rest = address.partition("://")
    userinfo, at, hosts = rest.partition("@")
    user = userinfo.removesuffix(":") if at else ""
    return f"{scheme}{separator}{user}:{quote(password, safe='')}@{hosts if at else rest}"


def _split(text: str) -> tuple[str, SplitResult]:
    """Return the credentials and hosts, and the parsed URL. A list of hosts is parsed apart from the URL, because
    urlsplit accepts no list that contains an IPv6 address."""
    scheme, separator, rest = text.partition("://")
    netloc = re.split("[/?#]", rest, maxsplit=1)[0]
    if "," not in netloc:
        return netloc, urlsplit(text)
    return netloc, urlsplit(f"{scheme}{separator}{rest[len(netloc) :]}")


def _socket_path(parts: SplitResult) -> str:
    path = unquote(parts.path, errors="surrogateescape")  # as names of files that are not UTF-8
    if not path.startswith("/") or path == "/" or parts.hostname:
        raise ValueError("a socket's path is absolute: unix:///run/valkey.sock")
    return path


def _endpoint(text: str) -> Endpoint:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("no host")
    if parts.port == 0:
        raise ValueError("port 0 is no port of a server")
    return Endpoint(host=parts.hostname, port=parts.port or _PORT)


def _database(text: str) -> int:
    if text and not text.isdecimal():
        raise ValueError(f"{text!r} is no database number")
    return int(text or 0)
