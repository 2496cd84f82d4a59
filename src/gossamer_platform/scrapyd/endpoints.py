"""Scrapyd's endpoints: parameters in, the fields of a JSON object out.

Fixed, because clients compare them: names of endpoints, parameters and fields, the order in which parameters are
checked, and the messages. `docs/howto/from-scrapyd.md` lists where the answers differ from Scrapyd's on purpose.
"""

import signal
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from io import BytesIO
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from gossamer.errors import GossamerError
from gossamer.storage.sql.storable import is_storable
from gossamer_platform.lifecycle import JobState, VersionState
from gossamer_platform.manager.operations import Manager, new_job_name, parse_priority
from gossamer_platform.names import check_file_name
from gossamer_platform.scrapyd.config import ScrapydConfig
from gossamer_platform.scrapyd.files import ServedFiles
from gossamer_platform.scrapyd.forms import Parameters
from gossamer_platform.state import jobs, projects
from gossamer_platform.state.jobs import Job, NewJob
from gossamer_platform.state.tokens import TokenScope

Fields = dict[str, Any]

_LIVE: Final = (JobState.PENDING, JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
_SIGNALS: Final = {name: getattr(signal, f"SIG{name}") for name in ("HUP", "INT", "KILL", "STOP", "TERM")}
"""Signals that clients may name. Scrapyd's: fixed."""


class BadParameter(GossamerError):
    """A parameter is missing or has no valid value."""

    only_detail = True


class StillBuilding(GossamerError):
    """The version is not ready yet."""

    only_detail = True


class Form:
    """Parameters of one request. A parameter that was read is taken out; the rest are arguments of the spider."""

    def __init__(self, parameters: Parameters, *, scope: TokenScope = TokenScope.ADMIN) -> None:
        """`scope`: what the client may do."""
        self.scope = scope
        self._left = dict(parameters)

    def text(self, name: str) -> str:
        """Return the first value of a parameter that must be there. Raises BadParameter."""
        value = self.optional(name)
        if value is None:
            raise BadParameter(f"'{name}' parameter is required")
        return value

    def optional(self, name: str) -> str | None:
        """Return the first value. None: there is none."""
        values = self._left.pop(name.encode(), None)
        return None if values is None else _decoded(name, values[0])

    def content(self, name: str) -> bytes:
        """Return the first value, as bytes. Raises BadParameter."""
        values = self._left.pop(name.encode(), None)
        if values is None:
            raise BadParameter(f"'{name}' parameter is required")
        return values[0]

    def all(self, name: str) -> list[str]:
        """Return all values."""
        return [_decoded(name, value) for value in self._left.pop(name.encode(), [])]

    def number(self, name: str, default: float) -> float:
        """Return the first value as a finite number."""
        values = self._left.pop(name.encode(), None)
        if values is None:
            return default
        try:
            return parse_priority(values[0])
        except ValueError as error:
            raise BadParameter(f"{name} is invalid: {error}") from None

    def rest(self) -> dict[str, str]:
        """Return the first value of each parameter that was not read."""
        found = {name.decode(): values[0].decode() for name, values in self._left.items()}
        return {_checked("the name of a parameter", name): _checked(name, value) for name, value in found.items()}


def _decoded(name: str, value: bytes) -> str:
    try:
        return _checked(name, value.decode())
    except UnicodeDecodeError as error:
        raise BadParameter(f"{name} is invalid: {error}") from None


def _checked(name: str, text: str) -> str:
    if not is_storable(text):
        raise BadParameter(f"{name} is invalid: it has a NUL character")
    return text


class ScrapydEndpoint(NamedTuple):
    """An endpoint: its method, the function that answers, and what a token must permit."""

    method: str
    answer: Callable[[Form], Awaitable[Fields]]
    scope: TokenScope = TokenScope.READ

    @property
    def is_audited(self) -> bool:
        """True if the audit has an entry of each request."""
        return self.scope is not TokenScope.READ


class Endpoints:
    """Scrapyd's endpoints on a manager."""

    def __init__(self, manager: Manager, config: ScrapydConfig, files: ServedFiles) -> None:
        self._manager = manager
        self._config = config
        self._files = files
        self.by_name: Mapping[str, ScrapydEndpoint] = {
            "daemonstatus.json": ScrapydEndpoint("GET", self._daemon_status),
            "addversion.json": ScrapydEndpoint("POST", self._add_version, TokenScope.DEPLOY),
            "schedule.json": ScrapydEndpoint("POST", self._schedule, TokenScope.RUN),
            "cancel.json": ScrapydEndpoint("POST", self._cancel, TokenScope.RUN),
            "status.json": ScrapydEndpoint("GET", self._status),
            "listprojects.json": ScrapydEndpoint("GET", self._list_projects),
            "listversions.json": ScrapydEndpoint("GET", self._list_versions),
            "listspiders.json": ScrapydEndpoint("GET", self._list_spiders),
            "listjobs.json": ScrapydEndpoint("GET", self._list_jobs),
            "delversion.json": ScrapydEndpoint("POST", self._delete_version, TokenScope.DEPLOY),
            "delproject.json": ScrapydEndpoint("POST", self._delete_project, TokenScope.DEPLOY),
        }

    async def _daemon_status(self, form: Form) -> Fields:
        def count(connection: Connection) -> Fields:
            found = jobs.count_jobs(connection)
            waiting = found.get(JobState.PENDING, 0) + found.get(JobState.STARTING, 0)
            return {
                "pending": waiting,
                "running": sum(found.values()) - waiting,
                "finished": jobs.count_ended(connection, limit=self._config.finished_to_keep),
            }

        return dict(await self._manager.read(count))

    async def _add_version(self, form: Form) -> Fields:
        project, version, egg = form.text("project"), form.text("version"), BytesIO(form.content("egg"))
        row = await self._manager.deploy(
            project,
            version,
            egg,
            wait_seconds=self._config.deploy_wait,
        )
        if row.state == VersionState.BUILDING:
            why = f": {row.reason}" if row.reason else ""
            raise StillBuilding(
                f"version '{version}' is not built after {self._config.deploy_wait:g} seconds{why}. The building goes "
                "on; the version appears in listversions.json when it is ready"
            )
        # Not in Scrapyd, which does not know of them.
        warnings = {"warnings": row.warnings} if row.warnings else {}
        return {"project": project, "version": version, "spiders": len(row.spiders or ()), **warnings}

    async def _schedule(self, form: Form) -> Fields:
        project, spider = form.text("project"), form.text("spider")
        version = form.optional("_version") or None
        name = form.optional("jobid")
        name = new_job_name() if name is None else name
        priority = form.number("priority", 0.0)
        given_settings = form.all("setting")
        # Scrapyd's order: what does not exist is reported before a setting that cannot be read.
        await self._manager.require_spider(project, version, spider)
        settings = dict(_settings(given_settings))
        self._manager.check_settings(settings, form.scope)
        job = NewJob(project, spider, name, version, form.rest(), settings, priority)
        await self._manager.schedule(job)
        return {"jobid": name}

    async def _cancel(self, form: Form) -> Fields:
        project, name, text = form.text("project"), form.text("job"), form.optional("signal")
        state = await self._manager.cancel(project, name, _signal("INT" if text is None else text))
        return {"prevstate": state}

    async def _status(self, form: Form) -> Fields:
        name, project = form.text("job"), form.optional("project")
        if project is not None:
            await self._manager.require_project(project)
        states = (*_LIVE, JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)
        rows = await self._manager.read(lambda c: jobs.list_jobs(c, states, project=project, name=name))
        found = {_phase(row) for row in rows if row.state != JobState.CANCELLED or row.attempt}
        # Of several jobs with one name, an ended one counts first, as in Scrapyd.
        return {"currstate": next((phase for phase in ("finished", "running", "pending") if phase in found), None)}

    async def _list_projects(self, form: Form) -> Fields:
        return {"projects": await self._manager.read(projects.project_names)}

    async def _list_versions(self, form: Form) -> Fields:
        project = form.text("project")
        check_file_name(project, project)
        return {"versions": [found.name for found in await self._manager.versions(project) if found.digest]}

    async def _list_spiders(self, form: Form) -> Fields:
        project, version = form.text("project"), form.optional("_version")
        return {"spiders": await self._manager.spiders(project, version or None)}

    async def _list_jobs(self, form: Form) -> Fields:
        project = form.optional("project")
        if project is not None:
            await self._manager.require_project(project)

        def list_all(connection: Connection) -> tuple[list[Job], list[Job]]:
            live = jobs.list_jobs(connection, _LIVE, project=project)
            return live, jobs.ended_jobs(connection, limit=self._config.finished_to_keep)

        live, ended = await self._manager.read(list_all)
        return {
            "pending": [_pending(row) for row in live if row.started_at is None],
            "running": [
                {**_identity(row), "pid": row.pid, "start_time": local_time(row.started_at), **self._urls(row)}
                for row in live
                if row.started_at is not None
            ],
            "finished": [
                {
                    **_identity(row),
                    # A job that could not be started has an end only.
                    "start_time": local_time(row.ended_at if row.started_at is None else row.started_at),
                    "end_time": local_time(row.ended_at),
                    **self._urls(row),
                    # Not in Scrapyd, which calls every job finished.
                    "state": row.state,
                    "reason": row.reason,
                }
                for row in ended
                if row.ended_at is not None and project in (None, row.project)
            ],
        }

    def _urls(self, row: Job) -> Fields:
        return {"log_url": self._files.log_url(row), "items_url": self._files.items_url(row)}

    async def _delete_version(self, form: Form) -> Fields:
        project, version = form.text("project"), form.text("version")
        check_file_name(project, project)
        await self._manager.delete_version(project, version)
        return {}

    async def _delete_project(self, form: Form) -> Fields:
        project = form.text("project")
        check_file_name(project, project)
        paused = await self._manager.delete_project(project)
        return {"paused_schedules": paused} if paused else {}  # not in Scrapyd, which has none


def _settings(given: list[str]) -> list[tuple[str, str]]:
    pairs = [text.split("=", 1) for text in given]
    for position, pair in enumerate(pairs):
        if len(pair) != 2:
            # Python's own message, which Scrapyd passes on.
            raise ValueError(f"dictionary update sequence element #{position} has length {len(pair)}; 2 is required")
    return [(name, value) for name, value in pairs]


def _signal(text: str) -> int:
    if text in _SIGNALS:
        return int(_SIGNALS[text])
    if text.isdigit() and text.isascii():
        try:
            return int(signal.Signals(int(text)))
        except ValueError:
            pass
    raise BadParameter(f"signal is invalid: {text} is not HUP, INT, KILL, STOP, TERM or the number of a signal")


def _phase(row: Job) -> str:
    """Return Scrapyd's word for the state of a job. A job whose process does not run yet is pending, because a running
    one has a pid."""
    if row.state not in _LIVE:
        return "finished"
    return "pending" if row.started_at is None else "running"


def _identity(row: Job) -> Fields:
    return {"id": row.name, "project": row.project, "spider": row.spider}


def _pending(row: Job) -> Fields:
    return {**_identity(row), "version": row.version_name, "settings": row.settings, "args": row.arguments}


def local_time(at: float) -> str:
    """Return a time as Scrapyd shows it: local, without zone."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S.%f")
