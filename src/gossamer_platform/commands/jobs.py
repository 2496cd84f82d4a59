"""`gossamer jobs`: starts and shows jobs, their logs and items; cancels them, and runs them again.

Fixed: names of commands and flags, exit codes, and the fields of `--json`, which are those of the API.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Annotated, Any, Final

from rich.console import Console, RenderableType
from rich.text import Text

from gossamer.cli import tables, targets, terminal
from gossamer.cli.parser import CommandGroup, argument, option
from gossamer.errors import BadInput
from gossamer.platform_client.http import ServerRefused, ServerUnreachable
from gossamer.platform_client.platform import ENDED, PlatformClient
from gossamer.platform_client.scrapyd import ScrapydClient
from gossamer.platform_client.targets import choose_target
from gossamer_platform.commands.job_ends import (
    GroupProgress,
    exit_code_of,
    follow_log,
    say_retry,
    show_end,
    states_text,
)
from gossamer_platform.commands.job_start import start
from gossamer_platform.outcome import meaning_of

_STYLES: Final = {"running": "green", "starting": "green", "stopping": "yellow", "failed": "red", "pending": "cyan"}
"""Colour by state."""
_STATES: Final = ("pending", "starting", "running", "stopping", "finished", "failed", "cancelled")
"""States of jobs. The API's: fixed."""
_WATCH_SECONDS: Final = 2.0
"""Pause between two pictures of --watch."""
_LIMITS: Final = tuple(name for name in targets.LIMITS if name != "retry_seconds")
"""Limits of a job that are shown with it, where it has them."""
_COPIED: Final = ("project", "spider", "arguments", "settings", "priority", *_LIMITS, "tags", "input")
"""Fields that a job that is run again takes over, beside its version."""
_GROUP_JOBS: Final = 1000
"""Most jobs of a group. The API's: fixed."""
_FORMATS: Final = ("jsonl", "json", "csv", "xml")
"""Formats of items. Those of the API: fixed."""

app = CommandGroup(help="Start, list and cancel jobs, read their logs and items.")
app.command("start")(start)


