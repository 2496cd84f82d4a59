"""How a process comes to its frontier: an address, and a connection to it."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import mkstemp

import msgspec

from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Run, Terms
from gossamer.settings import Settings
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.valkey.topology import MEMORY_ONLY


@asynccontextmanager
async def frontier_address(
    settings: Settings, *, name: str, on_trouble: Callable[[str], None] | None = None
) -> AsyncIterator[str]:
    """Where the frontier is. An embedded server lives as long as the context; `name` is shown to whoever finds it."""
    if settings.frontier:
        yield settings.frontier
        return
    server = EmbeddedValkey(settings.data_dir, name=name, appendfsync=settings.embedded.fsync, on_trouble=on_trouble)
    await server.start()
    supervision = asyncio.create_task(server.supervise())
    try:
        yield server.address
    finally:
        supervision.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await supervision
        await server.stop()


async def connect(settings: Settings, address: str) -> ValkeyFrontier:
    """Join the frontier there. Raises FrontierUnavailable, FrontierIncompatible, BadInput."""
    return await ValkeyFrontier.connect(
        address,
        prefix=settings.prefix,
        shards=settings.shards,
        heartbeat_seconds=settings.worker.heartbeat,
        retention_seconds=settings.retention,
        stop_marker_seconds=settings.marks,
    )


def warn_of_memory_only(frontier: ValkeyFrontier, say: Callable[[str], None]) -> None:
    """Warn a person of each server that keeps nothing on disk."""
    for server in frontier.memory_only_servers:
        say(f"{server} {MEMORY_ONLY}.")


_FOLDER = "crawls"


class CrawlNote(msgspec.Struct, kw_only=True):
    """One crawl as it was last begun here."""

    run: Run
    terms: Terms
    spider: str
    outputs: tuple[str, ...]
    resolve: dict[str, str] = {}
    """Overrides of DNS it was begun with."""
    ca_file: str = ""
    """Its authorities, as an absolute path. Empty: the system's only."""


def write_note(data_dir: Path, note: CrawlNote) -> None:
    """Keep it, for its owner only: it may hold a cookie. Raises BadInput for a directory that cannot be written."""
    path = _path(data_dir, note.run.crawl.id.crawlid)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A name of its own: commands that share a crawl may begin at the same moment.
        descriptor, fresh = mkstemp(dir=path.parent, suffix=".new")
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(note))
        os.replace(fresh, path)
    except OSError as error:
        raise BadInput(f"data directory {data_dir}: {error.strerror}") from None


def read_note(data_dir: Path, crawl_id: str) -> CrawlNote | None:
    """None: no crawl of that name was begun with this data directory."""
    try:
        return msgspec.json.decode(_path(data_dir, crawl_id).read_bytes(), type=CrawlNote)
    except (OSError, msgspec.DecodeError):
        return None


def known_crawls(data_dir: Path) -> list[str]:
    """The names of the crawls begun with this data directory, the latest last."""
    try:
        paths = sorted((data_dir / _FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime)
    except OSError:
        return []
    return [path.stem for path in paths]


def _path(data_dir: Path, crawl_id: str) -> Path:
    return data_dir / _FOLDER / f"{crawl_id.replace('/', '%2F')}.json"
