"""Finds out what limits a crawl, from measurements of its stages, and what to change.

A crawl is a chain of queues: scheduler, downloader, scraper, pipelines. In each holds Little's law, N = T x S: the mean
number inside is the throughput times the mean time inside. The busiest stage limits the others. Safe to change: texts,
and the shares below. Fixed: the names of the cases, which the JSON of `gossamer diagnose` has.
"""

import math
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

from gossamer.model.performance import MeasuredProcess, Measurement, Recording

_BUSY = 0.8
"""Share of its CPU from which a process is saturated, and to which it is filled. May be changed between 0.7 and 0.95:
above, requests wait for the CPU; below, processes are called saturated that are not."""
_MOSTLY = 0.7
"""Share of the time, or of a limit, that counts as most of it. May be changed a little."""
_BLOCKED = 0.25
"""Share of the time that blocking code must take to be the cause. May be changed a little."""
_MANY_OTHERS = 0.3
"""Share of the downloader that requests of pipelines and media must take to be the cause. May be changed a little."""
_SLOWED = 3.0
"""A pipeline is overloaded if an item takes so many times as long as the fastest one. May be changed a little."""
_MOST_GAIN = 8.0
"""Largest gain that is predicted: beyond it, something else limits the crawl first."""
_NEARLY_ALL = 0.9
"""Share of the links after which the rate at which they are found is measured: a crawl finds the last ones late. May be
changed a little."""
_LIVE_SECONDS = 60.0
"""Latest part of a crawl that still runs, of which the diagnosis is made. May be changed freely."""
_EDGE = 0.1
"""Share of the measurements that is left out at the start and at the end of a crawl. May be changed a little."""


class StageFigures(NamedTuple):
    """Little's law in one stage."""

    name: str
    number: float
    """Mean number inside, N."""
    rate: float
    """Number that leaves it in a second, T."""

    @property
    def seconds(self) -> float:
        """Mean time inside, S; 0: nothing left the stage."""
        return self.number / self.rate if self.rate else 0.0


class JobTime(NamedTuple):
    """Time of a job: pages x (response + overhead) / concurrency + start and stop. All times in seconds."""

    pages: int
    response: float
    overhead: float
    """Time that a request spends in the downloader besides its response."""
    concurrency: float
    """Mean number of pages in the downloader."""
    start_stop: float

    @property
    def seconds(self) -> float:
        """Return the time of the job."""
        return self.pages * (self.response + self.overhead) / self.concurrency + self.start_stop


class Advice(NamedTuple):
    """A change, and what it should give."""

    text: str
    setting: str = ""
    """Name of the setting or other thing to change. Empty: nothing has to change."""
    before: float = 0
    after: float = 0
    factor: float = 1.0
    """Predicted throughput by the throughput of now."""


class Finding(NamedTuple):
    """The limit of a crawl."""

    case: str
    """cpu, blocking, other_requests, large_responses, items_too_few, items_too_many, scheduler_empty; or healthy,
    rate_limit: nothing is wrong."""
    bottleneck: str
    """Name of the stage."""
    summary: str
    """One clause, without a full stop."""
    figures: tuple[str, ...]
    """Sentences that show it."""
    advice: Advice
    unit: str
    """Things that the rates count: items, or pages where the crawl has no items."""
    rate: float
    """Throughput per second."""
    stages: tuple[StageFigures, ...]
    job: JobTime
    cpu: float
    """CPU of the event loop's thread, as a share of one."""

    @property
    def predicted(self) -> float:
        """Throughput that the advice should give."""
        return self.rate * self.advice.factor


class _Case(NamedTuple):
    """A case that was found, before it is put together."""

    name: str
    bottleneck: str
    summary: str
    figures: tuple[str, ...]
    advice: Advice


class _Names(NamedTuple):
    """Names of the settings, as the advice has them."""

    requests: str
    bytes: str
    processes: str


_SCRAPY_NAMES = _Names(
    "CONCURRENT_REQUESTS", "SCRAPER_SLOT_MAX_ACTIVE_SIZE", "that share the crawl (GOSSAMER_FRONTIER)"
)
_WORKER_NAMES = _Names("--concurrency", "fetch.bodies_in_flight", "(--processes)")


