"""Bodies that are too large for a message: kept in a directory or behind an fsspec URL, the message has the address."""

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import zstandard

from gossamer.errors import BadInput, SinkError, SinkFull
from gossamer.sinks.remote import connected
from gossamer.sinks.thread import SinkThread

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
