"""Projects: versions and their deployment, spiders, limits, variables. Values of secrets are never shown."""

import asyncio
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from zipfile import is_zipfile

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.service import ApiCall, ApiRefused
from gossamer.net.paths import path_of
from gossamer.platform_client.packaging import version_name
from gossamer_platform.dashboard.jobs import bytes_of, number_of
from gossamer_platform.dashboard.latest import cut, latest
from gossamer_platform.scrapyd.forms import parse_body

MAX_UPLOAD: Final = 256 * 1024 * 1024 + 64 * 1024
"""Longest form with an artefact, which may have 256 MiB."""
_UPLOADS: Final = asyncio.Semaphore(2)
"""Artefacts that are in memory at a time."""
_WAIT_SECONDS: Final = 10.0
"""Time for which a page waits until a version is built. One that takes longer shows up as building."""
_DEPLOY_SECONDS: Final = 60.0
"""Longest time for which a page waits for the answer to an upload, which may be long. Must exceed `_WAIT_SECONDS`."""
_VERSIONS: Final = 20
_SPIDERS: Final = 50
_POLICIES: Final = 20
LIMITS: Final = (
    "max_running", "retries", "retry_seconds", "time_limit", "memory_limit", "pending_limit", "min_items",
    "max_errors", "keep_logs_days", "keep_items_days", "keep_jobs_days",
)  # fmt: skip
"""Limits of a project that its form changes."""
_UNSET_WHEN_EMPTY: Final = frozenset({"max_running", "keep_logs_days", "keep_items_days", "keep_jobs_days"})
_WHOLE: Final = frozenset({"max_running", "retries", "memory_limit", "min_items", "max_errors"})


async def show_list(
    page: DashboardPage, *, fault: str = "", status_code: int = 200, given: Mapping[str, str] | None = None
) -> Response:
    """Return a page of the projects that the visitor may see, the latest first, with the form that deploys one.
    `given`: what was typed into it."""
    projects, after = await latest(page, "/v1/projects")
    return page.render(
        "projects.html", projects=projects, after=after, fault=fault, server=page.platform.server,
        given=given or {}, status_code=status_code,
    )  # fmt: skip


async def show(page: DashboardPage, refused: ApiRefused | None = None) -> Response:
    """Return one project. The part that follows it has its versions and spiders. `refused`: why a change was."""
    name, query = page.form.get("project") or page.query.get("project", ""), page.query
    project, versions, spiders, (variables, policies) = await asyncio.gather(
        page.platform.get(project_path(page, name)),
        page.platform.get(
            "/v1/versions", project=name, after=query.get("versions"), limit=_VERSIONS + 1, latest_first=True
        ),
        page.platform.get("/v1/spiders", project=name, after=query.get("spiders"), limit=_SPIDERS + 1),
        _variables_and_policies(page, name),
    )
    versions, more_versions = cut(versions, _VERSIONS, "id")
    spiders, more_spiders = cut(spiders, _SPIDERS)
    policies, more_policies = cut(policies, _POLICIES, "spider")
    return page.render(
        "project.html",
        project=project,
        versions=versions,
        spiders=spiders,
        variables=variables,
        policies=policies,
        following={"versions": more_versions, "spiders": more_spiders, "policies": more_policies},
        limits=LIMITS,
        field_faults=page.field_faults(refused),
        status_code=400 if refused else 200,
    )


async def _variables_and_policies(page: DashboardPage, name: str) -> tuple[list[Any], list[Any]]:
    """Return the variables of a project, and a page of its policies; none for the part that follows it."""
    if page.part:
        return [], []
    after, most = page.query.get("policies"), _POLICIES + 1
    variables, policies = await asyncio.gather(
        page.platform.get(project_path(page, name, "variables")),
        page.platform.get(project_path(page, name, "policies"), after=after, limit=most),
    )
    return variables, policies


