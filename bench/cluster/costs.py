"""Measured service times and sizes, as `python -m bench.cluster measure` stores them in `costs.json`."""

from pathlib import Path

import msgspec

from bench.places import ROOT

COSTS = ROOT / "bench" / "cluster" / "costs.json"

COOLING_SECONDS = 0.005
"""Rest after which calls do not become more expensive. Measured with rests of 0.3 to 64 ms before each call: the cost
rises about evenly up to 4 to 8 ms, and hardly afterwards."""
_LEVELS = 10


class CallCosts(msgspec.Struct):
    """CPU time of the frontier's calls on one side, shard or worker, in microseconds.

    A call costs its `call`, and so much for each request leased or settled. An addition costs its `add_call`, and so
    much for each URL and for each domain.
    """

    lease_call: float
    lease_each: float
    settle_call: float
    settle_each: float
    add_call: float
    add_domain: float
    add_known: float
    """Each URL that the shard has seen before."""
    add_new: float
    """Each URL that it queues."""
    heartbeat: float
    maintain: float
    """A shard's maintenance once, all its calls together."""
    clock: float
    """Comparison of the worker's clock with the shard's."""
    replicas: float
    """Question for the replicas of the shard's server."""


class SideCosts(msgspec.Struct):
    """Costs of calls on one side."""

    rested: CallCosts
    """For a call that wakes up a process that has rested for COOLING_SECONDS or longer: the processor's caches hold
    little of it, and the processor may have gone to sleep."""
    alone: CallCosts
    """For a call that wakes up a process that has just worked: its event loop, its write to the log."""
    busy: CallCosts
    """For one of many calls at a time, from workers with a connection each, or to shards with a connection each."""


class PageCosts(msgspec.Struct):
    """CPU time of a page in a worker without calls to the frontier, and what its page was."""

    page_bytes: int
    links: int
    microseconds: float
    """In a worker that is busy."""
    rested: float
    """In a worker that has rested for COOLING_SECONDS or longer."""


class Costs(msgspec.Struct):
    """All that the model takes from measurements."""

    machine: str
    date: str
    shard: SideCosts
    server_second: float
    """CPU microseconds that a server without calls uses in a second: its timers, and the messages of its cluster."""
    fsync: float
    """Microseconds that a flush of the log to the disk takes. The shard's CPU is idle, and it answers nothing."""
    round_trip: float
    """Microseconds of a call on this machine in which neither side works nor flushes: it is on its way, or its receiver
    waits for a core."""
    worker: SideCosts
    pages: dict[str, PageCosts]
    """By the name of the profile."""
    seen_bytes: float
    """Memory of a URL that the shard has seen."""
    queued_bytes: float
    """Memory of a queued URL, in addition."""
    domain_bytes: float
    """Memory of a domain with queued URLs."""


class CostsByRest:
    """Costs of the calls of one process by how long it has rested before."""

    def __init__(self, side: SideCosts) -> None:
        self.busy = side.busy
        alone, rested = msgspec.structs.astuple(side.alone), msgspec.structs.astuple(side.rested)
        self._levels = [
            CallCosts(*(low + (high - low) * level / _LEVELS for low, high in zip(alone, rested, strict=True)))
            for level in range(_LEVELS + 1)
        ]

    def after(self, rest_seconds: float) -> CallCosts:
        """Return the costs of a call that wakes the process up after such a rest."""
        return self._levels[round(_LEVELS * cooled_share(rest_seconds))]


def cooled_share(rest_seconds: float) -> float:
    """Return how much of the additional cost of a rested process is due after such a rest, 0 to 1."""
    return min(1.0, rest_seconds / COOLING_SECONDS)


def load(path: Path = COSTS) -> Costs:
    """Return the measured costs. Raises OSError if nothing was measured."""
    return msgspec.json.decode(path.read_bytes(), type=Costs)
