"""The frontier in plain Python: what its contract says, with lists and dictionaries, no server and no hurry.

It predicts where the contract decides and judges where it leaves a choice: which domain comes first, or when a
request whose submission has expired is noticed, is the frontier's own affair, but what it hands out must be due, in
its queue's order and within every budget. AssertionError: the frontier broke a promise.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from gossamer.frontier.base import AddResult, RedirectPermit
from gossamer.frontier.lifecycle import FINAL, RequestEvent, RequestStatus, advance
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, Order, Run, Terms
from gossamer.model.info import CrawlInfo, SpiderCounts
from gossamer.model.request import MAX_DEATHS, Batch, Lease, Outcome, Settlement

from .politeness import Politeness

DOUBT_HEARTBEATS = 5
"""A request that is to be given up for its workers' deaths waits so long: one of them may speak again."""
MOST_SILENT = 10
"""A request is given up after so many workers were taken for dead with it, whether they spoke again or not."""

RETRY_PENALTY = 10

_EVENTS = {
    Outcome.FETCHED: RequestEvent.FETCH,
    Outcome.FAILED: RequestEvent.FAIL,
    Outcome.DROPPED: RequestEvent.DROP,
    Outcome.RETRY: RequestEvent.RETRY,
    Outcome.POSTPONED: RequestEvent.POSTPONE,
    Outcome.RETURNED: RequestEvent.RETURN,
    Outcome.FORWARDED: RequestEvent.FORWARD,
    Outcome.SWITCHED: RequestEvent.SWITCH,
}

LeaseKey = tuple[int, int]


def _ends_with(state: str) -> RequestEvent:
    """What happens to the requests of a crawl, or of a spider's part, that has ended in this state."""
    return RequestEvent.EXPIRE if state == CrawlState.EXPIRED else RequestEvent.STOP


@dataclass(eq=False)
class Entry:
    """One request, from its submission to its end."""

    spider: str
    domain: str
    url: str
    fingerprint: int
    priority: int
    depth: int
    terms: Terms
    payload: bytes | None
    render: bool = False
    """In the lane of workers with a browser."""
    status: RequestStatus = RequestStatus.NEW
    attempt: int = 0
    silent: list["ModelWorker"] = field(default_factory=list)
    """The workers that were taken for dead with it."""
    due: float = 0.0
    reasons: frozenset[str] = frozenset()
    """Why it failed or was dropped. Several where the frontier may have come by before or after one of them arose."""
    loose: bool = False
    """It came back from `later`: where it stands in its queue is not promised."""
    request_id: str | None = None
    """As first handed out."""

    def __repr__(self) -> str:
        lane = ", browser" if self.render else ""
        what = f"{self.url} for {self.spider}{lane} at {self.priority}, attempt {self.attempt}"
        return f"<{what}: {self.status} {'|'.join(sorted(self.reasons))} due {self.due}>"

    @property
    def queue(self) -> "QueueKey":
        return (self.spider, self.domain, self.priority, self.render)

    @property
    def waiting(self) -> bool:
        return self.status in (RequestStatus.QUEUED, RequestStatus.LATER)

    def step(self, event: RequestEvent, *reasons: str) -> None:
        """By the table of the lifecycle, and by nothing else."""
        self.status, self.reasons = advance(self.status, event), frozenset(reasons)

    def expired(self, now: float) -> bool:
        return 0 < self.terms.expires <= now


QueueKey = tuple[str, str, int, bool]
"""Spider, domain, priority, lane (True: browser)."""


