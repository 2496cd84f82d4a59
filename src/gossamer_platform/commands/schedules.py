"""`gossamer schedules`: rules by which a server makes jobs or submits crawl requests: list, show, add, pause, run.

Fixed: the names of commands and flags, exit codes, and the fields of `--json`, which are those of the API.
"""

import contextlib
import json as json_module
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

from rich.text import Text

from gossamer.cli import tables, targets, terminal
from gossamer.cli.parser import CommandGroup, argument, option
from gossamer.controls import without_controls
from gossamer.errors import BadInput
from gossamer.platform_client.http import ServerRefused
from gossamer.platform_client.platform import PlatformClient
from gossamer_platform.commands.job_start import Arguments, Settings, Version, advice_if_missing

app = CommandGroup(
    help="List, add and change the rules by which jobs start. A schedule makes jobs, or submits crawl requests, by "
    "cron line, at an interval, or once."
)

_PAGE: Final = 1000
"""Most schedules that are listed. The API's page: fixed."""
_SHOWN: Final = 5
"""Latest jobs or submissions of a schedule that are shown."""
_CRAWLS: Final = "Crawl requests"
"""Title of a panel in the help."""
Name = Annotated[str, argument(metavar="NAME", help="Name of the schedule, or its number.", show_default=False)]

Cron = Annotated[
    str | None,
    option(
        "--cron",
        metavar="LINE",
        help='Minute, hour, day of the month, month, day of the week: "30 2 * * *"; or @hourly, @daily, @weekly.',
        show_default=False,
    ),
]
Every = Annotated[
    str | None,
    option("--every", metavar="TIME", help="Pause between two jobs: 90s, 15m, 6h, 1d.", show_default=False),
]
At = Annotated[
    str | None,
    option("--at", metavar="TIME", help="Time of a single job, such as 2027-03-01T04:00.", show_default=False),
]
TimeZone = Annotated[str, option("--time-zone", metavar="ZONE", help="Zone of the cron line, such as Europe/Berlin.")]
IfRunning = Annotated[
    str,
    option(
        "--if-running", metavar="run|skip|queue", help="While the job before runs: another one; none; or one after it."
    ),
]
Missed = Annotated[str, option("--missed", metavar="skip|once", help="After times without a server: no job, or one.")]
Jitter = Annotated[float, option("--jitter", metavar="SECONDS", help="Postpone each job by up to this time.")]

Crawl = Annotated[
    str | None,
    option(
        "--crawl",
        metavar="URL|JSON|FILE",
        help="Submit this to the server's crawl service in place of a job: a URL, a crawl request, or a file "
        "with one request a line. Each run fetches everything again.",
        show_default=False,
        panel=_CRAWLS,
    ),
]
Depth = Annotated[
    int | None,
    option("--depth", min=0, metavar="N", help="Follow links to this depth.", show_default=False, panel=_CRAWLS),
]
MaxPages = Annotated[
    int | None,
    option("--max-pages", min=1, metavar="N", help="Pages of a run at most.", show_default=False, panel=_CRAWLS),
]


@app.command("list")
def list_schedules(
    target: targets.Target = None,
    project: targets.Project = None,
    *,
    everything: Annotated[bool, option("--all", help="Schedules of all projects.")] = False,
    json: targets.Json = False,
) -> None:
    """Show the schedules of a project, with their next times.

    gossamer schedules list
    """
    client, wanted = _client(target, project, everything=everything)
    found = client.call("GET", "/schedules", query={"project": wanted or None, "limit": _PAGE})
    if json:
        terminal.print_json(found)
        return
    if not found:
        terminal.say('there are no schedules. To add one: gossamer schedules add NAME SPIDER --cron "30 2 * * *"')
        return
    table = tables.PlainTable("name", "runs", "rule", "next", "last")
    for each in found:
        name = each["name"] if wanted else f"{each['project']}/{each['name']}"
        table.add_row(name, _work(each), _rule(each), _next(each), each["last_result"] or "-")
    tables.show(table)


