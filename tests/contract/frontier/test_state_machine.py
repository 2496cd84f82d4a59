"""Random histories against the model: what no example test thinks of.

Some, always the same. `GOSSAMER_HYPOTHESIS=thorough` runs many more and longer ones, different each time.
"""

import asyncio
import os
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gossamer.frontier.base import RedirectPermit
from gossamer.model.crawl import BudgetScope, Crawl, CrawlId, CrawlState, DomainPolicy, Order, Rate, Terms
from gossamer.model.request import Batch, Lease, Outcome, Settlement

from .asking import fingerprint
from .model import ModelWorker
from .pair import Pair
from .stage import Stage

T = TypeVar("T")

THOROUGH = os.environ.get("GOSSAMER_HYPOTHESIS") == "thorough"

UNIT = 64.0
"""Seconds. The servers forget windows and blocks by their own clock, which the test's must outrun."""

RECIPES: list[dict[str, Any]] = [
    {},
    {},
    {"order": Order.LIFO},
    {"max_pages": 4},
    {"pool": "own"},
    {"rate": Rate(5, 2 * UNIT, moderated=False)},
    {"rate": Rate(1, 8 * UNIT), "concurrency": 3},
    {},
]
CAPPED = 7
"""This crawl's terms bound its pages and its queue on each domain."""

DOMAINS = ["a.test", "b.test", "c.test", "d.test", "e.test"]
SPIDERS = ["link", "other"]

USUAL = DomainPolicy(hits=1, window_seconds=UNIT)

POLICIES = st.sampled_from(
    [
        None,
        DomainPolicy(),
        DomainPolicy(hits=3, window_seconds=4 * UNIT),
        DomainPolicy(hits=3, window_seconds=4 * UNIT, moderated=False, concurrency=5),
        DomainPolicy(hits=4, window_seconds=2 * UNIT, elastic=False, concurrency=2),
        DomainPolicy(scale=0.25),
        DomainPolicy(hits=5, window_seconds=2 * UNIT, scale=0.5, moderated=False),
        DomainPolicy(scale=0.0),
        DomainPolicy(blacklisted=True),
        DomainPolicy(hits=2, window_seconds=2 * UNIT, scope=BudgetScope.TYPE),
        DomainPolicy(hits=2, window_seconds=2 * UNIT, scope=BudgetScope.IP, moderated=False),
        DomainPolicy(hits=2, window_seconds=2 * UNIT, scope=BudgetScope.TYPE_IP, concurrency=1),
        DomainPolicy(hits=20, window_seconds=1 * UNIT, moderated=False),
    ]
)

ENDINGS = st.sampled_from(
    [
        (Outcome.FETCHED, ""),
        (Outcome.FETCHED, ""),
        (Outcome.FETCHED, ""),
        (Outcome.FAILED, "dns"),
        (Outcome.DROPPED, "robots"),
        (Outcome.RETRY, "http_503"),
        (Outcome.POSTPONED, "robots_unreachable"),
        (Outcome.RETURNED, ""),
        (Outcome.FORWARDED, ""),
        (Outcome.SWITCHED, ""),
        (Outcome.SWITCHED, ""),
    ]
)

GOES_ON = (Outcome.RETRY, Outcome.FORWARDED, Outcome.SWITCHED)

LANES = st.sampled_from([(True, False), (True, True), (False, True)])
"""What a worker takes: plain requests, requests to be rendered."""

crawls = st.tuples(st.integers(0, len(RECIPES) - 1), st.integers(0, 1))
paths = st.lists(st.integers(0, 24), min_size=1, max_size=8)
priorities = st.sampled_from([-20, 0, 0, 10, 60, 90])


