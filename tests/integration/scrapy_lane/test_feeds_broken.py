"""Whole feeds on full disks, on FTP servers that hang or die, and of several processes at once."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from gossamer.scrapy import feeds
from tests.integration.scrapy_lane.test_feeds import begin, numbers
from tests.servers.ftp import FTP_SERVER, ftp_server
from tests.servers.program import until
from tests.servers.small_disk import SMALL, a_disk, full
from tests.servers.valkey import free_ports


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with a_disk(tmp_path / "small", SMALL) as folder:
        yield folder


LINE = b'{"number": 1}\n'


def opened(storage: Any, **settings: Any) -> Any:
    """The file of a feed."""
    crawler = get_crawler(settings_dict=settings)
    return storage.open(crawler._create_spider("items"))


def write_on_a_full_disk(file: Any, disk: Path) -> None:
    """Write, fail while another program takes all room, and write again."""
    file.write(LINE * 1000)
    file.flush()
    with full(disk), pytest.raises(OSError, match="No space left"):
        file.write(LINE * 100_000)
    file.write(LINE)


def test_a_feed_that_lacks_items_gets_no_name(
    small_disk: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    target = small_disk / "items.jl"
    target.write_bytes(b"of the run before\n")
    storage = feeds.WholeFileStorage(str(target), feed_options={"overwrite": True})
    file = opened(storage)
    write_on_a_full_disk(file, small_disk)
    with pytest.raises(OSError, match="No space left") as caught:
        storage.store(file)
    assert caught.value.errno == errno.ENOSPC
    assert target.read_bytes() == b"of the run before\n"
    (hidden,) = small_disk.glob(".*.part")
    assert f"{target} is not complete" in caplog.text
    assert str(hidden) in caplog.text


def test_a_feed_that_the_disk_did_not_confirm_gets_no_name(tmp_path: Path) -> None:
    """The feed's descriptor is made that of a pipe, which takes bytes and refuses to flush them to a disk."""
    target = tmp_path / "items.jl"
    storage = feeds.WholeFileStorage(str(target), feed_options={"overwrite": True})
    file = opened(storage)
    reading, writing = os.pipe()
    os.dup2(writing, file.fileno())
    try:
        file.write(LINE)
        with pytest.raises(OSError, match="Invalid argument"):
            storage.store(file)
    finally:
        os.close(reading)
        os.close(writing)
    assert not target.exists()


def test_a_feed_that_lacks_items_is_not_uploaded(tmp_path: Path, small_disk: Path) -> None:
    with ftp_server(tmp_path / "ftp") as address:
        storage = feeds.WholeFTPStorage(f"{address}/items.jl")
        file = opened(storage, FEED_TEMPDIR=str(small_disk))
        write_on_a_full_disk(file, small_disk)
        with pytest.raises(OSError, match="No space left"):
            storage._store_in_thread(file)
    assert [*(tmp_path / "ftp").iterdir()] == []


def test_processes_that_append_to_one_feed_lose_nothing(tmp_path: Path) -> None:
    """As with `%(batch)s_%(name)s_%(time)s` of two jobs that start in one second."""
    target = tmp_path / "items.jl"
    target.write_bytes(b"first\n")
    storages = [feeds.WholeFileStorage(str(target)) for _ in range(4)]
    files = [opened(storage) for storage in storages]
    for number, file in enumerate(files):
        file.write(b"%d\n" % number * 10_000)
    threads = [
        threading.Thread(target=storage.store, args=(file,)) for storage, file in zip(storages, files, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    lines = target.read_bytes().splitlines()
    assert lines[0] == b"first"
    assert sorted(lines[1:]) == sorted(b"%d" % number for number in range(4) for _ in range(10_000))
    assert [path.name for path in tmp_path.iterdir()] == ["items.jl"]


def test_the_target_of_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "items.jl").symlink_to(tmp_path / "there" / "latest.jl")
    storage = feeds.WholeFileStorage(str(tmp_path / "items.jl"))
    file = opened(storage)
    file.write(LINE)
    storage.store(file)
    assert (tmp_path / "items.jl").is_symlink()
    assert (tmp_path / "there" / "latest.jl").read_bytes() == LINE
    assert len([*(tmp_path / "there").iterdir()]) == 1


@pytest.mark.parametrize("moment", ["open", "items", "close"])
def test_a_crawl_that_is_killed_leaves_the_feed_as_it_was(tmp_path: Path, moment: str) -> None:
    target = tmp_path / "out.jl"
    target.write_text('{"number": 300}\n')
    with begin(tmp_path, "-o", f"{target}:jsonlines") as process:
        log = tmp_path / "log"
        mark = {"open": "Spider opened", "items": "Scraped from", "close": "Closing spider"}[moment]
        until(lambda: mark in log.read_text(), moment)
        process.kill()
        process.wait()
    assert numbers(target) in ([300], [*range(301)])


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """Address of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"ftp://user:secret@127.0.0.1:{server.getsockname()[1]}"


def test_an_ftp_server_that_says_nothing_does_not_keep_the_crawl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feeds, "_PAUSES", (0.0,))
    monkeypatch.setattr(feeds, "_FTP_SECONDS", 0.2)
    with silent() as address:
        storage = feeds.WholeFTPStorage(f"{address}/items.jl")
        file = opened(storage, FEED_TEMPDIR=str(tmp_path))
        file.write(LINE)
        with pytest.raises(TimeoutError):
            storage._store_in_thread(file)
    (kept,) = tmp_path.iterdir()
    assert kept.read_bytes() == LINE
    assert "secret" not in caplog.text


@contextlib.contextmanager
def ftp_at(folder: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-W", "ignore", "-c", FTP_SERVER, str(folder), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline()
        try:
            yield server
        finally:
            server.kill()


def test_an_ftp_server_that_dies_in_the_middle_of_an_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes back before the last try; until then nothing has the feed's name."""
    monkeypatch.setattr(feeds, "_PAUSES", (0.0, 8.0))
    stored, local = tmp_path / "ftp", tmp_path / "local"
    stored.mkdir()
    local.mkdir()
    (port,) = free_ports(1)
    size = 400 << 20
    storage = feeds.WholeFTPStorage(f"ftp://user:secret@127.0.0.1:{port}/items.jl")
    file = opened(storage, FEED_TEMPDIR=str(local))
    file.truncate(size)
    file.seek(size - 4)
    file.write(b"end\n")
    thread = threading.Thread(target=storage._store_in_thread, args=(file,), daemon=True)

    def begun() -> int:
        return sum(path.stat().st_size for path in stored.glob(".*.part"))

    with ftp_at(stored, port) as server:
        thread.start()
        until(lambda: begun() > 0, "the beginning of the upload")
        os.kill(server.pid, signal.SIGSTOP)
        assert 0 < begun() < size
        assert not (stored / "items.jl").exists()
        os.kill(server.pid, signal.SIGKILL)
    assert not (stored / "items.jl").exists()
    with ftp_at(stored, port):
        thread.join(60)
    assert [path.name for path in stored.iterdir()] == ["items.jl"]
    assert (stored / "items.jl").stat().st_size == size
    assert [*local.iterdir()] == []
