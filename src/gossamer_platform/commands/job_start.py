"""`gossamer jobs start`: makes a job of a spider, or a group of jobs.

Fixed: flags, exit codes, and the fields of `--json`, which are those of the API.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from gossamer.cli import targets, terminal
from gossamer.cli.parser import argument, option
from gossamer.errors import BadInput, GossamerError
from gossamer.net.paths import path_of
from gossamer.platform_client.http import ServerRefused
from gossamer.platform_client.platform import PlatformClient
from gossamer.platform_client.scrapyd import ScrapydClient
from gossamer.platform_client.splitting import SplitSource
from gossamer.platform_client.targets import ScrapyProject, choose_target
from gossamer.policy.words import counted
from gossamer_platform.commands.job_ends import (
    GroupProgress,
    exit_code_of,
    follow_log,
    say_retry,
    show_end,
    states_text,
)

_START_URLS: Final = "start_urls"
"""Use of a part that replaces the spider's start URLs. The API's word: fixed."""
_FRONTIER: Final = "GOSSAMER_FRONTIER"
"""Setting with the address of a frontier that jobs share. Scrapy projects have it: fixed."""
_SHOWN_SPIDERS: Final = 20
"""Spiders of a project that are named where one is not found."""
_GROUP: Final = "Groups of jobs"
"""Title of a panel in the help."""

Arguments = Annotated[
    list[str] | None,
    option("-a", metavar="NAME=VALUE", help="Argument of the spider; may be repeated.", show_default=False),
]
Settings = Annotated[
    list[str] | None,
    option("-s", metavar="NAME=VALUE", help="Setting of Scrapy; may be repeated.", show_default=False),
]
Version = Annotated[
    str | None,
    option("--version", metavar="NAME", help="Version to run. Unset: the project's latest.", show_default=False),
]

SplitFile = Annotated[
    Path | None,
    option(
        "--split-file",
        metavar="FILE",
        help="Make a group of jobs, each of which gets a part of this file: .csv, .tsv, .jsonl, or one URL a line.",
        show_default=False,
        panel=_GROUP,
    ),
]
Parts = Annotated[
    int | None,
    option("--parts", min=1, max=1000, metavar="N", help="Number of parts.", panel=_GROUP),
]
SplitAs = Annotated[
    str,
    option(
        "--split-as",
        metavar="start_urls|ARGUMENT",
        help="How the spider gets its part: in place of its start_urls, or as a file on the node whose path is"
        " the argument of this name.",
        panel=_GROUP,
    ),
]
Column = Annotated[
    str | None,
    option(
        "--column",
        metavar="NAME",
        help="Column with the URLs. Unset: url.",
        show_default=False,
        panel=_GROUP,
    ),
]
Processes = Annotated[
    int | None,
    option(
        "--processes",
        min=1,
        max=1000,
        metavar="N",
        help="Make a group of so many jobs that share one frontier. The project needs GOSSAMER_FRONTIER, in "
        "its settings or by -s.",
        show_default=False,
        panel=_GROUP,
    ),
]


def start(
    spider: Annotated[str, argument(metavar="SPIDER", help="Name of the spider.")],
    target: targets.Target = None,
    project: targets.Project = None,
    a: Arguments = None,
    s: Settings = None,
    version: Version = None,
    priority: Annotated[
        float, option("--priority", metavar="N", help="The highest one starts first, within the project.")
    ] = 0.0,
    split_file: SplitFile = None,
    parts: Parts = None,
    split_as: SplitAs = _START_URLS,
    column: Column = None,
    processes: Processes = None,
    *,
    wait: Annotated[bool, option("--wait", help="Wait for the end. Exit code 1 if a job failed.")] = False,
    follow: Annotated[bool, option("--follow", "-f", help="Show the log until the end, as --wait.")] = False,
    json: targets.Json = False,
) -> None:
    """Run a spider of a deployed project as a job. Some options make a group of jobs.

    gossamer jobs start quotes

    gossamer jobs start quotes -a tag=humor -s DOWNLOAD_DELAY=1 --follow

    gossamer jobs start details --split-file urls.csv --parts 20

    gossamer jobs start shop --processes 4 -s GOSSAMER_FRONTIER=redis://localhost:6379

    A job starts when a node, a machine that runs jobs, has a free slot. Ctrl-C ends this command, not the job.
    """
    is_split, is_group = split_file is not None, split_file is not None or processes is not None
    _check_group(is_split, parts, column, processes, follow=follow)
    here = targets.here()
    chosen = choose_target(target, here)
    name = targets.project_name(project, chosen, here)
    body: dict[str, Any] = {"project": name, "spider": spider, "version": version, "priority": priority}
    body |= {"arguments": targets.pairs(a or (), "-a"), "settings": targets.pairs(s or (), "-s")}
    opened = SplitSource(split_file, column=column) if split_file else None
    client = targets.connect(chosen)
    if isinstance(client, ScrapydClient):
        if is_group or wait or follow:
            raise BadInput(
                f"{client.session.url} is a Scrapyd, which has no groups and does not tell how a job ended. Start "
                "single jobs without --wait, or run `gossamer scrapyd` in its place."
            )
        _on_scrapyd(client, body, json=json)
    elif opened is not None:
        assert parts is not None
        inputs = _send_parts(client, name, opened, parts, split_as)
        group = client.create("/groups", {**body, "inputs": inputs, "input_use": split_as})
        _after_group(client, group, wait=wait, json=json)
    elif processes is not None:
        _warn_without_frontier(client, body, here)
        _after_group(client, client.create("/groups", {**body, "processes": processes}), wait=wait, json=json)
    else:
        _after(client, _create(client, body), wait=wait, follow=follow, json=json)


def _create(client: PlatformClient, body: dict[str, Any]) -> dict[str, Any]:
    """Make a job."""
    with advice_if_missing(client, body["project"], body["spider"]):
        return dict(client.create("/jobs", body))


@contextlib.contextmanager
def advice_if_missing(client: PlatformClient, project: str, spider: str) -> Iterator[None]:
    """Raise BadInput, with what to do, if the server refuses the call because the project or the spider is missing."""
    try:
        yield
    except ServerRefused as error:
        if error.status != 404:
            raise
        found = client.call("GET", "/versions", query={"project": project})
        ready = [each for each in found if each["state"] == "ready"]
        if not ready:
            advice = "Correct it, and deploy it again: gossamer deploy" if found else "Deploy it first: gossamer deploy"
        elif str(error).endswith(f"spider '{spider}' not found"):
            names = sorted({one for each in ready for one in each["spiders"] or ()})
            advice = f"The project has {', '.join(names[:_SHOWN_SPIDERS])}. A new spider needs: gossamer deploy"
        else:
            advice = "To see what there is: gossamer versions list"
        raise BadInput(f"{error}. {advice}") from None


def _check_group(is_split: bool, parts: int | None, column: str | None, processes: int | None, *, follow: bool) -> None:
    """Raise BadInput for options that do not belong together."""
    if is_split and parts is None:
        raise BadInput("--split-file: add --parts N, the number of jobs")
    if not is_split and (parts is not None or column is not None):
        raise BadInput("--parts and --column need --split-file FILE")
    if is_split and processes is not None:
        raise BadInput("give either --split-file or --processes")
    if follow and (is_split or processes is not None):
        raise BadInput(
            "--follow shows the log of one job. For a group use --wait, and then: gossamer jobs log NUMBER -f"
        )


def _warn_without_frontier(client: PlatformClient, body: dict[str, Any], here: ScrapyProject | None) -> None:
    """Warn if nothing that this command can read names the frontier that the jobs of a group are to share."""
    names = set(body["settings"])
    with contextlib.suppress(GossamerError):
        names |= {each["name"] for each in client.call("GET", f"/projects/{path_of(body['project'])}/variables")}
    if _FRONTIER not in names and not (here and _names_frontier(here)):
        terminal.say(
            f"Warning: neither -s nor the project's variables nor its settings here name {_FRONTIER}, the server of "
            f"the queue that the jobs share. Unless the nodes' environment does, each job fails at its start. Add -s "
            f"{_FRONTIER}=redis://HOST:6379, or set it for all jobs: gossamer variables set {_FRONTIER} redis://HOST:6379"
        )


def _names_frontier(project: ScrapyProject) -> bool:
    """Return whether the project's settings module mentions the frontier. False also if it cannot be read."""
    path = project.folder.joinpath(*project.settings_module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return _FRONTIER in file.read_text(encoding="utf-8")
    return False


def _on_scrapyd(client: ScrapydClient, body: dict[str, Any], *, json: bool) -> None:
    more = {"priority": str(body["priority"]), **({"_version": body["version"]} if body["version"] else {})}
    job = client.schedule(body["project"], body["spider"], body["arguments"], body["settings"], **more)
    if json:
        terminal.print_json({"name": job, "project": body["project"], "spider": body["spider"]})
    else:
        terminal.print_result(f"Job {job} of {body['project']}/{body['spider']} waits on {client.session.url}.")


def _send_parts(client: PlatformClient, project: str, file: SplitSource, parts: int, use: str) -> list[str]:
    """Send the parts of a file, and return their digests."""
    progress = targets.ProgressLine(f"Sending {file.path.name}")
    digests = []
    suffix = ".txt" if use == _START_URLS else file.path.suffix
    for number, part in enumerate(file.parts(parts, only_urls=use == _START_URLS), 1):
        digests.append(client.send_input(project, f"part{suffix}", part.content))
        progress.show(number, min(parts, file.rows))
    progress.clear()
    if len(digests) < parts:
        terminal.say(
            f"{file.path} has only {counted(file.rows, 'row')}, so the group has {counted(len(digests), 'job')}"
        )
    return digests


def _after_group(client: PlatformClient, group: dict[str, Any], *, wait: bool, json: bool) -> None:
    """Show the group that was made; with `wait`, its end."""
    if not json:
        count = sum(group["jobs"].values())
        name = f"{group['project']}/{group['spider']}"
        terminal.print_result(f"Group g{group['id']} of {name} has {counted(count, 'job')}.")
    if wait:
        terminal.exit_on_signal(f"The jobs go on. To cancel them: gossamer jobs cancel g{group['id']}")
        group = client.wait_for_group(group["id"], GroupProgress())
    elif not json:
        terminal.print_stderr(f"To see them: gossamer jobs show g{group['id']}")
    if json:
        terminal.print_json(group)
    elif wait:
        terminal.print_result(f"Group g{group['id']}: {states_text(group)}.")
        if "failed" in group["jobs"]:
            terminal.print_stderr(f"To see which: gossamer jobs show g{group['id']}")
    if wait:
        raise SystemExit(0 if set(group["jobs"]) <= {"finished"} else 1)


def _after(client: PlatformClient, job: dict[str, Any], *, wait: bool, follow: bool, json: bool) -> None:
    """Show the job that was made; with `wait` or `follow`, its end."""
    number = job["id"]
    if not json:
        terminal.print_result(f"Job {number} of {job['project']}/{job['spider']} is {job['state']}.")
    if not (wait or follow):
        if json:
            terminal.print_json(job)
        else:
            terminal.print_stderr(f"To follow it: gossamer jobs log {number} -f")
        return
    terminal.exit_on_signal(f"The job goes on. To cancel it: gossamer jobs cancel {number}")
    if follow:
        follow_log(client, number, on_stderr=json)
    ended = client.wait(number, None if follow else say_retry)
    if json:
        terminal.print_json(ended)
    else:
        show_end(ended, with_advice=not follow)
    raise SystemExit(exit_code_of(ended))
