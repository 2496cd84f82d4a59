"""Operations for nodes: give them jobs, hear of their attempts, and notice those that are lost.

`LocalLink` calls these for a node of the manager's own process, `v1/node_calls.py` for nodes elsewhere. Any number of
managers may do so on one PostgreSQL database. Fixed: that every call may be repeated; and that a manager which could
not reach the database for a while gives the nodes time to be heard before it declares any of them lost.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import asdict, replace
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gossamer.pauses import happens_within
from gossamer_platform.lifecycle import EnvironmentKind, JobState
from gossamer_platform.link import (
    Artefact,
    AttemptId,
    AttemptLimits,
    AttemptProgress,
    BeatOrder,
    Ended,
    JobAssignment,
    JobInput,
    LinkRefused,
    Listed,
    Listing,
    ListingResult,
    NodeOrders,
    NodeReport,
    NodeTurn,
    Prepared,
    Progress,
    Returned,
    Started,
    StopOrder,
)
from gossamer_platform.manager.files import JobPlaces
from gossamer_platform.manager.operations import Manager
from gossamer_platform.manager.vault import SecretUnreadable
from gossamer_platform.outcome import MAX_FAULT, AttemptEnd, bounded_counters, failure_of
from gossamer_platform.state import dispatch, environments, groups, jobs, nodes, projects
from gossamer_platform.state.jobs import Job
from gossamer_platform.state.nodes import NewNode, Node, WatchedNode, lost_after
from gossamer_platform.state.projects import Version
from gossamer_platform.wire import AttemptOrder, Beat, BeatAnswer

T = TypeVar("T")

log = logging.getLogger("gossamer.platform.manager")

_LOOKS: Final = 10
"""Looks for lost nodes within the shortest limit of a node. Fewer ones delay the loss."""
_LONGEST_LOOK_SECONDS: Final = 2.0
"""Longest pause between two looks."""


class NodeKey(NamedTuple):
    """One process of a node."""

    name: str
    incarnation: str


class _Given(NamedTuple):
    jobs: Sequence[tuple[Job, Version, float]]
    """Jobs with their versions, and the `group_age` of each."""
    listings: Sequence[Version]


class NodeOperations:
    """Operations of a manager for its nodes."""

    def __init__(self, manager: Manager, *, limit_seconds: float) -> None:
        """`limit_seconds`: silence after which a node kills its jobs. 0: nodes are never lost."""
        self.manager = manager
        self.limit_seconds = limit_seconds

    async def register(self, node: NewNode) -> list[Job]:
        """Add a node that has just started. Return the rows of the jobs that it has. Raises LinkRefused."""

        def register(connection: Connection) -> list[Job] | None:
            if not nodes.register_node(connection, node, limit_seconds=self.limit_seconds):
                return None
            return jobs.active_jobs(connection, node.name)

        found = await self.manager.database.write(register)
        if found is None:
            row = await self.manager.database.read(lambda connection: nodes.find_node(connection, node.name))
            raise LinkRefused(
                f"a node {node.name} with another folder is online at {row.address if row else 'another machine'}. "
                "Give this one another name with --name, or stop the other one and wait until it is lost"
            )
        log.info("node %s has started with %d slots at %s", node.name, node.slots, node.address)
        self.manager.wake_nodes()  # there may be listings to repeat
        return found

    async def leave(self, node: NodeKey) -> None:
        """Note that a node's process ends. A node that has jobs stays online, because they go on."""
        if await self.manager.database.write(lambda connection: nodes.leave_node(connection, *node)):
            log.info("node %s was stopped", node.name)
            self.manager.wake_nodes()  # there may be listings to repeat

    async def beat(self, node: NodeKey, beat: Beat) -> BeatAnswer:
        """Note a heartbeat, and answer it for each attempt. Raises LinkRefused if another process has the name."""

        def record(connection: Connection) -> tuple[Node | None, list[Job]]:
            known = nodes.record_beat(connection, *node, limit_seconds=self.limit_seconds)
            return known, jobs.active_jobs(connection, node.name) if known is not None else []

        known, rows = await self.manager.database.write(record)
        if known is None:
            raise LinkRefused(f"another process runs as the node {node.name} now, or the node was forgotten")
        active = {AttemptId(row.id, row.attempt): row for row in rows}
        orders = [_order(attempt.id, active.get(attempt.id)) for attempt in beat.attempts]
        return BeatAnswer(orders, self.limit_seconds)

    async def turn(self, node: NodeKey, asked: NodeTurn, *, places: Callable[[Job], JobPlaces]) -> NodeOrders:
        """Give a node jobs and listings: those that it has not received, and new ones. Return them with the attempts
        that it is to stop. `places` makes the places of a job's files; where it fails, the job's attempt has ended."""
        has, lists = set(asked.attempts), list(asked.listings)

        def look(connection: Connection) -> tuple[list[Job], bool]:
            active = jobs.active_jobs(connection, node.name)
            return active, (
                bool(dispatch.unreceived_jobs(active, node.incarnation, has))
                or (asked.free > 0 and dispatch.has_pending(connection))
                or projects.has_wanted_listing(connection)
                or bool(projects.unreceived_listings(connection, node.incarnation, lists))
            )

        def give(connection: Connection) -> _Given:
            taking = nodes.taking_node(connection, *node)
            if taking is None:
                return _Given([], [])
            taker = dispatch.JobTaker(*node, taking.slots, taking.labels, taking.is_draining)
            rows = dispatch.take_jobs(connection, taker, free=asked.free, has=has)
            listings = projects.unreceived_listings(connection, node.incarnation, lists)
            if not taking.is_draining:
                listings += iter(lambda: projects.take_listing(connection, node.incarnation), None)
            return _Given([_with_version(connection, row) for row in rows], listings)

        # Looked at first without the lock of a writer: most calls find nothing.
        active, has_work = await self.manager.database.read(look)
        given = await self.manager.database.write(give) if has_work else _Given([], [])
        assignments = await self._assignments(node, given.jobs, places)
        stops = [_stop(row) for row in active if row.state == JobState.STOPPING]
        return NodeOrders(assignments, await self._listings(node, given.listings), stops)

    async def _assignments(
        self, node: NodeKey, given: Sequence[tuple[Job, Version, float]], places: Callable[[Job], JobPlaces]
    ) -> list[JobAssignment]:
        assignments = []
        for job, version, group_age in given:
            try:
                assignment = await asyncio.to_thread(self._assignment, job, version, places)
                variables = await self.manager.variables.values(job.project)
                assignments.append(replace(assignment, variables=variables, group_age=group_age))
            except OSError as error:
                await self._end(node, AttemptId(job.id, job.attempt), AttemptEnd(fault=f"start_failed: {error}"))
            except SecretUnreadable as error:
                await self._end(node, AttemptId(job.id, job.attempt), AttemptEnd(fault=f"secret_unreadable: {error}"))
        return assignments

    async def _listings(self, node: NodeKey, rows: Sequence[Version]) -> list[Listing]:
        found = []
        for row in rows:
            try:
                values = await self.manager.variables.values(row.project)
                found.append(Listing(row.id, self._artefact(row), values))
            except SecretUnreadable as error:
                await self._listed(node, row.id, ListingResult(fault=f"secret {error}"))
        return found

    def _assignment(self, job: Job, version: Version, places: Callable[[Job], JobPlaces]) -> JobAssignment:
        place = places(job)
        return JobAssignment(
            id=AttemptId(job.id, job.attempt),
            spider=job.spider,
            artefact=self._artefact(version),
            arguments={**job.arguments, **place.arguments},
            settings={**job.settings, **place.settings},
            output=place.output,
            items=place.items,
            **asdict(AttemptLimits.of(job)),
            input=JobInput(job.input_digest, job.input_name, job.input_use),
            shares_frontier=job.shares_frontier,
            enters=place.enters,
            owns=place.owns,
        )

    def _artefact(self, version: Version) -> Artefact:
        path = self.manager.artefacts.path(version.digest, version.file) if version.digest else None
        return Artefact(
            version.project,
            version.name,
            version.digest,
            path,
            version.settings_module,
            version.id,
            EnvironmentKind(version.environment),
            version.requirements,
        )

    async def report(self, node: NodeKey, report: NodeReport) -> None:
        """Carry out a report. One of an attempt that the node does not have, and had not last, has no effect."""
        match report:
            case Started(attempt, pid):
                await self._record(node, attempt, partial(jobs.record_start, pid=pid))
            case Returned(attempt, reason):
                await self._record(node, attempt, partial(jobs.record_return, reason=reason[:MAX_FAULT]))
                self.manager.wake_nodes()
            case Ended(attempt, end):
                await self._end(node, attempt, end.bounded())
            case Progress(attempts):
                await self.manager.database.write(partial(_record_progress, node=node, attempts=attempts))
            case Listed(version_id, result):
                await self._listed(node, version_id, result.bounded())
            case Prepared(built):
                record = partial(environments.record_environment, node=node.name, report=built.bounded())
                await self.manager.database.write(record)

    async def _record(self, node: NodeKey, attempt: AttemptId, record: Callable[[Connection, int, int], T]) -> T | None:
        """Record something of an attempt, by the numbers of its job and itself. None: it is none of the node's."""

        def change(connection: Connection) -> T | None:
            is_own = attempt.job in jobs.jobs_of_node(connection, node.name, [attempt.job])
            return record(connection, attempt.job, attempt.number) if is_own else None

        return await self.manager.database.write(change)

    async def _end(self, node: NodeKey, attempt: AttemptId, end: AttemptEnd) -> None:
        """Record the end of an attempt. Nothing happens if it is not the job's last, or its end is known."""

        def record(connection: Connection, job: int, number: int) -> tuple[JobState | None, str]:
            state = jobs.record_end(connection, job, number, end)
            row = jobs.find_job(connection, job)
            return state, failure_of(end) if row is None else failure_of(end, jobs.expectation_of(row))

        state, failure = await self._record(node, attempt, record) or (None, "")
        if state is not None:
            log.info("job %d ended: %s", attempt.job, f"{state} {failure}".rstrip())

    async def _listed(self, node: NodeKey, version_id: int, result: ListingResult) -> None:
        """Record the spiders of a version, or why they could not be listed."""
        mine, fault = node.incarnation, result.fault
        if fault and result.of_node:
            postpone = partial(projects.postpone_listing, version_id=version_id, incarnation=mine, reason=fault)
            pause = await self.manager.database.write(postpone)
            if pause is not None:
                asyncio.get_running_loop().call_later(pause, self.manager.wake_nodes)
        else:
            record = partial(projects.record_listing, spiders=result.spiders, fault=fault, warnings=result.warnings)
            row = await self.manager.database.write(partial(record, version_id=version_id, incarnation=mine))
            if row is not None and not fault:
                await asyncio.to_thread(self.manager.artefacts.publish, row.digest, row.file)
        self.manager.wake_clients()

    # --- lost nodes ---------------------------------------------------------------------------------------------------

    async def watch_nodes(self, stopping: asyncio.Event) -> None:
        """Declare nodes lost that are silent for too long, until `stopping` is set."""
        watch = SilenceWatch()
        while not stopping.is_set():
            try:
                rows = await self.manager.database.read(nodes.watched_nodes)
                for name, beats in watch.silent(rows, now=time.monotonic()):
                    await self._lose(name, beats)
            except SQLAlchemyError as error:
                log.warning("nodes cannot be watched at present: %s", error)
                watch.forget()
            await happens_within(stopping, min(self.limit_seconds / _LOOKS, _LONGEST_LOOK_SECONDS))

    async def _lose(self, name: str, beats: int) -> None:
        lost = await self.manager.database.write(lambda connection: nodes.lose_node(connection, name, beats=beats))
        if lost is not None:
            log.warning("node %s is lost: it was silent for too long; it had %d jobs", name, len(lost))
            for job in lost:
                log.info("job %d: its node was lost; it is %s now", job.id, job.state)
            self.manager.wake_nodes()


