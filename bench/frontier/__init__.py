"""The second table: the frontier by itself, on one server with full durability.

Rates are per CPU second of the server, which is what many workers share; what the client uses is not counted.
"""

import asyncio
from collections.abc import Sequence

from bench.frontier.answers import measure_answers
from bench.frontier.lease import measure_leases
from bench.frontier.memory import measure_memory
from bench.frontier.small import measure_small_crawls
from bench.frontier.throughput import measure_throughput
from bench.frontier.wake import measure_wake
from bench.results import Figure


def measure_frontier(*, quick: bool) -> list[Figure]:
    """All figures; blocks for half a minute when quick, minutes else."""
    return asyncio.run(_measure(quick))


async def _measure(quick: bool) -> list[Figure]:
    figures: list[Figure] = []
    sizes: Sequence[tuple[int, int]] = [(1_000, 40_000)] if quick else [(1_000, 300_000), (100_000, 1_000_000)]
    for domains, urls in sizes:
        figures += await measure_throughput(domains=domains, urls=urls)
    figures += await measure_memory(urls=100_000 if quick else 1_000_000)
    figures += await measure_small_crawls(crawls=1_000 if quick else 20_000)
    figures += await measure_answers(domains=1_000 if quick else 10_000, urls=50_000 if quick else 1_000_000)
    figures += await measure_leases(few=1_000, many=20_000 if quick else 1_000_000, rounds=3 if quick else 15)
    figures += await measure_wake(rounds=50 if quick else 300)
    return figures
