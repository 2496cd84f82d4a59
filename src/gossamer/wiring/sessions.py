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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Run, login_of
from gossamer.model.request import Lease
from gossamer.option_names import label, named
from gossamer.session.account_claim import AccountClaim, account_egress, count_by_account
from gossamer.session.service_logins import ServiceLogins
from gossamer.session.session_file import SiteLogin, read_session_file
from gossamer.session.stored_jar import JarStore
from gossamer.session.worker_sessions import NO_ACCOUNT, WorkerSessions
from gossamer.settings import Settings
from gossamer.telemetry.logs import Troubles
from gossamer.worker.loading import LoadedSpider, find_spider, make_spider
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
    check_budget(settings, login)
    if login.steps is not None and login.steps.spider:
        try:
            check_login_method(_spider_of(settings, login))
        except BadInput as error:
            fault = error.detail.removeprefix(f"{label(error.option)}: ")  # the session file names the spider
            if login.steps.spider is True:
                fault = (
                    f"true stands for the spider of the crawl, and {fault} Start the crawl with "
                    f"{named('spider', 'shop.py')}, or name the file in the session file, as gossamer fetch needs it: "
                    "login: {spider: shop.py}."
                )
            raise BadInput(f"{settings.crawl.session}: login: spider: {fault}", option="session") from None
    return login


def _spider_of(settings: Settings, login: SiteLogin) -> LoadedSpider:
    """Return the spider that logs in: the one that the session file names, else that of the crawl."""
    name = login.steps.spider if login.steps is not None else False
    return find_spider(name if isinstance(name, str) else settings.crawl.spider)


def check_budget(settings: Settings, login: SiteLogin) -> None:
    """Raise BadInput where a worker with these settings cannot count requests by account."""
    if login.budget == "account" and (settings.fetch.proxy_budget == "address" or settings.fetch.egress_url):
        raise BadInput(
            "budgets for each account and for each address cannot be combined. Write budget: site into the session "
            "file, or leave out fetch.proxy_budget and fetch.egress_url.",
            option="session",
        )


def check_login_method(spider: LoadedSpider | Spider) -> None:
    """Raise BadInput for a spider without a login of its own."""
    made = type(spider) if isinstance(spider, Spider) else spider.make
    if getattr(made, "login", None) is Spider.login:
        raise BadInput(f"the spider {spider.name} has no method login.")


def with_spider(login: SiteLogin, make: Callable[[], Spider]) -> SiteLogin:
    """Return a login with its spider, if one logs in. `make` returns that of the crawl."""
    if login.steps is None or not login.steps.spider:
        return login
    name = login.steps.spider
    return msgspec.structs.replace(login, spider=make_spider(find_spider(name)) if isinstance(name, str) else make())


class CrawlSessions:
    """The sessions of each crawl that a worker works for."""

    def __init__(self, frontier: ValkeyFrontier, keys: "MultiFernet | None") -> None:
        self._frontier = frontier
        self.keys = keys
        """The operator's keys. None: there are none."""
        self._by_run: OrderedDict[tuple[str, int], WorkerSessions] = OrderedDict()
        self.on_failure: Callable[[], None] = lambda: None
        """Called when a login has failed."""
        self.service_logins: ServiceLogins | None = None
        """Logins of the service; None: this worker knows of none."""

    def of(self, lease: Lease) -> WorkerSessions:
        """Return the sessions of a lease's crawl."""
        run = lease.run
        if lease.terms.session == "login" and (login := login_of(run.crawl.pool)):
            return self.service_logins.sessions(login) if self.service_logins is not None else NO_ACCOUNT
        return self._of_run(run)

    def _of_run(self, run: Run) -> WorkerSessions:
        """Return the sessions of a crawl of a command, or of one that only keeps cookies."""
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
        if self.keys is None:
            return None
        return JarStore(self._frontier, run, self.keys)

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
        if self.service_logins is not None:
            await self.service_logins.close()
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
        await count_by_account(frontier, login.site)
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


def service_logins(
    sessions: CrawlSessions,
    settings: Settings,
    frontier: ValkeyFrontier,
    holder: ValkeyLeaseholder,
    troubles: Troubles,
    *,
    spider: Callable[[str], Spider],
    key_fault: str = "",
) -> ServiceLogins:
    """Return the logins of a service in a worker, which then uses them. `spider`: returns the spider of a name.
    `key_fault`: why `sessions` have no keys. Empty: none were given."""
    sessions.service_logins = logins = ServiceLogins(
        frontier,
        holder,
        sessions.keys,
        troubles,
        life_seconds=_CLAIM_FACTOR * settings.worker.heartbeat,
        prepare=partial(_usable, settings, spider),
        key_fault=key_fault,
    )
    return logins


def _usable(settings: Settings, spider: Callable[[str], Spider], login: SiteLogin) -> SiteLogin:
    """Return a login of a service with its spider. Raises BadInput for one that this worker cannot use."""
    check_budget(settings, login)
    if login.steps is None or not login.steps.spider:
        return login
    found = spider(str(login.steps.spider))
    check_login_method(found)
    return msgspec.structs.replace(login, spider=found)
