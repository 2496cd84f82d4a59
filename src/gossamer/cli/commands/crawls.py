"""`gossamer crawls`: lists, shows, retries and deletes the crawls of a folder, or of a shared frontier (the store of
requests). Other modules have the rest of its commands.

Also finds the crawl that a URL belongs to, for `gossamer why`, in the frontier and in the notes that commands leave in
the data directory when they start a crawl. A crawl of a folder is in the Valkey server of its data directory, which is
started for the command where none runs.

Fixed: flags, exit codes, the fields of `--json`; the computation of a URL's fingerprint, because the frontier has
stored such fingerprints; and that a crawl is deleted from the frontier before its note: an interrupted deletion can
then be repeated.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
from rich.cells import cell_len

from gossamer.cli import options, tables, terminal
from gossamer.cli.commands.audit import audit
from gossamer.cli.commands.changes import changes, fresh, history
from gossamer.cli.commands.moves import export, import_crawl, pause, resume, stop
from gossamer.cli.commands.rebuild import rebuild
from gossamer.cli.frontier_here import no_crawl_with, with_frontier
from gossamer.cli.parser import CommandGroup, argument, option
from gossamer.cli.past_crawls import failure_examples, forget_past, past_crawls
from gossamer.cli.running import run as run_loop
from gossamer.control.browsers import waiting_for_browsers
from gossamer.control.logins import login_trouble
from gossamer.control.retries import RetryResult, retry_failed
from gossamer.control.url_search import find_in_crawl
from gossamer.crawling.work import kept_pages
from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, CrawlState, Run, Terms
from gossamer.model.info import CrawlInfo, SpiderCounts, UrlInfo
from gossamer.net.credentials import hide_secrets
from gossamer.policy.words import REPAIRED, browser_text, counted, retries_text
from gossamer.settings import Settings
from gossamer.sinks.open import left_spool
from gossamer.telemetry.patterns import growth_sentences
from gossamer.telemetry.refusals import refusals_text
from gossamer.valkey.datadir import running_process
from gossamer.wiring.frontier import (
    CrawlNote,
    crawls_named,
    delete_note,
    known_crawls,
    list_running_first,
    read_note,
)
from gossamer.wiring.outputs import forget_written, spool_folder
from gossamer.wiring.plan import APPID
from gossamer.wiring.records import records_of_url

if TYPE_CHECKING:
    from gossamer.history.crawls import PastCrawl

_CRAWLS_SEARCHED = 500
"""Crawls of the frontier that are searched where no name is given. Each costs a few calls."""
_SCRAPY_POOL = "scrapy-"
"""First part of the pool (the group of workers that do a crawl) of a Scrapy project, unless its settings name another.
Must be that of scrapy/options.py and control/scrapy_redis.py."""
_URLS_NAMED = 3
"""URLs of failed requests that `show` names for each reason, the latest."""
_CRAWLS_NAMED = 5
"""Crawls that a message names if the wanted one is not found, the latest."""


@dataclass(slots=True)
class KnownCrawl:
    """A crawl as the frontier and this data directory know it."""

    id: CrawlId
    info: CrawlInfo | None
    """None: the frontier does not know the crawl, or not any more."""
    run: Run | None
    """The latest run: one pass of the crawl, from its first request to its end. None: not known."""
    terms: list[Terms]
    """Options that the crawl's requests carry, once for each submission. Empty: they are not known."""
    spiders: list[str]
    note: CrawlNote | None
    """Note of the command that started the crawl. None: it was not started with this data directory."""

    @property
    def is_scrapy_project(self) -> bool:
        """True: processes of a Scrapy project do the crawl, with the project's own settings."""
        return self.info is not None and self.info.pool.startswith(_SCRAPY_POOL)


