"""The judge: what the web saw, what was kept and what the frontier says, against the web's own graph. Pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gossamer.fakeweb.journal import How, Record
from gossamer.model.request import MAX_DEATHS
from gossamer_fakeweb.expected import Ends, Expected, fetched
from gossamer_fakeweb.log import by_domain, is_page
from tests.chaos.repeats import (
    RENDERED_WITHIN_SECONDS,
    SETTLES_WITHIN_SECONDS,
    Blow,
    by_cause,
    repeats,
    unexplained,
)
from tests.chaos.schedule import BROWSERS

TWICE_AT_MOST = 0.02
"""Of the pages."""
CONTINUES_WITHIN_SECONDS = 2.0
"""After the heartbeat, a dead worker's work goes on."""
NOTICES_WITHIN_SECONDS = 15.0
"""A worker notices that its browser stands still. Meanwhile it leases nothing, also not the work of a dead one."""
BLUR_SECONDS = 0.2
"""Between the frontier's charge for a hit and the web server's clock, on a machine that has time for everybody."""
_MOST_BLUR = 0.9
"""Of a window."""
FORGIVEN_AT_MOST = 0.02
"""The largest share of the requests that may be excused because the machine was late or a worker was frozen."""
FORGIVEN_RENDERED = 0.06
"""The same of rendered pages: a run has few of them, and browsers make its machine late."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Kept:
    """What a run needs to know of a record on disk or on the bus."""

    url: str
    success: bool
    reason: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Death:
    """A worker that was killed at this monotonic time; `agent` is how it signed its requests."""

    agent: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is left of a run."""

    expected: Mapping[str, Expected]
    """What a correct crawler ends with, by URL."""
    log: Sequence[Record]
    kept: Sequence[Kept]
    unreadable: Sequence[str] = ()
    """What of the records could not be read, and why."""
    state: str = "finished"
    """Of the crawl, at last."""
    ends: Sequence[str] = ("finished",)
    """How often, and how, its end was told: one entry for each event, repeats of one event left out."""
    fetched: int | None = None
    """What the frontier counted; None: not asked."""
    endless: Sequence[str] = ()
    """Keys in the store without an end."""
    deaths: Sequence[Death] = ()
    silences: Sequence[tuple[float, float]] = ()
    """When (from, to; monotonic) nobody could reach the store."""
    dead_after_seconds: float = 10.0
    budget: tuple[int, float] | None = None
    """Hits in a window of so many seconds that no domain may exceed; None: not looked at."""
    lags: Sequence[tuple[float, float]] = ()
    """When (from, to; monotonic) the machine did not come round to the run's own process, or to the web's: that blurs
    too."""
    thaws: Sequence[tuple[str, float]] = ()
    """Which worker was thawed, and when (monotonic). What it was about to send when it was frozen leaves it then."""
    blows: Sequence[Blow] = ()
    """The faults that happened."""
    rendered: bool = False
    """A browser builds each page, which takes longer."""
    troubles: Sequence[str] = ()
    """What the run itself saw go wrong: a process that ended badly."""


@dataclass(slots=True)
class Verdict:
    """`faults` empty: all promises were kept."""

    pages: int
    """That had to be fetched."""
    twice: int
    """Fetches of whole pages beyond the first."""
    standstill: float | None
    """Seconds after a worker's death until its work went on, the longest; None: no death left work behind."""
    blur: float = 0.0
    """Seconds by which requests may have come closer than they were let go. Near a window's length the budget was not
    judged at all."""
    requests: int = 0
    """That the web saw."""
    explained: Counter[str] = field(default_factory=Counter)
    """Repeated fetches by the kind of fault that explains them."""
    forgiven: int = 0
    """Requests above a budget that were excused: the machine was late, or a frozen worker woke."""
    faults: list[str] = field(default_factory=list)

    @property
    def twice_share(self) -> float:
        return self.twice / self.pages if self.pages else 0.0


