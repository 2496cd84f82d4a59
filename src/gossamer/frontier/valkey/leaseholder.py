"""A worker's place at the frontier: leases from many shards as if they were one."""

import asyncio
import contextlib
import math
import os
import secrets
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.base import RedirectPermit
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Argument, ScriptCommands
from gossamer.frontier.valkey.finishing import rebalance, try_finish
from gossamer.frontier.valkey.keys import shard_of
from gossamer.frontier.valkey.session import SETTLE_AT_ONCE, BackgroundSteps, ShardSession, forwarded
from gossamer.frontier.valkey.submitting import check_names
from gossamer.model.crawl import Run, Terms
from gossamer.model.request import DEATHS, Lease, Settled, Settlement
from gossamer.policy.cache import BoundedCache
from gossamer.policy.timing import is_late

_NAMELESS = "default"
_SHARDS_AT_ONCE = 8
_CACHED_RUNS = 5000
_CACHED_BYTES = 5 * 1024 * 1024
"""Of the terms of submissions."""
_SHORTLY_SECONDS = 0.001
_NEAR_SECONDS = 0.003
"""A frontier whose answers take no longer is asked when work is due; one further away so much earlier."""
_ASK_AGAIN_SECONDS = 30.0
"""A shard that has nothing due is asked again after so long, woken or not: between the nodes of a cluster the message
that there is work may be lost, and is sent once. (A shard remembers for an hour who waits.)"""
_COMPANY_SECONDS = 0.02
"""How long the first answer of a shard waits for those of others: what was leased may have to start that soon."""
_LATE_SECONDS = 0.5
"""How long a shard is waited for while nothing was leased. From then on the others do not wait for it."""
_LEAVE_SECONDS = 5.0


