"""A file at the other end of an fsspec URL: `ftp://`, `s3://` and whatever else has a driver installed."""

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import zstandard

from gossamer.errors import BadInput, SinkError, SinkFull
from gossamer.sinks.base import SinkThread

_WHOLE_OR_NOTHING = {"s3", "s3a", "gs", "gcs", "az", "abfs", "memory"}
"""Here an upload shows when it is complete; elsewhere it goes to another name first."""

_OLD = ".old"
"""Ends the name of the former file for the moment between two renames, where a server needs two."""


class RemoteFile:
    """One remote file. Blocking. Every call makes its own connection: between them hours may pass."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.protocol = url.partition("://")[0]

    @property
    def shown(self) -> str:
        """The URL without the password."""
        return without_password(self.url)

    def require(self) -> None:
        """`BadInput` if no driver for the protocol is installed, or nobody knows it."""
        extra = "s3" if self.protocol in {"s3", "s3a"} else "fsspec"
        fsspec = _fsspec()
        if fsspec is None:
            raise BadInput(f"the output {self.shown} needs more than the core; pip install gossamer-crawl[{extra}]")
        try:
            fsspec.get_filesystem_class(self.protocol)
        except ImportError as exc:
            raise BadInput(
                f"the output {self.shown} needs a driver ({exc}); pip install gossamer-crawl[{extra}]"
            ) from exc
        except ValueError as exc:
            raise BadInput(f"the output {self.shown} has an unknown protocol") from exc

    def head(self, length: int) -> bytes | None:
        """The first bytes of the file, None if there is no file. `SinkError` if the other end cannot be asked."""
        with self._connected() as (system, path):
            if self.protocol in {"s3", "s3a"} and not system.exists(bucket := path.partition("/")[0]):
                raise SinkError(f"{self.shown}: there is no bucket {bucket}")
            return bytes(system.cat_file(path, start=0, end=length)) if system.exists(path) else None

    def fetch(self, to: Path) -> bool:
        """Copy the remote file to a local one; False if there is none."""
        with self._connected() as (system, path):
            for name in (path, path + _OLD):
                if system.exists(name):
                    system.get_file(name, str(to))
                    return True
            return False

    def put(self, local: Path) -> None:
        """Put the local file in the remote one's place, complete or not at all."""
        with self._connected() as (system, path):
            name = path if self.protocol in _WHOLE_OR_NOTHING else f"{path}.part"
            if "/" in path.strip("/") and self.protocol not in {"s3", "s3a"}:
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.put_file(str(local), name)
            system.invalidate_cache()
            if (size := system.size(name)) != local.stat().st_size:
                raise SinkError(f"{self.shown}: only {size} bytes arrived")
            if name != path:
                _replace(system, name, path)

    def _connected(self) -> AbstractContextManager[tuple[Any, str]]:
        return connected(self.url)


@contextmanager
def connected(url: str) -> Iterator[tuple[Any, str]]:
    """The file system behind an fsspec URL and the path in it; whatever goes wrong with it is a `SinkError`."""
    fsspec = _fsspec()
    if fsspec is None:
        raise SinkError(f"{without_password(url)} needs more than the core; pip install gossamer-crawl[fsspec]")
    try:
        yield fsspec.core.url_to_fs(url, skip_instance_cache=True)
    except SinkError:
        raise
    # Every driver has its own tree of errors, and none is a reason to lose what was to be written.
    except Exception as exc:
        raise SinkError(f"{without_password(url)}: {str(exc) or type(exc).__name__}") from exc


def _fsspec() -> Any:
    """None where it is not installed. Imported when somebody names such an address: few do."""
    try:
        import fsspec
    except ImportError:
        return None
    return fsspec


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", url)