@app.command("list")
def list_jobs(
    target: targets.Target = None,
    project: Annotated[
        str | None,
        option(
            "--project", "-p", metavar="NAME", help="Only of this project. Unset: that of scrapy.cfg here, else all."
        ),
    ] = None,
    spider: Annotated[str, option("--spider", metavar="NAME", help="Only of this spider.")] = "",
    state: Annotated[
        list[str] | None,
        option(
            "--state",
            metavar="STATE",
            help=f"Only in this state; may be repeated: {', '.join(_STATES)}.",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        str | None, option("--group", metavar="gN", help="Only of this job group.", show_default=False)
    ] = None,
    limit: Annotated[int, option("--limit", "-n", min=1, metavar="N", help="Most jobs to show.")] = 20,
    *,
    everything: Annotated[bool, option("--all", help="Jobs of all projects, also inside of one.")] = False,
    watch: Annotated[bool, option("--watch", help="Show the list anew every 2 seconds, until Ctrl-C.")] = False,
    json: targets.Json = False,
) -> None:
    """List jobs, the latest first.

    gossamer jobs list

    gossamer jobs list --state running --state pending --watch
    """
    here = targets.here()
    chosen = choose_target(target, here)
    wanted = "" if everything else project or chosen.project or (here.default_name() if here else "")
    client = targets.connect(chosen)
    filters = {"project": wanted or None, "spider": spider or None, **_filters(state, group)}
    if isinstance(client, ScrapydClient):
        raise BadInput(f"{client.session.url} is a Scrapyd. To see its jobs: gossamer monitor {client.session.url}")
    if json:
        terminal.print_json(client.jobs(limit, **filters))
        return
    if not watch:
        found = client.jobs(limit, **filters)
        if found:
            tables.show(_table(found, with_project=not wanted))
        else:
            where = f"project {wanted}" if wanted else client.session.url
            if spider or state or group:
                terminal.say(f"{where} has no such jobs. To make one: gossamer jobs start SPIDER")
            else:
                terminal.say(f"{where} has no jobs yet. {_first_step(client, wanted)}")
        return
    _watch(client, limit, filters)


def _filters(state: list[str] | None, group: str | None) -> dict[str, Any]:
    """Return parameters of the API. Raises BadInput."""
    if unknown := set(state or ()) - set(_STATES):
        raise BadInput(f"--state: there is no state {unknown.pop()!r:.40}. Write one of {', '.join(_STATES)}.")
    if group is None:
        return {"state": state}
    if (number := group_number(group)) is None:
        raise BadInput(f"--group: {group!r:.40} is no group. Write g and its number, such as g3.")
    return {"state": state, "group": number}


def _first_step(client: PlatformClient, project: str) -> str:
    """Return what a person does first to get a job of a project. Empty: of any project."""
    usual = "To make one: gossamer jobs start SPIDER"
    if not project:
        return usual
    try:
        versions = client.call("GET", "/versions", query={"project": project})
    except ServerRefused:  # the token may not see versions
        return usual
    if not versions:
        return "It has no version: deploy one with gossamer deploy, then run gossamer jobs start SPIDER"
    if any(each["state"] != "broken" for each in versions):
        return usual
    reason = (versions[-1]["reason"].strip().splitlines() or ["the reason is not known"])[-1]
    return f"Its version {versions[-1]['name']} is broken: {reason}. Correct the project, then run gossamer deploy"


def _watch(client: PlatformClient, limit: int, filters: dict[str, Any]) -> None:
    from rich.live import Live

    terminal.exit_below_picture()
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            try:
                shown: RenderableType = _table(client.jobs(limit, **filters), with_project=filters["project"] is None)
            except (ServerUnreachable, ServerRefused) as error:
                if not error.is_passing:
                    raise
                shown = Text(str(error), style="red")
            live.update(shown, refresh=True)
            time.sleep(_WATCH_SECONDS)


def _table(found: list[dict[str, Any]], *, with_project: bool) -> tables.PlainTable:
    table = tables.PlainTable()
    table.add_column("job", justify="right", no_wrap=True)
    table.add_column("spider", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column(f"created ({targets.zone_text()})", no_wrap=True)
    table.add_column("ran", justify="right", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for job in found:
        name = f"{job['project']}/{job['spider']}" if with_project else job["spider"]
        state = Text(job["state"], style=_STYLES.get(job["state"], ""))
        created, ran = targets.time_text(job["created_at"]), targets.runtime_text(job)
        table.add_row(str(job["id"]), name, state, created, ran, _reason_text(job))
    return table


def _reason_text(job: dict[str, Any]) -> str:
    """Return why a job failed, or why it waits for another attempt and until when."""
    earlier = job["earlier_attempts"]
    if job["state"] != "pending" or job["reason"] or not earlier:
        return str(job["reason"])
    return f"next attempt at {targets.time_text(job['not_before'])}, after {earlier[-1]['reason']}"


Identity = Annotated[
    str, argument(metavar="JOB", help="Number of the job, its name, or a group such as g3.", show_default=False)
]
OneJob = Annotated[str, argument(metavar="JOB", help="Number of the job, or its name.", show_default=False)]
Attempt = Annotated[int, option("--attempt", min=0, metavar="N", help="Attempt to print. 0: the last.")]
Wait = Annotated[bool, option("--wait", help="Wait for its end. Exit code 1 if it failed.")]


@app.command("show")
def show_job(
    identity: Identity,
    target: targets.Target = None,
    project: targets.Project = None,
    *,
    wait: Wait = False,
    json: targets.Json = False,
) -> None:
    """Show a job: its state, its arguments and limits, its last error.

    gossamer jobs show 17

    A group, such as g3, is several jobs that one command has made. This shows its jobs.
    """
    client = targets.connect_platform(target, targets.here())
    if (group := group_number(identity)) is not None:
        _show_group(client, _find_group(client, group), wait=wait, json=json)
    else:
        _print_job(client, _find_job(client, identity, project), wait=wait, json=json)


@app.command("log")
def print_log(
    identity: OneJob,
    target: targets.Target = None,
    project: targets.Project = None,
    attempt: Attempt = 0,
    *,
    follow: Annotated[bool, option("--follow", "-f", help="Go on until the job has ended.")] = False,
) -> None:
    """Print the log of a job.

    gossamer jobs log 17 -f

    With -f the exit code is 1 if the job failed.
    """
    client = targets.connect_platform(target, targets.here())
    if group_number(identity) is not None:
        raise BadInput(f"a group has no log of its own. `gossamer jobs show {identity}` lists its jobs.")
    found = _find_job(client, identity, project)
    number = int(found["id"])
    if found.get("log_deleted"):
        terminal.say(f"retention has deleted the log of job {number}: {_retention_text(client, found, 'logs')}.")
        raise SystemExit(1)
    if not follow:
        terminal.print_parts(client.read(f"/jobs/{number}/log", attempt=attempt))
        return
    terminal.exit_on_signal(f"The job goes on. To cancel it: gossamer jobs cancel {number}")
    follow_log(client, number)
    ended = client.wait(number)
    show_end(ended, on_stderr=True)
    raise SystemExit(exit_code_of(ended))


@app.command("items")
def print_items(
    identity: Identity,
    target: targets.Target = None,
    project: targets.Project = None,
    form: Annotated[str, option("--format", metavar="|".join(_FORMATS), help="Format of the items.")] = _FORMATS[0],
    csv_guard: Annotated[
        bool, option("--csv-guard", help="Write a single quote before cells that a spreadsheet would run as a formula.")
    ] = False,
    attempt: Attempt = 0,
) -> None:
    """Print the items of a job; of a group, those of all its jobs.

    gossamer jobs items 17 --format csv > items.csv
    """
    if form not in _FORMATS:
        raise BadInput(
            f"--format: there is no format {form!r:.40}. Write {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}."
        )
    if csv_guard and form != "csv":
        raise BadInput(f"--csv-guard: {form} has no cells. Write --format csv, or omit the option.")
    client = targets.connect_platform(target, targets.here())
    if (group := group_number(identity)) is None:
        number = _find_job(client, identity, project)["id"]
        terminal.print_parts(client.read(f"/jobs/{number}/items.{form}", attempt=attempt, csv_guard=csv_guard or None))
        _exit_if_items_are_missing(client, [client.job(number)] if attempt == 0 else [])
        return
    if form != _FORMATS[0] or attempt:
        raise BadInput(f"the items of a group are printed as {_FORMATS[0]}, and of the last attempts only")
    members = _members(client, group)
    for each in members:
        terminal.print_parts(client.read(f"/jobs/{each['id']}/items.{form}"))
    _exit_if_items_are_missing(client, members)


@app.command("cancel")
def cancel_job(
    identity: Identity, target: targets.Target = None, project: targets.Project = None, *, json: targets.Json = False
) -> None:
    """Cancel a job, or the jobs of a group. A second time: do not wait for an orderly end.

    gossamer jobs cancel 17
    """
    client = targets.connect_platform(target, targets.here())
    if (number := group_number(identity)) is not None:
        group = _find_group(client, number)
        if ENDED.issuperset(group["jobs"]):
            terminal.say(f"all jobs of group g{number} had ended before, so there is nothing to cancel.")
        else:
            group = client.call("POST", f"/groups/{number}/cancel")
        _show_group(client, group, wait=False, json=json)
        return
    found = _find_job(client, identity, project)
    if found["state"] in ENDED:
        ended = f"{found['state']}, {targets.moment_text(found['ended_at'])}"
        terminal.say(f"job {found['id']} had ended before ({ended}), so there is nothing to cancel.")
    else:
        found = dict(client.call("POST", f"/jobs/{found['id']}/cancel"))
    _print_job(client, found, wait=False, json=json)


@app.command("rerun")
def rerun_job(
    identity: Identity,
    target: targets.Target = None,
    project: targets.Project = None,
    *,
    wait: Wait = False,
    json: targets.Json = False,
) -> None:
    """Run a job again, with the same arguments and settings; of a group, the jobs that ended and have not finished.

    gossamer jobs rerun 17 --wait

    A group whose jobs share a frontier runs again as a whole: its crawl begins anew.
    """
    client = targets.connect_platform(target, targets.here())
    if (number := group_number(identity)) is not None:
        _rerun_group(client, _find_group(client, number), wait=wait, json=json)
        return
    old = _find_job(client, identity, project)
    if "GOSSAMER_CRAWL_ID" in old["settings"] and old["group_id"]:
        raise BadInput(
            f"job {old['id']} shares a frontier with the others of its group. To run the group again: gossamer jobs "
            f"rerun g{old['group_id']}"
        )
    _print_job(client, dict(client.create("/jobs", _copied(old))), wait=wait, json=json)


def _copied(old: dict[str, Any]) -> dict[str, Any]:
    """Return the request for a job like an earlier one."""
    return {**{name: old[name] for name in _COPIED}, "version": old["requested_version"]}


def _print_job(client: PlatformClient, found: dict[str, Any], *, wait: bool, json: bool) -> None:
    if wait:
        terminal.exit_on_signal(f"The job goes on. To cancel it: gossamer jobs cancel {found['id']}")
        found = client.wait(found["id"], say_retry)
    if json:
        terminal.print_json(found)
    else:
        _show_job(found)
    if wait:
        raise SystemExit(exit_code_of(found))


def group_number(identity: str) -> int | None:
    """Return the number of a group that is written as g3. None: it is something else."""
    digits = identity.removeprefix("g")
    return int(digits) if digits != identity and digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def _members(client: PlatformClient, group: int) -> list[dict[str, Any]]:
    """Return the jobs of a group, the first one first."""
    return client.jobs(_GROUP_JOBS, group=group)[::-1]


def _show_group(client: PlatformClient, group: dict[str, Any], *, wait: bool, json: bool) -> None:
    number = group["id"]
    if wait:
        terminal.exit_on_signal(f"The jobs go on. To cancel them: gossamer jobs cancel g{number}")
        group = client.wait_for_group(number, GroupProgress())
    if json:
        terminal.print_json(group)
    else:
        terminal.print_result(f"Group g{number} of {group['project']}/{group['spider']}: {states_text(group)}.")
        if not wait:
            tables.show(_table(_members(client, number), with_project=False))
    if wait:
        raise SystemExit(0 if set(group["jobs"]) <= {"finished"} else 1)


def _rerun_group(client: PlatformClient, group: dict[str, Any], *, wait: bool, json: bool) -> None:
    """Run the jobs of a group again that have ended and not finished; if they share a frontier, all in a new group."""
    members = _members(client, group["id"])
    if group["kind"] == "processes":
        _show_group(client, _new_group(client, members), wait=wait, json=json)
        return
    if wait or json:
        raise BadInput("--wait and --json are for a job, or a group whose jobs share a frontier")
    failed = [each for each in members if each["state"] in ENDED and each["state"] != "finished"]
    made = [client.create("/jobs", _copied(each)) for each in failed]
    terminal.print_result(f"Jobs that run again: {', '.join(str(each['id']) for each in made) or 'none'}.")


def _new_group(client: PlatformClient, members: list[dict[str, Any]]) -> dict[str, Any]:
    """Make a new group like one whose jobs share a frontier: its crawl begins anew. Raises BadInput."""
    if not members:
        raise BadInput("the jobs of this group are deleted already")
    body = {name: value for name, value in _copied(members[0]).items() if name not in ("input", "tags")}
    body["settings"] = {name: value for name, value in body["settings"].items() if name != "GOSSAMER_CRAWL_ID"}
    return dict(client.create("/groups", {**body, "processes": len(members)}))


def _find_job(client: PlatformClient, identity: str, project: str | None) -> dict[str, Any]:
    """Return the job with this number or name. Raises BadInput."""
    if identity.isascii() and identity.isdigit() and len(identity) < 19:
        with _advising(f"there is no job {identity}. `gossamer jobs` lists jobs with their numbers."):
            return client.job(int(identity))
    found = client.jobs(1, name=identity, project=project)
    if not found:
        raise BadInput(
            f"there is no job with the name {identity!r:.80}. `gossamer jobs` lists jobs with their numbers."
        )
    return client.job(found[0]["id"])


def _find_group(client: PlatformClient, number: int) -> dict[str, Any]:
    """Return the group with this number. Raises BadInput."""
    with _advising(f"there is no group g{number}. `gossamer jobs show N` names the group of a job."):
        return dict(client.call("GET", f"/groups/{number}"))


@contextlib.contextmanager
def _advising(advice: str) -> Iterator[None]:
    """Raise BadInput with this advice where the server has no such thing."""
    try:
        yield
    except ServerRefused as error:
        if error.status != 404:
            raise
        raise BadInput(advice) from None


def _exit_if_items_are_missing(client: PlatformClient, printed: list[dict[str, Any]]) -> None:
    """End with exit code 1, and the reason, if an ended job has scraped items of which the server has none."""
    for job in printed:
        scraped = (job["stats"] or {}).get("item_scraped_count", 0) if job["state"] in ENDED else 0
        if scraped and not client.call("GET", f"/jobs/{job['id']}/items", query={"limit": 1})["items"]:
            if job.get("items_deleted"):
                why = f"Retention deletes them: {_retention_text(client, job, 'items')}."
            else:
                why = (
                    "They were deleted, or it keeps none: `gossamer scrapyd` keeps the items of later jobs with the "
                    "line items_dir = items below [scrapyd] in its scrapyd.conf."
                )
            terminal.say(f"the server has no items of job {job['id']}, which has scraped {scraped:,}. {why}")
            raise SystemExit(1)


def _retention_text(client: PlatformClient, job: dict[str, Any], kind: str) -> str:
    """Return the settings by which a server deletes the logs or the items of a job's project."""
    owner: dict[str, Any] = next(
        (each for each in client.call("GET", "/projects") if each["name"] == job["project"]), {}
    )
    own = [f"{name} = {owner[name]:g}" for name in (f"keep_{kind}_days", f"keep_{kind}_jobs") if owner.get(name)]
    if own:
        return f"the project {job['project']} has {' and '.join(own)}"
    return (
        f"jobs_to_keep below [scrapyd] in scrapyd.conf, or --keep-{kind} of `gossamer manager`, sets how many are kept"
    )


def _version_text(found: dict[str, Any]) -> str:
    """Return which version was asked for, and which one runs or ran."""
    asked, ran = found["requested_version"], found["version"]
    if not ran:
        return asked or "the project's default"
    default = "the project's default when it started"
    return str(ran) if ran == asked else f"{ran} ({asked or default})"


def _limits_text(found: dict[str, Any]) -> str:
    """Return the limits that the job has, by their names in the API."""
    return "\n".join(f"{name} {targets.limit_text(name, found[name])}" for name in _LIMITS if found[name])


def _show_job(found: dict[str, Any]) -> None:
    rows = {
        "job": f"{found['id']}  {found['name']}",
        "spider": f"{found['project']}/{found['spider']}",
        "version": _version_text(found),
        "group": f"g{found['group_id']}" if found["group_id"] else "",
        "schedule": f"number {found['schedule_id']}" if found["schedule_id"] else "",
        "state": found["state"] + (f": {found['reason']}" if found["reason"] else ""),
        "waits for": found.get("waits_for") or "",
        "why": meaning_of(found["reason"]),
        "arguments": "  ".join(f"{name}={value}" for name, value in found["arguments"].items()),
        "settings": "  ".join(f"{name}={value}" for name, value in found["settings"].items()),
        "created": targets.moment_text(found["created_at"]),
        "started": targets.moment_text(found["started_at"]),
        "ended": targets.moment_text(found["ended_at"]),
        "ran": targets.runtime_text(found),
        "items": _counter_text(found, "item_scraped_count"),
        "errors": _counter_text(found, "log_count/ERROR"),
        "last error": found.get("last_error") or "",
        "limits": _limits_text(found),
        "retries": f"{found['retries_left']} left" if found["retries_left"] else "",
        "node": found["node"],
        "finish": found["finish_reason"] or "",
        "attempts": str(found["attempt"]) if found["attempt"] > 1 else "",
        "failed": "\n".join(
            f"attempt {number}: {each['reason']}" for number, each in enumerate(found["earlier_attempts"], 1)
        ),
    }
    tables.show(tables.details_table(rows))
    if lines := found.get("last_log_lines"):
        terminal.print_result("\n".join(["The end of its log:", *(f"  {line}" for line in lines)]))
    log, more = ("log", "items, rerun") if found["state"] in ENDED else ("log -f", "cancel")
    terminal.print_stderr(f"More: gossamer jobs {log} {found['id']} (or: {more})")


def _counter_text(found: dict[str, Any], name: str) -> str:
    """Return one of Scrapy's counters. Empty: the job has none."""
    count = (found["stats"] or {}).get(name)
    return "" if count is None else str(count)
