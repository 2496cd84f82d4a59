"""Child processes that extract content: a page beyond a limit costs only itself, and no process is left behind."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest

from gossamer.extract.content_pool import ContentLimits, ContentPool
from gossamer.extract.content_process import ContentReply
from gossamer.model.content import ContentError, ContentOptions

MARKDOWN = ContentOptions(markdown=True)
GOOD = ("<html><body><main><h1>Good</h1><p>" + "A sentence of this page. " * 20 + "</p></main></body></html>").encode()
TABLE = (
    "<html><body><main><table>" + ("<tr>" + "<td>cell</td>" * 60 + "</tr>") * 3000 + "</table></main></body></html>"
).encode()
"""Takes several seconds and some hundred MB."""


@asynccontextmanager
async def pool(*, processes: int = 1, cpu: float = 60.0, memory: int = 1 << 30) -> AsyncIterator[ContentPool]:
    opened = ContentPool(ContentLimits(processes=processes, cpu_seconds=cpu, memory_bytes=memory))
    try:
        yield opened
    finally:
        await opened.close()
        assert not opened.pids


async def extract(opened: ContentPool, body: bytes, group: str = "") -> ContentReply:
    return await opened.extract(body, encoding="utf-8", url="http://a.test/", options=MARKDOWN, group=group)


def error(reply: ContentReply) -> str:
    assert reply.content is not None
    return reply.content.error


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"cpu": 0.5}, ContentError.CPU), ({"memory": 40 << 20}, ContentError.MEMORY)],
)
async def test_a_page_beyond_a_limit_says_so_and_the_others_have_their_content(limits, expected) -> None:
    async with pool(**limits) as opened:
        replies = await asyncio.gather(*(extract(opened, body) for body in (GOOD, TABLE, GOOD, GOOD)))
    assert [error(reply) for reply in replies] == ["", expected, "", ""]
    assert all("# Good" in reply.content.markdown for reply in replies if not error(reply))


async def test_a_process_that_is_killed_is_replaced_and_its_page_read_again() -> None:
    async with pool() as opened:
        await extract(opened, GOOD)
        [first] = opened.pids
        waiting = asyncio.gather(*(extract(opened, GOOD) for _ in range(20)))
        os.kill(first, signal.SIGKILL)
        assert {error(reply) for reply in await waiting} == {""}
        assert first not in opened.pids


async def test_a_page_that_kills_every_process_is_given_up() -> None:
    async with pool() as opened:
        await extract(opened, GOOD)
        slow = asyncio.ensure_future(extract(opened, TABLE))
        killed: set[int] = set()
        while not slow.done():
            for pid in opened.pids - killed:
                process = psutil.Process(pid)
                if process.cpu_times().user > 1.0 and len(killed) < 3:
                    killed.add(pid)
                    process.kill()
            await asyncio.sleep(0.02)
        assert error(await slow) == ContentError.CRASHED
        assert len(killed) == 2


async def test_a_page_has_a_reason_if_no_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.extract.content_pool.sys.executable", "/bin/false")
    async with pool() as opened:
        assert {error(reply) for reply in await asyncio.gather(*(extract(opened, GOOD) for _ in range(3)))} == {
            ContentError.UNAVAILABLE
        }


async def test_a_page_whose_caller_went_away_is_not_read() -> None:
    async with pool() as opened:
        waiting = [asyncio.ensure_future(extract(opened, GOOD)) for _ in range(10)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert error(await extract(opened, GOOD)) == ""
        assert opened.waiting == 0


async def test_groups_take_turns() -> None:
    done: list[str] = []

    async def one(opened: ContentPool, group: str) -> None:
        await extract(opened, GOOD, group)
        done.append(group)

    async with pool() as opened:
        await extract(opened, GOOD)
        await asyncio.gather(*(one(opened, "large") for _ in range(30)), one(opened, "small"))
    assert done.index("small") < 6


PARENT = """
import asyncio, sys
from gossamer.extract.content_pool import ContentLimits, ContentPool
from gossamer.model.content import ContentOptions

async def main():
    pool = ContentPool(ContentLimits(processes=2, cpu_seconds=60, memory_bytes=1 << 30))
    body = open(sys.argv[1], "rb").read()
    jobs = [asyncio.ensure_future(pool.extract(body, encoding="utf-8", url="http://a.test/",
            options=ContentOptions(markdown=True))) for _ in range(4)]
    while len(pool.pids) < 2:
        await asyncio.sleep(0.01)
    print(*pool.pids, flush=True)
    await asyncio.gather(*jobs)

asyncio.run(main())
"""


def wait_until_busy(children: list[psutil.Process]) -> None:
    while any(child.cpu_times().user < 1.0 for child in children):
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process ends after the page that it works on")
async def test_no_process_outlives_a_parent_that_is_killed(tmp_path) -> None:
    (tmp_path / "page.html").write_bytes(TABLE)
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, tmp_path / "page.html", stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    children = [psutil.Process(int(pid)) for pid in (await parent.stdout.readline()).split()]
    assert len(children) == 2
    await asyncio.to_thread(wait_until_busy, children)  # they compute, and read nothing
    parent.kill()
    await parent.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, children, 5)
    assert not alive