class ValkeyLeaseholder:
    """Implements Leaseholder. Made by `ValkeyFrontier.open_leaseholder`."""

    def __init__(
        self,
        commands: ScriptCommands,
        *,
        pool: str,
        spiders: Sequence[str],
        egress: str,
        heartbeat_ms: int,
        retention_ms: int,
        clock: Callable[[], float] | None,
    ) -> None:
        self._commands = commands
        self._pool = pool
        self._egress = egress or _NAMELESS
        self._heartbeat_ms = heartbeat_ms
        self._retention_ms = retention_ms
        self._time = clock or time.monotonic
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._woken = asyncio.Event()
        self._sessions = [
            ShardSession(commands, shard, worker=self.worker, spiders=spiders, lost=self._forget_lost)
            for shard in range(commands.count)
        ]
        self._errands = BackgroundSteps(self._woken.set)
        self._listener: asyncio.Task[None] | None = None
        self._next_shard = 0
        self._found: deque[Lease] = deque()
        self._independent = commands.count > 1 and commands.shards.address.cluster
        """The shards may be on several servers. Those of one server answer together or not at all."""
        self._leasing = False
        self._fault: Exception | None = None
        self._runs: OrderedDict[tuple[bytes, bytes], Run] = OrderedDict()
        self._terms: BoundedCache[tuple[bytes, bytes], Terms] = BoundedCache(_CACHED_BYTES)

    async def start(self) -> None:
        """Listen for work that arrives while nothing is due."""
        ready = asyncio.Event()
        self._listener = asyncio.create_task(self._listen(ready))
        await ready.wait()

    async def _listen(self, ready: asyncio.Event) -> None:
        channel = self._commands.keys[0].wake(self._pool)
        async for message in self._commands.shards.subscribe(channel, ready):
            if message is None:  # a gap: anything may have been said
                self._wake(self._sessions)
            else:
                self._wake((self._sessions[int(message)],))

    def _wake(self, sessions: Iterable[ShardSession]) -> None:
        for session in sessions:
            session.woken += 1
            session.due = 0.0
        self._woken.set()

    # --- leasing ------------------------------------------------------------------------------------------------------

    async def lease(self, *, limit: int) -> list[Lease]:
        self._woken.clear()
        self._leasing = True
        try:
            await self._find(limit)
        finally:
            self._leasing = False
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        leases = self._take(limit)
        errors = [session.error for session in self._sessions if session.error]
        if not leases and len(errors) == len(self._sessions):
            raise FrontierUnavailable(errors[0].detail)
        return leases

    async def _find(self, limit: int) -> None:
        await self._feed_starving()
        pending = deque(self._turn())
        while pending and (left := limit - len(self._found)) > 0:
            group = [pending.popleft() for _ in range(min(_SHARDS_AT_ONCE, left, len(pending)))]
            share = left // len(group)
            counts = await self._ask(group, share)
            pending.extend(session for session, found in zip(group, counts, strict=True) if found == share)
            self._next_shard = (group[-1].shard + 1) % len(self._sessions)
        last = time.monotonic() + _LATE_SECONDS
        while not self._found and (asking := [s.asking for s in self._sessions if s.asking and s.healthy]):
            _, late = await asyncio.wait(asking, timeout=last - time.monotonic(), return_when=asyncio.FIRST_COMPLETED)
            if late and time.monotonic() >= last:
                for session in self._sessions:
                    session.late = session.asking is not None

    def _turn(self) -> list[ShardSession]:
        """Shards to ask, in order. While some of them answer, the others are asked after pauses."""
        count = len(self._sessions)
        turn = [self._sessions[(self._next_shard + i) % count] for i in range(count)]
        if count > _SHARDS_AT_ONCE:
            now = self._time()
            turn = [session for session in turn if session.due <= now]
        answering = any(session.healthy for session in self._sessions)
        now = time.monotonic()
        return [s for s in turn if s.asking is None and not (answering and s.retry_at > now)]

    async def _ask(self, group: Sequence[ShardSession], share: int) -> list[int]:
        """Ask these shards for so many requests each. How many of them each gave; 0 where it has not answered yet."""
        tasks = [asyncio.create_task(self._lease_from(session, share)) for session in group]
        for session, task in zip(group, tasks, strict=True):
            session.asking = task
        # A shard that is away is asked as well, but waited for only where no other one is.
        waited = [task for session, task in zip(group, tasks, strict=True) if session.healthy] or tasks
        if self._independent:
            _, left = await asyncio.wait(waited, timeout=_LATE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            waited = list(left)
        if waited:
            await asyncio.wait(waited, timeout=_COMPANY_SECONDS if self._independent else None)
        return [task.result() if task.done() else 0 for task in tasks]

    async def _lease_from(self, session: ShardSession, limit: int) -> int:
        """How many were found. They are in `_found` then, also when nobody waits for this any more."""
        try:
            return await self._lease_shard(session, limit)
        except FrontierUnavailable as error:
            session.failed(error)
        except Exception as fault:
            self._fault = fault
        finally:
            session.asking, session.late = None, False
            if not self._leasing:
                self._woken.set()
        return 0

    async def _lease_shard(self, session: ShardSession, limit: int) -> int:
        woken = session.woken
        answer = await session.lease(limit, self._pool, self._egress, self._retention_ms)
        session.answered()
        if answer is None:  # what was held there is lost; the next call asks under the new name
            return 0
        (_, due, rows, crawls, terms, starved, idle, enroll), name, charged = answer
        leases = self._decode(session.shard, rows, crawls, terms, worker=name, charged=charged)
        session.held.update([lease.id for lease in leases])
        self._found += leases
        found = len(rows) // codec.LEASE_ROW
        if found >= limit or session.woken != woken:  # it may have more, or got some while it answered
            session.due = 0.0
        else:
            seconds = _ASK_AGAIN_SECONDS if due == b"" else min(float(due) / 1000, _ASK_AGAIN_SECONDS)
            # The next call travels, too: it should arrive when the work is due.
            session.due = self._time() + seconds - max(0.0, session.usual_seconds - _NEAR_SECONDS)
        if len(self._sessions) > 1:
            for token in starved:
                session.starving.setdefault(token.decode(), 0.0)
        for token in idle:
            await self._finish(token.decode())
        if enroll:
            await self._enroll(session)
        return found

    def _take(self, limit: int) -> list[Lease]:
        return [self._found.popleft() for _ in range(min(limit, len(self._found)))]

    def _forget_lost(self) -> None:
        """A shard has declared a name of this worker dead: what was leased under it is not handed out."""
        self._found = deque(filter(self.holds, self._found))
        self._woken.set()

    def holds(self, lease: Lease) -> bool:
        session = self._sessions[lease.shard]
        return lease.worker == session.name and lease.id in session.held

    def _decode(
        self,
        shard: int,
        rows: Sequence[bytes],
        crawls: Sequence[bytes],
        terms: Sequence[bytes],
        *,
        worker: str,
        charged: float,
    ) -> list[Lease]:
        shown: dict[bytes, tuple[bytes, bytes]] = {
            crawls[i]: (crawls[i + 1], crawls[i + 2]) for i in range(0, len(crawls), 3)
        }
        told: dict[tuple[bytes, int], Terms] = {}
        for i in range(0, len(terms), 3):
            told[terms[i], int(terms[i + 1])] = self._terms_of(terms[i], terms[i + 2])
        leases = []
        for i in range(0, len(rows), codec.LEASE_ROW):
            row = rows[i : i + codec.LEASE_ROW]
            token, run = row[1], row[2]
            entry = row[6]
            number = entry[4] << 16 | entry[5] << 8 | entry[6]
            known = self._run_of(token, run, *shown[token])
            leases.append(codec.decode_lease(shard, row, known, told[token, number], worker=worker, charged=charged))
        return leases

    def _run_of(self, token: bytes, number: bytes, generation: bytes, blob: bytes) -> Run:
        key = (token, number)
        run = self._runs.get(key)
        if run is None or run.generation != int(generation):
            run = Run(codec.unpack_crawl(blob), int(number), int(generation))
            self._runs[key] = run
            if len(self._runs) > _CACHED_RUNS:
                self._runs.popitem(last=False)
        return run

    def _terms_of(self, token: bytes, blob: bytes) -> Terms:
        key = (token, blob)
        terms = self._terms.get(key)
        if terms is None:
            terms = codec.unpack_terms(blob)
            self._terms.put(key, terms, codec.weight_of_terms(blob))
        return terms

    async def _enroll(self, session: ShardSession) -> None:
        cursor = ""
        while True:
            cursor = (await self._commands.call(session.shard, "enroll_egress", self._egress, cursor, 500)).decode()
            if not cursor:
                session.due = 0.0
                self._woken.set()
                return

    async def _finish(self, token: str) -> None:
        """Decide that a run is finished if it is."""
        step = partial(try_finish, self._commands, token, retention_ms=self._retention_ms)
        await self._errands.run(token, step)

    async def _rebalance(self, session: ShardSession, token: str) -> None:
        """Get a shard a share of a crawl's page budget."""

        async def step() -> None:
            if await rebalance(self._commands, token, session.shard, retention_ms=self._retention_ms):
                session.starving.pop(token, None)
                session.due = 0.0

        await self._errands.run((token, session.shard), step)

    async def _feed_starving(self) -> None:
        """Ask again for pages of a budget where requests wait for one, once a second."""
        now = self._time()
        for session in self._sessions:
            for token, due in list(session.starving.items()):
                if due <= now:
                    session.starving[token] = now + 1.0
                    await self._rebalance(session, token)

    # --- settling -----------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement], *, era: int | None = None) -> list[Settled]:
        answers = [Settled.ALREADY] * len(settlements)
        groups: dict[tuple[int, str], list[int]] = {}
        for index, settlement in enumerate(settlements):
            groups.setdefault((settlement.lease.shard, settlement.lease.worker), []).append(index)

        async def settle_all(shard: int, worker: str, indexes: list[int]) -> None:
            for first in range(0, len(indexes), SETTLE_AT_ONCE):
                some = indexes[first : first + SETTLE_AT_ONCE]
                settled = await self._settle_some(shard, worker, [settlements[index] for index in some], era)
                for index, answer in zip(some, settled, strict=True):
                    answers[index] = answer

        await asyncio.gather(*(settle_all(*key, indexes) for key, indexes in groups.items()))
        return answers

    async def _settle_some(
        self, shard: int, worker: str, settlements: Sequence[Settlement], era: int | None
    ) -> list[Settled]:
        rows: list[Argument] = []
        for s in settlements:
            tail = b"" if s.payload is None else codec.pack_tail(s.lease.url, s.payload, s.lease.identity)
            drops = s.drops or {}
            rows += (s.lease.id, s.outcome.value, s.reason, s.delay_seconds * 1000, tail, len(drops))
            for reason, count in drops.items():
                rows += (reason, count)
        codes = await self._settle_rows(shard, worker, [s.lease.id for s in settlements], rows, era=era)
        if codes is None:
            return [Settled.STALE_WORKER] * len(settlements)
        return [Settled.SETTLED if code else Settled.ALREADY for code in codes]

    async def _settle_rows(
        self, shard: int, worker: str, ids: Sequence[int], rows: Sequence[Argument], *, era: int | None = None
    ) -> Sequence[int] | None:
        session = self._sessions[shard]
        reply = await session.settle(worker, ids, rows, retention_ms=self._retention_ms, era=era)
        if reply is None:
            return None
        codes: Sequence[int]
        codes, idle, spent = reply
        for token in idle:
            await self._finish(token.decode())
        for token in spent:
            await self._rebalance(session, token.decode())
        return codes

    async def request_redirect(self, lease: Lease, *, fingerprint: int, payload: bytes) -> RedirectPermit:
        tail = codec.pack_tail(lease.url, payload, lease.identity)
        answer, charged = await self._sessions[lease.shard].hop(lease.worker, lease.id, fingerprint, tail)
        hop = (RedirectPermit.SEEN, RedirectPermit.GRANTED, RedirectPermit.WAIT)[answer]
        late = is_late(charged, lease.spacing_seconds, now=time.monotonic())
        return RedirectPermit.WAIT if hop is RedirectPermit.GRANTED and late else hop

    async def charge_hit(self, run: Run, *, spider: str, domain: str) -> float | None:
        rate = run.crawl.rate
        wish = ("", "", "") if rate is None else (rate.hits, rate.window_seconds * 1000, int(rate.moderated))
        shard, asked = shard_of(domain, self._commands.count), time.monotonic()
        granted, wait = await self._commands.call(
            shard, "charge_hit", run.crawl.id.token, spider, domain, self._egress, *wish
        )
        if not granted:
            return None if wait == b"" else max(float(wait) / 1000, _SHORTLY_SECONDS)
        start = self._sessions[shard].charged(asked) + float(wait) / 1000
        if (ahead := start - time.monotonic()) > 0:
            await asyncio.sleep(ahead)
        return _SHORTLY_SECONDS if is_late(start, now=time.monotonic()) else 0.0

    # --- living -------------------------------------------------------------------------------------------------------

    def set_egress(self, egress: str) -> None:
        check_names(egress)
        self._egress = egress or _NAMELESS
        # What is due for one egress may not be for another.
        for session in self._sessions:
            session.due = 0.0
        self._woken.set()

    async def wait_for_work(self, *, timeout_seconds: float) -> None:
        seconds = min([timeout_seconds, *map(self._until_due, self._sessions)])
        if seconds > 0 and not self._woken.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()

    def _until_due(self, session: ShardSession) -> float:
        """Seconds until it makes sense to ask this shard. Its answer to a call under way ends the wait by itself."""
        if session.asking is not None:
            return math.inf
        due = min([session.due, *session.starving.values()]) - self._time()
        return due if session.error is None else max(due, session.retry_at - time.monotonic())

    def session_name(self, shard: int) -> str:
        return self._sessions[shard].name

    async def heartbeat(self, shard: int | None = None) -> float:
        if shard is None:
            return min(await asyncio.gather(*(self._beat(session) for session in self._sessions)))
        return await self._beat(self._sessions[shard])

    async def _beat(self, session: ShardSession) -> float:
        # Not longer than to the next beat.
        try:
            async with asyncio.timeout(max(1.0, self._heartbeat_ms / 3000)):
                answer = await session.heartbeat(self._heartbeat_ms)
        except TimeoutError:
            raise FrontierUnavailable(f"shard {session.shard} did not answer a heartbeat in time") from None
        if answer is None:
            return self._heartbeat_ms / 1000
        count, left = answer
        if count > len(session.held):
            await self._give_back_forgotten(session)
        return left / 1000

    async def _give_back_forgotten(self, session: ShardSession) -> None:
        name, leases = await session.forgotten()
        for first in range(0, len(leases), SETTLE_AT_ONCE):
            some = leases[first : first + SETTLE_AT_ONCE]
            await self._settle_rows(session.shard, name, some, forwarded(some))

    async def ping(self) -> None:
        calls = [
            asyncio.ensure_future(self._commands.call(s.shard, "heartbeat", s.name, self._heartbeat_ms))
            for s in self._sessions
        ]
        try:
            for call in asyncio.as_completed(calls):
                try:
                    await call
                except FrontierUnavailable as error:
                    trouble = error
                else:
                    return
            raise trouble
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def close(self) -> None:
        asking = [session.asking for session in self._sessions if session.asking]
        for task in (*asking, *((self._listener,) if self._listener else ())):
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        if self._listener is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener
            self._listener = None
        await self._errands.close()
        # What is not given back now, the reaper takes back later.
        await asyncio.gather(*map(self._leave, self._joined()))

    def _joined(self) -> list[ShardSession]:
        return [session for session in self._sessions if session.joined]

    async def _leave(self, session: ShardSession) -> None:
        more = 1
        with contextlib.suppress(FrontierUnavailable, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                while more:
                    reply = await self._commands.call(
                        session.shard, "reclaim", self._heartbeat_ms, self._retention_ms, 200, session.name, 0, DEATHS
                    )
                    more = reply[1]
                    for token in reply[3:]:
                        await try_finish(self._commands, token.decode(), retention_ms=self._retention_ms)
