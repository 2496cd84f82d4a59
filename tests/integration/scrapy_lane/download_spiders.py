"""A spider that reports all that a download handler returns."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import StopDownload
from scrapy.http import Response
from twisted.python.failure import Failure


class Downloads(scrapy.Spider):
    """Requests what `requests` says (a JSON list of arguments of Request), one after the other."""

    name = "downloads"
    custom_settings = {  # noqa: RUF012 (as projects write it)
        "RETRY_ENABLED": False,
        "CONCURRENT_REQUESTS": 1,
        "HTTPERROR_ALLOW_ALL": True,
        "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
    }

    def __init__(self, requests: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._requests = json.loads(requests)

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> "Downloads":
        spider = super().from_crawler(crawler, *args, **kwargs)
        if kwargs.get("stop"):
            crawler.signals.connect(spider.stop_download, signal=signals.headers_received)
        return spider

    def closed(self, reason: str) -> None:
        assert self.crawler.stats is not None
        Path(os.environ["SPIDER_STATS"]).write_text(json.dumps(self.crawler.stats.get_stats(), default=str))

    def stop_download(self, request: scrapy.Request) -> None:
        raise StopDownload(fail=False)

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for number, given in enumerate(self._requests):
            given = {"cb_kwargs": {"number": number}, "dont_filter": True, **given}
            yield scrapy.Request(callback=self.parse, errback=self.on_error, **given)

    def parse(self, response: Response, number: int) -> Iterator[dict[str, Any]]:
        yield {
            "number": number,
            "kind": type(response).__name__,
            "url": response.url,
            "status": response.status,
            "headers": [(name.decode(), [value.decode("latin-1") for value in values])
                        for name, values in response.headers.items() if name != b"Date"],
            "body": response.body.decode("latin-1"),
            "flags": response.flags,
            "ip": str(response.ip_address),
            "protocol": response.protocol,
            "certificate": response.certificate and response.certificate.getSubject().commonName.decode(),
            "has_latency": 0 <= response.meta.get("download_latency", -1) < 60,
        }  # fmt: skip

    def on_error(self, failure: Failure) -> Iterator[dict[str, Any]]:
        # The retry middleware logs this text; others name what only one handler knows.
        has_text = failure.type.__name__ == "DownloadConnectionRefusedError"
        text = failure.getErrorMessage() if has_text else ""
        yield {"number": failure.request.cb_kwargs["number"], "error": failure.type.__name__, "text": text}
