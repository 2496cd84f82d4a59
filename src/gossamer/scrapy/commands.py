"""How Scrapy was started: by which command, and what becomes of it when it cannot go on."""

import logging
import sys
from pathlib import Path
from typing import NoReturn

from scrapy.crawler import Crawler
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.utils.reactor import is_asyncio_reactor_installed

from gossamer.errors import GossamerError

log = logging.getLogger(__name__)


def runs_alone(crawler: Crawler) -> bool:
    """Whether it is a person's look at one page, never part of a crawl: `scrapy shell`, `fetch`, `parse`, `check`.

    Those commands put a `start` of their own into the spider; the shell, which needs none, does without dedupe."""
    start = getattr(crawler.spidercls, "start", None)
    if str(getattr(start, "__module__", "")).startswith("scrapy.commands."):
        return True
    return crawler.settings.getpriority("DUPEFILTER_CLASS") == SETTINGS_PRIORITIES["command"]


def refuse(error: GossamerError) -> NoReturn:
    """Say in one line what is wrong, and end: the `scrapy` command with exit code 2, a program by the error itself."""
    log.critical("%s", error)
    main = getattr(sys.modules["__main__"], "__spec__", None)
    command = Path(sys.argv[0]).name == "scrapy" or (main is not None and main.name == "scrapy.__main__")
    # Other reactors keep SystemExit to themselves, and the command would end as if all were well.
    if command and is_asyncio_reactor_installed():
        raise SystemExit(2)
    raise error
