"""Every setting: name, type, default and meaning, in one table. `--help` and the reference pages are made of it.

A setting `a.b` is GOSSAMER_A__B in the environment (lists with commas or as JSON), `b` in the section `[a]` of
gossamer.toml, and `--b` where a command has it. Flags win over the environment, that over the file. Only `wiring` and
the commands read settings.
"""

import ast
import sys
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from gossamer import __version__
from gossamer.errors import BadInput

PROJECT_PAGE = "https://pypi.org/project/gossamer-crawl/"
CONFIG_FILE = "gossamer.toml"

_MOST = 2**53 - 1
"""Of a count: what Lua and JSON still hold exactly."""
_DAY = 86400.0
_YEARS = 100 * 365 * _DAY


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class CrawlSettings(_Group):
    """What a crawl from the command line asks for."""

    output: tuple[str, ...] = ("pages.jsonl",)
    """Where the records go: .jsonl, .jsonl.gz, .jsonl.zst, .warc.gz, .parquet, an fsspec URL, or - (standard output)"""
    depth: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Follow links so many times; 0: only the URLs given. Unset: no limit within the scope"""
    max_pages: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    """Stop after so many fetched pages. Unset: no limit"""
    domain_max_pages: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    """At most so many pages of one domain. Unset: no limit"""
    domain_max_pending: Annotated[int, Field(ge=1, le=_MOST)] | None = 1_000_000
    """At most so many queued URLs of one domain; what one endless site has beyond is dropped and counted"""
    scope: Literal["domain", "host", "path", "any"] = "domain"
    """Which links are followed: the seeds' domains with subdomains, their hosts, their directories, or any"""
    allow_domain: tuple[str, ...] = ()
    """Follow links to this domain (and subdomains) as well"""
    allow: tuple[str, ...] = ()
    """Only follow links that match one of these regular expressions"""
    deny: tuple[str, ...] = ()
    """Never follow links that match one of these regular expressions; wins over allow"""
    deny_extension: tuple[str, ...] | None = None
    """Do not follow links with these endings. Unset: a long list of images, archives, media and office files"""
    query_order: Literal["significant", "ignored"] = "significant"
    """significant: URLs whose query parameters differ only in their order are two pages. ignored: they are one, and
    whichever comes first is fetched, as it is written"""
    sitemaps: bool = False
    """Also crawl what the sitemaps named in robots.txt list"""
    follow_nofollow: bool = False
    """Follow links marked nofollow, too"""
    rate: str = ""
    """HITS/SECONDS for each domain, evenly spaced: 10/60 is ten a minute. Unset: 1/1, or what the operator set"""
    domain_concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Requests in flight per domain. Unset: 1 up to one hit a second, above it twice the rate, at most 16"""
    spider: str = "link"
    """Which spider reads the pages: link, wandering, or one of your own"""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 1
    """Of the URLs given; higher is sooner"""
    expires: str = ""
    """Give up what is left at this time: seconds from now, 90m, 12h, 3d, or an ISO 8601 time. Empty: never"""
    idle_seconds: Annotated[float, Field(ge=0, le=_DAY)] | None = None
    """Seconds without anything to do after which a run is finished; until then more requests join it. Unset: 5 for a
    service's crawls, 0 for a crawl from the command line"""
    attrs: dict[str, Any] | None = None
    """A JSON object that travels with every request to its record"""
    links: bool = False
    """Records list all links of a page with their texts"""
    allow_private: bool = False
    """The URLs given may be at private addresses. It holds for their hosts, not for where they lead"""
    ignore_robots: bool = False
    """Do not ask robots.txt"""
    insecure: bool = False
    """Do not verify certificates"""
    header: dict[str, str] = {}
    """Request headers besides the usual ones"""
    cookie: str = ""
    """Sent as the Cookie header with the requests to the seeds' registered domains and to those in headers_for"""
    secret_header: tuple[str, ...] = ()
    """Name of a request header that goes only where the cookie goes; Authorization always is one"""
    headers_for: tuple[str, ...] = ()
    """A domain (and subdomains) that gets the cookie and the secret headers besides the seeds' registered domains"""


