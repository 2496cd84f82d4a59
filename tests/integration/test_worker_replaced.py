"""Worker processes that die, or stand still, while the frontier's server is away or when their command ends."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb import expected
from tests.servers.crawling import command, records_of, resolving
from tests.servers.program import until
from tests.servers.service import up
from tests.servers.valkey import Server, standalone

SPEC = WebSpec(hosts=4, pages=120, latency_ms=20)
FLAGS = ("--rate", "40/1", "--domain-concurrency", "4", "--processes", "2")
WAITS = "The new worker process waits for it."

Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(SPEC) as running:
        yield running


@pytest.fixture
def server() -> Iterator[Server]:
    with standalone(tcp=True) as running:
        yield running


@pytest.fixture
def begin(web: FakeWeb, tmp_path: Path) -> Iterator[Begin]:
    begun: list[subprocess.Popen[str]] = []

    def start(*more: str) -> "subprocess.Popen[str]":
        crawl = ["crawl", *web.seeds(), *resolving(web.resolve_overrides()), *FLAGS]
        with (tmp_path / "said").open("w") as words:
            process = subprocess.Popen(
                [*command(*crawl), *more],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
                env={**os.environ, "GOSSAMER_WORKER__HEARTBEAT": "2"},
            )
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def workers(command: int) -> list[psutil.Process]:
    """The worker processes of the command with this process id."""
    return [child for child in psutil.Process(command).children(recursive=True) if is_worker(child)]


def is_worker(process: psutil.Process) -> bool:
    """False also of one that has ended since it was listed."""
    try:
        return process.name() == "gossamer-worker" and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def has_pages(folder: Path, count: int) -> Callable[[], bool]:
    path = folder / "pages.jsonl"
    return lambda: path.exists() and path.read_bytes().count(b"\n") >= count


def kill_one(command: int) -> list[psutil.Process]:
    """Kill a worker process of the command, and return the others once there is another in its place."""
    victim, *others = workers(command)
    victim.kill()
    until(lambda: len(found := workers(command)) > len(others) and victim not in found, "another")
    return others


def test_a_worker_that_dies_while_the_server_is_away_is_replaced(
    begin: Begin, web: FakeWeb, server: Server, tmp_path: Path
) -> None:
    """The replacement waits for the server, as the healthy worker does."""
    process = begin("--frontier", server.address)
    until(has_pages(tmp_path, 40), "some pages")
    server.kill()
    kill_one(process.pid)
    until(lambda: WAITS in said(tmp_path) or process.poll() is not None, "the replacement to wait")
    server.start()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out + said(tmp_path)
    assert "is finished" in out
    assert said(tmp_path).count("A worker process died") == 1
    assert {page.url for page in records_of(tmp_path / "pages.jsonl")} == set(expected(web.site))


def test_a_worker_that_waits_for_the_server_ends_with_its_command(begin: Begin, server: Server, tmp_path: Path) -> None:
    process = begin("--frontier", server.address)
    until(has_pages(tmp_path, 20), "some pages")
    server.kill()
    others = kill_one(process.pid)
    [waiting] = [one for one in workers(process.pid) if one not in others]
    until(lambda: WAITS in said(tmp_path) or process.poll() is not None, "the replacement to wait")
    for one in (process, *others):
        one.kill()
    waiting.wait(60)


@pytest.mark.parametrize("own", [True, False], ids=["embedded", "shared"])
def test_a_stopped_worker_does_not_outlive_its_command(own: bool, begin: Begin, server: Server, tmp_path: Path) -> None:
    """Nobody continues it but the system, when its parent is gone."""
    process = begin(*([] if own else ["--frontier", server.address]))
    until(has_pages(tmp_path, 20), "some pages")
    below = psutil.Process(process.pid).children(recursive=True)
    stopped, _ = workers(process.pid)
    stopped.suspend()
    until(lambda: stopped.status() == psutil.STATUS_STOPPED, "the worker to stand still")
    process.kill()
    try:
        _, alive = psutil.wait_procs(below, 60)
        assert not alive
    finally:
        for one in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


def test_a_service_replaces_a_worker_while_its_server_is_away(tmp_path: Path, server: Server) -> None:
    """Its bus is away as well: both are in the same server."""
    with up(tmp_path, "--frontier", server.address, "--processes", "2") as service:
        until(lambda: len(workers(service.pid)) == 2, "the workers")
        server.kill()
        kill_one(service.pid)
        until(lambda: WAITS in service.said(), "the replacement to wait")
        server.start()
        until(lambda: "The frontier can be reached now." in service.said(), "the replacement to begin")
        assert service.stop() == 0


DOOMED = """
import os
from pathlib import Path
from gossamer import Spider

if Path("/proc/self/comm").read_text() == "gossamer-worker\\n":
    try:
        os.close(os.open("{first}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        os._exit(9)


class Doomed(Spider):
    def parse(self, page):
        for link in page.links:
            yield page.follow(link)
"""
"""A spider that ends every worker process that loads it, but for the first one, if the name of a file is free."""


@pytest.mark.parametrize("works", [False, True])
def test_the_command_gives_up_only_where_no_process_starts(
    works: bool, begin: Begin, server: Server, tmp_path: Path
) -> None:
    first = tmp_path / ("free" if works else "doomed.py")
    (tmp_path / "doomed.py").write_text(DOOMED.format(first=first))
    process = begin("--frontier", server.address, "--spider", "doomed.py", "--rate", "10/1")
    out, _ = process.communicate(timeout=120)
    assert "Traceback" not in said(tmp_path)
    if works:
        assert process.returncode == 0, out + said(tmp_path)
        assert "is finished" in out
        assert said(tmp_path).count("A worker process died (exit code 9)") == 4
    else:
        assert process.returncode == 4, out + said(tmp_path)
        assert "The worker processes end as soon as they start: the last one by exit code 9" in said(tmp_path)


def said(folder: Path) -> str:
    """What the command has written to standard error."""
    return (folder / "said").read_text()
