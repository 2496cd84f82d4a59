"""Times every page: on the server, and in a real Chromium until it can be used."""

import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import httpx

from bench.dashboard.deployment import RUNNING, Deployment
from bench.dashboard.filling import LARGE
from gossamer.dashboard.crawl_section import ROUTES as CRAWL_ROUTES
from gossamer_platform.dashboard.section import ROUTES as PLATFORM_ROUTES
from tests.servers.browser import browser

_ROUNDS = 15
_LIMIT_MS, _USABLE_MS = 150.0, 1000.0
_LARGE: Mapping[str, str] = {"appid": LARGE.appid, "crawlid": LARGE.crawlid}
_JOB = {"id": "30"}
_QUERIES: Mapping[str, list[Mapping[str, str]]] = {
    "/crawls": [{}, {"state": "running"}, {"text": "crawl-77777"}, {"appid": "app7"}, {"domain": "site3.example"}],
    "/crawl": [RUNNING, _LARGE],
    "/crawl/pages": [RUNNING],
    "/crawl/why": [{**RUNNING, "url": "http://site0.test/p/1"}],
    "/domain": [{"domain": "policy0000007.test"}],
    "/jobs": [{}, {"state": "failed"}, {"project": "project-7"}],
    "/job": [_JOB],
    "/job/log": [_JOB],
    "/job/items": [_JOB],
    "/project": [{"project": "project-7"}],
    "/jobs/new": [{}, {"project": "project-7"}],
    "/schedule": [{"id": "7"}],
    "/schedule/edit": [{"id": "7"}],
    "/group": [{"id": "7"}],
}
"""Parameters of pages that need some, or that are tried with several."""
_FILES = ("/job/log.txt", "/job/export")
"""Routes that are files, not pages."""


def addresses() -> list[str]:
    """Return the addresses of all pages below the dashboard's."""
    routes = {**CRAWL_ROUTES, **PLATFORM_ROUTES}
    paths = ["/", *(path for path, route in routes.items() if route.method == "GET" and path not in _FILES)]
    found = [(path, query) for path in paths for query in _QUERIES.get(path, [RUNNING if "/crawl/" in path else {}])]
    return [path + (f"?{urlencode(query)}" if query else "") for path, query in found]


def measure(running: Deployment, folder: Path) -> bool:
    """Print the times; return whether all are within the limits."""
    with httpx.Client(base_url=f"{running.address}/ui", timeout=60) as client:
        times: dict[str, list[float]] = {address: [] for address in addresses()}
        cpu: dict[str, list[float]] = {address: [] for address in times}
        for _ in range(_ROUNDS + 1):
            for address, found in times.items():
                used, begun = running.cpu_ms(), time.perf_counter()
                answer = client.get(address)
                found.append((time.perf_counter() - begun) * 1000)
                cpu[address].append(running.cpu_ms() - used)
                if answer.status_code != 200:
                    print(f"{address} has status {answer.status_code}", flush=True)
    with browser(folder / "profile") as chromium:
        usable: dict[str, float] = {}
        for address in times:
            chromium.open(f"{running.address}/ui{address}")
            event = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
            chromium.wait(f"{event} > 0")
            usable[address] = float(chromium.evaluate(event))
    good = True
    print(f"{'page':60} {'CPU':>8} {'least':>8} {'median':>8} {'most':>8} {'usable':>8}   ms")
    for address, (_, *found) in times.items():  # the first one fills caches
        median = statistics.median(found)
        is_quick = median <= _LIMIT_MS and usable[address] <= _USABLE_MS
        good = good and is_quick
        note = "" if is_quick else "  TOO SLOW"
        figures = (statistics.median(cpu[address]), min(found), median, max(found), usable[address])
        print(f"{address[:60]:60}", *(f"{figure:8.1f}" for figure in figures), note)
    return good