async def find_crawl(
    frontier: ValkeyFrontier, data_dir: Path, url: str, *, appid: str | None, crawl_id: str | None
) -> tuple[KnownCrawl, UrlInfo | None]:
    """Return a crawl, and the state of the URL in it; None instead of the state: the frontier does not know the crawl.

    Candidates are the crawls that were started with this data directory, the latest first, then those of the frontier,
    running ones first. The result is the first one that knows the URL (queued, in progress or done), else the first
    with a record of the URL, else the first. `crawl_id` may be a unique beginning of a name. Raises BadInput where
    there is none.
    """
    crawls = [crawl async for crawl in _candidates(frontier, data_dir, appid=appid, crawl_id=crawl_id)]
    if not crawls and crawl_id:
        infos, _ = await list_running_first(frontier, appid=appid, limit=_MAX_CRAWLS)
        noted = [CrawlId(APPID, name) for name in known_crawls(data_dir)] if appid in (None, APPID) else []
        begun = _one_that_begins([*(info.crawl for info in infos), *noted], crawl_id)
        known = begun and await _known_crawl(frontier, data_dir, begun)
        crawls = [known] if known else []
    if not crawls:
        raise BadInput(_no_crawl(data_dir, appid, crawl_id))
    url_in_first: UrlInfo | None = None
    for crawl in crawls:
        url_info = await _find_url(frontier, crawl, url)
        if url_info is not None and url_info.seen:
            return crawl, url_info
        if crawl is crawls[0]:
            url_in_first = url_info
    if len(crawls) > 1:  # a single crawl is the result in any case, so its records need not be read
        for crawl in crawls:
            if crawl.note is not None and records_of_url(crawl.note, url).page is not None:
                return crawl, await _find_url(frontier, crawl, url)
    return crawls[0], url_in_first


async def _candidates(
    frontier: ValkeyFrontier, data_dir: Path, *, appid: str | None, crawl_id: str | None
) -> AsyncIterator[KnownCrawl]:
    """Yield the crawls of this application and of this name (None: any), in the order that `find_crawl` describes.

    With a name and an application: that crawl only.
    With a name only: the crawl of the command line (the application APPID), then those of other applications.
    With an application only, or with neither: the crawls started here, all of which belong to APPID, if that is the
    application that is asked for; then the others that the frontier lists.
    """
    if crawl_id is not None:
        first = [CrawlId(appid or APPID, crawl_id)]
    elif appid in (None, APPID):
        first = [CrawlId(APPID, name) for name in reversed(known_crawls(data_dir))]
    else:
        first = []
    for crawl in first:
        if (known := await _known_crawl(frontier, data_dir, crawl)) is not None:
            yield known
    if crawl_id is not None and appid is not None:
        return
    if crawl_id is not None:
        listed = await crawls_named(frontier, crawl_id)
    else:
        infos, _ = await list_running_first(frontier, appid=appid, limit=_CRAWLS_SEARCHED)
        listed = [info.crawl for info in infos]
    others = [crawl for crawl in listed if crawl not in first]
    found = await asyncio.gather(*(_known_crawl(frontier, data_dir, crawl) for crawl in others))
    for known in sorted(filter(None, found), key=_running_first):
        yield known


def _running_first(crawl: KnownCrawl) -> tuple[bool, float]:
    """Return the sort key for running crawls first, then the latest first."""
    assert crawl.info is not None  # the frontier listed the crawl
    return crawl.info.state is not CrawlState.RUNNING, -crawl.info.started


async def _known_crawl(frontier: ValkeyFrontier, data_dir: Path, crawl: CrawlId) -> KnownCrawl | None:
    """Return what the frontier and the note hold of a crawl. None: neither knows it."""
    note = read_note(data_dir, crawl.crawlid) if crawl.appid == APPID else None
    info = await frontier.crawl_info(crawl)
    if info is None and note is None:
        return None
    run = await frontier.latest_run(crawl) if info is not None else None
    spiders = list(info.spiders) if info is not None else []
    terms = await frontier.crawl_terms(crawl) if info is not None else []
    if note is None:
        return KnownCrawl(crawl, info, run, terms, spiders, None)
    spiders = list(dict.fromkeys([note.spider, *spiders]))
    return KnownCrawl(crawl, info, run or note.run, terms or [note.terms], spiders, note)


