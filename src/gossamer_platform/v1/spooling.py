"""Receives long bodies of requests into temporary files, so that memory does not depend on how many come at a time.

A file has no name, so nothing is left of it when the process is killed.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import IO, Final

from gossamer.errors import GossamerError
from gossamer.storage.objects import StorageUnavailable

_WRITE_BYTES: Final = 1024 * 1024
"""Bytes that are written at a time, each time in a thread."""


class UploadTooLong(GossamerError):
    """The request is too long."""

    only_detail = True


@contextlib.asynccontextmanager
async def spooled(
    stream: AsyncIterator[bytes], new_file: Callable[[], IO[bytes]], *, limit: int
) -> AsyncIterator[IO[bytes]]:
    """Yield a file with the body, at its begin; it is closed at the end. `new_file` makes an empty one.

    Raises UploadTooLong if there are more bytes than `limit`, and StorageUnavailable if the disk is full, say.
    """
    try:
        file = await asyncio.to_thread(new_file)
    except OSError as error:
        raise _not_kept(error) from None
    with file:
        try:
            await _receive(stream, file, limit)
        except OSError as error:
            raise _not_kept(error) from None
        yield file


async def _receive(stream: AsyncIterator[bytes], file: IO[bytes], limit: int) -> None:
    length, parts, waiting = 0, list[bytes](), 0
    async for part in stream:
        length, waiting = length + len(part), waiting + len(part)
        if length > limit:
            raise UploadTooLong(f"the request is longer than {limit} bytes")
        parts.append(part)
        if waiting >= _WRITE_BYTES:
            await asyncio.to_thread(file.writelines, parts)
            parts, waiting = [], 0
    await asyncio.to_thread(file.writelines, parts)
    await asyncio.to_thread(file.seek, 0)


def _not_kept(error: OSError) -> StorageUnavailable:
    return StorageUnavailable(f"the request cannot be kept: {error.strerror or error}")
