"""Artefacts of several managers in one storage, in a folder behind fsspec and on a real S3 server."""

import io
import uuid
from pathlib import Path

import pytest

from gossamer.storage.objects import ObjectStorage, RemoteStorage
from gossamer_platform.manager import stored_artefacts
from gossamer_platform.manager.artefacts import digest_of
from gossamer_platform.manager.stored_artefacts import StoredArtefacts
from tests.servers.s3 import S3Server
from tests.servers.scrapyd import egg


@pytest.fixture(params=["file", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    if request.param == "file":
        return RemoteStorage(f"file://{tmp_path}/storage")
    server: S3Server = request.getfixturevalue("one_s3_server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return RemoteStorage(f"s3://platform/{uuid.uuid4().hex}")


def test_a_manager_keeps_what_another_one_has_uploaded_since_it_was_unwanted(
    storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_artefacts, "_UNWANTED_SECONDS", 0.0)
    first, second = (StoredArtefacts(storage, tmp_path / name) for name in ("first", "second"))
    code = egg("")
    digest = digest_of(io.BytesIO(code))
    first.upload(digest, "shop/1.egg", io.BytesIO(code))
    name = f"artefacts/{digest}"
    second.clean(set(), set())
    before = storage.modified_at(name)
    while storage.modified_at(name) == before:  # the storage's clock may have whole seconds
        first.upload(digest, "shop/1.egg", io.BytesIO(code))
    second.clean(set(), set())
    assert storage.exists(name)
    second.clean(set(), set())
    assert not storage.exists(name)


def test_a_copy_is_made_while_another_one_gets_its_name(storage: ObjectStorage, tmp_path: Path) -> None:
    artefacts = StoredArtefacts(storage, tmp_path / "copies")
    code = egg("")
    digest = digest_of(io.BytesIO(code))
    artefacts.upload(digest, "shop/1.egg", io.BytesIO(code))
    (tmp_path / "copies").mkdir(exist_ok=True)
    (tmp_path / "copies" / ".renamed").symlink_to("nowhere")  # listed, and gone when it is looked at
    copy = artefacts.fetch(digest, "shop/1.egg")
    assert copy is not None
    assert copy.read_bytes() == code
