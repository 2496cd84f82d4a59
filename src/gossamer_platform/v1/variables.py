"""Endpoints of a project's environment variables and secrets.

Fixed, because clients read them: paths, names of fields, status codes; and that no answer has the value of a secret.
"""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from gossamer_platform.manager.operations import NotFound
from gossamer_platform.state.tables import Variable
from gossamer_platform.v1.context import RESPONSES, Admin, Deployer, Reader
from gossamer_platform.v1.models import RequestModel

router = APIRouter(prefix="/v1", tags=["variables"], responses=RESPONSES)

_Project = Annotated[str, Path(min_length=1, max_length=200, description="Name of the project.")]
_Name = Annotated[str, Path(min_length=1, max_length=200, description="Name of the environment variable.")]


class NewVariableModel(RequestModel):
    """Value of an environment variable."""

    value: Annotated[str, Field(max_length=16 * 1024)]
    """Text that processes of the project get."""
    secret: bool = False
    """True: the value is encrypted, and never shown again."""


class VariableModel(BaseModel):
    """Environment variable of a project."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    secret: bool
    value: str | None
    """Its value. Null: it is a secret."""
    changed_at: datetime

    @classmethod
    def of(cls, row: Variable) -> "VariableModel":
        """Return the model of a row."""
        value = None if row.is_secret else row.value
        changed_at = datetime.fromtimestamp(row.changed_at, UTC)
        return cls(name=row.name, secret=row.is_secret, value=value, changed_at=changed_at)


class RotationModel(BaseModel):
    """Result of encrypting all secrets anew."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    rotated: int
    """Secrets for which only the first key is needed now."""
    unreadable: list[str]
    """Secrets that none of the keys decrypts, as PROJECT/NAME. They are as they were."""


@router.get("/projects/{project}/variables", summary="List the variables of a project")
async def list_variables(project: _Project, client: Reader) -> list[VariableModel]:
    """Return the environment variables of a project, without the values of secrets."""
    client.check_project(project)
    return [VariableModel.of(row) for row in await client.context.manager.variables.list(project)]


@router.put("/projects/{project}/variables/{name}", summary="Set a variable")
async def set_variable(project: _Project, name: _Name, variable: NewVariableModel, client: Deployer) -> VariableModel:
    """Set an environment variable, or a secret, of all processes of the project that start from now on: jobs, and the
    listing of spiders. The project need not exist yet."""
    client.check_project(project)
    row = await client.context.manager.variables.set(project, name, variable.value, is_secret=variable.secret)
    client.name_change("secret.set" if variable.secret else "variable.set", f"{project} {name}")
    return VariableModel.of(row)


@router.delete("/projects/{project}/variables/{name}", status_code=204, summary="Delete a variable")
async def delete_variable(project: _Project, name: _Name, client: Deployer) -> Response:
    """Delete a variable or a secret. Processes that run keep what they have."""
    client.check_project(project)
    if not await client.context.manager.variables.delete(project, name):
        raise NotFound(f"project '{project}' has no variable {name}")
    client.name_change("variable.delete", f"{project} {name}")
    return Response(status_code=204)


@router.get("/projects/{project}/secrets", status_code=204, summary="Check whether secrets can be kept")
async def check_secrets(project: _Project, client: Deployer) -> Response:
    """Return 204 if the manager has a key for secrets, and the problem `no-secret-key` otherwise."""
    client.check_project(project)
    client.context.manager.variables.check_key()
    return Response(status_code=204)


@router.post("/secrets/rotate", summary="Encrypt all secrets with the first key")
async def rotate_secrets(client: Admin) -> RotationModel:
    """Encrypt all secrets anew with the first key of the manager, so that the other keys are not needed any more.

    Before this, give the new key to every manager, as its first one. A token for one project cannot do this.
    """
    if client.principal.project:
        raise NotFound("secrets cannot be encrypted anew with the token of one project")
    done = await client.context.manager.variables.rotate()
    client.name_change("secret.rotate", f"{done.rotated} secrets")
    return RotationModel(**done._asdict())
