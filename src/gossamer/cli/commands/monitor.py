"""`gossamer monitor`: shows a running cluster and renews the picture every second; with targets, the jobs of a Scrapy
project on servers with Scrapyd's interface, every 5 seconds.

Fixed: flags, and the fields of ClusterSnapshot and TargetState, which are the JSON of `--json`; fields may be added.
"""

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gossamer.cli import options, tables, targets, terminal
from gossamer.cli.parser import argument, option
from gossamer.cli.running import ask
from gossamer.control.stats import CRAWLER
from gossamer.errors import BusError, FrontierError, Interrupted
from gossamer.model.crawl import CrawlState
from gossamer.model.info import Backlog, CrawlInfo, WorkerInfo
from gossamer.platform_client.monitoring import picture, poll, watch
from gossamer.platform_client.targets import choose_target
from gossamer.policy.words import counted, duration_text
from gossamer.wiring.frontier import list_running_first
from gossamer.wiring.service import ServiceContext

_LIVE_SECONDS = 1.0
"""Interval in a terminal. Each picture takes a few calls to every shard (part of the frontier)."""
_PLAIN_SECONDS = 10.0
"""Interval where the output is not a terminal. Shorter makes the output longer."""
_RATE_SECONDS = 10.0
"""Time over which the rate is measured. Shorter shows it less steady."""

# Crawls, and domains of each spider, that are read for a picture. More take longer; fewer may leave out the domain with
# the longest queue.
_CRAWLS_READ = 200
_DOMAINS_READ = 1000

# Rows of each table; all three must fit a terminal.
_CRAWLS_SHOWN = 12
_DOMAINS_SHOWN = 8
_WORKERS_SHOWN = 8


@dataclass(slots=True)
class ClusterSnapshot:
    """The cluster at one moment. Its fields are the JSON of `--json`."""

    answers: int = 0
    """Responses that the workers have ever received."""
    rate: float = 0.0
    """Responses per second, over the last _RATE_SECONDS; 0 in the first snapshot."""
    crawls: list[CrawlInfo] = field(default_factory=list)
    """Running crawls first, then those that ended last."""
    more_crawls: bool = False
    """True: there are more crawls than were read."""
    backlog: list[Backlog] = field(default_factory=list)
    """Queued requests by spider."""
    domains: list[tuple[str, int]] = field(default_factory=list)
    """Domains with their queued requests, most first."""
    workers: list[WorkerInfo] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    """Messages in each topic."""
    troubles: dict[str, dict[str, str]] = field(default_factory=dict)
    """Troubles of the cluster's processes: messages by process and name."""
    trouble: str = ""
    """The reason why the snapshot could not be renewed. Empty: it was."""


@options.takes("bus", "prefix", "frontier", "data_dir")
def monitor(
    target: Annotated[
        list[str] | None,
        argument(
            metavar="[TARGET]...",
            help="Servers with Scrapyd's interface whose jobs are shown: targets of scrapy.cfg, or addresses. Unset: "
            "the crawl service.",
            show_default=False,
        ),
    ] = None,
    project: targets.Project = None,
    *,
    once: Annotated[bool, option("--once", help="Show one picture and end.")] = False,
    json: Annotated[bool, option("--json", help="Print it once, as JSON.")] = False,
    **given: Any,
) -> None:
    """Show a running service, or jobs on servers, until Ctrl-C. With targets, it shows the jobs of a Scrapy project.

    gossamer monitor

    gossamer monitor production http://localhost:6800

    With targets it works with any Scrapyd, and shows the jobs of the project of this folder, or of --project.
    """
    settings = options.load_settings(given)
    if target:
        _monitor_targets(target, project, once=once, as_json=json)
        return
    console = Console(highlight=False)
    with contextlib.suppress(Interrupted):
        ask(settings, lambda cluster: _watch(cluster, console, once=once or json, as_json=json))


