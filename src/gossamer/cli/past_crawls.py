"""Crawls that a service remembers in its history, for commands."""

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from gossamer.cli import terminal
from gossamer.errors import BadInput
from gossamer.model.crawl import CrawlId
from gossamer.model.info import CrawlInfo
from gossamer.settings import Settings
from gossamer.storage.audit import AuditFilter
from gossamer.wiring.history import has_history, open_history

if TYPE_CHECKING:
    from gossamer.history.crawls import PastCrawl
    from gossamer.history.store import HistoryStore
    from gossamer.storage.sql.audit import AuditEntryRow


class FailureExamples(NamedTuple):
    """Failures of a crawl for one reason."""

    reason: str
    total: int
    urls: list[str]
    """Some of them, the latest first."""


async def past_crawls(settings: Settings, *, appid: str = "", limit: int) -> "tuple[list[PastCrawl], bool]":
    """Return the crawls of the history, of one application or (empty) of all, those that started last first, and
    whether there are more. None where no service has kept a history."""
    async with _opened(settings) as history:
        if history is None:
            return [], False
        found, cursor = await history.crawls(appid=appid, limit=limit)
        return found, bool(cursor)


async def failure_examples(settings: Settings, info: CrawlInfo) -> list[FailureExamples]:
    """Return the failures of a crawl's latest run by reason, the commonest first, with examples where a service has
    kept a history."""
    async with _opened(settings) as history:
        found = {} if history is None else await history.failures(info.crawl, since=info.started)
    counts = sorted(info.total().failed.items(), key=lambda pair: (-pair[1], pair[0]))
    return [FailureExamples(reason, count, [row.url for row in found.get(reason, [])]) for reason, count in counts]


async def audit_entries(settings: Settings, chosen: AuditFilter, *, limit: int) -> "list[AuditEntryRow] | None":
    """Return the latest entries of the audit of a service. None where no service has kept a history."""
    async with _opened(settings) as history:
        return None if history is None else await history.audit(chosen, limit=limit)


async def forget_past(settings: Settings, crawl: CrawlId) -> None:
    """Delete a crawl from the history, if there is one."""
    async with _opened(settings) as history:
        if history is not None:
            await history.forget(crawl)


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> "AsyncIterator[HistoryStore | None]":
    """Open the history; None: there is none, or a package for it is missing, which is said."""
    history = None
    if has_history(settings):
        try:
            history = open_history(settings)
        except BadInput as error:
            if settings.history.database:
                raise
            terminal.say(f"Crawls of the past are not shown: {error}")
    try:
        yield history
    finally:
        if history is not None:
            await history.close()
