"""Commands that run a crawl service: `gossamer up` and `gossamer serve`.

Fixed: flags, exit codes, and two orders: at the start nothing takes requests before the API listens, so that an
occupied port ends the command before it has taken a request; at the end the workers stop first, so that their last
results are published.
"""

import asyncio
import contextlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from gossamer import __version__
from gossamer.cli import options, terminal
from gossamer.cli.commands.beside import platform_beside
from gossamer.cli.parser import option
from gossamer.cli.running import run as run_loop
from gossamer.cli.running import when_reachable
from gossamer.cli.terminal import Interruption
from gossamer.cli.worker_process import fork_server
from gossamer.compiled import warn_of_unusable_extension
from gossamer.dashboard import dashboard_address
from gossamer.errors import BadInput, GossamerError
from gossamer.extras import install_advice
from gossamer.frontier.base import Lane
from gossamer.model.crawl import SHARED_POOL
from gossamer.net.credentials import hide_secrets
from gossamer.settings import Settings
from gossamer.settings.rows import row_of
from gossamer.telemetry import logs
from gossamer.wiring.frontier import frontier_address, warn_of_servers
from gossamer.wiring.outputs import check_app_outputs
from gossamer.wiring.processes import WorkerProcesses, with_process_count
from gossamer.wiring.service import (
    STREAMS,
    ServiceContext,
    bus_worker_settings,
    check_bus,
    make_api,
    open_roles,
    open_service,
    run_roles,
)
from gossamer.worker.loading import SpiderSet, find_spider, known_spiders, make_spider


def greeting(settings: Settings, address: str, topic: str, *, with_workers: bool, platform: str = "") -> str:
    """Return the addresses of a service, and commands to try in another terminal of the same folder.

    `address` is that of the API, `topic` the one with all pages. `settings.bus` must be set. `platform`: address of the
    manager of Scrapy projects; empty: there is none.
    """
    where = "streams in the frontier" if settings.bus == STREAMS else hide_secrets(settings.bus)
    flags = _cluster_flags(settings)
    lines = [
        f"Gossamer {__version__} is up.",
        f"  dashboard  {dashboard_address(address)}",
        f"  REST       {address}   ({address}/docs)",
        f"  bus        {where}, topics {settings.topics.prefix}.*",
        f"  frontier   {hide_secrets(settings.frontier) or settings.data_dir}",
    ]
    if with_workers:
        processes = settings.worker.processes
        many = "es" if processes > 1 else ""
        lines.append(f"  workers    {processes} process{many}, {settings.worker.concurrency} requests at once each")
    else:
        # Without --bus a worker writes files, and consumers that wait for pages on the bus would see none.
        bus = f" --bus {STREAMS}" if settings.bus == STREAMS else ""
        lines.append(f"  workers    none; to start some: gossamer worker{flags}{bus}")
    if platform:
        lines.append(f"  platform   {platform}   (Scrapy projects; in the folder of one: gossamer deploy)")
    lines += [
        "Try in another terminal, in this folder:",
        """  gossamer feed '{"appid": "mine", "crawlid": "first", "url": "https://example.com", "maxdepth": 1}'"""
        + flags,
        f"  gossamer dump {topic} --from-beginning --no-body{flags}",
        "Ctrl-C stops it safely.",
    ]
    return "\n".join(lines)


def _cluster_flags(settings: Settings) -> str:
    """Return the options with which other commands find this cluster, without those that have their defaults."""
    data_dir, prefix = str(settings.data_dir), settings.topics.prefix
    flags = {
        "--frontier": settings.frontier,
        "--data-dir": data_dir if data_dir != row_of("data_dir").default and not settings.frontier else "",
        "--bus": settings.bus if settings.bus != STREAMS else "",
        "--prefix": prefix if prefix != row_of("topics.prefix").default else "",
    }
    return "".join(f" {flag} {shlex.quote(hide_secrets(value))}" for flag, value in flags.items() if value)


