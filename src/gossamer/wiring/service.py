"""Builds a crawl service from settings: the bus, the request dispatcher, the roles, and the REST API.

The bus is the message queue on which requests arrive and pages are published; roles are the service's background tasks.
Fixed: the words that users write (`streams`, `kafka://`), PLUGINS, and the order in which parts are closed: what uses a
connection before the connection.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gossamer.bus.base import Bus, Topics
from gossamer.bus.streams import StreamsBus
from gossamer.control import stats
from gossamer.control.admission import AdmissionLimits, AdmittedRequest, RequestValidator
from gossamer.control.dispatcher import CheckedHandler, Handler, RequestDispatcher, built_in_handlers
from gossamer.control.stats import Counters
from gossamer.errors import BadInput, RequestRejected
from gossamer.extract.content_pool import has_trafilatura
from gossamer.extras import install_advice
from gossamer.fetch.client import HttpClient
from gossamer.fetch.exchange import Timeouts
from gossamer.fetch.proxies import first_proxy
from gossamer.fresh.rounds import KeptCrawl
from gossamer.fresh.store import IndexStore
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, Terms
from gossamer.model.messages.reader import MessageReader, RequestKind, RequestLimits, is_about_rendering
from gossamer.model.messages.requests import RecrawlRequest
from gossamer.net.credentials import hide_secrets
from gossamer.net.guard import parse_networks
from gossamer.net.resolve import Resolver
from gossamer.services.bus_audit import BusAudit
from gossamer.services.intake import Intake
from gossamer.services.maintenance import Expirer, Finisher, PolicyFile, Reaper
from gossamer.services.outbound import OutboundPublisher
from gossamer.services.recrawler import Recrawler
from gossamer.services.reporter import ServiceReporter
from gossamer.services.role import Role, run_role
from gossamer.services.subscriber import HubSubscriber
from gossamer.settings import Settings
from gossamer.settings.service import SERVICE_IDLE_SECONDS, STREAMS_BODY_BYTES
from gossamer.sinks.bus import BusSink
from gossamer.sinks.history import HistoryTopic
from gossamer.sinks.remote import BlobStore
from gossamer.storage.audit import AuditTrail
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.metrics import ServiceMetrics
from gossamer.telemetry.recordings import FOLDER
from gossamer.telemetry.tally import Tally
from gossamer.valkey.shards import Shards
from gossamer.wiring.frontier import connect_shards, open_frontier
from gossamer.wiring.history import history_address, open_history
from gossamer.wiring.recrawling import index_store
from gossamer.wiring.worker import open_worker
from gossamer.worker.seen import SeenTable
from gossamer.worker.worker import Worker

if TYPE_CHECKING:
    from fastapi import FastAPI

    from gossamer.history.store import HistoryStore

STREAMS = "streams"
"""Address of the bus on the frontier's own server."""
KAFKA = "kafka"
"""Actor of changes in the audit that messages of a Kafka bus ask for; those of streams have the bus's address."""
_HUB_SECONDS = 15.0
"""Time in which a hub must answer. More delays the hubs behind it."""
_KAFKA = f"{KAFKA}://"
"""Beginning of the address of a Kafka bus."""


def check_bus(address: str) -> None:
    """Check the address of a bus. Raises BadInput."""
    if address != STREAMS and not (address.startswith(_KAFKA) and len(address) > len(_KAFKA)):
        raise BadInput(f"cannot use {address!r}. Write streams, or kafka://host:port,host:port.", option="bus")


def open_bus(
    address: str,
    shards: Shards,
    topics: Topics,
    *,
    prefix: str,
    retention_seconds: float,
    max_topic_bytes: int,
    kafka: Mapping[str, str],
    partitions: int,
    replicas: int,
    max_message_bytes: int,
    per_app: bool = True,
) -> Bus:
    """Return the bus at this address. Raises BadInput for an address that is not valid.

    `streams`: in the server of `shards`, in keys that begin with `prefix`; `retention_seconds` and `max_topic_bytes`
    bound a topic. `kafka://host:port,…`: `kafka` holds options of librdkafka; missing topics are created with
    `partitions`, `replicas` (-1: the broker's default) and messages of up to `max_message_bytes`. `per_app`: messages
    of the common topics are also on those of their applications.
    """
    check_bus(address)
    if address == STREAMS:
        return StreamsBus(
            shards,
            prefix=prefix,
            keep_until_acknowledged=topics.requests,
            copies=(topics.crawled, topics.outbound) if per_app else (),
            retention_seconds=retention_seconds,
            max_topic_bytes=max_topic_bytes,
        )
    try:
        from gossamer.bus.kafka import KafkaBus  # an extra that need not be installed
    except ImportError as exc:
        raise BadInput(f"a Kafka bus needs confluent-kafka: {install_advice('kafka')}") from exc

    servers = address.removeprefix(_KAFKA).rstrip("/")
    return KafkaBus(
        servers,
        options=kafka,
        partitions=partitions,
        replicas=replicas,
        max_message_bytes=max_message_bytes,
        prefix=f"{topics.prefix}.",
    )


