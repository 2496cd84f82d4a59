"""A real cluster on this machine: Valkey servers with a shard each, worker processes, and a web that takes its time."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.cluster.costs import Costs
from bench.cluster.model import Scenario
from bench.errors import BenchFailed
from bench.measure import cpu_seconds
from bench.progress import say
from bench.store import disk_folder
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, Rate, Run, Terms
from tests.servers.crawls import open_crawl
from tests.servers.valkey import cluster

_SAMPLE_SECONDS = 0.5
_STOP_SECONDS = 60.0
_ENVIRONMENT = {"GOSSAMER_FETCH__ROBOTS": "ignore", "PYTHONDONTWRITEBYTECODE": "", "PYTHONUNBUFFERED": ""}
OPTIONS = {"appendfsync": "always"}
"""Options of the servers: each flushes its log before it replies."""
_SETTLED = "settled"
_URLS, _BATCHES = "urls", "batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A real crawl to observe."""

    workers: int
    shards: int
    concurrency: int
    webs: tuple[WebSpec, ...]
    """Served at once, each on a port of its own, with the same names of hosts: so a domain has pages of all of them."""
    rate: Rate
    warm_up_seconds: float
    seconds: float


class Observed(msgspec.Struct, kw_only=True):
    """Result of a real crawl, over a time in the middle of it."""

    pages_per_second: float
    page_worker_us: float
    """CPU microseconds of a page in the workers, calls included."""
    page_shard_us: float
    """CPU microseconds of a page in the shards."""
    busiest_shard_us: float
    lease_ms: list[float]
    """Duration of each lease call."""
    calls_a_page: dict[str, float]
    """By the name of the script."""
    urls_a_page: float
    """Links of a page that the workers sent to the frontier."""
    domains_a_page: float
    """Batches of links of one domain."""
    new_share: float
    """Share of these links that were new."""
    pages: int
    web_shares: list[float]
    """Share of the requests that each of the webs got."""


# --- the worker process -----------------------------------------------------------------------------------------------


def work(arguments: Sequence[str], figures: Path) -> int:
    """Run a command of Gossamer, and append its counters to a file twice a second. Returns its exit code."""
    from gossamer.__main__ import run

    counts: Counter[str] = Counter()
    leases: list[float] = []
    _count_calls(counts, leases)

    def sample() -> None:
        with figures.open("w") as file:
            while True:
                some = leases[:]
                del leases[: len(some)]
                row = {"time": time.monotonic(), "cpu": time.process_time(), "counts": dict(counts), "leases": some}
                file.write(json.dumps(row) + "\n")
                file.flush()
                time.sleep(_SAMPLE_SECONDS)

    threading.Thread(target=sample, daemon=True).start()
    return run(arguments)


def _count_calls(counts: Counter[str], leases: list[float]) -> None:
    """Count the calls of this process to the frontier, what they carry, and how long lease calls take (seconds)."""
    from gossamer.frontier.valkey.additions import RequestAdder
    from gossamer.frontier.valkey.commands import ScriptCommands
    from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
    from gossamer.frontier.valkey.session import ShardSession
    from gossamer.model.request import Outcome

    call, lease = ScriptCommands.call, ShardSession.lease
    add, settle = RequestAdder.add, ValkeyLeaseholder.settle

    async def counted(self: Any, shard: int, script: str, *given: Any, **named: Any) -> Any:
        counts[script] += 1
        return await call(self, shard, script, *given, **named)

    async def timed_lease(self: Any, *given: Any) -> Any:
        began = time.perf_counter()
        reply = await lease(self, *given)
        leases.append(time.perf_counter() - began)
        return reply

    async def counted_add(self: Any, run: Any, terms: Any, batches: Any, **named: Any) -> Any:
        counts[_URLS] += sum(len(batch.urls) for batch in batches)
        counts[_BATCHES] += len(batches)
        result = await add(self, run, terms, batches, **named)
        counts["added"] += result.added
        return result

    async def counted_settle(self: Any, settlements: Any, **named: Any) -> None:
        await settle(self, settlements, **named)
        counts[_SETTLED] += sum(one.outcome is Outcome.FETCHED for one in settlements)

    ScriptCommands.call = counted  # type: ignore[method-assign]
    ShardSession.lease = timed_lease  # type: ignore[method-assign]
    ValkeyLeaseholder.settle = counted_settle  # type: ignore[method-assign]
    RequestAdder.add = counted_add  # type: ignore[method-assign]


# --- the cluster ------------------------------------------------------------------------------------------------------