@options.takes(
    "host", "port", "processes", "concurrency", "bus", "prefix", "output", "csv_guard", "contact", "resolve",
    "allow_network", "frontier", "data_dir", "log_level", "log_format", "worker_render",
    output="Where to write the pages in addition to the bus, as for gossamer crawl.",
)  # fmt: skip
def up(
    *,
    spider: Annotated[
        list[str] | None,
        option(
            "--spider",
            metavar="FILE",
            help="Also work for the spider of this file: shop.py, or shop.py:Class. Installed ones need no option.",
            panel=options.WHAT,
            show_default=False,
        ),
    ] = None,
    platform: Annotated[
        bool,
        option(
            "--platform",
            help="Also run a manager and a node for Scrapy projects, as gossamer manager and gossamer node do.",
            panel=options.WHAT,
        ),
    ] = False,
    platform_port: Annotated[
        int,
        option(
            "--platform-port", metavar="PORT", min=1, max=65535, help="Port of that manager.",
            panel=options.WHAT,
        ),
    ] = 6800,
    **given: Any,
) -> int:  # fmt: skip
    """Run a complete crawl service on this machine. Its parts are Valkey, the services, the REST API and workers.

    gossamer up

    gossamer up --spider shop.py

    gossamer up --platform

    Ctrl-C or SIGTERM stops it safely: requests in flight are finished, the others wait for the next start.
    """
    settings = _settings(given)
    if settings.worker.render or settings.worker.render_only:
        from gossamer.wiring.browser import launch_options  # imported late: most services have no browser

        launch_options(settings)  # a missing browser is named before anything is done
    with fork_server(settings):
        for name in spider or []:
            make_spider(find_spider(name))
        spiders = (*spider, *known_spiders()) if spider else ()
        port = platform_port if platform else None
        check_app_outputs(settings)
        return run_loop(_run(settings, workers=True, spiders=spiders, platform_port=port))


@options.takes(
    "host", "port", "bus", "prefix", "allow_network", "frontier", "data_dir", "log_level", "log_format",
)  # fmt: skip
def serve(**given: Any) -> int:
    """Run the services and the REST API, without workers. Start those with `gossamer worker`, on any machine.

    gossamer serve --frontier redis://frontier.example:6379 --bus kafka://broker.example:9092

    Any number of these processes may run for one frontier.
    """
    return run_loop(_run(_settings(given), workers=False, spiders=()))


def _load_api() -> None:
    """Load the modules of the REST API, which takes a second, before the event loop runs. Raises BadInput where the
    packages that they need, an extra, are not installed."""
    try:
        import gossamer.api.app
        import gossamer.api.server  # noqa: F401
    except ModuleNotFoundError as error:
        raise BadInput(f"a crawl service needs {error.name}: {install_advice('service')}") from None


def _settings(given: Mapping[str, Any]) -> Settings:
    """Return the settings in force, with the defaults of a service, and set up the log."""
    _load_api()
    settings = with_process_count(options.load_settings(given))
    level = settings.log_level if "log_level" in settings.given else options.SERVICE_LOG_LEVEL
    settings = settings.copy(bus=settings.bus or STREAMS, log_level=level)
    check_bus(settings.bus)
    logs.set_up(settings.log_level, style=settings.log_format)
    return settings


async def _run(settings: Settings, *, workers: bool, spiders: Sequence[str], platform_port: int | None = None) -> int:
    """Connect to the frontier (the store of requests) and to the bus, waiting for both, and run the service. `spiders`:
    references to those of the workers; empty: all that are installed. `platform_port`: port of a manager of Scrapy
    projects; None: run none."""
    name = "gossamer up" if workers else "gossamer serve"
    async with contextlib.AsyncExitStack() as closing:
        address = await closing.enter_async_context(frontier_address(settings, name=name, on_trouble=terminal.say))

        async def enter() -> ServiceContext:
            service = open_service(settings, address, say=terminal.say, with_history=True)
            return await closing.enter_async_context(service)

        with Interruption(drain=None, show=terminal.say):  # nothing runs yet, so the first Ctrl-C cancels this task
            cluster = await when_reachable("frontier", enter, terminal.say)
            await when_reachable("bus", cluster.bus.ping, terminal.say)
            platform = ""
            if platform_port is not None:
                platform = await closing.enter_async_context(_platform(settings, platform_port))
        warn_of_servers(cluster.frontier, terminal.say)
        warn_of_unusable_extension(terminal.say)
        processes = None
        if workers:
            # For the worker processes, which take a second to start: requests for a spider that was not announced are
            # refused. Lane.FAST stands for Gossamer's own workers, in contrast to Scrapy processes.
            await cluster.frontier.spiders.announce(Lane.FAST, SpiderSet(spiders or known_spiders()).names)
            processes = WorkerProcesses(
                bus_worker_settings(settings),
                address,
                pool=SHARED_POOL,
                spiders=list(spiders),
                run=None,
                say=terminal.say,
                bus=True,
            )
            cluster.metrics.add_tally(processes.tally)
        return await _attend(settings, cluster, processes, platform)


