"""`gossamer variables` and `gossamer tokens`: environment variables and secrets of a project's jobs, and access tokens
of a server.

Fixed: the names of commands and flags, exit codes, the fields of `--json`, which are those of the API; and that no
secret is taken from or shown on a command line.
"""

import sys
from typing import Annotated, Any

from gossamer.cli import tables, targets, terminal
from gossamer.cli.parser import CommandGroup, argument, option
from gossamer.errors import BadInput
from gossamer.net.paths import path_of
from gossamer.platform_client.http import ServerRefused
from gossamer.platform_client.platform import PlatformClient
from gossamer.policy.words import counted

variables = CommandGroup(
    help="List, set and delete variables and secrets. The jobs of a project get them in their environment."
)
tokens = CommandGroup(help="List, make and revoke the tokens that a server accepts.")

_SCOPES = ("read", "run", "deploy", "admin", "node")
"""Scopes of tokens. Fixed: they are those of the API."""
_SECONDS_A_DAY = 86400
_Variable = Annotated[str, argument(metavar="NAME", help="Name of the variable.", show_default=False)]


@variables.command("list")
def list_variables(
    target: targets.Target = None, project: targets.Project = None, *, json: targets.Json = False
) -> None:
    """Show the variables of a project. The values of secrets are shown to no one.

    gossamer variables list
    """
    client, name = targets.connect_project(target, project)
    found = client.call("GET", f"/projects/{path_of(name)}/variables")
    if json:
        terminal.print_json(found)
    elif not found:
        terminal.say(f"project {name} has no variables. To set one: gossamer variables set NAME VALUE")
    else:
        table = tables.PlainTable("name", "value", "changed")
        for each in found:
            value = "(secret)" if each["secret"] else each["value"]
            table.add_row(each["name"], value, targets.time_text(each["changed_at"]))
        tables.show(table)


@variables.command("set")
def set_variable(
    name: _Variable,
    value: Annotated[
        str | None,
        argument(metavar="[VALUE]", help="Its value. Without this it is read from standard input."),
    ] = None,
    target: targets.Target = None,
    project: targets.Project = None,
    *,
    secret: Annotated[
        bool, option("--secret", help="Encrypt the value, and never show it again. It is not typed as VALUE.")
    ] = False,
) -> None:
    """Set a variable of all jobs that start from now on.

    gossamer variables set CURRENCY EUR

    gossamer variables set SHOP_PASSWORD --secret < password.txt
    """
    if secret and value is not None:
        raise BadInput(
            "VALUE: other users of this machine can read a command line. Leave the value out and type it when asked, "
            f"or write: gossamer variables set {name} --secret < FILE"
        )
    client, owner = targets.connect_project(target, project)
    if secret:
        _check_key(client, owner)
    given = _read_value(name, hidden=secret) if value is None else value
    if secret and not given:
        raise BadInput(
            f"{name}: there is no value on standard input. Write: gossamer variables set {name} --secret < FILE"
        )
    client.call("PUT", f"/projects/{path_of(owner, 'variables', name)}", body={"value": given, "secret": secret})
    terminal.print_result(f"Jobs of {owner} that start from now on have {name}.")


@variables.command("delete")
def delete_variable(name: _Variable, target: targets.Target = None, project: targets.Project = None) -> None:
    """Delete a variable or a secret. Jobs that run keep it.

    gossamer variables delete API_KEY
    """
    client, owner = targets.connect_project(target, project)
    client.call("DELETE", f"/projects/{path_of(owner, 'variables', name)}")
    terminal.print_result(f"Jobs of {owner} that start from now on do not have {name}.")


@variables.command("rotate")
def rotate(target: targets.Target = None) -> None:
    """Encrypt the secrets of all projects anew with the first key of the server, so that it needs no other key."""
    done = targets.connect_platform(target, targets.here()).call("POST", "/secrets/rotate")
    if done["unreadable"]:
        raise BadInput(
            f"Encrypted with the first key: {counted(done['rotated'], 'secret')}. None of the keys decrypts "
            f"{', '.join(done['unreadable'])}: add the key they need, or set them again"
        )
    many = counted(done["rotated"], "secret")
    terminal.print_result(f"Encrypted with the first key: {many}; no other key is needed.")


