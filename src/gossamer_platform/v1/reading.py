"""Threads in which logs and items are read and received, apart from the threads of everything else.

A storage that hangs holds these threads only: jobs go on to be scheduled and shown.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from gossamer_platform.manager.files import OpenJobFile

P = ParamSpec("P")
T = TypeVar("T")

_THREADS: Final = ThreadPoolExecutor(8, thread_name_prefix="file-read")
"""For reads that take milliseconds."""
_STREAM_THREADS: Final = ThreadPoolExecutor(8, thread_name_prefix="file-stream")
"""For the pieces of files. A storage that answers slowly needs several."""
_EXPORT_THREADS: Final = ThreadPoolExecutor(2, thread_name_prefix="item-export")
"""For the pieces of exports. Two, because they parse and write items, and more of them would make the event loop wait
for Python's lock."""
_RECEIVER_THREADS: Final = ThreadPoolExecutor(8, thread_name_prefix="file-write")
"""For what nodes send."""
_PIECE_BYTES: Final = 256 * 1024
"""Bytes of a file that are read at a time."""


async def in_reader(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return what a call returns that waits for the disk or the network for a short time."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, lambda: call(*arguments, **named))


async def in_receiver(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """As `in_reader`, for what is written, so that readers and nodes do not wait for each other."""
    return await asyncio.get_running_loop().run_in_executor(_RECEIVER_THREADS, lambda: call(*arguments, **named))


async def pieces(
    source: Iterator[bytes], *, is_first_empty: bool = False, is_export: bool = False
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a long answer that are not empty; with `is_first_empty`, also the first one. Each step of
    `source` runs in a thread; with `is_export`, it is one that computes much."""
    loop = asyncio.get_running_loop()
    threads = _EXPORT_THREADS if is_export else _STREAM_THREADS
    try:
        while (piece := await loop.run_in_executor(threads, next, source, None)) is not None:
            if piece or is_first_empty:
                yield piece
            is_first_empty = False
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            threads.submit(close)  # not awaited: this may be the end of a task that was cancelled


async def begun(source: Iterator[bytes], *, is_export: bool = False) -> AsyncIterator[bytes]:
    """Return `pieces` once the first one is there, so that a storage that cannot be read is an error of the request and
    not an answer that breaks off."""
    found = pieces(source, is_first_empty=True, is_export=is_export)
    first = await anext(found, b"")

    async def all_pieces() -> AsyncIterator[bytes]:
        try:
            if first:
                yield first
            async for piece in found:
                yield piece
        finally:
            await found.aclose()

    return all_pieces()


def file_pieces(file: OpenJobFile, start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces, and close it. The pieces end before `stop` if the file does."""
    try:
        while start < stop and (piece := file.read(start, min(stop, start + _PIECE_BYTES))):
            yield piece
            start += len(piece)
    finally:
        file.close()


def matching_lines(source: Iterator[bytes], text: bytes) -> Iterator[bytes]:
    """Yield the lines that contain a text, in pieces. A piece of a line longer than a piece of the file counts as a
    line."""
    rest = b""
    for piece in source:
        block = rest + piece
        cut = block.rfind(b"\n") + 1
        if not cut and len(block) >= 4 * _PIECE_BYTES:
            cut = len(block)
        rest = block[cut:]
        yield b"".join(line for line in block[:cut].splitlines(keepends=True) if text in line)
    yield rest if text in rest else b""
