"""Periodic maintenance of a shard: reclaims leases of dead workers, finishes idle runs, resumes interrupted operations,
and deletes what is past its retention."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.identity import FrontierIdentity
from gossamer.frontier.valkey.keys import KeyPattern
from gossamer.frontier.valkey.policies import rescore
from gossamer.frontier.valkey.runs import (
    carry_out_stop,
    finish_idle,
    left_to_maintenance,
    purge_queues,
    read_home,
    rebalance_budget,
    try_finish,
)
from gossamer.model.crawl import CrawlState
from gossamer.model.request import MAX_DEATHS

_LEASES_A_STEP = 200
_RUNS_A_STEP = 100
_KEYS_A_STEP = 1000
"""Amounts that one call reclaims, finishes and deletes. More make the call longer."""


class ShardMaintenance:
    """Implements `Frontier.maintain`."""

    def __init__(
        self, commands: ScriptCommands, identity: FrontierIdentity, *, heartbeat_ms: int, retention_ms: int
    ) -> None:
        self._commands = commands
        self._identity = identity
        self._heartbeat_ms = heartbeat_ms
        self._retention_ms = retention_ms
        self.reclaimed = 0
        """Number of requests taken back from dead workers."""
        self._shard_times: dict[int, tuple[float, float]] = {}
        """By shard, at its last reply: the shard's time (ms) and this process's monotonic time (s)."""

    async def maintain(self, *, declare_dead: bool, shard: int | None) -> int:
        shards = range(self._commands.count) if shard is None else (shard,)
        return sum(await asyncio.gather(*(self._maintain_shard(one, declare_dead) for one in shards)))

    async def _maintain_shard(self, shard: int, declare_dead: bool) -> int:
        call = self._commands.call
        sent_at = time.monotonic()
        *pending, shard_id = await call(shard, "pending_work", self._retention_ms)
        # While a server hangs, it processes no heartbeats; those sent meanwhile may be queued behind this call.
        hung = time.monotonic() - sent_at > self._heartbeat_ms / 3000
        await self._identity.compare(shard, shard_id)
        reclaimed = 0 if hung else await self._reclaim(shard, declare_dead)
        await self._resume(shard, pending)
        while await finish_idle(self._commands, shard, limit=_RUNS_A_STEP, retention_ms=self._retention_ms):
            pass
        while await call(shard, "sweep", _KEYS_A_STEP, self._retention_ms):
            pass
        return reclaimed

    async def _reclaim(self, shard: int, declare_dead: bool) -> int:
        """Take back the leases of dead workers; returns their number."""
        total, more = 0, True
        latest = self._latest_arrival(shard) if declare_dead else 0.0
        while more:
            count, more, shard_time, *idle = await self._commands.call(
                shard, "reclaim", self._heartbeat_ms, self._retention_ms, _LEASES_A_STEP, "", latest, MAX_DEATHS
            )
            now = float(shard_time)
            self._shard_times[shard] = (now, time.monotonic())
            if isinstance(latest, float) and now > latest:
                latest = 0.0
            total += count
            self.reclaimed += count
            for token in idle:
                with left_to_maintenance():
                    await try_finish(self._commands, token.decode(), retention_ms=self._retention_ms)
        return total

    def _latest_arrival(self, shard: int) -> float | str:
        """Return the latest time (ms, on the shard's clock) at which a call that is sent now may declare silent workers
        dead; "": any.

        A call that was delayed in a server that stood still finds workers that could not send heartbeats.
        """
        known = self._shard_times.get(shard)
        if known is None or self._commands.has_own_clock:
            return ""
        shard_time, then = known
        return shard_time + (time.monotonic() - then) * 1000 + self._heartbeat_ms / 2

    async def _resume(self, shard: int, pending: Sequence[Any]) -> None:
        """Resume the operations that a process began and did not complete."""
        commands, retention_ms = self._commands, self._retention_ms
        halting, idle, opened, starving, purging, rescoring = pending
        for token in halting:
            with left_to_maintenance():
                await carry_out_stop(commands, token.decode(), retention_ms=retention_ms)
        if purging:
            await purge_queues(commands, shard)
        for token in idle:
            with left_to_maintenance():
                await try_finish(commands, token.decode(), retention_ms=retention_ms)
        for token in opened:
            with left_to_maintenance():
                home = await read_home(commands, token.decode())
                if home is not None and home.state is CrawlState.RUNNING:
                    await try_finish(commands, token.decode(), retention_ms=retention_ms, even_if_empty=True)
                await commands.plain(shard, "ZREM", commands.keys[shard].key(KeyPattern.OPENED), token)
        if commands.count > 1:
            for token in starving:
                with left_to_maintenance():
                    await rebalance_budget(commands, token.decode(), shard, retention_ms=retention_ms)
        if rescoring:
            await rescore(commands, shard)
