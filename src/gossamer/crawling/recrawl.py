"""Rounds of a crawl that is kept up to date: which pages a run visits, and what a round has found (ADR 25).

The page index knows when each page was fetched and how often it changes. A round is one run of the crawl in the
frontier (the store of requests that wait), with an empty seen-set. A run ends when nothing of it is left, and the
round ends after it.

Fixed: the round is in the index before its pages enter the frontier, and ends in the index after its run. Between the
two, the same command finds the round and enters what is left of it; what has entered before counts as a duplicate.
"""

import asyncio
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress

import msgspec

from gossamer.crawling import engine
from gossamer.crawling.outputs import StartOptions
from gossamer.crawling.visits import Visits
from gossamer.crawling.work import CrawlResult, Observer, WorkControl
from gossamer.errors import BadInput, OutputClosed, SinkError
from gossamer.fresh.index import PageIndex, Round
from gossamer.fresh.page import Change, IndexedPage
from gossamer.fresh.rounds import RoundPlanner, RoundSize, shortfall_sentence
from gossamer.fresh.scopes import SCOPE_FIELDS, TAKEN_FIELDS, ScopeChange, page_test
from gossamer.model.info import summed
from gossamer.net.credentials import hide_secrets
from gossamer.option_names import named
from gossamer.policy.words import counted, duration_text
from gossamer.settings import Settings
from gossamer.sinks.base import Sink
from gossamer.wiring.plan import Plan
from gossamer.wiring.recrawling import TURN_SECONDS, open_index

_PAUSE_SECONDS = 1.0
"""Shortest time between two rounds, and between two looks whether a page is due."""
_POLL_SECONDS = 0.2
"""Interval at which a crawl that waits looks whether it is interrupted."""
_FAILED_POLLS = 25
"""Such looks between two attempts while the index or an output is away."""


class RoundResult(msgspec.Struct):
    """Result of the last round that a command has done, and the changes of all."""

    crawl: CrawlResult
    changes: dict[str, int]
    """Number of changes that were noted meanwhile, by kind."""


