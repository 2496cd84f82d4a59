"""Stalls workers, store, disk and network in turn; the web's log shows whether requests are evenly spaced again."""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.fakeweb.site import Site as WebSite
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import DomainPolicy, Terms
from gossamer_fakeweb.log import domain_of, is_page
from tests.chaos.crew import Crew
from tests.chaos.schedule import Fault as StoreFault
from tests.chaos.schedule import Kind
from tests.chaos.stores import SingleStore
from tests.chaos.tcp_proxy import Network
from tests.politeness.checker import Change, check
from tests.politeness.rules import rule_of
from tests.politeness.verdict import hit_of
from tests.servers import crawls
from tests.servers.fleet import Fleet, Member
from tests.servers.punctual import make_punctual
from tests.servers.small_disk import CannotMount, full, mounted
from tests.servers.valkey import standalone

WORKERS = 3
HITS, WINDOW_SECONDS = 20, 1.0
EVEN_GAP = WINDOW_SECONDS / HITS
USED_AT_LEAST = 0.95
HEARTBEAT_SECONDS = 2.0
STALL_SECONDS = 4.0
_CALM_SECONDS = 8.0
"""From the end of a stall to the next one."""
_BACK_SECONDS = 3.0
"""So long after a stall the crawl is to be back at its full rate: lost connections are tried again in pauses."""
_LATENCY_MS = 20.0
_START_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_DISK = "256m"


class Stall(StrEnum):
    """What stands still."""

    FREEZE_WORKER = "one worker is frozen"
    FREEZE_WORKERS = "all workers are frozen"
    PAUSE_STORE = "the frontier is paused"
    RESTART_STORE = "the frontier is killed and restarted"
    FULL_DISK = "the disk of the outputs is full"
    KILL_WORKER = "a worker is killed and replaced"
    CUT_NETWORK = "the network between workers and frontier lets nothing through"
    SLOW_NETWORK = "the network between one worker and the frontier is slow"
    SUSPEND = "workers and frontier are frozen"


@dataclass(frozen=True, slots=True)
class Calm:
    """The time between a stall and the next one."""

    after: Stall | None
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Judged:
    """What a domain's log shows."""

    domain: str
    requests: int
    faults: list[str]
    used: list[float]
    """The share of the budget that was used in each calm."""


def bursts(starts: Sequence[float], *, even_gap: float = EVEN_GAP) -> list[tuple[float, ...]]:
    """Requests in a row, more than two, each less than a third of the even gap after the one before it."""
    found: list[tuple[float, ...]] = []
    row = list(starts[:1])
    for before, after in pairwise(starts):
        if after - before < even_gap / 3:
            row.append(after)
            continue
        if len(row) > 2:
            found.append(tuple(row))
        row = [after]
    return [*found, tuple(row)] if len(row) > 2 else found


def judge(domain: str, policy: DomainPolicy, web: FakeWeb, calms: Sequence[Calm], *, most_in_a_row: int) -> Judged:
    """Hold one domain's log against its budget, its even spacing and what it was allowed between the stalls."""
    records = [record for record in web.log() if is_page(record) and domain_of(record.host) == domain]
    hits = sorted((hit_of(record, "link") for record in records), key=lambda hit: hit.at)
    starts = [hit.at for hit in hits]
    checked = check([Change(rule_of(policy, DomainPolicy()))], hits)
    origin = calms[0].begin
    faults = [f"{domain}: {fault.what} at {fault.at - origin:.2f} s, {fault.found:g}" for fault in checked.faults]
    faults += [
        f"{domain}: a burst of {len(row)} at {row[0] - origin:.2f} s in {row[-1] - row[0]:.3f} s"
        for row in bursts(starts)
        if len(row) > most_in_a_row
    ]
    used = []
    for calm in calms:
        count = sum(calm.begin <= at < calm.end for at in starts)
        used.append(count / (HITS / WINDOW_SECONDS * (calm.end - calm.begin)))
    return Judged(domain, len(starts), faults, used)


async def run_stalls(
    stalls: Sequence[Stall],
    *,
    domains: int,
    say: Callable[[str], None],
    calm_seconds: float = _CALM_SECONDS,
    used_at_least: float = USED_AT_LEAST,
    most_in_a_row: int = 2,
) -> list[str]:
    """What is wrong; empty: nothing. Every other domain has no elastic catch-up."""
    policies = {
        f"site{number}.test": DomainPolicy(hits=HITS, window_seconds=WINDOW_SECONDS, elastic=number % 2 == 0)
        for number in range(domains)
    }
    seconds = (len(stalls) + 1) * (STALL_SECONDS + _BACK_SECONDS + calm_seconds) + _START_SECONDS
    pages = int(seconds * HITS / WINDOW_SECONDS)
    spec = WebSpec(seed=1, hosts=domains, pages=pages, page_bytes=0, out_degree=1, latency_ms=_LATENCY_MS)
    with FakeWeb.start(spec) as web:
        make_punctual(web.pid)
        async with _stage(web) as stage:
            for domain, policy in policies.items():
                await stage.frontier.set_domain_policy(domain, policy)
            site = WebSite(web.spec, port=web.port)
            for number in range(domains):
                urls = [site.url(number, page) for page in range(1, pages)]
                await crawls.open_crawl(stage.frontier, urls, Terms(maxdepth=0))
            calms = await stage.play(stalls, calm_seconds, say)
        judged = [judge(name, policy, web, calms, most_in_a_row=most_in_a_row) for name, policy in policies.items()]
    faults = list(stage.troubles)
    for one in judged:
        faults += one.faults
        say(f"{one.domain}: {one.requests} requests; used {' '.join(f'{share:.1%}' for share in one.used)}")
        for calm, share in zip(calms, one.used, strict=True):
            if share < used_at_least:
                faults.append(f"{one.domain}: used {share:.1%} after {calm.after or 'the start'}")
    return faults


