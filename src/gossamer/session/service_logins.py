"""Logins of a service in one of its workers: holds an account of each login whose requests wait for this worker, and
leases the requests of that login's pool meanwhile (ADR 29).

Imported only where a service has logins.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gossamer.errors import BadInput, BadSpider, FrontierError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.frontier.valkey.logins import LoginFailure, StoredLogin, login_claims, login_jars
from gossamer.model.crawl import login_pool
from gossamer.session.account_claim import AccountClaim, account_egress, count_by_account
from gossamer.session.sealed_login import open_login
from gossamer.session.session_file import SiteLogin
from gossamer.session.stored_jar import JarStore
from gossamer.session.worker_sessions import NO_ACCOUNT, WorkerSessions
from gossamer.telemetry.logs import Troubles

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

_LOOK_SECONDS = 2.0
"""Interval at which a worker asks where requests wait for an account. Longer starts such crawls later, shorter costs
calls to all shards."""
_IDLE_SECONDS = 5.0
"""Time without any request for this worker after which it gives an account back. Longer keeps it from workers that
render or that have other spiders; shorter moves it between workers more often, and each begins with a login."""
_MOST_LOGINS = 20
"""Logins of which a worker has an account at once. More take turns at its slots."""
_TROUBLE = "login:"
"""Beginning of the names of troubles with a login, before its name."""


class _LoginUse:
    """A login that this worker uses, or waits for an account of."""

    def __init__(self, stored: StoredLogin, login: SiteLogin, claim: AccountClaim, sessions: WorkerSessions) -> None:
        self.stored = stored
        self.login = login
        self.claim = claim
        self.sessions = sessions
        self.worked_at = time.monotonic()
        """Latest time at which requests waited or were in progress."""
        self.is_leasing = False
        """True: requests of its pool are leased."""


class ServiceLogins:
    """The logins of the service in this worker."""

    def __init__(
        self,
        frontier: ValkeyFrontier,
        holder: ValkeyLeaseholder,
        keys: "MultiFernet | None",
        troubles: Troubles,
        *,
        life_seconds: float,
        prepare: Callable[[SiteLogin], SiteLogin],
        key_fault: str = "",
    ) -> None:
        """`life_seconds`: of a claim of an account. `prepare` returns a login with its spider; it raises BadInput for
        one that this worker cannot use. `key_fault`: why there are no keys. Empty: none were given."""
        self._frontier = frontier
        self._holder = holder
        self._keys = keys
        self._troubles = troubles
        self._life_seconds = life_seconds
        self._prepare = prepare
        self._key_fault = key_fault
        self._uses: dict[str, _LoginUse] = {}

    def sessions(self, login: str) -> WorkerSessions:
        """Return the sessions of the crawls of a login. Without an account, no request may be sent."""
        use = self._uses.get(login)
        return use.sessions if use is not None else NO_ACCOUNT

    async def follow(self) -> None:
        """Claim accounts where requests wait, and renew the claims. Runs until it is cancelled."""
        looked_at = float("-inf")
        renewal = self._life_seconds
        while True:
            now = time.monotonic()
            if now - looked_at >= _LOOK_SECONDS:
                looked_at = now
                with contextlib.suppress(FrontierError):  # claims end by themselves
                    await self._look()
            for name, use in list(self._uses.items()):
                renewal = use.claim.renewal_seconds
                with contextlib.suppress(FrontierError):  # the next turn tries again
                    await self._renew(name, use)
            await asyncio.sleep(min(_LOOK_SECONDS, renewal))

    async def close(self) -> None:
        """Store the last cookies, and give the accounts to others. No request is in progress."""
        for name, use in self._uses.items():
            with contextlib.suppress(FrontierError):  # claims end by themselves
                await self._note_failure(name, use)
            await use.sessions.close()
        self._uses.clear()

    async def _look(self) -> None:
        """Begin to use logins for which requests wait, and end what is over."""
        stored = await self._frontier.logins.all()
        working = await self._frontier.logins.with_work(stored, self._holder.stored_names)
        now = time.monotonic()
        for name, use in list(self._uses.items()):
            if name in working or use.sessions.in_use:
                use.worked_at = now
            is_over = stored.get(name) != use.stored or now - use.worked_at > _IDLE_SECONDS
            if is_over or use.sessions.failure is not None:
                await self._end(name, use)
        for name in sorted(working - self._uses.keys()):
            if len(self._uses) < _MOST_LOGINS:
                await self._begin(name, stored[name])
        for name in [name.removeprefix(_TROUBLE) for name in self._troubles.current if name.startswith(_TROUBLE)]:
            if name not in working:
                self._troubles.end(f"{_TROUBLE}{name}", f"No request waits for the login {name} any more.")

    async def _begin(self, name: str, stored: StoredLogin) -> None:
        """Begin to use a login, unless all of its accounts have failed."""
        accounts = await self._usable_accounts(name, stored)
        if not accounts:
            return
        try:
            login = self._open(name, stored)
        except (BadInput, BadSpider) as error:
            fault = f"cannot use the login {name}: {error.detail}"
            self._troubles.update(f"{_TROUBLE}{name}", f"This worker {fault}")
            await self._frontier.logins.note_unusable(name, f"The worker {self._holder.worker} {fault}")
            return
        await self._frontier.logins.note_usable(name)
        if len(accounts) == len(stored.accounts):
            self._troubles.end(f"{_TROUBLE}{name}", f"The login {name} is used again.")
        claim = AccountClaim(
            self._frontier, login_claims(name), accounts, owner=self._holder.worker, life_seconds=self._life_seconds
        )
        assert self._keys is not None  # they have opened the login
        store = JarStore(self._frontier, login_jars(name, stored.version), self._keys)
        sessions = WorkerSessions(store, login, claim)
        # Nothing more is leased. The next look ends the use.
        sessions.on_failure = lambda: self._holder.remove_pool(login_pool(name))
        self._uses[name] = _LoginUse(stored, login, claim, sessions)

    def _open(self, name: str, stored: StoredLogin) -> SiteLogin:
        """Return a login with its secrets. Raises BadInput."""
        if self._keys is None:
            missing = "it has no key. Set GOSSAMER_SECRET_KEYS_FILE as where the login was stored."
            raise BadInput(self._key_fault or missing)
        login = open_login(self._keys, name, stored.version, stored.sealed)
        if login is None:
            raise BadInput("none of its keys decrypts it. Set GOSSAMER_SECRET_KEYS_FILE as where the login was stored.")
        return self._prepare(login)

    async def _usable_accounts(self, name: str, stored: StoredLogin) -> Sequence[str]:
        """Return the accounts that have not failed."""
        failed = await self._frontier.logins.failures(name, stored)
        return [account for account in stored.accounts if account not in failed]

    async def _renew(self, name: str, use: _LoginUse) -> None:
        """Renew a claim, and lease the requests of the login's pool while there is one."""
        if not use.claim.account:
            use.claim.accounts = await self._usable_accounts(name, use.stored)
        await use.claim.renew()
        account = use.claim.account
        if not account or use.sessions.failure is not None or use.sessions.is_ending:
            self._holder.remove_pool(login_pool(name))
            use.is_leasing = False
        else:
            egress = ""
            if use.login.budget == "account":
                egress = account_egress(account)
                if not use.is_leasing:
                    await count_by_account(self._frontier, use.login.site)
            await self._holder.add_pool(login_pool(name), egress=egress)
            use.is_leasing = True

    async def _end(self, name: str, use: _LoginUse) -> None:
        """Use a login no more. While requests are in progress, its account is kept, and the next look tries again."""
        use.sessions.is_ending = True
        self._holder.remove_pool(login_pool(name))
        await self._note_failure(name, use)
        if not use.sessions.in_use:
            del self._uses[name]
            await use.sessions.close()

    async def _note_failure(self, name: str, use: _LoginUse) -> None:
        """Note the account whose login has failed, if one has. Comes before the account is free: else another worker
        would try the same password."""
        failure, account = use.sessions.failure, use.sessions.failed_account
        if failure is not None and account:
            noted = LoginFailure(use.stored.version, time.time(), failure.detail)
            await self._frontier.logins.fail(name, account, noted)
            self._troubles.update(f"{_TROUBLE}{name}", f"The login {name} has failed. {failure.detail}")
