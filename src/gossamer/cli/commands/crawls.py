"""`gossamer crawls`: lists, shows and deletes the crawls of a folder, or of a shared frontier (the store of requests).

Also finds the crawl that a URL belongs to, for `gossamer why`, in the frontier and in the notes that commands leave in
the data directory when they start a crawl. A crawl of a folder is in the Valkey server of its data directory, which is
started for the command where none runs.

Safe to change: help texts (then regenerate docs/reference), sentences, the columns of the table, and the order in which
crawls are tried, as described in `find_crawl`. Fixed: flags, exit codes, the fields of `--json`; the computation of a
URL's fingerprint, because the frontier has stored such fingerprints; and that a crawl is deleted from the frontier
before its note: an interrupted deletion can then be repeated.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from gossamer.cli import options, terminal
from gossamer.cli.running import run as run_loop
from gossamer.cli.terminal import Interruption, counted
from gossamer.crawling.outputs import kept_pages
from gossamer.errors import BadInput, Interrupted
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, CrawlState, QueryOrder, Run, Terms
from gossamer.model.info import CrawlInfo, SpiderCounts, UrlInfo
from gossamer.model.record import PageRecord
from gossamer.policy.scrapy_urls import scrapy_fingerprint
from gossamer.policy.urls import fingerprint, host, registered_domain, spider_seed, with_sorted_query
from gossamer.settings import Settings
from gossamer.sinks.jsonl import read_records
from gossamer.valkey.datadir import running_address
from gossamer.wiring.frontier import CrawlNote, connect, delete_note, frontier_address, known_crawls, read_note
from gossamer.wiring.plan import APPID
from gossamer.wiring.worker import forget_written

_CRAWLS_SEARCHED = 500
"""Crawls of the frontier that are searched where no name is given. May be changed freely: for each, a few calls collect
what is known of it (for all crawls at the same time), and a few more look the URL up (crawl after crawl)."""
_NAMES_A_PAGE = 1000
"""Crawls whose names one call reads, where a crawl is searched by its name. May be changed freely: more make a call
longer, fewer make more calls."""
_SCRAPY_POOL = "scrapy-"
"""First part of the pool (the group of workers that do a crawl) of a Scrapy project, unless its settings name another.
Must be that of scrapy/options.py and control/scrapy_redis.py."""
_CRAWLS_NAMED = 5
"""Crawls that the message names if the wanted one is not found, the latest. May be changed freely."""


@dataclass(slots=True)
class KnownCrawl:
    """A crawl as the frontier and this data directory know it."""

    id: CrawlId
    info: CrawlInfo | None
    """None: the frontier does not know the crawl, or not any more."""
    run: Run | None
    """The latest life of the crawl, from its first request to its end. None: not known."""
    terms: list[Terms]
    """Options that the crawl's requests carry, once for each submission. Empty: they are not known."""
    spiders: list[str]
    note: CrawlNote | None
    """Note of the command that started the crawl. None: it was not started with this data directory."""

    @property
    def is_scrapy_project(self) -> bool:
        """True: processes of a Scrapy project do the crawl, with the project's own settings."""
        return self.info is not None and self.info.pool.startswith(_SCRAPY_POOL)


@asynccontextmanager
async def frontier_here(settings: Settings, *, name: str) -> AsyncIterator[ValkeyFrontier]:
    """Connect to the named or running frontier; else start that of the data directory for the time of the context.

    `name`: this command, which is shown to another one that wants the same data directory. Raises BadInput where there
    is no data directory.
    """
    address = settings.frontier or running_address(settings.data_dir)
    if not address and not settings.data_dir.exists():
        raise BadInput(no_crawl_with(settings.data_dir))
    async with AsyncExitStack() as stack:
        if not address:
            address = await stack.enter_async_context(frontier_address(settings, name=name))
        frontier = await connect(settings, address)
        stack.push_async_callback(frontier.close)
        yield frontier


