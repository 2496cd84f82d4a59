"""The table of commands, and the way from a command line to one of them.

Fixed: the names of commands, which scripts use. Nothing here may import a command's module before the command is known:
the program would start slowly.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import cast

from gossamer.cli import terminal
from gossamer.cli.parser import (
    CommandGroup,
    HelpWanted,
    Parameter,
    ProgramCommand,
    UsageError,
    option,
    suggested_option,
)

COMMAND_GROUPS = {
    "Crawl": {
        "demo": ("crawl:demo", "Try Gossamer: crawl a small web that runs on this machine."),
        "crawl": ("crawl:crawl", "Crawl a site into a file, politely and completely."),
        "fetch": ("fetch:fetch", "Fetch one page and show what a crawl would learn from it."),
        "extract": ("extract:extract", "Try extraction rules on one page."),
        "shell": ("shell:shell", "Try selectors on one page, at a Python prompt."),
        "new": ("new:new", "Write a spider to start from into a new file."),
        "export": ("export:export", "Convert an output of a crawl into another format."),
        "text": ("text:text", "Extract the main content of the pages of a crawl."),
    },
    "Inspect": {
        "crawls": ("crawls:app", "List, show, pause, stop and delete crawls."),
        "why": ("why:why", "Explain the state of a URL in a crawl."),
        "report": ("export:report", "Make a page about a crawl from its records."),
        "top": ("performance:top", "Show what crawling processes wait for, until Ctrl-C."),
        "diagnose": ("performance:diagnose", "Find out what limits a crawl, and what to change."),
        "bench": ("performance:bench", "Measure a spider that is as slow as you ask for."),
    },
    "Service": {
        "up": ("up:up", "Run a complete crawl service on this machine."),
        "serve": ("up:serve", "Run the services and the REST API, without workers."),
        "worker": ("worker:worker", "Fetch the requests of a shared frontier, until Ctrl-C."),
        "feed": ("feed:feed", "Check requests and send them to a running service."),
        "stats": ("stats:stats", "Show counts of requests, responses, processes and the queue."),
        "domains": ("domains:app", "Show and change how fast each domain is fetched."),
        "logins": ("logins:app", "List, store and delete the logins that crawl requests name."),
        "monitor": ("monitor:monitor", "Show a running service, or jobs on servers, until Ctrl-C."),
        "dump": ("feed:dump", "Print the messages of a topic, one JSON object per line."),
    },
    "Projects and jobs": {
        "deploy": ("gossamer_platform.commands.deploy:deploy", "Deploy the Scrapy project of this folder."),
        "jobs": ("gossamer_platform.commands.jobs:app", "Start, list and cancel jobs, read their logs and items."),
        "schedules": (
            "gossamer_platform.commands.schedules:app",
            "List, add and change the rules by which jobs start.",
        ),
        "projects": ("gossamer_platform.commands.projects:app", "Show and change the settings of projects."),
        "versions": ("gossamer_platform.commands.versions:app", "List the versions of a project, and choose one."),
        "variables": ("gossamer_platform.commands.access:variables", "List, set and delete variables and secrets."),
    },
    "Administration": {
        "scrapyd": (
            "gossamer_platform.commands.servers:scrapyd",
            "Run Scrapy projects on this machine, in place of Scrapyd.",
        ),
        "manager": (
            "gossamer_platform.commands.servers:manager",
            "Run a manager of Scrapy projects, for nodes anywhere.",
        ),
        "node": ("gossamer_platform.commands.servers:node", "Run the jobs of a manager on this machine."),
        "nodes": ("gossamer_platform.commands.nodes:app", "List the machines that run jobs; drain or forget one."),
        "tokens": (
            "gossamer_platform.commands.access:tokens",
            "List, make and revoke the tokens that a server accepts.",
        ),
        "migrate": ("migrate:app", "Import the queue of another crawler: scrapy-redis."),
        "completion": ("completion:completion", "Print the script by which a shell completes commands."),
    },
}
"""Commands by their part of `gossamer --help`, in its order: the module in `cli.commands`, or of another package with
its whole name, with the function (or the group of commands), and the command's line in that list, which fits a terminal
of 80 columns. To add a command, add a row here. A line repeats the first sentence of the command's own docstring,
because `gossamer --help` imports none of the modules; a test compares the two."""
COMMANDS = {name: row for rows in COMMAND_GROUPS.values() for name, row in rows.items()}
"""Rows of all commands, by name."""

_STARTING = {
    "up": "Starting the frontier, the REST API and the workers …",
    "serve": "Starting the services and the REST API …",
    "scrapyd": "Starting Scrapyd's interface …",
    "manager": "Starting the manager …",
    "node": "Starting the node …",
}
"""Sentences for a person in a terminal while the modules of a server are loaded: seconds, on a slow machine."""
_HELP_WORD = "help"
"""`gossamer help crawl` is `gossamer crawl --help`, as other programs have it."""
LIST = "list"
"""Command that a group means when it is named alone."""
HELP = "Crawl the web politely and completely, each page once, on one machine or on many that share the work."
_VERSION = option("--version", help="Show the version, and whether the compiled extension is in use.")


def parse_and_run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. A usage error is shown in one line. Raises GossamerError."""
    first_word = next((argument for argument in arguments if not argument.startswith("-")), "")
    is_misplaced = first_word in COMMANDS and arguments[0] != first_word
    if first_word in _STARTING and "--help" not in arguments:
        terminal.say_in_terminal(_STARTING[first_word])
    command: ProgramCommand | CommandGroup | None = None
    words = [*arguments[1:], "--help"] if first_word == _HELP_WORD and arguments[0] == first_word else arguments
    try:
        if not words or words[0].startswith("-"):
            return _run_without_command(words)
        command = find(words[0])
        command, words = command_in(words)
        return command.run(words)
    except HelpWanted:
        _show_help(command)
        return 0 if (arguments and not isinstance(command, CommandGroup)) or {"--help", "-h"} & set(words) else 2
    except UsageError as error:
        advice = f" Write options after the command: gossamer {first_word} {arguments[0]}." if is_misplaced else ""
        terminal.say(f"{error}{advice} See {command.path if command else 'gossamer'} --help.")
        return error.exit_code


