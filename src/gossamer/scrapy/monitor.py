"""`scrapy monitor`: shows this project's jobs on the targets of its scrapy.cfg, every 5 seconds.

Scrapy finds the command by the entry point `scrapy.commands` of this package, or by the project's setting
`COMMANDS_MODULE = "gossamer.scrapy.monitor"`. The module loads with every `scrapy` command, so it imports little.
Fixed: the name of the module, from which Scrapy takes the name of the command.
"""

import argparse
from pathlib import Path
from typing import Any

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from gossamer.errors import GossamerError
from gossamer.platform_client.monitoring import picture, poll, watch
from gossamer.platform_client.targets import choose_target, find_project, with_credentials


class MonitorCommand(ScrapyCommand):
    """Scrapy's interface of a command."""

    requires_project = True
    default_settings = {"LOG_ENABLED": False}  # noqa: RUF012 (Scrapy's interface)

    def syntax(self) -> str:
        """Return the arguments."""
        return "[target] ..."

    def short_desc(self) -> str:
        """Return the line in the list of commands."""
        return "Show this project's jobs on the targets of scrapy.cfg, every 5 seconds"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options."""
        super().add_options(parser)
        parser.add_argument("--once", action="store_true", help="show the jobs once and end")
        parser.add_argument("--project", "-p", metavar="NAME", help="project on the servers; else that of scrapy.cfg")

    def run(self, args: list[str], opts: Any) -> None:
        """Run the command."""
        try:
            project = find_project(Path.cwd())
            if project is None:
                raise UsageError("there is no scrapy.cfg here or above")
            named = [choose_target(name, project) for name in args]
            wanted = named or [with_credentials(target) for target in project.targets.values()]
            if not wanted:
                raise UsageError("scrapy.cfg has no targets. Add a section [deploy:NAME] with url = http://…")
        except GossamerError as error:
            raise UsageError(str(error), print_help=False) from None
        pairs = [(target, opts.project or target.project or project.default_name()) for target in wanted]
        if opts.once:
            print("\n".join(picture(poll(pairs))))
            return
        try:
            watch(pairs, lambda states: print("\n".join(picture(states)), end="\n\n", flush=True))
        except (KeyboardInterrupt, BrokenPipeError):
            return
