"""`gossamer crawl`: crawls from URLs into files. `gossamer demo`: the same with a small web on this machine.

The requests of a crawl are in the frontier, a Valkey server, so that the same command resumes an interrupted crawl.
`crawling/engine.py` runs the crawl itself. Fixed: flags, which scripts use, and exit codes.
"""

import re
import shlex
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gossamer.cli import options, terminal
from gossamer.cli.parser import argument, option
from gossamer.cli.running import run as run_loop
from gossamer.cli.summary import Display, Summary, error_lines
from gossamer.cli.terminal import Interruption
from gossamer.cli.worker_process import fork_server
from gossamer.crawling import engine
from gossamer.crawling.outputs import StartOptions
from gossamer.crawling.seeds import has_public_host
from gossamer.errors import BadInput
from gossamer.model.info import CrawlInfo
from gossamer.model.record import Destination
from gossamer.model.request import DropReason
from gossamer.net.credentials import hide_secrets_in
from gossamer.net.resolve import parse_override
from gossamer.policy.retry import is_answer
from gossamer.policy.urls import host
from gossamer.policy.words import counted
from gossamer.settings import Settings, load
from gossamer.settings.fetch import DEFAULT_USER_AGENT
from gossamer.sinks.jsonl import read_records
from gossamer.sinks.open import check_outputs
from gossamer.telemetry import logs
from gossamer.wiring.frontier import read_note
from gossamer.wiring.outputs import table_options
from gossamer.wiring.plan import Plan, keeps_index

_Fresh = Annotated[
    bool,
    option(
        "--fresh",
        help="Crawl a finished crawl again from the start, and empty its outputs and its folder of assets before.",
        panel=options.WHERE,
    ),
]
_Append = Annotated[
    bool,
    option(
        "--append",
        help="Keep what the outputs hold, also the records of another crawl, or with --fresh of this one.",
        panel=options.OUTPUT,
    ),
]


@options.takes(*options.CRAWL_OPTIONS)
def crawl(
    urls: Annotated[
        list[str] | None, argument(metavar="URL...", help="URLs to start from.", show_default=False)
    ] = None,
    seeds: Annotated[
        list[str] | None,
        option(
            "--seeds",
            metavar="FILE|URL|-",
            help="Further URLs to start from, one per line. -: standard input.",
            panel=options.WHAT,
        ),
    ] = None,
    *,
    crawl_id: Annotated[
        str | None,
        option(
            "--crawl-id",
            metavar="ID",
            help="Name of the crawl. Unset: a name made from the URLs and options, so that the same command resumes.",
            panel=options.WHERE,
            show_default=False,
        ),
    ] = None,
    fresh: _Fresh = False,
    append: _Append = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **given: Any,
) -> int:
    """Crawl a site into a file, politely and completely.

    By default it stays on the domains of the URLs, obeys robots.txt, and sends each domain one request a second. Ctrl-C
    stops it safely; the same command resumes the crawl, fetches no page twice, and retries what got no answer.

    gossamer crawl https://example.com

    gossamer crawl https://example.com/docs/ --scope path --depth 3 --rate 5/1 -o docs.jsonl.zst

    Exit code: 0 finished; 1 no page could be fetched, sites refused more pages than they sent, a login failed, an
    output could not be written, or records are missing; 2 bad input; 3 the frontier lost data; 4 the frontier could not
    be reached; 130 interrupted.
    """
    settings = options.load_settings(given)
    logs.set_up(settings.log_level)
    start = StartOptions(fresh=fresh, append=append, resume_command=resume_command())
    with fork_server(settings):
        run = run_crawl(settings, urls or [], seeds or [], crawl_id=crawl_id, start=start, quiet=quiet or json)
        summary = run_loop(run)
    print_summary(summary, as_json=json, quiet=quiet, on_stderr="-" in settings.crawl.output_paths)
    code = summary.exit_code()
    # A crawl without an end was interrupted even if nothing was left to fetch just then.
    return terminal.INTERRUPTED_EXIT_CODE if not code and settings.crawl.recrawl and summary.interrupted else code


