"""Endpoints of projects, versions, tokens and the audit.

Fixed, because clients read them: paths, names of parameters, status codes. A version is deployed with its artefact as
the body of the request, and the answer comes when a node has listed its spiders.
"""

import bisect
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from sqlalchemy import Connection
from starlette.responses import PlainTextResponse

from gossamer.errors import BadInput
from gossamer.storage.audit import AuditFilter, outcome_word
from gossamer_platform.lifecycle import EnvironmentKind, VersionState
from gossamer_platform.manager.operations import NotFound
from gossamer_platform.state import audit, defaults, environments, projects, tokens
from gossamer_platform.state.tokens import TokenScope
from gossamer_platform.v1.context import RESPONSES, Admin, Client, Deployer, Operator, Reader
from gossamer_platform.v1.models import (
    AuditEntry,
    EnvironmentModel,
    KeptModel,
    NewTokenModel,
    NewTokenResponse,
    ProjectChange,
    ProjectModel,
    TokenModel,
    VersionModel,
)
from gossamer_platform.v1.pages import AfterName, EntryLimit, PageLimit, PageOfList, parse_cursor
from gossamer_platform.v1.spooling import spooled

router = APIRouter(prefix="/v1", responses=RESPONSES)

MAX_ARTEFACT_BYTES: Final = 256 * 1024 * 1024
"""Largest artefact."""
VERSIONS_PATH: Final = "/v1/versions"
"""Path of the endpoint that takes an artefact. Fixed."""
_VersionName = Annotated[str, Query(min_length=1, max_length=200, description="Name of the version.")]
_ProjectName = Annotated[str, Query(min_length=1, max_length=200, description="Name of the project.")]


@router.get("/projects", tags=["projects"], summary="List projects")
async def list_projects(client: Reader, page: PageOfList) -> list[ProjectModel]:
    """Return the projects that the client may see, also those without a version that jobs could run."""

    def find(connection: Connection) -> list[ProjectModel]:
        rows = projects.project_rows(connection, page, only=client.principal.project)
        return [ProjectModel.of(*each) for each in zip(rows, defaults.defaults_of(connection, rows), strict=True)]

    return list(await client.context.manager.read(find))


@router.get("/project-names", tags=["projects"], summary="List the names of projects")
async def list_project_names(client: Reader, page: PageOfList) -> list[str]:
    """Return the names of the projects that the client may see, in the order of their creation."""
    rows = await client.context.manager.read(lambda c: projects.project_rows(c, page, only=client.principal.project))
    return [row.name for row in rows]


@router.get("/spiders", tags=["versions"], summary="List the spiders of a project")
async def list_spiders(
    project: _ProjectName, client: Reader, after: AfterName = "", limit: EntryLimit = None
) -> list[str]:
    """Return the names of the spiders of the default version and of the latest 20 versions that jobs can run; by
    name."""
    client.check_project(project)
    names = await client.context.manager.read(lambda c: projects.spider_names(c, project))
    first = bisect.bisect_right(names, after)
    return names[first:][:limit]


@router.get("/projects/{project}", tags=["projects"], summary="Show a project")
async def get_project(project: str, client: Reader) -> ProjectModel:
    """Return a project."""
    client.check_project(project)
    return await _project(client, project)


@router.patch("/projects/{project}", tags=["projects"], summary="Change the limits of a project")
async def change_project(project: str, change: ProjectChange, client: Admin) -> ProjectModel:
    """Change what the project's new jobs and versions get, and how many of its jobs run at a time."""
    client.check_project(project)
    columns: dict[str, Any] = {}
    if "max_running" in change.model_fields_set:
        columns["max_running"] = change.max_running
    if change.environment is not None:
        columns["environment"] = change.environment.value
    if change.label is not None:
        columns["label"] = change.label
    columns |= change.model_dump(include=change.model_fields_set & set(KeptModel.model_fields))
    manager = client.context.manager
    if not await manager.database.write(lambda c: projects.change_project(c, project, change, **columns)):
        raise NotFound(f"project '{project}' not found")
    client.name_change("project.change", f"{project} {change.model_dump(exclude_unset=True)}")
    return await _project(client, project)


async def _project(client: Client, project: str) -> ProjectModel:
    def find(connection: Connection) -> ProjectModel | None:
        row = projects.project_row(connection, project)
        return None if row is None else ProjectModel.of(row, defaults.default_of(connection, project))

    found = await client.context.manager.read(find)
    if found is None:
        raise NotFound(f"project '{project}' not found")
    return found


