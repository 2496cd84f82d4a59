"""Runs a crawl from its seeds to its end, for commands and for programs: prepares it, opens or resumes it, fetches.

The requests of a crawl are in the frontier, a Valkey server, so that the same call resumes an interrupted crawl. Each
life of a crawl, from its first request to its end, is a run; a crawl that is crawled again has another one. The note of
a crawl is a file in the data directory, in which a command leaves what later ones need to know of it. This module
prints nothing: an observer gets progress and sentences, and the result says what happened.

Safe to change: sentences (tests quote some). Fixed: the order of the steps in `_Crawling`: a kill between two of them
must leave a crawl that the same call resumes.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from gossamer.crawling.outputs import (
    CrawlReport,
    ExistingOutputs,
    FinishedCrawl,
    StartOptions,
    check_data_dir,
    check_report,
    delete_old_pages,
    find_existing,
    kept_pages,
    make_outputs,
    may_be_made,
)
from gossamer.crawling.seeds import find_private_hosts, gather_seeds
from gossamer.crawling.work import Assignment, Observer, WorkControl, work
from gossamer.errors import BadInput, CrawlRefused, FrontierError, GossamerError, SinkError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.assets import ALL, ASSET_SPIDER
from gossamer.model.crawl import CrawlState, Run
from gossamer.model.info import CrawlInfo
from gossamer.model.record import Destination
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.sinks.base import Sink
from gossamer.sinks.open import check_outputs, kind_of
from gossamer.telemetry.tally import Tally
from gossamer.wiring.frontier import CrawlNote, connect, frontier_address, read_note, warn_of_memory_only, write_note
from gossamer.wiring.plan import Plan, asset_folder, asset_places, check_assets, check_settings, make_plan
from gossamer.wiring.worker import (
    finish_outputs,
    forget_written,
    make_resolver,
    missing_records,
    missing_sentence,
    spool_folder,
    table_options,
)
from gossamer.worker.loading import find_spider, known_spiders, make_spider


@dataclass(slots=True)
class CrawlResult:
    """Result of a command or call. `tally` and `seconds` are its own share; `info` is the whole crawl, all machines.

    Fields may be added. They are read by the command line, by `crawling/python.py` and by tests.
    """

    crawl_id: str
    info: CrawlInfo | None
    """None: the state of the crawl could not be read, or this is no crawl."""
    tally: Tally
    seconds: float
    outputs: tuple[str, ...]
    interrupted: bool = False
    """True: the command was told to end before the crawl did."""
    retried: int = 0
    """Number of requests that had failed before this command, which it fetched again."""
    already_finished: bool = False
    """True: the crawl had ended before this command, which fetched nothing."""
    unwritten: bool = False
    """True: an output could not be finished."""
    lost: bool = False
    """True: the frontier lost its data during the crawl."""
    missing: dict[str, int] = field(default_factory=dict)
    """Records that vanished from an output before this command started, by output. Later losses are in `tally`."""
    pool: str = ""
    """Pool of a worker that works for no crawl in particular. Empty: this is a crawl."""
    notes: list[str] = field(default_factory=list)
    """Sentences at the end of the summary."""
    item_outputs: tuple[str, ...] = ()
    """Those of the outputs that take only items."""
    asset_folder: str = ""
    """Folder of the assets, the files that pages embed or link. Empty: none."""
    report: str = ""
    """Page about the crawl that was written. Empty: none."""
    lacks_report: bool = False
    """True: such a page was asked for and could not be written."""

    @property
    def finished(self) -> bool:
        """True: the crawl is finished or has expired."""
        return self.info is not None and self.info.state in (CrawlState.FINISHED, CrawlState.EXPIRED)

    @property
    def missing_records(self) -> int:
        """Number of records that were written and have vanished."""
        return self.tally.missing + sum(self.missing.values())


async def prepare(
    settings: Settings,
    urls: Sequence[str],
    sources: Sequence[str],
    *,
    crawl_id: str | None,
    say: Callable[[str], None] | None = None,
) -> Plan:
    """Return the plan of a crawl: its id, options and seeds, the URLs that it starts from.

    Checks everything that can be checked before the start. `urls` and `sources`: see `gather_seeds`. `say` shows
    a sentence to a person if there are many look-ups. Raises BadInput.
    """
    check_settings(settings)
    if settings.crawl.output and "output" in settings.crawl.given:  # else the default, which depends on the seeds
        check_outputs(settings.crawl.output, tables=table_options(settings))
    check_assets(settings)
    make_spider(find_spider(settings.crawl.spider))  # before seeds are fetched: its code may be broken
    check_report(settings)
    check_data_dir(settings)
    resolver = make_resolver(settings)
    try:
        seeds = await gather_seeds(settings, resolver, urls, sources)
        plan = make_plan(settings, seeds, crawl_id=crawl_id, now=time.time())
        private = await find_private_hosts(
            resolver,
            plan.seeds,
            allowed=settings.crawl.allow_private,
            look_up_names=not settings.fetch.proxy.startswith("socks5h:"),  # such a proxy looks the names up itself
            say=say,
        )
        if private:  # made again, because the look-up needed the seeds of the first plan
            plan = make_plan(settings, seeds, crawl_id=crawl_id, now=time.time(), private_hosts=private)
        return plan
    finally:
        resolver.close()


async def run_crawl(
    settings: Settings,
    plan: Plan,
    *,
    start: StartOptions,
    observer: Observer,
    control: WorkControl,
    program: str,
    reader: Sink | None = None,
) -> CrawlResult:
    """Run a prepared crawl to its end, or until `control` interrupts it.

    `program`: the caller, named to another command that wants the same data directory. `reader`: a sink of this program
    that gets the pages before the outputs do. Raises GossamerError before anything is started, or when the frontier
    cannot be used.
    """
    name = f"{program} {plan.crawl.id.crawlid}"
    report = CrawlReport.of(settings, plan.crawl.id)
    if report is not None:
        settings = report.with_output(settings)
    delete_old_pages(settings.data_dir, now=time.time(), spared=plan.crawl.id)
    async with frontier_address(settings, name=name, on_trouble=observer.say) as address:
        frontier = await connect(settings, address)
        warn_of_memory_only(frontier, observer.say)
        try:
            result = await _Crawling(settings, plan, start, frontier, address, observer, control, reader).run()
        finally:
            await frontier.close()
    result.item_outputs = (*result.item_outputs, *_item_outputs(settings))
    if report is not None:
        await _add_report(result, report)
    return result


async def _add_report(result: CrawlResult, report: CrawlReport) -> None:
    """Write the report, unless the crawl goes on later."""
    if report.is_private:
        result.outputs = tuple(path for path in result.outputs if path != str(report.records))
    if result.interrupted and not result.finished:
        result.notes.append(f"The report is written when the crawl is finished: {report.page}")
        return
    try:  # the pages are kept as long as the same command may fetch more
        await report.write(finished=result.finished and not (result.info and result.info.kept_failed))
    except GossamerError as error:
        result.lacks_report = True
        result.notes.append(f"There is no report: {error}")
    else:
        result.report = str(report.page)


class _OpenedRun(NamedTuple):
    """A run that was opened or continued, and what the start has queued in it."""

    run: Run
    new_seeds: int
    retried: int
    """Failed requests of earlier commands that are queued again."""


@dataclass(slots=True)
class _Crawling:
    """One crawl of a command or program, connected to its frontier."""

    settings: Settings
    plan: Plan
    start: StartOptions
    frontier: ValkeyFrontier
    address: str
    """Address of the frontier, for worker processes."""
    observer: Observer
    control: WorkControl
    reader: Sink | None

    async def run(self) -> CrawlResult:
        """Start or resume the crawl, or retry what failed in it, and run it to its end."""
        identity, fresh = self.plan.crawl.id, self.start.fresh
        before = await self.frontier.crawl_info(identity)
        forgotten = before is not None and self._is_forgotten(before)
        if forgotten:
            before = None
        state = None if before is None else before.state
        if before is not None and state in (CrawlState.FINISHED, CrawlState.EXPIRED):
            if not fresh and not can_retry(self.plan, before):
                return await self._already_finished(before)
        elif before is not None and state is CrawlState.RUNNING and fresh and before.total().added:
            # Not without a request: a command with --fresh was killed before it added any, so this one continues.
            raise BadInput(
                f"--fresh: the crawl {identity.crawlid} is not finished. Resume it without --fresh, or name another "
                "--crawl-id."
            )
        later = CrawlResult(identity.crawlid, before, Tally(), 0.0, ())
        note = read_note(self.settings.data_dir, identity.crawlid)
        if state is CrawlState.FINISHED and note is not None and self.start.named_outputs and not fresh:
            # What is fetched now is added to new outputs; what the crawl has fetched before comes first.
            await self._make_later_outputs(later, note, [one for one in self.settings.crawl.output if may_be_made(one)])
        run, new_seeds, retried = await self._open(before, forgotten=forgotten)
        retrying = f"retrying {counted(retried, 'failed URL')}"
        if before is not None and state is CrawlState.RUNNING:
            done = before.total().done
            to_do = before.total().added - done
            more = f"; {retrying}" if retried else ""
            self.observer.say(f"Resuming {identity.crawlid}: {done:,} done, {to_do:,} to do{more}.")
            self._warn_of_absent_spiders(before)
        elif retried:
            self.observer.say(f"The crawl {identity.crawlid} is finished; {retrying}.")
        elif not new_seeds:
            self.observer.say("All given URLs were added before.")
        if before is not None and before.assets.added and not self.settings.crawl.assets:
            # The crawl is resumed by its name, without --assets: the assets that wait need a place, too.
            self.settings = self.settings.copy(crawl=self.settings.crawl.copy(assets=(ALL,)))
        result = await self._work(run)
        result.retried = retried
        result.notes = [*later.notes, *result.notes]
        result.unwritten = result.unwritten or later.unwritten
        return result

    def _is_forgotten(self, info: CrawlInfo) -> bool:
        """Return whether a crawl ended longer ago than crawls are remembered.

        The frontier deletes such a crawl only while a worker runs, and its own time may stand still while its server
        is down.
        """
        ended = info.ended if info.state in (CrawlState.FINISHED, CrawlState.EXPIRED) else None
        return ended is not None and time.time() - ended > self.settings.retention

    def _warn_of_absent_spiders(self, before: CrawlInfo) -> None:
        """Tell about requests that wait for a spider which is not here, because their crawl does not end without it."""
        here = {self.plan.spider, *self.plan.loaded_spider.sibling_names, *known_spiders(), ASSET_SPIDER}
        for name, counts in before.spiders.items():
            waiting = counts.waiting
            if waiting and name not in here:
                self.observer.say(
                    f"{waiting:,} requests of this crawl wait for the spider {name}, which this command does not have. "
                    f'If you renamed its class, write into it: name = "{name}". Otherwise start it on some machine.'
                )

    async def _already_finished(self, info: CrawlInfo) -> CrawlResult:
        """Return the result of a crawl that has ended. Finish outputs that an earlier command could not."""
        crawl_id = self.plan.crawl.id.crawlid
        note = read_note(self.settings.data_dir, crawl_id)
        outputs = _existing(note.outputs) if note else ()
        result = CrawlResult(crawl_id, info, Tally(), 0.0, outputs, already_finished=True)
        result.item_outputs = _existing(note.item_outputs) if note else ()
        if note is not None and info.assets.fetched:
            self._tell_of_assets(result, note, info.assets.fetched)
        try:
            await finish_outputs(self.settings)
        except SinkError as error:
            result.unwritten = True
            result.notes.insert(0, error.detail)
        if note is not None and self.start.named_outputs:
            await self._make_later_outputs(result, note, self.settings.crawl.output)
        return result

    def _tell_of_assets(self, result: CrawlResult, note: CrawlNote, fetched: int) -> None:
        """Name the place of the assets, which were fetched before, and the places of the options that have none."""
        folder = next((path for path in note.assets_in if os.path.isdir(path)), "")
        result.asset_folder = "".join(_existing([folder])) if folder else ""
        # WARC files are made from the outputs: without a folder, from a WARC file that has the assets.
        wanted = asset_places(self.settings) if folder else [asset_folder(self.settings)]
        lacking = [path for path in wanted if path and _absolute(path) not in note.assets_in]
        if lacking and (places := _existing(note.assets_in)):
            are = f"{counted(fetched, 'asset')} {'is' if fetched == 1 else 'are'}"
            result.notes.append(
                f"The {are} in {', '.join(places)}, not in {', '.join(lacking)}; --fresh fetches them again."
            )

    async def _make_later_outputs(
        self, result: CrawlResult, note: CrawlNote, destinations: Sequence[Destination]
    ) -> None:
        """Make those of the outputs that are named now for the first time, from those that the finished crawl has."""
        crawl = FinishedCrawl(result.crawl_id, note.outputs, self.settings)
        # The file for a report is in the data directory; the report has sentences of its own about it.
        private = [output for output in destinations if self._is_private(output.path)]
        named = [output for output in destinations if output not in private]
        await make_outputs(private, crawl, say=self.observer.say)
        later = await make_outputs(named, crawl, say=self.observer.say)
        result.outputs = (*result.outputs, *later.made)
        result.notes += later.notes
        result.unwritten = result.unwritten or later.failed
        if later.made:
            outputs = (*note.outputs, *(_absolute(path) for path in later.made if path != "-"))
            with_items = (*note.item_outputs, *map(_absolute, _item_outputs(self.settings)))
            note = msgspec.structs.replace(note, outputs=outputs, item_outputs=tuple(dict.fromkeys(with_items)))
            write_note(self.settings.data_dir, note)

    def _is_private(self, path: str) -> bool:
        """Return whether an output is in the data directory: that of a report, which no person has named."""
        return _absolute(path).startswith(_absolute(str(self.settings.data_dir)) + os.sep)

    async def _open(self, before: CrawlInfo | None, *, forgotten: bool) -> _OpenedRun:
        """Open a run in the frontier, or continue the running one, and add the seeds. `before`: the crawl until now;
        None: the frontier does not know it, or its time is over (`forgotten`).

        The order of the steps is fixed; each may be repeated, because seeds that were added before count as duplicates:
        1. Open the run. Of two commands with --fresh, the frontier refuses the second one.
        2. Empty outputs. No request of the run exists yet, so nothing that belongs to it can be lost.
        3. Queue again what failed. It comes before the seeds, because a run that begins with nothing but duplicates
           would be finished at once.
        4. Add the seeds.
        5. Write the note. It comes last, so that it only names a crawl that exists.
        """
        plan, start, outputs = self.plan, self.start, self.settings.crawl.output
        note = read_note(self.settings.data_dir, plan.crawl.id.crawlid)
        folder = asset_folder(self.settings)
        existing = await asyncio.to_thread(find_existing, outputs, folder, plan.crawl.id.crawlid, start, note)
        is_new = before is None and not start.fresh
        if is_new and not start.append:
            self._tell_of_earlier_records(existing)
        # A running crawl that --fresh may continue was opened by such a command, which was killed.
        opens_fresh = forgotten or (start.fresh and (before is None or before.state is not CrawlState.RUNNING))
        retried = new_seeds = 0
        try:
            expires = {plan.spider: plan.terms.expires}
            run = await self.frontier.open_crawl(plan.crawl, fresh=opens_fresh, expires=expires)
            rate, concurrency = plan.crawl.rate, plan.crawl.concurrency
            if (run.crawl.rate, run.crawl.concurrency) != (rate, concurrency):
                # The crawl is resumed: it takes the rate of the new command.
                run = await self.frontier.set_crawl_limits(run, rate=rate, concurrency=concurrency)
            await asyncio.to_thread(self._empty_outputs, existing, is_new=is_new)
            if before is not None and not start.fresh:
                run, retried = await self.frontier.retry_failed(run, plan.terms)
            for batches in plan.batches(self.frontier.secret):
                new_seeds += (await self.frontier.add(run, plan.terms, batches, seeds=True)).added
            beside = sorted({*existing.beside, *(note.beside if note else ())})
            write_note(self.settings.data_dir, self._note(run, beside))
        except CrawlRefused as error:
            raise CrawlRefused(f"{error.detail}; another --crawl-id starts a new one") from None
        return _OpenedRun(run, new_seeds, retried)

    def _tell_of_earlier_records(self, existing: ExistingOutputs) -> None:
        """Tell which outputs of a new crawl already hold records, to which the new ones are added."""
        kept = [path for path in existing.sizes if path not in existing.failed_only and not self._is_private(path)]
        if kept:
            self.observer.say(
                f"{', '.join(kept)} has records of an earlier start of this crawl; the new ones are added. "
                "--fresh begins with an empty file."
            )

    def _empty_outputs(self, existing: ExistingOutputs, *, is_new: bool) -> None:
        """Empty the outputs that begin empty: all with --fresh and without --append, also the folder of assets and the
        pages kept for a report; those with nothing but failures of another crawl; and for a new crawl (`is_new`) the
        file for the report."""
        settings = self.settings
        begins_empty = self.start.fresh and not self.start.append
        private = [output for output in settings.crawl.output if self._is_private(output.path)]
        emptied = [
            output
            for output in settings.crawl.output
            if begins_empty or output.path in existing.failed_only or (is_new and output in private)
        ]
        existing.empty(emptied, spool_folder(settings))
        if begins_empty and (folder := asset_folder(settings)):
            existing.empty_assets(folder)
        if begins_empty and not private:  # an earlier start may have had --report
            kept_pages(settings.data_dir, self.plan.crawl.id).unlink(missing_ok=True)

    async def _work(self, run: Run) -> CrawlResult:
        """Fetch until the run is over or the command is interrupted."""
        settings, plan = self.settings, self.plan
        missing = await missing_records(settings, run)
        for path, records in missing.items():
            self.observer.say(missing_sentence(path, records))
        if not settings.frontier:
            # The workers of an earlier command ended with its embedded server. New workers trust silence only after a
            # heartbeat; a resumed crawl need not wait for that.
            await self.frontier.maintain()
        started = time.monotonic()
        worked = await work(
            settings,
            self.frontier,
            self.address,
            Assignment(plan.crawl.pool, spiders_for(plan), run, reader=self.reader),
            observer=self.observer,
            control=self.control,
        )
        result = CrawlResult(
            plan.crawl.id.crawlid,
            None,
            worked.tally,
            time.monotonic() - started,
            settings.crawl.output_paths,
            interrupted=self.control.was_interrupted,
            missing=missing,
            unwritten=bool(worked.fault),
            asset_folder=asset_folder(settings),
        )
        await self._add_final_state(result)
        if worked.fault:
            result.notes.append(worked.fault)
        if result.finished:  # else the command that resumes the run needs the counts of what was written
            forget_written(settings, run)
        return result

    async def _add_final_state(self, result: CrawlResult) -> None:
        """Add the state of the crawl in the frontier."""
        try:
            await self.frontier.check_data()
            result.info = await self.frontier.crawl_info(self.plan.crawl.id)
        except FrontierError as error:
            result.notes.append(str(error))
        if self.frontier.lost_shards:
            result.lost = True
            result.notes.append(
                "The queued requests are gone. The same command starts the crawl again."
                if result.info is None
                else "Some of the queued requests are gone. To fetch everything, start again with another --crawl-id."
            )

    def _note(self, run: Run, beside: Sequence[str]) -> CrawlNote:
        """Return what `gossamer why` and the next start need to know of this crawl, with absolute paths."""
        fetch = self.settings.fetch
        return CrawlNote(
            run=run,
            terms=self.plan.terms,
            spider=self.plan.spider,
            outputs=tuple(map(_absolute, self.settings.crawl.output_paths)),
            item_outputs=tuple(map(_absolute, _item_outputs(self.settings))),
            assets_in=tuple(map(_absolute, asset_places(self.settings))),
            beside=tuple(beside),
            resolve=fetch.resolve,
            ca_file=os.path.abspath(fetch.ca_file) if fetch.ca_file else "",
            resume_command=self.start.resume_command,
        )


def _item_outputs(settings: Settings) -> tuple[str, ...]:
    """Return those of the outputs that take only items."""
    tables = table_options(settings)
    return tuple(output.path for output in settings.crawl.output if kind_of(output, tables) == "items")


def _absolute(path: str) -> str:
    """Return the absolute path of an output; URLs and standard output (-) stay as they are."""
    return path if path == "-" or "://" in path else os.path.abspath(path)


def _existing(outputs: Sequence[str]) -> tuple[str, ...]:
    """Return the outputs of a note that still exist or cannot be checked, relative to this folder if they are in it."""
    here = os.getcwd() + os.sep
    return tuple(path.removeprefix(here) for path in outputs if path == "-" or "://" in path or os.path.exists(path))


def can_retry(plan: Plan, info: CrawlInfo) -> bool:
    """Return whether a finished crawl has failed requests to retry, and may still fetch pages."""
    is_full = plan.crawl.max_pages is not None and info.pages.fetched >= plan.crawl.max_pages
    return info.state is CrawlState.FINISHED and info.kept_failed > 0 and not is_full


def spiders_for(plan: Plan) -> list[str]:
    """Return the crawl's spider, then all others that are installed: a spider may send pages to any of them."""
    spider = plan.loaded_spider
    return list(dict.fromkeys((spider.reference, *spider.siblings, *known_spiders())))
