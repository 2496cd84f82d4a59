"""One run: a web, a store, a service, workers; an operator who changes policies, blows; then the evidence."""

import asyncio
import contextlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.fakeweb.site import Site as WebSite
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import DomainPolicy, Terms
from gossamer.telemetry import logs
from tests.politeness.crew import Crew
from tests.politeness.operator import Operator, timelines
from tests.politeness.plan import LATENCY_MS, SPIDERS, Blow, Plan
from tests.politeness.stall import Stall
from tests.politeness.verdict import Evidence
from tests.politeness.wire import Wire
from tests.servers import crawls
from tests.servers.fleet import Fleet
from tests.servers.punctual import make_punctual
from tests.servers.service import Up
from tests.servers.valkey import Server, standalone

HEARTBEAT_SECONDS = 2.0
_LONGER = 1.15
"""By so much a run may last longer than planned, to see all the requests it is to see."""
_LOOK_SECONDS = 0.2
_FEED_AT_ONCE = 5000
_START_SECONDS = 120.0

Say = Callable[[str], None]


def web_spec(plan: Plan) -> WebSpec:
    """A host for each domain, with pages that cost nothing: odd ones for one spider, even ones for the other."""
    pages = max(plan.urls(site) for site in plan.sites) * len(SPIDERS) + 4
    return WebSpec(
        seed=plan.seed, hosts=len(plan.sites), pages=pages, page_bytes=0, out_degree=1, latency_ms=LATENCY_MS,
        redirect_same=0.01,
    )  # fmt: skip


async def run(plan: Plan, *, requests: int, say: Say, every_seconds: float = 10.0) -> Evidence:
    """`say` hears how it goes, a line each `every_seconds`. Ends when the web has seen so many requests, or a little
    later than planned."""
    with (
        tempfile.TemporaryDirectory(prefix="polite-") as name,
        FakeWeb.start(web_spec(plan)) as web,
        standalone(tcp=True) as server,
        _service(Path(name), server) as service,
        Stall() as stall,
        Wire(web.port) as wire,
        Fleet(Path(name), resolve=web.resolve_overrides(), environment=_environment()) as fleet,
    ):
        make_punctual(web.pid)
        operator = await Operator.open(service, server.address)
        frontier = await ValkeyFrontier.connect(server.address, dead_after_seconds=HEARTBEAT_SECONDS)
        try:
            await operator.begin(plan)
            await _feed(frontier, plan, WebSite(web.spec, port=web.port))
            say(f"{plan.workers} workers, {len(plan.sites)} domains, {plan.seconds:.0f} s; policies set, crawls fed")
            crew = Crew(fleet, server, plan)
            crew.start()
            await _until_all_fetch(web, crew)
            begin = time.monotonic()
            troubles: list[str] = []
            async with asyncio.TaskGroup() as group:
                background = [
                    group.create_task(_turns(operator, plan, begin)),
                    *(group.create_task(_strike(crew, blow, begin)) for blow in plan.blows),
                ]
                await _attend(web, plan, requests, begin, crew, operator, say, every_seconds)
                end = time.monotonic()
                for task in background:
                    task.cancel()
            for hand in crew.all:
                hand.member.thaw()
                if hand.gone is None and not hand.member.alive:
                    troubles.append(f"{hand.member.name} ended by itself: {hand.member.log[-500:]}")
            await asyncio.to_thread(fleet.drain)
            sent_late = _sent_late(crew)
            troubles += await _compare(frontier, plan, operator)
            log = await asyncio.to_thread(web.log)
        finally:
            await frontier.close()
            await operator.close()
    first_seen: dict[str, float] = {}
    for record in log:
        first_seen.setdefault(record.agent.partition("/")[0], record.started)
    return Evidence(
        plan=plan,
        log=log,
        timelines=timelines(plan, operator.told),
        span=(begin, end),
        holds=crew.holds,
        outages=crew.outages(first_seen, end),
        stall_seconds=stall.longest_seconds,
        troubles=troubles,
        arrivals=wire.arrivals,
        sent_late=sent_late,
    )


def _environment() -> dict[str, str]:
    return {
        "GOSSAMER_WORKER__HEARTBEAT": str(HEARTBEAT_SECONDS),
        "GOSSAMER_WORKER__CONCURRENCY": "64",
        "GOSSAMER_LOG_LEVEL": "warning",
    }


