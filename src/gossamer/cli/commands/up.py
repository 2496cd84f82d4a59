"""`gossamer up` and `gossamer serve`: the service, on one machine or beside workers elsewhere."""

import asyncio
import contextlib
import shlex

import typer

from gossamer import __version__
from gossamer.api.app import create_probes
from gossamer.api.server import serve_api, serve_probes
from gossamer.cli import interruption as signals
from gossamer.cli import options, standard
from gossamer.cli import options as inputs
from gossamer.cli.asking import arrived
from gossamer.cli.interruption import Interruption
from gossamer.cli.running import run as run_loop
from gossamer.errors import GossamerError
from gossamer.frontier.base import Lane
from gossamer.settings import Settings, TopicSettings, load
from gossamer.telemetry import logs
from gossamer.wiring.frontier import frontier_address, warn_of_memory_only
from gossamer.wiring.processes import WorkerProcesses
from gossamer.wiring.service import (
    STREAMS,
    ServiceContext,
    bus_worker_settings,
    check_bus,
    make_api,
    make_roles,
    open_service,
    run_roles,
)
from gossamer.worker.spider import known_spiders


def greeting(settings: Settings, address: str, topic: str, *, with_workers: bool) -> str:
    """Where things are, and commands that work as they stand in another terminal of the same folder.

    `address` is the API's, `topic` the one with all pages. `settings.bus` is set.
    """
    where = "streams in the frontier" if settings.bus == STREAMS else settings.bus
    known = _named(settings)
    lines = [
        f"Gossamer {__version__} is up.",
        f"  REST     {address}   ({address}/docs)",
        f"  bus      {where}, topics {settings.topics.prefix}.*",
        f"  frontier {settings.frontier or settings.data_dir}",
    ]
    if with_workers:
        processes = settings.worker.processes
        many = "es" if processes > 1 else ""
        lines.append(f"  workers  {processes} process{many}, {settings.worker.concurrency} requests at once each")
    else:
        # Without --bus a worker writes files: those who wait for pages on the bus would see none.
        bus = f" --bus {STREAMS}" if settings.bus == STREAMS else ""
        lines.append(f"  workers  none of its own; start some: gossamer worker{known}{bus}")
    lines += [
        "Try, in another terminal here:",
        """  gossamer feed '{"appid": "mine", "crawlid": "first", "url": "https://example.com"}'""" + known,
        f"  gossamer dump {topic} --from-beginning --no-body{known}",
        "Ctrl-C stops it in good order.",
    ]
    return "\n".join(lines)


def _named(settings: Settings) -> str:
    """The options by which other commands find this cluster; nothing for what they assume by themselves."""
    own = settings.data_dir != Settings.model_fields["data_dir"].default
    prefix = settings.topics.prefix
    flags = {
        "--frontier": settings.frontier,
        "--data-dir": str(settings.data_dir) if own and not settings.frontier else "",
        "--bus": settings.bus if settings.bus != STREAMS else "",
        "--prefix": prefix if prefix != TopicSettings.model_fields["prefix"].default else "",
    }
    return "".join(f" {flag} {shlex.quote(value)}" for flag, value in flags.items() if value)


POOL = "shared"


def up(
    host: options.Host = None,
    port: options.Port = None,
    processes: options.ProcessesOption = None,
    concurrency: options.Concurrency = None,
    bus: options.BusOption = None,
    prefix: options.TopicPrefix = None,
    output: options.AlsoOutput = None,
    resolve: options.Resolve = None,
    allow_network: options.AllowNetwork = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    log_level: options.LogLevel = None,
    log_format: options.LogFormat = None,
) -> None:
    """Run the whole service on this machine: its own Valkey, the services, the REST API and the workers.

    gossamer up

    Ctrl-C or SIGTERM stops it in good order: what is under way is finished, the rest waits for the next start.
    """
    settings = _settings(
        {
            "service.host": host,
            "service.port": port,
            "worker.processes": processes,
            "worker.concurrency": concurrency,
            "bus": bus,
            "topics.prefix": prefix,
            "crawl.output": tuple(output) if output else None,
            "fetch.resolve": inputs.overrides(resolve),
            "allow_networks": tuple(allow_network) if allow_network else None,
            "frontier": frontier,
            "data_dir": data_dir,
            "log_level": log_level,
            "log_format": log_format,
        },
        config,
    )
    run_loop(_run(settings, workers=True))


