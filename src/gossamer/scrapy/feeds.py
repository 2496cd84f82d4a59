"""Scrapy's feed exports keep items in buffers of the process: what dies with it must not be settled.

And an item that a full disk does not take is lost to them, with a line in the log. So the files that they write are
patient ones.
"""

from typing import IO, Any, cast

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.extensions.feedexport import FeedExporter, FileFeedStorage

from gossamer.errors import SinkError
from gossamer.scrapy.patient_file import PatientFile


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
