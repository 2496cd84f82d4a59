"""Model of a worker: one core, slots, a loop that leases, and a committer.

The rules and constants are those of `gossamer.worker.worker`, `gossamer.frontier.valkey.leaseholder`,
`gossamer.commit.committer` and `gossamer.policy.outbox`. Left out: failures, robots.txt, redirects, and wake-ups by
announced requests.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any

from bench.cluster.costs import CallCosts, CostsByRest, cooled_share
from bench.cluster.engine import Core, Simulation
from bench.cluster.shard import Added, Kind, Reading, Shard, periodic_cost
from gossamer.policy.outbox import OUTBOX_LINKS, outbox_wait

_SLOT_SHARE = 1 / 2
_SLOT_LINGER_SECONDS = 0.005
_SHARDS_AT_ONCE = 8
_ASK_AGAIN_SECONDS = 30.0
_WAIT_SECONDS = 5.0
_BATCH_SLOTS = 2
_BATCH_BYTES = 4 * 1024 * 1024
_SETTLEMENT_SHARE = 0.5
_LOAD_AT_START = 0.6
"""Load of the shards that workers assume before the first reading, so that the warm-up begins without a backlog."""


@dataclass
class WorkerLimits:
    """Limits on which a worker's behaviour depends, besides its costs."""

    concurrency: int
    page_seconds: float
    """CPU time of a page in a busy worker, without calls to the frontier."""
    rested_page_seconds: float
    """CPU time of a page in a worker that has rested."""
    page_spread: float
    """Standard deviation of that time, as a share of it."""
    page_bytes: int
    links: float
    """Links of a page that are sent to the frontier."""
    own_share: float
    """Share of them that stay on the page's domain."""
    latency: Callable[[random.Random], float]
    """Time from the start of a request to the end of its response."""
    output_seconds: float
    """Time until a batch is on the disk."""
    batch_pages: int
    batch_linger_seconds: float
    has_outbox: bool
    """Links and settlements wait for others where their shard is busy."""
    one_way_seconds: float


@dataclass
class Counts:
    """Counters of all workers together since `reset`."""

    pages: int = 0
    """Settled pages."""
    batches: int = 0
    lease_seconds: list[float] = field(default_factory=list)
    """Duration of each lease call, from the worker's first step to its last one."""
    page_seconds: float = 0.0
    """Sum of the times from the start of a request until its slot is free."""
    in_progress: int = 0
    """Requests in progress now."""
    in_progress_seconds: float = 0.0
    """Integral of `in_progress`."""
    finished: int = 0
    """Pages whose slot became free."""
    _changed_at: float = 0.0

    def change_in_progress(self, by: int, now: float) -> None:
        """Record that requests were started, or have ended."""
        self.in_progress_seconds += self.in_progress * (now - self._changed_at)
        self._changed_at = now
        self.in_progress += by

    def reset(self, now: float) -> None:
        """Forget everything but what is in progress."""
        self.__init__(in_progress=self.in_progress, _changed_at=now)  # type: ignore[misc]


class _State(Enum):
    """States of the loop that leases."""

    NO_SLOT = auto()
    LINGERING = auto()
    """Some slots are free, and more may become free soon."""
    LEASING = auto()
    WAITING = auto()
    """Slots are free, and no shard has requests that are due."""


_Page = tuple[int, float]
"""A page: its shard, and the time at which its request started."""


@dataclass(eq=False, slots=True)
class _Batch:
    """Pages that are committed together."""

    left: int
    """Pages that are not settled."""
    has_slot: bool = True


@dataclass(eq=False, slots=True)
class _Written:
    """A page whose record is on the disk."""

    page: _Page
    batch: _Batch
    waiting: int
    """Shards that have not added its links yet."""


@dataclass(slots=True)
class _Outbox:
    """Links that wait for their addition to a shard."""

    added: Added = field(default_factory=Added)
    pages: list[_Written] = field(default_factory=list)


