"""`gossamer worker`: works for a frontier that others feed."""

import time
from typing import Annotated

import typer

from gossamer.cli import inputs, options, standard
from gossamer.cli.arrival import arrived
from gossamer.cli.crawl import tell
from gossamer.cli.display import Display
from gossamer.cli.interruption import Interruption
from gossamer.cli.loop import run as run_loop
from gossamer.cli.running import work
from gossamer.cli.summary import Summary
from gossamer.errors import BadInput
from gossamer.settings import Settings, load
from gossamer.telemetry import logs
from gossamer.valkey.datadir import running
from gossamer.wiring.joining import connect, warn_of_memory_only
from gossamer.worker.spiders import load_spider

Spiders = Annotated[
    list[str] | None,
    typer.Option(
        "--spider", metavar="NAME", help="Only work for this spider. Unset: all that are installed.",
        rich_help_panel=options.WHERE, show_default=False,
    ),
]  # fmt: skip


def worker(
    pool: options.Pool = "shared",
    spider: Spiders = None,
    output: options.OutputOption = None,
    bus: options.BusOption = None,
    prefix: options.TopicPrefix = None,
    concurrency: options.Concurrency = None,
    processes: options.ProcessesOption = None,
    resolve: options.Resolve = None,
    allow_network: options.AllowNetwork = None,
    ca_file: options.CaFile = None,
    egress: options.Egress = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fetch what others put into a frontier, until told to stop.

    gossamer worker --frontier redis://frontier.example:6379 --bus kafka://broker.example:9092

    gossamer worker --frontier redis://frontier.example:6379 -o pages.jsonl.zst

    With --bus the pages go there, and into files only where -o names some.

    Ctrl-C or SIGTERM stops it in good order: what is under way is finished, the rest given back.
    """
    settings = load(
        {
            "crawl.output": tuple(output) if output else None,
            "bus": bus,
            "topics.prefix": prefix,
            "allow_networks": tuple(allow_network) if allow_network else None,
            "worker.concurrency": concurrency,
            "worker.processes": processes,
            "fetch.resolve": inputs.overrides(resolve),
            "fetch.ca_file": ca_file,
            "egress": egress,
            "frontier": frontier,
            "data_dir": data_dir,
        },
        config=config,
    )
    logs.set_up(settings.log_level, form=settings.log_format)
    if settings.bus:
        from gossamer.bus.open import check_bus  # the services' libraries are for those who need them
        from gossamer.wiring.service import for_the_bus

        check_bus(settings.bus)
        settings = for_the_bus(settings)
    if settings.crawl.output:
        inputs.outputs(settings.crawl.output)
    for name in spider or []:
        load_spider(name)
    address = settings.frontier or running(settings.data_dir)
    if not address:
        raise BadInput(
            "there is no frontier to work for; name one with --frontier, for example redis://frontier.example:6379, or "
            "by --data-dir the data directory of a gossamer that runs on this machine"
        )
    summary = run_loop(_work(settings, address, pool, spider or [], quiet=quiet or json))
    tell(summary, as_json=json, quiet=quiet, on_stderr="-" in settings.crawl.output)
    raise typer.Exit(1 if summary.unwritten or summary.missing_records else 0)


def _places(settings: Settings) -> str:
    """Where the pages go: whoever meant the bus of a service sees at once that it was not named."""
    files = standard.shown(", ".join(settings.crawl.output))
    if not settings.bus:
        return f"{files} (--bus: to a service's consumers)"
    return ", ".join(filter(None, (f"the bus {standard.shown(settings.bus)}", files)))


async def _work(settings: Settings, address: str, pool: str, spiders: list[str], *, quiet: bool) -> Summary:
    with (
        Display(f"Working for the pool {pool}; pages go to {_places(settings)}", quiet=quiet) as display,
        Interruption(None, display.say) as interruption,
    ):
        frontier = await arrived("frontier", lambda: connect(settings, address), display.say)
        warn_of_memory_only(frontier, display.say)
        try:
            began = time.monotonic()
            worked = await work(
                settings,
                frontier,
                address,
                display,
                interruption,
                pool=pool,
                spiders=spiders,
                bus=bool(settings.bus),
            )
            return Summary(
                f"of the pool {pool}",
                None,
                worked.tally,
                time.monotonic() - began,
                (*settings.crawl.output, *([settings.bus] if settings.bus else [])),
                interrupted=True,
                pool=pool,
                unwritten=bool(worked.fault),
                notes=[worked.fault] if worked.fault else [],
            )
        finally:
            await frontier.close()
