"""Builds the parts from settings: frontier, resolver, clients, outputs, worker."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gossamer.commit.committer import Committer
from gossamer.commit.retrier import Retrier
from gossamer.control.stats import Counters
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.client import HttpClient
from gossamer.fetch.exchange import ResponseLimits, Timeouts
from gossamer.fetch.pool import LostConnections
from gossamer.fetch.proxy import parse_proxy
from gossamer.fetch.resolve import Resolver
from gossamer.fetch.robots import RobotsService
from gossamer.frontier.base import Lane
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import SHARED, Run, Terms
from gossamer.policy.robots import RobotsPolicy
from gossamer.settings import Settings
from gossamer.sinks.append import FileSink, Missing
from gossamer.sinks.base import Fanout, Sink
from gossamer.sinks.bus import BusSink
from gossamer.sinks.open import forget_ledgers, open_sinks
from gossamer.telemetry import logs as names
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import Tally
from gossamer.wiring.plan import address_service, check_asked
from gossamer.worker.access import ANSWER_BYTES, Access, EgressMonitor, FrontierRobotsStore, HttpClients, RobotsWaits
from gossamer.worker.context import Context, Contexts, SeenCache, SharedMemory
from gossamer.worker.fetching import Fetcher
from gossamer.worker.page import PageReader
from gossamer.worker.records import StatsReporter
from gossamer.worker.spider import SpiderSet, known_spiders
from gossamer.worker.worker import Worker

log = logging.getLogger("gossamer.worker")

_ANNOUNCE_SECONDS = 60.0


def make_resolver(settings: Settings) -> Resolver:
    """Raises BadInput for an override or a network that is none."""
    return Resolver(overrides=settings.fetch.resolve, allow_networks=settings.allow_networks)


def make_clients(
    settings: Settings, resolver: Resolver, *, body_bytes: int | None = None, budget: ByteBudget | None = None
) -> HttpClients:
    """HTTP clients with the settings' limits; `body_bytes` instead of the one of pages. They share `budget`, or one
    of their own."""
    fetch = settings.fetch
    shared = ByteBudget(fetch.bodies_in_flight) if budget is None else budget
    losses = LostConnections()
    limits = ResponseLimits(header_bytes=fetch.max_header, body_bytes=body_bytes or fetch.max_body)

    def make(total_seconds: float | None) -> HttpClient:
        total = fetch.timeout if total_seconds is None else total_seconds
        return HttpClient(
            resolver,
            limits=limits,
            timeouts=Timeouts(
                connect=min(fetch.connect_timeout, total), first_byte=min(fetch.first_byte_timeout, total), total=total
            ),
            max_connections=max(512, 2 * settings.worker.concurrency),
            per_address=settings.worker.concurrency,
            budget=shared,
            losses=losses,
            extra_ca=fetch.ca_file or None,
        )

    return HttpClients(make)


@asynccontextmanager
async def working(
    settings: Settings,
    frontier: ValkeyFrontier,
    *,
    pool: str,
    spiders: Sequence[str] = (),
    run: Run | None = None,
    bus: BusSink | None = None,
    say: Callable[[str], None] | None = None,
) -> AsyncIterator[Worker]:
    """A worker of this process, ready to `run`; its connections and outputs are closed with the context.

    `run`: it ends when that run is over; None: it works for its pool until stopped. `spiders` none: all installed.
    `bus`: its pages go there too, closed with the others.
    """
    check_asked(settings)
    troubles = Troubles(say)
    retrier = Retrier(troubles)
    tally = Tally()
    waits = RobotsWaits(troubles)
    memory = SharedMemory(SeenCache(settings.worker.seen_cache, era=lambda: frontier.era))
    loaded = SpiderSet()

    def on_missing(path: str, records: int) -> None:
        tally.missing += records
        sentence = missing_sentence(path, records)
        log.warning("%s %s", names.RECORDS_MISSING, sentence)
        if say is not None:
            say(sentence)

    sink = _sink(settings, bus, run, on_missing)
    resolver = make_resolver(settings)
    budget = ByteBudget(settings.fetch.bodies_in_flight)
    clients = make_clients(settings, resolver, budget=budget)
    robots = RobotsService(clients.fetch, FrontierRobotsStore(frontier))

    installed = frozenset(known_spiders())

    def make_context(made: Run, spider: str, terms: Terms) -> Context:
        return Context(
            made,
            spider,
            terms,
            spider=loaded.of(made.crawl.id, spider),
            secret=frontier.secret,  # of the moment: a frontier that lost its data has another
            user_agent=settings.fetch.user_agent,
            memory=memory,
            links=bus is not None,
            proxy=settings.fetch.proxy,
            redact=settings.records.secrets == "redact",
            # Whoever works for the service may run any; for a crawl of one's own it is what is installed here.
            spiders=None if made.crawl.pool == SHARED else installed,
        )

    try:
        async with (
            _announced(frontier, spiders or known_spiders(), retrier, pool=pool),
            _seated(settings, frontier, resolver, troubles, pool=pool, spiders=spiders) as holder,
            _reported(settings, frontier, tally, spiders or known_spiders()),
        ):
            committer = Committer(frontier, holder, sink, retrier)
            fetching = Fetcher(
                frontier,
                holder,
                clients,
                Access(frontier, robots, retrier, waits, obedience=_obedience(settings, pool)),
                Contexts(make_context),
                PageReader(tally, troubles, frontier.spiders),
                retrier,
                tally,
                keep_wire=sink.wants_wire,
                budget=budget,
                retries=settings.fetch.retries,
                retry_base_seconds=settings.fetch.retry_base,
            )
            yield Worker(
                frontier,
                holder,
                fetching,
                committer,
                retrier,
                waits,
                tally,
                crawl=run.crawl.id if run else None,
                run=run.number if run else 0,
                idle_seconds=run.crawl.idle_seconds if run else 0.0,
                concurrency=settings.worker.concurrency,
                heartbeat_seconds=settings.worker.heartbeat,
                drain_seconds=settings.worker.drain,
            )
    finally:
        await robots.close()
        await clients.close()
        resolver.close()
        await sink.close()


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` in a task of its own, and cancel it when the context ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def _announced(
    frontier: ValkeyFrontier, spiders: Sequence[str], retrier: Retrier, *, pool: str
) -> AsyncIterator[None]:
    """Announce the spiders of a worker of the service, again every minute, for as long as the context lasts."""
    if pool != SHARED:
        yield
        return

    async def announce() -> None:
        while True:
            await asyncio.sleep(_ANNOUNCE_SECONDS)
            await retrier.call_frontier(lambda: frontier.spiders.announce(Lane.FAST, spiders))

    await frontier.spiders.announce(Lane.FAST, spiders)
    async with _beside(announce()):
        yield


@asynccontextmanager
async def _reported(
    settings: Settings, frontier: ValkeyFrontier, tally: Tally, spiders: Sequence[str]
) -> AsyncIterator[None]:
    """Add the worker to the cluster's statistics, every few seconds, for as long as the context lasts."""
    reporting = StatsReporter(Counters(frontier.connection, prefix=settings.prefix), lambda: tally, spiders)
    try:
        async with _beside(reporting.run()):
            yield
    finally:
        await reporting.tell()


