"""A worker's client of the frontier: leases requests from many shards as if they were one, and settles them.

The frontier is the store of the requests that wait; its keys are divided into shards by domain. A lease is the loan of
a request to a worker until the worker settles it (reports the outcome). A hit is a request that counts against the rate
limit of its domain; the shard charges it with the lease. A run is one life of a crawl, from its first request until
nothing is left. `session.py` has what the worker knows of one shard.

Fixed: a slow or unreachable shard must not delay the others; a lease whose hit was charged is either returned by
`lease` or put back; and a hit is never used later than `is_late` allows, or sites would see requests too close
together.
"""

import asyncio
import contextlib
import math
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.base import RedirectPermit
from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.codec import LeaseTurn
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.keys import check_names, shard_of
from gossamer.frontier.valkey.runs import rebalance_budget, try_finish
from gossamer.frontier.valkey.session import BackgroundSteps, SettleCall, ShardSession
from gossamer.model.crawl import Run
from gossamer.model.request import MAX_DEATHS, Lease, Settlement
from gossamer.pauses import happens_within
from gossamer.policy.lateness import is_late
from gossamer.policy.liveness import HEARTBEATS_BEFORE_DEATH

_NO_EGRESS = "default"
"""Name of an egress (public address of requests) without a name. It is in keys of running frontiers: fixed."""
_SHARDS_AT_ONCE = 8
"""Shards that are asked concurrently. More find requests sooner where there are many shards, at more calls."""
_SOON_SECONDS = 0.001
"""Shortest wait that `charge_hit` returns: also when a hit was charged, but its reply came too late to use it. Must
stay above 0, which means that the request may be sent."""
_NEAR_SECONDS = 0.003
"""A frontier whose replies take no longer is asked when requests are due; one further away is asked earlier by the
difference. Larger makes requests start later, smaller makes more calls find nothing due."""
_ASK_AGAIN_SECONDS = 30.0
"""A shard that has nothing due is asked again after so long, also without an announcement: between the nodes of a
cluster the announcement may be lost, and it is sent once. May be shorter, at more calls; must be shorter than the hour
for which a shard remembers which workers wait."""
_GATHER_SECONDS = 0.02
"""Time for which the first reply of a shard waits for those of others. May be shorter, at more calls of `lease`; not
longer, because a leased request may have to start within this time."""
_LATE_SECONDS = 0.5
"""Longest wait for a shard while no request was leased. From then on calls do not wait for it. Longer delays a worker
when a shard hangs; it must exceed a normal round trip."""
_LEAVE_SECONDS = 5.0
"""Longest wait for a shard when closing. The leases that are not put back in time are reclaimed later, as those of a
dead worker."""
# More make the call longer, and the shard executes no other call meanwhile.
_LEASES_A_STEP = 200
"""Leases that one call puts back."""
_DOMAINS_A_STEP = 500
"""Domains that one call enrolls for an egress (about)."""
_BUDGET_RETRY_SECONDS = 1.0
"""Pause between two requests for a share of a crawl's page budget. Shorter costs calls to all shards of the crawl,
longer delays its last pages."""
_NO_DEATHS = 0
"""Argument of reclaim.lua: declare no worker dead."""
_PERMITS = (RedirectPermit.SEEN, RedirectPermit.GRANTED, RedirectPermit.WAIT)
"""By the answer of request_redirect.lua: 0, 1, 2."""


