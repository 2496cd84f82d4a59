"""`gossamer crawl`: crawls from URLs into files. `gossamer demo`: the same with a small web on this machine.

The requests of a crawl are in the frontier, a Valkey server, so that the same command resumes an interrupted crawl.
Safe to change: help texts (then regenerate docs/reference), sentences (tests quote some), and what the demo fetches.
Fixed: flags, exit codes, and the order of the steps in `_Crawling`: a kill between two of them must leave a crawl that
the same command resumes.
"""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer.cli import options, terminal
from gossamer.cli.running import run as run_loop
from gossamer.cli.running import work
from gossamer.cli.summary import Display, Summary
from gossamer.cli.terminal import Interruption
from gossamer.errors import BadInput, CrawlRefused, FetchError, FrontierError, SinkError
from gossamer.fetch.exchange import REDIRECT_STATUSES, FetchRequest, first_header
from gossamer.fetch.resolve import Resolver, parse_override
from gossamer.frontier.base import AddResult
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, Run
from gossamer.model.info import CrawlInfo
from gossamer.policy.urls import canonical, host, redirect_target
from gossamer.settings import Settings, load
from gossamer.sinks.jsonl import read_records
from gossamer.sinks.open import check_outputs
from gossamer.telemetry import logs
from gossamer.telemetry.tally import Tally
from gossamer.wiring.frontier import CrawlNote, connect, frontier_address, read_note, warn_of_memory_only, write_note
from gossamer.wiring.plan import Plan, check_settings, find_private_hosts, make_plan
from gossamer.wiring.worker import (
    finish_outputs,
    forget_written,
    make_clients,
    make_resolver,
    missing_records,
    missing_sentence,
)
from gossamer.worker.attempt import MAX_HOPS
from gossamer.worker.spider import known_spiders


