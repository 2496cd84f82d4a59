"""The table of commands, and the parser of the command line.

Fixed: the names of commands, which scripts use. Nothing here may import a command's module before the command is known:
the program would start slowly.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin

import typer

from gossamer.cli import terminal
from gossamer.errors import BadInput

COMMANDS = {
    "crawl": ("crawl:crawl", "Crawl a site into a file, politely and completely."),
    "export": ("export:export", "Convert an output of a crawl into another format."),
    "fetch": ("fetch:fetch", "Fetch one page and show what a crawl would learn from it."),
    "report": (
        "export:report",
        "Make a page about a crawl from its records: what failed and why, then everything else.",
    ),
    "shell": ("shell:shell", "Try selectors on one page, at a Python prompt."),
    "new": ("new:new", "Write a spider to start from into a new file."),
    "why": (
        "why:why",
        "Explain the state of a URL in a crawl: scope rule, robots.txt verdict, position in the queue, result.",
    ),
    "up": ("up:up", "Run a complete crawl service on this machine: Valkey, the services, the REST API and workers."),
    "serve": (
        "up:serve",
        "Run the services and the REST API without workers; start those with `gossamer worker` on any machine.",
    ),
    "worker": ("worker:worker", "Fetch the requests that others put into a shared frontier, until Ctrl-C."),
    "feed": (
        "feed:feed",
        "Check requests and send them to a running service: crawls, actions, statistics, domain requests.",
    ),
    "info": (
        "info:info",
        "List the crawls of a running service, or show the state and the queue of an application or a crawl.",
    ),
    "crawls": ("crawls:app", "List, show and delete the crawls of a folder or of a shared frontier."),
    "stop": ("info:stop", "Stop a crawl: its queued requests are dropped, and it accepts no new ones."),
    "stats": ("info:stats", "Show counts of requests, responses, running processes and queued requests."),
    "domains": ("domains:app", "Show and change how fast each domain is fetched, and which domains are blocked."),
    "dump": ("feed:dump", "Print the messages of a topic, one JSON object per line, until Ctrl-C or --limit."),
    "monitor": (
        "monitor:monitor",
        "Show a running crawl service until Ctrl-C; with targets, a Scrapy project's jobs on servers.",
    ),
    "top": (
        "performance:top",
        "Show what the crawling processes of a data directory wait for, stage by stage, until Ctrl-C.",
    ),
    "diagnose": (
        "performance:diagnose",
        "Find out what limits a crawl, what to change, and what that should give; then compare with the run before.",
    ),
    "bench": (
        "performance:bench",
        "Measure a spider that is as slow as you ask for, against a server of its own.",
    ),
    "scrapyd": (
        "gossamer_platform.commands.servers:scrapyd",
        "Run Scrapy projects on this machine, in place of Scrapyd: same port, same folders, same clients.",
    ),
    "deploy": (
        "gossamer_platform.commands.deploy:deploy",
        "Deploy the Scrapy project of this folder, and wait until its spiders are listed.",
    ),
    "schedule": (
        "gossamer_platform.commands.schedule:schedule",
        "Run a spider of a deployed project as a job, or as a group of jobs.",
    ),
    "jobs": ("gossamer_platform.commands.jobs:jobs", "List jobs, the latest first."),
    "job": (
        "gossamer_platform.commands.jobs:job",
        "Show one job: its state, its log or its items; cancel it, or run it again.",
    ),
    "manager": (
        "gossamer_platform.commands.servers:manager",
        "Run a manager of Scrapy projects: Scrapyd's interface and /v1, for nodes on any machine.",
    ),
    "node": ("gossamer_platform.commands.servers:node", "Run the jobs of a manager elsewhere on this machine."),
    "schedules": (
        "gossamer_platform.commands.schedules:app",
        "List, add and change schedules: rules by which the server makes jobs, or submits crawl requests, by cron "
        "line, at an interval, or once.",
    ),
    "versions": (
        "gossamer_platform.commands.versions:app",
        "List the deployed versions of a project, choose the one that jobs run, and delete versions.",
    ),
    "project": (
        "gossamer_platform.commands.versions:project",
        "Show the settings of a project on the server: limits and retries of its jobs, retention; or change them.",
    ),
    "variables": (
        "gossamer_platform.commands.access:variables",
        "List, set and delete the environment variables and secrets of a project.",
    ),
    "tokens": (
        "gossamer_platform.commands.access:tokens",
        "List, make and revoke tokens, by which persons, programs and nodes use a server.",
    ),
    "nodes": ("gossamer_platform.commands.versions:nodes", "List the nodes, the machines that run jobs; or drain one."),
    "migrate": ("migrate:app", "Import the queue of another crawler: scrapy-redis."),
    "extract": (
        "extract:extract",
        "Try extraction rules on one page: show the items and, for each field, what was found.",
    ),
    "text": ("text:text", "Extract the main content of pages, as Markdown or text, from the records of a crawl."),
    "completion": (
        "completion:completion",
        "Print the script with which a shell completes commands, options and names of crawls.",
    ),
    "demo": ("crawl:demo", "Start a small web on this machine, crawl it, and show the result."),
}
"""Commands in the order of `gossamer --help`: the module in `cli.commands`, or of another package with its whole name,
with the function (or Typer program) that runs it, and its line in that list. To add a command, add
a row here. A line repeats the first sentence of the command's own docstring, because `gossamer --help` imports none of
the modules; a test compares the two."""

_STARTING = {
    "up": "Starting the frontier, the REST API and the workers …",
    "serve": "Starting the services and the REST API …",
    "scrapyd": "Starting Scrapyd's interface …",
    "manager": "Starting the manager …",
    "node": "Starting the node …",
}
"""Sentences for a person in a terminal while the modules of a server are loaded: seconds, on a slow machine."""
_WITH_OUTPUTS = {"crawl", "up", "worker"}
"""Commands with -o whose --items and --pages belong to the -o before them. Must be those that take `output` or
`also_output` (cli/options.py)."""

_CommandLineError: type[Exception] = next(
    error for error in typer.BadParameter.__mro__ if error.__name__ == "ClickException"
)
"""Base of the parser's errors, such as those for an unknown command or option. It is taken from a subclass, because
some versions of Typer import it from click and others contain a copy of click."""


_HELP_COLUMNS = 120
"""Width of the help on a wide terminal. docs/reference is made without it."""


def parse_and_run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. A usage error is shown in one line. Raises GossamerError."""
    first_word = next((argument for argument in arguments if not argument.startswith("-")), None)
    if first_word in _STARTING and "--help" not in arguments:
        terminal.say_in_terminal(_STARTING[first_word])
    app = load(first_word) if first_word in COMMANDS else _list_of_commands()
    if first_word in _WITH_OUTPUTS:
        from gossamer.cli.options import bind_records  # loaded with the command

        arguments = bind_records(arguments)
    command = typer.main.get_command(app)
    _convert_quickly(command)
    try:
        code = command(args=without_equals(arguments, command), prog_name="gossamer", standalone_mode=False)
    except _CommandLineError as error:
        is_misplaced = first_word in COMMANDS and arguments[0] != first_word
        advice = f"Write options after the command: gossamer {first_word} {arguments[0]}." if is_misplaced else ""
        return _show_usage_error(error, advice=advice)
    return code if isinstance(code, int) else 0


