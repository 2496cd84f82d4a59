"""The blob store: addresses lead back to the body whatever the folder is called, and a torn blob is no body."""

import os
from pathlib import Path

import pytest

from gossamer.errors import BadInput
from gossamer.sinks.remote import BlobStore, read_blob
from tests.servers.ftp import ftp_server


@pytest.mark.parametrize("folder", ["plain", "with a space", "grüße", "100% #1?"])
async def test_a_body_is_read_back_from_any_folder(tmp_path: Path, folder: str) -> None:
    store = BlobStore(str(tmp_path / folder))
    [address] = await store.put([b"body"])
    assert (tmp_path / folder).is_dir()
    assert await read_blob(address) == b"body"


async def test_the_names_of_new_folders_are_flushed_before_an_address_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = list[Path]()
    monkeypatch.setattr("gossamer.storage.files.flush_folder", flushed.append)
    [address] = await BlobStore(str(tmp_path / "blobs")).put([b"body"])
    assert flushed == [tmp_path, tmp_path / "blobs"]
    assert await read_blob(address) == b"body"


async def test_the_folder_of_a_file_url_is_decoded(tmp_path: Path) -> None:
    place = (tmp_path / "with a space").as_uri()
    [address] = await BlobStore(place).put([b"body"])
    assert address.startswith(place)
    assert (tmp_path / "with a space").is_dir()
    assert await read_blob(address) == b"body"


async def test_a_purge_deletes_the_stores_own_days_only(tmp_path: Path) -> None:
    """Python reads the other names as dates, too."""
    own, others = "2020-01-01", ["20200101", "2020W05", "2020-W05-3"]
    for name in (own, *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    store = BlobStore(str(tmp_path))
    assert await store.purge(retention_seconds=86400.0) == 1
    assert sorted(os.listdir(tmp_path)) == sorted(others)
    store.close()


async def test_a_blob_that_was_cut_short_cannot_be_read(tmp_path: Path) -> None:
    [address] = await BlobStore(str(tmp_path)).put([b"body" * 10_000])
    _cut_short(tmp_path)
    with pytest.raises(BadInput, match="incomplete"):
        await read_blob(address)


def _cut_short(folder: Path) -> None:
    [path] = folder.rglob("*.zst")
    path.write_bytes(path.read_bytes()[:-3])


async def test_an_address_has_no_password_and_is_read_with_that_of_the_store(tmp_path: Path) -> None:
    """Addresses stand in messages, which all programs of the bus read."""
    with ftp_server(tmp_path / "files") as server:
        place = f"{server}/blobs"
        [address] = await BlobStore(place).put([b"body"])
        assert (address.partition("/blobs/")[0], "secret" in address) == (server.replace(":secret", ""), False)
        assert await read_blob(address, place=place) == b"body"
        with pytest.raises(BadInput) as refused:
            await read_blob(address)
        assert "secret" not in str(refused.value)
