"""Endpoints below /api of Scrapy Cloud: deploy a version, run a spider, change tags, list projects and spiders.

Answers are JSON with `status`: `ok`, or `error` with a `message`. Fixed, because clients read them: paths, parameters
and fields. What the platform has no counterpart for is refused with a message, never ignored.
"""

import asyncio
import json
import re
import shutil
import signal
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final

from starlette.responses import JSONResponse, Response, StreamingResponse

from gossamer.errors import BadInput, GossamerError
from gossamer.web.audit import RequestAudit
from gossamer_platform.cloud.calls import (
    CloudCall,
    CloudRoute,
    NotOffered,
    named_jobs,
    object_of,
    parse_key,
)
from gossamer_platform.cloud.views import NORMAL_PRIORITY, STATES, read_views
from gossamer_platform.lifecycle import ENDED, EnvironmentKind, VersionState
from gossamer_platform.manager.operations import BrokenVersion, Manager, NotFound, new_job_name
from gossamer_platform.scrapyd.endpoints import Form
from gossamer_platform.state import job_search, projects, tags
from gossamer_platform.state.job_search import JobSearch
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.projects import Version
from gossamer_platform.state.tokens import TokenScope
from gossamer_platform.v1.reading import pieces

_MAX_DEPLOYMENT_BYTES: Final = 256 * 1024 * 1024
"""Longest upload of a version. Shub itself refuses more than 50 MiB."""
_PROGRESS_SECONDS: Final = 10.0
"""Pause between lines that tell the client that a version is still being built. Shub gives up after 300 seconds without
any."""
_DEPLOY_SECONDS: Final = 1800.0
"""Time after which the answer is that the version is still being built."""
_PIECE_BYTES: Final = 256 * 1024
"""Bytes of an archive that are sent at a time."""
_MAIN: Final = "__main__"
"""Name of the artefact of a project among its eggs. Scrapy Cloud's: fixed."""
_NO_EGGS: Final = "eggs of dependencies are not offered; name the packages in requirements.txt"
_MAX_TAGS: Final = 100
"""Tags that one call adds."""
_MAX_CHANGED: Final = 1000
"""Jobs of a spider whose tags one call changes, the latest ones."""
_STACK: Final = re.compile(r"scrapy:(\d+)\.(\d+)(?![\d.]*\.\d)")
_SCRAPY_LINE: Final = re.compile(r"^\s*scrapy\s*([=<>~!;\[@ ]|$)", re.IGNORECASE | re.MULTILINE)


def ok(**fields: Any) -> Response:
    """Return a good answer."""
    return JSONResponse({"status": "ok", **fields})


async def _me(call: CloudCall) -> Response:
    return JSONResponse({"username": call.principal.name})


async def _projects(call: CloudCall) -> Response:
    return ok(projects=[project.number for project in await call.projects()])


async def _spiders(call: CloudCall) -> Response:
    project = await call.find_project(call.text("project"))
    if not await call.manager.versions(project.name):
        return ok(spiders=[], total=0)
    names = await call.manager.spiders(project.name, None)
    shown = [{"id": name, "tags": [], "version": "", "type": "manual"} for name in names]
    return ok(spiders=shown, total=len(shown))


# --- deployment -------------------------------------------------------------------------------------------------------


async def _deploy(call: CloudCall) -> Response:
    form = await call.form(_MAX_DEPLOYMENT_BYTES)
    if form.all("eggs"):
        raise NotOffered(_NO_EGGS)
    requirements, stack = form.optional("requirements") or "", form.optional("stack") or ""
    return await _deployed(call, form, requirements, stack)


async def _deployed(call: CloudCall, form: Form, requirements: str = "", stack: str = "") -> Response:
    """Deploy the version in a form. The answer is sent while it is built."""
    number = form.text("project")
    version, content = form.text("version"), BytesIO(form.content("egg"))
    name = await _project_to_deploy(call, number)
    call.entry.is_late = True
    return StreamingResponse(
        _deployment(call, number, NewVersion(name, version, content, requirements, stack)), media_type="text/plain"
    )


class NewVersion:
    """A version that a client sends."""

    def __init__(self, project: str, name: str, content: IO[bytes], requirements: str, stack: str) -> None:
        self.project = project
        self.name = name
        self.content = content
        self.requirements = requirements
        self.stack = stack

    async def deploy(self, manager: Manager, entry: RequestAudit) -> Version:
        """Deploy it, and complete the entry in the audit. A version with requirements of its own gets an isolated
        environment, with the Scrapy of its stack unless they name one."""
        entry.note(subject=f"{self.project} {self.name}")
        try:
            row = await self._deploy(manager)
        except GossamerError as error:
            await entry.end(422 if isinstance(error, BrokenVersion) else 400, str(error))
            raise
        await entry.end(200 if row.state == VersionState.READY else 202)
        return row

    async def _deploy(self, manager: Manager) -> Version:
        row = await manager.read(lambda connection: projects.project_row(connection, self.project))
        is_isolated = bool(self.requirements.strip()) or (
            row is not None and row.environment == EnvironmentKind.ISOLATED
        )
        lines = self.requirements
        scrapy = _STACK.match(self.stack)
        if is_isolated and scrapy and not _SCRAPY_LINE.search(lines):
            lines = f"{lines.rstrip()}\nscrapy=={scrapy[1]}.{scrapy[2]}.*\n".lstrip()
        return await manager.deploy(
            self.project,
            self.name,
            self.content,
            environment=EnvironmentKind.ISOLATED if is_isolated else None,
            requirements=lines,
            wait_seconds=_DEPLOY_SECONDS,
        )


