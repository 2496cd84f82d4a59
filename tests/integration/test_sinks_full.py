"""No room: nothing of the batch counts, and it may be written again once there is room."""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gossamer.errors import SinkError, SinkFull
from gossamer.sinks.base import Fanout
from gossamer.sinks.jsonl import StdoutSink
from gossamer.sinks.open import open_sinks
from tests.integration.sink_writer import page
from tests.integration.test_sinks_killed import WRITER, ids_in


@pytest.fixture
def small_disk():
    """A file system of one megabyte."""
    folder = Path(tempfile.mkdtemp())
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        folder.rmdir()
        pytest.skip("a small file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".warc", ".warc.gz"])
async def test_a_full_disk_takes_nothing_of_a_batch_and_all_of_it_later(small_disk, suffix):
    path = small_disk / f"pages{suffix}"
    ballast = small_disk / "ballast"
    ballast.write_bytes(os.urandom(600_000))
    sink = Fanout(open_sinks([str(path)], spool_dir=small_disk / "spool"))
    await sink.write([page("r1")])
    before = path.read_bytes()
    size = 300_000 if suffix.endswith(("gz", "zst")) else 150_000  # hexadecimal digits compress to a half
    batch = [page(name, os.urandom(size).hex()) for name in ("r2", "r3")]
    for _ in range(2):
        with pytest.raises(SinkFull, match="No space left"):
            await sink.write(batch)
        assert path.read_bytes() == before
    ballast.unlink()
    await sink.write(batch)
    await sink.close()
    assert ids_in(path) == {"r1": 1, "r2": 1, "r3": 1}


async def test_a_database_without_room_takes_nothing_of_a_batch_and_all_of_it_later(small_disk):
    path, ballast = small_disk / "pages.sqlite", small_disk / "ballast"
    ballast.write_bytes(os.urandom(600_000))
    sink = Fanout(open_sinks([str(path)], spool_dir=small_disk / "spool"))
    await sink.write([page("r1")])
    batch = [page(name, os.urandom(150_000).hex()) for name in ("r2", "r3")]
    for _ in range(2):
        with pytest.raises(SinkFull, match="full"):
            await sink.write(batch)
        assert ids_in(path) == {"r1": 1}
    ballast.unlink()
    await sink.write(batch)
    await sink.close()
    assert ids_in(path) == {"r1": 1, "r2": 1, "r3": 1}


async def test_a_parquet_file_without_room_keeps_its_spool(small_disk, tmp_path):
    pytest.importorskip("pyarrow")
    path, ballast = small_disk / "pages.parquet", small_disk / "ballast"
    ballast.write_bytes(os.urandom(900_000))
    sink = Fanout(open_sinks([str(path)], spool_dir=tmp_path))
    await sink.write([page("r1", os.urandom(200_000).hex())])
    with pytest.raises(SinkFull, match="run the same command again"):
        await sink.close()
    assert not path.exists()
    ballast.unlink()
    await sink.close()
    assert ids_in(path) == {"r1": 1}
    assert [entry.name for entry in small_disk.iterdir()] == ["pages.parquet"]


def test_a_file_size_limit_leaves_whole_batches(tmp_path):
    path = tmp_path / "pages.jsonl"
    command = [sys.executable, str(WRITER), str(path), str(tmp_path), "w", "100", "20000"]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))  # noqa: E731
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 1
    assert "SinkError: The output could not be written" in done.stderr
    assert list(ids_in(path)) == done.stdout.split()


async def test_a_directory_in_the_files_place(tmp_path):
    path = tmp_path / "pages.jsonl"
    sink = Fanout(open_sinks([str(path)], spool_dir=tmp_path))
    path.mkdir()
    batch = [page("r1")]
    with pytest.raises(SinkError, match="directory") as caught:
        await sink.write(batch)
    assert not isinstance(caught.value, SinkFull)
    path.rmdir()
    await sink.write(batch)
    await sink.close()
    assert ids_in(path) == {"r1": 1}


async def test_standard_output_writes_whole_lines(tmp_path):
    with (tmp_path / "out").open("w+b") as stream:
        sinks = [StdoutSink(tmp_path, os.dup(stream.fileno())) for _ in range(2)]
        for number in range(4):
            await sinks[number % 2].write([page(f"r{number}", "x" * 100_000)])
        for sink in sinks:
            await sink.close()
    assert list(ids_in((tmp_path / "out").rename(tmp_path / "out.jsonl"))) == ["r0", "r1", "r2", "r3"]


async def test_a_reader_that_went_away():
    reader, writer = os.pipe()
    os.close(reader)
    sink = StdoutSink(None, writer)
    with pytest.raises(SinkError, match="Broken pipe"):
        await sink.write([page("r1")])
    await sink.close()
    os.close(writer)


async def test_standard_output_on_a_full_disk(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(os.urandom(900_000))
    with (small_disk / "out.jsonl").open("wb") as stream:
        sink = StdoutSink(None, stream.fileno())
        await sink.write([page("r1")])
        batch = [page("r2", "x" * 300_000)]
        with pytest.raises(SinkFull):
            await sink.write(batch)
        ballast.unlink()
        await sink.write(batch)
        await sink.close()
    assert ids_in(small_disk / "out.jsonl") == {"r1": 1, "r2": 1}
