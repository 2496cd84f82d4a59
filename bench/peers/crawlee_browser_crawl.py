"""Fetches pages that scripts build with Crawlee's PlaywrightCrawler, and writes one JSON line for each, with its
document.

Stock settings except: requests in memory, no log, no images, the given number of pages at once from the start, and one
address for every host, because DNS does not know the names of the benchmark.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import TextIO

from crawlee import ConcurrencySettings
from crawlee.crawlers import PlaywrightCrawler, PlaywrightCrawlingContext, PlaywrightPreNavCrawlingContext
from crawlee.storage_clients import MemoryStorageClient


async def crawl(given: argparse.Namespace, seeds: list[str], output: TextIO) -> None:
    """Crawl."""
    most = given.concurrency
    crawler = PlaywrightCrawler(
        concurrency_settings=ConcurrencySettings(min_concurrency=most, max_concurrency=most, desired_concurrency=most),
        storage_client=MemoryStorageClient(),
        configure_logging=False,
        headless=True,
        browser_type="chromium",
        browser_launch_options={
            "executable_path": given.program,
            "chromium_sandbox": False,
            "args": [f"--host-resolver-rules=MAP * {given.address}"],
        },
    )

    @crawler.pre_navigation_hook
    async def block(context: PlaywrightPreNavCrawlingContext) -> None:
        await context.block_requests(url_patterns=[".png"])

    @crawler.router.default_handler
    async def handle(context: PlaywrightCrawlingContext) -> None:
        # After the load event, the content is still on its way.
        await context.page.wait_for_selector(given.ready)
        output.write(json.dumps({"url": context.request.url, "body": await context.page.content()}) + "\n")

    await crawler.run(seeds)


def main() -> None:
    """Read the options, and crawl."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("seeds", "output", "program", "ready", "address"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    given = parser.parse_args()
    with open(given.output, "w") as output:
        asyncio.run(crawl(given, Path(given.seeds).read_text().split(), output))


if __name__ == "__main__":
    main()
