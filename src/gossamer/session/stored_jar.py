"""A jar with a copy in the frontier's server, which workers share and which outlives them."""

import time
from typing import TYPE_CHECKING

import msgspec

from gossamer.errors import FrontierError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Run
from gossamer.session.jar import CookieJar
from gossamer.session.vault import CookieVault

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

_SYNC_SECONDS = 1.0
"""Interval at which a jar in use is compared with its copy. Longer lets workers that share a jar use older cookies."""


class JarStore(msgspec.Struct, frozen=True):
    """Place of the copies of a crawl's jars."""

    frontier: ValkeyFrontier
    run: Run
    keys: "MultiFernet"
    life_seconds: float = 86400.0
    """A copy is forgotten so long after its last use, or half of that. Longer keeps sessions of people in the server
    for longer; shorter makes a crawl that is resumed log in again."""


class StoredJar:
    """A jar and its copy. A server that does not answer delays the exchange, never a page."""

    def __init__(self, store: JarStore | None, account: str, site: str) -> None:
        """`store` None: there is no copy, and only this process has the cookies."""
        self.jar = CookieJar(site)
        self._store = store
        self._account = account
        self._synced_at = float("-inf")
        self._saved_at = time.monotonic()
        self._is_syncing = False
        if store is not None:
            name = f"{store.run.crawl.id.token}:{store.run.generation}|{account}|{site}"
            self._vault = CookieVault(store.keys, name)

    async def sync(self, *, at_once: bool = False) -> None:
        """Exchange changes with the copy. Does nothing within _SYNC_SECONDS after the last time, unless `at_once`."""
        now = time.monotonic()
        if self._store is None or self._is_syncing or (now - self._synced_at < _SYNC_SECONDS and not at_once):
            return
        self._is_syncing, self._synced_at = True, now
        changes = self.jar.take_changes()
        try:
            # Saving nothing makes the copy live on: else a jar in use would be emptied, as if the site had done so.
            if changes or now - self._saved_at > self._store.life_seconds / 2:
                vault = self._vault
                rows = {vault.field(key): vault.encrypt(one) if one else b"" for key, one in changes.items()}
                await self._store.frontier.save_cookies(
                    self._store.run, self._account, self.jar.site, rows, seconds=self._store.life_seconds
                )
                self._saved_at = now
            copy = await self._store.frontier.read_cookies(self._store.run, self._account, self.jar.site)
            self.jar.merge([one for token in copy.values() if (one := self._vault.decrypt(token)) is not None])
        except FrontierError:
            self.jar.note_changes(changes)
        finally:
            self._is_syncing = False
