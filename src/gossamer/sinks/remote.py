"""Remote files behind fsspec URLs (`ftp://`, `s3://` and any protocol with an installed driver), and the blob store.

Fixed: a reader of a remote file must never see a part of it, and the former contents must survive a kill at any moment.
The bus's consumers keep messages that contain addresses of blobs, so blobs must stay readable where they are.
"""

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import zstandard

from gossamer.errors import BadInput, SinkError
from gossamer.extras import install_advice
from gossamer.net.credentials import ENCODE, has_password, hide_secrets, hide_secrets_of, without_secrets
from gossamer.sinks.append import flush_folder, translate_os_errors
from gossamer.sinks.base import SinkThread

_ATOMIC_UPLOADS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "memory"}
"""Protocols on which an upload becomes visible when it is complete. On others, the upload goes to another name first,
which is always right; so a protocol may be added only when its uploads are known to be atomic."""
_S3 = {"s3", "s3a"}
"""Protocols on which a missing bucket (the first part of a path) is reported with its name, and no folders are made.
Other stores with buckets work without being listed: their drivers report a missing bucket themselves."""

_OLD_SUFFIX = ".old"
"""Suffix of the former file between two renames, on servers that need two. Fixed: `fetch` looks for a file that a
killed process left under this name."""


class RemoteFile:
    """One remote file. Blocking. Every call makes its own connection, because hours may pass between calls."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.protocol = url.partition("://")[0]

    @property
    def display_url(self) -> str:
        """The URL with its password hidden."""
        return hide_secrets(self.url)

    def require_driver(self) -> None:
        """Raise `BadInput` if the protocol is unknown, no driver for it is installed, or the address has a password
        that the driver does not read."""
        extra = "s3" if self.protocol in _S3 else "fsspec"
        fsspec = _fsspec()
        if fsspec is None:
            raise BadInput(f"the output {self.display_url} needs more than the core: {install_advice(extra)}")
        try:
            fsspec.get_filesystem_class(self.protocol)
        except ImportError as exc:
            raise BadInput(f"the output {self.display_url} needs a driver ({exc}): {install_advice(extra)}") from exc
        except ValueError as exc:
            raise BadInput(f"the output {self.display_url} has an unknown protocol") from exc
        if self.protocol in _S3 and has_password(self.url):
            raise BadInput(
                f"the output {self.display_url} has a password, which an address of S3 cannot have. Set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead, and write s3://BUCKET/PATH"
            )

    def head(self, length: int) -> bytes | None:
        """Return the first bytes of the file; None if there is no file. Raises `SinkError` if the server cannot be
        asked."""
        with self._connected() as (system, path):
            if self.protocol in _S3 and not system.exists(bucket := path.partition("/")[0]):
                raise SinkError(f"{self.display_url}: there is no bucket {hide_secrets_of(self.url, bucket)}")
            return bytes(system.cat_file(path, start=0, end=length)) if system.exists(path) else None

    def fetch(self, to: Path) -> bool:
        """Copy the remote file, or what a killed `put` left of it, to a local one. Returns False if there is no remote
        file."""
        with self._connected() as (system, path):
            for name in (path, path + _OLD_SUFFIX):
                if system.exists(name):
                    system.get_file(name, str(to))
                    return True
            return False

    def put(self, local: Path) -> None:
        """Replace the remote file by the local one, completely or not at all."""
        with self._connected() as (system, path):
            name = path if self.protocol in _ATOMIC_UPLOADS else f"{path}.part"
            if "/" in path.strip("/") and self.protocol not in _S3:
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.put_file(str(local), name)
            system.invalidate_cache()
            if (size := system.size(name)) != local.stat().st_size:
                raise SinkError(f"{self.display_url}: only {size} bytes arrived")
            if name != path:
                _replace(system, name, path)

    def delete(self) -> None:
        """Delete the remote file, if there is one."""
        with self._connected() as (system, path):
            system.invalidate_cache()
            if system.exists(path):
                system.rm_file(path)

    def _connected(self) -> AbstractContextManager[tuple[Any, str]]:
        return connected(self.url)


@contextmanager
def connected(url: str) -> Iterator[tuple[Any, str]]:
    """Context with the file system of an fsspec URL and the path in it. Every error of the driver becomes a
    `SinkError`."""
    fsspec = _fsspec()
    if fsspec is None:
        raise SinkError(f"{hide_secrets(url)} needs more than the core: {install_advice('fsspec')}")
    try:
        yield fsspec.core.url_to_fs(url, skip_instance_cache=True)
    except SinkError:
        raise
    # Every driver has its own error classes, and none is a reason to lose what was to be written.
    except Exception as exc:
        reason = hide_secrets_of(url, str(exc)) or type(exc).__name__
        advice = f". {ENCODE}" if isinstance(exc, ValueError) and has_password(url) else ""
        raise SinkError(f"{hide_secrets(url)}: {reason}{advice}") from exc


def _fsspec() -> Any:
    """Return the fsspec module; None where it is not installed. It is imported here because few crawls need it."""
    try:
        import fsspec
    except ImportError:
        return None
    return fsspec


def _replace(system: Any, name: str, path: str) -> None:
    """Rename a file to `path`, also on a server that refuses to rename onto an existing file.

    The order must stay: at every moment `path` or `path.old` exists, also when this process is killed.
    """
    try:
        system.mv(name, path)
    except Exception:  # every driver has its own error classes; the second attempt raises the real error
        if system.exists(path):
            system.mv(path, path + _OLD_SUFFIX)
        system.mv(name, path)
    if system.exists(path + _OLD_SUFFIX):
        system.rm_file(path + _OLD_SUFFIX)


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
        folder.mkdir(parents=True, exist_ok=True)
        addresses = []
        for name, packed in blobs:
            path = self._folder / name
            if not path.exists():
                _write_durably(path, packed)
            addresses.append(path.as_uri())
        flush_folder(folder)
        return addresses

    def _put_remote(self, blobs: Sequence[tuple[str, bytes]]) -> list[str]:
        """Write blobs (names and contents) to the remote store, and return their addresses."""
        # Written straight to their names, unlike files: no consumer has the address of a new blob before all of it is
        # there. A blob that is stored again is overwritten with the same bytes.
        with connected(self.place) as (system, path):
            for name, packed in blobs:
                whole = f"{path.rstrip('/')}/{name}"
                with contextlib.suppress(NotImplementedError):
                    system.makedirs(whole.rpartition("/")[0], exist_ok=True)
                system.pipe_file(whole, packed)
        return [f"{self._shown_place}/{name}" for name, _ in blobs]

    def _remove_before(self, first_kept: date) -> int:
        """Remove the folders of the days before `first_kept`, and return their number."""
        count = 0
        with contextlib.suppress(FileNotFoundError):
            for folder in self._folder.iterdir():
                with contextlib.suppress(ValueError):  # the name is no date, so the folder is not the store's
                    if date.fromisoformat(folder.name) < first_kept:
                        shutil.rmtree(folder, ignore_errors=True)
                        count += 1
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
            with connected(address) as (system, path):
                packed = system.cat_file(path)
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        body = decompressor.decompress(packed)
        if not decompressor.eof:  # the library raises no error for a blob that was cut short
            raise SinkError("it is incomplete")
        return body
    except (OSError, SinkError, zstandard.ZstdError) as exc:
        raise BadInput(f"the body at {hide_secrets(address)} cannot be read: {exc}") from exc


def _write_durably(path: Path, data: bytes) -> None:
    """Write a file so that it has all its contents as soon as it has its name, also after a power cut."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
