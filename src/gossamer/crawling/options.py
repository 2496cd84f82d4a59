"""Options of `gossamer.crawl` and `gossamer.get`: those of the command line, with underscores and Python's own types.

To add an option of the command, add it here, too, with the setting that it sets; a test compares the two. Fixed: names,
which people's programs use.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypedDict

from gossamer.errors import BadInput, GossamerError
from gossamer.net.resolve import parse_override
from gossamer.settings import places
from gossamer.settings.crawl import rate_text
from gossamer.worker.loading import add_program_spider
from gossamer.worker.spider import Spider

Texts = str | Iterable[str]
"""One text, or several."""
PathLike = str | os.PathLike[str]


class RequestOptions(TypedDict, total=False):
    """Options of requests. Each option is optional; docs/reference/settings.md has the defaults."""

    resolve: Mapping[str, str] | Texts
    """Address to use for a host instead of looking it up: `{"a.test": "10.0.0.7"}`."""
    allow_private: bool
    """True: the hosts of the given URLs may have private addresses."""
    ignore_robots: bool
    """True: robots.txt is neither fetched nor obeyed."""
    insecure: bool
    """True: TLS certificates are not verified."""
    ca_file: PathLike
    """PEM file of certificates to trust in addition to the system's."""
    user_agent: str
    """User-Agent header, and the name that selects the rules of robots.txt."""
    contact: str
    """URL or e-mail address at which sites reach you. It is added to the User-Agent header."""
    header: Mapping[str, str] | Texts
    """Further request headers: `{"Accept-Language": "de"}`."""
    cookie: str
    """Cookie header. It is sent to the registered domains of the given URLs and to those in `headers_for`."""
    secret_header: Texts
    """Names of headers that are sent only where the cookie is sent."""
    headers_for: Texts
    """Further domains, with their subdomains, that get the cookie and the secret headers."""
    proxy: Texts
    """Proxy as an http://, https://, socks5:// or socks5h:// URL, a file of them, or several."""
    timeout: float
    """Seconds for a complete request and response."""
    config: PathLike
    """TOML file of settings. Without it, gossamer.toml in the working folder is read if it exists."""


