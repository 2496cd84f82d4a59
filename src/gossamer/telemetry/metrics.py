"""Every Prometheus metric of Gossamer, and the registry that `/metrics` serves.

Dashboards and alerts use names, types, labels and the values of labels, so these do not change; new metrics may be
added. The reference page (docs/reference/metrics.md) is generated from the descriptions.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gossamer.errors import BadInput
from gossamer.model.performance import Measurement
from gossamer.net.listening import listen_fault
from gossamer.telemetry.metrics_server import MetricsServer
from gossamer.telemetry.probes import WorkProbes
from gossamer.telemetry.recordings import running_processes
from gossamer.telemetry.tally import Tally


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """Name, type, labels and description of a metric."""

    name: str
    kind: str
    """Prometheus's type: counter, gauge or histogram."""
    labels: tuple[str, ...]
    """Names of the labels. A new value of a label is a new time series, so values must be few."""
    description: str


# The frontier is the cluster's queue of requests. A worker leases requests from it, fetches them, and settles each as
# fetched, failed, dropped or to be retried. A shard is a part of the frontier.
PAGES: Final = MetricInfo("gossamer_pages_total", "counter", (), "Requests settled as fetched")
FAILED: Final = MetricInfo("gossamer_failed_total", "counter", ("reason",), "Requests that failed for good")
DROPPED: Final = MetricInfo(
    "gossamer_dropped_total", "counter", ("reason",), "Requests and links that were dropped without a fetch"
)
RETRIES: Final = MetricInfo("gossamer_retries_total", "counter", ("reason",), "Requests put back for another attempt")
UNREAD: Final = MetricInfo(
    "gossamer_unread_pages_total", "counter", ("reason",), "Pages whose links were wanted, and not or not all read"
)
PROXY_FAILURES: Final = MetricInfo(
    "gossamer_proxy_failures_total",
    "counter",
    ("kind",),
    "Failures of proxies: unusable, refused (by or for one site), no_response",
)
FAULTY_RESPONSES: Final = MetricInfo(
    "gossamer_faulty_responses_total",
    "counter",
    ("fault",),
    "Responses read in spite of faults: status_line, header_line, content_length, content_encoding, body",
)
ITEMS: Final = MetricInfo("gossamer_items_total", "counter", (), "Items that spiders extracted")
RECEIVED: Final = MetricInfo(
    "gossamer_received_bytes_total", "counter", (), "Bytes of pages as received, before decoding"
)
IN_FLIGHT: Final = MetricInfo("gossamer_in_flight", "gauge", (), "Requests being fetched now")
COMMITTING: Final = MetricInfo(
    "gossamer_committing", "gauge", (), "Finished pages that wait to be written to the outputs and settled"
)
PROCESSES: Final = MetricInfo(
    "gossamer_processes", "gauge", ("role",), "Processes that sent a heartbeat within the last two minutes"
)
WORKERS: Final = MetricInfo("gossamer_workers", "gauge", (), "Workers with a session at the frontier")
LEASED: Final = MetricInfo("gossamer_leased", "gauge", (), "Requests that are leased to workers")
QUEUED: Final = MetricInfo("gossamer_queued", "gauge", ("spider",), "Requests that wait in the frontier")
QUEUED_TO_RENDER: Final = MetricInfo(
    "gossamer_queued_to_render", "gauge", (), "Requests among these that wait for a worker with a browser"
)
BROWSER_WORKERS: Final = MetricInfo(
    "gossamer_browser_workers", "gauge", (), "Workers with a browser that take requests to be rendered"
)
BROWSERS: Final = MetricInfo("gossamer_browsers", "gauge", (), "Browsers that run")
BROWSER_TABS: Final = MetricInfo("gossamer_browser_tabs", "gauge", (), "Tabs that are open in these browsers")
BROWSER_WAITING: Final = MetricInfo("gossamer_browser_waiting", "gauge", (), "Pages that wait for a free tab")
BROWSER_MEMORY: Final = MetricInfo(
    "gossamer_browser_memory_bytes", "gauge", (), "Memory of these browsers, measured every five seconds"
)
RENDERED: Final = MetricInfo("gossamer_rendered_pages_total", "counter", (), "Pages that a browser has built")
RENDERING_SECONDS: Final = MetricInfo(
    "gossamer_rendering_seconds_total", "counter", (), "Seconds that these pages took in a tab, all together"
)
RENDERING_REQUESTS: Final = MetricInfo(
    "gossamer_rendering_requests_total",
    "counter",
    ("result",),
    "Requests of these pages, besides their own: sent, cached (answered by the cache) or refused (by robots.txt, kind, "
    "host or limit)",
)
BROWSERS_ENDED: Final = MetricInfo(
    "gossamer_browsers_ended_total",
    "counter",
    ("reason",),
    "Browsers that have ended: retired (pages, time or memory) or crashed (also killed without an answer)",
)
REQUESTS: Final = MetricInfo(
    "gossamer_requests_total",
    "counter",
    ("kind", "result"),
    "Requests from the bus and to the API, by result: accepted, duplicate, expired or rejected",
)
LAG: Final = MetricInfo("gossamer_intake_lag", "gauge", (), "Requests on the bus that the intake has not read")
EVENTS: Final = MetricInfo("gossamer_events_total", "counter", ("kind",), "Published events: ends of crawls")
HISTORY: Final = MetricInfo(
    "gossamer_history_messages_total",
    "counter",
    ("kind",),
    "Messages that the historian has taken: ended (ends of runs), failed (examples), refused (by the "
    "database: dead letters)",
)
RECLAIMED: Final = MetricInfo("gossamer_reclaimed_total", "counter", (), "Requests reclaimed from dead workers")
TRIMMED: Final = MetricInfo(
    "gossamer_trimmed_total", "counter", ("topic",), "Messages deleted from a full stream before a consumer read them"
)
TROUBLE: Final = MetricInfo(
    "gossamer_trouble", "gauge", ("name",), "1 while the process waits for something that is unavailable"
)
LOST_SHARDS: Final = MetricInfo(
    "gossamer_lost_shards_total", "counter", (), "Shards of the frontier that this process found without their data"
)
HTTP: Final = MetricInfo(
    "gossamer_http_requests_total", "counter", ("route", "method", "status"), "Requests to the API"
)
HTTP_SECONDS: Final = MetricInfo("gossamer_http_seconds", "histogram", ("route",), "Seconds from request to response")
WEBSUB: Final = MetricInfo(
    "gossamer_websub_total",
    "counter",
    ("event",),
    "Subscriptions to the hubs of feeds: asked, verified, pushed; denied, failed and unverified (by the hub); refused "
    "(callbacks of hubs)",
)
HTTP_CLOSED: Final = MetricInfo(
    "gossamer_http_closed_total",
    "counter",
    ("reason",),
    "Connections that the API closed because the client was too slow (first_byte, head, body, unread)"
    " or a newer one needed the place (crowded), and requests refused for too many others (busy)",
)
# Processes with a performance view: those of a data directory. Their measurements are summed by the name of the spider
# or the pool.
CRAWL_STAGE: Final = MetricInfo(
    "gossamer_crawl_stage",
    "gauge",
    ("name", "stage"),
    "Requests in the scheduler, the downloader and the scraper, and items in the pipelines, of crawling processes",
)
CRAWL_HELD: Final = MetricInfo(
    "gossamer_crawl_held_bytes", "gauge", ("name",), "Bytes of responses that crawling processes hold"
)
CRAWL_ITEMS: Final = MetricInfo(
    "gossamer_crawl_items_total", "counter", ("name",), "Items that left the pipelines of the processes that run"
)
CRAWL_PAGES: Final = MetricInfo(
    "gossamer_crawl_pages_total", "counter", ("name",), "Pages that the processes that run have received"
)
CRAWL_CPU: Final = MetricInfo(
    "gossamer_crawl_cpu", "gauge", ("name",), "CPUs that the event loops of crawling processes use"
)
CRAWL_BLOCKED: Final = MetricInfo(
    "gossamer_crawl_blocked",
    "gauge",
    ("name",),
    "Share of the time that event loops stand still in blocking code, of the process with most",
)
CRAWL_LAG: Final = MetricInfo(
    "gossamer_crawl_lag_seconds",
    "gauge",
    ("name",),
    "Seconds until an event loop handles something new, of the slowest process",
)
CRAWL_LATENCY: Final = MetricInfo(
    "gossamer_crawl_latency_seconds",
    "gauge",
    ("name",),
    "Mean seconds from the start of a request to the end of its callback and pipelines, of the slowest process",
)
CRAWL_PIPELINE: Final = MetricInfo(
    "gossamer_crawl_pipeline_seconds",
    "gauge",
    ("name",),
    "Mean seconds of an item in the pipelines, of the slowest process",
)

