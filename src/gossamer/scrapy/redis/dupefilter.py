"""scrapy-redis's dupefilter: its name for DUPEFILTER_CLASS, and its fingerprints, which it left in Redis."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter as ScrapysOwn
from w3lib.url import canonicalize_url

from gossamer.errors import BadInput
from gossamer.model.request import Batch
from gossamer.scrapy.redis.connection import RedisLink


class RFPDupeFilter(ScrapysOwn):
    """Only a name: the frontier dedupes, in the same step in which it queues."""


def request_fingerprint(request: Request) -> str:
    """What scrapy-redis 0.7 to 0.9 remembered a request by: 40 hexadecimal digits."""
    data = {"method": request.method, "url": canonicalize_url(request.url), "body": request.body.hex()}
    text = json.dumps(data, sort_keys=True)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class LegacyFingerprints:
    """The fingerprints that scrapy-redis left: what is in there is not added. Nothing is written there."""

    link: RedisLink
    key: str
    _marks: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By the lane's fingerprint: theirs, and how many that are on their way carry it."""

    async def is_there(self) -> bool:
        """Raises FrontierUnavailable, and BadInput where the key holds something else."""
        answer = await (await self.link.shards()).command(self.key, "TYPE", self.key)
        kind = answer.decode() if isinstance(answer, bytes) else str(answer)
        if kind not in ("none", "set"):
            raise BadInput(f"SCHEDULER_DUPEFILTER_KEY: {self.key} is a {kind}, not a set of scrapy-redis's")
        return kind == "set"

    def note(self, fingerprint: int, request: Request) -> None:
        """This request is on its way into the frontier, under this fingerprint."""
        known = self._marks.get(fingerprint)
        self._marks[fingerprint] = (known[0], known[1] + 1) if known else (request_fingerprint(request), 1)

    async def unseen(self, batches: Sequence[Batch]) -> tuple[list[Batch], int]:
        """What of them is not in there, and how many are. Raises FrontierUnavailable; it may be repeated."""
        filtered = [batch for batch in batches if not batch.unfiltered]
        known = {mark: self._marks[mark][0] for batch in filtered for mark in batch.fingerprints if mark in self._marks}
        if not known:
            return list(batches), 0
        answers = await (await self.link.shards()).command(self.key, "SMISMEMBER", self.key, *known.values())
        seen = {mark for mark, answer in zip(known, answers, strict=True) if answer}
        left, dropped = [batch for batch in batches if batch.unfiltered], 0
        for batch in filtered:
            keep = [number for number, mark in enumerate(batch.fingerprints) if mark not in seen]
            dropped += len(batch.fingerprints) - len(keep)
            if keep:
                left.append(_only(batch, keep))
            for mark in batch.fingerprints:
                self._forget(mark)
        return left, dropped

    def _forget(self, mark: int) -> None:
        theirs, count = self._marks.get(mark, ("", 0))
        if count > 1:
            self._marks[mark] = (theirs, count - 1)
        else:
            self._marks.pop(mark, None)


def _only(batch: Batch, keep: Sequence[int]) -> Batch:
    if len(keep) == len(batch.urls):
        return batch
    payloads = batch.payloads
    return Batch(
        batch.spider, batch.domain, batch.priority, batch.depth,
        urls=[batch.urls[number] for number in keep],
        fingerprints=[batch.fingerprints[number] for number in keep],
        payloads=[payloads[number] for number in keep] if payloads else payloads,
        unfiltered=batch.unfiltered,
    )  # fmt: skip