class _Figures:
    """Figures by which the cases are decided: means and rates of the steady part of a crawl."""

    def __init__(self, process: MeasuredProcess, part: Sequence[Measurement]) -> None:
        self.whole = whole = reduce(Measurement.plus, part)
        self.limits = process.limits
        self.has_scheduler = process.kind == "scrapy"
        self.names = _SCRAPY_NAMES if process.kind == "scrapy" else _WORKER_NAMES
        seconds = whole.seconds
        self.pages = whole.page_responses / seconds
        self.responses = whole.responses / seconds
        self.items = (whole.items + whole.lost_items) / seconds
        self.cpu = whole.loop_cpu / seconds
        self.wanted_cpu = self.cpu / max(0.05, 1.0 - whole.starved / seconds)
        """As a share of the CPU time that other processes of the machine left."""
        self.process_cpu = whole.cpu / seconds
        self.concurrency = float(self.limits.requests or max(1.0, whole.downloader))
        self.response = whole.response_seconds / whole.responses if whole.responses else 0.0
        self.in_downloader = whole.pages / self.pages if self.pages and whole.pages else self.response
        """Seconds that a page spends in the downloader."""
        self.in_pipelines = whole.pipelines / self.items if self.items else 0.0
        self.items_per_page = self.items / self.pages if self.pages else 0.0
        self.others = 1.0 - whole.pages / whole.downloader if whole.downloader and whole.pages else 0.0
        self.link_gain = self._link_gain(part)
        """Factor by which the throughput can grow until links are found too slowly."""

    @property
    def cpu_gain(self) -> float:
        """Factor by which the throughput can grow until the CPU, or what others leave of it, is saturated."""
        available = min(1.0, max(self.cpu + self.whole.idle_cpus, self.whole.fair_cpu))
        return max(1.0, _BUSY * available / max(self.cpu, 0.001))

    @property
    def downloader_gain(self) -> float:
        """Factor by which the throughput can grow until the downloader is full of pages."""
        if not (self.pages and self.in_downloader):
            return 1.0
        return max(1.0, self.concurrency / self.in_downloader / self.pages)

    def _link_gain(self, part: Sequence[Measurement]) -> float:
        """Return `link_gain`: the rate at which links were found until nearly all were, by the rate of requests."""
        if not self.has_scheduler or self.whole.scheduler > _MOST_GAIN * self.concurrency:
            return _MOST_GAIN  # enough requests wait
        found = [one.requested + one.scheduler - before.scheduler for before, one in pairwise(part)]
        if sum(found) < self.whole.requested / 2:
            return _MOST_GAIN  # most links were found before
        wanted, so_far, seconds = _NEARLY_ALL * sum(found), 0.0, 0.0
        for number, one in zip(found, part[1:], strict=True):
            so_far, seconds = so_far + number, seconds + one.seconds
            if so_far >= wanted > 0:
                return max(1.0, so_far / seconds / (self.whole.requested / self.whole.seconds))
        return _MOST_GAIN

    def gain(self, *factors: float) -> float:
        """Return the smallest of these factors and the general limits."""
        return max(1.0, min(*factors, self.cpu_gain, self.link_gain, _MOST_GAIN))


def diagnose(recording: Recording) -> Finding | None:
    """Return what limits the crawl. None: no responses were measured between start and end."""
    part = steady_part(recording)
    if not sum(one.page_responses for one in part):
        return None
    figures = _Figures(recording.process, part)
    whole = figures.whole
    decide = (_cpu, _blocking, _other_requests, _items_too_few, _items_too_many, _large_responses, _scheduler_empty)
    case = next((found for check in decide if (found := check(figures)) is not None), None) or _healthy(figures)
    stages = [
        StageFigures("scheduler", whole.scheduler, whole.requested / whole.seconds),
        StageFigures("downloader", whole.downloader, figures.responses),
        StageFigures("scraper", whole.scraper, figures.pages),
        StageFigures("pipelines", whole.pipelines, figures.items if figures.has_scheduler else figures.pages),
    ]
    if not figures.has_scheduler:
        stages = stages[1::2]  # a worker has no scheduler and no scraper of its own
    unit, rate = ("items", whole.items / whole.seconds) if whole.items else ("pages", figures.pages)
    job = _job(recording, figures)
    return Finding(
        case.name, case.bottleneck, case.summary, case.figures, case.advice, unit, rate, tuple(stages), job, figures.cpu
    )