class Recrawl:
    """A crawl that is kept up to date, as one command does it."""

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        start: StartOptions,
        *,
        observer: Observer,
        control: WorkControl,
        program: str,
        reader: Sink | None = None,
    ) -> None:
        """Arguments as those of `engine.run_crawl`. Raises BadInput for a budget that cannot be read."""
        self._settings = settings
        self._plan = plan
        self._start = start
        self._observer = observer
        self._control = control
        self._program = program
        self._reader = reader
        self._is_endless = settings.crawl.recrawl
        self._has_begun = False
        self._place = hide_secrets(settings.frontier) or f"{socket.gethostname()}:{settings.data_dir.resolve()}"
        """Name of the frontier, for a person."""
        self._last: CrawlResult | None = None
        """Result of the last run. None: none has begun to work."""
        self._whole: CrawlResult | None = None
        """Result of all rounds of a crawl without an end."""
        self._is_failing = False
        """True: the last round was broken off, because the index or an output is away."""
        self._read = 0
        """Cursor of the last change that `new_changes` has yielded."""
        self._told: set[str] = set()
        """Domains about whose budget a person was told."""

    async def run(self) -> RoundResult:
        """Do one round, or rounds until the command is interrupted. The rest of an interrupted round comes first.
        Raises as `engine.run_crawl`."""
        index = await asyncio.to_thread(open_index, self._settings, self._plan.crawl.id, self._plan.terms)
        assert self._plan.terms.recrawl is not None
        visits_all = self._settings.crawl.recrawl_all
        planner = RoundPlanner(index, self._plan.terms.recrawl, is_endless=self._is_endless, visits_all=visits_all)
        keeping = asyncio.create_task(self._keep_turn())
        try:
            await asyncio.to_thread(self._take_turn, index)
            cursor = self._read = await asyncio.to_thread(index.last_change)
            self._has_begun = True
            await self._adopt_scope(index)
            while True:
                try:
                    found = await self._next_round(index, planner, cursor)
                except SinkError as error:
                    # Nothing was done yet, or the next command will do the rest.
                    if not self._is_endless or self._last is None or isinstance(error, OutputClosed):
                        raise
                    found = RoundResult(self._whole or self._last, {})
                    await self._wait_after(error)
                else:
                    self._is_failing = False
                result = found.crawl
                if self._control.was_interrupted:  # by now: the round may have been over before
                    result.interrupted = True
                if not self._is_endless or result.interrupted or result.lost:
                    return found
                self._control.set_working()
        finally:
            keeping.cancel()
            with suppress(SinkError):  # then it ends by itself
                await asyncio.to_thread(index.end_turn, self._place)
            index.close()

    def _take_turn(self, index: PageIndex) -> None:
        """Have the index for this frontier. Raises BadInput while commands with another frontier have it: each would
        take the open round of the other one for one that its frontier has lost, and visit all pages again."""
        now = time.time()
        if not index.take_turn(self._place, now=now, seconds=TURN_SECONDS):
            other = index.other_owner(self._place, now=now, seconds=TURN_SECONDS)
            raise BadInput(
                f"a command with the frontier of {other or 'another place'} keeps the crawl up to date by this index. "
                "Use that frontier or data directory, or name another index. If that command was killed, repeat this "
                f"one in {TURN_SECONDS:.0f} seconds.",
                option="index",
            )

    async def _keep_turn(self) -> None:
        """Go on having the index, by connections of its own."""
        while True:
            await asyncio.sleep(TURN_SECONDS / 3)
            with suppress(SinkError, BadInput):  # the crawl itself waits until the index is back
                await asyncio.to_thread(self._renew_turn)

    def _renew_turn(self) -> None:
        with closing(open_index(self._settings, self._plan.crawl.id, self._plan.terms)) as index:
            self._take_turn(index)

    async def _next_round(self, index: PageIndex, planner: RoundPlanner, cursor: int) -> RoundResult:
        """Do a round, and decide about the next visits; in a crawl without an end, wait until one is due. `cursor`: the
        last change before this command."""
        result = await self._run_round(index, planner)
        if self._is_endless:
            result.is_endless = True
            self._whole = result = result if self._whole is None else _together(self._whole, result)
        found = RoundResult(result, await asyncio.to_thread(index.count_changes, cursor))
        if not self._is_endless:
            visits_all = self._settings.crawl.recrawl_all
            result.notes += await asyncio.to_thread(_size_sentences, index, planner.size, visits_all)
        if not self._control.was_interrupted and not result.lost:
            await self._plan_visits(planner)
            if self._is_endless:
                await self._wait_until_due(planner)
        return found

    async def _wait_after(self, error: SinkError) -> None:
        """Tell once that the index or an output is away, and wait a moment. Then the round goes on as after a kill."""
        if not self._is_failing:
            self._is_failing = True
            self._observer.say(f"{error.detail or error}. Waiting until it can be used again; nothing is lost.")
        for _ in range(_FAILED_POLLS):
            if not self._control.was_interrupted:
                await asyncio.sleep(_POLL_SECONDS)

    async def _adopt_scope(self, index: PageIndex) -> None:
        """Forget the pages that are out of scope now, let all be read again if something else is taken from them, and
        tell how many."""
        terms, seeds = self._plan.terms, {index.key(url) for url in self._plan.seeds}
        is_inside = page_test(terms)

        def keeps(page: IndexedPage) -> bool:
            return is_inside(page) or page.key in seeds

        def adopt(fact: str, fields: Sequence[str]) -> ScopeChange | None:
            text = msgspec.json.encode([getattr(terms, name) for name in fields]).decode()
            return index.adopt_scope(text, keeps, fact=fact)

        changed = await asyncio.to_thread(adopt, "scope", SCOPE_FIELDS)
        taken = await asyncio.to_thread(adopt, "taken", TAKEN_FIELDS)
        if changed is None and taken is not None:
            self._observer.say(
                f"The crawl takes something else from its pages than before. {counted(taken.kept, 'page')} will be "
                "fetched without conditions, so that it takes it from all."
            )
        if changed is not None:
            self._observer.say(f"The crawl has another scope or depth than before. {changed.sentence}")

    def new_changes(self) -> Iterator[Change]:
        """Yield the changes that were noted since `run` began or this was called last. Any thread may call it."""
        if not self._has_begun:
            return
        index = open_index(self._settings, self._plan.crawl.id, self._plan.terms)
        try:
            while found := index.changes(self._read):
                for change in found:
                    self._read = change.cursor
                    yield change
        finally:
            index.close()

    async def _run_round(self, index: PageIndex, planner: RoundPlanner) -> CrawlResult:
        """Do one round, or the rest of an interrupted one; if nothing is left of that, the next one."""
        opened = await asyncio.to_thread(index.open_round)
        has_page = await asyncio.to_thread(index.has_page)
        current = opened if opened is not None else await asyncio.to_thread(planner.begin)
        result = await self._visit(index, current, planner)
        if result.already_finished:  # the run was over, or nothing is due
            await asyncio.to_thread(planner.end, current)
            if opened is not None:
                current = await asyncio.to_thread(planner.begin)
                result = await self._visit(index, current, planner)
        is_over = result.finished and not result.interrupted and not result.already_finished
        # In a crawl without an end, later rounds visit pages of which a change is announced, or that are missing.
        if is_over and not self._is_endless and (await asyncio.to_thread(planner.visit_announced, current)) > 0:
            result = _together(result, await self._visit(index, current, planner, retries_seeds=False))
            is_over = result.finished and not result.interrupted
        if is_over and not self._is_endless and (missing := await asyncio.to_thread(planner.confirm_missing, current)):
            confirmed = await self._visit(index, current, planner, retries_seeds=False)
            is_over = confirmed.finished and not confirmed.interrupted
            # Not among the counts, where each missing page would have failed twice.
            which = f"{counted(missing, 'missing page')} {'was' if missing == 1 else 'were'}"
            result.notes.append(
                f"{which} visited once more, before {'it counts' if missing == 1 else 'they count'} as gone."
            )
        if is_over or (result.already_finished and opened is not None):
            await asyncio.to_thread(planner.end, current)
        result.may_be_empty = has_page
        return result

    async def _visit(
        self, index: PageIndex, current: Round, planner: RoundPlanner, *, retries_seeds: bool = True
    ) -> CrawlResult:
        visits = Visits(index, current, self._plan, planner, retries_seeds=retries_seeds and not self._is_endless)
        self._last = await engine.run_crawl(
            self._settings,
            self._plan,
            start=msgspec.structs.replace(self._start, round=visits, append=True),
            observer=self._observer,
            control=self._control,
            program=self._program,
            reader=self._reader,
        )
        return self._last

    async def _plan_visits(self, planner: RoundPlanner) -> None:
        """Decide anew how often the pages are visited, now and then, and tell about a budget that is too small."""
        options = self._plan.terms.recrawl
        for one in await asyncio.to_thread(planner.plan):
            if one.name not in self._told and options is not None:
                self._told.add(one.name)
                self._observer.say(shortfall_sentence(one.name, one.pages, one.visits_a_day, options.longest))

    async def _wait_until_due(self, planner: RoundPlanner) -> None:
        """Wait until a page is due, at least a moment, or the command is interrupted."""
        look = time.monotonic() + _PAUSE_SECONDS
        while not self._control.was_interrupted:
            if time.monotonic() >= look:
                due = await asyncio.to_thread(planner.next_due)
                if due is not None and due <= time.time():
                    return
                look = time.monotonic() + _PAUSE_SECONDS
            await asyncio.sleep(_POLL_SECONDS)


