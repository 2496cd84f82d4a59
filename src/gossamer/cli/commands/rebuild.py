"""`gossamer crawls rebuild`: fills the lost frontier of a crawl from its records, so that the crawl goes on as it was.

The frontier is the store of requests: which wait, and which a crawl has had. Fixed: flags, exit codes, and the fields
of `--json`.
"""

from functools import partial
from typing import Annotated, Any

from gossamer.cli import options
from gossamer.cli.parser import argument, option
from gossamer.cli.running import ask
from gossamer.cli.running import run as run_loop
from gossamer.errors import BadInput
from gossamer.telemetry import logs

_Urls = Annotated[
    list[str] | None, argument(metavar="URL...", help="URLs that the crawl starts from.", show_default=False)
]
_Seeds = Annotated[
    list[str] | None,
    option(
        "--seeds",
        metavar="FILE|URL|-",
        help="Further URLs that it starts from, one per line. -: standard input.",
        panel=options.WHAT,
    ),
]
_CrawlId = Annotated[
    str | None,
    option(
        "--crawl-id",
        metavar="ID",
        help="Name of the crawl. Unset: the name that gossamer crawl makes from the URLs and options.",
        panel=options.WHERE,
        show_default=False,
    ),
]
_Records = Annotated[
    list[str] | None,
    option(
        "--records",
        metavar="FILE",
        help="File or fsspec URL with records of the crawl, instead of its outputs. May be repeated.",
        panel=options.WHERE,
    ),
]
_Replace = Annotated[
    bool,
    option(
        "--replace",
        help="Delete what the frontier has of the crawl first, for example from an old backup.",
        panel=options.WHERE,
    ),
]


_Request = Annotated[
    str | None,
    option(
        "--request",
        metavar="JSON|FILE",
        help="Requests of a service, as for gossamer feed, in place of URLs. Needs --records.",
        panel=options.WHAT,
    ),
]


@options.takes(*options.CRAWL_OPTIONS, "bus", "prefix")
def rebuild(
    urls: _Urls = None,
    seeds: _Seeds = None,
    *,
    crawl_id: _CrawlId = None,
    records: _Records = None,
    request: _Request = None,
    replace: _Replace = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **given: Any,
) -> None:
    """Fill the lost frontier of a crawl from its records. The same gossamer crawl command then goes on with it.

    Write the command line of the crawl with `crawls rebuild` in place of `crawl`. Nothing is fetched.

    gossamer crawls rebuild https://example.com -o docs.jsonl

    The outputs must hold the bodies of pages, or their links.

    Crawls of a service: gossamer crawls rebuild --request requests.jsonl --records pages.jsonl

    Exit code: 0 filled; 2 bad input, or the frontier has the crawl; 4 the frontier could not be reached; 130
    interrupted: repeat the command.
    """
    from gossamer.cli.rebuilding import print_rebuilt, rebuild_crawl, rebuild_requests  # late: other commands need none

    settings = options.load_settings(given)
    logs.set_up(settings.log_level)
    if request is not None:
        if urls or seeds or not records:
            raise BadInput("--request: name the files with the records with --records, and no URLs.")
        for result, plan in ask(settings, partial(rebuild_requests, settings, request, records, replace=replace)):
            print_rebuilt(result, plan, as_json=json, quiet=quiet)
        return
    result, plan = run_loop(
        rebuild_crawl(
            settings,
            urls or [],
            seeds or [],
            crawl_id=crawl_id,
            records=records or [],
            replace=replace,
            quiet=quiet or json,
        )
    )
    print_rebuilt(result, plan, as_json=json, quiet=quiet)