class CrawlOptions(RequestOptions, total=False):
    """Options of a crawl. Each is optional; docs/reference/settings.md has the defaults."""

    seeds: PathLike | Iterable[PathLike]
    """Further URLs to start from: files or URLs of lists with one URL per line."""
    depth: int
    """Number of links to follow away from the given URLs. 0: only these are fetched."""
    max_pages: int
    """Stop after this many fetched pages."""
    domain_max_pages: int
    """Largest number of pages of one domain."""
    scope: Literal["domain", "host", "path", "any"]
    """Links to follow: to the domains of the given URLs, to their hosts, into their directories, or anywhere."""
    query_order: Literal["significant", "ignored"]
    """ignored: URLs whose query parameters differ only in their order are one page."""
    pattern_max_pages: int
    """Largest number of pages of one pattern, whose URLs differ only in numbers, tokens and values of parameters."""
    path_repeats: int
    """Largest number of segments of a link's path that repeat earlier ones, as relative links without end do."""
    drop_parameter: Texts
    """Query parameters to leave out of URLs: `["ref", "utm_*"]`. Links that differ only in them are one page."""
    allow_domain: Texts
    """Further domains whose links are followed."""
    allow: Texts
    """Follow only links that match one of these regular expressions."""
    deny: Texts
    """Never follow links that match one of these regular expressions."""
    deny_extension: Texts
    """Do not follow links with these file extensions."""
    sitemaps: bool
    """True: the URLs of the sitemaps that robots.txt names are crawled, too."""
    follow_nofollow: bool
    """True: links that are marked nofollow are followed."""
    spider: str | type[Spider]
    """Spider that reads the pages: the name of an installed one, a file (`"shop.py"`), or a class of the program."""
    priority: int
    """Priority of the given URLs; the highest is fetched first."""
    expires: str | float | timedelta | datetime
    """When to drop the requests that are left: seconds or a timedelta from now, `"12h"`, or a time."""
    rate: str | float
    """Requests to each domain: a number per second, or `"10/60"` for ten in 60 seconds."""
    domain_concurrency: int
    """Requests in flight per domain."""
    concurrency: int
    """Requests in flight in all."""
    processes: int | Literal["auto"]
    """Number of worker processes. Other than 1 is for `run`, without a loop over the pages. auto: as the setting."""
    output: PathLike | Iterable[PathLike] | Mapping[PathLike, Literal["items", "pages", "all"]]
    """Where to write the pages and items; the ending selects the format. A dict says which records each file takes:
    `{"items.csv": "items", "pages.jsonl": "pages"}`. Unset: no file is written."""
    csv_guard: bool
    """True: a cell of a CSV file that a spreadsheet would run as a formula gets a single quote before it."""
    links: bool
    """True: `page.record.links` lists all links of each page, with their texts."""
    report: PathLike
    """Write a page about the crawl here, at its end: what failed and why, response times, broken links."""
    extract: PathLike | Mapping[str, Any]
    """Rules for the items to take from the pages: a file in YAML, JSON or TOML, or a dict as such a file has it."""
    field: Mapping[str, str] | Texts
    """Fields of the item to take from each page: `{"title": "h1", "price": ".price @number"}`."""
    each: str
    """CSS selector: one item for each element that it matches, instead of one for each page. For `field`."""
    unique: Texts
    """Fields that tell items apart: of items with the same values in all of them, only the first is kept."""
    text: bool
    """True: `page.content` has the main content as plain text, with title, author, date and language."""
    markdown: bool
    """True: `page.content` has the main content as Markdown."""
    chunk: int
    """Split the content by headings into items of at most this number of characters."""
    text_in: Literal["records", "items", "both"]
    """Place of the content: `page.content` and the records, `page.items`, or both. Unset: records; items for chunks."""
    assets: Texts
    """Kinds of files that pages embed or link, to be fetched, too: images, css, js, fonts, video, audio, pdf,
    documents, or all."""
    assets_to: PathLike
    """Folder for these files, with a manifest. Unset: the WARC outputs."""
    max_assets: int
    """Largest number of these files."""
    assets_max_bytes: int
    """Largest size of one of these files."""
    attrs: Mapping[str, Any]
    """JSON object that is copied to every record of the crawl."""
    egress: str
    """Name of the public address from which this machine fetches, for budgets that are kept per address."""
    robots_patience: float
    """Seconds for which requests wait for the robots.txt of a site that answers 5xx or not at all; then they fail."""
    retries: int
    """Further attempts after a temporary failure."""
    frontier: str
    """Shared frontier (redis://, unix://): all programs and commands that name it can work on the same crawl."""
    data_dir: PathLike
    """Directory for the private frontier, by which the same call resumes the crawl. Unset: .gossamer if there is an
    output, else a temporary folder that is deleted."""
    crawl_id: str
    """Name of the crawl. Unset: a name made from the URLs and options."""
    fresh: bool
    """True: a finished crawl is crawled again from the start, and its output begins empty."""
    append: bool
    """True: the output keeps what it holds, also the records of another crawl, or with `fresh` of this one."""
    failures: bool
    """True: the loop also gets what is no page: error statuses, and requests without a response, whose `status_code` is
    0. `page.record.reason` and `page.record.exception` say why."""


def _texts(value: Any) -> tuple[str, ...]:
    """Return one text, or several, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def _outputs(value: Any) -> Any:
    """Return outputs in a form that the setting accepts: a path, a list of paths, or a dict of records by path."""
    return value if isinstance(value, (str, os.PathLike, Mapping)) else list(value)


def _rules(value: Any) -> Any:
    """Return extraction rules: the path of their file, or a dict."""
    return dict(value) if isinstance(value, Mapping) else os.fspath(value)


def _fields(value: Any) -> tuple[str, ...]:
    """Return fields as `NAME=SELECTOR` from a mapping, or as they are."""
    if not isinstance(value, Mapping):
        return _texts(value)
    for name, selector in value.items():
        if "=" in str(name):
            raise BadInput(f"{name!r:.100} is no name of a field. Write one without =.")
        if not isinstance(selector, str):
            raise BadInput(f"{name} is {selector!r:.100}. Write a text like '.price @number', or use extract.")
    return tuple(f"{name}={selector}" for name, selector in value.items())


def _headers(value: Any) -> dict[str, str]:
    """Return headers from a mapping, or from texts like `NAME: VALUE`."""
    if isinstance(value, Mapping):
        for name, text in value.items():
            if not isinstance(text, str | int | float):
                raise BadInput(f"{name} is {text!r:.100}. Write a text.")
        return {str(name): str(text) for name, text in value.items()}
    found = {}
    for text in _texts(value):
        name, colon, rest = text.partition(":")
        if not colon or not name.strip():
            raise BadInput(f"cannot read {text!r}. Write {{'NAME': 'VALUE'}}.")
        found[name.strip()] = rest.strip()
    return found


def _overrides(value: Any) -> dict[str, str]:
    """Return addresses by host from a mapping, or from texts like `HOST:ADDRESS`."""
    if isinstance(value, Mapping):
        value = [f"{name}:{address}" for name, address in value.items()]
    return dict(map(parse_override, _texts(value)))


def _spider(value: Any) -> str:
    """Return the reference to a spider."""
    return value if isinstance(value, str) else add_program_spider(value)


def _moment(value: Any) -> str:
    """Return `expires` as the command line has it."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.3f}"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value)