_SENT_LATE = re.compile(rf"{logs.SENT_LATE} (\S+) by (\d+\.\d+) s")


def _sent_late(crew: Crew) -> dict[str, float]:
    """By URL: for how long the workers stood still while they sent a request, as they say."""
    return {url: float(seconds) for hand in crew.all for url, seconds in _SENT_LATE.findall(hand.member.log)}


@contextlib.contextmanager
def _service(folder: Path, server: Server) -> Iterator[Up]:
    """The services and the REST API, without workers, on this frontier."""
    home = folder / "service"
    home.mkdir()
    service = Up(home, ["serve", "--port", "0", "--frontier", server.address], environment={})
    try:
        service.start()
        yield service
    finally:
        service.kill()


async def _feed(frontier: ValkeyFrontier, plan: Plan, web: WebSite) -> None:
    for place, spider in enumerate(SPIDERS):
        urls: list[str] = []
        for number, site in enumerate(plan.sites):
            count = plan.urls(site)
            urls += (web.url(number, 2 * page + place) for page in range(1, count + 1))
            while len(urls) >= _FEED_AT_ONCE or (urls and number == len(plan.sites) - 1):
                part, urls = urls[:_FEED_AT_ONCE], urls[_FEED_AT_ONCE:]
                await crawls.open_crawl(frontier, part, Terms(maxdepth=0), spider=spider)


async def _until_all_fetch(web: FakeWeb, crew: Crew) -> None:
    names = {hand.member.name for hand in crew.all}
    async with asyncio.timeout(_START_SECONDS):
        while True:
            seen = {record.agent.partition("/")[0] for record in await asyncio.to_thread(web.log)}
            if names <= seen:
                return
            await asyncio.sleep(_LOOK_SECONDS)


async def _turns(operator: Operator, plan: Plan, begin: float) -> None:
    for turn in plan.turns:
        await asyncio.sleep(max(0.0, begin + turn.at - time.monotonic()))
        # Not cut short by the run's end: what was asked must be known to be in force or not.
        await asyncio.shield(asyncio.ensure_future(operator.make(turn)))


async def _strike(crew: Crew, blow: Blow, begin: float) -> None:
    await asyncio.sleep(max(0.0, begin + blow.at - time.monotonic()))
    await crew.strike(blow)


async def _attend(
    web: FakeWeb,
    plan: Plan,
    requests: int,
    begin: float,
    crew: Crew,
    operator: Operator,
    say: Say,
    every_seconds: float,
) -> None:
    told, before = begin, 0
    while True:
        now = time.monotonic()
        seen = (await asyncio.to_thread(web.stats)).requests
        if (seen >= requests and now - begin >= plan.seconds) or now - begin >= plan.seconds * _LONGER:
            return
        if now - told >= every_seconds:
            rate = (seen - before) / (now - told)
            say(
                f"{now - begin:5.0f} s  {seen:>8,} requests, {rate:5.0f} a second; "
                f"{len(operator.told)} policies changed, {len(crew.struck)} blows"
            )
            told, before = now, seen
        await asyncio.sleep(_LOOK_SECONDS)


async def _compare(frontier: ValkeyFrontier, plan: Plan, operator: Operator) -> list[str]:
    """Whether the cluster has the policies that it was told, all of them."""
    default, policies = await frontier.domain_policies()
    wanted: dict[str | None, DomainPolicy] = {site.name: site.policy for site in plan.sites}
    wanted[None] = plan.default
    wanted.update({told.domain: told.after for told in operator.told})
    there: dict[str | None, DomainPolicy] = {**policies, None: default}
    found = []
    for name, policy in wanted.items():
        now = there.get(name, DomainPolicy())
        if _plain(now) != _plain(policy):
            found.append(f"{name or 'the default'} has the policy {now}, and was told {policy}")
    return found


def _plain(policy: DomainPolicy) -> DomainPolicy:
    """Not blacklisted, said or not."""
    fields = {name: getattr(policy, name) for name in policy.__struct_fields__}
    return DomainPolicy(**{**fields, "blacklisted": policy.blacklisted or None})