class FrontierMachine(RuleBasedStateMachine):
    """One frontier, one model, one history."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.runner = asyncio.Runner()
        self.failed = False
        self.pair: Pair = self.run(stage.pair(dead_after_seconds=60.3 * UNIT))
        self.leases: dict[ModelWorker, list[Lease]] = {}
        self.restarts = 0

    def run(self, steps: Coroutine[Any, Any, T]) -> T:
        """One step; after a failure the history is over."""
        try:
            return self.runner.run(steps)
        except BaseException:
            self.failed = True
            raise

    # --- submitting -------------------------------------------------------------------------------------------------

    @initialize()
    def two_workers_and_some_work(self) -> None:
        self.run(self.pair.set_policy(None, USUAL))
        self.hire_one("shared", SPIDERS, "", (True, False))
        self.hire_one("shared", SPIDERS, "", (True, True))
        run = self.run(self.pair.open(Crawl(id=CrawlId("app", "0-0"))))
        assert run is not None
        batches = [self.batch("link", domain, 0, 0, [0, 1, 2]) for domain in DOMAINS]
        self.run(self.pair.add(run, Terms(), batches, seeds=True))

    def hire_one(self, pool: str, spiders: Sequence[str], egress: str, lanes: tuple[bool, bool]) -> None:
        plain, browser = lanes
        worker = self.run(self.pair.hire(pool=pool, spiders=spiders, egress=egress, plain=plain, browser=browser))
        self.leases[worker] = []

    def terms(self, recipe: int, kind: int) -> Terms:
        caps: dict[str, Any] = {"domain_max_pages": 2, "domain_max_pending": 3} if recipe == CAPPED else {}
        match kind:
            case 0 | 1:
                return Terms(**caps)
            case 2:
                return Terms(attrs={"owner": "someone"}, maxdepth=3, **caps)
            case _:
                return Terms(expires=self.pair.clock.now + 7.03 * UNIT, **caps)

    @rule(
        which=crawls,
        spider=st.sampled_from(SPIDERS),
        domain=st.sampled_from(DOMAINS),
        priority=priorities,
        paths=paths,
        kind=st.integers(0, 3),
        payload=st.sampled_from([None, None, b"a payload", b"\0" * 70]),
        unfiltered=st.integers(0, 5),
        fresh=st.booleans(),
        render=st.sampled_from([False, False, True]),
    )
    def submit(
        self,
        which: tuple[int, int],
        spider: str,
        domain: str,
        priority: int,
        paths: list[int],
        kind: int,
        payload: bytes | None,
        unfiltered: int,
        fresh: bool,
        render: bool,
    ) -> None:
        recipe, number = which
        crawl = Crawl(id=CrawlId("app", f"{recipe}-{number}"), **RECIPES[recipe])
        known = self.pair.model.runs.get(crawl.id)
        if known is not None and known.stopped_spiders and known.state is CrawlState.FINISHED:
            return
        if fresh and known is not None and known.state is CrawlState.RUNNING and priority:
            fresh = False
        if fresh:
            self.pair.lose_reply(None)  # test_a_fresh_open_may_be_repeated has this case
        run = self.run(self.pair.open(crawl, fresh=fresh))
        if run is None:
            return
        batch = self.batch(spider, domain, priority, 0, paths, payload)
        batch.render = render
        batch.unfiltered = unfiltered == 0 and recipe != CAPPED
        self.run(self.pair.add(run, self.terms(recipe, kind), [batch], seeds=True))

    def batch(
        self, spider: str, domain: str, priority: int, depth: int, paths: list[int], payload: bytes | None = None
    ) -> Batch:
        urls = [f"https://{domain}/{path}" for path in paths]
        prints = [fingerprint(spider, url) for url in urls]
        return Batch(spider, domain, priority, depth, urls, prints, [payload] * len(urls) if payload else None)

    @rule(
        data=st.data(),
        domains=st.lists(st.sampled_from(DOMAINS), min_size=1, max_size=3, unique=True),
        paths=paths,
        render=st.sampled_from([False, False, True]),
    )
    def outlinks(self, data: st.DataObject, domains: list[str], paths: list[int], render: bool) -> None:
        """What a page in somebody's hands links to."""
        held = [lease for worker in self.leases for _, _, lease in worker.held.values()]
        if held:
            parent = data.draw(st.sampled_from(held))
            batches = [
                self.batch(parent.spider, domain, parent.priority - 10, parent.depth + 1, paths) for domain in domains
            ]
            for batch in batches:
                batch.render = render
            self.run(self.pair.add(self.pair.model.run_of(parent.run), parent.terms, batches))

    # --- working ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.leases) < 5)
    @rule(
        pool=st.sampled_from(["shared", "shared", "own"]),
        spiders=st.sampled_from([SPIDERS, ["link"], ["other"]]),
        egress=st.sampled_from(["", "192.0.2.1"]),
        lanes=LANES,
    )
    def hire(self, pool: str, spiders: list[str], egress: str, lanes: tuple[bool, bool]) -> None:
        self.hire_one(pool, spiders, egress, lanes)

    def some_worker(self, data: st.DataObject, *, alive: bool = True, busy: bool = False) -> ModelWorker | None:
        """`busy`: one that holds requests, if there is one."""
        there = [worker for worker in self.leases if worker.alive is alive]
        there = [worker for worker in there if busy and worker.held] or there
        return there[data.draw(st.integers(0, len(there) - 1))] if there else None

    @rule(data=st.data(), limit=st.integers(1, 9))
    def lease(self, data: st.DataObject, limit: int) -> None:
        if (worker := self.some_worker(data)) is not None:
            self.leases[worker] += self.run(self.pair.lease(worker, limit=limit))

    @rule(data=st.data())
    def lease_what_is_due(self, data: st.DataObject) -> None:
        if (worker := self.some_worker(data)) is not None:
            self.leases[worker] += self.run(self.pair.lease_all_due(worker))

    @rule(
        data=st.data(),
        endings=st.lists(ENDINGS, min_size=1, max_size=6),
        delay=st.sampled_from([0.0, 1.5, 20.0]),
        payload=st.sampled_from([None, b"replaced"]),
        drops=st.sampled_from([None, {"offsite": 2, "depth": 1}]),
    )
    def settle(
        self,
        data: st.DataObject,
        endings: list[tuple[Outcome, str]],
        delay: float,
        payload: bytes | None,
        drops: dict[str, int] | None,
    ) -> None:
        if (worker := self.some_worker(data, busy=True)) is None:
            return
        if not worker.held:  # else hardly any history would settle
            self.leases[worker] += self.run(self.pair.lease(worker, limit=9))
        held = [lease for _, _, lease in worker.held.values()]
        settlements = [
            Settlement(lease, outcome, reason, delay * UNIT, payload if outcome in GOES_ON else None, drops)
            for lease, (outcome, reason) in zip(held, endings, strict=False)
        ]
        self.run(self.pair.settle(worker, settlements))

    @rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        """What was settled before, in whatever way: nothing happens."""
        if (worker := self.some_worker(data)) is not None:
            old = [lease for lease in self.leases[worker] if (lease.shard, lease.id) in worker.settled]
            self.run(self.pair.settle(worker, [Settlement(lease, Outcome.FAILED, "again") for lease in old[-5:]]))

    @rule(data=st.data(), path=st.integers(0, 40))
    def hop(self, data: st.DataObject, path: int) -> None:
        if (worker := self.some_worker(data, busy=True)) is None or not worker.held:
            return
        _, _, lease = data.draw(st.sampled_from(list(worker.held.values())))
        target = fingerprint(lease.spider, f"https://{lease.domain}/{path}")
        answer = self.run(self.pair.hop(worker, lease, fingerprint=target, payload=b"chain %d" % path))
        if answer is not RedirectPermit.GRANTED:
            outcome = Outcome.FORWARDED if answer is RedirectPermit.WAIT else Outcome.DROPPED
            reason = "" if answer is RedirectPermit.WAIT else "duplicate"
            self.run(self.pair.settle(worker, [Settlement(lease, outcome, reason)]))

    # --- steering ---------------------------------------------------------------------------------------------------

    @rule(
        which=crawls,
        spider=st.sampled_from([None, None, *SPIDERS]),
        state=st.sampled_from([CrawlState.STOPPED, CrawlState.EXPIRED]),
    )
    def stop(self, which: tuple[int, int], spider: str | None, state: CrawlState) -> None:
        crawl = CrawlId("app", f"{which[0]}-{which[1]}")
        run = self.pair.model.runs.get(crawl)
        if run is not None and run.state is not CrawlState.FINISHED:
            self.run(self.pair.stop(crawl, spider=spider, state=state))

    @rule(domain=st.sampled_from([*DOMAINS, *DOMAINS, None]), policy=POLICIES)
    def set_policy(self, domain: str | None, policy: DomainPolicy | None) -> None:
        if domain is None and (policy is None or policy.hits is None):
            policy = USUAL
        self.run(self.pair.set_policy(domain, policy))

    @rule(domain=st.sampled_from(DOMAINS), seconds=st.sampled_from([0.5, 3.0, 30.0]))
    def block(self, domain: str, seconds: float) -> None:
        self.run(self.pair.block(domain, seconds * UNIT))

    @rule(domain=st.sampled_from(DOMAINS), seconds=st.sampled_from([2.0, 5.0]))
    def ask_delay(self, domain: str, seconds: float) -> None:
        self.run(self.pair.ask_delay(domain, seconds * UNIT))

    # --- misfortune -------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.125, 0.5, 1.0, 1.0, 2.5, 8.0, 25.0]))
    def pass_time(self, seconds: float) -> None:
        self.run(self.pair.pass_time(seconds * UNIT))

    @rule()
    def reclaim(self) -> None:
        self.run(self.pair.reclaim())

    @rule()
    def repair(self) -> None:
        self.run(self.pair.repair())

    @rule(data=st.data(), leases_first=st.booleans())
    def kill(self, data: st.DataObject, leases_first: bool) -> None:
        if (worker := self.some_worker(data)) is None:
            return
        if leases_first:
            self.leases[worker] += self.run(self.pair.lease(worker, limit=4))
        self.pair.kill(worker)

    @rule(data=st.data(), wait=st.booleans())
    def come_back(self, data: st.DataObject, wait: bool) -> None:
        """A worker that said nothing for a while; often for so long that it was taken for dead."""
        if (worker := self.some_worker(data, alive=False)) is None:
            return
        if wait:
            self.run(self.pair.pass_time(2 * self.pair.model.dead_after_seconds))
        self.run(self.pair.reclaim())
        if worker.stale:
            old = [lease for lease in self.leases[worker] if (lease.shard, lease.id) not in worker.settled]
            self.run(self.pair.settle(worker, [Settlement(lease, Outcome.FETCHED) for lease in old]))
        back = self.run(self.pair.wake(worker))
        if back is not worker:
            del self.leases[worker]
            self.leases[back] = []

    @rule(nth=st.integers(0, 3))
    def lose_reply(self, nth: int) -> None:
        self.pair.lose_reply(nth)

    @rule()
    def forget_scripts(self) -> None:
        self.run(self.stage.flush_scripts())

    @precondition(lambda self: self.restarts < 1)
    @rule(luck=st.integers(0, 9))
    def kill_server(self, luck: int) -> None:
        """Seldom, because it takes long."""
        if luck == 0:
            self.restarts += 1
            self.run(self.stage.kill_server())

    # --- judging ----------------------------------------------------------------------------------------------------

    @invariant()
    def everything_adds_up(self) -> None:
        self.run(self.pair.check())

    def teardown(self) -> None:
        try:
            if not self.failed:
                self.pair.lose_reply(None)
                self.run(self.pair.drain())
                self.run(self.stage.check_nothing_stays(self.pair))
        finally:
            self.runner.run(self.stage.leave(self.pair))
            self.runner.close()


@pytest.mark.timeout(0)
@pytest.mark.parametrize("shards", [1, 5], ids=["single", "sharded"])
def test_random_histories(stage_of: Any, shards: int) -> None:
    """Whatever happens in whatever order, the invariants hold after every step, and in the end everything is done."""
    run_state_machine_as_test(
        lambda: FrontierMachine(stage_of(shards)),  # type: ignore[arg-type]  # documented: anything that makes one
        settings=settings(
            max_examples=2000 if THOROUGH else 20,
            stateful_step_count=80 if THOROUGH else 40,
            derandomize=not THOROUGH,
            database=None,
            deadline=None,
            print_blob=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
