"""Types of the options of `gossamer.crawl` and `gossamer.get`. Made by `tools.reference`; do not edit."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from gossamer.crawling.options import ConfigOption, PathLike, StartingOptions, Texts
from gossamer.worker.spider import Spider


class RequestOptions(ConfigOption, total=False):
    """Options of requests. Each is optional; docs/reference/settings.md has the defaults."""

    session: PathLike
    """`cookies`: keep the cookies that sites set. A session file: also log in as it says."""
    render_step: Texts
    """Step that the browser takes on each page: scroll [TIMES] to the end, click SELECTOR [TIMES], wait SELECTOR
    [SECONDS], wait SECONDS, consent SELECTOR, fill SELECTOR=VALUE, submit SELECTOR. Clicks and scrolls are repeated
    until nothing changes."""
    render_capture: Texts
    """Keep, in the record of a rendered page (rendering.answers), the JSON that it fetches from URLs that match one of
    these regular expressions, searched as those of allow."""
    allow_private: bool
    """Permit private addresses for the hosts of the given URLs. Other hosts, to which they link or redirect, stay
    refused."""
    ignore_robots: bool
    """Neither fetch nor obey robots.txt."""
    insecure: bool
    """Do not verify TLS certificates."""
    header: Mapping[str, str] | Texts
    """Further request headers: `{"Accept-Language": "de"}`."""
    cookie: str
    """Cookie header. It is sent to the registered domains of the given URLs, and to `headers_for`."""
    secret_header: Texts
    """Name of a request header that is sent only where the cookie is sent. Authorization is always such a header."""
    headers_for: Texts
    """Domain, with its subdomains, that gets the cookie and the secret headers, besides the registered domains of the
    given URLs."""
    user_agent: str
    """User-Agent header, and the name that selects the rules of robots.txt."""
    contact: str
    """URL or e-mail address at which sites reach you, such as https://example.org/bot, added to the User-Agent header.
    Empty: none."""
    timeout: float
    """Seconds for a complete request and response."""
    proxy: Texts
    """Proxy as an http://, https://, socks5:// or socks5h:// URL, a file of them, or several."""
    resolve: Mapping[str, str] | Texts
    """Address to use for a host instead of looking it up: `{"a.test": "10.0.0.7"}`."""
    ca_file: PathLike
    """PEM file of certificates to trust in addition to the system's."""
    backend: str
    """Name of a fetcher that another package has installed, which sends the requests of pages. Empty: Gossamer's own
    client."""
    http2: Literal["never", "auto", "prefer"]
    """When HTTP/2 is spoken. never: not at all; auto: with sites that fail with HTTP/1.1 and not with HTTP/2; prefer:
    with each site that speaks it, which takes several times the CPU time. Needs the extra http2; without it, auto is
    never."""
    refusal_rules: PathLike
    """File of rules, in YAML, JSON or TOML, that find more refusals by sites than Gossamer's own rules."""
    accept_refused: Texts
    """Kinds of refusals that are taken for pages: challenge, captcha, denied, login, consent, same, not_found or
    empty."""
    render_seconds: float
    """Seconds in which a page is rendered. The document is then taken as it is."""
    render_quiet: float
    """Seconds without a change after which a rendered document is complete."""
    render_other_sites: Literal["none", "scripts", "all"]
    """Requests to other registered domains that rendered pages may make. scripts: scripts, style sheets and data, but
    neither frames nor known trackers; none: nothing; all: everything."""
    render_load: Texts
    """Kinds that a rendered page also loads: images, fonts, media, trackers. A screenshot has images and fonts in any
    case."""


