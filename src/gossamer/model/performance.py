"""Measurements of one crawling process: what it waits for, stage by stage.

A crawl is a chain of queues: scheduler, downloader, scraper (callbacks), pipelines. A process measures the number of
requests or items in each, and what leaves them. `gossamer top` shows these measurements, `gossamer diagnose` explains
them. They are kept as JSON lines (telemetry/performance.py), so a field that is renamed makes older recordings
unreadable; new fields need a default.
"""

import math
from typing import NamedTuple, Self

import msgspec


class StageLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of a process, as its settings have them. 0 means that there is no such limit."""

    requests: int = 0
    """Requests in the downloader (CONCURRENT_REQUESTS)."""
    site_requests: int = 0
    """Requests to one site (CONCURRENT_REQUESTS_PER_DOMAIN, --domain-concurrency)."""
    items: int = 0
    """Items of one page that are in the pipelines at once (CONCURRENT_ITEMS)."""
    bytes: int = 0
    """Bytes of responses that are held (SCRAPER_SLOT_MAX_ACTIVE_SIZE)."""
    delay: float = 0.0
    """Seconds between two requests to one site (DOWNLOAD_DELAY)."""
    tabs: int = 0
    """Pages that browsers build at once (browser.tabs of each). 0: the process builds none."""
    throttled: bool = False
    """True: something else may set a longer delay (AutoThrottle)."""
    shared: bool = False
    """True: a frontier that processes share gives out the requests, with its own limits for each site."""


class MeasuredProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Identity and limits of a process."""

    name: str
    """Name of the spider, or of the pool of a worker."""
    kind: str
    """scrapy or worker."""
    host: str = ""
    pid: int = 0
    started: float = 0.0
    """Time at which the crawl began, in epoch seconds."""
    limits: StageLimits = StageLimits()
    cpus: int = 1
    """CPUs that the process may use."""
    ticks: int = 0
    """Start of the process, in the system's own unit: tells it from a later one with its id. 0: not known."""
    knobs: dict[str, int | float | str | bool] = {}
    """Options of a benchmark (`gossamer bench`) on which the throughput depends. Empty: it is no benchmark."""


class Occupancy(NamedTuple):
    """Requests and items in the stages of a process at one moment."""

    downloader: int = 0
    transferring: int = 0
    scraper: int = 0
    pipelines: int = 0
    held_bytes: int = 0
    is_downloader_full: bool = False
    is_bytes_full: bool = False
    is_resting: bool = False
    """Requests wait for their site's turn, and the process has free places for them."""
    is_capped: bool = False
    """Requests wait only for the end of those in flight at their sites, and the process has free places for them."""
    sites: int = 0
    """Sites with requests in the downloader."""
    site_places: int = 0
    """Requests that these sites may have in flight together. 0: not known."""
    browser: int = 0
    """Pages that browsers build, or that wait for a free tab."""
    is_browser_full: bool = False
    """Pages wait for a free tab."""


class Waiting(NamedTuple):
    """Numbers that are read less often, because they cost more."""

    scheduler: int = 0
    pages: int = 0
    """Requests in the downloader that the scheduler gave out."""


