"""One run: a crawl is killed with its server in the middle, an empty server is filled from the records, the crawl goes
on."""

import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.model.record import PageRecord
from gossamer.model.request import DropReason
from gossamer.sinks.read import Source
from gossamer_fakeweb import expected, fetched, fetches
from tests.servers.crawling import command, resolving
from tests.servers.valkey import Server, standalone, wait_until

_KILL_AFTER = 0.3
"""Part of the records after whose entry the first rebuild is killed."""


@dataclass
class Outcome:
    """What a run showed."""

    pages: int = 0
    """That were to be fetched."""
    recorded: int = 0
    """Records when the server was lost."""
    rebuild_seconds: float = 0.0
    rebuild_mib: float = 0.0
    """Most memory of the rebuild."""
    fetched_again: list[str] = field(default_factory=list)
    """URLs with a record that were fetched after the rebuild."""
    missing: list[str] = field(default_factory=list)
    """URLs that were never fetched."""
    without_record: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def run(seed: int, folder: Path, *, pages: int, hosts: int, page_bytes: int) -> Outcome:
    """Crawl a web of so many pages. `folder`: for the files of the run; must not exist."""
    folder.mkdir(parents=True)
    spec = WebSpec(
        seed=seed, hosts=hosts, pages=pages // hosts, page_bytes=page_bytes, cross_host_share=0.05, not_found=0.01,
        redirect_same=0.01, redirect_cross=0.01,
    )  # fmt: skip
    outcome = Outcome()
    with FakeWeb.start(spec) as web, standalone(tcp=True) as second:
        with standalone(tcp=True) as first:
            _crawl_half(web, folder, first, pages // 2)
        recorded = _recorded(folder)
        outcome.recorded = len(recorded)
        before = len(web.log())
        _rebuild(web, folder, second, outcome)
        assert len(web.log()) == before, "the rebuild has fetched pages"
        last = subprocess.run(
            _words("crawl", web=web, server=second), cwd=folder, capture_output=True, text=True, check=False
        )
        if last.returncode:
            outcome.faults.append(f"the last crawl ended with {last.returncode}: {last.stderr[-500:]}")
        log = web.log()
        wanted = fetched(expected(web.site))
        done = {url for record in recorded for url in _urls(record)}
        outcome.pages = len(wanted)
        outcome.fetched_again = sorted(done & set(fetches(log[before:])))
        outcome.missing = sorted(wanted - set(fetches(log)))
        records = {url for record in _recorded(folder) for url in _urls(record)}
        outcome.without_record = sorted(wanted - records)
    for urls, fault in (
        (outcome.fetched_again, "has a record and was fetched again"),
        (outcome.missing, "was never fetched"),
        (outcome.without_record, "has no record"),
    ):
        outcome.faults += [f"{url} {fault}" for url in urls]
    return outcome


def _words(*names: str, web: FakeWeb, server: Server) -> Sequence[str]:
    return command(
        *names, *web.seeds(), *resolving(web.resolve_overrides()), "--rate", "100000/1", "--domain-concurrency", "16",
        "--frontier", server.address, "-o", "pages.jsonl", "--json",
    )  # fmt: skip


def _crawl_half(web: FakeWeb, folder: Path, server: Server, records: int) -> None:
    """Crawl until there are so many records; then the server and the crawl are killed."""
    process = subprocess.Popen(
        _words("crawl", web=web, server=server), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    output = folder / "pages.jsonl"
    count, at = 0, 0
    try:
        while count < records and process.poll() is None:
            if output.exists():
                with output.open("rb") as stream:
                    stream.seek(at)
                    new = stream.read()
                count, at = count + new.count(b"\n"), at + len(new)
            time.sleep(0.05)
        server.kill()
    finally:
        process.kill()
        process.wait()


def _rebuild(web: FakeWeb, folder: Path, server: Server, outcome: Outcome) -> None:
    """Fill the server: a first rebuild is killed, a second one does all."""
    words = _words("crawls", "rebuild", web=web, server=server)
    killed = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(
        lambda: killed.poll() is not None or _entered(server) > _KILL_AFTER * outcome.recorded,
        "the first rebuild to enter requests",
    )
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    began = time.monotonic()
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watch = threading.Thread(target=_watch_memory, args=(process.pid, outcome))
    watch.start()
    _, said = process.communicate()
    watch.join()
    outcome.rebuild_seconds = time.monotonic() - began
    if process.returncode:
        outcome.faults.append(f"the rebuild ended with {process.returncode}: {said[-500:]}")


def _entered(server: Server) -> int:
    """Return the number of requests that a server counts as done."""
    keys = server.command("KEYS", "gossamer:*c:*")
    return sum(int(server.command("HGET", key, "Z") or 0) for key in keys)


def _watch_memory(pid: int, outcome: Outcome) -> None:
    process = psutil.Process(pid)
    while True:
        try:
            outcome.rebuild_mib = max(outcome.rebuild_mib, process.memory_info().rss / 2**20)
        except psutil.Error:
            return
        if process.status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)


def _recorded(folder: Path) -> list[PageRecord]:
    """Return the records, without their bodies."""
    found = []
    for output in Source(folder / "pages.jsonl").outputs():
        if isinstance(output.record, PageRecord):
            output.record.body = ""
            found.append(output.record)
    return found


def _urls(record: PageRecord) -> set[str]:
    """Return the URLs that were fetched for a record."""
    urls = {record.url, *(hop.url for hop in record.redirects)}
    return urls if record.reason == DropReason.DUPLICATE else urls | {record.response_url}
