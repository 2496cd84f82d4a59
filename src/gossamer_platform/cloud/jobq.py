"""Endpoints about jobs in Scrapy Cloud's storage API: lists, counts, summaries, metadata, cancelling, spiders' numbers.

Fixed, because clients read them: paths, parameters and fields. What a job's own process alone may change (its state,
its items) is refused.
"""

import json
import signal
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection
from starlette.responses import JSONResponse, Response

from gossamer.errors import BadInput
from gossamer_platform.cloud.calls import (
    CloudCall,
    CloudProject,
    CloudRoute,
    NotOffered,
    first_of,
    named_jobs,
    parse_key,
)
from gossamer_platform.cloud.records import JSON_LINES
from gossamer_platform.cloud.views import STATES, read_views
from gossamer_platform.lifecycle import ACTIVE, ENDED, JobState
from gossamer_platform.manager.operations import NotFound
from gossamer_platform.state import job_search, projects, spiders, tags
from gossamer_platform.state.job_search import JobSearch
from gossamer_platform.state.jobs import Job, lock_job, set_notes
from gossamer_platform.state.tokens import TokenScope

_MAX_PAGE: Final = 1000
"""Jobs of a list. Scrapy Cloud's: fixed."""
_MAX_CANCELS: Final = 1000
"""Jobs that one call cancels."""
_SUMMARY: Final = 5
"""Jobs that a summary shows of each state unless the client names a number."""
_MAX_NOTES: Final = 64 * 1024
"""Characters of the values that clients attach to a job, as JSON."""
_COMPUTED: Final = frozenset(
    {"project", "spider", "spider_type", "state", "version", "tags", "spider_args", "job_settings", "scheduled_by"}
    | {"units", "priority", "pending_time", "running_time", "finished_time", "close_reason", "outcome", "scrapystats"}
    | {"auth", "_key", "key", "ts", "gossamer_job", "gossamer_state", "gossamer_reason"}
)
"""Fields of a job's metadata that clients cannot set; tags have an endpoint of their own. Writing them is ignored, as
clients send back what they have read."""


def _lines(rows: Iterable[Any]) -> Response:
    return Response("".join(f"{json.dumps(row)}\n" for row in rows), media_type=JSON_LINES)


def _words(call: CloudCall, name: str) -> list[str]:
    return [word for value in call.query.get(name, []) for word in value.split(",") if word]


def _search(call: CloudCall, project: CloudProject, *, default: str = "finished") -> JobSearch:
    words = _words(call, "state") or [default]
    unknown = [word for word in words if word not in STATES]
    if unknown:
        raise BadInput(f"state: {unknown[0]!r}; there are {', '.join(STATES)}")
    keys = [parse_key(text) for text in _words(call, "key")]
    times = [call.whole(name) for name in ("startts", "endts")]
    since, until = (None if at is None else at / 1000 for at in times)
    return JobSearch(
        project.id,
        sorted({state for word in words for state in STATES[word]}),
        spider=call.text("spider"),
        spider_jobs=[(key.spider, key.job) for key in keys if key.project == project.number] if keys else None,
        has_tags=_words(call, "has_tag"),
        lacks_tags=_words(call, "lacks_tag"),
        since=since,
        until=until,
    )


async def _list(call: CloudCall) -> Response:
    project = await call.project()
    wanted = _search(call, project)
    skip, limit = call.whole("start") or 0, call.whole("count", _MAX_PAGE)
    limit = min(_MAX_PAGE if limit is None else limit, _MAX_PAGE)
    rows = await call.manager.read(lambda c: job_search.search_jobs(c, wanted, skip=skip, limit=limit))
    return _lines(await _shown(call, project, rows))


async def _shown(call: CloudCall, project: CloudProject, rows: list[Job]) -> list[dict[str, Any]]:
    """Return what a list shows: usual fields, or those that `jobmeta` names beside key and ts."""
    views = await read_views(call.manager.database, project, rows)
    fields = _words(call, "jobmeta")
    if not fields:
        return [views.brief(row) for row in rows]
    shown = {"key", "ts", *fields}
    both = ({**views.full(row), **views.brief(row)} for row in rows)
    return [{name: value for name, value in view.items() if name in shown} for view in both]


async def _count(call: CloudCall) -> Response:
    wanted = _search(call, await call.project())
    return JSONResponse(await call.manager.read(lambda c: job_search.count_found(c, wanted)))


async def _summary(call: CloudCall) -> Response:
    project = await call.project()
    spider, state = call.request.path_params.get("spider"), call.request.path_params.get("state")
    if state is not None and state not in STATES:
        raise NotFound(f"there is no state {state}; there are {', '.join(STATES)}")
    limit = min(call.whole("count", _SUMMARY) or 0, _MAX_PAGE)
    skip = call.whole("start") or 0
    summaries = []
    for word in [state] if state else ["pending", "running", "finished"]:
        wanted = JobSearch(project.id, sorted(STATES[word]), spider_number=spider)
        count = await call.manager.read(partial(job_search.count_found, wanted=wanted))
        rows = await call.manager.read(partial(job_search.search_jobs, wanted=wanted, skip=skip, limit=limit))
        summaries.append({"name": word, "count": count, "summary": await _shown(call, project, rows)})
    return _lines(summaries)


