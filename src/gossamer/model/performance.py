"""Measurements of one crawling process: what it waits for, stage by stage.

A crawl is a chain of queues: scheduler, downloader, scraper (callbacks), pipelines. A process measures the number of
requests or items in each, and what leaves them. `gossamer top` shows these measurements, `gossamer diagnose` explains
them. They are kept as JSON lines (telemetry/performance.py), so a field that is renamed makes older recordings
unreadable; new fields need a default.
"""

from typing import Self

import msgspec


class StageLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of a process, as its settings have them. 0 means that there is no such limit."""

    requests: int = 0
    """Requests in the downloader (CONCURRENT_REQUESTS)."""
    site_requests: int = 0
    """Requests to one site (CONCURRENT_REQUESTS_PER_DOMAIN)."""
    items: int = 0
    """Items of one page that are in the pipelines at once (CONCURRENT_ITEMS)."""
    bytes: int = 0
    """Bytes of responses that are held (SCRAPER_SLOT_MAX_ACTIVE_SIZE)."""
    delay: float = 0.0
    """Seconds between two requests to one site (DOWNLOAD_DELAY)."""


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

    # Shares of the interval, 0 to 1.
    scheduler_empty: float = 0.0
    downloader_full: float = 0.0
    """Share during which the downloader had no free place."""
    bytes_full: float = 0.0
    """Share during which the responses held were at their limit, so that no request was started."""
    blocked: float = 0.0
    """Share during which the event loop's thread waited inside a callback, without using CPU."""

    # Sums.
    requested: int = 0
    """Requests that left the scheduler."""
    responses: int = 0
    """Responses, those to pipelines and media included."""
    page_responses: int = 0
    """Responses to requests that the scheduler gave out."""
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
    "downloader_full", "bytes_full", "blocked", "idle_cpus", "fair_cpu", "lag",
))  # fmt: skip
_SMALLEST = frozenset(("fastest_response", "fastest_item"))
_LATEST = frozenset(("at", "items_in_all", "pages_in_all"))

_PLACES = 3
"""Places in the code that a measurement names. May be changed: more make recordings longer."""


def largest(counts: dict[str, int]) -> dict[str, int]:
    """Return the few largest counts."""
    return dict(sorted(counts.items(), key=lambda pair: -pair[1])[:_PLACES])


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one process, from its start to its end or until now."""

    process: MeasuredProcess
    measurements: list[Measurement]
    ended: float | None = None
    """Time of its end, in epoch seconds. None: it runs, or was killed."""
    source: str = ""
    """Path of the file."""
