"""Files of exported crawls: JSON lines, compressed with gzip or Zstandard, whose last line has their number and a
checksum. Fixed: that last line, by which a file that was cut is recognised."""

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

import msgspec
import zstandard

from gossamer.errors import BadInput
from gossamer.frontier.exported import VERSION, ExportedLine, ExportEnd, ExportHeader
from gossamer.model.json_codec import encode_value
from gossamer.sinks.framing import GZIP_MAGIC, ZSTD_MAGIC
from gossamer.storage.files import flush, unfinished

ENDINGS = (".gz", ".zst")
"""Endings of files that can be written: the last one selects the compression."""
_MOST_LINE_BYTES = 256 << 20
"""Longest line that is read: 250 requests with the largest payload, in base64, fit."""
_decode = msgspec.json.Decoder(ExportedLine).decode


class CrawlFileWriter:
    """Writes a file of an exported crawl: under another name until it is complete, readable by its owner only, because
    options of the crawl may hold a cookie. A context manager."""

    def __init__(self, path: Path) -> None:
        """Raises BadInput for a name without one of ENDINGS, and where the file cannot be written."""
        if not path.name.endswith(ENDINGS):
            raise BadInput(f"{path} names no compression. Write, for example, {path}.zst or {path}.gz.")
        self._path = path
        self._hash = hashlib.sha256()
        self.lines = 0
        """Lines that were written."""
        self._stack = ExitStack()
        try:
            self._part = self._stack.enter_context(unfinished(path))
            descriptor = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._stack.close()
            raise BadInput(f"{path} cannot be written: {error.strerror}") from None
        self._file = os.fdopen(descriptor, "wb")
        if path.name.endswith(".gz"):
            self._stream = cast(BinaryIO, gzip.GzipFile(fileobj=self._file, mode="wb", mtime=0))
        else:
            self._stream = cast(BinaryIO, zstandard.ZstdCompressor().stream_writer(self._file, closefd=False))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the complete file its name, or delete what an error left."""
        try:
            if error is None:
                self.write(ExportEnd(lines=self.lines, sha256=self._hash.hexdigest()))
            self._stream.close()
            self._file.flush()
            flush(self._file.fileno())
            self._file.close()
            if error is None:
                os.replace(self._part, self._path)
        except OSError as fault:
            raise BadInput(f"{self._path} cannot be written: {fault.strerror}") from None
        finally:
            self._stack.close()

    def write(self, line: ExportedLine) -> None:
        """Write a line."""
        text = encode_value(line) + b"\n"
        self._hash.update(text)
        self._stream.write(text)
        self.lines += 1


def read_header(path: Path) -> ExportHeader:
    """Return the first line of a file. Raises BadInput."""
    header, _ = next(_lines(path))
    assert isinstance(header, ExportHeader)
    return header


def read_lines(path: Path) -> Iterator[tuple[int, ExportedLine]]:
    """Yield the lines of a file with their numbers, from 1. Raises BadInput for a file that was cut or changed, or is
    no export; some lines have been yielded then."""
    for line, number in _lines(path):
        yield number, line


def check_file(path: Path) -> ExportHeader:
    """Read a whole file, and return its header. Raises BadInput as `read_lines`."""
    header = read_header(path)
    for _ in read_lines(path):
        pass
    return header


def _lines(path: Path) -> Iterator[tuple[ExportedLine, int]]:
    checksum, count, is_whole = hashlib.sha256(), 0, False
    try:
        with path.open("rb") as file, _decompressed(file) as stream:
            while text := stream.readline(_MOST_LINE_BYTES):
                if is_whole:
                    raise BadInput(f"{path} has lines behind its end.")
                line = _decode(text)
                if isinstance(line, ExportHeader) != (count == 0):
                    raise BadInput(f"{path} is no export of a crawl: its first line says so.")
                if isinstance(line, ExportHeader) and line.version > VERSION:
                    raise BadInput(f"{path} was written by a newer release of Gossamer. Import it with that one.")
                if isinstance(line, ExportEnd):
                    if (line.lines, line.sha256) != (count, checksum.hexdigest()):
                        raise BadInput(f"{path} was changed: its checksum differs. Export the crawl again.")
                    is_whole = True
                checksum.update(text)
                count += 1
                yield line, count
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{path} cannot be read: {reason}. Name a file of gossamer crawls export.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}, line {count + 1}: no line of an exported crawl ({error}).") from None
    if not is_whole:
        raise BadInput(f"{path} was cut: its last line is missing. Export the crawl again.")


def _decompressed(file: BinaryIO) -> BinaryIO:
    head = file.read(4)
    file.seek(0)
    if head.startswith(GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if head == ZSTD_MAGIC:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, reader), 1 << 20))
    raise BadInput("it is no export of a crawl")