async def _last_jobs(call: CloudCall) -> Response:
    project = await call.project()
    wanted = JobSearch(project.id, sorted(ENDED), spider_number=call.request.path_params.get("spider"))
    skip, limit = call.whole("start") or 0, min(call.whole("count") or _MAX_PAGE, _MAX_PAGE)
    rows = await call.manager.read(lambda c: job_search.latest_of_spiders(c, wanted, skip=skip, limit=limit))
    return _lines(await _shown(call, project, rows))


async def _project_summaries(call: CloudCall) -> Response:
    known = await call.projects()
    counts = await call.manager.read(lambda c: job_search.count_states(c, [project.id for project in known]))
    wanted = _words(call, "state") or ["pending", "running", "finished"]
    return _lines(
        [
            [
                {
                    "project": project.number,
                    "has_capacity": True,
                    **{word: sum(counts[project.id].get(s, 0) for s in STATES.get(word, ())) for word in wanted},
                }
                for project in known
            ]
        ]
    )


# --- one job ----------------------------------------------------------------------------------------------------------


async def _metadata(call: CloudCall) -> Response:
    row = await call.job()
    if row is None:  # shub takes an empty answer for «does not exist», and does not expect 404
        return Response(b"", media_type="application/json")
    view = await _full(call, row)
    name = call.request.path_params.get("name")
    if name is None:
        return JSONResponse(view)
    if name not in view:
        raise NotFound(f"job {call.key()} has no {name}")
    return JSONResponse(view[name])


async def _full(call: CloudCall, row: Job) -> Mapping[str, Any]:
    project = await call.project()
    return (await read_views(call.manager.database, project, [row])).full(row)


async def _set_metadata(call: CloudCall) -> Response:
    row = await call.existing_job()
    name = call.request.path_params.get("name")
    values = await call.values()
    changes = first_of(values) if name is None else {name: values[0] if len(values) == 1 else values}
    await _change_notes(call, row, changes)
    return Response()


async def _delete_metadata(call: CloudCall) -> Response:
    await _change_notes(call, await call.existing_job(), {call.path("name"): None}, removes=True)
    return Response()


async def _change_notes(call: CloudCall, row: Job, changes: Mapping[str, Any], *, removes: bool = False) -> None:
    given = {name: value for name, value in changes.items() if name not in _COMPUTED}

    def change(connection: Connection) -> None:
        now = lock_job(connection, row.id)
        if now is None:
            raise NotFound(f"job {call.key()} not found")
        notes = {name: value for name, value in (now.notes or {}).items() if not (removes and name in given)}
        notes = notes if removes else {**notes, **given}
        if len(json.dumps(notes)) > _MAX_NOTES:
            raise BadInput(f"the metadata of job {call.key()} would be longer than {_MAX_NOTES} characters")
        set_notes(connection, row.id, notes)
        if not removes and "tags" in changes and isinstance(changes["tags"], list):
            known = tags.tags_of(connection, [row.id])[row.id]
            wanted = [str(tag)[:200] for tag in changes["tags"]]
            tags.change_tags(connection, [row.id], add=wanted, remove=[tag for tag in known if tag not in wanted])

    await call.manager.database.write(change)
    call.name_change(str(call.key()))


async def _cancel(call: CloudCall) -> Response:
    project = await call.project()
    count = call.whole("count")
    if count is not None:
        wanted = JobSearch(project.id, sorted({JobState.PENDING, *ACTIVE}))
        limit = min(count, _MAX_CANCELS)
        rows = await call.manager.read(lambda c: job_search.search_jobs(c, wanted, skip=0, limit=limit))
    else:
        values = await call.values()
        if len(values) > _MAX_CANCELS:
            raise BadInput(f"{len(values)} jobs at once; at most {_MAX_CANCELS} may be cancelled")
        keys = [parse_key(value.get("key") if isinstance(value, dict) else value) for value in values]
        if any(key.project != project.number for key in keys):
            raise BadInput(f"all jobs must belong to project {project.number}")
        found = [await call.job(key) for key in keys]
        rows = [row for row in found if row is not None and row.state not in ENDED]
    call.name_change(named_jobs(rows))
    for row in rows:
        await call.manager.cancel_job(row.id, signal_number=signal.SIGTERM)
    return JSONResponse({"count": len(rows)})


async def _cancel_one(call: CloudCall) -> Response:
    row = await call.existing_job()
    call.name_change(named_jobs([row]))
    await call.manager.cancel_job(row.id, signal_number=signal.SIGTERM)
    return JSONResponse({"count": 1})


async def _refuse_change(call: CloudCall) -> Response:
    raise NotOffered(
        "jobs are started, ended and deleted by the platform; a client may create one (run.json) and cancel it"
    )


