"""The Python API for type checkers: what people's editors and mypy know of it without any stubs."""

import subprocess
import sys
from pathlib import Path

_GOOD = """
from typing import Any, assert_type
import gossamer

crawl = gossamer.crawl("https://a.test", max_pages=3, rate=0.5, output={"a.csv": "items"}, header={"A": "b"})
assert_type(crawl, gossamer.Crawler)
for page in crawl:
    assert_type(page, gossamer.Page)
    assert_type(page.status_code, int)
for item in crawl.items():
    assert_type(item, dict[str, Any])
assert_type(gossamer.get("https://a.test").text, str)
assert_type(crawl.run(), gossamer.Result)

class Shop(gossamer.Spider):
    pass

async def main() -> None:
    async for page in gossamer.crawl("https://a.test", spider=Shop):
        assert_type(page, gossamer.Page)
"""
_BAD = """
import gossamer

gossamer.crawl("https://a.test", max_page=3)
gossamer.crawl("https://a.test", scope="page")
gossamer.get("https://a.test", depth=3)
"""


def test_types_are_known_and_mistakes_are_found(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(_GOOD)
    (tmp_path / "bad.py").write_text(_BAD)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", "good.py", "bad.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    faults = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[:2] for line in faults] == [["bad.py", "4"], ["bad.py", "5"], ["bad.py", "6"]], done.stdout
