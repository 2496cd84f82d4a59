"""Facts that every process of a frontier shares: its secret, its shards' ids, and which spiders run where. The frontier
opens with them, and computes the fingerprints of requests by them.

The frontier is the store of a cluster's requests; its keys are divided into shards. The fingerprints of requests,
numbers by which duplicates are found, depend on the secret, on the spider, and on the lanes that run it (kinds of
worker: FAST, Gossamer's own, or SCRAPY). A shard whose id has changed has lost its data.

Fixed: how fingerprints are computed (`fingerprint` below), because all processes must compute the same ones and running
frontiers have stored them; that FORMAT is checked before the first write; and the arguments and replies of the scripts
`meta.lua` and `announce_spiders.lua`, unless these are changed, too.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Self

from gossamer.errors import FrontierIncompatible
from gossamer.frontier.base import Lane
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.keys import KeyPattern
from gossamer.model.crawl import QueryOrder
from gossamer.policy import urls
from gossamer.policy.scrapy_urls import scrapy_fingerprint
from gossamer.valkey.shards import Shards

FORMAT = "3"
"""Number of the format of the stored keys and values. Increase it with every change that an older version could not
read; a frontier of another format is refused before the first write."""

_ANNOUNCED_MS = 30 * 86400 * 1000
"""Time for which an announced spider is known. Must exceed the time between two announcements of a running process:
else its spiders count as unknown meanwhile. The docstrings of `SpiderRegistry.announce` and `KeyPattern.SPIDERS` name
the 30 days, too."""
_REFRESH_SECONDS = 10.0
"""Longest time for which announcements are not read again. Shorter costs more calls, longer delays the discovery of
another lane's spiders. `SpiderRegistry.refresh` names the 10 s, too."""


class _ShardMeta(NamedTuple):
    """Facts that are stored on a shard (KeyPattern.META)."""

    format: str
    shard_count: int
    secret: int
    id: bytes


class FrontierIdentity:
    """Secret and shard ids, which distinguish this frontier from another one at the same address.

    A shard's id is written when the shard is first opened and never again. A shard without it, or with another one, was
    emptied since this process last looked (FLUSHALL, a server that restarted without its data). A restored backup has
    the ids, so it is the same frontier.
    """

    def __init__(self, commands: ScriptCommands, secret: int, ids: Sequence[bytes]) -> None:
        self._commands = commands
        self._ids = list(ids)
        """By shard."""
        self.secret = secret
        """Key of the fingerprints, written on every shard; shard 0's counts."""
        self.lost_shards = 0
        """Number of times this process found a shard without its data."""

    @classmethod
    async def open(
        cls, connection: Shards, *, prefix: str, shards: int | None, clock: Callable[[], float] | None
    ) -> tuple[ScriptCommands, Self]:
        """Open the frontier, or create it with so many shards (None: as many as it has; a new one gets 1). Raises
        FrontierIncompatible. Shard 0 is opened first: it decides the number of shards and the secret."""
        first = ScriptCommands(connection, prefix=prefix, count=1, clock=clock)
        meta = await _open_shard(first, 0, shards or 1, secrets.randbits(64))
        if meta.format != FORMAT:
            raise FrontierIncompatible(
                f"its format is {meta.format}, this Gossamer writes {FORMAT}; use the version that made it, "
                f"or another prefix than {prefix!r}"
            )
        count = meta.shard_count
        if shards is not None and count != shards:
            raise FrontierIncompatible(f"it was made with {count} shards, not {shards}; leave the number out")
        commands = ScriptCommands(connection, prefix=prefix, count=count, clock=clock)
        others = await asyncio.gather(*(_open_shard(commands, shard, count, meta.secret) for shard in range(1, count)))
        return commands, cls(commands, meta.secret, [one.id for one in (meta, *others)])

    async def adopt_secret(self, secret: int) -> None:
        """Give an empty frontier another secret, so that it can take over fingerprints. Other processes find new ids,
        as after a loss, and read the secret again."""
        for shard, keys in enumerate(self._commands.keys):
            shard_id = secrets.token_hex(8)
            await self._commands.plain(shard, "HSET", keys.key(KeyPattern.META), "secret", secret, "id", shard_id)
            self._ids[shard] = shard_id.encode()
        self.secret = secret

    async def check(self) -> None:
        """Check the id of every shard. Raises what `compare` raises, and FrontierUnavailable."""
        ids = await asyncio.gather(
            *(
                self._commands.plain(shard, "HGET", keys.key(KeyPattern.META), "id")
                for shard, keys in enumerate(self._commands.keys)
            )
        )
        for shard, shard_id in enumerate(ids):
            await self.compare(shard, shard_id)

    async def compare(self, shard: int, shard_id: bytes | None) -> None:
        """Compare a shard's id with the known one.

        A shard with another id or none was emptied. It is counted and opened again, with the secret that this process
        knows unless another process was faster. The next data epoch begins: caches that were filled in an
        earlier one are no longer used. Raises FrontierIncompatible where another process created the frontier anew with
        another number of shards or format.
        """
        if shard_id == self._ids[shard]:
            return
        count = self._commands.count
        meta = await _open_shard(self._commands, shard, count, self.secret)
        if (meta.format, meta.shard_count) != (FORMAT, count):
            raise FrontierIncompatible(
                f"it lost its data and was made anew with {meta.shard_count} shards, not {count}; start again"
            )
        if meta.id != self._ids[shard]:  # else a concurrent check has counted it
            self._ids[shard] = meta.id
            self.lost_shards += 1
            self._commands.shards.epoch.begin()
            if shard == 0:
                self.secret = meta.secret