_Convert = Callable[[Any], Any]
_SETTINGS: dict[str, tuple[str, _Convert | None]] = {
    "resolve": ("fetch.resolve", _overrides),
    "allow_private": ("crawl.allow_private", None),
    "ignore_robots": ("crawl.ignore_robots", None),
    "robots_patience": ("fetch.robots_patience", None),
    "insecure": ("crawl.insecure", None),
    "ca_file": ("fetch.ca_file", os.fspath),
    "user_agent": ("fetch.user_agent", None),
    "contact": ("fetch.contact", None),
    "header": ("crawl.header", _headers),
    "cookie": ("crawl.cookie", None),
    "secret_header": ("crawl.secret_header", _texts),
    "headers_for": ("crawl.headers_for", _texts),
    "proxy": ("fetch.proxy", _texts),
    "timeout": ("fetch.timeout", None),
    "depth": ("crawl.depth", None),
    "max_pages": ("crawl.max_pages", None),
    "domain_max_pages": ("crawl.domain_max_pages", None),
    "scope": ("crawl.scope", None),
    "query_order": ("crawl.query_order", None),
    "pattern_max_pages": ("crawl.pattern_max_pages", None),
    "path_repeats": ("crawl.path_repeats", None),
    "drop_parameter": ("crawl.drop_parameter", _texts),
    "allow_domain": ("crawl.allow_domain", _texts),
    "allow": ("crawl.allow", _texts),
    "deny": ("crawl.deny", _texts),
    "deny_extension": ("crawl.deny_extension", _texts),
    "sitemaps": ("crawl.sitemaps", None),
    "follow_nofollow": ("crawl.follow_nofollow", None),
    "spider": ("crawl.spider", _spider),
    "priority": ("crawl.priority", None),
    "expires": ("crawl.expires", _moment),
    "rate": ("crawl.rate", rate_text),
    "domain_concurrency": ("crawl.domain_concurrency", None),
    "concurrency": ("worker.concurrency", None),
    "processes": ("worker.processes", None),
    "output": ("crawl.output", _outputs),
    "csv_guard": ("crawl.csv_guard", None),
    "links": ("crawl.links", None),
    "report": ("crawl.report", os.fspath),
    "extract": ("crawl.extract", _rules),
    "field": ("crawl.field", _fields),
    "each": ("crawl.each", None),
    "unique": ("crawl.unique", _texts),
    "text": ("crawl.text", None),
    "markdown": ("crawl.markdown", None),
    "chunk": ("crawl.chunk", None),
    "text_in": ("crawl.text_in", None),
    "assets": ("crawl.assets", _texts),
    "assets_to": ("crawl.assets_to", os.fspath),
    "max_assets": ("crawl.max_assets", None),
    "assets_max_bytes": ("fetch.max_asset", None),
    "attrs": ("crawl.attrs", dict),
    "egress": ("egress", None),
    "retries": ("fetch.retries", None),
    "frontier": ("frontier", None),
    "data_dir": ("data_dir", Path),
}
"""Setting of each option, and the function that converts its value; None: the setting gets the value as it is. Must
have every option above that is not in NOT_SETTINGS."""
NOT_SETTINGS = frozenset({"seeds", "config", "crawl_id", "fresh", "append", "failures"})
"""Options that set no setting: `crawling/python.py` reads them."""