@app.command("show")
def show(
    name: Name, target: targets.Target = None, project: targets.Project = None, *, json: targets.Json = False
) -> None:
    """Show a schedule: what it does, its next times, and what became of the latest ones.

    gossamer schedules show nightly
    """
    client, found = _find(name, target, project)
    if found["crawl"] is None:
        latest = client.jobs(_SHOWN, schedule=found["id"])
    else:
        latest = client.call("GET", f"/schedules/{found['id']}/firings", query={"limit": _SHOWN})["firings"]
    if json:
        terminal.print_json({**found, "latest": latest})
        return
    rows = {
        "schedule": f"{found['name']}, number {found['id']} of {found['project']}",
        "runs": _work(found) if found["crawl"] is None else "",
        "version": (found["version"] or "the project's default") if found["crawl"] is None else "",
        "arguments": "  ".join(f"{name}={value}" for name, value in found["arguments"].items()),
        "settings": "  ".join(f"{name}={value}" for name, value in found["settings"].items()),
        "submits": "\n".join(_request_text(each) for each in (found["crawl"] or [])[:_SHOWN]),
        "and": f"{len(found['crawl']) - _SHOWN} more" if len(found["crawl"] or []) > _SHOWN else "",
        "rule": _rule(found),
        "next": "paused" if found["paused"] else "\n".join(_times(found)) or "never",
        "last": f"{targets.full_time_text(found['last'])}  {found['last_result']}" if found["last"] else "",
    }
    tables.show(tables.details_table(rows))
    if latest:
        tables.show(_latest_jobs(latest) if found["crawl"] is None else _latest_firings(latest))


def _latest_jobs(jobs: list[dict[str, Any]]) -> tables.PlainTable:
    table = tables.PlainTable("job", f"created ({targets.zone_text()})", "state", "reason")
    for each in jobs:
        table.add_row(str(each["id"]), targets.time_text(each["created_at"]), each["state"], each["reason"])
    return table


def _latest_firings(firings: list[dict[str, Any]]) -> tables.PlainTable:
    table = tables.PlainTable(f"time ({targets.zone_text()})", "state", "attempts", "result")
    for each in firings:
        table.add_row(targets.time_text(each["time"]), each["state"], str(each["attempts"]), each["result"])
    for each in {crawl["url"]: crawl for firing in firings for crawl in firing["crawls"] if crawl["url"]}.values():
        table.caption = Text(without_controls(f"{table.caption or ''}\n{each['url']}".strip()))
    table.caption_justify = "left"
    return table


@app.command("add")
def add(
    name: Annotated[str, argument(metavar="NAME", help="Name of the new schedule.", show_default=False)],
    spider: Annotated[
        str | None,
        argument(metavar="[SPIDER]", help="Name of the spider. Not with --crawl.", show_default=False),
    ] = None,
    target: targets.Target = None,
    project: targets.Project = None,
    cron: Cron = None,
    every: Every = None,
    at: At = None,
    time_zone: TimeZone = "UTC",
    if_running: IfRunning = "run",
    missed: Missed = "skip",
    jitter: Jitter = 0.0,
    a: Arguments = None,
    s: Settings = None,
    version: Version = None,
    crawl: Crawl = None,
    depth: Depth = None,
    max_pages: MaxPages = None,
    *,
    json: targets.Json = False,
) -> None:
    """Add a schedule. The next times are shown: they tell at once whether the rule means what you meant.

    gossamer schedules add nightly quotes --cron "30 2 * * *" --time-zone Europe/Berlin

    gossamer schedules add often quotes --every 15m --if-running skip

    gossamer schedules add weekly --crawl https://example.com --depth 2 --cron @weekly

    gossamer schedules add daily --crawl requests.jsonl --every 1d
    """
    if sum(rule is not None for rule in (cron, every, at)) != 1:
        raise BadInput('give exactly one of --cron "30 2 * * *", --every 15m and --at 2027-03-01T04:00')
    if (spider is None) == (crawl is None):
        raise BadInput("give either a spider, whose jobs are made, or --crawl with a URL, a request or a file of them")
    if crawl is None and (depth is not None or max_pages is not None):
        raise BadInput("--depth and --max-pages belong to --crawl")
    body: dict[str, Any] = {"name": name, "spider": spider, "version": version, "time_zone": time_zone}
    body |= {
        "cron": cron,
        "every": targets.span_seconds(every, "--every") if every else None,
        "at": _time(at) if at else None,
    }
    body |= {"if_running": if_running, "missed": missed, "jitter": jitter}
    body |= {"arguments": targets.pairs(a or (), "-a"), "settings": targets.pairs(s or (), "-s")}
    body["crawl"] = None if crawl is None else _requests(crawl, {"maxdepth": depth, "max_pages": max_pages})
    client, wanted = _client(target, project, everything=False)
    made = _create(client, {**body, "project": wanted})
    if json:
        terminal.print_json(made)
        return
    does = f"makes jobs of {made['project']}/{made['spider']}" if crawl is None else f"submits {_work(made)}"
    terminal.print_result(f"Schedule {made['name']} {does}. The next times:")
    for instant in _times(made):
        terminal.print_result(f"  {instant}")


