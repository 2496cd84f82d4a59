"""The program: its commands, and how an error ends it."""

import os
import sys

import typer
from rich.console import Console

from gossamer import __version__
from gossamer.cli import crawl, demo, fetch, why, work, worker_process
from gossamer.errors import GossamerError
from gossamer.telemetry import logs
from gossamer.wiring.processes import COMMAND

app = typer.Typer(
    name="gossamer",
    help="Crawls the web politely, completely, and never twice, on one machine or on many that share a frontier.",
    epilog="First steps: gossamer crawl https://example.com   (then: gossamer crawl --help)",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None if os.environ.get("GOSSAMER_PLAIN_HELP") else "rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
app.command("crawl")(crawl.crawl)
app.command("fetch")(fetch.fetch)
app.command("why")(why.why)
app.command("worker")(work.worker)
app.command("demo")(demo.demo)
app.command(COMMAND, hidden=True)(worker_process.worker_process)


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True),
) -> None:
    if version:
        typer.echo(f"gossamer {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line and exit: 0 done, 1 nothing came of it, 2 bad input, 130 interrupted."""
    logs.set_up()
    try:
        app()
    except GossamerError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"gossamer: {error}", markup=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
