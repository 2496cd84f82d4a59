"""scrapy-redis's dupefilter class, and the fingerprints that scrapy-redis left in Redis.

They let a crawl that scrapy-redis began go on here: requests in the old set are not added to the frontier, the queue
that all processes share. Fixed: the name RFPDupeFilter, which projects write into their settings, and the result of
`request_fingerprint`, which must equal what scrapy-redis has stored. The old set is only read, never written.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

from scrapy import Request, Spider
from scrapy.dupefilters import RFPDupeFilter as ScrapyDupeFilter
from scrapy.settings import BaseSettings
from w3lib.url import canonicalize_url

from gossamer.errors import BadInput
from gossamer.model.request import Batch
from gossamer.scrapy.redis.connection import RedisConnection
from gossamer.scrapy.redis.replacements import refuse


class RFPDupeFilter(ScrapyDupeFilter):
    """Accepted value of DUPEFILTER_CLASS. It is never called: the frontier drops duplicates when it queues requests.

    Commands without a frontier, such as `scrapy shell`, make one as Scrapy's own."""

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Return a new object. Raises BadSetting for scrapy-redis's parameters `server` and `key`."""
        if {"server", "key"} & named.keys() or not (not args or args[0] is None or isinstance(args[0], str)):
            refuse("RFPDupeFilter(server, key)", "dupefilter")
        return super().__new__(cls)

    @classmethod
    def from_spider(cls, spider: Spider) -> NoReturn:
        """Refuse scrapy-redis's way to make one. Raises BadSetting."""
        refuse("RFPDupeFilter.from_spider", "dupefilter")

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> NoReturn:
        """Refuse scrapy-redis's way to make one. Raises BadSetting."""
        refuse("RFPDupeFilter.from_settings", "dupefilter")


def request_fingerprint(request: Request) -> str:
    """Return the fingerprint that scrapy-redis 0.7 to 0.9 stored for a request: 40 hexadecimal digits.

    Neither the fields, nor the order of the keys, nor the hash may change."""
    data = {"method": request.method, "url": canonicalize_url(request.url), "body": request.body.hex()}
    text = json.dumps(data, sort_keys=True)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class LegacyFingerprints:
    """The set of fingerprints that scrapy-redis left. Requests in it are not added to the frontier. It is read-only.

    The frontier's batches hold the frontier's fingerprints only, from which scrapy-redis's cannot be computed. So each
    request is registered here with both before it goes into a batch (`register`), and its entry is removed when its
    batch has been compared with the set (`filter_unseen`).
    """

    connection: RedisConnection
    key: str
    """Name of the set in Redis."""
    _pending: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By the frontier's fingerprint: scrapy-redis's fingerprint, and the number of registered requests that have it."""

    async def exists(self) -> bool:
        """Return whether the set exists. Raises FrontierUnavailable, and BadInput where the key has another type."""
        shards = await self.connection.shards()
        answer = await shards.command(self.key, "TYPE", self.key)  # the first argument selects the server by its key
        kind = answer.decode() if isinstance(answer, bytes) else str(answer)
        if kind not in ("none", "set"):
            raise BadInput(f"SCHEDULER_DUPEFILTER_KEY: {self.key} is a {kind}, not a set of scrapy-redis")
        return kind == "set"

    def register(self, fingerprint: int, request: Request) -> None:
        """Register a request that is on its way into the frontier under this fingerprint."""
        known = self._pending.get(fingerprint)
        self._pending[fingerprint] = (known[0], known[1] + 1) if known else (request_fingerprint(request), 1)

    async def filter_unseen(self, batches: Sequence[Batch]) -> tuple[list[Batch], int]:
        """Return the batches without the requests that are in the set, and the number of these requests.

        Batches marked `unfiltered` (Scrapy's dont_filter) stay as they are. Raises FrontierUnavailable; may be repeated
        then, because no entry is removed before the set has answered."""
        filtered = [batch for batch in batches if not batch.unfiltered]
        legacy = {
            fingerprint: self._pending[fingerprint][0]
            for batch in filtered
            for fingerprint in batch.fingerprints
            if fingerprint in self._pending
        }
        if not legacy:
            return list(batches), 0
        shards = await self.connection.shards()
        answers = await shards.command(self.key, "SMISMEMBER", self.key, *legacy.values())
        seen = {fingerprint for fingerprint, answer in zip(legacy, answers, strict=True) if answer}
        unseen, dropped = [batch for batch in batches if batch.unfiltered], 0
        for batch in filtered:
            positions = [at for at, fingerprint in enumerate(batch.fingerprints) if fingerprint not in seen]
            dropped += len(batch.fingerprints) - len(positions)
            if positions:
                unseen.append(_select(batch, positions))
            for fingerprint in batch.fingerprints:
                self._unregister(fingerprint)
        return unseen, dropped

    def _unregister(self, fingerprint: int) -> None:
        """Remove one registered request with this fingerprint of the frontier."""
        legacy, count = self._pending.get(fingerprint, ("", 0))
        if count > 1:
            self._pending[fingerprint] = (legacy, count - 1)
        else:
            self._pending.pop(fingerprint, None)


def _select(batch: Batch, positions: Sequence[int]) -> Batch:
    """Return the batch with the requests at these positions only."""
    if len(positions) == len(batch.urls):
        return batch
    payloads = batch.payloads
    return Batch(
        batch.spider, batch.domain, batch.priority, batch.depth,
        urls=[batch.urls[at] for at in positions],
        fingerprints=[batch.fingerprints[at] for at in positions],
        payloads=[payloads[at] for at in positions] if payloads else payloads,
        unfiltered=batch.unfiltered,
    )  # fmt: skip
