"""Opens the sessions of a worker: cookies that a crawl keeps, and the accounts by which it logs in.

Imported only where a crawl asks for sessions.
"""

import asyncio
import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import BudgetScope, Run
from gossamer.option_names import named
from gossamer.session.account_claim import AccountClaim
from gossamer.session.session_file import SiteLogin, read_session_file
from gossamer.session.stored_jar import JarStore
from gossamer.session.worker_sessions import WorkerSessions
from gossamer.settings import Settings
from gossamer.worker.loading import find_spider
from gossamer.worker.spider import Spider

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

_CLAIM_FACTOR = 1.5
"""Life of a claim of an account, as a multiple of the time after which a silent worker is declared dead. Must be above
1: the leases of a dead worker are taken back before its account is used by another."""
_MOST_CRAWLS = 100
"""Crawls of a service whose sessions a worker has in memory. More take more memory."""


def load_login(settings: Settings) -> SiteLogin | None:
    """Return the login of the crawl's session file; where a spider logs in, without it. None: the crawl has none.
    Raises BadInput."""
    if settings.crawl.session in ("", "cookies"):
        return None
    try:
        login = read_session_file(Path(settings.crawl.session), os.environ, now=time.time())
    except BadInput as error:
        raise BadInput(str(error), option="session") from None
    if login.budget == "account" and (settings.fetch.proxy_budget == "address" or settings.fetch.egress_url):
        raise BadInput(
            "budgets for each account and for each address cannot be combined. Write budget: site into the session "
            "file, or leave out fetch.proxy_budget and fetch.egress_url.",
            option="session",
        )
    if login.steps is not None and login.steps.spider:
        found = find_spider(settings.crawl.spider)
        if getattr(found.make, "login", None) is Spider.login:
            raise BadInput(
                f"{settings.crawl.session}: login: the spider {found.name} has no method login. Write one, and name "
                f"its file, for example {named('spider', 'shop.py')}.",
                option="session",
            )
    return login


def with_spider(login: SiteLogin, make: Callable[[], Spider]) -> SiteLogin:
    """Return a login with its spider, if one logs in."""
    if login.steps is None or not login.steps.spider:
        return login
    return msgspec.structs.replace(login, spider=make())


class CrawlSessions:
    """The sessions of each crawl that a worker works for."""

    def __init__(self, frontier: ValkeyFrontier, keys: "MultiFernet | None") -> None:
        self._frontier = frontier
        self._keys = keys
        self._by_run: OrderedDict[tuple[str, int], WorkerSessions] = OrderedDict()
        self.on_failure: Callable[[], None] = lambda: None
        """Called when a login has failed."""

    def of(self, run: Run) -> WorkerSessions:
        """Return the sessions of a crawl that only keeps cookies."""
        key = run.crawl.id.token, run.generation
        sessions = self._by_run.get(key)
        if sessions is None:
            sessions = self._by_run[key] = WorkerSessions(self.store(run))
            sessions.on_failure = self.on_failure
            if len(self._by_run) > _MOST_CRAWLS:
                self._by_run.popitem(last=False)
        else:
            self._by_run.move_to_end(key)
        return sessions

    def store(self, run: Run) -> JarStore | None:
        """Return the place of a crawl's stored cookies. None: there is no key, so each worker has its own."""
        if self._keys is None:
            return None
        return JarStore(self._frontier, run, self._keys)

    def raise_failure(self) -> None:
        """Raise LoginFailed, if a login has failed."""
        for sessions in self._by_run.values():
            if sessions.failure is not None:
                raise sessions.failure

    def add(self, run: Run, sessions: WorkerSessions) -> None:
        """Use these sessions for a crawl."""
        sessions.on_failure = self.on_failure
        self._by_run[run.crawl.id.token, run.generation] = sessions

    async def close(self) -> None:
        """Store the last cookies."""
        for sessions in self._by_run.values():
            await sessions.close()


@asynccontextmanager
async def logged_in(
    sessions: CrawlSessions,
    settings: Settings,
    frontier: ValkeyFrontier,
    holder: ValkeyLeaseholder,
    run: Run,
    *,
    spider: Callable[[str], Spider],
) -> AsyncIterator[None]:
    """Lease only while the worker has an account of the crawl's session file. `spider`: returns the spider of a
    name."""
    login = load_login(settings)
    if login is None:
        yield
        return
    login = with_spider(login, lambda: spider(find_spider(settings.crawl.spider).name))
    names = [account.name for account in login.accounts]
    claim = AccountClaim(
        frontier, run, names, owner=holder.worker, life_seconds=_CLAIM_FACTOR * settings.worker.heartbeat
    )
    if login.budget == "account":
        await _count_by_account(frontier, login.site)
        claim.on_claimed = lambda account: holder.set_egress(account_egress(account))
    own = WorkerSessions(sessions.store(run), login, claim)
    sessions.add(run, own)
    holder.before_lease = claim.wait
    keeping = asyncio.create_task(claim.keep())
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await own.close()


def account_egress(account: str) -> str:
    """Return the name under which the frontier counts the hits of an account, where each has a budget of its own."""
    return f"account-{account}"


async def _count_by_account(frontier: ValkeyFrontier, site: str) -> None:
    """Have the frontier keep a budget for each account at the site: the scope of its policy becomes that of
    addresses."""
    policy = await frontier.domain_policy(site)
    if policy.scope not in (BudgetScope.IP, BudgetScope.TYPE_IP):
        await frontier.set_domain_policy(site, msgspec.structs.replace(policy, scope=BudgetScope.IP), expected=policy)
