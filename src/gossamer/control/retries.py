"""Retries of the failed requests of a crawl that a person asks for: all of them, those of one reason, or one URL."""

from typing import NamedTuple

import msgspec

from gossamer.control.url_search import find_in_crawl
from gossamer.errors import CrawlRefused
from gossamer.frontier.base import FailureFilter
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import SHARED_POOL, CrawlId, CrawlState, Run, workers_of
from gossamer.model.info import CrawlInfo
from gossamer.policy.urls import from_user_input


class RetryResult(NamedTuple):
    """Result of a retry."""

    retried: int
    """Requests that were queued again."""
    kept: int
    """Failed requests that are kept, and may be retried later."""
    forgotten: int
    """Failed requests that are not kept, because there were too many."""
    run: int
    """Number of the run in which they wait."""


async def retry_failed(
    frontier: ValkeyFrontier, crawl: CrawlId, *, reason: str = "", url: str = ""
) -> RetryResult | None:
    """Queue failed requests of a crawl again. A finished crawl goes on, and so do its counters. None: there is no such
    crawl. May be repeated.

    `reason`, `url`: only requests that failed for this reason, or of this URL, as a person writes it. Raises
    CrawlRefused for a crawl that was stopped or has expired, and for a finished one whose workers have ended, too.
    """
    only = FailureFilter(reason, from_user_input(url) if url else "")
    info, run = await frontier.crawl_info(crawl), await frontier.latest_run(crawl)
    if info is None or run is None:
        return None
    is_running = info.state is CrawlState.RUNNING
    if not is_running and workers_of(info.pool) != SHARED_POOL:
        raise CrawlRefused(f"{crawl} has workers of its own, which have ended: start it again as before")
    if info.state not in (CrawlState.RUNNING, CrawlState.FINISHED):
        raise CrawlRefused(f"{crawl} is {info.state.value}, and accepts no more requests")
    if not await _may_have(frontier, run, info, only):  # a run that begins with nothing would end at once
        return _result(info, 0)
    # If the run finishes meanwhile, the next one begins with the counters of this one, and keeps what failed.
    options = msgspec.structs.replace(run.crawl, keep_failed=True)
    run = msgspec.structs.replace(run, crawl=options)
    if not is_running:
        expires = info.expires or dict.fromkeys(info.spiders, 0.0)
        run = await frontier.open_crawl(options, expires=expires)
        run = msgspec.structs.replace(run, crawl=options)
    _, retried = await frontier.retry_failed(run, None, only=only)
    now = await frontier.crawl_info(crawl)
    return _result(now or info, retried)


async def _may_have(frontier: ValkeyFrontier, run: Run, info: CrawlInfo, only: FailureFilter) -> bool:
    """Return whether a crawl may have kept failed requests of this choice."""
    total = info.total()
    if not info.kept_failed or (only.reason and only.reason not in {**total.failed, **total.dropped}):
        return False
    if not only.url:
        return True
    terms = await frontier.crawl_terms(run.crawl.id)
    found = await find_in_crawl(frontier, run, spiders=list(info.spiders), terms=terms, url=only.url)
    return found is not None and bool(found.failure)


def _result(info: CrawlInfo, retried: int) -> RetryResult:
    return RetryResult(retried, info.kept_failed, info.forgotten_failed, info.run)
