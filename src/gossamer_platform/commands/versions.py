"""`gossamer versions`: the deployed versions of a project, and the one that jobs run.

Fixed: the names of commands and flags, exit codes, and the fields of `--json`, which are those of the API.
"""

from typing import Annotated, Any

from rich.text import Text

from gossamer.cli import tables, targets, terminal
from gossamer.cli.parser import CommandGroup, argument, option
from gossamer.net.paths import path_of

app = CommandGroup(help="List the versions of a project, and choose one.")

_STYLES = {"ready": "green", "broken": "red"}
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
        terminal.print_json(found)
        return
    if not found:
        terminal.say(f"project {name} has no versions. To deploy one: gossamer deploy")
        return
    owner: dict[str, Any] = next((each for each in client.call("GET", "/projects") if each["name"] == name), {})
    default = owner.get("default_version")
    table = tables.PlainTable("version", "state", f"deployed ({targets.zone_text()})", "spiders", "reason")
    for each in found:
        is_default = each["name"] == default and each["state"] == "ready"
        mark = (" pinned" if owner.get("is_pinned") else " default") if is_default else ""
        spiders = "" if each["spiders"] is None else str(len(each["spiders"]))
        state = Text(each["state"], style=_STYLES.get(each["state"], "")) + Text(mark)
        reason = each["reason"].strip().splitlines()[-1:] or [""]
        table.add_row(each["name"], state, targets.time_text(each["deployed_at"]), spiders, reason[0])
    tables.show(table)


@app.command("pin")
def pin(name: Name, target: targets.Target = None, project: targets.Project = None) -> None:
    """Make a version the default, whatever is deployed later.

    gossamer versions pin 1.2
    """
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
    """Delete a version. One that is the default, or that jobs or schedules use, is kept unless --force is given.

    gossamer versions delete 1.1
    """
    client, owner = targets.connect_project(target, project)
    client.call("DELETE", "/versions", query={"project": owner, "version": name, "force": str(force).lower()})
    terminal.print_result(f"Version {name} of {owner} is deleted.")
