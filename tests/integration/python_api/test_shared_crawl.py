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
for page in gossamer.crawl(*seeds, resolve=overrides, frontier=frontier, rate=100, domain_concurrency=4):
    print(page.record.url, flush=True)
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with standalone(tcp=True) as running:
        yield running


def started(web: FakeWeb, server: Server, folder: Path) -> "subprocess.Popen[str]":
    """Start a program that prints the URL of each page it gets."""
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [python(), "-c", _PROGRAM, repr((web.seeds(), web.resolve_overrides(), server.address))],
        cwd=folder,
        env={**os.environ, "GOSSAMER_WORKER__HEARTBEAT": "1", "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_programs_share_a_crawl_and_no_page_is_lost_when_one_is_killed(tmp_path: Path, server: Server) -> None:
    with FakeWeb.start(WebSpec(hosts=4, pages=100, page_bytes=1000)) as web, ExitStack() as stack:
        first, second = (stack.enter_context(started(web, server, tmp_path / name)) for name in ("one", "two"))
        assert first.stdout
        urls_of_first = [first.stdout.readline().strip() for _ in range(30)]
        first.kill()
        urls_of_first += first.communicate()[0].split()
        out, err = second.communicate(timeout=60)
        assert second.returncode == 0, err
        urls_of_second = out.split()
        assert set(urls_of_first) | set(urls_of_second) == graph(web.site)
        assert len(urls_of_second) == len(set(urls_of_second))
        # The killed program may have been given pages that it had not yet reported as read: at most two batches.
        assert len(set(urls_of_first) & set(urls_of_second)) <= 32
        assert not list((tmp_path / "two").iterdir())
        late = started(web, server, tmp_path / "late")
        assert "AlreadyFinished" in late.communicate(timeout=60)[1]
