"""Figures of the steady part of a crawl, by which a diagnosis is made, and the comparison of two runs.

Fixed: only like is compared with like; the cases are in diagnosis.py.
"""

import math
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

from gossamer.model.performance import FEW_PAGES, SHORT_SECONDS, Finding, Measurement, Recording, rounded

BUSY = 0.8
"""Share of its CPU from which a process is saturated, and to which it is filled. Above, requests wait for the CPU;
below, processes are called saturated that are not."""
MOST_GAIN = 8.0
"""Largest gain that is predicted: beyond it, something else limits the crawl first."""
_NEARLY_ALL = 0.9
"""Share of the links after which the rate at which they are found is measured: a crawl finds the last ones late."""
_LIVE_SECONDS = 60.0
"""Latest part of a crawl that still runs, of which the diagnosis is made."""
_STUCK_SECONDS = 10.0
"""Time without a response or an item from which the pipelines are called stuck. Shorter ones call a slow pipeline
stuck."""
_EDGE = 0.1
"""Share of the measurements that is left out at the start and at the end of a crawl."""
_LATE_TIMES = 3.0
"""Times that a response waits for the event loop: to send the request, to read the response, and behind what the loop
has read with it."""
_STOPPED_SHARE = 0.2
"""Share of an interval for which a process may have been stopped without the interval being left out."""


class SettingNames(NamedTuple):
    """Names of the settings, as the advice has them."""

    requests: str
    site_requests: str
    bytes: str
    processes: str


_SCRAPY_NAMES = SettingNames(
    "CONCURRENT_REQUESTS",
    "CONCURRENT_REQUESTS_PER_DOMAIN",
    "SCRAPER_SLOT_MAX_ACTIVE_SIZE",
    "that share the crawl (GOSSAMER_FRONTIER)",
)
_WORKER_NAMES = SettingNames("--concurrency", "--domain-concurrency", "fetch.bodies_in_flight", "(--processes)")
_SITES_FULL = 0.8
"""Share of the places for requests at the sites from which they count as full."""
_MOSTLY_CAPPED = 0.35
"""Share of the time for which requests must wait for the end of others."""
_WAITING = 0.1
"""Share of the requests in the downloader that must wait for a place at their site."""


class CrawlFigures:
    """Figures of a part of a crawl that has seen responses."""

    def __init__(self, recording: Recording, part: Sequence[Measurement]) -> None:
        process = recording.process
        self.whole = whole = reduce(Measurement.plus, part)
        self.limits = process.limits
        self.cpus = process.cpus
        self.has_scheduler = process.kind == "scrapy"
        self.names = _SCRAPY_NAMES if process.kind == "scrapy" else _WORKER_NAMES
        seconds = whole.seconds
        self.pages = whole.page_responses / seconds
        self.responses = whole.responses / seconds
        self.attempts = max(whole.attempts, whole.responses)
        self.items = (whole.items + whole.lost_items) / seconds
        self.cpu = whole.loop_cpu / seconds
        self.wanted_cpu = self.cpu / max(0.05, 1.0 - whole.starved / seconds)
        """As a share of the CPU time that other processes of the machine left."""
        self.process_cpu = whole.cpu / seconds
        self.concurrency = float(self.limits.requests or max(1.0, whole.downloader))
        self.response = self._server_seconds(recording.measurements)
        """Seconds that the site takes for a response."""
        self.in_downloader = whole.pages / self.pages if self.pages and whole.pages else self.response
        """Seconds that a page spends in the downloader."""
        self.in_pipelines = whole.pipelines / self.items if self.items else 0.0
        self.items_per_page = self.items / self.pages if self.pages else 0.0
        self.others = 1.0 - whole.pages / whole.downloader if whole.downloader and whole.pages else 0.0
        self.link_gain = self._link_gain(part)
        """Factor by which the throughput can grow until links are found too slowly."""

    def _server_seconds(self, measurements: Sequence[Measurement]) -> float:
        """Return the seconds that the site takes for a response: without the time for which the event loop came late,
        but no less than the fastest response took."""
        whole = self.whole
        if not whole.responses:
            return 0.0
        response = whole.response_seconds / whole.responses
        fastest = min(filter(None, (one.fastest_response for one in measurements)), default=0.0)
        return min(response, max(response - _LATE_TIMES * whole.lag, fastest))

    @property
    def is_capped(self) -> bool:
        """True if requests wait only for the end of others in flight at their sites."""
        whole = self.whole
        if self.limits.shared:  # the frontier keeps those that wait, and says so
            return whole.capped >= _MOSTLY_CAPPED
        waiting = whole.downloader - whole.transferring
        has_full_sites = whole.site_places > 0 and whole.transferring >= _SITES_FULL * whole.site_places
        return has_full_sites and waiting >= _WAITING * whole.downloader

    @property
    def site_requests(self) -> float:
        """Mean number of requests in flight at a site. 0: not known."""
        return self.whole.transferring / self.whole.sites if self.whole.sites else 0.0

    @property
    def delay_gain(self) -> float:
        """Factor by which the throughput can grow until the delays between requests to the sites are kept."""
        if not (self.limits.delay and self.whole.sites and self.responses):
            return MOST_GAIN
        return max(1.0, self.whole.sites / self.limits.delay / self.responses)

    @property
    def cpu_gain(self) -> float:
        """Factor by which the throughput can grow until the CPU, or what others leave of it, is saturated."""
        available = min(1.0, max(self.cpu + self.whole.idle_cpus, self.whole.fair_cpu))
        return max(1.0, BUSY * available / max(self.cpu, 0.001))

    @property
    def loop_gain(self) -> float:
        """Factor by which the throughput can grow until the CPU is saturated, or the event loop is busy or blocked all
        the time."""
        return max(1.0, min(self.cpu_gain, BUSY / max(self.cpu + self.whole.blocked, 0.001)))

    @property
    def downloader_gain(self) -> float:
        """Factor by which the throughput can grow until the downloader is full of pages."""
        if not (self.pages and self.in_downloader):
            return 1.0
        return max(1.0, self.concurrency / self.in_downloader / self.pages)

    def _link_gain(self, part: Sequence[Measurement]) -> float:
        """Return `link_gain`: the rate at which links were found until nearly all were, by the rate of requests."""
        waits = self.limits.shared and self.whole.capped + self.whole.resting >= _MOSTLY_CAPPED
        if not self.has_scheduler or waits or self.whole.scheduler > MOST_GAIN * self.concurrency:
            return MOST_GAIN  # enough requests wait
        found = [one.requested + one.scheduler - before.scheduler for before, one in pairwise(part)]
        if sum(found) < self.whole.requested / 2:
            return MOST_GAIN  # most links were found before
        wanted, so_far, seconds = _NEARLY_ALL * sum(found), 0.0, 0.0
        for number, one in zip(found, part[1:], strict=True):
            so_far, seconds = so_far + number, seconds + one.seconds
            if so_far >= wanted > 0:
                return max(1.0, so_far / seconds / max(self.whole.requested / self.whole.seconds, 0.001))
        return MOST_GAIN

    def gain(self, *factors: float, blocking_stays: bool = True) -> float:
        """Return the smallest of these factors and the general limits."""
        return max(1.0, min(*factors, self.loop_gain if blocking_stays else self.cpu_gain, self.link_gain, MOST_GAIN))