PLUGINS = "gossamer.requests"
"""Group of entry points by which installed packages add kinds of request: objects with `schema`, `rank` and `handle`.
Fixed: the packages name this group."""


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The connections and objects that the services, the API and the commands share in one process."""

    shards: Shards
    """Connections to the servers of the frontier."""
    frontier: ValkeyFrontier
    """The store of the requests to fetch."""
    bus: Bus
    topics: Topics
    counters: Counters
    dispatcher: RequestDispatcher
    outbound: OutboundPublisher
    metrics: ServiceMetrics
    troubles: Troubles
    blobs: BlobStore
    history: "HistoryStore | None"
    """Memory of crawls. None: the service keeps no history, or this process does not need it."""
    audit: AuditTrail | None
    """Audit in the history. None: there is no history."""
    indexes: IndexStore | None
    """Page indexes of crawls that are kept up to date. None: there is no place for them."""
    id: str = field(default_factory=lambda: token_hex(6))
    """12 random hex digits that name this process, in its statistics and in the API's answer at `/`."""


@asynccontextmanager
async def open_service(
    settings: Settings, address: str, *, say: Callable[[str], None] | None = None, with_history: bool = False
) -> AsyncIterator[ServiceContext]:
    """Connect everything to the frontier at `address`, and close it with the context.

    `say` shows a sentence to a person; None: troubles are only logged. `with_history`: also open the history. Raises
    FrontierUnavailable, FrontierIncompatible, BadInput, BusUnavailable.
    """
    shards = await connect_shards(settings, address)
    try:
        frontier = await open_frontier(settings, shards)
        topics = Topics(settings.topics.prefix)
        blobs = BlobStore(blob_place(settings))
        history = open_history(settings) if with_history else None
        indexes = index_store(settings)
        bus = make_bus(settings, shards)
        counters = Counters(shards, prefix=settings.prefix)
        troubles = Troubles(say)
        outbound = OutboundPublisher(
            bus, topics, blobs, troubles, firehose=settings.topics.firehose, per_app=settings.topics.per_app
        )
        try:
            yield ServiceContext(
                shards=shards,
                frontier=frontier,
                bus=bus,
                topics=topics,
                counters=counters,
                dispatcher=_dispatcher(settings, frontier, counters, indexes),
                outbound=outbound,
                metrics=ServiceMetrics(),
                troubles=troubles,
                blobs=blobs,
                history=history,
                audit=_audit(history),
                indexes=indexes,
            )
        finally:
            if history is not None:
                await history.close()
            await outbound.close()
            blobs.close()
            if indexes is not None:
                await asyncio.to_thread(indexes.close)
            await bus.close()
    finally:
        await shards.close()


def _audit(history: "HistoryStore | None") -> AuditTrail | None:
    if history is None:
        return None
    from gossamer.history.audit import HistoryAudit  # needs an extra

    return HistoryAudit(history)


def make_history_topic(settings: Settings, bus: Bus) -> HistoryTopic:
    """Return the topic of the historian, which may be in this process or in another one."""
    return HistoryTopic(bus, Topics(settings.topics.prefix), is_used=bool(history_address(settings)))


def make_bus(settings: Settings, shards: Shards) -> Bus:
    """Return the bus of these settings. Without one named: streams."""
    return open_bus(
        settings.bus or STREAMS,
        shards,
        Topics(settings.topics.prefix),
        prefix=settings.prefix,
        retention_seconds=settings.topics.retention,
        max_topic_bytes=settings.topics.max_bytes,
        kafka=settings.kafka.options,
        partitions=settings.kafka.partitions,
        replicas=settings.kafka.replicas,
        max_message_bytes=settings.kafka.max_message,
        per_app=settings.topics.per_app,
    )


