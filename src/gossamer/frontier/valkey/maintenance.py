"""Periodic maintenance of a shard: reclaims leases of dead workers, finishes idle runs, resumes interrupted operations,
and deletes what is past its retention.

Any process may run it at any time, also several at once. A worker is declared dead when the shard has received no
heartbeat from it for `dead_after_ms`; a lease is the loan of a request to a worker. A run is one life of a crawl, from
its first request until nothing is left; 16 characters, its token, stand for a crawl.

Fixed: no worker is declared dead by a call that was delayed, because the heartbeats of living workers may have been
delayed with it, and their pages would be fetched twice.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from gossamer.errors import FrontierError
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.identity import FrontierIdentity
from gossamer.frontier.valkey.keys import KeyPattern
from gossamer.frontier.valkey.policies import apply_default_policy
from gossamer.frontier.valkey.repair import RepairResult, ShardRepair
from gossamer.frontier.valkey.runs import (
    carry_out_stop,
    end_if_forgotten,
    finish_idle,
    postpone_if_unavailable,
    purge_queues,
    read_home,
    rebalance_budget,
    sweep,
    try_finish,
)
from gossamer.model.crawl import CrawlState
from gossamer.model.request import MAX_DEATHS
from gossamer.policy.words import counted
from gossamer.telemetry import logs as names
from gossamer.valkey.client import read_info

log = logging.getLogger("gossamer.frontier")

# Maximum numbers of leases reclaimed and runs finished per call. Larger values make each call longer, and a shard
# executes no other call meanwhile.
_LEASES_A_STEP = 200
_RUNS_A_STEP = 100

_HUNG_SHARE = 1 / 3
"""A call that takes longer than this share of `dead_after_ms` shows that the server hung: no lease is reclaimed then.
May be lower, which postpones more reclaims. Must stay below 1: a worker's heartbeats may be delayed as long as the call
was."""
_ARRIVAL_SHARE = 1 / 2
"""Share of `dead_after_ms` after which a call that declares workers dead comes too late. May be lower, which postpones
more reclaims. Must stay below 1, for the same reason."""

# Values of arguments, fixed by reclaim.lua.
_NO_DEATHS = 0.0
"""Argument of the script `reclaim`: declare no worker dead, reclaim only the leases of those that are dead already."""
_ANY_TIME = ""
"""Argument of the script `reclaim`: declare workers dead whenever the call arrives."""
_NO_LEAVER = ""
"""Argument of the script `reclaim`: no worker leaves. (A worker that closes passes its name.)"""


class ShardMaintenance:
    """Implements `ValkeyFrontier.maintain`."""

    def __init__(
        self, commands: ScriptCommands, identity: FrontierIdentity, *, dead_after_ms: int, retention_ms: int
    ) -> None:
        self._commands = commands
        self._identity = identity
        self._dead_after_ms = dead_after_ms
        self._retention_ms = retention_ms
        self.reclaimed = 0
        """Number of requests reclaimed from dead workers."""
        self._shard_times: dict[int, tuple[float, float]] = {}
        """By shard, two clocks read at its last reply: the shard's time (ms) and this process's monotonic time (s)."""
        self._looked_in: dict[int, int] = {}
        """By shard, the data epoch in which it was last compared whether its server has started again."""
        self.on_repair: Callable[[str], None] | None = None
        """Gets a sentence about each repair. None: it is logged."""

    async def maintain(self, *, may_declare_dead: Callable[[], bool] | None, shard: int | None) -> int:
        shards = range(self._commands.count) if shard is None else (shard,)
        return sum(
            await asyncio.gather(*(self._maintain_shard(one, may_declare_dead=may_declare_dead) for one in shards))
        )

    async def _maintain_shard(self, shard: int, *, may_declare_dead: Callable[[], bool] | None) -> int:
        """Maintain one shard; returns the number of reclaimed leases."""
        call = self._commands.call
        sent_at = time.monotonic()
        *pending, shard_id, has_dead, has_idle, shard_time = await call(
            shard, "pending_work", self._retention_ms, self._dead_after_ms
        )
        self._shard_times[shard] = (float(shard_time), time.monotonic())
        # While a server hangs, it processes no heartbeats; those sent meanwhile may be queued behind this call.
        hung = time.monotonic() - sent_at > self._dead_after_ms / 1000 * _HUNG_SHARE
        await self._identity.compare(shard, shard_id)  # first: the shard may have lost its data
        reclaimed = await self._reclaim(shard, may_declare_dead=may_declare_dead) if has_dead and not hung else 0
        await self._resume(shard, pending)
        if self._commands.shards.keeps_torn:
            await self._repair_after_start(shard)
        # What was reclaimed or resumed may have left runs without work.
        if has_idle or reclaimed or any(pending):
            while await finish_idle(self._commands, shard, limit=_RUNS_A_STEP, retention_ms=self._retention_ms):
                pass
        await sweep(self._commands, shard, retention_ms=self._retention_ms)
        return reclaimed

    async def _repair_after_start(self, shard: int) -> None:
        """Repair the shard if its server has started since the last repair: it may have carried out half of a
        transaction then. Does nothing while the connections last that it had at the last look."""
        epoch = self._commands.shards.epoch.number
        if self._looked_in.get(shard) == epoch:
            return
        meta = self._commands.keys[shard].key(KeyPattern.META)
        info = read_info(await self._commands.plain(shard, "INFO", "server"))
        process = info.get("run_id", "")
        if await self._commands.plain(shard, "HGET", meta, "process") != process.encode():
            # The half that is in the file is not carried out before the next start, and a new file does not have it.
            with contextlib.suppress(FrontierError):  # forbidden, or under way for another shard of the server
                await self._commands.plain(shard, "BGREWRITEAOF")
            await self.repair(shard)
            await self._commands.plain(shard, "HSET", meta, "process", process)
        self._looked_in[shard] = epoch

    async def repair(self, shard: int, token: str = "") -> RepairResult:
        """Repair a shard, or (`token`) one crawl on it, and report what was wrong."""
        task = ShardRepair(self._commands, shard, retention_ms=self._retention_ms)
        result = await (task.run_for(token) if token else task.run())
        for idle in result.idle:
            with postpone_if_unavailable():
                await try_finish(self._commands, idle, retention_ms=self._retention_ms)
        if result:
            self._report(_repair_text(shard, result))
        return result

    def _report(self, sentence: str) -> None:
        if self.on_repair is not None:
            self.on_repair(sentence)
        else:
            log.warning("%s %s", names.FRONTIER_REPAIRED, sentence)

    async def reclaim_all(self) -> int:
        """Implements `ValkeyFrontier.reclaim_all`."""
        shards = range(self._commands.count)
        return sum([await self._reclaim(shard, may_declare_dead=None, dead_after_ms=0) for shard in shards])

    async def _reclaim(
        self, shard: int, *, may_declare_dead: Callable[[], bool] | None, dead_after_ms: int | None = None
    ) -> int:
        """Reclaim the leases of dead workers, and return their number. `dead_after_ms`: time of silence after which a
        worker is dead; None: that of the cluster."""
        total, more = 0, True
        allowed = may_declare_dead is None or may_declare_dead()
        latest = self._latest_arrival(shard) if allowed else _NO_DEATHS
        dead_after_ms = self._dead_after_ms if dead_after_ms is None else dead_after_ms
        while more:
            count, more, shard_time, *idle = await self._commands.call(
                shard, "reclaim",
                dead_after_ms, self._retention_ms, _LEASES_A_STEP, _NO_LEAVER, latest, MAX_DEATHS,
            )  # fmt: skip
            now = float(shard_time)
            self._shard_times[shard] = (now, time.monotonic())
            if isinstance(latest, float) and now > latest:
                # This call came too late: declare no more workers dead in this round.
                latest = _NO_DEATHS
            total += count
            self.reclaimed += count
            for token in idle:
                with postpone_if_unavailable():
                    await try_finish(self._commands, token.decode(), retention_ms=self._retention_ms)
        return total

    def _latest_arrival(self, shard: int) -> float | str:
        """Return the latest time (ms, on the shard's clock) at which a call sent now may declare silent workers dead.

        A call that arrives later was held up, perhaps by a server that hung, and the workers' heartbeats with it.
        Returns _ANY_TIME while the shard's clock is unknown, and in tests that set the time.
        """
        known = self._shard_times.get(shard)
        if known is None or self._commands.has_own_clock:
            return _ANY_TIME
        shard_time, then = known
        return shard_time + (time.monotonic() - then) * 1000 + self._dead_after_ms * _ARRIVAL_SHARE

    async def _resume(self, shard: int, pending: Sequence[Any]) -> None:
        """Resume the operations that a process began and did not complete (`pending`: reply of the script
        `pending_work`)."""
        commands, retention_ms = self._commands, self._retention_ms
        # The first five are tokens of crawls; the last two are 1 when there is something to do.
        stopping, idle, opened, starving, forgotten, purging, applying_policy = pending
        for token in stopping:
            with postpone_if_unavailable():
                await carry_out_stop(commands, token.decode(), retention_ms=retention_ms)
        if purging:
            await purge_queues(commands, shard)
        if commands.count == 1:
            starving = []  # the one shard has the whole page budget
        for token in dict.fromkeys([*idle, *starving, *forgotten]):
            with postpone_if_unavailable():
                home = await read_home(commands, token.decode())
                if home is not None and token in idle:
                    await try_finish(commands, token.decode(), retention_ms=retention_ms, home=home)
                if home is None or shard not in home.shards or token in forgotten:
                    await end_if_forgotten(commands, token.decode(), shard, home, retention_ms=retention_ms)
        for token in opened:  # runs that were opened long ago, and to which nothing was ever added
            with postpone_if_unavailable():
                home = await read_home(commands, token.decode())
                if home is not None and home.state is CrawlState.RUNNING:
                    await try_finish(commands, token.decode(), retention_ms=retention_ms, home=home, even_if_empty=True)
                await commands.plain(shard, "ZREM", commands.keys[shard].key(KeyPattern.OPENED), token)
        for token in starving:
            with postpone_if_unavailable():
                await rebalance_budget(commands, token.decode(), shard, retention_ms=retention_ms)
        if applying_policy:
            await apply_default_policy(commands, shard)


def _repair_text(shard: int, result: RepairResult) -> str:
    """Return what a repair has found, as sentences."""
    lost = sum(result.lost.values())
    found = [
        text
        for count, text in (
            (result.queues, counted(result.queues, "queue") + " that no worker would have got"),
            (result.leases, counted(result.leases, "worker") + " whose requests were not to be reclaimed"),
            (result.counts, counted(result.counts, "wrong count")),
        )
        if count
    ]
    sentences = [f"The server of shard {shard} had lost a part of its writes."]
    if found:
        sentences.append(f"Corrected: {', '.join(found)}.")
    if lost:
        sentences.append(f"Gone: {counted(lost, 'request')}; they count as dropped (lost), and their URLs as seen.")
    return " ".join(sentences)
