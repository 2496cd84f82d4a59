"""Every option of the commands, once: its flag, its group in `--help`, and the setting whose words it shows."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.cli import standard
from gossamer.errors import BadInput, FetchError
from gossamer.fetch.exchange import REDIRECT_STATUSES, FetchRequest, first_header
from gossamer.fetch.resolve import Resolver, parse_override
from gossamer.policy.urls import canonical, host, redirect_target
from gossamer.settings import Settings, setting
from gossamer.sinks.open import check_outputs
from gossamer.wiring.plan import MOST_NESTED, check_attrs
from gossamer.wiring.worker import make_clients
from gossamer.worker.attempt import MAX_HOPS

WHERE = "What to crawl"
HOW_FAST = "How fast"
WHAT = "What becomes of the pages"
REQUEST = "How to ask"
RUN = "Where it runs"
SAY = "What is shown"

UP_LOG_LEVEL = "info"
"""What `gossamer up` and `gossamer serve` log from, where `log_level` is not set: other commands leave the terminal to
their own output."""


def flag(name: str, *flags: str, panel: str, metavar: str | None = None, default: str | None = None) -> Any:
    """The option of a setting: meaning and default come from the settings' table. `default`: that of the commands that
    have the option, where they have one of their own."""
    row = setting(name)
    default = row.default if default is None else default
    words = f"{row.description}. Default: {default}." if default else f"{row.description}."
    return typer.Option(*flags, help=words, show_default=False, rich_help_panel=panel, metavar=metavar)


Seeds = Annotated[
    list[str] | None,
    typer.Option(
        "--seeds", metavar="FILE|URL|-", help="More URLs, one a line. - reads standard input.", rich_help_panel=WHERE
    ),
]
Depth = Annotated[int | None, flag("crawl.depth", "--depth", panel=WHERE, metavar="N")]
MaxPages = Annotated[int | None, flag("crawl.max_pages", "--max-pages", panel=WHERE, metavar="N")]
DomainMaxPages = Annotated[int | None, flag("crawl.domain_max_pages", "--domain-max-pages", panel=WHERE, metavar="N")]
QueryOrderOption = Annotated[
    str | None, flag("crawl.query_order", "--query-order", panel=WHERE, metavar="significant|ignored")
]
ScopeOption = Annotated[str | None, flag("crawl.scope", "--scope", panel=WHERE, metavar="domain|host|path|any")]
AllowDomain = Annotated[list[str] | None, flag("crawl.allow_domain", "--allow-domain", panel=WHERE, metavar="D")]
Allow = Annotated[list[str] | None, flag("crawl.allow", "--allow", panel=WHERE, metavar="RE")]
Deny = Annotated[list[str] | None, flag("crawl.deny", "--deny", panel=WHERE, metavar="RE")]
DenyExtension = Annotated[list[str] | None, flag("crawl.deny_extension", "--deny-extension", panel=WHERE, metavar="E")]
Sitemaps = Annotated[bool | None, flag("crawl.sitemaps", "--sitemaps", panel=WHERE)]
FollowNofollow = Annotated[bool | None, flag("crawl.follow_nofollow", "--follow-nofollow", panel=WHERE)]
SpiderOption = Annotated[str | None, flag("crawl.spider", "--spider", panel=WHERE, metavar="NAME")]
Priority = Annotated[int | None, flag("crawl.priority", "--priority", panel=WHERE, metavar="N")]
Expires = Annotated[str | None, flag("crawl.expires", "--expires", panel=WHERE, metavar="TIME")]

Rate = Annotated[str | None, flag("crawl.rate", "--rate", panel=HOW_FAST, metavar="HITS/SECONDS")]
DomainConcurrency = Annotated[
    int | None, flag("crawl.domain_concurrency", "--domain-concurrency", panel=HOW_FAST, metavar="N")
]
Concurrency = Annotated[int | None, flag("worker.concurrency", "--concurrency", panel=HOW_FAST, metavar="N")]
ProcessesOption = Annotated[int | None, flag("worker.processes", "--processes", panel=HOW_FAST, metavar="N")]

OutputOption = Annotated[list[str] | None, flag("crawl.output", "-o", "--output", panel=WHAT, metavar="PATH")]
LinksOption = Annotated[bool | None, flag("crawl.links", "--links", panel=WHAT)]
Attrs = Annotated[str | None, flag("crawl.attrs", "--attrs", panel=WHAT, metavar="JSON")]

Resolve = Annotated[list[str] | None, flag("fetch.resolve", "--resolve", panel=REQUEST, metavar="HOST:ADDRESS")]
AllowPrivate = Annotated[bool | None, flag("crawl.allow_private", "--allow-private", panel=REQUEST)]
IgnoreRobots = Annotated[bool | None, flag("crawl.ignore_robots", "--ignore-robots", panel=REQUEST)]
Insecure = Annotated[bool | None, flag("crawl.insecure", "--insecure", panel=REQUEST)]
CaFile = Annotated[str | None, flag("fetch.ca_file", "--ca-file", panel=REQUEST, metavar="FILE")]
UserAgent = Annotated[str | None, flag("fetch.user_agent", "--user-agent", panel=REQUEST, metavar="S")]
Header = Annotated[list[str] | None, flag("crawl.header", "--header", panel=REQUEST, metavar="K:V")]
Cookie = Annotated[str | None, flag("crawl.cookie", "--cookie", panel=REQUEST, metavar="S")]
SecretHeader = Annotated[list[str] | None, flag("crawl.secret_header", "--secret-header", panel=REQUEST, metavar="K")]
HeadersFor = Annotated[list[str] | None, flag("crawl.headers_for", "--headers-for", panel=REQUEST, metavar="D")]
ProxyOption = Annotated[str | None, flag("fetch.proxy", "--proxy", panel=REQUEST, metavar="URL")]
Egress = Annotated[str | None, flag("egress", "--egress", panel=REQUEST, metavar="NAME")]
Timeout = Annotated[float | None, flag("fetch.timeout", "--timeout", panel=REQUEST, metavar="S")]
Retries = Annotated[int | None, flag("fetch.retries", "--retries", panel=REQUEST, metavar="N")]

CrawlIdOption = Annotated[
    str | None,
    typer.Option(
        "--crawl-id",
        metavar="ID",
        help="The crawl's name. By default it is made from the URLs and options, so that the same command goes on "
        "where it stopped.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Crawl anew what was finished, as if nothing had been seen.", rich_help_panel=RUN),
]
FrontierOption = Annotated[str | None, flag("frontier", "--frontier", panel=RUN, metavar="URL")]
DataDir = Annotated[Path | None, flag("data_dir", "--data-dir", panel=RUN, metavar="DIR")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings in TOML; gossamer.toml in the working folder is read by itself.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
Pool = Annotated[str, typer.Option("--pool", metavar="NAME", help="Which crawls to work for.", rich_help_panel=RUN)]
Json = Annotated[bool, typer.Option("--json", help="The summary as one JSON object.", rich_help_panel=SAY)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.", rich_help_panel=SAY)]

BusOption = Annotated[str | None, flag("bus", "--bus", panel=RUN, metavar="streams|kafka://HOST:PORT")]
TopicPrefix = Annotated[str | None, flag("topics.prefix", "--prefix", panel=RUN, metavar="NAME")]
Host = Annotated[str | None, flag("service.host", "--host", panel=RUN, metavar="ADDRESS")]
Port = Annotated[int | None, flag("service.port", "--port", panel=RUN, metavar="N")]
AllowNetwork = Annotated[list[str] | None, flag("allow_networks", "--allow-network", panel=REQUEST, metavar="CIDR")]
LogLevel = Annotated[str | None, flag("log_level", "--log-level", panel=SAY, metavar="LEVEL", default=UP_LOG_LEVEL)]
LogFormat = Annotated[str | None, flag("log_format", "--log-format", panel=SAY, metavar="human|json")]
AlsoOutput = Annotated[
    list[str] | None,
    typer.Option(
        "-o", "--output", metavar="PATH", help="Where pages go besides the bus, as in gossamer crawl.",
        rich_help_panel=WHAT, show_default=False,
    ),
]  # fmt: skip
AppId = Annotated[str, typer.Argument(metavar="APPID", help="The application.")]
OneSpider = Annotated[
    str | None, typer.Option("--spider", metavar="NAME", help="Only this spider's part of it. Unset: all of it.")
]


SEEDS_BYTES = 256 * 1024 * 1024
"""Of a seed file."""


def pairs(texts: Iterable[str] | None) -> dict[str, str] | None:
    """`K:V` of --header. None for none."""
    if not texts:
        return None
    found: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise BadInput(f"{text!r} is no header; write NAME:VALUE")
        found[name.strip()] = value.strip()
    return found


def overrides(texts: Iterable[str] | None) -> dict[str, str] | None:
    """`HOST:ADDRESS` of --resolve. None for none."""
    return dict(map(parse_override, texts)) if texts else None


def attrs(text: str | None) -> dict[str, Any] | None:
    """The JSON object of --attrs. None for none."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except RecursionError:
        raise BadInput(f"--attrs is nested more than {MOST_NESTED} levels deep; make it flatter") from None
    except ValueError as error:
        raise BadInput(f"--attrs is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadInput(f'--attrs must be a JSON object like {{"name": "value"}}, not {text!r:.80}')
    check_attrs(value)
    return value


def outputs(paths: Sequence[str]) -> None:
    """Whether pages can be written there. Raises BadInput."""
    if "-" in paths and 1 in standard.missing:
        raise BadInput("the output - is standard output, which is closed; name a file")
    check_outputs(paths)


def seed_lines(source: str) -> list[str]:
    """The URLs of a local file or of standard input (`-`), one a line; empty lines and those with # are skipped."""
    if source == "-":
        return _lines(sys.stdin.buffer.read(SEEDS_BYTES + 1), "standard input")
    path = Path(source)
    try:
        with path.open("rb") as file:
            return _lines(file.read(SEEDS_BYTES + 1), source)
    except OSError as error:
        raise BadInput(f"the seeds {source} cannot be read: {error.strerror}") from None


def seed_text(body: bytes, source: str) -> list[str]:
    """The URLs of a fetched seed list."""
    return _lines(body, source)


def _lines(content: bytes, source: str) -> list[str]:
    if len(content) > SEEDS_BYTES:
        raise BadInput(f"the seeds {source} are longer than {SEEDS_BYTES // 2**20} MiB")
    lines = content.decode("utf-8-sig", "replace").splitlines()
    urls = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not urls:
        raise BadInput(f"the seeds {source} name no URL")
    return urls


async def gather_seeds(
    settings: Settings, resolver: Resolver, urls: Sequence[str], sources: Sequence[str]
) -> list[str]:
    """All of them as written, in order. Raises BadInput for a source that cannot be had or names none."""
    found = list(urls)
    for source in sources:
        if source.startswith(("http://", "https://")):
            found += await _fetched(settings, resolver, source)
        else:
            found += seed_lines(source)
    return found


async def _fetched(settings: Settings, resolver: Resolver, source: str) -> list[str]:
    clients = make_clients(settings, resolver, body_bytes=SEEDS_BYTES)
    url = canonical(source)
    own = host(url) if settings.crawl.allow_private else ""
    headers = (("User-Agent", settings.fetch.user_agent), ("Accept", "text/plain,*/*;q=0.5"))
    try:
        for _ in range(MAX_HOPS + 1):
            fetched = await clients.fetch(
                FetchRequest(
                    url,
                    headers=headers,
                    proxy=settings.fetch.proxy or None,
                    insecure=settings.crawl.insecure,
                    allow_private=host(url) == own,  # as for a seed: its host, not where it leads
                )
            )
            where = first_header(fetched.headers, "location")
            if fetched.status not in REDIRECT_STATUSES or where is None:
                break
            target = redirect_target(url, where)
            if target is None:
                raise BadInput(f"the seeds {source} cannot be had: they lead to no web page")
            url = target
    except FetchError as error:
        raise BadInput(f"the seeds {source} cannot be had: {error}") from None
    finally:
        await clients.close()
    if fetched.status != 200 or fetched.truncated:
        why = (
            f"they are longer than {SEEDS_BYTES // 2**20} MiB"
            if fetched.truncated
            else f"the answer was {fetched.status} {fetched.reason}"
        )
        raise BadInput(f"the seeds {source} cannot be had: {why}")
    return seed_text(fetched.body, source)