def make_bus_sink(settings: Settings, bus: Bus) -> BusSink:
    """Return the output by which a worker publishes its pages on the bus."""
    topics = settings.topics
    max_inline_body = topics.max_inline_body
    if max_inline_body is None and (settings.bus or STREAMS) == STREAMS:
        max_inline_body = STREAMS_BODY_BYTES
    sink = BusSink(
        bus,
        Topics(topics.prefix),
        BlobStore(blob_place(settings)),
        firehose=topics.firehose,
        per_app=topics.per_app,
        max_inline_bytes=max_inline_body,
        base64_bodies=topics.base64,
        wire=topics.wire,
    )
    sink.history = make_history_topic(settings, bus)
    return sink


def blob_place(settings: Settings) -> str:
    """Return the directory or URL of the blob store, which holds bodies that are too large for a message.

    The default must not change: blobs in a folder of another name would never be deleted.
    """
    return settings.topics.blobs or os.fspath(settings.data_dir.absolute() / "blobs")


def bus_worker_settings(settings: Settings) -> Settings:
    """Return the settings of a worker that publishes on the bus: without the default output, so that it writes files
    only if the user named some."""
    if "output" in settings.crawl.given:
        return settings
    return settings.copy(crawl=settings.crawl.copy(output=()))


@asynccontextmanager
async def open_bus_worker(
    settings: Settings,
    frontier: ValkeyFrontier,
    address: str,
    *,
    pool: str,
    spiders: Sequence[str],
    say: Callable[[str], None],
    seen: SeenTable | None = None,
) -> AsyncIterator[Worker]:
    """Return a worker of this process that publishes its pages on the bus. `address`: that of the frontier. `seen`:
    what the worker shares with others of its command."""
    shards = await connect_shards(settings, address)
    try:
        bus = make_bus(settings, shards)
        try:
            sink = make_bus_sink(settings, bus)
            async with open_worker(
                bus_worker_settings(settings), frontier, pool=pool, spiders=spiders, bus=sink, say=say, seen=seen
            ) as worker:
                if isinstance(bus, StreamsBus):
                    worker.tally().trimmed = bus.trimmed  # the same object: the bus goes on counting in it
                yield worker
        finally:
            await bus.close()
    finally:
        await shards.close()


def _dispatcher(
    settings: Settings, frontier: ValkeyFrontier, counters: Counters, indexes: IndexStore | None
) -> RequestDispatcher:
    """Return the object that parses requests, checks them and carries them out."""
    service = settings.service
    kinds, plugins = load_plugins()
    check_public_url(service.public_url)
    limits = RequestLimits(maxdepth=service.max_depth, message_bytes=service.max_body, app_render=service.app_render)
    validator = RequestValidator(
        now=time.time,
        networks=parse_networks(settings.allow_networks),
        ignore_robots=settings.fetch.robots != "obey",
        content=has_trafilatura() if service.text is None else service.text,
        recrawl=app_recrawl(settings, kept=indexes is not None),
        limits=AdmissionLimits(
            domain_max_pages=service.max_domain_pages,
            domain_max_pending=service.domain_max_pending,
            render_seconds=settings.browser.seconds,
            max_render_seconds=service.max_render_seconds,
        ),
        idle_seconds=SERVICE_IDLE_SECONDS if settings.crawl.idle_seconds is None else settings.crawl.idle_seconds,
    )
    built_in = built_in_handlers(
        frontier, counters, now=time.time, allow_default_policy=service.allow_default_policy, kept=indexes
    )
    reader = MessageReader(kinds, limits=limits)
    _check_app_render(service.app_render, reader, validator)
    return RequestDispatcher(
        frontier,
        reader,
        validator,
        {**plugins, **built_in},  # no name stands in both: MessageReader refuses that
        now=time.time,
        format_1_0=settings.topics.wire == "1.0",
        keep_up_to_date=None if indexes is None else _keeper(indexes),
    )


def check_public_url(url: str) -> None:
    """Raise BadInput for an address that no hub could call."""
    if not url:
        return
    parts = urlsplit(url)
    others = parts.username, parts.password, parts.query, parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or any(others) or " " in url:
        raise BadInput(
            f"service.public_url: cannot use {hide_secrets(url)!r:.200}. Write an address of this API such as "
            "https://crawls.example.com, without a user and a query."
        )


