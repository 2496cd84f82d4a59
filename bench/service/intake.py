"""Measures the crawl requests a second that one intake takes from the bus into the frontier."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from bench import measure
from bench.progress import say
from bench.results import Figure
from bench.service.buses import Place
from bench.store import disk_folder, embedded
from gossamer.settings import load
from gossamer.telemetry.metrics import REQUESTS
from gossamer.wiring.service import ServiceContext, open_roles, open_service

_DOMAINS = 5_000
_PUBLISHED_AT_ONCE = 2_000

Make = Callable[[int], Mapping[str, Any]]

_KINDS: Mapping[str, Make] = {
    "of one crawl, the same terms": lambda number: {"crawlid": "one", "attrs": {"of": "all"}},
    "of one crawl, each with its own attrs": lambda number: {"crawlid": "one", "attrs": {"of": number}},
    "each a crawl of its own": lambda number: {"crawlid": f"c{number}"},
}


async def measure_intake(place: Place, *, requests: int) -> list[Figure]:
    """Requests are on the bus before the clock runs; the first batch opens connections and does not count."""
    return [await _measure(place, name, make, requests) for name, make in _KINDS.items()]


async def _measure(place: Place, name: str, make: Make, requests: int) -> Figure:
    with disk_folder() as folder:
        async with embedded(folder, durable=True) as server:
            prefix = name.rpartition(" ")[2]
            settings = load({"data_dir": folder, "bus": place.bus, "topics.prefix": prefix})
            async with open_service(settings, server.address) as cluster:
                await _publish(cluster, make, requests)
                [intake, *_] = await open_roles(settings, cluster)
                try:
                    while not (before := _accepted(cluster)):
                        await intake.run_once()
                    began, used = time.perf_counter(), time.process_time()
                    served = measure.cpu_seconds(server.pid)
                    while (now := _accepted(cluster)) < requests:
                        await intake.run_once()
                    wall, used = time.perf_counter() - began, time.process_time() - used
                    served = measure.cpu_seconds(server.pid) - served
                finally:
                    await intake.close()
    taken = now - before
    cores = f"{taken / used:,.0f} per CPU-second of the intake, {taken / served:,.0f} of its Valkey"
    say(f"service: intake, {place.name}, {name}: {taken / wall:,.0f}/s, {cores}")
    wanted = "10,000" if place.servers else ""
    return Figure(f"requests accepted from {place.name}, {name}", taken / wall, "1/s", wanted, cores)


async def _publish(cluster: ServiceContext, make: Make, requests: int) -> None:
    for first in range(0, requests, _PUBLISHED_AT_ONCE):
        numbers = range(first, min(first + _PUBLISHED_AT_ONCE, requests))
        await cluster.bus.publish(
            cluster.topics.incoming,
            [
                msgspec.json.encode(
                    {
                        "appid": "bench",
                        "url": f"https://site{number % _DOMAINS}.example/articles/{number:010}",
                        "maxdepth": 1,
                        **make(number),
                    }
                )
                for number in numbers
            ],
        )


def _accepted(cluster: ServiceContext) -> int:
    rows = cluster.metrics.render().decode().splitlines()
    return round(sum(float(row.rpartition(" ")[2]) for row in rows if row.startswith(REQUESTS.name + "{")))
