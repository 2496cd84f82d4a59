"""What happens in a run: a pure function of its seed. The same seed is the same run, on any machine."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What goes wrong."""

    KILL_WORKER = "kill-worker"
    """SIGKILL; another is started."""
    FREEZE_WORKER = "freeze-worker"
    """SIGSTOP for longer than the heartbeat, then SIGCONT."""
    ADD_WORKER = "add-worker"
    DRAIN_WORKER = "drain-worker"
    """SIGTERM; another is started."""
    SKEW_CLOCK = "skew-clock"
    """A worker's wall clock jumps by up to two seconds."""
    SLOW_LINK = "slow-link"
    """Every byte between a worker and the store takes longer."""
    STALL_LINK = "stall-link"
    """Nothing gets through between a worker and the store, and nobody is told."""
    STALL_ALL = "stall-all"
    """The same for all workers at once."""
    CUT_LINK = "cut-link"
    CUT_ALL = "cut-all"
    PART_LINK = "part-link"
    """A worker cannot reach the store for longer than the heartbeat."""
    HALF_OPEN = "half-open"
    """The server has forgotten a worker's connections; the worker does not learn of it."""
    KILL_SERVICE = "kill-service"
    """SIGKILL of a service process; another is started."""
    KILL_STORE = "kill-store"
    """SIGKILL of the server, and a start from what is on its disk."""
    FREEZE_STORE = "freeze-store"
    SET_STORE_CLOCK = "set-store-clock"
    """The wall clock of the server's machine jumps by seconds or hours, forward or back."""
    KILL_PRIMARY = "kill-primary"
    """SIGKILL of a cluster's primary; its replica takes over, and it comes back as that one's replica."""
    FREEZE_PRIMARY = "freeze-primary"
    """SIGSTOP, too short to be noticed by the others or until its replica took over; then it comes back, and may still
    think that it is the primary."""
    MOVE_SLOT = "move-slot"
    """A shard's slot goes to another primary, by the servers' own atomic migration."""
    RESTART_NODE = "restart-node"
    """SIGKILL of any node of a cluster, and at once a start from what is on its disk."""
    KILL_BROWSER = "kill-browser"
    """SIGKILL of a worker's browser."""
    FREEZE_BROWSER = "freeze-browser"
    """SIGSTOP of a worker's browser, for good: the worker has to notice, and to kill it."""
    KILL_RENDERER = "kill-renderer"
    """SIGKILL of the process that a page is built in."""
    FREEZE_RENDERER = "freeze-renderer"
    """SIGSTOP of it, for good."""
    KILL_JANITOR = "kill-janitor"
    """SIGKILL of the shell beside a browser, which deletes its folder where the worker was killed."""
    PART_PROXY = "part-proxy"
    """The operator's proxy is away: connections are reset, and new ones refused."""
    STALL_PROXY = "stall-proxy"
    """The operator's proxy passes nothing on."""


WORKERS = (Kind.KILL_WORKER, Kind.FREEZE_WORKER, Kind.ADD_WORKER, Kind.DRAIN_WORKER, Kind.SKEW_CLOCK)
LINKS = (
    Kind.SLOW_LINK, Kind.STALL_LINK, Kind.STALL_ALL, Kind.CUT_LINK, Kind.CUT_ALL, Kind.PART_LINK, Kind.HALF_OPEN,
)  # fmt: skip
"""What the network between workers and store does."""

BROWSERS = (Kind.KILL_BROWSER, Kind.FREEZE_BROWSER, Kind.KILL_RENDERER, Kind.FREEZE_RENDERER, Kind.KILL_JANITOR)
"""Faults of a worker's browsers."""
PROXY = (Kind.PART_PROXY, Kind.STALL_PROXY)
"""Faults of the operator's proxy."""


class Lane(StrEnum):
    """How the crawl comes in and its pages go out."""

    FILES = "files"
    SERVICE = "service"
    """By two `gossamer serve`, whose requests and pages are on the bus."""
    SCRAPY = "scrapy"
    """Scrapy processes with the shared scheduler."""
    BROWSER = "browser"
    """As `files`, and a browser builds each page."""


_SERVICES, _SCRAPY = 0.3, 0.15
"""Of all runs."""
_PROXIES = 0.5
"""Of all runs with browsers."""
MAX_SKEW_SECONDS = 2.0
_FIRST, _LAST = 0.04, 0.85
_FEWEST, _MOST = 6, 9
_FEWEST_KINDS = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them, when the web has seen this share of its pages."""

    at: float
    """0..1; the share grows with the crawl, so that a slow machine makes no other run of it."""
    kind: Kind
    whom: float
    """0..1: which of those that live then."""
    seconds: float
    """How long it lasts; of SKEW_CLOCK and SET_STORE_CLOCK how far the clock is ahead then; of SLOW_LINK the delay."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    lane: Lane
    workers: int
    """At the start."""
    processes: int
    """Of each worker that writes to files: several are forked, and share what they know of the frontier."""
    one_file: bool
    """All write to one output; else each has its own."""
    form: str
    """The output's ending, which says how it is packed."""
    moderated: bool
    """Requests of a domain are evenly spaced."""
    fsync: str
    """The store's `appendfsync`."""
    faults: tuple[Fault, ...]
    proxy: bool = False
    """Workers send everything through a proxy."""