async def deploy(page: DashboardPage) -> Response:
    """Deploy the file of the form as a version, and show its project. It is read only now, for a visitor who may."""
    async with _UPLOADS:
        content = await page.request.body()
        try:
            form = await asyncio.to_thread(parse_body, page.request.headers.get("content-type", ""), content)
        except ValueError as error:
            return await show_list(page, fault=page.texts.fault(str(error), "invalid-request"), status_code=400)
        del content
        project, version = (form.get(name, [b""])[0].decode("utf-8", "replace").strip() for name in _FORM_FIELDS)
        artefact = form.get(b"artefact", [b""])[0]
        given = {"project": project, "version": version}
        if not (project and artefact):
            return await show_list(page, fault=page.texts("projects.incomplete"), status_code=400, given=given)
        query = {"project": project, "version": version or version_name("", Path()), "wait_seconds": _WAIT_SECONDS}
        try:
            call = ApiCall("POST", "/v1/versions", query, artefact, "application/zip")
            await page.platform.send(call, seconds=_DEPLOY_SECONDS)
        except ApiRefused as error:
            is_archive = error.status != 400 or await asyncio.to_thread(is_zipfile, BytesIO(artefact))
            fault = page.detail(error) if is_archive else page.texts("projects.no_archive")
            return await show_list(page, fault=fault, status_code=error.status, given=given)
    return page.go("/project", project=project)


_FORM_FIELDS: Final = (b"project", b"version")


async def pin(page: DashboardPage) -> Response:
    """Make a version the project's default for good, or let the latest one be it again, or go back by one."""
    name, action = page.form.get("project", ""), page.form.get("action", "")
    if action == "rollback":
        await page.platform.call("POST", project_path(page, name, "rollback"))
    elif action == "unpin":
        await page.platform.call("DELETE", project_path(page, name, "default"))
    else:
        query = {"version": page.form.get("version", "")}
        await page.platform.call("PUT", project_path(page, name, "default"), query=query)
    return page.go("/project", project=name)


async def delete_version(page: DashboardPage) -> Response:
    """Delete a version that nothing uses, and show its project."""
    name = page.form.get("project", "")
    query = {"project": name, "version": page.form.get("version", "")}
    await page.platform.call("DELETE", "/v1/versions", query=query)
    return page.go("/project", project=name)


async def change(page: DashboardPage) -> Response:
    """Change the limits of a project, and show it."""
    name = page.form.get("project", "")
    try:
        changes: dict[str, Any] = {}
        for limit in LIMITS:
            read = bytes_of if limit == "memory_limit" else number_of
            value = read(page, page.form, limit)
            if value is not None:
                changes[limit] = int(value) if limit in _WHOLE and value == int(value) else value
            elif limit in _UNSET_WHEN_EMPTY:
                changes[limit] = None
        await page.platform.call("PATCH", project_path(page, name), body=changes)
    except ApiRefused as error:
        return await show(page, error)
    except (OverflowError, ValueError) as error:
        return await show(page, ApiRefused(400, str(error), "invalid-request"))
    return page.go("/project", project=name, changed="yes")


async def set_variable(page: DashboardPage) -> Response:
    """Set a variable or a secret of a project, or delete one, and show the project."""
    form = page.form
    name = form.get("project", "")
    path = project_path(page, name, "variables", form.get("name", "").strip() or "-")
    try:
        if form.get("delete"):
            await page.platform.call("DELETE", path)
        else:
            value = {"value": form.get("value", ""), "secret": bool(form.get("secret"))}
            await page.platform.call("PUT", path, body=value)
    except ApiRefused as error:
        return await show(page, error)
    return page.go("/project", project=name)


def project_path(page: DashboardPage, name: str, *rest: str) -> str:
    """Return the path of a project, or of what is below it, in the API. Raises ApiRefused without a name."""
    if not name:
        raise ApiRefused(404, page.texts("problem.no_project"))
    return f"/v1/projects/{path_of(name, *rest)}"
