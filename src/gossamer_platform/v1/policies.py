"""Endpoints of policies: limits of the jobs of one spider, which replace those of its project.

Fixed, because clients read them: paths, names of fields, status codes.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Response
from pydantic import Field

from gossamer_platform.manager.operations import NotFound
from gossamer_platform.state import policies, projects
from gossamer_platform.state.tables import SpiderPolicy
from gossamer_platform.v1.context import RESPONSES, Admin, Client, Reader
from gossamer_platform.v1.models import JobPolicyModel
from gossamer_platform.v1.pages import AfterName, EntryLimit

router = APIRouter(prefix="/v1/projects/{project}/policies", tags=["projects"], responses=RESPONSES)

_MAX_NAME: Final = 200
_Spider = Annotated[str, Path(min_length=1, max_length=_MAX_NAME, description="Name of the spider.")]


class SpiderPolicyChange(JobPolicyModel):
    """Limits of new jobs of a spider. A field that is absent or null is the project's."""

    max_running: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Jobs of the spider that run at a time. 0: none start. Null: as many as the project's."""


class SpiderPolicyModel(SpiderPolicyChange):
    """Limits of new jobs of a spider."""

    spider: str

    @classmethod
    def of(cls, row: SpiderPolicy) -> "SpiderPolicyModel":
        """Return the model of a row."""
        return cls(**{name: getattr(row, name) for name in cls.model_fields})


@router.get("", summary="List the policies of a project's spiders")
async def list_policies(
    project: str, client: Reader, after: AfterName = "", limit: EntryLimit = None
) -> list[SpiderPolicyModel]:
    """Return the policies, by the names of the spiders. A spider without one has its project's limits."""
    await _check(client, project)
    manager = client.context.manager
    rows = await manager.read(lambda c: policies.list_spider_policies(c, project, after=after, limit=limit))
    return [SpiderPolicyModel.of(row) for row in rows]


@router.put("/{spider}", summary="Set the policy of a spider")
async def set_policy(project: str, spider: _Spider, change: SpiderPolicyChange, client: Admin) -> SpiderPolicyModel:
    """Replace the policy of a spider. Jobs that exist keep their limits; `max_running` counts at once."""
    await _check(client, project)
    manager = client.context.manager
    await manager.database.write(
        lambda c: policies.set_spider_policy(c, project, spider, change, max_running=change.max_running)
    )
    manager.wake_nodes()
    client.name_change("policy.set", f"{project}/{spider} {change.model_dump(exclude_unset=True)}")
    return SpiderPolicyModel(spider=spider, **change.model_dump())


@router.delete("/{spider}", status_code=204, summary="Delete the policy of a spider")
async def delete_policy(project: str, spider: _Spider, client: Admin) -> Response:
    """Let new jobs of the spider have the project's limits again."""
    await _check(client, project)
    manager = client.context.manager
    if not await manager.database.write(lambda c: policies.delete_spider_policy(c, project, spider)):
        raise NotFound(f"spider '{spider}' of {project} has no policy")
    manager.wake_nodes()
    client.name_change("policy.delete", f"{project}/{spider}")
    return Response(status_code=204)


async def _check(client: Client, project: str) -> None:
    """Raise NotFound if there is no such project, or the client may not see it."""
    client.check_project(project)
    if await client.context.manager.read(lambda c: projects.project_row(c, project)) is None:
        raise NotFound(f"project '{project}' not found")
