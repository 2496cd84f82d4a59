"""The options of the Python API are those of the command line."""

import inspect

from gossamer.cli.commands.crawl import crawl
from gossamer.crawling.options import CrawlOptions

ONLY_FOR_A_TERMINAL = {"json", "quiet", "items", "pages"}
ONLY_FOR_PROGRAMS = {"failures"}


def test_the_command_and_the_function_have_the_same_options() -> None:
    command = set(inspect.signature(crawl).parameters) - {"urls"} - ONLY_FOR_A_TERMINAL
    assert set(CrawlOptions.__annotations__) - ONLY_FOR_PROGRAMS == command