async def find_crawl(
    frontier: ValkeyFrontier, data_dir: Path, url: str, *, appid: str | None, crawl_id: str | None
) -> tuple[KnownCrawl, UrlInfo | None]:
    """Return a crawl, and the state of the URL in it; None instead of the state: the frontier does not know the crawl.

    Candidates are the crawls that were started with this data directory, the latest first, then those of the frontier,
    running ones first. The result is the first one that has queued or seen the URL, else the first with a record of
    the URL, else the first. Raises BadInput where there is none.
    """
    crawls = [crawl async for crawl in _candidates(frontier, data_dir, appid=appid, crawl_id=crawl_id)]
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
            if crawl.note is not None and last_record(crawl.note, url) is not None:
                return crawl, await _find_url(frontier, crawl, url)
    return crawls[0], url_in_first


def last_record(note: CrawlNote, url: str) -> PageRecord | None:
    """Return the last record of this URL in those outputs of the crawl that can be read. None: there is none.

    A record is of this URL if the URL was requested, redirected to another, or gave the response."""
    last: PageRecord | None = None
    for record in _records(note):
        if url in (record.url, record.response_url) or any(hop.url == url for hop in record.redirects):
            last = record
    return last


def _records(note: CrawlNote) -> Iterator[PageRecord]:
    """Yield the crawl's pages from those of its outputs that are local JSON Lines files; others are skipped."""
    for output in note.outputs:
        path = Path(output)
        if ".jsonl" not in path.name or not path.is_file():
            continue
        try:
            for record in read_records(path):
                if isinstance(record, PageRecord) and record.crawlid == note.run.crawl.id.crawlid:
                    yield record
        except BadInput:
            continue


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
        listed = await _crawls_named(frontier, crawl_id)
    else:
        infos, _ = await list_running_first(frontier, appid=appid, limit=_CRAWLS_SEARCHED)
        listed = [info.crawl for info in infos]
    others = [crawl for crawl in listed if crawl not in first]
    found = await asyncio.gather(*(_known_crawl(frontier, data_dir, crawl) for crawl in others))
    for known in sorted(filter(None, found), key=_running_first):
        yield known


async def _crawls_named(frontier: ValkeyFrontier, crawl_id: str) -> list[CrawlId]:
    """Return the crawls of all applications that have this name, however many crawls the frontier has."""
    found: dict[CrawlId, None] = {}  # each once: a page may repeat crawls of an earlier one
    cursor = ""
    while True:
        page, cursor = await frontier.list_crawl_ids(cursor=cursor, limit=_NAMES_A_PAGE)
        found |= dict.fromkeys(crawl for crawl in page if crawl.crawlid == crawl_id)
        if not cursor:
            return list(found)


async def list_running_first(
    frontier: ValkeyFrontier, *, appid: str | None = None, limit: int
) -> tuple[list[CrawlInfo], bool]:
    """Return at most `limit` crawls of an application (None: of all), and whether there may be more.

    Running crawls come first, so that finished ones, however many there are, take no room from them."""
    found: dict[CrawlId, CrawlInfo] = {}
    for state in (CrawlState.RUNNING, None):  # None: in any state, so the running ones are listed again
        cursor = ""
        while True:
            page, cursor = await frontier.list_crawls(appid=appid, state=state, cursor=cursor, limit=limit)
            found |= {info.crawl: info for info in page if info.crawl not in found}
            all_listed = state is None and not cursor
            if len(found) > limit or (len(found) == limit and not all_listed):
                return list(found.values())[:limit], True
            if not cursor:
                break
    return list(found.values()), False


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
    if note is None:
        return KnownCrawl(crawl, info, run, await frontier.crawl_terms(crawl), spiders, None)
    spiders = list(dict.fromkeys([note.spider, *spiders]))
    return KnownCrawl(crawl, info, run or note.run, [note.terms], spiders, note)