def judge(evidence: Evidence, *, twice_at_most: float = TWICE_AT_MOST) -> Verdict:
    """Compare. `twice_at_most`: of the pages; what was under way at a fault is a larger share of a short run."""
    pages = sum(result.ends is Ends.PAGE for result in evidence.expected.values())
    again = repeats(
        evidence.log,
        evidence.blows,
        silences=evidence.silences,
        lags=evidence.lags,
        settles_within=RENDERED_WITHIN_SECONDS if evidence.rendered else SETTLES_WITHIN_SECONDS,
    )
    rude, forgiven = _rude(evidence)
    deadly, wronged = _given_up(evidence)
    verdict = Verdict(
        pages, len(again), _standstill(evidence), _blur(evidence), len(evidence.log), by_cause(again), forgiven
    )
    verdict.faults = [
        *evidence.troubles,
        *_lost(evidence, deadly),
        *_shown(
            wronged, f"given up as worker_died though fewer than {MAX_DEATHS} workers were killed while they fetched it"
        ),
        *_strange(evidence),
        *_unlike(evidence),
        *_end(evidence, deadly),
        *rude,
        *_shown(map(str, unexplained(again)), "fetched again, and no fault explains it"),
    ]
    if forgiven > (FORGIVEN_RENDERED if evidence.rendered else FORGIVEN_AT_MOST) * len(evidence.log):
        verdict.faults.append(
            f"{forgiven:,} of {len(evidence.log):,} requests had to be forgiven: too many to judge the budgets"
        )
    if verdict.twice_share > twice_at_most:
        verdict.faults.append(f"{verdict.twice:,} of {pages:,} pages were fetched again, more than {twice_at_most:.0%}")
    limit = evidence.dead_after_seconds + CONTINUES_WITHIN_SECONDS
    if evidence.rendered:
        limit += NOTICES_WITHIN_SECONDS
    if verdict.standstill is not None and verdict.standstill > limit:
        verdict.faults.append(f"a dead worker's work stood still for {verdict.standstill:.1f} s, not {limit:g} s")
    return verdict


def _given_up(evidence: Evidence) -> tuple[set[str], set[str]]:
    """Return the URLs that were given up as `worker_died`: those with which enough workers were killed, and the others.

    A worker that was killed before it asked for its page leaves no trace and is not counted.
    """
    asked: dict[str, list[Record]] = defaultdict(list)
    for record in evidence.log:
        asked[record.url].append(record)
    deadly, wronged = set(), set()
    for url in {record.url for record in evidence.kept if record.reason == "worker_died"}:
        killed = sum(_died_with(asked[url], death) for death in evidence.deaths)
        (deadly if killed >= MAX_DEATHS else wronged).add(url)
    return deadly, wronged


def given_up_by_browsers(log: Sequence[Record], kept: Sequence[Kept], blows: Sequence[Blow]) -> set[str]:
    """Return the URLs that were rightly given up because a browser ended or hung: it was hit in the last attempt, which
    was not the first."""
    asked: dict[str, list[Record]] = defaultdict(list)
    for record in log:
        asked[record.url].append(record)
    hits = [blow for blow in blows if blow.kind in BROWSERS]
    given_up = {record.url for record in kept if record.reason in ("browser_crashed", "browser_hung")}
    return {
        url
        for url in given_up - {record.url for record in kept if record.success}
        if len(asked[url]) > 1
        and (last := asked[url][-1])
        and any(
            hit.agent == last.agent and last.started <= hit.end and hit.begin <= last.started + RENDERED_WITHIN_SECONDS
            for hit in hits
        )
    }


def _lost(evidence: Evidence, deadly: Collection[str]) -> list[str]:
    faults = [f"unreadable: {what}" for what in evidence.unreadable]
    asked = {record.url for record in evidence.log}
    got: dict[str, set[bool]] = defaultdict(set)
    for record in evidence.kept:
        got[record.url].add(record.success)
    unasked = [url for url in fetched(evidence.expected) if url not in asked]
    faults += _shown(unasked, "never asked for")
    wanted = {Ends.PAGE: True, Ends.FAILED: False}
    missing = [
        url
        for url, result in evidence.expected.items()
        if result.ends in wanted and wanted[result.ends] not in got.get(url, ()) and url not in deadly
    ]
    return faults + _shown(missing, "without a record of what it is")


def _strange(evidence: Evidence) -> list[str]:
    """What nothing links to, or must not be asked for."""
    allowed = fetched(evidence.expected)
    asked = {record.url for record in evidence.log if is_page(record)} - allowed
    kept = {record.url for record in evidence.kept} - evidence.expected.keys()
    refused = [
        record.url
        for record in evidence.kept
        if record.success and (known := evidence.expected.get(record.url)) is not None and known.ends is not Ends.PAGE
    ]
    return [
        *_shown(asked, "asked for that no link leads to, or robots.txt forbids"),
        *_shown(kept, "recorded that nobody asked for"),
        *_shown(refused, "recorded as pages that are none"),
    ]


