"""Programs that make the same call with a shared frontier: they work on one crawl; each page goes to one of them."""

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb import graph
from tests.servers.program import python, until
from tests.servers.valkey import Server, standalone

_PROGRAM = """
import sys
import gossamer

seeds, overrides, frontier = eval(sys.argv[1])
for page in gossamer.crawl(*seeds, resolve=overrides, frontier=frontier, rate=10, domain_concurrency=4):
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
        programs = {"one": stack.enter_context(started(web, server, tmp_path / "one"))}
        # Of two that start at the same moment, neither resumes the other's crawl.
        select.select([programs["one"].stdout], [], [], 60)
        programs["two"] = stack.enter_context(started(web, server, tmp_path / "two"))
        errors = {name: tmp_path / f"{name}.err" for name in programs}
        # The program that comes second says that it resumes the crawl: from then on both work on it.
        until(lambda: any("Joining" in path.read_text() for path in errors.values()), "the second program")
        ready, _, _ = select.select([program.stdout for program in programs.values()], [], [], 60)
        killed = next(name for name, program in programs.items() if program.stdout in ready)
        programs[killed].kill()
        urls = {name: program.stdout.read().split() for name, program in programs.items() if program.stdout}
        survivor = next(name for name in programs if name != killed)
        assert programs[survivor].wait(timeout=60) == 0, errors[survivor].read_text()
        assert set(urls[killed]) | set(urls[survivor]) == graph(web.site)
        assert urls[killed]
        assert len(urls[killed]) < len(graph(web.site)), "the crawl ended before a program could be killed in it"
        assert len(urls[survivor]) == len(set(urls[survivor]))
        # The killed program may have been given pages that it had not yet reported as read: at most two batches.
        assert len(set(urls[killed]) & set(urls[survivor])) <= 32
        assert not list((tmp_path / survivor).iterdir())
        late = stack.enter_context(started(web, server, tmp_path / "late"))
        assert late.wait(timeout=60) != 0
        assert "AlreadyFinished" in (tmp_path / "late.err").read_text()
