"""Files of Scrapy's feed exports, whose buffers are written before a lease (a request of this process) is settled.

Fixed: data that a file refuses stays in order and is written before later data.
"""

import contextlib
from collections import deque
from collections.abc import Mapping
from typing import IO, Any, Final, cast

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.extensions.feedexport import FeedExporter, FileFeedStorage, StdoutFeedStorage

from gossamer.errors import SinkError
from gossamer.scrapy.feeds import FeedFile, WholeFileStorage

_LINES: Final = ("jsonlines", "jsonl", "jl", "csv")
"""Formats in which each item is whole when it is written."""

_PIECE_BYTES = 512
"""Bytes of one write to a feed's file. May be smaller, which costs calls. Must not exceed the file's buffer: a buffered
file takes data no larger than its buffer completely or not at all. No buffer is smaller than this."""


class PatientFile:
    """Wrapper of a buffered file that loses no data while the disk is full.

    Data that the file cannot take is kept in memory, in order, and written before any later data. All other methods are
    the file's own.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._unwritten: deque[bytes] = deque()
        """Pieces that the file has not taken yet, oldest first."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Accept all of the data. Raises ValueError for a closed file."""
        view = memoryview(data)
        self._unwritten.extend(bytes(view[at : at + _PIECE_BYTES]) for at in range(0, len(view), _PIECE_BYTES))
        with contextlib.suppress(OSError):  # the next flush raises it
            self._write_pieces()
        return len(view)

    def flush(self) -> None:
        """Write everything. Raises OSError while the disk is full; may be repeated."""
        self._write_pieces()
        self._file.flush()

    def tell(self) -> int:
        """Return the position as if everything were written."""
        return self._file.tell() + sum(map(len, self._unwritten))

    def close(self) -> None:
        """Flush and close the file. Raises OSError where the disk is full; the file is closed all the same."""
        try:
            if not self._file.closed:
                self.flush()
        finally:
            self._file.close()

    def whole(self) -> IO[bytes]:
        """Write everything and return the file itself, which lacks nothing then. Raises OSError while the disk is
        full. A plugin that processes the feed may have closed the file, which wrote everything."""
        if self._unwritten or not self._file.closed:
            self.flush()
        if isinstance(self._file, FeedFile):
            self._file.forget_failure()
        return self._file

    def _write_pieces(self) -> None:
        while self._unwritten:
            self._file.write(self._unwritten[0])
            self._unwritten.popleft()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FeedFiles:
    """The files that this process's feed exports write.

    A lease (a request that this process holds) is settled only after `flush`, so a killed process loses no items. Feeds
    that Scrapy uploads at the end (S3, FTP) are lost with the process. Create this object before the spider opens:
    Scrapy opens the files then.
    """

    def __init__(self, crawler: Crawler) -> None:
        extensions: tuple[Any, ...] = crawler.extensions.middlewares if crawler.extensions else ()
        self._exporters = [extension for extension in extensions if isinstance(extension, FeedExporter)]
        self._files: list[PatientFile] = []
        for exporter in self._exporters:
            for scheme, storage in exporter.storages.items():
                if isinstance(storage, type) and issubclass(storage, FileFeedStorage):
                    exporter.storages[scheme] = self._with_patient_files(storage)

    @property
    def has_late_feeds(self) -> bool:
        """True if a feed is whole, or in its place, only at the end of the crawl: a killed process loses its items."""
        return any(
            is_late(uri, options, exporter.storages)
            for exporter in self._exporters
            for uri, options in exporter.feeds.items()
        )

    async def flush(self) -> None:
        """Hand all buffered data to the operating system, so that it survives SIGKILL (not a power cut).

        Raises SinkError while the disk is full; may be repeated.
        """
        try:
            for exporter in self._exporters:
                for slot in exporter.slots:
                    # The exporter's own text buffer first; it empties into the file.
                    for stream in (getattr(slot.exporter, "stream", None), slot.file):
                        if stream is not None and not getattr(stream, "closed", False) and hasattr(stream, "flush"):
                            stream.flush()
            # In place: every PatientStorage appends to this very list.
            self._files[:] = [file for file in self._files if not file.closed]
            for file in self._files:
                file.flush()
        except OSError as error:
            raise SinkError(f"a feed: {error}") from None

    def _with_patient_files(self, storage: type[FileFeedStorage]) -> type[FileFeedStorage]:
        """Return a subclass of this storage whose files are PatientFiles, which `flush` knows."""
        files = self._files

        class PatientStorage(storage):  # type: ignore[valid-type, misc]
            def open(self, spider: Spider) -> IO[bytes]:
                file = PatientFile(super().open(spider))
                files.append(file)
                return cast("IO[bytes]", file)

            def store(self, file: IO[bytes]) -> Any:
                return super().store(file.whole() if isinstance(file, PatientFile) else file)

        PatientStorage.__name__ = storage.__name__
        return PatientStorage


def is_late(uri: str, options: Mapping[str, Any], storages: Mapping[str, Any]) -> bool:
    """Return whether items of a feed survive the death of the process only when the feed was closed."""
    storage = storages.get(uri.partition(":")[0] if "://" in uri or uri.startswith("stdout:") else "file")
    is_direct = isinstance(storage, type) and issubclass(storage, FileFeedStorage | StdoutFeedStorage)
    is_whole = isinstance(storage, type) and issubclass(storage, WholeFileStorage)
    return not is_direct or is_whole or options.get("format") not in _LINES or bool(options.get("postprocessing"))
