"""`gossamer crawl`: from URLs to a file of pages."""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from gossamer.cli import options, standard
from gossamer.cli import options as inputs
from gossamer.cli.interruption import Interruption
from gossamer.cli.options import gather_seeds
from gossamer.cli.running import run as run_loop
from gossamer.cli.running import work
from gossamer.cli.summary import Display, Summary
from gossamer.errors import BadInput, CrawlRefused, FrontierError, SinkError
from gossamer.frontier.base import AddResult
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, Run
from gossamer.settings import Settings, load
from gossamer.telemetry import logs
from gossamer.telemetry.tally import Tally
from gossamer.wiring.frontier import CrawlNote, connect, frontier_address, read_note, warn_of_memory_only, write_note
from gossamer.wiring.plan import Plan, check_settings, make_plan, private_hosts
from gossamer.wiring.worker import (
    finish_outputs,
    forget_written,
    make_resolver,
    missing_records,
    missing_sentence,
)
from gossamer.worker.spider import known_spiders


def crawl(
    urls: Annotated[
        list[str] | None, typer.Argument(metavar="URL...", help="Where to start.", show_default=False)
    ] = None,
    seeds: options.Seeds = None,
    depth: options.Depth = None,
    max_pages: options.MaxPages = None,
    domain_max_pages: options.DomainMaxPages = None,
    scope: options.ScopeOption = None,
    query_order: options.QueryOrderOption = None,
    allow_domain: options.AllowDomain = None,
    allow: options.Allow = None,
    deny: options.Deny = None,
    deny_extension: options.DenyExtension = None,
    sitemaps: options.Sitemaps = None,
    follow_nofollow: options.FollowNofollow = None,
    spider: options.SpiderOption = None,
    priority: options.Priority = None,
    expires: options.Expires = None,
    rate: options.Rate = None,
    domain_concurrency: options.DomainConcurrency = None,
    concurrency: options.Concurrency = None,
    processes: options.ProcessesOption = None,
    output: options.OutputOption = None,
    links: options.LinksOption = None,
    attrs: options.Attrs = None,
    resolve: options.Resolve = None,
    allow_private: options.AllowPrivate = None,
    ignore_robots: options.IgnoreRobots = None,
    insecure: options.Insecure = None,
    ca_file: options.CaFile = None,
    user_agent: options.UserAgent = None,
    header: options.Header = None,
    cookie: options.Cookie = None,
    secret_header: options.SecretHeader = None,
    headers_for: options.HeadersFor = None,
    proxy: options.ProxyOption = None,
    egress: options.Egress = None,
    timeout: options.Timeout = None,
    retries: options.Retries = None,
    crawl_id: options.CrawlIdOption = None,
    fresh: options.Fresh = False,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Crawl a site, politely and completely, into a file.

    Out of the box it stays on the URLs' domains, obeys robots.txt, and asks each domain once a second. Ctrl-C stops it
    in good order; the same command goes on where it stopped and fetches nothing twice.

    gossamer crawl https://example.com

    gossamer crawl https://example.com/docs/ --scope path --depth 3 --rate 5/1 -o docs.jsonl.zst

    Exit code: 0 finished, 1 nothing could be fetched, an output not be finished or records are missing from it, 2 bad
    input, 3 the frontier lost its data, 130 interrupted.
    """
    settings = load(
        {
            "crawl.output": tuple(output) if output else None,
            "crawl.depth": depth,
            "crawl.max_pages": max_pages,
            "crawl.domain_max_pages": domain_max_pages,
            "crawl.scope": scope,
            "crawl.query_order": query_order,
            "crawl.allow_domain": tuple(allow_domain) if allow_domain else None,
            "crawl.allow": tuple(allow) if allow else None,
            "crawl.deny": tuple(deny) if deny else None,
            "crawl.deny_extension": tuple(deny_extension) if deny_extension else None,
            "crawl.sitemaps": sitemaps,
            "crawl.follow_nofollow": follow_nofollow,
            "crawl.spider": spider,
            "crawl.priority": priority,
            "crawl.expires": expires,
            "crawl.rate": rate,
            "crawl.domain_concurrency": domain_concurrency,
            "crawl.links": links,
            "crawl.attrs": inputs.attrs(attrs),
            "crawl.allow_private": allow_private,
            "crawl.ignore_robots": ignore_robots,
            "crawl.insecure": insecure,
            "crawl.header": inputs.pairs(header),
            "crawl.cookie": cookie,
            "crawl.secret_header": tuple(secret_header) if secret_header else None,
            "crawl.headers_for": tuple(headers_for) if headers_for else None,
            "fetch.resolve": inputs.overrides(resolve),
            "fetch.ca_file": ca_file,
            "fetch.user_agent": user_agent,
            "fetch.proxy": proxy,
            "fetch.timeout": timeout,
            "fetch.retries": retries,
            "worker.concurrency": concurrency,
            "worker.processes": processes,
            "egress": egress,
            "frontier": frontier,
            "data_dir": data_dir,
        },
        config=config,
    )
    logs.set_up(settings.log_level)
    summary = run_loop(
        run_crawl(settings, urls or [], seeds or [], crawl_id=crawl_id, fresh=fresh, quiet=quiet or json)
    )
    tell(summary, as_json=json, quiet=quiet, on_stderr="-" in settings.crawl.output)
    raise typer.Exit(summary.exit_code())


def tell(summary: Summary, *, as_json: bool, quiet: bool, on_stderr: bool) -> None:
    """Print it: on standard output, or beside it where pages go there."""
    if as_json:
        standard.show(summary.as_json(), on_stderr=on_stderr)
    elif not quiet:
        standard.show(summary.as_text(), on_stderr=on_stderr)


async def run_crawl(
    settings: Settings, urls: Sequence[str], sources: Sequence[str], *, crawl_id: str | None, fresh: bool, quiet: bool
) -> Summary:
    """The whole of it. Raises GossamerError before anything is started, or when the frontier turns out unfit;
    Interrupted when it was, before anything was fetched."""
    plan = await prepare(settings, urls, sources, crawl_id=crawl_id)
    name = plan.crawl.id.crawlid
    with (
        Display(f"Crawling {plan.seeds[0]}{_more(plan)} as {name}", quiet=quiet) as display,
        Interruption(None, display.say) as interruption,
    ):
        interruption.before = "nothing was fetched; the same command begins again"
        interruption.last_words = f"Stopped at once; nothing is lost. Go on with: {resume_command()}"
        async with frontier_address(settings, name=f"gossamer crawl {name}", on_trouble=display.say) as address:
            frontier = await connect(settings, address)
            warn_of_memory_only(frontier, display.say)
            try:
                return await _crawl(settings, plan, frontier, address, display, interruption, fresh=fresh)
            finally:
                await frontier.close()


async def prepare(settings: Settings, urls: Sequence[str], sources: Sequence[str], *, crawl_id: str | None) -> Plan:
    """The plan, with everything checked that can be checked before the start. Raises BadInput."""
    check_settings(settings)
    for output in settings.crawl.output:
        if output.startswith("memory://"):
            raise BadInput(
                f"the output {output} would be gone with this process; name a file, or - for standard output"
            )
    inputs.outputs(settings.crawl.output)
    resolver = make_resolver(settings)
    try:
        seeds = await gather_seeds(settings, resolver, urls, sources)
        plan = make_plan(settings, seeds, crawl_id=crawl_id, now=time.time())
        private = await private_hosts(
            resolver,
            plan.seeds,
            allowed=settings.crawl.allow_private,
            names=not settings.fetch.proxy.startswith("socks5h:"),  # through that, they are not for us to look up
            say=standard.say,
        )
        if private:
            plan = make_plan(settings, seeds, crawl_id=crawl_id, now=time.time(), private_hosts=private)
        return plan
    finally:
        resolver.close()


async def _crawl(
    settings: Settings,
    plan: Plan,
    frontier: ValkeyFrontier,
    address: str,
    display: Display,
    interruption: Interruption,
    *,
    fresh: bool,
) -> Summary:
    identity = plan.crawl.id
    outputs = settings.crawl.output
    before = await frontier.crawl_info(identity)
    if before is not None and before.state in (CrawlState.FINISHED, CrawlState.EXPIRED) and not fresh:
        note = "To crawl it anew: the same command with --fresh"
        begun = read_note(settings.data_dir, identity.crawlid)
        places = _found(begun.outputs) if begun else ()
        summary = Summary(identity.crawlid, before, Tally(), 0.0, places, already_finished=True, notes=[note])
        try:
            await finish_outputs(settings)
        except SinkError as error:
            summary.unwritten = True
            summary.notes.insert(0, error.detail)
        return summary
    if before is not None and before.state is CrawlState.RUNNING and fresh:
        raise BadInput(
            f"--fresh: the crawl {identity.crawlid} is not finished; go on without --fresh, or name another --crawl-id"
        )
    try:
        run = await frontier.open_crawl(plan.crawl, fresh=fresh, expires={plan.spider: plan.terms.expires})
        wish = (plan.crawl.rate, plan.crawl.concurrency)
        if (run.crawl.rate, run.crawl.concurrency) != wish:  # of a crawl that goes on, the newest word counts
            run = await frontier.set_crawl_limits(run, rate=wish[0], concurrency=wish[1])
        added = await _feed(frontier, run, plan)
        write_note(settings.data_dir, _note(settings, plan, run))
    except CrawlRefused as error:
        raise CrawlRefused(f"{error.detail}; another --crawl-id begins a new one") from None
    if before is not None and before.state is CrawlState.RUNNING:
        done = before.total().done
        display.say(f"Going on with {identity.crawlid}: {done:,} done, {before.total().added - done:,} to do.")
    elif not added.added:
        display.say("Nothing new is among the URLs given.")
    missing = await missing_records(settings, run)
    for path, records in missing.items():
        display.say(missing_sentence(path, records))
    if not settings.frontier:
        # The workers of an earlier command ended with its embedded server. New workers trust silence only after a
        # heartbeat; a resumed crawl need not wait for that.
        await frontier.maintain()
    began = time.monotonic()
    worked = await work(
        settings, frontier, address, display, interruption, pool=plan.crawl.pool, spiders=spiders_for(plan), run=run
    )
    summary = Summary(
        identity.crawlid,
        None,
        worked.tally,
        time.monotonic() - began,
        outputs,
        interrupted=interruption.met,
        missing=missing,
        unwritten=bool(worked.fault),
    )
    await _add_end(summary, frontier, run)
    if worked.fault:
        summary.notes.append(worked.fault)
    if summary.finished:
        forget_written(settings, run)
    elif summary.interrupted and not summary.lost:
        summary.notes.append(f"Go on with: {resume_command()}")
    return summary


async def _add_end(summary: Summary, frontier: ValkeyFrontier, run: Run) -> None:
    """Add how the crawl stands, as the frontier knows it."""
    try:
        await frontier.check_data()
        summary.info = await frontier.crawl_info(run.crawl.id)
    except FrontierError as error:
        summary.notes.append(str(error))
    if frontier.lost_shards:
        summary.lost = True
        summary.notes.append(
            "What was still to be fetched is gone. The same command begins the crawl again."
            if summary.info is None
            else "A part of the frontier is left. To fetch everything, begin again with another --crawl-id."
        )


def _note(settings: Settings, plan: Plan, run: Run) -> CrawlNote:
    fetch = settings.fetch
    return CrawlNote(
        run=run,
        terms=plan.terms,
        spider=plan.spider,
        outputs=_absolute(settings.crawl.output),
        resolve=fetch.resolve,
        ca_file=os.path.abspath(fetch.ca_file) if fetch.ca_file else "",
    )


def _absolute(outputs: Sequence[str]) -> tuple[str, ...]:
    return tuple(path if path == "-" or "://" in path else os.path.abspath(path) for path in outputs)


def _found(outputs: Sequence[str]) -> tuple[str, ...]:
    """Those of a note that are still there or cannot be looked at, as a person in this folder would name them."""
    here = os.getcwd() + os.sep
    return tuple(path.removeprefix(here) for path in outputs if path == "-" or "://" in path or os.path.exists(path))


async def _feed(frontier: ValkeyFrontier, run: Run, plan: Plan) -> AddResult:
    total = AddResult()
    for batches in plan.batches(frontier.secret):
        added = await frontier.add(run, plan.terms, batches, seeds=True)
        total.added += added.added
        total.duplicates += added.duplicates
    return total


def spiders_for(plan: Plan) -> list[str]:
    """The crawl's spider first; it may send pages to any other that is installed."""
    return [plan.spider, *(name for name in known_spiders() if name != plan.spider)]


def resume_command() -> str:
    """This very command line, as a shell takes it, with stars for passwords."""
    return standard.shown(shlex.join(["gossamer", *(part for part in sys.argv[1:] if part != "--fresh")]))


def _more(plan: Plan) -> str:
    return f" and {len(plan.seeds) - 1:,} more" if len(plan.seeds) > 1 else ""
