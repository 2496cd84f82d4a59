"""`gossamer nodes`: the machines that run jobs.

Fixed: the names of commands and flags, exit codes, and the fields of `--json`, which are those of the API.
"""

from typing import Annotated, Any

from rich.text import Text

from gossamer.cli import tables, targets, terminal
from gossamer.cli.parser import CommandGroup, argument
from gossamer.net.paths import path_of
from gossamer.platform_client.platform import PlatformClient

app = CommandGroup(help="List the machines that run jobs; drain or forget one.")

_STYLES = {"online": "green", "lost": "red", "offline": "red", "draining": "yellow"}
"""Colour by state."""
Node = Annotated[str, argument(metavar="NODE", help="Name of the node.", show_default=False)]


@app.command("list")
def list_nodes(target: targets.Target = None, *, json: targets.Json = False) -> None:
    """List the nodes, the machines that run jobs.

    gossamer nodes list
    """
    _show(targets.connect_platform(target, targets.here()), json=json)


@app.command("drain")
def drain(node: Node, target: targets.Target = None, *, json: targets.Json = False) -> None:
    """Give a node no more jobs. Those that run go on.

    gossamer nodes drain machine2
    """
    _set_draining(node, target, draining=True, json=json)


@app.command("undrain")
def undrain(node: Node, target: targets.Target = None, *, json: targets.Json = False) -> None:
    """Give a drained node jobs again.

    gossamer nodes undrain crawler-1
    """
    _set_draining(node, target, draining=False, json=json)


@app.command("forget")
def forget(node: Node, target: targets.Target = None, *, json: targets.Json = False) -> None:
    """Delete a node that is lost or offline.

    gossamer nodes forget crawler-1
    """
    client = targets.connect_platform(target, targets.here())
    client.call("DELETE", f"/nodes/{path_of(node)}")
    _show(client, json=json)


def _set_draining(node: str, target: str | None, *, draining: bool, json: bool) -> None:
    client = targets.connect_platform(target, targets.here())
    client.call("PATCH", f"/nodes/{path_of(node)}", body={"draining": draining})
    _show(client, json=json)


def _show(client: PlatformClient, *, json: bool) -> None:
    found: list[dict[str, Any]] = client.call("GET", "/nodes")
    if json:
        terminal.print_json(found)
        return
    if not found:
        terminal.say("there are no nodes, so no job can run. To start one: gossamer node --manager URL")
        return
    table = tables.PlainTable("node", "state", "last heard", "jobs", "slots", "labels", "machine")
    for each in found:
        state = Text(each["state"], style=_STYLES.get(each["state"], ""))
        running = str(each.get("running", ""))
        labels = ", ".join(each["labels"]) or "-"
        # A node in the server's own process sends no heartbeats.
        heard = f"{targets.seconds_text(each['silent_seconds'])} ago" if each["limit_seconds"] else "-"
        table.add_row(each["name"], state, heard, running, str(each["slots"]), labels, each["address"])
    tables.show(table)
