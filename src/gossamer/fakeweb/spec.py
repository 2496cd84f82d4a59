"""Specification of a fake web: one frozen value. Equal values give equal webs, byte for byte, on every machine.

Fixed: the names and values of options, which are also command-line options, and the order of RATES. A new field needs a
default with which webs stay as they are.
"""

import argparse
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from gossamer.errors import BadInput

MEMBERS: Final = {"alice": "wonderland", "bob": "builder"}
"""Accounts of the site for members: passwords by user. Fixed: documented."""


class Robots(StrEnum):
    """Kinds of answers to `/robots.txt` (RFC 9309)."""

    NONE = "none"
    """404: everything is allowed."""
    ALLOW = "allow"
    """A file that forbids nothing."""
    DISALLOW = "disallow"
    """The paths of `robots_disallow` are forbidden."""
    CRAWL_DELAY = "crawl_delay"
    """Asks for `crawl_delay_seconds` between two requests."""
    BROKEN = "broken"
    """500: the host must not be crawled until its robots.txt can be read."""
    SLOW = "slow"
    """Allows everything, after `robots_slow_ms`."""


class Sitemap(StrEnum):
    """Kinds of sitemaps. A host's robots.txt, if it has one, names its sitemap."""

    NONE = "none"
    PLAIN = "plain"
    """`/sitemap.xml`."""
    GZ = "gz"
    """`/sitemap.xml.gz`."""
    INDEX = "index"
    """`/sitemap.xml` is an index of `/sitemap-0.xml`, `/sitemap-1.xml` …"""


def _help(text: str) -> dict[str, str]:
    """Return the metadata of a field."""
    return {"help": text}


