"""Attributes every repeated fetch of a chaos run to the fault that explains it. Pure; times are monotonic seconds."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gossamer.fakeweb.journal import Record
from gossamer_fakeweb.log import arrived, is_page
from tests.chaos.schedule import Kind

SETTLES_WITHIN_SECONDS = 2.0
"""A page that was answered longer ago than this is settled, unless its worker could not reach the store meanwhile."""
RENDERED_WITHIN_SECONDS = 30.0
"""The same of a page that waits for a tab, and is then built. The tabs of a frozen browser are not free for so long."""
WAKES_WITHIN_SECONDS = 1.0
"""A worker that could not be reached sends what it was about to send this long after it is back, at the latest."""

EXPLAINING = frozenset(
    {
        Kind.KILL_WORKER,
        Kind.FREEZE_WORKER,
        Kind.PART_LINK,
        Kind.STALL_LINK,
        Kind.HALF_OPEN,
        Kind.KILL_PRIMARY,
        Kind.FREEZE_PRIMARY,
        Kind.RESTART_NODE,
        Kind.KILL_BROWSER,
        Kind.FREEZE_BROWSER,
        Kind.KILL_RENDERER,
        Kind.FREEZE_RENDERER,
        Kind.PART_PROXY,
    }
)
"""The only faults after which a page may be fetched again: a worker was dead or counted as dead, or a server came back
without its last steps. Every other fault must repeat nothing."""


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault as it happened."""

    kind: Kind
    begin: float
    end: float
    agent: str = ""
    """The worker that was hit, as it signs its requests; empty: all of them."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Two whole fetches of one page, one after the other, and what explains the second."""

    earlier: Record
    later: Record
    cause: Kind | None

    def __str__(self) -> str:
        return (
            f"{self.later.url} (by {self.earlier.agent} at {self.earlier.started:.2f}, "
            f"by {self.later.agent} at {self.later.started:.2f})"
        )


def repeats(
    log: Sequence[Record],
    blows: Sequence[Blow],
    *,
    silences: Sequence[tuple[float, float]] = (),
    lags: Sequence[tuple[float, float]] = (),
    settles_within: float = SETTLES_WITHIN_SECONDS,
) -> list[Repeat]:
    """Return every repeated fetch, each with the latest fault that explains it.

    `silences`: when no worker could reach the store, so that nothing could be settled. `lags`: when the machine was
    late, which delays settlements too. `settles_within`: time in which a page that was answered is settled, unless its
    worker could not reach the store meanwhile.
    """
    whole: dict[str, list[Record]] = defaultdict(list)
    for record in log:
        if is_page(record) and arrived(record):
            whole[record.url].append(record)
    latest_first = sorted((blow for blow in blows if blow.kind in EXPLAINING), key=lambda blow: -blow.begin)

    def away(earlier: Record, blow: Blow) -> float:
        """Return for how long the worker could not settle the page before the blow."""
        if earlier.ended is None:
            return 0.0
        spans = [*silences, *lags, *((b.begin, b.end) for b in blows if b.agent == earlier.agent)]
        return _covered(spans, earlier.ended, blow.begin)

    found = []
    for records in whole.values():
        for earlier, later in pairwise(sorted(records, key=lambda record: record.started)):
            causes = (
                blow.kind
                for blow in latest_first
                if _is_hit(earlier, later, blow, settles_within + away(earlier, blow)) or _woke(later, blow)
            )
            found.append(Repeat(earlier, later, next(causes, None)))
    return found


def unexplained(found: Sequence[Repeat]) -> list[Repeat]:
    """Return the repeats without a cause: each is a broken promise."""
    return [repeat for repeat in found if repeat.cause is None]


def by_cause(found: Sequence[Repeat]) -> Counter[str]:
    """Count the explained repeats by the kind of fault."""
    return Counter(repeat.cause.value for repeat in found if repeat.cause is not None)


def _is_hit(earlier: Record, later: Record, blow: Blow, settles_within: float) -> bool:
    """Return whether the blow hit the first fetch's worker after the page was asked for and before it was settled."""
    if blow.agent not in ("", earlier.agent) or later.started < blow.begin:
        return False
    if earlier.started > blow.end + WAKES_WITHIN_SECONDS:
        return False
    return earlier.ended is None or blow.begin - earlier.ended <= settles_within


def _woke(later: Record, blow: Blow) -> bool:
    """Return whether the hit worker itself fetched again, when it could not know that others had taken its work."""
    if blow.kind is Kind.KILL_WORKER or blow.agent != later.agent:
        return False
    return blow.begin <= later.started <= blow.end + WAKES_WITHIN_SECONDS


def _covered(spans: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """Return how many seconds between `begin` and `end` lie in at least one span."""
    covered, reached = 0.0, begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            covered += last - first
            reached = last
    return covered