class FetchSettings(_Group):
    """How pages are fetched."""

    robots: Literal["obey", "allow-override", "ignore"] = "obey"
    """Whether a service's workers ask robots.txt: obey, whatever a request says; allow-override, but for requests with
    ignore_robots; ignore, never. A crawl from the command line may ignore it anyway, by --ignore-robots"""
    user_agent: str = f"gossamer/{__version__} (+{PROJECT_PAGE})"
    """The User-Agent, and who robots.txt means by it"""
    timeout: Annotated[float, Field(gt=0, le=_DAY)] = 120.0
    """Seconds for one exchange, whatever happens in it"""
    connect_timeout: Annotated[float, Field(gt=0, le=_DAY)] = 10.0
    """Seconds to connect, TLS included"""
    first_byte_timeout: Annotated[float, Field(gt=0, le=_DAY)] = 30.0
    """Seconds from the request's end to the answer's first byte"""
    retries: Annotated[int, Field(ge=0, le=100)] = 3
    """Further attempts after a failure that may pass"""
    retry_base: Annotated[float, Field(ge=0, le=_DAY)] = 10.0
    """Seconds before the first retry, about; it doubles each time, up to 10 minutes"""
    proxy: str = ""
    """http://, socks5:// or socks5h:// with user and password if need be. Empty: none. A request to a service may name
    another, which is judged like any address"""
    egress_url: str = ""
    """A service that says from which address it is asked; that is this machine's egress then. Empty: egress names it"""
    egress_pattern: str = r"[0-9A-Fa-f:.]{3,}"
    """A regular expression of the address in its answer; its first group where it has groups"""
    egress_timeout: Annotated[float, Field(gt=0, le=_DAY)] = 10.0
    """Seconds for its answer"""
    egress_refresh: Annotated[float, Field(ge=1, le=_YEARS)] = 3600.0
    """Seconds until it is asked again"""
    resolve: dict[str, str] = {}
    """HOST:ADDRESS in place of DNS; permits a private address for that host only. *.suffix and * are possible"""
    ca_file: str = ""
    """Certificates to trust besides the system's (PEM)"""
    max_body: Annotated[int, Field(ge=1, le=2**40)] = 5 * 1024 * 1024
    """Bytes of a body, decoded; what is longer is cut and marked truncated"""
    max_header: Annotated[int, Field(ge=1024, le=2**30)] = 64 * 1024
    """Bytes of an answer's headers"""
    bodies_in_flight: Annotated[int, Field(ge=1, le=2**40)] = 32 * 1024 * 1024
    """Bytes of bodies being received by one process, and of large pages not written yet (up to half of it), together"""


class RecordsSettings(_Group):
    """What records hold."""

    secrets: Literal["redact", "keep"] = "redact"
    """Whether records and WARC files show the values of Cookie, Authorization and the secret request headers: redact, a
    mark in their place; keep, the values"""


class WorkerSettings(_Group):
    """How much work is done at once, and where."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Requests in flight of one process"""
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    """Worker processes"""
    heartbeat: Annotated[float, Field(gt=0, le=_DAY)] = 10.0
    """Seconds without a sign of life after which a worker counts as dead and its work goes to others"""
    drain: Annotated[float, Field(ge=0, le=_DAY)] = 30.0
    """Seconds that a stopping worker gives the requests under way"""
    metrics: str = ""
    """ADDRESS:PORT where gossamer worker shows its metrics, for example 0.0.0.0:9090. Empty: nowhere; gossamer up shows
    those of its workers on the API's /metrics"""
    seen_cache: Annotated[int, Field(ge=0, le=10**9)] = 200_000
    """Fingerprints of known URLs that a process remembers"""


class EmbeddedSettings(_Group):
    """The Valkey server that Gossamer runs itself where no frontier is named."""

    fsync: Literal["always", "everysec", "no"] = "always"
    """When its log is flushed to the disk. always: a crawl survives a power cut"""


class TopicSettings(_Group):
    """What is said on the bus, and under which names."""

    prefix: str = "demo"
    """Of every topic: <prefix>.incoming, <prefix>.crawled_firehose, <prefix>.outbound_<appid> and so on"""
    group: str = "demo-group"
    """The consumer group that reads requests; all intakes of a cluster are in one"""
    firehose: bool = True
    """Publish to crawled_firehose and outbound_firehose"""
    per_app: bool = True
    """Publish to crawled_<appid> and outbound_<appid>"""
    wire: Literal["1.2", "1.0"] = "1.2"
    """Whose pages and answers consumers expect: Scrapy Cluster 1.2's or 1.0's, on the bus and from /feed and /poll.
    Actions from inbound_actions are answered in 1.0's form anyway"""
    base64: bool = False
    """Every body as base64 of its bytes, not only those that are no text"""
    body: Annotated[int, Field(ge=0, le=2**40)] | None = None
    """Bytes; a longer body goes to the blob store, its address in the message. Unset: 4096 on streams, on Kafka what
    the broker takes"""
    blobs: str = ""
    """The blob store: a directory or an fsspec URL. Empty: blobs in data_dir"""
    retention: Annotated[float, Field(gt=0, le=_YEARS)] = 24 * 3600.0
    """Seconds that streams and the blob store keep what nobody reads"""
    bytes: Annotated[int, Field(ge=2**20, le=2**50)] = 256 * 2**20
    """Of one topic on streams: beyond it requests are refused, and the oldest pages go"""


