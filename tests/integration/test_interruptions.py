"""Ctrl-C, SIGTERM and a closed terminal, at any moment and any number of times: a word, exit code 130, nothing lost."""

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import termios
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb import graph
from tests.servers.crawling import command, gossamer, records_of, resolving
from tests.servers.program import until
from tests.servers.small_disk import small_disk as small_disk
from tests.servers.valkey import Server

SPEC = WebSpec(hosts=4, pages=300, latency_ms=30)
RATE = ("--rate", "10000/1", "--domain-concurrency", "4")
Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(SPEC) as running:
        yield running


@pytest.fixture
def begin(web: FakeWeb, tmp_path: Path) -> Iterator[Begin]:
    """Starts a crawl in the background; whatever is left of it at the end is killed."""
    begun: list[subprocess.Popen[str]] = []

    def start(*more: str, stdout: int = subprocess.PIPE) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*command("crawl", *web.seeds(), *resolving(web.resolve_overrides()), *RATE), *more],
            cwd=tmp_path,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def has_pages(folder: Path, count: int) -> Callable[[], bool]:
    path = folder / "pages.jsonl"
    return lambda: path.exists() and path.read_bytes().count(b"\n") >= count


def ended(process: "subprocess.Popen[str]") -> str:
    """What it said in the end, on both streams: always something, never a traceback, always with exit code 130."""
    out, error = process.communicate(timeout=60)
    said = (out or "") + error
    assert process.returncode == 130, said
    assert said.strip()
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    return said


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells which signals a process handles")
@pytest.mark.parametrize("pause", [0.0, 0.05, 0.15, 0.3])
def test_before_anything_began_it_ends_at_once(pause: float, begin: Begin, tmp_path: Path) -> None:
    """While most of the program is still being loaded, too; only the interpreter's own start comes before us."""
    process = begin()
    until(lambda: handles(process.pid, signal.SIGTERM), "the program's first lines")
    time.sleep(pause)
    process.send_signal(signal.SIGINT)
    ended(process)
    output = tmp_path / "pages.jsonl"
    if pause == 0.0:
        assert not output.exists()
    elif output.exists():  # it had begun: what it wrote is whole
        assert all(json.loads(line)["url"] for line in output.read_text().splitlines())


def handles(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("gap", [0.0, 0.03, 0.06, 0.1, 0.15, 0.2])
def test_a_second_one_at_any_moment_after_the_first(gap: float, begin: Begin, tmp_path: Path) -> None:
    """While it drains, while it closes what it opened, or while it says its last words."""
    process = begin()
    until(has_pages(tmp_path, 10), "some pages")
    process.send_signal(signal.SIGINT)
    time.sleep(gap)
    process.send_signal(signal.SIGTERM)
    assert "Resume with: gossamer crawl" in ended(process)


def test_three_at_once(begin: Begin, tmp_path: Path) -> None:
    process = begin("--processes", "2")
    until(has_pages(tmp_path, 10), "some pages")
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    assert "Resume with: gossamer crawl" in ended(process)


def test_a_terminal_that_is_closed_drains_the_crawl(web: FakeWeb, tmp_path: Path) -> None:
    """SIGHUP, and then nobody is there to be told."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*command("crawl", *web.seeds(), *resolving(web.resolve_overrides()), *RATE)],
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        # Tests under nohup ignore the signal, and a program that starts with it ignored leaves it so.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    os.close(theirs)
    pages = has_pages(tmp_path, 10)
    until(lambda: [drawn(ours), pages()][1], "some pages")
    process.send_signal(signal.SIGHUP)
    os.close(ours)
    assert process.wait(60) == 130
    assert gossamer("why", web.seeds()[0], cwd=tmp_path).returncode == 0


def drawn(terminal: int) -> bytes:
    """What was drawn since the last look; a terminal that nobody empties blocks who draws."""
    os.set_blocking(terminal, False)
    try:
        return os.read(terminal, 1 << 16)
    except BlockingIOError:
        return b""


def test_waiting_for_seeds_that_nobody_types(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        command("crawl", "--seeds", "-"),
        cwd=tmp_path,
        stdin=reading,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    known = psutil.Process(process.pid)
    until(lambda: known.num_fds() > 4 and known.status() == psutil.STATUS_SLEEPING, "that it waits")
    process.send_signal(signal.SIGINT)
    assert "Interrupted" in ended(process)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_full_disk_does_not_hold_up_the_end(
    processes: str, begin: Begin, web: FakeWeb, small_disk: Path, tmp_path: Path
) -> None:
    output = small_disk / "pages.jsonl"
    process = begin("-o", str(output), "--processes", processes)
    assert process.stderr
    assert "no room" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    said = ended(process)
    assert "could not be finished; nothing is lost" in said
    assert "Resume with" in said
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    again = begin("-o", str(output), "--processes", processes)
    _, said = again.communicate(timeout=60)
    assert again.returncode == 0, said
    assert {record.url for record in records_of(output)} == graph(web.site)


def test_a_reader_that_sleeps_does_not_hold_up_the_end(begin: Begin) -> None:
    """A pipe that is full and takes nothing, like that of a pager which shows its first page."""
    reading, writing = os.pipe()
    process = begin("-o", "-", "--processes", "2", stdout=writing)
    os.close(writing)
    room = fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ) - select.PIPE_BUF
    until(lambda: array("i", fcntl.ioctl(reading, termios.FIONREAD, bytes(4)))[0] >= room, "a full pipe")
    process.send_signal(signal.SIGTERM)
    assert "Resume with" in ended(process)
    os.close(reading)


def test_a_frontier_that_is_away_does_not_hold_up_the_end(begin: Begin, tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    try:
        process = begin("--frontier", server.address)
        until(has_pages(tmp_path, 10), "some pages")
        server.kill()
        process.send_signal(signal.SIGINT)
        said = ended(process)
        assert "was interrupted; nothing is lost" in said
        assert "could not be reached" in said
    finally:
        server.stop()


def test_the_command_to_go_on_with_tells_no_password(begin: Begin, tmp_path: Path) -> None:
    server = Server(tmp_path, password="hush")
    server.start()
    try:
        process = begin("--frontier", server.address)
        until(has_pages(tmp_path, 10), "some pages")
        process.send_signal(signal.SIGINT)
        said = ended(process)
        assert "--frontier unix://:***@" in said
        assert "hush" not in said
    finally:
        server.stop()
