"""Fills the lost frontier of a crawl from its records, so that the crawl goes on where it was.

The frontier is the store of requests: which wait, and which a crawl has had (its seen-set). Records are what outputs
keep of requests that have ended, with the pages on which the links to all others stand.

Fixed: the order of the steps in `Rebuild.run`. All recorded requests are in the seen-set before the first link is
queued, or a worker could get a page that has a record. A kill between any two steps leaves a frontier that the same
call fills again.
"""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gossamer.commit.outlinks import FinishedLease, Outbox, Outlinks
from gossamer.commit.retrier import Retrier
from gossamer.crawling.engine import crawl_note, spiders_for
from gossamer.crawling.recorded import RecordedCrawl, is_cut_sitemap
from gossamer.errors import BadInput
from gossamer.frontier.base import RestoredRequest
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, Run
from gossamer.model.info import CrawlInfo
from gossamer.model.record import Output, PageRecord
from gossamer.model.request import Batch
from gossamer.net.credentials import hide_secrets
from gossamer.option_names import named
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.sinks.assets import ManifestLine, manifest_lines
from gossamer.sinks.export import open_source
from gossamer.sinks.open import CSV, SQLITE
from gossamer.sinks.read import TORN, Source
from gossamer.sinks.stores.address import is_store
from gossamer.storage import sqlite
from gossamer.telemetry.logs import Troubles
from gossamer.wiring.frontier import read_note, write_note
from gossamer.wiring.plan import Plan, asset_folder, keeps_index

if TYPE_CHECKING:  # imported late: few crawls have an index
    from gossamer.fresh.index import PageIndex

_REQUESTS_AT_ONCE = 1000
"""Recorded requests that are entered at once. More take memory."""
_LINKS_AT_ONCE = 5000
"""Links after which they are queued. More take memory, and fewer calls."""
_WITHOUT_BODIES = (CSV, *SQLITE)
"""Formats that hold no bodies of pages."""

Submit = Callable[[], Awaitable[Sequence[str]]]
"""Submits the requests of a service's crawl again, and returns why some were refused."""
Progress = Callable[[str, int], None]
"""Called with a step and the number of records that it has read."""


class RebuildResult(msgspec.Struct):
    """Result of filling a frontier."""

    info: CrawlInfo | None = None
    records: int = 0
    """Records of pages of this crawl."""
    others: int = 0
    """Records of other crawls, which are left out."""
    pages_read: int = 0
    """Pages whose links were read."""
    pages_without_links: int = 0
    """Pages of which the outputs hold neither body nor links."""
    queued: int = 0
    """Requests that wait."""
    sentences: list[str] = []
    """Remarks for a person."""


