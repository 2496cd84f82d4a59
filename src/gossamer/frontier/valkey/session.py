"""A worker's session on one shard: its name there, the leases that it holds there, and whether the shard answers.

The frontier's keys are divided into shards. A lease is the loan of a request to a worker until the worker settles it
(reports the outcome). A hit is a request that counts against the rate limit of its domain; the shard charges it with
the lease. A shard that received no heartbeat from a session for too long declares the session's name dead.

Fixed: the ids of leases (lease.lua computes the same); that a lease call without a reply is repeated with the same
number, so that its leases are not lost; and that a name which was declared dead is never used again.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from gossamer.errors import FrontierError, FrontierUnavailable, LeaseLost
from gossamer.frontier.valkey.codec import LeaseCall, LeaseTurn, pack_tail
from gossamer.frontier.valkey.commands import Argument, ScriptCommands
from gossamer.frontier.valkey.keys import KeyPattern
from gossamer.model.request import Outcome, Settlement
from gossamer.policy.lateness import round_trip_estimate
from gossamer.policy.outbox import outbox_wait
from gossamer.policy.retry import outage_pause
from gossamer.telemetry import logs
from gossamer.telemetry.stalls import StallClock

log = logging.getLogger("gossamer.worker")

SETTLEMENTS_A_CALL = 256
"""Settlements that one call reports. At most about 4,000, a limit of the script: more make the call longer, and the
shard executes no other call meanwhile."""
_IDS_A_CALL = 2**20
"""Lease ids that belong to one lease call: an id is the call's number times this, plus the lease's place in the reply.
Must be the `CALL` of `lease.lua`."""
_MAY_WAIT, _NAMES_LAST = 1, 2
"""Arguments of `lease.lua`: wake the worker when requests arrive, if it got fewer than it asked for. The second also
makes the reply name the leases of whose domain nothing is left."""


_pack = msgspec.msgpack.Encoder().encode

T = TypeVar("T")


def worker_of(session: str) -> str:
    """Return the worker that a session name belongs to: the part before the number that ShardSession adds."""
    return session.rpartition("-")[0]


class ShardSession:
    """One worker's state on one shard. Sessions do not know each other.

    The shard knows the worker under `name`, and every lease carries the name that leased it. When the shard declares a
    name dead, the leases of this name are lost and the session continues under a new one. A late reply to an old name
    therefore does not concern the new one.
    """

    def __init__(
        self,
        commands: ScriptCommands,
        shard: int,
        *,
        worker: str,
        names: Sequence[str],
        on_lost: Callable[[], None],
        on_settled: "SettledCallback",
    ) -> None:
        """`names`: under which the requests that it leases are stored. `on_lost` is called when a name was declared
        dead, `on_settled` after each call that settles."""
        self.shard = shard
        self._commands = commands
        self._worker = worker
        self._on_lost = on_lost
        self._on_settled = on_settled
        self._stored_names = list(names)
        self._left_out: frozenset[str] = frozenset()
        """Names among these whose requests are not leased for now."""
        self._names_used = 1
        self.name = f"{worker}-{self._names_used}"
        """The worker's current name on this shard."""
        self._call_number = 0
        """Number of the last lease call. It grows through all names: no lease id is used twice."""
        self._first_call = 1
        """Number of the first lease call under `name`."""
        self._unanswered_since: float | None = None
        """When the lease call without a reply was first sent. None: all were answered."""
        self.round_trip_seconds = 0.0
        """Estimate of the round-trip time."""
        self._stalls = StallClock()
        self.held: set[int] = set()
        """Ids of unsettled leases of `name`. `renew` replaces the set, because calls under the old name may still be
        changing it."""
        self.turns: Sequence[LeaseTurn] = (LeaseTurn("", ""),)
        """Turns that lease calls take. At least one."""
        self._dues: dict[LeaseTurn, float] = {}
        """When the shard has requests again for a turn."""
        self._unanswered_turn = self.turns[0]
        """Turn of the lease call without a reply."""
        self.has_later_work = False
        """At the last lease call, requests waited that were not due yet."""
        self.has_capped_work = False
        """At the last lease call, requests waited, and all of them until others of their domains in flight end."""
        self.announcements = 0
        """Number of times the shard announced requests. A change during a lease call means that more may be due."""
        self.lease_task: asyncio.Task[int] | None = None
        """The lease call under way."""
        self.late = False
        """The lease call under way takes so long that `lease` does not wait for it."""
        self.error: FrontierUnavailable | None = None
        """Failure of the last lease call. None: it was answered."""
        self._failures = 0
        """Failed lease calls in a row."""
        self.retry_at = 0.0
        """The shard is not asked before this monotonic time."""
        self.starving: dict[str, float] = {}
        """Crawls whose requests wait for a share of the page budget, and when to ask for one again."""

    @property
    def due(self) -> float:
        """Time at which the shard has requests again, as far as it announced, on the leaseholder's clock."""
        return min(self._dues.get(turn, 0.0) for turn in self.turns)

    def lease_names(self, names: Sequence[str]) -> None:
        """Also lease requests that are stored under these names."""
        self._stored_names += names
        self.make_due()

    def leave_out(self, names: Collection[str]) -> None:
        """Lease no requests that are stored under these names for now, but all others."""
        self._left_out = frozenset(names)
        self.make_due()

    def make_due(self) -> None:
        """Ask the shard again for each turn."""
        self._dues.clear()

    def set_due(self, turn: LeaseTurn, due: float) -> None:
        """Set when the shard is to be asked again for a turn."""
        self._dues.pop(turn, None)
        self._dues[turn] = due  # the last one: of those that are due at the same time, the first is asked first
        if len(self._dues) > len(self.turns):
            self._dues = {one: self._dues[one] for one in self.turns if one in self._dues}

    def has_turns(self, now: float) -> bool:
        """Return whether the shard is to be asked at once for another turn, at this time of the leaseholder's clock."""
        return len(self.turns) > 1 and self.lease_task is None and self.due <= now

    def _next_turn(self) -> LeaseTurn:
        """Return the turn of the next lease call: one that was not asked for since `make_due`, else the one that is
        due first."""
        order = {turn: position for position, turn in enumerate(self._dues)}
        return min(self.turns, key=lambda turn: (self._dues.get(turn, 0.0), order.get(turn, -1)))

    @property
    def joined(self) -> bool:
        """True if the shard may know the current name."""
        return self._call_number >= self._first_call

    @property
    def responsive(self) -> bool:
        """True if the last lease call was answered and the current one is not late."""
        return self.error is None and not self.late

    def renew(self, name: str) -> None:
        """Continue under a new name, because the shard has declared this one dead. Does nothing for an older name."""
        if name != self.name:
            return
        log.warning("%s %s", logs.WORKER_STALE, name)
        self._names_used += 1
        self.name = f"{self._worker}-{self._names_used}"
        self._first_call = self._call_number + 1
        self._unanswered_since = None
        self.held = set()
        self.make_due()
        self.starving = {}
        self._on_lost()

    def on_failure(self, error: FrontierUnavailable) -> None:
        """Record that a lease call failed. The first failure is retried at once, the next ones after growing pauses."""
        self.error = error
        self._failures += 1
        pause = outage_pause(self._failures - 1, random=random.random()) if self._failures > 1 else 0.0
        self.retry_at = time.monotonic() + pause

    def on_reply(self) -> None:
        """Record that a lease call was answered."""
        self.error, self._failures, self.retry_at = None, 0, 0.0

    async def charged(self, call: Coroutine[Any, Any, T], sent_at: float) -> tuple[T, float]:
        """Return the reply of a call that charges hits, and the earliest time at which the call was carried out.
        `sent_at`: when it was sent first.

        If the reply took no longer than usual, that is the time of the reply; else its way back may have been delayed,
        and the call was carried out as early as after the usual time. Stalls of this process have delayed it, too."""
        with self._stalls:
            stalled_before = self._stalls.seconds(time.monotonic())
            reply = await call
            now = time.monotonic()
            took = max(0.0, now - sent_at - (self._stalls.seconds(now) - stalled_before))
        self.round_trip_seconds = estimate = round_trip_estimate(self.round_trip_seconds, took)
        return reply, sent_at + estimate

    # --- calls --------------------------------------------------------------------------------------------------------

    async def lease(self, limit: int, retention_ms: int) -> tuple[Any, LeaseCall] | None:
        """Lease requests; returns the reply of lease.lua, and what the leases have in common. None: the name was
        declared dead, ask again.

        A call after a failed one is its repetition: the shard returns the same leases, however long ago it was.
        """
        if self._unanswered_since is None:
            self._call_number += 1
            self._unanswered_since = time.monotonic()
            self._unanswered_turn = self._next_turn()
        name, sent_at, turn = self.name, self._unanswered_since, self._unanswered_turn
        may_wait = self._commands.count > 1 and outbox_wait(self._commands.load(self.shard)) > 0
        left_out = self._left_out
        names = [name for name in self._stored_names if name not in left_out] if left_out else self._stored_names
        call = self._commands.call(
            self.shard, "lease", name, self._call_number, limit, turn.pool, turn.egress, retention_ms,
            _NAMES_LAST if may_wait else _MAY_WAIT,
            int(self._call_number == self._first_call), *names,
        )  # fmt: skip
        reply, charged = await self.charged(call, sent_at)
        if reply[0] == b"stale":
            self.renew(name)
        if name != self.name:
            return None
        self._unanswered_since = None
        self.has_later_work, self.has_capped_work = reply[1] != b"", bool(reply[7])
        self._stored_names.append(self._stored_names.pop(0))  # the first spider is served first: another one next time
        first_id = self._call_number * _IDS_A_CALL
        return reply, LeaseCall(self.shard, name, turn, charged, float(reply[-1].split()[-1]), first_id, reply[-2])

    async def settle(
        self, name: str, calls: Iterable["SettleCall"], *, retention_ms: int, data_epoch: int | None = None
    ) -> None:
        """Report outcomes of leases of `name`, one call after the other. Does nothing where the name was declared dead.

        A replica confirms each call where there is one: a failover that forgot it would make the pages be fetched
        again."""
        held = self.held
        for call in calls:
            reply = await self._commands.call(
                self.shard, "settle", name, retention_ms, _pack(call.ids), _pack(call.drops), *call.others,
                confirmed=True, since=data_epoch,
            )  # fmt: skip
            if reply[0] == b"stale":
                self.renew(name)
                return
            if name == self.name:
                held.difference_update(call.ids)
            await self._on_settled(self, *reply)

    async def request_redirect(self, name: str, lease: int, fingerprint: int, tail: bytes) -> tuple[int, float]:
        """Request a hit for a redirect. Returns the answer of `request_redirect.lua`, and when the hit was charged.
        Raises LeaseLost."""
        call = self._commands.call(self.shard, "request_redirect", name, lease, fingerprint, tail)
        answer, charged = await self.charged(call, time.monotonic())
        if answer < 0:
            if name == self.name:
                self.held.discard(lease)
            raise LeaseLost(f"{lease} of {name}")
        return answer, charged

    async def heartbeat(self, dead_after_ms: int) -> tuple[int, int] | None:
        """Send a heartbeat; returns the number of leases on the shard, and the ms until a silent worker counts as dead.
        None: the shard does not know the name yet, or declared it dead.

        The call is sent also where the worker has not joined the shard: a reply proves that the shard can be
        reached."""
        name, joined = self.name, self.joined
        count, left_ms = await self._commands.call(self.shard, "heartbeat", name, dead_after_ms)
        if count >= 0:
            return count, left_ms
        # A shard that has not answered the first lease call may not know the worker yet.
        if joined and self._unanswered_since is None:
            self.renew(name)
        return None

    async def leases_not_held(self) -> tuple[str, list[int]]:
        """Return the name, and its leases on the shard that the worker does not hold: they are settled, and a failover
        or a restore forgot that."""
        name = self.name
        # Leases of a call without a reply are not held yet: they are left out.
        last_answered_call = self._call_number if self._unanswered_since is None else self._call_number - 1
        key = self._commands.keys[self.shard].key(KeyPattern.LEASES, worker=name)
        listed = [int(field) for field in await self._commands.plain(self.shard, "HKEYS", key) if field != b"last"]
        if name != self.name:
            return name, []
        return name, [
            lease for lease in listed if lease // _IDS_A_CALL <= last_answered_call and lease not in self.held
        ]


