"""`gossamer worker`: works for a frontier that others feed.

The frontier is the store of the requests to fetch. Fixed: flags and exit codes.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Annotated, Any

from gossamer.cli import options
from gossamer.cli.commands.crawl import check_writable, print_summary
from gossamer.cli.parser import option
from gossamer.cli.running import run as run_loop
from gossamer.cli.running import when_reachable
from gossamer.cli.summary import Display, Summary
from gossamer.cli.terminal import Interruption
from gossamer.cli.worker_process import fork_server
from gossamer.control import stats
from gossamer.crawling.outputs import find_contents
from gossamer.crawling.work import Assignment, WorkMonitor, work
from gossamer.errors import BadInput, FrontierUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import SHARED_POOL
from gossamer.net.credentials import hide_secrets
from gossamer.settings import Settings
from gossamer.telemetry import logs
from gossamer.valkey.datadir import running_address
from gossamer.wiring.browser_lane import takes_browser_lane
from gossamer.wiring.frontier import connect, warn_of_servers
from gossamer.wiring.outputs import check_app_outputs
from gossamer.wiring.processes import with_process_count
from gossamer.worker.loading import find_spider, make_spider

Pool = Annotated[
    str,
    option(
        "--pool",
        metavar="NAME",
        help="Crawls to work for: those of this pool. All crawls of a service are in the pool shared.",
        panel=options.WHERE,
    ),
]
Spiders = Annotated[
    list[str] | None,
    option(
        "--spider",
        metavar="NAME|FILE",
        help="Work only for this spider: an installed one, shop.py or shop.py:Class. Unset: for all that are "
        "installed.",
        panel=options.WHAT,
        show_default=False,
    ),
]


@options.takes(
    "output", "csv_guard", "bus", "prefix", "concurrency", "processes", "contact", "resolve", "allow_network",
    "ca_file", "backend", "http2", "refusal_rules", "accept_refused", "egress", "frontier", "data_dir", "worker_render",
    "render_only",
)  # fmt: skip
def worker(
    pool: Pool = SHARED_POOL,
    spider: Spiders = None,
    *,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **given: Any,
) -> None:
    """Fetch the requests of a shared frontier, until Ctrl-C. Other programs put them there.

    gossamer worker --frontier redis://frontier.example:6379 --bus kafka://broker.example:9092

    gossamer worker --frontier redis://frontier.example:6379 -o pages.jsonl.zst

    With --bus the pages are published there, and written to files only if -o names some.

    Ctrl-C or SIGTERM stops it safely: requests in flight are finished, the others go to other workers.
    """
    settings = with_process_count(options.load_settings(given))
    if takes_browser_lane(settings, None):
        from gossamer.wiring.browser import launch_options  # imported late: most workers have no browser

        launch_options(settings)  # a missing browser is named before anything is done
    logs.set_up(settings.log_level, style=settings.log_format)
    with fork_server(settings):
        summary = _summary(settings, pool, spider or [], quiet=quiet or json)
    print_summary(summary, as_json=json, quiet=quiet, on_stderr="-" in settings.crawl.output_paths)
    raise SystemExit(1 if summary.unwritten or summary.missing_records else 0)


def _summary(settings: Settings, pool: str, spiders: list[str], *, quiet: bool) -> Summary:
    """Work until the command is interrupted, and return what was done. Raises BadInput before anything is fetched."""
    if settings.bus:
        from gossamer.wiring.service import bus_worker_settings, check_bus  # imported late: it loads the services

        check_bus(settings.bus)
        settings = bus_worker_settings(settings)
    if settings.crawl.output:
        check_writable(settings)
    check_app_outputs(settings)
    for name in spiders:
        make_spider(find_spider(name))
    address = settings.frontier or running_address(settings.data_dir)
    if not address:
        raise BadInput(
            "there is no frontier to work for. Name one with --frontier, for example redis://frontier.example:6379, or "
            "with --data-dir the data directory of a gossamer that runs on this machine."
        )
    return run_loop(_work(settings, address, pool, spiders, quiet=quiet))


def _destinations(settings: Settings) -> str:
    """Return where the pages go. Without a bus, also the option that names one, in case it was forgotten."""
    files = ", ".join(map(hide_secrets, settings.crawl.output_paths))
    if not settings.bus:
        return f"{files} (to publish them to a service's consumers: --bus)"
    return ", ".join(filter(None, (f"the bus {hide_secrets(settings.bus)}", files)))


async def _warn_of_service(settings: Settings, frontier: ValkeyFrontier, say: Callable[[str], None]) -> None:
    """Warn if a crawl service feeds this frontier: its consumers miss what a worker without a bus fetches."""
    counters = stats.Counters(frontier.connection, prefix=settings.prefix)
    with contextlib.suppress(FrontierUnavailable):  # the work waits for it, and says so
        if await counters.nodes(stats.INTAKE):
            files = ", ".join(map(hide_secrets, settings.crawl.output_paths))
            say(
                f"A crawl service uses this frontier. Its consumers do not get the pages of this worker, which go to "
                f"{files}. To publish them, start the worker with the service's --bus, for example --bus streams."
            )


async def _work(settings: Settings, address: str, pool: str, spiders: list[str], *, quiet: bool) -> Summary:
    """Work for a pool, which is a name for a set of crawls, until the command is interrupted. `spiders` empty: for
    all."""
    with (
        Display(f"Working for the pool {pool}; pages go to {_destinations(settings)}", quiet=quiet) as display,
        Interruption(None, display.say) as interruption,
        WorkMonitor.serve(settings.worker.metrics) as monitor,
    ):
        frontier = await when_reachable("frontier", lambda: connect(settings, address), display.say)
        warn_of_servers(frontier, display.say)
        if not settings.bus and pool == SHARED_POOL:
            await _warn_of_service(settings, frontier, display.say)
        try:
            started = time.monotonic()
            result = await work(
                settings,
                frontier,
                address,
                Assignment(pool, spiders, bus=bool(settings.bus)),
                observer=display,
                control=interruption,
                monitor=monitor,
            )
            summary = Summary(
                f"of the pool {pool}",
                None,
                result.tally,
                time.monotonic() - started,
                (*settings.crawl.output_paths, *([settings.bus] if settings.bus else [])),
                interrupted=True,  # nothing else ends this command
                pool=pool,
                unwritten=bool(result.fault),
                notes=[result.fault] if result.fault else [],
            )
            find_contents(summary, settings)
            return summary
        finally:
            await frontier.close()
