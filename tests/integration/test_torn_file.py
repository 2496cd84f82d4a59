"""Servers that keep half of a transaction when their append-only file is cut, and carry it out at a later start."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, DomainPolicy, Terms
from gossamer.model.info import CrawlInfo
from gossamer.sinks.jsonl import read_records
from gossamer_fakeweb import expected, fetched
from tests.servers import crawls
from tests.servers.crawling import command, resolving
from tests.servers.fleet import Fleet
from tests.servers.program import require
from tests.servers.valkey import Server, standalone, wait_until

CUTS = 3
EXEC = re.compile(rb"\*1\r\n\$4\r\nEXEC\r\n")


@pytest.fixture(params=["redis-server", "valkey-server"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """Redis of the system, which keeps half a transaction, and the one that Gossamer runs, which does not."""
    folder = tmp_path / "store"
    folder.mkdir()
    program = require(request.param) if request.param == "redis-server" else ""
    options = {"dir": str(folder), "appendfsync": "always", "auto-aof-rewrite-percentage": "0"}
    with standalone(tcp=True, options=options, program=program) as running:
        yield running


def newest_file(server: Server) -> Path:
    """The file to which the server appends."""
    files = Path(server.options["dir"]).glob("appendonlydir/*.incr.aof")
    return max(files, key=lambda path: int(path.name.split(".")[-3]))


def is_rewritten(server: Server) -> bool:
    """Whether the server has written its file anew since it started, and no half of a transaction is in it."""
    info = server.info("persistence")
    return int(info["aof_rewrites"]) > 0 and info["aof_rewrite_in_progress"] == "0"


def tear(server: Server) -> None:
    """Kill the server, cut its file in the middle of a long transaction near its end, and start it: it drops the
    command that is torn. At the next start it may carry out the half of the transaction that it has kept."""
    wait_until(
        lambda: (
            server.info("persistence")["aof_rewrite_in_progress"] == "0"
            and EXEC.search(newest_file(server).read_bytes()) is not None
        ),
        "a transaction",
    )
    server.kill()
    file = newest_file(server)
    data = file.read_bytes()
    begin = max(
        (data.rindex(b"*1\r\n$5\r\nMULTI\r\n", 0, match.end()) for match in [*EXEC.finditer(data)][-40:]),
        key=lambda at: data.index(b"EXEC\r\n", at) - at,
    )
    middle = (begin + data.index(b"EXEC\r\n", begin)) // 2
    file.write_bytes(data[:middle])
    server.start()
    server.command("PING")


async def asked(web: FakeWeb, count: int) -> None:
    await asyncio.to_thread(wait_until, lambda: web.stats().requests >= count, f"{count} requests")


class TornCrawl(msgspec.Struct):
    """A crawl by three workers that has ended, and the pages of its web that were and were not fetched."""

    info: CrawlInfo
    missing: set[str]
    said: str


async def crawl_torn(tmp_path: Path, server: Server, *, rewritten: bool) -> TornCrawl:
    """Tear the file of the server again and again, and start the server once more each time. `rewritten`: not before
    the file is written anew."""
    with (
        FakeWeb.start(WebSpec(hosts=6, pages=100, page_bytes=1000, out_degree=8)) as web,
        Fleet(tmp_path, resolve=web.resolve_overrides()) as fleet,
    ):
        pages = fetched(expected(web.site))
        frontier = await ValkeyFrontier.connect(server.address, dead_after_seconds=2.0)
        try:
            await frontier.set_domain_policy(None, DomainPolicy(hits=20, window_seconds=1.0, moderated=False))
            outputs = [tmp_path / f"pages{number}.jsonl" for number in range(3)]
            for output in outputs:
                fleet.start(frontier=server.address, output=output, environment={"GOSSAMER_LOG_LEVEL": "warning"})
            while len(await frontier.workers()) < len(outputs):  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # workers start at different times
            await crawls.open_crawl(frontier, web.seeds(), Terms())
            for cut in range(1, CUTS + 1):
                await asked(web, int(cut * 0.2 * len(pages)))
                await asyncio.to_thread(tear, server)
                if rewritten:
                    await asyncio.to_thread(wait_until, lambda: is_rewritten(server), "a new file")
                else:
                    await asked(web, int((cut * 0.2 + 0.05) * len(pages)))
                server.kill()
                server.start()
            async with asyncio.timeout(90):
                ended = await crawls.until_over(frontier)
        finally:
            await frontier.close()
        fleet.drain()
        said = "".join(member.log for member in fleet.members)
    records = [record for file in outputs if file.exists() for record in read_records(file)]
    return TornCrawl(ended, set(pages) - {record.url for record in records if record.success}, said)


async def test_a_crawl_ends_and_what_is_gone_is_told(tmp_path: Path, server: Server) -> None:
    """Counts that are right do not prove that nothing is gone: what is there twice makes up for what is not there."""
    crawl = await crawl_torn(tmp_path, server, rewritten=False)
    total = crawl.info.total()
    assert crawl.info.state is CrawlState.FINISHED
    assert (total.leased, total.waiting) == (0, 0)
    assert ("had lost a part of its writes" in crawl.said) == bool(crawl.info.repairs)
    assert not crawl.missing or crawl.info.repairs
    assert not total.dropped or crawl.info.repairs
    if "redis" not in server.program:
        assert (crawl.missing, crawl.info.repairs) == (set(), 0)


@pytest.mark.parametrize("server", ["redis-server"], indirect=True)
async def test_a_file_that_is_written_anew_in_time_loses_nothing(tmp_path: Path, server: Server) -> None:
    crawl = await crawl_torn(tmp_path, server, rewritten=True)
    assert crawl.info.state is CrawlState.FINISHED
    assert (crawl.missing, crawl.info.repairs) == (set(), 0)


# --- a crawl that does not go on --------------------------------------------------------------------------------------


class Stuck:
    """A crawl by the command, on a server in which a test breaks something. Its only domain is paused at first."""

    def __init__(self, folder: Path, web: FakeWeb, server: Server) -> None:
        self.server = server
        self._said = (folder / "said").open("w+")
        self.process = subprocess.Popen(
            command(
                "crawl", *web.seeds(), *resolving(web.resolve_overrides()), "--rate", "100/1", "--crawl-id", "stuck",
                "--frontier", server.address,
            ),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )  # fmt: skip
        wait_until(lambda: bool(self.keys("q:")), "requests that wait")

    def keys(self, start: str) -> list[str]:
        return [key.decode() for key in self.server.command("KEYS", f"gossamer:{{0}}:{start}*")]

    def said(self) -> str:
        return Path(self._said.name).read_text()

    def ended(self) -> tuple[int, str]:
        """Its exit code and summary."""
        out, _ = self.process.communicate(timeout=90)
        return self.process.returncode, out


@pytest.fixture
def paused() -> Iterator[Server]:
    with standalone(tcp=True) as running:
        asyncio.run(pause(running, DomainPolicy(scale=0.0)))
        yield running


async def pause(server: Server, policy: DomainPolicy | None) -> None:
    frontier = await ValkeyFrontier.connect(server.address)
    await frontier.set_domain_policy("site0.test", policy)
    await frontier.close()


@pytest.fixture
def stuck(tmp_path: Path, paused: Server) -> Iterator[Stuck]:
    with FakeWeb.start(WebSpec(hosts=1, pages=30)) as web:
        stuck = Stuck(tmp_path, web, paused)
        yield stuck
        stuck.process.kill()
        stuck.process.communicate()
        stuck._said.close()


def test_a_crawl_tells_what_it_waits_for(stuck: Stuck) -> None:
    wait_until(lambda: "The crawl waits for" in stuck.said(), "the crawl to tell")
    assert "1 request on site0.test, which a policy has paused or blacklisted." in stuck.said()
    asyncio.run(pause(stuck.server, None))
    code, out = stuck.ended()
    assert code == 0, out
    assert "The crawl goes on." in stuck.said()
    assert "is finished" in out


def test_a_queue_without_an_agenda_is_found_while_the_crawl_stands(stuck: Stuck) -> None:
    """Whatever server it is: nothing has been restarted."""
    stuck.server.command("DEL", *stuck.keys("a:"), *stuck.keys("off:"), *stuck.keys("policy"))
    code, out = stuck.ended()
    assert code == 0, out
    assert "had lost a part of its writes. Corrected: 1 queue that no worker would have got." in stuck.said()
    assert "is finished" in out


def test_a_crawl_whose_requests_are_gone_ends_and_says_so(stuck: Stuck) -> None:
    stuck.server.command("DEL", *stuck.keys("q:"), *stuck.keys("off:"), *stuck.keys("policy"))
    code, out = stuck.ended()
    assert code == 3, out
    assert "Gone: 1 request" in stuck.said()
    assert "The crawl stuck has ended, but may be incomplete: the frontier's server lost a part of its writes." in out
    assert "not fetched: lost 1" in out
    assert "--fresh fetches everything again." in out
