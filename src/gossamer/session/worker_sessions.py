"""Sessions of one worker: of the account that it has claimed, or the cookies of each site."""

from collections import OrderedDict
from collections.abc import Callable

from gossamer.errors import LoginFailed
from gossamer.session.account_claim import AccountClaim
from gossamer.session.session_file import SiteLogin
from gossamer.session.site_session import SiteSession
from gossamer.session.stored_jar import JarStore

_MOST_SITES = 1000
"""Sites whose cookies a worker has in memory; the least recently used makes room. More take more memory."""


class WorkerSessions:
    """Chooses the session of each request."""

    def __init__(
        self,
        store: JarStore | None,
        login: SiteLogin | None = None,
        claim: AccountClaim | None = None,
        *,
        needs_account: bool = False,
    ) -> None:
        """`store` None: cookies stay in this process. `login` and `claim`: of a crawl that logs in to a site.
        `needs_account`: it does, and this worker has no account."""
        self._needs_account = needs_account or login is not None
        self._store = store
        self._login = login
        self._claim = claim
        self._sessions: OrderedDict[tuple[str, str], SiteSession] = OrderedDict()
        self.in_use = 0
        """Number of requests in progress, those that are logging in included."""
        self.is_ending = False
        """True: no request begins any more."""
        self.failure: LoginFailed | None = None
        """Reason why this worker fetches nothing more."""
        self.failed_account = ""
        """Name of the account whose login has failed. Empty: none."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called when a login has failed."""

    @property
    def has_accounts(self) -> bool:
        """True: the crawl logs in, and each worker needs an account."""
        return self._needs_account

    def session_for(self, site: str) -> SiteSession | None:
        """Return the session for requests to a registered domain. None: this worker may send none now, because it has
        no account, or because the login has failed."""
        login, account = self._login, None
        if self._needs_account and login is None:
            return None
        if login is not None:
            name = self._claim.account if self._claim is not None else ""
            account = next((one for one in login.accounts if one.name == name), None)
            if account is None or self.failure is not None or self.is_ending:
                return None
            if site != login.site:
                login = account = None
        key = account.name if account is not None else "", site
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = SiteSession(site, self._store, login, account)
            if len(self._sessions) > _MOST_SITES:
                self._sessions.popitem(last=False)
        else:
            self._sessions.move_to_end(key)
        return session

    def fail(self, error: LoginFailed, session: SiteSession | None) -> None:
        """Record that the login of a session has failed: this worker fetches nothing more. None: it has no session."""
        if self.failure is None:
            self.failure = error
            if session is not None and session.account is not None:  # the claim may be lost, or of another one, by now
                self.failed_account = session.account.name
            self.on_failure()

    async def close(self) -> None:
        """Store the last cookies, and give the account to others."""
        for session in self._sessions.values():
            await session.close()
        if self._claim is not None:
            await self._claim.release()


NO_ACCOUNT = WorkerSessions(None, needs_account=True)
"""Sessions of a crawl with a login of which this worker has no account: it may send no request."""