def app_recrawl(settings: Settings, *, kept: bool) -> dict[str, RecrawlRequest] | None:
    """Return the options by which the crawls of single applications are kept up to date. None: no crawl can be. `kept`:
    there is a place for page indexes. Raises BadInput for options that no request may have."""
    if not kept and not settings.service.app_recrawl:
        return None
    reader, validator = MessageReader(), RequestValidator(now=time.time, recrawl={} if kept else None)
    found: dict[str, RecrawlRequest] = {}
    for appid, options in settings.service.app_recrawl.items():
        request = {"appid": appid, "crawlid": "checked", "url": "https://gossamer.test/", "recrawl": options}
        try:
            _, checked = reader.read(request)
            validator.admit(checked)
        except RequestRejected as fault:
            raise BadInput(f"service.app_recrawl.{appid}: {fault.field}: {fault.reason}") from None
        found[appid] = checked.recrawl
    return found


def _check_app_render(
    fields: Mapping[str, Mapping[str, Any]], reader: MessageReader, validator: RequestValidator
) -> None:
    """Check the fields about rendered pages that requests of single applications get. Raises BadInput."""
    for appid, own in fields.items():
        try:
            if others := [name for name in own if not is_about_rendering(name)]:
                raise RequestRejected("is no field about rendered pages", field=others[0])
            _, request = reader.read({"crawlid": "checked", "url": "https://gossamer.test/", **own, "appid": appid})
            validator.admit(request)
        except RequestRejected as fault:
            raise BadInput(f"service.app_render.{appid}: {fault.detail}") from None


def _keeper(indexes: IndexStore) -> Callable[[Sequence[AdmittedRequest]], Awaitable[dict[CrawlId, RequestRejected]]]:
    """Return a function that notes the crawls of requests with `recrawl` in their page indexes. It returns those whose
    index cannot be opened, with the reason."""

    def keep(requests: Sequence[AdmittedRequest]) -> dict[CrawlId, RequestRejected]:
        latest = {
            one.crawl.id: KeptCrawl(crawl=one.crawl, spider=one.spider, priority=one.priority, terms=one.terms)
            for one in requests
        }
        seeds: dict[CrawlId, dict[str, Terms]] = {}
        for one in requests:
            seeds.setdefault(one.crawl.id, {})[one.url] = one.terms
        refused: dict[CrawlId, RequestRejected] = {}
        for crawl, kept in latest.items():
            try:
                indexes.keep([kept], {crawl: seeds[crawl]})
            except BadInput as error:
                refused[crawl] = RequestRejected(f"the page index of {crawl} cannot be used: {error.fault}")
        return refused

    return lambda requests: asyncio.to_thread(keep, requests)


def load_plugins() -> tuple[list[RequestKind], dict[str, Handler]]:
    """Return the kinds of request that installed packages add, and their handlers by kind.

    Raises BadInput that names the plug-in that cannot be used.
    """
    kinds: list[RequestKind] = []
    handlers: dict[str, Handler] = {}
    for entry in entry_points(group=PLUGINS):
        try:
            found = entry.load()
            plugin = found() if isinstance(found, type) else found
            kinds.append(RequestKind(entry.name, plugin.schema, int(plugin.rank), lambda given: given))
            handlers[entry.name] = CheckedHandler(plugin)
        except Exception as error:
            raise BadInput(f"the plug-in {entry.name} ({entry.value}) cannot be used: {error}") from error
    return kinds, handlers


