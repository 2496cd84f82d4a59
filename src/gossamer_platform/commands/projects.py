"""`gossamer projects`: the settings of projects on a server, and the limits of their spiders.

Fixed: the names of commands and flags, exit codes, and the fields of `--json`, which are those of the API.
"""

from typing import Annotated, Any

from gossamer.cli import tables, targets, terminal
from gossamer.cli.parser import CommandGroup, argument, option
from gossamer.errors import BadInput
from gossamer.net.paths import path_of
from gossamer.platform_client.platform import PlatformClient

app = CommandGroup(help="Show and change the settings of projects.")

_SETTING = "setting"
"""Name of an argument in messages."""
Spider = Annotated[
    str | None,
    option("--spider", metavar="NAME", help="Limits of this spider of the project.", show_default=False),
]


@app.command("list")
def list_projects(target: targets.Target = None, *, json: targets.Json = False) -> None:
    """List the projects of a server, with the version that their jobs run.

    gossamer projects list
    """
    client = targets.connect_platform(target, targets.here())
    found = client.call("GET", "/projects")
    if json:
        terminal.print_json(found)
        return
    if not found:
        terminal.say(f"{client.session.url} has no projects. To deploy one: gossamer deploy")
        return
    table = tables.PlainTable("project", "version", "label", f"created ({targets.zone_text()})")
    for each in found:
        version = f"{each['default_version'] or '-'}{' pinned' if each['is_pinned'] else ''}"
        table.add_row(each["name"], version, each["label"] or "-", targets.time_text(each["created_at"]))
    tables.show(table)


@app.command("show")
def show_project(
    target: targets.Target = None,
    project: targets.Project = None,
    spider: Spider = None,
    *,
    json: targets.Json = False,
) -> None:
    """Show the settings of a project: limits and retries of its jobs, retention.

    gossamer projects show

    gossamer projects show --spider prices
    """
    client, owner = targets.connect_project(target, project)
    _show(_spider_policy(client, owner, spider, {}) if spider else _project_settings(client, owner, {}), json=json)


@app.command("set")
def set_project(
    changes: Annotated[
        list[str],
        argument(
            metavar="NAME=VALUE...",
            help=f"Settings: max_running, retries, {', '.join(targets.LIMITS)}; of a project also label, environment, "
            "keep_logs_days and the like. Times such as 2h, sizes such as 512MB. An empty value takes the default.",
            show_default=False,
        ),
    ],
    target: targets.Target = None,
    project: targets.Project = None,
    spider: Spider = None,
    *,
    json: targets.Json = False,
) -> None:
    """Change settings of a project, or limits of one of its spiders.

    gossamer projects set retries=2 time_limit=2h memory_limit=1GB

    gossamer projects set --spider prices min_items=100

    Jobs that exist keep their limits; max_running counts at once. A limit of 0 is none.
    """
    client, owner = targets.connect_project(target, project)
    given = {
        name: targets.limit_value(name, value, _SETTING) for name, value in targets.pairs(changes, _SETTING).items()
    }
    change = _spider_policy(client, owner, spider, given) if spider else _project_settings(client, owner, given)
    _show(change, json=json)


def _show(found: dict[str, Any], *, json: bool) -> None:
    if json:
        terminal.print_json(found)
        return
    rows = {
        name: targets.limit_text(name, value)
        for name, value in found.items()
        if value is not None and name not in ("created_at", "is_pinned")
    }
    tables.show(tables.details_table(rows))


def _project_settings(client: PlatformClient, name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a project, after these changes. Raises BadInput."""
    if changes:
        return dict(client.call("PATCH", f"/projects/{path_of(name)}", body=changes))
    found = next((each for each in client.call("GET", "/projects") if each["name"] == name), None)
    if found is None:
        raise BadInput(f"there is no project {name!r:.80} on {client.session.url}. To make it: gossamer deploy")
    return dict(found)


def _spider_policy(client: PlatformClient, project: str, spider: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the limits of a spider, after these changes. Those that it has not are the project's."""
    path = f"/projects/{path_of(project)}/policies"
    present = next((each for each in client.call("GET", path) if each["spider"] == spider), {"spider": spider})
    if not changes:
        return dict(present)
    body = {name: value for name, value in {**present, **changes}.items() if name != "spider" and value is not None}
    return dict(client.call("PUT", f"{path}/{path_of(spider)}", body=body))
