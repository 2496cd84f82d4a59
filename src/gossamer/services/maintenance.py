"""Periodic maintenance: expires and finishes crawls, reclaims leases of dead workers, and loads the policy file.

The frontier is the cluster's queue of requests, divided into shards; a run is one life of a crawl, from its first
request until nothing is left to do; a lease is a request that a worker holds. Each class is a role, whose step is
repeated.

Fixed: the names of the roles, which stand in logs and metrics; and that events are acknowledged only after they were
published, so that a process that is killed loses none.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gossamer.control import domains, stats
from gossamer.control.domains import MAX_YAML_BYTES
from gossamer.control.logins import trouble_of_pool
from gossamer.control.stats import Counters
from gossamer.errors import BadInput, FrontierUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlEvent, CrawlState
from gossamer.model.info import CrawlInfo
from gossamer.model.messages import answers
from gossamer.policy.liveness import LivenessJudge
from gossamer.services.outbound import OutboundPublisher
from gossamer.services.role import OUTAGES, PerShardRunner
from gossamer.sinks.history import HistoryTopic
from gossamer.sinks.remote import BlobStore
from gossamer.storage.audit import AuditedChange, AuditOutcome, AuditTrail
from gossamer.telemetry import logs
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.metrics import ServiceMetrics
from gossamer.telemetry.refusals import refused_by_sites

log = logging.getLogger("gossamer.services.maintenance")

_MAX_RUNS_PER_STEP = 100
"""Expired crawls, idle runs or events that one step handles per shard; the next step follows at once. Larger steps need
fewer calls, but each call blocks its shard for longer."""


class Expirer:
    """Implements Role. Expires crawls whose time is over.

    The frontier itself hands out no expired request; this role ends crawls that would otherwise wait forever."""

    name = "expirer"
    pause_seconds = 1.0
    """Longest delay until an expired crawl is noticed. Each round is one call per shard."""

    def __init__(self, frontier: ValkeyFrontier, troubles: Troubles) -> None:
        self._frontier = frontier
        self._shards = PerShardRunner(self.name, frontier.shard_count, self._expire, troubles)

    async def run_once(self) -> bool:
        return await self._shards.run()

    async def _expire(self, shard: int) -> bool:
        """Expire crawls of one shard. Return True if any had expired: there may be more."""
        return await self._frontier.expire_due(limit=_MAX_RUNS_PER_STEP, shard=shard) > 0

    async def close(self) -> None:
        await self._shards.close()


class Finisher:
    """Implements Role. Finishes idle runs and publishes the events of ended crawls.

    The frontier creates an event when a crawl ends, after its last page was published. The event is published at least
    once, always with the same `event_id`. It stays in the frontier while its application's topic cannot take it, at
    most until it is a dead letter; events of other applications do not wait for it."""

    name = "finisher"
    pause_seconds = 0.5
    """Longest delay of an event. Each round is two calls per shard."""

    def __init__(
        self,
        frontier: ValkeyFrontier,
        outbound: OutboundPublisher,
        counters: Counters,
        metrics: ServiceMetrics,
        troubles: Troubles,
        *,
        history: HistoryTopic | None = None,
        now: Callable[[], float],
    ) -> None:
        """`history`: gets the events, too, where a historian runs; None: nothing else does. `now`: returns epoch
        seconds."""
        self._frontier = frontier
        self._outbound = outbound
        self._history = history
        self._counters = counters
        self._metrics = metrics
        self._now = now
        self._publisher = secrets.token_hex(8)  # other processes leave events alone that this one is publishing
        self._late: list[dict[str, asyncio.Future[None]]] = [{} for _ in range(frontier.shard_count)]
        """For each shard, deliveries of events that take long, by the event's id."""
        self._shards = PerShardRunner(self.name, frontier.shard_count, self._publish_events, troubles)

    async def run_once(self) -> bool:
        return await self._shards.run()

    async def _publish_events(self, shard: int) -> bool:
        """Finish idle runs of one shard and publish its events. Return True if there were any: there may be more."""
        finished = await self._frontier.finish_idle(limit=_MAX_RUNS_PER_STEP, shard=shard)
        late = self._late[shard]
        events = await self._frontier.pending_events(
            limit=_MAX_RUNS_PER_STEP + len(late), shard=shard, publisher=self._publisher
        )
        new = [event for event in events if event.event_id not in late]
        if new:
            infos = await self._infos(new)
            deliveries = await self._outbound.send(
                [await self._message(event, info) for event, info in zip(new, infos, strict=True)]
            )
            for event in new:
                if event.crawl.appid in deliveries:
                    late[event.event_id] = deliveries[event.crawl.appid]
        published = [event for event in events if event.event_id not in late or late[event.event_id].done()]
        if published:
            if self._history is not None:
                await self._history.publish_ends(published)
            await self._acknowledge(published)
        self._late[shard] = {
            event.event_id: late[event.event_id]
            for event in events
            if event.event_id in late and event not in published
        }
        return finished > 0 or bool(published)

    async def _infos(self, events: Sequence[CrawlEvent]) -> list[CrawlInfo | None]:
        """Return the crawl of each event. None: it has another run by now, or a shard is away, for which events do not
        wait."""
        try:
            infos = await self._frontier.crawl_infos([event.crawl for event in events])
        except FrontierUnavailable:
            return [None for _ in events]
        return [
            info if info is not None and info.run == event.run else None
            for event, info in zip(events, infos, strict=True)
        ]

    async def _message(self, event: CrawlEvent, info: CrawlInfo | None) -> dict[str, Any]:
        """Return the message about an event, with the numbers of fetched and refused pages, and the accounts of its
        login that have failed, as far as they are known."""
        if info is None:
            return answers.event(event, now=self._now())
        pages = info.spiders.get(event.spider) if event.spider else info.pages
        refused = sum(refused_by_sites(pages.failed).values()) if pages else 0
        counts = {"fetched": pages.fetched if pages else 0, "refused": refused}
        trouble = ""
        with contextlib.suppress(FrontierUnavailable):
            trouble = await trouble_of_pool(self._frontier, info.pool)
        return answers.event(event, now=self._now(), counts=counts, login_failed=trouble)

    async def _acknowledge(self, events: Sequence[CrawlEvent]) -> None:
        """Delete events that are published from the frontier, and count them."""
        await self._frontier.acknowledge_events(events)
        for event in events:
            self._metrics.events.labels(event.kind.value).inc()
        expired = sum(event.kind is CrawlState.EXPIRED for event in events)
        if expired:  # counted under the name of Scrapy Cluster's plugin, which its dashboards show
            await self._counters.add(stats.ACTIONS, {"total": expired, "plugins:ExpireMonitor": expired})

    async def close(self) -> None:
        await self._shards.close()