def observe(setup: Setup) -> Observed:
    """Run a crawl, and return what it did after the warm-up. Raises BenchFailed if a worker ended or the web was too
    small."""
    say(f"{setup.workers} workers, {setup.shards} shards, {setup.webs[0].hosts} hosts")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(disk_folder())
        stack.enter_context(temporary_files_in(folder))
        webs = [stack.enter_context(FakeWeb.start(spec)) for spec in setup.webs]
        seeds = [url for web in webs for url in web.seeds()]
        servers = stack.enter_context(cluster(primaries=setup.shards, options=OPTIONS, one_shard_each=setup.shards > 1))
        asyncio.run(_open(servers.address, setup, seeds))
        with _workers(setup, servers.address, folder) as processes:
            time.sleep(setup.warm_up_seconds)
            requests = [web.stats().requests for web in webs]
            began = time.monotonic(), [cpu_seconds(node.pid) for node in servers.nodes]
            time.sleep(setup.seconds)
            ended = time.monotonic(), [cpu_seconds(node.pid) for node in servers.nodes]
            requests = [web.stats().requests - before for web, before in zip(webs, requests, strict=True)]
            if any(process.poll() is not None for process in processes):
                raise BenchFailed(f"a worker ended early: {(folder / 'log-0').read_text()[-500:]}")
        rows = [_rows(folder / f"figures-{number}") for number in range(setup.workers)]
    shard_seconds = [(after - before) / (ended[0] - began[0]) for before, after in zip(began[1], ended[1], strict=True)]
    seen = _observed(rows, began[0], ended[0], shard_seconds)
    seen.web_shares = [count / sum(requests) for count in requests]
    return seen


def scenario_of(setup: Setup, seen: Observed, costs: Costs) -> Scenario:
    """Return the scenario of a real cluster. The links that workers sent are taken from it, as a property of the
    web; times and loads are not."""
    outside = max(0.0, seen.domains_a_page - 1) / max(1e-9, seen.urls_a_page)
    return Scenario(
        workers=setup.workers,
        shards=setup.shards,
        concurrency=setup.concurrency,
        domains=setup.webs[0].hosts,
        gap_seconds=setup.rate.window_seconds / setup.rate.hits,
        latencies=tuple(web.latency_ms / 1000 for web in setup.webs),
        latency_shares=tuple(seen.web_shares),
        profile="check",
        links=seen.urls_a_page,
        own_share=1 - outside,
        new_share=seen.new_share,
        round_trip_seconds=1e-6 * costs.round_trip,
        fsync_seconds=None,
        warm_up_seconds=setup.warm_up_seconds,
        seconds=setup.seconds,
    )


@contextlib.contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """Let the servers keep their files on the disk, where a flush takes its time."""
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


async def _open(address: str, setup: Setup, seeds: Sequence[str]) -> Run:
    frontier = await ValkeyFrontier.connect(address, shards=setup.shards)
    try:
        crawl = Crawl(id=CrawlId("bench", "cluster"), rate=setup.rate)
        return await open_crawl(frontier, seeds, Terms(domain_max_pending=1_000_000), crawl=crawl)
    finally:
        await frontier.close()


@contextlib.contextmanager
def _workers(setup: Setup, address: str, folder: Path) -> Iterator[list["subprocess.Popen[bytes]"]]:
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(setup.workers):
            home = folder / f"worker-{number}"
            home.mkdir()
            command = [sys.executable, "-m", "bench.cluster", "work", str(folder / f"figures-{number}")]
            command += ["worker", f"--frontier={address}", f"--data-dir={home}", f"--output={home / 'pages.jsonl'}"]
            command += [f"--concurrency={setup.concurrency}", "--resolve=*:127.0.0.1", "--quiet"]
            with (folder / f"log-{number}").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **_ENVIRONMENT}
                    )
                )
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _observed(
    workers: Sequence[list[dict[str, Any]]], began: float, ended: float, shard_seconds: Sequence[float]
) -> Observed:
    """Return the result from the workers' samples and the CPU seconds of each shard for one second of the crawl."""
    counts: Counter[str] = Counter()
    leases: list[float] = []
    rate = cpu = 0.0
    for rows in workers:
        some = [row for row in rows if began <= row["time"] <= ended]
        first, last = some[0], some[-1]
        seconds = last["time"] - first["time"]
        counts.update(last["counts"])
        counts.subtract(first["counts"])
        rate += (last["counts"].get(_SETTLED, 0) - first["counts"].get(_SETTLED, 0)) / seconds
        cpu += (last["cpu"] - first["cpu"]) / seconds
        for row in some[1:]:
            leases += row["leases"]
    pages = counts[_SETTLED]
    if not pages:
        raise BenchFailed("no page was settled")
    carried = (_SETTLED, _URLS, _BATCHES, "added")
    return Observed(
        pages_per_second=rate,
        page_worker_us=1e6 * cpu / rate,
        page_shard_us=1e6 * sum(shard_seconds) / rate,
        busiest_shard_us=1e6 * max(shard_seconds) / rate,
        lease_ms=[1000 * seconds for seconds in leases],
        calls_a_page={name: count / pages for name, count in counts.items() if name not in carried},
        urls_a_page=counts[_URLS] / pages,
        domains_a_page=counts[_BATCHES] / pages,
        new_share=counts["added"] / max(1, counts[_URLS]),
        pages=pages,
        web_shares=[],
    )
