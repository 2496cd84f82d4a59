"""Every setting with its type, default and description. The help texts and the reference page are made from them.

The setting `a.b` is GOSSAMER_A__B in the environment (lists with commas or as JSON), `b` in the section `[a]` of
gossamer.toml, and `--b` where a command has that option. Options override the environment, which overrides the file.
Only `wiring` and the commands read settings.

Then regenerate docs/reference. Fixed: the names of settings and the words that they accept, which stand in users'
files. A new default of a setting in `derived_id` (wiring/plan.py) gives the same command another crawl id, so that it
does not resume its crawl.
"""

import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from gossamer import __version__
from gossamer.errors import BadInput
from gossamer.fetch.proxies import read_app_proxies, read_proxies
from gossamer.fetch.request import contact_address
from gossamer.model import DATA_DIR
from gossamer.model.content import CHUNK_RANGE
from gossamer.model.crawl import HITS_RANGE, WINDOW_SECONDS_RANGE, Rate
from gossamer.model.record import Destination, destination_fields
from gossamer.policy.patterns import DEFAULT_PATH_REPEATS
from gossamer.service_settings import (
    CENTURY_SECONDS,
    SERVICE_IDLE_SECONDS,
    KafkaSettings,
    ServiceSettings,
    TopicSettings,
    WorkerSettings,
)
from gossamer.service_settings import DOMAIN_MAX_PENDING as _DOMAIN_MAX_PENDING
from gossamer.service_settings import Bytes as _Bytes
from gossamer.service_settings import Concurrency as _Concurrency
from gossamer.service_settings import Count as _Count
from gossamer.service_settings import Depth as _Depth
from gossamer.service_settings import MessageBytes as _MessageBytes
from gossamer.service_settings import Retention as _Retention
from gossamer.service_settings import Seconds as _Seconds
from gossamer.service_settings import SecondsOrZero as _SecondsOrZero
from gossamer.setting_groups import (
    Given,
    SettingGroup,
    build,
    dotted_fields,
    integers,
    merge,
    numbers,
    values_of_environment,
    values_of_file,
    variable_of,
)
from gossamer.setting_groups import field_of as _setting

CONFIG_FILE = "gossamer.toml"  # fixed: users have files of this name
DEFAULT_USER_AGENT = f"gossamer/{__version__}"
"""Fixed: the word before the slash, which sites name in robots.txt."""


