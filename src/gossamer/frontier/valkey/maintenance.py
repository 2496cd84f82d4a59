"""What somebody has to do now and then, whoever it is: the dead's work back, ends noticed, what was begun ended."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.finishing import (
    carry_out,
    finish_idle,
    left_for_later,
    purge,
    read_home,
    rebalance,
    try_finish,
)
from gossamer.frontier.valkey.identity import FrontierIdentity
from gossamer.frontier.valkey.policies import rescore
from gossamer.model.crawl import CrawlState
from gossamer.model.request import DEATHS


class ShardMaintenance:
    """`maintain` of the Frontier; promises are there."""

    def __init__(
        self, commands: ScriptCommands, identity: FrontierIdentity, *, heartbeat_ms: int, retention_ms: int
    ) -> None:
        self._commands = commands
        self._identity = identity
        self._heartbeat_ms = heartbeat_ms
        self._retention_ms = retention_ms
        self.reclaimed = 0
        self._server_times: dict[int, tuple[float, float]] = {}

    async def maintain(self, *, declare_dead: bool = True, shard: int | None = None) -> int:
        shards = range(self._commands.count) if shard is None else (shard,)
        return sum(await asyncio.gather(*(self._keep_shard(one, declare_dead) for one in shards)))

    async def _keep_shard(self, shard: int, declare_dead: bool) -> int:
        call = self._commands.call
        asked = time.monotonic()
        *noted, shard_id = await call(shard, "pending_work", self._retention_ms)
        # A server that hung until now has not heard anybody; what they said meanwhile may be behind this at its door.
        hung = time.monotonic() - asked > self._heartbeat_ms / 3000
        await self._identity.compare(shard, shard_id)
        total, more = 0, not hung
        latest = self._in_time(shard) if declare_dead else 0.0
        while more:
            reply = await call(shard, "reclaim", self._heartbeat_ms, self._retention_ms, 200, "", latest, DEATHS)
            count, more = reply[0], reply[1]
            now = float(reply[2])
            self._server_times[shard] = (now, time.monotonic())
            if isinstance(latest, float) and now > latest:
                latest = 0.0
            total += count
            self.reclaimed += count
            for token in reply[3:]:
                with left_for_later():
                    await try_finish(self._commands, token.decode(), retention_ms=self._retention_ms)
        await self._chores(shard, noted)
        while await finish_idle(self._commands, shard, limit=100, retention_ms=self._retention_ms):
            pass
        while await call(shard, "sweep", 1000, self._retention_ms):
            pass
        return total

    def _in_time(self, shard: int) -> float | str:
        """Until when, on the shard's clock, who is silent may be taken for dead by a call that leaves now; "": whenever
        it arrives. One that lay about in a server that stood still meets workers that could not say anything."""
        known = self._server_times.get(shard)
        if known is None or self._commands.has_own_clock:
            return ""
        server_ms, then = known
        return server_ms + (time.monotonic() - then) * 1000 + self._heartbeat_ms / 2

    async def _chores(self, shard: int, noted: Sequence[Any]) -> None:
        """Go on with what somebody began and did not end."""
        commands, retention_ms = self._commands, self._retention_ms
        halting, idle, opened, starving, purging, rescoring = noted
        for token in halting:
            with left_for_later():
                await carry_out(commands, token.decode(), retention_ms=retention_ms)
        if purging:
            await purge(commands, shard)
        for token in idle:
            with left_for_later():
                await try_finish(commands, token.decode(), retention_ms=retention_ms)
        for token in opened:
            with left_for_later():
                home = await read_home(commands, token.decode())
                if home is not None and home.state is CrawlState.RUNNING:
                    await try_finish(commands, token.decode(), retention_ms=retention_ms, abandoned=True)
                await commands.plain(shard, "ZREM", commands.keys[shard].opened, token)
        if commands.count > 1:
            for token in starving:
                with left_for_later():
                    await rebalance(commands, token.decode(), shard, retention_ms=retention_ms)
        if rescoring:
            await rescore(commands, shard)
