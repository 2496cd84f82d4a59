"""Addresses of stores, such as `postgresql://me@db.example/shop?table=items&key=url`.

Importing this module loads no driver. Fixed: the schemes and options, which stand in people's commands and settings,
and that no message contains a password.
"""

import os
import re
from typing import Final, Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from gossamer.errors import BadInput
from gossamer.net.credentials import hide_secrets, hide_secrets_of
from gossamer.valkey.address import parse_options

StoreKind = Literal["postgresql", "mysql", "opensearch", "redis"]

_KINDS: Final[dict[str, StoreKind]] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "opensearch": "opensearch",
    "elasticsearch": "opensearch",
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "valkeys": "redis",
}
"""Kinds of stores by scheme. Documented names: must not change."""
_PORTS: Final = {"postgresql": 5432, "mysql": 3306, "opensearch": 9200, "redis": 6379}
"""Default ports of the servers: fixed."""
_PASSWORD_VARIABLES: Final = {
    "postgresql": "PGPASSWORD",
    "mysql": "MYSQL_PWD",
    "opensearch": "OPENSEARCH_PASSWORD",
    "redis": "REDISCLI_AUTH",
}
"""Variables of the environment with the password, where the address has none. All but OpenSearch's are those
of the servers' own clients. Documented names: must not change."""
_OPTIONS: Final = frozenset({"table", "key", "tls", "host"})
_REDIS_OPTIONS: Final = _OPTIONS | {"expire"}
"""Options of addresses, those of Redis and of the others. Documented names: must not change."""
_TLS_SCHEMES: Final = frozenset({"rediss", "valkeys"})
_EXPIRE_SECONDS: Final = 10**9
"""Longest time until a hash expires, 31 years. Below the server's limit of 2^63 milliseconds."""
_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off"})
_INDEX: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
"""Names of an index that OpenSearch accepts. May match less."""
_TABLE: Final = re.compile(r"[^\W\d]\w{0,62}(\.[^\W\d]\w{0,62})?")
"""Names of tables, maybe behind that of a schema or database. May match more; 63 letters are PostgreSQL's limit."""
_HASH: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")
"""Names of a hash of Redis. May match more: Redis takes any bytes."""
_OTHERS: Final = frozenset({"mongodb", "mongodb+srv", "mongo"})
"""Schemes of MongoDB, which people expect to be a store. Its own: fixed."""
SCHEMES: Final = tuple(_KINDS)
"""Schemes that select a store."""
_ALIKE = 0.8
"""Similarity (0 to 1) from which an unknown scheme is taken for a mistyped one."""


