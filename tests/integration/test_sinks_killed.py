"""Writers are killed at any moment: what they called durable is there, and every standard reader reads the file."""

import csv
import json
import random
import resource
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from gossamer.sinks.base import Fanout
from gossamer.sinks.jsonl import read_records
from gossamer.sinks.open import open_sinks
from tests.integration.sink_writer import page

WRITER = Path(__file__).with_name("sink_writer.py")
ALL = [".jsonl", ".jsonl.gz", ".jsonl.zst", ".warc", ".warc.gz", ".parquet", ".csv", ".json", ".sqlite"]
SPOOLED = [".parquet", ".json"]
READERS = {".jsonl": ["jq", "-e", ".type"], ".jsonl.gz": ["gzip", "-t"], ".jsonl.zst": ["zstd", "-tq"]}


def start(path, spool, name, batches=10_000, body_bytes=60_000):
    command = [sys.executable, str(WRITER), str(path), str(spool), name, str(batches), str(body_bytes)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ids_in(path):
    """How often each page is in the file, by a reader that is not ours where there is one."""
    if ".warc" in path.name:
        with path.open("rb") as stream:
            records = [(r.rec_type, r.raw_stream.read()) for r in ArchiveIterator(stream, check_digests="raise")]
        assert records[0][0] == "warcinfo"
        return Counter(json.loads(body)["request_id"] for kind, body in records if kind == "metadata")
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as stream:
            return Counter(row["request_id"] for row in csv.DictReader(stream, strict=True))
    if path.suffix == ".json":
        return Counter(record["request_id"] for record in json.loads(path.read_bytes()))
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return Counter(request_id for (request_id,) in connection.execute("SELECT request_id FROM pages"))
    if path.suffix != ".parquet":
        command = next(command for suffix, command in READERS.items() if path.name.endswith(suffix))
        subprocess.run([*command, str(path)], check=True, stdout=subprocess.DEVNULL)
    else:
        pq = pytest.importorskip("pyarrow.parquet")
        return Counter(pq.read_table(path, columns=["request_id"])["request_id"].to_pylist())
    return Counter(record.request_id for record in read_records(path))


@pytest.mark.parametrize("suffix", ALL)
async def test_nothing_durable_is_lost_by_killed_writers(tmp_path, suffix):
    dice = random.Random(suffix)
    path, spool = tmp_path / f"pages{suffix}", tmp_path / "spool"
    durable = set()
    for generation in range(2):
        writers = [start(path, spool, f"w{generation}.{number}") for number in range(2)]
        try:
            for writer in writers:
                for _ in range(dice.randint(1, 12)):
                    durable.update(writer.stdout.readline().split())
            for writer in writers:
                writer.kill()
                durable.update(" ".join(writer.stdout.read().splitlines(keepends=True)).split())
        finally:
            for writer in writers:
                writer.kill()
                writer.wait()
                writer.stdout.close()
    sink = Fanout(open_sinks([str(path)], spool_dir=spool))
    await sink.write([page("last")])
    await sink.close()
    found = ids_in(path)
    assert durable <= set(found)
    assert set(found.values()) == {1}
    assert found["last"] == 1


@pytest.mark.parametrize("suffix", [suffix for suffix in ALL if suffix != ".sqlite"])
async def test_a_writer_killed_in_the_middle_of_a_write_leaves_a_tail_that_the_next_one_cuts(tmp_path, suffix):
    """The kernel kills at an exact byte: the file may grow no further."""
    dice = random.Random(suffix)
    path, spool = tmp_path / f"pages{suffix}", tmp_path / "spool"
    durable = set()
    size = 0
    for generation in range(3):
        limit = size + dice.randint(1, 60_000)
        durable.update(write_until_killed(path, spool, f"w{generation}", limit))
        (written,) = spool.rglob("spool.*") if suffix in SPOOLED else [path]
        size = written.stat().st_size
        assert size == limit  # torn at a byte of the dice's choice
    sink = Fanout(open_sinks([str(path)], spool_dir=spool))
    await sink.write([page("last")])
    await sink.close()
    found = ids_in(path)
    assert durable | {"last"} <= set(found)
    assert set(found.values()) == {1}


async def test_a_writer_killed_in_the_middle_of_a_transaction_leaves_what_was_durable(tmp_path):
    path, spool = tmp_path / "pages.sqlite", tmp_path / "spool"
    durable = set()
    for generation in range(4):
        durable.update(write_until_killed(path, spool, f"w{generation}", 100_000 * (generation + 1) + 1_234))
    sink = Fanout(open_sinks([str(path)], spool_dir=spool))
    await sink.write([page("last")])
    await sink.close()
    found = ids_in(path)
    assert durable | {"last"} <= set(found)
    assert len(durable) > 10
    assert set(found.values()) == {1}
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["pages.sqlite"]


def write_until_killed(path, spool, name, limit):
    """The ids that the writer called durable before a file reached `limit` bytes."""
    command = [sys.executable, str(WRITER), str(path), str(spool), name, "1000", "9000", "die-at-limit"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=partial(limit_files, limit))
    assert done.returncode == -signal.SIGXFSZ
    return done.stdout.split()


def limit_files(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@pytest.mark.parametrize("suffix", [suffix for suffix in ALL if suffix != ".warc"])
def test_processes_that_end_well_leave_one_whole_file(tmp_path, suffix):
    path = tmp_path / "deep" / f"pages{suffix}"
    writers = [start(path, tmp_path / "spool", f"w{number}", batches=15, body_bytes=5_000) for number in range(3)]
    written = set()
    for writer in writers:
        out, _ = writer.communicate()
        assert writer.returncode == 0
        written.update(out.split())
    found = ids_in(path)
    assert set(found) == written
    assert set(found.values()) == {1}


async def test_a_file_moved_away_is_made_anew(tmp_path):
    path = tmp_path / "pages.jsonl"
    sink = Fanout(open_sinks([str(path)], spool_dir=tmp_path))
    await sink.write([page("r1")])
    path.rename(tmp_path / "old.jsonl")
    await sink.write([page("r2")])
    await sink.write([page("r3")])
    await sink.close()
    assert [r.request_id for r in read_records(tmp_path / "old.jsonl")] == ["r1"]
    assert [r.request_id for r in read_records(path)] == ["r2", "r3"]


async def test_a_last_line_without_its_newline_is_kept(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_bytes(b'{"mine":1}\n{"mine":2}')
    sink = Fanout(open_sinks([str(path)], spool_dir=tmp_path))
    await sink.write([page("r1")])
    await sink.close()
    assert [json.loads(line).get("mine") for line in path.read_text().splitlines()] == [1, 2, None]