@app.command("pause")
def pause(name: Name, target: targets.Target = None, project: targets.Project = None) -> None:
    """Make no jobs until the schedule is resumed. Times in between are left out.

    gossamer schedules pause nightly
    """
    client, found = _find(name, target, project)
    client.call("PATCH", f"/schedules/{found['id']}", body={"paused": True})
    terminal.print_result(
        f"Schedule {found['name']} is paused. To resume it: gossamer schedules resume {found['name']}"
    )


@app.command("resume")
def resume(name: Name, target: targets.Target = None, project: targets.Project = None) -> None:
    """Make jobs again.

    gossamer schedules resume nightly
    """
    client, found = _find(name, target, project)
    changed = client.call("PATCH", f"/schedules/{found['id']}", body={"paused": False})
    following = next(iter(_times(changed)), "never")
    terminal.print_result(f"Schedule {found['name']} is resumed; the next time is {following}.")


@app.command("run")
def run(name: Name, target: targets.Target = None, project: targets.Project = None) -> None:
    """Make the schedule's job, or submit its crawl requests, now, in addition to its times.

    gossamer schedules run nightly
    """
    client, found = _find(name, target, project)
    made = client.create(f"/schedules/{found['id']}/run", None)
    if found["crawl"] is not None:
        terminal.print_result(
            f"The requests go to the crawl service. To see the result: gossamer schedules show {found['name']}"
        )
        return
    terminal.print_result(f"Job {made['id']} of {made['project']}/{made['spider']} is {made['state']}.")
    terminal.print_stderr(f"To follow it: gossamer jobs log {made['id']} -f")


@app.command("remove")
def remove(name: Name, target: targets.Target = None, project: targets.Project = None) -> None:
    """Delete a schedule. The jobs that it has made stay.

    gossamer schedules remove nightly
    """
    client, found = _find(name, target, project)
    client.call("DELETE", f"/schedules/{found['id']}")
    terminal.print_result(f"Schedule {found['name']} is deleted.")


def _client(named: str | None, project: str | None, *, everything: bool) -> tuple[PlatformClient, str]:
    """Return a client, and the project's name; empty for `everything`."""
    here = targets.here()
    client = targets.connect_platform(named, here)
    return client, "" if everything else targets.project_name(project, client.target, here)


def _create(client: PlatformClient, body: dict[str, Any]) -> dict[str, Any]:
    """Make a schedule. Raises BadInput, with what to do, if its name is taken, or its project or spider is missing."""
    spider = body["spider"]
    try:
        with advice_if_missing(client, body["project"], spider) if spider else contextlib.nullcontext():
            return dict(client.call("POST", "/schedules", body=body))
    except ServerRefused as error:
        if error.status != 409:
            raise
        raise BadInput(f"{error}. To replace it, remove it first: gossamer schedules remove {body['name']}") from None


