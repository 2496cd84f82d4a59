"""Two installed versions at one crawl, and at one platform."""

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb import expected, fetched, fetches
from tests.servers.crawling import resolving
from tests.servers.platform import RunningManager, RunningNode, running
from tests.servers.scrapyd import egg
from tests.servers.valkey import Server, standalone, wait_until
from tests.versions.installation import Installation

_CONCURRENCY = 8
_KILL_AFTER = 0.2
"""Part of the pages that each version has recorded when one is killed."""
_END_SECONDS = 120.0
_SPIDER = """
class Ping(scrapy.Spider):
    name = "ping"
    start_urls = ["data:,hello"]
    def parse(self, response):
        yield {"text": response.text}
"""


@dataclass
class Outcome:
    """What two versions did together."""

    title: str
    pages: dict[str, int] = field(default_factory=dict)
    """Pages that each version recorded, by its name."""
    repeated: int = 0
    """Pages that were fetched twice: in flight when a process was killed."""
    faults: list[str] = field(default_factory=list)


def crawl(first: Installation, second: Installation, folder: Path, *, pages: int) -> Outcome:
    """Let `first` begin a crawl and `second` join it. The first one is killed, and the second one ends the crawl.

    If their frontiers have different formats, which only different minor versions may have, the second one must refuse,
    and the first one ends its crawl undisturbed.
    """
    refused = first.frontier_format() != second.frontier_format()
    outcome = Outcome(
        f"{first.name} begins a crawl, {second.name} " + ("is refused" if refused else "joins and ends it")
    )
    if refused and first.has_minor_version_of(second):
        outcome.faults.append(f"{first.version} and {second.version} have frontiers of different formats")
    spec = WebSpec(hosts=8, pages=pages // 8, latency_ms=20, cross_host_share=0.2, not_found=0.01, redirect_same=0.01)
    with FakeWeb.start(spec) as web, standalone(tcp=True) as server, ExitStack() as stack:
        one = stack.enter_context(_crawling(first, web, server, folder))
        wait_until(lambda: _records(folder, first.name) or one.poll() is not None, "the first version to record pages")
        other = stack.enter_context(_crawling(second, web, server, folder))
        if refused:
            if not other.wait(_END_SECONDS) or "format" not in _said(folder, second.name):
                outcome.faults.append(f"{second.name} was not refused:\n{_said(folder, second.name)}")
        else:
            _kill_when_both_work({first.name: one, second.name: other}, first.name, folder, outcome, pages)
        last = first if refused else second
        if code := (one if refused else other).wait(_END_SECONDS):
            outcome.faults.append(f"{last.name} ended with {code}:\n{_said(folder, last.name)}")
        wanted, log = fetched(expected(web.site)), fetches(web.log())
    _judge(
        outcome, wanted, log, {one.name: _urls(folder, one.name) for one in ((first,) if refused else (first, second))}
    )
    return outcome


def _kill_when_both_work(
    crawls: dict[str, "subprocess.Popen[bytes]"], victim: str, folder: Path, outcome: Outcome, pages: int
) -> None:
    """Kill the process of a version when each has recorded its part of the pages."""
    wait_until(
        lambda: (
            all(_records(folder, name) >= _KILL_AFTER * pages for name in crawls)
            or any(process.poll() is not None for process in crawls.values())
        ),
        "both versions to record pages",
    )
    for name, process in crawls.items():
        if process.poll() is not None:
            outcome.faults.append(f"{name} ended too early:\n{_said(folder, name)}")
    crawls[victim].kill()


def platform(manager: Installation, node: Installation, folder: Path) -> Outcome:
    """Let a node of one version run a job of a manager of another one."""
    outcome = Outcome(f"manager of {manager.name}, node of {node.name}")
    with _python(manager):
        one = RunningManager(folder / "manager", limit_seconds=30.0)
    with _python(node):
        other = RunningNode(folder / "node", [one.url], name="n1")
    with running(one, other):
        one.when_node(other.name, "online")
        one.deploy(egg(_SPIDER))
        number = one.create("ping")
        job = one.ended(number)
        if job["state"] != "finished":
            outcome.faults.append(f"the job ended as {job}:\n{one.said()}\n{other.said()}")
        outcome.pages[node.name] = 1
    return outcome


@contextmanager
def _python(installation: Installation) -> Iterator[None]:
    """Let the commands of the tests' servers be those of a version."""
    before = os.environ.get("GOSSAMER_TEST_PYTHON")
    os.environ["GOSSAMER_TEST_PYTHON"] = installation.python
    try:
        yield
    finally:
        del os.environ["GOSSAMER_TEST_PYTHON"]
        if before is not None:
            os.environ["GOSSAMER_TEST_PYTHON"] = before


@contextmanager
def _crawling(one: Installation, web: FakeWeb, server: Server, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a crawl of a version in a folder of its name; it is killed at the end."""
    place = folder / one.name
    place.mkdir(parents=True)
    command = one.command(
        "crawl", *web.seeds(), *resolving(web.resolve_overrides()), "--scope", "any", "--rate", "100/1",
        "--concurrency", str(_CONCURRENCY), "--crawl-id", "shared", "--frontier", server.address, "-o", "pages.jsonl",
    )  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GOSSAMER_"))}
    with (place / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=place, stdout=said, stderr=said, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _judge(outcome: Outcome, wanted: set[str], log: Counter[str], recorded: dict[str, list[str]]) -> None:
    """Compare what was fetched and recorded with what must be."""
    outcome.pages = {name: len(set(urls)) for name, urls in recorded.items()}
    outcome.faults += [f"{name} took no part" for name, count in outcome.pages.items() if not count]
    outcome.faults += [f"{url} was never fetched" for url in sorted(wanted - log.keys())]
    every = Counter(url for urls in recorded.values() for url in urls)
    outcome.faults += [f"{url} has no record" for url in sorted(wanted - every.keys())]
    again = {url for url, count in log.items() if count > 1}
    outcome.repeated = len(again)
    if len(again) > 2 * _CONCURRENCY:
        outcome.faults.append(f"{len(again)} pages were fetched twice; {_CONCURRENCY} can have been in flight")
    outcome.faults += [f"{url} was fetched {log[url]} times" for url in sorted(again) if log[url] > 2]


def _records(folder: Path, name: str) -> int:
    file = folder / name / "pages.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def _urls(folder: Path, name: str) -> list[str]:
    """Return the URLs that a version fetched for its records. Each version reads its own format: only the fields
    that no version changes are read here."""
    urls = []
    for line in (folder / name / "pages.jsonl").read_bytes().splitlines():
        try:
            record = msgspec.json.decode(line)
        except msgspec.DecodeError:  # the last one of a killed process
            continue
        urls += [record["url"], *(hop["url"] for hop in record.get("redirects") or ()), record.get("response_url")]
    return [url for url in urls if url]


def _said(folder: Path, name: str) -> str:
    return (folder / name / "said").read_text(errors="replace")[-1000:]
