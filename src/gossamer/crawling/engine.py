"""Runs a crawl from its seeds to its end, for commands and for programs: prepares it, opens or resumes it, fetches.

The requests of a crawl are in the frontier, a Valkey server, so that the same call resumes an interrupted crawl. Each
life of a crawl, from its first request to its end, is a run; a crawl that is crawled again has another one. The note of
a crawl is a file in the data directory, in which a command leaves what later ones need to know of it. This module
prints nothing: an observer gets progress and sentences, and the result says what happened.

Fixed: the order of the steps in `_Crawling`: a kill between two of them must leave a crawl that the same call
resumes.
"""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import msgspec

from gossamer.crawling.outputs import (
    ExistingOutputs,
    StartOptions,
    check_data_dir,
    find_contents,
    find_existing,
    item_outputs,
    lack_of_links,
    may_be_made,
)
from gossamer.crawling.seeds import find_private_hosts, gather_seeds
from gossamer.crawling.work import (
    Assignment,
    CrawlReport,
    CrawlResult,
    Observer,
    WorkControl,
    add_report,
    check_report,
    delete_old_pages,
    kept_pages,
    work,
)
from gossamer.errors import BadInput, CrawlRefused, FrontierError, SinkError
from gossamer.fetch.proxies import resolve_names
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.assets import ALL, ASSET_SPIDER
from gossamer.model.crawl import CrawlState, Run
from gossamer.model.info import CrawlInfo
from gossamer.model.record import Destination
from gossamer.model.request import DropReason
from gossamer.net.credentials import hide_secrets
from gossamer.option_names import named
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.sinks.base import Sink
from gossamer.sinks.open import check_outputs, write_empty
from gossamer.sinks.stores.address import is_store
from gossamer.telemetry.tally import Tally
from gossamer.wiring.frontier import (
    CrawlNote,
    KnownWriters,
    absolute_path,
    connect,
    existing_paths,
    frontier_address,
    gone_outputs,
    made_outputs,
    read_note,
    seeds_digest,
    warn_of_servers,
    write_note,
)
from gossamer.wiring.outputs import (
    finish_left_outputs,
    finish_outputs,
    forget_written,
    missing_records,
    missing_sentence,
    spool_folder,
    table_options,
)
from gossamer.wiring.plan import (
    Plan,
    asset_folder,
    asset_places,
    check_assets,
    check_recrawl,
    check_settings,
    index_address,
    keeps_index,
    make_plan,
    no_new_beginning,
)
from gossamer.wiring.processes import with_process_count
from gossamer.wiring.worker import make_resolver
from gossamer.worker.loading import find_spider, known_spiders, make_spider


async def prepare(
    settings: Settings,
    urls: Sequence[str],
    sources: Sequence[str],
    *,
    crawl_id: str | None,
    replaces: bool = False,
    fresh: bool = False,
    say: Callable[[str], None] | None = None,
) -> Plan:
    """Return the plan of a crawl: its id, options and seeds, the URLs that it starts from.

    Checks everything that can be checked before the start. `urls` and `sources`: see `gather_seeds`. `replaces`: the
    outputs begin empty, so that tables may have other columns. `fresh`: a finished crawl begins anew. `say` shows a
    sentence to a person if there are many look-ups. Raises BadInput.
    """
    check_settings(settings)
    if settings.crawl.output and "output" in settings.crawl.given:  # else the default, which depends on the seeds
        check_outputs(settings.crawl.output, tables=table_options(settings), replaces=replaces)
    check_assets(settings)
    check_recrawl(settings, fresh=fresh)
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
            look_up_names=not resolve_names(settings.fetch.proxy),  # such a proxy looks the names up itself
            say=say,
        )
        if private:  # made again, because the look-up needed the seeds of the first plan
            plan = make_plan(settings, seeds, crawl_id=crawl_id, now=time.time(), private_hosts=private)
        note = read_note(settings.data_dir, plan.crawl.id.crawlid) if fresh else None
        if note is not None and note.index:
            raise no_new_beginning()
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
    settings = with_process_count(settings, plan)
    name = f"{program} {plan.crawl.id.crawlid}"
    report = CrawlReport.of(settings, plan.crawl.id)
    if report is not None:
        settings = report.with_output(settings)
    delete_old_pages(settings.data_dir, now=time.time(), spared=plan.crawl.id)
    async with frontier_address(settings, name=name, on_trouble=observer.say) as address:
        frontier = await connect(settings, address)
        warn_of_servers(frontier, observer.say)
        try:
            result = await _Crawling(settings, plan, start, frontier, address, observer, control, reader).run()
        finally:
            await frontier.close()
    find_contents(result, settings)
    if report is not None:
        await add_report(result, report)
    return result


