"""Pages for people that Scrapyd does not have: one job, all jobs, job groups, schedules, nodes, versions of a project.

    /jobs/NUMBER    /history    /groups    /groups/NUMBER    /schedules    /nodes    /projects/NAME

A list has pages: the query parameter `after` is the last entry of the page before. Paths and parameters are for
browsers, not for programs, which use /v1.
"""

import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from sqlalchemy import Connection

from gossamer.errors import BadInput
from gossamer.storage.objects import StorageUnavailable
from gossamer_platform.lifecycle import JobState
from gossamer_platform.manager.operations import Manager
from gossamer_platform.scrapyd import job_page, overviews
from gossamer_platform.scrapyd.files import ServedFiles
from gossamer_platform.scrapyd.frame import PageFrame
from gossamer_platform.scrapyd.job_page import FileUrls, ShownJob
from gossamer_platform.state import groups, jobs, nodes, projects, schedules, tokens
from gossamer_platform.state.dispatch import waits_for
from gossamer_platform.state.groups import JobGroup
from gossamer_platform.state.jobs import Job, JobFilter
from gossamer_platform.state.projects import Version
from gossamer_platform.state.tables import Project
from gossamer_platform.state.tags import tags_of
from gossamer_platform.v1.jobs import last_error, last_log_lines, parse_cursor
from gossamer_platform.v1.reading import in_reader

PAGE_ROWS: Final = 100
"""Rows of a list on one page."""
_MAX_DIGITS: Final = 18
"""Digits of the longest number that every database takes."""

_Query = Mapping[str, str]


class BrowserPages:
    """Finds and renders the pages."""

    def __init__(self, manager: Manager, files: ServedFiles) -> None:
        self._manager = manager
        self._files = files
        self._lists: dict[str, Callable[[_Query, PageFrame], Awaitable[str]]] = {
            "/history": self._history,
            "/groups": self._groups,
            "/schedules": self._schedules,
            "/nodes": self._nodes,
        }
        self._single: dict[str, Callable[[str, _Query, PageFrame], Awaitable[str | None]]] = {
            "/jobs": self._job,
            "/groups": self._group,
            "/projects": self._project,
        }

    async def find(self, path: str, query: _Query, frame: PageFrame) -> str | None:
        """Return the page of a path. None: there is none. Raises BadInput for a parameter that cannot be read."""
        if path in self._lists:
            return await self._lists[path](query, frame)
        root, _, name = path.rpartition("/")
        return await self._single[root](unquote(name), query, frame) if root in self._single else None

    async def _job(self, name: str, query: _Query, frame: PageFrame) -> str | None:
        number = _number(name)

        def read(connection: Connection) -> tuple[Job, list[str], str] | None:
            row = None if number is None else jobs.find_job(connection, number)
            if row is None:
                return None
            cause = waits_for(connection, row) if row.state == JobState.PENDING else ""
            return row, tags_of(connection, [row.id])[row.id], cause

        found = await self._manager.read(read)
        if found is None:
            return None
        return job_page.render(await in_reader(self._shown, *found), frame, time.time())

    def _shown(self, row: Job, tags: Sequence[str], cause: str) -> ShownJob:
        files, lines, error = self._files, [], None
        log, items = files.log_url(row), files.items_url(row)
        if log is not None:
            with contextlib.suppress(StorageUnavailable):  # the rest is known all the same
                lines, error = last_log_lines(files, row), last_error(files, row)
        return ShownJob(row, tags, cause, FileUrls(log, items), lines, error)

    async def _history(self, query: _Query, frame: PageFrame) -> str:
        state = query.get("state", "")
        if state not in ("", *JobState):
            raise BadInput(f"state: {state} is none of {', '.join(JobState)}")
        wanted = JobFilter(
            project=query.get("project", ""),
            spider=query.get("spider", ""),
            states=(JobState(state),) if state else (),
            schedule=parse_cursor(query.get("schedule", "")),
        )
        before = parse_cursor(query.get("after", ""))
        rows = await self._manager.read(lambda c: jobs.job_page(c, wanted, before=before, limit=PAGE_ROWS))
        return overviews.history(rows, wanted, frame, _part(rows, before), time.time())

    async def _groups(self, query: _Query, frame: PageFrame) -> str:
        before = parse_cursor(query.get("after", ""))

        def read(connection: Connection) -> tuple[list[JobGroup], dict[int, dict[str, int]]]:
            rows = groups.group_page(connection, "", before=before, limit=PAGE_ROWS)
            return rows, groups.group_states(connection, [row.id for row in rows])

        rows, counts = await self._manager.read(read)
        return overviews.group_list(rows, counts, frame, _part(rows, before))

    async def _group(self, name: str, query: _Query, frame: PageFrame) -> str | None:
        number, before = _number(name), parse_cursor(query.get("after", ""))

        def read(connection: Connection) -> tuple[JobGroup, dict[str, int], list[Job]] | None:
            row = None if number is None else groups.find_group(connection, number)
            if row is None:
                return None
            parts = jobs.job_page(connection, JobFilter(group=row.id), before=before, limit=PAGE_ROWS)
            return row, groups.group_states(connection, [row.id])[row.id], parts

        found = await self._manager.read(read)
        if found is None:
            return None
        row, counts, parts = found
        return overviews.one_group(row, counts, parts, frame, _part(parts, before), time.time())

    async def _schedules(self, query: _Query, frame: PageFrame) -> str:
        after = parse_cursor(query.get("after", "")) or 0
        rows = await self._manager.read(lambda c: schedules.list_schedules(c, "", after=after, limit=PAGE_ROWS))
        return overviews.schedule_list(rows, frame, _part(rows, after or None))

    async def _nodes(self, query: _Query, frame: PageFrame) -> str:
        after = query.get("after", "")
        rows = await self._manager.read(lambda c: nodes.list_nodes(c, after=after, limit=PAGE_ROWS))
        part = overviews.ListPart(rows[-1].name if len(rows) == PAGE_ROWS else None, is_first=not after)
        return overviews.node_list(rows, frame, part)

    async def _project(self, name: str, query: _Query, frame: PageFrame) -> str | None:
        before = parse_cursor(query.get("after", ""))

        def read(connection: Connection) -> tuple[Project, list[Version], dict[int, str]] | None:
            project = projects.project_row(connection, name)
            if project is None:
                return None
            rows = projects.version_page(connection, project.id, before=before, limit=PAGE_ROWS)
            return project, rows, tokens.deployers(connection, name, rows)

        found = await self._manager.read(read)
        if found is None:
            return None
        project, rows, actors = found
        return overviews.one_project(project, rows, actors, frame, _part(rows, before))


def _part(rows: Any, cursor: int | None) -> overviews.ListPart:
    return overviews.ListPart(rows[-1].id if len(rows) == PAGE_ROWS else None, is_first=cursor is None)


def _number(text: str) -> int | None:
    """Return the number in a path. None: it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None