class Counts(msgspec.Struct):
    """Counters of a process since its start. Each sum is explained at the field of `Measurement` with its name."""

    requested: int = 0
    responses: int = 0
    page_responses: int = 0
    attempts: int = 0
    failed: int = 0
    redirected: int = 0
    response_seconds: float = 0.0
    response_bytes: int = 0
    rendered: int = 0
    items: int = 0
    lost_items: int = 0
    item_seconds: float = 0.0
    fastest_response: float = 0.0
    """Seconds of the fastest response since the last measurement, which resets it."""
    fastest_item: float = 0.0
    """Seconds of the fastest item since the last measurement, which resets it."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Figures of a process in one interval. Numbers in a stage are means over the interval; the others are sums."""

    at: float = 0.0
    """End of the interval, in epoch seconds."""
    seconds: float = 1.0
    """Length of the interval."""

    # Means.
    scheduler: float = 0.0
    """Requests that wait in the scheduler."""
    downloader: float = 0.0
    """Requests in the downloader, those of pipelines and media included."""
    pages: float = 0.0
    """Those of them that the scheduler gave out."""
    transferring: float = 0.0
    """Those in the downloader that were sent; the others wait for a place or a delay of their site."""
    scraper: float = 0.0
    """Responses in callbacks, or whose items are in the pipelines."""
    pipelines: float = 0.0
    """Items in the pipelines."""
    held_bytes: float = 0.0
    """Bytes of responses in the scraper."""
    sites: float = 0.0
    """Sites with requests in the downloader. 0: not known."""
    site_places: float = 0.0
    """Requests that these sites may have in flight together (CONCURRENT_REQUESTS_PER_DOMAIN). 0: not known."""

    browser: float = 0.0
    """Pages that browsers build, or that wait for a free tab."""

    # Shares of the interval, 0 to 1.
    scheduler_empty: float = 0.0
    downloader_full: float = 0.0
    """Share during which the downloader had no free place."""
    bytes_full: float = 0.0
    """Share during which the responses held were at their limit, so that no request was started."""
    blocked: float = 0.0
    """Share during which the event loop's thread waited inside a callback, without wanting a CPU."""
    resting: float = 0.0
    """Share during which requests waited in the frontier for their site's turn, though the process had free places."""

    capped: float = 0.0
    """Share during which requests waited in the frontier only for the end of others in flight at their sites, though
    the process had free places."""

    browser_full: float = 0.0
    """Share during which pages waited for a free tab."""

    # Sums.
    rendered: int = 0
    """Pages that browsers have built."""
    requested: int = 0
    """Requests that left the scheduler."""
    responses: int = 0
    """Responses, those to pipelines and media included."""
    page_responses: int = 0
    """Responses to requests that the scheduler gave out."""
    attempts: int = 0
    """Requests that left the downloader: also those that were redirected, are retried, or got no response."""
    failed: int = 0
    """Those of them without a response, or with an error status."""
    redirected: int = 0
    """Those of them with a redirect."""
    response_seconds: float = 0.0
    """Time from sending a request to the end of its response, of `responses` together."""
    response_bytes: int = 0
    items: int = 0
    """Items that left the pipelines."""
    lost_items: int = 0
    """Items that a pipeline dropped, or failed on."""
    item_seconds: float = 0.0
    """Time from the response to the end of the pipelines, of `items` together."""
    cpu: float = 0.0
    """CPU seconds of the process."""
    loop_cpu: float = 0.0
    """CPU seconds of the thread that runs the event loop."""
    starved: float = 0.0
    """Seconds for which this thread could run, but other processes had the CPUs."""
    idle_cpus: float = 0.0
    """Mean number of CPUs of the machine that nothing used."""
    fair_cpu: float = 1.0
    """Part of a CPU that the system would give this thread if it always wanted one, among all that do. At most 1."""
    stopped: float = 0.0
    """Seconds for which the whole process stood still: it was stopped, or the machine slept."""
    lag: float = 0.0
    """Mean seconds until the event loop handles something new."""

    fastest_response: float = 0.0
    """Seconds of the fastest response; 0: there was none."""
    fastest_item: float = 0.0
    """Seconds of the item that was soonest through the pipelines, from its response; 0: there was none."""
    longest_lag: float = 0.0
    items_in_all: int = 0
    """Items since the start of the process."""
    pages_in_all: int = 0
    """Page responses since the start of the process."""
    blocked_in: dict[str, int] = {}
    """Places in the code where the thread waited, with the number of times that it was found there."""
    busy_in: dict[str, int] = {}
    """Places in the code where the thread used the CPU, likewise."""

    @property
    def latency(self) -> float:
        """Mean seconds from the start of a request to the end of its callback and pipelines, by Little's law. 0: no
        response came."""
        return (self.downloader + self.scraper) * self.seconds / self.responses if self.responses else 0.0

    @property
    def pipeline_seconds(self) -> float:
        """Mean seconds of an item in the pipelines, by Little's law. 0: no item left them."""
        items = self.items + self.lost_items
        return self.pipelines * self.seconds / items if items else 0.0

    def plus(self, later: Self) -> "Measurement":
        """Return both intervals as one."""
        merged = {}
        for name in self.__struct_fields__:
            one, other = getattr(self, name), getattr(later, name)
            if name in _MEANS:
                merged[name] = (one * self.seconds + other * later.seconds) / (self.seconds + later.seconds)
            elif name in _SMALLEST:
                merged[name] = min(filter(None, (one, other)), default=0.0)
            elif name in _LATEST:
                merged[name] = other
            elif isinstance(one, dict):
                merged[name] = largest({place: one.get(place, 0) + other.get(place, 0) for place in one | other})
            else:
                merged[name] = max(one, other) if name == "longest_lag" else one + other
        return Measurement(**merged)


