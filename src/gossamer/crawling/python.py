"""The Python API: `gossamer.crawl` and `gossamer.get`.

A crawl runs in a thread with an event loop of its own, so that the same object serves scripts, notebooks and asyncio
programs, and code in the loop over the pages may take its time. Fixed: names and what the docstrings promise, on which
people's programs rely.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack
from weakref import WeakValueDictionary

from gossamer.crawling import engine
from gossamer.crawling.background import BackgroundTask, Entry, Handover
from gossamer.crawling.options import (
    PythonWords,
    check_options,
    config_of,
    names_of,
    settings_of,
)
from gossamer.crawling.outputs import StartOptions
from gossamer.crawling.program_control import ProgramControl
from gossamer.crawling.single import fetch_page, for_one_page
from gossamer.crawling.typed_options import CrawlOptions, RequestOptions
from gossamer.crawling.work import CrawlResult
from gossamer.errors import AlreadyFinished, BadInput, NothingFetched
from gossamer.extract.page import Page
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.record import PageRecord
from gossamer.policy.words import CANNOT_FETCH, fetch_error
from gossamer.settings import Settings, load
from gossamer.telemetry.tally import rule_sentences
from gossamer.valkey.datadir import delete_data_dir
from gossamer.wiring.outputs import table_options
from gossamer.wiring.plan import Plan, asset_folder, check_assets, check_csv_guard, keeps_index, make_plan

if TYPE_CHECKING:
    from gossamer.crawling.recrawl import Recrawl
    from gossamer.fresh.page import Change

log = logging.getLogger("gossamer")

_TURNS = 4
"""Turns of the event loop before an `async for` starts its crawl. May be more. When a program
leaves an `async for` by `break`, Python closes it later, in another task. That task must tell its crawl to stop before
the program's next crawl starts, which may be in the same directory."""
_TEMPORARY = "gossamer-crawl-"
"""First part of the names of temporary data directories. Leftovers under the old name then stay."""
_LEFTOVER_SECONDS = 60.0
"""Age of a temporary data directory from which it may be a leftover. Must exceed the time between its making and the
start of its server, which locks it."""
_ANY_URL = "http://example.com/"
"""URL in place of those in `seeds`, which are not read before the crawl starts. May be any."""
_CHANGES_POLL_SECONDS = 0.2
"""Interval at which a loop over changes looks for new ones."""
_stopping: "WeakValueDictionary[Path, BackgroundTask[CrawlResult]]" = WeakValueDictionary()
"""Crawls of this program that were told to stop, by their data directory: the next one there waits for the end."""


def crawl(*urls: str, **options: Unpack[CrawlOptions]) -> "Crawler":
    """Return a crawl from these URLs. Nothing is fetched before the program asks for the first page.

        for page in gossamer.crawl("https://example.com", max_pages=100):
            print(page.url, page.css("h1::text").get())

        async for page in gossamer.crawl("https://example.com"):  # the same in an asyncio program
            ...

        gossamer.crawl("https://example.com", output="pages.jsonl").run()  # into a file, without a loop

    The options are those of the command `gossamer crawl`, with underscores; see `CrawlOptions`. By default the crawl
    stays on the domains of the URLs, obeys robots.txt, and sends each domain one request a second. No file is written
    unless `output` is given.

    Raises BadInput for a value that cannot be used, and TypeError for an unknown option.
    """
    return Crawler(*urls, **options)


class GetOptions(RequestOptions, total=False):
    """Options of `get`. Each is optional."""

    render: bool
    """Let a browser build the page. It needs Chromium or Chrome."""


