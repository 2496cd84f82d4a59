"""Recognises a frontier whose server lost its data."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Self

from gossamer.errors import FrontierIncompatible
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.valkey.shards import Shards

FORMAT = "2"
"""Format of the keys. A frontier of another format is recognised before the first write."""


class FrontierIdentity:
    """What distinguishes this frontier from another one at the same address: its secret, and an id of each shard.

    A shard's id is written when the shard is first opened and never again. A shard without it, or with another one, was
    emptied since this process last looked (FLUSHALL, a server that restarted without its data). A restored backup has
    the ids, so it is the same frontier.
    """

    def __init__(self, commands: ScriptCommands, secret: int, ids: Sequence[bytes]) -> None:
        self._commands = commands
        self._ids = list(ids)
        self.secret = secret
        self.lost_shards = 0
        """Number of times this process found a shard without its data."""

    @classmethod
    async def open(
        cls, connection: Shards, *, prefix: str, shards: int | None, clock: Callable[[], float] | None
    ) -> tuple[ScriptCommands, Self]:
        """Open the frontier, or create it with so many shards (None: as it is, or 1). Raises FrontierIncompatible."""
        first = ScriptCommands(connection, prefix=prefix, count=1, clock=clock)
        form, stored_count, secret, first_id = await _open_shard(first, 0, shards or 1, secrets.randbits(64))
        if form.decode() != FORMAT:
            raise FrontierIncompatible(
                f"its format is {form.decode()}, this Gossamer writes {FORMAT}; use the version that made it, "
                f"or another prefix than {prefix!r}"
            )
        count = int(stored_count)
        if shards is not None and count != shards:
            raise FrontierIncompatible(f"it was made with {count} shards, not {shards}; leave the number out")
        commands = ScriptCommands(connection, prefix=prefix, count=count, clock=clock)
        others = await asyncio.gather(*(_open_shard(commands, s, count, int(secret)) for s in range(1, count)))
        return commands, cls(commands, int(secret), [first_id, *(shard_id for *_, shard_id in others)])

    async def check(self) -> None:
        """Look at every shard. Raises what `compare` raises, and FrontierUnavailable."""
        keys = self._commands.keys
        ids = await asyncio.gather(
            *(self._commands.plain(s, "HGET", keys[s].meta, "id") for s in range(self._commands.count))
        )
        for shard, shard_id in enumerate(ids):
            await self.compare(shard, shard_id)

    async def compare(self, shard: int, shard_id: bytes | None) -> None:
        """Take note of a shard's id as it is now. An emptied shard is counted and opened again, with the secret that
        this process knows unless another process was faster; and the frontier's next era begins, since nothing that was
        remembered of the shard holds. Raises FrontierIncompatible where the frontier was made anew in another shape."""
        if shard_id == self._ids[shard]:
            return
        count = self._commands.count
        form, stored_count, secret, current = await _open_shard(self._commands, shard, count, self.secret)
        if (form.decode(), int(stored_count)) != (FORMAT, count):
            raise FrontierIncompatible(
                f"it lost its data and was made anew with {int(stored_count)} shards, not {count}; start again"
            )
        if current != self._ids[shard]:  # else a concurrent check has noted it
            self._ids[shard] = current
            self.lost_shards += 1
            self._commands.shards.begin_era()
            if shard == 0:
                self.secret = int(secret)


async def _open_shard(
    commands: ScriptCommands, shard: int, count: int, secret: int
) -> tuple[bytes, bytes, bytes, bytes]:
    """Format, number of shards, secret and id of the shard, which are written where they are missing."""
    form, stored_count, stored_secret, shard_id = await commands.call_confirmed(
        shard, "meta", FORMAT, count, secret, secrets.token_hex(8)
    )
    return form, stored_count, stored_secret, shard_id