class _OpenedRun(NamedTuple):
    """A run that was opened or continued, and what the start has queued in it."""

    run: Run
    new_seeds: int
    retried: int
    """Failed requests of earlier commands that are queued again."""


class _Crawling(msgspec.Struct):
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
        identity = self.plan.crawl.id
        before = await self.frontier.crawl_info(identity)
        forgotten = before is not None and self._is_forgotten(before)
        if forgotten:
            before = None
        if (visits := self.start.round) is not None:
            is_running = before is not None and before.state is CrawlState.RUNNING
            if not await visits.has_visits(is_known=before is not None or forgotten) and not is_running:
                return CrawlResult(identity.crawlid, before, Tally(), 0.0, (), already_finished=True)
            self.start = msgspec.structs.replace(self.start, fresh=not is_running)
        fresh = self.start.fresh
        state = None if before is None else before.state
        note = read_note(self.settings.data_dir, identity.crawlid)
        # A round of visits is fresh without having been asked to.
        left = {} if note is None or (fresh and visits is None) else await self._finish_left(note)
        if before is not None and not fresh and (lack := lack_of_links(note, self.plan.terms, before)):
            self.observer.say(lack)
        if before is not None and state in (CrawlState.FINISHED, CrawlState.EXPIRED):
            if not fresh and not failed_to_retry(self.plan, before, guard_changed=self._guard_changed(note)):
                return await self._already_finished(before, [*left.values()])
        elif before is not None and state is CrawlState.RUNNING and fresh and before.total().added:
            # Not without a request: a command with --fresh was killed before it added any, so this one continues.
            raise BadInput(
                f"the crawl {identity.crawlid} is not finished. Resume it without {named('fresh', True)}, or "
                f"name another {named('crawl_id')}.",
                option="fresh",
            )
        later = CrawlResult(identity.crawlid, before, Tally(), 0.0, (), unwritten=bool(left), notes=[*left.values()])
        if state is CrawlState.FINISHED and note is not None and self.start.named_outputs and not fresh:
            # What is fetched now is added to new outputs; what the crawl has fetched before comes first.
            await self._make_later_outputs(later, note, [one for one in self.settings.crawl.output if may_be_made(one)])
        run, new_seeds, retried = await self._open(before, forgotten=forgotten, left=left)
        if visits is not None and not new_seeds and not (before and state is CrawlState.RUNNING):
            # Another command has visited them meanwhile. A run without a request has no end; the next round joins it.
            return CrawlResult(identity.crawlid, before, Tally(), 0.0, (), already_finished=True)
        retrying = f"retrying {counted(retried, 'failed URL')}"
        if before is not None and state is CrawlState.RUNNING:
            done = before.total().done
            to_do = before.total().added - done
            more = f"; {retrying}" if retried else ""
            verb = "Joining" if self.settings.frontier and await self.frontier.workers() else "Resuming"
            self.observer.say(f"{verb} {identity.crawlid}: {done:,} done, {to_do:,} to do{more}.")
            self._warn_of_absent_spiders(before)
        elif retried:
            self.observer.say(f"The crawl {identity.crawlid} is finished; {retrying}.")
        elif not new_seeds:
            self.observer.say("All given URLs were added before.")
        if before is not None and before.assets.added and not self.settings.crawl.assets:
            # The crawl is resumed by its name, without --assets: the assets that wait need a place, too.
            self.settings = self.settings.copy(crawl=self.settings.crawl.copy(assets=(ALL,)))
        result = await self._work(run)
        result.retried, result.notes = retried, [*later.notes, *result.notes]
        result.unwritten = result.unwritten or later.unwritten
        self._note_end(result)
        return result

    def _note_end(self, result: CrawlResult) -> None:
        """Enter the outputs, and the records that vanished from them, in the note. Add those to the result that
        commands found which this one has continued to the end."""
        if (note := read_note(self.settings.data_dir, self.plan.crawl.id.crawlid)) is None:
            return
        missing = note.missing + result.missing_records
        if result.finished and self.start.round is None:
            result.missing[""] = note.missing
        try:
            self._note_made(note, missing=missing)
        except BadInput as error:  # the work is done, and its summary counts more
            result.notes.append(str(error))

    def _guard_changed(self, note: CrawlNote | None) -> bool:
        """Return whether other options decide about private addresses than at the latest start of the crawl, so that
        requests which were refused then may be fetched now. `note`: of that start; None: it is not known."""
        if note is None:
            return True
        fetch, terms = self.settings.fetch, self.plan.terms
        before = (note.resolve, note.allow_networks, set(note.terms.private_hosts), note.terms.proxy)
        return before != (fetch.resolve, self.settings.allow_networks, set(terms.private_hosts), terms.proxy)

    def _note_made(self, note: CrawlNote, *, missing: int | None = None) -> CrawlNote:
        """Enter in the note which outputs exist now, and return it: they alone can be gone at a later start. `missing`:
        number of records that have vanished from them. None: as noted before."""
        made = made_outputs(self.settings.data_dir, note)
        noted = msgspec.structs.replace(note, made=made, missing=note.missing if missing is None else missing)
        if noted != note:
            write_note(self.settings.data_dir, noted, is_start=False)
        return noted

    def _is_forgotten(self, info: CrawlInfo) -> bool:
        """Return whether a crawl ended longer ago than crawls are remembered.

        The frontier deletes such a crawl only while a worker runs, and its own time may stand still while its server
        is down. Raises BadInput for a crawl of which the frontier has a part only.
        """
        if info.is_paused:
            raise BadInput(
                f"the crawl {info.crawl.crawlid} is paused, because it was exported or a person paused it. gossamer "
                "crawls resume lets it go on here."
            )
        if info.is_rebuilt:
            raise BadInput(
                f"the frontier of the crawl {info.crawl.crawlid} was lost, and is not filled again completely. Repeat "
                "the gossamer crawls rebuild command, then this one."
            )
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

    async def _finish_left(self, note: CrawlNote) -> dict[str, str]:
        """Finish what an earlier command left for outputs that are not named now, and tell of it. Return, by output,
        why it could not be finished."""
        left = await finish_left_outputs(self.settings, note)
        for path in (path for path, fault in left.items() if not fault):
            self.observer.say(f"{hide_secrets(path)} has got the records that an earlier command left for it.")
        return {path: fault for path, fault in left.items() if fault}

    async def _already_finished(self, info: CrawlInfo, faults: list[str]) -> CrawlResult:
        """Return the result of a crawl that has ended. Finish outputs that an earlier command could not. `faults`: of
        former outputs."""
        crawl_id = self.plan.crawl.id.crawlid
        note = read_note(self.settings.data_dir, crawl_id)
        outputs = existing_paths(note.outputs) if note else ()
        result = CrawlResult(crawl_id, info, Tally(), 0.0, outputs, already_finished=True)
        result.notes, result.unwritten = faults, bool(faults)
        result.item_outputs = existing_paths(note.item_outputs) if note else ()
        if note is not None and info.assets.fetched:
            self._tell_of_assets(result, note, info.assets.fetched)
        try:
            await finish_outputs(self.settings)
        except SinkError as error:
            result.unwritten = True
            result.notes.insert(0, error.detail)
        if note is not None:
            result.missing = {"": note.missing}
            note = self._note_made(note)
            gone = gone_outputs(note, self.settings.crawl.output_paths)
            result.unwritten = result.unwritten or bool(gone)
            result.notes += [f"{path} is gone; crawl again with {named('fresh', True)}." for path in gone]
            if self.start.named_outputs:
                await self._make_later_outputs(result, note, self.settings.crawl.output)
        return result

    def _tell_of_assets(self, result: CrawlResult, note: CrawlNote, fetched: int) -> None:
        """Name the place of the assets, which were fetched before, and the places of the options that have none."""
        folder = next((path for path in note.assets_in if os.path.isdir(path)), "")
        result.asset_folder = "".join(existing_paths([folder])) if folder else ""
        # WARC files are made from the outputs: without a folder, from a WARC file that has the assets.
        wanted = asset_places(self.settings) if folder else [asset_folder(self.settings)]
        lacking = [path for path in wanted if path and absolute_path(path) not in note.assets_in]
        if lacking and (places := existing_paths(note.assets_in)):
            are = f"{counted(fetched, 'asset')} {'is' if fetched == 1 else 'are'}"
            result.notes.append(
                f"The {are} in {', '.join(places)}, not in {', '.join(lacking)}; "
                f"{named('fresh', True)} fetches them again."
            )

    async def _make_later_outputs(
        self, result: CrawlResult, note: CrawlNote, destinations: Sequence[Destination]
    ) -> None:
        """Make those of the outputs that are named now for the first time, from those that the finished crawl has."""
        from gossamer.crawling.later_outputs import FinishedCrawl, make_outputs  # imported late: most crawls name none

        crawl = FinishedCrawl(result.crawl_id, note.outputs, self.settings)
        # The file for a report is in the data directory; the report has sentences of its own about it.
        private = [output for output in destinations if self._is_private(output.path)]
        named = [output for output in destinations if output not in private]
        await make_outputs(private, crawl, say=self.observer.say)
        later = await make_outputs(named, crawl, say=self.observer.say)
        result.outputs, result.item_outputs = (*result.outputs, *later.made), (*result.item_outputs, *later.of_items)
        result.notes += later.notes
        result.unwritten = result.unwritten or later.failed
        if later.made:
            outputs = (*note.outputs, *(absolute_path(path) for path in later.made if path != "-"))
            with_items = (*note.item_outputs, *map(absolute_path, (*item_outputs(self.settings), *later.of_items)))
            mixed = (*note.mixed_outputs, *map(absolute_path, later.mixed))
            changed = {"outputs": outputs, "item_outputs": tuple(dict.fromkeys(with_items)), "mixed_outputs": mixed}
            write_note(self.settings.data_dir, note := msgspec.structs.replace(note, **changed), is_start=False)
            self._note_made(note)

    def _is_private(self, path: str) -> bool:
        """Return whether an output is in the data directory: that of a report, which no person has named."""
        return absolute_path(path).startswith(absolute_path(str(self.settings.data_dir)) + os.sep)

    async def _open(self, before: CrawlInfo | None, *, forgotten: bool, left: Collection[str]) -> _OpenedRun:
        """Open a run in the frontier, or continue the running one, and add the seeds. `before`: the crawl until now;
        None: the frontier does not know it, or its time is over (`forgotten`). `left`: outputs to finish later.

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
        known = KnownWriters(self.settings.data_dir, plan.crawl.id.crawlid, seeds_digest(plan.seeds))
        existing = await asyncio.to_thread(find_existing, outputs, asset_folder(self.settings), known, start)
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
            for url in existing.replaced_remotely:
                self.observer.say(
                    f"{url} exists, and this crawl is not known to have written it: {named('fresh', True)} replaces it."
                )
            await asyncio.to_thread(self._empty_outputs, existing, is_new=is_new)
            await asyncio.to_thread(known.forget, existing.replaced)
            if before is not None and not start.fresh:
                kept = "" if self._guard_changed(note) else DropReason.BLOCKED_ADDRESS
                run, retried = await self.frontier.retry_failed(run, plan.terms, keep_reason=kept)
            if start.round is not None:
                new_seeds = await start.round.enter(self.frontier, run)
            else:
                for batches in plan.batches(self.frontier.secret):
                    new_seeds += (await self.frontier.add(run, plan.terms, batches, seeds=True)).added
            beside = sorted({*existing.beside, *(note.beside if note else ())})
            noted = crawl_note(
                self.settings,
                plan,
                run,
                beside=beside,
                foreign=existing.foreign,
                earlier=note if before is not None and not start.replaces_outputs else None,
                resume_command=start.resume_command,
            )
            noted.outputs += tuple(left)
            noted.item_outputs += tuple(path for path in left if note and path in note.item_outputs)
            write_note(self.settings.data_dir, noted)
        except CrawlRefused as error:
            raise CrawlRefused(f"{error.detail}; another {named('crawl_id')} starts a new one") from None
        return _OpenedRun(run, new_seeds, retried)

    def _tell_of_earlier_records(self, existing: ExistingOutputs) -> None:
        """Tell which outputs of a new crawl already hold records, to which the new ones are added."""
        kept = [path for path in existing.sizes if path not in existing.failed_only and not self._is_private(path)]
        if kept:
            self.observer.say(
                f"{', '.join(kept)} has records of an earlier start of this crawl; the new ones are added. "
                f"{named('fresh', True)} begins with an empty file. If the frontier was lost, gossamer crawls rebuild "
                "lets the crawl go on where it was."
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
        existing.empty(emptied, settings, self.plan.crawl.id.crawlid)
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
            # The workers of an earlier command ended with its embedded server: none of them calls again.
            await self.frontier.reclaim_all()
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
            if not result.unwritten and not result.missing_records:
                await self._write_empty_outputs(result)
        return result

    async def _write_empty_outputs(self, result: CrawlResult) -> None:
        """Make the outputs for items of which none was found: files without records."""
        if result.tally.items:
            return
        named, tables, folder = item_outputs(self.settings), table_options(self.settings), spool_folder(self.settings)
        try:
            for output in self.settings.crawl.output:
                if output.path in named and await asyncio.to_thread(write_empty, output, tables, spool_dir=folder):
                    result.empty_outputs = (*result.empty_outputs, output.path)
        except SinkError as error:
            result.unwritten = True
            result.notes.append(error.detail)

    async def _add_final_state(self, result: CrawlResult) -> None:
        """Add the state of the crawl in the frontier."""
        try:
            await self.frontier.check_data()
            result.info = await self.frontier.crawl_info(self.plan.crawl.id)
        except FrontierError as error:
            result.notes.append(str(error))
        if result.info and result.info.repairs:
            result.lost = True
            lost = counted(result.info.total().dropped.get(DropReason.LOST, 0), "request")
            result.notes.append(
                f"The frontier's server lost a part of its append-only file: {lost} and perhaps further ones are gone. "
                f"{named('fresh', True)} fetches everything again."
            )
        if self.frontier.lost_shards:
            result.lost = True
            result.notes.append(
                "The queued requests are gone. gossamer crawls rebuild, with the options of this command, fills them "
                "in again from the records; without it, the same command starts the crawl again."
                if result.info is None
                else "Some of the queued requests are gone. To fetch everything, start again with another "
                f"{named('crawl_id')}."
            )


def crawl_note(
    settings: Settings,
    plan: Plan,
    run: Run,
    *,
    beside: Sequence[str] = (),
    foreign: Sequence[str] = (),
    earlier: CrawlNote | None = None,
    resume_command: str = "",
) -> CrawlNote:
    """Return what `gossamer why` and the next start need to know of a crawl, with absolute paths. `earlier`: the note
    of the start whose records stay; None: none do. The other arguments are fields of the note."""
    fetch = settings.fetch
    return CrawlNote(
        run=run,
        terms=plan.terms,
        spider=plan.spider,
        outputs=tuple(map(absolute_path, settings.crawl.output_paths)),
        item_outputs=tuple(map(absolute_path, item_outputs(settings))),
        mixed_outputs=earlier.mixed_outputs if earlier is not None else (),
        missing=earlier.missing if earlier is not None else 0,
        assets_in=tuple(map(absolute_path, asset_places(settings))),
        beside=tuple(beside),
        foreign=tuple(foreign),
        seeds=seeds_digest(plan.seeds),
        resolve=fetch.resolve,
        allow_networks=settings.allow_networks,
        ca_file=os.path.abspath(fetch.ca_file) if fetch.ca_file else "",
        resume_command=resume_command,
        index=_noted_index(settings, plan),
        is_endless=settings.crawl.recrawl,
        without_links=earlier is not None and earlier.lacks_links,
    )


def _noted_index(settings: Settings, plan: Plan) -> str:
    """Return the page index as notes name it. Empty: the crawl has none."""
    address = index_address(settings, plan.crawl.id) if keeps_index(settings) else ""
    return os.path.abspath(address) if address and not is_store(address) else address


def failed_to_retry(plan: Plan, info: CrawlInfo, *, guard_changed: bool) -> int:
    """Return how many failed requests of a finished crawl its next start retries, if it may still fetch pages.

    `guard_changed`: other options decide then about private addresses; else requests that were refused for such an
    address are not repeated, because they would be refused again."""
    most = plan.crawl.max_pages
    if info.state is not CrawlState.FINISHED or (most is not None and info.pages.fetched >= most):
        return 0
    refused = 0 if guard_changed else info.total().dropped.get(DropReason.BLOCKED_ADDRESS, 0)
    return max(0, info.kept_failed - refused)


def spiders_for(plan: Plan) -> list[str]:
    """Return the crawl's spider, then all others that are installed: a spider may send pages to any of them."""
    spider = plan.loaded_spider
    return list(dict.fromkeys((spider.reference, *spider.siblings, *known_spiders())))