def get(url: str, **options: Unpack[GetOptions]) -> Page:
    """Fetch one page, as a crawl would: robots.txt is obeyed, redirects are followed, private addresses are refused.

        page = gossamer.get("https://example.com")
        print(page.status_code, page.css("title::text").get())

    Returns the page, also one with an error status (`page.status_code`). The call blocks; in an asyncio program:
    `await asyncio.to_thread(gossamer.get, url)`. Writes no file. The options are those of the command `gossamer fetch`,
    with underscores; see `GetOptions`.

    Raises FetchError where no response came, FetchRefused where a crawl would not fetch the page (robots.txt forbids
    it, or it redirects to what is no web page), BadInput for a value that cannot be used, and TypeError for an unknown
    option.
    """
    with PythonWords(options):
        check_options("get", options, GetOptions)
        if not isinstance(url, str):
            raise BadInput(f"{url!r:.200} is no URL. Write a text.")
        render = options.pop("render", None)
        if render not in (None, True, False):
            raise BadInput(f"cannot use {render!r:.200}. Write True or False.", option="render")
        values = {**settings_of(options), "crawl.scope": "any"}
        settings = load(values, config=config_of(options), names=names_of(options))
        settings = for_one_page(settings, render=bool(render), typed=options)
        task = BackgroundTask(fetch_page(settings, url), name="gossamer-get")
        try:
            found = task.result()
        except BaseException:
            task.stop()  # Ctrl-C
            raise
        if found.page is None:
            assert found.error is not None
            found.error.args = (found.failure,)  # its text becomes the sentence for people, with advice
            raise found.error
        return found.page


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of a crawl, and of the part of it that this program did."""

    crawl_id: str
    """Name of the crawl."""
    finished: bool
    """True: nothing is left to fetch. False: the program left the loop, or something else stopped the crawl."""
    already_finished: bool
    """True: an earlier call or command finished the crawl; this one fetched nothing. fresh=True crawls again."""
    pages: int
    """Number of pages that this program fetched."""
    failed: Mapping[str, int]
    """Number of requests of the whole crawl that got no page, by reason: `http_404`, `dns`, `timeout`."""
    dropped: Mapping[str, int]
    """Number of URLs of the whole crawl that were not fetched, by reason: `robots`, `budget`."""
    items: int
    """Number of items that this program extracted."""
    assets: int
    """Number of assets (images, PDFs and other files) that this program fetched."""
    bytes: int
    """Bytes that this program received."""
    seconds: float
    """Time of the work."""
    outputs: tuple[str, ...]
    """Files and URLs to which the records were written."""
    notes: tuple[str, ...]
    """Sentences for a person on what went wrong, also on rules and fields that found nothing."""


class Crawler:
    """Crawl as an iterable of its pages, in `for` and in `async for`.

    A page counts as done when the program asks for the next one. When the program leaves the loop early (`break`, an
    exception, Ctrl-C), the crawl stops and loses nothing: with `data_dir` or `frontier`, the same call goes on with the
    page that the program had in hand. The worker is ahead of a slow loop by at most about 100 pages, then it waits.

    Errors of the crawl are raised in the loop: NothingFetched when not one page could be fetched, AlreadyFinished when
    an earlier call finished this crawl, FrontierError when the frontier cannot be used.
    """

    def __init__(self, *urls: str, **options: Unpack[CrawlOptions]) -> None:
        """Raises as `crawl`."""
        given: Mapping[str, Any] = options
        self._words = PythonWords(options)
        with self._words:
            check_options("crawl", options, CrawlOptions)
        seeds = given.get("seeds")
        self._sources = [os.fspath(one) for one in ([seeds] if isinstance(seeds, (str, os.PathLike)) else seeds or ())]
        self._urls = list(urls)
        with self._words:
            if not urls and not self._sources:
                raise BadInput("no URL is given. Try gossamer.crawl('https://example.com')")
            for url in urls:
                if not isinstance(url, str):
                    raise BadInput(f"{url!r:.200} is no URL. Write texts; the URLs of a list: gossamer.crawl(*urls)")
            self._settings, self._temporary = _settings(given)
            if self._settings.worker.processes != 1 and not isinstance(given.get("spider") or "", str):
                raise BadInput(
                    "processes: only this one has the class that is the spider. Write it into a file and name that, "
                    "spider='shop.py', or write processes=1."
                )
            self._crawl_id: str | None = given.get("crawl_id")
            # This plan is only made for its checks: `_main` makes the one that counts, with the URLs of all sources.
            make_plan(self._settings, urls or [_ANY_URL], crawl_id=self._crawl_id, now=time.time())
        self._fresh, self._append = bool(given.get("fresh")), bool(given.get("append"))
        self._failures = bool(given.get("failures"))
        self._has_loop = False
        self._handover = Handover(wants=self._wants)
        self._control = ProgramControl()
        self._task: BackgroundTask[CrawlResult] | None = None
        self._before: BackgroundTask[CrawlResult] | None = None
        """Crawl in the same data directory that is being stopped at the start of this one."""
        self._first_failure = ""
        self._recrawl: Recrawl | None = None
        """Rounds of a crawl that is kept up to date, once they have begun."""
        if keeps_index(self._settings) and self._temporary and not self._settings.crawl.index:
            raise BadInput("recrawl: the pages would be forgotten at the end. Write data_dir='some/folder'.")

    def __repr__(self) -> str:
        """Name the first URL, and what to do with this object: a person who prints it expects pages."""
        first = repr([*self._urls, *self._sources][0])
        return f"<gossamer.crawl({first}): loop over it for its pages, or call run()>"

    # --- reading ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Generator[Page, None, None]:
        """Start the crawl and yield its pages, each as soon as it is fetched; with `recrawl` or `recrawl_once`, the
        changes that it finds."""
        return self.changes() if keeps_index(self._settings) else self._pages()  # type: ignore[return-value]

    def changes(self) -> "Generator[Change, None, None]":
        """Start a crawl that is kept up to date (`recrawl` or `recrawl_once`), and yield each change that it finds.

        Raises BadInput for another crawl."""
        if not keeps_index(self._settings):
            raise BadInput("the crawl is not kept up to date. Add recrawl=True or recrawl_once=True.")
        self._start(has_loop=False)
        assert self._task is not None
        try:
            ended = False
            while not ended:
                ended = self._task.wait(_CHANGES_POLL_SECONDS)
                if self._recrawl is not None:
                    yield from self._recrawl.new_changes()
            self._raise_error()
        finally:
            self.stop()

    def _pages(self) -> Generator[Page, None, None]:
        self._start(has_loop=True)
        try:
            while True:
                entry = self._handover.next()
                if entry is not None:
                    yield _page(entry)
                elif self._handover.ended:
                    break
                else:
                    ready = threading.Event()
                    self._handover.notify(ready.set)
                    ready.wait()
            self._raise_error()
        finally:
            self.stop()

    async def __aiter__(self) -> AsyncGenerator[Page, None]:  # with `yield`: a call returns the iterator at once
        """Start the crawl and yield its pages, each as soon as it is fetched. Raises BadInput for a crawl that is kept
        up to date: `changes` yields what it finds, in a thread of its own."""
        if keeps_index(self._settings):
            raise BadInput(
                "a crawl that is kept up to date has no loop over its pages here. Call changes() in a thread."
            )
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        self._start(has_loop=True)
        loop = asyncio.get_running_loop()
        try:
            while True:
                entry = self._handover.next()
                if entry is not None:
                    yield _page(entry)
                elif self._handover.ended:
                    break
                else:
                    ready = asyncio.Event()
                    self._handover.notify(partial(loop.call_soon_threadsafe, ready.set))
                    await ready.wait()
            self._raise_error()
        finally:
            self._begin_stop()  # at once, because the thread for `stop` may start later
            await asyncio.to_thread(self.stop)

    def items(self) -> "Items":
        """Return the crawl as an iterable of the items from its pages: those of `spider`, or of extraction rules.

        Raises BadInput if the crawl has neither, and no text as items.
        """
        if not table_options(self._settings).has_items:
            raise BadInput(
                "there is nothing to extract. Add field={'title': 'h1'}, extract, or a spider; a loop over the crawl "
                "itself gets its pages."
            )
        return Items(self)

    def run(self) -> Result:
        """Run the crawl to its end without a loop, for its outputs and its spider, and return what came of it."""
        self._start(has_loop=False)
        assert self._task is not None
        try:
            self._task.wait()
            self._raise_error()
        finally:
            self.stop()
        return self.result

    def stop(self) -> None:
        """Stop the crawl if it runs, and wait until its server and its files are closed. Any thread may call it."""
        self._begin_stop()
        if self._task is not None:
            self._task.wait()
        self._control.log_failures()

    @property
    def result(self) -> Result:
        """Outcome of the crawl, after its end. Raises RuntimeError before, and if the crawl was stopped at its start;
        else what the crawl raised."""
        if self._task is None or not self._task.wait(0):
            raise RuntimeError("the crawl has not ended; its result comes after the loop over its pages")
        try:
            return _result(self._task.result())
        except asyncio.CancelledError:
            raise RuntimeError("the crawl was stopped before it fetched anything") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # --- the crawl, in its thread -------------------------------------------------------------------------------------

    def _start(self, *, has_loop: bool) -> None:
        """Start the crawl. `has_loop`: the program reads the pages."""
        if self._task is not None:
            raise RuntimeError("this crawl was started before; call gossamer.crawl again for another one")
        if has_loop and self._settings.worker.processes != 1:
            raise BadInput(
                "processes: a loop gets its pages from one process. Write processes=1, or call run() with output."
            )
        self._has_loop = has_loop
        # Asked here, not in the crawl's thread: a stop at the start would enter this crawl, which waited for itself.
        self._before = _stopping.get(self._settings.data_dir.resolve())
        with self._words:
            self._task = BackgroundTask(
                self._main(), name="gossamer-crawl", stop=self._begin_stop, on_end=self._handover.end
            )

    async def _main(self) -> CrawlResult:
        """Run the crawl, after an earlier one in the same data directory has stopped."""
        try:
            if self._before is not None:
                await asyncio.to_thread(self._before.wait)
            plan = await engine.prepare(
                self._settings,
                self._urls,
                self._sources,
                crawl_id=self._crawl_id,
                replaces=self._fresh and not self._append,
                fresh=self._fresh,
                say=self._control.say,
            )
            if keeps_index(self._settings):
                return await self._keep_fresh(plan)
            result = await engine.run_crawl(
                self._settings,
                plan,
                start=StartOptions(fresh=self._fresh, append=self._append),
                observer=self._control,
                control=self._control,
                program="a Python program with the crawl",
                reader=self._handover if self._settings.worker.processes == 1 else None,
            )
            if not result.tally.items:  # a loop over the items would be silent otherwise
                for sentence in rule_sentences(result.tally.rules):
                    log.warning("%s", sentence)
            return result
        finally:
            if self._temporary:
                shutil.rmtree(self._settings.data_dir, ignore_errors=True)
                _delete_leftovers()

    async def _keep_fresh(self, plan: Plan) -> CrawlResult:
        """Do the rounds of a crawl that is kept up to date."""
        from gossamer.crawling.recrawl import Recrawl  # imported late: most crawls have no index

        self._recrawl = Recrawl(
            self._settings,
            plan,
            StartOptions(),
            observer=self._control,
            control=self._control,
            program="a Python program with the crawl",
        )
        return (await self._recrawl.run()).crawl

    def _wants(self, record: PageRecord) -> bool:
        """Return whether the loop gets a page. Called in the thread of the crawl, for each page and asset."""
        if record.spiderid == ASSET_SPIDER:
            return False
        if not record.success and not self._first_failure:
            self._first_failure = _reason(record.url, record.reason, record.exception)
        return self._has_loop and (record.success or self._failures)

    def _begin_stop(self) -> None:
        task = self._task
        if task is not None and not task.wait(0):
            _stopping[self._settings.data_dir.resolve()] = task
            self._control.was_interrupted = True  # first: the crawl notices what follows in its own thread
            self._handover.stop()
            task.call(partial(self._control.stop, task))

    def _raise_error(self) -> None:
        """Raise what the crawl raised, or what a program would otherwise overlook: a loop without a single page."""
        assert self._task is not None
        with self._words:
            try:
                result = self._task.result()
            except asyncio.CancelledError:  # `stop` was called before the first request
                return
            if result.already_finished and self._has_loop:
                raise AlreadyFinished(
                    f"{result.crawl_id}. Its pages were read or written before; fresh=True crawls again."
                )
            if not result.has_enough and not self._failures and not result.interrupted:
                # `_first_failure` is empty after `run()` with several processes: their records do not come here.
                failures = [_reason(url, reason) for reason, url in result.tally.examples.items()]
                why = self._first_failure or ", ".join((*failures[:1], *result.tally.dropped, *result.notes))
                self._control.failures.clear()
                raise NothingFetched(why)


class Items:
    """Items of a crawl, as dictionaries, in `for` and in `async for`.

    An item counts as done with its page, when the program asks for the first item of the next one.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with contextlib.closing(iter(self._crawler)) as pages:
            for page in pages:
                yield from page.items

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        async with contextlib.aclosing(aiter(self._crawler)) as pages:
            async for page in pages:
                for item in page.items:
                    yield item