async def _find_url(frontier: ValkeyFrontier, crawl: KnownCrawl, url: str) -> UrlInfo | None:
    """Return the state of the URL in a crawl: of the first spider that has seen it, else of the first spider."""
    if crawl.info is None or crawl.run is None:
        return None
    domain = registered_domain(host(url))
    await frontier.spiders.refresh(crawl.spiders)
    unseen: UrlInfo | None = None
    any_order = any(terms.query_order is QueryOrder.IGNORED for terms in crawl.terms)
    for spider in crawl.spiders:
        seed = spider_seed(frontier.secret, spider)
        # The fingerprint under which a URL is stored depends on which kind of worker runs the spider, and possibly none
        # runs now. So all are tried.
        fingerprints = (
            frontier.spiders.fingerprint(spider, url),
            fingerprint(url, seed=seed),
            fingerprint(scrapy_fingerprint(url), seed=seed),
            *([fingerprint(with_sorted_query(url), seed=seed)] if any_order else []),
        )
        for candidate in dict.fromkeys(fingerprints):
            found = await frontier.find_url(crawl.run, spider=spider, domain=domain, url=url, fingerprint=candidate)
            if found.seen:
                return found
            unseen = unseen or found
    return unseen


def _no_crawl(data_dir: Path, appid: str | None, crawl_id: str | None) -> str:
    """Return the message where there is no crawl of this application and name (None: any)."""
    names = known_crawls(data_dir)
    here = f". Crawls started here: {', '.join(names[-_CRAWLS_NAMED:])}" if names else ""
    if crawl_id is not None:
        return f"there is no crawl {crawl_id}{f' of {appid}' if appid else ''}{here}"
    if appid is not None:
        return f"there is no crawl of {appid}{here}"
    return no_crawl_with(data_dir)


def no_crawl_with(data_dir: Path) -> str:
    """Return the message where no crawl was started with the data directory."""
    return f"no crawl was started with {data_dir}. Name one with --crawl-id, --data-dir or --frontier."


_MAX_CRAWLS = 1000
"""Crawls that the list shows, and among which a name is looked for. May be changed: more take longer."""

T = TypeVar("T")

app = typer.Typer(
    help="List, show and delete the crawls of a folder or of a shared frontier.",
    no_args_is_help=True,
    add_completion=False,
)

CrawlName = Annotated[
    str, typer.Argument(metavar="CRAWL", help="Name of the crawl, as the list shows it: ID, or APPID/ID.")
]


