"""Operations of the manager: deploy, schedule, stop and list, for whatever interface a client uses.

The manager runs no code of a project: a node lists the spiders. Fixed: the order of the steps of a deployment, so that
a kill between two of them leaves the earlier version in place.
"""

import asyncio
import logging
import signal
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import IO, Any, Final, TypeVar

from sqlalchemy import Connection

from gossamer.errors import BadInput, GossamerError
from gossamer.pauses import happens_within
from gossamer_platform.lifecycle import EnvironmentKind, JobState, VersionState
from gossamer_platform.link import AttemptId
from gossamer_platform.manager.artefacts import ArtefactStore, check_artefact, digest_of
from gossamer_platform.manager.audit import StateAudit
from gossamer_platform.manager.variables import ProjectVariables
from gossamer_platform.manager.vault import SecretVault
from gossamer_platform.state import (
    audit,
    crawl_firings,
    defaults,
    groups,
    jobs,
    nodes,
    projects,
    schedules,
    tokens,
    variables,
    webhooks,
)
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.jobs import Job, NewJob
from gossamer_platform.state.projects import ReadyVersion, Version

T = TypeVar("T")

log = logging.getLogger("gossamer.platform.manager")

_CLOCK_SECONDS: Final = 2.0
"""Allowed difference between the time of a file and that of the database. A longer one overlooks an egg that a person
has replaced within that time."""
_LOOK_SECONDS: Final = 1.0
"""Longest pause between looks whether a listing has come to an end."""
_NAMED_VERSIONS: Final = 10
"""Versions that a message names, the latest."""
STOPPING_SIGNALS: Final = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT}
)
"""Signals that ask a process to end. A client that sends another one, such as SIGUSR1, wants the job to go on."""


class NotFound(GossamerError):
    """The object of the request does not exist."""

    only_detail = True


class BrokenVersion(GossamerError):
    """The version cannot be run."""

    only_detail = True


class VersionInUse(GossamerError):
    """The version is used."""

    only_detail = True


class NoNode(GossamerError):
    """No node is online."""

    only_detail = True


class JobConflict(GossamerError):
    """The job cannot be created beside another one."""

    only_detail = True


class SettingNotPermitted(GossamerError):
    """The client may not give this setting to a job."""

    only_detail = True


