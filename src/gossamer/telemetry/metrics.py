"""Every metric's name, in one table, and the registry that `/metrics` shows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gossamer.errors import BadInput
from gossamer.telemetry.tally import Tally


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """A metric as it is documented."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


PAGES: Final = MetricInfo("gossamer_pages_total", "counter", (), "Requests settled as fetched")
FAILED: Final = MetricInfo("gossamer_failed_total", "counter", ("reason",), "Requests that failed for good")
DROPPED: Final = MetricInfo(
    "gossamer_dropped_total", "counter", ("reason",), "Requests and links that were not followed"
)
RETRIES: Final = MetricInfo("gossamer_retries_total", "counter", ("reason",), "Requests put back for another attempt")
ITEMS: Final = MetricInfo("gossamer_items_total", "counter", (), "Items that spiders gave")
RECEIVED: Final = MetricInfo("gossamer_received_bytes_total", "counter", (), "Bytes of pages as received")
IN_FLIGHT: Final = MetricInfo("gossamer_in_flight", "gauge", (), "Requests being fetched")
COMMITTING: Final = MetricInfo("gossamer_committing", "gauge", (), "Finished pages that wait to be written and settled")
PROCESSES: Final = MetricInfo(
    "gossamer_processes", "gauge", ("role",), "Processes that said within two minutes that they live"
)
WORKERS: Final = MetricInfo("gossamer_workers", "gauge", (), "Workers with a seat at the frontier")
LEASED: Final = MetricInfo("gossamer_leased", "gauge", (), "Requests that workers hold")
QUEUED: Final = MetricInfo("gossamer_queued", "gauge", ("spider",), "Requests that wait")
REQUESTS: Final = MetricInfo(
    "gossamer_requests_total",
    "counter",
    ("kind", "result"),
    "Requests from the bus: accepted, duplicate, expired or rejected",
)
LAG: Final = MetricInfo("gossamer_intake_lag", "gauge", (), "Requests on the bus that the intake has not taken")
EVENTS: Final = MetricInfo("gossamer_events_total", "counter", ("kind",), "Ends of crawls that were told")
RECLAIMED: Final = MetricInfo("gossamer_reclaimed_total", "counter", (), "Requests taken back from dead workers")
TRIMMED: Final = MetricInfo("gossamer_trimmed_total", "counter", ("topic",), "Messages that left a stream unread")
TROUBLE: Final = MetricInfo("gossamer_trouble", "gauge", ("name",), "1 while something waits for what is away")
LOST_SHARDS: Final = MetricInfo(
    "gossamer_lost_shards_total", "counter", (), "Shards of the frontier that this process found without their data"
)
HTTP: Final = MetricInfo(
    "gossamer_http_requests_total", "counter", ("route", "method", "status"), "Requests to the API"
)
HTTP_SECONDS: Final = MetricInfo("gossamer_http_seconds", "histogram", ("route",), "How long the API took to answer")
HTTP_CLOSED: Final = MetricInfo(
    "gossamer_http_closed_total",
    "counter",
    ("reason",),
    "Connections that the API closed because the client was too slow (first_byte, head, body, unread) or a newer one "
    "needed the place (crowded), and requests refused because too many were under way (busy)",
)

NAMES: Final = (
    PAGES, FAILED, DROPPED, RETRIES, ITEMS, RECEIVED, IN_FLIGHT, COMMITTING, PROCESSES, WORKERS, LEASED, QUEUED,
    REQUESTS, LAG, EVENTS, RECLAIMED, TRIMMED, TROUBLE, LOST_SHARDS, HTTP, HTTP_SECONDS, HTTP_CLOSED,
)  # fmt: skip


class Metrics:
    """The metrics of one process. What others hold is asked for when somebody looks."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._tallies: list[Callable[[], Tally]] = []
        self._registry.register(_Tallied(self._tallies))
        self.requests = self._counter(REQUESTS)
        self.events = self._counter(EVENTS)
        self.http = self._counter(HTTP)
        self.http_closed = self._counter(HTTP_CLOSED)
        self.http_seconds = Histogram(
            HTTP_SECONDS.name, HTTP_SECONDS.meaning, HTTP_SECONDS.labels, registry=self._registry
        )
        self.lag = self._gauge(LAG)
        self.workers = self._gauge(WORKERS)
        self.leased = self._gauge(LEASED)
        self.queued = self._gauge(QUEUED)
        self.processes = self._gauge(PROCESSES)

    def _counter(self, name: MetricInfo) -> Counter:
        return Counter(name.name.removesuffix("_total"), name.meaning, name.labels, registry=self._registry)

    def _gauge(self, name: MetricInfo) -> Gauge:
        return Gauge(name.name, name.meaning, name.labels, registry=self._registry)

    def watch_tally(self, tally: Callable[[], Tally]) -> None:
        """Show what this process, or the workers that it started, have done. Of several tallies, their sum."""
        self._tallies.append(tally)

    def watch_lost_shards(self, lost: Callable[[], int]) -> None:
        """Show how often a shard of the frontier had lost its data."""
        self._registry.register(_LostShards(lost))

    @contextmanager
    def served(self, address: str) -> Iterator[str]:
        """Show all of it at `ADDRESS:PORT` (port 0: a free one) as long as the context; the address it got. Raises
        BadInput for an address that is none or cannot be had."""
        host, port = metrics_address(address)
        try:
            server, thread = start_http_server(port, host, registry=self._registry)
        except OSError as error:
            raise BadInput(f"the metrics cannot be shown at {address}: {error.strerror or error}") from None
        try:
            yield f"{address.rpartition(':')[0]}:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def shown(self) -> bytes:
        """All of it in Prometheus's text format."""
        return generate_latest(self._registry)


def metrics_address(address: str) -> tuple[str, int]:
    """Host and port of `ADDRESS:PORT`. Raises BadInput."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"{address!r} is no place for metrics; write ADDRESS:PORT, for example 0.0.0.0:9090")
    return host.strip("[]"), int(port)


class _Tallied(Collector):
    def __init__(self, tallies: Sequence[Callable[[], Tally]]) -> None:
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        tally = Tally()
        for part in self._tallies:
            tally = tally.plus(part())
        for name, value in (
            (PAGES, tally.pages),
            (ITEMS, tally.items),
            (RECEIVED, tally.bytes),
            (RECLAIMED, tally.reclaimed),
        ):
            yield CounterMetricFamily(name.name.removesuffix("_total"), name.meaning, value=value)
        for name, value in ((IN_FLIGHT, tally.in_flight), (COMMITTING, tally.committing)):
            yield GaugeMetricFamily(name.name, name.meaning, value=value)
        yield _labelled(FAILED, tally.failed)
        yield _labelled(RETRIES, tally.retried)
        yield _labelled(DROPPED, tally.dropped)
        yield _labelled(TRIMMED, tally.trimmed)
        troubles = GaugeMetricFamily(TROUBLE.name, TROUBLE.meaning, labels=TROUBLE.labels)
        for trouble in tally.troubles:
            troubles.add_metric([trouble], 1)
        yield troubles


class _LostShards(Collector):
    def __init__(self, lost: Callable[[], int]) -> None:
        self._lost = lost

    def collect(self) -> Iterator[Metric]:
        name = LOST_SHARDS
        yield CounterMetricFamily(name.name.removesuffix("_total"), name.meaning, value=self._lost())


def _labelled(name: MetricInfo, counts: dict[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name.name.removesuffix("_total"), name.meaning, labels=name.labels)
    for label, count in counts.items():
        family.add_metric([label], count)
    return family
