"""Claims an account for one worker: no other uses it meanwhile.

A worker leases requests only while it has an account, so that the hits of none are lost. A claim is renewed well before
it ends. A worker that cannot renew it in time sends nothing more under it, before any other gets it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

import msgspec

from gossamer.errors import FrontierError
from gossamer.frontier.base import ClaimResult
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import BudgetScope, Run

_PREFIX = "account:"
"""Beginning of the names of claims, beside the tasks of a crawl. Fixed: workers of other releases use the same."""
_RENEWALS = 6
"""Renewals in the life of a claim. More cost more calls, fewer lose claims to a short outage of the server."""
_VALID_SHARE = 2 / 3
"""Part of the life of a claim after which a worker that has not renewed it sends nothing more. The rest is left for
requests in flight. Must stay below 1."""
_WAIT_SECONDS = 0.5
"""Longest wait for an account before the worker looks again whether its crawl has ended."""


class AccountClaim:
    """The account that this worker uses, if any."""

    def __init__(
        self, frontier: ValkeyFrontier, run: Run, accounts: Sequence[str], *, owner: str, life_seconds: float
    ) -> None:
        """`owner`: name of this worker. `life_seconds`: after that, the account of a worker that died is free."""
        self._frontier = frontier
        self._run = run
        self.accounts = accounts
        """Accounts that may be claimed. One that is claimed is kept, also if it is not among them any more."""
        self._owner = owner
        self._life_seconds = life_seconds
        self._account = ""
        self._valid_until = 0.0
        self._claimed = asyncio.Event()
        self.on_claimed: Callable[[str], None] = lambda account: None
        """Called with the name of a newly claimed account."""

    @property
    def account(self) -> str:
        """Name of the account that this worker may use now. Empty: none."""
        return self._account if time.monotonic() < self._valid_until else ""

    async def keep(self) -> None:
        """Claim an account, and renew the claim. Runs until it is cancelled."""
        while True:
            await self.renew()
            await asyncio.sleep(self.renewal_seconds if self.account else _WAIT_SECONDS)

    @property
    def renewal_seconds(self) -> float:
        """Time after which a claim is to be renewed."""
        return self._life_seconds / _RENEWALS

    async def renew(self) -> None:
        """Renew the claim, or claim an account that is free."""
        with contextlib.suppress(FrontierError):  # the claim ends by itself, unless a later attempt comes in time
            await self._claim()
        if self.account:
            self._claimed.set()
        else:
            self._claimed.clear()

    async def wait(self) -> bool:
        """Wait a moment for an account. Returns whether there is one."""
        if not self.account:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_SECONDS):
                    await self._claimed.wait()
        return bool(self.account)

    async def release(self) -> None:
        """Give the account to others."""
        account, self._account = self._account, ""
        if account:
            with contextlib.suppress(FrontierError):  # it is free when its life is over
                await self._frontier.release_claims(self._run, [_PREFIX + account], owner=self._owner)

    async def _claim(self) -> None:
        """Renew the claim, or claim the first account that is free."""
        for account in [self._account] if self._account else self.accounts:
            sent_at = time.monotonic()
            [answer] = await self._frontier.claim(
                self._run, [_PREFIX + account], owner=self._owner, seconds=self._life_seconds
            )
            if answer is ClaimResult.GRANTED:
                self._valid_until = sent_at + _VALID_SHARE * self._life_seconds
                if account != self._account:
                    self._account = account
                    self.on_claimed(account)
                return
        self._account = ""


def account_egress(account: str) -> str:
    """Return the name under which the frontier counts the hits of an account, where each has a budget of its own."""
    return f"account-{account}"


async def count_by_account(frontier: ValkeyFrontier, site: str) -> None:
    """Have the frontier keep a budget for each account at the site: the scope of its policy becomes that of
    addresses."""
    policy = await frontier.domain_policy(site)
    if policy.scope not in (BudgetScope.IP, BudgetScope.TYPE_IP):
        await frontier.set_domain_policy(site, msgspec.structs.replace(policy, scope=BudgetScope.IP), expected=policy)