@tokens.command("list")
def list_tokens(target: targets.Target = None, *, json: targets.Json = False) -> None:
    """Show all tokens, without their secrets."""
    found = targets.connect_platform(target, targets.here()).call("GET", "/tokens")
    if json:
        terminal.print_json(found)
    elif not found:
        terminal.say("there are no tokens. To make one: gossamer tokens make NAME --scope run")
    else:
        table = tables.PlainTable("token", "name", "scope", "project", "node", "made", "ends")
        for each in found:
            times = [targets.time_text(each[name]) for name in ("created_at", "expires_at")]
            table.add_row(
                str(each["id"]), each["name"], each["scope"], each["project"] or "all", each["node"] or "-", *times
            )
        tables.show(table)


@tokens.command("make")
def make_token(
    name: Annotated[str, argument(metavar="NAME", help="Name of the person, program or node, for the audit.")],
    target: targets.Target = None,
    project: Annotated[
        str, option("--project", "-p", metavar="NAME", help="Permit this project only. Unset: all.")
    ] = "",
    scope: Annotated[
        str,
        option(
            "--scope",
            metavar="|".join(_SCOPES),
            help="What it permits: read; run (and cancel) jobs; deploy, which is running code; admin. Each "
            "includes those before it. node: one `gossamer node`, the first that uses it.",
        ),
    ] = "read",
    days: Annotated[
        float | None,
        option("--days", metavar="N", min=0.001, max=366, help="Valid for so long. Unset: for ever."),
    ] = None,
) -> None:
    """Make a token, and print it. It is shown this once.

    gossamer tokens make "nightly build" --scope deploy --project shop --days 90

    gossamer tokens make "node two" --scope node
    """
    if scope not in _SCOPES:
        raise BadInput(f"--scope: {scope!r} is none of {', '.join(_SCOPES)}")
    body: dict[str, Any] = {"name": name, "scope": scope, "project": project}
    if days is not None:
        body["valid_seconds"] = days * _SECONDS_A_DAY
    made = targets.connect_platform(target, targets.here()).call("POST", "/tokens", body=body)
    terminal.print_result(made["token"])
    terminal.say(f"It has the number {made['id']}. To end it: gossamer tokens revoke {made['id']}")


@tokens.command("release")
def release_token(
    number: Annotated[int, argument(metavar="NUMBER", help="Number of the token.", min=1)],
    target: targets.Target = None,
) -> None:
    """Take a node's token from the node that used it first; the next node that uses it gets it.

    gossamer tokens release 3
    """
    made = targets.connect_platform(target, targets.here()).call("POST", f"/tokens/{number}/release")
    terminal.print_result(f"Token {number} ({made['name']}) belongs to the next node that uses it.")


@tokens.command("revoke")
def revoke_token(
    number: Annotated[int, argument(metavar="NUMBER", help="Number of the token.", min=1)],
    target: targets.Target = None,
) -> None:
    """Revoke a token, which is refused from then on.

    gossamer tokens revoke 3
    """
    targets.connect_platform(target, targets.here()).call("DELETE", f"/tokens/{number}")
    terminal.print_result(f"Token {number} is revoked.")


def _check_key(client: PlatformClient, project: str) -> None:
    """Raise ServerRefused if the manager can keep no secrets. Older managers answer 404: they report it only when they
    get a secret."""
    try:
        client.call("GET", f"/projects/{path_of(project)}/secrets")
    except ServerRefused as error:
        if error.status != 404:
            raise


def _read_value(name: str, *, hidden: bool) -> str:
    """Return the value that a person types, or that standard input has, without the end of its last line."""
    if sys.stdin.isatty():
        return terminal.typed(name, hidden=hidden)
    terminal.check_open(0)
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError:
        raise BadInput("standard input is no text in UTF-8. Encode it, for example with base64.") from None
    return text.removesuffix("\n").removesuffix("\r")
