"""Settings of workers and of a service: its bus, Kafka and the REST API.

The bus, on which requests arrive and pages are published, is Kafka or Valkey Streams ("streams" below). Fixed: the
names of settings and the words that they accept, which stand in users' files.
"""

from typing import Annotated, Any, Literal

from gossamer.model.record import Destination, destination_fields
from gossamer.settings.groups import SettingGroup, field_of, integers, numbers
from gossamer.settings.options import HOW_FAST, WHERE, SettingOption
from gossamer.settings.ranges import Concurrency, Count, Depth, MessageBytes, Retention, Seconds, SecondsOrZero

SERVICE_IDLE_SECONDS = 5.0
"""`crawl.idle_seconds` of a service's crawls where it is not set. Longer reports the end of a crawl later; shorter may
end a crawl before its next request is fed."""
STREAMS_BODY_BYTES = 4096
"""`topics.max_inline_body` on streams where it is not set. More fills the memory that holds the streams sooner; less
makes consumers fetch more bodies from the blob store."""
DOMAIN_MAX_PENDING = 1_000_000
"""Default of `service.domain_max_pending` below. More lets an endless site fill the frontier's memory; less drops URLs
of large sites."""


class TopicSettings(SettingGroup):
    """Topics and messages on the bus."""

    prefix: str = field_of(
        "demo",
        "First part of the name of every topic: <prefix>.incoming, <prefix>.crawled_firehose, "
        "<prefix>.outbound_<appid> and so on",
        option=SettingOption(WHERE, "NAME", of="others"),
    )
    group: str = field_of(
        "demo-group", "Consumer group that reads the requests, the same for all services of a cluster"
    )
    firehose: bool = field_of(True, "Publish to crawled_firehose and outbound_firehose")
    per_app: bool = field_of(True, "Publish to crawled_<appid> and outbound_<appid>")
    wire: Literal["1.2", "1.0"] = field_of(
        "1.2",
        "Version of Scrapy Cluster whose format pages and answers have. Actions from inbound_actions are "
        "always answered in that of 1.0",
    )
    base64: bool = field_of(False, "Encode every body in base64, not only those that are not text")
    max_inline_body: Annotated[int, integers(0, 2**40)] | None = field_of(
        None,
        "Largest body in bytes that is sent inside its message. A longer one goes to the blob store, and the message "
        f"holds its address. Unset: {STREAMS_BODY_BYTES} on streams, on Kafka as much as the broker accepts",
    )
    blobs: str = field_of(
        "",
        "Blob store for large bodies: a directory or an fsspec URL. Empty: blobs in data_dir",
    )
    retention: Retention = field_of(24 * 3600.0, "Seconds that streams and the blob store keep what no consumer reads")
    max_bytes: Annotated[int, integers(2**20, 2**50)] = field_of(
        256 * 2**20,
        "Largest size of one topic on streams in bytes. Beyond it, new requests are refused and the oldest pages are "
        "deleted",
    )


class KafkaSettings(SettingGroup):
    """The Kafka client, where the bus is kafka://."""

    options: dict[str, str] = field_of(
        {},
        "Options of librdkafka: security.protocol, sasl.mechanisms, compression.type and so on. The few "
        "on which Gossamer's promises depend are refused",
    )
    partitions: Annotated[int, integers(1, 10_000)] = field_of(8, "Partitions of each topic that is created")
    replicas: Annotated[int, integers(-1, 100)] = field_of(
        -1, "Replicas of each topic that is created. -1: the default of the broker"
    )
    max_message: Annotated[int, integers(2**16, 2**30)] = field_of(
        8 * 2**20, "Largest message in bytes. Topics that are created allow this size"
    )


