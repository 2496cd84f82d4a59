"""Model of a shard: a server with one core that answers calls in groups.

While the server works, further calls arrive. It then takes all of them at once, does them one after the other, flushes
its log once, and sends the replies. So a busy server flushes less often than it is called.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

from bench.cluster.costs import CallCosts, CostsByRest
from bench.cluster.engine import Simulation

_AHEAD_SECONDS = 0.02
"""A request is handed out so much before its start (docs/adr/0001-frontier-layout.md)."""


class Kind(Enum):
    """Kinds of calls."""

    LEASE = auto()
    SETTLE = auto()
    ADD = auto()
    HEARTBEAT = auto()
    MAINTAIN = auto()
    CLOCK = auto()
    """Comparison of clocks."""
    REPLICAS = auto()
    """Question for the replicas of the server."""


def periodic_cost(kind: Kind, costs: CallCosts) -> float:
    """Return the CPU microseconds of a periodic call."""
    if kind is Kind.HEARTBEAT:
        return costs.heartbeat
    if kind is Kind.MAINTAIN:
        return costs.maintain
    return costs.clock if kind is Kind.CLOCK else costs.replicas


@dataclass(slots=True)
class Added:
    """Links in one addition."""

    urls: float = 0.0
    domains: int = 0


class Reading(NamedTuple):
    """CPU time of a server."""

    seconds: float
    used_seconds: float


Reply = Callable[[Any], None]
Call = tuple[Kind, Any, Reply | None]
"""Kind; what is asked (number of leases, start times of the settled ones, links); receiver of the answer."""


@dataclass
class ShardLimits:
    """Limits on which a shard's behaviour depends, besides its costs."""

    gap_seconds: float
    """Time between two requests to a domain."""
    one_way_seconds: float
    """Time of a message between worker and shard."""
    fsync_seconds: float
    new_share: float
    """Share of the added URLs that the shard has not seen."""


@dataclass
class Shard:
    """One server with one shard. `domains` have requests; each gives one, and the next one a gap later."""

    simulation: Simulation
    costs: CostsByRest
    limits: ShardLimits
    domains: int
    used_seconds: float = 0.0
    """CPU time so far."""
    calls: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    leased: int = 0
    _due: list[float] = field(default_factory=list)
    """Times at which domains that were leased from may be leased from again, as a heap."""
    _waiting: list[Call] = field(default_factory=list)
    _is_busy: bool = False
    _rests_since: float = 0.0

    def receive(self, call: Call) -> None:
        """Take a call, which has just arrived."""
        self._waiting.append(call)
        if not self._is_busy:
            self._begin(self.costs.after(self.simulation.now - self._rests_since))

    def _begin(self, costs: CallCosts) -> None:
        calls, self._waiting = self._waiting, []
        self._is_busy = True
        done = [(reply, self._execute(kind, asked, costs)) for kind, asked, reply in calls]
        seconds = sum(seconds for _, (seconds, _) in done)
        self.used_seconds += seconds
        answers = [(reply, answer) for reply, (_, answer) in done if reply is not None]
        self.simulation.after(seconds + self.limits.fsync_seconds, self._end, answers)

    def _end(self, answers: list[tuple[Reply, Any]]) -> None:
        for reply, answer in answers:
            self.simulation.after(self.limits.one_way_seconds, reply, answer)
        self._is_busy = False
        self._rests_since = self.simulation.now
        if self._waiting:
            self._begin(self.costs.busy)

    def _execute(self, kind: Kind, asked: Any, costs: CallCosts) -> tuple[float, Any]:
        """Return the CPU seconds of a call, and its answer."""
        self.calls[kind] += 1
        if kind is Kind.LEASE:
            starts, next_due = self._lease(asked)
            return 1e-6 * (costs.lease_call + costs.lease_each * len(starts)), (starts, next_due)
        if kind is Kind.SETTLE:
            for start in asked:
                heapq.heappush(self._due, max(start + self.limits.gap_seconds, self.simulation.now))
            return 1e-6 * (costs.settle_call + costs.settle_each * len(asked)), None
        if kind is Kind.ADD:
            new = asked.urls * self.limits.new_share
            each = costs.add_domain * asked.domains + costs.add_known * (asked.urls - new) + costs.add_new * new
            return 1e-6 * (costs.add_call + each), None
        return 1e-6 * periodic_cost(kind, costs), Reading(self.simulation.now, self.used_seconds)

    def _lease(self, limit: int) -> tuple[list[float], float | None]:
        """Return the start times of the leased requests, and when the next domain is due; None: no domain is known to
        be. A domain that was leased from is ready again when its page is settled and the gap is over."""
        now, due = self.simulation.now, self._due
        fresh = min(limit, self.domains)  # not leased from yet, and so due for longer than the others
        self.domains -= fresh
        starts = [now] * fresh
        while len(starts) < limit and due and due[0] <= now + _AHEAD_SECONDS:
            starts.append(max(now, heapq.heappop(due)))
        self.leased += len(starts)
        return starts, (due[0] - _AHEAD_SECONDS if due else None)
