"""Page of one job: its state and why, its attempts, its files, the end of its log, and commands on it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from gossamer.web.html import Html, html_of
from gossamer_platform.lifecycle import ENDED
from gossamer_platform.scrapyd import markup
from gossamer_platform.scrapyd.frame import PageFrame
from gossamer_platform.state.jobs import Job

_TAIL_BYTES: Final = 100_000
"""Bytes of the log to which the link to its end leads."""


class FileUrls(NamedTuple):
    """Paths of the log and items of a job's last attempt on this server. None: there is no such file."""

    log: str | None
    items: str | None


class ShownJob(NamedTuple):
    """A job with all that its page shows."""

    row: Job
    """Row with `project`."""
    tags: Sequence[str]
    waits_for: str
    """Cause for which a pending job waits. Empty: it is not pending."""
    urls: FileUrls
    last_lines: Sequence[str]
    """Last lines of the log. Empty: there is none, or it cannot be read."""
    last_error: str | None
    """Last line with an error. None: there is none."""


def render(job: ShownJob, frame: PageFrame, now: float) -> str:
    """Return the page."""
    row = job.row
    parts = [
        f"<h1>Job {row.id} {markup.state(row.state)}</h1>\n",
        markup.facts(_facts(job, frame, now)),
        _files(job, frame),
        _attempts(row, frame),
        _log(job),
        _commands(row, frame),
        _stats(row),
    ]
    return frame.page(f"Job {row.id}: {row.project}/{row.spider}", "".join(parts), here="/jobs")


def _facts(job: ShownJob, frame: PageFrame, now: float) -> Iterator[tuple[str, object]]:
    row, stats = job.row, job.row.stats or {}
    yield "Reason", markup.long_text(row.reason)
    yield "Waits for", job.waits_for
    yield "Project", markup.link(frame, f"/projects/{quote(row.project, safe='')}", row.project)
    yield "Spider", row.spider
    yield "Name", row.name
    yield "Version", row.ran_version or row.version_name
    yield "Node", row.node
    yield "Label", row.label
    yield "Group", row.group_id and markup.link(frame, f"/groups/{row.group_id}", f"g{row.group_id}")
    yield "Schedule", row.schedule_id and markup.link(frame, f"/history?schedule={row.schedule_id}", row.schedule_id)
    yield "After job", row.after_job and markup.job_link(frame, row.after_job)
    yield "Priority", f"{row.priority:g}{', urgent' if row.is_urgent else ''}"
    yield "Created", markup.time(row.created_at)
    yield "Not before", markup.time(row.not_before) if row.started_at is None and row.ended_at is None else None
    yield "Started", markup.time(row.started_at)
    yield "Ended", markup.time(row.ended_at)
    if row.started_at is not None:
        yield "Runtime", markup.duration((row.ended_at or now) - row.started_at)
    yield "Retries left", row.retries_left or None
    yield "Finish reason", row.finish_reason
    yield "Exit code", row.exit_code
    yield "Signal", row.signal
    yield "Items", stats.get("item_scraped_count")
    yield "Responses", stats.get("response_received_count")
    yield "Errors in the log", stats.get("log_count/ERROR")
    yield "Last error", job.last_error
    yield "Input", row.input_name
    yield "Arguments", _pairs(row.arguments)
    yield "Settings", _pairs(row.settings)
    yield "Tags", ", ".join(job.tags)


def _pairs(values: Mapping[str, Any]) -> Html:
    lines = (f"<code>{html_of(name)} = {html_of(value)}</code>" for name, value in sorted(values.items()))
    return Html("<br>".join(lines))


def _files(job: ShownJob, frame: PageFrame) -> str:
    row, urls = job.row, job.urls
    own = f"/v1/jobs/{row.id}"
    found: list[Html] = []
    if urls.log is not None:
        found.append(markup.file_link(frame, urls.log, "Log"))
        found.append(markup.link(frame, f"{own}/log?tail={_TAIL_BYTES}", "End of the log"))
    if urls.items is not None:
        found.append(markup.file_link(frame, urls.items, "Items"))
        found += [markup.link(frame, f"{own}/items.{form}", f"Items as {form.upper()}") for form in ("csv", "json")]
    gone = [name for name, is_gone in (("log", row.log_deleted), ("items", row.items_deleted)) if is_gone]
    note = f'<p class="soft">Deleted by the retention: {" and ".join(gone)}.</p>\n' if gone else ""
    return (f'<p class="more">{" ".join(found)}</p>\n' if found else "") + note


def _attempts(row: Job, frame: PageFrame) -> str:
    if not row.earlier_attempts:
        return ""
    rows = [
        (
            each["attempt"],
            each["node"],
            each.get("version"),
            markup.time(each["started_at"]),
            markup.time(each["ended_at"]),
            markup.long_text(each["reason"]),
            "" if row.log_deleted else markup.link(frame, f"/v1/jobs/{row.id}/log?attempt={place}", "Log"),
        )
        for place, each in enumerate(row.earlier_attempts, 1)
    ]
    titles = ("Attempt", "Node", "Version", "Started", "Ended", "Reason", "Log")
    return f"<h2>Earlier attempts</h2>\n{markup.table(titles, rows)}"


def _log(job: ShownJob) -> str:
    if not job.last_lines:
        return ""
    return "<h2>Last lines of the log</h2>\n<pre>" + "\n".join(map(html_of, job.last_lines)) + "</pre>\n"


def _commands(row: Job, frame: PageFrame) -> str:
    own = f"gossamer job {row.id} --target {frame.server}"
    lines = [f"{own} --again"] if row.state in ENDED else [f"{own} --log --follow", f"{own} --cancel"]
    return "<h2>Commands</h2>\n<pre>" + "\n".join(lines) + "</pre>\n"


def _stats(row: Job) -> str:
    if not row.stats:
        return ""
    counters = markup.facts((name, value) for name, value in sorted(row.stats.items()))
    return f"<h2>Counters</h2>\n<details><summary>All of Scrapy's counters</summary>\n{counters}</details>\n"