def rate_text(value: Any) -> Any:
    """Return `HITS/SECONDS` for requests per second (2.5: `1/0.4`); another value as it is. Raises BadInput."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    if not 0 < value < math.inf:
        raise BadInput(f"{value!r} is no rate. Write requests per second, for example 0.5 or 5, or '10/60'.")
    return f"{value:.0f}/1" if value == int(value) else f"1/{1 / value:.9g}"


def parse_rate(text: str) -> Rate:
    """Parse `HITS/SECONDS`: `10/60` is ten a minute, `5` is `5/1`. Raises BadInput."""
    hits, slash, seconds = text.partition("/")
    try:
        rate = Rate(hits=int(hits), window_seconds=float(seconds) if slash else 1.0)
    except ValueError:
        raise BadInput(f"cannot read {text!r:.80}. Write HITS/SECONDS, for example 1/1 or 10/60.") from None
    if not rate.is_in_range:
        (least, most), (shortest, longest) = HITS_RANGE, WINDOW_SECONDS_RANGE
        raise BadInput(
            f"{text!r:.80} is out of range. Write at least {least} hit and at most {most:,}, in "
            f"{shortest} to {longest:,} seconds."
        )
    return rate


def _checked_address(value: Any) -> Any:
    """Return the value of `frontier` as it is. Raises BadInput for what is no address of a server."""
    from gossamer.valkey.address import Address  # late: few commands have a shared frontier

    if value and isinstance(value, str):
        Address.parse(value)
    return value


def _checked_rate(value: Any) -> Any:
    """Return the value of `crawl.rate` as a text. Raises BadInput."""
    text = rate_text(value)
    if text and isinstance(text, str):
        parse_rate(text)
    return text


_PatternPages = Annotated[int, integers(1, 1_000_000)]  # a worker remembers each, in 70 bytes


class CrawlSettings(SettingGroup):
    """A crawl that is started from the command line."""

    output: tuple[Destination, ...] = _setting(
        (Destination("pages.jsonl"),),
        "Where to write the pages and items. A crawl from one URL writes HOST.jsonl unless this is set. "
        "The ending selects the format: .jsonl, .jsonl.gz, .jsonl.zst, .csv, .json, .sqlite, .parquet, .warc or "
        ".warc.gz. Also an fsspec URL, a database (postgresql://…), or - for standard output. An output may also "
        'be a table with its records: {path = "items.csv", records = "items"}; records: pages, items or all',
        prepare=destination_fields,
        expects='a path, or a table such as {path = "items.csv", records = "items"}; records: pages, items or all',
    )
    csv_guard: bool = _setting(
        False,
        "Write a single quote before each cell of a CSV file that a spreadsheet would run as a formula. Use it if you "
        "open the file in a spreadsheet",
    )
    depth: _Depth | None = _setting(
        None, "How many links away from the given URLs to go. 0: fetch only these. Unset: no limit"
    )
    max_pages: _Count | None = _setting(None, "Stop after this many fetched pages. Unset: no limit")
    domain_max_pages: _Count | None = _setting(None, "Largest number of pages of one domain. Unset: no limit")
    domain_max_pending: _Count | None = _setting(
        _DOMAIN_MAX_PENDING, "Largest number of queued URLs of one domain. Further ones are dropped and counted"
    )
    scope: Literal["domain", "host", "path", "any"] = _setting(
        "domain",
        "Links to follow. domain: to the domains of the given URLs, with all subdomains; host: to their hosts; path: "
        "into their directories; any: anywhere",
    )
    allow_domain: tuple[str, ...] = _setting((), "Also follow links to this domain and its subdomains")
    allow: tuple[str, ...] = _setting(
        (),
        "Follow only links that match one of these regular expressions, in the URL as it is sent or as browsers show "
        "it, from the host on: /shop and /каталог/ are found in paths, ^/shop at their beginning, //shop in hosts",
        splits=False,
    )
    deny: tuple[str, ...] = _setting(
        (),
        "Never follow links that match one of these regular expressions, even if they match allow. They are searched "
        "as those of allow",
        splits=False,
    )
    deny_extension: tuple[str, ...] | None = _setting(
        None,
        "Do not follow links with one of these file extensions. Unset: a built-in list of images, archives, media and "
        "office files",
    )
    query_order: Literal["significant", "ignored"] = _setting(
        "significant",
        "significant: URLs whose query parameters differ only in their order are different pages. ignored: they are "
        "one page; the first of these URLs is fetched, unchanged",
    )
    pattern_max_pages: _PatternPages | None = _setting(
        None,
        "Largest number of pages of one pattern, in each worker process: pages whose URLs differ only in numbers, "
        "tokens and the values of query parameters, such as those of a calendar without end. Unset: no limit",
    )
    path_repeats: Annotated[int, integers(0, 1000)] = _setting(
        DEFAULT_PATH_REPEATS,
        "How many segments of a link's path may repeat earlier ones, as in /a/b/a/b, which has two. Relative links "
        "without end make ever more; such links are not followed",
    )
    drop_parameter: tuple[str, ...] = _setting(
        (),
        "Leave this query parameter out of URLs, such as ref, or utm_* for all names that begin so: links that differ "
        "only in it are one page",
    )
    sitemaps: bool = _setting(
        False, "Also crawl the URLs of the sitemaps, RSS and Atom feeds that robots.txt names as sitemaps"
    )
    follow_nofollow: bool = _setting(False, "Also follow links that are marked nofollow")
    rate: str = _setting(
        "",
        "How often to send a request to each domain, evenly spaced: 10/60 is ten requests in 60 seconds. Unset: the "
        "operator's policy for the domain, else 1/1",
        prepare=_checked_rate,
        expects="HITS/SECONDS, for example 1/1 or 10/60",
    )
    domain_concurrency: _Concurrency | None = _setting(
        None,
        "Requests in flight per domain. Unset: 1 for rates up to one request a second; for higher ones, twice the "
        "requests per second, at most 16",
    )
    spider: str = _setting("link", "Spider of the pages: link, wandering, an installed one, or shop.py[:Class]")
    priority: Annotated[int, integers(-1000, 1000)] = _setting(  # within MAX_PRIORITY of model/request.py
        1, "Priority of the given URLs; the highest is fetched first"
    )
    expires: str = _setting(
        "", "When to drop the requests that are left: seconds from now, 90m, 12h, 3d, or an ISO 8601 time. Empty: never"
    )
    idle_seconds: _SecondsOrZero | None = _setting(
        None,
        "Seconds without work after which a crawl is finished; until then it accepts more requests. Unset: "
        f"{SERVICE_IDLE_SECONDS:g} for crawls of a service, 0 for crawls from the command line",
    )
    report: str = _setting(
        "", "Write a page about the crawl at its end: what failed and why, response times, broken links. Empty: none"
    )
    attrs: dict[str, Any] | None = _setting(None, "JSON object that is copied to every record of the crawl")
    links: bool = _setting(False, "List all links of each page, with their texts, in its record")
    text: bool = _setting(
        False, "Extract the main content of each HTML page as plain text, with title, author, date and language"
    )
    markdown: bool = _setting(
        False, "Extract the main content of each HTML page as Markdown, with headings, links, tables and code"
    )
    chunk: Annotated[int, integers(CHUNK_RANGE[0], CHUNK_RANGE[1])] | None = _setting(
        None,
        "Split the text or Markdown by its headings into items of at most this many characters. Unset: do not split",
    )
    text_in: Literal["records", "items", "both"] | None = _setting(
        None,
        "Where text and Markdown go: the records of the pages, items, or both. Unset: records; items for chunks and "
        "for outputs that take only items, such as .csv",
    )
    extract: str | dict[str, Any] = _setting(
        "",
        "File of extraction rules, in YAML, JSON or TOML: which items to take from the pages. In a settings file, also "
        "the rules themselves",
    )
    field: tuple[str, ...] = _setting(
        (),
        "Field of the items to take from the pages, as NAME=SELECTOR with @TYPE behind it if it is no text: "
        "title=h1, price=.price @number, image=img.main@src @url",
        splits=False,
    )
    unique: tuple[str, ...] = _setting(
        (),
        "Write only the first of the items that have the same value in this field. With several fields, of those with "
        "the same values in all of them. Items without any of the fields are all written",
    )
    each: str = _setting("", "CSS selector of one item, for the fields of field. Empty: one item for each page")
    assets: tuple[str, ...] = _setting(
        (),
        "Also fetch files of these kinds that pages embed or link: images, css, js, fonts, video, audio, pdf, "
        "documents, or all. They may be on any host",
    )
    assets_to: str = _setting(
        "",
        "Folder for the assets: a file for each content, and manifest.jsonl with a line for each URL. Empty: the WARC "
        "outputs; without any, the folder assets",
    )
    max_assets: _Count | None = _setting(
        None, "Queue at most this many assets. They do not count in max_pages. Unset: no limit"
    )
    allow_private: bool = _setting(
        False,
        "Permit private addresses for the hosts of the given URLs. Other hosts, to which they link or redirect, stay "
        "refused",
    )
    ignore_robots: bool = _setting(False, "Neither fetch nor obey robots.txt")
    insecure: bool = _setting(False, "Do not verify TLS certificates")
    header: dict[str, str] = _setting({}, "Request header to send in addition to the usual ones")
    cookie: str = _setting(
        "", "Cookie header. It is sent to the registered domains of the given URLs and to those of --headers-for"
    )
    secret_header: tuple[str, ...] = _setting(
        (), "Name of a request header that is sent only where the cookie is sent. Authorization is always such a header"
    )
    headers_for: tuple[str, ...] = _setting(
        (),
        "Domain, with its subdomains, that gets the cookie and the secret headers, besides the registered domains of "
        "the given URLs",
    )

    @property
    def output_paths(self) -> tuple[str, ...]:
        """The paths and URLs of the outputs."""
        return tuple(output.path for output in self.output)


class FetchSettings(SettingGroup):
    """HTTP requests, their limits, and the egress: the public address from which they come."""

    robots: Literal["obey", "allow-override", "ignore"] = _setting(
        "obey",
        "How the workers of a service treat robots.txt. obey: always obey it; allow-override: obey it except for "
        "requests with ignore_robots; ignore: never fetch it. A crawl from the command line may always use "
        "--ignore-robots",
    )
    robots_patience: Annotated[float, numbers(0, 24 * 3600)] | None = _setting(
        None,
        "Seconds for which requests wait for the robots.txt of a site that answers 5xx or not at all; then they fail. "
        "Unset: 300 for crawls from the command line, a day for the workers of a service",
    )
    user_agent: str = _setting(
        DEFAULT_USER_AGENT, "User-Agent header, and the name that selects the rules of robots.txt"
    )
    contact: str = _setting(
        "",
        "URL or e-mail address at which sites reach you, for example https://example.org/bot. It is added to the "
        "User-Agent header. Empty: none",
        prepare=contact_address,
    )
    timeout: _Seconds = _setting(120.0, "Seconds for a complete request and response")
    connect_timeout: _Seconds = _setting(10.0, "Seconds to connect, including TLS")
    first_byte_timeout: _Seconds = _setting(30.0, "Seconds from the end of the request to the first byte of a response")
    retries: Annotated[int, integers(0, 100)] = _setting(3, "Further attempts after a temporary failure")
    retry_base: _SecondsOrZero = _setting(
        10.0, "Seconds before the first retry (approximate). The pause doubles with each retry, up to 10 minutes"
    )
    proxy: str = _setting(
        "",
        "Proxy as an http://, https://, socks5:// or socks5h:// URL, with user and password if needed; several with "
        "spaces between, which are used in turn; or a file of them. Empty: none. A request to a service may name "
        "others, at addresses that it could also crawl",
        prepare=read_proxies,
    )
    app_proxies: dict[str, str] = _setting(
        {},
        "Proxies of single applications of a service, by appid, each written like proxy. Their crawls use these "
        "instead of proxy",
        prepare=read_app_proxies,
    )
    proxy_budget: Literal["shared", "address"] = _setting(
        "shared",
        "Of several proxies: shared: the rate of a domain holds for all together; address: for each address, if the "
        "policy of the domain has the scope ip",
    )
    proxy_sticky: bool = _setting(
        False,
        "Of several proxies, fetch each domain through the same one while that is usable. False: each request uses the "
        "next one",
    )
    proxy_rest: _Seconds = _setting(
        10.0,
        "Seconds for which one of several proxies is not used after a failure: for all sites if it cannot be reached, "
        "else for the site. They double with each further failure",
    )
    proxy_longest_rest: _Seconds = _setting(600.0, "Longest of these rests in seconds")
    proxy_ban_statuses: tuple[Annotated[int, integers(100, 599)], ...] = _setting(
        (403, 429),
        "Statuses by which a site refuses one of several proxies. The request is retried through another one. Empty: "
        "none",
    )
    egress_url: str = _setting(
        "",
        "URL of a service that returns the address it is called from. Budgets per address are kept for that address. "
        "Empty: for the address that egress names",
    )
    egress_pattern: str = _setting(
        r"[0-9A-Fa-f:.]{3,}",
        "Regular expression of the address in the response of egress_url. If it has groups, the first one counts",
    )
    egress_timeout: _Seconds = _setting(10.0, "Seconds for the response of egress_url")
    egress_refresh: Annotated[float, numbers(1, CENTURY_SECONDS)] = _setting(
        3600.0, "Seconds between two calls of egress_url"
    )
    resolve: dict[str, str] = _setting(
        {},
        "Address to use for a host instead of looking it up, as HOST:ADDRESS. It may be private. HOST may be *.suffix "
        "or *",
    )
    ca_file: str = _setting("", "PEM file of certificates to trust in addition to the system's")
    max_body: _Bytes = _setting(
        5 * 1024 * 1024,
        "Largest body in bytes, decompressed. A longer one is cut and marked truncated. Of sitemaps, the part in "
        "their records; up to 50 MB are read",
    )
    max_asset: _Bytes = _setting(
        20 * 1024 * 1024, "Largest asset in bytes, decompressed. A longer one is not kept, and its reason is too_large"
    )
    max_header: _MessageBytes = _setting(64 * 1024, "Largest header of a response in bytes")
    bodies_in_flight: _Bytes = _setting(
        32 * 1024 * 1024,
        "Bytes of bodies that one process holds at once: those that are being received, and large pages that are not "
        "written yet (up to half of it)",
    )

    @property
    def full_user_agent(self) -> str:
        """The User-Agent header: the user agent, with the contact if there is one."""
        if not self.contact:
            return self.user_agent
        return f"{self.user_agent} (+{self.contact if '://' in self.contact else f'mailto:{self.contact}'})"


class RecordsSettings(SettingGroup):
    """Contents of records."""

    secrets: Literal["redact", "keep"] = _setting(
        "redact",
        "What records and WARC files show for the values of Cookie, Authorization and the secret request headers. "
        "redact: a placeholder; keep: the values",
    )


class TextSettings(SettingGroup):
    """The processes of a worker that extract text and Markdown, and their limits."""

    processes: Annotated[int, integers(1, 256)] | None = _setting(
        None,
        "Number of processes for each worker process. They start with the first page, and take about 70 MB each. "
        "Unset: as many as there are CPUs, shared among the worker processes of the command",
    )
    cpu: _Seconds = _setting(5.0, "Largest CPU time of a page in seconds")
    memory: Annotated[int, integers(32 * 2**20, 2**40)] = _setting(
        512 * 2**20, "Largest memory of a page in bytes, beside the process itself"
    )


class EmbeddedSettings(SettingGroup):
    """The Valkey server that Gossamer runs itself where no frontier is named."""

    fsync: Literal["always", "everysec", "no"] = _setting(
        "always", "When this server flushes its log to the disk. always: a crawl survives a power cut"
    )


class Settings(SettingGroup):
    """All settings. Frozen; use `copy` to change some."""

    frontier: str = _setting(
        "",
        "Shared frontier, the server that holds the URLs to fetch: unix://, redis://, rediss:// or redis+cluster://. "
        "Empty: a private server in data_dir",
        prepare=_checked_address,
    )
    frontier_password: str = _setting(
        "",
        "Password of the frontier's server, as it is: unlike one in its address, it needs no percent-encoding. Empty: "
        "that of the address",
    )
    prefix: str = _setting("gossamer", "First part of every key in the frontier")
    shards: Annotated[int, integers(1, 4096)] | None = _setting(
        None, "Number of shards of a new frontier; 64 suits a cluster. Unset: the number it has, or 1 if it is new"
    )
    bus: str = _setting(
        "",
        "Where requests arrive and pages are published: streams (on the frontier's server) or "
        "kafka://host:port,host:port. Empty: streams for gossamer up and serve, none for gossamer worker",
    )
    data_dir: Path = _setting(
        Path(DATA_DIR),
        "Directory for the private frontier, locks, recordings of processes and unfinished outputs, for one crawl at a "
        "time",
    )
    retention: _Retention = _setting(24 * 3600.0, "Seconds that a finished crawl is remembered")
    stopped_retention: _Retention = _setting(30 * 24 * 3600.0, "Seconds that a stopped crawl refuses further requests")
    allow_networks: tuple[str, ...] = _setting((), "Private networks (CIDR) in which every host may be crawled")
    egress: str = _setting(
        "",
        "Name of the public address from which this machine fetches, for budgets that are kept per address. Empty: the "
        "address of --proxy, if one is set",
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = _setting(
        "error",
        "Lowest level of messages that are logged to standard error. Unset: gossamer up and serve log from info",
    )
    log_format: Literal["human", "json"] = _setting(
        "human", "Format of the log. human: lines of text; json: one JSON object per line"
    )
    crawl: CrawlSettings = CrawlSettings()
    fetch: FetchSettings = FetchSettings()
    records: RecordsSettings = RecordsSettings()
    text: TextSettings = TextSettings()
    worker: WorkerSettings = WorkerSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    topics: TopicSettings = TopicSettings()
    kafka: KafkaSettings = KafkaSettings()
    service: ServiceSettings = ServiceSettings()


def load(
    options: Mapping[str, Any] | None = None, *, config: Path | None = None, names: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings in force: from options, the environment and the file, in this order of precedence. Raises
    BadInput for the first value that is not valid.

    `options`: values by dotted name (`crawl.depth`); None as a value: not set. `config`: a TOML file; None:
    gossamer.toml in the working folder, if it exists. `names`: what messages call the options, by dotted name.
    """
    values = _written(config)
    given = {name: value for name, value in (options or {}).items() if value is not None}
    merge(values, {name: Given(value, (names or {}).get(name, name)) for name, value in given.items()})
    settings = build(Settings, values)
    if not settings.frontier_password or not settings.frontier:
        return settings
    from gossamer.valkey.address import with_password  # late: few commands have a shared frontier

    return settings.copy(frontier=with_password(settings.frontier, settings.frontier_password), frontier_password="")


