"""Endpoints of job groups, and of inputs: files that a client sends and that jobs find on their nodes.

Fixed, because clients read them: paths, names of parameters and fields, status codes.
"""

import asyncio
import signal
from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import Field
from sqlalchemy import Connection

from gossamer.errors import BadInput
from gossamer_platform.manager import groups as operations
from gossamer_platform.manager.operations import STOPPING_SIGNALS, new_job_name
from gossamer_platform.state import groups
from gossamer_platform.state.groups import START_URLS, NewGroup
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.v1.context import RESPONSES, Client, Reader, Runner
from gossamer_platform.v1.models import JobPolicyModel, NamedModel, RunModel
from gossamer_platform.v1.pages import PageLimit, PageStart, cut_page, parse_cursor
from gossamer_platform.v1.spooling import spooled

router = APIRouter(prefix="/v1", responses=RESPONSES)

MAX_INPUT_BYTES: Final = 64 * 1024 * 1024
"""Largest input."""
_INPUTS: Final = asyncio.Semaphore(2)
"""Inputs that are in memory at a time; others wait as files."""
INPUTS_PATH: Final = "/v1/inputs"
"""Path of the endpoint that takes an input. Fixed."""
_MAX_JOBS: Final = 1000
"""Most jobs of a group. They are added in one transaction."""
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Id = Annotated[int, Path(ge=1, lt=2**63, description="Number of the group.")]


class InputModel(NamedModel):
    """An input that was sent."""

    digest: str
    """SHA-256 of its content, which names it in requests for jobs."""
    length: int
    """Bytes."""


class NewGroupModel(JobPolicyModel):
    """A job group to create: `inputs` makes a job for each of them, `processes` so many that share one frontier."""

    project: _Name
    spider: _Name
    version: _Name | None = None
    """Version to run. Null: the project's default when the job starts."""
    name: Annotated[str, Field(min_length=1, max_length=180)] | None = None
    """Beginning of the jobs' names, which end in -1, -2 and so on. Null: the server chooses one."""
    arguments: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, str] = Field(default_factory=dict)
    priority: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    inputs: Annotated[list[_Digest], Field(max_length=_MAX_JOBS, default_factory=list)]
    """Digests of inputs, one for each job."""
    input_use: _Name = START_URLS
    """`start_urls`: the lines of an input become the spider's start URLs. Otherwise: argument with the file's path."""
    processes: Annotated[int, Field(ge=0, le=_MAX_JOBS)] = 0
    """Number of jobs that share one frontier (the queue of a crawl), by Gossamer's add-on for Scrapy."""

    def group(self, request_key: str | None) -> NewGroup:
        """Return the group. Raises BadInput."""
        if bool(self.inputs) == bool(self.processes):
            raise BadInput("give either inputs or processes")
        given = self.model_dump(include={"project", "spider", "version", "arguments", "settings", "priority"})
        name = new_job_name() if self.name is None else self.name
        job = NewJob(**given, name=name, policy=self, request_key=request_key)
        return NewGroup(job, self.inputs, self.input_use, self.processes)


class GroupModel(RunModel):
    """A job group: several jobs that are shown and cancelled together."""

    kind: str
    """`split`: each job has a part of a file. `processes`: the jobs share one frontier."""
    created_at: datetime
    jobs: dict[str, int]
    """Number of jobs by state."""


class GroupPage(NamedModel):
    """Job groups, the latest first."""

    groups: list[GroupModel]
    next: str | None
    """Value of `after` for the next page. Null: this is the last one."""


@router.post(
    "/inputs",
    status_code=201,
    tags=["groups"],
    summary="Send an input of jobs",
    openapi_extra={
        "requestBody": {
            "description": "The file.",
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def add_input(
    project: Annotated[str, Query(min_length=1, max_length=200, description="Name of the project.")],
    request: Request,
    client: Runner,
    name: Annotated[str, Query(min_length=1, max_length=100, description="Name of the file.")] = "input",
) -> InputModel:
    """Keep a file that jobs of the project may get. It is deleted when no job refers to it any more, and an hour has
    passed. The request may be repeated."""
    client.check_project(project)
    manager = client.context.manager
    async with spooled(request.stream(), manager.artefacts.temporary_file, limit=MAX_INPUT_BYTES) as file, _INPUTS:
        content = await asyncio.to_thread(file.read)
        digest = await operations.add_input(manager, project, name, content)
        return InputModel(digest=digest, length=len(content))


@router.post("/groups", status_code=201, tags=["groups"], summary="Create a job group")
async def create_group(
    group: NewGroupModel,
    client: Runner,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> GroupModel:
    """Create a group with all its jobs. With a header Idempotency-Key the request may be repeated."""
    client.check_project(group.project)
    client.check_settings(group.settings)
    row, created = await operations.create_group(client.context.manager, group.group(idempotency_key))
    if created:
        client.name_change("group.create", f"{row.id} {row.project}/{row.spider}")
    else:
        response.status_code = 200
    return await _model(client, row.id)


@router.get("/groups", tags=["groups"], summary="List job groups")
async def list_groups(
    client: Reader,
    project: str = "",
    after: PageStart = "",
    limit: PageLimit = 100,
) -> GroupPage:
    """Return groups, the latest first."""
    wanted, before = client.listed_project(project), parse_cursor(after)

    def find(connection: Connection) -> tuple[list[GroupModel], str | None]:
        rows, following = cut_page(groups.group_page(connection, wanted, before=before, limit=limit + 1), limit)
        states = groups.group_states(connection, [row.id for row in rows])
        return [GroupModel.of_row(row, jobs=states[row.id]) for row in rows], following

    found, following = await client.context.manager.read(find)
    return GroupPage(groups=found, next=following)


@router.get("/groups/{group_id}", tags=["groups"], summary="Show a job group")
async def get_group(group_id: _Id, client: Reader) -> GroupModel:
    """Return a group. `/v1/jobs?group=ID` lists its jobs."""
    return await _model(client, group_id)


@router.post("/groups/{group_id}/cancel", status_code=202, tags=["groups"], summary="Cancel a job group")
async def cancel_group(
    group_id: _Id,
    client: Runner,
    number: Annotated[
        int, Query(alias="signal", ge=1, le=64, description="Number of the signal for Scrapy's processes.")
    ] = int(signal.SIGTERM),
) -> GroupModel:
    """Ask all jobs of the group to stop, as for a single job."""
    found = await _model(client, group_id)
    if number not in STOPPING_SIGNALS:
        raise BadInput(f"signal: {number} does not end a process")
    await operations.cancel_group(client.context.manager, group_id, signal_number=number)
    client.name_change("group.cancel", f"{group_id} {found.project}/{found.spider}")
    return await _model(client, group_id)


async def _model(client: Client, number: int) -> GroupModel:
    """Return a group that the client may see. Raises NotFound."""
    row = client.visible(await operations.find_group(client.context.manager, number), f"group {number}")
    states = await client.context.manager.read(lambda connection: groups.group_states(connection, [number]))
    return GroupModel.of_row(row, jobs=states[number])