_MEANS = frozenset((
    "scheduler", "downloader", "pages", "transferring", "scraper", "pipelines", "held_bytes", "scheduler_empty",
    "downloader_full", "bytes_full", "blocked", "resting", "capped", "sites", "site_places", "browser", "browser_full",
    "idle_cpus",
    "fair_cpu", "lag",
))  # fmt: skip
_SMALLEST = frozenset(("fastest_response", "fastest_item"))
_LATEST = frozenset(("at", "items_in_all", "pages_in_all"))

_PLACES = 3
"""Places in the code that a measurement names. More make recordings longer."""


def largest(counts: dict[str, int]) -> dict[str, int]:
    """Return the few largest counts."""
    return dict(sorted(counts.items(), key=lambda pair: -pair[1])[:_PLACES])


class MeasurementList:
    """Measurements of one process in the order of time, of which a bounded number is kept.

    When there are too many, two of them become one."""

    def __init__(self, at_most: int) -> None:
        self.all: list[Measurement] = []
        self._at_most = at_most
        self._merged = 1
        """Measurements that one of `all` stands for."""
        self._sum: Measurement | None = None
        self._in_sum = 0

    def add(self, measurement: Measurement) -> None:
        """Add the next measurement."""
        self._sum = measurement if self._sum is None else self._sum.plus(measurement)
        self._in_sum += 1
        if self._in_sum == self._merged:
            self.flush()

    def flush(self) -> None:
        """Keep what was added since the last merged one."""
        if self._sum is not None:
            self.all.append(self._sum)
            self._sum, self._in_sum = None, 0
        if len(self.all) >= self._at_most:
            self.all = [one.plus(other) for one, other in zip(self.all[::2], self.all[1::2], strict=False)]
            self._merged *= 2


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one process, from its start to its end or until now."""

    process: MeasuredProcess
    measurements: list[Measurement]
    ended: float | None = None
    """Time of its end, in epoch seconds. None: it runs, or was killed."""
    source: str = ""
    """Path of the file."""

    @property
    def page_responses(self) -> int:
        """Page responses of all measurements."""
        return sum(each.page_responses for each in self.measurements)


# --- a diagnosis ------------------------------------------------------------------------------------------------------

SHORT_SECONDS, FEW_PAGES = 5.0, 20
"""Time and pages below which figures are rough."""


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
    """Time of a job: pages x (response + overhead) / concurrency + start and stop. All times in seconds.

    The numbers are rounded as they are shown, so that the arithmetic can be repeated."""

    pages: int
    response: float
    """Time that the site takes."""
    overhead: float
    """Time that a request spends in the downloader besides: it waits for its site's turn, or for the event loop."""
    concurrency: float
    """Mean number of pages in the downloader."""
    start_stop: float

    @property
    def rate(self) -> float:
        """Return the pages a second; 0: the process had none."""
        return self.concurrency / max(self.response + self.overhead, 1e-6) if self.pages else 0.0

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
    """failing, cpu, blocking, other_requests, large_responses, items_too_few, items_too_many, scheduler_empty; or
    healthy, rate_limit, site_limit: nothing is wrong."""
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
    measured_seconds: float = 0.0
    """Time of which the diagnosis is made."""
    measured_pages: int = 0
    """Pages that came in this time."""
    notes: tuple[str, ...] = ()
    """Sentences that say how far the figures can be relied on."""

    @property
    def predicted(self) -> float:
        """Throughput that the advice should give."""
        return rounded(self.rate * self.advice.factor)

    @property
    def is_rough(self) -> bool:
        """True if too little was measured for a prediction that can be relied on."""
        return self.measured_seconds < SHORT_SECONDS or self.measured_pages < FEW_PAGES


def rounded(number: float) -> float:
    """Return the number with four digits, and at most six decimals: so it can be shown whole, and computed with."""
    if not number or not math.isfinite(number):
        return 0.0
    return round(number, min(6, 3 - math.floor(math.log10(abs(number)))))