@dataclass(frozen=True, slots=True)
class _ListedCrawl:
    """A crawl that the frontier, or a note in the data directory, knows."""

    id: CrawlId
    info: CrawlInfo | None
    """None: the frontier does not know the crawl any more."""
    outputs: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the crawl for --json."""
        total = self.info.total() if self.info else None
        return {
            "appid": self.id.appid,
            "crawl_id": self.id.crawlid,
            "state": _state_of(self.info),
            "run": self.info.run if self.info else None,
            "started": self.info.started if self.info else None,
            "ended": self.info.ended if self.info else None,
            "fetched": total.fetched if total else None,
            "failed": sum(total.failed.values()) if total else None,
            "dropped": sum(total.dropped.values()) if total else None,
            "waiting": total.queued + total.later if total else None,
            "in_flight": total.leased if total else None,
            "outputs": list(self.outputs),
        }


def _state_of(crawl: CrawlInfo | None) -> str:
    """Return the state in one word. A crawl that the frontier has forgotten finished longer ago than the retention."""
    return crawl.state.value if crawl else "forgotten"


@app.command("list")
@options.takes("frontier", "data_dir")
def list_crawls(*, json: options.Json = False, **given: Any) -> None:
    """List the crawls of this folder, or of a shared frontier, the latest first.

    gossamer crawls list

    A crawl that is running without a command that works for it was interrupted: the same command resumes it.
    """
    settings = options.load_settings(given)

    async def read(frontier: ValkeyFrontier) -> tuple[list[CrawlInfo], bool]:
        return await list_running_first(frontier, limit=_MAX_CRAWLS)

    infos, more = run_loop(_with_frontier(settings, read))
    found = [_listed(settings, info.crawl, info) for info in sorted(infos, key=lambda info: -info.started)]
    listed = {crawl.id for crawl in found}
    named = [CrawlId(APPID, name) for name in reversed(known_crawls(settings.data_dir))]
    found += [_listed(settings, name, None) for name in named if name not in listed]
    if json:
        terminal.print_result(msgspec.json.encode({"crawls": [one.as_json() for one in found], "more": more}).decode())
        raise typer.Exit(0)
    console = Console(highlight=False)
    table = Table("crawl", "state", "fetched", "failed", "waiting", "started", "outputs", box=None, padding=(0, 1))
    table.columns[0].overflow = table.columns[-1].overflow = "fold"  # a name that is cut short cannot be used
    for crawl in found:
        total = crawl.info.total() if crawl.info else None
        table.add_row(
            crawl.id.crawlid if crawl.id.appid == APPID else str(crawl.id),
            _state_of(crawl.info),
            f"{total.fetched:,}" if total else "",
            f"{sum(total.failed.values()):,}" if total else "",
            f"{total.queued + total.later:,}" if total else "",
            _local_time(crawl.info.started) if crawl.info else "",
            ", ".join(crawl.outputs),
        )
    console.print(table if found else "There are no crawls.")
    if more:
        console.print(f"There are more than {_MAX_CRAWLS:,}.")
    raise typer.Exit(0)


@app.command("show")
@options.takes("frontier", "data_dir")
def show_crawl(name: CrawlName, *, json: options.Json = False, **given: Any) -> None:
    """Show one crawl: its state, its counts, its outputs.

    gossamer crawls show example.com-1a2b3c4d
    """
    settings = options.load_settings(given)
    crawl = run_loop(_with_frontier(settings, partial(_find_named, settings, name)))
    if json:
        terminal.print_result(msgspec.json.encode(crawl.as_json()).decode())
        raise typer.Exit(0)
    lines = [f"{crawl.id}: {_state_of(crawl.info)}{f', run {crawl.info.run}' if crawl.info else ''}"]
    if crawl.info:
        total = crawl.info.total()
        ended = f", ended {_local_time(crawl.info.ended)}" if crawl.info.ended else ""
        lines += [
            f"  started {_local_time(crawl.info.started)}{ended}",
            f"  fetched {total.fetched:,}, failed {sum(total.failed.values()):,}, dropped "
            f"{sum(total.dropped.values()):,}, waiting {total.queued + total.later:,}, in flight {total.leased:,}",
            f"  {counted(crawl.info.seen, 'URL')} known, spiders: {', '.join(crawl.info.spiders) or 'none'}",
        ]
    if crawl.outputs:
        lines.append(f"  outputs: {', '.join(crawl.outputs)}")
    terminal.print_result("\n".join(lines))
    raise typer.Exit(0)


@app.command("delete")
@options.takes("frontier", "data_dir")
def delete_crawl(
    name: CrawlName,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the crawl first if it is not finished. What waits is dropped.")
    ] = False,
    **given: Any,
) -> None:
    """Delete a crawl from the frontier: its queue, the list of known URLs, its counts. Its outputs stay.

    gossamer crawls delete example.com-1a2b3c4d

    The same gossamer crawl command starts such a crawl again from the beginning. A crawl that is not finished is
    refused, unless it is stopped first.
    """
    settings = options.load_settings(given)
    terminal.print_result(run_loop(_with_frontier(settings, partial(_delete, settings, name, yes=yes, stop=stop))))
    raise typer.Exit(0)


async def _delete(settings: Settings, name: str, frontier: ValkeyFrontier, *, yes: bool, stop: bool) -> str:
    """Delete a crawl, and return what was deleted, in a sentence. Raises BadInput."""
    crawl = await _find_named(settings, name, frontier)
    total = crawl.info.total() if crawl.info else SpiderCounts()
    if crawl.info and crawl.info.state is CrawlState.RUNNING and not stop:
        raise BadInput(
            f"{crawl.id} is not finished: {counted(total.queued + total.later + total.leased, 'URL')} to do. Add "
            "--stop to drop them, or let it finish."
        )
    what = f"{crawl.id} ({total.fetched:,} fetched, {total.queued + total.later:,} waiting)"
    if not yes and not _confirmed(f"Delete the crawl {what}? Its outputs stay. [y/N] "):
        raise Interrupted("nothing was deleted")
    if crawl.info:
        if crawl.info.state is CrawlState.RUNNING:
            await frontier.stop_crawl(crawl.id)
        await _wait_until_none_in_flight(frontier, crawl.id)
        if not await frontier.delete_crawl(crawl.id):
            raise BadInput(f"{crawl.id} was started again. Stop it first.")
    note = read_note(settings.data_dir, crawl.id.crawlid) if crawl.id.appid == APPID else None
    if note is not None:  # last: with the note, a deletion that was interrupted can be repeated
        forget_written(settings, note.run, note.outputs)
        delete_note(settings.data_dir, crawl.id.crawlid)
        kept_pages(settings.data_dir, crawl.id).unlink(missing_ok=True)
    urls = f", {counted(crawl.info.seen, 'known URL')}" if crawl.info else ""
    stays = f" The outputs stay: {', '.join(crawl.outputs)}." if crawl.outputs else ""
    return f"Deleted {what}: its queue{urls}, its counts{' and what this folder knew of it' if note else ''}.{stays}"


def _confirmed(question: str) -> bool:
    """Ask the person at the terminal. Raises BadInput where standard input is no terminal."""
    if not sys.stdin.isatty():
        raise BadInput("there is no terminal to ask for a confirmation. Add --yes.")
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _wait_until_none_in_flight(frontier: ValkeyFrontier, crawl: CrawlId) -> None:
    """Wait until no worker has a request of the stopped crawl. Raises BadInput if that takes too long."""
    await frontier.maintain()  # takes requests from workers that died
    for _ in range(_FLIGHT_CHECKS):
        info = await frontier.crawl_info(crawl)
        if info is None or not info.total().leased:
            return
        await asyncio.sleep(_FLIGHT_PAUSE_SECONDS)
    raise BadInput(f"requests of {crawl} are still in flight. Try again when they are finished.")


_FLIGHT_CHECKS, _FLIGHT_PAUSE_SECONDS = 60, 0.5
"""Number of checks whether requests of a stopped crawl are in flight, and the pause between two. May be changed; their
product is the longest wait, after which the command is refused."""


async def _with_frontier(settings: Settings, call: Callable[[ValkeyFrontier], Awaitable[T]]) -> T:
    """Return what `call` returns of the frontier that the settings name, or that is in the data directory."""
    with Interruption(drain=None, show=terminal.say):  # the first Ctrl-C cancels the call
        async with frontier_here(settings, name="gossamer crawls") as frontier:
            return await call(frontier)


async def _find_named(settings: Settings, name: str, frontier: ValkeyFrontier) -> _ListedCrawl:
    """Return the crawl named ID (of the command line, else of another application) or APPID/ID. Raises BadInput."""
    appid, slash, crawl_id = name.rpartition("/")
    candidates = [CrawlId(appid, crawl_id)] if slash else [CrawlId(APPID, name)]
    if not slash:
        others, _ = await list_running_first(frontier, limit=_MAX_CRAWLS)
        candidates += [info.crawl for info in others if info.crawl.crawlid == name and info.crawl not in candidates]
    for candidate in candidates:
        crawl = _listed(settings, candidate, await frontier.crawl_info(candidate))
        if crawl.info is not None or (candidate.appid == APPID and read_note(settings.data_dir, candidate.crawlid)):
            return crawl
    raise BadInput(f"there is no crawl {name}. gossamer crawls list shows all.")


def _listed(settings: Settings, crawl: CrawlId, info: CrawlInfo | None) -> _ListedCrawl:
    """Return a crawl with the outputs that its note names, relative to this folder if they are in it."""
    note = read_note(settings.data_dir, crawl.crawlid) if crawl.appid == APPID else None
    here, kept = os.getcwd() + os.sep, os.path.abspath(kept_pages(settings.data_dir, crawl))
    outputs = tuple(path.removeprefix(here) for path in (note.outputs if note else ()) if path != kept)
    return _ListedCrawl(crawl, info, outputs)


def _local_time(moment: float) -> str:
    """Return a Unix time as a person of this time zone reads it."""
    return datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M")
