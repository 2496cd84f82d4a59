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
from gossamer.control.logins import LoginState, login_states
from gossamer.errors import BadInput
from gossamer.frontier.valkey.logins import StoredLogin, check_login_name
from gossamer.wiring.service import ServiceContext

_DAYS = 90
"""Days after which a login ends if none are named."""
_MOST_DAYS = 3650
_DAY_SECONDS = 86400.0

app = CommandGroup(help="List, store and delete the logins that crawl requests name. Their secrets are encrypted.")

Name = Annotated[str, argument(metavar="NAME", help="Name of the login, as requests have it.")]
File = Annotated[
    str, argument(metavar="FILE", help="Session file: accounts, how to log in, and where the secrets are.")
]
Days = Annotated[
    int,
    option("--days", metavar="N", help=f"Days until the login and its secrets are forgotten. Default: {_DAYS}."),
]


@app.command("list")
@options.takes("frontier", "data_dir")
def list_logins(*, json: options.Json = False, **given: Any) -> None:
    """Show the logins of a service, and which of their accounts have failed. Secrets are not shown.

    gossamer logins list
    """
    states = ask(options.load_settings(given), lambda cluster: login_states(cluster.frontier))
    if json:
        terminal.print_json({"logins": [_fields(state) for state in states]})
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
def put_login(name: Name, file: File, days: Days = _DAYS, *, json: options.Json = False, **given: Any) -> None:
    """Store a login under a name, for all workers of a service. One of the same name is replaced.

    The session file is read here, with the environment variables and files that it names. All of it is encrypted with
    the key in GOSSAMER_SECRET_KEYS or GOSSAMER_SECRET_KEYS_FILE, which the workers need, too.

    gossamer logins put shop shop.yaml
    """
    settings = options.load_settings(given)
    if not 1 <= days <= _MOST_DAYS:
        raise BadInput(f"--days: cannot use {days}. Write a number from 1 to {_MOST_DAYS}.")
    login = sealed_login(name, Path(file), now=time.time(), days=days)

    async def put(cluster: ServiceContext) -> None:
        await cluster.frontier.logins.put(name, login)

    ask(settings, put)
    if json:
        terminal.print_json(_fields(LoginState(name, login, {})))
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
        await _check_known(cluster, name)
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
        await _check_known(cluster, name)
        await cluster.frontier.logins.delete(name)

    ask(options.load_settings(given), delete)
    if json:
        terminal.print_json({"name": name, "deleted": True})
    else:
        terminal.print_result(f"{name} is deleted. Workers send nothing more by it within seconds.")


async def _check_known(cluster: ServiceContext, name: str) -> None:
    """Raise BadInput for a login that is not stored."""
    names = await cluster.frontier.logins.all()
    if name not in names:
        known = f"There are {', '.join(names)}" if names else "There is none"
        raise BadInput(f"no login {name!r:.100} is stored. {known}.")


def sealed_login(name: str, file: Path, *, now: float, days: int) -> StoredLogin:
    """Return the login of a session file, encrypted with the keys of the environment. `now`: Unix time. Raises
    BadInput."""
    # Imported late: of the commands here, only this one reads session files.
    from gossamer.policy.scope import check_regex
    from gossamer.session.sealed_login import seal_login
    from gossamer.session.session_file import read_session_file
    from gossamer.session.vault import open_vault_keys
    from gossamer.storage.secret_keys import NEW_KEY

    check_login_name(name)
    login = read_session_file(file, os.environ, now=now)
    if login.steps is not None and login.steps.spider is True:
        raise BadInput(f"{file}: login: name the spider, for example spider: shop. A service has more than one.")
    for pattern in login.never_follow:
        check_regex(pattern, "never_follow", linear=True)
    keys = open_vault_keys(os.environ)
    if keys is None:
        raise BadInput(
            "a login is stored only encrypted, and there is no key. Name its file in GOSSAMER_SECRET_KEYS_FILE, here "
            f"and where the workers run. Make one with: {NEW_KEY}"
        )
    version = round(now * 1000)
    return StoredLogin(
        site=login.site,
        accounts=tuple(account.name for account in login.accounts),
        never_follow=login.never_follow,
        budget=login.budget,
        version=version,
        expires=now + days * _DAY_SECONDS,
        sealed=seal_login(keys, name, version, login),
    )


def _fields(state: LoginState) -> dict[str, Any]:
    """Return what `--json` shows of a login."""
    return {
        "name": state.name,
        "site": state.login.site,
        "accounts": list(state.login.accounts),
        "budget": state.login.budget,
        "expires": state.login.expires,
        "failed": {account: failure.detail for account, failure in state.failures.items()},
    }
