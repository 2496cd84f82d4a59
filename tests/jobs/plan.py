"""What happens in a run: a pure function of its seed.

Jobs may be given other ends and lengths, and faults other shares. Fixed: nothing here may depend on anything but the
seed and the arguments, so that a failed run can be repeated.
"""

import random
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What goes wrong."""

    KILL_MANAGER = "kill-manager"
    """SIGKILL; another one is started."""
    FREEZE_MANAGER = "freeze-manager"
    """SIGSTOP, then SIGCONT."""
    KILL_NODE = "kill-node"
    """SIGKILL of a node's agent alone; its jobs run on; it is started again in the same folder."""
    STOP_NODE = "stop-node"
    """SIGTERM of a node's agent; it is started again in the same folder."""
    FREEZE_NODE = "freeze-node"
    """SIGSTOP of a node's agent alone, for longer than the heartbeat limit."""
    KILL_MACHINE = "kill-machine"
    """SIGKILL of a node's agent, of its shims and of its jobs; it is started again in the same folder."""
    FREEZE_MACHINE = "freeze-machine"
    """SIGSTOP of the agent, the shims and the jobs, for longer than the heartbeat limit. The only fault after which a
    job may run twice at a time, until the first heartbeat after it."""
    KILL_SHIM = "kill-shim"
    CUT_LINK = "cut-link"
    """A node's connections are reset; new ones are made at once."""
    PART_LINK = "part-link"
    """A node cannot reach any manager for longer than the heartbeat limit."""
    STALL_LINK = "stall-link"
    """Nothing gets through between a node and the managers; the connections stay open."""
    KILL_DATABASE = "kill-database"
    FREEZE_DATABASE = "freeze-database"


class End(StrEnum):
    """How the stand-in for Scrapy ends."""

    GOOD = "good"
    """Exit code 0 and a good finish_reason."""
    CODE = "code"
    """Exit code 3."""
    SILENT = "silent"
    """Exit code 0 and no finish_reason, as Scrapy does when it was terminated early."""
    ESCAPE = "escape"
    """Good, but a child that has left the process group and the session goes on; it must be gone with the job."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job."""

    name: str
    project: str
    seconds: float
    end: End
    cancel_after: float | None
    """Seconds from the request until it is cancelled. None: it is not."""
    pause: float
    """Seconds until the next job is requested."""


@dataclass(frozen=True, slots=True)
class Event:
    """One fault, when this share of the jobs has been requested."""

    at: float
    kind: Fault
    whom: float
    """From 0 to 1: which of those there are."""
    seconds: float
    """How long it lasts."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    jobs: tuple[Job, ...]
    events: tuple[Event, ...]


PROJECTS = ("shop", "news", "jobs")
_FEWEST, _MOST = 8, 12


def make_plan(seed: int, *, jobs: int, limit_seconds: float, request_seconds: float) -> Plan:
    """Return the run of a seed: faults of at least five kinds, one each of a manager, a machine, a link, the database
    and a shim. The jobs are requested over about `request_seconds`."""
    chance = random.Random(f"jobs {seed}")
    planned = tuple(_job(number, chance, 2 * request_seconds / jobs) for number in range(jobs))
    kinds = [
        chance.choice((Fault.KILL_MANAGER, Fault.FREEZE_MANAGER)),
        chance.choice((Fault.KILL_MACHINE, Fault.FREEZE_MACHINE)),
        chance.choice((Fault.CUT_LINK, Fault.PART_LINK, Fault.STALL_LINK)),
        chance.choice((Fault.KILL_DATABASE, Fault.FREEZE_DATABASE)),
        Fault.KILL_SHIM,
    ]
    while len(kinds) < chance.randint(_FEWEST, _MOST):
        kinds.append(chance.choice(list(Fault)))
    chance.shuffle(kinds)
    part = 0.9 / len(kinds)
    events = tuple(
        Event(
            round(0.05 + part * (number + chance.random()), 4),
            kind,
            round(chance.random(), 4),
            round(_seconds(kind, limit_seconds, chance), 2),
        )
        for number, kind in enumerate(kinds)
    )
    return Plan(seed, planned, events)


def _job(number: int, chance: random.Random, most_pause: float) -> Job:
    long = chance.random() < 0.1
    return Job(
        name=f"job-{number}",
        project=chance.choice(PROJECTS),
        seconds=round(chance.uniform(3.0, 8.0) if long else chance.uniform(0.0, 1.5), 2),
        end=chance.choices(list(End), weights=(16, 2, 2, 2))[0],
        cancel_after=round(chance.uniform(0.0, 3.0), 2) if chance.random() < 0.05 else None,
        pause=round(chance.uniform(0.0, most_pause), 3),
    )


def _seconds(kind: Fault, limit: float, chance: random.Random) -> float:
    match kind:
        case Fault.FREEZE_MACHINE | Fault.FREEZE_NODE | Fault.PART_LINK:
            return limit * chance.uniform(0.5, 3.0)
        case Fault.KILL_NODE | Fault.STOP_NODE | Fault.KILL_MACHINE:
            return limit * chance.choice((0.0, 0.3, 2.5))
        case Fault.STALL_LINK | Fault.FREEZE_MANAGER | Fault.FREEZE_DATABASE:
            return limit * chance.choice((0.3, 0.9, 2.0))
        case Fault.KILL_MANAGER | Fault.KILL_DATABASE:
            return chance.choice((0.0, 0.5, limit * 0.7))
        case _:
            return 0.0