async def open_roles(settings: Settings, context: ServiceContext) -> list[Role]:
    """Return the services that one process runs. The policies of its file are in force by then, before any request is
    taken or page fetched."""
    frontier, bus, troubles = context.frontier, context.bus, context.troubles
    outbound, counters, metrics = context.outbound, context.counters, context.metrics
    service = settings.service
    intake = Intake(
        bus, context.topics, context.dispatcher, outbound, counters, metrics,
        group=settings.topics.group, batch_size=service.batch,
    )  # fmt: skip
    if context.audit is not None:
        actor = STREAMS if isinstance(bus, StreamsBus) else KAFKA
        intake.audit = BusAudit(context.audit, frontier, actor=actor)
    roles: list[Role] = [
        intake,
        Expirer(frontier, troubles),
        Finisher(
            frontier, outbound, counters, metrics, troubles, history=make_history_topic(settings, bus), now=time.time
        ),
        Reaper(
            frontier, context.blobs, troubles,
            dead_after_seconds=settings.worker.heartbeat, blob_retention_seconds=settings.topics.retention,
        ),
        ServiceReporter(
            frontier, counters, metrics,
            id=context.id,
            troubles=troubles.current,
            roles=(stats.INTAKE, stats.ACTIONS, stats.REST),
            # A log for people has no room for hundreds of numbers; `gossamer stats` shows them.
            dump_seconds=service.stats_interval if settings.log_format == "json" else 0.0,
        ),
    ]  # fmt: skip
    if context.history is not None:
        from gossamer.services.historian import Historian  # needs an extra

        days = settings.history.days
        roles.append(
            Historian(
                frontier,
                bus,
                context.topics,
                context.history,
                metrics,
                counters=counters,
                owner=context.id,
                retention_seconds=days * 86400.0,
            )
        )
    if context.indexes is not None:
        roles.append(_recrawler(settings, context, context.indexes))
    if service.policy_file:
        policy_file = PolicyFile(frontier, Path(service.policy_file), troubles)
        policy_file.audit = context.audit
        await policy_file.load_first()
        roles.append(policy_file)
    return roles


def _recrawler(settings: Settings, context: ServiceContext, indexes: IndexStore) -> Recrawler:
    """Return the role that visits pages again, and asks the hubs of feeds if they can call back."""
    frontier = context.frontier
    subscriber = _subscriber(settings, indexes, context.metrics) if settings.service.public_url else None
    return Recrawler(
        frontier,
        context.bus,
        context.topics,
        indexes,
        secret=frontier.secret,
        owner=context.id,
        subscriber=subscriber,
    )


def _subscriber(settings: Settings, indexes: IndexStore, metrics: ServiceMetrics) -> HubSubscriber:
    """Return the object that asks the hubs of feeds."""
    return HubSubscriber(
        HttpClient(
            Resolver(overrides=settings.fetch.resolve, allow_networks=settings.allow_networks),
            timeouts=Timeouts(first_byte=_HUB_SECONDS, idle=_HUB_SECONDS, total=_HUB_SECONDS),
            extra_ca=settings.fetch.ca_file or None,
        ),
        indexes,
        metrics,
        public_url=settings.service.public_url,
        agent=settings.fetch.full_user_agent,
        proxy=first_proxy(settings.fetch.proxy),
    )


def make_api(settings: Settings, context: ServiceContext) -> "FastAPI":
    """Return the REST API, ready to serve."""
    # Imported here because it takes a second, and only processes that serve the API need it.
    from gossamer.api.app import create_app
    from gossamer.api.context import ApiContext
    from gossamer.web.connections import ConnectionLimits

    service = settings.service
    frontier, metrics, troubles = context.frontier, context.metrics, context.troubles
    trimmed = context.bus.trimmed if isinstance(context.bus, StreamsBus) else {}
    # Called at each scrape: the counts go on changing.
    metrics.add_tally(lambda: Tally(reclaimed=frontier.reclaimed, trimmed=trimmed, troubles=list(troubles.current)))
    metrics.add_lost_shards(lambda: frontier.lost_shards)
    metrics.add_performance(settings.data_dir / FOLDER)
    return create_app(
        ApiContext(
            id=context.id,
            shards=context.shards,
            frontier=frontier,
            bus=context.bus,
            topics=context.topics,
            counters=context.counters,
            dispatcher=context.dispatcher,
            metrics=metrics,
            publish_answers=context.outbound.send,
            troubles=troubles.current,
            prefix=settings.prefix,
            token=service.token,
            max_body_bytes=service.max_body,
            max_requests_per_second=service.max_requests,
            connections=ConnectionLimits(
                per_client=service.max_connections, trusted_proxies=parse_networks(service.trusted_proxies)
            ),
            feed_wait_seconds=service.feed_wait,
            answer_retention_seconds=service.answer_retention,
            per_app=settings.topics.per_app,
            history=context.history,
            audit=context.audit,
            indexes=context.indexes,
            public_url=settings.service.public_url,
        )
    )


async def run_roles(roles: Sequence[Role], *, stopping: asyncio.Event, troubles: Troubles) -> None:
    """Run the services until `stopping` is set."""
    async with asyncio.TaskGroup() as group:
        for role in roles:
            group.create_task(run_role(role, stopping=stopping, troubles=troubles))
