"""`gossamer versions` and `gossamer nodes`: what a server has to run jobs with: deployed code, and machines.

Safe to change: help texts (then regenerate docs/reference), columns and sentences. Fixed: the names of commands and
flags, exit codes, and the fields of `--json`, which are those of the API.
"""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gossamer.cli import targets, terminal
from gossamer.errors import BadInput
from gossamer.platform.client.platform import segment

app = typer.Typer(
    help="List the deployed versions of a project, choose the one that jobs run, and delete versions.",
    no_args_is_help=True,
    add_completion=False,
)

_STYLES = {"ready": "green", "online": "green", "broken": "red", "lost": "red", "offline": "red", "draining": "yellow"}
"""Colour by state. May be changed."""
Name = Annotated[str, typer.Argument(metavar="VERSION", help="Name of the version.", show_default=False)]


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
    client.call("PUT", f"/projects/{segment(owner)}/default", query={"version": name})
    terminal.print_result(f"Jobs of {owner} run {name}, whatever is deployed. To end that: gossamer versions unpin")


@app.command("unpin")
def unpin(target: targets.Target = None, project: targets.Project = None) -> None:
    """Make the latest version the default again."""
    client, owner = targets.connect_project(target, project)
    changed = client.call("DELETE", f"/projects/{segment(owner)}/default")
    terminal.print_result(f"Jobs of {owner} run the latest version, which is {changed['default_version']}.")


@app.command("rollback")
def rollback(target: targets.Target = None, project: targets.Project = None) -> None:
    """Go back to the version before the default, and pin it. Jobs that run go on."""
    client, owner = targets.connect_project(target, project)
    changed = client.call("POST", f"/projects/{segment(owner)}/rollback")
    terminal.print_result(f"Jobs of {owner} run {changed['default_version']} now. To end that: gossamer versions unpin")


@app.command("delete")
def delete(
    name: Name,
    target: targets.Target = None,
    project: targets.Project = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Delete it although jobs or schedules use it.")] = False,
) -> None:
    """Delete a version. One that is the default, or that jobs or schedules use, is kept unless --force is given."""
    client, owner = targets.connect_project(target, project)
    client.call("DELETE", "/versions", query={"project": owner, "version": name, "force": str(force).lower()})
    terminal.print_result(f"Version {name} of {owner} is deleted.")


def nodes(
    target: targets.Target = None,
    *,
    drain: Annotated[
        str | None, typer.Option("--drain", metavar="NODE", help="Give this node no more jobs.", show_default=False)
    ] = None,
    undrain: Annotated[
        str | None, typer.Option("--undrain", metavar="NODE", help="Give it jobs again.", show_default=False)
    ] = None,
    forget: Annotated[
        str | None,
        typer.Option("--forget", metavar="NODE", help="Delete a node that is lost or offline.", show_default=False),
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
        client.call("DELETE", f"/nodes/{segment(forget)}")
    elif (name := drain or undrain) is not None:
        client.call("PATCH", f"/nodes/{segment(name)}", body={"draining": drain is not None})
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
