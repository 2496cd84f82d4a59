"""Measures the cost of a worker's pages on Kafka, compared with a file."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import measure
from bench.crawlers import CONCURRENCY
from bench.errors import BenchFailed
from bench.progress import say
from bench.results import Figure
from bench.service.buses import Place
from bench.statistics import quantile
from bench.store import disk_folder, embedded
from bench.webserver import Served, lonely_url, serve, site_of
from bench.websites import Website, durability_website
from gossamer.frontier.base import Submission
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, DomainPolicy, Terms
from gossamer.model.request import Batch
from gossamer.policy.urls import fingerprint, host, registered_domain, spider_seed

_FILE = "a file"
_SAME = "a file, the same records"
"""A file's records list the links with their texts only where a crawl asks for that."""
_SPIDER = "link"
_POLL_SECONDS = 0.1
_CRAWL_SECONDS = 300.0
_STOP_SECONDS = 60.0
_POLICY = DomainPolicy(hits=100_000, window_seconds=1.0, moderated=False, concurrency=CONCURRENCY)
_ENVIRONMENT = {"GOSSAMER_FETCH__ROBOTS": "ignore", "PYTHONDONTWRITEBYTECODE": "", "PYTHONUNBUFFERED": ""}


def measure_pages(places: Sequence[Place], *, quick: bool) -> Iterator[Figure]:
    """Crawls of one site in turns, into a file and onto each bus; those in the middle are compared."""
    website = durability_website(quick=quick)
    say(f"service: pages, {website.describe()}")
    into_file = ["--output=pages.jsonl"]
    ways = {_FILE: (into_file, False), _SAME: (into_file, True)}
    ways |= {place.name: ([f"--bus={place.bus}"], False) for place in places}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    with serve(website) as served:
        for turn in range(1 if quick else 5):
            for name, (flags, links) in ways.items():
                # Topics of their own for every crawl, as every crawl has a file of its own.
                own = flags if flags is into_file else [*flags, f"--prefix=turn{turn}"]
                rates[name].append(asyncio.run(_crawl(website, served, own, links=links)))
                say(f"  to {name}: {rates[name][-1]:,.0f} pages per CPU-second")
    middle = {name: quantile(found, 0.5) for name, found in rates.items()}
    for name, rate in middle.items():
        yield Figure(f"a worker's pages to {name}", rate, "pages/CPU-s", "")
    for place in places:
        for file in (_FILE, _SAME):
            share = middle[place.name] / middle[file]
            yield Figure(f"a worker's pages to {place.name}, of those to {file}", share, "of the rate", "0.8")


async def _crawl(website: Website, served: Served, flags: Sequence[str], *, links: bool) -> float:
    """Pages per CPU-second of a `gossamer worker`, from the moment that it works until all pages are durable.
    `links`: the crawl asks for the links' texts, which are always on the bus."""
    with disk_folder() as folder:
        async with embedded(folder, durable=True) as server:
            frontier = await ValkeyFrontier.connect(server.address)
            try:
                await frontier.set_domain_policy(None, _POLICY)
                with _worker(folder, server.address, flags) as pid:
                    # A crawl of one page before: then everything is imported, connected and made.
                    await _crawled(frontier, "first", [lonely_url(website, served)], pages=1, links=links)
                    used = measure.cpu_seconds(pid)
                    await _crawled(frontier, "site", site_of(website, served).seeds(), pages=website.pages, links=links)
                    used = measure.cpu_seconds(pid) - used
            finally:
                await frontier.close()
    return website.pages / used


@contextlib.contextmanager
def _worker(folder: Path, address: str, flags: Sequence[str]) -> Iterator[int]:
    """Run a worker, and yield its process id. It is stopped in good order however the block ends."""
    own = folder / "worker"
    own.mkdir()
    command = [
        *(sys.executable, "-m", "gossamer", "worker", f"--frontier={address}", f"--concurrency={CONCURRENCY}"),
        *("--resolve=*:127.0.0.1", "--allow-network=127.0.0.0/8", "--data-dir=data", "--quiet", *flags),
    ]
    with (own / "said").open("wb") as said:
        process = subprocess.Popen(
            command,
            cwd=own,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, **_ENVIRONMENT},
            start_new_session=True,
        )
    try:
        yield process.pid
        if process.poll() is not None:
            raise BenchFailed(f"the worker ended: {(own / 'said').read_text(errors='replace')[-500:]}")
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def _crawled(frontier: ValkeyFrontier, name: str, seeds: Sequence[str], *, pages: int, links: bool) -> None:
    """Submit a crawl and wait for its end. Raises BenchFailed where it did not fetch exactly these pages."""
    crawl = Crawl(id=CrawlId("bench", name))
    domains = {registered_domain(host(url)) for url in seeds}
    terms = Terms(allowed_domains=tuple(sorted(domains)), links=links)
    seed = spider_seed(frontier.secret, _SPIDER)
    batches = [
        Batch(_SPIDER, registered_domain(host(url)), 0, 0, [url], [fingerprint(url, seed=seed)]) for url in seeds
    ]
    await frontier.submit([Submission(crawl, terms, batches, None)])
    last = time.monotonic() + _CRAWL_SECONDS
    while time.monotonic() < last:
        info = await frontier.crawl_info(crawl.id)
        if info is not None and info.ended is not None:
            if info.total().fetched != pages:
                raise BenchFailed(f"{info.total().fetched:,} pages of {pages:,}: {info}")
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise BenchFailed(f"the crawl {name} did not end within {_CRAWL_SECONDS:g} s")
