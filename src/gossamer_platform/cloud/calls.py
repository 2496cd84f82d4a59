"""One call of a client of Scrapy Cloud: its sender, its parameters, and the project and job that it names.

A key of a job is PROJECT/SPIDER/JOB, three whole numbers. A project's number is its name where that is a whole number,
so that a configuration of Scrapy Cloud can be kept; otherwise it is the number that the platform gave it. Fixed: both
rules, because clients keep keys; and that a client of one project gets the same answer for a project it may not see as
for one that does not exist.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from gossamer.errors import BadInput, GossamerError
from gossamer.storage.sql.storable import unstorable_place
from gossamer.web.audit import audit_of
from gossamer_platform.manager.files import JobFiles
from gossamer_platform.manager.operations import Manager, NotFound
from gossamer_platform.scrapyd.endpoints import Form
from gossamer_platform.scrapyd.forms import parse_body, parse_query
from gossamer_platform.state import job_search, projects
from gossamer_platform.state.jobs import Job
from gossamer_platform.state.tables import Project
from gossamer_platform.state.tokens import Principal, TokenScope
from gossamer_platform.v1.spooling import spooled

MAX_BODY_BYTES: Final = 1024 * 1024
"""Longest body of a request without a file."""
_PARSED: Final = asyncio.Semaphore(2)
"""Forms that are parsed in memory at a time; others wait as files."""
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}")
_ACTIONS: Final = {
    "addversion": "deploy",
    "add": "deploy",
    "schedule": "run",
    "update": "tags",
    "stop": "cancel",
    "jobs": "metadata",
}
"""Actions in the audit by the last word of a path, where it is another word: fixed."""
_KEY: Final = re.compile(r"([1-9][0-9]{0,9})/([1-9][0-9]{0,9})/([1-9][0-9]{0,9})")


class NotOffered(GossamerError):
    """The platform does not do this."""

    only_detail = True


class JobKey(NamedTuple):
    """Numbers of project, spider and job."""

    project: int
    spider: int
    job: int

    def __str__(self) -> str:
        return f"{self.project}/{self.spider}/{self.job}"


class CloudProject(NamedTuple):
    """A project as Scrapy Cloud's clients see it."""

    number: int
    """Number by which clients name it."""
    id: int
    """Number in the database."""
    name: str


