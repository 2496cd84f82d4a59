"""Measured service times and sizes, as `python -m bench.cluster measure` stores them in `costs.json`."""

from pathlib import Path

import msgspec

from bench.places import ROOT

COSTS = ROOT / "bench" / "cluster" / "costs.json"


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


class SideCosts(msgspec.Struct):
    """Costs of calls on one side."""

    alone: CallCosts
    """For a call that wakes an idle process up: its event loop, its write to the log, cold caches."""
    busy: CallCosts
    """For one of many calls at a time."""


class PageCosts(msgspec.Struct):
    """CPU time of a page in a worker without calls to the frontier, and what its page was."""

    page_bytes: int
    links: int
    microseconds: float


class Costs(msgspec.Struct):
    """All that the model takes from measurements."""

    machine: str
    date: str
    shard: SideCosts
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


def load(path: Path = COSTS) -> Costs:
    """Return the measured costs. Raises OSError if nothing was measured."""
    return msgspec.json.decode(path.read_bytes(), type=Costs)
