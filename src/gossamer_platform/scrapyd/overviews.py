"""Lists on the pages for people: all jobs, job groups, schedules, nodes, and the versions of a project."""

from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Final, NamedTuple
from urllib.parse import quote
from zoneinfo import ZoneInfo

from gossamer.web.html import Html, html_of
from gossamer_platform.lifecycle import ENDED, JobState
from gossamer_platform.scrapyd import markup
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
    choices = "".join(
        f'<option value="{each}"{" selected" if each == state else ""}>{each or "any state"}</option>'
        for each in ("", *JobState)
    )
    fields = "".join(
        f'<input type="search" name="{name}" value="{html_of(query.get(name))}" placeholder="{name.title()}" '
        f'aria-label="{name.title()}">\n'
        for name in ("project", "spider")
    )
    kept = f'<input type="hidden" name="schedule" value="{wanted.schedule}">\n' if wanted.schedule else ""
    of_schedule = f" of schedule {wanted.schedule}" if wanted.schedule else ""
    body = f"""<h1>All jobs{of_schedule}</h1>
<form class="tools" action="{frame.address("/history")}">
{fields}{kept}<select name="state" aria-label="State">{choices}</select>
<input type="submit" value="Show">
</form>
{_jobs(rows, frame, now)}{markup.pager(frame, "/history", query, after=part.after, is_first=part.is_first)}"""
    return frame.page("All jobs", body, here="/history")


def _jobs(rows: Sequence[Job], frame: PageFrame, now: float) -> str:
    if not rows:
        return '<p class="soft">No jobs.</p>\n'
    titles = ("Number", "Project", "Spider", "Name", "State", "Node", "Started", "Runtime", "Items", "Reason")
    lines = (
        (
            markup.job_link(frame, row.id),
            _project_link(frame, row.project),
            row.spider,
            row.name,
            markup.state(row.state),
            row.node,
            markup.time(row.started_at),
            "" if row.started_at is None else markup.duration((row.ended_at or now) - row.started_at),
            (row.stats or {}).get("item_scraped_count"),
            markup.long_text(row.reason),
        )
        for row in rows
    )
    return markup.table(titles, lines)


def group_list(
    rows: Sequence[JobGroup], counts: Mapping[int, Mapping[str, int]], frame: PageFrame, part: ListPart
) -> str:
    """Return the page of all groups, the latest first. `counts`: number of jobs by state, by the group's number."""
    lines = [
        (
            markup.link(frame, f"/groups/{row.id}", f"g{row.id}"),
            _project_link(frame, row.project),
            row.spider,
            row.name,
            row.kind,
            _progress(counts[row.id]),
            _states(counts[row.id]),
            markup.time(row.created_at),
        )
        for row in rows
    ]
    titles = ("Group", "Project", "Spider", "Name", "Kind", "Progress", "Jobs", "Created")
    content = (
        markup.table(titles, lines)
        if rows
        else _none("job groups", "gossamer schedule SPIDER --split-file FILE --parts 20")
    )
    more = markup.pager(frame, "/groups", {}, after=part.after, is_first=part.is_first)
    return frame.page("Groups", f"<h1>Job groups</h1>\n{content}{more}", here="/groups")


def one_group(
    row: JobGroup, counts: Mapping[str, int], parts: Sequence[Job], frame: PageFrame, part: ListPart, now: float
) -> str:
    """Return the page of a group. `counts`: number of its jobs by state; `parts`: a page of its jobs."""
    known = markup.facts([
        ("Project", _project_link(frame, row.project)),
        ("Spider", row.spider),
        ("Name", row.name),
        ("Kind", row.kind),
        ("Progress", _progress(counts)),
        ("Jobs", _states(counts)),
        ("Created", markup.time(row.created_at)),
    ])  # fmt: skip
    own = f"gossamer job g{row.id} --target {frame.server}"
    is_live = any(JobState(state) not in ENDED for state in counts)
    commands = f"{own} --items" + (f"\n{own} --cancel" if is_live else f"\n{own} --again")
    more = markup.pager(frame, f"/groups/{row.id}", {}, after=part.after, is_first=part.is_first)
    body = (
        f"<h1>Job group g{row.id}</h1>\n{known}<h2>Jobs</h2>\n{_jobs(parts, frame, now)}{more}"
        f"<h2>Commands</h2>\n<pre>{commands}</pre>"
    )
    return frame.page(f"Group g{row.id}", body, here="/groups")


def _progress(counts: Mapping[str, int]) -> Html:
    total = sum(counts.values())
    ended = sum(count for state, count in counts.items() if JobState(state) in ENDED)
    return Html(f'<progress max="{max(1, total)}" value="{ended}"></progress> {ended} of {total} ended')


def _states(counts: Mapping[str, int]) -> Html:
    return Html(", ".join(markup.state(each, f"{counts[each]} {each}") for each in JobState if each in counts))


