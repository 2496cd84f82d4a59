"""The node's uploader, with a manager in the same process: what it sends, when it waits, what it deletes."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gossamer_platform.link import AttemptId, ManagerUnavailable, UnknownAttempt
from gossamer_platform.node import uploads
from gossamer_platform.node.uploads import FileUploader

_ATTEMPT = AttemptId(7, 1)


class Received:
    """A manager's files, by the rules of the call: parts that leave a gap are not kept unless the rest is lost."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {"log": bytearray(), "items": bytearray()}
        self.ends = {"log": 0, "items": 0}
        self.lost = 0
        self.is_away = False
        self.knows = True
        self.changed = asyncio.Event()

    async def send(self, attempt: AttemptId, kind: str, offset: int, content: bytes, lost: bool) -> int:
        await asyncio.sleep(0)
        assert len(content) <= uploads.PART_BYTES
        if self.is_away:
            self.changed.set()
            raise ManagerUnavailable("away")
        if not self.knows:
            raise UnknownAttempt("unknown")
        end = self.ends[kind]
        if offset + len(content) > end and (offset <= end or lost):
            self.lost += max(0, offset - end)
            self.files[kind] += content[max(0, end - offset) :]
            self.ends[kind] = offset + len(content)
        self.changed.set()
        return self.ends[kind]


@pytest.fixture
def manager() -> Received:
    return Received()


class Node:
    """An uploader with its folders."""

    def __init__(self, folder: Path, manager: Received) -> None:
        self.files = folder / "files" / "7-1"
        self.attempts = folder / "attempts"
        self._manager = manager
        self._folder = folder
        self.start()

    def start(self) -> None:
        self.stopping = asyncio.Event()
        self.uploader = FileUploader(self._folder / "files", self.attempts, self._manager.send)
        self.running = asyncio.create_task(self.uploader.run(self.stopping))

    def begin(self) -> None:
        self.uploader.begin(_ATTEMPT, str(self.files / "log"), str(self.files / "items.jl"))

    async def stop(self) -> None:
        self.stopping.set()
        await self.running


@pytest.fixture
async def node(tmp_path: Path, manager: Received, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(uploads, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(uploads, "_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(uploads, "_RETRY_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(uploads, "PART_BYTES", 1000)
    made = Node(tmp_path, manager)
    made.files.mkdir(parents=True)
    yield made
    await made.stop()


async def _until(manager: Received, kind: str, content: bytes) -> None:
    async with asyncio.timeout(30):
        while bytes(manager.files[kind]) != content:
            manager.changed.clear()
            await manager.changed.wait()


async def test_files_are_sent_while_they_grow_and_deleted_when_the_manager_has_them(
    node: Node, manager: Received
) -> None:
    node.begin()
    log = b""
    with (node.files / "log").open("ab", buffering=0) as file:
        for number in range(5):
            part = b"%d" % number * 1500
            file.write(part)
            log += part
            await _until(manager, "log", log)
        (node.files / "items.jl").write_bytes(b'{"n": 1}\n')
        file.write(b"the end")
    await node.uploader.complete(_ATTEMPT)
    assert bytes(manager.files["log"]) == log + b"the end"
    assert bytes(manager.files["items"]) == b'{"n": 1}\n'
    assert not node.files.exists()


async def test_an_outage_loses_nothing_and_the_end_waits_for_a_limited_time(
    node: Node, manager: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_END_SECONDS", 0.1)
    manager.is_away = True
    node.begin()
    (node.files / "log").write_bytes(b"x" * 5000)
    await node.uploader.complete(_ATTEMPT)  # comes back although nothing could be sent
    assert node.files.exists()
    manager.is_away = False
    await _until(manager, "log", b"x" * 5000)


async def test_a_node_that_starts_again_continues_where_the_manager_is(node: Node, manager: Received) -> None:
    node.begin()
    (node.files / "log").write_bytes(b"a" * 1500)
    await _until(manager, "log", b"a" * 1500)
    await node.stop()
    (node.files / "log").write_bytes(b"a" * 1500 + b"b" * 1500)
    (node.attempts / "7-1").mkdir(parents=True)
    node.start()
    node.begin()  # the agent has adopted it
    await _until(manager, "log", b"a" * 1500 + b"b" * 1500)
    await node.uploader.complete(_ATTEMPT)
    assert not node.files.exists()


async def test_what_an_earlier_process_has_left_is_sent(node: Node, manager: Received) -> None:
    await node.stop()
    (node.files / "log").write_bytes(b"left")
    node.start()  # no attempt of this name is in the agent's folder
    await _until(manager, "log", b"left")


async def test_a_file_that_the_job_cuts_off_goes_on_in_the_managers(node: Node, manager: Received) -> None:
    node.begin()
    (node.files / "log").write_bytes(b"a" * 2500)
    await _until(manager, "log", b"a" * 2500)
    (node.files / "log").write_bytes(b"new")
    await _until(manager, "log", b"a" * 2500 + b"new")
    assert manager.lost == 0


async def test_what_the_manager_has_lost_and_no_file_has_any_more_is_marked(node: Node, manager: Received) -> None:
    node.begin()
    (node.files / "log").write_bytes(b"a" * 2500)
    await _until(manager, "log", b"a" * 2500)
    (node.files / "log").write_bytes(b"b")
    await _until(manager, "log", b"a" * 2500 + b"b")
    del manager.files["log"][1000:]  # its database was restored from a backup
    manager.ends["log"] = 1000
    (node.files / "log").write_bytes(b"bc")
    await _until(manager, "log", b"a" * 1000 + b"bc")
    assert manager.lost == 1500


async def test_a_link_that_a_job_makes_in_place_of_its_log_is_not_followed(
    node: Node, manager: Received, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("of another project")
    (node.files / "log").symlink_to(tmp_path / "secret")
    os.mkfifo(node.files / "items.jl")
    node.begin()
    await node.uploader.complete(_ATTEMPT)
    assert (manager.files["log"], manager.files["items"]) == (b"", b"")
    assert (tmp_path / "secret").exists()


async def test_files_of_an_attempt_that_the_manager_does_not_know_are_deleted(node: Node, manager: Received) -> None:
    manager.knows = False
    (node.files / "log").write_bytes(b"x")
    node.begin()
    await node.uploader.complete(_ATTEMPT)
    assert not node.files.exists()


async def test_files_that_wait_for_a_manager_are_bounded(
    node: Node, manager: Received, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(uploads, "_END_SECONDS", 0.05)
    monkeypatch.setattr(uploads, "_LEFT_BYTES", 5000)
    manager.is_away = True
    for job in (1, 2, 3):
        folder = tmp_path / "files" / f"{job}-1"
        folder.mkdir()
        (folder / "log").write_bytes(b"x" * 2000)
        node.uploader.begin(AttemptId(job, 1), str(folder / "log"), "")
        await node.uploader.complete(AttemptId(job, 1))
    left = {path.name for path in (tmp_path / "files").iterdir()}
    assert left == {"7-1", "2-1", "3-1"}
