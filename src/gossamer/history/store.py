"""The history as services, the API and commands use it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gossamer.errors import HistoryUnavailable
from gossamer.history import crawls, ends, failures, rates, retention, turns
from gossamer.history.crawls import CrawlFilter, PastCrawl
from gossamer.history.database import HistoryDatabase
from gossamer.history.rates import RatePoint
from gossamer.history.retention import RatePosition
from gossamer.history.tables import EndRow, FailureRow
from gossamer.model.crawl import CrawlId
from gossamer.model.info import CrawlInfo
from gossamer.model.messages.history import CrawlEnded, RequestFailed

T = TypeVar("T")


class HistoryStore:
    """History in one database. Every write may be repeated, and may be made by several processes at a time.

    The tables are made, or brought up to date, by the first call that reaches the database. Every call may raise
    HistoryUnavailable, and BadInput for a database of another version.
    """

    def __init__(self, url: str) -> None:
        """Raises BadInput for an address that cannot be used. Nothing is connected yet."""
        self._database = HistoryDatabase(url)
        self._migrating = asyncio.Lock()
        self._is_current = False

    # --- what the historian writes ------------------------------------------------------------------------------------

    async def record_crawls(
        self, infos: Sequence[CrawlInfo], *, now: float, domains: Mapping[CrawlId, Sequence[str]] | None = None
    ) -> None:
        """Record the state of crawls, as the frontier said it at about `now`; and domains on which they have requests.
        No crawl may be there twice. An earlier state than the one that is recorded changes nothing."""

        def work(connection: Connection) -> None:
            crawls.record(connection, infos, now=now)
            rates.record(connection, infos, now=now)
            if domains:
                crawls.record_domains(connection, domains)

        if infos:
            await self._write(work)

    async def record_messages(self, ended: Sequence[CrawlEnded], failed: Sequence[RequestFailed]) -> None:
        """Record ends of runs, each once by its id, and examples of failed requests."""

        def work(connection: Connection) -> None:
            ends.record(connection, ended)
            failures.record(connection, failed)

        await self._write(work)

    async def record_lost(self, found: Sequence[CrawlId], *, now: float) -> None:
        """Record that the frontier does not know these crawls any more. They are `lost` unless their end is recorded:
        the frontier lost its data, or no historian ran for longer than it remembers a crawl."""
        if found:
            await self._write(lambda connection: crawls.record_lost(connection, found, now=now))

    async def forget(self, crawl: CrawlId) -> None:
        """Delete all that is remembered of a crawl, which the frontier must have forgotten."""
        await self._write(lambda connection: crawls.forget(connection, crawl))

    async def take_turn(self, name: str, *, owner: str, seconds: float) -> bool:
        """Take or keep a turn for some seconds. Return whether `owner` has it now."""
        return await self._write(lambda connection: turns.take(connection, name, owner=owner, seconds=seconds))

    async def give_back_turn(self, name: str, *, owner: str) -> None:
        """End the turn of `owner`."""
        await self._write(lambda connection: turns.give_back(connection, name, owner=owner))

    async def sweep(self, *, before: float) -> bool:
        """Delete a batch of what is older than `before`. Return whether there may be more."""
        return await self._write(lambda connection: retention.sweep(connection, before=before))

    async def thin_rates(self, *, now: float, after: RatePosition) -> tuple[RatePosition, bool]:
        """Delete some rates of old minutes. Return the position to go on after, and whether there may be more."""
        return await self._write(lambda connection: retention.thin_rates(connection, now=now, after=after))

    # --- what others read ---------------------------------------------------------------------------------------------

    async def crawls(
        self, *, appid: str = "", state: str = "", text: str = "", domain: str = "", cursor: str = "", limit: int
    ) -> tuple[list[PastCrawl], str]:
        """Return a page of crawls, those that started last first, and the cursor of the next page; '' at the end. The
        filters are those of `CrawlFilter`. Raises BadInput for an invalid cursor."""
        chosen = CrawlFilter(appid, state, text, domain)
        return await self._read(lambda connection: crawls.page(connection, chosen, cursor=cursor, limit=limit))

    async def crawl(self, crawl: CrawlId) -> PastCrawl | None:
        """Return a crawl. None: it is not remembered."""
        return await self._read(lambda connection: crawls.find(connection, crawl))

    async def running_crawls(self, *, after: int, limit: int) -> tuple[list[CrawlId], int]:
        """Return a page of the crawls that are recorded as running, and the number after which the next one begins; 0:
        this is the last one."""
        return await self._read(lambda connection: crawls.running_ids(connection, after=after, limit=limit))

    async def ends(self, crawl: CrawlId) -> list[EndRow]:
        """Return the ends of a crawl's runs and of their parts, the latest first."""
        return await self._read(lambda connection: ends.of_crawl(connection, crawl))

    async def failures(self, crawl: CrawlId, *, since: float) -> dict[str, list[FailureRow]]:
        """Return examples of a crawl's failures from this time on, by reason, the latest first."""
        return await self._read(lambda connection: failures.of_crawl(connection, crawl, since=since))

    async def failures_of(self, crawl: CrawlId, url: str) -> list[FailureRow]:
        """Return the examples of a crawl's failures that are about this URL, the latest first."""
        return await self._read(lambda connection: failures.of_url(connection, crawl, url))

    async def rates(self, crawl: CrawlId, *, started: float) -> list[RatePoint]:
        """Return the speed of the run that began at `started`, the earliest first."""
        return await self._read(lambda connection: rates.of_crawl(connection, crawl, started=started))

    async def close(self) -> None:
        """Wait for the calls that run, and close all connections."""
        await self._database.close()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _write(self, work: Callable[[Connection], T]) -> T:
        try:
            await self._make_current()
            return await self._database.write(work)
        except _OUTAGES as error:
            raise _unavailable(error) from error

    async def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            await self._make_current()
            return await self._database.read(work)
        except _OUTAGES as error:
            raise _unavailable(error) from error

    async def _make_current(self) -> None:
        if not self._is_current:
            async with self._migrating:
                if not self._is_current:
                    await self._database.migrate()
                    self._is_current = True


_OUTAGES = (OperationalError, InterfaceError, PoolTimeout)
"""Errors of a database that cannot be reached, is full or busy. Others are bugs."""


def _unavailable(error: Exception) -> HistoryUnavailable:
    return HistoryUnavailable(" ".join(str(getattr(error, "orig", None) or error).split()))
