"""Connects a process to its frontier, lists its crawls, and keeps notes of those started with a data directory.

The frontier is the store of the requests to fetch: one or more Valkey or Redis servers that processes share, or a
private server in the data directory. Fixed: the folder, the names and the fields of the stored notes, which `gossamer
why` reads in any later version.
"""

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, CrawlState, Run, Terms
from gossamer.model.info import CrawlInfo
from gossamer.option_names import named
from gossamer.settings import Settings
from gossamer.sinks.open import has_content, is_local, local_path
from gossamer.telemetry import logs
from gossamer.valkey.datadir import DataDir, unusable
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.valkey.shards import Shards


@asynccontextmanager
async def frontier_address(
    settings: Settings, *, name: str, on_trouble: Callable[[str], None] | None = None
) -> AsyncIterator[str]:
    """Return the address of the frontier. Where the settings name none, run a Valkey server in the data directory.

    That server lives as long as the context, and is restarted if it dies; `on_trouble` gets sentences about that. Where
    it cannot be reached because its directory cannot be written, the error says so.
    `name`: this command, which is shown to another command that wants the same data directory.
    """
    if settings.frontier:
        yield settings.frontier
        return
    server = EmbeddedValkey(settings.data_dir, name=name, appendfsync=settings.embedded.fsync, on_trouble=on_trouble)
    await server.start()
    supervision = asyncio.create_task(server.supervise())
    try:
        yield server.address
    except FrontierUnavailable:
        if (error := DataDir(settings.data_dir).write_error()) is not None:
            raise unusable(settings.data_dir, error) from None
        raise
    finally:
        supervision.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await supervision
        await server.stop()


async def connect(settings: Settings, address: str) -> ValkeyFrontier:
    """Connect to the frontier at this address. Raises FrontierUnavailable, FrontierIncompatible, BadInput."""
    shards = await connect_shards(settings, address)
    try:
        return await open_frontier(settings, shards)
    except BaseException:
        await shards.close()
        raise


async def connect_shards(settings: Settings, address: str, *, option: str = "") -> Shards:
    """Connect to the servers of a frontier. If the address is one that a person wrote, an error has advice. `option`:
    the option with the address; empty: that of the frontier."""
    try:
        return await Shards.connect(address)
    except FrontierUnavailable as error:
        if not settings.frontier or type(error) is not FrontierUnavailable:
            raise
        raise FrontierUnavailable(
            f"{error.detail}. Check that a Valkey or Redis server runs there, or name another one with "
            f"{option or named('frontier')}."
        ) from None


async def open_frontier(settings: Settings, shards: Shards) -> ValkeyFrontier:
    """Open the frontier over existing connections, which are closed with it. Raises as `connect`."""
    return await ValkeyFrontier.from_connection(
        shards,
        prefix=settings.prefix,
        shards=settings.shards,
        dead_after_seconds=settings.worker.heartbeat,
        retention_seconds=settings.retention,
        stop_marker_seconds=settings.stopped_retention,
    )


def warn_of_servers(frontier: ValkeyFrontier, say: Callable[[str], None]) -> None:
    """Warn of servers of the frontier that may lose data, unless the log has shown it when this process connected."""
    for warning in () if logs.shows_warnings() else frontier.server_warnings:
        say(f"{warning}.")


async def list_running_first(
    frontier: ValkeyFrontier, *, appid: str | None = None, limit: int
) -> tuple[list[CrawlInfo], bool]:
    """Return at most `limit` crawls of an application (None: of all), and whether there may be more.

    Running crawls come first, so that finished ones, however many there are, take no room from them."""
    found: dict[CrawlId, CrawlInfo] = {}
    for state in (CrawlState.RUNNING, None):  # None: in any state, so the running ones are listed again
        cursor = ""
        while True:
            page, cursor = await frontier.list_crawls(appid=appid, state=state, cursor=cursor, limit=limit)
            found |= {info.crawl: info for info in page if info.crawl not in found}
            all_listed = state is None and not cursor
            if len(found) > limit or (len(found) == limit and not all_listed):
                return list(found.values())[:limit], True
            if not cursor:
                break
    return list(found.values()), False


_NAMES_A_PAGE = 1000
"""Crawls whose names one call reads, where a crawl is searched by its name. More make a call longer, fewer make more
calls."""


