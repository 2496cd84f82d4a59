"""Copies of artefacts on a node: which are used again, and how they are fetched from a manager."""

import asyncio
import hashlib
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gossamer_platform.link import Artefact, ManagerUnavailable
from gossamer_platform.node import code
from gossamer_platform.node.code import CodeStore
from gossamer_platform.node.http_link import HttpLink, ManagerAddress

_CONTENT = b"an egg"
_ARTEFACT = Artefact("shop", "1", hashlib.sha256(_CONTENT).hexdigest(), None, "")


class _Source:
    """Where copies come from."""

    def __init__(self) -> None:
        self.fetches = 0

    def fetch(self, artefact: Artefact, target: Path) -> None:
        self.fetches += 1
        target.write_bytes(_CONTENT)


def test_a_copy_that_a_power_cut_has_emptied_is_fetched_again(tmp_path: Path) -> None:
    source = _Source()
    kept = CodeStore(tmp_path, source.fetch).file(_ARTEFACT)
    assert kept is not None
    kept.write_bytes(b"")
    after = CodeStore(tmp_path, source.fetch)
    assert [after.file(_ARTEFACT), after.file(_ARTEFACT)] == [kept, kept]
    assert (kept.read_bytes(), source.fetches) == (_CONTENT, 2)
    assert CodeStore(tmp_path, source.fetch).file(_ARTEFACT) == kept
    assert source.fetches == 2


def test_files_of_unpacked_code_are_on_the_disk_before_their_folder_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr("shop/native.so", "needs a folder")
        packed.writestr("EGG-INFO/PKG-INFO", "Name: shop\n")
        packed.writestr("EGG-INFO/not-zip-safe", "")
    (tmp_path / "d.egg").write_bytes(content.getvalue())
    written: list[list[str]] = []

    def sync(folder: str) -> None:
        written.append([path.name for path in tmp_path.glob("*-files.egg")])
        assert (Path(folder) / "shop/native.so").read_text() == "needs a folder"

    monkeypatch.setattr(code, "sync", sync)
    assert CodeStore(tmp_path, _Source().fetch).importable(tmp_path / "d.egg") == str(tmp_path / "d-files.egg")
    assert written == [[]]


class _Manager:
    """A server that gives these answers, one a connection. Empty: it closes the connection."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = answers
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answers.pop(0))
        writer.close()


@pytest.fixture
async def answering() -> AsyncIterator[_Manager]:
    manager = _Manager([])
    server = await asyncio.start_server(manager.serve, "127.0.0.1", 0)
    manager.port = server.sockets[0].getsockname()[1]
    yield manager
    server.close()
    await server.wait_closed()


def _answer(status: str, content: bytes, *, cut: int = 0) -> bytes:
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content[: len(content) - cut]


async def test_only_what_may_be_answered_later_is_asked_for_again(answering: _Manager, tmp_path: Path) -> None:
    later = [b"", _answer("503 Service Unavailable", b"{}"), _answer("429 Too Many Requests", b"{}")]
    later += [_answer("401 Unauthorized", b"{}"), _answer("200 OK", _CONTENT, cut=2)]
    never = [_answer("404 Not Found", b"{}"), _answer("200 OK", b"another")]
    answering.answers = [*later, *never, _answer("200 OK", _CONTENT)]
    address = ManagerAddress([f"http://127.0.0.1:{answering.port}"], "", "one", "folder")
    link = HttpLink(address, tmp_path, tmp_path / "fence")
    target = tmp_path / "copy"
    try:
        for error, count in ((ManagerUnavailable, len(later)), (OSError, len(never))):
            for _ in range(count):
                with pytest.raises(error):
                    await asyncio.to_thread(link.fetch, _ARTEFACT, target)
                assert not target.exists()
        await asyncio.to_thread(link.fetch, _ARTEFACT, target)
        assert target.read_bytes() == _CONTENT
    finally:
        await link.close()
