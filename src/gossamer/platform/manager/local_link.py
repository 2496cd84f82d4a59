"""Way of a node to the manager of the same process.

One node, which this machine's folder belongs to. It never loses contact with its manager while it lives, so nothing is
fenced off here; after a kill of both, the next pair finds the jobs again. Fixed: `register` asks nothing of the node's
name, since there is one node; another way must compare incarnations.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Row
from sqlalchemy.exc import SQLAlchemyError

from gossamer.platform.lifecycle import EnvironmentKind, JobState
from gossamer.platform.link import (
    Artefact,
    AttemptId,
    EnvironmentReport,
    JobAssignment,
    Listing,
    ListingResult,
    ManagerUnavailable,
    StopOrder,
)
from gossamer.platform.manager.files import FileKind, JobFiles
from gossamer.platform.manager.operations import Manager
from gossamer.platform.manager.vault import SecretUnreadable
from gossamer.platform.outcome import AttemptEnd, failure_of
from gossamer.platform.state import environments, jobs, projects

T = TypeVar("T")

log = logging.getLogger("gossamer.platform.manager")

LOCAL_NODE: Final = "local"
"""Name of the node. Stored with jobs: fixed."""


class Retention(NamedTuple):
    """Numbers of ended jobs of which something is kept."""

    files: int
    """Jobs of each spider whose files are kept when another one starts. 0: all (Scrapyd's rule)."""
    jobs: int
    """Jobs that are kept although their files are deleted."""


class LocalLink:
    """Implements ManagerLink by calls of the database."""

    def __init__(self, manager: Manager, files: JobFiles, retention: Retention) -> None:
        self._manager = manager
        self._files = files
        self._retention = retention
        self._incarnation = ""
        self._unanswered = ""
        """Number of the last call that has not returned its jobs."""

    async def register(self, incarnation: str) -> Mapping[AttemptId, bool]:
        self._incarnation = incarnation
        await self._write(projects.repeat_listings)
        rows = await self._read(lambda connection: jobs.active_jobs(connection, LOCAL_NODE))
        return {AttemptId(row.id, row.attempt): row.pid is not None for row in rows}

    async def take(self, call: str, free: int) -> Sequence[JobAssignment]:
        def take(connection: Connection) -> list[tuple[Row[Any], Row[Any]]]:
            rows = jobs.take_jobs(connection, node=LOCAL_NODE, call=call, free=free)
            return [(row, projects.version_row(connection, row.version_id)) for row in rows]

        # Asked first without the lock of a writer: most calls find nothing. Not for a call that is repeated.
        if call != self._unanswered and not (await self._read(jobs.count_jobs)).get(JobState.PENDING):
            return []
        self._unanswered = call
        taken = await self._write(take)
        assignments = []
        for job, version in taken:
            try:
                assignment = await asyncio.to_thread(self._assignment, job, version)
                assignments.append(assignment._replace(variables=await self._variables(job.project)))
            except OSError as error:
                await self.ended(AttemptId(job.id, job.attempt), AttemptEnd(fault=f"start_failed: {error}"))
            except SecretUnreadable as error:
                await self.ended(AttemptId(job.id, job.attempt), AttemptEnd(fault=f"secret_unreadable: {error}"))
        self._unanswered = ""
        for project, spider in {(job.project, job.spider) for job, _ in taken} if self._retention.files else ():
            with contextlib.suppress(ManagerUnavailable):  # the next job of this spider tries again
                await self._delete_outdated(project, spider)
        return assignments

    async def _delete_outdated(self, project: str, spider: str) -> None:
        keep = self._retention.files
        rows = await self._read(lambda connection: jobs.outdated_files(connection, project, spider, keep=keep))
        if not rows:
            return
        deleted = []
        for row in rows:
            try:
                for kind in FileKind:
                    await asyncio.to_thread(self._files.delete, row, kind)
                deleted.append(row.id)
            except OSError as error:
                log.warning("the files of job %d cannot be deleted: %s", row.id, error)

        def forget(connection: Connection) -> None:
            jobs.forget_files(connection, deleted)
            jobs.forget_jobs(connection, keep=self._retention.jobs)

        await self._write(forget)

    def _assignment(self, job: Row[Any], version: Row[Any]) -> JobAssignment:
        places = self._files.places(job)
        return JobAssignment(
            id=AttemptId(job.id, job.attempt),
            spider=job.spider,
            artefact=self._artefact(job.project, version),
            arguments={**job.arguments, **places.arguments},
            settings={**job.settings, **places.settings},
            output=places.output,
            items=places.items,
            time_limit=job.time_limit,
            memory_limit=job.memory_limit,
            file_limit=job.file_limit,
        )

    def _artefact(self, project: str, version: Row[Any]) -> Artefact:
        path = self._manager.artefacts.path(version.digest, version.file) if version.digest else None
        return Artefact(
            project,
            version.name,
            version.digest,
            path,
            version.settings_module,
            version.id,
            EnvironmentKind(version.environment),
            version.requirements,
        )

    async def take_listing(self) -> Listing | None:
        if not await self._read(projects.has_wanted_listing):
            return None
        row = await self._write(lambda connection: projects.take_listing(connection, self._incarnation))
        if row is None:
            return None
        try:
            values = await self._variables(row.project)
        except SecretUnreadable as error:
            await self.listed(row.id, ListingResult(fault=f"secret {error}"))
            return None
        return Listing(row.id, self._artefact(row.project, row), values)

    async def stops(self) -> Sequence[StopOrder]:
        rows = await self._read(lambda connection: jobs.active_jobs(connection, LOCAL_NODE))
        stopping = (row for row in rows if row.state == JobState.STOPPING)
        return [StopOrder(AttemptId(row.id, row.attempt), row.stop_signal, row.stops) for row in stopping]

    async def started(self, attempt: AttemptId, pid: int) -> None:
        await self._write(lambda connection: jobs.record_start(connection, *attempt, pid=pid))

    async def returned(self, attempt: AttemptId, reason: str = "") -> None:
        await self._write(lambda connection: jobs.record_return(connection, *attempt, reason=reason))
        self._manager.wake_nodes()

    async def ended(self, attempt: AttemptId, end: AttemptEnd) -> None:
        state = await self._write(lambda connection: jobs.record_end(connection, *attempt, end))
        if state is not None:
            log.info("job %d ended: %s %s", attempt.job, state, failure_of(end))

    async def listed(self, version_id: int, result: ListingResult) -> None:
        mine = self._incarnation

        def postpone(connection: Connection) -> float | None:
            return projects.postpone_listing(connection, version_id, incarnation=mine, reason=result.fault)

        def record(connection: Connection) -> Row[Any] | None:
            return projects.record_listing(
                connection,
                version_id,
                incarnation=mine,
                spiders=result.spiders,
                fault=result.fault,
                warnings=result.warnings,
            )

        if result.fault and result.of_node:
            pause = await self._write(postpone)
            if pause is not None:
                asyncio.get_running_loop().call_later(pause, self._manager.wake_nodes)
            self._manager.notice_listing()
            return
        row = await self._write(record)
        if row is not None and not result.fault:
            await asyncio.to_thread(self._manager.artefacts.publish, row.digest, row.file)
        self._manager.notice_listing()

    async def prepared(self, report: EnvironmentReport) -> None:
        await self._write(lambda connection: environments.record_environment(connection, LOCAL_NODE, report))

    async def _variables(self, project: str) -> Mapping[str, str]:
        try:
            return await self._manager.variables.values(project)
        except SQLAlchemyError as error:
            raise ManagerUnavailable(str(error)) from error

    async def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            return await self._manager.database.read(work)
        except SQLAlchemyError as error:
            raise ManagerUnavailable(str(error)) from error

    async def _write(self, work: Callable[[Connection], T]) -> T:
        try:
            return await self._manager.database.write(work)
        except SQLAlchemyError as error:
            raise ManagerUnavailable(str(error)) from error
