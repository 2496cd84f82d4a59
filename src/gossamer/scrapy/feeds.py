"""Scrapy's feed exports keep items in buffers of the process: what dies with it must not be settled."""

from typing import Any

from scrapy.crawler import Crawler
from scrapy.extensions.feedexport import FeedExporter

from gossamer.errors import SinkError


class Feeds:
    """The files that this process's feed exports write. Those that are uploaded at the end die with the process."""

    def __init__(self, crawler: Crawler) -> None:
        extensions: tuple[Any, ...] = crawler.extensions.middlewares if crawler.extensions else ()
        self._exporters = [extension for extension in extensions if isinstance(extension, FeedExporter)]

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
        except OSError as error:
            raise SinkError(f"a feed: {error}") from None