@router.put("/projects/{project}/default", tags=["versions"], summary="Pin the default version of a project")
async def pin_version(project: str, version: _VersionName, client: Deployer) -> ProjectModel:
    """Let jobs that name no version run this one, whatever is deployed later."""
    client.check_project(project)
    await client.context.manager.pin_version(project, version)
    client.name_change("version.pin", f"{project} {version}")
    return await _project(client, project)


@router.delete("/projects/{project}/default", tags=["versions"], summary="Unpin the default version of a project")
async def unpin_version(project: str, client: Deployer) -> ProjectModel:
    """Let jobs that name no version run the latest one again."""
    client.check_project(project)
    await client.context.manager.pin_version(project, None)
    client.name_change("version.unpin", project)
    return await _project(client, project)


@router.post("/projects/{project}/rollback", tags=["versions"], summary="Go back to the version before the default")
async def roll_back(project: str, client: Deployer) -> ProjectModel:
    """Pin the version before the present default. Jobs that run go on."""
    client.check_project(project)
    version = await client.context.manager.roll_back(project)
    client.name_change("version.rollback", f"{project} {version}")
    return await _project(client, project)


@router.get("/versions", tags=["versions"], summary="List the versions of a project")
async def list_versions(
    project: _ProjectName,
    client: Reader,
    page: PageOfList,
    state: Annotated[VersionState | None, Query(description="Only versions in this state.")] = None,
) -> list[VersionModel]:
    """Return the versions that are being built, that jobs can run, and the latest broken ones, in the order of their
    deployment."""
    client.check_project(project)
    if state is VersionState.DELETED:
        return []

    def find(connection: Connection) -> list[VersionModel]:
        rows = projects.version_rows(connection, project, page, state=state)
        by = audit.deployers(connection, project, rows)
        return [VersionModel.of_row(row, deployed_by=by.get(row.id)) for row in rows]

    return list(await client.context.manager.read(find))


