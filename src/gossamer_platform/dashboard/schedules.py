"""Schedules: when each fires next, what it did, and the form that makes or changes one."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.service import ApiRefused
from gossamer_platform.dashboard.choices import project_choice, spider_choice, version_choice
from gossamer_platform.dashboard.jobs import row_number
from gossamer_platform.dashboard.latest import latest
from gossamer_platform.dashboard.schedule_form import changes_of, fields_of, texts_of, times_query
from gossamer_platform.outcome import meaning_of

_A_PAGE: Final = 50
"""Jobs and firings that the page of a schedule shows."""


async def show_list(page: DashboardPage) -> Response:
    """Return a page of schedules, the latest first."""
    found, after = await latest(page, "/v1/schedules", project=page.query.get("project") or None)
    return page.render("schedules.html", schedules=found, after=after)


async def show(page: DashboardPage) -> Response:
    """Return one schedule with its next times and what it did."""
    number = row_number(page, page.query)
    schedule = await page.platform.get(f"/v1/schedules/{number}")
    jobs: list[Any] = []
    firings: list[Any] = []
    following = ""
    if schedule["spider"]:
        jobs = (await page.platform.get("/v1/jobs", schedule=number, limit=_A_PAGE))["jobs"]
    else:
        path, after = f"/v1/schedules/{number}/firings", page.query.get("after")
        found = await page.platform.get(path, after=after, limit=_A_PAGE)
        firings, following = found["firings"], found["next"]
    return page.render(
        "schedule.html", schedule=schedule, jobs=jobs, firings=firings, following=following, meaning_of=meaning_of
    )


async def change(page: DashboardPage) -> Response:
    """Pause, resume, run or delete a schedule, and show it."""
    number, action = row_number(page, page.form), page.form.get("action", "")
    path = f"/v1/schedules/{number}"
    if action == "delete":
        await page.platform.call("DELETE", path)
        return page.go("/schedules")
    if action == "run":
        made = await page.platform.call("POST", f"{path}/run")
        if "state" in made and "spider" in made:
            return page.go("/job", id=str(made["id"]))
    elif action in ("pause", "resume"):
        await page.platform.call("PATCH", path, body={"paused": action == "pause"})
    return page.go("/schedule", id=str(number))


async def show_form(page: DashboardPage, refused: ApiRefused | None = None) -> Response:
    """Return the form for a schedule: of a project, or first the choice of one."""
    return await _form(page, page.form or page.query, None, refused)


async def create(page: DashboardPage) -> Response:
    """Make the schedule of the form, and show it."""
    form = page.form
    try:
        schedule = fields_of(page) | {"project": form.get("project", ""), "name": form.get("name", "").strip()}
        made = await page.platform.call("POST", "/v1/schedules", body=schedule)
    except ApiRefused as error:
        return await show_form(page, error)
    return page.go("/schedule", id=str(made["id"]))


async def show_edit(page: DashboardPage, refused: ApiRefused | None = None) -> Response:
    """Return the form that changes a schedule, filled with what it is."""
    schedule = await page.platform.get(f"/v1/schedules/{row_number(page, page.form or page.query)}")
    given = {**texts_of(schedule), **page.form, "project": schedule["project"], "anchor": schedule["start"]}
    return await _form(page, given, schedule, refused)


async def edit(page: DashboardPage) -> Response:
    """Change the fields of a schedule whose texts in the form were changed, and show it."""
    number = row_number(page, page.form)
    path = f"/v1/schedules/{number}"
    try:
        if changes := changes_of(page, await page.platform.get(path)):
            await page.platform.call("PATCH", path, body=changes)
    except ApiRefused as error:
        if error.status == 404:
            raise
        return await show_edit(page, error)
    return page.go("/schedule", id=str(number), changed="yes")


async def _form(page: DashboardPage, given: Mapping[str, str], schedule: Any, refused: ApiRefused | None) -> Response:
    """Return the form. `schedule`: the one that is changed; None: a new one."""
    project = given.get("project", "")
    is_of_jobs = schedule is None or bool(schedule["spider"])
    return page.render(
        "schedule_form.html",
        schedule=schedule,
        projects=await project_choice(page) if schedule is None else None,
        spiders=await spider_choice(page, project) if is_of_jobs else None,
        versions=await version_choice(page, project) if is_of_jobs else None,
        given=given,
        preview=await _preview(page, given),
        field_faults=page.field_faults(refused),
        status_code=400 if refused else 200,
    )


async def preview(page: DashboardPage) -> Response:
    """Return the next times of the filled form."""
    return page.render("schedule_preview.html", preview=await _preview(page, page.form))


async def _preview(page: DashboardPage, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the next times that a form stands for, or why it stands for none; empty: it has no rule yet."""
    try:
        query = times_query(page, given)
        return await page.platform.get("/v1/schedules/times", **query) if query else {}
    except ApiRefused as error:
        return {"fault": page.detail(error)}