_DEMO_RECORDS = 3
"""Records that the demo shows at its end."""


def demo(
    pages: Annotated[int, option("--pages", metavar="N", help="Number of pages of the small web.")] = 500,
    output: Annotated[Path, option("-o", "--output", metavar="PATH", help="Where to write the pages.")] = Path(
        "demo/pages.jsonl"
    ),
    json: options.Json = False,
) -> int:
    """Try Gossamer: crawl a small web that runs on this machine. Shows the result.

    No request leaves the machine. A real site gets one request a second per domain unless you set another rate.
    """
    from gossamer.fakeweb import FakeWeb, WebSpec  # imported late: no other command needs it

    hosts = 5
    spec = WebSpec(hosts=hosts, pages=max(1, pages // hosts), cross_host_share=0.05, not_found=0.01, redirect_same=0.02)
    is_readable = ".jsonl" in output.name
    records_before = sum(1 for _ in read_records(output)) if is_readable and output.is_file() else 0
    with FakeWeb.start(spec) as web:
        terminal.print_stderr(f"A web of {spec.hosts} sites with {spec.hosts * spec.pages:,} pages runs at {web.url()}")
        settings = load(
            {
                "crawl.output": (str(output),),
                "crawl.rate": "1000/1",
                "crawl.domain_concurrency": 16,
                "data_dir": output.parent / "data",
                "fetch.resolve": dict(map(parse_override, web.resolve_overrides())),
            }
        )
        run = run_crawl(
            settings, web.seeds(), [], crawl_id=f"demo-{web.port}", start=StartOptions(append=True), quiet=json
        )
        summary = run_loop(run)
    if summary.finished and not summary.has_enough and not json:
        terminal.print_result("The demo has failed: none of its pages could be fetched.")
        for line in error_lines(summary.tally.failed, summary.tally.examples):
            terminal.print_stderr(f"  {line}")
        terminal.print_stderr("Mend that, then run it again: gossamer demo")
        return summary.exit_code()
    print_summary(summary, as_json=json, quiet=False, on_stderr=False)
    if not json and is_readable and output.is_file():
        terminal.print_stderr(f"\nSome of the pages in {output}, where each is one line of JSON:")
        for record in islice(read_records(output), records_before, records_before + _DEMO_RECORDS):
            terminal.print_stderr(f"  {_record_line(record)}")
        terminal.print_stderr("\nNow crawl a site: gossamer crawl https://example.com")
    return summary.exit_code()


def _record_line(record: object) -> str:
    """Return one line on a record: a PageRecord, or a JSON object of another kind."""
    get = record.get if isinstance(record, dict) else lambda name: getattr(record, name, "")
    return f"{get('status_code')} {get('url')} depth {get('depth')} {len(get('body') or ''):,} characters"


def print_summary(summary: Summary, *, as_json: bool, quiet: bool, on_stderr: bool) -> None:
    """Print the summary. `on_stderr`: because pages go to standard output."""
    if as_json:
        terminal.print_result(summary.as_json(), on_stderr=on_stderr)
    elif not quiet:
        terminal.print_result(summary.as_text(), on_stderr=on_stderr)


async def run_crawl(
    settings: Settings,
    urls: Sequence[str],
    sources: Sequence[str],
    *,
    crawl_id: str | None,
    start: StartOptions,
    quiet: bool,
) -> Summary:
    """Run a crawl to its end. Raises GossamerError before anything is started, or when the frontier cannot be used;
    Interrupted when the command was interrupted before anything was fetched."""
    names_outputs = "output" in settings.crawl.given
    if names_outputs:
        check_writable(settings, replaces=start.replaces_outputs)
    plan = await engine.prepare(
        settings,
        urls,
        sources,
        crawl_id=crawl_id,
        replaces=start.replaces_outputs,
        fresh=start.fresh,
        say=terminal.say,
    )
    _recommend_contact(settings, plan, quiet=quiet)
    if not names_outputs:
        settings = settings.copy(crawl=settings.crawl.copy(output=(default_output(plan.seeds),)))
        start = msgspec.structs.replace(start, named_outputs=False)
        check_writable(settings, replaces=start.replaces_outputs)
    name = plan.crawl.id.crawlid
    more = f" and {len(plan.seeds) - 1:,} more" if len(plan.seeds) > 1 else ""
    with (
        Display(
            f"Crawling {plan.seeds[0]}{more} as {name}", quiet=quiet, max_pages=settings.crawl.max_pages
        ) as display,
        Interruption(None, display.say) as interruption,
    ):
        interruption.message_before_work = "nothing was fetched; the same command starts again"
        interruption.exit_message = f"Stopped at once; nothing is lost. Resume with: {resume_command()}"
        if keeps_index(settings):
            summary = await _run_rounds(settings, plan, start, display, interruption)
        else:
            summary = Summary.of(
                await engine.run_crawl(
                    settings, plan, start=start, observer=display, control=interruption, program="gossamer crawl"
                )
            )
    if crawl_id is None and host(plan.seeds[0]) != host(min(plan.seeds)):  # the name begins with the latter
        summary.begun_at = f"{plan.seeds[0]}{more}"
    if summary.finished and not summary.already_finished:
        summary.notes += _hints(settings, plan, summary) + _note_of_assets(settings, summary)
    if summary.already_finished and not keeps_index(settings):
        summary.notes.append(_how_to_repeat(settings, name))
    elif summary.finished and not summary.is_endless:
        summary.notes += _notes_of_failures(settings, plan, summary)
    elif summary.interrupted and not summary.lost:
        summary.notes.append(f"Resume with: {resume_command()}")
    return summary


def _how_to_repeat(settings: Settings, crawl_id: str) -> str:
    """Return how a crawl that has finished is crawled again, for a person."""
    if (note := read_note(settings.data_dir, crawl_id)) is not None and note.index:
        return "To fetch what has changed since, repeat the command with --recrawl-once."
    return "To crawl it again, repeat the command with --fresh."


async def _run_rounds(
    settings: Settings, plan: Plan, start: StartOptions, display: Display, interruption: Interruption
) -> Summary:
    """Run a crawl that is kept up to date."""
    from gossamer.crawling import recrawl  # imported late: most crawls have no index

    work = recrawl.Recrawl(settings, plan, start, observer=display, control=interruption, program="gossamer crawl")
    found = await work.run()
    summary = Summary.of(found.crawl)
    summary.notes.append(recrawl.changes_sentence(found.changes))
    return summary


_HOST_CHARACTERS = 200
"""Longest part of a file name that a host makes. May be smaller; larger only as far as file systems take names of 255
bytes."""


def default_output(seeds: Sequence[str]) -> Destination:
    """Return the output of a crawl for which a person names none: HOST.jsonl for a single seed, else pages.jsonl."""
    if len(seeds) > 1:
        return Destination("pages.jsonl")
    name = re.sub(r"[^A-Za-z0-9._-]", "_", host(seeds[0]).strip("[]"))[:_HOST_CHARACTERS]
    return Destination(f"{name.lstrip('.-') or 'pages'}.jsonl")


def _recommend_contact(settings: Settings, plan: Plan, *, quiet: bool) -> None:
    """Recommend --contact, in one line, for a crawl of public sites under Gossamer's own name alone."""
    fetch = settings.fetch
    if quiet or fetch.contact or fetch.user_agent != DEFAULT_USER_AGENT:
        return
    if has_public_host(settings, plan.seeds, plan.terms.private_hosts):
        terminal.say("Let the sites reach you: --contact with a URL or an e-mail address adds it to the User-Agent.")


def _hints(settings: Settings, plan: Plan, summary: Summary) -> list[str]:
    """Return sentences about pages of the site that a finished crawl has not found, and the options that find them."""
    crawl = settings.crawl
    if summary.info is None or crawl.sitemaps or crawl.depth == 0 or crawl.spider != "link":
        return []
    total = summary.info.pages
    if total.dropped.get(DropReason.BUDGET):
        return []
    if sitemaps := sorted(summary.tally.sitemaps.values()):
        more = f" and {len(sitemaps) - 1} more" if len(sitemaps) > 1 else ""
        return [f"robots.txt names a sitemap that was not read, {sitemaps[0]}{more}. --sitemaps crawls its pages, too."]
    if not total.fetched or total.added > len(plan.seeds):
        return []
    if total.links_dropped.get(DropReason.OFFSITE):
        return ["No link was followed: they lead out of the scope. --allow-domain DOMAIN or --scope any follows them."]
    if summary.tally.pages and not summary.tally.html:
        return ["No page is HTML by its Content-Type, so there is no link to follow."]
    if not total.links_dropped and not summary.tally.unread:
        browser = "--render auto builds them in a browser, and " if crawl.render == "never" else ""
        return [f"No page has a link. If JavaScript makes the links, {browser}--sitemaps may find the pages."]
    return []


def _note_of_assets(settings: Settings, summary: Summary) -> list[str]:
    """Return a sentence if assets were wanted, and no page has any. Empty: not so."""
    info, kinds = summary.info, settings.crawl.assets
    if not kinds or info is None or not info.pages.fetched or info.assets.added:
        return []
    if info.total().links_dropped.get(DropReason.MAX_ASSETS):
        return []
    return [f"No assets were found: no page embeds or links any of {', '.join(kinds)}."]


def _notes_of_failures(settings: Settings, plan: Plan, summary: Summary) -> list[str]:
    """Return sentences about the failed requests of a finished crawl: how they are fetched again."""
    if summary.info is None:
        return []
    notes: list[str] = []
    if failed := engine.failed_to_retry(plan, summary.info, guard_changed=False):
        first = f"Correct {settings.crawl.spider}; then the" if summary.info.pages.failed.get("spider_error") else "The"
        notes.append(f"{first} same command retries {_retried(failed, summary.info)}.")
        if forgotten := summary.info.forgotten_failed:
            notes.append(f"{forgotten:,} more are too many to be remembered; only --fresh fetches them.")
    if refused := summary.info.pages.dropped.get(DropReason.BLOCKED_ADDRESS):
        lead = "1 URL leads to a private address" if refused == 1 else f"{refused:,} URLs lead to private addresses"
        notes.append(f"{lead}. If the servers are your own, add --resolve HOST:ADDRESS for each host.")
    return notes


def _retried(count: int, info: CrawlInfo) -> str:
    """Return which failed URLs are retried, and why the others are not. `count`: of those that are."""
    failed = info.total().failed
    others = sum(failed.values()) - count - info.forgotten_failed
    if others <= 0:
        return f"the {counted(count, 'failed URL')}"
    final = [reason for reason in failed if is_answer(reason)]
    named = f" ({', '.join(sorted(final))})" if sum(failed[reason] for reason in final) == others else ""
    return f"{count:,} of the {counted(count + others, 'failed URL')}; the others have got a final answer{named}"


def check_writable(settings: Settings, *, replaces: bool = False) -> None:
    """Check that records can be written to the outputs of these settings. `replaces`: they begin empty. Raises
    BadInput."""
    outputs = settings.crawl.output_paths
    if "-" in outputs:
        terminal.check_open(1, option="output")
    for output in outputs:
        if output.startswith("memory://"):
            raise BadInput(
                f"{output} would be gone with this process. Name a file, or - for standard output.", option="output"
            )
    tables = table_options(settings)  # its errors name options of their own
    try:
        check_outputs(settings.crawl.output, tables=tables, replaces=replaces)
    except BadInput as error:
        raise BadInput(str(error), option="output") from None


def resume_command() -> str:
    """Return this command line, quoted for a shell, without --fresh and with stars for passwords."""
    return hide_secrets_in(shlex.join(["gossamer", *(part for part in sys.argv[1:] if part != "--fresh")]))
