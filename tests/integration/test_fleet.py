"""The fleet that chaos and politeness runs are made of: its members die, freeze and have wrong clocks when told."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, DomainPolicy, Terms
from gossamer.model.record import PageRecord
from gossamer.sinks.jsonl import read_records
from gossamer_fakeweb import expected
from tests.servers import crawls
from tests.servers.fleet import Fleet
from tests.servers.valkey import Server, standalone, wait_until

_TELL_TIME = "import time, datetime\nwhile True: print(time.time(), time.time_ns(), flush=True); time.sleep(0.01)"


@pytest.fixture
def server() -> Iterator[Server]:
    with standalone(tcp=True) as running:
        yield running


async def test_a_crawl_outlives_a_killed_and_a_frozen_worker(tmp_path: Path, server: Server) -> None:
    with (
        FakeWeb.start(WebSpec(hosts=4, pages=100, page_bytes=1000)) as web,
        Fleet(tmp_path, resolve=web.resolve_overrides(), environment={"GOSSAMER_WORKER__HEARTBEAT": "1"}) as fleet,
    ):
        frontier = await ValkeyFrontier.connect(server.address, dead_after_seconds=1.0)
        await frontier.set_domain_policy(None, DomainPolicy(hits=60, window_seconds=1.0))
        await crawls.open_crawl(frontier, web.seeds(), Terms())
        # Each has its own output: a process that is frozen while it holds a file's lock would hold up the others there.
        outputs = [tmp_path / f"{number}.jsonl" for number in range(3)]
        for output in outputs:
            fleet.start(frontier=server.address, output=output)
        names = [member.name for member in fleet.members]
        await asyncio.to_thread(
            wait_until, lambda: set(names) <= {record.agent for record in web.log()}, "all of them to fetch"
        )
        fleet.members[0].kill()
        fleet.members[1].freeze()
        await crawls.until_over(frontier)
        assert not fleet.members[0].alive
        fleet.members[1].thaw()
        await asyncio.to_thread(fleet.drain)
        assert [member.process.returncode for member in fleet.members[1:]] == [0, 0]
        records = [record for output in outputs if output.exists() for record in read_records(output)]
        assert {record.url for record in records if isinstance(record, PageRecord)} == set(expected(web.site))
        assert [event.kind for event in await crawls.ends(frontier)] == [CrawlState.FINISHED]
        await frontier.close()
        assert await crawls.left_behind(server.address) == []


def test_a_member_has_the_clock_it_is_given(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        member = fleet.launch("clock", [sys.executable, "-c", _TELL_TIME])

        def ahead() -> float:
            """By how much its last word is ahead of the log's own time, at least."""
            lines = member.log.splitlines()[:-1]
            return float(lines[-1].split()[0]) - os.stat(member.log_path).st_mtime if lines else 0.0

        wait_until(lambda: bool(member.log.splitlines()[1:]) and abs(ahead()) < 100, "it to tell the time")
        member.skew(1000.0)
        wait_until(lambda: 900 < ahead() < 1100, "it to be ahead")
        member.skew(-1000.0)
        wait_until(lambda: -1100 < ahead() < -900, "it to be behind")


def test_members_die_with_the_harness(tmp_path: Path) -> None:
    """However it ends: a run that is killed leaves nothing behind."""
    harness = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.servers.fleet import Fleet\n"
        "folder = Path(sys.argv[1])\n"
        "member = Fleet(folder).launch('sleeper', [sys.executable, '-c', 'SLEEP'])\n"
        "while not member.log: pass\n"
        "(folder / 'pid').write_text(str(member.process.pid))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    ).replace("SLEEP", "import time; print(1, flush=True); time.sleep(600)")
    subprocess.run([sys.executable, "-c", harness, str(tmp_path)], cwd=Path(__file__).parents[2], check=False)
    pid = int((tmp_path / "pid").read_text())

    def gone() -> bool:
        try:
            return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True

    wait_until(gone, "the member to be gone")
