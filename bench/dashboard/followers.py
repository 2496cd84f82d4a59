"""Browsers that follow pages, as programs: what they cost, and how quick the API is meanwhile."""

import asyncio
import itertools
import multiprocessing
import statistics
import time
from typing import Any
from urllib.parse import urlencode

import httpx

from bench.dashboard.deployment import RUNNING, Deployment
from bench.statistics import quantile

BROWSERS, TABS = 50, 4
CONNECTIONS = 4
"""Connections that one browser opens at most."""
_PAUSE_SECONDS = 2.0
"""That of `live.js`."""
_PROBE_SECONDS = 0.05
_API_P99_MS, _CORE = 50.0, 0.1
_PAGES = ("/", "/crawls", f"/crawl?{urlencode(RUNNING)}", "/workers")
"""Pages that follow, one in each tab."""


def measure(running: Deployment, *, seconds: float) -> bool:
    """Print the figures; return whether they are good."""
    return asyncio.run(_measure(running, seconds))


async def _measure(running: Deployment, seconds: float) -> bool:
    async with httpx.AsyncClient(base_url=running.address, timeout=60) as client:
        alone, quiet = await _probe(running, client, seconds)
        # In a process of their own: here, they would delay the calls that are timed.
        context = multiprocessing.get_context("spawn")
        stopping, parts = context.Event(), context.Value("i", 0)
        browsers = context.Process(target=_browse_all, args=(running.address, stopping, parts))
        browsers.start()
        await asyncio.to_thread(_wait_for, parts)
        followed, busy = await _probe(running, client, seconds)
        stopping.set()
        await asyncio.to_thread(browsers.join)
    core = busy - quiet
    print(f"{BROWSERS} browsers with {TABS} tabs each, {CONNECTIONS} connections a browser, {parts.value:,} parts")
    print(f"  they cost {core:.1%} of a core ({quiet:.1%} without them)")
    for name, times in (("alone", alone), ("followed", followed)):
        print(
            f"  API {name}: median {statistics.median(times):.1f} ms, p99 {quantile(times, 0.99):.1f}, n {len(times)}"
        )
    return quantile(followed, 0.99) <= _API_P99_MS and core <= _CORE


async def _probe(running: Deployment, client: httpx.AsyncClient, seconds: float) -> tuple[list[float], float]:
    """Return the times of calls of the API in ms, and the share of a core that the service needed meanwhile."""
    process = running.process
    used, begun = sum(process.cpu_times()[:2]), time.monotonic()
    times: list[float] = []
    paths = itertools.cycle(("/v1/crawls/bench/running", "/v1/crawls?state=running&limit=20", "/v1/workers"))
    while time.monotonic() - begun < seconds:
        asked = time.perf_counter()
        (await client.get(next(paths))).raise_for_status()
        times.append((time.perf_counter() - asked) * 1000)
        await asyncio.sleep(_PROBE_SECONDS)
    return times, (sum(process.cpu_times()[:2]) - used) / (time.monotonic() - begun)


def _wait_for(parts: Any) -> None:
    """Wait until every tab has had a part."""
    while parts.value < BROWSERS * TABS:
        time.sleep(0.1)


def _browse_all(address: str, stopping: Any, parts: Any) -> None:
    """Let all browsers follow their pages until the end, and count parts."""

    async def run() -> None:
        await asyncio.gather(*(_browse(address, number, stopping, parts) for number in range(BROWSERS)))

    asyncio.run(run())


async def _browse(address: str, number: int, stopping: Any, parts: Any) -> None:
    """Follow a page in each tab until the end."""
    # Each has an address of its own, because the service limits the connections of one.
    limits, own = httpx.Limits(max_connections=CONNECTIONS), f"127.0.1.{number + 1}"
    transport = httpx.AsyncHTTPTransport(limits=limits, local_address=own)
    async with httpx.AsyncClient(base_url=f"{address}/ui", timeout=60, transport=transport) as client:

        async def follow(path: str, delay: float) -> None:
            await asyncio.sleep(delay)
            while not stopping.is_set():
                (await client.get(f"{path}{'&' if '?' in path else '?'}part=live")).raise_for_status()
                parts.value += 1
                await asyncio.sleep(_PAUSE_SECONDS)

        delays = [(number * TABS + tab) / (BROWSERS * TABS) * _PAUSE_SECONDS for tab in range(TABS)]
        await asyncio.gather(*(follow(path, delay) for path, delay in zip(_PAGES, delays, strict=True)))
