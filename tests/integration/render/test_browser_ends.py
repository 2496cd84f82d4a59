"""A page on which the browser has ended is built once more, whatever other attempts of it failed."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from gossamer.fakeweb import Answer, Server, WebSpec, html, serve
from gossamer.fakeweb.answer import Silence
from gossamer.model.record import PageRecord
from tests.chaos.browsers import find
from tests.chaos.schedule import Kind
from tests.servers.crawling import FAST_FLAGS, records_of

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

DEADLY = html("<script>fetch('/killed')</script>")
"""The browser is killed when this page asks for more."""
BUSY = html("later", status=503)
GOOD = html("<body><script>document.body.innerHTML = '<h1>' + 'good' + '</h1>'</script>")
PAGES = {
    "deadly once, after other failures": ((BUSY, BUSY, DEADLY, GOOD), "", 4),
    "deadly twice, with another failure between": ((DEADLY, BUSY, DEADLY, GOOD), "browser_crashed", 3),
}


@pytest.mark.parametrize("case", PAGES)
async def test_it_is_built_once_more(tmp_path: Path, case: str) -> None:
    answers, reason, requests = PAGES[case]
    (tmp_path / "gossamer.toml").write_text("[fetch]\nretry_base = 0.01\n")
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", answers)
        web.mount("shop.test", "/killed", Answer(script=(Silence(),)))
        command = ("crawl", f"http://shop.test:{web.port}/", "--resolve", "shop.test:127.0.0.1", *FAST_FLAGS)
        crawl = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gossamer", *command, "--render", "always", "-o", "pages.jsonl", cwd=tmp_path
        )
        killed = 0
        while crawl.returncode is None:
            if count_of(web, "/killed") > killed:
                killed += 1
                for pid in find(crawl.pid, Kind.KILL_BROWSER):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(crawl.wait(), 0.02)
        asked = count_of(web, "/")
    (page,) = (record for record in records_of(tmp_path / "pages.jsonl") if isinstance(record, PageRecord))
    assert (page.reason, asked) == (reason, requests)
    assert ("<h1>good</h1>" in page.body) == (not reason)


def count_of(web: Server, path: str) -> int:
    """Return the number of requests for a path."""
    return [record.path for record in web.log()].count(path)
