"""`gossamer schedule`: makes a job of a spider.

Safe to change: help texts (then regenerate docs/reference) and sentences (tests and docs quote some). Fixed: flags,
exit codes, and the fields of `--json`, which are those of the API.
"""

from typing import Annotated, Any

import typer

from gossamer.cli import targets, terminal
from gossamer.cli.commands.jobs import exit_code_of, follow_log, show_end
from gossamer.errors import BadInput
from gossamer.platform.client.platform import PlatformClient
from gossamer.platform.client.scrapyd import ScrapydClient
from gossamer.platform.client.targets import choose_target

Arguments = Annotated[
    list[str] | None,
    typer.Option("-a", metavar="NAME=VALUE", help="Argument of the spider; may be repeated.", show_default=False),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("-s", metavar="NAME=VALUE", help="Setting of Scrapy; may be repeated.", show_default=False),
]
Version = Annotated[
    str | None,
    typer.Option("--version", metavar="NAME", help="Version to run. Unset: the project's latest.", show_default=False),
]


def schedule(
    spider: Annotated[str, typer.Argument(metavar="SPIDER", help="Name of the spider.")],
    target: targets.Target = None,
    project: targets.Project = None,
    a: Arguments = None,
    s: Settings = None,
    version: Version = None,
    priority: Annotated[
        float, typer.Option("--priority", metavar="N", help="The highest one starts first, within the project.")
    ] = 0.0,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end. Exit code 1 if the job failed.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show the log until the end, as --wait.")] = False,
    json: targets.Json = False,
) -> None:
    """Run a spider of a deployed project as a job.

    gossamer schedule quotes

    gossamer schedule quotes -a tag=humor -s DOWNLOAD_DELAY=1 --follow

    The job starts when a node, a machine that runs jobs, has a free slot. Ctrl-C ends this command, not the job.
    """
    here = targets.here()
    chosen = choose_target(target, here)
    name = targets.project_name(project, chosen, here)
    arguments, settings = targets.pairs(a or (), "-a"), targets.pairs(s or (), "-s")
    client = targets.connect(chosen)
    if isinstance(client, ScrapydClient):
        if wait or follow:
            raise BadInput(f"{client.session.url} is a Scrapyd, which does not tell how a job ended. Leave out --wait.")
        more = {"priority": str(priority), **({"_version": version} if version else {})}
        job = client.schedule(name, spider, arguments, settings, **more)
        if json:
            targets.print_json({"name": job, "project": name, "spider": spider})
        else:
            terminal.print_result(f"Job {job} of {name}/{spider} waits on {client.session.url}.")
        return
    body = {"project": name, "spider": spider, "version": version, "priority": priority}
    created = client.create("/jobs", {**body, "arguments": arguments, "settings": settings})
    _after(client, created, wait=wait, follow=follow, json=json)


def _after(client: PlatformClient, job: dict[str, Any], *, wait: bool, follow: bool, json: bool) -> None:
    """Show the job that was made; with `wait` or `follow`, its end."""
    number = job["id"]
    if not json:
        terminal.print_result(f"Job {number} of {job['project']}/{job['spider']} is {job['state']}.")
    if not (wait or follow):
        if json:
            targets.print_json(job)
        else:
            terminal.print_stderr(f"To follow it: gossamer job {number} --log -f")
        return
    terminal.exit_on_signal(f"The job goes on. To cancel it: gossamer job {number} --cancel")
    if follow:
        follow_log(client, number, on_stderr=json)
    ended = client.wait(number)
    if json:
        targets.print_json(ended)
    else:
        show_end(ended)
    raise typer.Exit(exit_code_of(ended))