ALL_METRICS: Final = (
    PAGES, FAILED, DROPPED, RETRIES, UNREAD, PROXY_FAILURES, FAULTY_RESPONSES, ITEMS, RECEIVED, IN_FLIGHT, COMMITTING,
    PROCESSES, WORKERS, LEASED, QUEUED, QUEUED_TO_RENDER, BROWSER_WORKERS, BROWSERS, BROWSER_TABS, BROWSER_WAITING,
    BROWSER_MEMORY, RENDERED, RENDERING_SECONDS, RENDERING_REQUESTS, BROWSERS_ENDED, REQUESTS, LAG, EVENTS, HISTORY,
    RECLAIMED, TRIMMED, TROUBLE, LOST_SHARDS, HTTP, HTTP_SECONDS, HTTP_CLOSED, CRAWL_STAGE, CRAWL_HELD, CRAWL_ITEMS,
    CRAWL_PAGES, CRAWL_CPU, CRAWL_BLOCKED, CRAWL_LAG, CRAWL_LATENCY, CRAWL_PIPELINE, WEBSUB,
)  # fmt: skip
"""All metrics, in the order of the reference page. A new one must be added here, and to `ServiceMetrics` or a collector
below; a test compares them."""


class Metrics:
    """The metrics of one process: only those that were added. One that nothing sets would be 0, as if there were no
    worker. What is added is read when the metrics are."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._tallies: list[Callable[[], Tally]] = []  # shared with the collector

    def add_tally(self, tally: Callable[[], Tally]) -> None:
        """Include the counts of this process, or of the workers that it started. Several tallies are summed."""
        if not self._tallies:
            self._registry.register(_TallyCollector(self._tallies))
        self._tallies.append(tally)

    def add_lost_shards(self, lost: Callable[[], int]) -> None:
        """Include the number of shards that were found without their data."""
        self._registry.register(_LostShardsCollector(lost))

    def add_performance(self, folder: Path) -> None:
        """Include the measurements of the processes that run and keep their recordings in this folder."""
        self._registry.register(_PerformanceCollector(folder))

    @contextmanager
    def serve(self, address: str, *, option: str, probes: WorkProbes | None = None) -> Iterator[str]:
        """Serve the metrics over HTTP at `ADDRESS:PORT` while the context is open; yields the address in use.

        Port 0 takes a free port. `option`: where a person chooses another port. `probes`: answers `/healthz` and
        `/readyz` there; None: nothing does. Raises BadInput for an address that is malformed or cannot be bound.
        """
        host, port = parse_listen_address(address)
        app = make_wsgi_app(self._registry)
        try:
            server = MetricsServer(host, port, app if probes is None else probes.before(app))
        except OSError as error:
            raise BadInput(f"metrics: {listen_fault(address, error, option=option)}") from None
        with server.running():
            yield f"{address.rpartition(':')[0]}:{server.server_port}"

    def sample(self, info: MetricInfo) -> float:
        """Return the value of a metric without labels. 0: nothing has set it."""
        return self._registry.get_sample_value(info.name) or 0.0

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)


class ServiceMetrics(Metrics):
    """The metrics of a process of services, which set these counters and gauges."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = self._counter(REQUESTS)
        self.events = self._counter(EVENTS)
        self.history_messages = self._counter(HISTORY)
        self.websub = self._counter(WEBSUB)
        self.http = self._counter(HTTP)
        self.http_closed = self._counter(HTTP_CLOSED)
        self.http_seconds = Histogram(  # with the default buckets, 5 ms to 10 s
            HTTP_SECONDS.name, HTTP_SECONDS.description, HTTP_SECONDS.labels, registry=self._registry
        )
        self.lag = self._gauge(LAG)
        self.workers = self._gauge(WORKERS)
        self.leased = self._gauge(LEASED)
        self.queued = self._gauge(QUEUED)
        self.queued_to_render = self._gauge(QUEUED_TO_RENDER)
        self.browser_workers = self._gauge(BROWSER_WORKERS)
        self.processes = self._gauge(PROCESSES)

    def _counter(self, info: MetricInfo) -> Counter:
        # Prometheus's library adds `_total` to the names of counters itself.
        return Counter(info.name.removesuffix("_total"), info.description, info.labels, registry=self._registry)

    def _gauge(self, info: MetricInfo) -> Gauge:
        return Gauge(info.name, info.description, info.labels, registry=self._registry)