async def crawls_named(frontier: ValkeyFrontier, crawl_id: str) -> list[CrawlId]:
    """Return the crawls of all applications that have this name, however many crawls the frontier has."""
    found: dict[CrawlId, None] = {}  # each once: a page may repeat crawls of an earlier one
    cursor = ""
    while True:
        page, cursor = await frontier.list_crawl_ids(cursor=cursor, limit=_NAMES_A_PAGE)
        found |= dict.fromkeys(crawl for crawl in page if crawl.crawlid == crawl_id)
        if not cursor:
            return list(found)


_NOTES_FOLDER = "crawls"
"""Folder in the data directory. Must not change: the notes of earlier crawls lie there."""


class CrawlNote(msgspec.Struct, kw_only=True):
    """The latest start of a crawl from the command line, as stored in the data directory for `gossamer why`.

    Fields may be added, with a default; none may be renamed, or earlier notes could not be read.
    """

    run: Run
    """The crawl, and the number of its run: each life from a first request to its end is one."""
    terms: Terms
    """Options that its requests carry: scope, headers, limits."""
    spider: str
    outputs: tuple[str, ...]
    """Absolute paths, URLs, or - for standard output."""
    item_outputs: tuple[str, ...] = ()
    """Those of the outputs that take only items."""
    mixed_outputs: tuple[str, ...] = ()
    """Those of the outputs that were given pages and items, as far as the commands that wrote them have ended."""
    assets_in: tuple[str, ...] = ()
    """Folder and WARC files that get its assets, the files that pages embed or link, as absolute paths."""
    beside: tuple[str, ...] = ()
    """Other crawls whose records an output already had, and which a person let this crawl write to (--append)."""
    foreign: tuple[str, ...] = ()
    """Those of the outputs that also hold rows which name no crawl and were there before the crawl wrote to them
    (--append), as absolute paths."""
    made: tuple[str, ...] | None = None
    """Those of the outputs on this machine that had content when the latest command of the crawl ended, as absolute
    paths. None: not known, because no command of the crawl has ended here, or it was killed."""
    missing: int = 0
    """Records that were written and have vanished from the outputs, as commands of the crawl have found."""
    seeds: str = ""
    """Digest of the URLs that the crawl started from. Empty: not known."""
    resolve: dict[str, str] = {}
    """DNS overrides of the crawl (--resolve)."""
    allow_networks: tuple[str, ...] = ()
    """Private networks in which every host may be crawled."""
    ca_file: str = ""
    """Absolute path of the additional certificates. Empty: none."""
    resume_command: str = ""
    """Command line that resumes the crawl, with stars for passwords. Empty: not known, or a program started it."""
    index: str = ""
    """Page index of a crawl that is kept up to date: an absolute path, or the address of a database. Empty: none."""
    is_endless: bool = False
    """True: the command visits the pages again until it is interrupted (--recrawl)."""
    without_links: bool = False
    """True: an earlier start did not ask for the links of pages in their records (--links)."""

    @property
    def lacks_links(self) -> bool:
        """True: the records of some pages, or of all, do not have their links."""
        return self.without_links or not self.terms.links