def _find(name: str, target: str | None, project: str | None) -> tuple[PlatformClient, dict[str, Any]]:
    """Return a client and the schedule of this name or number. Raises BadInput."""
    if name.isascii() and name.isdigit() and len(name) < 19:
        client = targets.connect_platform(target, targets.here())
        return client, dict(client.call("GET", f"/schedules/{name}"))
    client, wanted = _client(target, project, everything=False)
    found = client.call("GET", "/schedules", query={"project": wanted, "limit": _PAGE})
    chosen = next((each for each in found if each["name"] == name), None)
    if chosen is None:
        known = ", ".join(each["name"] for each in found)
        raise BadInput(f"project {wanted} has no schedule {name!r:.80}" + (f"; it has {known}" if known else ""))
    return client, dict(chosen)


def _rule(schedule: dict[str, Any]) -> str:
    if schedule["kind"] == "every":
        return f"every {targets.seconds_text(float(schedule['rule']))}"
    return f"{schedule['rule']} {schedule['time_zone']}" if schedule["kind"] == "cron" else "once"


def _work(schedule: dict[str, Any]) -> str:
    """Return what a schedule runs: its spider, or its crawls."""
    if schedule["crawl"] is None:
        return str(schedule["spider"])
    crawls = dict.fromkeys(f"{each['appid']}/{each['crawlid']}" for each in schedule["crawl"])
    return f"crawl {next(iter(crawls))}" if len(crawls) == 1 else f"{len(crawls)} crawls"


def _request_text(request: dict[str, Any]) -> str:
    named = {name: value for name, value in request.items() if name not in ("appid", "crawlid", "url", "attrs")}
    options = ", ".join(f"{name}={json_module.dumps(value)}" for name, value in named.items())
    return f"{request['url']} to the crawl {request['appid']}/{request['crawlid']}" + (f" ({options})" if named else "")


def _requests(text: str, options: dict[str, Any]) -> list[Any]:
    """Return the crawl requests that are given by --crawl. Raises BadInput."""
    given = {name: value for name, value in options.items() if value is not None}
    is_file = not text.lstrip().startswith(("{", "[")) and (text == "-" or Path(text).is_file())
    if text.lstrip().startswith(("{", "[")) or is_file:
        if given:
            raise BadInput("--depth and --max-pages belong to a URL; a request has maxdepth and max_pages itself")
        return _decoded(_content(text) if is_file else text)
    if "." not in text and "://" not in text and not text.startswith("localhost"):
        raise BadInput(f"--crawl: {text!r:.80} is neither a URL nor a crawl request nor a file here")
    return [{"url": text, **given}]


def _content(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--crawl: {file} cannot be read: {getattr(error, 'strerror', '') or 'not UTF-8'}") from None


def _decoded(text: str) -> list[Any]:
    """Return the objects of a JSON text: an object, an array of them, or one a line. Raises BadInput."""
    with contextlib.suppress(ValueError):
        found = json_module.loads(text)
        return found if isinstance(found, list) else [found]
    requests = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            requests += [json_module.loads(line)] if line.strip() else []
        except ValueError as error:
            raise BadInput(f"--crawl: line {number} is not JSON: {error}") from None
    return requests


def _next(schedule: dict[str, Any]) -> str:
    if schedule["paused"]:
        return "paused"
    return targets.full_time_text(schedule["next"][0], _zone(schedule)) if schedule["next"] else "never"


def _times(schedule: dict[str, Any]) -> list[str]:
    """Return the next times, in the schedule's zone and in that of this machine where they differ."""
    found = []
    for instant in schedule["next"]:
        own, local = targets.full_time_text(instant, _zone(schedule)), targets.full_time_text(instant)
        zone = f" {_zone(schedule)}" if _zone(schedule) not in ("", "UTC") else ""  # the time has +00:00
        found.append(f"{own}{zone}" if own == local else f"{own}{zone} ({local} on this machine)")
    return found


def _zone(schedule: dict[str, Any]) -> str:
    """Return the time zone of a cron line. Empty: the rule has none."""
    return str(schedule["time_zone"]) if schedule["kind"] == "cron" else ""


def _time(text: str) -> str:
    """Return a time with its zone, which is this machine's if none is given. Raises BadInput."""
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except ValueError:
        raise BadInput(f"--at: cannot read {text!r:.40}. Write a time such as 2027-03-01T04:00.") from None
