"""Hands batches of links over to servers: each batch becomes one job of a spider, which fetches the links.

A batch counts as handed over when a server has acknowledged it. A call whose answer was lost is repeated on the same
server, which recognises the job by its name, so no batch runs twice there; another server gets it only after
`_BOUND_SECONDS` without any answer. Links and batches are in an SQLite file, so a process that is killed loses none.

Safe to change: numbers. Fixed: the names of jobs, by which a server recognises a repeated call; and that a batch is
bound to a server before the call, because the process may be killed within it.
"""

import contextlib
import json
import logging
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from gossamer.errors import GossamerError
from gossamer.platform.client.http import ServerRefused, ServerUnreachable
from gossamer.platform.client.platform import PlatformClient
from gossamer.platform.client.scrapyd import ScrapydClient
from gossamer.platform.client.targets import choose_target

log = logging.getLogger("gossamer.scrapy.batches")

_BATCH_BYTES: Final = 64_000
"""Bytes of the links of a batch. Scrapyd hands them over on a command line, of which Linux allows 128 KiB. May be
lowered."""
CALL_SECONDS: Final = 15.0
"""Time limit of a call of a server. May be changed."""
_BOUND_SECONDS: Final = 120.0
"""Time for which a batch stays with a server whose answer to it was lost. May be changed; a shorter one makes more
batches run twice."""
_RETRIES: Final = 2
"""Retries of a batch's job that fails, on servers that retry. May be changed."""
_PAUSES: Final = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Pauses of a server after its first failure, its second, and so on. May be changed."""
LOOK_SECONDS: Final = 0.2
"""Pause between two looks for batches. May be changed."""


class LinkBatch(NamedTuple):
    """Links that become one job."""

    number: int
    name: str
    """Name of the job."""
    urls: Sequence[str]
    target: str
    """Server that may have it already. Empty: none."""
    tried_at: float
    """Time of the first call whose answer was lost, in seconds since 1970."""


class LinkStore:
    """Links and batches, in a file or in memory. Usable from several threads."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            "CREATE TABLE IF NOT EXISTS name (token TEXT);"
            "CREATE TABLE IF NOT EXISTS link"
            " (id INTEGER PRIMARY KEY, fingerprint BLOB UNIQUE, url TEXT, batch INTEGER);"
            "CREATE INDEX IF NOT EXISTS link_batch ON link (batch);"
            "CREATE TABLE IF NOT EXISTS batch (number INTEGER PRIMARY KEY, target TEXT DEFAULT '', tried_at REAL,"
            " is_done INTEGER DEFAULT 0);"
        )
        found = self._connection.execute("SELECT token FROM name").fetchone()
        self._token = found[0] if found else uuid.uuid4().hex[:12]
        if not found:
            self._connection.execute("INSERT INTO name VALUES (?)", (self._token,))
        loose = "SELECT count(*), coalesce(sum(length(url)), 0) FROM link WHERE batch IS NULL"
        self._loose, self._loose_bytes = self._connection.execute(loose).fetchone()
        """Number and length of the links that are in no batch; at most, because links that were known count, too."""

    def add(self, links: Sequence[tuple[bytes | None, str]]) -> int:
        """Add links by their fingerprints. Return how many are new. A link without a fingerprint is always new."""
        with self._lock, self._transaction():
            self._loose += len(links)
            self._loose_bytes += sum(len(url) + 4 for _, url in links)
            before = self._connection.total_changes
            self._connection.executemany("INSERT OR IGNORE INTO link (fingerprint, url) VALUES (?, ?)", links)
            return self._connection.total_changes - before

    def make_batches(self, size: int, *, everything: bool) -> None:
        """Make batches of the links that are in none: full ones, or (`everything`) of all of them."""
        if not everything and self._loose < size and self._loose_bytes < _BATCH_BYTES:
            return
        with self._lock:
            self._loose, self._loose_bytes = 0, 0
            while True:
                rows = self._connection.execute(
                    "SELECT id, url FROM link WHERE batch IS NULL ORDER BY id LIMIT ?", (size,)
                ).fetchall()
                total, fitting = 0, 0
                for _, url in rows:
                    total += len(json.dumps(url)) + 2
                    if fitting and total > _BATCH_BYTES:
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
        """Return the next batches that no server has acknowledged."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT number, target, tried_at FROM batch WHERE NOT is_done ORDER BY number LIMIT 50"
            ).fetchall()
            return [LinkBatch(row[0], f"{self._token}-{row[0]}", (), row[1], row[2] or 0.0) for row in rows]

    def urls(self, number: int) -> list[str]:
        """Return the links of a batch."""
        with self._lock:
            rows = self._connection.execute("SELECT url FROM link WHERE batch = ? ORDER BY id", (number,)).fetchall()
            return [url for (url,) in rows]

    def bind(self, number: int, target: str) -> None:
        """Record that a server may get a batch now; an empty one that none has it."""
        with self._lock:
            at = time.time() if target else None
            self._connection.execute("UPDATE batch SET target = ?, tried_at = ? WHERE number = ?", (target, at, number))

    def acknowledge(self, number: int) -> None:
        """Record that a server has a batch."""
        with self._lock:
            self._connection.execute("UPDATE batch SET is_done = 1 WHERE number = ?", (number,))

    def count_left(self) -> int:
        """Return how many links no server has acknowledged."""
        with self._lock:
            left = "batch IS NULL OR batch IN (SELECT number FROM batch WHERE NOT is_done)"
            return int(self._connection.execute(f"SELECT count(*) FROM link WHERE {left}").fetchone()[0])  # noqa: S608

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

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
        if self._is_platform is None:
            self._is_platform = self._has_platform()
        settings = {"DISTRIBUTED_START_URLS": json.dumps(batch.urls), **settings}
        if not self._is_platform:
            if batch.target and self._scrapyd.state(batch.name, self._project) is not None:
                return
            self._scrapyd.schedule(self._project, spider, {"batch": batch.name}, settings, jobid=batch.name)
            return
        body = {"project": self._project, "spider": spider, "name": batch.name, "retries": _RETRIES}
        headers = {"Idempotency-Key": batch.name}
        more = {"arguments": {"batch": batch.name}, "settings": settings}
        self._platform.call("POST", "/jobs", body={**body, **more}, headers=headers, seconds=CALL_SECONDS)

    def forget_kind(self) -> None:
        """Find out anew which API the server has: another one may have taken its place."""
        self._is_platform = None

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
        self.ending = threading.Event()
        self.answered_at = time.monotonic()
        """Monotonic time of the last answer of any server, or of the begin."""

    def run(self) -> None:
        """Hand over until `ending` is set."""
        while not self.ending.is_set():
            try:
                was_sent = self._send_next()
            except sqlite3.Error:
                log.exception("batches of links cannot be read")
                was_sent = False
            if not was_sent:
                self.ending.wait(LOOK_SECONDS)

    def _send_next(self) -> bool:
        """Try to hand over one batch. Return False if there is none, or no server for it at present."""
        batches = self._store.waiting()
        if not batches:
            self.answered_at = time.monotonic()
        for batch in batches:
            server = self._server_for(batch)
            if server is not None:
                self._send(server, batch)
                return True
        return False

    def _server_for(self, batch: LinkBatch) -> BatchServer | None:
        now = time.monotonic()
        if batch.target and time.time() - batch.tried_at < _BOUND_SECONDS:
            bound = next((server for server in self._servers if server.url == batch.target), None)
            if bound is not None:
                return bound if bound.free_at <= now else None
        for step in range(len(self._servers)):
            server = self._servers[(self._turn + step) % len(self._servers)]
            if server.free_at <= now:
                self._turn = (self._turn + step + 1) % len(self._servers)
                return server
        return None

    def _send(self, server: BatchServer, batch: LinkBatch) -> None:
        may_be_there = batch.target == server.url
        if not may_be_there:
            self._store.bind(batch.number, server.url)  # before the call: this process may be killed within it
        given = batch._replace(urls=self._store.urls(batch.number), target=server.url if may_be_there else "")
        try:
            server.hand_over(given, self._spider, self._settings)
        except GossamerError as error:
            was_refused = isinstance(error, ServerRefused) and error.status != 503
            never_arrived = isinstance(error, ServerUnreachable) and error.never_arrived
            if (was_refused or never_arrived) and not may_be_there:
                self._store.bind(batch.number, "")
            server.free_at = time.monotonic() + _PAUSES[min(server.failures, len(_PAUSES) - 1)]
            server.failures += 1
            if not isinstance(error, ServerUnreachable):
                server.forget_kind()
            self._stats.inc_value("distributed/failures")
            log.warning("batch %s was not handed over: %s", batch.name, error)
            return
        server.failures = 0
        self.answered_at = time.monotonic()
        self._store.acknowledge(batch.number)
        self._stats.inc_value("distributed/batches")
        self._stats.inc_value(f"distributed/batches/{server.url}")
        log.info("batch %s with %d links was handed over to %s", batch.name, len(given.urls), server.url)
