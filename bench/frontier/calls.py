"""`python -m bench.frontier.calls`: what a call to the frontier costs its server, counted and not timed.

For calls of several kinds: commands that the script runs, bytes in the append-only file and, where valgrind is
installed, instructions of the server. Other work on the machine changes none of these numbers by more than some per
cent. Deletions of expired keys, which the server makes now and then, are included.
"""

import asyncio
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.frontier.load import SPIDER, Load, calls
from bench.frontier.stage import Clock
from bench.progress import say
from bench.store import disk_folder
from gossamer.errors import FrontierUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Crawl, CrawlId, Rate, Run, Terms
from gossamer.model.request import Batch, Lease, Outcome, Settlement
from gossamer.valkey.embedded import _OPTIONS, _environment, find_server
from gossamer.valkey.shards import Shards

_DOMAINS = 3000
_URLS = 20
"""URLs of each domain."""
_START_SECONDS = 60.0
_TERMS = Terms(domain_max_pending=1_000_000)
_BUDGETS = Terms(domain_max_pages=1_000_000, domain_max_pending=1_000_000)


@dataclass
class _Counted:
    """A server, and what it counts of itself."""

    process: asyncio.subprocess.Process
    shards: Shards
    folder: Path
    counts_instructions: bool
    number: int = 0

    async def of(self, what: str, calls: int, each: int, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work, which is so many calls of `each` URLs, and print what a call costs."""
        before, size = await self._commands()
        self._control("-i", "on")
        await work()
        self._control("-i", "off")
        after, new_size = await self._commands()
        commands = sum(after.values()) - sum(before.values()) - calls
        row = [f"{what:38}", f"{commands / calls:9,.1f}", f"{(new_size - size) / calls:10,.0f}"]
        if self.counts_instructions:
            instructions = await self._instructions()
            row += [f"{instructions / calls:13,.0f}", f"{instructions / calls / each:11,.0f}"]
        print(*row, flush=True)

    async def _commands(self) -> tuple[dict[str, int], int]:
        """Return how often each command was run, the scripts' own included, and the size of the file."""
        text = (await self.shards.command("{0}", "INFO", "all")).decode()
        facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        names = [name for name in facts if name.startswith("cmdstat_") and name != "cmdstat_info"]
        return {name: int(facts[name].split("=")[1].split(",")[0]) for name in names}, int(facts["aof_current_size"])

    def _control(self, *arguments: str) -> None:
        if self.counts_instructions:
            command = ["callgrind_control", *arguments, str(self.process.pid)]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    async def _instructions(self) -> int:
        """Return the instructions since the last call of this function."""
        self.number += 1
        self._control(f"--dump=counted-{self.number}")
        self._control("-z")
        await self.shards.command("{0}", "PING")
        dumps = sorted(self.folder.glob("callgrind.out*"), key=lambda path: path.stat().st_mtime)
        found = [path for path in dumps if f"counted-{self.number}\n" in path.read_text()]
        return sum(int(path.read_text().rsplit("totals:", 1)[1].split()[0]) for path in found)


@asynccontextmanager
async def _counted() -> AsyncIterator[_Counted]:
    """Start a durable server, under valgrind where that is installed, and stop it however the block ends."""
    with disk_folder() as folder:
        valgrind = shutil.which("valgrind")
        options = {**_OPTIONS, "appendfsync": "always", "auto-aof-rewrite-percentage": "0", "dir": str(folder)}
        options["unixsocket"] = str(folder / "s")
        command = [str(find_server()), *(part for name, value in options.items() for part in (f"--{name}", value))]
        if valgrind:
            out = folder / "callgrind.out"
            command = [valgrind, "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}", *command]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment()
        )
        try:
            shards = await _connect(f"unix://{options['unixsocket']}")
            try:
                yield _Counted(process, shards, folder, bool(valgrind))
            finally:
                await shards.close()
        finally:
            process.terminate()
            await process.wait()


async def _connect(address: str) -> Shards:
    """Connect to a server that has just been started."""
    deadline = asyncio.get_running_loop().time() + _START_SECONDS
    while True:
        try:
            return await Shards.connect(address)
        except FrontierUnavailable:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.1)