def _platform(settings: Settings, port: int) -> contextlib.AbstractAsyncContextManager[str]:
    """Run a manager of Scrapy projects at this port, whose schedules may submit requests to this service."""
    host, service_port, token = settings.service.host, settings.service.port, settings.service.token
    local = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 (the address of all interfaces)
    shown = local.get(host, f"[{host}]" if ":" in host else host)
    service = f"http://{shown}:{service_port}" if service_port else ""  # port 0: one that is not known yet
    folder = settings.data_dir.absolute() / "platform"
    return platform_beside(folder, port, terminal.say, service=service, token=token)


async def _attend(settings: Settings, cluster: ServiceContext, processes: WorkerProcesses | None, platform: str) -> int:
    """Run the service until it is stopped, and return its exit code. The workers stop first, so that the services
    publish their last results. `platform`: as for `greeting`."""
    draining, stopping = asyncio.Event(), asyncio.Event()  # set for the workers and for all else, in this order

    def drain() -> None:
        draining.set()
        if processes is not None:
            processes.stop()

    with Interruption(drain, terminal.say) as interruption:
        try:
            await _serve(settings, cluster, processes, platform, draining, stopping)
        except* GossamerError as errors:
            raise _first_error(errors) from None
        except* asyncio.CancelledError:
            if not interruption.was_interrupted:
                raise
        else:
            terminal.say("Stopped; unfinished requests are fetched after the next start.")
            return 0
    # Only an interruption that did not wait for the requests in flight gets here.
    terminal.say("Stopped at once; requests in flight will be fetched again.")
    return terminal.INTERRUPTED_EXIT_CODE


async def _serve(
    settings: Settings,
    cluster: ServiceContext,
    processes: WorkerProcesses | None,
    platform: str,
    draining: asyncio.Event,
    stopping: asyncio.Event,
) -> None:
    """Serve until `draining` is set and the workers have ended; then set `stopping`, which ends everything else."""
    from gossamer.api.app import create_probes
    from gossamer.api.server import serve_api, serve_probes
    from gossamer.dashboard.app import with_dashboard
    from gossamer.dashboard.sections import platform_pages

    manager = platform or settings.service.platform
    # A manager beside this service has no password.
    sections = [platform_pages(manager, "" if platform else settings.service.platform_token)] if manager else []
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = make_api(settings, cluster)
    async with asyncio.TaskGroup() as group:
        group.create_task(
            serve_api(
                app,
                host=settings.service.host,
                port=settings.service.port,
                stopping=stopping,
                ready=ready.set_result,
                front=with_dashboard(
                    app, token=settings.service.token, guesses=app.state.context.guesses, sections=sections
                ),
            )
        )
        if settings.service.metrics:
            probes_ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            probes = create_probes(app.state.context)
            place = settings.service.metrics
            group.create_task(serve_probes(probes, address=place, stopping=stopping, ready=probes_ready.set_result))
            await probes_ready
        address = await ready  # nothing else is started before the API listens
        roles = await open_roles(settings, cluster)
        group.create_task(run_roles(roles, stopping=stopping, troubles=cluster.troubles))
        working = group.create_task(processes.run()) if processes is not None else None
        with_workers = processes is not None
        topic = cluster.topics.crawled
        terminal.print_stderr(greeting(settings, address, topic, with_workers=with_workers, platform=platform))
        await draining.wait()
        if working is not None:
            await working
        stopping.set()


def _first_error(errors: BaseExceptionGroup) -> BaseException:
    """Return the first error of a group: the others followed from it."""
    first = errors.exceptions[0]
    return _first_error(first) if isinstance(first, BaseExceptionGroup) else first