@dataclass(eq=False)
class ModelRun:
    """One run of one crawl."""

    crawl: Crawl
    number: int
    seen: set[int]
    state: CrawlState = CrawlState.RUNNING
    entries: list[Entry] = field(default_factory=list)
    queues: dict[QueueKey, list[list[Entry]]] = field(default_factory=dict)
    """Groups, next out first. Within a group the order is not promised."""
    stopped_spiders: dict[str, str] = field(default_factory=dict)
    links_dropped: dict[str, Counter[str]] = field(default_factory=dict)
    retried: dict[str, Counter[str]] = field(default_factory=dict)
    fetched_of: Counter[str] = field(default_factory=Counter)
    """By domain; counted as they end, for it is asked of every entry."""
    late: Counter[str] = field(default_factory=Counter)
    """By spider: additions after the end that shards may never have heard of, so that nobody counted them."""

    def of(self, *statuses: RequestStatus) -> list[Entry]:
        return [entry for entry in self.entries if entry.status in statuses]

    def pages(self, domain: str | None = None) -> int:
        """Fetched or in somebody's hands: what a budget of pages counts."""
        held = self.of(RequestStatus.FETCHED, RequestStatus.LEASED)
        return sum(1 for entry in held if domain is None or entry.domain == domain)

    def fetched(self, domain: str | None = None) -> int:
        return self.fetched_of.total() if domain is None else self.fetched_of[domain]

    @property
    def exhausted(self) -> bool:
        return self.crawl.max_pages is not None and self.fetched() >= self.crawl.max_pages

    def domain_exhausted(self, entry: Entry) -> bool:
        cap = entry.terms.domain_max_pages
        return cap is not None and self.fetched(entry.domain) >= cap

    def doomed(self, entry: Entry, now: float) -> list[str]:
        """Why a waiting entry may be dropped at any moment: the frontier notices when it comes by."""
        reasons = []
        if entry.waiting and entry.expired(now):
            reasons.append("expired")
        if entry.waiting and (self.exhausted or self.domain_exhausted(entry)):
            reasons.append("budget")
        return reasons

    def plain(self, entry: Entry) -> bool:
        """Nothing but its domain's politeness can hold it back."""
        capped = self.crawl.max_pages is not None or entry.terms.domain_max_pages is not None
        return not capped and self.crawl.rate is None and self.crawl.concurrency is None

    def refusal(self, spider: str) -> str | None:
        """Why nothing more of this spider's is taken in."""
        if self.state in (CrawlState.STOPPED, CrawlState.EXPIRED):
            return self.state.value
        return self.stopped_spiders.get(spider)

    def put(self, entry: Entry) -> None:
        """At the end of its queue, or in front where the crawl is last in first out."""
        queue = self.queues.setdefault(entry.queue, [])
        if self.crawl.order is Order.LIFO:
            queue.insert(0, [entry])
        else:
            queue.append([entry])

    def put_back(self, entries: Sequence[Entry]) -> None:
        """In front of their queues, together."""
        groups: dict[QueueKey, list[Entry]] = {}
        for entry in entries:
            entry.loose = False
            groups.setdefault(entry.queue, []).append(entry)
        for key, group in groups.items():
            self.queues.setdefault(key, []).insert(0, group)

    def take(self, entry: Entry) -> None:
        """Out of its queue; what stood before it and was doomed does not matter."""
        queue = self.queues.get(entry.queue, [])
        for group in queue:
            if entry in group:
                group.remove(entry)
        self.queues[entry.queue] = [group for group in queue if group]

    def next_out(self, entry: Entry, now: float) -> list[Entry]:
        """Who may leave this entry's queue now."""
        for group in self.queues.get(entry.queue, []):
            alive = [other for other in group if not self.doomed(other, now)]
            if alive:
                return alive
        return []

    def drop_waiting(self, event: RequestEvent, reason: str, now: float, spider: str | None = None) -> int:
        """Purge what waits; how many there were."""
        gone = [entry for entry in self.entries if entry.waiting and spider in (None, entry.spider)]
        for entry in gone:
            entry.step(event, reason, *self.doomed(entry, now))
            self.take(entry)
        return len(gone)

    def close_if_done(self, now: float) -> None:
        """A run with requests, all of them ended, has finished."""
        if self.exhausted and not self.of(RequestStatus.LEASED):
            self.drop_waiting(RequestEvent.EXHAUST, "budget", now)
        if self.state is CrawlState.RUNNING and self.entries and all(e.status in FINAL for e in self.entries):
            self.state = CrawlState.FINISHED