def without_equals(arguments: Sequence[str], command: Any) -> list[str]:
    """Return the command line with `-oNAME` for `-o=NAME`, for all short options of a command and its subcommands.

    The parser takes the `=` for a part of the value, so that an output would be written to a folder named `=`.
    """
    takes_value = _short_options(command)
    before_end = arguments.index("--") if "--" in arguments else len(arguments)
    written = list(arguments)
    for at, argument in enumerate(written[:before_end]):
        name, equals, value = argument.partition("=")
        flags, last = name[1:-1], name[-1:]
        takes_it = takes_value.get(last) and all(takes_value.get(flag) is False for flag in flags)
        if name[:1] == "-" and equals and value and takes_it:
            written[at] = name + value
    return written


def _short_options(command: Any) -> dict[str, bool]:
    """Return the letters of the short options of a command and its subcommands, and whether each takes a value."""
    found: dict[str, bool] = {}
    for inner in getattr(command, "commands", {}).values():
        found |= _short_options(inner)
    for parameter in command.params:
        letters = [flag[1] for flag in parameter.opts if len(flag) == 2 and flag[0] == "-"]
        found |= dict.fromkeys(letters, not getattr(parameter, "is_flag", False))
    return found


def _convert_quickly(command: Any) -> None:
    """Make the parameters of a command, and of its subcommands, skip Typer's conversion of texts and flags, and show no
    value of flags in the help, where some versions of Typer write `--fresh <bool>`, nor the types of arguments.

    The conversion would not change them, but in some versions of Typer it loads pydantic, which takes a quarter of the
    time in which a crawl starts.
    """
    for inner in getattr(command, "commands", {}).values():
        _convert_quickly(inner)
    annotations = {
        name: get_args(one.annotation)[0] if get_origin(one.annotation) is Annotated else one.annotation
        for name, one in (inspect.signature(command.callback).parameters.items() if command.callback else ())
    }
    get_parameters = command.get_params

    def get_quick_parameters(context: Any) -> list[Any]:
        parameters: list[Any] = get_parameters(context)  # with --help, which is not among `command.params`
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = parameter.metavar or " "
            if parameter.param_type_name == "argument" and annotations.get(parameter.name) in _TEXTS:
                parameter.display_type_rich = _no_type
            if not isinstance(parameter.process_value, partial):
                kind = annotations.get(parameter.name)
                parameter.process_value = partial(_process_value, parameter, parameter.process_value, kind)
        return parameters

    command.get_params = get_quick_parameters


