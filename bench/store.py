"""A Valkey of our own for one measurement: Gossamer's embedded server, durable as it is by default, or not."""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.crawlers import Store
from bench.places import BUILT
from gossamer.valkey.embedded import EmbeddedValkey


@dataclass(frozen=True, slots=True)
class Running:
    """Address and process id of a Valkey. Both are empty where a crawler needs none."""

    address: str = ""
    pid: int = 0


def embedded(folder: Path, *, durable: bool) -> EmbeddedValkey:
    """Return the server, which is not started yet. Not `durable`: it writes nothing to the disk."""
    return EmbeddedValkey(folder, name="bench", options={} if durable else {"appendonly": "no"})


@contextlib.contextmanager
def disk_folder() -> Iterator[Path]:
    """An empty folder on the disk that the project is on: the system's temporary one may be memory, which would make
    durability look free."""
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="data-", dir=BUILT) as name:
        yield Path(name)


@contextlib.contextmanager
def running(kind: Store) -> Iterator[Running]:
    """Start it, and stop it however the block ends."""
    if kind is Store.NONE:
        yield Running()
        return
    with disk_folder() as folder, asyncio.Runner() as runner:
        server = embedded(folder, durable=kind is Store.DURABLE)
        runner.run(server.start())
        try:
            yield Running(server.address, server.pid)
        finally:
            runner.run(server.stop())
