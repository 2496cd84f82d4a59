"""Endpoints of projects, versions, tokens and the audit.

Fixed, because clients read them: paths, names of parameters, status codes. A version is deployed with its artefact as
the body of the request, and the answer comes when a node has listed its spiders.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Response

from gossamer.errors import BadInput
from gossamer.platform.lifecycle import VersionState
from gossamer.platform.manager.operations import NotFound
from gossamer.platform.state import projects, tokens
from gossamer.platform.v1.context import Admin, Deployer, Reader
from gossamer.platform.v1.jobs import MAX_PAGE, parse_cursor
from gossamer.platform.v1.models import (
    AuditEntry,
    NewTokenModel,
    NewTokenResponse,
    ProjectChange,
    ProjectModel,
    TokenModel,
    VersionModel,
)

router = APIRouter(prefix="/v1")

MAX_ARTEFACT_BYTES: Final = 256 * 1024 * 1024
"""Largest artefact. May be changed; it is in memory while it is received."""
VERSIONS_PATH: Final = "/v1/versions"
"""Path of the endpoint that takes an artefact. Fixed."""
_ProjectName = Annotated[str, Query(min_length=1, max_length=200, description="Name of the project.")]


@router.get("/projects", tags=["projects"], summary="List projects")
async def list_projects(client: Reader) -> list[ProjectModel]:
    """Return all projects that the client may see, also those without a version that jobs could run."""
    rows = await client.context.manager.read(projects.project_rows)
    return [ProjectModel.of(row) for row in rows if client.principal.project in ("", row.name)]


@router.patch("/projects/{project}", tags=["projects"], summary="Change the limits of a project")
async def change_project(project: str, change: ProjectChange, client: Admin) -> ProjectModel:
    """Change what the project's new jobs get, and how many of its jobs run at a time."""
    client.check_project(project)
    columns = {"max_running": change.max_running} if "max_running" in change.model_fields_set else {}
    database = client.context.manager.database
    if not await database.write(lambda c: projects.change_project(c, project, change.policy(), **columns)):
        raise NotFound(f"project '{project}' not found")
    await client.record("project.change", f"{project} {change.model_dump(exclude_unset=True)}")
    row = await database.read(lambda c: projects.project_row(c, project))
    if row is None:
        raise NotFound(f"project '{project}' not found")
    return ProjectModel.of(row)


@router.get("/versions", tags=["versions"], summary="List the versions of a project")
async def list_versions(project: _ProjectName, client: Reader) -> list[VersionModel]:
    """Return the versions that are being built, that jobs can run, and the latest broken ones, in the order of their
    deployment."""
    client.check_project(project)
    rows = await client.context.manager.read(lambda c: projects.version_rows(c, project))
    return [VersionModel.of(row) for row in rows]


@router.post(
    "/versions",
    status_code=201,
    tags=["versions"],
    summary="Deploy a version",
    openapi_extra={
        "requestBody": {
            "description": "The egg.",
            "required": True,
            "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def deploy_version(
    project: _ProjectName,
    version: Annotated[str, Query(min_length=1, max_length=200, description="Name of the version.")],
    request: Request,
    client: Deployer,
) -> VersionModel:
    """Add a version, and wait until a node has listed its spiders. If that fails, the project stays as it was, and the
    answer (422) has the reason."""
    client.check_project(project)
    manager = client.context.manager
    await manager.deploy(project, version, await request.body())
    await client.record("version.deploy", f"{project} {version}")
    rows = await manager.read(lambda c: projects.version_rows(c, project))
    row = next((row for row in reversed(rows) if row.name == version and row.state == VersionState.READY), None)
    if row is None:
        raise NotFound(f"version '{version}' was deleted just after its deployment")
    return VersionModel.of(row)


@router.delete("/versions", status_code=204, tags=["versions"], summary="Delete a version")
async def delete_version(
    project: _ProjectName,
    version: Annotated[str, Query(min_length=1, max_length=200, description="Name of the version.")],
    client: Deployer,
) -> Response:
    """Delete a version that jobs can run. Jobs that run it go on; pending jobs that name it will fail."""
    client.check_project(project)
    await client.context.manager.delete_version(project, version)
    await client.record("version.delete", f"{project} {version}")
    return Response(status_code=204)


@router.post("/tokens", status_code=201, tags=["access"], summary="Make a token")
async def make_token(token: NewTokenModel, client: Admin) -> NewTokenResponse:
    """Make a token. Its secret is in the answer, and nowhere else."""
    if client.principal.project not in ("", token.project):
        raise BadInput(f"project: this token is for {client.principal.project} only, and can make none for others")
    database = client.context.manager.database
    number, secret = await database.write(
        lambda c: tokens.add_token(c, token.name, token.scope, project=token.project, valid_seconds=token.valid_seconds)
    )
    await client.record("token.make", f"{number} {token.name} {token.scope} {token.project}".rstrip())
    return NewTokenResponse(id=number, token=secret)


@router.get("/tokens", tags=["access"], summary="List tokens")
async def list_tokens(client: Admin) -> list[TokenModel]:
    """Return all tokens that the client may see, without their secrets."""
    rows = await client.context.manager.read(tokens.list_tokens)
    return [TokenModel.of(row) for row in rows if client.principal.project in ("", row.project)]


@router.delete("/tokens/{token_id}", status_code=204, tags=["access"], summary="Revoke a token")
async def revoke_token(token_id: Annotated[int, Path(ge=1, lt=2**63)], client: Admin) -> Response:
    """Delete a token, which is refused from then on."""
    only = client.principal.project
    name = await client.context.manager.database.write(lambda c: tokens.delete_token(c, token_id, only=only))
    if name is None:
        raise NotFound(f"token {token_id} not found")
    await client.record("token.revoke", f"{token_id} {name}")
    return Response(status_code=204)


@router.get("/audit", tags=["access"], summary="Show who changed what")
async def get_audit(
    client: Admin,
    after: Annotated[str, Query(description="Number of the last entry of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> list[AuditEntry]:
    """Return changes, the latest first. A token for one project cannot read it."""
    if client.principal.project:
        raise NotFound("the audit is not there for tokens of one project")
    before = parse_cursor(after)
    rows = await client.context.manager.read(lambda c: tokens.audit_page(c, before=before, limit=limit))
    return [AuditEntry(**row._mapping) for row in rows]