def _run_without_command(words: Sequence[str]) -> int:
    """Run a command line that begins with an option of the program itself, or is empty. Raises UsageError and
    HelpWanted."""
    if "--version" in words:
        from gossamer.compiled import version_lines  # the extension is loaded only here

        terminal.print_result(version_lines())
        return 0
    if not words or words[0] in ("--help", "-h"):
        raise HelpWanted
    typed = words[0].partition("=")[0]
    raise UsageError(f"No such option: {typed}.{suggested_option(typed, ['--version'])}")


def find(name: str) -> ProgramCommand | CommandGroup:
    """Return a command, or a group of commands. Raises UsageError for a name that is not in COMMANDS."""
    if name not in COMMANDS:
        raise UsageError(f"No such command {name!r:.50}.{_suggested_command(name, _words_of_commands())}")
    module, _, attribute = COMMANDS[name][0].partition(":")
    # Other packages register their commands by name: nothing here imports them before they are asked for.
    found = getattr(import_module(module if "." in module else f"gossamer.cli.commands.{module}"), attribute)
    if not isinstance(found, CommandGroup):
        return ProgramCommand(f"gossamer {name}", found)
    found.path = f"gossamer {name}"
    return found


def all_commands() -> list[ProgramCommand]:
    """Return all commands, those of groups included."""
    found = [find(name) for name in COMMANDS]
    return [one for each in found for one in ([each] if isinstance(each, ProgramCommand) else each.commands.values())]


def command_in(words: Sequence[str]) -> tuple[ProgramCommand, Sequence[str]]:
    """Return the command that a command line begins with, and the words behind it. A group of commands that is named
    alone, or with options only, means its command `list`. Raises UsageError, and HelpWanted where there is none."""
    found, rest = find(words[0]), words[1:]
    if isinstance(found, ProgramCommand):
        return found, rest
    if rest and rest[0] in ("--help", "-h"):
        raise HelpWanted
    if not rest or rest[0].startswith("-"):
        if LIST in found.commands:
            return found.commands[LIST], rest
        if not rest:
            raise HelpWanted
        raise UsageError(f"No such option: {rest[0].partition('=')[0]}.")
    if rest[0] not in found.commands:
        own = {name: name for name in found.commands}
        if "show" in own and rest[0].removeprefix("g").isdigit():  # a job's number, or a group's
            own = {rest[0]: f"show {rest[0]}"}
        raise UsageError(f"No such command {rest[0]!r:.50}.{_suggested_command(rest[0], own)}")
    return found.commands[rest[0]], rest[1:]


def _words_of_commands() -> dict[str, str]:
    """Return by name the words of all commands, and of those in groups of this package whose names no other has."""
    found: dict[str, list[str]] = {}
    for group in (name for name, (place, _) in COMMANDS.items() if place.endswith(":app") and "." not in place):
        for name in cast(CommandGroup, find(group)).commands:
            found.setdefault(name, []).append(f"{group} {name}")
    alone = {name: words[0] for name, words in found.items() if len(words) == 1}
    return alone | {name: name for name in COMMANDS}


def _suggested_command(typed: str, words: Mapping[str, str]) -> str:
    """Return ` Did you mean 'crawl'?` with the words of the command whose name is nearest, if one is near."""
    from difflib import get_close_matches  # late: only mistakes need it

    near = get_close_matches(typed, words, 1)
    return f" Did you mean {words[near[0]]!r}?" if near else ""


def _show_help(command: ProgramCommand | CommandGroup | None) -> None:
    """Show the help of a command; None: that of the program."""
    from gossamer.cli import help as pages  # late: few command lines ask for it

    if command is not None:
        text = pages.help_of(command)
    else:
        version = Parameter("version", _VERSION, bool, False, False)
        lines = {title: [(name, line) for name, (_, line) in rows.items()] for title, rows in COMMAND_GROUPS.items()}
        end = (
            "First steps: gossamer demo, then gossamer crawl https://example.com\n"
            " Options of a command: gossamer crawl --help"
        )
        text = pages.list_of_commands("gossamer [OPTIONS] COMMAND [ARGS]...", [HELP], [version], lines, end)
    terminal.print_result(f"{text}\n", styled=True)
