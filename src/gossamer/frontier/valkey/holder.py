"""A worker's seat at the frontier: leases from many shards as if they were one."""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from gossamer.errors import FrontierUnavailable, StaleWorker
from gossamer.frontier.base import Hop
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import Argument, Commands
from gossamer.frontier.valkey.finishing import rebalance, try_finish
from gossamer.frontier.valkey.placing import shard_of
from gossamer.frontier.valkey.submitting import check_names
from gossamer.model.crawl import Run, Terms
from gossamer.model.outcome import Outcome, Settled
from gossamer.model.request import Lease, Settlement
from gossamer.policy.lateness import is_late, usual_seconds

_NAMELESS = "default"
_SETTLE_AT_ONCE = 256
_CALL = 2**20
"""A lease's id is the number of the call that got it, times this, and its place among those; see `lease.lua`."""
_SHARDS_AT_ONCE = 8
_CACHED_TERMS = 10_000
_SHORTLY_SECONDS = 0.001
_NEAR_SECONDS = 0.003
"""A frontier whose answers take no longer is asked when work is due; one further away so much earlier."""
_ASK_AGAIN_SECONDS = 30.0
"""A shard that has nothing due is asked again after so long, woken or not: between the nodes of a cluster the message
that there is work may be lost, and is sent once. (A shard remembers for an hour who waits.)"""