class ValkeyLeaseholder:
    """One worker's client of the frontier. Tasks may share it only where a method says so.

    The worker has a session with a name of its own on each shard. A shard that received no heartbeat for too long
    declares the session dead and gives its leases to other workers. The worker then continues with a new session on
    this shard, and `holds` returns False for the leases that it lost; its leases on other shards are not concerned.

    A shard that does not answer is asked again in the background; calls do not wait for it while others answer. Made by
    `ValkeyFrontier.open_leaseholder`.
    """

    def __init__(
        self,
        commands: ScriptCommands,
        *,
        pool: str,
        names: Sequence[str],
        egress: str,
        dead_after_ms: int,
        retention_ms: int,
        clock: Callable[[], float] | None,
    ) -> None:
        """`names`: the names under which the requests that it takes are stored (see `codec.lane_names`)."""
        self._commands = commands
        self._pool = pool
        self._dead_after_ms = dead_after_ms
        self._retention_ms = retention_ms
        self._time = clock or time.monotonic
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        """The worker's name. The names of its sessions begin with it."""
        self._woken = asyncio.Event()
        """Set when `wait_for_work` is to return."""
        self._sessions = [
            ShardSession(
                commands,
                shard,
                worker=self.worker,
                names=names,
                on_lost=self._drop_lost,
                on_settled=self._after_settlement,
            )
            for shard in range(commands.count)
        ]
        self._names = list(names)
        self._leases_nothing = False
        """True: all that this worker could lease is to be rendered, and that rests."""
        self._added_pools: dict[str, str] = {}
        """Egress of each further pool that is leased from. Empty: those of the worker."""
        self._added_listeners: dict[str, asyncio.Task[None]] = {}
        self._use_egresses((egress,))
        self._background = BackgroundSteps(self._woken.set)
        self._listener: asyncio.Task[None] | None = None
        self._next_shard = 0
        self._leased: deque[Lease] = deque()
        """Leases that `lease` has not returned yet."""
        self._independent = commands.count > 1 and commands.shards.address.cluster
        """True: the shards may be on several servers. Shards of one server answer together or not at all."""
        self._leasing = False
        """True while `lease` runs. A lease call that ends at another time sets `_woken`, so that `lease` runs again."""
        self._fault: Exception | None = None
        """Unexpected error of a lease call; the next `lease` raises it."""
        self._decoder = codec.LeaseDecoder()
        self.before_lease: Callable[[], Awaitable[bool]] | None = None
        """Awaited by each `lease`, which returns nothing if this returns False. It must wait a moment then."""

    async def start(self) -> None:
        """Begin to listen for announcements of new requests."""
        self._listener = await self._start_listening(self._pool)

    async def _start_listening(self, pool: str) -> asyncio.Task[None]:
        """Begin to listen for announcements of new requests in a pool. Returns the task that does."""
        ready = asyncio.Event()
        listener = asyncio.create_task(self._listen(pool, ready))
        try:
            await ready.wait()
        except BaseException:
            listener.cancel()
            raise
        return listener

    async def _listen(self, pool: str, ready: asyncio.Event) -> None:
        """Hear the announcements of new requests in a pool, until cancelled. Sets `ready` when the first can be
        heard."""
        channel = self._commands.keys[0].wake_channel(pool)
        async for message in self._commands.shards.subscribe(channel, ready):
            if message is None:  # a gap: any shard may have announced requests
                self._wake(self._sessions)
            else:  # the number of the shard
                self._wake((self._sessions[int(message)],))

    def _wake(self, sessions: Iterable[ShardSession]) -> None:
        """Note that these shards have requests: they are asked at the next lease, which need not wait any longer."""
        for session in sessions:
            session.announcements += 1
            session.make_due()
        self._woken.set()

    # --- leasing ------------------------------------------------------------------------------------------------------

    async def lease(self, *, limit: int) -> list[Lease]:
        """Return at most `limit` requests that are due. Empty means 'none now', not 'finished'.

        Raises FrontierUnavailable when no shard answers."""
        if self.before_lease is not None and not await self.before_lease():
            return []
        self._woken.clear()
        if self._leases_nothing:
            return []
        self._leasing = True
        try:
            await self._lease(limit)
        finally:
            self._leasing = False
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        leases = [self._leased.popleft() for _ in range(min(limit, len(self._leased)))]
        errors = [session.error for session in self._sessions if session.error]
        if not leases and len(errors) == len(self._sessions):
            raise FrontierUnavailable(errors[0].detail)
        return leases

    async def _lease(self, limit: int) -> None:
        """Lease requests into `_leased`, from one group of shards after the other until there are enough.

        A shard that gave its whole share may have more, so it is asked again after the others; so is one of which
        another turn is due.
        """
        await self._rebalance_starving()
        pending = deque(self._sessions_to_ask())
        while pending and (left := limit - len(self._leased)) > 0:
            group = [pending.popleft() for _ in range(min(_SHARDS_AT_ONCE, left, len(pending)))]
            share = left // len(group)
            counts = await self._lease_from_group(group, share)
            now = self._time()
            pending.extend(one for one, n in zip(group, counts, strict=True) if n == share or one.has_turns(now))
            self._next_shard = (group[-1].shard + 1) % len(self._sessions)
        await self._wait_for_calls_under_way()

    async def _wait_for_calls_under_way(self) -> None:
        """If nothing was leased, wait until a call that is still under way has leased something, or none is left whose
        shard is responsive. After _LATE_SECONDS, no shard with a call under way counts as responsive."""
        deadline = time.monotonic() + _LATE_SECONDS
        while not self._leased:
            tasks = [session.lease_task for session in self._sessions if session.lease_task and session.responsive]
            if not tasks:
                return
            _, running = await asyncio.wait(
                tasks, timeout=deadline - time.monotonic(), return_when=asyncio.FIRST_COMPLETED
            )
            if running and time.monotonic() >= deadline:
                for session in self._sessions:
                    session.late = session.lease_task is not None

    def _sessions_to_ask(self) -> list[ShardSession]:
        """Return the sessions to lease from, in order. Left out are:

        - shards whose last lease call is still under way
        - shards that failed, during their pause, while any other shard answers
        - shards that announced nothing due yet, where there are many; a few are asked together, so asking costs no time
        """
        count = len(self._sessions)
        ordered = [self._sessions[(self._next_shard + i) % count] for i in range(count)]
        if count > _SHARDS_AT_ONCE:
            ordered = [session for session in ordered if session.due <= self._time()]
        some_answer = any(session.responsive for session in self._sessions)
        now = time.monotonic()
        return [
            session
            for session in ordered
            if session.lease_task is None and not (some_answer and session.retry_at > now)
        ]

    async def _lease_from_group(self, group: Sequence[ShardSession], share: int) -> list[int]:
        """Lease `share` requests from each shard; returns how many each gave, 0 for one that has not answered yet.

        Shards of one server: waits until all have answered. Shards of several servers: waits at most _LATE_SECONDS for
        the first reply, then _GATHER_SECONDS for the others. An unresponsive shard is asked as well, but waited for
        only where all are.
        """
        if len(self._sessions) == 1:
            return [await self._lease_from(group[0], share)]
        tasks = [asyncio.create_task(self._lease_from(session, share)) for session in group]
        for session, task in zip(group, tasks, strict=True):
            session.lease_task = task
        waited = [task for session, task in zip(group, tasks, strict=True) if session.responsive] or tasks
        if self._independent:
            _, running = await asyncio.wait(waited, timeout=_LATE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            waited = list(running)
        if waited:
            await asyncio.wait(waited, timeout=_GATHER_SECONDS if self._independent else None)
        return [task.result() if task.done() else 0 for task in tasks]

    async def _lease_from(self, session: ShardSession, limit: int) -> int:
        """Lease from a shard into `_leased`, also when `lease` does not wait for this any more; returns how many."""
        try:
            return await self._lease_shard(session, limit)
        except FrontierUnavailable as error:
            session.on_failure(error)
        except Exception as fault:
            self._fault = fault
        finally:
            session.lease_task, session.late = None, False
            if not self._leasing:
                self._woken.set()
        return 0

    async def _lease_shard(self, session: ShardSession, limit: int) -> int:
        """Make one lease call and process its reply; returns how many requests it leased."""
        announcements = session.announcements
        answer = await session.lease(limit, self._retention_ms)
        session.on_reply()
        if answer is None:  # its leases there are lost; the next call asks under the new name
            return 0
        (_, due_ms, rows, crawls_and_terms, starved, idle, enroll, *_), call = answer  # see the head of lease.lua
        leases = self._decoder.decode(call, rows, crawls_and_terms)
        session.held.update([lease.id for lease in leases])
        self._leased += leases
        more_may_be_due = len(leases) >= limit or session.announcements != announcements
        session.set_due(call.turn, 0.0 if more_may_be_due else self._time_to_ask(session, due_ms))
        if len(self._sessions) > 1:
            for token in starved:
                session.starving.setdefault(token.decode(), 0.0)
        for token in idle:
            await self._try_finish(token.decode())
        if enroll:
            await self._enroll_egress(session, call.turn.egress)
        return len(leases)

    def _time_to_ask(self, session: ShardSession, due_ms: bytes) -> float:
        """Return when to ask a shard again whose next request is due in so many ms (empty: it has none). That is
        earlier by the time that the call takes, so that it arrives when the request is due."""
        seconds = _ASK_AGAIN_SECONDS if due_ms == b"" else min(float(due_ms) / 1000, _ASK_AGAIN_SECONDS)
        return self._time() + seconds - max(0.0, session.round_trip_seconds - _NEAR_SECONDS)

    def _drop_lost(self) -> None:
        """Drop leases of a name that its shard declared dead: `lease` does not return them."""
        self._leased = deque(filter(self.holds, self._leased))
        self._woken.set()

    def holds(self, lease: Lease) -> bool:
        """Return whether the worker still holds this lease: it is not settled, and was not given to another worker."""
        session = self._sessions[lease.shard]
        return lease.worker == session.name and lease.id in session.held

    async def _enroll_egress(self, session: ShardSession, egress: str) -> None:
        """Make the shard list the domains whose rate limit is per egress for this egress, which is new there.

        The egress is that of the lease call that asked for this: `set_egress` may have set another one since, which no
        lease call has announced to the shard, and which must not count as enrolled."""
        cursor = ""
        while True:
            reply = await self._commands.call(session.shard, "enroll_egress", egress, cursor, _DOMAINS_A_STEP)
            cursor = reply.decode()
            if not cursor:
                session.make_due()
                self._woken.set()
                return

    async def _try_finish(self, token: str) -> None:
        """Finish a crawl's run in the background, if nothing of it is left to do."""
        await self._background.run(token, partial(try_finish, self._commands, token, retention_ms=self._retention_ms))

    async def _rebalance_budget(self, session: ShardSession, token: str) -> None:
        """Ask in the background for a share of a crawl's page budget, for a shard that has used up its own."""

        async def step() -> None:
            if await rebalance_budget(self._commands, token, session.shard, retention_ms=self._retention_ms):
                session.starving.pop(token, None)
                session.make_due()

        await self._background.run((token, session.shard), step)

    async def _rebalance_starving(self) -> None:
        """Ask again for shares of page budgets where requests wait for one, at most once a second for each."""
        now = self._time()
        for session in self._sessions:
            for token, due in list(session.starving.items()):
                if due <= now:
                    session.starving[token] = now + _BUDGET_RETRY_SECONDS
                    await self._rebalance_budget(session, token)

    # --- settling -----------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement], *, data_epoch: int | None = None) -> None:
        """Report outcomes. May run beside `lease`. May be repeated.

        Each outcome is reported under the session that leased the request, so a late report does not concern later
        leases. One of a lease that is settled already, or whose session was declared dead, changes nothing.

        `data_epoch`: the data epoch in which the frontier confirmed the outlinks of these requests. Raises
        FrontierForgot when a later one has begun: add the outlinks again first."""
        groups: dict[tuple[int, str], list[Settlement]] = {}
        for settlement in settlements:
            groups.setdefault((settlement.lease.shard, settlement.lease.worker), []).append(settlement)
        calls = [
            self._sessions[shard].settle(
                name, SettleCall.split(some), retention_ms=self._retention_ms, data_epoch=data_epoch
            )
            for (shard, name), some in groups.items()
        ]
        await (calls[0] if len(calls) == 1 else asyncio.gather(*calls))

    async def _after_settlement(
        self, session: ShardSession, idle: Sequence[bytes], budget_used: Sequence[bytes]
    ) -> None:
        """Start what settlements may have caused: the end of a run, or a new share of a page budget."""
        if len(session.turns) > 1:
            session.make_due()  # a request that has ended may make others due for each turn
        for token in idle:
            await self._try_finish(token.decode())
        for token in budget_used:
            await self._rebalance_budget(session, token.decode())

    # --- hits that do not come from a queue ---------------------------------------------------------------------------

    async def request_redirect(self, lease: Lease, *, fingerprint: int, payload: bytes) -> RedirectPermit:
        """Request a hit for a redirect inside the lease's domain.

        `payload` (the redirects so far) replaces the payload of the entry, so that a worker that takes the request over
        continues there. Raises LeaseLost."""
        tail = codec.pack_tail(lease.url, payload, lease.identity)
        answer, charged = await self._sessions[lease.shard].request_redirect(lease.worker, lease.id, fingerprint, tail)
        permit = _PERMITS[answer]
        late = is_late(charged, lease.spacing_seconds, now=time.monotonic())
        return RedirectPermit.WAIT if permit is RedirectPermit.GRANTED and late else permit

    async def charge_hit(self, run: Run, *, spider: str, domain: str, egress: str = "") -> float | None:
        """Charge a hit for a request that did not come from a queue (an image, a call of an API), and that leaves from
        `egress` (empty: the worker's first). Returns 0: send the request now; the number of seconds after which to ask
        again; or None: the domain is paused or blacklisted. The request does not count as in flight. A call whose reply
        was lost may have charged a hit: repeating it makes the crawl slower, never faster."""
        rate = run.crawl.rate
        requested = ("", "", "") if rate is None else (rate.hits, rate.window_seconds * 1000, int(rate.moderated))
        shard, sent_at = shard_of(domain, self._commands.count), time.monotonic()
        call = self._commands.call(
            shard, "charge_hit", run.crawl.id.token, spider, domain, egress or self._egresses[0], *requested
        )
        (granted, wait_ms), charged = await self._sessions[shard].charged(call, sent_at)
        if not granted:
            return None if wait_ms == b"" else max(float(wait_ms) / 1000, _SOON_SECONDS)
        start = charged + float(wait_ms) / 1000
        if (ahead := start - time.monotonic()) > 0:
            await asyncio.sleep(ahead)
        return _SOON_SECONDS if is_late(start, now=time.monotonic()) else 0.0

    # --- waiting and heartbeats ---------------------------------------------------------------------------------------

    def take_browser_lane(self) -> None:
        """Also lease requests that are to be rendered, from now on. May be repeated."""
        spiders = {codec.read_name(name)[0]: None for name in self._names}
        if added := [name for name in codec.lane_names(spiders, plain=False, browser=True) if name not in self._names]:
            self._names += added
            for session in self._sessions:
                session.lease_names(added)
            self._woken.set()

    def rest_browser_lane(self, *, rests: bool) -> None:
        """Lease no requests that are to be rendered, until called again with False. May be repeated."""
        spiders = {codec.read_name(name)[0]: None for name in self._names}
        of_lane = codec.lane_names(spiders, plain=False, browser=True)
        self._leases_nothing = rests and all(name in of_lane for name in self._names)
        for session in self._sessions:
            session.leave_out(of_lane if rests and not self._leases_nothing else ())
        self._woken.set()

    def set_egress(self, *egresses: str) -> None:
        """Set the address that the worker fetches from, beginning with the next lease; with several, each lease is for
        one of them (`Lease.egress`). Empty: the address has no name."""
        check_names(*egresses)
        self._use_egresses(egresses)
        self._woken.set()

    def _use_egresses(self, egresses: Sequence[str]) -> None:
        self._egresses = tuple(egress or _NO_EGRESS for egress in egresses) or (_NO_EGRESS,)
        self._set_turns()

    def _set_turns(self) -> None:
        """Set what lease calls ask for: requests of each pool, for each egress that it is leased for."""
        turns = [LeaseTurn(self._pool, egress) for egress in self._egresses]
        for pool, own in self._added_pools.items():
            turns += [LeaseTurn(pool, egress) for egress in ((own,) if own else self._egresses)]
        for session in self._sessions:
            session.turns = turns
            session.make_due()  # requests that are due for one turn may not be for another

    async def add_pool(self, pool: str, *, egress: str = "") -> None:
        """Also lease the requests of another pool, from now on. `egress`: the one that they are leased for, as for
        `set_egress`; empty: those of the worker. May be repeated."""
        check_names(pool, egress)
        if self._added_pools.get(pool) == egress:
            return
        if pool not in self._added_listeners:
            self._added_listeners[pool] = await self._start_listening(pool)
        self._added_pools[pool] = egress
        self._set_turns()
        self._woken.set()

    def remove_pool(self, pool: str) -> None:
        """Lease no more requests of a pool that was added. May be repeated."""
        if self._added_pools.pop(pool, None) is not None:
            self._set_turns()
        if (listener := self._added_listeners.pop(pool, None)) is not None:
            listener.cancel()

    async def wait_for_work(self, *, timeout_seconds: float) -> None:
        """Return when a request may be due, when new requests arrived, or after `timeout_seconds`."""
        seconds = min([timeout_seconds, *map(self._seconds_until_due, self._sessions)])
        if seconds > 0 and not self._woken.is_set():
            await happens_within(self._woken, seconds)

    def _seconds_until_due(self, session: ShardSession) -> float:
        """Return the seconds until this shard is worth asking. A lease call under way sets `_woken` when it ends."""
        if session.lease_task is not None or self._leases_nothing:
            return math.inf
        due = min([session.due, *session.starving.values()]) - self._time()
        return due if session.error is None else max(due, session.retry_at - time.monotonic())

    @property
    def stored_names(self) -> Sequence[str]:
        """Names under which the requests that it leases are stored (see `codec.lane_names`)."""
        return self._names

    @property
    def has_later_work(self) -> bool:
        """True if the last lease calls found requests that wait for their site's turn, or for a retry."""
        return any(session.has_later_work for session in self._sessions)

    @property
    def has_capped_work(self) -> bool:
        """True if the last lease calls found requests that wait only until others of their domains, which are in
        flight, have ended."""
        return any(session.has_capped_work for session in self._sessions)

    def session_name(self, shard: int) -> str:
        """Return the name of the worker's current session on the shard."""
        return self._sessions[shard].name

    async def heartbeat(self, shard: int | None = None) -> float:
        """Send a heartbeat to a shard (None: to all). `lease` and `settle` send one to their shards, too.

        Returns the number of seconds until some other worker counts as dead there, if it stays silent; 0: one does, and
        `maintain` takes its leases back."""
        if shard is None:
            return min(await asyncio.gather(*map(self._send_heartbeat, self._sessions)))
        return await self._send_heartbeat(self._sessions[shard])

    async def _send_heartbeat(self, session: ShardSession) -> float:
        """Send a heartbeat to one shard; returns the seconds until some other worker counts as dead there."""
        # No heartbeat takes longer than until the next one is sent, but each gets at least a second.
        interval = self._dead_after_ms / 1000 / HEARTBEATS_BEFORE_DEATH
        try:
            async with asyncio.timeout(max(1.0, interval)):
                answer = await session.heartbeat(self._dead_after_ms)
        except TimeoutError:
            raise FrontierUnavailable(f"shard {session.shard} did not answer a heartbeat in time") from None
        if answer is None:
            return self._dead_after_ms / 1000
        count, left_ms = answer
        if count > len(session.held):
            await self._put_back_not_held(session)
        return left_ms / 1000

    async def _put_back_not_held(self, session: ShardSession) -> None:
        """Put back leases that the shard counts as this worker's, though the worker has settled them."""
        name, leases = await session.leases_not_held()
        await session.settle(name, SettleCall.forwarding(leases), retention_ms=self._retention_ms)

    async def ping(self) -> None:
        """Return when any shard answers. Raises FrontierUnavailable when none does."""
        calls = [
            asyncio.ensure_future(self._commands.call(session.shard, "heartbeat", session.name, self._dead_after_ms))
            for session in self._sessions
        ]
        try:
            for call in asyncio.as_completed(calls):
                try:
                    await call
                except FrontierUnavailable as exc:
                    last_error = exc
                else:
                    return  # one shard is enough
            raise last_error
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    # --- closing ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Put all unsettled leases back in front of their queues, and end the sessions.

        Leases of a shard that does not answer are reclaimed later, as those of a dead worker."""
        tasks = [session.lease_task for session in self._sessions if session.lease_task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in (self._listener, *self._added_listeners.values()):
            if listener is not None:
                listener.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await listener
        self._listener = None
        self._added_listeners.clear()
        await self._background.close()
        await asyncio.gather(*map(self._leave, [session for session in self._sessions if session.joined]))

    async def _leave(self, session: ShardSession) -> None:
        """Put the session's leases back, as if it were dead. Leases that remain are reclaimed later."""
        more = True
        with contextlib.suppress(FrontierUnavailable, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                while more:
                    _, more, _, *idle = await self._commands.call(
                        session.shard, "reclaim",
                        self._dead_after_ms, self._retention_ms, _LEASES_A_STEP, session.name, _NO_DEATHS, MAX_DEATHS,
                    )  # fmt: skip
                    for token in idle:
                        await try_finish(self._commands, token.decode(), retention_ms=self._retention_ms)