_OWN_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "seeds": ((str, os.PathLike, Iterable), "Write the path of a list of URLs, or several."),
    "config": ((str, os.PathLike), "Write the path of a TOML file."),
    "crawl_id": ((str,), "Write a text."),
    "fresh": ((bool,), "Write True or False."),
    "append": ((bool,), "Write True or False."),
    "failures": ((bool,), "Write True or False."),
}
"""Types that the options of NOT_SETTINGS accept, and what to write. Must have all of them: nothing else checks them."""


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of settings, by dotted name. An option that is None counts as not given.

    Raises TypeError for a name that is no option, and BadInput for a value that cannot be read.
    """
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name in NOT_SETTINGS or value is None:
            continue
        setting, convert = _SETTINGS[name]
        try:
            values[setting] = convert(value) if convert else value
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from None
        except (TypeError, ValueError) as error:
            raise BadInput(f"{name}: cannot use {value!r:.200}: {error}") from None
    return values


def names_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options by the dotted names of the settings that they set, for messages."""
    return {_SETTINGS[name][0]: name for name in options if name in _SETTINGS}


def check_options(function: str, options: Mapping[str, Any], kind: type[Any]) -> None:
    """Check that these are options of the TypedDict `kind`, and the types of those that set no setting.

    Raises TypeError, as Python does, for a name that is no option, and names the nearest; BadInput for a value."""
    known = kind.__annotations__
    for name in options:
        if name not in known:
            import difflib  # imported late: only mistakes need it

            near = difflib.get_close_matches(name.lower().replace("-", "_"), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(known))}."
            raise TypeError(f"{function}() has no option {name}; {hint}")
    for name, (accepted, advice) in _OWN_TYPES.items():
        value = options.get(name)
        if value is not None and not isinstance(value, accepted):
            raise BadInput(f"{name}: cannot use {value!r:.200}. {advice}")


_FLAGS = frozenset(name for name, kind in CrawlOptions.__annotations__.items() if kind is bool)
"""Options that are True or False."""
_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?: ([a-z]+://\S+[\w/]))?")
"""An option as messages write it, with the address that may follow: `--proxy socks5://...`. Must match every option
that a message of Gossamer names."""
_SUBJECT = re.compile(r".*?(?=[:.] |$)", re.DOTALL)
"""Beginning of a message, which names what is at fault; the advice behind it names options to add."""
_OUTPUT = re.compile(r"(?<!\S)-o ([\w./*-]*\w)")
"""An output as messages write it: `-o items.csv`."""
_OVERRIDE_ADVICE = re.compile(r"--resolve (\S+):ADDRESS")


def with_places(message: str, untyped: Mapping[str, str], *, config: Path | None) -> str:
    """Return a message with the places of values instead of options that were not typed: `gossamer.toml: crawl.scope`
    instead of `--scope`.

    `untyped`: dotted names of the settings, by those options. `config`: the settings file that was named.
    """
    subject = _SUBJECT.match(message)
    assert subject is not None
    if untyped.keys().isdisjoint(f"--{one[1]}" for one in _OPTION.finditer(subject[0])):
        return message
    written = places(config)

    def place(match: re.Match[str]) -> str:
        return written.get(untyped.get(match[0], ""), match[0])

    return _OPTION.sub(place, subject[0]) + message[subject.end() :]


def config_of(options: Mapping[str, Any]) -> Path | None:
    """Return the settings file that the options name; None: they name none."""
    config = options.get("config")
    return Path(config) if config else None


def untyped_options(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of the options that are not among these, by the options as messages write them."""
    return {
        f"--{name.replace('_', '-')}": setting for name, (setting, _) in _SETTINGS.items() if given.get(name) is None
    }


def in_python_words(message: str) -> str:
    """Return a message of Gossamer with the options as a program writes them: `allow_private=True` instead of
    `--allow-private`."""

    def option(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        if match[2]:
            return f'{name}="{match[2]}"'
        is_label = match.start() == 0  # `--seeds: ... cannot be read`: names the option that the message is about
        return f"{name}=True" if name in _FLAGS and not is_label else name

    message = _OUTPUT.sub(r'output="\1"', message)
    return _OPTION.sub(option, _OVERRIDE_ADVICE.sub(r'resolve={"\1": "ADDRESS"}', message))


class PythonWords:
    """Context manager that lets errors name options as a program writes them, or the settings file or variable that has
    the value instead. It drops the calls inside Gossamer from their tracebacks, which tell a program's author nothing.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options`: those that the program gave."""
        self._options = options

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, GossamerError):
            message = str(error)
            if isinstance(error, BadInput):
                message = with_places(message, untyped_options(self._options), config=config_of(self._options))
            error.args = (in_python_words(message),)
            raise error.with_traceback(None) from error.__cause__