_LARGEST_PORT = 65535
"""TCP's limit: fixed."""


def parse_listen_address(address: str) -> tuple[str, int]:
    """Return host and port of `ADDRESS:PORT`; an IPv6 address may be in brackets. Raises BadInput."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _LARGEST_PORT:
        raise BadInput(f"cannot listen at {address!r}; write ADDRESS:PORT, for example 0.0.0.0:9090")
    return host.strip("[]"), int(port)


class _TallyCollector(Collector):
    """Yields the metrics that come from tallies, summed over all of them."""

    def __init__(self, tallies: Sequence[Callable[[], Tally]]) -> None:
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        tally = Tally()
        for part in self._tallies:
            tally = tally.plus(part())
        # The client library appends `_total` to a counter's name itself.
        for info, value in (
            (PAGES, tally.pages),
            (ITEMS, tally.items),
            (RECEIVED, tally.bytes),
            (RECLAIMED, tally.reclaimed),
            (RENDERED, tally.browser.pages),
            (RENDERING_SECONDS, tally.browser.seconds),
        ):
            yield CounterMetricFamily(info.name.removesuffix("_total"), info.description, value=value)
        for info, value in (
            (IN_FLIGHT, tally.in_flight),
            (COMMITTING, tally.committing),
            (BROWSERS, tally.browser.running),
            (BROWSER_TABS, tally.browser.tabs),
            (BROWSER_WAITING, tally.browser.waiting),
            (BROWSER_MEMORY, tally.browser.memory),
        ):
            yield GaugeMetricFamily(info.name, info.description, value=value)
        yield _labelled_counter(FAILED, tally.failed)
        yield _labelled_counter(RETRIES, tally.retried)
        yield _labelled_counter(UNREAD, tally.unread)
        yield _labelled_counter(PROXY_FAILURES, tally.proxies)
        yield _labelled_counter(FAULTY_RESPONSES, tally.faulty_responses)
        yield _labelled_counter(DROPPED, tally.dropped)
        yield _labelled_counter(RENDERING_REQUESTS, tally.browser.requests)
        yield _labelled_counter(BROWSERS_ENDED, tally.browser.ended)
        yield _labelled_counter(TRIMMED, tally.trimmed)
        troubles = GaugeMetricFamily(TROUBLE.name, TROUBLE.description, labels=TROUBLE.labels)
        for trouble in tally.troubles:
            troubles.add_metric([trouble], 1)
        yield troubles


class _LostShardsCollector(Collector):
    """Yields the number of lost shards."""

    def __init__(self, lost: Callable[[], int]) -> None:
        self._lost = lost

    def collect(self) -> Iterator[Metric]:
        info = LOST_SHARDS
        yield CounterMetricFamily(info.name.removesuffix("_total"), info.description, value=self._lost())


class _PerformanceCollector(Collector):
    """Yields the latest measurements of the processes of a folder, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        by_name: dict[str, list[Measurement]] = {}
        for recording in running_processes(self._folder, last=1):
            if recording.measurements:  # a process that has just started has none
                by_name.setdefault(recording.process.name, []).extend(recording.measurements)
        stages = GaugeMetricFamily(CRAWL_STAGE.name, CRAWL_STAGE.description, labels=CRAWL_STAGE.labels)
        for name, latest in by_name.items():
            for stage in ("scheduler", "downloader", "scraper", "pipelines"):
                stages.add_metric([name, stage], sum(getattr(one, stage) for one in latest))
        yield stages
        for info, family, figure, combine in _CRAWL_FIGURES:
            metric = family(info.name.removesuffix("_total"), info.description, labels=info.labels)
            for name, latest in by_name.items():
                metric.add_metric([name], combine(figure(one) for one in latest))
            yield metric