class Rebuild:
    """One rebuild of the frontier of a crawl."""

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        frontier: ValkeyFrontier,
        paths: Sequence[str],
        *,
        on_progress: Progress,
        submit: Submit | None = None,
    ) -> None:
        """`paths`: outputs that hold the records. `submit`: for a crawl of a service, whose seeds are requests; None:
        the seeds of the plan are added. Raises BadInput for an output that cannot be read."""
        self._submit = submit
        self._settings = settings
        self._plan = plan
        self._frontier = frontier
        if stores := [path for path in paths if is_store(path)]:
            raise BadInput(
                f"{hide_secrets(stores[0])} is a database, and rebuild reads files. Name a file with the records with "
                "--records; gossamer crawl --fresh fetches all again."
            )
        self._paths = paths
        self._sources: list[Source] = []
        self._on_progress = on_progress
        self._result = RebuildResult()
        self._seeds = frozenset(plan.seeds)

    async def run(self) -> RebuildResult:
        """Fill the frontier. Raises BadInput where it knows the crawl already, and what the sources raise."""
        with tempfile.TemporaryDirectory(prefix="gossamer-rebuild-") as folder:
            self._sources = [open_source(path, Path(folder)) for path in self._paths]
            await self._check_frontier()
            restorer = self._frontier.restorer(self._plan.crawl, self._plan.terms)
            run = await restorer.open(expires={self._plan.spider: self._plan.terms.expires})
            crawl = RecordedCrawl(self._settings, self._plan, self._frontier, run, spiders_for(self._plan))
            await self._frontier.spiders.refresh([])
            with self._page_index() as index:
                if index is None:
                    async for requests in self._recorded(crawl):
                        await restorer.enter(run, requests)
                await self._queue_links(crawl, index)
            await self._add_seeds(run)
            await restorer.release(run)
            self._result.info = await self._frontier.crawl_info(self._plan.crawl.id)
            self._add_remarks(crawl)
            return self._result

    async def _add_seeds(self, run: Run) -> None:
        if self._submit is not None:
            self._result.sentences += await self._submit()
            return
        if not keeps_index(self._settings):  # else each round begins with what the index does not know
            for batches in self._plan.batches(self._frontier.secret):
                await self._frontier.add(run, self._plan.terms, batches)
        self._write_note(run)

    @contextmanager
    def _page_index(self) -> "Iterator[PageIndex | None]":
        """Open the page index of a crawl that is kept up to date: it knows which pages were fetched, and when they are
        due, so that only links to pages that it does not know have to wait. None: the crawl has none."""
        if not keeps_index(self._settings):
            yield None
            return
        from gossamer.wiring.recrawling import open_index  # imported late: few crawls have an index

        index = open_index(self._settings, self._plan.crawl.id, self._plan.terms)
        try:
            yield index
        finally:
            index.close()

    async def _check_frontier(self) -> None:
        """Raise BadInput where the frontier has the crawl, unless an earlier rebuild was killed."""
        identity = self._plan.crawl.id
        info = await self._frontier.crawl_info(identity)
        if info is None or info.is_rebuilt or (info.state is CrawlState.RUNNING and not info.total().added):
            return
        total = info.total()
        raise BadInput(
            f"the frontier has the crawl {identity.crawlid} ({total.done:,} done, {total.waiting:,} waiting): nothing "
            f"is to be filled again. The same gossamer crawl command resumes it. If it is an old copy, add "
            f"{named('replace', True)}: it is deleted, and filled from the records."
        )

    # --- requests -----------------------------------------------------------------------------------------------------

    def _pages(self, step: str) -> Iterator[tuple[Source, Output, PageRecord]]:
        """Yield the records of the crawl's pages, in their order."""
        identity, count = self._plan.crawl.id, 0
        self._result.others = 0
        for source in self._sources:
            for output in source.outputs():
                record = output.record
                if not isinstance(record, PageRecord):
                    continue
                if record.crawlid != identity.crawlid or record.appid != identity.appid:
                    self._result.others += 1
                    continue
                yield source, output, record
                count += 1
                self._on_progress(step, count)

    async def _recorded(self, crawl: RecordedCrawl) -> AsyncIterator[list[RestoredRequest]]:
        """Yield all recorded requests in groups. Of a request with several records, one that was fetched counts, else
        the last. So those that were not fetched come last; they are on the disk until then."""
        found: list[RestoredRequest] = []
        with closing(sqlite.connect("")) as database, sqlite.transaction(database):
            database.execute("CREATE TABLE ended (fingerprint INTEGER PRIMARY KEY, requests BLOB NOT NULL)")
            for source, _, record in self._pages("requests"):
                self._result.records += 1
                if is_cut_sitemap(record) or (self._lacks_links(source) and record.url in self._seeds):
                    continue  # it is fetched again, for its links
                requests = crawl.requests(record)
                if record.success:
                    found += requests
                else:
                    packed = msgspec.msgpack.encode(requests)
                    database.execute("INSERT OR REPLACE INTO ended VALUES (?, ?)", (requests[0].fingerprint, packed))
                if len(found) >= _REQUESTS_AT_ONCE:
                    yield found
                    found = []
            decode = msgspec.msgpack.Decoder(list[RestoredRequest]).decode
            for (packed,) in database.execute("SELECT requests FROM ended"):
                found += decode(packed)
                if len(found) >= _REQUESTS_AT_ONCE:
                    yield found
                    found = []
        for line in self._assets():
            found += crawl.asset(line)
            if len(found) >= _REQUESTS_AT_ONCE:
                yield found
                found = []
        if found:
            yield found

    def _assets(self) -> Iterator[ManifestLine]:
        """Yield what the folder of assets tells of the crawl's, if it has one."""
        folder = asset_folder(self._settings)
        return manifest_lines(Path(folder), self._plan.crawl.id.crawlid) if folder else iter(())

    def _lacks_links(self, source: Source) -> bool:
        """Return whether a source tells neither the bodies nor the links of pages."""
        return source.ending in _WITHOUT_BODIES and not self._plan.terms.links

    # --- links --------------------------------------------------------------------------------------------------------

    async def _queue_links(self, crawl: RecordedCrawl, index: "PageIndex | None") -> None:
        """Queue the links of all recorded pages, as far as no request for them has a record. `index`: the page index of
        the crawl, which knows what was fetched; None: it has none. Its pages without a record are fetched again: their
        worker was killed before it wrote the record and added the links."""
        retrier, outbox = Retrier(Troubles()), Outbox(self._frontier)
        outbox.expects_more = False
        pages: list[FinishedLease] = []
        recorded: set[int] = set()
        links = 0
        for source, output, record in self._pages("links"):
            if index is not None:
                recorded.update(map(index.key, (record.url, record.response_url)))
            if self._lacks_links(source):
                self._result.pages_without_links += record.success
                continue
            finished = await crawl.read(record, output.body)
            self._result.pages_read += record.success
            if finished is not None and index is not None:
                finished.batches = _without_known(finished.batches, index)
            if finished is None:
                continue
            finished.outputs = ()
            pages.append(finished)
            links += sum(len(batch.urls) for batch in finished.batches)
            if links >= _LINKS_AT_ONCE or len(pages) >= _REQUESTS_AT_ONCE:
                await Outlinks(pages, self._frontier, retrier, outbox).ensure_added(pages)
                pages, links = [], 0
        await Outlinks(pages, self._frontier, retrier, outbox).ensure_added(pages)
        if index is not None and (again := index.read_again(lambda page: page.was_there and page.key not in recorded)):
            self._result.sentences.append(
                f"{counted(again, 'page')} of the page index {'has' if again == 1 else 'have'} no record: the next "
                f"round fetches {'it' if again == 1 else 'them'} again, for the links."
            )

    # --- the end ------------------------------------------------------------------------------------------------------

    def _write_note(self, run: Run) -> None:
        """Write the note of the crawl in the data directory, by which its outputs are known as its own."""
        earlier = read_note(self._settings.data_dir, self._plan.crawl.id.crawlid)
        if earlier is not None:
            write_note(self._settings.data_dir, msgspec.structs.replace(earlier, run=run), is_start=False)
            return
        write_note(self._settings.data_dir, crawl_note(self._settings, self._plan, run))

    def _add_remarks(self, crawl: RecordedCrawl) -> None:
        result = self._result
        total = result.info.total() if result.info is not None else None
        result.queued = total.waiting if total is not None else 0
        if result.others:
            result.sentences.append(f"{counted(result.others, 'record')} of other crawls were left out.")
        if result.pages_without_links:
            result.sentences.append(
                f"The outputs hold neither bodies nor links of {counted(result.pages_without_links, 'page')}. The "
                "seeds are fetched again; what only those pages link to is not found. gossamer crawl --fresh fetches "
                "all."
            )
        for source in self._sources:
            if source.lacks[TORN]:
                result.sentences.append(f"The end of {source.name} is a record that is not complete: it was left out.")
        for name in crawl.absent_spiders:
            result.sentences.append(f"The spider {name} is not here, so the links of its pages were not read.")


def _without_known(batches: Sequence[Batch], index: "PageIndex") -> list[Batch]:
    """Return batches without the URLs that a page index knows."""
    keys = {url: index.key(url) for batch in batches for url in batch.urls}
    known = index.known(keys.values())
    found = []
    for batch in batches:
        kept = [at for at, url in enumerate(batch.urls) if keys[url] not in known]
        if kept:
            found.append(
                msgspec.structs.replace(
                    batch,
                    urls=[batch.urls[at] for at in kept],
                    fingerprints=[batch.fingerprints[at] for at in kept],
                    payloads=None if batch.payloads is None else [batch.payloads[at] for at in kept],
                )
            )
    return found
