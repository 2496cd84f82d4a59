"""Jobs: their list, one job with its log and its items, and the form that makes one."""

import math
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.service import ApiCall, ApiRefused
from gossamer.platform_client.sizes import read_size
from gossamer_platform.dashboard.choices import project_choice, spider_choice, version_choice
from gossamer_platform.outcome import meaning_of

STATES: Final = ("pending", "starting", "running", "stopping", "finished", "failed", "cancelled")
ENDED: Final = frozenset({"finished", "failed", "cancelled"})
EXPORTS: Final = ("csv", "json", "jsonl", "xml")
_A_PAGE: Final = 50
_LOG_BYTES: Final = 64 * 1024
"""Bytes of a log that a page shows at first, and most that it takes at a time while it follows."""
_ITEM_SECONDS: Final = 30.0
"""Longest time for which the page of items waits: a filter may read the whole file."""
_CELL: Final = 300
"""Characters of a field that a table of items shows."""
_COLUMNS: Final = 40
"""Most columns of a table of items."""
_LIMITS: Final = (
    "time_limit", "memory_limit", "file_limit", "open_files_limit", "pending_limit", "min_items", "max_errors",
    "good_reasons",
)  # fmt: skip
"""Limits that another run of a job gets from it."""


async def show_list(page: DashboardPage) -> Response:
    """Return the jobs that fit the filter in the address, the latest first."""
    query = page.query
    names = ("project", "spider", "state", "tag", "schedule", "group", "name", "after")
    wanted = {name: query.get(name) or None for name in names}
    found = await page.platform.get("/v1/jobs", **wanted, limit=_A_PAGE)
    return page.render("jobs.html", jobs=found["jobs"], next=found["next"], states=STATES, meaning_of=meaning_of)


async def show(page: DashboardPage) -> Response:
    """Return one job: its state with the cause, what it counts, its attempts, and what can be done with it."""
    job = await _job(page)
    return page.render("job.html", job=job, is_ended=job["state"] in ENDED, tab="job", meaning_of=meaning_of)


async def show_log(page: DashboardPage) -> Response:
    """Return the end of a job's log; the page's script takes what follows."""
    job, contains = await _job(page), page.query.get("contains", "")
    attempt = page.query.get("attempt") or None
    call = ApiCall(
        "GET",
        f"/v1/jobs/{job['id']}/log",
        {"attempt": attempt, "contains": contains} if contains else {"attempt": attempt, "tail": _LOG_BYTES},
    )
    answer = await page.platform.stream(call)
    text, is_cut = await _beginning(answer.parts)
    following = "" if contains or job["state"] in ENDED else answer.headers.get("x-next-start", "0")
    is_cut = is_cut or (not contains and int(answer.headers.get("x-next-start", "0")) > _LOG_BYTES)
    shown: dict[str, Any] = {"text": text, "is_cut": is_cut, "following": following, "contains": contains}
    return page.render("job_log.html", job=job, is_ended=job["state"] in ENDED, tab="log", attempt=attempt, **shown)


async def _beginning(parts: Any) -> tuple[str, bool]:
    """Return the beginning of a text, and whether more follows."""
    found = bytearray()
    async for part in parts:
        found += part
        if len(found) > _LOG_BYTES:
            await parts.aclose()
            return found[:_LOG_BYTES].decode(errors="replace"), True
    return found.decode(errors="replace"), False


async def read_log(page: DashboardPage) -> Response:
    """Return bytes of a job's log as they are: all of them, or those from an offset on, for a page that follows.

    A page that follows takes no more at a time than it can show; one that fell far behind is sent on to the end.
    """
    start = page.query.get("start")
    query: dict[str, Any] = {"attempt": page.query.get("attempt") or None}
    if page.query.get("end"):
        query["tail"] = _LOG_BYTES
    elif start is not None:
        begin = int(start) if start.isascii() and start.isdigit() and len(start) < 19 else 0
        query |= {"start": begin, "stop": begin + _LOG_BYTES}
    answer = await page.platform.stream(ApiCall("GET", f"/v1/jobs/{row_number(page, page.query)}/log", query))
    return page.pass_on(answer, "x-next-start", "x-log-length")


async def show_items(page: DashboardPage) -> Response:
    """Return items of a job as a table, with a column for each field."""
    job = await _job(page)
    conditions, fault = _conditions(page), ""
    found: dict[str, Any] = {"items": [], "next": None}
    try:
        query = {"after": page.query.get("after"), "filter": conditions, "limit": _A_PAGE}
        found = await page.platform.call("GET", f"/v1/jobs/{job['id']}/items", query=query, seconds=_ITEM_SECONDS)
    except ApiRefused as error:
        fault = page.detail(error)
    fields: dict[str, None] = {}
    for item in found["items"]:
        fields.update(dict.fromkeys(item if isinstance(item, dict) else ("",)))
    columns = list(fields)[:_COLUMNS]
    rows = [[_cell(item, name) for name in columns] for item in found["items"]]
    shown: dict[str, Any] = {"columns": columns, "rows": rows, "hidden": len(fields) - len(columns), "fault": fault}
    return page.render(
        "job_items.html", job=job, is_ended=job["state"] in ENDED, tab="items", next=found["next"], forms=EXPORTS,
        conditions=conditions, **shown,
    )  # fmt: skip