async def _find_url(frontier: ValkeyFrontier, crawl: KnownCrawl, url: str) -> UrlInfo | None:
    """Return the state of the URL in a crawl. None: the frontier does not know the crawl."""
    if crawl.info is None or crawl.run is None:
        return None
    return await find_in_crawl(frontier, crawl.run, spiders=crawl.spiders, terms=crawl.terms, url=url)


def _no_crawl(data_dir: Path, appid: str | None, crawl_id: str | None) -> str:
    """Return the message where there is no crawl of this application and name (None: any)."""
    names = known_crawls(data_dir)
    here = f". Crawls started here: {', '.join(names[-_CRAWLS_NAMED:])}" if names else ""
    if crawl_id is not None:
        return f"there is no crawl {crawl_id}{f' of {appid}' if appid else ''}{here}"
    if appid is not None:
        return f"there is no crawl of {appid}{here}"
    return no_crawl_with(data_dir)


# --- the commands -----------------------------------------------------------------------------------------------------

_MAX_CRAWLS = 1000
"""Crawls that are listed, or searched for the beginning of a name. More take longer."""
_MAX_DOMAINS = 20
"""Domains of a crawl that are shown, those with the longest queues."""
_WRAPPED = {"started": 10, "outputs": 12}
"""Parts of the list of crawls that a narrow terminal wraps, and the columns that they have at least."""
_FLIGHT_CHECKS, _FLIGHT_PAUSE_SECONDS = 60, 0.5
"""Number of checks whether requests of a stopped crawl are in flight, and the pause between two. Their product is the
longest wait, after which the deletion is refused."""
INTERRUPTED = "interrupted"
"""State of a crawl that its command resumes. Fixed: --json has it."""
_ONE_CRAWL = ("gossamer crawl ", "a Python program with the crawl ")
_QUERIES = ("gossamer crawls", "gossamer why")
"""Names of processes in the lock of a data directory, which only one can hold: of those that work for the crawl that is
named next, and of those that work for none. Must be the names that are given to `run_crawl` and `frontier_here`."""

T = TypeVar("T")

app = CommandGroup(help="List, show, pause, stop and delete crawls.")

CrawlName = Annotated[
    str,
    argument(metavar="CRAWL", help="Name of the crawl, as the list shows it, or a unique beginning of it."),
]


@dataclass(slots=True)
class _ListedCrawl:
    """A crawl that the frontier, or a note in the data directory, knows."""

    id: CrawlId
    info: CrawlInfo | None
    """None: the frontier does not know the crawl any more."""
    outputs: tuple[str, ...]
    live_state: str
    """State by `state_of`. Empty: the frontier does not know the crawl any more."""
    resume_command: str = ""
    """Command line that resumes the crawl. Empty: not known."""
    past_state: str = ""
    """State in the history of a crawl that the frontier does not know any more. Empty: it does, or nothing remembers
    the crawl."""

    @property
    def name(self) -> str:
        """Name as commands show and take it."""
        return _name(self.id)

    @property
    def state(self) -> str:
        """State in one word. A crawl that the frontier has forgotten finished longer ago than the retention; `lost` is
        one whose end no service has seen."""
        if self.past_state:
            return self.past_state
        if self.info is None:
            return "forgotten"
        if self.info.is_paused and self.info.state is CrawlState.RUNNING:
            return "paused"
        return self.live_state

    @property
    def is_interrupted(self) -> bool:
        """True: the crawl has not ended, and certainly no process works for it."""
        return self.live_state == INTERRUPTED

    def as_json(self) -> dict[str, Any]:
        """Return the crawl for --json."""
        total = self.info.total() if self.info else None
        return {
            "appid": self.id.appid,
            "crawl_id": self.id.crawlid,
            "state": self.state,
            "run": self.info.run if self.info else None,
            "started": self.info.started if self.info else None,
            "ended": self.info.ended if self.info else None,
            "fetched": total.fetched if total else None,
            "failed": sum(total.failed.values()) if total else None,
            "dropped": sum(total.dropped.values()) if total else None,
            "waiting": total.waiting if total else None,
            "domains": self.info.domains if self.info else None,
            "waiting_for_retry": total.later if total else None,
            "retried": total.retried if total else None,
            "in_flight": total.leased if total else None,
            "repairs": self.info.repairs if self.info else None,
            "growing": msgspec.to_builtins(self.info.growing) if self.info else None,
            "outputs": list(self.outputs),
        }


