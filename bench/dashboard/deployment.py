"""A crawl service with a platform, both with much to show, and a crawl that runs."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil

from bench.dashboard import filling
from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.service import Up, up
from tests.servers.valkey import free_ports, standalone

RUNNING = {"appid": "bench", "crawlid": "running"}
"""Crawl that is fetched."""
_SITES, _HITS = 4, 12
"""Sites of that crawl, and pages a second of each."""
_HISTORY = "GOSSAMER_HISTORY__DATABASE"


class Amounts(NamedTuple):
    """Numbers of what there is to show."""

    crawls: int
    jobs: int
    domains: int
    policies: int
    others: int
    """Projects, schedules, nodes, groups and tokens, each."""


class Deployment(NamedTuple):
    """The running service."""

    service: Up
    address: str

    @property
    def process(self) -> psutil.Process:
        """The process of the API and of the pages."""
        return psutil.Process(self.service.pid)

    def cpu_ms(self) -> float:
        """Return the CPU time of that process and of the manager until now."""
        manager = [each for each in self.process.children() if "manager" in each.cmdline()]
        tasks = [task for each in (self.process, *manager) for task in Path(f"/proc/{each.pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


@contextlib.contextmanager
def deployment(folder: Path, amounts: Amounts) -> Iterator[Deployment]:
    """Run it until the end of the block."""
    history = f"sqlite:///{folder}/history.db"
    with standalone() as server, FakeWeb.start(WebSpec(hosts=_SITES, pages=200_000)) as web:
        begun = time.monotonic()
        policies = _policies(amounts.policies)
        asyncio.run(_fill(folder, amounts, history, server.address, policies))
        shown = ", ".join(f"{count:,} {what}" for what, count in amounts._asdict().items())
        print(f"filled in {time.monotonic() - begun:.0f} s: {shown}", flush=True)
        [port] = free_ports(1)
        flags = ["--frontier", server.address, "--platform", "--platform-port", str(port)]
        flags += [f"--resolve={override}" for override in web.resolve_overrides()]
        with up(folder, *flags, environment={_HISTORY: history}, policies=policies) as service:
            request = {**RUNNING, "url": web.url(0, 0), "maxdepth": 100}
            httpx.post(f"{service.api}/v1/crawls", json=request, timeout=60).raise_for_status()
            yield Deployment(service, service.api)


async def _fill(folder: Path, amounts: Amounts, history: str, frontier: str, policies: str) -> None:
    await filling.fill_crawls(history, amounts.crawls)
    store = folder / ".gossamer/platform/store/state.db"
    await filling.fill_platform(store, job_count=amounts.jobs, other_count=amounts.others)
    crawl_count = amounts.crawls // 100
    await filling.fill_frontier(frontier, domain_count=amounts.domains, crawl_count=crawl_count, policies=policies)


def _policies(count: int) -> str:
    """Return policies as YAML: those of the sites, and of so many other domains."""
    lines = ["default: {hits: 1000, window: 1, moderated: false}", "domains:"]
    lines += [f"  site{number}.test: {{hits: {_HITS}, window: 1}}" for number in range(_SITES)]
    lines += [f"  policy{number:07}.test: {{hits: 5, window: 1}}" for number in range(count)]
    return "\n".join([*lines, ""])
