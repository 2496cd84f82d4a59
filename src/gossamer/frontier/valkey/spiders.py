"""Which lane runs a spider, and so by which fingerprint its requests are remembered."""

import time
from collections.abc import Collection

from gossamer.frontier.base import Lane
from gossamer.frontier.valkey.commands import Commands
from gossamer.frontier.valkey.identity import Identity
from gossamer.model.crawl import QueryOrder
from gossamer.policy.scrapy_urls import scrapy_fingerprint
from gossamer.policy.urls import fingerprint, spider_seed, with_sorted_query

_LIFE_MS = 30 * 86400 * 1000
_ASK_AGAIN_SECONDS = 10.0


class ValkeySpiders:
    """Implements Spiders."""

    def __init__(self, commands: Commands, identity: Identity) -> None:
        self._commands = commands
        self._identity = identity
        self._announced: dict[str, frozenset[Lane]] = {}
        self._asked = float("-inf")

    async def announce(self, lane: Lane, names: Collection[str]) -> None:
        await self._ask(lane, *names)

    async def learn(self, names: Collection[str]) -> None:
        stale = time.monotonic() - self._asked >= _ASK_AGAIN_SECONDS
        if stale or not all(name in self._announced for name in names):
            await self._ask()

    def lanes(self, name: str) -> frozenset[Lane]:
        return self._announced.get(name, frozenset())

    def names(self) -> frozenset[str]:
        return frozenset(self._announced)

    def fingerprint(
        self,
        spider: str,
        url: str,
        *,
        method: str = "GET",
        body: bytes = b"",
        query_order: QueryOrder = QueryOrder.SIGNIFICANT,
    ) -> int:
        seed = spider_seed(self._identity.secret, spider)
        if self.lanes(spider) == {Lane.SCRAPY}:
            return fingerprint(scrapy_fingerprint(url, method=method, body=body), seed=seed)
        if query_order is QueryOrder.IGNORED:
            url = with_sorted_query(url)
        return fingerprint(url, seed=seed, method=method, body=body)

    async def _ask(self, *announcement: str) -> None:
        fast, scrapy = (
            {name.decode() for name in names}
            for names in await self._commands.call(0, "spiders", _LIFE_MS, *announcement)
        )
        self._announced = {
            name: frozenset(lane for lane, known in ((Lane.FAST, fast), (Lane.SCRAPY, scrapy)) if name in known)
            for name in fast | scrapy
        }
        self._asked = time.monotonic()