class KafkaSettings(_Group):
    """The Kafka client, where the bus is kafka://."""

    options: dict[str, str] = {}
    """Options of librdkafka: security.protocol, sasl.mechanisms, compression.type and so on. They win over Gossamer's
    own, but for the few on which its promises rest: those are refused by name"""
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Of a topic that is missing and is made"""
    replicas: Annotated[int, Field(ge=-1, le=100)] = -1
    """Of a topic that is made. -1: as the broker does by itself"""
    largest: Annotated[int, Field(ge=2**16, le=2**30)] = 8 * 2**20
    """Bytes of a message; topics that are made allow it"""


class ServiceSettings(_Group):
    """The services and the REST API."""

    host: str = "127.0.0.1"
    """Where the API listens; any address but loopback needs service.token"""
    port: Annotated[int, Field(ge=0, le=65535)] = 5343
    """Of the API. 0: any free one, shown at the start"""
    token: str = ""
    """Who sends Authorization: Bearer <token> may use the API. Empty: everybody who reaches it, loopback only"""
    metrics: str = ""
    """ADDRESS:PORT where /metrics, /readyz and /healthz are answered without a token, for example 0.0.0.0:9091. Empty:
    only by the API itself"""
    max_body: Annotated[int, Field(ge=1024, le=2**30)] = 2**20
    """Bytes of a request to the API or on the bus"""
    max_requests: Annotated[float, Field(gt=0, le=10**6)] = 1000.0
    """Requests a second that the API takes from one client address, in bursts of up to twice as many"""
    max_connections: Annotated[int, Field(ge=8, le=1000)] = 100
    """Connections to the API that one client address may have open; event streams are counted apart"""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks (CIDR) of proxies before the API, whose X-Forwarded-For names the client"""
    wait: Annotated[float, Field(ge=0, le=600)] = 5.0
    """Seconds that POST /feed waits for an answer before it says where to poll for it"""
    polled: Annotated[float, Field(gt=0, le=_YEARS)] = 3600.0
    """Seconds that an answer can be polled for"""
    max_depth: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """The largest maxdepth a request may ask for. Unset: any"""
    max_domain_pages: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    """The largest domain_max_pages a request may ask for. Unset: any"""
    domain_max_pending: Annotated[int, Field(ge=1, le=_MOST)] | None = 1_000_000
    """At most so many queued URLs of a crawl on one domain"""
    allow_default_policy: bool = False
    """Whether a domain request for * may change the default policy, which counts for every domain without its own"""
    policies: str = ""
    """A YAML file of domain policies that is watched; what somebody writes there is in force within a second"""
    dump: Annotated[float, Field(ge=0, le=_DAY)] = 60.0
    """Seconds between two dumps of the statistics into a log in JSON. 0: none"""
    batch: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Requests that the intake takes from the bus at once"""


class _Environment(EnvSettingsSource):
    """The environment, where a list may also be written with commas: `10.0.0.0/8,fd00::/8`; an expression, which may
    hold commas itself, as it is."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            if not isinstance(value, str) or value.lstrip().startswith(("[", "{")):
                raise
            if field_name in ("allow", "deny"):
                return [value]
            return [part for given in value.split(",") if (part := given.strip())]


class Settings(BaseSettings):
    """All of it."""

    frontier: str = ""
    """The shared frontier: unix://, redis://, rediss:// or redis+cluster://. Empty: a private one in data_dir"""
    prefix: str = "gossamer"
    """Of every key in the frontier"""
    shards: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Of a frontier made now; 64 suits a cluster. Unset: as it is, or 1"""
    bus: str = ""
    """Where requests come in and pages go out: streams (in the frontier's server) or kafka://host:port,host:port.
    Empty: streams for gossamer up and serve, none for gossamer worker"""
    data_dir: Path = Path(".gossamer")
    """The private frontier, locks and what is not finished yet; one crawl at a time"""
    retention: Annotated[float, Field(gt=0, le=_YEARS)] = 24 * 3600.0
    """Seconds that a finished crawl is remembered"""
    marks: Annotated[float, Field(gt=0, le=_YEARS)] = 30 * 24 * 3600.0
    """Seconds that a stopped crawl is refused"""
    allow_networks: tuple[str, ...] = ()
    """Private networks (CIDR) that any host may be in"""
    egress: str = ""
    """The name of the public address this machine fetches from, where budgets are kept per address. Empty: that of
    fetch.proxy, where one is set"""
    log_level: Literal["debug", "info", "warning", "error", "critical"] = "error"
    """What is logged to standard error. Unset, `gossamer up` and `gossamer serve` log from `info` on"""
    log_format: Literal["human", "json"] = "human"
    """Lines for people, or a JSON object a line"""
    crawl: CrawlSettings = CrawlSettings()
    fetch: FetchSettings = FetchSettings()
    records: RecordsSettings = RecordsSettings()
    worker: WorkerSettings = WorkerSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    topics: TopicSettings = TopicSettings()
    kafka: KafkaSettings = KafkaSettings()
    service: ServiceSettings = ServiceSettings()

    model_config = SettingsConfigDict(
        env_prefix="GOSSAMER_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        defer_build=True,  # `load` builds it, with all groups, once
    )

    _config: ClassVar[Path | None] = None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then the environment, then the file that `load` names."""
        sources: list[PydanticBaseSettingsSource] = [init_settings, _Environment(settings_cls)]
        if cls._config is not None:
            sources.append(TomlConfigSettingsSource(settings_cls, toml_file=cls._config))
        return tuple(sources)


def load(flags: dict[str, Any] | None = None, *, config: Path | None = None) -> Settings:
    """The settings in force. `flags`: by dotted name (`crawl.depth`); those that are None are not set.

    `config`: a TOML file; None: gossamer.toml in the working folder, where there is one. Raises BadInput, in one line.
    """
    if config is None:
        config = Path(CONFIG_FILE) if Path(CONFIG_FILE).is_file() else None
    elif not config.is_file():
        raise BadInput(f"there is no file {config}")
    given: dict[str, Any] = {}
    for name, value in (flags or {}).items():
        if value is not None:
            *groups, last = name.split(".")
            place = given
            for group in groups:
                place = place.setdefault(group, {})
            place[last] = value

    class Configured(Settings):
        _config = config

    try:
        return Configured(**given)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise BadInput(f"{where}: {fault['msg'].removeprefix('Value error, ')} (given: {fault['input']!r})") from None
    except (ValueError, OSError) as error:
        raise BadInput(f"{config or 'the environment'}: {error}") from None


@cache
def rows() -> list[tuple[str, str, str, str]]:
    """(name, environment variable, default, meaning) of every setting, in the table's order."""
    return _rows(Settings, "")


def _rows(model: type[BaseModel], before: str) -> "list[tuple[str, str, str, str]]":
    found: list[tuple[str, str, str, str]] = []
    meanings = _meanings().get(model.__name__, {})
    for name, field in model.model_fields.items():
        dotted = f"{before}{name}"
        if isinstance(field.default, _Group):
            found += _rows(type(field.default), f"{dotted}.")
        else:
            found.append(
                (dotted, "GOSSAMER_" + dotted.upper().replace(".", "__"), shown(field.default), meanings.get(name, ""))
            )
    return found


@cache
def _meanings() -> dict[str, dict[str, str]]:
    """What stands below each setting, by class and name. Pydantic can read it, but reads all of this file for every
    class, at every start of every process. Empty where there is no source."""
    try:
        source = getsource(sys.modules[__name__])
    except OSError:
        source = ""
    return {
        group.name: {
            field.target.id: cleandoc(text.value.value)
            for field, text in pairwise(group.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        }
        for group in ast.parse(source).body
        if isinstance(group, ast.ClassDef)
    }


def shown(default: object) -> str:
    """A default as a person writes it; empty where nothing is set."""
    if default is None or default in ((), {}, ""):
        return ""
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    if isinstance(default, bool):
        return "yes" if default else "no"
    return f"{default:.15g}" if isinstance(default, float) else str(default)


def setting(name: str) -> tuple[str, str]:
    """(meaning, default) of a setting by its dotted name."""
    for dotted, _, default, meaning in rows():
        if dotted == name:
            return meaning, default
    raise KeyError(name)
