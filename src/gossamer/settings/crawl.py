"""Settings of a crawl that is started from the command line."""

import math
from typing import Annotated, Any, Literal

from gossamer.errors import BadInput
from gossamer.model.content import CHUNK_RANGE
from gossamer.model.crawl import HITS_RANGE, WINDOW_SECONDS_RANGE, Rate
from gossamer.model.record import Destination, destination_fields
from gossamer.policy.patterns import DEFAULT_PATH_REPEATS
from gossamer.settings.groups import SettingGroup, field_of, integers
from gossamer.settings.options import (
    EXTRACT,
    HOW_FAST,
    OUTPUT,
    REQUESTS,
    WHAT,
    WHERE,
    SettingOption,
    headers,
    json_object,
    moment,
    outputs,
    selectors,
)
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
        "Outputs, as the option -o has them. An output may also be a table with its records: {path = "
        '"items.csv", records = "items"}; records: pages, items or all',
        prepare=destination_fields,
        expects='a path, or a table such as {path = "items.csv", records = "items"}; records: pages, items or all',
        option=SettingOption(
            OUTPUT,
            "PATH",
            flags=("-o", "--output"),
            many=True,
            convert=outputs,
            help="Where to write the pages and items; may be repeated. The ending selects the format: .jsonl, "
            ".jsonl.gz, .jsonl.zst, .csv, .json, .sqlite, .parquet, .warc or .warc.gz. Also an fsspec URL, a "
            "database (postgresql://, mysql://, opensearch://, redis://), or - for standard output. Default: "
            "pages.jsonl, or HOST.jsonl of a crawl from one URL.",
            python_type='PathLike | Iterable[PathLike] | Mapping[PathLike, Literal["items", "pages", "all"]]',
            python="Where to write the pages and items; the ending selects the format. A dict names the records of "
            'each file: `{"items.csv": "items", "pages.jsonl": "pages"}`. Unset: no file is written',
        ),
    )
    csv_guard: bool = field_of(
        False,
        "Write a single quote before each cell of a CSV file that a spreadsheet would run as a formula",
        option=SettingOption(OUTPUT),
    )
    depth: Depth | None = field_of(
        None,
        "Number of links to follow away from the given URLs. 0: fetch only these. Unset: no limit",
        option=SettingOption(WHAT, "N", field="maxdepth"),
    )
    max_pages: Count | None = field_of(
        None, "Stop after this many fetched pages. Unset: no limit", option=SettingOption(WHAT, "N", field="max_pages")
    )
    domain_max_pages: Count | None = field_of(
        None,
        "Largest number of pages of one domain. Unset: no limit",
        option=SettingOption(WHAT, "N", field="domain_max_pages"),
    )
    domain_max_pending: Count | None = field_of(
        DOMAIN_MAX_PENDING, "Largest number of queued URLs of one domain. Further ones are dropped and counted"
    )
    scope: Literal["domain", "host", "path", "any"] = field_of(
        "domain",
        "Links to follow. domain: to the domains of the given URLs, with all subdomains; host: to their hosts; path: "
        "into their directories; any: anywhere",
        option=SettingOption(WHAT, "domain|host|path|any"),
    )
    allow_domain: tuple[str, ...] = field_of(
        (), "Also follow links to this domain and its subdomains", option=SettingOption(WHAT, "DOMAIN")
    )
    allow: tuple[str, ...] = field_of(
        (),
        "Follow only links that match one of these regular expressions, searched in the URL from the host"
        " on: /shop and /каталог/ are found in paths, ^/shop at their beginning, //shop in hosts",
        splits=False,
        option=SettingOption(WHAT, "REGEX"),
    )
    deny: tuple[str, ...] = field_of(
        (),
        "Never follow links that match one of these regular expressions, even if they match allow",
        splits=False,
        option=SettingOption(
            WHAT,
            "REGEX",
            help="Never follow links that match one of these regular expressions, even if they match --allow.",
        ),
    )
    deny_extension: tuple[str, ...] | None = field_of(
        None,
        "Do not follow links with one of these file extensions. Unset: a built-in list of images, archives, media and "
        "office files",
        option=SettingOption(WHAT, "EXT"),
    )
    query_order: Literal["significant", "ignored"] = field_of(
        "significant",
        "significant: URLs whose query parameters differ only in their order are different pages. "
        "ignored: they are one page; the first of these URLs is fetched",
        option=SettingOption(WHAT, "significant|ignored", field="query_order"),
    )
    pattern_max_pages: _PatternPages | None = field_of(
        None,
        "Largest number of pages, in each worker process, whose URLs differ only in numbers, tokens and "
        "values of query parameters, as in a calendar without end. Unset: no limit",
        option=SettingOption(WHAT, "N", field="pattern_max_pages"),
    )
    path_repeats: Annotated[int, integers(0, 1000)] = field_of(
        DEFAULT_PATH_REPEATS,
        "Do not follow links, such as relative ones without end, whose path repeats more of its segments "
        "than this number; /a/b/a/b repeats two",
        option=SettingOption(WHAT, "N", field="path_repeats"),
    )
    drop_parameter: tuple[str, ...] = field_of(
        (),
        "Leave this query parameter out of URLs, such as ref, or utm_* for all names that begin so: links that differ "
        "only in it are one page",
        option=SettingOption(
            WHAT,
            "NAME",
            python='Query parameters to leave out of URLs: `["ref", "utm_*"]`. Links that differ only in them are one '
            "page",
        ),
    )
    sitemaps: bool = field_of(
        False,
        "Also crawl the URLs of the sitemaps, RSS and Atom feeds that robots.txt names as sitemaps",
        option=SettingOption(WHAT, field="sitemaps"),
    )
    follow_nofollow: bool = field_of(False, "Also follow links that are marked nofollow", option=SettingOption(WHAT))
    session: str = field_of(
        "",
        "Keep the cookies that sites set. cookies: only that. A file: also log in as this session file says, in YAML, "
        "TOML or JSON. Empty: each request stands alone",
        option=SettingOption(
            REQUESTS,
            "cookies|FILE",
            of="requests",
            python_type="PathLike",
            python="`cookies`: keep the cookies that sites set. A session file: also log in as it says",
        ),
    )
    render: Literal["never", "auto", "always"] = field_of(
        "never",
        "Let a browser build the pages, for sites that scripts make. never: no page; auto: those to which scripts "
        "add links or main text; always: every page. It needs Chromium or Chrome",
        option=SettingOption(WHAT, "never|auto|always"),
    )
    render_step: tuple[str, ...] = field_of(
        (),
        "Step that the browser takes on each page: scroll [TIMES] to the end, click SELECTOR [TIMES], "
        "wait SELECTOR [SECONDS], wait SECONDS, consent SELECTOR, fill SELECTOR=VALUE, submit SELECTOR. "
        "Clicks and scrolls are repeated until nothing changes",
        splits=False,
        option=SettingOption(WHAT, "STEP", of="requests"),
    )
    render_match: tuple[str, ...] = field_of(
        (),
        "Let a browser build the pages whose URLs match one of these regular expressions, searched as those of allow",
        splits=False,
        option=SettingOption(
            WHAT,
            "REGEX",
            help="Let a browser build the pages whose URLs match one of these regular expressions, searched as those "
            "of --allow.",
        ),
    )
    render_screenshot: str = field_of(
        "",
        "Screenshot of each rendered page, in the folder of the assets: of the whole page (page), or of "
        "the first element that a CSS selector matches. Empty: none",
        option=SettingOption(WHAT, "page|SELECTOR"),
    )
    render_capture: tuple[str, ...] = field_of(
        (),
        "Keep, in the record of a rendered page (rendering.answers), the JSON that it fetches from URLs "
        "that match one of these regular expressions, searched as those of allow",
        splits=False,
        option=SettingOption(
            WHAT,
            "REGEX",
            of="requests",
            help="Keep, in the record of a rendered page (rendering.answers), the JSON that it fetches from URLs "
            "that match one of these regular expressions, searched as those of --allow.",
        ),
    )
    rate: str = field_of(
        "",
        "How often to send a request to each domain, evenly spaced: 10/60 is ten requests in 60 seconds. Unset: the "
        "operator's policy for the domain, else 1/1",
        prepare=_checked_rate,
        expects="HITS/SECONDS, for example 1/1 or 10/60",
        option=SettingOption(
            HOW_FAST,
            "HITS/SECONDS",
            python_type="str | float",
            python=('Requests to each domain: a number per second, or `"10/60"` for ten in 60 seconds'),
        ),
    )
    domain_concurrency: Concurrency | None = field_of(
        None,
        "Requests in flight per domain. Unset: 1 for rates up to one request a second; for higher ones, twice the "
        "requests per second, at most 16",
        option=SettingOption(HOW_FAST, "N", field="domain_concurrency"),
    )
    spider: str = field_of(
        "link",
        "Spider of the pages: link, wandering, an installed one, or shop.py[:Class]",
        option=SettingOption(
            WHAT,
            "NAME|FILE",
            python_type="str | type[Spider]",
            python='Spider that reads the pages: the name of an installed one, a file (`"shop.py"`), or a class of the '
            "program",
        ),
    )
    priority: Annotated[int, integers(-1000, 1000)] = field_of(  # within MAX_PRIORITY of model/request.py
        1, "Priority of the given URLs; the highest is fetched first", option=SettingOption(WHAT, "N")
    )
    expires: str = field_of(
        "",
        "When to drop the requests that are left: seconds from now, 90m, 12h, 3d, or an ISO 8601 time. Empty: never",
        option=SettingOption(
            WHAT,
            "TIME",
            convert=moment,
            python_type="str | float | timedelta | datetime",
            python=('When to drop the requests that are left: seconds or a timedelta from now, `"12h"`, or a time'),
        ),
    )
    idle_seconds: SecondsOrZero | None = field_of(
        None,
        "Seconds without work after which a crawl is finished; until then it accepts more requests. Unset: "
        f"{SERVICE_IDLE_SECONDS:g} for crawls of a service, 0 for crawls from the command line",
    )
    report: str = field_of(
        "",
        "Write a page about the crawl at its end: what failed and why, response times, broken links. Empty: none",
        option=SettingOption(OUTPUT, "FILE.html", python_type="PathLike"),
    )
    attrs: dict[str, Any] | None = field_of(
        None,
        "JSON object that is copied to every record of the crawl",
        option=SettingOption(OUTPUT, "JSON", convert=json_object, python_type="Mapping[str, Any]"),
    )
    links: bool = field_of(
        False,
        "List all links of each page, with their texts, in its record",
        option=SettingOption(
            OUTPUT, python=("True: `page.record.links` lists all links of each page, with their texts"), field="links"
        ),
    )
    text: bool = field_of(
        False,
        "Extract the main content of each HTML page as plain text, with title, author, date and language",
        option=SettingOption(
            OUTPUT,
            python=("True: `page.content` has the main content as plain text, with title, author, date and language"),
            field="text",
        ),
    )
    markdown: bool = field_of(
        False,
        "Extract the main content of each HTML page as Markdown, with headings, links, tables and code",
        option=SettingOption(OUTPUT, python="True: `page.content` has the main content as Markdown", field="markdown"),
    )
    chunk: Annotated[int, integers(CHUNK_RANGE[0], CHUNK_RANGE[1])] | None = field_of(
        None,
        "Split the text or Markdown by its headings into items of at most this many characters. Unset: do not split",
        option=SettingOption(OUTPUT, "N", field="chunk"),
    )
    text_in: Literal["records", "items", "both"] | None = field_of(
        None,
        "Where text and Markdown go: the records of the pages, items, or both. Unset: records; items for chunks and "
        "for outputs that take only items, such as .csv",
        option=SettingOption(
            OUTPUT,
            "records|items|both",
            python="Place of the content: `page.content` and the records, `page.items`, or both. Unset: records; items "
            "for chunks",
            field="text_in",
        ),
    )
    extract: str | dict[str, Any] = field_of(
        "",
        "File of extraction rules, in YAML, JSON or TOML: which items to take from the pages. In a settings file, also "
        "the rules themselves",
        option=SettingOption(
            EXTRACT,
            "FILE",
            python_type="PathLike | Mapping[str, Any]",
            python="Rules for the items to take from the pages: a file in YAML, JSON or TOML, or a dict as such a file "
            "has it",
        ),
    )
    field: tuple[str, ...] = field_of(
        (),
        "Field of the items to take from the pages, as NAME=SELECTOR with @TYPE behind it if it is no text: "
        "title=h1, price=.price @number, image=img.main@src @url",
        splits=False,
        option=SettingOption(
            EXTRACT,
            "NAME=SELECTOR",
            convert=selectors,
            python_type="Mapping[str, str] | Texts",
            python=('Fields of the item to take from each page: `{"title": "h1", "price": ".price @number"}`'),
        ),
    )
    unique: tuple[str, ...] = field_of(
        (),
        "Write only the first of the items with the same value in this field, or in all of several "
        "fields. Items without any of the fields are all written",
        option=SettingOption(EXTRACT, "FIELD"),
    )
    each: str = field_of(
        "",
        "CSS selector of one item of several on a page: the selectors of field are applied inside it. "
        "Unset: one item for each page",
        option=SettingOption(
            EXTRACT,
            "SELECTOR",
            help="CSS selector of one item of several on a page: the selectors of --field are applied inside it. "
            "Unset: one item for each page.",
        ),
    )
    assets: tuple[str, ...] = field_of(
        (),
        "Also fetch files of these kinds that pages embed or link: images, css, js, fonts, video, audio, pdf, "
        "documents, or all. They may be on any host",
        option=SettingOption(EXTRACT, "KIND,KIND"),
    )
    assets_to: str = field_of(
        "",
        "Folder for the assets: a file for each content, and manifest.jsonl with a line for each URL. Empty: the WARC "
        "outputs; without any, the folder assets",
        option=SettingOption(
            OUTPUT,
            "DIR",
            python_type="PathLike",
            python="Folder for the assets, with a manifest. Unset: the WARC outputs",
        ),
    )
    max_assets: Count | None = field_of(
        None,
        "Queue at most this many assets. They do not count in max_pages. Unset: no limit",
        option=SettingOption(
            EXTRACT, "N", help=("Queue at most this many assets. They do not count in --max-pages. Unset: no limit.")
        ),
    )
    recrawl: bool = field_of(
        False,
        "Keep the crawl up to date: fetch all pages once, then each page whenever it is due, until "
        "Ctrl-C. gossamer crawls changes lists what is new, changed, gone or back",
        option=SettingOption(WHAT),
    )
    recrawl_once: bool = field_of(
        False,
        "Keep the crawl up to date with one round, for cron: fetch all pages the first time, and later "
        "those that are due",
        option=SettingOption(WHAT),
    )
    recrawl_all: bool = field_of(
        False,
        "With recrawl_once, visit all pages, not only those that are due",
        option=SettingOption(WHAT, help="With --recrawl-once, visit all pages, not only those that are due."),
    )
    budget: str = field_of(
        "",
        "Most visits that keep the crawl up to date: 5000/1d is 5,000 in any day; also m, h and w. New "
        "pages come on top. Empty: one visit a day for each page, on average",
        option=SettingOption(HOW_FAST, "VISITS/TIME"),
    )
    recrawl_min: str = field_of(
        "1h",
        "Shortest time between two visits of a page with recrawl: 90s, 30m, 12h, 7d or 4w. The same as recrawl_max: a "
        "fixed interval",
        option=SettingOption(
            HOW_FAST,
            "TIME",
            help="Shortest time between two visits of a page with --recrawl: 90s, 30m, 12h, 7d or 4w. The same as "
            "--recrawl-max: a fixed interval. Default: 1h.",
        ),
    )
    recrawl_max: str = field_of(
        "30d",
        "Longest time between two visits of a page with recrawl, whatever its estimate says",
        option=SettingOption(HOW_FAST, "TIME"),
    )
    recrawl_rule: tuple[str, ...] = field_of(
        (),
        "With recrawl, a regular expression of URLs, and options of their pages: every=1h for a fixed "
        "interval, or min=1h and max=7d; level=bytes, text, items or links, what counts as a change; "
        "keep=SELECTOR and drop=SELECTOR for the main text; window=CRON as recrawl_window. For example "
        "'/news/ every=1h level=text drop=.teaser'",
        splits=False,
        option=SettingOption(
            HOW_FAST,
            "RULE",
            help="With --recrawl, a regular expression of URLs, and options of their pages: every=1h for a fixed "
            "interval, or min=1h and max=7d; level=bytes, text, items or links, what counts as a change; "
            "keep=SELECTOR and drop=SELECTOR for the main text; window=CRON as --recrawl-window. For example "
            "'/news/ every=1h level=text drop=.teaser'. May be repeated.",
        ),
    )
    recrawl_window: str = field_of(
        "",
        "Minutes in which visits may begin with recrawl, as the five fields of cron: '* 1-5 * * *' is "
        "from 1:00 to 5:59. New pages are fetched when they are found. Empty: at any time",
        option=SettingOption(HOW_FAST, "CRON"),
    )
    recrawl_zone: str = field_of(
        "UTC",
        "Time zone of these windows, such as Europe/Berlin",
        option=SettingOption(HOW_FAST, "ZONE"),
    )
    ignore_feeds: bool = field_of(
        False,
        "With recrawl, do not visit the feeds (RSS, Atom) that pages name, whose entries are new pages",
        option=SettingOption(WHAT),
    )
    tell_unchanged: bool = field_of(
        False,
        "With recrawl, also note the fetches that found no change, as unchanged",
        option=SettingOption(WHAT),
    )
    versions: Annotated[int, integers(0, 1000)] = field_of(
        0,
        "With recrawl, number of the last versions of each page that the index keeps; gossamer crawls changes --diff "
        "compares them",
        option=SettingOption(WHAT, "N"),
    )
    index: str = field_of(
        "",
        "Page index of a crawl that is kept up to date: a SQLite file, or postgresql://USER@HOST/DATABASE"
        " for several machines or a service. Empty: a file in the data directory",
        option=SettingOption(WHERE, "PATH|URL", python_type="PathLike"),
    )
    allow_private: bool = field_of(
        False,
        "Permit private addresses for the hosts of the given URLs. Other hosts, to which they link or redirect, stay "
        "refused",
        option=SettingOption(REQUESTS, of="requests"),
    )
    ignore_robots: bool = field_of(
        False, "Neither fetch nor obey robots.txt", option=SettingOption(REQUESTS, of="requests", field="ignore_robots")
    )
    insecure: bool = field_of(False, "Do not verify TLS certificates", option=SettingOption(REQUESTS, of="requests"))
    header: dict[str, str] = field_of(
        {},
        "Request header to send in addition to the usual ones",
        option=SettingOption(
            REQUESTS,
            "NAME:VALUE",
            of="requests",
            convert=headers,
            python_type="Mapping[str, str] | Texts",
            python='Further request headers: `{"Accept-Language": "de"}`',
        ),
    )
    cookie: str = field_of(
        "",
        "Cookie header. It is sent to the registered domains of the given URLs and to those of --headers-for",
        option=SettingOption(
            REQUESTS,
            "TEXT",
            of="requests",
            python="Cookie header. It is sent to the registered domains of the given URLs, and to `headers_for`",
        ),
    )
    secret_header: tuple[str, ...] = field_of(
        (),
        "Name of a request header that is sent only where the cookie is sent. Authorization is always such a header",
        option=SettingOption(REQUESTS, "NAME", of="requests"),
    )
    headers_for: tuple[str, ...] = field_of(
        (),
        "Domain, with its subdomains, that gets the cookie and the secret headers, besides the registered domains of "
        "the given URLs",
        option=SettingOption(REQUESTS, "DOMAIN", of="requests"),
    )

    @property
    def output_paths(self) -> tuple[str, ...]:
        """The paths and URLs of the outputs."""
        return tuple(output.path for output in self.output)
