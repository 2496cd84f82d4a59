"""Hands batches of links over to servers: each batch becomes one job of a spider, which fetches the links.

A batch counts as handed over when a server has acknowledged it. A call whose answer was lost is repeated on the same
server, which recognises the job by its name, so no batch runs twice there; another server gets it only after
`_BOUND_SECONDS` without any answer. A batch that every server refuses is set aside, and the others go on. Links and
batches are in an SQLite file, so a process that is killed loses none.

Fixed: the names of jobs, by which a server recognises a repeated call; and that a batch is bound to a server before the
call, because the process may be killed within it.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from gossamer.errors import BadInput, GossamerError
from gossamer.platform_client.http import ServerRefused, ServerUnreachable
from gossamer.platform_client.platform import PlatformClient
from gossamer.platform_client.scrapyd import ScrapydClient
from gossamer.platform_client.targets import choose_target

log = logging.getLogger("gossamer.scrapy.batches")

BATCH_BYTES: Final = 64_000
"""Bytes of the links of a batch. Scrapyd hands them over on a command line, of which Linux allows 128 KiB."""
CALL_SECONDS: Final = 15.0
"""Time limit of a call of a server."""
_BOUND_SECONDS: Final = 120.0
"""Time for which a batch stays with a server whose answer to it was lost. A shorter one makes more batches run
twice."""
_RETRIES: Final = 2
"""Retries of a batch's job that fails, on servers that retry."""
_PAUSES: Final = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Pauses of a server after its first failure, its second, and so on."""
LOOK_SECONDS: Final = 0.2
"""Pause between two looks for batches."""
_PASSING: Final = frozenset({408, 425, 429})
"""Statuses from 400 to 499 after which the same call may succeed. HTTP's: fixed."""
_ASIDE: Final = "distributed-refused.jl"
"""Name of the file with the batches that were set aside. Documented: fixed."""


class LinkBatch(NamedTuple):
    """Links that become one job."""

    number: int
    name: str
    """Name of the job. It depends on the links, so that a copy of the file cannot make another job of this name."""
    links: Sequence[Any]
    """URLs, or objects with the fields of requests."""
    target: str
    """Server that may have it already. Empty: none."""
    tried_at: float
    """Time of the first call whose answer was lost, in seconds since 1970."""