SettledCallback = Callable[[ShardSession, Sequence[bytes], Sequence[bytes]], Awaitable[None]]
"""Called with the tokens of crawls that may have nothing left to do on the session's shard, and of those that have used
up their page budget there."""


class SettleCall(NamedTuple):
    """Arguments of `settle.lua`."""

    ids: Sequence[int]
    """Ids of the leases; those of requests that were fetched come first."""
    drops: Mapping[int, Sequence[str | int]]
    """By position in `ids`, from 1: reason and number of dropped links, ..."""
    others: Sequence[Argument]
    """Four arguments for each request that was not fetched: outcome, reason, delay in ms or flags, new tail."""

    @classmethod
    def split(cls, settlements: Sequence[Settlement]) -> Iterator[Self]:
        """Yield the calls that settle these."""
        for first in range(0, len(settlements), SETTLEMENTS_A_CALL):
            some = settlements[first : first + SETTLEMENTS_A_CALL]
            not_fetched = [one for one in some if one.outcome != Outcome.FETCHED]
            ordered = [one for one in some if one.outcome == Outcome.FETCHED] + not_fetched if not_fetched else some
            drops = {
                position: [part for pair in settlement.drops.items() for part in pair]
                for position, settlement in enumerate(ordered, 1)
                if settlement.drops
            }
            others = [argument for settlement in not_fetched for argument in _arguments_of(settlement)]
            yield cls([settlement.lease.id for settlement in ordered], drops, others)

    @classmethod
    def forwarding(cls, ids: Sequence[int]) -> Iterator[Self]:
        """Yield the calls that put leases back in front of their queues. As forwarded, not as returned, because their
        hits were used."""
        for first in range(0, len(ids), SETTLEMENTS_A_CALL):
            some = ids[first : first + SETTLEMENTS_A_CALL]
            yield cls(some, {}, (Outcome.FORWARDED.value, "", 0, b"") * len(some))