def make_plan(seed: int, *, store_kinds: Collection[Kind], dead_after_seconds: float) -> Plan:
    """At least six faults of at least three kinds, one of them of the store, one of a link, one a killed worker."""
    chance = random.Random(f"chaos {seed}")
    count = chance.randint(_FEWEST, _MOST)
    lane = _lane(chance.random())
    # The bus, which the service's store carries too, goes by the server's clock: what a dead service had taken in hand
    # comes back when that has gone on far enough.
    store = sorted(kind for kind in store_kinds if lane is not Lane.SERVICE or kind is not Kind.SET_STORE_CLOCK)
    kinds = [Kind.KILL_WORKER, chance.choice(store), chance.choice(LINKS)]
    if lane is Lane.SERVICE:
        kinds.append(Kind.KILL_SERVICE)
    others = [*WORKERS, *LINKS, *store, *kinds[3:]]
    while len(kinds) < count or len(set(kinds)) < _FEWEST_KINDS:
        kinds.append(chance.choice(others))
    chance.shuffle(kinds)
    faults = _faults(kinds, dead_after_seconds, chance)
    return Plan(
        seed=seed,
        lane=lane,
        workers=chance.randint(3, 5),
        processes=random.Random(f"chaos processes {seed}").choice((1, 2)),  # its own, so that older plans stay alike
        one_file=chance.random() < 0.5,
        form=chance.choice((".jsonl", ".jsonl.gz", ".jsonl.zst")),
        moderated=chance.random() < 0.5,
        fsync=chance.choice(("always", "everysec")),
        faults=faults,
    )


def make_browser_plan(seed: int, *, store_kinds: Collection[Kind], dead_after_seconds: float) -> Plan:
    """At least eight faults: one of the store, one of a link, one of the operator's proxy where there is one, a killed
    worker, and four of browsers."""
    chance = random.Random(f"browsers {seed}")
    store = sorted(kind for kind in store_kinds if kind is not Kind.SET_STORE_CLOCK)
    proxy = chance.random() < _PROXIES
    kinds = [Kind.KILL_WORKER, chance.choice(store), chance.choice(LINKS), *chance.sample(BROWSERS, 4)]
    kinds.append(chance.choice(PROXY if proxy else (Kind.FREEZE_WORKER, Kind.DRAIN_WORKER, *BROWSERS)))
    chance.shuffle(kinds)
    return Plan(
        seed=seed,
        lane=Lane.BROWSER,
        workers=chance.randint(2, 3),
        processes=1,
        one_file=chance.random() < 0.5,
        form=".jsonl",
        moderated=chance.random() < 0.5,
        fsync=chance.choice(("always", "everysec")),
        faults=_faults(kinds, dead_after_seconds, chance),
        proxy=proxy,
    )


def _faults(kinds: Sequence[Kind], dead_after_seconds: float, chance: random.Random) -> tuple[Fault, ...]:
    """Return the faults, some in each part of the run, so that they neither all meet nor all keep apart."""
    part = (_LAST - _FIRST) / len(kinds)
    times = [_FIRST + part * (number + chance.random()) for number in range(len(kinds))]
    return tuple(
        Fault(round(at, 4), kind, round(chance.random(), 4), round(_seconds(kind, dead_after_seconds, chance), 3))
        for at, kind in zip(times, kinds, strict=True)
    )


def _lane(drawn: float) -> Lane:
    if drawn < _SERVICES:
        return Lane.SERVICE
    return Lane.SCRAPY if drawn > 1 - _SCRAPY else Lane.FILES


def _seconds(kind: Kind, heartbeat: float, chance: random.Random) -> float:
    match kind:
        case Kind.FREEZE_WORKER | Kind.PART_LINK:
            return heartbeat * chance.uniform(1.3, 2.5)
        case Kind.SKEW_CLOCK:
            return chance.uniform(-MAX_SKEW_SECONDS, MAX_SKEW_SECONDS)
        case Kind.SET_STORE_CLOCK:
            return chance.choice((3600.0, -20.0, -7200.0)) * chance.uniform(0.5, 1.0)
        case Kind.SLOW_LINK:
            return chance.uniform(0.005, 0.15)
        case Kind.STALL_LINK | Kind.STALL_ALL | Kind.FREEZE_STORE:
            return heartbeat * chance.choice((0.3, 0.9, 1.5))  # noticed by nobody, nearly, by everybody
        case Kind.FREEZE_PRIMARY:
            return heartbeat * chance.choice((0.3, 2.0))
        case Kind.KILL_PRIMARY:
            return chance.choice((0.0, heartbeat * 1.5))
        case Kind.PART_PROXY | Kind.STALL_PROXY:
            return chance.uniform(0.5, 2.0)
        case Kind.KILL_STORE:
            return chance.choice((0.0, 0.3, heartbeat * 1.5))
        case _:
            return 0.0