@router.post(
    "/versions",
    status_code=201,
    tags=["versions"],
    summary="Deploy a version",
    openapi_extra={
        "requestBody": {
            "description": "The egg or wheel.",
            "required": True,
            "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def deploy_version(
    project: _ProjectName,
    version: _VersionName,
    request: Request,
    response: Response,
    client: Deployer,
    environment: Annotated[
        EnvironmentKind | None, Query(description="Where its jobs run. Absent: as the project says.")
    ] = None,
    wait_seconds: Annotated[
        float | None,
        Query(ge=0, le=86400, allow_inf_nan=False, description="Longest time to wait. Absent: until it is built."),
    ] = None,
) -> VersionModel:
    """Add a version, and wait until a node has listed its spiders. If that fails, the project stays as it was, and the
    answer (422) has the reason. The answer is 202 with the state `building` if it takes longer than `wait_seconds`."""
    client.check_project(project)
    manager = client.context.manager
    async with spooled(request.stream(), manager.artefacts.temporary_file, limit=MAX_ARTEFACT_BYTES) as content:
        row = await manager.deploy(project, version, content, environment=environment, wait_seconds=wait_seconds)
    if row.state == VersionState.BUILDING:
        response.status_code = 202
    return VersionModel.of_row(row)


@router.delete("/versions", status_code=204, tags=["versions"], summary="Delete a version")
async def delete_version(
    project: _ProjectName,
    version: _VersionName,
    client: Deployer,
    force: Annotated[bool, Query(description="Delete it although something uses it.")] = False,
) -> Response:
    """Delete a version that is ready, or a broken one whose name no ready one has. The answer is 409, with what
    uses it, if it is the default, if jobs run it or wait to run it, or if a schedule names it. With `force`, jobs that
    run it go on, and pending jobs that name it will fail."""
    client.check_project(project)
    await client.context.manager.delete_version(project, version, even_if_used=force)
    client.name_change("version.delete", f"{project} {version}")
    return Response(status_code=204)


@router.get("/environments", tags=["versions"], summary="List the isolated environments of a project's versions")
async def list_environments(
    project: _ProjectName,
    client: Reader,
    version: Annotated[str, Query(max_length=200, description="Name of the only version. Empty: all.")] = "",
) -> list[EnvironmentModel]:
    """Return what nodes have built, are building, or could not build, the latest first."""
    client.check_project(project)
    rows = await client.context.manager.read(lambda c: environments.environment_rows(c, project, version))
    return [EnvironmentModel.of_row(row) for row in rows]


@router.get(
    "/environments/log",
    tags=["versions"],
    summary="Read the log of the build of an environment",
    response_class=PlainTextResponse,
)
async def get_build_log(
    project: _ProjectName,
    version: _VersionName,
    client: Reader,
    node: Annotated[str, Query(max_length=64, description="Name of the node. Empty: the one that was last.")] = "",
) -> PlainTextResponse:
    """Return the end of what pip or uv printed."""
    client.check_project(project)
    text = await client.context.manager.read(lambda c: environments.environment_log(c, project, version, node))
    if text is None:
        raise NotFound(f"no environment was built for version '{version}' of {project}")
    return PlainTextResponse(text)


@router.post("/tokens", status_code=201, tags=["access"], summary="Make a token")
async def make_token(token: NewTokenModel, client: Admin) -> NewTokenResponse:
    """Make a token. Its secret is in the answer, and nowhere else."""
    if not client.principal.sees(token.project):
        raise BadInput(f"project: this token is for {client.principal.project} only, and can make none for others")
    if token.scope is TokenScope.NODE and token.project:
        raise BadInput("project: a node runs the jobs of all projects; a token with the scope node is for none")
    database = client.context.manager.database
    number, secret = await database.write(
        lambda c: tokens.add_token(c, token.name, token.scope, project=token.project, valid_seconds=token.valid_seconds)
    )
    client.name_change("token.make", f"{number} {token.name} {token.scope} {token.project}".rstrip())
    return NewTokenResponse(id=number, token=secret)


@router.get("/tokens", tags=["access"], summary="List tokens")
async def list_tokens(client: Admin, page: PageOfList) -> list[TokenModel]:
    """Return the tokens that the client may see, without their secrets."""
    only = client.principal.project
    rows = await client.context.manager.read(lambda c: tokens.list_tokens(c, page, project=only))
    return [TokenModel.of_row(row) for row in rows]


@router.post("/tokens/{token_id}/release", tags=["access"], summary="Take a token from its node")
async def release_token(token_id: Annotated[int, Path(ge=1, lt=2**63)], client: Operator) -> TokenModel:
    """Let the next node that uses a token have it, whatever its name. The node that had it is refused from then on."""
    row = await client.context.manager.database.write(lambda c: tokens.release_token(c, token_id))
    if row is None:
        raise NotFound(f"token {token_id} not found")
    client.name_change("token.release", f"{token_id} {row.name}")
    return TokenModel.of_row(row)


@router.delete("/tokens/{token_id}", status_code=204, tags=["access"], summary="Revoke a token")
async def revoke_token(token_id: Annotated[int, Path(ge=1, lt=2**63)], client: Admin) -> Response:
    """Delete a token, which is refused from then on."""
    only = client.principal.project
    name = await client.context.manager.database.write(lambda c: tokens.delete_token(c, token_id, only=only))
    if name is None:
        raise NotFound(f"token {token_id} not found")
    client.name_change("token.revoke", f"{token_id} {name}")
    return Response(status_code=204)


@router.get("/audit", tags=["access"], summary="Show who changed what")
async def get_audit(
    client: Admin,
    after: Annotated[str, Query(description="Number of the last entry of the page before.")] = "",
    actor: Annotated[str, Query(max_length=200, description="Only changes of this name.")] = "",
    action: Annotated[str, Query(max_length=40, description="Only actions that begin with this, such as `job`.")] = "",
    subject: Annotated[str, Query(max_length=1000, description="Only changes whose subject contains this.")] = "",
    limit: PageLimit = 100,
) -> list[AuditEntry]:
    """Return changes, the latest first. A token for one project cannot read it. An entry is there before the change is
    made, with the outcome `begun`."""
    if client.principal.project:
        raise NotFound("the audit is not there for tokens of one project")
    before = parse_cursor(after)
    chosen = AuditFilter(actor, action, subject)
    rows = await client.context.manager.read(lambda c: audit.entries(c, chosen, before=before, limit=limit))
    return [AuditEntry.of_row(row, outcome=outcome_word(row.status)) for row in rows]