@dataclass(slots=True)
class _Stage:
    web: FakeWeb
    store: SingleStore
    pid: Callable[[], int]
    crew: Crew
    frontier: ValkeyFrontier
    disk: Path
    troubles: list[str]

    async def play(self, stalls: Sequence[Stall], calm_seconds: float, say: Callable[[str], None]) -> list[Calm]:
        for _ in range(WORKERS):
            self.crew.add()
        async with asyncio.timeout(_START_SECONDS):
            while True:
                if len({record.agent for record in await asyncio.to_thread(self.web.log)}) == WORKERS:
                    break
                await asyncio.sleep(_LOOK_SECONDS)
        calms = []
        for stall in (None, *stalls):
            if stall is not None:
                say(f"{stall}, for {STALL_SECONDS:g} s")
                await self._do(stall)
            await asyncio.sleep(_BACK_SECONDS)
            begin = time.monotonic()
            await asyncio.sleep(calm_seconds)
            calms.append(Calm(stall, begin, time.monotonic()))
        await asyncio.to_thread(self.crew.leave)
        self.troubles += self.crew.missing(may_end=False)
        return calms

    async def _until_silent(self) -> None:
        """Return when the workers hold as much as they may, and fetch nothing more."""
        async with asyncio.timeout(_START_SECONDS):
            before, seen = -1, 0
            while seen != before:
                await asyncio.sleep(STALL_SECONDS / 2)
                before, seen = seen, (await asyncio.to_thread(self.web.stats)).requests

    async def _do(self, stall: Stall) -> None:
        workers = [hand for hand in self.crew.hands if hand.member.alive]
        links = [hand.link for hand in workers]
        match stall:
            case Stall.FREEZE_WORKER | Stall.FREEZE_WORKERS | Stall.SUSPEND:
                for hand in workers[:1] if stall is Stall.FREEZE_WORKER else workers:
                    hand.member.freeze()
                if stall is Stall.SUSPEND:
                    os.kill(self.pid(), signal.SIGSTOP)
                await asyncio.sleep(STALL_SECONDS)
                if stall is Stall.SUSPEND:
                    os.kill(self.pid(), signal.SIGCONT)
                for hand in workers:
                    hand.member.thaw()
            case Stall.PAUSE_STORE:
                await self.store.inflict(StoreFault(0.0, Kind.FREEZE_STORE, 0.0, STALL_SECONDS))
            case Stall.RESTART_STORE:
                await self.store.inflict(StoreFault(0.0, Kind.KILL_STORE, 0.0, 0.5))
            case Stall.FULL_DISK:
                with full(self.disk):
                    await self._until_silent()
            case Stall.KILL_WORKER:
                await asyncio.to_thread(self.crew.kill, workers[0])
                await asyncio.sleep(STALL_SECONDS)
            case Stall.CUT_NETWORK:
                for link in links:
                    link.stall()
                await asyncio.sleep(STALL_SECONDS)
                for link in links:
                    link.resume()
            case Stall.SLOW_NETWORK:
                links[0].slow(0.1)
                await asyncio.sleep(STALL_SECONDS)
                links[0].slow(0.0)


@contextlib.asynccontextmanager
async def _stage(web: FakeWeb) -> AsyncIterator[_Stage]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stalls-")))
        disk = folder / "disk"
        try:
            stack.enter_context(mounted(disk, _DISK))
        except CannotMount:
            disk.mkdir(exist_ok=True)
        server = stack.enter_context(standalone(tcp=True, options={"appendfsync": "everysec"}))
        network = stack.enter_context(Network("127.0.0.1", server.port))
        environment = {"GOSSAMER_WORKER__HEARTBEAT": str(HEARTBEAT_SECONDS)}
        fleet = stack.enter_context(Fleet(folder, resolve=web.resolve_overrides(), environment=environment))
        store = SingleStore(server, network)

        def start(place: str, name: str, address: str) -> Member:
            return fleet.start(frontier=address, name=name, output=disk / f"{place}.jsonl")

        frontier = await ValkeyFrontier.connect(server.address, dead_after_seconds=HEARTBEAT_SECONDS)
        try:
            yield _Stage(web, store, lambda: server.pid, Crew(fleet, store, start), frontier, disk, [])
        finally:
            await frontier.close()