def steady_part(recording: Recording) -> Sequence[Measurement]:
    """Return the measurements between start and end of the crawl, or the latest of one that runs."""
    all_of_them = recording.measurements
    busy = [at for at, each in enumerate(all_of_them) if each.page_responses]
    if not busy:
        return ()
    part = all_of_them[busy[0] : busy[-1] + 1]
    if recording.ended is None and part[-1].at - part[0].at > _LIVE_SECONDS:
        return [each for each in part if part[-1].at - each.at < _LIVE_SECONDS]
    usual = sorted(each.page_responses for each in part)[len(part) // 2]  # the median
    steady = [at for at, each in enumerate(part) if each.page_responses >= usual / 2]
    part = part[steady[0] : steady[-1] + 1]  # without the time in which the stages fill, and become empty
    edge = math.ceil(len(part) * _EDGE) if len(part) > 3 else 0
    return part[edge : len(part) - edge]


def _job(recording: Recording, figures: _Figures) -> JobTime:
    """Return the time that a job of so many pages takes at this speed."""
    measurements = recording.measurements
    busy = [each for each in measurements if each.page_responses]
    first, last = busy[0], busy[-1]
    started = recording.process.started or first.at - first.seconds
    start_stop = max(0.0, first.at - first.seconds - started) + max(0.0, (recording.ended or last.at) - last.at)
    inside = figures.whole.pages or figures.whole.downloader or 1.0
    in_downloader = inside / figures.pages
    response = min(figures.response, in_downloader)
    pages = sum(each.page_responses for each in measurements)
    return JobTime(pages, response, in_downloader - response, inside, start_stop)


# --- the cases --------------------------------------------------------------------------------------------------------


def _cpu(figures: _Figures) -> _Case | None:
    whole = figures.whole
    if figures.wanted_cpu < _BUSY:
        return None
    idle = whole.idle_cpus
    processes = 1 + int(idle / max(figures.process_cpu, 0.5) + _IDLE_ROUNDING)
    place = _most(whole.busy_in)
    where = f" It is mostly used in {place}." if place else ""
    starved = whole.starved / whole.seconds
    if starved > 0.05:
        shown = [
            f"other processes kept the event loop's thread waiting for a CPU {starved:.0%} of the time",
            f"it used {min(1.0, figures.wanted_cpu):.0%} of the CPU that they left it, above {_BUSY:.0%}",
        ]
    else:
        shown = [f"CPU of the event loop's thread {figures.cpu:.0%}, above {_BUSY:.0%}"]
    shown += [f"{idle:.1f} CPUs of the machine idle", f"downloader {whole.downloader:.0f} of {figures.concurrency:.0f}"]
    if processes > 1:
        text = f"Run {processes} processes {figures.names.processes}, each on a CPU of its own.{where}"
        advice = Advice(text, "processes", 1, processes, float(processes))
    else:
        text = f"No CPU of this machine is idle: share the crawl with a second machine (a shared frontier).{where}"
        advice = Advice(text, "machines", 1, 2, 2.0)
    return _Case("cpu", "CPU", "the CPU is saturated; more concurrency gives nothing", tuple(shown), advice)


_IDLE_ROUNDING = 0.3
"""Part of an idle CPU that may be missing for one more process. May be changed a little."""


def _blocking(figures: _Figures) -> _Case | None:
    whole = figures.whole
    if whole.blocked < _BLOCKED:
        return None
    place = _most(whole.blocked_in) or "a callback, middleware or pipeline"
    # While the loop is blocked, responses wait to be read, so only the fastest one shows the server's time.
    response = whole.fastest_response or figures.response
    factor = figures.gain(figures.concurrency / response / figures.pages if response else _MOST_GAIN)
    work = whole.blocked * whole.seconds / (whole.items + whole.lost_items or whole.page_responses)
    rate = (figures.items or figures.pages) * factor
    threads = max(4, math.ceil(rate * work * _SPARE_THREADS))
    shown = (
        f"the event loop stood still inside callbacks {whole.blocked:.0%} of the time, with CPU at {figures.cpu:.0%}",
        f"it was found waiting in {place}",
        f"{work * 1000:.0f} ms of waiting for each {'item' if figures.items else 'page'}",
    )
    text = (
        f"Move the call in {place} to a thread (asyncio.to_thread or deferToThread), with {threads} threads "
        f"(REACTOR_THREADPOOL_MAXSIZE = {threads}), or use a library that does not block."
    )
    advice = Advice(text, "threads", 0, threads, factor)
    return _Case("blocking", "event loop", "blocking code stops the event loop", shown, advice)


_SPARE_THREADS = 1.5
"""Threads for each one that works on average. May be changed: fewer make items wait for threads."""


def _other_requests(figures: _Figures) -> _Case | None:
    whole = figures.whole
    if figures.others < _MANY_OTHERS or whole.downloader < _MOSTLY * figures.concurrency:
        return None
    factor = figures.gain(whole.downloader / whole.pages)
    after = _whole(figures.concurrency * factor)
    per_page = (whole.responses - whole.page_responses) / whole.page_responses
    shown = (
        f"downloader {whole.downloader:.1f} of {figures.concurrency:.0f}, but only {whole.pages:.1f} are pages",
        f"{figures.others:.0%} of its requests come from pipelines, media or middlewares: {per_page:.1f} for each page",
    )
    text = (
        f"Raise CONCURRENT_REQUESTS from {figures.concurrency:.0f} to {after} (and CONCURRENT_REQUESTS_PER_DOMAIN, if "
        "pages and these requests go to one site), or make these requests with a client outside of Scrapy's downloader."
    )
    advice = Advice(text, "CONCURRENT_REQUESTS", figures.concurrency, after, factor)
    return _Case("other_requests", "downloader", "requests that are not pages fill the downloader", shown, advice)


def _piles_up(figures: _Figures) -> bool:
    """Return whether responses wait behind the downloader."""
    whole = figures.whole
    return whole.bytes_full > _MANY_OTHERS or whole.scraper > max(whole.downloader, _LEAST_PILE)


_LEAST_PILE = 4.0
"""Responses that must be in the scraper, at least, before they count as piled up. May be changed a little."""


def _items_too_few(figures: _Figures) -> _Case | None:
    whole, limit = figures.whole, figures.limits.items
    if not limit or figures.items_per_page <= limit or not _piles_up(figures):
        return None
    if whole.pipelines < _MOSTLY * limit * whole.scraper or _is_overloaded(figures):
        return None
    # A page's items go through the pipelines in rounds, each of `limit` items.
    per_page = round(figures.items_per_page)
    rounds = math.ceil(per_page / limit)
    fewer = math.ceil(rounds / figures.gain(figures.downloader_gain))
    factor, after = rounds / fewer, math.ceil(per_page / fewer)
    if whole.bytes_full > _MANY_OTHERS and whole.response_bytes and figures.in_pipelines:
        # Pages that fit the limit of bytes. More are held now, because requests in flight are not counted.
        fitting = figures.limits.bytes * whole.responses / whole.response_bytes
        factor = max(1.0, min(factor, fitting / (fewer * figures.in_pipelines) / figures.pages))
    shown = (
        f"{figures.items_per_page:.0f} items a page, but at most {limit} of them in the pipelines at once",
        f"pipelines {whole.pipelines:.0f} of {limit * whole.scraper:.0f}: CONCURRENT_ITEMS x {whole.scraper:.1f} pages",
        f"an item takes {figures.in_pipelines:.3f} s in the pipelines; downloader {whole.downloader:.1f} of "
        f"{figures.concurrency:.0f}",
    )
    text = f"Raise CONCURRENT_ITEMS from {limit} to {after}."
    return _Case(
        "items_too_few", "pipelines", "the pipelines are at their limit of items",
        shown, Advice(text, "CONCURRENT_ITEMS", limit, after, factor),
    )  # fmt: skip


def _is_overloaded(figures: _Figures) -> bool:
    """Return whether items take much longer in the pipelines than the fastest one did."""
    fastest = figures.whole.fastest_item
    return bool(fastest) and figures.in_pipelines > _SLOWED * fastest


def _items_too_many(figures: _Figures) -> _Case | None:
    whole, limit = figures.whole, figures.limits.items
    if not limit or not _is_overloaded(figures) or not _piles_up(figures):
        return None
    enough = max(1, math.ceil(figures.items * whole.fastest_item))
    after = max(1, math.ceil(limit * enough / max(whole.pipelines, 1.0)))
    if after >= limit:
        return None
    shown = (
        f"pipelines {whole.pipelines:.0f} items; an item takes {figures.in_pipelines:.3f} s, the fastest took "
        f"{whole.fastest_item:.3f} s",
        f"the store behind the pipelines finishes {figures.items:.1f} items/s, for which {enough} at once would do",
    )
    text = (
        f"Lower CONCURRENT_ITEMS from {limit} to {after}: the store is spared and the throughput stays. To gain more, "
        "write in batches, or make the store faster."
    )
    return _Case(
        "items_too_many", "pipelines", "a pipeline's store is overloaded with items",
        shown, Advice(text, "CONCURRENT_ITEMS", limit, after, 1.0),
    )  # fmt: skip


def _large_responses(figures: _Figures) -> _Case | None:
    whole, limit = figures.whole, figures.limits.bytes
    if whole.bytes_full < _MOSTLY / 2 or not limit:
        return None
    factor = figures.gain(figures.downloader_gain)
    after = _round_up(limit * factor * _SPARE_BYTES)
    size = whole.response_bytes / whole.responses if whole.responses else 0.0
    in_scraper = whole.scraper / figures.pages
    shown = (
        f"responses of {whole.held_bytes / 1e6:.1f} MB are held, the limit is {limit / 1e6:.1f} MB; it stopped new "
        f"requests {whole.bytes_full:.0%} of the time",
        f"a response has {size / 1000:.0f} kB and stays {in_scraper:.2f} s in callbacks and pipelines",
        f"downloader {whole.downloader:.1f} of {figures.concurrency:.0f}",
    )
    text = (
        f"Raise {figures.names.bytes} from {limit} to {after} (memory of the process grows by as much), or make pages "
        "leave callbacks and pipelines sooner."
    )
    return _Case(
        "large_responses", "scraper", "the responses held reach their limit of bytes",
        shown, Advice(text, figures.names.bytes, limit, after, factor),
    )  # fmt: skip


_SPARE_BYTES = 1.5
"""Bytes for each one that is needed on average: a limit that is reached now and then stops requests. May be changed."""


def _scheduler_empty(figures: _Figures) -> _Case | None:
    whole = figures.whole
    if (
        not figures.has_scheduler
        or whole.scheduler_empty < _MOSTLY
        or whole.downloader >= _MOSTLY * figures.concurrency
    ):
        return None
    factor = max(1.0, min(figures.concurrency / max(whole.downloader, 0.1), figures.cpu_gain, _MOST_GAIN))
    places = _whole(factor)
    shown = (
        f"the scheduler was empty {whole.scheduler_empty:.0%} of the time",
        f"downloader {whole.downloader:.1f} of {figures.concurrency:.0f}; CPU {figures.cpu:.0%}",
        f"{whole.requested / whole.page_responses:.1f} new requests for each page",
    )
    text = (
        f"Pages have too few links: start from {places} times as many places (for example evenly spaced index pages), "
        "or give index pages a higher priority than details."
    )
    return _Case(
        "scheduler_empty", "scheduler", "the scheduler is empty: links are found too slowly",
        shown, Advice(text, "start requests (times)", 1, places, factor),
    )  # fmt: skip


def _healthy(figures: _Figures) -> _Case:
    whole, limits = figures.whole, figures.limits
    in_use = f"downloader {whole.downloader:.1f} of {figures.concurrency:.0f}; CPU {figures.cpu:.0%}"
    if whole.downloader and whole.transferring and whole.transferring < _MOSTLY * whole.downloader:
        waits = f"{whole.downloader - whole.transferring:.1f} requests in the downloader wait for their site's turn"
        text = (
            f"The site's limits set the pace: CONCURRENT_REQUESTS_PER_DOMAIN = {limits.site_requests}, DOWNLOAD_DELAY "
            f"= {limits.delay:g}. Raise them only if the site permits it."
        )
        return _Case("rate_limit", "downloader", "the limits of a site set the pace", (in_use, waits), Advice(text))
    if whole.downloader < _MOSTLY * figures.concurrency:
        text = "Requests start as fast as they may or arrive; nothing in this process holds the crawl back."
        name = "rate limits, or the supply of URLs, set the pace"
        return _Case("rate_limit", "scheduler", name, (in_use,), Advice(text))
    room = limits.bytes / whole.held_bytes if limits.bytes and whole.held_bytes else _MOST_GAIN
    factor = figures.gain(room)
    shown = (in_use, f"a response takes {figures.response:.3f} s; the scheduler had {whole.scheduler:.0f} requests")
    if factor < _WORTH_RAISING:
        text = "Nothing to change: more requests at once would use up the CPU, or the links that are found."
        return _Case("healthy", "downloader", "healthy: the downloader is full of pages", shown, Advice(text))
    after = int(figures.concurrency * factor)
    text = (
        f"Nothing is wrong. If the site permits it, raise {figures.names.requests} from {figures.concurrency:.0f} to "
        f"{after}, until the CPU is above 80 % or responses take longer."
    )
    advice = Advice(text, figures.names.requests, figures.concurrency, after, after / figures.concurrency)
    return _Case("healthy", "downloader", "healthy: the downloader is full of pages", shown, advice)


_WORTH_RAISING = 1.2
"""Gain from which more concurrency is advised. May be changed a little."""


def _most(places: dict[str, int]) -> str:
    """Return the place with the largest count; empty: there is none."""
    return max(places, key=lambda place: places[place], default="")


def _whole(number: float) -> int:
    """Return the number rounded up, unless it is a whole one but for an error of computation."""
    return math.ceil(number - 0.01)


def _round_up(number: float) -> int:
    """Return the number with two digits, the others 0."""
    unit: int = 10 ** max(0, int(math.log10(max(number, 1))) - 1)
    return math.ceil(number / unit) * unit
