"""`gossamer monitor`: the running cluster at a glance, renewed every second."""

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gossamer.cli import options
from gossamer.cli.asking import ask
from gossamer.cli.summary import span
from gossamer.control.stats import CRAWLER
from gossamer.errors import BusError, FrontierError, Interrupted
from gossamer.model.crawl import CrawlState
from gossamer.model.info import Backlog, CrawlInfo, WorkerInfo
from gossamer.settings import load
from gossamer.wiring.service import ServiceContext

_SECONDS = 1.0
_CRAWLS_LOOKED_AT = 200
_CRAWLS_SHOWN = 12
_DOMAINS_SHOWN = 8
_WORKERS_SHOWN = 8
_RATE_SECONDS = 10.0


@dataclass(slots=True)
class ClusterSnapshot:
    """The cluster at one moment."""

    answers: int = 0
    """By the workers, ever."""
    rate: float = 0.0
    """Answers a second, over the last ten."""
    crawls: list[CrawlInfo] = field(default_factory=list)
    """The running ones first, then those that ended last."""
    more_crawls: bool = False
    backlog: list[Backlog] = field(default_factory=list)
    domains: list[tuple[str, int]] = field(default_factory=list)
    workers: list[WorkerInfo] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    trouble: str = ""


def monitor(
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    bus: options.BusOption = None,
    prefix: options.TopicPrefix = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: Annotated[bool, typer.Option("--json", help="Once, as one JSON object.")] = False,
) -> None:
    """Watch crawls, domains, workers and rates of a running cluster, until Ctrl-C.

    gossamer monitor
    """
    settings = load({"bus": bus, "topics.prefix": prefix, "frontier": frontier, "data_dir": data_dir}, config=config)
    console = Console(highlight=False)
    with contextlib.suppress(Interrupted):
        ask(settings, lambda cluster: _watch(cluster, console, once=once or json, as_json=json))


async def _watch(cluster: ServiceContext, console: Console, *, once: bool, as_json: bool) -> None:
    look = _ClusterPoller(cluster)
    if once or not console.is_terminal:
        while True:
            seen = await look.again()
            print(msgspec.json.encode(seen).decode()) if as_json else console.print(_shown(seen))
            if once:
                return
            await asyncio.sleep(10 * _SECONDS)
    with Live(console=console, auto_refresh=False, screen=False, transient=True) as live:
        while True:
            live.update(_shown(await look.again()), refresh=True)
            await asyncio.sleep(_SECONDS)


class _ClusterPoller:
    """Asks the cluster again and again; an outage is shown, not raised."""

    def __init__(self, cluster: ServiceContext) -> None:
        self._cluster = cluster
        self._samples: deque[tuple[float, int]] = deque()
        self._seen = ClusterSnapshot()

    async def again(self) -> ClusterSnapshot:
        try:
            self._seen = await self._ask()
        except (FrontierError, BusError) as error:
            self._seen.trouble = str(error)
        return self._seen

    async def _ask(self) -> ClusterSnapshot:
        frontier = self._cluster.frontier
        counts = await self._cluster.counters.read(CRAWLER)
        seen = ClusterSnapshot(answers=sum(windows.get("lifetime", 0) for windows in counts.values()))
        seen.rate = self._rate(seen.answers)
        found, cursor = await frontier.list_crawls(limit=_CRAWLS_LOOKED_AT)
        seen.more_crawls = bool(cursor)
        seen.crawls = sorted(found, key=_liveliness)
        seen.backlog = await frontier.backlog()
        for backlog in seen.backlog:
            domains, _ = await frontier.backlog_domains(backlog.spider, limit=1000)
            seen.domains += domains
        seen.domains.sort(key=lambda pair: (-pair[1], pair[0]))
        seen.workers = sorted(await frontier.workers(), key=lambda worker: worker.name)
        seen.topics = {topic.name: topic.messages for topic in await self._cluster.bus.topics()}
        return seen

    def _rate(self, answers: int) -> float:
        now = time.monotonic()
        self._samples.append((now, answers))
        while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_SECONDS:
            self._samples.popleft()
        then, before = self._samples[0]
        seconds = now - then
        return (answers - before) / seconds if seconds else 0.0


def _liveliness(info: CrawlInfo) -> tuple[bool, float]:
    return info.state is not CrawlState.RUNNING, -(info.ended or info.started)


def _shown(seen: ClusterSnapshot) -> Group:
    queued = sum(backlog.queued for backlog in seen.backlog)
    leased = sum(worker.leased for worker in seen.workers)
    head = (
        f"{seen.rate:,.1f} pages/s   {seen.answers:,} ever   {queued:,} waiting on "
        f"{sum(backlog.domains for backlog in seen.backlog):,} domains   {leased:,} in flight   "
        f"{len(seen.workers)} worker{'' if len(seen.workers) == 1 else 's'}"
    )
    parts: list[Text | Table] = [Text(head, style="bold")]
    if seen.trouble:
        parts.append(Text(seen.trouble, style="red"))
    if not seen.workers:
        parts.append(Text("No worker is there: gossamer worker starts one.", style="yellow"))
    if seen.crawls:
        parts.append(_crawls(seen))
    if seen.domains:
        parts.append(_domains(seen.domains))
    if seen.workers:
        parts.append(_workers(seen.workers))
    return Group(*parts)


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim", pad_edge=False)
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="left" if at == 0 else "right", no_wrap=True)
    return table


def _crawls(seen: ClusterSnapshot) -> Table:
    table = _table("crawl", "state", "fetched", "failed", "waiting", "now", "since")
    now = time.time()
    for info in seen.crawls[:_CRAWLS_SHOWN]:
        total = info.total()
        table.add_row(
            str(info.crawl),
            info.state.value,
            f"{total.fetched:,}",
            f"{sum(total.failed.values()):,}",
            f"{total.queued + total.later:,}",
            f"{total.leased:,}",
            span(max(0.0, now - (info.ended or info.started))),
        )
    left = len(seen.crawls) - _CRAWLS_SHOWN
    if left > 0 or seen.more_crawls:
        table.add_row(f"and {left:,}{' or more' if seen.more_crawls else ''} others", *[""] * 6)
    return table


def _domains(domains: list[tuple[str, int]]) -> Table:
    table = _table("domain", "waiting")
    for domain, count in domains[:_DOMAINS_SHOWN]:
        table.add_row(domain, f"{count:,}")
    if len(domains) > _DOMAINS_SHOWN:
        table.add_row(f"and {len(domains) - _DOMAINS_SHOWN:,} others", "")
    return table


def _workers(workers: list[WorkerInfo]) -> Table:
    table = _table("worker", "in flight", "last sign of life")
    for worker in workers[:_WORKERS_SHOWN]:
        table.add_row(worker.name, f"{worker.leased:,}", f"{worker.silent_seconds:.1f} s ago")
    if len(workers) > _WORKERS_SHOWN:
        table.add_row(f"and {len(workers) - _WORKERS_SHOWN:,} others", "", "")
    return table
