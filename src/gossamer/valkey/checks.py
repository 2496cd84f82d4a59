"""Whether a server is one that a frontier can stand on, asked before the first write."""

import logging
from dataclasses import dataclass

from hiredis import ReplyError

from gossamer.errors import ServerUnsuitable
from gossamer.valkey.border import first_word, translate
from gossamer.valkey.client import Client, read_info
from gossamer.valkey.connection import Reply, pack

_log = logging.getLogger(__name__)

OLDEST = (7, 0)
MEMORY_ONLY = "keeps nothing on disk: all crawls are lost when its process ends; set appendonly yes"
_DEFAULT_INTSET_ENTRIES = 512  # redis.conf and valkey.conf, `set-max-intset-entries`

_QUESTIONS: tuple[tuple[str, ...], ...] = (
    ("INFO", "server"),
    ("SCRIPT", "EXISTS", "0" * 40),
    ("CONFIG", "GET", "set-max-intset-entries"),
    ("CONFIG", "GET", "maxmemory-policy"),
    ("CONFIG", "GET", "appendonly"),
    ("CONFIG", "GET", "save"),
)


@dataclass(frozen=True, slots=True)
class Fitness:
    """What a server said about itself."""

    version: str
    max_intset_entries: int
    memory_only: bool
    """It writes neither an append-only file nor snapshots."""


async def check_server(client: Client, *, cluster: bool) -> Fitness:
    """See that this server is >= 7.0, runs scripts and is what the address calls it.

    Raises ServerUnsuitable with what to do, FrontierUnavailable. What an access list hides is taken for fit: the first
    call will tell.
    """
    connection = client.ready or await client.connection()
    info, exists, intset, eviction, append, save = await connection.ask_all([pack(command) for command in _QUESTIONS])
    if isinstance(info, ReplyError):
        if first_word(info) != "NOPERM":
            raise translate(info, doing=f"asking {client} for its version")
        facts = {}
    else:
        facts = read_info(info)
    version = facts.get("redis_version", "7.0.0")
    if tuple(int(number) for number in version.split(".")[:2]) < OLDEST:
        raise ServerUnsuitable(f"{client} is version {version}; Valkey 7.2 or Redis 7.0 is the oldest that will do")
    is_cluster = facts.get("redis_mode", facts.get("server_mode")) == "cluster"
    if is_cluster and not cluster:
        raise ServerUnsuitable(f"{client} is a node of a cluster: write redis+cluster://{client}")
    if isinstance(exists, ReplyError):
        raise ServerUnsuitable(f"{client} runs no scripts ({exists}); the frontier needs EVALSHA and SCRIPT LOAD")
    policy = _setting(eviction, "noeviction")
    if policy != "noeviction":
        _log.warning("%s has maxmemory-policy %s and may forget URLs when it is full; set noeviction", client, policy)
    without_file = _setting(append, "yes") == "no"
    memory_only = without_file and not _setting(save, "unknown")
    if memory_only:
        _log.warning("%s %s", client, MEMORY_ONLY)
    elif without_file:
        _log.warning(
            "%s keeps no append-only file: with its process everything since its last snapshot is lost; "
            "set appendonly yes",
            client,
        )
    return Fitness(version, int(_setting(intset, str(_DEFAULT_INTSET_ENTRIES))), memory_only)


def _setting(reply: Reply, default: str) -> str:
    """CONFIG GET's one value; the default where it is forbidden, as hosting services do."""
    return default if isinstance(reply, ReplyError) or not reply else str(reply[1].decode())