@options.takes(
    "depth", "max_pages", "domain_max_pages", "scope", "query_order", "allow_domain", "allow", "deny", "deny_extension",
    "sitemaps", "follow_nofollow", "spider", "priority", "expires", "rate", "domain_concurrency", "concurrency",
    "processes", "output", "links", "attrs", "resolve", "allow_private", "ignore_robots", "insecure", "ca_file",
    "user_agent", "header", "cookie", "secret_header", "headers_for", "proxy", "egress", "timeout", "retries",
    "frontier", "data_dir",
)  # fmt: skip
def crawl(
    urls: Annotated[
        list[str] | None, typer.Argument(metavar="URL...", help="URLs to start from.", show_default=False)
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            "--seeds",
            metavar="FILE|URL|-",
            help="Further URLs to start from, one per line. -: standard input.",
            rich_help_panel=options.WHAT,
        ),
    ] = None,
    *,
    crawl_id: Annotated[
        str | None,
        typer.Option(
            "--crawl-id",
            metavar="ID",
            help="Name of the crawl. Unset: a name made from the URLs and options, so that the same command resumes.",
            rich_help_panel=options.WHERE,
            show_default=False,
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Crawl a finished crawl again from the start.", rich_help_panel=options.WHERE),
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **given: Any,
) -> None:
    """Crawl a site into a file, politely and completely.

    By default it stays on the domains of the URLs, obeys robots.txt, and sends each domain one request a second. Ctrl-C
    stops it safely; the same command resumes the crawl and fetches no page twice.

    gossamer crawl https://example.com

    gossamer crawl https://example.com/docs/ --scope path --depth 3 --rate 5/1 -o docs.jsonl.zst

    Exit code: 0 finished; 1 no page could be fetched, an output could not be finished, or records are missing from it;
    2 bad input; 3 the frontier lost its data; 130 interrupted.
    """
    settings = options.load_settings(given)
    logs.set_up(settings.log_level)
    summary = run_loop(
        run_crawl(settings, urls or [], seeds or [], crawl_id=crawl_id, fresh=fresh, quiet=quiet or json)
    )
    print_summary(summary, as_json=json, quiet=quiet, on_stderr="-" in settings.crawl.output)
    raise typer.Exit(summary.exit_code())


_DEMO_RECORDS = 3
"""Records that the demo shows at its end. May be changed freely."""


def demo(
    pages: Annotated[int, typer.Option("--pages", metavar="N", help="Number of pages of the small web.")] = 500,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PATH", help="Where to write the pages.")] = Path(
        "demo/pages.jsonl"
    ),
    json: options.Json = False,
) -> None:
    """Start a small web on this machine, crawl it, and show the result.

    No request leaves the machine. The small web is crawled at full speed; a real site gets one request a second per
    domain unless you set another rate.
    """
    from gossamer.fakeweb import FakeWeb, WebSpec  # imported late: no other command needs it

    hosts = 5
    spec = WebSpec(hosts=hosts, pages=max(1, pages // hosts), cross_host_share=0.05, not_found=0.01, redirect_same=0.02)
    records_before = sum(1 for _ in read_records(output)) if output.is_file() else 0
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
        summary = run_loop(run_crawl(settings, web.seeds(), [], crawl_id=f"demo-{web.port}", fresh=False, quiet=json))
    print_summary(summary, as_json=json, quiet=False, on_stderr=False)
    if not json and output.is_file():
        terminal.print_stderr(f"\nSome of the pages in {output}, where each is one line of JSON:")
        for record in islice(read_records(output), records_before, records_before + _DEMO_RECORDS):
            terminal.print_stderr(f"  {_record_line(record)}")
        terminal.print_stderr("\nNow crawl a site: gossamer crawl https://example.com")
    raise typer.Exit(summary.exit_code())


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
    settings: Settings, urls: Sequence[str], sources: Sequence[str], *, crawl_id: str | None, fresh: bool, quiet: bool
) -> Summary:
    """Run a crawl to its end. Raises GossamerError before anything is started, or when the frontier cannot be used;
    Interrupted when the command was interrupted before anything was fetched."""
    plan = await prepare(settings, urls, sources, crawl_id=crawl_id)
    name = plan.crawl.id.crawlid
    more = f" and {len(plan.seeds) - 1:,} more" if len(plan.seeds) > 1 else ""
    with (
        Display(f"Crawling {plan.seeds[0]}{more} as {name}", quiet=quiet) as display,
        Interruption(None, display.say) as interruption,
    ):
        interruption.message_before_work = "nothing was fetched; the same command starts again"
        interruption.exit_message = f"Stopped at once; nothing is lost. Resume with: {resume_command()}"
        async with frontier_address(settings, name=f"gossamer crawl {name}", on_trouble=display.say) as address:
            frontier = await connect(settings, address)
            warn_of_memory_only(frontier, display.say)
            try:
                crawling = _Crawling(settings, plan, frontier, address, display, interruption)
                return await crawling.run(fresh=fresh)
            finally:
                await frontier.close()


async def prepare(settings: Settings, urls: Sequence[str], sources: Sequence[str], *, crawl_id: str | None) -> Plan:
    """Return the plan of a crawl: its id, options and seeds, the URLs that it starts from.

    Checks everything that can be checked before the start. `urls` and `sources`: see `gather_seeds`. Raises BadInput.
    """
    check_settings(settings)
    for output in settings.crawl.output:
        if output.startswith("memory://"):
            raise BadInput(
                f"--output: {output} would be gone with this process. Name a file, or - for standard output."
            )
    check_writable(settings.crawl.output)
    resolver = make_resolver(settings)
    try:
        seeds = await gather_seeds(settings, resolver, urls, sources)
        plan = make_plan(settings, seeds, crawl_id=crawl_id, now=time.time())
        private = await find_private_hosts(
            resolver,
            plan.seeds,
            allowed=settings.crawl.allow_private,
            names=not settings.fetch.proxy.startswith("socks5h:"),  # such a proxy looks the names up itself
            say=terminal.say,
        )
        if private:  # made again, because the look-up needed the seeds of the first plan
            plan = make_plan(settings, seeds, crawl_id=crawl_id, now=time.time(), private_hosts=private)
        return plan
    finally:
        resolver.close()


def check_writable(outputs: Sequence[str]) -> None:
    """Check that pages can be written to these outputs. Raises BadInput."""
    if "-" in outputs and 1 in terminal.closed_at_start:
        raise BadInput("--output: - is standard output, which is closed. Use it open, or name a file.")
    check_outputs(outputs)


@dataclass(slots=True)
class _Crawling:
    """One run of `gossamer crawl`, connected to its frontier."""

    settings: Settings
    plan: Plan
    frontier: ValkeyFrontier
    address: str
    """Address of the frontier, for worker processes."""
    display: Display
    interruption: Interruption

    async def run(self, *, fresh: bool) -> Summary:
        """Start or resume the crawl, and run it to its end. `fresh`: start it again if it is finished."""
        identity = self.plan.crawl.id
        before = await self.frontier.crawl_info(identity)
        if before is not None and before.state in (CrawlState.FINISHED, CrawlState.EXPIRED) and not fresh:
            return await self._already_finished(before)
        if before is not None and before.state is CrawlState.RUNNING and fresh:
            raise BadInput(
                f"--fresh: the crawl {identity.crawlid} is not finished. Resume it without --fresh, or name another "
                "--crawl-id."
            )
        run, added = await self._open(fresh=fresh)
        if before is not None and before.state is CrawlState.RUNNING:
            done = before.total().done
            self.display.say(f"Resuming {identity.crawlid}: {done:,} done, {before.total().added - done:,} to do.")
        elif not added.added:
            self.display.say("All given URLs were added before.")
        return await self._work(run)

    async def _already_finished(self, info: CrawlInfo) -> Summary:
        """Return the summary of a crawl that has ended. Finish outputs that an earlier command could not."""
        crawl_id = self.plan.crawl.id.crawlid
        note = read_note(self.settings.data_dir, crawl_id)
        outputs = _existing(note.outputs) if note else ()
        summary = Summary(crawl_id, info, Tally(), 0.0, outputs, already_finished=True)
        summary.notes.append("To crawl it again, repeat the command with --fresh.")
        try:
            await finish_outputs(self.settings)
        except SinkError as error:
            summary.unwritten = True
            summary.notes.insert(0, error.detail)
        return summary

    async def _open(self, *, fresh: bool) -> tuple[Run, AddResult]:
        """Open a run, one life of the crawl, in the frontier, or continue the running one, and add the seeds.

        Each step may be repeated: seeds that were added before count as duplicates. The note is written last, so that
        it only names a crawl that exists.
        """
        plan = self.plan
        try:
            run = await self.frontier.open_crawl(plan.crawl, fresh=fresh, expires={plan.spider: plan.terms.expires})
            rate, concurrency = plan.crawl.rate, plan.crawl.concurrency
            if (run.crawl.rate, run.crawl.concurrency) != (rate, concurrency):
                # The crawl is resumed: it takes the rate of the new command.
                run = await self.frontier.set_crawl_limits(run, rate=rate, concurrency=concurrency)
            added = AddResult()
            for batches in plan.batches(self.frontier.secret):
                result = await self.frontier.add(run, plan.terms, batches, seeds=True)
                added.added += result.added
                added.duplicates += result.duplicates
            write_note(self.settings.data_dir, self._note(run))
        except CrawlRefused as error:
            raise CrawlRefused(f"{error.detail}; another --crawl-id starts a new one") from None
        return run, added

    async def _work(self, run: Run) -> Summary:
        """Fetch until the run is over or the command is interrupted."""
        settings, plan = self.settings, self.plan
        missing = await missing_records(settings, run)
        for path, records in missing.items():
            self.display.say(missing_sentence(path, records))
        if not settings.frontier:
            # The workers of an earlier command ended with its embedded server. New workers trust silence only after a
            # heartbeat; a resumed crawl need not wait for that.
            await self.frontier.maintain()
        started = time.monotonic()
        result = await work(
            settings, self.frontier, self.address, self.display, self.interruption,
            pool=plan.crawl.pool, spiders=spiders_for(plan), run=run,
        )  # fmt: skip
        summary = Summary(
            plan.crawl.id.crawlid,
            None,
            result.tally,
            time.monotonic() - started,
            settings.crawl.output,
            interrupted=self.interruption.was_interrupted,
            missing=missing,
            unwritten=bool(result.fault),
        )
        await self._add_final_state(summary)
        if result.fault:
            summary.notes.append(result.fault)
        if summary.finished:  # else the command that resumes the run needs what was written
            forget_written(settings, run)
        elif summary.interrupted and not summary.lost:
            summary.notes.append(f"Resume with: {resume_command()}")
        return summary

    async def _add_final_state(self, summary: Summary) -> None:
        """Add the state of the crawl in the frontier."""
        try:
            await self.frontier.check_data()
            summary.info = await self.frontier.crawl_info(self.plan.crawl.id)
        except FrontierError as error:
            summary.notes.append(str(error))
        if self.frontier.lost_shards:
            summary.lost = True
            summary.notes.append(
                "The queued requests are gone. The same command starts the crawl again."
                if summary.info is None
                else "Some of the queued requests are gone. To fetch everything, start again with another --crawl-id."
            )

    def _note(self, run: Run) -> CrawlNote:
        """Return what `gossamer why` needs to know of this crawl, with absolute paths."""
        fetch = self.settings.fetch
        return CrawlNote(
            run=run,
            terms=self.plan.terms,
            spider=self.plan.spider,
            outputs=tuple(
                path if path == "-" or "://" in path else os.path.abspath(path) for path in self.settings.crawl.output
            ),
            resolve=fetch.resolve,
            ca_file=os.path.abspath(fetch.ca_file) if fetch.ca_file else "",
        )


def _existing(outputs: Sequence[str]) -> tuple[str, ...]:
    """Return the outputs of a note that still exist or cannot be checked, relative to this folder if they are in it."""
    here = os.getcwd() + os.sep
    return tuple(path.removeprefix(here) for path in outputs if path == "-" or "://" in path or os.path.exists(path))


def spiders_for(plan: Plan) -> list[str]:
    """Return the crawl's spider, then all others that are installed: a spider may send pages to any of them."""
    return [plan.spider, *(name for name in known_spiders() if name != plan.spider)]


def resume_command() -> str:
    """Return this command line, quoted for a shell, without --fresh and with stars for passwords."""
    return terminal.without_passwords(shlex.join(["gossamer", *(part for part in sys.argv[1:] if part != "--fresh")]))


_MAX_SEED_BYTES = 256 * 1024 * 1024
"""Largest list of seeds. May be changed freely: the list is held in memory, and takes several times its size there."""


async def gather_seeds(
    settings: Settings, resolver: Resolver, urls: Sequence[str], sources: Sequence[str]
) -> list[str]:
    """Return `urls` and the URLs of all `sources` (files, URLs, or `-` for standard input), in order and as written.

    Raises BadInput for a source that cannot be read or holds no URL.
    """
    found = list(urls)
    for source in sources:
        if source.startswith(("http://", "https://")):
            found += _lines(await _fetch_seeds(settings, resolver, source), source)
        elif source == "-":
            found += _lines(sys.stdin.buffer.read(_MAX_SEED_BYTES + 1), "standard input")
        else:
            found += _lines(_read_seeds(source), source)
    return found


def _read_seeds(source: str) -> bytes:
    """Return the content of a file, up to one byte more than the limit, by which `_lines` sees that it is too long."""
    try:
        with Path(source).open("rb") as file:
            return file.read(_MAX_SEED_BYTES + 1)
    except OSError as error:
        raise BadInput(f"--seeds: {source} cannot be read: {error.strerror}. Name a file with URLs.") from None


def _lines(content: bytes, source: str) -> list[str]:
    """Return the URLs of a list, one per line; empty lines and those that begin with # are skipped."""
    if len(content) > _MAX_SEED_BYTES:
        raise BadInput(
            f"--seeds: {source} is longer than {_MAX_SEED_BYTES // 2**20} MiB. Split it into several crawls."
        )
    lines = content.decode("utf-8-sig", "replace").splitlines()
    urls = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not urls:
        raise BadInput(f"--seeds: {source} holds no URL. Write one URL per line.")
    return urls


async def _fetch_seeds(settings: Settings, resolver: Resolver, source: str) -> bytes:
    """Return the body of a URL, after its redirects."""
    clients = make_clients(settings, resolver, body_bytes=_MAX_SEED_BYTES)
    url = canonical(source)
    private_host = host(url) if settings.crawl.allow_private else ""
    headers = (("User-Agent", settings.fetch.user_agent), ("Accept", "text/plain,*/*;q=0.5"))
    try:
        for _ in range(MAX_HOPS + 1):
            fetched = await clients.fetch(
                FetchRequest(
                    url,
                    headers=headers,
                    proxy=settings.fetch.proxy or None,
                    insecure=settings.crawl.insecure,
                    allow_private=host(url) == private_host,  # as for a seed: its own host, not where it redirects
                )
            )
            target = first_header(fetched.headers, "location")
            if fetched.status not in REDIRECT_STATUSES or target is None:
                break
            next_url = redirect_target(url, target)
            if next_url is None:
                raise BadInput(f"--seeds: {source} cannot be fetched: it redirects to {target[:200]!r}, no web page")
            url = next_url
    except FetchError as error:
        raise BadInput(f"--seeds: {source} cannot be fetched: {error}") from None
    finally:
        await clients.close()
    if fetched.status != 200 or fetched.truncated:
        reason = (
            f"it is longer than {_MAX_SEED_BYTES // 2**20} MiB"
            if fetched.truncated
            else f"the response was {fetched.status} {fetched.reason}"
        )
        raise BadInput(f"--seeds: {source} cannot be fetched: {reason}")
    return fetched.body
