"""Takes requests from wherever they come in, and gives their answers: one desk for the bus, REST and the commands."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from gossamer.control.admission import AdmittedRequest, RequestValidator, SubmitResult, submit, unknown_spiders
from gossamer.control.domains import Blacklist
from gossamer.errors import RequestRejected
from gossamer.frontier.base import Frontier
from gossamer.model.crawl import CrawlId, CrawlState, WhenBlacklisted
from gossamer.model.messages.reader import MessageReader

CRAWL = "crawl"
"""The one kind of request that is no question: it goes into the frontier."""


class Handler(Protocol):
    """Answers the requests of one kind. Plug-ins have one, too."""

    async def handle(self, request: Any, *, old: bool) -> list[dict[str, Any]]:
        """The messages to send for it, each with an `appid`. `old`: whoever asks follows Scrapy Cluster 1.0.

        May be called again with the same request after a failure. Raises RequestRejected, and what the frontier
        raises."""
        ...


class RequestDispatcher:
    """Reads, submits, answers. Keeps nothing; safe to share."""

    def __init__(
        self,
        frontier: Frontier,
        reader: MessageReader,
        door: RequestValidator,
        handlers: Mapping[str, Handler],
        *,
        now: Callable[[], float],
        old: bool = False,
    ) -> None:
        """`handlers`: by kind of request. `now`: epoch seconds. `old`: answers have Scrapy Cluster 1.0's form unless a
        question is asked for in another."""
        self._frontier = frontier
        self._reader = reader
        self._door = door
        self._handlers = handlers
        self.now = now
        self._old = old
        self._blacklist = Blacklist(frontier)

    def read(self, value: bytes | dict[str, Any], *, sent: float | None = None) -> tuple[str, Any]:
        """(kind, request); of the kind `crawl` the request is a Submission. Raises RequestRejected.

        `sent`: epoch seconds when the request was sent, where it had to wait: one that has expired since is read."""
        kind, request = self._reader.read(value)
        return kind, self._door.admit(request, sent=sent) if kind == CRAWL else request

    def given(self, value: bytes | dict[str, Any]) -> dict[str, Any]:
        """What can be made out of a refused message, for its answer; nothing where that is not an object."""
        try:
            return self._reader.decode_object(value) if isinstance(value, bytes) else value
        except RequestRejected:
            return {}

    async def check(self, submissions: Sequence[AdmittedRequest]) -> list[RequestRejected | None]:
        """Return why each request would be refused as the cluster is now, in order; None: it would not."""
        return await unknown_spiders(self._frontier, submissions)

    async def submit(self, submissions: Sequence[AdmittedRequest]) -> list[SubmitResult]:
        """Put crawl requests into the frontier; an answer for each, in order."""
        faults = await self.check(submissions)
        sound = [submission for submission, fault in zip(submissions, faults, strict=True) if fault is None]
        if not sound:
            return [SubmitResult(False, fault.reason, fault.field) for fault in faults if fault is not None]
        answers = iter(await submit(self._frontier, sound))
        blacklisted = await self._blacklist.of({submission.domain for submission in sound})
        return [
            SubmitResult(False, fault.reason, fault.field)
            if fault is not None
            else _with_blacklist(next(answers), blacklisted.get(submission.domain))
            for submission, fault in zip(submissions, faults, strict=True)
        ]

    async def blacklisted(self, submissions: Sequence[AdmittedRequest]) -> list[WhenBlacklisted | None]:
        """Return what would become of each request, in order, for its domain is blacklisted; None: it is not."""
        found = await self._blacklist.of({submission.domain for submission in submissions})
        return [found.get(submission.domain) for submission in submissions]

    async def ended(self, submissions: Sequence[AdmittedRequest]) -> dict[CrawlId, CrawlState]:
        """Return the crawls among these that refuse requests because they were stopped or have expired. Of an ended
        crawl another spider's request may still be taken, and of an expired one a fresh request: these are left out."""
        asked: dict[CrawlId, set[str]] = {}
        for submission in submissions:
            if not submission.fresh:
                asked.setdefault(submission.crawl.id, set()).add(submission.spider)
        found = await asyncio.gather(*(self._frontier.crawl_info(crawl) for crawl in asked))
        return {
            info.crawl: info.state
            for info in found
            if info is not None
            and info.state in (CrawlState.STOPPED, CrawlState.EXPIRED)
            and asked[info.crawl] & info.spiders.keys()
        }

    async def handle(self, kind: str, request: Any, *, old: bool | None = None) -> list[dict[str, Any]]:
        """Return the answers to a request of another kind, in the form of 1.0 (`old`), of 1.2 (False), or the cluster's
        (None)."""
        return await self._handlers[kind].handle(request, old=self._old if old is None else old)


def _with_blacklist(submitted: SubmitResult, when_blacklisted: WhenBlacklisted | None) -> SubmitResult:
    return SubmitResult(True, blacklisted=when_blacklisted) if submitted.added and when_blacklisted else submitted


class CheckedHandler:
    """Implements Handler over one of a plug-in."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def handle(self, request: Any, *, old: bool) -> list[dict[str, Any]]:
        """Its answers. Raises TypeError for what cannot be published, and whatever the plug-in raises."""
        answers: Any = await self._handler.handle(request, old=old)
        if not isinstance(answers, list) or not all(
            isinstance(answer, dict) and isinstance(answer.get("appid"), str) for answer in answers
        ):
            raise TypeError("a handler returns a list of objects, each with an appid")
        msgspec.json.encode(answers)
        return answers