class CrawlOptions(RequestOptions, StartingOptions, total=False):
    """Options of a crawl. Each is optional; docs/reference/settings.md has the defaults."""

    frontier: str
    """Shared frontier, the server that holds the URLs to fetch: unix://, redis://, rediss:// or redis+cluster://.
    Empty: a private server in data_dir."""
    data_dir: PathLike
    """Directory for the private frontier, by which the same call resumes the crawl. Unset: .gossamer if there is an
    output, else a temporary folder that is deleted."""
    egress: str
    """Name of the public address from which this machine fetches, for budgets that are kept per address. Empty: the
    address of the proxy, if one is set."""
    output: PathLike | Iterable[PathLike] | Mapping[PathLike, Literal["items", "pages", "all"]]
    """Where to write the pages and items; the ending selects the format. A dict names the records of each file:
    `{"items.csv": "items", "pages.jsonl": "pages"}`. Unset: no file is written."""
    csv_guard: bool
    """Write a single quote before each cell of a CSV file that a spreadsheet would run as a formula."""
    depth: int
    """Number of links to follow away from the given URLs. 0: fetch only these. Unset: no limit."""
    max_pages: int
    """Stop after this many fetched pages. Unset: no limit."""
    domain_max_pages: int
    """Largest number of pages of one domain. Unset: no limit."""
    scope: Literal["domain", "host", "path", "any"]
    """Links to follow. domain: to the domains of the given URLs, with all subdomains; host: to their hosts; path: into
    their directories; any: anywhere."""
    allow_domain: Texts
    """Also follow links to this domain and its subdomains."""
    allow: Texts
    """Follow only links that match one of these regular expressions, searched in the URL from the host on: /shop and
    /каталог/ are found in paths, ^/shop at their beginning, //shop in hosts."""
    deny: Texts
    """Never follow links that match one of these regular expressions, even if they match allow."""
    deny_extension: Texts
    """Do not follow links with one of these file extensions. Unset: a built-in list of images, archives, media and
    office files."""
    query_order: Literal["significant", "ignored"]
    """significant: URLs whose query parameters differ only in their order are different pages. ignored: they are one
    page; the first of these URLs is fetched."""
    pattern_max_pages: int
    """Largest number of pages, in each worker process, whose URLs differ only in numbers, tokens and values of query
    parameters, as in a calendar without end. Unset: no limit."""
    path_repeats: int
    """Do not follow links, such as relative ones without end, whose path repeats more of its segments than this number;
    /a/b/a/b repeats two."""
    drop_parameter: Texts
    """Query parameters to leave out of URLs: `["ref", "utm_*"]`. Links that differ only in them are one page."""
    sitemaps: bool
    """Also crawl the URLs of the sitemaps, RSS and Atom feeds that robots.txt names as sitemaps."""
    follow_nofollow: bool
    """Also follow links that are marked nofollow."""
    render: Literal["never", "auto", "always"]
    """Let a browser build the pages, for sites that scripts make. never: no page; auto: those to which scripts add
    links or main text; always: every page. It needs Chromium or Chrome."""
    render_match: Texts
    """Let a browser build the pages whose URLs match one of these regular expressions, searched as those of allow."""
    render_screenshot: str
    """Screenshot of each rendered page, in the folder of the assets: of the whole page (page), or of the first element
    that a CSS selector matches. Empty: none."""
    rate: str | float
    """Requests to each domain: a number per second, or `"10/60"` for ten in 60 seconds."""
    domain_concurrency: int
    """Requests in flight per domain. Unset: 1 for rates up to one request a second; for higher ones, twice the requests
    per second, at most 16."""
    spider: str | type[Spider]
    """Spider that reads the pages: the name of an installed one, a file (`"shop.py"`), or a class of the program."""
    priority: int
    """Priority of the given URLs; the highest is fetched first."""
    expires: str | float | timedelta | datetime
    """When to drop the requests that are left: seconds or a timedelta from now, `"12h"`, or a time."""
    report: PathLike
    """Write a page about the crawl at its end: what failed and why, response times, broken links. Empty: none."""
    attrs: Mapping[str, Any]
    """JSON object that is copied to every record of the crawl."""
    links: bool
    """True: `page.record.links` lists all links of each page, with their texts."""
    text: bool
    """True: `page.content` has the main content as plain text, with title, author, date and language."""
    markdown: bool
    """True: `page.content` has the main content as Markdown."""
    chunk: int
    """Split the text or Markdown by its headings into items of at most this many characters. Unset: do not split."""
    text_in: Literal["records", "items", "both"]
    """Place of the content: `page.content` and the records, `page.items`, or both. Unset: records; items for chunks."""
    extract: PathLike | Mapping[str, Any]
    """Rules for the items to take from the pages: a file in YAML, JSON or TOML, or a dict as such a file has it."""
    field: Mapping[str, str] | Texts
    """Fields of the item to take from each page: `{"title": "h1", "price": ".price @number"}`."""
    unique: Texts
    """Write only the first of the items with the same value in this field, or in all of several fields. Items without
    any of the fields are all written."""
    each: str
    """CSS selector of one item of several on a page: the selectors of field are applied inside it. Unset: one item for
    each page."""
    assets: Texts
    """Also fetch files of these kinds that pages embed or link: images, css, js, fonts, video, audio, pdf, documents,
    or all. They may be on any host."""
    assets_to: PathLike
    """Folder for the assets, with a manifest. Unset: the WARC outputs."""
    max_assets: int
    """Queue at most this many assets. They do not count in max_pages. Unset: no limit."""
    recrawl: bool
    """Keep the crawl up to date: fetch all pages once, then each page whenever it is due, until Ctrl-C. gossamer crawls
    changes lists what is new, changed, gone or back."""
    recrawl_once: bool
    """Keep the crawl up to date with one round, for cron: fetch all pages the first time, and later those that are
    due."""
    recrawl_all: bool
    """With recrawl_once, visit all pages, not only those that are due."""
    budget: str
    """Most visits that keep the crawl up to date: 5000/1d is 5,000 in any day; also m, h and w. New pages come on top.
    Empty: one visit a day for each page, on average."""
    recrawl_min: str
    """Shortest time between two visits of a page with recrawl: 90s, 30m, 12h, 7d or 4w. The same as recrawl_max: a
    fixed interval."""
    recrawl_max: str
    """Longest time between two visits of a page with recrawl, whatever its estimate says."""
    recrawl_rule: Texts
    """With recrawl, a regular expression of URLs, and options of their pages: every=1h for a fixed interval, or min=1h
    and max=7d; level=bytes, text, items or links, what counts as a change; keep=SELECTOR and drop=SELECTOR for the main
    text; window=CRON as recrawl_window. For example '/news/ every=1h level=text drop=.teaser'."""
    recrawl_window: str
    """Minutes in which visits may begin with recrawl, as the five fields of cron: '* 1-5 * * *' is from 1:00 to 5:59.
    New pages are fetched when they are found. Empty: at any time."""
    recrawl_zone: str
    """Time zone of these windows, such as Europe/Berlin."""
    ignore_feeds: bool
    """With recrawl, do not visit the feeds (RSS, Atom) that pages name, whose entries are new pages."""
    tell_unchanged: bool
    """With recrawl, also note the fetches that found no change, as unchanged."""
    versions: int
    """With recrawl, number of the last versions of each page that the index keeps; gossamer crawls changes --diff
    compares them."""
    index: PathLike
    """Page index of a crawl that is kept up to date: a SQLite file, or postgresql://USER@HOST/DATABASE for several
    machines or a service. Empty: a file in the data directory."""
    robots_patience: float
    """Seconds for which requests wait for a robots.txt that a site answers with 5xx or not at all. Unset: 300; a day
    for the workers of a service."""
    retries: int
    """Further attempts after a temporary failure."""
    assets_max_bytes: int
    """Largest asset in bytes, decompressed. A longer one is not kept, and its reason is too_large."""
    render_host_requests: int
    """Largest number of requests to one host at once that rendered pages of a worker process make."""
    concurrency: int
    """Requests in flight per process."""
    processes: int | Literal["auto"]
    """Number of worker processes. Other than 1 is for `run`, without a loop over the pages. auto: as the setting."""