@asynccontextmanager
async def _seated(
    settings: Settings,
    frontier: ValkeyFrontier,
    resolver: Resolver,
    troubles: Troubles,
    *,
    pool: str,
    spiders: Sequence[str],
) -> AsyncIterator[ValkeyLeaseholder]:
    """A seat at the frontier, under the egress of the settings or what the address service says. Whoever gets it closes
    it."""
    spiders = spiders or known_spiders()
    if not settings.fetch.egress_url:
        name = settings.egress or _proxy_name(settings)
        yield await frontier.open_leaseholder(pool=pool, spiders=spiders, egress=name)
        return
    clients = make_clients(settings, resolver, body_bytes=ANSWER_BYTES)
    egress = EgressMonitor(
        address_service(settings),
        lambda exchange: clients.fetch(exchange, settings.fetch.egress_timeout),
        troubles,
        otherwise=settings.egress or _proxy_name(settings),
        refresh_seconds=settings.fetch.egress_refresh,
    )
    try:
        await egress.ask()
        holder = await frontier.open_leaseholder(pool=pool, spiders=spiders, egress=egress.name)
        keeping = asyncio.create_task(egress.keep(holder.set_egress))
        try:
            yield holder
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
    finally:
        await clients.close()


def _proxy_name(settings: Settings) -> str:
    """All workers behind one proxy fetch from its address, wherever they run. Empty: no proxy."""
    if not settings.fetch.proxy:
        return ""
    proxy = parse_proxy(settings.fetch.proxy)
    return f"{proxy.host}:{proxy.port}"


def _obedience(settings: Settings, pool: str) -> RobotsPolicy:
    """What this worker makes of robots.txt. The operator of a crawl from the command line is who began it."""
    obedience = RobotsPolicy(settings.fetch.robots)
    return obedience if pool == SHARED or obedience is RobotsPolicy.IGNORE else RobotsPolicy.ALLOW_OVERRIDE


def _sink(settings: Settings, bus: BusSink | None, run: Run | None, on_missing: Missing) -> Sink:
    sinks = _sinks(settings, run, on_missing)
    if bus is not None:
        sinks.append(bus)
    return sinks[0] if len(sinks) == 1 else Fanout(sinks)


async def finish_outputs(settings: Settings) -> None:
    """Finish what an earlier command had to leave in the spool, if anything. Raises SinkError."""
    files = [path for path in settings.crawl.output if path != "-"]
    for sink in open_sinks(files, spool_dir=_spool_dir(settings)):
        await sink.close()


async def missing_records(settings: Settings, run: Run) -> dict[str, int]:
    """Number of records that an earlier command wrote for this run and that are no longer there, by output. Each is
    reported once."""
    found: dict[str, int] = {}
    for sink in _sinks(settings, run, found.__setitem__):
        if isinstance(sink, FileSink):
            await sink.close()
    return found


def forget_written(settings: Settings, run: Run) -> None:
    """Stop watching what this run has written: it is finished."""
    forget_ledgers(settings.crawl.output, spool_dir=_spool_dir(settings), run=_name(run))


def missing_sentence(path: str, records: int) -> str:
    """What a person is told of records that vanished."""
    return f"{path} was deleted or cut short: {records:,} of the records written to it are missing."


def _sinks(settings: Settings, run: Run | None, on_missing: Missing) -> list[Sink]:
    name = _name(run) if run is not None else ""
    return open_sinks(settings.crawl.output, spool_dir=_spool_dir(settings), run=name, on_missing=on_missing)


def _name(run: Run) -> str:
    return f"{run.crawl.id.token}/{run.number}/{run.generation}"


def _spool_dir(settings: Settings) -> Path:
    return settings.data_dir / "spool"
