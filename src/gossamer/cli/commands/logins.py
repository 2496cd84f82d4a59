"""`gossamer logins`: lists, stores and deletes the logins of a running service, which crawl requests name.

Secrets are encrypted here, with the operator's key, before they are sent. Fixed: the names of commands and flags, and
the fields of `--json`.
"""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from gossamer.cli import options, tables, terminal
from gossamer.cli.parser import CommandGroup, argument, option
from gossamer.cli.running import ask
from gossamer.control.logins import (
    LOGIN_DAYS,
    MOST_LOGIN_DAYS,
    LoginState,
    check_stored,
    login_fields,
    login_states,
    stored_login,
)
from gossamer.errors import BadInput
from gossamer.frontier.valkey.logins import StoredLogin
from gossamer.wiring.service import ServiceContext

app = CommandGroup(help="List, store and delete the logins that crawl requests name. Their secrets are encrypted.")

Name = Annotated[str, argument(metavar="NAME", help="Name of the login, as requests have it.")]
File = Annotated[
    str, argument(metavar="FILE", help="Session file: accounts, how to log in, and where the secrets are.")
]
Days = Annotated[
    int,
    option("--days", metavar="N", help="Days until the login and its secrets are forgotten."),
]


@app.command("list")
@options.takes("frontier", "data_dir")
def list_logins(*, json: options.Json = False, **given: Any) -> None:
    """Show the logins of a service, and which of their accounts have failed. Secrets are not shown.

    gossamer logins list
    """
    states = ask(options.load_settings(given), lambda cluster: login_states(cluster.frontier))
    if json:
        terminal.print_json({"logins": [login_fields(state) for state in states]})
        return
    table = tables.PlainTable("login", "site", "accounts", "ends")
    for state in states:
        ends = datetime.fromtimestamp(state.login.expires, UTC).strftime("%Y-%m-%d")
        table.add_row(state.name, state.login.site, ", ".join(state.login.accounts), ends)
    tables.show(table)
    for state in states:
        for account, failure in state.failures.items():
            terminal.print_result(f"{state.name}: {account} has failed. {failure.detail}")


@app.command("put")
@options.takes("frontier", "data_dir")
def put_login(name: Name, file: File, days: Days = LOGIN_DAYS, *, json: options.Json = False, **given: Any) -> None:
    """Store a login under a name, for all workers of a service. One of the same name is replaced.

    The session file is read here, with the variables and files that it names, and encrypted with the key in
    GOSSAMER_SECRET_KEYS or GOSSAMER_SECRET_KEYS_FILE, which the workers need, too.

    gossamer logins put shop shop.yaml
    """
    settings = options.load_settings(given)
    if not 1 <= days <= MOST_LOGIN_DAYS:
        raise BadInput(f"--days: cannot use {days}. Write a number from 1 to {MOST_LOGIN_DAYS}.")
    login = sealed_login(name, Path(file), now=time.time(), days=days)

    async def put(cluster: ServiceContext) -> None:
        await cluster.frontier.logins.put(name, login)

    ask(settings, put)
    if json:
        terminal.print_json(login_fields(LoginState(name, login, {})))
    else:
        accounts = ", ".join(login.accounts)
        terminal.print_result(f'{name}: {login.site}, with {accounts}. Requests name it with "login": "{name}".')


@app.command("retry")
@options.takes("frontier", "data_dir")
def retry_login(name: Name, *, json: options.Json = False, **given: Any) -> None:
    """Have workers use the accounts of a login that have failed again.

    gossamer logins retry shop
    """

    async def retry(cluster: ServiceContext) -> bool:
        await check_stored(cluster.frontier, name)
        return await cluster.frontier.logins.retry(name)

    had_failed = ask(options.load_settings(given), retry)
    if json:
        terminal.print_json({"name": name, "retried": had_failed})
    else:
        terminal.print_result(f"{name}: {'its accounts are used again' if had_failed else 'no account has failed'}.")


@app.command("delete")
@options.takes("frontier", "data_dir")
def delete_login(name: Name, *, json: options.Json = False, **given: Any) -> None:
    """Delete a login with its secrets. Its crawls wait until it is stored again.

    gossamer logins delete shop
    """

    async def delete(cluster: ServiceContext) -> None:
        await check_stored(cluster.frontier, name)
        await cluster.frontier.logins.delete(name)

    ask(options.load_settings(given), delete)
    if json:
        terminal.print_json({"name": name, "deleted": True})
    else:
        terminal.print_result(f"{name} is deleted. Workers send nothing more by it within seconds.")


def sealed_login(name: str, file: Path, *, now: float, days: int) -> StoredLogin:
    """Return the login of a session file as it is stored, with the secrets and keys of the environment. `now`: Unix
    time. Raises BadInput."""
    from gossamer.session.session_file import read_session_file  # imported late: the other commands read no file

    login = read_session_file(file, os.environ, now=now)
    return stored_login(name, login, os.environ, now=now, days=days, place=f"{file}: ")