async def _project_to_deploy(call: CloudCall, number: str) -> str:
    """Return the name of the project. One that does not exist is made, and its name is the number."""
    try:
        return (await call.find_project(number)).name
    except NotFound:
        if not re.fullmatch(r"[1-9][0-9]{0,9}", number):
            raise BadInput(f"project: {number!r} is no number; Scrapy Cloud's clients name a project by one") from None
        if not call.principal.sees(number):
            raise
        return number


async def _deployment(call: CloudCall, number: str, version: NewVersion) -> AsyncIterator[str]:
    """Yield lines while the version is built, and the result as the last one, which clients read."""
    deploying = asyncio.create_task(version.deploy(call.manager, call.entry))
    while not (await asyncio.wait({deploying}, timeout=_PROGRESS_SECONDS))[0]:
        yield f"Version {version.name} is being built\n"
    try:
        row = deploying.result()
    except GossamerError as error:
        yield json.dumps({"status": "error", "message": str(error)}) + "\n"
        return
    for warning in row.warnings or ():
        yield f"Warning: {' '.join(str(warning).split())}\n"
    if row.state != VersionState.READY:
        message = f"version {version.name} is still being built"
        yield json.dumps({"status": "error", "message": message}) + "\n"
        return
    result = {"status": "ok", "project": int(number), "version": version.name, "spiders": len(row.spiders or ())}
    yield json.dumps(result) + "\n"


async def _eggs(call: CloudCall) -> Response:
    """List the artefact of the default version under Scrapy Cloud's name for it. There are no others."""
    project = await call.find_project(call.text("project"))
    found = await call.manager.read(lambda connection: projects.find_version(connection, project.name, None))
    return ok(eggs=[{"name": _MAIN, "version": found.name}] if found is not None and found.digest else [])


async def _requirements(call: CloudCall) -> Response:
    """Return an archive with the requirements file of the default version, for `shub migrate-eggs`."""
    project = await call.find_project(call.text("project"))
    found = await call.manager.read(lambda connection: projects.find_version(connection, project.name, None))
    if found is None:
        raise NotFound(f"project {project.number} has no version")
    row = await call.manager.read(lambda connection: projects.version_row(connection, found.id))
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("requirements.txt", row.requirements)
    return Response(content.getvalue(), media_type="application/zip")


async def _bundle(call: CloudCall) -> Response:
    """Return an archive with the artefact of the default version."""
    project = await call.find_project(call.text("project"))
    found = await call.manager.read(lambda connection: projects.find_version(connection, project.name, None))
    if found is None or not found.digest:
        raise NotFound(f"project {project.number} has no version that was deployed")
    path = await asyncio.to_thread(call.manager.artefacts.path, found.digest, found.file)
    archive = await asyncio.to_thread(_archive, path)
    return StreamingResponse(pieces(_read(archive)), media_type="application/zip")


def _archive(path: Path) -> IO[bytes]:
    """Return a new temporary file, a zip in which the artefact has the name that Scrapy Cloud gives it."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by the one who reads it)
    with zipfile.ZipFile(file, "w") as archive:
        # shub copy-eggs unpacks it with pip, which takes the only name in an archive for that of a folder.
        entry = zipfile.ZipInfo(f"./{_MAIN}{path.suffix}")
        with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
            shutil.copyfileobj(source, target)
    file.seek(0)
    return file


def _read(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


async def _add_egg(call: CloudCall) -> Response:
    """Deploy the artefact that `shub copy-eggs -m` has fetched from a project. Other eggs are refused."""
    form = await call.form(_MAX_DEPLOYMENT_BYTES)
    if form.text("name") != _MAIN:
        raise NotOffered(_NO_EGGS)
    return await _deployed(call, form)


async def _refuse_images(call: CloudCall) -> Response:
    raise NotOffered(
        "images are not offered; remove `image` from scrapinghub.yml, and list packages in a requirements file"
    )


# --- jobs -------------------------------------------------------------------------------------------------------------


async def _run(call: CloudCall) -> Response:
    form = await call.form()
    project = await call.find_project(form.text("project"))
    job = _new_job(form, project.name)
    call.manager.check_settings(job.settings, call.principal.scope)
    row, _ = await call.manager.create_job(job)
    call.name_change(f"{row.id} {row.project}/{row.spider}")
    key = (await read_views(call.manager.database, project, [row])).key(row)
    return ok(jobid=str(key))


def _new_job(form: Form, project: str) -> NewJob:
    """Return the job of a form. What is left in it are arguments of the spider."""
    spider = form.text("spider")
    form.optional("units")
    priority = form.number("priority", NORMAL_PRIORITY) - NORMAL_PRIORITY
    tags_given = _tags(form, "add_tag")
    if form.optional("cmd_args"):
        raise NotOffered("cmd_args: scripts are not offered; only spiders can be run")
    settings = object_of("job_settings", form.optional("job_settings") or "{}")
    notes = object_of("meta", form.optional("meta") or "{}")
    if object_of("environment", form.optional("environment") or "{}"):
        raise NotOffered("environment: a job has no variables of its own; set those of the project with /v1")
    return NewJob(
        project,
        spider,
        new_job_name(),
        arguments=form.rest(),
        settings={name: _setting(value) for name, value in settings.items()},
        priority=priority,
        tags=tags_given,
        notes=notes,
    )


def _setting(value: Any) -> str:
    """Return a setting as Scrapy's command line takes it."""
    return value if isinstance(value, str) else str(value) if isinstance(value, bool) else json.dumps(value)