def _unlike(evidence: Evidence) -> list[str]:
    """A repeat is known by its request id: one URL has one."""
    ids: dict[str, set[str]] = defaultdict(set)
    for record in evidence.kept:
        ids[record.url].add(record.request_id)
    return _shown([url for url, found in ids.items() if len(found) > 1], "recorded under several request ids")


def _end(evidence: Evidence, deadly: Collection[str]) -> list[str]:
    faults = []
    if evidence.state != "finished":
        faults.append(f"the crawl is {evidence.state}, not finished")
    if list(evidence.ends) != ["finished"]:
        faults.append(f"its end was told as {list(evidence.ends)}, not once as finished")
    pages = sum(result.ends is Ends.PAGE and url not in deadly for url, result in evidence.expected.items())
    if evidence.fetched is not None and evidence.fetched != pages:
        faults.append(f"the frontier counted {evidence.fetched:,} fetched, not {pages:,}")
    return faults + _shown(evidence.endless, "in the store without an end")


def _rude(evidence: Evidence) -> tuple[list[str], int]:
    """Return the exceeded budgets, and the number of requests that were forgiven."""
    if evidence.budget is None:
        return [], 0
    hits, window = evidence.budget

    def woke(record: Record) -> bool:
        return any(record.agent == agent and 0 <= record.started - at <= BLUR_SECONDS for agent, at in evidence.thaws)

    faults, forgiven = [], 0
    for domain, records in by_domain(evidence.log).items():
        charged = [record for record in records if is_page(record)]
        times = sorted(record.started for record in charged if not woke(record))
        close = [pair for pair in zip(times, times[hits:], strict=False) if pair[1] - pair[0] < window - BLUR_SECONDS]
        rude = [
            (first, last)
            for first, last in close
            if last - first < window - min(BLUR_SECONDS + _lag(evidence, first, last), _MOST_BLUR * window)
        ]
        forgiven += len(charged) - len(times) + len(close) - len(rude)
        if rude:
            first, last = min(rude, key=lambda pair: pair[1] - pair[0])
            faults.append(f"{domain} was asked {hits + 1} times in {last - first:.2f} s, not {hits} in {window:g} s")
    return faults[:_SHOWN], forgiven


def _lag(evidence: Evidence, first: float, last: float) -> float:
    """By how much what was noted from then to then may have been sent earlier, or later."""
    return sum(end - begin for begin, end in evidence.lags if begin <= last and end >= first - BLUR_SECONDS)


def _blur(evidence: Evidence) -> float:
    if evidence.budget is None:
        return 0.0
    longest = max((end - begin for begin, end in evidence.lags), default=0.0)
    return min(BLUR_SECONDS + longest, _MOST_BLUR * evidence.budget[1])


def _standstill(evidence: Evidence) -> float | None:
    """The longest that the work of a worker stood still after its death: until somebody else asks for the first page
    that it had not settled. Where nobody could reach the store meanwhile it counts from the end of that: who could not
    have been heard is not taken for dead before it has had a heartbeat's time to speak."""
    asked: dict[str, list[Record]] = defaultdict(list)
    for record in evidence.log:
        if is_page(record):
            asked[record.url].append(record)
    longest: float | None = None
    for death in evidence.deaths:
        again = [
            later.started
            for records in asked.values()
            if len(records) > 1 and _died_with(records, death)
            for later in records
            if later.started > death.at and later.agent != death.agent
        ]
        if again:
            ends = [end for begin, end in evidence.silences if begin < min(again) and end > death.at]
            longest = max(longest or 0.0, min(again) - max([death.at, *ends]))
    return longest


def _died_with(records: Sequence[Record], death: Death) -> bool:
    """The dead worker was the last to ask before its death, and had not been answered long since in vain: what had
    failed is asked again by anybody."""
    before = [record for record in records if record.started <= death.at]
    if not before or before[-1].agent != death.agent:
        return False
    last = before[-1]
    return last.how in (How.LEFT, How.OPEN) or (last.how is How.WHOLE and last.status == 200)


def _shown(found: Iterable[str], what: str) -> list[str]:
    some = sorted(set(found))
    if not some:
        return []
    more = f" and {len(some) - _SHOWN:,} more" if len(some) > _SHOWN else ""
    return [f"{what}: {', '.join(some[:_SHOWN])}{more}"]