def _replace(system: Any, name: str, path: str) -> None:
    """Rename onto `path`, also on a server that refuses to rename onto a file; `path` or `path.old` is always there."""
    try:
        system.mv(name, path)
    except Exception:  # again every driver's own; what is really wrong shows in the second attempt
        if system.exists(path):
            system.mv(path, path + _OLD)
        system.mv(name, path)
    if system.exists(path + _OLD):
        system.rm_file(path + _OLD)


_ENDING = ".zst"
_NO_ROOM = {28, 122}
"""ENOSPC, EDQUOT."""


class BlobStore:
    """Write once, read by address; named by content, so that writing a body again costs nothing and changes nothing.

    A day's bodies lie in a folder of their own: `sweep` removes whole days.
    """

    def __init__(self, place: str) -> None:
        """`place`: a directory (made when it is first written to) or an fsspec URL."""
        self.place = place.rstrip("/")
        self._remote = "://" in place and not place.startswith("file://")
        self._folder = Path(place.removeprefix("file://")).absolute()
        self._thread = SinkThread("blobs")

    async def put(self, bodies: Sequence[bytes]) -> list[str]:
        """An address for each, once all of them are durable. Raises SinkFull, SinkError; may be repeated."""
        return await self._thread.run(lambda: self._put(bodies)) if bodies else []

    async def sweep(self, *, retention_seconds: float) -> int:
        """Remove the days that are wholly older; how many there were. Of a directory only: a bucket has rules of its
        own for that."""
        if self._remote:
            return 0
        last = (datetime.now(UTC) - timedelta(seconds=retention_seconds)).date()
        return await self._thread.run(lambda: self._remove_before(last))

    def close(self) -> None:
        """Take no more; what was taken is finished."""
        self._thread.close()

    def _put(self, bodies: Sequence[bytes]) -> list[str]:
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        compressor = zstandard.ZstdCompressor()
        named = [(f"{day}/{hashlib.sha256(body).hexdigest()}{_ENDING}", compressor.compress(body)) for body in bodies]
        if self._remote:
            return self._put_remote(named)
        try:
            return self._put_local(self._folder / day, named)
        except OSError as exc:
            kind = SinkFull if exc.errno in _NO_ROOM else SinkError
            raise kind(f"the blob store {self.place}: {exc.strerror}") from exc

    def _put_local(self, folder: Path, named: Sequence[tuple[str, bytes]]) -> list[str]:
        folder.mkdir(parents=True, exist_ok=True)
        addresses = []
        for name, packed in named:
            path = self._folder / name
            if not path.exists():
                _write_durably(path, packed)
            addresses.append(path.as_uri())
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return addresses

    def _put_remote(self, named: Sequence[tuple[str, bytes]]) -> list[str]:
        with connected(self.place) as (system, path):
            for name, packed in named:
                whole = f"{path.rstrip('/')}/{name}"
                with contextlib.suppress(NotImplementedError):
                    system.makedirs(whole.rpartition("/")[0], exist_ok=True)
                system.pipe_file(whole, packed)
        return [f"{self.place}/{name}" for name, _ in named]

    def _remove_before(self, last: date) -> int:
        count = 0
        with contextlib.suppress(FileNotFoundError):
            for folder in self._folder.iterdir():
                with contextlib.suppress(ValueError):
                    if date.fromisoformat(folder.name) < last:
                        shutil.rmtree(folder, ignore_errors=True)
                        count += 1
        return count


async def read_blob(address: str) -> bytes:
    """The body at an address that `put` gave. Raises BadInput when it is not there (any more)."""
    return await asyncio.to_thread(_read, address)


def _read(address: str) -> bytes:
    try:
        if address.startswith("file://"):
            packed = Path(address.removeprefix("file://")).read_bytes()
        else:
            with connected(address) as (system, path):
                packed = system.cat_file(path)
        return zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    except (OSError, SinkError, zstandard.ZstdError) as exc:
        raise BadInput(f"the body at {address} cannot be read: {exc}") from exc


def _write_durably(path: Path, data: bytes) -> None:
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