def _delete_leftovers() -> None:
    """Delete temporary data directories that killed programs of this user have left."""
    for path in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError, BadInput):
            status = path.stat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > _LEFTOVER_SECONDS:
                delete_data_dir(path)


def _settings(options: Mapping[str, Any]) -> tuple[Settings, bool]:
    """Return the settings of a crawl, and whether their data directory is a temporary one. Raises BadInput.

    Outputs, assets and report are never those of a settings file or the environment: no program writes files unasked.
    """
    values = settings_of(options)
    values.setdefault("crawl.output", ())
    values.setdefault("crawl.assets", ())
    values.setdefault("crawl.report", "")
    has_output = values["crawl.output"] or values.get("crawl.assets_to")
    temporary = "data_dir" not in values and not has_output
    if temporary:
        # Made when the crawl starts, and not here: a crawl that never does leaves nothing.
        values["data_dir"] = Path(tempfile.gettempdir()) / f"{_TEMPORARY}{os.urandom(8).hex()}"
    settings = load(values, config=config_of(options), names=names_of(options))
    if options.get("csv_guard"):
        check_csv_guard(settings)
    check_assets(settings)
    if asset_folder(settings) and not settings.crawl.assets_to:
        raise BadInput('assets: name the folder for them, for example assets_to="assets", or a WARC output.')
    return settings, temporary


def _page(entry: Entry) -> Page:
    """Return the page of an entry."""
    record = entry.page.record
    assert isinstance(record, PageRecord)
    page = Page.of_record(record, entry.page.body)
    page.items = [item.item for item in entry.items]
    return page


def _reason(url: str, reason: str, detail: str = "") -> str:
    """Return the sentence of `fetch_error` without its first words, which NothingFetched has."""
    return fetch_error(url, reason, detail).removeprefix(CANNOT_FETCH)


def _result(found: CrawlResult) -> Result:
    """Return the result of a crawl as programs get it."""
    total = found.info.pages if found.info else None
    return Result(
        crawl_id=found.crawl_id,
        finished=found.finished,
        already_finished=found.already_finished,
        pages=found.tally.pages,
        failed=dict(total.failed if total else found.tally.failed),
        dropped=dict(total.dropped if total else found.tally.dropped),
        items=found.tally.items,
        assets=found.tally.assets,
        bytes=found.tally.bytes,
        seconds=found.seconds,
        outputs=found.outputs,
        notes=(*found.notes, *rule_sentences(found.tally.rules)),
    )