@dataclass(frozen=True, kw_only=True, slots=True)
class WebSpec:
    """Options of a fake web. Each field's `help` describes it, here and on the command line.

    Rates are shares of a host's pages, 0..1, and together at most 1. A host's page 0 (`/`) never fails or redirects,
    so that a crawl that begins there always gets into the host. Raises `BadInput` for values that cannot be served.
    """

    seed: int = field(default=1, metadata=_help("everything random is drawn from this number"))
    hosts: int = field(default=5, metadata=_help("host names"))
    pages: int = field(default=100, metadata=_help("pages of each host"))
    out_degree: int = field(default=20, metadata=_help("links on a page, navigation included"))
    page_bytes: int = field(default=12_000, metadata=_help("size of a page's HTML; more where its links need more"))
    cross_host_share: float = field(default=0.0, metadata=_help("share of a page's links that lead to other hosts"))
    subdomains: int = field(default=1, metadata=_help("hosts of each registered domain"))
    latency_ms: float = field(default=0.0, metadata=_help("wait before each answer begins"))
    refuse: float = field(default=0.0, metadata=_help("rate: connection reset before a byte is answered"))
    reset: float = field(default=0.0, metadata=_help("rate: connection reset in the middle of the body"))
    stall: float = field(default=0.0, metadata=_help("rate: headers, then nothing until the client leaves"))
    not_found: float = field(default=0.0, metadata=_help("rate: 404; permanent, even with --errors-once"))
    rate_limited: float = field(default=0.0, metadata=_help("rate: 429 with Retry-After"))
    server_error: float = field(default=0.0, metadata=_help("rate: 500"))
    unavailable: float = field(default=0.0, metadata=_help("rate: 503 with Retry-After"))
    retry_after_seconds: int = field(default=1, metadata=_help("the Retry-After of 429 and 503"))
    errors_once: bool = field(default=False, metadata=_help("a failing page succeeds when it is asked again"))
    redirect_same: float = field(default=0.0, metadata=_help("rate: redirected within the host"))
    redirect_cross: float = field(default=0.0, metadata=_help("rate: redirected to another host"))
    redirect_chain: int = field(default=1, metadata=_help("hops of each redirect"))
    robots: tuple[Robots, ...] = field(
        default=(Robots.NONE,), metadata=_help("robots.txt variants, in turn over the hosts")
    )
    robots_disallow: tuple[str, ...] = field(default=("/p/7",), metadata=_help("path prefixes that `disallow` forbids"))
    crawl_delay_seconds: float = field(default=1.0, metadata=_help("what `crawl_delay` asks for"))
    robots_slow_ms: float = field(default=2000.0, metadata=_help("how long `slow` takes"))
    sitemap: Sitemap = field(default=Sitemap.NONE, metadata=_help("list each host's pages"))
    estate: int = field(
        default=0, metadata=_help("index pages of an estate agent's site, at localhost; 0: no such site")
    )
    members: int = field(
        default=0, metadata=_help("pages of a site for members, at members.test, which needs a login; 0: no such site")
    )
    scripted: int = field(
        default=0, metadata=_help("pages of a site that scripts build, at scripted.test, at least 14; 0: no such site")
    )
    scripts: bool = field(
        default=False, metadata=_help("a script writes each page, so that only a browser sees its links")
    )
    hostile: bool = field(default=False, metadata=_help("also the hostile hosts; http://hostile.test lists them"))
    hostile_port: int = field(
        default=0, metadata=_help("the port in links and redirects to private addresses; 0: this server's own")
    )
    keep_alive: bool = field(default=True, metadata=_help("connections may be used again; off: closed after an answer"))

    def __post_init__(self) -> None:
        at_least = {"hosts": 1, "pages": 1, "out_degree": 1, "page_bytes": 0, "subdomains": 1, "redirect_chain": 1}
        at_least["members"] = 0
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise BadInput(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 0 <= self.estate <= MAX_ESTATE:
            raise BadInput(f"estate is a number of index pages from 0 to {MAX_ESTATE:,}, not {self.estate}")
        if self.scripted and self.scripted < LEAST_SCRIPTED:
            raise BadInput(f"scripted is a number of pages of at least {LEAST_SCRIPTED}, not {self.scripted}")
        if not 0 <= self.hostile_port < 65536:
            raise BadInput(f"hostile_port is a port, not {self.hostile_port}")
        for name in ("latency_ms", "retry_after_seconds", "crawl_delay_seconds", "robots_slow_ms", "seed"):
            if getattr(self, name) < 0:
                raise BadInput(f"{name} must not be negative")
        shares = (*RATES, "cross_host_share")
        for name in shares:
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(f"{name} is a share between 0 and 1, not {getattr(self, name)}")
        if sum(getattr(self, name) for name in RATES) > 1 + 1e-9:  # more than errors of rounding explain
            raise BadInput(f"the rates ({', '.join(RATES)}) add up to more than 1")
        if self.hosts == 1 and (self.cross_host_share or self.redirect_cross):
            raise BadInput("cross_host_share and redirect_cross need a second host")
        if self.page_bytes > MAX_PAGE_BYTES:
            raise BadInput(f"page_bytes is at most {MAX_PAGE_BYTES:,}")
        if not self.robots:
            raise BadInput("robots needs at least one variant")
        if self.sitemap in (Sitemap.PLAIN, Sitemap.GZ) and self.pages > SITEMAP_LIMIT:
            raise BadInput(f"a sitemap lists at most {SITEMAP_LIMIT:,} pages; choose `index`")


RATES = (
    "refuse",
    "reset",
    "stall",
    "not_found",
    "rate_limited",
    "server_error",
    "unavailable",
    "redirect_same",
    "redirect_cross",
)
"""Fields of `WebSpec` that are rates: one number is drawn for each page, and decides between them in this order. New
ones must be added at the end: the fates of existing webs depend on the order."""

LEAST_SCRIPTED = 14
"""Fewest pages of the site that scripts build: two of each kind."""
MAX_ESTATE = 33_333
"""Most index pages of the estate agent's site: the numbers of its properties, 30 on each page, have six digits."""
MAX_PAGE_BYTES = 16 * 1024 * 1024
"""Largest `page_bytes`. The text that pages share takes about as much memory."""
SITEMAP_LIMIT = 50_000
"""The sitemap protocol's limit for one file (sitemaps.org)."""

SPEC_FIELDS = fields(WebSpec)
"""Options of a web, in the order in which help shows them."""


# Fields whose help lists their possible values.
_CHOICES: dict[str, type[StrEnum]] = {"robots": Robots, "sitemap": Sitemap}


def add_spec_arguments(parser: argparse.ArgumentParser) -> None:
    """Add an option for each field of `WebSpec` to the parser, with its help and default."""
    group = parser.add_argument_group("the web")
    for option in SPEC_FIELDS:
        flag, text, default = _flag(option.name), option.metadata["help"], option.default
        assert default is not MISSING
        keywords: dict[str, Any] = {"dest": option.name, "default": default}
        if isinstance(default, bool):
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text, **keywords)
            continue
        shown = ",".join(default) if isinstance(default, tuple) else f"{default}"
        if option.name in _CHOICES:
            text += f" ({', '.join(_CHOICES[option.name])})"
        keywords["type"] = str if isinstance(default, tuple | StrEnum) else type(default)
        metavar_for_text = "LIST" if isinstance(default, tuple) else "KIND"
        keywords["metavar"] = {int: "N", float: "X"}.get(type(default), metavar_for_text)
        group.add_argument(flag, help=f"{text} (default: {shown})", **keywords)


def spec_from(arguments: argparse.Namespace) -> WebSpec:
    """Return the web that the parsed options describe. Raises `BadInput`."""
    values: dict[str, Any] = {option.name: getattr(arguments, option.name) for option in SPEC_FIELDS}
    for name in ("robots", "robots_disallow"):
        if isinstance(values[name], str):
            values[name] = tuple(part for part in values[name].split(",") if part)
    try:
        values["robots"] = tuple(map(Robots, values["robots"]))
        values["sitemap"] = Sitemap(values["sitemap"])
    except ValueError as error:
        raise BadInput(
            f"{error}; choose from {', '.join(Robots)} for robots, {', '.join(Sitemap)} for sitemap"
        ) from None
    return WebSpec(**values)


def spec_arguments(spec: WebSpec) -> list[str]:
    """Return the command-line options that describe this web: those that differ from the defaults."""
    arguments: list[str] = []
    for option in SPEC_FIELDS:
        value = getattr(spec, option.name)
        if value == option.default:
            continue
        flag = _flag(option.name)
        if isinstance(value, bool):
            arguments.append(flag if value else f"--no-{flag[2:]}")
        else:
            arguments.append(f"{flag}={','.join(value) if isinstance(value, tuple) else value}")
    return arguments


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
