"""`gossamer versions`, `project` and `nodes`: what a server has to run jobs with: code, limits, and machines.

Fixed: the names of commands and flags, exit codes, and the fields of `--json`, which are those of the API.
"""

from typing import Annotated, Any

from rich.console import Console
from rich.text import Text

from gossamer.cli import targets, terminal
from gossamer.cli.parser import CommandGroup, argument, option
from gossamer.errors import BadInput
from gossamer.net.paths import path_of
from gossamer.platform_client.platform import PlatformClient

app = CommandGroup(help="List the deployed versions of a project, choose the one that jobs run, and delete versions.")

_STYLES = {"ready": "green", "online": "green", "broken": "red", "lost": "red", "offline": "red", "draining": "yellow"}
"""Colour by state."""
Name = Annotated[str, argument(metavar="VERSION", help="Name of the version.", show_default=False)]


@app.command("list")
def list_versions(
    target: targets.Target = None, project: targets.Project = None, *, json: targets.Json = False
) -> None:
    """Show the versions of a project, the latest last. Jobs that name no version run the default.

    gossamer versions list
    """
    client, name = targets.connect_project(target, project)
    found = client.call("GET", "/versions", query={"project": name})
    if json:
        targets.print_json(found)
        return
    if not found:
        terminal.say(f"project {name} has no versions. To deploy one: gossamer deploy")
        return
    owner: dict[str, Any] = next((each for each in client.call("GET", "/projects") if each["name"] == name), {})
    default = owner.get("default_version")
    table = targets.plain_table("version", "state", f"deployed ({targets.zone_text()})", "spiders", "reason")
    for each in found:
        is_default = each["name"] == default and each["state"] == "ready"
        mark = (" pinned" if owner.get("is_pinned") else " default") if is_default else ""
        spiders = "" if each["spiders"] is None else str(len(each["spiders"]))
        state = Text(each["state"], style=_STYLES.get(each["state"], "")) + Text(mark)
        reason = each["reason"].strip().splitlines()[-1:] or [""]
        table.add_row(each["name"], state, targets.time_text(each["deployed_at"]), spiders, reason[0])
    Console(highlight=False).print(table)


@app.command("pin")
def pin(name: Name, target: targets.Target = None, project: targets.Project = None) -> None:
    """Make a version the default, whatever is deployed later."""
    client, owner = targets.connect_project(target, project)
    client.call("PUT", f"/projects/{path_of(owner)}/default", query={"version": name})
    terminal.print_result(f"Jobs of {owner} run {name}, whatever is deployed. To end that: gossamer versions unpin")


@app.command("unpin")
def unpin(target: targets.Target = None, project: targets.Project = None) -> None:
    """Make the latest version the default again."""
    client, owner = targets.connect_project(target, project)
    changed = client.call("DELETE", f"/projects/{path_of(owner)}/default")
    terminal.print_result(f"Jobs of {owner} run the latest version, which is {changed['default_version']}.")


@app.command("rollback")
def rollback(target: targets.Target = None, project: targets.Project = None) -> None:
    """Go back to the version before the default, and pin it. Jobs that run go on."""
    client, owner = targets.connect_project(target, project)
    changed = client.call("POST", f"/projects/{path_of(owner)}/rollback")
    terminal.print_result(f"Jobs of {owner} run {changed['default_version']} now. To end that: gossamer versions unpin")


@app.command("delete")
def delete(
    name: Name,
    target: targets.Target = None,
    project: targets.Project = None,
    *,
    force: Annotated[bool, option("--force", help="Delete it although jobs or schedules use it.")] = False,
) -> None:
    """Delete a version. One that is the default, or that jobs or schedules use, is kept unless --force is given."""
    client, owner = targets.connect_project(target, project)
    client.call("DELETE", "/versions", query={"project": owner, "version": name, "force": str(force).lower()})
    terminal.print_result(f"Version {name} of {owner} is deleted.")


def project(
    target: targets.Target = None,
    project: targets.Project = None,
    spider: Annotated[
        str | None,
        option("--spider", metavar="NAME", help="Limits of this spider of the project.", show_default=False),
    ] = None,
    changes: Annotated[
        list[str] | None,
        option(
            "--set",
            metavar="NAME=VALUE",
            help=f"Change a setting; may be repeated: max_running, retries, {', '.join(targets.LIMITS)}; of a project "
            "also label, environment, keep_logs_days and the like. Times such as 2h, sizes such as 512MB. An empty "
            "value takes the default.",
            show_default=False,
        ),
    ] = None,
    *,
    json: targets.Json = False,
) -> None:
    """Show the settings of a project on the server: limits and retries of its jobs, retention; or change them.

    gossamer project

    gossamer project --set retries=2 --set time_limit=2h --set memory_limit=1GB

    gossamer project --spider prices --set min_items=100

    Jobs that exist keep their limits; max_running counts at once. A limit of 0 is none.
    """
    client, owner = targets.connect_project(target, project)
    given = {
        name: targets.limit_value(name, value, "--set") for name, value in targets.pairs(changes or (), "--set").items()
    }
    found = _spider_policy(client, owner, spider, given) if spider else _project_settings(client, owner, given)
    if json:
        targets.print_json(found)
        return
    rows = {
        name: targets.limit_text(name, value)
        for name, value in found.items()
        if value is not None and name not in ("created_at", "is_pinned")
    }
    Console(highlight=False).print(targets.details_table(rows))


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


def nodes(
    target: targets.Target = None,
    *,
    drain: Annotated[
        str | None, option("--drain", metavar="NODE", help="Give this node no more jobs.", show_default=False)
    ] = None,
    undrain: Annotated[
        str | None, option("--undrain", metavar="NODE", help="Give it jobs again.", show_default=False)
    ] = None,
    forget: Annotated[
        str | None,
        option("--forget", metavar="NODE", help="Delete a node that is lost or offline.", show_default=False),
    ] = None,
    json: targets.Json = False,
) -> None:
    """List the nodes, the machines that run jobs; or drain one.

    gossamer nodes

    gossamer nodes --drain machine2
    """
    if sum(name is not None for name in (drain, undrain, forget)) > 1:
        raise BadInput("give one of --drain, --undrain and --forget")
    client = targets.connect_platform(target, targets.here())
    if forget is not None:
        client.call("DELETE", f"/nodes/{path_of(forget)}")
    elif (name := drain or undrain) is not None:
        client.call("PATCH", f"/nodes/{path_of(name)}", body={"draining": drain is not None})
    found: list[dict[str, Any]] = client.call("GET", "/nodes")
    if json:
        targets.print_json(found)
        return
    if not found:
        terminal.say("there are no nodes, so no job can run. To start one: gossamer node --manager URL")
        return
    table = targets.plain_table("node", "state", "last heard", "jobs", "slots", "labels", "machine")
    for each in found:
        state = Text(each["state"], style=_STYLES.get(each["state"], ""))
        running = str(each.get("running", ""))
        labels = ", ".join(each["labels"]) or "-"
        # A node in the server's own process sends no heartbeats.
        heard = f"{targets.seconds_text(each['silent_seconds'])} ago" if each["limit_seconds"] else "-"
        table.add_row(each["name"], state, heard, running, str(each["slots"]), labels, each["address"])
    Console(highlight=False).print(table)