def _together(first: CrawlResult, second: CrawlResult) -> CrawlResult:
    """Return the result of two runs of one command."""
    info = second.info
    if info is not None and first.info is not None:
        both = first.info.spiders, info.spiders
        spiders = {name: summed(one[name] for one in both if name in one) for name in both[0] | both[1]}
        info = msgspec.structs.replace(info, spiders=spiders, started=first.info.started)
    return msgspec.structs.replace(
        second,
        info=info,
        tally=first.tally.plus(second.tally),
        seconds=first.seconds + second.seconds,
        missing=first.missing | second.missing,
        unwritten=first.unwritten or second.unwritten,
        already_finished=first.already_finished and second.already_finished,
    )


def _size_sentences(index: PageIndex, size: RoundSize, visits_all: bool) -> list[str]:
    """Return how many pages were due in a single round, for a person. Empty: it was the first one, or the rest of an
    interrupted one; or, with `visits_all`, the budget allowed to visit all pages."""
    if not size.pages:
        return []
    if visits_all:
        return (
            [f"The budget allowed {counted(size.most, 'visit')} of {counted(size.pages, 'page')}."]
            if size.most < size.pages
            else []
        )
    sentence = f"{size.due:,} of {counted(size.pages, 'page')} {'was' if size.due == 1 else 'were'} due."
    if size.most < size.due:
        sentence += f" The budget allowed {counted(size.most, 'visit')}."
    elif not size.due and (due := index.next_due()) is not None and due > time.time():
        wait = duration_text(due - time.time())
        sentence += f" The next one is due in {wait}; {named('recrawl_all', True)} visits all."
    return [sentence]


def changes_sentence(changes: dict[str, int]) -> str:
    """Return what a round has found, for a person."""
    told = [f"{count:,} {kind}" for kind, count in changes.items() if count]
    if not told:
        return "Nothing has changed."
    total = counted(sum(changes.values()), "change")
    return f"{total}: {', '.join(told)}. gossamer crawls changes lists them."