class Worker:
    """One worker process."""

    def __init__(
        self,
        simulation: Simulation,
        shards: Sequence[Shard],
        limits: WorkerLimits,
        costs: CostsByRest,
        counts: Counts,
        *,
        weights: Sequence[float],
        seed: int,
    ) -> None:
        """`weights`: cumulative shares of the shards in the links to other domains."""
        self._simulation = simulation
        self._shards = shards
        self._limits = limits
        self._costs_by_rest = costs
        self._counts = counts
        self._weights = weights
        self._random = random.Random(seed)
        self._numbers = range(len(shards))
        self.core = Core(simulation)
        self._free = limits.concurrency
        self._busy = 0
        self._state = _State.WAITING
        self._step = 0
        """Counted with each change of the state, so that a timer of an earlier state does nothing."""
        self._due = [0.0] * len(shards)
        self._next_shard = self._random.randrange(len(shards))
        self._progress = False
        self._empty_leases = 0
        self._queue: list[_Page] = []
        self._batch_ready = self._batch_lingers = False
        self._batches_begun = 0
        self._batch_slots = _BATCH_SLOTS
        self._outboxes = [_Outbox() for _ in shards]
        self._settleable: list[list[_Written]] = [[] for _ in shards]
        """By shard: pages that are to be settled."""
        self._loads = [_LOAD_AT_START] * len(shards)
        self._readings = [Reading(0.0, 0.0)] * len(shards)
        self._batch_pages = max(1, min(limits.batch_pages, _BATCH_BYTES // limits.page_bytes))

    def start(self) -> None:
        """Begin to lease."""
        self._lease_or_wait()

    @property
    def _costs(self) -> CallCosts:
        """Costs of the next step: it may wake this process up."""
        return self._costs_by_rest.after(self.core.rest_seconds) if self.core.is_idle else self._costs_by_rest.busy

    # --- leasing ------------------------------------------------------------------------------------------------------

    def _enter(self, state: _State) -> None:
        self._state = state
        self._step += 1

    def _timer(self, seconds: float, action: Callable[[], None]) -> None:
        """Run an action later, unless the state changes before."""
        self._simulation.after(seconds, self._on_timer, self._step, action)

    def _on_timer(self, step: int, action: Callable[[], None]) -> None:
        if step == self._step:
            action()

    def _lease_or_wait(self) -> None:
        """Lease if enough slots are free, else wait for more of them."""
        if not self._free:
            self._enter(_State.NO_SLOT)
        elif self._busy and self._free < self._limits.concurrency * _SLOT_SHARE:
            self._enter(_State.LINGERING)
            self._timer(_SLOT_LINGER_SECONDS, self._lease)
        else:
            self._lease()

    def _slot_freed(self) -> None:
        if self._state is _State.NO_SLOT:
            self._lease_or_wait()
        elif self._state is _State.LINGERING and self._free >= self._limits.concurrency * _SLOT_SHARE:
            self._lease()

    def _lease(self) -> None:
        self._enter(_State.LEASING)
        self._progress = False
        count, now = len(self._shards), self._simulation.now
        ordered = [(self._next_shard + place) % count for place in self._numbers]
        if count > _SHARDS_AT_ONCE:
            ordered = [shard for shard in ordered if self._due[shard] <= now]
        self._lease_from(ordered, self._free, [])

    def _lease_from(self, pending: list[int], limit: int, leased: list[_Page]) -> None:
        """Lease from the next group of shards, until there are enough requests or no more shards to ask."""
        left = limit - len(leased)
        if not pending or not left:
            self._start(leased, limit)
            return
        group = [pending.pop(0) for _ in range(min(_SHARDS_AT_ONCE, left, len(pending)))]
        share, answers, now = left // len(group), [], self._simulation.now

        def on_reply(shard: int, answer: tuple[list[float], float | None]) -> None:
            starts, next_due = answer
            costs = self._costs
            cost = costs.lease_call / 2 + costs.lease_each * len(starts)
            self.core.work(1e-6 * cost, on_decoded, shard, starts, next_due)

        def on_decoded(shard: int, starts: list[float], next_due: float | None) -> None:
            self._counts.lease_seconds.append(self._simulation.now - now)
            leased.extend((shard, start) for start in starts)
            answers.append(shard)
            if len(starts) == share:
                self._due[shard] = 0.0
                pending.append(shard)
            else:
                latest = self._simulation.now + _ASK_AGAIN_SECONDS
                self._due[shard] = latest if next_due is None else min(next_due, latest)
            if len(answers) == len(group):
                self._next_shard = (group[-1] + 1) % len(self._shards)
                self._lease_from(pending, limit, leased)

        for shard in group:
            self._call(shard, self._costs.lease_call / 2, Kind.LEASE, share, lambda got, one=shard: on_reply(one, got))

    def _start(self, leased: list[_Page], limit: int) -> None:
        """Start the leased requests."""
        simulation = self._simulation
        self._free -= len(leased)
        self._busy += len(leased)
        self._counts.change_in_progress(len(leased), simulation.now)
        for page in leased:
            began = max(page[1], simulation.now)
            simulation.at(began + self._limits.latency(self._random), self._on_response, page, simulation.now)
        self._empty_leases = 0 if leased else self._empty_leases + 1
        if len(leased) >= limit or self._progress:
            self._lease_or_wait()
            return
        self._enter(_State.WAITING)
        self._timer(max(0.0, min(min(self._due) - simulation.now, _WAIT_SECONDS)), self._on_work_due)

    def _on_work_due(self) -> None:
        if self._empty_leases > 1:
            self._enter(_State.WAITING)
            self._timer(min(0.001 * 2.0 ** min(self._empty_leases, 6), 0.05), self._lease_or_wait)
        else:
            self._lease_or_wait()

    # --- pages --------------------------------------------------------------------------------------------------------

    def _on_response(self, page: _Page, began: float) -> None:
        limits = self._limits
        spread = limits.page_spread
        factor = self._random.gammavariate(1 / spread**2, spread**2) if spread else 1.0
        rested = cooled_share(self.core.rest_seconds)
        seconds = limits.page_seconds + rested * (limits.rested_page_seconds - limits.page_seconds)
        self.core.work(seconds * factor, self._on_page_done, page, began)

    def _on_page_done(self, page: _Page, began: float) -> None:
        now, counts = self._simulation.now, self._counts
        counts.page_seconds += now - began
        counts.finished += 1
        counts.change_in_progress(-1, now)
        self._busy -= 1
        self._free += 1
        self._queue.append(page)
        if len(self._queue) >= self._batch_pages or not self._busy:
            self._batch_ready = True
        self._commit_if_ready()
        self._slot_freed()

    # --- commits ------------------------------------------------------------------------------------------------------

    def _commit_if_ready(self) -> None:
        """Commit a batch if there is one and a slot for it; let an incomplete one linger first."""
        while self._queue:
            if not self._batch_ready:
                if not self._batch_lingers:
                    self._batch_lingers = True
                    self._simulation.after(self._limits.batch_linger_seconds, self._on_linger_over, self._batches_begun)
                return
            if not self._batch_slots:
                return
            self._batch_slots -= 1
            self._batches_begun += 1
            self._batch_lingers = False
            batch, self._queue = self._queue[: self._batch_pages], self._queue[self._batch_pages :]
            self._batch_ready = len(self._queue) >= self._batch_pages
            self._simulation.after(self._limits.output_seconds, self._add, batch)

    def _on_linger_over(self, batch: int) -> None:
        if batch == self._batches_begun:
            self._batch_lingers, self._batch_ready = False, True
            self._commit_if_ready()

    def _add(self, batch: list[_Page]) -> None:
        """Put the links of a batch into the outboxes. Its pages are settled as soon as theirs are added. The batch
        keeps its slot until then, unless some links wait."""
        self._counts.batches += 1
        state = _Batch(len(batch))
        touched: dict[int, int] = {}
        for page in batch:
            counts = self._links_of(page)
            written = _Written(page, state, len(counts))
            if not counts:
                self._settle(written)
            for shard, count in counts.items():
                outbox = self._outboxes[shard]
                outbox.added.urls += count.urls
                outbox.added.domains += count.domains
                outbox.pages.append(written)
                touched[shard] = touched.get(shard, 0) + 1
        for shard, count in touched.items():
            outbox, seconds = self._outboxes[shard], self._wait(shard)
            if not seconds or outbox.added.urls >= OUTBOX_LINKS:
                self._send_links(shard, outbox)
                continue
            self._release_slot(state)
            if len(outbox.pages) == count:
                self._simulation.after(seconds, self._send_links, shard, outbox)

    def _release_slot(self, batch: _Batch) -> None:
        if batch.has_slot:
            batch.has_slot = False
            self._batch_slots += 1
            self._simulation.after(0.0, self._commit_if_ready)

    def _links_of(self, page: _Page) -> dict[int, Added]:
        """Return the links of a page by shard."""
        limits, counts = self._limits, dict[int, Added]()
        if limits.links:
            counts[page[0]] = Added(limits.links * limits.own_share, 1)
        count = math.floor(limits.links * (1 - limits.own_share) + self._random.random())
        for other in self._random.choices(self._numbers, cum_weights=self._weights, k=count):
            group = counts.setdefault(other, Added())
            group.urls += 1
            group.domains += 1
        return counts

    def _wait(self, shard: int) -> float:
        """Return how long what is for a shard waits for more."""
        may_wait = self._limits.has_outbox and self._busy and len(self._shards) > 1
        return outbox_wait(self._loads[shard]) if may_wait else 0.0

    def _send_links(self, shard: int, outbox: _Outbox) -> None:
        """Add the links of an outbox, unless that was done."""
        if self._outboxes[shard] is not outbox:
            return
        self._outboxes[shard] = _Outbox()
        group, costs = outbox.added, self._costs

        def on_added(_: Any) -> None:
            self.core.work(1e-6 * self._costs.add_call / 2, on_done)

        def on_done() -> None:
            for written in outbox.pages:
                written.waiting -= 1
                if not written.waiting:
                    self._settle(written)

        cost = costs.add_call / 2 + costs.add_domain * group.domains + costs.add_known * group.urls
        self._call(shard, cost, Kind.ADD, group, on_added)

    def _settle(self, written: _Written) -> None:
        """Settle a page soon, together with others of its shard."""
        shard, _ = written.page
        some = self._settleable[shard]
        some.append(written)
        if len(some) == 1:
            self._simulation.after(_SETTLEMENT_SHARE * self._wait(shard), self._send_settlements, shard)

    def _send_settlements(self, shard: int) -> None:
        some, self._settleable[shard] = self._settleable[shard], []

        def on_settled(_: Any) -> None:
            self.core.work(1e-6 * self._costs.settle_call / 2, on_done)

        def on_done() -> None:
            self._counts.pages += len(some)
            for written in some:
                written.batch.left -= 1
                if not written.batch.left:
                    self._release_slot(written.batch)
            self._on_progress()

        costs = self._costs
        cost = costs.settle_call / 2 + costs.settle_each * len(some)
        self._call(shard, cost, Kind.SETTLE, [written.page[1] for written in some], on_settled)

    def _on_progress(self) -> None:
        """Look for requests again, because a commit may have made new ones."""
        self._progress = True
        if self._state is _State.WAITING:
            self._lease_or_wait()

    # --- calls --------------------------------------------------------------------------------------------------------

    def _call(self, shard: int, cost: float, kind: Kind, asked: Any, on_reply: Callable[[Any], None]) -> None:
        """Send a call to a shard after so many microseconds of work. `on_reply` is called when the reply arrives."""
        sent = self.core.use(1e-6 * cost)
        self._simulation.at(sent + self._limits.one_way_seconds, self._shards[shard].receive, (kind, asked, on_reply))

    def tell(self, shard: int, kind: Kind) -> None:
        """Make a periodic call to a shard."""
        on_reply = partial(self._note_load, shard) if kind is Kind.REPLICAS else lambda _: None
        self._call(shard, periodic_cost(kind, self._costs), kind, None, on_reply)

    def _note_load(self, shard: int, reading: Reading) -> None:
        """Compute a shard's load since the last reading."""
        before, self._readings[shard] = self._readings[shard], reading
        if reading.seconds > before.seconds:
            self._loads[shard] = (reading.used_seconds - before.used_seconds) / (reading.seconds - before.seconds)


def popularity(shares: Sequence[float]) -> list[float]:
    """Return cumulative weights from shares."""
    total, weights = 0.0, []
    for share in shares:
        total += share
        weights.append(total)
    return weights


def calls_a_page(calls: Counter[Kind], pages: int) -> dict[str, float]:
    """Return the number of calls of each kind for one page."""
    return {kind.name.lower(): calls[kind] / max(1, pages) for kind in Kind}