def serve(
    host: options.Host = None,
    port: options.Port = None,
    bus: options.BusOption = None,
    prefix: options.TopicPrefix = None,
    allow_network: options.AllowNetwork = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    log_level: options.LogLevel = None,
    log_format: options.LogFormat = None,
) -> None:
    """Run the services and the REST API, without workers: those are `gossamer worker`, on any number of machines.

    gossamer serve --frontier redis://frontier.example:6379 --bus kafka://broker.example:9092

    Any number of these may run for one frontier.
    """
    settings = _settings(
        {
            "service.host": host,
            "service.port": port,
            "bus": bus,
            "topics.prefix": prefix,
            "allow_networks": tuple(allow_network) if allow_network else None,
            "frontier": frontier,
            "data_dir": data_dir,
            "log_level": log_level,
            "log_format": log_format,
        },
        config,
    )
    run_loop(_run(settings, workers=False))


def _settings(flags: dict[str, object], config: options.Config) -> Settings:
    settings = load(flags, config=config)
    level = settings.log_level if "log_level" in settings.model_fields_set else options.UP_LOG_LEVEL
    settings = settings.model_copy(update={"bus": settings.bus or STREAMS, "log_level": level})
    check_bus(settings.bus)
    logs.set_up(settings.log_level, style=settings.log_format)
    return settings


async def _run(settings: Settings, *, workers: bool) -> None:
    name = "gossamer up" if workers else "gossamer serve"
    async with contextlib.AsyncExitStack() as closing:
        address = await closing.enter_async_context(frontier_address(settings, name=name, on_trouble=standard.say))

        async def enter() -> ServiceContext:
            return await closing.enter_async_context(open_service(settings, address, say=standard.say))

        with Interruption(None, standard.say):
            cluster = await arrived("frontier", enter, standard.say)
            await arrived("bus", cluster.bus.ping, standard.say)
        warn_of_memory_only(cluster.frontier, standard.say)
        crew = None
        if workers:
            # Before the first request is judged: the worker processes take a second to start.
            await cluster.frontier.spiders.announce(Lane.FAST, known_spiders())
            crew = WorkerProcesses(
                bus_worker_settings(settings), address, pool=POOL, spiders=[], run=None, say=standard.say, bus=True
            )
            cluster.metrics.add_tally(crew.tally)
        await _attend(settings, cluster, crew)


async def _attend(settings: Settings, cluster: ServiceContext, crew: WorkerProcesses | None) -> None:
    """Until told to stop: then the workers first, so that their last pages and ends are told by the services."""
    draining, stopping = asyncio.Event(), asyncio.Event()

    def drain() -> None:
        draining.set()
        if crew is not None:
            crew.stop()

    with Interruption(drain, standard.say) as interruption:
        try:
            await _work(settings, cluster, crew, draining, stopping)
        except* GossamerError as errors:
            raise _first(errors) from None
        except* asyncio.CancelledError:
            if not interruption.met:
                raise
        else:
            standard.say("Stopped; what was not finished goes on at the next start.")
            return
    standard.say("Stopped at once; what was under way will be fetched again.")
    raise typer.Exit(signals.EXIT_CODE)


async def _work(
    settings: Settings,
    cluster: ServiceContext,
    crew: WorkerProcesses | None,
    draining: asyncio.Event,
    stopping: asyncio.Event,
) -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = make_api(settings, cluster)
    async with asyncio.TaskGroup() as group:
        serving = serve_api(
            app,
            host=settings.service.host,
            port=settings.service.port,
            stopping=stopping,
            ready=ready.set_result,
        )
        group.create_task(serving)
        if settings.service.metrics:
            probed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            probes = create_probes(app.state.context)
            place = settings.service.metrics
            group.create_task(serve_probes(probes, address=place, stopping=stopping, ready=probed.set_result))
            await probed
        address = await ready  # what has no place to listen at has not begun anything else yet
        roles = make_roles(settings, cluster)
        group.create_task(run_roles(roles, stopping=stopping, troubles=cluster.troubles))
        working = group.create_task(crew.run()) if crew is not None else None
        standard.note(greeting(settings, address, cluster.topics.crawled, with_workers=crew is not None))
        await draining.wait()
        if working is not None:
            await working
        stopping.set()


def _first(errors: BaseExceptionGroup) -> BaseException:
    """Of what went wrong together the first, which is what the others followed from."""
    found = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