class Manager:
    """All operations on one platform."""

    def __init__(
        self,
        database: StateDatabase,
        artefacts: ArtefactStore,
        vault: SecretVault | None = None,
        *,
        run_settings: frozenset[str] | None = None,
    ) -> None:
        """`vault` None: there are no keys, so projects can have no secrets. `run_settings`: names of the settings that
        a client whose scope is `run` may give to a job; None: all."""
        self._run_settings = run_settings
        self.database = database
        self.artefacts = artefacts
        self.vault = vault or SecretVault()
        self.variables = ProjectVariables(database, self.vault)
        self.audit = StateAudit(database)
        # The next five are set once, before the first operation.
        self.wake_clients: Callable[[], None] = self.notice_listing
        """Called when a listing has come to an end."""
        self.wake_nodes: Callable[[], None] = lambda: None
        """Called when there is work for nodes."""
        self.has_files: Callable[[str, str, str], bool] = lambda project, spider, name: False
        """Test for files of a project, spider and name in the folders of logs and items, by whichever program."""
        self.send_signal: Callable[[AttemptId, int], None] = lambda attempt, number: None
        """Sends a signal that does not stop the job."""
        self.has_remote_nodes = False
        """True: the nodes are elsewhere, and there may be none."""
        self._is_stopping = False
        self._listing_ended = asyncio.Event()
        """Set and replaced whenever the listing of a version has come to an end."""

    async def open(self, local_projects: Mapping[str, str]) -> None:
        """Bring the database up to date, and compare it with the folder of eggs: an egg that Scrapyd or a person put
        there becomes a version, and a version whose egg is gone is removed.

        `local_projects`: settings modules, by name, of projects whose code is on the Python path.
        """
        await self.database.migrate()
        await self.variables.warn_of_unreadable()
        await self.database.write(lambda connection: projects.set_local_projects(connection, local_projects))
        known = await self.database.read(projects.ready_files)
        for row in known:
            await asyncio.to_thread(self.artefacts.publish, row.digest, row.file)  # if a kill came before it
            modified_at = await asyncio.to_thread(self.artefacts.modified_at, row.file)
            if modified_at is not None and modified_at <= row.deployed_at + _CLOCK_SECONDS:
                continue  # not replaced since; to hash all eggs at each start would take minutes
            if row.digest != await asyncio.to_thread(self.artefacts.digest, row.file):
                await self.database.write(partial(projects.remove_version, version_id=row.id))
        known_files = {row.file for row in await self.database.read(projects.ready_files)}
        for found in await asyncio.to_thread(lambda: list(self.artefacts.found())):
            if found.file in known_files:
                continue
            columns: dict[str, Any] = {
                "project": found.project,
                "name": found.version,
                "digest": await asyncio.to_thread(self.artefacts.digest, found.file),
                "file": found.file,
                "deployed_at": found.modified_at,
            }
            await self.database.write(partial(projects.add_found_version, **columns))

    async def clean(self, *, ended_jobs: int | None = None) -> set[str]:
        """Delete what has no use any more: uploads, versions, and ended jobs without files but the latest
        `ended_jobs`; None: no jobs. Return the digests of the artefacts that nodes may still need."""

        def forget(connection: Connection) -> None:
            if ended_jobs is not None:
                jobs.forget_jobs(connection, keep=ended_jobs)
            groups.forget_groups(connection)
            projects.forget_versions(connection)
            crawl_firings.forget_firings(connection)
            schedules.forget_schedules(connection)
            webhooks.forget_deliveries(connection)
            audit.forget_entries(connection)

        await self.database.write(forget)
        for row in await self.database.read(projects.ready_files):  # what a manager left that was killed before it
            await asyncio.to_thread(self.artefacts.publish, row.digest, row.file)
        building = await self.database.read(projects.building_digests)
        wanted = await self.database.read(projects.wanted_digests)
        await asyncio.to_thread(self.artefacts.clean, building, wanted)
        return wanted

    # --- versions -----------------------------------------------------------------------------------------------------

    async def deploy(
        self,
        project: str,
        version: str,
        content: IO[bytes],
        *,
        environment: EnvironmentKind | None = None,
        requirements: str = "",
        wait_seconds: float | None = None,
    ) -> Version:
        """Add a version, wait until a node has listed its spiders, and return the version.

        `content`: the artefact, which is closed as soon as it is kept, because a build may take long.
        `environment`: None: that of the project. `requirements`: text of a requirements file, for an isolated
        environment, beside those of the artefact. `wait_seconds`: longest time to wait; a row of a version that is
        still being built has the state `building`. None: until it is ready or broken, or this server stops.
        Raises NotAnArtefact, UnsafeName, NoNode, or BrokenVersion with the reason; then the project is as it was
        before.
        """
        await self._require_node()
        columns = {"requirements": requirements, **({"environment": environment.value} if environment else {})}
        with content:
            number = await self._add_version(project, version, content, columns)
        try:
            async with asyncio.timeout(wait_seconds):
                row = await self._listed(number)
        except TimeoutError:
            return await self.database.read(lambda connection: projects.version_row(connection, number))
        if row.listing:
            return row
        if row.state != VersionState.READY:
            raise BrokenVersion(row.reason or "the version was removed while it was built")
        return row

    async def _add_version(self, project: str, version: str, content: IO[bytes], columns: Mapping[str, Any]) -> int:
        suffix = await asyncio.to_thread(check_artefact, project, version, content)
        digest = await asyncio.to_thread(digest_of, content)
        while True:
            file = await self.database.read(lambda c: projects.version_file(c, project, version, suffix))
            await asyncio.to_thread(self.artefacts.upload, digest, file, content)

            def add(connection: Connection, file: str = file) -> int | None:
                return projects.add_version(connection, project, version, digest=digest, file=file, **columns)

            number = await self.database.write(add)
            if number is not None:
                return number  # else a version of another name has just taken the file

    async def _require_node(self) -> None:
        """Raise NoNode if no node could list spiders."""
        if self.has_remote_nodes and not await self.database.read(nodes.has_nodes):
            raise NoNode(
                "no node is online that could list the spiders. Start one with `gossamer node`, and repeat this"
            )

    async def _listed(self, version_id: int) -> Version:
        """Wait until a version's listing has come to an end, or this server stops. Return the version's row."""
        self.wake_nodes()
        while True:
            ended = self._listing_ended  # before the look: what ends after the look sets it
            row = await self.database.read(lambda connection: projects.version_row(connection, version_id))
            if not row.listing or self._is_stopping:
                return row
            await happens_within(ended, _LOOK_SECONDS)  # the notice of another manager may be lost

    def stop_waiting(self) -> None:
        """Answer the clients that wait for a listing, because this server stops. The listings go on at the nodes."""
        self._is_stopping = True
        self.notice_listing()

    def notice_listing(self) -> None:
        """Wake the clients that wait for a listing."""
        ended, self._listing_ended = self._listing_ended, asyncio.Event()
        ended.set()

    async def require_project(self, project: str) -> None:
        """Raise NotFound unless the project has a version that jobs can run."""
        if await self.versions(project):
            return
        rows = await self.database.read(lambda connection: projects.version_rows(connection, project))
        broken = [row for row in rows if row.state == VersionState.BROKEN]
        # Scrapyd's message, which a Scrapyd would not lengthen: it has no broken versions.
        more = f": its version {broken[-1].name} is broken: {_last_line(broken[-1].reason)}" if broken else ""
        raise NotFound(f"project '{project}' not found{more}")

    async def versions(self, project: str) -> list[ReadyVersion]:
        """Return the versions of a project that jobs can run, the latest last."""
        return await self.database.read(lambda connection: projects.ready_versions(connection, project))

    async def spiders(self, project: str, version: str | None) -> list[str]:
        """Return the spiders of a version, None: of the project's latest. Raises NotFound or BrokenVersion."""
        found = await self.database.read(lambda connection: projects.find_version(connection, project, version))
        if found is None:
            await self.require_project(project)
            raise NotFound(f"version '{version}' not found")  # Scrapyd's message
        if found.spiders is not None:
            return found.spiders
        await self._require_node()
        await self.database.write(lambda connection: projects.want_listing(connection, found.id))
        row = await self._listed(found.id)
        if row.spiders is None and row.listing:
            raise NoNode("the spiders are not listed yet, and this server stops; repeat this")
        if row.spiders is None:
            raise BrokenVersion(row.reason)
        return row.spiders

    async def delete_version(self, project: str, version: str, *, even_if_used: bool = True) -> None:
        """Remove a version. Jobs that run it go on. Of a name that no ready version has, the broken ones are removed.
        Raises NotFound, and VersionInUse unless `even_if_used`."""

        def remove(connection: Connection) -> str | None:
            projects.lock_project(connection, project)  # nothing begins to use it meanwhile
            found = projects.find_version(connection, project, version)
            if found is None:
                broken = [row for row in _named(connection, project, version) if row.state == VersionState.BROKEN]
                return "" if [row for row in broken if projects.remove_version(connection, row.id)] else None
            if not found.digest:
                return None
            reasons = [] if even_if_used else defaults.use_of(connection, project, found).reasons()
            if reasons:
                raise VersionInUse(f"version '{found.name}' of {project} is in use: {'; '.join(reasons)}")
            if not projects.remove_version(connection, found.id):
                return None
            defaults.unpin(connection, project, found.name)
            if not projects.ready_versions(connection, project):
                jobs.cancel_pending(connection, project, reason="project_deleted")
                reason = "the last version of the project was deleted"
                schedules.pause_schedules(connection, project, reason=reason, only_of_jobs=True)
            return found.file

        file = await self.database.write(remove)
        if file is None:
            raise NotFound(f"version '{version}' not found")  # Scrapyd's message
        if file:  # that of a broken version was never among the project's; `clean` deletes its upload
            await asyncio.to_thread(self.artefacts.delete, file)

    async def pin_version(self, project: str, version: str | None) -> None:
        """Make a version the default of jobs that name none; None: the latest again. Raises NotFound."""
        await self.require_project(project)
        if await self.database.write(lambda connection: defaults.pin(connection, project, version)):
            return
        rows = await self.database.read(lambda connection: _named(connection, project, version or ""))
        if rows:
            raise NotFound(f"version '{version}' of {project} is {rows[-1].state}; only a ready one can be the default")
        names = [each.name for each in await self.versions(project) if each.name][-_NAMED_VERSIONS:]
        raise NotFound(f"{project} has no version '{version}'. It has {', '.join(reversed(names)) or 'none'}")

    async def roll_back(self, project: str) -> str:
        """Pin the version before the default, and return its name. Raises NotFound for the project, or if there is no
        version before."""
        await self.require_project(project)
        name = await self.database.write(lambda connection: defaults.roll_back(connection, project))
        if name is None:
            raise NotFound(f"{project} has no ready version before its default; deploy one, or pin another")
        return name

    async def delete_project(self, project: str) -> list[str]:
        """Remove all versions, variables and webhooks of a project, cancel its pending jobs, and pause its schedules.
        Return the names of these schedules. Jobs that run go on. Raises NotFound."""

        def remove(connection: Connection) -> tuple[list[str], list[str]]:
            projects.lock_project(connection, project)  # nothing is added meanwhile
            found = [version for version in projects.ready_versions(connection, project) if version.digest]
            removed = [version.file for version in found if projects.remove_version(connection, version.id)]
            paused = []
            if removed:
                jobs.cancel_pending(connection, project, reason="project_deleted")
                paused = schedules.pause_schedules(connection, project, reason="the project was deleted")
                # Another project of this name must not get its secrets.
                variables.delete_variables(connection, project)
                webhooks.delete_webhooks(connection, project)
            return removed, paused

        files, paused = await self.database.write(remove)
        if not files:
            raise NotFound(f"project '{project}' not found")  # Scrapyd's message
        for file in files:
            await asyncio.to_thread(self.artefacts.delete, file)
        log.info("project %s was deleted; paused schedules: %s", project, ", ".join(paused) or "none")
        return paused

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def check_settings(self, settings: Iterable[str], scope: tokens.TokenScope) -> None:
        """Raise SettingNotPermitted if a client with this scope may not give a job one of these settings.

        A setting can name a file to write (`FEEDS`, `LOG_FILE`, `JOBDIR`) or code to import. Who may deploy can do both
        anyway.
        """
        if self._run_settings is None or scope.includes(tokens.TokenScope.DEPLOY):
            return
        refused = sorted(set(settings) - self._run_settings)
        if refused:
            permitted = ", ".join(sorted(self._run_settings)) or "none"
            raise SettingNotPermitted(
                f"setting {refused[0]}: run_settings of this server permits {permitted} to a token with the scope "
                f"{scope}; others need the scope deploy"
            )

    async def require_spider(self, project: str, version: str | None, spider: str) -> None:
        """Raise NotFound unless the version, None: the project's latest, has the spider."""
        if spider not in await self.spiders(project, version):
            raise NotFound(f"spider '{spider}' not found")  # Scrapyd's message

    async def schedule(self, job: NewJob) -> None:
        """Add a job, whose spider the caller has looked up. Raises UnsafeName."""
        await self.database.write(lambda connection: jobs.add_job(connection, job, has_files=self._has_files(job)))
        self.wake_nodes()

    def _has_files(self, job: NewJob) -> Callable[[str], bool]:
        return partial(self.has_files, job.project, job.spider)

    async def create_job(self, job: NewJob) -> tuple[Job, bool]:
        """Add a job with a name of its own. Return its row, and True if it is new: a request whose key was used before
        for the same job returns that one.

        Raises NotFound for the project, version or spider, UnsafeName, and JobConflict for a name that the project has
        had, or a key that was used for another job.
        """
        known = await self.database.read(lambda connection: _created_before(connection, job))
        if known is not None:  # the spider may be gone by now
            return known, False
        await self.require_spider(job.project, job.version, job.spider)

        def add(connection: Connection) -> tuple[Job, bool]:
            taken = jobs.has_job(connection, job.project, job.name)  # locks the project
            known = _created_before(connection, job)
            if known is not None:
                return known, False
            if taken:
                raise JobConflict(f"project '{job.project}' has a job {job.name} already")
            whole = groups.with_input(connection, job)
            row = jobs.find_job(connection, jobs.add_job(connection, whole, has_files=self._has_files(job)))
            assert row is not None
            return row, True

        created = await self.database.write(add)
        self.wake_nodes()
        return created

    async def job(self, number: int) -> Job:
        """Return a job's row. Raises NotFound."""
        row = await self.database.read(lambda connection: jobs.find_job(connection, number))
        if row is None:
            raise NotFound(f"job {number} not found")
        return row

    async def cancel_job(self, number: int, *, signal_number: int) -> Job:
        """Ask a job to stop, and return its row as it is then. A job that has ended stays as it is. Raises NotFound."""
        await self.database.write(lambda connection: jobs.stop_job(connection, number, signal=signal_number))
        self.wake_nodes()
        return await self.job(number)

    async def cancel(self, project: str, name: str, number: int) -> JobState | None:
        """Stop all jobs with this name, and return the state that one of them had: `pending` or `running`. None: there
        is no such job. Raises NotFound for the project, unless a job of it is left.

        A signal that stops no process is sent, and the job goes on.
        """
        live = (JobState.PENDING, JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
        rows = await self.database.read(lambda c: jobs.list_jobs(c, live, project=project, name=name))
        if not rows:
            await self.require_project(project)
            return None
        if number not in STOPPING_SIGNALS:
            for row in rows:
                self.send_signal(AttemptId(row.id, row.attempt), number)
            running = any(row.state != JobState.PENDING for row in rows)
            return JobState.RUNNING if running else JobState.PENDING
        stopped = await self.database.write(lambda c: jobs.request_stop(c, project, name, signal=number))
        if not stopped:
            return None
        self.wake_nodes()
        return JobState.PENDING if all(stop.was_pending for stop in stopped) else JobState.RUNNING

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Return what a question returns of one consistent state of the database."""
        return await self.database.read(question)


def _named(connection: Connection, project: str, version: str) -> list[Version]:
    """Return the versions of this name in all states but deleted."""
    return [row for row in projects.version_rows(connection, project) if row.name == version]


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def _created_before(connection: Connection, job: NewJob) -> Job | None:
    """Return the job that a request with the same key has made. Raises JobConflict if that was another job."""
    if not job.request_key:
        return None
    known = jobs.find_request(connection, job.project, job.request_key)
    if known is not None and not is_same_request(known, job):
        raise JobConflict(f"the key {job.request_key} was used for another job, number {known.id}")
    return known


def is_same_request(row: Job, job: NewJob) -> bool:
    """Return whether a job was made by a request like this one. Its name is not compared, nor what the request leaves
    to the project, nor what changes later: tags, notes, and the retries that are left."""
    wanted = {
        **job.policy.given(),
        "spider": job.spider,
        "version_name": job.version,
        "arguments": dict(job.arguments),
        "settings": dict(job.settings),
        "priority": job.priority,
        "input_digest": job.input.digest,
        "input_use": job.input.use,
        "is_urgent": job.is_urgent,
    }
    wanted.pop("retries", None)
    if job.label is not None:
        wanted["label"] = job.label
    return all(getattr(row, name) == value for name, value in wanted.items())


def new_job_name() -> str:
    """Return a name for a job whose client gave none."""
    return uuid.uuid1().hex


def parse_priority(text: str | bytes) -> float:
    """Return the priority. Raises BadInput for what is no finite number."""
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise BadInput(f"priority is invalid: {value} is not a finite number")
    return value
