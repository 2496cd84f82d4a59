"""Settings of a crawl that is started from the command line."""

import math
from typing import Annotated, Any, Literal

from gossamer.errors import BadInput
from gossamer.model.content import CHUNK_RANGE
from gossamer.model.crawl import HITS_RANGE, WINDOW_SECONDS_RANGE, Rate
from gossamer.model.record import Destination, destination_fields
from gossamer.policy.patterns import DEFAULT_PATH_REPEATS
from gossamer.settings.groups import SettingGroup, field_of, integers
from gossamer.settings.ranges import Concurrency, Count, Depth, SecondsOrZero
from gossamer.settings.service import DOMAIN_MAX_PENDING, SERVICE_IDLE_SECONDS


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


def _checked_rate(value: Any) -> Any:
    """Return the value of `crawl.rate` as a text. Raises BadInput."""
    text = rate_text(value)
    if text and isinstance(text, str):
        parse_rate(text)
    return text


_PatternPages = Annotated[int, integers(1, 1_000_000)]  # a worker remembers each, in 70 bytes


class CrawlSettings(SettingGroup):
    """A crawl that is started from the command line."""

    output: tuple[Destination, ...] = field_of(
        (Destination("pages.jsonl"),),
        "Where to write the pages and items. A crawl from one URL writes HOST.jsonl unless this is set. "
        "The ending selects the format: .jsonl, .jsonl.gz, .jsonl.zst, .csv, .json, .sqlite, .parquet, .warc or "
        ".warc.gz. Also an fsspec URL, a database (postgresql://…), or - for standard output. An output may also "
        'be a table with its records: {path = "items.csv", records = "items"}; records: pages, items or all',
        prepare=destination_fields,
        expects='a path, or a table such as {path = "items.csv", records = "items"}; records: pages, items or all',
    )
    csv_guard: bool = field_of(
        False,
        "Write a single quote before each cell of a CSV file that a spreadsheet would run as a formula. Use it if you "
        "open the file in a spreadsheet",
    )
    depth: Depth | None = field_of(
        None, "How many links away from the given URLs to go. 0: fetch only these. Unset: no limit"
    )
    max_pages: Count | None = field_of(None, "Stop after this many fetched pages. Unset: no limit")
    domain_max_pages: Count | None = field_of(None, "Largest number of pages of one domain. Unset: no limit")
    domain_max_pending: Count | None = field_of(
        DOMAIN_MAX_PENDING, "Largest number of queued URLs of one domain. Further ones are dropped and counted"
    )
    scope: Literal["domain", "host", "path", "any"] = field_of(
        "domain",
        "Links to follow. domain: to the domains of the given URLs, with all subdomains; host: to their hosts; path: "
        "into their directories; any: anywhere",
    )
    allow_domain: tuple[str, ...] = field_of((), "Also follow links to this domain and its subdomains")
    allow: tuple[str, ...] = field_of(
        (),
        "Follow only links that match one of these regular expressions, in the URL as it is sent or as browsers show "
        "it, from the host on: /shop and /каталог/ are found in paths, ^/shop at their beginning, //shop in hosts",
        splits=False,
    )
    deny: tuple[str, ...] = field_of(
        (),
        "Never follow links that match one of these regular expressions, even if they match allow. They are searched "
        "as those of allow",
        splits=False,
    )
    deny_extension: tuple[str, ...] | None = field_of(
        None,
        "Do not follow links with one of these file extensions. Unset: a built-in list of images, archives, media and "
        "office files",
    )
    query_order: Literal["significant", "ignored"] = field_of(
        "significant",
        "significant: URLs whose query parameters differ only in their order are different pages. ignored: they are "
        "one page; the first of these URLs is fetched, unchanged",
    )
    pattern_max_pages: _PatternPages | None = field_of(
        None,
        "Largest number of pages of one pattern, in each worker process: pages whose URLs differ only in numbers, "
        "tokens and the values of query parameters, such as those of a calendar without end. Unset: no limit",
    )
    path_repeats: Annotated[int, integers(0, 1000)] = field_of(
        DEFAULT_PATH_REPEATS,
        "How many segments of a link's path may repeat earlier ones, as in /a/b/a/b, which has two. Relative links "
        "without end make ever more; such links are not followed",
    )
    drop_parameter: tuple[str, ...] = field_of(
        (),
        "Leave this query parameter out of URLs, such as ref, or utm_* for all names that begin so: links that differ "
        "only in it are one page",
    )
    sitemaps: bool = field_of(
        False, "Also crawl the URLs of the sitemaps, RSS and Atom feeds that robots.txt names as sitemaps"
    )
    follow_nofollow: bool = field_of(False, "Also follow links that are marked nofollow")
    rate: str = field_of(
        "",
        "How often to send a request to each domain, evenly spaced: 10/60 is ten requests in 60 seconds. Unset: the "
        "operator's policy for the domain, else 1/1",
        prepare=_checked_rate,
        expects="HITS/SECONDS, for example 1/1 or 10/60",
    )
    domain_concurrency: Concurrency | None = field_of(
        None,
        "Requests in flight per domain. Unset: 1 for rates up to one request a second; for higher ones, twice the "
        "requests per second, at most 16",
    )
    spider: str = field_of("link", "Spider of the pages: link, wandering, an installed one, or shop.py[:Class]")
    priority: Annotated[int, integers(-1000, 1000)] = field_of(  # within MAX_PRIORITY of model/request.py
        1, "Priority of the given URLs; the highest is fetched first"
    )
    expires: str = field_of(
        "", "When to drop the requests that are left: seconds from now, 90m, 12h, 3d, or an ISO 8601 time. Empty: never"
    )
    idle_seconds: SecondsOrZero | None = field_of(
        None,
        "Seconds without work after which a crawl is finished; until then it accepts more requests. Unset: "
        f"{SERVICE_IDLE_SECONDS:g} for crawls of a service, 0 for crawls from the command line",
    )
    report: str = field_of(
        "", "Write a page about the crawl at its end: what failed and why, response times, broken links. Empty: none"
    )
    attrs: dict[str, Any] | None = field_of(None, "JSON object that is copied to every record of the crawl")
    links: bool = field_of(False, "List all links of each page, with their texts, in its record")
    text: bool = field_of(
        False, "Extract the main content of each HTML page as plain text, with title, author, date and language"
    )
    markdown: bool = field_of(
        False, "Extract the main content of each HTML page as Markdown, with headings, links, tables and code"
    )
    chunk: Annotated[int, integers(CHUNK_RANGE[0], CHUNK_RANGE[1])] | None = field_of(
        None,
        "Split the text or Markdown by its headings into items of at most this many characters. Unset: do not split",
    )
    text_in: Literal["records", "items", "both"] | None = field_of(
        None,
        "Where text and Markdown go: the records of the pages, items, or both. Unset: records; items for chunks and "
        "for outputs that take only items, such as .csv",
    )
    extract: str | dict[str, Any] = field_of(
        "",
        "File of extraction rules, in YAML, JSON or TOML: which items to take from the pages. In a settings file, also "
        "the rules themselves",
    )
    field: tuple[str, ...] = field_of(
        (),
        "Field of the items to take from the pages, as NAME=SELECTOR with @TYPE behind it if it is no text: "
        "title=h1, price=.price @number, image=img.main@src @url",
        splits=False,
    )
    unique: tuple[str, ...] = field_of(
        (),
        "Write only the first of the items that have the same value in this field. With several fields, of those with "
        "the same values in all of them. Items without any of the fields are all written",
    )
    each: str = field_of("", "CSS selector of one item, for the fields of field. Empty: one item for each page")
    assets: tuple[str, ...] = field_of(
        (),
        "Also fetch files of these kinds that pages embed or link: images, css, js, fonts, video, audio, pdf, "
        "documents, or all. They may be on any host",
    )
    assets_to: str = field_of(
        "",
        "Folder for the assets: a file for each content, and manifest.jsonl with a line for each URL. Empty: the WARC "
        "outputs; without any, the folder assets",
    )
    max_assets: Count | None = field_of(
        None, "Queue at most this many assets. They do not count in max_pages. Unset: no limit"
    )
    allow_private: bool = field_of(
        False,
        "Permit private addresses for the hosts of the given URLs. Other hosts, to which they link or redirect, stay "
        "refused",
    )
    ignore_robots: bool = field_of(False, "Neither fetch nor obey robots.txt")
    insecure: bool = field_of(False, "Do not verify TLS certificates")
    header: dict[str, str] = field_of({}, "Request header to send in addition to the usual ones")
    cookie: str = field_of(
        "", "Cookie header. It is sent to the registered domains of the given URLs and to those of --headers-for"
    )
    secret_header: tuple[str, ...] = field_of(
        (), "Name of a request header that is sent only where the cookie is sent. Authorization is always such a header"
    )
    headers_for: tuple[str, ...] = field_of(
        (),
        "Domain, with its subdomains, that gets the cookie and the secret headers, besides the registered domains of "
        "the given URLs",
    )

    @property
    def output_paths(self) -> tuple[str, ...]:
        """The paths and URLs of the outputs."""
        return tuple(output.path for output in self.output)
