"""One run: two services and two workers on Valkey and PostgreSQL, and faults by a seed."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from gossamer.errors import SinkError
from gossamer.fresh.index import BEFORE_ALL, PageIndex
from gossamer.fresh.page import Change, IndexedPage
from gossamer.model.crawl import CrawlId
from tests.recrawls.judge import Verdict, is_told, judge, most_in_window
from tests.recrawls.site import ChangingSite, serving
from tests.servers.crawling import command
from tests.servers.postgresql import PostgreSql, postgresql
from tests.servers.service import Up
from tests.servers.valkey import Server, free_ports

CRAWL = CrawlId("app", "site")
BUDGET = 80
BUDGET_SECONDS = 10.0
_HEAL_SECONDS = 120.0
"""Time after the last fault within which all changes must be told."""
_FORGIVEN = 8
"""Requests that each killed worker may have made and that are made again: those that it had in flight."""
FAULTS = ("worker", "recrawler", "valkey", "database")


@dataclass
class Outcome:
    """What came of a run."""

    seed: int
    seconds: float
    verdict: Verdict
    kills: Counter[str] = field(default_factory=Counter)


class Cluster:
    """The processes and servers of a run."""

    def __init__(self, folder: Path, valkey: Server, database: PostgreSql, stack: ExitStack) -> None:
        self.folder = folder
        self.valkey = valkey
        self.database = database
        self.address = database.new_database().replace("+psycopg", "")
        self.environment = {
            "GOSSAMER_FRONTIER": valkey.address,
            "GOSSAMER_CRAWL__INDEX": self.address,
            "GOSSAMER_CRAWL__IDLE_SECONDS": "0.2",
            "GOSSAMER_HISTORY__DATABASE": "none",
            "GOSSAMER_ALLOW_NETWORKS": "127.0.0.0/8",
            "GOSSAMER_SERVICE__POLICY_FILE": str(folder / "policies.yaml"),
            "GOSSAMER_FETCH__RETRY_BASE": "0.1",
            "GOSSAMER_WORKER__HEARTBEAT": "1",
        }
        (folder / "policies.yaml").write_text("default: {hits: 1000, window: 1, moderated: false, concurrency: 4}\n")
        self.services = [self._service(name) for name in ("one", "two")]
        self.workers = [self._worker(number) for number in range(2)]
        stack.callback(self.stop)

    def _service(self, name: str) -> Up:
        folder = self.folder / name
        folder.mkdir()
        service = Up(folder, ["serve", "--port", "0", "--bus", "streams"], environment=self.environment)
        service.start()
        return service

    def _worker(self, number: int) -> "subprocess.Popen[bytes]":
        log = (self.folder / f"worker{number}.log").open("ab")
        with log:
            return subprocess.Popen(
                command("worker", "--bus", "streams", "--data-dir", str(self.folder / f"worker{number}")),
                cwd=self.folder, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip

    def break_(self, what: str, chance: random.Random) -> None:
        """Kill something, and start it again a moment later."""
        if what == "worker":
            number = chance.randrange(2)
            _kill(self.workers[number])
            self.workers[number] = self._worker(number)
        elif what == "recrawler":
            service = self.services[chance.randrange(2)]
            service.kill()
            service.start()
        else:
            server = self.valkey if what == "valkey" else self.database
            server.kill()
            time.sleep(chance.random())  # the time for which it is away
            server.start()

    def stop(self) -> None:
        for worker in self.workers:
            _kill(worker)
        for service in self.services:
            service.kill()

    def index(self) -> PageIndex:
        return PageIndex.open(self.address, CRAWL.token, crawl_id=str(CRAWL))

    def changes(self) -> list[Change]:
        """All changes that were told. None while the database is away."""
        try:
            index = self.index()
        except SinkError:
            return []
        try:
            return index.changes(0, 1_000_000)
        except SinkError:
            return []
        finally:
            index.close()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def run(seed: int, folder: Path, *, seconds: float, pages: int) -> Outcome:
    """Run the service for so many seconds with faults, then wait until it has told everything."""
    chance, begun = random.Random(seed), time.monotonic()
    with ExitStack() as stack:
        site = stack.enter_context(serving(pages))
        database = stack.enter_context(postgresql())
        (folder / "valkey").mkdir(parents=True)
        valkey = Server(folder / "valkey", port=free_ports(1)[0])
        valkey.start()
        stack.callback(valkey.stop)
        cluster = Cluster(folder, valkey, database, stack)
        _submit(cluster, site)
        _wait(lambda: is_told(site, cluster.changes()), "the first round")
        kills, written = _trouble(cluster, site, chance, seconds)
        healed = time.time()
        _wait(lambda: is_told(site, cluster.changes()), "all changes")
        _wait(lambda: site.versions.keys() <= {path for at, path in site.visits if at > healed}, "a visit of each page")
        verdict = judge(site, cluster.changes(), _pages(cluster, site), written)
        verdict.most_visits = most_in_window([at for at, path in site.visits], BUDGET_SECONDS)
        most = max(BUDGET, pages + 1) + _FORGIVEN * kills["worker"] + kills["valkey"] * _FORGIVEN * 2
        if verdict.most_visits > most:
            verdict.faults.append(f"{verdict.most_visits} visits in {BUDGET_SECONDS:g} s, of {BUDGET} in the budget")
    return Outcome(seed, time.monotonic() - begun, verdict, kills)


def _submit(cluster: Cluster, site: ChangingSite) -> None:
    request = {
        "appid": CRAWL.appid, "crawlid": CRAWL.crawlid, "url": f"{site.url}/", "maxdepth": 1, "wait_for_spider": True,
        "ignore_robots": False, "recrawl": {"min": "2s", "max": "6s", "budget": f"{BUDGET}/{BUDGET_SECONDS:.0f}s"},
    }  # fmt: skip
    httpx.post(f"{cluster.services[0].api}/v1/crawls", json=request).raise_for_status()


def _trouble(
    cluster: Cluster, site: ChangingSite, chance: random.Random, seconds: float
) -> tuple[Counter[str], dict[str, int]]:
    """Change pages and kill things for some seconds. Return the kills, and how often each page was changed."""
    kills: Counter[str] = Counter()
    written: dict[str, int] = {}
    until, version = time.monotonic() + seconds, 1
    names = list(site.versions)
    faults = list(FAULTS)
    while time.monotonic() < until:
        for path in chance.sample(names, 3):
            version += 1
            site.versions[path] = None if site.versions[path] is not None and chance.random() < 0.2 else version
            written[path] = written.get(path, 0) + 1
        if not faults:
            faults = list(FAULTS)
        what = faults.pop(chance.randrange(len(faults)))
        kills[what] += 1
        cluster.break_(what, chance)
        time.sleep(chance.uniform(0.5, 3))  # the time between two faults
    return kills, written


def _pages(cluster: Cluster, site: ChangingSite) -> dict[str, IndexedPage]:
    index = cluster.index()
    try:
        found = index._pages("TRUE", [], BEFORE_ALL, 100_000)
        return {page.url.removeprefix(site.url): page for page in found}
    finally:
        index.close()


def _wait(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _HEAL_SECONDS
    while not is_so():
        if time.monotonic() > until:
            raise AssertionError(f"{what} did not come in {_HEAL_SECONDS:g} s")
        time.sleep(0.2)
