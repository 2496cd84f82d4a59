"""Runs a spider of a file, as `scrapy runspider` does: FILE NAME --output=FILE [-s NAME=VALUE]... [-a NAME=VALUE]..."""

import importlib.util
import sys
from argparse import ArgumentParser
from typing import Any

from scrapy.crawler import AsyncCrawlerProcess, CrawlerProcess
from scrapy.settings import Settings
from scrapy.utils.spider import iter_spider_classes


def main() -> int:
    parser = ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("spider")
    parser.add_argument("--output")
    parser.add_argument("-s", action="append", default=[], dest="settings")
    parser.add_argument("-a", action="append", default=[], dest="arguments")
    given = parser.parse_args()
    specification = importlib.util.spec_from_file_location("tests.integration.scrapy_lane.spiders", given.file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    spiders = {found.name: found for found in iter_spider_classes(module)}
    settings = Settings({"FEEDS": {given.output: {"format": "jsonlines"}}}, priority="project")
    for setting in given.settings:
        name, _, value = setting.partition("=")
        settings.set(name, value, priority="cmdline")
    process: Any = (AsyncCrawlerProcess if "asyncio" in str(settings["TWISTED_REACTOR"]) else CrawlerProcess)(settings)
    process.crawl(spiders[given.spider], **dict(argument.split("=", 1) for argument in given.arguments))
    process.start()
    return 1 if process.bootstrap_failed else 0


if __name__ == "__main__":
    sys.exit(main())
