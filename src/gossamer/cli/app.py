"""The commands, and how a command line is parsed."""

import inspect
import os
from collections.abc import Callable, Sequence
from importlib import import_module

import typer

from gossamer import __version__
from gossamer.cli import standard

COMMANDS = {
    "crawl": ("crawl:crawl", "Crawl a site, politely and completely, into a file."),
    "fetch": ("fetch:fetch", "Fetch one page and show all that a worker would know of it."),
    "why": (
        "why:why",
        "Explain the state of a URL in a crawl: scope rule, robots.txt verdict, position in the queue, result.",
    ),
    "up": (
        "up:up",
        "Run the whole service on this machine: its own Valkey, the services, the REST API and the workers.",
    ),
    "serve": (
        "up:serve",
        "Run the services and the REST API, without workers: those are `gossamer worker`, on any number of machines.",
    ),
    "worker": ("worker:worker", "Fetch what others put into a frontier, until told to stop."),
    "feed": (
        "feed:feed",
        "Check requests and put them on the bus of a running cluster: crawls, actions, statistics, domain requests.",
    ),
    "info": (
        "info:info",
        "List all crawls, or show what waits of an application or a crawl; of one crawl also what was done.",
    ),
    "stop": ("info:stop", "Stop a crawl: nothing of it is fetched any more, and what waits is dropped."),
    "stats": ("info:stats", "Show requests taken, answers by status code, processes alive, and what waits."),
    "domains": ("domains:app", "Show and change how fast sites are fetched, and which are not fetched at all."),
    "dump": ("feed:dump", "Print a topic's messages, a JSON object a line, until Ctrl-C, or as many as --limit says."),
    "monitor": ("monitor:monitor", "Watch crawls, domains, workers and rates of a running cluster, until Ctrl-C."),
    "migrate": ("migrate:app", "Bring what another crawler left into the frontier: the queue of scrapy-redis."),
    "demo": ("demo:demo", "Start a small web on this machine, crawl it, and show where the pages are."),
}
"""Each with its module and function, and the first sentence of its help. Only the one that is called is imported: a
crawl needs nothing of the services, and the list of commands nothing of any of them."""

_Misuse: type[Exception] = typer.BadParameter.__mro__[2]
"""What the parser raises for an option or command that is none; it has no name that all of Typer's versions share."""


def parse_and_run(arguments: Sequence[str]) -> int:
    """Run the command they name; its exit code. What cannot be parsed is said in one line. Raises GossamerError."""
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    app = load(wanted) if wanted in COMMANDS else _outline()
    try:
        code = app(args=list(arguments), prog_name="gossamer", standalone_mode=False)
    except _Misuse as error:
        return _misused(error)
    return code if isinstance(code, int) else 0


def load(wanted: str | None = None) -> typer.Typer:
    """The program with this command; None: with all of them."""
    app = _program()
    for name in COMMANDS if wanted is None else [wanted]:
        module, _, function = COMMANDS[name][0].partition(":")
        found = getattr(import_module(f"gossamer.cli.commands.{module}"), function)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, help=_paragraphs(found))(found)
    return app


def _paragraphs(command: Callable[..., object]) -> str:
    """The docstring with each paragraph on one line: help is wrapped to the terminal, not as the source is."""
    return "\n\n".join(" ".join(part.split("\n")) for part in inspect.cleandoc(command.__doc__ or "").split("\n\n"))


def _outline() -> typer.Typer:
    """The program with the names of its commands, for its help and for a name that is none."""
    app = _program()
    for name, (_, words) in COMMANDS.items():
        app.command(name, help=words)(lambda: None)
    return app


def _program() -> typer.Typer:
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
    return app


def _version(
    version: bool = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True),
) -> None:
    if version:
        standard.show(f"gossamer {__version__}")
        raise typer.Exit


def _misused(error: Exception) -> int:
    """Say it in one line, with where help is. A command group called by its name alone has shown its help already."""
    context = getattr(error, "ctx", None)
    words = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    if words:
        standard.say(f"{words.removesuffix('.')}; see {context.command_path if context else 'gossamer'} --help")
    return 2