def write_note(data_dir: Path, note: CrawlNote, *, is_start: bool = True) -> None:
    """Store the note, readable by its owner only, because it may hold a cookie. Raises BadInput where it cannot be
    written. `is_start` False: the note keeps its place among the crawls that were started (`known_crawls`)."""
    path = _note_path(data_dir, note.run.crawl.id.crawlid)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A unique name: commands that share a crawl may start at the same moment.
        new_path = path.parent / f"{secrets.token_hex(8)}.new"
        descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_encoded(note))
        if not is_start and path.exists():
            status = path.stat()
            os.utime(new_path, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.replace(new_path, path)
    except OSError as error:
        raise unusable(data_dir, error) from None


def read_note(data_dir: Path, crawl_id: str) -> CrawlNote | None:
    """Return the note of a crawl. None: no crawl of that name was started with this data directory, or its note cannot
    be read."""
    try:
        return _decoded(_note_path(data_dir, crawl_id).read_bytes())
    except (OSError, ValueError, msgspec.DecodeError):
        return None


def _encoded(note: CrawlNote) -> bytes:
    try:
        return msgspec.json.encode(note)
    except UnicodeEncodeError:  # a file's name that is not UTF-8 has lone surrogates, which msgspec does not take
        import json  # late: few crawls need it

        return json.dumps(msgspec.to_builtins(note)).encode()


def _decoded(content: bytes) -> CrawlNote:
    if rb"\ud" not in content:
        return msgspec.json.decode(content, type=CrawlNote)
    import json

    return msgspec.convert(json.loads(content), CrawlNote)


def delete_note(data_dir: Path, crawl_id: str) -> None:
    """Delete the note of a crawl, if there is one."""
    _note_path(data_dir, crawl_id).unlink(missing_ok=True)


def known_crawls(data_dir: Path) -> list[str]:
    """Return the names of the crawls that were started with this data directory, the latest last."""
    try:
        paths = sorted((data_dir / _NOTES_FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime)
    except OSError:
        return []
    return [path.stem for path in paths]


def absolute_path(path: str) -> str:
    """Return an output as notes name it: with the absolute path of a local file. URLs and standard output (-) stay as
    they are. Must not change: the notes of earlier crawls are compared with it."""
    return os.path.abspath(local_path(path)) if is_local(path) else path


def existing_paths(outputs: Sequence[str]) -> tuple[str, ...]:
    """Return the outputs of a note that still exist or cannot be checked, relative to this folder if they are in it."""
    here = os.getcwd() + os.sep
    return tuple(path.removeprefix(here) for path in outputs if not is_local(path) or os.path.exists(path))


def made_outputs(data_dir: Path, note: CrawlNote) -> tuple[str, ...]:
    """Return those outputs of the note that have content now, or had when an earlier command of the crawl ended, but
    for the pages kept for a report, which are in the data directory."""
    private = absolute_path(str(data_dir)) + os.sep
    local = [path for path in note.outputs if is_local(path) and not path.startswith(private)]
    return tuple(path for path in local if path in (note.made or ()) or has_content(Path(path)))


def gone_outputs(note: CrawlNote, outputs: Sequence[str]) -> list[str]:
    """Return those of these outputs that the crawl of the note has made here and that do not exist any more."""
    made = [path for path in outputs if absolute_path(path) in (note.made or ())]
    return [path for path in made if not local_path(path).exists()]


def may_have_written(note: CrawlNote, path: str) -> bool:
    """Return whether the crawl of the note has written to this file, an absolute path, as far as the note tells."""
    return path in (note.outputs if note.made is None else note.made)


def seeds_digest(seeds: Sequence[str]) -> str:
    """Return a text that is the same for crawls from the same seeds. It is in stored notes; if it is computed in
    another way, crawls count as those of other seeds."""
    return hashlib.blake2b("\n".join(sorted(seeds)).encode(), digest_size=16).hexdigest()


class KnownWriters(msgspec.Struct):
    """Crawls that were started with a data directory, as writers of files, for one of them."""

    data_dir: Path
    crawl_id: str
    """The crawl that wants to use the files."""
    seeds: str
    """Digest of its seeds, as in the notes of crawls."""

    def note(self) -> CrawlNote | None:
        """Return the note of the crawl's own latest start. None: it was not started here."""
        return read_note(self.data_dir, self.crawl_id)

    def others_of(self, path: str) -> list[CrawlNote]:
        """Return the notes of the other crawls that have written to this file, an absolute path; the latest last."""
        names = (name.replace("%2F", "/") for name in known_crawls(self.data_dir))
        notes = (read_note(self.data_dir, name) for name in names if name != self.crawl_id)
        return [note for note in notes if note is not None and may_have_written(note, path)]

    def may_replace(self, path: str, crawls: set[str]) -> bool:
        """Return whether --fresh may empty this file, which has records of these crawls (an empty name: of records that
        name none): only crawls that started from the same seeds, with this data directory, have ever written to it."""
        own, others = self.note(), self.others_of(path)
        writers = [*others, own] if own is not None and may_have_written(own, path) else others
        if any(path in note.foreign for note in writers) or any(note.seeds != self.seeds for note in others):
            return False
        names = {self.crawl_id, *(note.run.crawl.id.crawlid for note in writers)}
        held = crawls if crawls != {""} else {name for note in writers for name in note.beside}
        return bool(writers) and held <= names

    def forget(self, paths: Sequence[str]) -> None:
        """Take these files, which now belong to this crawl alone, out of the notes of the other crawls."""
        for path in paths:
            for note in self.others_of(path):
                without = {
                    name: tuple(one for one in getattr(note, name) or () if one != path)
                    for name in ("outputs", "item_outputs", "made", "foreign")
                    if getattr(note, name) is not None
                }
                write_note(self.data_dir, msgspec.structs.replace(note, **without), is_start=False)


def _note_path(data_dir: Path, crawl_id: str) -> Path:
    """Return the file of a crawl's note. Must not change: earlier notes lie there."""
    return data_dir / _NOTES_FOLDER / f"{crawl_id.replace('/', '%2F')}.json"