@options.takes("frontier", "data_dir")
def list_crawls(
    app: Annotated[
        str | None,
        option("--app", metavar="APPID", help="Only crawls of this application: cli for those of the command line."),
    ] = None,
    *,
    json: options.Json = False,
    **given: Any,
) -> None:
    """List the crawls of this folder, of a running service or of a shared frontier, the latest first.

    gossamer crawls list

    On a shared frontier, `running` also stands for a crawl that has work left and no worker. The application of a
    Scrapy project's crawl is the project's BOT_NAME.
    """
    settings = options.load_settings(given)
    holder = lock_holder(settings)
    infos, more = run_loop(with_frontier(settings, partial(list_running_first, appid=app, limit=_MAX_CRAWLS)))
    crawls = [_listed(settings, info.crawl, info, holder) for info in infos]
    listed = {crawl.id for crawl in crawls}
    past, more_past = run_loop(past_crawls(settings, appid=app or "", limit=_MAX_CRAWLS))
    crawls += [_past(settings, one) for one in past if one.info.crawl not in listed]
    more = more or more_past or len(crawls) > _MAX_CRAWLS
    # Those of the frontier stay, running ones first: no later ones of the history push them out.
    found = sorted(crawls[:_MAX_CRAWLS], key=lambda crawl: -crawl.info.started if crawl.info else 0.0)
    listed |= {crawl.id for crawl in crawls}
    named = [CrawlId(APPID, name) for name in reversed(known_crawls(settings.data_dir))]
    found += [_listed(settings, name, None, holder) for name in named if name not in listed]
    found = [crawl for crawl in found if app in (None, crawl.id.appid)]
    if json:
        terminal.print_json({"crawls": [one.as_json() for one in found], "more": more})
        return
    if not found:
        terminal.print_result(f"There are no crawls{f' of {app}' if app else ''}.")
        return
    _print_table(found)
    if more:
        terminal.print_result(f"There are more than {_MAX_CRAWLS:,}.")


def _name(crawl: CrawlId) -> str:
    """Return the name as commands show and take it: ID for a crawl of the command line, APPID/ID for others."""
    return crawl.crawlid if crawl.appid == APPID else str(crawl)


def _print_table(crawls: Sequence[_ListedCrawl]) -> None:
    """Print one line for each crawl, without columns that would be empty. In a narrow terminal the times and outputs
    are wrapped, and nothing else: names stay whole."""
    headings = ("crawl", "state", "run", "fetched", "failed", "waiting", "domains", "in flight", "started", "outputs")
    rows = []
    for crawl in crawls:
        info, total = crawl.info, crawl.info.total() if crawl.info else None
        rows.append((
            crawl.name,
            crawl.state,
            str(info.run) if info and info.run > 1 else "",
            f"{total.fetched:,}" if total else "",
            f"{sum(total.failed.values()):,}" if total else "",
            f"{total.waiting:,}" if total else "",
            f"{info.domains:,}" if info and info.domains else "",
            f"{total.leased:,}" if total and total.leased else "",
            _local_time(info.started) if info else "",
            ", ".join(crawl.outputs),
        ))  # fmt: skip
    table, least_width = tables.PlainTable(), 0
    for heading, *cells in zip(headings, *rows, strict=True):
        if any(cells):
            is_wrapped = heading in _WRAPPED
            table.add_column(heading, overflow="fold", no_wrap=not is_wrapped)
            least_width += _WRAPPED[heading] if is_wrapped else max(map(cell_len, (heading, *cells)))
            least_width += 2
    shown = [column for column, heading in enumerate(headings) if any(row[column] for row in rows)]
    for row in rows:
        table.add_row(*(row[column] for column in shown))
    tables.show(table, least_width=least_width)