def steady_part(recording: Recording) -> Sequence[Measurement]:
    """Return the measurements between start and end of the crawl, or the latest of one that runs. Empty: nothing left
    the downloader."""
    all_of_them = [each for each in recording.measurements if each.seconds > 0]
    has_pages = any(each.page_responses for each in all_of_them)

    def done(each: Measurement) -> int:
        return each.page_responses if has_pages else max(each.attempts, each.responses)

    busy = [at for at, each in enumerate(all_of_them) if done(each)]
    if not busy:
        return ()
    part = [all_of_them[at] for at in range(busy[0], busy[-1] + 1) if not _was_stopped(all_of_them, at)]
    if not part:
        return ()
    if recording.ended is None and part[-1].at - part[0].at > _LIVE_SECONDS:
        return [each for each in part if part[-1].at - each.at < _LIVE_SECONDS]
    usual = sorted(done(each) for each in part)[len(part) // 2]  # the median
    steady = [at for at, each in enumerate(part) if done(each) >= usual / 2]
    part = part[steady[0] : steady[-1] + 1]  # without the time in which the stages fill, and become empty
    edge = math.ceil(len(part) * _EDGE) if len(part) > 3 else 0
    return part[edge : len(part) - edge]


def stuck_part(recording: Recording) -> Sequence[Measurement]:
    """Return the latest measurements of a process that runs, if nothing moves in them while the pipelines hold
    something. Empty: it moves, has ended, or works."""
    if recording.ended is not None:
        return ()
    part: list[Measurement] = []
    for each in reversed(recording.measurements):
        if each.responses or each.items or each.lost_items or each.pipelines < 1:
            break
        part.append(each)
    seconds = sum(each.seconds for each in part)
    busy = sum(each.cpu + each.seconds * max(each.blocked, each.stopped / (each.seconds or 1.0)) for each in part)
    return part[::-1] if seconds >= _STUCK_SECONDS and busy < BUSY * seconds else ()


def _was_stopped(measurements: Sequence[Measurement], at: int) -> bool:
    """Return whether the process was stopped in this interval, or in the one before: then responses arrive that waited
    for it."""
    return any(each.stopped > _STOPPED_SHARE * each.seconds for each in measurements[max(0, at - 1) : at + 1])


# --- comparison -------------------------------------------------------------------------------------------------------


class MeasuredRun(NamedTuple):
    """One run of a crawl: a process, and those of the same name that ran at the same time."""

    recordings: tuple[Recording, ...]
    """The first one is the process that was diagnosed."""
    findings: tuple[Finding, ...]
    """Diagnosis of each process in which something was measured, that of the first one first."""

    @property
    def finding(self) -> Finding:
        """Diagnosis of the first process."""
        return self.findings[0]

    @property
    def rate(self) -> float:
        """Throughput of all processes together."""
        return rounded(sum(one.rate for one in self.findings))

    @property
    def predicted(self) -> float:
        """Throughput of all processes together that the advice should give."""
        return rounded(self.rate * self.finding.advice.factor)


def is_same_crawl(one: Recording, other: Recording) -> bool:
    """Return whether two processes may have worked for the same crawl."""
    return (one.process.name, one.process.kind) == (other.process.name, other.process.kind)


def overlap(one: Recording, other: Recording) -> bool:
    """Return whether two processes ran at the same time for most of the time of the one that ran shorter."""
    spans = [(each.process.started, _end(each)) for each in (one, other)]
    common = min(end for _, end in spans) - max(start for start, _ in spans)
    return common > min(end - start for start, end in spans) / 2


def _end(recording: Recording) -> float:
    """Return the time of the end, or of the latest measurement."""
    latest = recording.measurements[-1].at if recording.measurements else recording.process.started
    return recording.ended if recording.ended is not None else latest


class Comparison(NamedTuple):
    """A run and an earlier one. Rates are those of all processes."""

    before: MeasuredRun
    refused: str = ""
    """Reason why the two cannot be compared, as a clause; empty: they can."""
    change: str = ""
    """Sentence about the advice of the earlier run, where it is known whether it was followed; empty: it is not."""
    is_predicted: bool = False
    """True if the throughput may be compared with what was predicted."""
    difference: float = 0.0
    """Throughput by that of the earlier run, or by what was predicted (`is_predicted`), minus 1."""


def compare(now: MeasuredRun, before: MeasuredRun) -> Comparison:
    """Compare two runs, if they are alike."""
    if refused := _refusal(now, before):
        return Comparison(before, refused)
    advice = before.finding.advice
    difference = now.rate / before.rate - 1
    if advice.factor <= 1 or not advice.setting:
        return Comparison(before, difference=difference)
    value = _setting_now(now, advice.setting)
    predicted = Comparison(before, is_predicted=True, difference=now.rate / before.predicted - 1)
    if value is None:
        return predicted._replace(change=f"if {advice.setting} was changed as advised")
    if value == advice.before:
        return Comparison(before, change=f"{advice.setting} is {value:g} as before", difference=difference)
    if value != advice.after:
        change = f"{advice.setting} is {value:g}, not {advice.after:g} as advised"
        return Comparison(before, change=change, difference=difference)
    return predicted


def _refusal(now: MeasuredRun, before: MeasuredRun) -> str:
    """Return why two runs cannot be compared; empty: they can."""
    one, other = before.finding, now.finding
    if one.unit != other.unit:
        return f"its throughput is counted in {one.unit}, that of this run in {other.unit}"
    for finding, which in ((one, "of it"), (other, "of this run")):
        if finding.is_rough:
            return (
                f"only {finding.measured_seconds:.1f} s with {finding.measured_pages:,} pages {which} were measured; "
                f"{SHORT_SECONDS:.0f} s and {FEW_PAGES} pages are needed"
            )
    if not (one.rate and other.rate):
        return "one of them has no throughput"
    was, process = before.recordings[0].process, now.recordings[0].process
    if was.host != process.host:
        return f"it ran on another machine, {was.host}"
    if was.cpus != process.cpus:
        return f"its processes had {was.cpus} CPUs, those of this run {process.cpus}"
    advised = _KNOBS.get(before.finding.advice.setting, ())
    for name in sorted({*was.knobs, *process.knobs}):
        one_value, other_value = was.knobs.get(name), process.knobs.get(name)
        if one_value != other_value and (name not in advised or (name == "pipeline" and other_value != "threads")):
            return (
                f"another option differs: --{name.replace('_', '-')} was {one_value}, that of this run is {other_value}"
            )
    return ""


def _setting_now(run: MeasuredRun, setting: str) -> float | None:
    """Return the value that a setting of an advice has in a run; None: a recording does not have it."""
    limits = run.recordings[0].process.limits
    if setting == "processes":
        return len(run.findings)
    if setting == "threads" and (knobs := run.recordings[0].process.knobs):
        return float(knobs["slots"]) if knobs.get("pipeline") == "threads" else 0
    name = _LIMITS.get(setting)
    return getattr(limits, name) if name is not None else None


_LIMITS = {
    "CONCURRENT_REQUESTS": "requests",
    "--concurrency": "requests",
    "SCRAPER_SLOT_MAX_ACTIVE_SIZE": "bytes",
    "fetch.bodies_in_flight": "bytes",
    "CONCURRENT_ITEMS": "items",
}
"""Fields of StageLimits by the name of the setting in an advice."""
_KNOBS = {
    "CONCURRENT_REQUESTS": ("concurrency",),
    "CONCURRENT_ITEMS": ("item_concurrency",),
    "SCRAPER_SLOT_MAX_ACTIVE_SIZE": ("held_bytes",),
    "processes": ("processes", "starts"),
    "machines": ("processes", "starts"),
    "threads": ("pipeline", "slots"),
    "start requests (times)": ("starts",),
}
"""Options of `gossamer bench` that change when an advice is followed, by the name of the setting in it."""
