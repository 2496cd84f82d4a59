"""Crawls of the command line that share a domain on one frontier: each gets its part, the site no more than before."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb.log import max_concurrency, max_in_any_window
from tests.servers.crawling import command, resolving
from tests.servers.valkey import Server, standalone, wait_until

BLUR_SECONDS = 0.4
"""How late a process of a busy machine may send, and the web may note it."""


@pytest.fixture
def server() -> Iterator[Server]:
    with standalone(tcp=True) as running:
        yield running


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=1, pages=5000, page_bytes=1000, latency_ms=100)) as running:
        yield running


class Commands:
    """Crawls of one site on one frontier, each with an output of its own."""

    def __init__(self, folder: Path, server: Server, web: FakeWeb) -> None:
        self.folder, self.server, self.web = folder, server, web
        self._running: list[subprocess.Popen[bytes]] = []

    def begin(self, name: str, *flags: str) -> None:
        seed, resolve = self.web.seeds()[0], resolving(self.web.resolve_overrides())
        own = ("--crawl-id", name, "-o", f"{name}.jsonl", "--frontier", self.server.address)
        self._running.append(
            subprocess.Popen(
                command("crawl", seed, *resolve, *own, *flags),
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def pages(self, name: str) -> int:
        output = self.folder / f"{name}.jsonl"
        return output.read_bytes().count(b"\n") if output.exists() else 0

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture
def commands(tmp_path: Path, server: Server, web: FakeWeb) -> Iterator[Commands]:
    running = Commands(tmp_path, server, web)
    yield running
    running.end()


@pytest.mark.parametrize("first", ["slow", "fast"])
def test_a_slow_crawl_and_a_fast_one_take_turns(commands: Commands, web: FakeWeb, first: str) -> None:
    flags = {"slow": ("--rate", "2/1"), "fast": ("--rate", "20/1")}
    for name in (first, *flags.keys() - {first}):
        commands.begin(name, *flags[name])
        wait_until(lambda name=name: commands.pages(name) >= 2, f"the {name} crawl to be under way")  # type: ignore[misc]
    wait_until(lambda: commands.pages("slow") >= 12, "the slow crawl to get its part")
    fast = commands.pages("fast")
    wait_until(lambda: commands.pages("fast") >= fast + 20, "the fast crawl to go on")
    log = web.log()
    host = log[0].host
    assert max_in_any_window(log, host, 1.0 - BLUR_SECONDS) <= 20
    assert max_concurrency(log, host) <= 16


def test_a_crawl_with_one_request_in_flight_gets_its_part(commands: Commands, web: FakeWeb) -> None:
    commands.begin("many", "--rate", "1000/1", "--domain-concurrency", "6")
    wait_until(lambda: commands.pages("many") >= 20, "the first crawl to be under way")
    commands.begin("few", "--rate", "1000/1", "--domain-concurrency", "1")
    wait_until(lambda: commands.pages("few") >= 12, "the second crawl to get its part")
    log = web.log()
    assert max_concurrency(log, log[0].host) <= 6
