"""The table of commands, and the way from a command line to one of them.

Fixed: the names of commands, which scripts use. Nothing here may import a command's module before the command is known:
the program would start slowly.
"""

from collections.abc import Iterable, Sequence
from importlib import import_module

from gossamer.cli import terminal
from gossamer.cli.parser import CommandGroup, HelpWanted, Parameter, ProgramCommand, UsageError, option

COMMANDS = {
    "crawl": ("crawl:crawl", "Crawl a site into a file, politely and completely."),
    "changes": (
        "changes:changes",
        "List what is new, changed, gone or back in a crawl that is kept up to date, the oldest first.",
    ),
    "fresh": ("changes:fresh", "Show how up to date the pages of a crawl are, domain by domain."),
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
with the function (or the group of commands), and its line in that list. To add a command, add
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
HELP = "Crawl the web politely and completely, each page once, on one machine or on many that share the work."
_VERSION = option("--version", help="Show the version, and whether the compiled extension is in use.")


def parse_and_run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. A usage error is shown in one line. Raises GossamerError."""
    first_word = next((argument for argument in arguments if not argument.startswith("-")), "")
    is_misplaced = first_word in COMMANDS and arguments[0] != first_word
    if first_word in _STARTING and "--help" not in arguments:
        terminal.say_in_terminal(_STARTING[first_word])
    command: ProgramCommand | CommandGroup | None = None
    words = arguments
    try:
        if not words or words[0].startswith("-"):
            return _run_without_command(words)
        command = find(words[0])
        command, words = command_in(words)
        return command.run(words)
    except HelpWanted:
        _show_help(command)
        return 0 if (arguments and not isinstance(command, CommandGroup)) or {"--help", "-h"} & set(arguments) else 2
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
    raise UsageError(f"No such option: {words[0].partition('=')[0]}.")


def find(name: str) -> ProgramCommand | CommandGroup:
    """Return a command, or a group of commands. Raises UsageError for a name that is not in COMMANDS."""
    if name not in COMMANDS:
        raise UsageError(f"No such command {name!r:.50}.{_suggested_command(name, COMMANDS)}")
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
    """Return the command that a command line begins with, and the words behind it. Raises UsageError, and HelpWanted
    for a group of commands that is named alone."""
    found, rest = find(words[0]), words[1:]
    if isinstance(found, ProgramCommand):
        return found, rest
    if not rest or rest[0] in ("--help", "-h"):
        raise HelpWanted
    if rest[0].startswith("-"):
        raise UsageError(f"No such option: {rest[0].partition('=')[0]}.")
    if rest[0] not in found.commands:
        raise UsageError(f"No such command {rest[0]!r:.50}.{_suggested_command(rest[0], found.commands)}")
    return found.commands[rest[0]], rest[1:]


def _suggested_command(typed: str, names: Iterable[str]) -> str:
    """Return ` Did you mean 'crawl'?` with the name that is nearest, if one is near."""
    from difflib import get_close_matches  # late: only mistakes need it

    near = get_close_matches(typed, names, 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _show_help(command: ProgramCommand | CommandGroup | None) -> None:
    """Show the help of a command; None: that of the program."""
    from gossamer.cli import help as pages  # late: few command lines ask for it

    if command is not None:
        text = pages.help_of(command)
    else:
        version = Parameter("version", _VERSION, bool, False, False)
        lines = [(name, line) for name, (_, line) in COMMANDS.items()]
        end = "First steps: gossamer crawl https://example.com   (then: gossamer crawl --help)"
        text = pages.list_of_commands("gossamer [OPTIONS] COMMAND [ARGS]...", [HELP], [version], lines, end)
    terminal.print_result(f"{text}\n", styled=True)
