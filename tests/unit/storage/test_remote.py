"""Files at addresses that fsspec reaches, with a driver of which uploads can break off in the middle."""

import asyncio
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from gossamer.errors import BadInput, SinkError
from gossamer.sinks.remote import BlobStore, RemoteFile, read_blob
from gossamer.storage.objects import ObjectMissing, StorageUnavailable, open_storage
from gossamer.storage.remote import RemoteAddress


class _Breaking(LocalFileSystem):
    """A server on which an upload becomes visible while it is sent."""

    protocol = "breaking"
    breaks = "at once"
    """Where uploads end: whole, silently too short, or with an error in the middle."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix(f"{cls.protocol}://")))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: Any) -> None:
        Path(path).write_bytes(value if self.breaks == "no" else value[:2])
        if self.breaks == "loudly":
            raise ConnectionError("the connection is gone")

    def put_file(self, lpath: str, rpath: str, *given: Any, **more: Any) -> None:
        self.pipe_file(rpath, Path(lpath).read_bytes())


fsspec.register_implementation("breaking", _Breaking, clobber=True)


class _Refusing(_Breaking):
    """A server that refuses to rename a file onto another one."""

    protocol = "refusing"
    breaks = "no"

    def mv(self, path1: str, path2: str, **more: Any) -> None:
        if Path(path2).exists():
            raise FileExistsError(path2)
        Path(path1).rename(path2)


fsspec.register_implementation("refusing", _Refusing, clobber=True)


def test_an_upload_that_was_killed_before_its_last_step_is_repeated(tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"third")
    remote = RemoteFile(f"refusing://{tmp_path}/file")
    (tmp_path / "file").write_bytes(b"second")
    (tmp_path / "file.old").write_bytes(b"first")
    remote.put(local)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "local"]
    assert remote.head(10) == b"third"


def test_a_deleted_file_does_not_come_back(tmp_path: Path) -> None:
    """`file.old` is what a `put` leaves that is killed between its renames."""
    (tmp_path / "file.old").write_bytes(b"old")
    remote = RemoteFile(f"refusing://{tmp_path}/file")
    remote.delete()
    assert not remote.fetch(tmp_path / "local")


@pytest.mark.parametrize("breaks", ["loudly", "silently"])
def test_an_object_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: str) -> None:
    storage = open_storage(f"breaking://{tmp_path}")
    monkeypatch.setattr(_Breaking, "breaks", breaks)
    with pytest.raises(StorageUnavailable):
        storage.put("artefacts/a", b"whole", fresh=True)
    assert not storage.exists("artefacts/a")
    assert storage.names("artefacts") == []
    monkeypatch.setattr(_Breaking, "breaks", "no")
    assert storage.put("artefacts/a", b"whole", fresh=True)
    assert not storage.put("artefacts/a", b"other", fresh=True)
    assert (storage.read("artefacts/a"), storage.names("artefacts")) == (b"whole", ["artefacts/a"])
    storage.delete("artefacts/a")
    with pytest.raises(ObjectMissing):
        storage.read("artefacts/a")


@pytest.mark.parametrize("breaks", ["loudly", "silently"])
def test_a_file_and_a_blob_keep_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: str) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"first")
    file, blobs = RemoteFile(f"breaking://{tmp_path}/out/file"), BlobStore(f"breaking://{tmp_path}/blobs")
    monkeypatch.setattr(_Breaking, "breaks", "no")
    file.put(local)
    [address] = asyncio.run(blobs.put([b"body"]))
    monkeypatch.setattr(_Breaking, "breaks", breaks)
    with pytest.raises(SinkError):
        file.put(local)
    with pytest.raises(SinkError):
        asyncio.run(blobs.put([b"body"]))
    assert file.head(10) == b"first"
    assert asyncio.run(read_blob(address)) == b"body"
    blobs.close()


@pytest.mark.parametrize("what", ["the output", "the address"])
def test_addresses_are_refused_with_one_reason(what: str) -> None:
    for address, reason in (
        ("nothing://host/x", f"{what} nothing://host/x has an unknown protocol: nothing"),
        ("s3://key:secret@bucket/x", "has a password, which an address of S3 cannot have"),
    ):
        with pytest.raises(BadInput, match=reason) as refused:
            RemoteAddress(address, fault=SinkError).require_driver(what)
        assert "secret@" not in str(refused.value)
