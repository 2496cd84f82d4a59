"""Logs and items of nodes elsewhere: nothing is lost, kept twice or cut off, whatever is repeated and killed.

On SQLite with a folder, and on PostgreSQL with a real S3 server.
"""

import asyncio
import os
import random
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Row, select, text, update

from gossamer.errors import BadInput
from gossamer.storage.objects import MARKER, ObjectStorage
from gossamer_platform.link import UnknownAttempt
from gossamer_platform.manager.chunk_files import ChunkFiles
from gossamer_platform.manager.chunk_store import ChunkStore
from gossamer_platform.manager.files import FileKind, read_part
from gossamer_platform.manager.storage import open_platform_storage
from gossamer_platform.outcome import AttemptEnd
from gossamer_platform.policy import JobPolicy
from gossamer_platform.state import chunks, jobs, projects
from gossamer_platform.state.chunks import FileKey
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.dispatch import JobTaker, take_jobs
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.tables import chunks as chunk_table
from gossamer_platform.state.tables import job_files
from gossamer_platform.state.tables import jobs as job_table
from gossamer_platform.v1.items import ItemReader
from tests.servers.s3 import S3Server


@pytest.fixture
def address(url: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder for SQLite, an address of S3 for PostgreSQL."""
    if url.startswith("sqlite"):
        return str(tmp_path / "storage")
    server: S3Server = request.getfixturevalue("one_s3_server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://platform/{uuid.uuid4().hex}"


@pytest.fixture
async def storage(database: StateDatabase, address: str) -> ObjectStorage:
    return await open_platform_storage(database, address)


@pytest.fixture
def store(database: StateDatabase, storage: ObjectStorage) -> ChunkStore:
    return ChunkStore(database, storage)


@pytest.fixture
async def job(database: StateDatabase) -> int:
    """A job whose first attempt the node `n` has."""

    def add(connection: Any) -> int:
        number = projects.add_version(connection, "shop", "1", digest="d", file="shop/1.egg")
        projects.take_listing(connection, "node")
        assert projects.record_listing(connection, number, incarnation="node", spiders=["a"], fault="")
        added = jobs.add_job(connection, NewJob("shop", "a", "job", policy=JobPolicy(retries=1)))
        assert take_jobs(connection, JobTaker("n", "c", 100), free=1)
        return added

    return await database.write(add)


async def _row(database: StateDatabase, job: int) -> Row[Any]:
    row = await database.read(lambda connection: jobs.find_job(connection, job))
    assert row is not None
    return row


async def _content(database: StateDatabase, store: ChunkStore, job: int, kind: FileKind = FileKind.LOG) -> bytes:
    row = await _row(database, job)
    return await asyncio.to_thread(read_part, ChunkFiles(store), row, kind, 0, slice(0, None))


async def _count(database: StateDatabase) -> int:
    return len(await database.read(lambda c: c.execute(select(chunk_table.c.id)).all()))


async def test_parts_that_are_repeated_overlap_or_come_out_of_order_are_kept_once(
    database: StateDatabase, store: ChunkStore, job: int
) -> None:
    content = random.Random(5).randbytes(200_000)
    key = FileKey(job, 1, "log")

    def send(offset: int, length: int) -> int:
        return store.append("n", key, offset, content[offset : offset + length])

    def run() -> None:
        assert send(0, 0) == 0
        assert send(50_000, 10) == 0  # a gap: the node continues at the end
        assert send(0, 70_000) == 70_000
        assert send(0, 70_000) == 70_000
        assert send(10, 20) == 70_000
        assert send(60_000, 60_000) == 120_000
        assert send(120_000, 80_000) == 200_000
        assert send(0, 200_000) == 200_000

    await asyncio.to_thread(run)
    assert await _content(database, store, job) == content
    assert await _count(database) == 3
    row, files = await _row(database, job), ChunkFiles(store)
    for start, stop in [(0, 1), (69_999, 70_001), (0, 200_000), (119_000, 300_000), (200_000, 200_001)]:
        assert (
            await asyncio.to_thread(read_part, files, row, FileKind.LOG, 0, slice(start, stop)) == content[start:stop]
        )
    assert await asyncio.to_thread(files.open, row, FileKind.ITEMS, 0) is None


async def test_two_managers_receive_the_same_parts_at_once(
    database: StateDatabase, storage: ObjectStorage, url: str, job: int
) -> None:
    other = StateDatabase(url)
    stores = [ChunkStore(database, storage), ChunkStore(other, storage)]
    content = random.Random(6).randbytes(20_000)
    key = FileKey(job, 1, "log")

    def send(store: ChunkStore, seed: int) -> None:
        chance, end = random.Random(seed), 0
        while end < len(content):
            start = max(0, end - chance.randrange(500))
            end = store.append("n", key, start, content[start : start + chance.randrange(1, 2000)])

    await asyncio.gather(*(asyncio.to_thread(send, stores[n % 2], n) for n in range(4)))
    assert await _content(database, stores[0], job) == content
    # Whoever came second has deleted its own object again.
    rows = await database.read(lambda c: c.execute(select(chunk_table.c.object)).all())
    assert sorted(await asyncio.to_thread(storage.names, "files")) == sorted(row.object for row in rows)
    await other.close()


async def test_a_gap_that_stays_is_marked_with_its_length(database: StateDatabase, store: ChunkStore, job: int) -> None:
    def run() -> None:
        for kind, line in (("log", b"line\n"), ("items", b'{"n": 1}\n')):
            key = FileKey(job, 1, kind)
            assert store.append("n", key, 0, line * 2 + b'{"n"') == 2 * len(line) + 4
            assert store.append("n", key, 1000, line) == 2 * len(line) + 4
            assert store.append("n", key, 1000, line, lost=True) == 1000 + len(line)
            assert store.append("n", key, 1000, line, lost=True) == 1000 + len(line)
            assert store.append("n", key, 1000 + len(line), line) == 1000 + 2 * len(line)

    await asyncio.to_thread(run)
    log = await _content(database, store, job)
    assert log == b'line\nline\n{"n"\n[986 bytes of this log are lost]\nline\nline\n'
    reader = ItemReader(ChunkFiles(store), await _row(database, job), 0)
    found = await asyncio.to_thread(reader.range, 0, 10)
    assert [(each.number, each.item["n"]) for each in found] == [(0, 1), (1, 1), (3, 1), (4, 1)]
    rows = await database.read(lambda c: c.execute(select(job_files.c.missing)).all())
    assert {row.missing for row in rows} == {1000 - 14, 1000 - 22}


async def test_only_the_node_of_an_attempt_may_send_its_files(
    database: StateDatabase, store: ChunkStore, job: int
) -> None:
    def send(node: str, attempt: int, content: bytes) -> int:
        return store.append(node, FileKey(job, attempt, "log"), 0, content)

    for node, attempt in (("other", 1), ("n", 2)):
        with pytest.raises(UnknownAttempt):
            await asyncio.to_thread(send, node, attempt, b"x")
    with pytest.raises(UnknownAttempt):
        await asyncio.to_thread(store.append, "n", FileKey(job + 1, 1, "log"), 0, b"x")

    def fail_and_take_again(connection: Any) -> None:
        jobs.record_start(connection, job, 1, pid=1)
        jobs.record_end(connection, job, 1, AttemptEnd(exit_code=1))
        connection.execute(update(job_table).values(not_before=None))
        assert take_jobs(connection, JobTaker("m", "d", 100), free=1)

    await database.write(fail_and_take_again)
    # The rest of the first attempt, whose end was reported already, and the second one on another node.
    assert await asyncio.to_thread(send, "n", 1, b"first") == 5
    assert await asyncio.to_thread(send, "m", 2, b"second") == 6
    row, files = await _row(database, job), ChunkFiles(store)
    assert await asyncio.to_thread(read_part, files, row, FileKind.LOG, 1, slice(0, None)) == b"first"
    assert await asyncio.to_thread(read_part, files, row, FileKind.LOG, 0, slice(0, None)) == b"second"


async def test_what_exceeds_the_limit_of_a_job_by_far_is_not_kept(
    database: StateDatabase, store: ChunkStore, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer_platform.manager.chunk_store._EXCESS_BYTES", 1000)
    await database.write(lambda c: c.execute(update(job_table).values(file_limit=1000)))
    key = FileKey(job, 1, "log")
    for offset in range(0, 10_000, 500):
        assert await asyncio.to_thread(store.append, "n", key, offset, b"x" * 500) == offset + 500
    assert len(await _content(database, store, job)) == 2000


_KILLED = """
import os, sys
from gossamer_platform.manager.chunk_store import ChunkStore
from gossamer_platform.state import chunks
from gossamer_platform.state.chunks import FileKey
from gossamer_platform.state.database import StateDatabase
from gossamer.storage.objects import open_storage
url, address, job, when = sys.argv[1:]
store = ChunkStore(StateDatabase(url), open_storage(address))
def die(*_, **__):
    os.kill(os.getpid(), 9)
if when == "add":
    chunks.add_chunk = die
elif when == "replace":
    chunks.replace_chunks = die
if when == "add":
    store.append("n", FileKey(int(job), 1, "log"), 2000, b"c" * 1000)
else:
    store.maintain()
"""


async def _kill(url: str, address: str, job: int, when: str) -> None:
    command = [sys.executable, "-c", _KILLED, url, address, str(job), when]
    killed = await asyncio.to_thread(subprocess.run, command, env=dict(os.environ), capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr


async def test_a_kill_between_object_and_row_loses_and_doubles_nothing(
    database: StateDatabase, store: ChunkStore, storage: ObjectStorage, url: str, address: str, job: int
) -> None:
    key = FileKey(job, 1, "log")

    def append(offset: int, content: bytes) -> int:
        return store.append("n", key, offset, content)

    await asyncio.to_thread(append, 0, b"a" * 1000)
    await asyncio.to_thread(append, 1000, b"b" * 1000)
    await _kill(url, address, job, "add")
    assert len(await asyncio.to_thread(storage.names, "files")) == 3  # the third is named by no row
    assert await _content(database, store, job) == b"a" * 1000 + b"b" * 1000
    assert await asyncio.to_thread(append, 2000, b"c" * 1000 + b"d") == 3001
    expected = b"a" * 1000 + b"b" * 1000 + b"c" * 1000 + b"d"
    assert await _content(database, store, job) == expected

    def end(connection: Any) -> None:
        jobs.record_start(connection, job, 1, pid=1)
        connection.execute(update(job_table).values(retries_left=0))
        jobs.record_end(connection, job, 1, AttemptEnd(exit_code=1))

    await database.write(end)
    await _kill(url, address, job, "replace")
    assert await _content(database, store, job) == expected
    await asyncio.to_thread(store.maintain)  # the lease of the killed manager is valid still
    assert await _count(database) == 3
    await database.write(lambda c: c.execute(update(job_files).values(leased_until=0.0)))
    await asyncio.to_thread(store.maintain)
    assert await _count(database) == 1
    assert await _content(database, store, job) == expected
    # The objects that were replaced stay for readers that have begun; then they go, with those of the killed.
    assert len(await asyncio.to_thread(storage.names, "files")) == 6
    await database.write(lambda c: c.execute(update(job_files).values(sweep_at=0.0)))
    await asyncio.to_thread(store.maintain)
    assert len(await asyncio.to_thread(storage.names, "files")) == 1
    assert await _content(database, store, job) == expected


async def test_a_file_that_grows_is_merged_and_read_by_number_all_the_time(
    database: StateDatabase, store: ChunkStore, url: str, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 200 if url.startswith("sqlite") else 60  # S3 is slower
    monkeypatch.setattr("gossamer_platform.manager.chunk_store.MERGED_BYTES", 6000 if count == 200 else 2000)
    monkeypatch.setattr("gossamer.storage.line_index.INTERVAL_BYTES", 1000)
    chance, content = random.Random(7), b""
    lines = [b'{"n": %d, "pad": "%s"}\n' % (n, b"x" * chance.randrange(200)) for n in range(count)]
    whole = b"".join(lines)
    row, key = await _row(database, job), FileKey(job, 1, "items")
    most = 0
    while len(content) < len(whole):
        part = whole[len(content) : len(content) + chance.randrange(1, 1500)]
        assert await asyncio.to_thread(store.append, "n", key, len(content), part) == len(content) + len(part)
        content += part
        await asyncio.to_thread(store.maintain)
        most = max(most, await _count(database))
        complete = content.count(b"\n")
        start = chance.randrange(complete + 1)
        found = await asyncio.to_thread(ItemReader(ChunkFiles(store), row, 0).range, start, 2)
        assert [each.item["n"] for each in found] == list(range(start, min(start + 2, complete)))
    assert 5 < most < 30
    assert await _content(database, store, job, FileKind.ITEMS) == whole


async def test_retention_waits_for_readers(database: StateDatabase, store: ChunkStore, storage: Any, job: int) -> None:
    key = FileKey(job, 1, "log")
    await asyncio.to_thread(store.append, "n", key, 0, b"a" * 1000)
    row, files = await _row(database, job), ChunkFiles(store)
    reading = await asyncio.to_thread(files.open, row, FileKind.LOG, 0)
    assert reading is not None
    await asyncio.to_thread(store.keep_reading, (await asyncio.to_thread(store.find, key)).id)  # type: ignore[union-attr]
    await asyncio.to_thread(files.delete, row, FileKind.LOG)
    assert await asyncio.to_thread(files.open, row, FileKind.LOG, 0) is None
    await database.write(lambda c: c.execute(update(job_files).values(deleted_at=1.0)))
    await asyncio.to_thread(store.maintain)
    assert await asyncio.to_thread(reading.read, 0, 2000) == b"a" * 1000
    # What the node sends now is of no use, and is not asked for again.
    assert await asyncio.to_thread(store.append, "n", key, 1000, b"b" * 10) == 1010
    await database.write(lambda c: c.execute(update(job_files).values(read_until=1.0)))
    await asyncio.to_thread(store.maintain, lambda: True)
    assert await asyncio.to_thread(storage.names, "files") != [], "the manager stops"
    await asyncio.to_thread(store.maintain)
    assert await asyncio.to_thread(storage.names, "files") == []
    assert await database.read(lambda c: c.execute(select(job_files)).all()) == []


async def test_a_storage_belongs_to_one_database(
    database: StateDatabase, storage: ObjectStorage, address: str, tmp_path: Path
) -> None:
    again = await open_platform_storage(database, address)  # another manager on the same database
    assert await asyncio.to_thread(again.exists, MARKER)
    with pytest.raises(BadInput, match=f"has no {MARKER}"):
        await open_platform_storage(database, str(tmp_path / "elsewhere"))
    other = StateDatabase(f"sqlite:///{tmp_path}/other.db")
    await other.migrate()
    with pytest.raises(BadInput, match="belongs to another database"):
        await open_platform_storage(other, address)
    await other.close()


async def test_the_lease_of_a_merge_that_took_too_long_is_worth_nothing(
    database: StateDatabase, store: ChunkStore, job: int
) -> None:
    key = FileKey(job, 1, "log")
    for offset in (0, 10):
        await asyncio.to_thread(store.append, "n", key, offset, b"x" * 10)
    file = await asyncio.to_thread(store.find, key)
    assert file is not None
    assert await database.write(lambda c: chunks.lease_file(c, file.id, "slow")) is not None
    assert await database.write(lambda c: chunks.lease_file(c, file.id, "fast")) is None
    await database.write(lambda c: c.execute(update(job_files).values(leased_until=0.0)))
    assert await database.write(lambda c: chunks.lease_file(c, file.id, "fast")) is not None
    old = await database.read(lambda c: chunks.file_chunks(c, file.id))
    new = chunks.NewChunk("object", 20, 0, [])
    assert not await database.write(lambda c: chunks.replace_chunks(c, file.id, "slow", old, new))
    await database.write(lambda c: chunks.release_file(c, file.id, "slow"))
    assert await database.read(lambda c: chunks.has_lease(c, file.id, "fast"))
    assert await database.read(lambda c: c.execute(text("SELECT count(*) FROM chunk")).scalar()) == 2


async def test_a_missing_object_keeps_no_other_file_from_being_merged_and_deleted(
    database: StateDatabase, store: ChunkStore, storage: ObjectStorage, job: int, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = FileKey(job, 1, "log"), FileKey(job, 1, "items")
    for offset in range(0, 30, 10):
        await asyncio.to_thread(store.append, "n", broken, offset, b"a" * 10)
        await asyncio.to_thread(store.append, "n", other, offset, b"b" * 10)
    # The broken file has more new chunks, so it comes first.
    await asyncio.to_thread(store.append, "n", broken, 30, b"a")
    await database.write(lambda c: c.execute(update(job_files).values(added=job_files.c.added + 1000)))
    names = await asyncio.to_thread(storage.names, f"files/{job}/1/log")
    await asyncio.to_thread(storage.delete, names[0])
    for _ in range(2):
        await asyncio.to_thread(store.maintain)
    assert await _count(database) == 4 + 1
    assert len([line for line in caplog.messages if "object is missing" in line]) == 1
    await asyncio.to_thread(store.hide, [job], "log")
    await database.write(lambda c: c.execute(update(job_files).values(deleted_at=1.0, read_until=1.0)))
    await asyncio.to_thread(store.maintain)
    assert await asyncio.to_thread(storage.names, f"files/{job}/1/log") == []
