"""One run: a web, a store, workers, the faults of its seed; then the evidence and the verdict."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gossamer.errors import FrontierError, GossamerError
from gossamer.fakeweb import FakeWeb, Robots, WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, DomainPolicy
from gossamer_fakeweb import expected, fetched
from tests.chaos import schedule
from tests.chaos.acts import Acts
from tests.chaos.browsers import BrowserFolder
from tests.chaos.checker import TWICE_AT_MOST, Evidence, Verdict, given_up_by_browsers, judge
from tests.chaos.crew import Crew
from tests.chaos.lanes import BrowserLane, FileLane, Lane, ScrapyLane, ServiceLane, Stage
from tests.chaos.schedule import Kind, Plan
from tests.chaos.stores import Opener, Store
from tests.chaos.tcp_proxy import Link, Network
from tests.servers import crawls
from tests.servers.fleet import Fleet
from tests.servers.punctual import make_punctual

HEARTBEAT_SECONDS = 2.0
HOSTS = 20
_RENDERED_HOSTS = 6
_SCRAPY_PAGES_A_SECOND = 120
_STYLE = "/style.css"
"""What pages load besides: no page."""
_BROWSER_SETTINGS = {
    "GOSSAMER_BROWSER__SECONDS": "5",
    # A proxy that is away must not use up the attempts of a page.
    "GOSSAMER_FETCH__RETRIES": "10",
    "GOSSAMER_FETCH__RETRY_BASE": "0.2",
}
_LOOK_SECONDS = 0.05
_LATE_SECONDS = 0.03
_STUCK_SECONDS = 90.0
"""Without a single request to the web a run is stuck: far longer than any fault lasts."""


class MakePlan(Protocol):
    """Makes the plan of a seed."""

    def __call__(self, seed: int, *, store_kinds: Collection[Kind], dead_after_seconds: float) -> Plan: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    verdict: Verdict
    done: Sequence[Kind]
    """The faults that happened, in order."""
    seconds: float
    folder: Path


def hosts_of(plan: Plan) -> int:
    """Number of hosts. A browser's tab is used again within a site, so few hosts take less CPU."""
    return _RENDERED_HOSTS if plan.lane is schedule.Lane.BROWSER else HOSTS