@dataclass(eq=False)
class ModelWorker:
    """One seat: what it takes and what it holds."""

    name: str
    """Its names on all shards."""
    pool: str
    spiders: tuple[str, ...]
    egress: str
    heard: float
    """When every shard last heard of it."""
    lanes: frozenset[bool] = frozenset({False})
    """What it takes: True, requests to be rendered; False, the others."""
    alive: bool = True
    stale: bool = False
    """Reclaimed while it was silent."""
    robbed: bool = False
    """It held something then."""
    held: dict[LeaseKey, tuple[ModelRun, Entry, Lease]] = field(default_factory=dict)
    settled: set[LeaseKey] = field(default_factory=set)


class Model:
    """All crawls, all workers, all politeness. `now` is the test's clock."""

    def __init__(self, *, dead_after_seconds: float, shards: int = 1) -> None:
        self.dead_after_seconds = dead_after_seconds
        self.shards = shards
        self.runs: dict[CrawlId, ModelRun] = {}
        self.workers: list[ModelWorker] = []
        self.politeness = Politeness()
        self.spoke_again: set[ModelWorker] = set()
        """Workers that had been taken for dead and were not."""

    # --- crawls ---------------------------------------------------------------------------------------------------

    def open(self, crawl: Crawl, *, fresh: bool) -> ModelRun | None:
        """The run that requests join; None: refused."""
        current = self.runs.get(crawl.id)
        if current is None:
            self.runs[crawl.id] = current = ModelRun(crawl, 1, set())
        elif current.state is CrawlState.RUNNING and fresh:
            return None
        elif current.state is CrawlState.FINISHED:
            seen = set() if fresh else current.seen
            self.runs[crawl.id] = current = ModelRun(crawl, current.number + 1, seen)
        elif current.state is not CrawlState.RUNNING:
            return None
        return current

    def add(
        self, run: ModelRun, terms: Terms, batches: Sequence[Batch], answer: AddResult, now: float, *, seeds: bool
    ) -> None:
        """Take in what the frontier says it took in; what it refused must deserve it."""
        if run.state is CrawlState.FINISHED:
            everything = {(i, k): "stopped" for i, batch in enumerate(batches) for k in range(len(batch.urls))}
            assert answer == AddResult(rejected=everything), "outlinks of a run that is over"
            return
        rejected = set(answer.rejected)
        added = duplicates = 0
        dropped: Counter[str] = Counter()
        for number, batch in enumerate(batches):
            before = Counter(dropped)
            refusal = run.refusal(batch.spider) or ("expired" if 0 < terms.expires <= now else None)
            if refusal is not None and self.shards > 1 and seeds:
                run.late[batch.spider] += len(batch.urls)
            for position, (url, fingerprint) in enumerate(zip(batch.urls, batch.fingerprints, strict=True)):
                payload = batch.payloads[position] if batch.payloads else None
                entry = Entry(
                    batch.spider,
                    batch.domain,
                    url,
                    fingerprint,
                    batch.priority,
                    batch.depth,
                    terms,
                    payload,
                    batch.render,
                )
                if refusal is not None:
                    assert (number, position) in rejected, f"{url} is not in the seen-set, and is not rejected either"
                    dropped[refusal] += 1
                elif fingerprint in run.seen and not batch.unfiltered:
                    duplicates += 1
                elif (number, position) in rejected:
                    dropped["budget"] += 1
                    self._deserves_rejection(run, entry)
                else:
                    added += 1
                    entry.step(RequestEvent.ADD)
                    run.seen.add(fingerprint)
                    run.entries.append(entry)
                    run.put(entry)
                    cap = terms.domain_max_pending
                    if cap is not None:
                        queued = sum(
                            1 for e in run.of(RequestStatus.QUEUED) if e.domain == batch.domain and not e.loose
                        )
                        came_back = sum(1 for e in run.entries if e.domain == batch.domain and e.attempt)
                        assert queued <= cap + came_back, f"{queued} queued for {batch.domain}, {cap} are allowed"
            if seeds and dropped:  # of outlinks it is counted with the settlement of their page
                run.links_dropped.setdefault(batch.spider, Counter()).update(dropped - before)
        told = Counter(answer.rejected_by_reason)
        if self.shards > 1 and told["stopped"] and dropped["expired"]:
            # A shard that hears of the crawl for the first time knows that it is over, and not why.
            told["expired"], told["stopped"] = (
                told["expired"] + told["stopped"] - dropped["stopped"],
                dropped["stopped"],
            )
        expected = (added, duplicates, +dropped)
        assert (answer.added, answer.duplicates, +told) == expected, f"{answer}, not {expected}"

    def _deserves_rejection(self, run: ModelRun, entry: Entry) -> None:
        cap = entry.terms.domain_max_pending
        pending = sum(1 for e in run.entries if e.domain == entry.domain and e.status not in FINAL)
        full = cap is not None and pending >= cap
        assert full or run.domain_exhausted(entry) or run.exhausted, f"{entry.url} was rejected without need"

    def stop(self, crawl: CrawlId, spider: str | None, state: CrawlState, now: float) -> int:
        """How many waiting requests go."""
        run = self.runs.get(crawl)
        if run is None or (run.state is CrawlState.FINISHED and state is not CrawlState.FINISHED):
            return 0
        purged = run.drop_waiting(_ends_with(state), state.value, now, spider)
        if spider is not None:
            run.stopped_spiders.setdefault(spider, state.value)
            run.close_if_done(now)
        elif run.state is CrawlState.RUNNING:
            run.state = state
        return purged

    # --- workers --------------------------------------------------------------------------------------------------

    def lease(self, worker: ModelWorker, leases: Sequence[Lease], now: float) -> None:
        """Judge an answer, in its order."""
        for lease in leases:
            run = self.runs[lease.run.crawl.id]
            assert lease.run.number == run.number, f"a request of run {lease.run.number} lives in run {run.number}"
            entry = self._which(run, lease, now)
            self._may_leave(run, entry, worker, now)
            flight = (worker, lease.shard, lease.id)
            start = now + lease.ahead_seconds
            self.politeness.begin(flight, entry.domain, entry.spider, worker.egress, run.crawl, now, start=start)
            if entry.status is RequestStatus.LATER:
                entry.step(RequestEvent.DUE)
            entry.step(RequestEvent.LEASE)
            run.take(entry)
            assert entry.request_id in (None, lease.request_id), f"the request id of {entry.url} changed"
            entry.request_id = lease.request_id
            assert (lease.shard, lease.id) not in worker.settled, "a lease id came twice"
            worker.held[lease.shard, lease.id] = (run, entry, lease)
            cap = run.crawl.max_pages
            assert cap is None or run.pages() <= cap, f"{run.pages()} pages of {run.crawl.id}, {cap} are allowed"
            cap = entry.terms.domain_max_pages
            assert cap is None or run.pages(entry.domain) <= cap, f"{run.pages(entry.domain)} pages of {entry.domain}"

    def _which(self, run: ModelRun, lease: Lease, now: float) -> Entry:
        """The entry that was handed out: where several look alike, one that may leave."""
        alike = [
            entry
            for entry in run.entries
            if entry.url == lease.url
            and entry.waiting
            and (entry.spider, entry.domain, entry.priority, entry.depth, entry.attempt, entry.payload)
            == (lease.spider, lease.domain, lease.priority, lease.depth, lease.attempt, lease.payload)
            and (entry.terms, self.deaths(entry), entry.render) == (lease.terms, lease.deaths, lease.render)
            and entry.request_id in (None, lease.request_id)
        ]
        assert alike, f"{lease} was handed out; known of this URL: {[e for e in run.entries if e.url == lease.url]}"
        known = [entry for entry in alike if entry.request_id is not None] or alike
        return next((e for e in known if e.loose or e in run.next_out(e, now)), known[0])

    def _may_leave(self, run: ModelRun, entry: Entry, worker: ModelWorker, now: float) -> None:
        what = f"{entry.url} of {run.crawl.id}"
        assert run.refusal(entry.spider) is None, f"{what}: handed out after {run.refusal(entry.spider)}"
        assert run.crawl.pool == worker.pool, f"{what}: of pool {run.crawl.pool}, to a worker of {worker.pool}"
        assert entry.spider in worker.spiders, f"{what}: spider {entry.spider} to a worker of {worker.spiders}"
        assert entry.render in worker.lanes, f"{what}: to render: {entry.render}, to a worker of {worker.lanes}"
        assert not entry.expired(now), f"{what}: handed out after it expired"
        assert entry.status is RequestStatus.QUEUED or entry.due <= now + 0.002, (
            f"{what}: due at {entry.due}, not {now}"
        )
        assert not self.politeness.closed(entry.domain, now), f"{what}: its domain is closed"
        if not entry.loose:
            assert entry in run.next_out(entry, now), f"{what}: not its turn, {run.next_out(entry, now)} come first"
        for other_run, other in self.leasable(worker, now, above=entry.priority):
            same_place = (other.domain, other.spider, other.render) == (entry.domain, entry.spider, entry.render)
            if same_place and not other.loose:
                assert not other_run.plain(other), f"{other.url} comes before {what}"

    def leasable(
        self, worker: ModelWorker, now: float, *, above: float = -math.inf
    ) -> Iterator[tuple[ModelRun, Entry]]:
        """Queued entries above this priority which this worker may have, its domain's budget aside."""
        for run in self.runs.values():
            if run.crawl.pool != worker.pool:
                continue
            for entry in run.entries:
                if entry.priority <= above or entry.status in FINAL:
                    continue
                due = entry.status is RequestStatus.QUEUED or (
                    entry.status is RequestStatus.LATER and entry.due <= now - 0.002
                )
                served = entry.spider in worker.spiders and entry.render in worker.lanes
                if due and served and run.refusal(entry.spider) is None and not run.doomed(entry, now):
                    yield run, entry

    def overdue(self, worker: ModelWorker, now: float) -> list[Entry]:
        """What nothing holds back: after enough leases that came back empty there must be none."""
        is_free = cache(partial(self.politeness.surely_free, now=now))
        return [entry for run, entry in self.leasable(worker, now) if run.plain(entry) and is_free(entry.domain)]

    def hop(
        self, worker: ModelWorker, lease: Lease, fingerprint: int, payload: bytes, answer: RedirectPermit, now: float
    ) -> None:
        """Judge what a redirect inside the domain was answered."""
        run, entry, _ = worker.held[lease.shard, lease.id]
        if run.refusal(entry.spider) is not None:
            assert answer is not RedirectPermit.GRANTED, "a hop for a crawl that was stopped"
            return
        seen = fingerprint in run.seen
        assert (answer is RedirectPermit.SEEN) == seen, f"{answer}, though seen is {seen}"
        if answer is RedirectPermit.SEEN:
            return
        run.seen.add(fingerprint)
        entry.payload = payload
        self.politeness.redirected((worker, lease.shard, lease.id))
        if answer is RedirectPermit.GRANTED:
            assert not self.politeness.closed(entry.domain, now), "a hop into a closed domain"
            scope = self.politeness.in_flight[worker, lease.shard, lease.id].key
            self.politeness.charge(scope, entry.domain, run.crawl, now)

    def settle(self, worker: ModelWorker, settlements: Sequence[Settlement], now: float) -> list[bool]:
        """Whether each ends a lease: not where the worker was declared dead, or has settled the lease before."""
        ended = []
        back: dict[int, tuple[ModelRun, list[Entry]]] = {}
        for settlement in settlements:
            key = (settlement.lease.shard, settlement.lease.id)
            ended.append(not worker.stale and key not in worker.settled)
            if not ended[-1]:
                continue
            run, entry, _ = worker.held.pop(key)
            worker.settled.add(key)
            self.politeness.end((worker, *key), unused=settlement.unused or settlement.outcome is Outcome.RETURNED)
            self._end(run, entry, settlement, back, now)
            if settlement.drops:
                run.links_dropped.setdefault(entry.spider, Counter()).update(settlement.drops)
        for run, entries in back.values():
            run.put_back([entry for entry in entries if entry.waiting])
        for run in self.runs.values():
            run.close_if_done(now)
        return ended

    def _end(
        self,
        run: ModelRun,
        entry: Entry,
        settlement: Settlement,
        back: dict[int, tuple[ModelRun, list[Entry]]],
        now: float,
    ) -> None:
        outcome, refusal = settlement.outcome, run.refusal(entry.spider)
        event = _EVENTS[outcome]
        if outcome is Outcome.FETCHED:
            entry.step(event)
            run.fetched_of[entry.domain] += 1
        elif outcome in (Outcome.FAILED, Outcome.DROPPED):
            entry.step(event, settlement.reason)
        elif refusal is not None:
            entry.step(_ends_with(refusal), refusal)
        else:
            entry.step(event)
            if settlement.payload is not None and outcome is not Outcome.RETURNED:
                entry.payload = settlement.payload
            if outcome is Outcome.RETRY:
                entry.priority -= RETRY_PENALTY
                entry.attempt += 1
            if outcome is Outcome.SWITCHED:
                entry.render = not entry.render
            if entry.status is RequestStatus.LATER:
                if settlement.reason:
                    run.retried.setdefault(entry.spider, Counter())[settlement.reason] += 1
                entry.due = now + settlement.delay_seconds
                entry.loose = True
            else:
                back.setdefault(id(run), (run, []))[1].append(entry)

    def give_back(self, worker: ModelWorker, now: float) -> None:
        """A worker leaves in good order."""
        self._put_back_all([worker], now, dead=False)
        self.workers.remove(worker)

    def reclaim(self, now: float) -> int:
        """Take back what the silent ones held; how many requests wait again."""
        dead = [w for w in self.workers if now - w.heard > self.dead_after_seconds and not w.stale]
        for worker in dead:
            worker.robbed = bool(worker.held)
            worker.stale = True
            self.spoke_again.discard(worker)
        return self._put_back_all(dead, now, dead=True)

    def deaths(self, entry: Entry) -> int:
        """How many workers died with it, as far as is known now."""
        if len(entry.silent) >= MOST_SILENT:
            return MAX_DEATHS
        return min(MAX_DEATHS, sum(worker not in self.spoke_again for worker in entry.silent))

    def _put_back_all(self, workers: Sequence[ModelWorker], now: float, *, dead: bool) -> int:
        back: dict[int, tuple[ModelRun, list[Entry]]] = {}
        count = 0
        for worker, key, (run, entry, _) in [(w, *row) for w in workers for row in w.held.items()]:
            self.politeness.end((worker, *key))
            refusal = run.refusal(entry.spider)
            if refusal is not None:
                entry.step(_ends_with(refusal), refusal)
                continue
            if dead:
                entry.attempt += 1
                entry.silent.append(worker)
                if len(entry.silent) < MOST_SILENT and self.deaths(entry) >= MAX_DEATHS:
                    entry.step(RequestEvent.SUSPECT)
                    entry.due = now + DOUBT_HEARTBEATS * self.dead_after_seconds
                    entry.loose = True
                    count += 1
                    continue
            entry.step(RequestEvent.RECLAIM)
            back.setdefault(id(run), (run, []))[1].append(entry)
        for run, entries in back.values():
            waiting = [entry for entry in entries if entry.waiting]
            run.put_back(waiting)
            count += len(waiting)
        for worker in workers:
            worker.held.clear()
        for run in self.runs.values():
            run.close_if_done(now)
        return count

    # --- answers --------------------------------------------------------------------------------------------------

    def check_info(self, info: CrawlInfo, now: float) -> None:
        """Compare what the frontier counts with what is. Doomed requests may be counted as waiting or as dropped."""
        run = self.runs[info.crawl]
        self.check_counts(info, now)
        assert info.run == run.number
        assert info.pool == run.crawl.pool
        assert info.seen == len(run.seen), f"{info.seen} seen, not {len(run.seen)}"
        self._check_state(run, info, now)
        sure, maybe = self._queued(run, now)
        for priority in set(info.queued_by_priority) | {entry.priority for entry in sure}:
            told = info.queued_by_priority.get(priority, 0)
            low = sum(1 for entry in sure if entry.priority == priority)
            high = low + sum(1 for entry in maybe if entry.priority == priority)
            assert low <= told <= high, f"{told} queued at priority {priority}, not {low}..{high}"
        waiting = [entry for entry in run.entries if entry.waiting]
        low = len({entry.domain for entry in waiting if not run.doomed(entry, now)})
        high = len({entry.domain for entry in waiting})
        assert low <= info.domains <= high, f"{info.domains} domains with waiting requests, not {low}..{high}"

    def check_counts(self, info: CrawlInfo, now: float) -> None:
        """Compare what the frontier counts by spider."""
        run = self.runs[info.crawl]
        self._check_rendering(run, info.rendering, now)
        for spider in {entry.spider for entry in run.entries} | set(info.spiders):
            self._check_spider(run, spider, info.spiders.get(spider, SpiderCounts()), now)

    def _check_rendering(self, run: ModelRun, told: SpiderCounts, now: float) -> None:
        """The lane of workers with a browser, of all spiders."""
        mine = [entry for entry in run.entries if entry.render]
        where = f"{run.crawl.id} run {run.number} to be rendered: {told}"
        assert told.added == len(mine), f"{where}: {len(mine)} were added"
        assert told.added == told.queued + told.later + told.leased + told.done, f"{where}: added is not the sum"
        assert told.leased == sum(1 for e in mine if e.status is RequestStatus.LEASED), f"{where}: leased"
        assert told.fetched == sum(1 for e in mine if e.status is RequestStatus.FETCHED), f"{where}: fetched"
        waiting = [entry for entry in mine if entry.waiting]
        low = sum(1 for entry in waiting if not run.doomed(entry, now))
        assert low <= told.queued + told.later <= len(waiting), f"{where}: {low} to {len(waiting)} are waiting"

    def _queued(self, run: ModelRun, now: float) -> tuple[list[Entry], list[Entry]]:
        """Surely in a queue; perhaps in one (due again and not yet moved, or doomed)."""
        sure = [e for e in run.of(RequestStatus.QUEUED) if not run.doomed(e, now)]
        maybe = [
            e
            for e in run.entries
            if e.waiting and e not in sure and (e.status is not RequestStatus.LATER or e.due <= now)
        ]
        return sure, maybe

    def _check_spider(self, run: ModelRun, spider: str, told: SpiderCounts, now: float) -> None:
        mine = [entry for entry in run.entries if entry.spider == spider]
        where = f"{run.crawl.id} run {run.number} spider {spider}: {told}"
        whole = told.queued + told.later + told.leased + told.done
        assert told.added == whole, f"{where}: added is not the sum {whole} of its places"
        assert told.added == len(mine), f"{where}: {len(mine)} were added"
        assert told.leased == sum(1 for e in mine if e.status is RequestStatus.LEASED), f"{where}: leased"
        assert told.fetched == sum(1 for e in mine if e.status is RequestStatus.FETCHED), f"{where}: fetched"
        failed = Counter(reason for e in mine if e.status is RequestStatus.FAILED for reason in e.reasons)
        assert +Counter(told.failed) == failed, f"{where}: failed, not {failed}"
        doomed = [entry for entry in mine if run.doomed(entry, now)]
        self._check_dropped(run, told, [e for e in mine if e.status is RequestStatus.DROPPED] + doomed, where, now)
        waiting = [entry for entry in mine if entry.waiting]
        low, high = len(waiting) - len(doomed), len(waiting)
        assert low <= told.queued + told.later <= high, f"{where}: {low} to {high} are waiting"
        later = [entry for entry in waiting if entry.status is RequestStatus.LATER]
        sure = sum(1 for e in later if e.due > now and e not in doomed)
        assert sure <= told.later <= len(later), f"{where}: {sure} to {len(later)} are to be retried later"
        self._check_links(run, spider, told, where)
        assert told.retried == run.retried.get(spider, {}), f"{where}: retried"
        if told.queued + told.later == low:  # all of the doomed were noticed: from now on there is no doubt
            for entry in doomed:
                reasons = run.doomed(entry, now)
                entry.step(RequestEvent.EXPIRE if "expired" in reasons else RequestEvent.EXHAUST, *reasons)
                run.take(entry)

    def _check_dropped(self, run: ModelRun, told: SpiderCounts, entries: list[Entry], where: str, now: float) -> None:
        """Every reason was counted at least for those who have no other, and at most for all who have it."""
        possible = [frozenset(run.doomed(e, now)) | {"waits"} if e.waiting else e.reasons for e in entries]
        for reason in set(told.dropped).union(*possible) - {"waits"}:
            low = sum(1 for reasons in possible if reasons == {reason})
            high = sum(1 for reasons in possible if reason in reasons)
            assert low <= told.dropped.get(reason, 0) <= high, f"{where}: dropped as {reason}, not {low}..{high}"

    def _check_links(self, run: ModelRun, spider: str, told: SpiderCounts, where: str) -> None:
        # Duplicates are counted where they are found, at the worker or at the frontier, so they are not compared.
        counts, expected = Counter(told.links_dropped), Counter(run.links_dropped.get(spider, {}))
        late = run.late[spider]
        if late:
            was, should = (which.pop("stopped", 0) + which.pop("expired", 0) for which in (counts, expected))
            assert should - late <= was, f"{where}: {should} links came too late"
            assert was <= should, f"{where}: only {should} links came too late"
        for reason in (set(counts) | set(expected)) - {"duplicate"}:
            assert counts[reason] == expected[reason], f"{where}: links dropped, not {expected}"

    def _check_state(self, run: ModelRun, info: CrawlInfo, now: float) -> None:
        run.close_if_done(now)
        where = f"{run.crawl.id} is {info.state}"
        if run.state is CrawlState.RUNNING:
            done = all(e.status in FINAL or run.doomed(e, now) for e in run.entries)
            assert info.state is CrawlState.RUNNING or (info.state is CrawlState.FINISHED and done), where
            if info.state is CrawlState.FINISHED:
                assert info.total().done == info.total().added, f"{where} while requests wait"
                run.state = CrawlState.FINISHED
        else:
            expected = run.state
            ends = {run.stopped_spiders.get(entry.spider) for entry in run.entries}
            if expected is CrawlState.FINISHED and ends and None not in ends:  # its parts were ended one by one
                expected = CrawlState.EXPIRED if ends == {CrawlState.EXPIRED} else CrawlState.STOPPED
            assert info.state is expected, f"{where}, not {expected}"
        assert (info.ended is None) == (info.state is CrawlState.RUNNING), f"{where}, ended {info.ended}"

    def run_of(self, run: Run) -> ModelRun:
        """The model's side of a run that the frontier named."""
        return self.runs[run.crawl.id]
