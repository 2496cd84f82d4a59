"""Programs that make the same call with a shared frontier: they work on one crawl; each page goes to one of them."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb import graph
from tests.servers.program import python
from tests.servers.valkey import Server, standalone

_PROGRAM = """
import sys
import gossamer

seeds, overrides, frontier = eval(sys.argv[1])
for page in gossamer.crawl(*seeds, resolve=overrides, frontier=frontier, rate=30, domain_concurrency=4):
    print(page.record.url, flush=True)
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with standalone(tcp=True) as running:
        yield running


def started(web: FakeWeb, server: Server, folder: Path) -> "subprocess.Popen[str]":
    """Start a program in `folder` that prints the URL of each page; its errors go to a file beside the folder."""
    folder.mkdir(exist_ok=True)
    with folder.with_suffix(".err").open("w") as errors:
        return subprocess.Popen(
            [python(), "-c", _PROGRAM, repr((web.seeds(), web.resolve_overrides(), server.address))],
            cwd=folder,
            env={**os.environ, "GOSSAMER_WORKER__HEARTBEAT": "1", "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def test_two_programs_share_a_crawl_and_no_page_is_lost_when_one_is_killed(tmp_path: Path, server: Server) -> None:
    with FakeWeb.start(WebSpec(hosts=4, pages=100, page_bytes=1000)) as web, ExitStack() as stack:
        first, second = (stack.enter_context(started(web, server, tmp_path / name)) for name in ("one", "two"))
        assert first.stdout
        assert second.stdout
        urls_of_first, urls_of_second = [first.stdout.readline().strip()], [second.stdout.readline().strip()]
        assert urls_of_first[0], (tmp_path / "one.err").read_text()
        assert urls_of_second[0], (tmp_path / "two.err").read_text()
        assert first.poll() is None, "the crawl ended before a program could be killed in it"
        first.kill()
        urls_of_first += first.stdout.read().split()
        urls_of_second += second.stdout.read().split()
        assert second.wait(timeout=60) == 0, (tmp_path / "two.err").read_text()
        assert set(urls_of_first) | set(urls_of_second) == graph(web.site)
        assert len(urls_of_second) == len(set(urls_of_second))
        # The killed program may have been given pages that it had not yet reported as read: at most two batches.
        assert len(set(urls_of_first) & set(urls_of_second)) <= 32
        assert not list((tmp_path / "two").iterdir())
        late = stack.enter_context(started(web, server, tmp_path / "late"))
        assert late.wait(timeout=60) != 0
        assert "AlreadyFinished" in (tmp_path / "late.err").read_text()
