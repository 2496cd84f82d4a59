"""Logins of a service: their state, and what crawls that need one wait for."""

import msgspec

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.logins import LoginFailure, StoredLogin
from gossamer.model.crawl import CrawlState, login_of
from gossamer.model.info import CrawlInfo, UrlInfo


class LoginState(msgspec.Struct, frozen=True):
    """A login, and which of its accounts no worker uses."""

    name: str
    login: StoredLogin
    failures: dict[str, LoginFailure]
    """By account."""


async def login_states(frontier: ValkeyFrontier) -> list[LoginState]:
    """Return the states of all logins, by name. Raises FrontierUnavailable."""
    logins = await frontier.logins.all()
    return [LoginState(name, login, await frontier.logins.failures(name, login)) for name, login in logins.items()]


async def login_trouble(frontier: ValkeyFrontier, info: CrawlInfo) -> str:
    """Return sentences about the accounts of a running crawl's login that have failed. Empty: the crawl needs no login,
    or all is well. Raises FrontierUnavailable."""
    return await trouble_of_pool(frontier, info.pool) if info.state is CrawlState.RUNNING else ""


async def login_wait(frontier: ValkeyFrontier, info: CrawlInfo, found: UrlInfo) -> str:
    """Return sentences about the failed login that a request of a crawl waits for. Empty: it waits for none. Raises
    FrontierUnavailable."""
    return await login_trouble(frontier, info) if found.waits else ""


async def trouble_of_pool(frontier: ValkeyFrontier, pool: str) -> str:
    """Return the same of the login that the crawls of a pool need, whether they run or not."""
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