def _monitor_targets(names: list[str], project: str | None, *, once: bool, as_json: bool) -> None:
    """Show a project's jobs on servers."""
    here = targets.here()
    chosen = [choose_target(name, here) for name in names]
    wanted = [(each, targets.project_name(project, each, here)) for each in chosen]
    if once or as_json:
        states = poll(wanted)
        if as_json:
            terminal.print_json([state._asdict() for state in states])
        else:
            terminal.print_result("\n".join(picture(states)))
        return
    terminal.exit_below_picture()
    console = Console(highlight=False)
    if not console.is_terminal:
        watch(wanted, lambda states: _print_or_end("\n".join(picture(states)) + "\n"))
        return
    with Live(console=console, auto_refresh=False) as live:
        watch(wanted, lambda states: live.update(Text("\n".join(picture(states))), refresh=True))


def _print_or_end(text: str) -> None:
    """Print a picture, or end the command if the reader of standard output is gone."""
    if not terminal.print_result(text):
        raise SystemExit(0)


async def _watch(cluster: ServiceContext, console: Console, *, once: bool, as_json: bool) -> None:
    """Show the cluster: once; or on a terminal a picture that is renewed; or else one picture after the other."""
    poller = _ClusterPoller(cluster)
    if once or not console.is_terminal:
        while True:
            snapshot = await poller.poll()
            if as_json:
                terminal.print_json(snapshot)
            else:
                once |= not tables.show(_picture(snapshot))
            if once:
                return
            await asyncio.sleep(_PLAIN_SECONDS)
    with Live(console=console, auto_refresh=False, screen=False, transient=True) as live:
        while True:
            live.update(_picture(await poller.poll()), refresh=True)
            await asyncio.sleep(_LIVE_SECONDS)


class _ClusterPoller:
    """Reads the state of the cluster repeatedly. An outage is shown in the snapshot, not raised."""

    def __init__(self, cluster: ServiceContext) -> None:
        self._cluster = cluster
        self._samples: deque[tuple[float, int]] = deque()
        """(monotonic seconds, responses ever) at each of the latest polls, oldest first."""
        self._snapshot = ClusterSnapshot()

    async def poll(self) -> ClusterSnapshot:
        """Return the state now; in an outage the last one, with the trouble."""
        try:
            self._snapshot = await self._read()
        except (FrontierError, BusError) as error:
            self._snapshot.trouble = str(error)
        return self._snapshot

    async def _read(self) -> ClusterSnapshot:
        """Read everything that a snapshot has. Raises errors of the frontier and of the bus."""
        frontier = self._cluster.frontier
        counts = await self._cluster.counters.read(CRAWLER)
        snapshot = ClusterSnapshot(answers=sum(windows.get("lifetime", 0) for windows in counts.values()))
        snapshot.rate = self._rate(snapshot.answers)
        crawls, snapshot.more_crawls = await list_running_first(frontier, limit=_CRAWLS_READ)
        snapshot.crawls = sorted(crawls, key=_running_first)
        snapshot.backlog = await frontier.backlog()
        for backlog in snapshot.backlog:
            domains, _ = await frontier.backlog_domains(backlog.spider, limit=_DOMAINS_READ)
            snapshot.domains += domains
        snapshot.domains.sort(key=lambda pair: (-pair[1], pair[0]))
        snapshot.workers = sorted(await frontier.workers(), key=lambda worker: worker.name)
        snapshot.topics = {topic.name: topic.messages for topic in await self._cluster.bus.topics()}
        snapshot.troubles = await self._cluster.counters.troubles()
        return snapshot

    def _rate(self, answers: int) -> float:
        """Return the responses per second of the last _RATE_SECONDS. `answers`: the responses ever, as of now."""
        now = time.monotonic()
        self._samples.append((now, answers))
        while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_SECONDS:
            self._samples.popleft()
        then, before = self._samples[0]
        seconds = now - then
        return (answers - before) / seconds if seconds else 0.0


