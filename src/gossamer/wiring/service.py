"""Builds the services from settings: the bus, the desk, the roles."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from gossamer.bus.base import Bus, Topics
from gossamer.bus.streams import StreamsBus
from gossamer.control import stats
from gossamer.control.admission import RequestValidator
from gossamer.control.dispatcher import CheckedHandler, Handler, RequestDispatcher
from gossamer.control.handlers import built_in
from gossamer.control.stats import Counters
from gossamer.errors import BadInput
from gossamer.fetch.guard import parse_networks
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.messages.read import MessageReader, RequestKind, RequestLimits
from gossamer.services.intake import Intake
from gossamer.services.maintenance import Expirer, Finisher, Reaper
from gossamer.services.policy_file import PolicyFile
from gossamer.services.reporter import OutboundPublisher, ServiceReporter
from gossamer.services.role import Role, keep
from gossamer.settings import Settings
from gossamer.sinks.bus import BusSink
from gossamer.sinks.remote import BlobStore
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.metrics import Metrics
from gossamer.telemetry.tally import Tally
from gossamer.valkey.shards import Shards
from gossamer.wiring.worker import working
from gossamer.worker.worker import Worker

if TYPE_CHECKING:
    from fastapi import FastAPI
from collections.abc import Mapping

STREAMS = "streams"
_KAFKA = "kafka://"
STREAMS_BODY_BYTES = 4096
"""A longer body does not belong into a stream: it is memory."""


def check_bus(address: str) -> None:
    """Raises BadInput for what is no bus."""
    if address != STREAMS and not (address.startswith(_KAFKA) and len(address) > len(_KAFKA)):
        raise BadInput(f"{address!r} is no bus; write streams, or kafka://host:port,host:port")


def open_bus(
    address: str,
    shards: Shards,
    topics: Topics,
    *,
    prefix: str,
    retention_seconds: float,
    most_bytes: int,
    kafka: Mapping[str, str],
    partitions: int,
    replicas: int,
    largest: int,
) -> Bus:
    """`streams`: in the server of `shards`, under `prefix`; `retention_seconds` and `most_bytes` bound a topic.
    `kafka://host:port,…`: with librdkafka's options `kafka`; topics that are missing get so many partitions and
    replicas (-1: the broker's default) and messages up to `largest` bytes. Raises BadInput for another address."""
    check_bus(address)
    if address == STREAMS:
        return StreamsBus(
            shards,
            prefix=prefix,
            keep_until_acknowledged=topics.requests,
            retention_seconds=retention_seconds,
            max_topic_bytes=most_bytes,
        )
    try:
        from gossamer.bus.kafka import KafkaBus  # an extra: who does not use it need not have it
    except ImportError as exc:
        raise BadInput("a Kafka bus needs more than the core; pip install gossamer-crawl[kafka]") from exc

    servers = address.removeprefix(_KAFKA).rstrip("/")
    return KafkaBus(
        servers,
        options=kafka,
        partitions=partitions,
        replicas=replicas,
        max_message_bytes=largest,
        prefix=f"{topics.prefix}.",
    )


PLUGINS = "gossamer.requests"
"""Entry points of further kinds of request: objects with `schema`, `rank` and `handle`."""

IDLE_SECONDS = 5.0
"""How long a service's crawl has nothing to do before it is finished, where no setting says."""


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What the services, the API and the commands share in one process."""

    shards: Shards
    frontier: ValkeyFrontier
    bus: Bus
    topics: Topics
    counters: Counters
    desk: RequestDispatcher
    outbound: OutboundPublisher
    metrics: Metrics
    troubles: Troubles
    blobs: BlobStore
    id: str = field(default_factory=lambda: token_hex(6))
    """12 hex digits that name this process, in its statistics and by the API's `/`."""


@asynccontextmanager
async def parts(
    settings: Settings, address: str, *, say: Callable[[str], None] | None = None
) -> AsyncIterator[ServiceContext]:
    """Everything, connected to the frontier at `address`; closed with the context. Raises FrontierUnavailable,
    FrontierIncompatible, BadInput, BusUnavailable."""
    shards = await Shards.connect(address)
    try:
        frontier = await ValkeyFrontier.from_connection(
            shards,
            prefix=settings.prefix,
            shards=settings.shards,
            heartbeat_seconds=settings.worker.heartbeat,
            retention_seconds=settings.retention,
            stop_marker_seconds=settings.marks,
        )
        topics = Topics(settings.topics.prefix)
        blobs = BlobStore(blob_place(settings))
        bus = make_bus(settings, shards)
        counters = Counters(shards, prefix=settings.prefix)
        try:
            yield ServiceContext(
                shards=shards,
                frontier=frontier,
                bus=bus,
                topics=topics,
                counters=counters,
                desk=_desk(settings, frontier, counters),
                outbound=OutboundPublisher(
                    bus, topics, blobs, firehose=settings.topics.firehose, per_app=settings.topics.per_app
                ),
                metrics=Metrics(),
                troubles=Troubles(say),
                blobs=blobs,
            )
        finally:
            blobs.close()
            await bus.close()
    finally:
        await shards.close()


def make_bus(settings: Settings, shards: Shards) -> Bus:
    """The bus of these settings; streams where none is named."""
    return open_bus(
        settings.bus or STREAMS,
        shards,
        Topics(settings.topics.prefix),
        prefix=settings.prefix,
        retention_seconds=settings.topics.retention,
        most_bytes=settings.topics.bytes,
        kafka=settings.kafka.options,
        partitions=settings.kafka.partitions,
        replicas=settings.kafka.replicas,
        largest=settings.kafka.largest,
    )


def make_bus_sink(settings: Settings, bus: Bus) -> BusSink:
    """Where a worker of the service puts its pages."""
    topics = settings.topics
    body = topics.body
    if body is None and (settings.bus or STREAMS) == STREAMS:
        body = STREAMS_BODY_BYTES
    return BusSink(
        bus,
        Topics(topics.prefix),
        BlobStore(blob_place(settings)),
        firehose=topics.firehose,
        per_app=topics.per_app,
        body_bytes=body,
        base64_bodies=topics.base64,
        wire=topics.wire,
    )


def blob_place(settings: Settings) -> str:
    """The blob store's directory or URL."""
    return settings.topics.blobs or os.fspath(settings.data_dir.absolute() / "blobs")


def for_the_bus(settings: Settings) -> Settings:
    """Settings of a worker whose pages go to the bus: into files only where somebody asked for that."""
    if "output" in settings.crawl.model_fields_set:
        return settings
    return settings.model_copy(update={"crawl": settings.crawl.model_copy(update={"output": ()})})


@asynccontextmanager
async def serving(
    settings: Settings,
    frontier: ValkeyFrontier,
    address: str,
    *,
    pool: str,
    spiders: Sequence[str] = (),
    say: Callable[[str], None] | None = None,
) -> AsyncIterator[Worker]:
    """A worker of this process whose pages go to the bus."""
    shards = await Shards.connect(address)
    try:
        bus = make_bus(settings, shards)
        try:
            sink = make_bus_sink(settings, bus)
            async with working(
                for_the_bus(settings), frontier, pool=pool, spiders=spiders, bus=sink, say=say
            ) as worker:
                if isinstance(bus, StreamsBus):
                    worker.tally().trimmed = bus.trimmed
                yield worker
        finally:
            await bus.close()
    finally:
        await shards.close()


def _desk(settings: Settings, frontier: ValkeyFrontier, counters: Counters) -> RequestDispatcher:
    service = settings.service
    kinds, handlers = load_plugins()
    limits = RequestLimits(
        maxdepth=service.max_depth, domain_max_pages=service.max_domain_pages, message_bytes=service.max_body
    )
    door = RequestValidator(
        now=time.time,
        networks=parse_networks(settings.allow_networks),
        ignore_robots=settings.fetch.robots != "obey",
        domain_max_pending=service.domain_max_pending,
        idle_seconds=IDLE_SECONDS if settings.crawl.idle_seconds is None else settings.crawl.idle_seconds,
    )
    default = service.allow_default_policy
    every = {**handlers, **built_in(frontier, counters, now=time.time, default_policy=default)}
    return RequestDispatcher(
        frontier, MessageReader(kinds, limits=limits), door, every, now=time.time, old=settings.topics.wire == "1.0"
    )


def load_plugins() -> tuple[list[RequestKind], dict[str, Handler]]:
    """Kinds of request that are installed beside the built-in ones, and their handlers. Raises BadInput that names the
    one that cannot be used."""
    kinds: list[RequestKind] = []
    handlers: dict[str, Handler] = {}
    for entry in entry_points(group=PLUGINS):
        try:
            found = entry.load()
            plugin = found() if isinstance(found, type) else found
            kinds.append(RequestKind(entry.name, plugin.schema, int(plugin.rank), lambda given: given))
            handlers[entry.name] = CheckedHandler(plugin)
        except Exception as error:
            raise BadInput(f"the plug-in {entry.name} ({entry.value}): {error}") from error
    return kinds, handlers


def make_roles(settings: Settings, p: ServiceContext) -> list[Role]:
    """The services of one process."""
    frontier = p.frontier
    service = settings.service
    roles: list[Role] = [
        Intake(
            p.bus, p.topics, p.desk, p.outbound, p.counters, p.metrics,
            group=settings.topics.group, batch=service.batch,
        ),
        Expirer(frontier, p.troubles),
        Finisher(frontier, p.outbound, p.counters, p.metrics, p.troubles, now=time.time),
        Reaper(
            frontier,
            p.blobs,
            p.troubles,
            heartbeat_seconds=settings.worker.heartbeat,
            blob_retention_seconds=settings.topics.retention,
        ),
        ServiceReporter(
            frontier, p.counters, p.metrics,
            id=p.id,
            roles=(stats.INTAKE, stats.ACTIONS, stats.REST),
            # A line for people has no room for some hundred numbers; gossamer stats shows them.
            dump_seconds=service.dump if settings.log_format == "json" else 0.0,
        ),
    ]  # fmt: skip
    if service.policies:
        roles.append(PolicyFile(frontier, Path(service.policies), p.troubles))
    return roles


def make_app(settings: Settings, p: ServiceContext) -> "FastAPI":
    """The REST API, ready to serve."""
    # An import of a second for those who serve it only.
    from gossamer.api.app import create_app
    from gossamer.api.connections import ConnectionLimits
    from gossamer.api.context import ApiContext as ApiParts

    service = settings.service
    trimmed = p.bus.trimmed if isinstance(p.bus, StreamsBus) else {}
    p.metrics.add_tally(
        lambda: Tally(reclaimed=p.frontier.reclaimed, trimmed=trimmed, troubles=list(p.troubles.current))
    )
    p.metrics.add_lost_shards(lambda: p.frontier.lost_shards)
    return create_app(
        ApiParts(
            id=p.id,
            shards=p.shards,
            frontier=p.frontier,
            bus=p.bus,
            topics=p.topics,
            counters=p.counters,
            desk=p.desk,
            metrics=p.metrics,
            answered=p.outbound.send,
            prefix=settings.prefix,
            token=service.token,
            max_body=service.max_body,
            max_requests=service.max_requests,
            connections=ConnectionLimits(
                per_client=service.max_connections, trusted_proxies=parse_networks(service.trusted_proxies)
            ),
            wait_seconds=service.wait,
            polled_seconds=service.polled,
            per_app=settings.topics.per_app,
        )
    )


async def keep_all(roles: Sequence[Role], *, stopping: asyncio.Event, troubles: Troubles) -> None:
    """Run them until `stopping`."""
    async with asyncio.TaskGroup() as group:
        for role in roles:
            group.create_task(keep(role, stopping=stopping, troubles=troubles))
