"""`gossamer schedules`: rules by which a server makes jobs: list, add, pause, resume, run, remove.

Safe to change: help texts (then regenerate docs/reference), columns and sentences. Fixed: the names of commands and
flags, exit codes, and the fields of `--json`, which are those of the API.
"""

import re
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from gossamer.cli import targets, terminal
from gossamer.cli.commands.schedule import Arguments, Settings, Version
from gossamer.errors import BadInput
from gossamer.platform.client.platform import PlatformClient

app = typer.Typer(
    help="List, add and change schedules: rules by which the server makes jobs, by cron line, at an interval, or once.",
    no_args_is_help=True,
    add_completion=False,
)

_PAGE: Final = 1000
"""Most schedules that are listed. The API's page: fixed."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
"""Units of --every. May be extended."""
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule, or its number.", show_default=False)]

Cron = Annotated[
    str | None,
    typer.Option(
        "--cron",
        metavar="LINE",
        help='Minute, hour, day of the month, month, day of the week: "30 2 * * *"; or @hourly, @daily, @weekly.',
        show_default=False,
    ),
]
Every = Annotated[
    str | None,
    typer.Option("--every", metavar="TIME", help="Pause between two jobs: 90s, 15m, 6h, 1d.", show_default=False),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Time of a single job, such as 2027-03-01T04:00.", show_default=False),
]
TimeZone = Annotated[
    str, typer.Option("--time-zone", metavar="ZONE", help="Zone of the cron line, such as Europe/Berlin.")
]
IfRunning = Annotated[
    str,
    typer.Option(
        "--if-running", metavar="run|skip|queue", help="While the job before runs: another one; none; or one after it."
    ),
]
Missed = Annotated[
    str, typer.Option("--missed", metavar="skip|once", help="After times without a server: no job, or one.")
]
Jitter = Annotated[float, typer.Option("--jitter", metavar="SECONDS", help="Postpone each job by up to this time.")]


@app.command("list")
def list_schedules(
    target: targets.Target = None,
    project: targets.Project = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Schedules of all projects.")] = False,
    json: targets.Json = False,
) -> None:
    """Show the schedules of a project, with their next times.

    gossamer schedules list
    """
    client, wanted = _client(target, project, everything=everything)
    found = client.call("GET", "/schedules", query={"project": wanted or None, "limit": _PAGE})
    if json:
        targets.print_json(found)
        return
    if not found:
        terminal.say('there are no schedules. To add one: gossamer schedules add NAME SPIDER --cron "30 2 * * *"')
        return
    table = targets.plain_table("name", "spider", "rule", "next", "last")
    for each in found:
        name = each["name"] if wanted else f"{each['project']}/{each['name']}"
        table.add_row(name, each["spider"], _rule(each), _next(each), each["last_result"])
    Console(highlight=False).print(table)


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new schedule.", show_default=False)],
    spider: Annotated[str, typer.Argument(metavar="SPIDER", help="Name of the spider.", show_default=False)],
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
    *,
    json: targets.Json = False,
) -> None:
    """Add a schedule. The next times are shown: they tell at once whether the rule means what you meant.

    gossamer schedules add nightly quotes --cron "30 2 * * *" --time-zone Europe/Berlin

    gossamer schedules add often quotes --every 15m --if-running skip
    """
    if sum(rule is not None for rule in (cron, every, at)) != 1:
        raise BadInput('give exactly one of --cron "30 2 * * *", --every 15m and --at 2027-03-01T04:00')
    body: dict[str, Any] = {"name": name, "spider": spider, "version": version, "time_zone": time_zone}
    body |= {"cron": cron, "every": _seconds(every) if every else None, "at": _time(at) if at else None}
    body |= {"if_running": if_running, "missed": missed, "jitter": jitter}
    body |= {"arguments": targets.pairs(a or (), "-a"), "settings": targets.pairs(s or (), "-s")}
    client, wanted = _client(target, project, everything=False)
    made = client.call("POST", "/schedules", body={**body, "project": wanted})
    if json:
        targets.print_json(made)
        return
    terminal.print_result(f"Schedule {made['name']} makes jobs of {made['project']}/{made['spider']}. The next times:")
    for instant in made["next"]:
        terminal.print_result(f"  {datetime.fromisoformat(instant).astimezone().strftime('%Y-%m-%d %H:%M:%S %Z')}")


@app.command("pause")
def pause(name: Name, target: targets.Target = None, project: targets.Project = None) -> None:
    """Make no jobs until the schedule is resumed. Times in between are left out."""
    client, found = _find(name, target, project)
    client.call("PATCH", f"/schedules/{found['id']}", body={"paused": True})
    terminal.print_result(
        f"Schedule {found['name']} is paused. To resume it: gossamer schedules resume {found['name']}"
    )


@app.command("resume")
def resume(name: Name, target: targets.Target = None, project: targets.Project = None) -> None:
    """Make jobs again."""
    client, found = _find(name, target, project)
    changed = client.call("PATCH", f"/schedules/{found['id']}", body={"paused": False})
    terminal.print_result(f"Schedule {found['name']} is resumed; the next time is {_next(changed)}.")


@app.command("run")
def run(name: Name, target: targets.Target = None, project: targets.Project = None) -> None:
    """Make the schedule's job now, in addition to its times."""
    client, found = _find(name, target, project)
    made = client.create(f"/schedules/{found['id']}/run", None)
    terminal.print_result(f"Job {made['id']} of {made['project']}/{made['spider']} is {made['state']}.")


@app.command("remove")
def remove(name: Name, target: targets.Target = None, project: targets.Project = None) -> None:
    """Delete a schedule. The jobs that it has made stay."""
    client, found = _find(name, target, project)
    client.call("DELETE", f"/schedules/{found['id']}")
    terminal.print_result(f"Schedule {found['name']} is deleted.")


def _client(named: str | None, project: str | None, *, everything: bool) -> tuple[PlatformClient, str]:
    """Return a client, and the project's name; empty for `everything`."""
    here = targets.here()
    client = targets.connect_platform(named, here)
    return client, "" if everything else targets.project_name(project, client.target, here)


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
    if schedule["kind"] == "cron":
        zone = "" if schedule["time_zone"] == "UTC" else f" {schedule['time_zone']}"
        return f"{schedule['rule']}{zone}"
    return "once"


def _next(schedule: dict[str, Any]) -> str:
    if schedule["paused"]:
        return "paused"
    return targets.time_text(schedule["next"][0]) if schedule["next"] else "never"


def _seconds(text: str) -> float:
    """Return the seconds of a time such as 15m. Raises BadInput."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise BadInput(f"--every: cannot read {text!r:.40}. Write a number and a unit, such as 90s, 15m, 6h or 1d.")
    return float(found[1]) * _UNITS[found[2] or "s"]


def _time(text: str) -> str:
    """Return a time with its zone, which is this machine's if none is given. Raises BadInput."""
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except ValueError:
        raise BadInput(f"--at: cannot read {text!r:.40}. Write a time such as 2027-03-01T04:00.") from None
