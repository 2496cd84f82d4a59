"""Every option of the commands, once: its flag, its group in `--help`, and the setting whose words it shows."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.settings import setting

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
    meaning, usual = setting(name)
    default = usual if default is None else default
    words = f"{meaning}. Default: {default}." if default else f"{meaning}."
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