def _conditions(page: DashboardPage) -> list[str]:
    """Return the conditions for items in the address, one a line: a value may have a comma."""
    return [line.strip() for line in page.query.get("filter", "").splitlines() if line.strip()]


def _cell(item: Any, name: str) -> str:
    """Return a field as a table shows it."""
    value = item.get(name, "") if isinstance(item, dict) else item
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return text if len(text) <= _CELL else f"{text[:_CELL]}…"


async def export_items(page: DashboardPage) -> Response:
    """Return the items of a job as a file."""
    form = page.query.get("form", "csv")
    if form not in EXPORTS:
        raise ApiRefused(404, page.texts("problem.no_page"))
    conditions = _conditions(page)
    query = {"filter": conditions, "csv_guard": "true"}  # spreadsheets open what a browser has downloaded
    call = ApiCall("GET", f"/v1/jobs/{row_number(page, page.query)}/items.{form}", query)
    return page.pass_on(await page.platform.stream(call))


async def cancel(page: DashboardPage) -> Response:
    """Ask a job to stop, and show it."""
    number = row_number(page, page.form)
    await page.platform.call("POST", f"/v1/jobs/{number}/cancel")
    return page.go("/job", id=str(number))


async def run_again(page: DashboardPage) -> Response:
    """Make a job like one that exists, and show it."""
    old = await page.platform.get(f"/v1/jobs/{row_number(page, page.form)}")
    kept = ("project", "spider", "arguments", "settings", "priority", "label", "tags", "input", *_LIMITS)
    new = {name: old[name] for name in kept} | {"version": old["requested_version"]}
    job = await page.platform.call("POST", "/v1/jobs", body=new)
    return page.go("/job", id=str(job["id"]))


async def show_form(page: DashboardPage, refused: ApiRefused | None = None) -> Response:
    """Return the form for a job: of a project, or first the choice of one."""
    given = page.form or page.query
    project = given.get("project", "")
    return page.render(
        "job_form.html",
        projects=await project_choice(page),
        spiders=await spider_choice(page, project),
        versions=await version_choice(page, project),
        given=given,
        field_faults=page.field_faults(refused),
        status_code=400 if refused else 200,
    )


async def create(page: DashboardPage) -> Response:
    """Make the job of the form, and show it."""
    form = page.form
    try:
        job = {
            "project": form.get("project", ""),
            "spider": form.get("spider", "").strip(),
            "version": form.get("version") or None,
            "arguments": pairs_of(page, form, "arguments"),
            "settings": pairs_of(page, form, "settings"),
            "priority": number_of(page, form, "priority") or 0.0,
            "tags": form.get("tags", "").split(),
        }
        made = await page.platform.call("POST", "/v1/jobs", body=job)
    except ApiRefused as error:
        return await show_form(page, error)
    return page.go("/job", id=str(made["id"]))


def pairs_of(page: DashboardPage, form: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the lines NAME=VALUE of a field. Raises ApiRefused for a line without a name."""
    found = {}
    for line in form.get(name, "").splitlines():
        key, sign, value = line.partition("=")
        if line.strip():
            if not sign or not key.strip():
                raise ApiRefused(400, page.texts("form.no_pair", name=name, value=line[:100]))
            found[key.strip()] = value.strip()
    return found


def number_of(page: DashboardPage, form: Mapping[str, str], name: str) -> float | None:
    """Return a field as a number. None: it is empty. Raises ApiRefused."""
    text = form.get(name, "").strip()
    try:
        value = float(text) if text else None
    except ValueError:
        value = math.nan
    if value is not None and not math.isfinite(value):  # JSON has no such number: the API would take it for none
        raise ApiRefused(400, page.texts("form.no_number", name=name, value=text[:100]))
    return value


def bytes_of(page: DashboardPage, form: Mapping[str, str], name: str) -> float | None:
    """Return a field, which may have a unit such as MB, as a number of bytes. None: it is empty. Raises ApiRefused."""
    text = form.get(name, "").strip()
    value = read_size(text)
    if text and value is None:
        raise ApiRefused(400, page.texts("form.no_size", name=name, value=text[:100]))
    return value


async def _job(page: DashboardPage) -> Any:
    return await page.platform.get(f"/v1/jobs/{row_number(page, page.query)}")


def row_number(page: DashboardPage, given: Mapping[str, str]) -> int:
    """Return the parameter `id`. Raises ApiRefused if it is no number."""
    text = given.get("id", "")
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 19):
        raise ApiRefused(404, page.texts("problem.no_id", value=text[:100]))
    return int(text)