class LinkStore:
    """Links and batches, in a folder or in memory. Usable from several threads; only one store uses a folder."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None: in memory. Batches that were set aside wait again. Raises BadInput if the folder is in use
        or its file is damaged."""
        self._lock = threading.Lock()
        self.aside_file = folder / _ASIDE if folder else None
        self._lock_descriptor = _lock_folder(folder) if folder else None
        path = str(folder / "distributed.db") if folder else ":memory:"
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            self._open()
        except sqlite3.Error as error:
            self.close()
            raise BadInput(f"{path} cannot be used: {error}") from None

    def _open(self) -> None:
        self._connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            "CREATE TABLE IF NOT EXISTS name (token TEXT);"
            "CREATE TABLE IF NOT EXISTS link"
            " (id INTEGER PRIMARY KEY, fingerprint BLOB UNIQUE, link TEXT, batch INTEGER);"
            "CREATE INDEX IF NOT EXISTS link_batch ON link (batch);"
            "CREATE TABLE IF NOT EXISTS batch (number INTEGER PRIMARY KEY, target TEXT DEFAULT '', tried_at REAL,"
            " failures INTEGER DEFAULT 0, is_aside INTEGER DEFAULT 0, is_done INTEGER DEFAULT 0);"
        )
        found = self._connection.execute("SELECT token FROM name").fetchone()
        self._token = found[0] if found else uuid.uuid4().hex[:12]
        if not found:
            self._connection.execute("INSERT INTO name VALUES (?)", (self._token,))
        self._connection.execute("UPDATE batch SET is_aside = 0, failures = 0 WHERE NOT is_done")
        # The server that may have a batch is asked first, however long this process was away.
        bound = "UPDATE batch SET tried_at = ? WHERE NOT is_done AND target != ''"
        self._connection.execute(bound, (time.time(),))
        if self.aside_file is not None:
            self.aside_file.unlink(missing_ok=True)
        loose = "SELECT count(*), coalesce(sum(length(link)), 0) FROM link WHERE batch IS NULL"
        self._loose, self._loose_bytes = self._connection.execute(loose).fetchone()
        """Number and length of the links that are in no batch; at most, because links that were known count, too."""

    def add(self, links: Sequence[tuple[bytes | None, str]]) -> int:
        """Add links by their fingerprints. Return how many are new. A link without a fingerprint is always new.

        A link is a URL, or the JSON of an object with the fields of a request.
        """
        with self._lock, self._transaction():
            self._loose += len(links)
            self._loose_bytes += sum(len(link) + 4 for _, link in links)
            before = self._connection.total_changes
            self._connection.executemany("INSERT OR IGNORE INTO link (fingerprint, link) VALUES (?, ?)", links)
            return self._connection.total_changes - before

    def make_batches(self, size: int, *, everything: bool) -> None:
        """Make batches of the links that are in none: full ones, or (`everything`) of all of them."""
        if not everything and self._loose < size and self._loose_bytes < BATCH_BYTES:
            return
        with self._lock:
            self._loose, self._loose_bytes = 0, 0
            while True:
                rows = self._connection.execute(
                    "SELECT id, link FROM link WHERE batch IS NULL ORDER BY id LIMIT ?", (size,)
                ).fetchall()
                total, fitting = 0, 0
                for _, link in rows:
                    total += len(json.dumps(_parsed(link))) + 2
                    if fitting and total > BATCH_BYTES:
                        break
                    fitting += 1
                if not rows or (not everything and fitting == len(rows) < size):
                    self._loose, self._loose_bytes = len(rows), total
                    return
                with self._transaction():
                    number = self._connection.execute("INSERT INTO batch DEFAULT VALUES").lastrowid
                    last = rows[fitting - 1][0]
                    self._connection.execute(
                        "UPDATE link SET batch = ? WHERE batch IS NULL AND id <= ?", (number, last)
                    )

    def waiting(self) -> list[LinkBatch]:
        """Return the next batches that no server has acknowledged, without their links and names. Those that failed
        come after the others."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT number, target, tried_at FROM batch WHERE NOT is_done AND NOT is_aside"
                " ORDER BY failures, number LIMIT 50"
            ).fetchall()
            return [LinkBatch(row[0], "", (), row[1], row[2] or 0.0) for row in rows]

    def load(self, batch: LinkBatch) -> LinkBatch:
        """Return a batch with its links and its name."""
        with self._lock:
            ask = "SELECT link FROM link WHERE batch = ? ORDER BY id"
            texts = [text for (text,) in self._connection.execute(ask, (batch.number,))]
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
        return batch._replace(name=f"{self._token}-{batch.number}-{digest}", links=[_parsed(text) for text in texts])

    def bind(self, number: int, target: str) -> None:
        """Record that a server may get a batch now; an empty one that none has it."""
        with self._lock:
            at = time.time() if target else None
            self._connection.execute("UPDATE batch SET target = ?, tried_at = ? WHERE number = ?", (target, at, number))

    def acknowledge(self, number: int) -> None:
        """Record that a server has a batch."""
        with self._lock:
            self._connection.execute("UPDATE batch SET is_done = 1 WHERE number = ?", (number,))

    def postpone(self, number: int) -> None:
        """Put a batch behind those that failed less often."""
        with self._lock:
            self._connection.execute("UPDATE batch SET failures = failures + 1 WHERE number = ?", (number,))

    def set_aside(self, batch: LinkBatch, reasons: Mapping[str, str]) -> None:
        """Take a batch with its links out of those that wait. `reasons`: the refusals by server.

        The batch and the reasons are appended to `aside_file`, if there is a folder. Raises OSError.
        """
        if self.aside_file is not None:
            line = json.dumps({"batch": batch.name, "reasons": reasons, "links": batch.links})
            with self.aside_file.open("a") as file:
                file.write(line + "\n")
        with self._lock:
            self._connection.execute("UPDATE batch SET is_aside = 1 WHERE number = ?", (batch.number,))

    def count_left(self) -> int:
        """Return how many links wait: no server has acknowledged them, and they are not set aside."""
        return self._count("batch IS NULL OR batch IN (SELECT number FROM batch WHERE NOT is_done AND NOT is_aside)")

    def count_aside(self) -> int:
        """Return how many links are set aside."""
        return self._count("batch IN (SELECT number FROM batch WHERE is_aside)")

    def _count(self, condition: str) -> int:
        with self._lock:
            return int(self._connection.execute(f"SELECT count(*) FROM link WHERE {condition}").fetchone()[0])  # noqa: S608

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._connection.close()
            if self._lock_descriptor is not None:
                os.close(self._lock_descriptor)
                self._lock_descriptor = None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


class BatchServer:
    """A server that gets batches."""

    def __init__(self, address: str, project: str) -> None:
        """Raises BadInput for an address that cannot be read."""
        url = address if "://" in address else f"http://{address}"
        target = choose_target(url, None)
        self.url = target.url
        self._project = project
        self._scrapyd = ScrapydClient(target, CALL_SECONDS)
        self._platform = PlatformClient(target)
        self._is_platform: bool | None = None
        self.failures = 0
        self.free_at = 0.0
        """Monotonic time until which the server is left alone."""

    def hand_over(self, batch: LinkBatch, spider: str, settings: dict[str, str]) -> None:
        """Make a batch a job of this server, once. Raises ServerUnreachable or ServerRefused."""
        was_known = self._is_platform is not None
        try:
            self._hand_over(batch, spider, settings)
        except ServerRefused as error:
            self._is_platform = None
            if not was_known or not _is_final(error):
                raise
            self._hand_over(batch, spider, settings)  # a server with another API may have taken its place

    def _hand_over(self, batch: LinkBatch, spider: str, settings: dict[str, str]) -> None:
        if self._is_platform is None:
            self._is_platform = self._has_platform()
        settings = {"DISTRIBUTED_START_URLS": json.dumps(batch.links), **settings}
        if not self._is_platform:
            if self._scrapyd.state(batch.name, self._project) is None:
                self._scrapyd.schedule(self._project, spider, {"batch": batch.name}, settings, jobid=batch.name)
            return
        body = {"project": self._project, "spider": spider, "name": batch.name, "retries": _RETRIES}
        headers = {"Idempotency-Key": batch.name}
        more = {"arguments": {"batch": batch.name}, "settings": settings}
        try:
            self._platform.call("POST", "/jobs", body={**body, **more}, headers=headers, seconds=CALL_SECONDS)
        except ServerRefused as error:
            if error.status != 409:
                raise
            # The server has the job of an earlier call: no other batch has this name.

    def _has_platform(self) -> bool:
        try:
            self._platform.call("GET", "/jobs", query={"limit": 1}, seconds=CALL_SECONDS)
        except ServerRefused as error:
            if error.status != 404:
                raise
            return False
        return True


class BatchSender(threading.Thread):
    """Hands batches over to servers, in a thread of its own."""

    def __init__(
        self, store: LinkStore, servers: Sequence[BatchServer], spider: str, settings: dict[str, str], stats: Any
    ) -> None:
        super().__init__(name="gossamer-batches", daemon=True)
        self._store = store
        self._servers = servers
        self._spider = spider
        self._settings = settings
        self._stats = stats
        self._turn = 0
        self._refusals: dict[int, dict[str, str]] = {}
        """Reasons of servers that refused a batch for good, by number of the batch and address of the server."""
        self.ending = threading.Event()
        self.accepted_at = time.monotonic()
        """Monotonic time at which a server accepted a batch, or none waited; at first, of the begin."""

    def run(self) -> None:
        """Hand over until `ending` is set."""
        while not self.ending.is_set():
            try:
                was_sent = self._send_next()
            except Exception:  # the disk is full, say; a thread that ends would hand nothing over any more
                log.exception("batches of links cannot be handed over at present")
                was_sent = self.ending.wait(_PAUSES[0])
            if not was_sent:
                self.ending.wait(LOOK_SECONDS)

    def _send_next(self) -> bool:
        """Try to hand over one batch. Return False if there is none, or no server for it at present."""
        batches = self._store.waiting()
        if not batches:
            self.accepted_at = time.monotonic()
        for batch in batches:
            if self._set_aside(batch):
                return True
            server = self._server_for(batch)
            if server is not None:
                self._send(server, batch)
                return True
        return False

    def _set_aside(self, batch: LinkBatch) -> bool:
        """Set a batch aside if all servers refused it for good. Return whether they did."""
        reasons = self._refusals.get(batch.number, {})
        if not all(server.url in reasons for server in self._servers):
            return False
        whole = self._store.load(batch)
        self._store.set_aside(whole, reasons)
        del self._refusals[batch.number]
        self._stats.inc_value("distributed/refused")
        what = "; ".join(reasons.values())
        log.error(
            "batch %s with %d links is set aside, because each server refused it: %s",
            whole.name,
            len(whole.links),
            what,
        )
        return True

    def _server_for(self, batch: LinkBatch) -> BatchServer | None:
        now = time.monotonic()
        reasons = self._refusals.get(batch.number, {})
        if batch.target and batch.target not in reasons and time.time() - batch.tried_at < _BOUND_SECONDS:
            bound = next((server for server in self._servers if server.url == batch.target), None)
            if bound is not None:
                return bound if bound.free_at <= now else None
        for step in range(len(self._servers)):
            server = self._servers[(self._turn + step) % len(self._servers)]
            if server.free_at <= now and server.url not in reasons:
                self._turn = (self._turn + step + 1) % len(self._servers)
                return server
        return None

    def _send(self, server: BatchServer, batch: LinkBatch) -> None:
        may_be_there = batch.target == server.url
        if not may_be_there:
            self._store.bind(batch.number, server.url)  # before the call: this process may be killed within it
        batch = self._store.load(batch)
        try:
            server.hand_over(batch, self._spider, self._settings)
        except Exception as error:  # an answer that has not the fields that Scrapyd's has, say
            if _was_not_done(error) and not may_be_there:
                self._store.bind(batch.number, "")
            server.free_at = time.monotonic() + _PAUSES[min(server.failures, len(_PAUSES) - 1)]
            server.failures += 1
            if _is_final(error):
                self._refusals.setdefault(batch.number, {})[server.url] = str(error)
            self._store.postpone(batch.number)
            self._stats.inc_value("distributed/failures")
            log.warning(
                "batch %s was not handed over to %s: %s",
                batch.name,
                server.url,
                error if isinstance(error, GossamerError) else repr(error),
            )
            return
        server.failures = 0
        self.accepted_at = time.monotonic()
        self._store.acknowledge(batch.number)
        self._refusals.pop(batch.number, None)
        self._stats.inc_value("distributed/batches")
        self._stats.inc_value(f"distributed/batches/{server.url}")
        log.info("batch %s with %d links was handed over to %s", batch.name, len(batch.links), server.url)


def _lock_folder(folder: Path) -> int:
    """Return the descriptor of a locked file in the folder. Raises BadInput if another process has the lock."""
    descriptor = os.open(folder / "distributed.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BadInput(
            f"another crawl hands over the links in {folder}. Wait for its end, or give this one another JOBDIR"
        ) from None
    return descriptor


def _parsed(text: str) -> Any:
    """Return a stored link: a URL, or an object."""
    return json.loads(text) if text.startswith("{") else text


def _was_not_done(error: Exception) -> bool:
    """Return whether the server has certainly not begun the call. A 502 of a proxy does not say so."""
    if isinstance(error, ServerRefused):
        return error.status < 500
    return isinstance(error, ServerUnreachable) and error.never_arrived


def _is_final(error: Exception) -> bool:
    """Return whether the server would refuse the same call again, as that for a spider that it does not have."""
    if not isinstance(error, ServerRefused):
        return False
    if error.status == 0:  # Scrapyd names no status; these are its words for unknown projects and spiders
        return "not found" in str(error)
    return 400 <= error.status < 500 and error.status not in _PASSING