async def _open_shard(commands: ScriptCommands, shard: int, count: int, secret: int) -> _ShardMeta:
    """Return the facts that are stored on a shard. Writes those that are missing: this format, `count`, `secret`, and a
    new id. Nothing is written on a shard of another format."""
    stored_format, stored_count, stored_secret, shard_id = await commands.call(
        shard, "meta", FORMAT, count, secret, secrets.token_hex(8), confirmed=True
    )
    return _ShardMeta(stored_format.decode(), int(stored_count), int(stored_secret), shard_id)


class ValkeySpiderRegistry:
    """The spiders that processes have announced, each with the lanes (kinds of worker) that run it; on shard 0.

    The lane decides which requests are duplicates. Requests to a spider that only Scrapy runs are remembered by
    Scrapy's default fingerprint, all others by method, canonical URL and body. A process that does not know yet that a
    spider is Scrapy's uses the wrong fingerprint; then a page may be fetched a second time, but none is lost.
    """

    def __init__(self, commands: ScriptCommands, identity: FrontierIdentity) -> None:
        self._commands = commands
        self._identity = identity
        self._announced: dict[str, frozenset[Lane]] = {}
        """By spider, as last read."""
        self._read_at = float("-inf")

    async def announce(self, lane: Lane, names: Collection[str]) -> None:
        """Announce that this lane runs these spiders. The announcement is kept for 30 days: repeat it before."""
        await self._call(lane, *names)

    async def refresh(self, names: Collection[str]) -> None:
        """Read the announcements again if one of these spiders is not known, or after 10 s."""
        stale = time.monotonic() - self._read_at >= _REFRESH_SECONDS
        if stale or not all(name in self._announced for name in names):
            await self._call()

    def lanes(self, name: str) -> frozenset[Lane]:
        """Return the lanes that had announced the spider when the announcements were last read. Empty: unknown."""
        return self._announced.get(name, frozenset())

    def names(self) -> frozenset[str]:
        """Return all spiders that were announced when the announcements were last read."""
        return frozenset(self._announced)

    def fingerprint(
        self,
        spider: str,
        url: str,
        *,
        method: str = "GET",
        body: bytes = b"",
        query_order: QueryOrder = QueryOrder.SIGNIFICANT,
    ) -> int:
        """Return the fingerprint of a request to a spider, a signed 64-bit number.

        `url` is canonical. `query_order` comes from the terms of the request; only the fast lane uses it."""
        seed = urls.spider_seed(self._identity.secret, spider)
        if self.lanes(spider) == {Lane.SCRAPY}:
            return urls.fingerprint(scrapy_fingerprint(url, method=method, body=body), seed=seed)
        if query_order is QueryOrder.IGNORED:
            url = urls.with_sorted_query(url)
        return urls.fingerprint(url, seed=seed, method=method, body=body)

    async def _call(self, *announcement: str) -> None:
        """Announce spiders (a lane, then their names; nothing: none) and read all announcements."""
        # The script replies with the spiders of the fast lane, then those of the Scrapy lane.
        replies = await self._commands.call(0, "announce_spiders", _ANNOUNCED_MS, *announcement)
        announced: dict[str, frozenset[Lane]] = {}
        for lane, names in zip((Lane.FAST, Lane.SCRAPY), replies, strict=True):
            for name in names:
                spider = name.decode()
                announced[spider] = announced.get(spider, frozenset()) | {lane}
        self._announced = announced
        self._read_at = time.monotonic()