def web_spec(plan: Plan, pages: int) -> WebSpec:
    """A web of about so many pages with everything in it that a crawl must cope with while it is shot at."""
    return WebSpec(
        seed=plan.seed,
        hosts=hosts_of(plan),
        pages=max(2, pages // hosts_of(plan)),
        out_degree=12,
        page_bytes=2000,
        cross_host_share=0.1,
        latency_ms=5.0,
        errors_once=True,
        refuse=0.002,
        reset=0.002,
        server_error=0.002,
        not_found=0.01,
        redirect_same=0.01,
        redirect_cross=0.01,
        # Scrapy takes a robots.txt that it could not get for one that allows everything.
        robots=(Robots.NONE, Robots.ALLOW, *([] if plan.lane is schedule.Lane.SCRAPY else [Robots.DISALLOW])),
        scripts=plan.lane is schedule.Lane.BROWSER,
    )


async def run(
    seed: int,
    folder: Path,
    *,
    pages: int,
    pages_a_second: int,
    opener: Opener,
    kinds: frozenset[Kind],
    shards: int = 1,
    twice_at_most: float = TWICE_AT_MOST,
    make_plan: MakePlan = schedule.make_plan,
) -> Outcome:
    """`folder`: empty; everything of the run stays there, its story in `story.txt`. `kinds`: of the store's faults;
    `shards`: of the frontier.
    Raises nothing for what goes wrong with the crawl: that is in the verdict."""
    plan = make_plan(seed, store_kinds=kinds, dead_after_seconds=HEARTBEAT_SECONDS)
    began = time.monotonic()
    data = folder / "store"
    data.mkdir(parents=True)
    with (folder / "story.txt").open("w") as story:

        def say(what: str) -> None:
            story.write(f"{time.monotonic() - began:7.2f} {time.monotonic():.2f} {what}\n")
            story.flush()

        say(str(plan))
        with FakeWeb.start(web_spec(plan, pages), log_file=folder / "web.jsonl") as web:
            make_punctual(web.pid)
            async with opener(data, plan.fsync) as store:
                hits = max(1, _pace(plan, pages_a_second) // hosts_of(plan))
                play = _Play(plan, folder, web, store, hits, say, shards)
                evidence = await play.play()
        verdict = judge(evidence, twice_at_most=twice_at_most)
        for fault in verdict.faults:
            say(f"FAULT {fault}")
        causes = ", ".join(f"{count} by {cause}" for cause, count in verdict.explained.most_common())
        say(
            f"{verdict.pages} pages, {verdict.twice} fetched twice ({causes or 'none'}), "
            f"{verdict.forgiven} requests forgiven, standstill {verdict.standstill}"
        )
    return Outcome(plan, verdict, play.acts.done, time.monotonic() - began, folder)


class _Play:
    def __init__(
        self,
        plan: Plan,
        folder: Path,
        web: FakeWeb,
        store: Store,
        hits: int,
        say: Callable[[str], None],
        shards: int,
    ) -> None:
        self._shards = shards
        self._plan = plan
        self._web = web
        self._store = store
        self._hits = hits
        self._say = say
        self._troubles: list[str] = []
        self._lags: list[tuple[float, float]] = []
        environment = {
            "GOSSAMER_WORKER__HEARTBEAT": str(HEARTBEAT_SECONDS),
            "GOSSAMER_TOPICS__PER_APP": "false",
            "GOSSAMER_CRAWL__IDLE_SECONDS": "1",
        }
        self._ways = contextlib.ExitStack()
        self._proxy: Link | None = None
        self._browsers: BrowserFolder | None = None
        if plan.lane is schedule.Lane.BROWSER:
            self._browsers = self._ways.enter_context(BrowserFolder())
            environment |= _BROWSER_SETTINGS | {"TMPDIR": str(self._browsers.path)}
        if plan.proxy:
            # The web itself is a proxy: it takes URLs with their host.
            self._proxy = self._ways.enter_context(Network("127.0.0.1", web.port)).link()
            environment["GOSSAMER_FETCH__PROXY"] = f"http://127.0.0.1:{self._proxy.port}"
        home = folder / "fleet"
        home.mkdir()
        self._fleet = Fleet(home, resolve=web.resolve_overrides(), environment=environment)
        self._crew: Crew
        self.acts: Acts

    async def play(self) -> Evidence:
        frontier = await ValkeyFrontier.connect(
            self._store.address, shards=self._shards, dead_after_seconds=HEARTBEAT_SECONDS
        )
        stage = Stage(self._web, self._store, self._fleet, frontier)
        lane = _lane(stage, self._plan)
        stage.crew = self._crew = Crew(self._fleet, self._store, lane.start, alone=self._browsers is not None)
        self.acts = Acts(self._crew, self._store, self._say, proxy=self._proxy)
        try:
            with self._fleet:
                await frontier.set_domain_policy(
                    None, DomainPolicy(hits=self._hits, window_seconds=1.0, moderated=self._plan.moderated)
                )
                await lane.begin()
                for _ in range(self._plan.workers):
                    self._crew.add()
                await self._attend(frontier, lane)
                ends = await lane.ends()
                await asyncio.to_thread(self._crew.leave)
                self._troubles += self._crew.missing(may_end=lane.workers_end)
                if self._browsers is not None:
                    self._troubles += await asyncio.to_thread(self._browsers.left)
            return await self._gather(frontier, lane, ends)
        finally:
            await lane.close()
            await frontier.close()
            self._ways.close()

    async def _attend(self, frontier: ValkeyFrontier, lane: Lane) -> None:
        """Until the crawl is over and every fault too."""
        outcome = await asyncio.to_thread(expected, self._web.site)
        total = len(fetched(outcome))
        left = list(self._plan.faults)
        moved, seen = time.monotonic(), 0
        async with asyncio.TaskGroup() as group:
            while True:
                asked = time.monotonic()
                requests = (await asyncio.to_thread(self._web.stats)).requests
                self._note_lag(asked)
                if requests != seen:
                    moved, seen = time.monotonic(), requests
                while left and left[0].at <= requests / total:
                    group.create_task(self.acts.do(left.pop(0)))
                    group.create_task(_patiently(lane))
                if await self._is_over(frontier):
                    self.acts.is_over = True
                    break
                if time.monotonic() - moved > _STUCK_SECONDS:
                    self._troubles.append(f"stuck after {requests:,} of {total:,} requests")
                    break
                slept = time.monotonic()
                await asyncio.sleep(_LOOK_SECONDS)
                self._note_lag(slept + _LOOK_SECONDS)
        longest = max((end - begin for begin, end in self._lags), default=0.0)
        self._say(f"over; {len(self._lags)} times late, at worst {longest:.2f} s")

    def _note_lag(self, due: float) -> None:
        """What should have been done by then is done now."""
        now = time.monotonic()
        if now - due > _LATE_SECONDS:
            self._lags.append((due, now))

    @staticmethod
    async def _is_over(frontier: ValkeyFrontier) -> bool:
        try:
            async with asyncio.timeout(1.0):
                info = await frontier.crawl_info(crawls.CRAWL)
                return info is not None and (info.state is not CrawlState.RUNNING or info.run > 1)
        except (FrontierError, TimeoutError):
            return False

    async def _gather(self, frontier: ValkeyFrontier, lane: Lane, ends: Sequence[str]) -> Evidence:
        info = await crawls.info(frontier)
        kept, unreadable = await lane.kept()
        endless = await crawls.left_behind(self._store.address) if info.state is CrawlState.FINISHED else []
        log = [record for record in await asyncio.to_thread(self._web.log) if record.path != _STYLE]
        return Evidence(
            expected=expected(self._web.site, given_up=given_up_by_browsers(log, kept, self.acts.blows)),
            log=log,
            kept=kept,
            unreadable=unreadable,
            state=info.state.value if info.run == 1 else CrawlState.FINISHED.value,
            ends=ends,
            fetched=None if self._plan.lane is schedule.Lane.SCRAPY else info.total().fetched,
            endless=endless,
            deaths=self._crew.deaths,
            silences=self.acts.silences,
            blows=self.acts.blows,
            # What the proxy held up comes to the web at once.
            lags=[*self._lags, *((blow.begin, blow.end) for blow in self.acts.blows if blow.kind in schedule.PROXY)],
            thaws=self.acts.thaws,
            dead_after_seconds=HEARTBEAT_SECONDS,
            # Scrapy sends when its reactor comes round to it.
            budget=None if self._plan.lane is schedule.Lane.SCRAPY else (self._hits, 1.0),
            rendered=self._plan.lane is schedule.Lane.BROWSER,
            troubles=[*self._troubles, *self._store.check()],
        )


def _lane(stage: Stage, plan: Plan) -> Lane:
    if plan.lane is schedule.Lane.BROWSER:
        return BrowserLane(stage, plan)
    if plan.lane is schedule.Lane.FILES:
        return FileLane(stage, plan)
    return ServiceLane(stage, plan) if plan.lane is schedule.Lane.SERVICE else ScrapyLane(stage)


def _pace(plan: Plan, pages_a_second: int) -> int:
    """Scrapy takes twenty times the CPU: what it cannot reach would leave the budgets idle."""
    return min(pages_a_second, _SCRAPY_PAGES_A_SECOND) if plan.lane is schedule.Lane.SCRAPY else pages_a_second


async def _patiently(lane: Lane) -> None:
    """What comes in while the store is away comes in when it is back."""
    while True:
        try:
            return await lane.more()
        except GossamerError:
            await asyncio.sleep(0.2)