# --- spiders ----------------------------------------------------------------------------------------------------------


async def _spider_number(call: CloudCall) -> Response:
    project, name = await call.project(), call.path("name")
    numbers = await call.manager.read(lambda c: spiders.spider_numbers(c, project.id))
    if name not in numbers and await call.manager.versions(project.name):
        if name not in await call.manager.spiders(project.name, None):
            return JSONResponse(None)

        def add(connection: Connection) -> int:
            return spiders.spider_number(connection, projects.project_id(connection, project.name), name)

        return JSONResponse(await call.manager.database.write(add))
    return JSONResponse(numbers.get(name))


async def _activity(call: CloudCall) -> Response:
    """Return starts and ends of the latest jobs, the latest event first."""
    project = await call.project()
    limit = min(call.whole("count") or 100, _MAX_PAGE)
    wanted = JobSearch(project.id, sorted(JobState))
    rows = await call.manager.read(lambda c: job_search.search_jobs(c, wanted, skip=0, limit=limit))
    views = await read_views(call.manager.database, project, rows)
    events = []
    for row in rows:
        view = views.brief(row)
        common = {"job": view["key"], "user": "gossamer"}
        for event, field in (("job:completed", "finished_time"), ("job:started", "running_time")):
            if field in view:
                events.append((view[field], {"event": event, **common, "ts": view[field]}))
        events.append((view["pending_time"], {"event": "job:scheduled", **common, "ts": view["pending_time"]}))
    return _lines(event for _, event in sorted(events, key=lambda each: -each[0])[:limit])


async def _settings(call: CloudCall) -> Response:
    await call.project()
    return JSONResponse({} if "name" not in call.request.path_params else None)


async def _refuse_settings(call: CloudCall) -> Response:
    raise NotOffered("settings belong to the project's code, or to a job; environment variables are set with /v1")


async def _refuse_collections(call: CloudCall) -> Response:
    raise NotOffered("collections are not offered; keep such data in a database of your own")


async def _refuse_frontiers(call: CloudCall) -> Response:
    raise NotOffered("Scrapy Cloud's frontiers are not offered; jobs of a group share a frontier instead")


async def _time(call: CloudCall) -> Response:
    return JSONResponse(round(1000 * time.time()))


_JOB: Final = "{project:int}/{spider:int}/{job:int}"
_READ, _RUN = TokenScope.READ, TokenScope.RUN
ROUTES: Final = (
    CloudRoute("GET", "/system/ts", _READ, _time),
    CloudRoute("GET", "/jobq/{project:int}/list", _READ, _list),
    CloudRoute("GET", "/jobq/{project:int}/count", _READ, _count),
    CloudRoute("GET", "/jobq/{project:int}/summary", _READ, _summary),
    CloudRoute("GET", "/jobq/{project:int}/summary/{state}", _READ, _summary),
    CloudRoute("GET", "/jobq/{project:int}/{spider:int}/summary", _READ, _summary),
    CloudRoute("GET", "/jobq/{project:int}/{spider:int}/summary/{state}", _READ, _summary),
    CloudRoute("POST", "/jobq/{project:int}/cancel", _RUN, _cancel),
    CloudRoute("POST", f"/jobq/{_JOB}/cancel", _RUN, _cancel_one),
    CloudRoute("POST", "/jobq/{project:int}/{change}", _RUN, _refuse_change),
    CloudRoute("GET", "/spiders/{project:int}/lastjobsummary", _READ, _last_jobs),
    CloudRoute("GET", "/spiders/{project:int}/{spider:int}/lastjobsummary", _READ, _last_jobs),
    CloudRoute("GET", "/projects/jobsummaries", _READ, _project_summaries),
    CloudRoute("GET", "/projects/{project:int}/settings", _READ, _settings),
    CloudRoute("GET", "/projects/{project:int}/settings/{name}", _READ, _settings),
    CloudRoute("POST", "/projects/{project:int}/settings", _RUN, _refuse_settings),
    CloudRoute("DELETE", "/projects/{project:int}/settings/{name}", _RUN, _refuse_settings),
    CloudRoute("GET", "/ids/{project:int}/spider/{name:path}", _READ, _spider_number),
    CloudRoute("GET", f"/jobs/{_JOB}", _READ, _metadata),
    CloudRoute("GET", f"/jobs/{_JOB}/{{name}}", _READ, _metadata),
    CloudRoute("POST", f"/jobs/{_JOB}", _RUN, _set_metadata),
    CloudRoute("POST", f"/jobs/{_JOB}/{{name}}", _RUN, _set_metadata),
    CloudRoute("DELETE", f"/jobs/{_JOB}/{{name}}", _RUN, _delete_metadata),
    CloudRoute("GET", "/activity/{project:int}", _READ, _activity),
    *(
        CloudRoute(method, f"/{room}/{{rest:path}}", _READ, refuse)
        for room, refuse in (("collections", _refuse_collections), ("hcf", _refuse_frontiers))
        for method in ("GET", "POST", "DELETE")
    ),
)
