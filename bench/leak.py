"""Does the HTTP client leak? `python -m bench.leak --requests 500000`

Sends requests in rounds to a server in another process: kept connections, new ones, TLS, every kind of failure, and
cancellations. Between rounds nothing is under way, so memory, files, tasks and objects can be compared. The first
rounds warm up; growth after them is a leak, and the exit code is 1.
"""

import argparse
import asyncio
import gc
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop

from bench.certificates import write_certificates
from gossamer.errors import FetchError
from gossamer.fetch.client import HttpClient, PoolLimits
from gossamer.fetch.exchange import FetchRequest, Timeouts
from gossamer.net.resolve import DnsLimits, Resolver

HOST = "leak.test"
ROUNDS = 10
WARM_UP = 3
CONCURRENCY = 64
CONNECTIONS = 48
MAX_GROWTH_BYTES = 4 * 1024 * 1024
MAX_GROWTH_OBJECTS = 500
WEIGHTS = {
    "page": 800,
    "gzip": 60,
    "chunked": 40,
    "close": 20,
    "old": 10,
    "sloppy": 5,
    "cut": 10,
    "hang-up": 10,
    "banner": 5,
    "broken": 5,
    "unasked": 5,
    "silent": 1,
    "other-host": 20,
    "tls": 4,
    "tls-new": 4,
    "closed-port": 1,
}
"""Kinds of requests, and their number in a thousand. `silent` is cancelled or times out; `closed-port` is refused."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources that the process holds between two rounds."""

    requests: int
    resident_bytes: int
    files: int
    tasks: int
    connections: int
    objects: int
    seconds: float


def main(words: Sequence[str] | None = None) -> int:
    """0: nothing grew. 1: something did."""
    parser = argparse.ArgumentParser(prog="python -m bench.leak", description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="bench-leak-") as folder:
        write_certificates(Path(folder), [HOST])
        with subprocess.Popen(
            [sys.executable, "-m", "bench.leak_server", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as server:
            assert server.stdout is not None
            plain, secure = map(int, server.stdout.readline().split())
            urls = _urls(plain, secure)
            ca = f"{folder}/{HOST}.crt"
            samples, outcomes, left = uvloop.run(_soak(urls, ca, arguments.requests, arguments.seed))
            server.terminate()
    used = time.process_time()
    print(f"{'outcome':<22}{'times':>10}")
    for outcome, times in outcomes.most_common():
        print(f"{outcome:<22}{times:>10,}")
    print(f"{arguments.requests / used:,.0f} requests per CPU-second, everything included")
    faults = _grown(samples) + left
    print("\n".join(faults) if faults else "nothing grew")
    return int(bool(faults))


def _urls(plain: int, secure: int) -> dict[str, str]:
    urls = {name: f"http://{HOST}:{plain}/{name}" for name in WEIGHTS}
    return urls | {
        "tls": f"https://{HOST}:{secure}/page",
        "tls-new": f"https://{HOST}:{secure}/close",
        "closed-port": f"http://{HOST}:1/",
    }


async def _soak(
    urls: dict[str, str], ca: str, requests: int, seed: int
) -> tuple[list[Sample], Counter[str], list[str]]:
    resolver = Resolver(overrides={"*": "127.0.0.1"}, limits=DnsLimits(max_entries=1000))
    client = HttpClient(
        resolver,
        timeouts=Timeouts(connect=10, first_byte=0.5, idle=5, total=10),
        connections=PoolLimits(total=CONNECTIONS, per_address=CONNECTIONS),
        extra_ca=ca,
    )
    chance = random.Random(seed)
    outcomes: Counter[str] = Counter()
    samples: list[Sample] = []
    print(f"{'requests':>10}{'resident MB':>13}{'files':>7}{'tasks':>7}{'connections':>13}{'objects':>10}{'CPU s':>8}")
    for number in range(ROUNDS):
        names = iter(chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=requests // ROUNDS))
        await asyncio.gather(*(_work(client, urls, names, outcomes, chance) for _ in range(CONCURRENCY)))
        samples.append(_sample(client, requests // ROUNDS * (number + 1)))
    await client.close()
    resolver.close()
    left = []
    if client.open_connections or client.bodies_in_flight_bytes:
        left.append(f"after closing: {client.open_connections} connections, {client.bodies_in_flight_bytes} bytes")
    return samples, outcomes, left


async def _work(
    client: HttpClient, urls: dict[str, str], names: Iterator[str], outcomes: Counter[str], chance: random.Random
) -> None:
    for name in names:
        url = urls[name]
        if name == "other-host":
            url = url.replace(HOST, f"h{chance.randrange(100)}.test").replace("other-host", "page")
        try:
            if name == "silent" and chance.random() < 0.9:
                # Given up while it waits: what a worker does when it is told to stop.
                await asyncio.wait_for(client.fetch(FetchRequest(url)), 0.02)
            else:
                fetched = await client.fetch(FetchRequest(url, insecure=chance.random() < 0.01))
                outcomes[f"{fetched.status}{' kept' if fetched.reused else ' new'}"] += 1
        except TimeoutError:
            outcomes["cancelled"] += 1
        except FetchError as error:
            outcomes[error.kind] += 1


def _sample(client: HttpClient, requests: int) -> Sample:
    gc.collect()
    process = psutil.Process()
    sample = Sample(
        requests,
        process.memory_info().rss,
        process.num_fds(),
        len(asyncio.all_tasks()),
        client.open_connections,
        len(gc.get_objects()),
        time.process_time(),
    )
    memory = f"{sample.resident_bytes / 1e6:>13.1f}"
    things = f"{sample.files:>7}{sample.tasks:>7}{sample.connections:>13}{sample.objects:>10,}"
    print(f"{requests:>10,}{memory}{things}{sample.seconds:>8.1f}", flush=True)
    return sample


def _grown(samples: list[Sample]) -> list[str]:
    warm, last = samples[WARM_UP - 1], samples[-1]
    faults = []
    if last.resident_bytes - warm.resident_bytes > MAX_GROWTH_BYTES:
        faults.append(f"memory grew by {(last.resident_bytes - warm.resident_bytes) / 1e6:.1f} MB")
    if last.objects - warm.objects > MAX_GROWTH_OBJECTS:
        faults.append(f"there are {last.objects - warm.objects} more objects")
    for sample in samples[WARM_UP:]:
        # Each connection is a file; which of them are open between rounds varies, within the bound.
        if sample.files - sample.connections > warm.files - warm.connections + 2:
            faults.append(f"{sample.files} files for {sample.connections} connections after {sample.requests}")
        if sample.connections > CONNECTIONS or sample.tasks != warm.tasks:
            faults.append(f"{sample.connections} connections and {sample.tasks} tasks after {sample.requests}")
    return faults


if __name__ == "__main__":
    sys.exit(main())
