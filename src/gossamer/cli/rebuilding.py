"""Rebuilds the lost frontier of crawls from their records, for `gossamer crawls rebuild`. Fixed: the fields of its
`--json`."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace as replaced
from typing import TYPE_CHECKING

from gossamer.cli import terminal
from gossamer.cli.commands.crawl import default_output
from gossamer.cli.commands.feed import request_batches
from gossamer.cli.terminal import Interruption
from gossamer.control.admission import DUPLICATE, AdmittedRequest
from gossamer.control.dispatcher import CRAWL
from gossamer.crawling import engine
from gossamer.crawling.rebuild import Rebuild, RebuildResult
from gossamer.errors import BadInput, RequestRejected
from gossamer.model.crawl import SHARED_POOL, CrawlId, CrawlState
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.wiring.frontier import connect, frontier_address
from gossamer.wiring.plan import Plan
from gossamer.worker.loading import find_spider

if TYPE_CHECKING:
    from gossamer.wiring.service import ServiceContext

_PROGRESS_SECONDS = 0.5
"""Interval of the progress on a terminal."""


async def rebuild_crawl(
    settings: Settings,
    urls: Sequence[str],
    sources: Sequence[str],
    *,
    crawl_id: str | None = None,
    records: Sequence[str] = (),
    replace: bool = False,
    quiet: bool,
) -> tuple[RebuildResult, Plan]:
    """Fill the frontier. Raises BadInput, and what the frontier raises."""
    names_outputs = "output" in settings.crawl.given
    plan = await engine.prepare(settings, urls, sources, crawl_id=crawl_id, say=terminal.say)
    if not names_outputs:
        settings = settings.copy(crawl=settings.crawl.copy(output=(default_output(plan.seeds),)))
    paths = records or [path for path in settings.crawl.output_paths if path != "-"]
    if not paths:
        raise BadInput("the records of the crawl went to standard output. Name a file that has them with --records.")
    progress = _ReadingProgress(quiet=quiet)
    with Interruption(drain=None, show=terminal.say) as interruption:
        interruption.message_before_work = "the frontier is not complete; repeat the command"
        async with frontier_address(settings, name="gossamer crawls rebuild") as address:
            frontier = await connect(settings, address)
            try:
                if replace:
                    await frontier.stop_crawl(plan.crawl.id)
                    await frontier.delete_crawl(plan.crawl.id)
                work = Rebuild(settings, plan, frontier, paths, on_progress=progress.update)
                return await work.run(), plan
            finally:
                progress.clear()
                await frontier.close()


async def rebuild_requests(
    settings: Settings, request: str, records: Sequence[str], cluster: "ServiceContext", *, replace: bool
) -> list[tuple[RebuildResult, Plan]]:
    """Fill the frontier of a service with the crawls of these requests, one after the other. Raises BadInput."""
    crawls: dict[CrawlId, list[AdmittedRequest]] = {}
    async for batch in request_batches(request):
        for where, value in batch:
            try:
                kind, admitted = cluster.dispatcher.read(value)
            except RequestRejected as fault:
                raise BadInput(f"--request: {where}{fault.detail}") from None
            if kind != CRAWL:
                raise BadInput(f"--request: {where}it is no request for a crawl.")
            crawls.setdefault(admitted.crawl.id, []).append(replaced(admitted, fresh=False))
    done = []
    for crawl, requests in crawls.items():
        first = requests[0]
        spider = find_spider(first.spider)
        urls = tuple(dict.fromkeys(one.url for one in requests))
        plan = Plan(crawl=first.crawl, terms=first.terms, seeds=urls, loaded_spider=spider, priority=first.priority)
        if replace:
            await cluster.frontier.stop_crawl(crawl)
            await cluster.frontier.delete_crawl(crawl)

        async def submit(requests: Sequence[AdmittedRequest] = requests) -> list[str]:
            results = await cluster.dispatcher.submit(requests)
            return [
                f"{one.url}: {result.reason}"
                for one, result in zip(requests, results, strict=True)
                if not result.added and result.reason != DUPLICATE
            ]

        work = Rebuild(settings, plan, cluster.frontier, records, on_progress=lambda step, count: None, submit=submit)
        done.append((await work.run(), plan))
    return done


class _ReadingProgress:
    """Shows on a terminal how many records were read."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet or not sys.stderr.isatty()
        self._shown_at = 0.0

    def update(self, step: str, records: int) -> None:
        """Show this number, not too often."""
        if not self._quiet and time.monotonic() - self._shown_at > _PROGRESS_SECONDS:
            self._shown_at = time.monotonic()
            sys.stderr.write(f"\rReading {step}: {records:,} records")
            sys.stderr.flush()

    def clear(self) -> None:
        """Remove what was shown."""
        if not self._quiet:
            sys.stderr.write("\r\x1b[K")


def print_rebuilt(result: RebuildResult, plan: Plan, *, as_json: bool, quiet: bool) -> None:
    """Print what was filled in."""
    info = result.info
    total = info.total() if info is not None else None
    if as_json:
        terminal.print_json(
            {
                "crawl_id": plan.crawl.id.crawlid,
                "state": info.state.value if info is not None else None,
                "records": result.records,
                "pages_read": result.pages_read,
                "pages_without_links": result.pages_without_links,
                "fetched": total.fetched if total else 0,
                "failed": total.failed if total else {},
                "dropped": total.dropped if total else {},
                "waiting": result.queued,
                "notes": result.sentences,
            }
        )
        return
    if quiet:
        return
    name = plan.crawl.id.crawlid
    done = counted(total.done if total else 0, "request")
    lines = [f"{name}: {done} of {counted(result.records, 'record')} entered, {result.queued:,} wait."]
    if info is not None and info.state is CrawlState.FINISHED:
        lines = [f"{name}: {done} entered. Nothing is left to fetch: the crawl is finished."]
    elif result.queued and plan.crawl.pool == SHARED_POOL:
        lines.append("The workers of the service go on with them.")
    elif result.queued:
        lines.append("Go on with the same gossamer crawl command.")
    lines += result.sentences
    terminal.print_result("\n".join(lines))