class SilenceWatch:
    """Measures by one process's own clock for how long each node has been silent."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        """By name: the number of the last heartbeat, and when it was first seen."""

    def forget(self) -> None:
        """Begin to measure anew. To be called when the nodes could not be looked at: they could not be heard either."""
        self._seen.clear()

    def silent(self, rows: Sequence[WatchedNode], *, now: float) -> list[tuple[str, int]]:
        """Return name and number of the last heartbeat of the nodes that are silent for so long that they are lost.
        `rows`: all nodes that are not lost."""
        found = {}
        for row in rows:
            beats, since = self._seen.get(row.name, (None, now))
            found[row.name] = (row.beats, since if beats == row.beats else now)
        self._seen = found
        return [(row.name, row.beats) for row in rows if now - found[row.name][1] >= lost_after(row.limit_seconds)]


def _record_progress(connection: Connection, node: NodeKey, attempts: Sequence[AttemptProgress]) -> None:
    own = jobs.jobs_of_node(connection, node.name, [each.id.job for each in attempts])
    for each in attempts:
        if each.id.job in own:
            jobs.record_stats(connection, each.id.job, each.id.number, bounded_counters(each.stats))


def _with_version(connection: Connection, row: Job) -> tuple[Job, Version, float]:
    """Return a job with its version and its `group_age`."""
    age = groups.seconds_since_start(connection, row.group_id) if row.shares_frontier and row.group_id else 0.0
    return row, projects.version_row(connection, row.version_id or 0), age


def _order(attempt: AttemptId, row: Job | None) -> AttemptOrder:
    if row is None:
        return AttemptOrder(attempt, BeatOrder.UNKNOWN)
    if row.state == JobState.STOPPING:
        return AttemptOrder(attempt, BeatOrder.STOP, _stop(row))
    return AttemptOrder(attempt, BeatOrder.KEEP)


def _stop(row: Job) -> StopOrder:
    assert row.stop_signal is not None
    return StopOrder(AttemptId(row.id, row.attempt), row.stop_signal, row.stops)


def known_attempts(rows: Sequence[Job]) -> Mapping[AttemptId, bool]:
    """Return the attempts of active jobs; True: the process was started."""
    return {AttemptId(row.id, row.attempt): row.pid is not None for row in rows}