def _arguments_of(settlement: Settlement) -> tuple[Argument, ...]:
    """Return the arguments of `settle.lua` for a request that was not fetched."""
    lease, payload = settlement.lease, settlement.payload
    tail = b"" if payload is None else pack_tail(lease.url, payload, lease.identity)
    delay_ms: float = settlement.delay_seconds * 1000
    if settlement.unused or settlement.unanswered:  # of requests that have ended: flags instead of a delay
        delay_ms = (-2 if settlement.unanswered else -1) if settlement.unused else 1
    return settlement.outcome, settlement.reason, delay_ms, tail


_STEP_WAIT_SECONDS = 0.25
"""Longest wait of a caller for a step. Longer delays `lease` and `settle` more when a shard is unresponsive; shorter
lets runs finish after the call that could finish them has returned."""


class BackgroundSteps:
    """Runs steps in background tasks, so that an unresponsive shard delays only the steps that need it.

    A step that fails ends quietly: the frontier has recorded what is to be done, and maintenance repeats it.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        """`on_end` is called after each step."""
        self._on_end = on_end
        self._running: dict[Hashable, asyncio.Task[None]] = {}
        self._again: set[Hashable] = set()

    async def run(self, name: Hashable, step: Callable[[], Awaitable[object]]) -> None:
        """Run the step, and return when it has ended or takes longer than `_STEP_WAIT_SECONDS`.

        A step of this name that is running already is repeated afterwards, because it may have read the state before
        the caller's change; then this returns at once.
        """
        if name in self._running:
            self._again.add(name)
            return
        task = self._running[name] = asyncio.create_task(self._repeat(name, step))
        await asyncio.wait((task,), timeout=_STEP_WAIT_SECONDS)
        if task.done():
            task.result()

    async def _repeat(self, name: Hashable, step: Callable[[], Awaitable[object]]) -> None:
        """Run the step, again as long as it was requested meanwhile."""
        try:
            while True:
                self._again.discard(name)
                await step()
                if name not in self._again:
                    break
        except FrontierError:  # maintenance repeats the step
            pass
        finally:
            del self._running[name]
            self._on_end()

    async def close(self) -> None:
        """Cancel the running steps."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