def _running_first(info: CrawlInfo) -> tuple[bool, float]:
    """Return the sort key for running crawls first, then those that ended last."""
    return info.state is not CrawlState.RUNNING, -(info.ended or info.started)


def _picture(snapshot: ClusterSnapshot) -> Group:
    """Return the snapshot for a terminal: a line of totals, then tables."""
    queued = sum(backlog.queued for backlog in snapshot.backlog)
    leased = sum(worker.leased for worker in snapshot.workers)
    head = (
        f"{snapshot.rate:,.1f} pages/s   {snapshot.answers:,} in all   {queued:,} waiting on "
        f"{counted(sum(backlog.domains for backlog in snapshot.backlog), 'domain')}   {leased:,} in flight   "
        f"{counted(len(snapshot.workers), 'worker')}"
    )
    parts: list[Text | tables.PlainTable] = [Text(head, style="bold")]
    if snapshot.trouble:
        parts.append(Text(snapshot.trouble, style="red"))
    for process, messages in sorted(snapshot.troubles.items()):
        parts += [Text(f"{process}: {message}", style="yellow") for _, message in sorted(messages.items())]
    if not snapshot.workers:
        parts.append(Text("No worker is running. To start one: gossamer worker", style="yellow"))
    if snapshot.crawls:
        parts.append(_crawls(snapshot))
    if snapshot.domains:
        parts.append(_domains(snapshot.domains))
    if snapshot.workers:
        parts.append(_workers(snapshot.workers))
    return Group(*parts)


def _table(*headings: str) -> tables.PlainTable:
    """Return an empty table whose first column is wrapped where the terminal is narrow; the others are never cut."""
    table = tables.PlainTable(padding=(0, 1))
    first, *others = headings
    table.add_column(first, overflow="fold")
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _crawls(snapshot: ClusterSnapshot) -> tables.PlainTable:
    """Return the table of crawls, and how many there are besides."""
    table = _table("crawl", "state", "fetched", "failed", "waiting", "in flight", "running / ended")
    now = time.time()
    for info in snapshot.crawls[:_CRAWLS_SHOWN]:
        total = info.total()
        table.add_row(
            str(info.crawl),
            info.state.value,
            f"{total.fetched:,}",
            f"{sum(total.failed.values()):,}",
            f"{total.waiting:,}",
            f"{total.leased:,}",
            _age(info, now),
        )
    left = len(snapshot.crawls) - _CRAWLS_SHOWN
    if left > 0 or snapshot.more_crawls:
        table.add_row(f"and {max(left, 0):,}{' or more' if snapshot.more_crawls else ''} others", *[""] * 6)
    return table


def _age(info: CrawlInfo, now: float) -> str:
    """Return how long a crawl has been running, or how long ago it ended. `now`: epoch seconds."""
    if info.ended is None:
        return f"for {duration_text(max(0.0, now - info.started))}"
    return f"{duration_text(max(0.0, now - info.ended))} ago"


def _domains(domains: list[tuple[str, int]]) -> tables.PlainTable:
    table = _table("domain", "waiting")
    for domain, count in domains[:_DOMAINS_SHOWN]:
        table.add_row(domain, f"{count:,}")
    if len(domains) > _DOMAINS_SHOWN:
        table.add_row(f"and {len(domains) - _DOMAINS_SHOWN:,} others", "")
    return table


def _workers(workers: list[WorkerInfo]) -> tables.PlainTable:
    table = _table("worker", "in flight", "last heartbeat")
    for worker in workers[:_WORKERS_SHOWN]:
        table.add_row(worker.name, f"{worker.leased:,}", f"{worker.silent_seconds:.1f} s ago")
    if len(workers) > _WORKERS_SHOWN:
        table.add_row(f"and {len(workers) - _WORKERS_SHOWN:,} others", "", "")
    return table
