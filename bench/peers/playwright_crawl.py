"""Fetches pages that scripts build with scrapy-playwright, and writes one JSON line for each, with its document.

Stock settings except: no log, no remote console, no delay, no images, the given number of pages at once, and one
address for every host, because DNS does not know the names of the benchmark. Pages are written where they are parsed,
which costs less than items.
"""

import argparse
import json
from collections.abc import AsyncIterator
from typing import Any, TextIO

import scrapy
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.http import Response
from scrapy_playwright.page import PageMethod


class Pages(scrapy.Spider):
    """Fetches the seeds."""

    name = "pages"

    def __init__(self, seeds: list[str], ready: str, output: TextIO, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._seeds = seeds
        self._ready = ready
        self._output = output

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """Wait for the content of each page: after the load event, it is still on its way."""
        wait = PageMethod("wait_for_selector", self._ready)
        for url in self._seeds:
            yield scrapy.Request(url, meta={"playwright": True, "playwright_page_methods": [wait]})

    def parse(self, response: Response) -> None:
        """Write the page."""
        self._output.write(json.dumps({"url": response.url, "body": response.text}) + "\n")


def is_image(request: Any) -> bool:
    """Return whether a request is not sent."""
    return bool(request.resource_type == "image")


def main() -> None:
    """Crawl."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("seeds", "output", "program", "ready", "address"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    given = parser.parse_args()
    handler = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
    process = AsyncCrawlerProcess(
        {
            "LOG_ENABLED": False,
            "TELNETCONSOLE_ENABLED": False,
            "CONCURRENT_REQUESTS": given.concurrency,
            "CONCURRENT_REQUESTS_PER_DOMAIN": given.concurrency,
            "DOWNLOAD_DELAY": 0,
            "DOWNLOAD_HANDLERS": {"http": handler, "https": handler},
            "PLAYWRIGHT_LAUNCH_OPTIONS": {
                "executable_path": given.program,
                "args": [f"--host-resolver-rules=MAP * {given.address}"],
            },
            "PLAYWRIGHT_ABORT_REQUEST": is_image,
        }
    )
    with open(given.seeds) as file:
        seeds = file.read().split()
    with open(given.output, "w") as output:
        process.crawl(Pages, seeds=seeds, ready=given.ready, output=output)
        process.start()


if __name__ == "__main__":
    main()
