"""A frontier and its model side by side: every verb goes to both, and what the frontier answers is judged at once."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from gossamer.errors import CrawlRefused, FrontierUnavailable
from gossamer.frontier.base import AddResult, RedirectPermit
from gossamer.frontier.lifecycle import RequestStatus
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, DomainPolicy, Run, Terms
from gossamer.model.info import CrawlInfo, SpiderCounts
from gossamer.model.request import Batch, Lease, Outcome, Settlement

from .model import Model, ModelRun, ModelWorker

T = TypeVar("T")

ATTEMPTS = 20
"""More than replies are ever lost in a row."""

GRACE_SECONDS = 0.05
"""So long a free hit waits for the crawl whose turn it is."""

ROUNDS = 40
"""More than a drain ever takes."""

_UNFINISHED = (RequestStatus.QUEUED, RequestStatus.LATER, RequestStatus.LEASED)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now


@dataclass
class Counted:
    """What should wait of an application for one spider."""

    waiting: int = 0
    crawls: int = 0
    domains: set[tuple[str, bool]] = field(default_factory=set)
    """By lane."""


class Pair:
    """The verbs of both. `lose` arms the loss of the reply to one of the next calls; None: replies cannot be lost."""

    def __init__(
        self,
        frontier: ValkeyFrontier,
        clock: Clock,
        *,
        dead_after_seconds: float,
        shards: int,
        lose: Callable[[int | None], None] | None = None,
    ) -> None:
        self.frontier = frontier
        self.clock = clock
        self.shards = shards
        self.model = Model(dead_after_seconds=dead_after_seconds, shards=shards)
        self.seats: dict[ModelWorker, ValkeyLeaseholder] = {}
        self.handles: dict[CrawlId, Run] = {}
        self.generations: dict[CrawlId, int] = {}
        self.lost = False
        """The last call had to be repeated."""
        self._lose = lose

    def lose_reply(self, nth: int | None) -> None:
        """The nth reply from now on (0: the next) does not arrive, though its call is carried out."""
        if self._lose is not None:
            self._lose(nth)

    # --- crawls ---------------------------------------------------------------------------------------------------

    async def open(self, crawl: Crawl, *, fresh: bool = False) -> ModelRun | None:
        """None: both say that it is refused."""
        before = self.model.runs.get(crawl.id)
        expected = self.model.open(crawl, fresh=fresh)
        try:
            run = await self.frontier_again(lambda: self.frontier.open_crawl(crawl, fresh=fresh))
        except CrawlRefused:
            assert expected is None, f"{crawl.id} was refused"
            return None
        assert expected is not None, f"{crawl.id} was opened though it is {before and before.state} (fresh: {fresh})"
        assert (run.number, run.crawl) == (expected.number, expected.crawl), f"{run} is not {expected}"
        if before is not None:
            renewed = run.generation != self.generations[crawl.id]
            assert renewed == (fresh and before is not expected), "a seen-set of its own is for a fresh run only"
        self.generations[crawl.id] = run.generation
        self.handles[crawl.id] = run
        return expected

    async def add(self, run: ModelRun, terms: Terms, batches: Sequence[Batch], *, seeds: bool = False) -> AddResult:
        """A lost reply is followed by the same call, which gets the answer of the first."""
        handle = self.handles[run.crawl.id]
        answer = await self.frontier_again(lambda: self.frontier.add(handle, terms, batches, seeds=seeds))
        self.model.add(run, terms, batches, answer, self.clock.now, seeds=seeds)
        return answer

    async def stop(self, crawl: CrawlId, *, spider: str | None = None, state: CrawlState = CrawlState.STOPPED) -> None:
        waiting = self.model.runs.get(crawl)
        doomed = [e for e in waiting.entries if waiting.doomed(e, self.clock.now)] if waiting else []
        purged = await self.frontier_again(lambda: self.frontier.stop_crawl(crawl, spider=spider, state=state))
        expected = self.model.stop(crawl, spider, state, self.clock.now)
        assert self.lost or expected - len(doomed) <= purged <= expected, f"{purged} purged, not {expected}"

    # --- workers --------------------------------------------------------------------------------------------------

    async def hire(
        self, *, pool: str, spiders: Sequence[str], egress: str = "", plain: bool = True, browser: bool = False
    ) -> ModelWorker:
        seat = await self.frontier_again(
            lambda: self.frontier.open_leaseholder(
                pool=pool, spiders=spiders, egress=egress, plain=plain, browser=browser
            )
        )
        lanes = frozenset(lane for lane, takes in ((False, plain), (True, browser)) if takes)
        worker = ModelWorker(self._names(seat), pool, tuple(spiders), egress, self.clock.now, lanes)
        self.model.workers.append(worker)
        self.seats[worker] = seat
        return worker

    def _names(self, seat: ValkeyLeaseholder) -> str:
        return " ".join(map(seat.session_name, range(self.shards)))

    async def lease(self, worker: ModelWorker, *, limit: int) -> list[Lease]:
        leases = await self.frontier_again(lambda: self.seats[worker].lease(limit=limit))
        assert len(leases) <= limit, f"{len(leases)} requests, {limit} were asked for"
        self.model.lease(worker, leases, self.clock.now)
        return leases

    async def lease_all_due(self, worker: ModelWorker, *, limit: int = 50) -> list[Lease]:
        """Until nothing more comes; then nothing may be left that had to. Each other pool, spider and lane may have the
        turn on a domain for a moment."""
        found = await self._lease_until_empty(worker, limit)
        groups = {
            (other.pool, spider, lane)
            for other in self.model.workers
            for spider in other.spiders
            for lane in other.lanes
        }
        for _ in groups:
            if self.model.overdue(worker, self.clock.now):
                await self.pass_time(GRACE_SECONDS)
                found += await self._lease_until_empty(worker, limit)
        left = self.model.overdue(worker, self.clock.now)
        assert left == [], f"due, and handed out to nobody: {left}"
        return found

    async def _lease_until_empty(self, worker: ModelWorker, limit: int) -> list[Lease]:
        found: list[Lease] = []
        empty = 0
        while empty <= self.shards:
            leases = await self.lease(worker, limit=limit)
            found += leases
            empty = 0 if leases else empty + 1
        return found

    async def settle(self, worker: ModelWorker, settlements: Sequence[Settlement]) -> list[bool]:
        """Whether each has ended a lease. What has not has changed nothing, which the counts show at once."""
        seat = self.seats[worker]
        await self.frontier_again(lambda: seat.settle(settlements))
        ended = self.model.settle(worker, settlements, self.clock.now)
        for settlement in settlements:
            lease = settlement.lease
            assert not seat.holds(lease), f"{lease.url} is settled and still held"
            is_stale = seat.session_name(lease.shard) != lease.worker
            assert is_stale is worker.stale, f"{lease.worker} was told that it is {'dead' if is_stale else 'alive'}"
        if not all(ended):
            for crawl in {settlement.lease.run.crawl.id for settlement in settlements}:
                if (run := self.model.runs.get(crawl)) is not None and not run.exhausted:
                    info = await self.frontier_again(partial(self.frontier.crawl_info, crawl))
                    assert info is not None
                    self.model.check_counts(info, self.clock.now)
        return ended

    async def fetch(self, worker: ModelWorker, leases: Sequence[Lease]) -> None:
        """Settle all of them as fetched."""
        await self.settle(worker, [Settlement(lease, Outcome.FETCHED) for lease in leases])

    async def hop(self, worker: ModelWorker, lease: Lease, *, fingerprint: int, payload: bytes) -> RedirectPermit:
        seat = self.seats[worker]
        answer = await self.frontier_again(
            lambda: seat.request_redirect(lease, fingerprint=fingerprint, payload=payload)
        )
        self.model.hop(worker, lease, fingerprint, payload, answer, self.clock.now)
        return answer

    async def close(self, worker: ModelWorker) -> None:
        # Who leaves clears up after the dead as well, where he was; so that this is no question, it is done before.
        await self.reclaim()
        await self.frontier_again(self.seats.pop(worker).close)
        self.model.give_back(worker, self.clock.now)

    def kill(self, worker: ModelWorker) -> None:
        """It says nothing more; its connection's end is not a message to anybody."""
        worker.alive = False

    async def wake(self, worker: ModelWorker) -> ModelWorker:
        """A silent one comes back: what was taken from it is gone, and it starts afresh. Returns who it is now."""
        worker.alive = True
        seat = self.seats[worker]
        if not worker.stale:
            await self.frontier_again(seat.heartbeat)
            worker.heard = self.clock.now
            return worker
        await self.frontier_again(seat.heartbeat)
        self.model.spoke_again.add(worker)
        names = self._names(seat)
        if names == worker.name:
            assert not worker.robbed, "a worker that was taken for dead goes on as if nothing had happened"
            worker.stale = False
            worker.heard = self.clock.now
            return worker
        fresh = ModelWorker(names, worker.pool, worker.spiders, worker.egress, self.clock.now, worker.lanes)
        self.model.workers[self.model.workers.index(worker)] = fresh
        self.seats[fresh] = self.seats.pop(worker)
        return fresh

    # --- time and chores --------------------------------------------------------------------------------------------

    async def pass_time(self, seconds: float) -> None:
        """The living say so often enough."""
        step = self.model.dead_after_seconds / 2
        while seconds > 0:
            self.clock.now += min(step, seconds)
            seconds -= step
            await self.beat()

    async def beat(self) -> None:
        for worker, seat in self.seats.items():
            if worker.alive:
                await self.frontier_again(seat.heartbeat)
                worker.heard = self.clock.now

    async def reclaim(self) -> int:
        taken = await self.frontier_again(self.frontier.maintain)
        expected = self.model.reclaim(self.clock.now)
        assert taken == expected or self.lost, f"{taken} taken back, not {expected}"
        return taken

    async def repair(self) -> None:
        """Nothing has to be repaired, whatever happened: a wrong repair would lose requests, or count some twice."""
        wrong = await self.frontier_again(self.frontier.repair)
        assert not wrong, "something had to be corrected, though the server has lost nothing"

    async def set_policy(self, domain: str | None, policy: DomainPolicy | None) -> None:
        await self.frontier_again(lambda: self.frontier.set_domain_policy(domain, policy))
        politeness = self.model.politeness
        if domain is None:
            politeness.default = policy or DomainPolicy()
        elif policy is None or policy == DomainPolicy():  # one that says nothing is none
            politeness.policies.pop(domain, None)
        else:
            politeness.policies[domain] = policy

    async def block(self, domain: str, seconds: float) -> None:
        await self.frontier_again(lambda: self.frontier.block_domain(domain, seconds=seconds))
        blocked = self.model.politeness.blocked_until
        blocked[domain] = max(blocked.get(domain, 0.0), self.clock.now + seconds)

    async def ask_delay(self, domain: str, seconds: float) -> None:
        await self.frontier_again(lambda: self.frontier.set_crawl_delay(domain, seconds=seconds))
        self.model.politeness.crawl_delay[domain] = seconds

    # --- judging ----------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Every counter of every crawl against the model."""
        default, policies = await self.frontier_again(self.frontier.domain_policies)
        assert (default, policies) == (self.model.politeness.default, self.model.politeness.policies)
        waiting: dict[str, int] = {}
        rendering = 0
        apps: dict[tuple[str, str], Counted] = {}
        for crawl, run in self.model.runs.items():
            if run.exhausted or (self.shards > 1 and not run.of(*_UNFINISHED)):
                # One shard knows at once that a run is over; several agree on it a moment later. What a spent budget
                # leaves behind is cleared away by housekeeping.
                await self.reclaim()
            info = await self.frontier_again(partial(self.frontier.crawl_info, crawl))
            assert info is not None
            self.model.check_info(info, self.clock.now)
            by_spider = await self._check_domains(crawl, info)
            rendering += info.rendering.queued
            for spider, counts in info.spiders.items():
                waiting[spider] = waiting.get(spider, 0) + counts.queued
            for spider in {*info.spiders, *info.expires}:
                app = apps.setdefault((crawl.appid, spider), Counted())
                part = info.spiders.get(spider, SpiderCounts())
                app.waiting += part.queued + part.later
                app.domains |= by_spider.get(spider, set())
                app.crawls += info.state is CrawlState.RUNNING and spider in info.expires and not run.refusal(spider)
            apps.setdefault((crawl.appid, ""), Counted()).crawls += info.state is CrawlState.RUNNING
        backlog = await self.frontier_again(self.frontier.backlog)
        assert {part.spider: part.queued for part in backlog} == {s: count for s, count in waiting.items() if count}
        assert sum(part.rendering for part in backlog) == rendering
        for (appid, spider), app in apps.items():
            told = await self.frontier_again(partial(self.frontier.app_info, appid, spider=spider))
            if spider:
                assert (told.waiting, told.domains) == (app.waiting, len(app.domains)), f"{spider}: {told}, not {app}"
            assert told.crawls == app.crawls, f"{appid}, {spider}: {told}, not {app}"

    async def _check_domains(self, crawl: CrawlId, info: CrawlInfo) -> dict[str, set[tuple[str, bool]]]:
        """The domains where requests wait, by spider, with their lanes."""
        cursor, queued, later, rendering, names = "", 0, 0, 0, []
        by_spider: dict[str, set[tuple[str, bool]]] = {}
        lanes = {(e.spider, e.domain, e.render) for e in self.model.runs[crawl].entries if e.waiting}
        for _ in range(50):
            ask = partial(self.frontier.crawl_domains, crawl, cursor=cursor, limit=3)
            page, cursor = await self.frontier_again(ask)
            for domain in page:
                assert domain.queued + domain.later == sum(domain.by_priority.values())
                names.append(domain.domain)
                for spider in domain.by_spider:
                    there = {(domain.domain, lane) for lane in (False, True) if (spider, domain.domain, lane) in lanes}
                    by_spider.setdefault(spider, set()).update(there)
                rendering += domain.rendering
                queued += domain.queued
                later += domain.later
            if not cursor:
                break
        total = info.total()
        assert (queued, later) == (total.queued, total.later), f"by domain {queued} and {later}, in all {total}"
        waiting = info.rendering.queued + info.rendering.later
        assert rendering == waiting, f"by domain {rendering} to be rendered, in all {waiting}"
        assert len(names) == len(set(names)), f"a domain is listed twice: {names}"
        return by_spider

    async def drain(self) -> None:
        """Nothing is stuck: with time, living workers and open domains every request comes to its end."""
        for domain in list(self.model.politeness.policies):
            await self.set_policy(domain, None)
        await self.set_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
        for worker in list(self.seats):
            if worker.alive:
                await self.close(worker)
        await self.pass_time(1.5 * self.model.dead_after_seconds)
        await self.reclaim()
        parts = {(run.crawl.pool, e.spider) for run in self.model.runs.values() for e in run.entries}
        workers = [await self.hire(pool=pool, spiders=[spider], browser=True) for pool, spider in sorted(parts)]
        for number in range(ROUNDS):
            if not any(run.of(*_UNFINISHED) for run in self.model.runs.values()):
                break
            await self.pass_time(self.model.dead_after_seconds / 2)
            for worker in workers:
                await self.fetch(worker, await self.lease_all_due(worker))
            if number % 5 == 0:
                await self.check()
        left = [entry for run in self.model.runs.values() for entry in run.of(*_UNFINISHED)]
        assert left == [], f"stuck: {left}"
        for worker in workers:
            await self.close(worker)
        await self.check()

    async def frontier_again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call whose reply was lost, as every caller may."""
        self.lost = False
        for _ in range(ATTEMPTS):
            try:
                return await call()
            except FrontierUnavailable:
                self.lost = True
        return await call()