class StoreAddress(msgspec.Struct, frozen=True):
    """A store, and the table of it (in OpenSearch: the index, in Redis: the hash) that an output fills."""

    text: str
    """The address as a person wrote it."""
    kind: StoreKind
    host: str
    port: int
    user: str
    password: str
    """Empty: none is known; the driver may find one, such as in `~/.pgpass`."""
    database: str
    """Empty: the store has no databases (OpenSearch). Redis: a number."""
    table: str
    """Table, index or hash. Empty: `pages` or `items`; Redis always has a name."""
    key: tuple[str, ...]
    """Columns by which a new row replaces an older one. Empty: those of the record."""
    tls: bool
    """True: the connection is encrypted, and the server's certificate is verified."""
    socket: str
    """Unix socket in the place of host and port (PostgreSQL: its folder). Empty: none."""
    expire_seconds: int = 0
    """Redis: seconds after its last write at which the hash is deleted. 0: never."""

    def __str__(self) -> str:
        """Return the address without its password."""
        return hide_secrets(self.text)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the address of a store. Raises BadInput, whose message does not contain the password."""
        try:
            return cls._parse(text, hide_secrets(text))
        except BadInput as error:  # a password that is not encoded is read as the port, the database or an option
            raise BadInput(hide_secrets_of(text, error.detail)) from None

    @classmethod
    def _parse(cls, text: str, shown: str) -> Self:
        try:
            split = urlsplit(text)
            port = split.port
            text.encode()
            (split.hostname or "").encode("idna")  # drivers raise other errors for a name with an empty or long part
            if split.fragment:
                raise ValueError("an address has no fragment")
            parse_qsl(split.query, keep_blank_values=True, strict_parsing=bool(split.query))
        except ValueError:
            raise BadInput(f"cannot read the address {shown}. {_example(text)}") from None
        try:
            options = parse_options(split.query)
        except ValueError as error:
            raise BadInput(f"{shown}: {error}") from None
        kind = _KINDS[split.scheme.lower()]
        allowed = _REDIS_OPTIONS if kind == "redis" else _OPTIONS
        if unknown := options.keys() - allowed:
            known = ", ".join(sorted(allowed))
            raise BadInput(f"{shown}: unknown option {min(unknown)}; known are {known}")
        tls = options.get("tls", "false").lower()
        if tls not in _YES | _NO:
            raise BadInput(f"{shown}: tls is true or false, not {tls!r}")
        socket = options.get("host", "")
        if socket and not socket.startswith("/"):
            raise BadInput(f"{shown}: host={socket} is not the path of a socket. Write a host behind //.")
        path = unquote(split.path.strip("/"))
        table = options.get("table", "")
        if kind == "opensearch":
            if "table" in options:
                raise BadInput(f"{shown}: the index is the path, and not the option table. {_example(text)}")
            table, path = path, ""
        if kind == "redis":
            path = path or "0"
            if not (path.isascii() and path.isdigit()):
                raise BadInput(f"{shown}: a database of Redis is a number, not {path!r}. {_example(text)}")
            if not table:
                raise BadInput(f"{shown} names no hash. {_example(text)}")
        if not (path or kind == "opensearch"):
            raise BadInput(f"{shown} names no database. {_example(text)}")
        if table and not _NAMES.get(kind, _TABLE).fullmatch(table):
            raise BadInput(f"{shown}: {table!r} cannot be the name of {_NOUNS.get(kind, 'a table')}")
        return cls(
            text,
            kind,
            split.hostname or "127.0.0.1",
            port or _PORTS[kind],
            unquote(split.username or ""),
            unquote(split.password or "") or os.environ.get(_PASSWORD_VARIABLES[kind], ""),
            path,
            table,
            tuple(name.strip() for name in options.get("key", "").split(",") if name.strip()),
            tls in _YES or split.scheme.lower() in _TLS_SCHEMES,
            socket,
            _expire_seconds(options.get("expire", ""), shown),
        )


_NAMES: Final = {"opensearch": _INDEX, "redis": _HASH}
_NOUNS: Final = {"opensearch": "an index", "redis": "a hash"}


def _expire_seconds(text: str, shown: str) -> int:
    """Return the option `expire`, 0 without one. Raises BadInput."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) <= _EXPIRE_SECONDS):
        raise BadInput(f"{shown}: expire is a number of seconds from 1 to {_EXPIRE_SECONDS:,}, not {text!r}")
    return int(text)


def is_store(path: str) -> bool:
    """Return whether an output is a store."""
    scheme, colon, _ = path.partition("://")
    return bool(colon) and scheme.lower() in _KINDS


def other_database(path: str) -> str:
    """Return why an output is refused that is the address of a database without a store, or that begins nearly like the
    address of a store. Empty: it is neither."""
    scheme, separator, rest = path.lower().partition("://")
    if not separator or scheme in _KINDS:
        return ""
    refused = f"the output {hide_secrets(path)} cannot be used"
    if scheme in _OTHERS:
        return (
            f"{refused}: MongoDB is not supported. Addresses of the databases that are supported begin with "
            f"{', '.join(SCHEMES)}"
        )
    if scheme in ("sqlite", "sqlite3"):
        name = rest.partition("?")[0].rpartition("/")[2] or "shop"
        ending = "" if name.endswith((".sqlite", ".sqlite3", ".db")) else ".sqlite"
        return f"{refused}. For SQLite, write the path of a file, such as {name}{ending}"
    from difflib import get_close_matches  # only here, because it takes long to load

    near = get_close_matches(scheme.partition("+")[0], SCHEMES, n=1, cutoff=_ALIKE)
    return f"{refused}. Write {near[0]}:// at its beginning" if near else ""


def _example(text: str) -> str:
    """Return an advice with an address of the right form."""
    kind = _KINDS[text.partition("://")[0].lower()]
    if kind == "redis":
        return f"Write redis://HOST:{_PORTS[kind]}/0?table=NAME."
    place = "INDEX" if kind == "opensearch" else "DATABASE?table=NAME"
    return f"Write {kind}://USER@HOST:{_PORTS[kind]}/{place}."
