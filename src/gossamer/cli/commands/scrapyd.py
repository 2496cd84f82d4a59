"""`gossamer scrapyd`: runs Scrapy projects on this machine, for every client of Scrapyd.

Safe to change: help and greeting. Fixed: the meaning of the options and the exit codes.
"""

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.cli import options, terminal
from gossamer.cli.running import run as run_loop
from gossamer.cli.terminal import Interruption
from gossamer.errors import BadInput, GossamerError
from gossamer.telemetry import logs


@options.takes("log_level", "log_format")
def scrapyd(
    *,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", "-d", metavar="DIR", help="Work in this folder instead of the current one.", show_default=False
        ),
    ] = None,
    scrapyd_conf: Annotated[
        list[Path] | None,
        typer.Option(
            "--scrapyd-conf",
            metavar="FILE",
            help="Read this configuration file of Scrapyd after the others; may be repeated.",
            show_default=False,
        ),
    ] = None,
    **given: Any,
) -> None:
    """Run Scrapy projects on this machine, in place of Scrapyd: same port, same folders, same clients.

    gossamer scrapyd

    Reads scrapyd.conf as Scrapyd does. Ctrl-C or SIGTERM stops the server; jobs run on, and the next start in the same
    folder continues with them.
    """
    settings = options.load_settings(given)
    level = settings.log_level if "log_level" in settings.given else options.SERVICE_LOG_LEVEL
    logs.set_up(level, style=settings.log_format)
    files = [path.absolute() for path in scrapyd_conf or []]
    for path in files:
        if not path.is_file():
            raise BadInput(f"--scrapyd-conf: there is no file {path}")
    if folder is not None:
        try:
            os.chdir(folder)
        except OSError as error:
            raise BadInput(f"--folder: cannot work in {folder}: {error.strerror}") from None
    run_loop(_run(files))


async def _run(files: list[Path]) -> None:
    try:
        from gossamer.platform.scrapyd.config import load, scrapyd_files
        from gossamer.platform.scrapyd.server import run_scrapyd
    except ModuleNotFoundError as error:
        raise BadInput(f"{error.name} is missing. Install it with: pip install 'gossamer-crawl[platform]'") from None
    config = load([*scrapyd_files(), *map(str, files)], os.environ)
    stopping = asyncio.Event()

    def ready(address: str) -> None:
        terminal.print_stderr(
            f"Scrapyd's interface is at {address}. {config.slots} jobs run at a time. Ctrl-C stops the server, not the "
            "jobs."
        )

    with Interruption(stopping.set, lambda _: None) as interruption:
        try:
            await run_scrapyd(config, stopping=stopping, ready=ready, say=terminal.say)
        except* GossamerError as errors:
            raise errors.exceptions[0] from None
        except* asyncio.CancelledError:
            if not interruption.was_interrupted:
                raise
    terminal.say("Stopped. Jobs that were running go on; the next start in this folder continues with them.")
