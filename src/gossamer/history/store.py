"""The history as services, the API and commands use it."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import (
    DatabaseError,
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gossamer.errors import HistoryRefused, HistoryUnavailable
from gossamer.history import crawls, domain_uses, ends, failures, rates, retention, service_rates, turns
from gossamer.history.crawls import CrawlFilter, PastCrawl
from gossamer.history.database import HistoryDatabase
from gossamer.history.domain_uses import DomainUse
from gossamer.history.rates import RatePoint
from gossamer.history.retention import RatePosition
from gossamer.history.service_rates import ServiceRate
from gossamer.history.tables import DomainUseRow, EndRow, FailureRow, ServiceRateRow, changes
from gossamer.model.crawl import CrawlId
from gossamer.model.info import CrawlInfo
from gossamer.model.messages.history import CrawlEnded, RequestFailed
from gossamer.storage.audit import AuditFilter, AuditWrite
from gossamer.storage.sql import audit
from gossamer.storage.sql.audit import AuditEntryRow

T = TypeVar("T")

_READ_SECONDS: Final = 2.0
"""Longest time of a read. A page waits for it, and then shows what is known without the history. Must stay below the
time for which a page waits for an answer of the API (`_READ_SECONDS` in `dashboard/service.py`)."""
_AWAY_SECONDS: Final = 2.0
"""Time after an outage for which reads fail at once, so that pages do not wait one after the other. Then one read tries
again, while the others go on failing."""
_ALL_CHANGES: Final = AuditFilter()


class HistoryStore:
    """History in one database. Every write may be repeated, and may be made by several processes at a time.

    The tables are made, or brought up to date, by the first call that reaches the database. Every call may raise
    HistoryUnavailable, and BadInput for a database of another version. What writes rows may raise HistoryRefused: then
    none of the call's rows is written.
    """

    def __init__(self, url: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raises BadInput for an address that cannot be used. Nothing is connected yet."""
        self._database = HistoryDatabase(url)
        self._migrating = asyncio.Lock()
        self._is_current = False
        self._monotonic = monotonic
        self._outage: _ReadOutage | None = None
        """The outage that the last read found."""

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

    async def record_domain_uses(self, rows: Sequence[DomainUse]) -> None:
        """Record the use of domains' limits in one minute."""
        if rows:
            await self._write(lambda connection: domain_uses.record(connection, rows))

    async def record_service_rate(self, rate: ServiceRate) -> None:
        """Record the speed of the whole service in one minute."""
        await self._write(lambda connection: service_rates.record(connection, rate))

    async def forget(self, crawl: CrawlId) -> None:
        """Delete all that is remembered of a crawl, which the frontier must have forgotten."""
        await self._write(lambda connection: crawls.forget(connection, crawl))

    async def write_audit(self, writes: Sequence[AuditWrite]) -> list[int]:
        """Add entries to the audit, or complete them, and return their numbers."""
        return await self._write(lambda connection: audit.write(connection, changes, writes))

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

    async def audit(
        self, chosen: AuditFilter = _ALL_CHANGES, *, before: int | None = None, limit: int
    ) -> list[AuditEntryRow]:
        """Return entries of the audit, the latest first. `before`: number of the last entry of the page before."""
        return await self._read(lambda connection: audit.page(connection, changes, chosen, before=before, limit=limit))

    async def domain_use(self, domain: str) -> list[DomainUseRow]:
        """Return the use of a domain's limits in the last day, the earliest minute first; empty for most domains."""
        return await self._read(lambda connection: domain_uses.of_domain(connection, domain))

    async def service_rates(self, limit: int) -> list[ServiceRateRow]:
        """Return the speed of the whole service in the latest minutes, the earliest of them first."""
        return await self._read(lambda connection: service_rates.latest(connection, limit))

    async def close(self) -> None:
        """Wait for the calls that run, and close all connections."""
        await self._database.close()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _write(self, work: Callable[[Connection], T]) -> T:
        try:
            await self._make_current()
            return await self._database.write(work)
        except _FAULTS as error:
            raise _refusal(error) or _unavailable(error) from error

    async def _read(self, work: Callable[[Connection], T]) -> T:
        now = self._monotonic()
        if self._outage is not None:
            if now < self._outage.until:
                raise HistoryUnavailable(self._outage.reason)
            self._outage = self._outage._replace(until=now + _READ_SECONDS)
        try:
            async with asyncio.timeout(_READ_SECONDS):  # the thread goes on for a while
                await self._make_current()
                found = await self._database.read(work)
        except TimeoutError:
            raise self._away(f"no answer within {_READ_SECONDS:g} seconds") from None
        except _FAULTS as error:
            raise self._away(_unavailable(error).detail) from error
        self._outage = None
        return found

    def _away(self, reason: str) -> HistoryUnavailable:
        self._outage = _ReadOutage(reason, self._monotonic() + _AWAY_SECONDS)
        return HistoryUnavailable(reason)

    async def _make_current(self) -> None:
        if not self._is_current:
            async with self._migrating:
                if not self._is_current:
                    await self._database.migrate()
                    self._is_current = True


class _ReadOutage(NamedTuple):
    """An outage of the database, as reads found it."""

    reason: str
    until: float
    """Time until which reads fail without a try, in seconds of the monotonic clock."""


_FAULTS: Final = (StatementError, PoolTimeout, OverflowError)
"""Errors that calls of a database raise, also for values that it has no form for."""
_OUTAGES: Final = (OperationalError, InterfaceError, InternalError, PoolTimeout)
"""Those of a database that cannot be reached, is full or busy. Others are bugs."""
_LIMIT_EXCEEDED: Final = "54"
"""Class of PostgreSQL's errors for a value that is too large for it, such as a name for an index. Fixed."""
_NOT_PERMITTED: Final = "42501"
"""SQLSTATE of a right that is missing. Fixed."""


def _refusal(error: Exception) -> HistoryRefused | None:
    """Return the error for a row that the database will never take. None: this is another one."""
    has_no_form = isinstance(error, StatementError) and not isinstance(error, DBAPIError)
    is_refused = isinstance(error, DataError | IntegrityError | OverflowError) or has_no_form
    return HistoryRefused(_reason(error)) if is_refused or _sqlstate(error).startswith(_LIMIT_EXCEEDED) else None


def _unavailable(error: Exception) -> HistoryUnavailable:
    """Return the error for an outage. Raises the error if it is none."""
    is_damaged = type(error) is DatabaseError  # the file is no database, or not a whole one
    if isinstance(error, _OUTAGES) or is_damaged or _sqlstate(error) == _NOT_PERMITTED:
        return HistoryUnavailable(_reason(error))
    raise error


def _reason(error: Exception) -> str:
    return " ".join(str(getattr(error, "orig", None) or error).split())


def _sqlstate(error: Exception) -> str:
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")
