"""Scrapy's feed exports keep items in buffers of the process: what dies with it must not be settled.

And an item that a full disk does not take is lost to them, with a line in the log. So the files that they write are
patient ones.
"""

import contextlib
from collections import deque
from typing import IO, Any, cast

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.extensions.feedexport import FeedExporter, FileFeedStorage

from gossamer.errors import SinkError

_PIECE_BYTES = 512
"""A buffered file takes what is no larger than its buffer whole or not at all; no buffer is smaller than this."""


class PatientFile:
    """Around a buffered file. What it cannot take now is kept in memory, in order, and written before all that comes
    later; `flush` says whether everything is out. All else is the file's own."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._late: deque[bytes] = deque()

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """All of it, always. Raises ValueError for a closed file."""
        view = memoryview(data)
        self._late.extend(bytes(view[at : at + _PIECE_BYTES]) for at in range(0, len(view), _PIECE_BYTES))
        with contextlib.suppress(OSError):  # whoever flushes hears of it
            self._hand_on()
        return len(view)

    def flush(self) -> None:
        """Raises OSError while there is no room; it may be repeated."""
        self._hand_on()
        self._file.flush()

    def tell(self) -> int:
        """As if everything were written."""
        return self._file.tell() + sum(map(len, self._late))

    def close(self) -> None:
        """Raises OSError where there is no room; it is closed all the same."""
        try:
            if not self._file.closed:
                self.flush()
        finally:
            self._file.close()

    def _hand_on(self) -> None:
        while self._late:
            self._file.write(self._late[0])
            self._late.popleft()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Feeds:
    """The files that this process's feed exports write. Those that are uploaded at the end die with the process.

    To be made before the spider is opened, when they begin.
    """

    def __init__(self, crawler: Crawler) -> None:
        extensions: tuple[Any, ...] = crawler.extensions.middlewares if crawler.extensions else ()
        self._exporters = [extension for extension in extensions if isinstance(extension, FeedExporter)]
        self._files: list[PatientFile] = []
        for exporter in self._exporters:
            for scheme, storage in exporter.storages.items():
                if isinstance(storage, type) and issubclass(storage, FileFeedStorage):
                    exporter.storages[scheme] = self._patient(storage)

    async def flush(self) -> None:
        """Hand what is in buffers to the operating system, where SIGKILL does not reach it; not a power cut.

        Raises SinkError where there is no room; it may be repeated.
        """
        try:
            for exporter in self._exporters:
                for slot in exporter.slots:
                    for stream in (getattr(slot.exporter, "stream", None), slot.file):
                        if stream is not None and not getattr(stream, "closed", False) and hasattr(stream, "flush"):
                            stream.flush()
            self._files[:] = [file for file in self._files if not file.closed]
            for file in self._files:
                file.flush()
        except OSError as error:
            raise SinkError(f"a feed: {error}") from None

    def _patient(self, storage: type[FileFeedStorage]) -> type[FileFeedStorage]:
        files = self._files

        class Patient(storage):  # type: ignore[valid-type, misc]
            def open(self, spider: Spider) -> IO[bytes]:
                file = PatientFile(super().open(spider))
                files.append(file)
                return cast("IO[bytes]", file)

        Patient.__name__ = storage.__name__
        return Patient