def _tags(form: Form, name: str) -> list[str]:
    found = [tag for tag in form.all(name) if tag]
    if len(found) > _MAX_TAGS or any(len(tag) > 200 for tag in found):
        raise BadInput(f"{name}: at most {_MAX_TAGS} tags of at most 200 characters")
    return found


async def _update_jobs(call: CloudCall) -> Response:
    """Change the tags of jobs, or of the latest jobs of a spider."""
    form = await call.form()
    project = await call.find_project(form.text("project"))
    keys, spider = [parse_key(text) for text in form.all("job")], form.optional("spider")
    add, remove = _tags(form, "add_tag"), _tags(form, "remove_tag")
    if not keys and not spider:
        raise BadInput("'job' or 'spider' parameter is required")
    every = sorted({state for states in STATES.values() for state in states})
    pairs = [(key.spider, key.job) for key in keys if key.project == project.number] if keys else None
    wanted = JobSearch(project.id, every, spider=spider or "", spider_jobs=pairs)
    rows = await call.manager.read(lambda c: job_search.search_jobs(c, wanted, skip=0, limit=_MAX_CHANGED))
    numbers = [row.id for row in rows]
    if numbers:
        await call.manager.database.write(
            lambda connection: tags.change_tags(connection, numbers, add=add, remove=remove)
        )
        call.name_change(f"{project.name} {' '.join(map(str, numbers))}")
    return ok(count=len(rows))


async def _stop(call: CloudCall) -> Response:
    form = await call.form()
    rows = [await call.existing_job(parse_key(text)) for text in form.all("job")]
    live = [row for row in rows if row.state not in ENDED]
    call.name_change(named_jobs(live))
    for row in live:
        await call.manager.cancel_job(row.id, signal_number=signal.SIGTERM)
    return ok(count=len(rows))


async def _spider_tags(call: CloudCall) -> Response:
    await call.project()
    return JSONResponse({"tags": []})


async def _refuse_spider_tags(call: CloudCall) -> Response:
    raise NotOffered("spiders have no tags; jobs have")


_READ, _RUN, _DEPLOY = TokenScope.READ, TokenScope.RUN, TokenScope.DEPLOY
_SPIDER: Final = "/api/v2/projects/{project:int}/spiders/{spider:int}"
ROUTES: Final = (
    CloudRoute("GET", "/api/v2/users/me", _READ, _me),
    CloudRoute("GET", "/api/scrapyd/listprojects.json", _READ, _projects),
    CloudRoute("GET", "/api/listprojects.json", _READ, _projects),
    CloudRoute("POST", "/api/scrapyd/addversion.json", _DEPLOY, _deploy),
    CloudRoute("GET", "/api/spiders/list.json", _READ, _spiders),
    CloudRoute("POST", "/api/run.json", _RUN, _run),
    CloudRoute("POST", "/api/schedule.json", _RUN, _run),
    CloudRoute("POST", "/api/jobs/update.json", _RUN, _update_jobs),
    CloudRoute("POST", "/api/jobs/stop.json", _RUN, _stop),
    CloudRoute("GET", _SPIDER, _READ, _spider_tags),
    CloudRoute("PATCH", f"{_SPIDER}/tags", _RUN, _refuse_spider_tags),
    CloudRoute("GET", "/api/eggs/list.json", _READ, _eggs),
    CloudRoute("GET", "/api/migrate-eggs.zip", _READ, _requirements),
    CloudRoute("GET", "/api/eggs/bundle.zip", _READ, _bundle),
    CloudRoute("POST", "/api/eggs/add.json", _DEPLOY, _add_egg),
    CloudRoute("GET", "/api/settings/get.json", _READ, _refuse_images),
    CloudRoute("POST", "/api/releases/deploy.json", _DEPLOY, _refuse_images),
)
