"""Check that a server can hold a frontier, with warnings about its settings."""

import logging
import re
from collections.abc import Mapping
from functools import cache

import msgspec
from hiredis import ReplyError

from gossamer.errors import ServerUnsuitable
from gossamer.valkey.client import OLDEST_VERSION, ValkeyClient, read_info
from gossamer.valkey.connection import Reply, error_code, pack, translate_error

_log = logging.getLogger(__name__)

MEMORY_ONLY = "keeps nothing on disk: all crawls are lost when its process ends; set appendonly yes"
"""Text of a warning, without the server's name at its beginning."""
KEEPS_TORN = (
    "keeps half of a transaction when its append-only file is cut (power loss), and may carry it out at a later start: "
    "requests are then lost or fetched twice; use Valkey 9.1.2 or newer, or set aof-load-truncated no"
)
"""Text of a warning, without the server's name at its beginning."""
_WITHOUT_TORN = (9, 1, 2)
"""Version of Valkey that removes an incomplete transaction from its append-only file. Redis 7.0.15 and 8.2.3 and
Valkey 8.1.8 and 9.1.1 remove only the incomplete command at its end, and no later Redis is known to do better."""
_DEFAULT_INTSET_ENTRIES = 512
"""Value of `set-max-intset-entries` where a server hides it: the default of redis.conf and valkey.conf. Change it only
when theirs changes."""

_QUESTIONS: tuple[tuple[str, ...], ...] = (
    ("INFO", "server"),
    ("SCRIPT", "EXISTS", "0" * 40),
    ("CONFIG", "GET", "set-max-intset-entries"),
    ("CONFIG", "GET", "maxmemory-policy"),
    ("CONFIG", "GET", "appendonly"),
    ("CONFIG", "GET", "save"),
    ("CONFIG", "GET", "aof-load-truncated"),
)
"""Commands of `check_server`, which unpacks the replies in this order."""


class ServerReport(msgspec.Struct, frozen=True):
    """Properties of a server that matter to the frontier."""

    version: str
    max_intset_entries: int
    warnings: tuple[str, ...]
    """Warnings about the server, without its name at the beginning."""
    keeps_torn: bool
    """True when the server may carry out half of a transaction after its append-only file was cut."""


async def check_server(client: ValkeyClient, *, cluster: bool) -> ServerReport:
    """Check that this server is >= 7.0, runs scripts, and is not a node of a cluster unless `cluster`.

    Raises ServerUnsuitable, which says what to do, and FrontierUnavailable. Settings for eviction and persistence only
    cause warnings. A property that an access list or a hosting service hides is assumed to be good. If it is not, a
    wrong version or missing scripts make the first call fail; wrong eviction or persistence goes unnoticed.
    """
    connection = client.ready_connection or await client.connection()
    replies = await connection.send_all([pack(command) for command in _QUESTIONS])
    info, exists, intset, eviction, append, save, truncated = replies
    if isinstance(info, ReplyError):
        if error_code(info) != "NOPERM":
            raise translate_error(info, doing=f"asking {client} for its version")
        info_fields = {}
    else:
        info_fields = read_info(info)
    version = info_fields.get("redis_version", "7.0.0")
    if tuple(int(number) for number in version.split(".")[:2]) < OLDEST_VERSION:
        raise ServerUnsuitable(
            f"{client} is version {version}; Valkey 7.2 or Redis 7.0 is the oldest that Gossamer supports"
        )
    is_cluster = info_fields.get("redis_mode", info_fields.get("server_mode")) == "cluster"
    if is_cluster and not cluster:
        raise ServerUnsuitable(f"{client} is a node of a cluster: write redis+cluster://{client}")
    if isinstance(exists, ReplyError):
        raise ServerUnsuitable(f"{client} cannot run scripts ({exists}); the frontier needs EVALSHA and SCRIPT LOAD")
    policy = _setting(eviction, "noeviction")
    if policy != "noeviction":
        _warn_once(f"{client} has maxmemory-policy {policy} and may forget URLs when it is full; set noeviction")
    without_file = _setting(append, "yes") == "no"
    keeps_torn = not without_file and _setting(truncated, "no") == "yes" and _keeps_torn_transactions(info_fields)
    warnings = []
    if without_file and not _setting(save, "unknown"):
        warnings.append(MEMORY_ONLY)
    elif without_file:
        _warn_once(
            f"{client} keeps no append-only file: with its process everything since its last snapshot is lost; "
            "set appendonly yes"
        )
    if keeps_torn:
        warnings.append(KEEPS_TORN)
    for warning in warnings:
        _warn_once(f"{client} {warning}")
    return ServerReport(version, int(_setting(intset, str(_DEFAULT_INTSET_ENTRIES))), tuple(warnings), keeps_torn)


def be_silent() -> None:
    """Log no warnings about servers in this process."""
    _log.setLevel(logging.ERROR)


@cache
def _warn_once(warning: str) -> None:
    """Log a warning about a server once in this process, which may connect to it for several purposes."""
    _log.warning("%s", warning)


def _keeps_torn_transactions(info: Mapping[str, str]) -> bool:
    """Return whether a server of this version keeps half of a transaction. `info`: the section `server` of INFO."""
    if not info:  # an access list hides it
        return False
    version = info.get("valkey_version")  # Redis has none
    return version is None or tuple(map(int, re.findall(r"\d+", version)[:3])) < _WITHOUT_TORN


def _setting(reply: Reply, default: str) -> str:
    """Return the value of a reply to CONFIG GET; the default where a hosting service forbids that command."""
    return default if isinstance(reply, ReplyError) or not reply else str(reply[1].decode())