class _Calls:
    """The calls that are counted."""

    def __init__(self, counted: _Counted, frontier: ValkeyFrontier, clock: Clock) -> None:
        self._counted = counted
        self._frontier = frontier
        self._clock = clock
        self._load = Load(frontier.secret)
        self._next = 1000
        """Number of the next new URL of each domain."""

    async def fill(self, crawl: Crawl, terms: Terms, domains: Sequence[int]) -> tuple[Run, ValkeyLeaseholder]:
        """Queue URLs of a crawl; returns its run, and a worker that has made its first calls."""
        run = await self._frontier.open_crawl(crawl)
        for call in calls(self._load.batch(domain, range(_URLS)) for domain in domains):
            await self._frontier.add(run, terms, call)
        holder = await self._frontier.open_leaseholder(pool=crawl.pool, spiders=[SPIDER])
        await holder.settle(_settlements(await holder.lease(limit=1)))
        return run, holder

    async def leases(self, holder: ValkeyLeaseholder, what: str, size: int, count: int) -> None:
        """Lease and settle."""
        self._clock.seconds += 2.0
        found: list[list[Lease]] = []

        async def lease() -> None:
            found.extend([await holder.lease(limit=size) for _ in range(count)])

        async def settle() -> None:
            for leases in found:
                await holder.settle(_settlements(leases))

        await self._counted.of(f"lease, {size} {what}", count, size, lease)
        assert all(len(leases) == size for leases in found)
        await self._counted.of(f"settle, {size} {what}", count, size, settle)

    async def additions(self, run: Run, what: str, domains: int, urls: int, count: int, *, known: bool = False) -> None:
        """Add so many URLs of so many domains in each call."""
        first = 0 if known else self._next
        self._next += urls
        batches: list[list[Batch]] = []
        for place in range(count):
            numbers = [(place * 131 + number * 17) % _DOMAINS for number in range(domains)]
            if what == "new domains":
                numbers = [10_000_000 + place * domains + number for number in range(domains)]
            batches.append([self._load.batch(number, range(first, first + urls)) for number in numbers])

        async def add() -> None:
            for call in batches:
                await self._frontier.add(run, _TERMS, call)

        await self._counted.of(f"add, {domains} x {urls} {what}", count, domains * urls, add)


def _settlements(leases: Sequence[Lease]) -> list[Settlement]:
    return [Settlement(lease, Outcome.FETCHED) for lease in leases]


async def _count() -> None:
    clock = Clock()
    async with _counted() as counted:
        frontier = await ValkeyFrontier.from_connection(counted.shards, clock=clock)
        it = _Calls(counted, frontier, clock)
        headings: list[Any] = [f"{'a call':38}", f"{'commands':>9}", f"{'log bytes':>10}"]
        if counted.counts_instructions:
            headings += [f"{'instructions':>13}", f"{'for a URL':>11}"]
        else:
            say("valgrind is not installed: no instructions are counted")
        print(*headings)
        order = list(range(_DOMAINS))
        random.Random(1).shuffle(order)
        run, holder = await it.fill(Crawl(id=CrawlId("bench", "plain")), _TERMS, order)
        for size, count in ((1, 100), (16, 30), (256, 8)):
            await it.leases(holder, "of another domain each", size, count)
        for domains, urls, count in ((1, 1, 50), (1, 20, 10), (128, 10, 4)):
            await it.additions(run, "new URLs", domains, urls, count)
            await it.additions(run, "known URLs", domains, urls, count, known=True)
        await it.additions(run, "new domains", 256, 1, 4)
        await holder.close()
        rate = Rate(hits=100, window_seconds=1.0, moderated=False)
        crawl = Crawl(id=CrawlId("bench", "budgets"), max_pages=10**9, rate=rate, concurrency=16, pool="budgets")
        _, holder = await it.fill(crawl, _BUDGETS, range(20_000_000, 20_001_000))
        await it.leases(holder, "of 16 domains", 256, 8)
        await holder.close()
        await frontier.close()


if __name__ == "__main__":
    asyncio.run(_count())
    sys.exit(0)
