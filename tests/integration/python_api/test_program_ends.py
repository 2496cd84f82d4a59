"""Programs that end in the middle of a crawl: they end soon, and leave neither a server nor files behind."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.program import python

_LOOP = """
import gossamer

for number, page in enumerate(gossamer.crawl({seed!r}, resolve={{"site0.test": "127.0.0.1"}}, rate=100)):
    if number == 5:
        print("five", flush=True)
print("the end")
"""
_ASYNC_LOOP = """
import asyncio
import gossamer

async def main():
    number = 0
    async for page in gossamer.crawl({seed!r}, resolve={{"site0.test": "127.0.0.1"}}, rate=100):
        number += 1
        if number == 5:
            print("five", flush=True)
    print("the end")

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def seed() -> Iterator[str]:
    with FakeWeb.start(WebSpec(hosts=1, pages=3000)) as web:
        yield web.seeds()[0]


def ended(program: str, temporary: Path, number: signal.Signals) -> "subprocess.Popen[str]":
    """Start a program, send it this signal in the middle of its crawl, and return it after its end."""
    temporary.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [python(), "-c", program],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a script inherit that Ctrl-C is ignored.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout
    assert process.stdout.readline() == "five\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert out == ""
    assert ("KeyboardInterrupt" in err) is (number is signal.SIGINT)
    return process


def servers_in(folder: Path) -> list[int]:
    """Return the ids of the server processes whose data are in this folder."""
    found = []
    for path in folder.glob("*/valkey/pid"):
        with_id = Path("/proc", path.read_text().strip())
        if with_id.is_dir() and "server" in (with_id / "comm").read_text():
            found.append(int(with_id.name))
    return found


@pytest.mark.parametrize("program", [_LOOP, _ASYNC_LOOP], ids=["for", "async for"])
def test_ctrl_c_ends_the_program_and_leaves_nothing(program: str, seed: str, tmp_path: Path) -> None:
    process = ended(program.format(seed=seed), tmp_path / "temporary", signal.SIGINT)
    assert process.returncode in (-signal.SIGINT, 130)
    assert not list((tmp_path / "temporary").iterdir())


def test_a_killed_program_leaves_no_server_and_the_next_one_deletes_its_files(seed: str, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    ended(_LOOP.format(seed=seed), temporary, signal.SIGKILL)
    while servers_in(temporary):
        time.sleep(0.05)
    (left,) = temporary.glob("gossamer-crawl-*")
    os.utime(left, (0, 0))  # as if it were old enough to be sure that it is none that is being made
    ended(_LOOP.format(seed=seed), temporary, signal.SIGINT)
    assert not list(temporary.iterdir())


def test_a_crawl_that_runs_keeps_its_files(seed: str, tmp_path: Path) -> None:
    """However old they are."""
    program = f"""
import gossamer, os, pathlib
options = dict(resolve={{"site0.test": "127.0.0.1"}}, rate=100)
pages = iter(gossamer.crawl({seed!r}, **options))
next(pages)
(mine,) = pathlib.Path({str(tmp_path)!r}).glob("gossamer-crawl-*")
os.utime(mine, (0, 0))
assert len(list(gossamer.crawl({seed!r}, max_pages=3, **options))) == 3
assert [next(pages).status_code for _ in range(20)] == [200] * 20
"""
    done = subprocess.run(
        [python(), "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.iterdir())
