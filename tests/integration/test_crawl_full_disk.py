"""An output without room: the crawl pauses, says so, loses nothing, and goes on when there is room."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from pyarrow import parquet

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb import fetches, graph
from tests.servers.crawling import FAST_FLAGS, command, gossamer, records_of, resolving
from tests.servers.small_disk import a_disk, full
from tests.servers.small_disk import small_disk as small_disk
from tests.servers.valkey import wait_until


def test_a_full_disk_pauses_the_crawl(small_disk: Path, tmp_path: Path) -> None:
    output = small_disk / "pages.jsonl"
    with FakeWeb.start(WebSpec(hosts=1, pages=150)) as web:
        process = subprocess.Popen(
            [
                *command("crawl", web.url(), "-o", str(output), "--json"),
                *resolving(web.resolve_overrides()),
                *FAST_FLAGS,
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr
        said = process.stderr.readline()
        assert "no room" in said
        assert "nothing is lost" in said
        assert process.poll() is None
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        _, rest = process.communicate(timeout=60)
        assert process.returncode == 0, rest
        assert "going on" in rest
        urls = [record.url for record in records_of(output)]
        assert len(urls) == len(set(urls))
        assert set(urls) == graph(web.site)
        assert max(fetches(web.log()).values()) == 1


def test_one_disk_for_everything(tmp_path: Path) -> None:
    """The data directory is beside the output: its server cannot log a step, and ends. With room it is back."""
    complaints = tmp_path / "complaints"
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(a_disk(tmp_path / "disk", "8m"))
        web = stack.enter_context(FakeWeb.start(WebSpec(hosts=1, pages=150, page_bytes=2000)))
        log = stack.enter_context(complaints.open("wb"))
        process = subprocess.Popen(
            [*command("crawl", web.url(), "--json", "--rate", "30/1"), *resolving(web.resolve_overrides())],
            cwd=disk,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "GOSSAMER_WORKER__HEARTBEAT": "1"},
        )
        try:
            wait_until(lambda: web.stats().requests > 20, "the crawl to be under way")
            with full(disk):
                wait_until(lambda: "server died" in complaints.read_text(), "the server to be missed")
                assert process.poll() is None
            assert process.wait(60) == 0, complaints.read_text()
        finally:
            process.kill()
            process.wait()
        said = complaints.read_text().splitlines()
        assert "gossamer: the frontier's server is back" in said
        [full_disk] = [line for line in said if "server died" in line]
        assert full_disk.startswith(f"gossamer: the disk of the data directory {disk}")
        assert len(said) < 10, "it is not said at every attempt"
        urls = [record.url for record in records_of(disk / "site0.test.jsonl")]
        assert len(urls) == len(set(urls))
        assert set(urls) == graph(web.site)


def test_a_crawl_is_interrupted_while_its_data_directory_has_no_room(tmp_path: Path) -> None:
    """The disk is named before that, in one short sentence; then the summary says how to go on."""
    complaints = tmp_path / "complaints"
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(a_disk(tmp_path / "disk", "8m"))
        web = stack.enter_context(FakeWeb.start(WebSpec(hosts=1, pages=150, page_bytes=2000)))
        log = stack.enter_context(complaints.open("wb"))
        flags = ("--rate", "30/1", "--data-dir", str(disk / "data"), *resolving(web.resolve_overrides()))
        process = subprocess.Popen(
            command("crawl", web.url(), *flags), cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            wait_until(lambda: web.stats().requests > 20, "the crawl to be under way")
            with full(disk):
                wait_until(lambda: "server died" in complaints.read_text(), "the server to be missed")
                process.send_signal(signal.SIGINT)
                out, _ = process.communicate(timeout=60)
                assert process.returncode == 130, out
                assert "was interrupted; nothing is lost." in out
                assert "Resume with: gossamer crawl" in out
                refused = gossamer("crawl", web.url(), *flags, cwd=tmp_path)
                assert refused.returncode == 2
                last = refused.stderr.splitlines()[-1]
                assert last.startswith(f"gossamer: --data-dir: the disk of the data directory {disk / 'data'} is full.")
                assert "Traceback" not in refused.stderr
            said = complaints.read_text()
            assert f"the disk of the data directory {disk / 'data'} is full" in said
            assert "is back" not in said
            again = gossamer("crawl", web.url(), *flags, cwd=tmp_path)
            assert again.returncode == 0, again.stderr
        finally:
            process.kill()
            process.wait()
        # A page that was written and could not be settled has another record.
        assert {record.url for record in records_of(tmp_path / "site0.test.jsonl")} == graph(web.site)


def test_an_output_that_found_no_room_is_finished_by_the_same_command(small_disk: Path, tmp_path: Path) -> None:
    """A Parquet file is made at the end: the crawl is done by then, its records wait in the data directory."""
    output = small_disk / "pages.parquet"
    (small_disk / "fill").write_bytes(bytes(500 * 1024))
    with FakeWeb.start(WebSpec(hosts=1, pages=20)) as web:
        flags = (web.url(), "-o", str(output), *resolving(web.resolve_overrides()), *FAST_FLAGS)
        first = gossamer("crawl", *flags, cwd=tmp_path)
        assert first.returncode == 1
        assert "is finished" in first.stdout
        assert "run the same command again" in first.stdout
        assert not output.exists()
        (small_disk / "fill").unlink()
        again = gossamer("crawl", *flags, cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert "already finished" in again.stdout
        assert set(parquet.read_table(output, columns=["url"])["url"].to_pylist()) == graph(web.site)