class CloudCall:
    """One request."""

    def __init__(self, request: Request, manager: Manager, files: JobFiles, principal: Principal) -> None:
        self.request = request
        self.entry = audit_of(request)
        """Entry of the audit."""
        self.manager = manager
        self.files = files
        self.principal = principal
        self.query = {
            name.decode(errors="replace"): [value.decode(errors="replace") for value in values]
            for name, values in parse_query(request.scope["query_string"]).items()
        }

    def path(self, name: str) -> Any:
        """Return a part of the path."""
        return self.request.path_params[name]

    def text(self, name: str, default: str = "") -> str:
        """Return the first value of a parameter of the query."""
        return self.query.get(name, [default])[0]

    def whole(self, name: str, default: int | None = None) -> int | None:
        """Return a parameter of the query that is a whole number from 0. Raises BadInput."""
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 18):
            raise BadInput(f"{name}: {text!r} is no whole number")
        return int(text)

    async def form(self, limit: int = MAX_BODY_BYTES) -> Form:
        """Return the parameters of the query and of the body. Raises BadInput or UploadTooLong."""
        query, kind = parse_query(self.request.scope["query_string"]), self.request.headers.get("content-type", "")
        new_file = self.manager.artefacts.temporary_file if limit > MAX_BODY_BYTES else BytesIO
        try:
            async with spooled(self.request.stream(), new_file, limit=limit) as file, _PARSED:
                return Form(query | await asyncio.to_thread(lambda: parse_body(kind, file.read())))
        except ValueError as error:
            raise BadInput(f"the form cannot be read: {error}") from None

    async def values(self) -> list[Any]:
        """Return the values of a body of JSON, or of JSON lines; those of a list are returned one by one. Raises
        BadInput or UploadTooLong."""
        async with spooled(self.request.stream(), BytesIO, limit=MAX_BODY_BYTES) as file:
            body = file.read().strip()
        try:
            found = [_json(body)] if body else []
        except ValueError:
            try:
                found = [_json(line) for line in body.splitlines() if line.strip()]
            except ValueError as error:
                raise BadInput(f"the body is no JSON: {error}") from None
        return [each for value in found for each in (value if isinstance(value, list) else [value])]

    # --- what it names ------------------------------------------------------------------------------------------------

    async def projects(self) -> list[CloudProject]:
        """Return the projects that the client may see."""
        rows = await self.manager.read(projects.project_rows)
        known = [CloudProject(_number(row), row.id, row.name) for row in rows]
        return [each for each in known if self.principal.sees(each.name)]

    async def find_project(self, number: int | str) -> CloudProject:
        """Return a project. Raises NotFound."""
        if not _NUMBER.fullmatch(str(number)):
            raise NotFound(f"project {number} not found; a project is named by its number")
        wanted = int(number)
        found = [each for each in await self.projects() if each.number == wanted]
        if not found:
            raise NotFound(f"project {number} not found")
        return max(found, key=lambda each: each.name == str(wanted))

    async def project(self) -> CloudProject:
        """Return the project of the path. Raises NotFound."""
        return await self.find_project(self.path("project"))

    def key(self) -> JobKey:
        """Return the job's key in the path."""
        return JobKey(self.path("project"), self.path("spider"), self.path("job"))

    async def job(self, key: JobKey | None = None) -> Job | None:
        """Return the row of a job, None: of the one in the path. None: there is no such job, or the client may not see
        it."""
        key = key or self.key()
        try:
            project = await self.find_project(key.project)
        except NotFound:
            return None
        return await self.manager.read(
            lambda connection: job_search.find_numbered_job(connection, project.id, key.spider, key.job)
        )

    async def existing_job(self, key: JobKey | None = None) -> Job:
        """Return the row of a job, as `job` does. Raises NotFound."""
        row = await self.job(key)
        if row is None:
            raise NotFound(f"job {key or self.key()} not found")
        return row

    def name_change(self, subject: str) -> None:
        """Name in the audit what was changed."""
        self.entry.note(subject=subject)


class CloudRoute(NamedTuple):
    """An endpoint."""

    method: str
    path: str
    scope: TokenScope
    answer: Callable[[CloudCall], Awaitable[Response]]

    @property
    def action(self) -> str:
        """Action in the audit."""
        word = [part for part in self.path.split("/") if part and "{" not in part][-1].removesuffix(".json")
        return f"cloud.{_ACTIONS.get(word, word)}"


def named_jobs(rows: Sequence[Job]) -> str:
    """Return jobs as the audit names them."""
    return ", ".join(f"{row.id} {row.project}/{row.spider}" for row in rows)


def parse_key(text: object) -> JobKey:
    """Return the numbers of a job's key. Raises BadInput."""
    found = _KEY.fullmatch(str(text))
    if found is None:
        raise BadInput(f"{text!r} is no key of a job; write PROJECT/SPIDER/JOB, three numbers")
    return JobKey(*map(int, found.groups()))


def check_scope(principal: Principal, needed: TokenScope) -> str:
    """Return why the principal may not do what needs this scope. Empty: it may."""
    if principal.scope.includes(needed):
        return ""
    return f"this needs a token with the scope {needed}; {principal.name} has {principal.scope}"


def _json(text: str | bytes) -> Any:
    """Return a value that databases can store. Raises ValueError."""
    try:
        found = json.loads(text)
        json.dumps(found, allow_nan=False)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if unstorable_place(found) is not None:
        raise ValueError("it has a NUL character or half of a character")
    return found


def object_of(name: str, value: object) -> Mapping[str, Any]:
    """Return a parameter's JSON object. Raises BadInput."""
    try:
        found = _json(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadInput(f"{name}: {value!r} is no JSON object")
    return found


def first_of(values: Sequence[Any]) -> Mapping[str, Any]:
    """Return the only value of a body, which must be an object. Raises BadInput."""
    if len(values) != 1:
        raise BadInput("the body must be one JSON object")
    return object_of("body", values[0])


def _number(row: Project) -> int:
    return int(row.name) if _NUMBER.fullmatch(row.name) else row.id