class ServiceSettings(SettingGroup):
    """The services and the REST API."""

    host: str = field_of(
        "127.0.0.1",
        "Address at which the API listens. Any but loopback requires service.token",
        option=SettingOption(WHERE, "ADDRESS", of="others"),
    )
    port: Annotated[int, integers(0, 65535)] = field_of(
        5343, "Port of the API. 0: a free one, shown at the start", option=SettingOption(WHERE, "N", of="others")
    )
    token: str = field_of(
        "",
        "Token that clients send as Authorization: Bearer <token>. Empty: no token, and the API listens "
        "on loopback only",
    )
    platform: str = field_of(
        "",
        "Address of a manager of Scrapy projects, such as http://localhost:6800, whose projects and jobs "
        "the dashboard also shows. Empty: none",
    )
    platform_token: str = field_of(
        "",
        "Token for that manager. All visitors of the dashboard may do what it permits. Empty: none is needed",
    )
    metrics: str = field_of(
        "",
        "ADDRESS:PORT that serves /metrics, /readyz and /healthz without a token, for example 0.0.0.0:9091. Empty: the "
        "API alone serves them",
    )
    max_body: MessageBytes = field_of(2**20, "Largest request in bytes, to the API or bus")
    max_requests: Annotated[float, numbers(0, 10**6, above=True)] = field_of(
        1000.0, "Requests per second that the API accepts from one client address, in bursts of up to twice as many"
    )
    # Not below 8, because web/connections.py keeps an eighth of them free of running requests: one at least. Not
    # above 1000, because it allows 1000 in all.
    max_connections: Annotated[int, integers(8, 1000)] = field_of(
        100, "Open connections to the API per client address. Event streams are counted separately"
    )
    trusted_proxies: tuple[str, ...] = field_of(
        (), "Addresses or networks (CIDR) of proxies before the API, whose X-Forwarded-For header names the client"
    )
    feed_wait: Annotated[float, numbers(0, 600)] = field_of(
        5.0, "Seconds that POST /feed waits for an answer before it returns the id to poll for it"
    )
    answer_retention: Retention = field_of(3600.0, "Seconds that an answer can be polled for")
    max_depth: Depth | None = field_of(None, "Largest maxdepth that a request may ask for. Unset: any")
    max_domain_pages: Count | None = field_of(
        None,
        "Largest domain_max_pages of a crawl, which all requests without a smaller one get. Unset: no limit",
    )
    domain_max_pending: Count | None = field_of(
        DOMAIN_MAX_PENDING, "Largest number of URLs of a crawl that wait in the queue of one domain"
    )
    app_render: dict[str, dict[str, Any]] = field_of(
        {},
        "Fields about rendered pages (render, render_match and so on) of the crawl requests of single "
        "applications that have none, by appid",
        expects='a table of fields by appid, such as {shop = {render = "auto", render_step = ["scroll"]}}',
    )
    max_render_seconds: Annotated[float, numbers(0, 600, above=True)] = field_of(
        120.0, "Largest render_seconds that a request may ask for"
    )
    text: bool | None = field_of(
        None,
        "Accept requests for text and Markdown. Unset: if the extra `text` is installed where the service runs",
    )
    public_url: str = field_of(
        "",
        "Address at which other machines reach this API, such as https://crawls.example.com, so that hubs"
        " of feeds (WebSub) can call it at /v1/websub/ without the token. Empty: it subscribes to none",
    )
    app_recrawl: dict[str, dict[str, Any]] = field_of(
        {},
        "Options by which the crawls of single applications are kept up to date, by appid, each written "
        "like the field recrawl of a crawl request",
        expects='a table of options by appid, such as {shop = {budget = "5000/1d"}}',
    )
    allow_default_policy: bool = field_of(
        False, "Let domain requests for * change the default policy, which applies to every domain without its own"
    )
    policy_file: str = field_of(
        "", "YAML file of domain policies that is watched. A change is in force within a second. Empty: none"
    )
    stats_interval: SecondsOrZero = field_of(
        60.0, "Seconds between two dumps of the statistics into the log, where log_format is json. 0: none"
    )
    batch: Annotated[int, integers(1, 100_000)] = field_of(1000, "Requests that a service reads from the bus at once")


HISTORY_OFF = "none"
"""`history.database` of a service that keeps no history."""


class HistorySettings(SettingGroup):
    """The history: the database that remembers crawls, how they ended, what failed, and how fast they were."""

    database: str = field_of(
        "",
        "Database of the history: sqlite:////folder/file, for the services of one machine, or "
        "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE. Empty: history.db in data_dir, where the frontier is in "
        f"data_dir, too; none for a shared frontier. {HISTORY_OFF}: no history",
    )
    days: Annotated[float, numbers(0, 36_500, above=True)] = field_of(
        30.0, "Days for which the history remembers a crawl after its end"
    )


def _process_count(value: Any) -> Any:
    """Return the value of `worker.processes` as a number. 0, which cannot be given: as many as suit the work
    (`wiring/processes.py`)."""
    return 0 if value == "auto" else -1 if str(value).strip() == "0" else value


def _app_outputs(value: Any) -> Any:
    """Return the value of `worker.app_outputs` with a list of destinations for each application."""
    return (
        {appid: destination_fields(outputs) for appid, outputs in value.items()} if isinstance(value, dict) else value
    )


class WorkerSettings(SettingGroup):
    """Size and life of the worker processes."""

    concurrency: Concurrency = field_of(64, "Requests in flight per process", option=SettingOption(HOW_FAST, "N"))
    render: bool = field_of(
        False,
        "Also render pages in a browser, for requests that ask for it. It needs Chromium or Chrome",
        option=SettingOption(
            WHERE,
            of="others",
            name="worker_render",
            flags=("--render",),
            help="Also render pages in a browser, for requests that ask for it. It needs Chromium or Chrome.",
        ),
    )
    render_only: bool = field_of(
        False,
        "Only render pages in a browser, and leave all other requests to other workers",
        option=SettingOption(
            WHERE,
            of="others",
            help="Only render pages in a browser, and leave all other requests to other workers.",
        ),
    )
    processes: Annotated[int, integers(0, 256)] = field_of(
        1,
        "Number of worker processes. auto: one for each CPU; a single one for a crawl of at most 2,000 pages, or 100 "
        "pages a second",
        prepare=_process_count,
        expects="auto or an integer from 1 to 256",
        option=SettingOption(
            HOW_FAST,
            "N|auto",
            python_type='int | Literal["auto"]',
            python="Number of worker processes. Other than 1 is for `run`, without a loop over the pages. auto: as the "
            "setting",
        ),
    )
    heartbeat: Seconds = field_of(
        10.0, "Seconds without a heartbeat after which a worker counts as dead and its requests go to other workers"
    )
    drain: SecondsOrZero = field_of(30.0, "Seconds that a stopping worker gives its requests in flight")
    metrics: str = field_of(
        "",
        "ADDRESS:PORT at which gossamer worker serves its metrics, /healthz and /readyz, for example "
        "0.0.0.0:9090. Empty: nowhere",
    )
    app_outputs: dict[str, tuple[Destination, ...]] = field_of(
        {},
        "Databases to which workers also write the pages and items of single applications, by appid, each"
        " written like crawl.output",
        prepare=_app_outputs,
        expects='a table of outputs by appid, such as {shop = ["postgresql://me@db.example/shop"]}',
    )
    seen_cache: Annotated[int, integers(0, 10**9)] = field_of(
        200_000,
        "Number of known URLs that each process keeps in memory, so that it need not ask the frontier",
    )
