"""Measures how long REST takes to report the state of a large crawl, and how many requests a second it accepts."""

import time
from collections.abc import Awaitable, Callable

import httpx
import msgspec

from bench import measure
from bench.frontier.load import Load, calls
from bench.progress import say
from bench.results import Figure
from bench.statistics import quantile
from bench.store import disk_folder, embedded
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, Terms
from tests.servers.service import Up, up

_ASKED = 300
_SUBMITTED = 20_000
_TOGETHER = 1_000
_PRIORITIES = 4


async def measure_info(*, queued: int, domains: int) -> list[Figure]:
    """Measure `gossamer serve` on streams, over one connection."""
    say(f"service: information about a crawl with {queued:,} queued on {domains:,} domains")
    with disk_folder() as folder:
        async with embedded(folder, durable=True) as server:
            frontier = await ValkeyFrontier.connect(server.address)
            try:
                await _fill(frontier, queued, domains)
                with up(folder, f"--frontier={server.address}", command="serve") as service:
                    async with httpx.AsyncClient(base_url=service.api, timeout=60) as http:
                        where = f"{queued:,} queued on {domains:,} domains"
                        return [*await _answers(http, where), await _submitting(http, service)]
            finally:
                await frontier.close()


async def _fill(frontier: ValkeyFrontier, queued: int, domains: int) -> None:
    run = await frontier.open_crawl(Crawl(id=CrawlId("bench", "large")))
    load = Load(frontier.secret)
    each = queued // domains // _PRIORITIES
    batches = (
        load.batch(domain, range(level * each, (level + 1) * each), priority=-10 * level)
        for level in range(_PRIORITIES)
        for domain in range(domains)
    )
    for call in calls(batches):
        await frontier.add(run, Terms(), call)


async def _answers(http: httpx.AsyncClient, where: str) -> list[Figure]:
    path = "/v1/crawls/bench/large"
    questions: dict[str, tuple[str, Callable[[], Awaitable[httpx.Response]]]] = {
        "nothing but an answer (healthz)": ("", lambda: http.get("/healthz")),
        f"info, {where}": ("10", lambda: http.get(path)),
        "the same with a page of 100 domains": ("", lambda: http.get(path, params={"domains": ""})),
        "all queues": ("", lambda: http.get("/v1/queues")),
    }
    figures = []
    for name, (wanted, ask) in questions.items():
        spent = []
        for _ in range(_ASKED):
            began = time.perf_counter()
            answer = await ask()
            spent.append(1000 * (time.perf_counter() - began))
            answer.raise_for_status()
        half, most = quantile(spent, 0.5), quantile(spent, 0.99)
        say(f"service: REST, {name}: median {half:.1f} ms, p99 {most:.1f} ms")
        figures += [
            Figure(f"REST, {name}: median", half, "ms", wanted),
            Figure(f"REST, {name}: p99", most, "ms", wanted),
        ]
    return figures


async def _submitting(http: httpx.AsyncClient, service: Up) -> Figure:
    rows = [
        msgspec.json.encode({"appid": "bench", "crawlid": f"c{n % 100}", "url": f"https://d{n % 1000}.example/{n}"})
        for n in range(_SUBMITTED)
    ]
    began, used = time.perf_counter(), measure.cpu_seconds(service.pid)
    for first in range(0, _SUBMITTED, _TOGETHER):
        lines = b"\n".join(rows[first : first + _TOGETHER])
        answer = await http.post("/v1/crawls", content=lines, headers={"Content-Type": "application/x-ndjson"})
        answer.raise_for_status()
        assert answer.json()["added"] == len(lines.splitlines())
    wall, used = time.perf_counter() - began, measure.cpu_seconds(service.pid) - used
    note = f"{_SUBMITTED / used:,.0f} per CPU-second of the service"
    return Figure(f"REST, requests taken in, {_TOGETHER:,} together", _SUBMITTED / wall, "1/s", "", note)