_REAPER_ROUNDS_PER_LIFETIME = 4
"""Rounds of the reaper in the time after which a worker counts as dead. More find dead workers earlier, and each round
is a few calls per shard. Must be at least 4: during an outage that is long enough to make a living worker appear dead
(about 0.63 of that time), a round must begin so early that its first call takes longer than _HUNG_SHARE of
frontier/valkey/maintenance.py; then no worker is declared dead."""
_BLOB_PURGE_SECONDS = 3600.0
"""Time between two deletions of old blobs (long bodies and messages, kept beside the bus). Blobs are kept by the day,
so a shorter time deletes them hardly earlier; a longer one needs more disk."""


class Reaper:
    """Implements Role. Reclaims leases of dead workers, reports lost data, and deletes old blobs."""

    name = "reaper"

    def __init__(
        self,
        frontier: ValkeyFrontier,
        blobs: BlobStore,
        troubles: Troubles,
        *,
        dead_after_seconds: float,
        blob_retention_seconds: float,
    ) -> None:
        """`dead_after_seconds`: the setting `worker.heartbeat`: a worker without a heartbeat for so long counts as
        dead; all processes must have the same value. `blob_retention_seconds`: age at which blobs are deleted."""
        self._frontier = frontier
        self._blobs = blobs
        self._blob_retention_seconds = blob_retention_seconds
        self._judges = [LivenessJudge(dead_after_seconds) for _ in range(frontier.shard_count)]
        self._shards = PerShardRunner(self.name, frontier.shard_count, self._maintain, troubles)
        self.pause_seconds = dead_after_seconds / _REAPER_ROUNDS_PER_LIFETIME
        self._purged_at = float("-inf")
        self._lost_shards = frontier.lost_shards

    async def run_once(self) -> bool:
        await self._shards.run()
        if self._frontier.lost_shards > self._lost_shards:
            log.error(
                "%s The frontier lost the data of %d shards: its server was emptied, or restarted without its data. "
                "Crawls, policies and waiting requests are gone; the service continues with the empty frontier.",
                logs.FRONTIER_LOST,
                self._frontier.lost_shards - self._lost_shards,
            )
            self._lost_shards = self._frontier.lost_shards
        if time.monotonic() - self._purged_at > _BLOB_PURGE_SECONDS:
            await self._blobs.purge(retention_seconds=self._blob_retention_seconds)
            self._purged_at = time.monotonic()
        return False

    async def _maintain(self, shard: int) -> bool:
        """Run the maintenance of one shard. While the shard was away no worker could send heartbeats, so after an
        outage none is declared dead until each could."""
        judge = self._judges[shard]
        try:
            await self._frontier.maintain(
                may_declare_dead=lambda: judge.may_declare_dead(time.monotonic()), shard=shard
            )
        except FrontierUnavailable:
            judge.on_failure()
            raise
        judge.on_reply(time.monotonic())
        return False

    async def close(self) -> None:
        await self._shards.close()