def _no_type(ctx: Any = None) -> None:
    """Return what the help shows as the type of an argument that is a text: nothing. Some versions of Typer would show
    `<list[str]>`."""


_TEXTS = (str, str | None, list[str], list[str] | None)
"""Types of parameters whose values are texts, as they are typed. Must hold no type that Typer would convert."""


_NUMBERS: dict[Any, tuple[type, str]] = {
    int: (int, "a whole number"), int | None: (int, "a whole number"), float: (float, "a number"),
    float | None: (float, "a number"),
}  # fmt: skip
"""Types of parameters that are numbers: how a text is read, and the word for it."""


def _process_value(parameter: Any, convert: Callable[[Any, Any], Any], kind: Any, context: Any, value: Any) -> Any:
    """Return the value of a parameter, as `convert` of Typer does. `kind`: its annotation. Raises BadInput for a text
    that is not the number that it should be: some versions of Typer would show pydantic's message without the text."""
    is_absent = value is None or value == ()
    needs_conversion = not (is_absent or kind in _TEXTS or isinstance(value, bool | int))
    if isinstance(value, str) and kind in _NUMBERS:
        read, words = _NUMBERS[kind]
        try:
            read(value)
        except ValueError:
            raise BadInput(f"{parameter.opts[0]}: cannot use {value!r:.40}. Write {words}.") from None
    if needs_conversion or (is_absent and parameter.required):  # Typer tells about a missing argument
        return convert(context, value)
    if isinstance(value, tuple):
        value = list(value) or None
    return parameter.callback(context, parameter, value) if parameter.callback else value


def _module_name(row: str) -> str:
    """Return the module of a row of COMMANDS. Other packages register their commands by name: nothing here imports
    them before they are asked for."""
    return row if "." in row else f"gossamer.cli.commands.{row}"


def load(command: str | None = None) -> typer.Typer:
    """Return the program with this command; None: with all commands. Raises KeyError for a name not in COMMANDS."""
    from gossamer.cli.options import describe_to_typer  # loaded with the command

    app = _program()
    for name in COMMANDS if command is None else [command]:
        module, _, attribute = COMMANDS[name][0].partition(":")
        found = getattr(import_module(_module_name(module)), attribute)
        if isinstance(found, typer.Typer):
            _describe(found)
            app.add_typer(found, name=name)
        else:
            describe_to_typer(found)
            app.command(name, help=_paragraphs(found))(found)
    return app