def _written(config: Path | None) -> dict[str, Given]:
    """Return the values in the environment and the file, by dotted name. See `load`."""
    if config is None:
        config = Path(CONFIG_FILE) if Path(CONFIG_FILE).is_file() else None
    elif not config.is_file():
        raise BadInput(f"--config: there is no file {config}")
    values: dict[str, Given] = values_of_file(Settings, config) if config else {}
    merge(values, values_of_environment(Settings, os.environ))
    return values


def places(config: Path | None = None) -> dict[str, str]:
    """Return where environment and file set settings, by dotted name: `gossamer.toml: crawl.depth`. See `load`."""
    return {name: given.place for name, given in _written(config).items()}


class SettingRow(NamedTuple):
    """A setting, as help texts and the reference page show it."""

    name: str  # with dots: `crawl.depth`
    variable: str  # of the environment
    default: str  # empty: not set
    description: str


@cache
def rows() -> list[SettingRow]:
    """Return all settings, in the order of this file."""
    return [
        SettingRow(name, variable_of(name), _as_text(field.default), field.description)
        for name, field in dotted_fields(Settings)
    ]


def _as_text(default: object) -> str:
    """Return a default as the reference shows it; empty: there is none."""
    if default is None or default in ((), {}, ""):
        return ""
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    if isinstance(default, bool):
        return "yes" if default else "no"
    return f"{default:.15g}" if isinstance(default, float) else str(default)


@cache
def row_of(name: str) -> SettingRow:
    """Return the row of a setting by its dotted name. Raises KeyError."""
    for row in rows():
        if row.name == name:
            return row
    raise KeyError(name)
