"""Outputs at fsspec URLs, and the blob store.

The bus's consumers keep messages that contain addresses of blobs, so blobs must stay readable where they are.
"""

import asyncio
import contextlib
import hashlib
import shutil
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import zstandard

from gossamer.errors import BadInput, SinkError
from gossamer.net.credentials import hide_secrets, hide_secrets_of, without_secrets
from gossamer.sinks.append import translate_os_errors
from gossamer.sinks.base import SinkThread
from gossamer.storage.files import flush_folder, make_folder, write_whole
from gossamer.storage.remote import OLD_SUFFIX, RemoteAddress


class RemoteFile:
    """One remote file. Blocking. Every call makes its own connection, because hours may pass between calls."""

    def __init__(self, url: str) -> None:
        self._address = RemoteAddress(url, fault=SinkError)

    @property
    def display_url(self) -> str:
        """The URL with its password hidden."""
        return self._address.shown

    def require_driver(self) -> None:
        """Raise `BadInput` if the address cannot be used here."""
        self._address.require_driver("the output")

    def head(self, length: int) -> bytes | None:
        """Return the first bytes of the file; None if there is no file. Raises `SinkError` if the server cannot be
        asked."""
        with self._address.connected() as (system, path):
            # Other stores with buckets work without being listed: their drivers report a missing bucket themselves.
            if self._address.is_s3 and not system.exists(bucket := path.partition("/")[0]):
                shown = hide_secrets_of(self._address.given, bucket)
                raise SinkError(f"{self.display_url}: there is no bucket {shown}")
            return bytes(system.cat_file(path, start=0, end=length)) if system.exists(path) else None

    def fetch(self, to: Path) -> bool:
        """Copy the remote file, or what a killed `put` left of it, to a local one. Returns False if there is no remote
        file."""
        with self._address.connected() as (system, path):
            for name in (path, path + OLD_SUFFIX):
                if system.exists(name):
                    system.get_file(name, str(to))
                    return True
            return False

    def put(self, local: Path) -> None:
        """Replace the remote file by the local one, completely or not at all."""
        with self._address.connected() as (system, path):
            self._address.write(system, path, local)

    def delete(self) -> None:
        """Delete the remote file, and what a killed `put` left of it."""
        with self._address.connected() as (system, path):
            for name in (path + OLD_SUFFIX, path):  # `fetch` takes the first only where the second is not there
                if system.exists(name):
                    system.rm_file(name)


_BLOB_SUFFIX = ".zst"
"""Suffix of new blobs; `read_blob` does not need it. Blobs must stay zstd, which consumers decompress themselves."""

_FILE_URL = "file://"
"""Beginning of the address of a local file. Must not change: addresses of local blobs begin with it."""


class BlobStore:
    """Store for bodies that are too large for a message. They are written once and read by address (`read_blob`).

    A blob is named by the hash of its content, so writing the same body again on one day changes nothing. Each day has
    a folder, named YYYY-MM-DD; `purge` finds old days by these names, so they must not change.
    """

    def __init__(self, place: str) -> None:
        """`place`: a directory (made at the first write) or an fsspec URL."""
        self.place = place.rstrip("/")
        self._shown_place = without_secrets(self.place)
        """Beginning of addresses. They stand in messages, which have more readers than may know the password."""
        self._remote = "://" in place and not place.startswith(_FILE_URL)
        self._folder = _local_path(place).absolute()
        """Folder of a local store; not used for a remote one."""
        self._thread = SinkThread("blobs")

    async def put(self, bodies: Sequence[bytes]) -> list[str]:
        """Store the bodies and return an address for each, without the password of the store, once all are durable.

        Raises SinkFull or SinkError; the call may then be repeated.
        """
        return await self._thread.run(lambda: self._put(bodies)) if bodies else []

    async def purge(self, *, retention_seconds: float) -> int:
        """Remove the days that ended longer ago than the retention, and return their number.

        Does nothing for a remote store: a bucket has life-cycle rules for that.
        """
        if self._remote:
            return 0
        first_kept = (datetime.now(UTC) - timedelta(seconds=retention_seconds)).date()
        return await self._thread.run(lambda: self._remove_before(first_kept))

    def close(self) -> None:
        """Accept no more calls; accepted ones still run."""
        self._thread.close()

    def _put(self, bodies: Sequence[bytes]) -> list[str]:
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        compress = zstandard.ZstdCompressor().compress
        blobs = [(f"{day}/{hashlib.sha256(body).hexdigest()}{_BLOB_SUFFIX}", compress(body)) for body in bodies]
        if self._remote:
            return self._put_remote(blobs)
        with translate_os_errors(f"the blob store {self.place}"):
            return self._put_local(self._folder / day, blobs)

    def _put_local(self, folder: Path, blobs: Sequence[tuple[str, bytes]]) -> list[str]:
        """Write blobs (names and contents) of one day's folder, and return their addresses."""
        make_folder(folder)
        addresses = []
        for name, packed in blobs:
            path = self._folder / name
            if not path.exists():
                write_whole(path, packed, flushes_folder=False)
            addresses.append(path.as_uri())
        flush_folder(folder)
        return addresses

    def _put_remote(self, blobs: Sequence[tuple[str, bytes]]) -> list[str]:
        """Write blobs (names and contents) to the remote store, and return their addresses."""
        place = RemoteAddress(self.place, fault=SinkError)
        with place.connected() as (system, path):
            for name, packed in blobs:  # one that is stored again is overwritten with the same bytes
                place.write(system, f"{path.rstrip('/')}/{name}", packed)
        return [f"{self._shown_place}/{name}" for name, _ in blobs]

    def _remove_before(self, first_kept: date) -> int:
        """Remove the folders of the days before `first_kept`, and return their number."""
        count = 0
        with contextlib.suppress(FileNotFoundError):
            for folder in self._folder.iterdir():
                with contextlib.suppress(ValueError):  # the name is no date, so the folder is not the store's
                    day = date.fromisoformat(folder.name)  # which takes other forms of a date, too
                    if day.isoformat() == folder.name and day < first_kept:
                        shutil.rmtree(folder, ignore_errors=True)
                        count += not folder.exists()
        return count


async def read_blob(address: str, *, place: str = "") -> bytes:
    """Return the body at an address that `BlobStore.put` returned. Raises BadInput when it cannot be read, for example
    because it was purged. `place`: that of the store, whose password is used where the address is in it."""
    begin = without_secrets(place.rstrip("/")) + "/"
    if place and address.startswith(begin):
        address = f"{place.rstrip('/')}/{address.removeprefix(begin)}"
    return await asyncio.to_thread(_read, address)


def _local_path(place: str) -> Path:
    """Return the path of a `file://` URL, whose characters may be percent-encoded, or of a plain path."""
    return Path(unquote(place.removeprefix(_FILE_URL)) if place.startswith(_FILE_URL) else place)


def _read(address: str) -> bytes:
    """Return the body in the blob at this address. Raises BadInput."""
    try:
        if address.startswith(_FILE_URL):
            packed = _local_path(address).read_bytes()
        else:
            with RemoteAddress(address, fault=SinkError).connected() as (system, path):
                packed = system.cat_file(path)
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        body = decompressor.decompress(packed)
        if not decompressor.eof:  # the library raises no error for a blob that was cut short
            raise SinkError("it is incomplete")
        return body
    except (OSError, SinkError, zstandard.ZstdError) as exc:
        raise BadInput(f"the body at {hide_secrets(address)} cannot be read: {exc}") from exc
