"""Logins of a service: how one is stored, their state, and what crawls that need one wait for.

Fixed: the fields of `login_fields`, which clients read.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.logins import LoginFailure, StoredLogin, check_login_name
from gossamer.model.crawl import CrawlState, login_of
from gossamer.model.info import CrawlInfo, UrlInfo

if TYPE_CHECKING:
    from gossamer.session.session_file import SiteLogin  # imported late: most processes store no login

LOGIN_DAYS: Final = 90
"""Days after which a login ends if none are named."""
MOST_LOGIN_DAYS: Final = 3650
_DAY_SECONDS = 86400.0


class LoginState(msgspec.Struct, frozen=True):
    """A login, and which of its accounts no worker uses."""

    name: str
    login: StoredLogin
    failures: dict[str, LoginFailure]
    """By account."""


def stored_login(
    name: str, login: "SiteLogin", environment: Mapping[str, str], *, now: float, days: int, place: str = ""
) -> StoredLogin:
    """Return a login as it is stored, encrypted with the keys of the environment. `now`: Unix time. `place`: beginning
    of messages about the login. Raises BadInput for one that workers of a service cannot use, and without a key."""
    # Imported late: most processes store no login.
    from gossamer.policy.scope import check_regex
    from gossamer.session.sealed_login import seal_login
    from gossamer.session.vault import open_vault_keys
    from gossamer.storage.secret_keys import new_key_advice

    check_login_name(name)
    if login.steps is not None and login.steps.spider is True:
        raise BadInput(f"{place}login: name the spider, for example spider: shop. A service has more than one.")
    if login.steps is not None and login.steps.names_spider_file:
        raise BadInput(f"{place}login: name the spider, for example spider: shop. The workers of a service have it.")
    for pattern in login.never_follow:
        check_regex(pattern, "never_follow", linear=True)
    keys = open_vault_keys(environment)
    if keys is None:
        raise BadInput(
            "a login is stored only encrypted, and there is no key. Name its file in GOSSAMER_SECRET_KEYS_FILE, here "
            f"and where the workers run. {new_key_advice()}"
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


async def check_stored(frontier: ValkeyFrontier, name: str) -> None:
    """Raise BadInput for a login that is not stored."""
    names = await frontier.logins.all()
    if name not in names:
        known = f"There are {', '.join(names)}" if names else "There is none"
        raise BadInput(f"no login {name!r:.100} is stored. {known}.")


def login_fields(state: LoginState) -> dict[str, Any]:
    """Return what may be shown of a login, as JSON has it."""
    return {
        "name": state.name,
        "site": state.login.site,
        "accounts": list(state.login.accounts),
        "budget": state.login.budget,
        "expires": state.login.expires,
        "failed": {account: failure.detail for account, failure in state.failures.items()},
    }


async def login_states(frontier: ValkeyFrontier) -> list[LoginState]:
    """Return the states of all logins, by name. Raises FrontierUnavailable."""
    logins = await frontier.logins.all()
    return [LoginState(name, login, await frontier.logins.failures(name, login)) for name, login in logins.items()]


async def login_trouble(frontier: ValkeyFrontier, info: CrawlInfo) -> str:
    """Return sentences about the accounts of a running crawl's login that have failed, or on why a worker cannot use it
    while none is at work. Empty: the crawl needs no login, or all is well. Raises FrontierUnavailable."""
    if info.state is not CrawlState.RUNNING:
        return ""
    login, total = login_of(info.pool), info.total()
    trouble = await trouble_of_pool(frontier, info.pool)
    if trouble or not login or total.leased or not total.waiting:
        return trouble
    unusable = await frontier.logins.unusable(login)
    return f"{unusable} Requests wait for a worker that can." if unusable else ""


async def login_wait(frontier: ValkeyFrontier, info: CrawlInfo, found: UrlInfo) -> str:
    """Return sentences about the login that a request of a crawl waits for in vain. Empty: it waits for none. Raises
    FrontierUnavailable."""
    return await login_trouble(frontier, info) if found.waits else ""


async def trouble_of_pool(frontier: ValkeyFrontier, pool: str) -> str:
    """Return sentences about the accounts that have failed of the login that the crawls of a pool need, whether they
    run or not. Empty: they need none, or none has failed."""
    name = login_of(pool)
    if not name:
        return ""
    stored = await frontier.logins.some([name])
    store = f"gossamer logins put {name} FILE"
    if name not in stored:
        return f"The login {name} is not stored any more, so requests wait. Store it again: {store}."
    failures = await frontier.logins.failures(name, stored[name])
    if not failures:
        return ""
    left = len(stored[name].accounts) - len(failures)
    waits = f"{left} of its accounts are left" if left else "so requests wait"
    reasons = " ".join(failure.detail for failure in failures.values())
    return (
        f"The login {name} has failed as {', '.join(failures)}; {waits}. {reasons} Store it again ({store}), or try "
        f"the same again: gossamer logins retry {name}."
    )