def schedule_list(rows: Sequence[Schedule], frame: PageFrame, part: ListPart) -> str:
    """Return the page of all schedules."""
    lines = [
        (
            row.name,
            _project_link(frame, row.project),
            row.spider or "crawl requests",
            _rule(row),
            markup.time(row.next_at, _zone(row.time_zone)) if not row.paused else "",
            markup.state("paused" if row.paused else "active" if row.next_at is not None else "ended"),
            markup.time(row.last_at, _zone(row.time_zone)),
            _last_result(row, frame),
            markup.link(frame, f"/history?schedule={row.id}", "Jobs") if row.spider else "",
        )
        for row in rows
    ]
    titles = ("Name", "Project", "Spider", "Rule", "Next", "State", "Last", "Result", "Jobs")
    content = (
        markup.table(titles, lines) if rows else _none("schedules", "gossamer schedules add NAME SPIDER --every 1h")
    )
    more = markup.pager(frame, "/schedules", {}, after=part.after, is_first=part.is_first)
    return frame.page("Schedules", f"<h1>Schedules</h1>\n{content}{more}", here="/schedules")


def _rule(row: Schedule) -> str:
    if row.kind == "cron":
        return f"{row.rule} ({row.time_zone})"
    return f"every {markup.duration(float(row.rule))}" if row.kind == "every" else "once"


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # it was removed from this machine
        return UTC


def _last_result(row: Schedule, frame: PageFrame) -> Html:
    word, _, number = row.last_result.partition(" ")
    if word == "job" and number.isascii() and number.isdigit():
        return Html(f"job {markup.job_link(frame, int(number))}")
    return html_of(row.last_result)


def node_list(rows: Sequence[Node], frame: PageFrame, part: ListPart) -> str:
    """Return the page of all nodes."""
    lines = [
        (
            row.name,
            markup.state(state_of(row)),
            f"{row.running} of {row.slots}",
            ", ".join(row.labels),
            f"{markup.duration(row.silent_seconds)} ago" if row.limit_seconds else "",
            row.address,
            row.release,
            markup.time(row.registered_at),
        )
        for row in rows
    ]
    titles = ("Name", "State", "Slots used", "Labels", "Last heard", "Machine", "Release", "Started")
    content = markup.table(titles, lines) if rows else _none("nodes", f"gossamer node --manager {frame.server}")
    more = markup.pager(frame, "/nodes", {}, after=part.after, is_first=part.is_first)
    return frame.page("Nodes", f"<h1>Nodes</h1>\n{content}{more}", here="/nodes")


def one_project(
    project: Project, rows: Sequence[Version], actors: Mapping[int, str], frame: PageFrame, part: ListPart
) -> str:
    """Return the page of a project with its versions, the latest first. `actors`: who deployed a version, by its
    number."""
    lines = [
        (
            row.name or "(on the Python path)",
            _version_state(row, pinned=project.pinned_version),
            _spiders(row),
            markup.time(row.deployed_at),
            actors.get(row.id),
            row.environment,
            _remarks(row),
        )
        for row in rows
    ]
    titles = ("Version", "State", "Spiders", "Deployed", "By", "Environment", "Remarks")
    path = f"/projects/{quote(project.name, safe='')}"
    default = (
        f"Jobs that name no version run the pinned one, {html_of(project.pinned_version)}."
        if project.pinned_version is not None
        else "Jobs that name no version run the latest one that is ready."
    )
    jobs = markup.link(frame, f"/history?project={quote(project.name, safe='')}", "All jobs of the project")
    content = markup.table(titles, lines) if rows else '<p class="soft">No versions.</p>\n'
    more = markup.pager(frame, path, {}, after=part.after, is_first=part.is_first)
    body = (
        f"<h1>{html_of(project.name)}</h1>\n<p>{jobs}</p>\n<h2>Versions</h2>\n"
        f'<p class="soft">{default}</p>\n{content}{more}'
    )
    return frame.page(project.name, body)


def _version_state(row: Version, *, pinned: str | None) -> Html:
    note = ", pinned" if row.name == pinned and row.state == "ready" else ""
    return Html(f"{markup.state(row.state)}{note}")


def _spiders(row: Version) -> Html:
    names = row.spiders
    if names is None:
        return Html("not listed yet" if row.listing else "")
    listed = html_of(", ".join(sorted(names)))
    if len(names) <= _FEW_SPIDERS:
        return listed
    return Html(f"<details><summary>{len(names)} spiders</summary>{listed}</details>")


def _remarks(row: Version) -> Html:
    return Html("<br>".join(markup.long_text(text) for text in (row.reason, *(row.warnings or ())) if text))


def _project_link(frame: PageFrame, name: str) -> Html:
    return markup.link(frame, f"/projects/{quote(name, safe='')}", name)


def _none(what: str, command: str) -> str:
    return f'<p class="soft">No {what}. To make one:</p>\n<pre>{command}</pre>\n'
