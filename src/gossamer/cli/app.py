"""The program: its commands, and how an error ends it."""

import os
import sys
from importlib import import_module

import typer
from rich.console import Console

from gossamer import __version__
from gossamer.errors import GossamerError
from gossamer.telemetry import logs

COMMANDS = {
    "crawl": "crawl:crawl",
    "fetch": "fetch:fetch",
    "why": "why:why",
    "up": "up:up",
    "serve": "up:serve",
    "worker": "work:worker",
    "feed": "feed:feed",
    "info": "info:info",
    "stop": "stop:stop",
    "stats": "stats:stats",
    "domains": "domains:app",
    "dump": "dump:dump",
    "monitor": "monitor:monitor",
    "demo": "demo:demo",
    "worker-process": "worker_process:worker_process",
}
"""Each with its module and function. Only the one that is called is imported: a crawl needs nothing of the services."""

HIDDEN = {"worker-process"}


def _version(
    version: bool = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True),
) -> None:
    if version:
        typer.echo(f"gossamer {__version__}")
        raise typer.Exit


def load(wanted: str | None = None) -> typer.Typer:
    """The program with this command; None, or one that there is not: with all of them."""
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
    app.callback(invoke_without_command=True)(_version)
    for name in [wanted] if wanted in COMMANDS else COMMANDS:
        module, _, function = COMMANDS[name].partition(":")
        found = getattr(import_module(f"gossamer.cli.{module}"), function)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, hidden=name in HIDDEN)(found)
    return app


def main() -> None:
    """Run the command line and exit: 0 done, 1 nothing came of it, 2 bad input, 130 interrupted."""
    logs.set_up()
    try:
        load(next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None))()
    except GossamerError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"gossamer: {error}", markup=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