class ValkeyHolder:
    """Implements Leaseholder. Made by `ValkeyFrontier.holder`."""

    def __init__(
        self,
        commands: Commands,
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
        self._spiders = list(spiders)
        self._egress = egress or _NAMELESS
        self._heartbeat_ms = heartbeat_ms
        self._retention_ms = retention_ms
        self._time = clock or time.monotonic
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._epoch = 0
        self._usual = [0.0] * commands.count
        self._calls = [0] * commands.count
        """Grows through all epochs: no id of a lease comes twice."""
        self._woken = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        self._next_shard = 0
        self._runs: OrderedDict[tuple[bytes, bytes], Run] = OrderedDict()
        self._terms: OrderedDict[tuple[bytes, bytes], Terms] = OrderedDict()
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._epoch += 1
        self.worker = f"{self._name}-{self._epoch}"
        self._joins = [number + 1 for number in self._calls]
        """The first call of this epoch."""
        self._asked: list[float | None] = [None] * self._commands.count
        """When the call was first made to which there is no answer yet."""
        self._held: list[set[int]] = [set() for _ in range(self._commands.count)]
        """The ids of what was leased and not yet settled."""
        self._due = [0.0] * self._commands.count
        self._heard = [0] * self._commands.count
        self._found: deque[Lease] = deque()
        self._starving: dict[tuple[str, int], float] = {}

    async def start(self) -> None:
        """Listen for work that arrives while nothing is due."""
        ready = asyncio.Event()
        self._listener = asyncio.create_task(self._listen(ready))
        await ready.wait()

    async def _listen(self, ready: asyncio.Event) -> None:
        channel = self._commands.keys[0].wake(self._pool)
        async for message in self._commands.shards.subscribe(channel, ready):
            if message is None:  # a gap: anything may have been said
                for shard in range(self._commands.count):
                    self._hear(shard)
            else:
                self._hear(int(message))

    def _hear(self, shard: int) -> None:
        self._heard[shard] += 1
        self._due[shard] = 0.0
        self._woken.set()

    # --- leasing ------------------------------------------------------------------------------------------------------

    async def lease(self, *, limit: int) -> list[Lease]:
        self._woken.clear()
        await self._feed_starving()
        now = self._time()
        count = self._commands.count
        turn = [(self._next_shard + i) % count for i in range(count)]
        if count > _SHARDS_AT_ONCE:
            turn = [shard for shard in turn if self._due[shard] <= now]
        pending = deque(turn)
        # What one shard gave stays found when another one does not answer: the next call hands it out.
        while pending and (left := limit - len(self._found)) > 0:
            group = [pending.popleft() for _ in range(min(_SHARDS_AT_ONCE, left, len(pending)))]
            share = left // len(group)
            counts = await asyncio.gather(*(self._lease_shard(shard, share) for shard in group), return_exceptions=True)
            for shard, found in zip(group, counts, strict=True):
                if isinstance(found, BaseException):
                    raise found
                if found == share:  # it may have more
                    pending.append(shard)
            self._next_shard = (group[-1] + 1) % count
        return [self._found.popleft() for _ in range(min(limit, len(self._found)))]

    async def _lease_shard(self, shard: int, limit: int) -> int:
        """How many were found."""
        heard = self._heard[shard]
        asked = self._asked[shard]
        if asked is None:
            self._calls[shard] += 1
            asked = self._asked[shard] = time.monotonic()
        worker = self.worker
        reply = await self._commands.call(
            shard, "lease", worker, self._calls[shard], limit, self._pool, self._egress, self._retention_ms, 1,
            int(self._calls[shard] == self._joins[shard]), *self._spiders,
        )  # fmt: skip
        charged = self._charged(shard, asked)
        if worker != self.worker:  # renewed meanwhile: what it got is others' by now
            return 0
        self._asked[shard] = None
        if reply[0] == b"stale":
            raise StaleWorker(worker)
        _, due, rows, crawls, terms, starved, idle, enroll = reply
        leases = self._decode(shard, rows, crawls, terms, charged=charged)
        self._held[shard].update([lease.id for lease in leases])
        self._found += leases
        found = len(rows) // codec.LEASE_ROW
        if found >= limit or self._heard[shard] != heard:  # it may have more, or got some while it answered
            self._due[shard] = 0.0
        else:
            seconds = _ASK_AGAIN_SECONDS if due == b"" else min(float(due) / 1000, _ASK_AGAIN_SECONDS)
            # The next call travels, too: it should arrive when the work is due.
            self._due[shard] = self._time() + seconds - max(0.0, self._usual[shard] - _NEAR_SECONDS)
        self._spiders.append(self._spiders.pop(0))
        if self._commands.count > 1:
            for token in starved:
                self._starving.setdefault((token.decode(), shard), 0.0)
        for token in idle:
            await try_finish(self._commands, token.decode(), retention_ms=self._retention_ms)
        if enroll:
            await self._enroll(shard)
        return found

    def _charged(self, shard: int, asked: float) -> float:
        """When a call made then, and answered now, was carried out, at the earliest."""
        took = time.monotonic() - asked
        self._usual[shard] = usual = usual_seconds(self._usual[shard], took)
        return asked + usual

    def _decode(
        self, shard: int, rows: Sequence[bytes], crawls: Sequence[bytes], terms: Sequence[bytes], *, charged: float
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
            leases.append(codec.decode_lease(shard, row, known, told[token, number], charged=charged))
        return leases

    def _run_of(self, token: bytes, number: bytes, generation: bytes, blob: bytes) -> Run:
        key = (token, number)
        run = self._runs.get(key)
        if run is None or run.generation != int(generation):
            run = Run(codec.unpack_crawl(blob), int(number), int(generation))
            self._runs[key] = run
            if len(self._runs) > _CACHED_TERMS:
                self._runs.popitem(last=False)
        return run

    def _terms_of(self, token: bytes, blob: bytes) -> Terms:
        key = (token, blob)
        terms = self._terms.get(key)
        if terms is None:
            terms = codec.unpack_terms(blob)
            self._terms[key] = terms
            if len(self._terms) > _CACHED_TERMS:
                self._terms.popitem(last=False)
        return terms

    async def _enroll(self, shard: int) -> None:
        cursor = ""
        while True:
            cursor = (await self._commands.call(shard, "enroll", self._egress, cursor, 500)).decode()
            if not cursor:
                self._due[shard] = 0.0
                self._woken.set()
                return

    async def _feed_starving(self) -> None:
        """Ask again for pages of a budget where requests wait for one, once a second."""
        for (token, shard), due in list(self._starving.items()):
            if due <= self._time():
                if await rebalance(self._commands, token, shard, retention_ms=self._retention_ms):
                    self._starving.pop((token, shard), None)
                else:
                    self._starving[token, shard] = self._time() + 1.0

    # --- settling -----------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement], *, since: int | None = None) -> list[Settled]:
        answers = [Settled.ALREADY] * len(settlements)
        worker = self.worker
        by_shard: dict[int, list[int]] = {}
        for index, settlement in enumerate(settlements):
            by_shard.setdefault(settlement.lease.shard, []).append(index)

        async def settle_shard(shard: int, indexes: list[int]) -> None:
            for first in range(0, len(indexes), _SETTLE_AT_ONCE):
                group = indexes[first : first + _SETTLE_AT_ONCE]
                settled = await self._settle_group(shard, settlements, group, since)
                for index, answer in zip(group, settled, strict=True):
                    answers[index] = answer

        await asyncio.gather(*(settle_shard(shard, indexes) for shard, indexes in by_shard.items()))
        if worker != self.worker:  # renewed while another shard answered: who hears of it now would renew once more
            return [Settled.ALREADY if answer is Settled.STALE_WORKER else answer for answer in answers]
        return answers

    async def _settle_group(
        self, shard: int, settlements: Sequence[Settlement], indexes: list[int], since: int | None
    ) -> list[Settled]:
        arguments: list[Argument] = []
        for index in indexes:
            s = settlements[index]
            tail = b"" if s.payload is None else codec.pack_tail(s.lease.url, s.payload, s.lease.identity)
            drops = s.drops or {}
            arguments += (s.lease.id, s.outcome.value, s.reason, s.delay_seconds * 1000, tail, len(drops))
            for reason, count in drops.items():
                arguments += (reason, count)
        worker, held = self.worker, self._held[shard]
        codes = await self._settle_rows(shard, arguments, since=since)
        if codes is None:  # renewed meanwhile: that says nothing of the epoch that has begun since
            return [Settled.STALE_WORKER if worker == self.worker else Settled.ALREADY] * len(indexes)
        held.difference_update([settlements[index].lease.id for index in indexes])
        return [Settled.SETTLED if code else Settled.ALREADY for code in codes]

    async def _settle_rows(
        self, shard: int, rows: Sequence[Argument], *, since: int | None = None
    ) -> Sequence[int] | None:
        """Of each 1 or 0; None: the worker was taken for dead. On a replica where there is one: what a failover forgot
        would be fetched again."""
        given = (self.worker, self._retention_ms, *rows)
        reply = await self._commands.call_confirmed(shard, "settle", *given, since=since)
        if reply[0] == b"stale":
            return None
        codes: Sequence[int]
        codes, idle, spent = reply
        for token in idle:
            await try_finish(self._commands, token.decode(), retention_ms=self._retention_ms)
        for token in spent:
            await rebalance(self._commands, token.decode(), shard, retention_ms=self._retention_ms)
        return codes

    async def hop(self, lease: Lease, *, fingerprint: int, payload: bytes) -> Hop:
        tail = codec.pack_tail(lease.url, payload, lease.identity)
        asked = time.monotonic()
        answer = await self._commands.call(lease.shard, "hop", self.worker, lease.id, fingerprint, tail)
        charged = self._charged(lease.shard, asked)
        if answer < 0:
            raise StaleWorker(self.worker)
        hop = (Hop.SEEN, Hop.GRANTED, Hop.WAIT)[answer]
        late = is_late(charged, lease.spacing_seconds, now=time.monotonic())
        return Hop.WAIT if hop is Hop.GRANTED and late else hop

    async def hit(self, run: Run, *, spider: str, domain: str) -> float | None:
        rate = run.crawl.rate
        wish = ("", "", "") if rate is None else (rate.hits, rate.window_seconds * 1000, int(rate.moderated))
        shard, asked = shard_of(domain, self._commands.count), time.monotonic()
        granted, wait = await self._commands.call(shard, "hit", run.crawl.id.token, spider, domain, self._egress, *wish)
        if not granted:
            return None if wait == b"" else max(float(wait) / 1000, _SHORTLY_SECONDS)
        start = self._charged(shard, asked) + float(wait) / 1000
        if (ahead := start - time.monotonic()) > 0:
            await asyncio.sleep(ahead)
        return _SHORTLY_SECONDS if is_late(start, now=time.monotonic()) else 0.0

    # --- living -------------------------------------------------------------------------------------------------------

    def set_egress(self, egress: str) -> None:
        check_names(egress)
        self._egress = egress or _NAMELESS
        # What is due for one egress may not be for another.
        for shard in range(self._commands.count):
            self._due[shard] = 0.0
        self._woken.set()

    async def wait(self, *, at_most_seconds: float) -> None:
        due = min([*self._due, *self._starving.values()])
        seconds = min(at_most_seconds, due - self._time())
        if seconds > 0 and not self._woken.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()

    def _joined(self) -> list[int]:
        return [shard for shard in range(self._commands.count) if self._calls[shard] >= self._joins[shard]]

    async def heartbeat(self) -> float:
        joined = self._joined()
        # Not longer than to the next beat: a shard that hangs must not keep it from the others.
        try:
            async with asyncio.timeout(max(1.0, self._heartbeat_ms / 3000)):
                answers = await asyncio.gather(
                    *(self._commands.call(s, "heartbeat", self.worker, self._heartbeat_ms) for s in joined)
                )
        except TimeoutError:
            raise FrontierUnavailable("a heartbeat was not answered in time") from None
        # A shard whose first lease was never answered may not know the worker yet.
        if any(count < 0 and self._asked[s] is None for s, (count, _) in zip(joined, answers, strict=True)):
            raise StaleWorker(self.worker)
        for shard, (count, _) in zip(joined, answers, strict=True):
            if count > len(self._held[shard]):
                await self._give_back_forgotten(shard)
        return min((left for count, left in answers if count >= 0), default=self._heartbeat_ms) / 1000

    async def _give_back_forgotten(self, shard: int) -> None:
        """Of what the shard says we hold, return what we do not: settled, and a failover or a restore forgot that."""
        worker, answered = self.worker, self._calls[shard] - (self._asked[shard] is not None)
        key = self._commands.keys[shard].leases(worker)
        listed = [int(name) for name in await self._commands.plain(shard, "HKEYS", key) if name != b"last"]
        if worker != self.worker:
            return
        forgotten = [id for id in listed if id // _CALL <= answered and id not in self._held[shard]]
        for first in range(0, len(forgotten), _SETTLE_AT_ONCE):
            some = forgotten[first : first + _SETTLE_AT_ONCE]
            # Not as returned: their hits were used.
            rows: list[Argument] = [part for id in some for part in (id, Outcome.FORWARDED.value, "", 0, b"", 0)]
            await self._settle_rows(shard, rows)

    async def renew(self) -> None:
        self._begin_epoch()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener
            self._listener = None
        with contextlib.suppress(FrontierUnavailable):  # then the reaper does it
            await asyncio.gather(*(self._leave(shard) for shard in self._joined()))

    async def _leave(self, shard: int) -> None:
        more = 1
        while more:
            reply = await self._commands.call(
                shard, "reclaim", self._heartbeat_ms, self._retention_ms, 200, self.worker, 0
            )
            more = reply[1]
            for token in reply[3:]:
                await try_finish(self._commands, token.decode(), retention_ms=self._retention_ms)
