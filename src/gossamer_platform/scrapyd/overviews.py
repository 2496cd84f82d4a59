"""Lists on the pages for people: all jobs, job groups, schedules, nodes, and the versions of a project."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gossamer_platform.lifecycle import ENDED, JobState
from gossamer_platform.scrapyd.frame import PageFrame
from gossamer_platform.state.groups import JobGroup
from gossamer_platform.state.jobs import Job, JobFilter
from gossamer_platform.state.nodes import Node, state_of
from gossamer_platform.state.projects import Version
from gossamer_platform.state.schedules import Schedule
from gossamer_platform.state.tables import Project

_FEW_SPIDERS: Final = 5
"""Spiders of a version up to which the list is open."""


class ListPart(NamedTuple):
    """Place of a page in its list."""

    after: object
    """Cursor of the next page. None: this is the last one."""
    is_first: bool


def history(rows: Sequence[Job], wanted: JobFilter, frame: PageFrame, part: ListPart, now: float) -> str:
    """Return the page of all jobs, the latest first. `wanted`: filter in force."""
    state = str(wanted.states[0]) if wanted.states else ""
    given = {"project": wanted.project, "spider": wanted.spider, "state": state, "schedule": wanted.schedule}
    query = {name: str(value) for name, value in given.items() if value}
    return frame.page(
        "history.html.j2", "All jobs", here="/history", rows=rows, wanted=wanted, query=query, part=part, now=now
    )


def group_list(
    rows: Sequence[JobGroup], counts: Mapping[int, Mapping[str, int]], frame: PageFrame, part: ListPart
) -> str:
    """Return the page of all groups, the latest first. `counts`: number of jobs by state, by the group's number."""
    return frame.page("groups.html.j2", "Groups", here="/groups", rows=rows, counts=counts, part=part)


def one_group(
    row: JobGroup, counts: Mapping[str, int], jobs: Sequence[Job], frame: PageFrame, part: ListPart, now: float
) -> str:
    """Return the page of a group. `counts`: number of its jobs by state; `jobs`: a page of them."""
    is_live = any(JobState(state) not in ENDED for state in counts)
    shown: dict[str, Any] = {"row": row, "counts": counts, "jobs": jobs, "part": part, "now": now, "is_live": is_live}
    return frame.page("group.html.j2", f"Group g{row.id}", here="/groups", **shown)


def schedule_list(rows: Sequence[Schedule], frame: PageFrame, part: ListPart) -> str:
    """Return the page of all schedules."""
    return frame.page("schedules.html.j2", "Schedules", here="/schedules", rows=rows, part=part)


def node_list(rows: Sequence[Node], frame: PageFrame, part: ListPart) -> str:
    """Return the page of all nodes."""
    shown = [(row, state_of(row)) for row in rows]
    return frame.page("nodes.html.j2", "Nodes", here="/nodes", rows=shown, part=part)


def one_project(
    project: Project, rows: Sequence[Version], actors: Mapping[int, str], frame: PageFrame, part: ListPart
) -> str:
    """Return the page of a project with its versions, the latest first. `actors`: who deployed a version, by its
    number."""
    shown: dict[str, Any] = {"project": project, "rows": rows, "actors": actors, "part": part}
    return frame.page("project.html.j2", project.name, few_spiders=_FEW_SPIDERS, **shown)