_LOOK_SECONDS = 0.3
"""Time between two looks at the policy file. It delays the loading of a change."""
_SETTLED_SECONDS = 0.2
"""Time without a change after which the policy file counts as complete. Must exceed the pause between two writes of a
program that writes in steps. A larger value only delays loading."""
_FIRST_LOAD_SECONDS = 5.0
"""Longest time that a start waits for a policy file that is being written."""
_POLICY_ACTOR = "policy file"
"""Actor of its changes in the audit: fixed."""
_POLICY_TROUBLE = "policy-file"
"""Name of the trouble that the policy file causes. Must differ from the role's name: `run_role` ends the trouble of
that name after every successful step."""


class _Stamp(NamedTuple):
    """Identity of a version of the file. Only compared inside this process, so fields may be added."""

    modified_ns: int
    """Nanoseconds since the epoch."""
    changed_ns: int
    """Nanoseconds since the epoch. Unlike `modified_ns`, only the file system sets this time."""
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class _Content:
    """A version of the policy file."""

    stamp: _Stamp
    text: bytes
    """At most MAX_YAML_BYTES + 1: a longer file is refused anyway."""


class PolicyFile:
    """Implements Role. Keeps the domain policies equal to a YAML file, in place of Scrapy Cluster's ZooKeeper node.

    The file's policies replace all others at the start, when the file changes, and when the frontier has lost its data.
    The file is loaded when it has not changed for `_SETTLED_SECONDS` and is complete (`whole` in
    `control.domains.load_policies`). A file that is missing, empty, incomplete or invalid changes nothing; that is
    reported once."""

    name = "policies"

    def __init__(
        self,
        frontier: ValkeyFrontier,
        path: Path,
        troubles: Troubles,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`monotonic`, `clock`: return seconds; `clock` must be the clock that the file's times are taken from."""
        self._frontier = frontier
        self._path = path
        self._troubles = troubles
        self._monotonic = monotonic
        self._clock = clock
        self._processed: _Stamp | None = None
        """Stamp of the version that was loaded or rejected last."""
        self._newest: _Content | None = None
        """A version that was seen later but is not processed yet."""
        self._newest_seen_at = 0.0
        """When `_newest` was first seen, by `monotonic`."""
        self._fault = ""
        """Reason why the last version was rejected; empty: it was loaded."""
        self._lost_shards = frontier.lost_shards
        self.audit: AuditTrail | None = None
        """Takes an entry whenever the file is loaded. Set once, before the first step. None: there is no audit."""

    @property
    def pause_seconds(self) -> float:
        return _SETTLED_SECONDS if self._newest else _LOOK_SECONDS

    async def load_first(self) -> None:
        """Load the file at the start of a service, so that its first page is fetched under these policies. A file that
        cannot be loaded in `_FIRST_LOAD_SECONDS` is left to the steps."""
        deadline = self._monotonic() + _FIRST_LOAD_SECONDS
        with contextlib.suppress(*OUTAGES):  # the first step meets it again, and reports it
            await self.run_once()
            while self._newest is not None and self._monotonic() < deadline:
                await asyncio.sleep(self.pause_seconds)
                await self.run_once()

    async def run_once(self) -> bool:
        if self._frontier.lost_shards != self._lost_shards:  # the policies are lost as well
            self._lost_shards = self._frontier.lost_shards
            self._processed = None
        try:
            content = await asyncio.to_thread(self._read_if_changed)
        except OSError as error:
            message = f"{self._path} cannot be read ({error.strerror}); the policies stay as they are"
            self._troubles.update(_POLICY_TROUBLE, message)
            return False
        if content is None:
            # The file did not change, but it may have been missing until now: report its last state again.
            if self._fault:
                self._troubles.update(_POLICY_TROUBLE, self._fault)
            else:
                self._report_loaded()
        elif self._is_settled(content):
            await self._load(content)
        return False

    async def close(self) -> None:
        return

    async def _load(self, content: _Content) -> None:
        """Put the policies of this version into force, or report why they are not valid."""
        change = AuditedChange(actor=_POLICY_ACTOR, action="domains.replace", subject=domains.DEFAULT_POLICY)
        entry = 0 if self.audit is None else await self.audit.begin(change)
        outcome = AuditOutcome(200)
        try:
            version = await domains.replace_all(self._frontier, content.text, whole=True)
        except BadInput as error:
            outcome = AuditOutcome(400, error.detail)
            self._fault = f"{self._path}: {error.detail}; the policies stay as they are"
            self._troubles.update(_POLICY_TROUBLE, self._fault)
        else:
            self._fault = ""
            self._report_loaded()
            log.info("%s %s version %d", logs.POLICIES_LOADED, self._path, version)
        self._processed, self._newest = content.stamp, None
        if self.audit is not None:
            await self.audit.end(entry, change, outcome)

    def _is_settled(self, content: _Content) -> bool:
        """Return whether the file has not changed for `_SETTLED_SECONDS`, as far as this process has seen.

        For the first version, the file's own times are believed as well, so that the policies are loaded at the start
        without a wait. Later versions are not: a program may set the times of a file that it is still writing."""
        now = self._monotonic()
        if self._newest != content:
            self._newest, self._newest_seen_at = content, now
        changed_at = max(content.stamp.modified_ns, content.stamp.changed_ns) / 1e9
        is_old = self._processed is None and self._clock() - changed_at >= _SETTLED_SECONDS
        return is_old or now - self._newest_seen_at >= _SETTLED_SECONDS

    def _read_if_changed(self) -> _Content | None:
        """Return the file's content; None if it is the version that was processed last."""
        with self._path.open("rb") as stream:
            facts = os.fstat(stream.fileno())
            stamp = _Stamp(facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino)
            return None if stamp == self._processed else _Content(stamp, stream.read(MAX_YAML_BYTES + 1))

    def _report_loaded(self) -> None:
        """Report that the file is in force, if something else was reported before."""
        self._troubles.end(_POLICY_TROUBLE, f"{self._path} is in force again.")