def _describe(app: typer.Typer) -> None:
    """Give the commands of a program the signatures that Typer reads."""
    from gossamer.cli.options import describe_to_typer

    for command in app.registered_commands:
        if command.callback:
            command.help = command.help or _paragraphs(command.callback)
    for one in (*app.registered_commands, app.registered_callback):
        if one and one.callback:
            describe_to_typer(one.callback)
    for group in app.registered_groups:
        if group.typer_instance:
            _describe(group.typer_instance)


def _paragraphs(command: Callable[..., object]) -> str:
    """Return the docstring with each paragraph on one line, so that the help is wrapped to the terminal."""
    return "\n\n".join(" ".join(part.split("\n")) for part in inspect.cleandoc(command.__doc__ or "").split("\n\n"))


def _list_of_commands() -> typer.Typer:
    """Return the program with empty commands, for its help and for an unknown command."""
    app = _program()
    for name, (_, help_line) in COMMANDS.items():
        app.command(name, help=help_line)(lambda: None)
    return app


def _program() -> typer.Typer:
    """Return the program without its commands."""
    app = typer.Typer(
        name="gossamer",
        help="Crawl the web politely and completely, each page once, on one machine or on many that share the work.",
        epilog="First steps: gossamer crawl https://example.com   (then: gossamer crawl --help)",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _HELP_COLUMNS},
    )
    app.callback(invoke_without_command=True)(_version)
    return app


def _version(
    version: bool = typer.Option(
        False, "--version", is_eager=True, help="Show the version, and whether the compiled extension is in use."
    ),
) -> None:
    if version:
        from gossamer.compiled import version_lines  # the extension is loaded only here

        terminal.print_result(version_lines())
        raise typer.Exit


def _show_usage_error(error: Exception, *, advice: str = "") -> int:
    """Show the error, the advice and where to find help, in one line.

    A command group without a command has shown its help already, and its error has no message.
    """
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoSuchOption" and context is not None:
        message = _unknown_option(error, context)
    else:
        message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    if message:
        sentence = message if message.endswith((".", "?")) else f"{message}."
        if advice:
            sentence = f"{sentence} {advice}"
        terminal.say(f"{sentence} See {context.command_path if context else 'gossamer'} --help.")
    return 2


_LEAST_PREFIX = len("--x")
"""Characters of an unknown option from which those that begin with it are suggested."""
_SUGGESTED = 3
"""Most options that are suggested."""


def _unknown_option(error: Any, context: Any) -> str:
    """Return the message for an unknown option, with the options that are meant: those that begin with what was typed,
    else those with the fewest letters to change, at most a third of what was typed."""
    typed = error.option_name
    flags = [flag for one in context.command.get_params(context) for flag in (*one.opts, *one.secondary_opts)]
    known = [flag for flag in flags if flag.startswith("--")]
    meant = [flag for flag in known if len(typed) >= _LEAST_PREFIX and flag.startswith(typed)]
    if not meant and typed.startswith("--"):
        distances = {flag: _edit_distance(typed, flag) for flag in known}
        least = min(distances.values())
        meant = [flag for flag in known if distances[flag] == least] if least <= len(typed.strip("-")) / 3 else []
    *others, last = meant[:_SUGGESTED] or [""]
    names = f"{', '.join(others)} or {last}" if others else last
    return f"No such option: {typed}." + (f" Did you mean {names}?" if last else "")


def _edit_distance(one: str, other: str) -> int:
    """Return how many letters of `one` must be changed, added, left out or swapped with the next to make `other`."""
    before, row = list[int](), list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        previous, before, row = before, row, [at]
        for there, wanted in enumerate(other, 1):
            least = min(before[there] + 1, row[there - 1] + 1, before[there - 1] + (letter != wanted))
            if at > 1 and there > 1 and letter == other[there - 2] and one[at - 2] == wanted:
                least = min(least, previous[there - 2] + 1)
            row.append(least)
    return row[-1]