@options.takes("frontier", "data_dir")
def show_crawl(
    name: CrawlName,
    spider: Annotated[
        str, option("--spider", metavar="NAME", help="Of what waits, only the requests of this spider.")
    ] = "",
    *,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Show one crawl: its state, its counts, its outputs, and what waits on which domains.

    gossamer crawls show example.com-1a2b3c4d

    gossamer crawls show shop/prices
    """
    settings = options.load_settings(given)
    crawl, queue = run_loop(with_frontier(settings, partial(_show, settings, name, spider, lock_holder(settings))))
    if json:
        of_queue = {"waiting": queue.total, "waiting_by_domain": queue.domains} if queue else {}
        terminal.print_json(crawl.as_json() | of_queue)
        return
    lines = [f"{crawl.name}: {crawl.state}{f', run {crawl.info.run}' if crawl.info else ''}"]
    failed = run_loop(failure_examples(settings, crawl.info)) if crawl.info else []
    if crawl.info:
        total = crawl.info.total()
        domains = f" on {counted(queue.total_domains, 'domain')}" if queue and queue.total else ""
        ended = f", ended {_local_time(crawl.info.ended)}" if crawl.info.ended else ""
        lines += [
            f"  started {_local_time(crawl.info.started)}{ended}",
            f"  fetched {total.fetched:,}, failed {sum(total.failed.values()):,}, dropped "
            f"{sum(total.dropped.values()):,}, in flight {total.leased:,}",
            f"  waiting {queue.total if queue else total.waiting:,}{domains}{retries_text(total.later, total.retried)}",
            f"  {counted(crawl.info.seen, 'URL')} known, spiders: {', '.join(crawl.info.spiders) or 'none'}",
        ]
        lines += [f"    {one.reason} {one.total:,}{_such_as(one.urls)}" for one in failed]
        lines += [f"  {sentence}" for sentence in (*(queue.troubles if queue else ()), *growth_sentences(crawl.info))]
        pages = crawl.info.pages
        if refused := refusals_text(pages.failed, fetched=pages.fetched, pool=crawl.info.pool):
            lines.append(f"  {refused}")
        if crawl.info.repairs:
            lines.append(f"  {REPAIRED}")
    if crawl.outputs:
        lines.append(f"  outputs: {', '.join(crawl.outputs)}")
    terminal.print_result("\n".join(lines))
    if queue and queue.domains:
        tables.show(_domains_table(queue.domains))
    if crawl.is_interrupted and crawl.resume_command:
        terminal.print_result(f"Resume with: {crawl.resume_command}")
    elif crawl.is_interrupted:
        terminal.print_result("The same command or program resumes it.")


class _Queue(NamedTuple):
    """Waiting requests of a crawl, those for a retry included."""

    total: int
    total_domains: int
    domains: dict[str, dict[str, Any]]
    """By domain, as in the answer to Scrapy Cluster's clients."""
    troubles: list[str]
    """Sentences about what requests wait for in vain."""


async def _show(
    settings: Settings, name: str, spider: str, holder: str, frontier: ValkeyFrontier
) -> tuple[_ListedCrawl, _Queue | None]:
    """Return the crawl of this name, and what waits of it for the spider; empty: for all. None instead of that: the
    frontier does not know the crawl any more. Raises BadInput unless there is exactly one."""
    # Late: they load the messages of a service.
    from gossamer.control.dispatcher import crawl_backlog
    from gossamer.control.domains import Blacklist
    from gossamer.model.messages.answers import domain_share

    crawl = await _find_named(settings, name, holder, frontier)
    if crawl.info is None or (backlog := await crawl_backlog(frontier, crawl.id, spider=spider)) is None:
        return crawl, None
    blacklisted = await Blacklist(frontier).among(backlog.domains)
    domains = {name: domain_share(count, blacklisted.get(name, "")) for name, count in backlog.domains.items()}
    browsers = browser_text(await waiting_for_browsers(frontier, crawl.info), crawl.info.pool)
    troubles = [text for text in (browsers, await login_trouble(frontier, crawl.info)) if text]
    return crawl, _Queue(backlog.total, backlog.total_domains, domains, troubles)


def _domains_table(domains: dict[str, dict[str, Any]]) -> tables.PlainTable:
    """Return the domains with the longest queues. `domains`: of a _Queue."""
    table = tables.PlainTable("domain", "waiting", "priorities", "")
    longest = sorted(domains.items(), key=lambda pair: -pair[1]["total"])
    for domain, share in longest[:_MAX_DOMAINS]:
        blacklisted = f"blacklisted: {share['blacklisted']}" if "blacklisted" in share else ""
        high, low = share["high_priority"], share["low_priority"]
        table.add_row(domain, f"{share['total']:,}", f"{high} to {low}" if high != low else str(high), blacklisted)
    if len(longest) > _MAX_DOMAINS:
        table.add_row(f"and {len(longest) - _MAX_DOMAINS:,} more", "", "", "")
    return table


@options.takes("frontier", "data_dir")
def retry_crawl(
    name: CrawlName,
    *,
    reason: Annotated[
        str, option("--reason", metavar="REASON", help="Only requests that failed for this reason, like http_503.")
    ] = "",
    url: Annotated[str, option("--url", metavar="URL", help="Only this URL.")] = "",
    json: options.Json = False,
    **given: Any,
) -> None:
    """Fetch the failed requests of a service's crawl again: all, those of one reason, or one URL.

    gossamer crawls retry shop/prices --reason http_503

    A crawl of gossamer crawl retries what got no answer when the same command is started again.
    """
    settings = options.load_settings(given)
    retry = partial(_retry, settings, name, lock_holder(settings), reason=reason, url=url)
    crawl, result = run_loop(with_frontier(settings, retry))
    if json:
        terminal.print_json({"appid": crawl.appid, "crawl_id": crawl.crawlid, **result._asdict()})
        return
    lines = [f"{crawl}: {counted(result.retried, 'request')} {'waits' if result.retried == 1 else 'wait'} again."]
    if not result.retried:
        lines = [f"{crawl}: nothing to retry. It keeps no failed request{' of this kind' if reason or url else ''}."]
    if result.forgotten:
        lines.append(
            f"{counted(result.forgotten, 'failed request')} cannot be retried, because there were too many to keep. "
            "Submit them again under another crawlid."
        )
    terminal.print_result("\n".join(lines))


async def _retry(
    settings: Settings, name: str, holder: str, frontier: ValkeyFrontier, *, reason: str, url: str
) -> tuple[CrawlId, RetryResult]:
    """Retry failed requests of a crawl. Raises BadInput, and CrawlRefused where it accepts no more."""
    crawl = await _find_named(settings, name, holder, frontier)
    result = await retry_failed(frontier, crawl.id, reason=reason, url=url)
    if result is None:
        raise BadInput(f"the frontier has forgotten {crawl.name}, and what failed. Submit it again.")
    return crawl.id, result


@options.takes("frontier", "data_dir")
def delete_crawl(
    name: CrawlName,
    *,
    yes: Annotated[bool, option("--yes", "-y", help="Do not ask.")] = False,
    stop: Annotated[
        bool, option("--stop", help="Stop the crawl first if it is not finished. What waits is dropped.")
    ] = False,
    **given: Any,
) -> None:
    """Delete a crawl from the frontier: its queue, the list of known URLs, its counts. Its outputs stay.

    gossamer crawls delete example.com-1a2b3c4d

    The same gossamer crawl command starts such a crawl again from the beginning. A crawl that is not finished is
    refused, unless it is stopped first.
    """
    settings = options.load_settings(given)
    delete = partial(_delete, settings, name, lock_holder(settings), yes=yes, stop=stop)
    terminal.print_result(run_loop(with_frontier(settings, delete)))


async def _delete(
    settings: Settings, name: str, holder: str, frontier: ValkeyFrontier, *, yes: bool, stop: bool
) -> str:
    """Delete a crawl, and return what was deleted, in a sentence. Raises BadInput."""
    crawl = await _find_named(settings, name, holder, frontier)
    total = crawl.info.total() if crawl.info else SpiderCounts()
    if crawl.info and not crawl.past_state and crawl.info.state is CrawlState.RUNNING and not stop:
        raise BadInput(
            f"{crawl.name} is not finished: {counted(total.waiting + total.leased, 'URL')} to do. Add "
            "--stop to drop them, or let it finish."
        )
    what = f"{crawl.name} ({total.fetched:,} fetched, {total.waiting:,} waiting)"
    if not yes:
        terminal.confirm(f"Delete the crawl {what}? Its outputs stay. [y/N] ", otherwise="nothing was deleted")
    if crawl.info and not crawl.past_state:
        if crawl.info.state is CrawlState.RUNNING:
            await frontier.stop_crawl(crawl.id)
        await _wait_until_none_in_flight(frontier, crawl.id)
        if not await frontier.delete_crawl(crawl.id):
            raise BadInput(f"{crawl.name} was started again. Stop it first.")
    note = read_note(settings.data_dir, crawl.id.crawlid) if crawl.id.appid == APPID else None
    if note is not None:  # last: with the note, a deletion that was interrupted can be repeated
        forget_written(settings, note.run, note.outputs)
        if note.index:
            from gossamer.wiring.recrawling import delete_index  # imported late: few crawls have an index

            delete_index(note)
        delete_note(settings.data_dir, crawl.id.crawlid)
        kept_pages(settings.data_dir, crawl.id).unlink(missing_ok=True)
    await forget_past(settings, crawl.id)  # after the frontier, from which it would be copied again
    urls = f", {counted(crawl.info.seen, 'known URL')}" if crawl.info else ""
    stays = f" The outputs stay: {', '.join(crawl.outputs)}." if crawl.outputs else ""
    for path in note.outputs if note else ():
        if spool := left_spool(path, spool_dir=spool_folder(settings)):
            stays += f" Records that are not in {hide_secrets(path)} yet are in {spool}."
    return f"Deleted {what}: its queue{urls}, its counts{' and what this folder knew of it' if note else ''}.{stays}"


async def _wait_until_none_in_flight(frontier: ValkeyFrontier, crawl: CrawlId) -> None:
    """Wait until no worker has a request of the stopped crawl. Raises BadInput if that takes too long."""
    await frontier.maintain()  # takes requests from workers that died
    for _ in range(_FLIGHT_CHECKS):
        info = await frontier.crawl_info(crawl)
        if info is None or not info.total().leased:
            return
        await asyncio.sleep(_FLIGHT_PAUSE_SECONDS)
    raise BadInput(f"requests of {crawl} are still in flight. Try again when they are finished.")


async def _find_named(settings: Settings, name: str, holder: str, frontier: ValkeyFrontier) -> _ListedCrawl:
    """Return the crawl of this name. Raises BadInput unless there is exactly one. `holder`: of `lock_holder`.

    A name is APPID/ID, or an ID, first of a crawl of the command line and then of others, or the beginning of one.
    """
    appid, slash, crawl_id = name.rpartition("/")
    named = _candidates(frontier, settings.data_dir, appid=appid if slash else None, crawl_id=crawl_id)
    if (known := await anext(named, None)) is not None:
        return _listed(settings, known.id, known.info, holder)
    infos, _ = await list_running_first(frontier, limit=_MAX_CRAWLS)
    past = {one.info.crawl: one for one in (await past_crawls(settings, limit=_MAX_CRAWLS))[0]}
    full = CrawlId(appid if slash else APPID, crawl_id)
    if full in past:
        return _past(settings, past[full])
    noted = [CrawlId(APPID, one) for one in known_crawls(settings.data_dir)]
    begun = _one_that_begins([*(info.crawl for info in infos), *noted, *past], name)
    if begun is None:
        raise BadInput(f"there is no crawl {name}. gossamer crawls list shows all.")
    info = await frontier.crawl_info(begun)
    if info is None and begun in past:
        return _past(settings, past[begun])
    return _listed(settings, begun, info, holder)


def _one_that_begins(crawls: Sequence[CrawlId], name: str) -> CrawlId | None:
    """Return the crawl whose name (APPID/ID, or ID) begins so. None: there is none, or `name` is empty. Raises BadInput
    where there are several."""
    ids = dict.fromkeys(crawls)
    begun = [crawl for crawl in ids if name and (str(crawl).startswith(name) or crawl.crawlid.startswith(name))]
    if len(begun) > 1:
        some = ", ".join(_name(crawl) for crawl in begun[:_CRAWLS_NAMED])
        raise BadInput(f"{counted(len(begun), 'crawl')} begin with {name}: {some}. Write more of the name.")
    return begun[0] if begun else None


def lock_holder(settings: Settings) -> str:
    """Return the process that holds the lock of the data directory, as it names itself. Empty: none does; "?": the
    frontier is shared, so processes anywhere may use it."""
    return "?" if settings.frontier else running_process(settings.data_dir)


def _may_work_for(holder: str, crawl: CrawlId) -> bool:
    """Return whether a process may be working for the crawl. Only the lock's holder can: a command for another crawl, a
    query, or an empty holder cannot; a service works for all crawls."""
    if holder.startswith(_ONE_CRAWL):
        return holder.endswith(f" {crawl.crawlid}")
    return bool(holder) and holder not in _QUERIES


def state_of(info: CrawlInfo, note: CrawlNote | None, holder: str) -> str:
    """Return the state of a crawl that the frontier knows, in one word. INTERRUPTED: it has not ended, and certainly no
    process works for it, which is known of a private frontier, and of a crawl that is kept up to date without an end.
    `holder`: of `lock_holder`."""
    if note is not None and note.is_endless and info.state is CrawlState.FINISHED:  # the rounds go on
        from gossamer.wiring.recrawling import is_in_use  # imported late: few crawls have an index

        return CrawlState.RUNNING.value if is_in_use(note) else INTERRUPTED
    is_idle = info.state is CrawlState.RUNNING and not _may_work_for(holder, info.crawl)
    return INTERRUPTED if is_idle else info.state.value


def _listed(settings: Settings, crawl: CrawlId, info: CrawlInfo | None, holder: str) -> _ListedCrawl:
    """Return a crawl with the outputs of its note, relative to this folder, without passwords. `holder`: of
    `lock_holder`."""
    note = read_note(settings.data_dir, crawl.crawlid) if crawl.appid == APPID else None
    here, kept = os.getcwd() + os.sep, os.path.abspath(kept_pages(settings.data_dir, crawl))
    outputs = tuple(hide_secrets(path.removeprefix(here)) for path in (note.outputs if note else ()) if path != kept)
    state = state_of(info, note, holder) if info is not None else ""
    return _ListedCrawl(crawl, info, outputs, state, note.resume_command if note else "")


def _past(settings: Settings, crawl: "PastCrawl") -> _ListedCrawl:
    """Return a crawl of the history that the frontier does not know any more."""
    listed = _listed(settings, crawl.info.crawl, crawl.info, holder="?")  # no process works for it
    listed.past_state = crawl.state
    return listed


def _such_as(urls: Sequence[str]) -> str:
    """Return some URLs of failed requests, for the end of a line."""
    return f": {', '.join(urls[:_URLS_NAMED])}{' …' if len(urls) > _URLS_NAMED else ''}" if urls else ""


def _local_time(moment: float) -> str:
    """Return a Unix time as a person of this time zone reads it."""
    return datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M")


app.command("list")(list_crawls)
app.command("show")(show_crawl)
app.command("pause")(pause)
app.command("resume")(resume)
app.command("stop")(stop)
app.command("retry")(retry_crawl)
app.command("delete")(delete_crawl)
app.command("changes")(changes)
app.command("fresh")(fresh)
app.command("history")(history)
app.command("export")(export)
app.command("import")(import_crawl)
app.command("rebuild")(rebuild)
app.command("audit")(audit)