_CRAWL_FIGURES: Final[tuple[tuple[MetricInfo, Any, Callable[[Measurement], float], Callable[..., float]], ...]] = (
    (CRAWL_HELD, GaugeMetricFamily, lambda one: one.held_bytes, sum),
    (CRAWL_ITEMS, CounterMetricFamily, lambda one: one.items_in_all, sum),
    (CRAWL_PAGES, CounterMetricFamily, lambda one: one.pages_in_all, sum),
    (CRAWL_CPU, GaugeMetricFamily, lambda one: one.loop_cpu / one.seconds, sum),
    (CRAWL_BLOCKED, GaugeMetricFamily, lambda one: one.blocked, max),
    (CRAWL_LAG, GaugeMetricFamily, lambda one: one.lag, max),
    (CRAWL_LATENCY, GaugeMetricFamily, lambda one: one.latency, max),
    (CRAWL_PIPELINE, GaugeMetricFamily, lambda one: one.pipeline_seconds, max),
)
"""Metric, kind, figure of a process, and how those of several processes are combined."""


def _labelled_counter(info: MetricInfo, counts: dict[str, int]) -> CounterMetricFamily:
    """Return a metric from counts by the value of its one label."""
    family = CounterMetricFamily(info.name.removesuffix("_total"), info.description, labels=info.labels)
    for value, count in counts.items():
        family.add_metric([value], count)
    return family
