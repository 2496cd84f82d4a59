"""Which runs are a person's look at one page, and never part of a crawl: `scrapy shell`, `fetch`, `parse`, `check`."""

from scrapy.crawler import Crawler
from scrapy.settings import SETTINGS_PRIORITIES


def runs_alone(crawler: Crawler) -> bool:
    """Those commands put a `start` of their own into the spider; the shell, which needs none, does without dedupe."""
    start = getattr(crawler.spidercls, "start", None)
    if str(getattr(start, "__module__", "")).startswith("scrapy.commands."):
        return True
    return crawler.settings.getpriority("DUPEFILTER_CLASS") == SETTINGS_PRIORITIES["command"]
