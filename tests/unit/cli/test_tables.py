"""Tables of commands: what others have named neither styles them nor controls the terminal."""

import io
import time

import pytest
from rich.console import Console

from gossamer.cli import tables
from gossamer.cli.commands import crawls
from gossamer.model.crawl import Crawl, CrawlId, CrawlState
from gossamer.model.info import CrawlInfo

NAME = "a\x1b[2J\x9b1m[red]b[/nothing]"
SHOWN = "a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}1m[red]b[/nothing]"


def test_texts_of_others_neither_control_the_terminal_nor_style_the_table() -> None:
    table = tables.PlainTable("name")
    table.add_row(NAME)
    shown = io.StringIO()
    Console(file=shown, force_terminal=True, color_system=None, width=60).print(table)
    assert SHOWN in shown.getvalue()


def _crawl() -> CrawlInfo:
    crawl = CrawlId(NAME, "x" * 200)
    return CrawlInfo(
        crawl=crawl, pool="shared", state=CrawlState.RUNNING, run=1, started=time.time(), ended=None, domains=0, seen=0,
        options=Crawl(id=crawl),
    )  # fmt: skip


def test_lists_of_crawls_show_their_names_as_they_are_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Names come from requests of any client."""
    crawls._print_table([crawls._ListedCrawl(_crawl().crawl, _crawl(), (), "running")])
    shown = capsys.readouterr().out
    assert shown.count(SHOWN) == 1
    assert shown.count("x" * 200) == 1
