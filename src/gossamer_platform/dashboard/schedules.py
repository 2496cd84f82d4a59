"""Schedules: when each fires next, what it did, and the form that makes one."""

from typing import Any, Final

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.service import ApiRefused
from gossamer_platform.dashboard.choices import project_choice, spider_choice
from gossamer_platform.dashboard.jobs import number_of, pairs_of, row_number
from gossamer_platform.dashboard.latest import latest

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
    return page.render("schedule.html", schedule=schedule, jobs=jobs, firings=firings, following=following)


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


async def show_form(page: DashboardPage, *, fault: str = "", status_code: int = 200) -> Response:
    """Return the form for a schedule: of a project, or first the choice of one."""
    given = page.form or page.query
    project = given.get("project", "")
    return page.render(
        "schedule_form.html",
        projects=await project_choice(page),
        spiders=await spider_choice(page, project),
        given=given,
        fault=fault,
        status_code=status_code,
    )


async def create(page: DashboardPage) -> Response:
    """Make the schedule of the form, and show it."""
    form = page.form
    try:
        schedule: dict[str, Any] = {
            "project": form.get("project", ""),
            "spider": form.get("spider", "").strip(),
            "name": form.get("name", "").strip(),
            "time_zone": form.get("time_zone", "").strip() or "UTC",
            "if_running": form.get("if_running") or "run",
            "arguments": pairs_of(page, form, "arguments"),
            "settings": pairs_of(page, form, "settings"),
        }
        if every := number_of(page, form, "every"):
            schedule["every"] = every * 60
        if cron := form.get("cron", "").strip():
            schedule["cron"] = cron
        if ("every" in schedule) == ("cron" in schedule):
            raise ApiRefused(400, page.texts("schedules.one_rule"))
        made = await page.platform.call("POST", "/v1/schedules", body=schedule)
    except ApiRefused as error:
        return await show_form(page, fault=page.detail(error), status_code=400)
    return page.go("/schedule", id=str(made["id"]))
