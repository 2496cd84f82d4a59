"""Scrapyd's pages `/` and `/jobs`.

ScrapydWeb and other clients read them with regular expressions. Fixed: the heading of /jobs, `<thead>` and `<tr>`
without attributes, the order of the columns up to `Items`, their cells without attributes and on one line, times
without fractions, and `<th colspan>` in the rows with titles. A cell behind them needs an attribute, or clients take it
for an earlier one that is missing. Columns may be added at the end.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote

from gossamer_platform.lifecycle import JobState
from gossamer_platform.scrapyd.config import ScrapydConfig
from gossamer_platform.scrapyd.files import ServedFiles
from gossamer_platform.scrapyd.frame import PageFrame, duration
from gossamer_platform.state.jobs import Job


class ProjectSummary(NamedTuple):
    """A project as the page `/` shows it."""

    name: str
    versions: Sequence[str]
    """Names of the versions that jobs can run, the latest last."""


def count_states(live: Iterable[Job], ended: Iterable[Job]) -> Mapping[str, int]:
    """Return the number of jobs by the state that the pages show. `live`: jobs that have not ended."""
    shown = ["pending" if job.started_at is None else "running" for job in live] + [job.state for job in ended]
    return Counter(shown)


def home(projects: Sequence[ProjectSummary], counts: Mapping[str, int], frame: PageFrame, *, more: str) -> str:
    """Return the page `/`. `counts`: see `count_states`; `more`: last project of the page if others follow, or
    nothing."""
    return frame.page("home.html.j2", "Gossamer", projects=projects, counts=counts, more=more)


class JobsPage:
    """The page `/jobs`."""

    def __init__(self, config: ScrapydConfig, files: ServedFiles, frame: PageFrame) -> None:
        self._files = files
        self._frame = frame
        self._columns = ["Project", "Spider", "Job", "PID", "Start", "Runtime", "Finish", "Log"]
        self._columns += ["Items"] if config.has_local_items else []
        self._columns += ["Cancel"] if "cancel.json" in config.services else []
        self._columns += ["Result", "Number"]

    def render(self, live: Sequence[Job], ended: Sequence[Job], now: float) -> str:
        """Return the page. `live`: jobs that have not ended."""
        pending = [job for job in live if job.started_at is None]
        running = [job for job in live if job.started_at is not None]
        return self._frame.page(
            "jobs.html.j2",
            "Jobs",
            here="/jobs",
            columns=self._columns,
            counts=count_states(live, ended),
            sections=[
                (title, [self._cells(job, now) for job in jobs])
                for title, jobs in (("Pending", pending), ("Running", running), ("Finished", ended))
            ],
            zone=datetime.fromtimestamp(now).astimezone().strftime("%Z (UTC%z)"),
        )

    def _cells(self, job: Job, now: float) -> dict[str, object]:
        started, ended, state = job.started_at, job.ended_at, _shown_state(job)
        if ended is not None and started is None:
            started = ended  # it could not be started
        has_started = started is not None
        return {
            "row": job,
            "pid": job.pid if has_started and ended is None else "",
            "start": "" if started is None else _seconds(started),
            "runtime": "" if started is None else duration((now if ended is None else ended) - started),
            "finish": "" if ended is None else _seconds(ended),
            "log_url": quote((has_started and self._files.log_url(job)) or ""),
            "items_url": quote((has_started and self._files.items_url(job)) or ""),
            "state": state,
            "result": f"{state}: {job.reason}" if job.reason else state,
        }


def _shown_state(job: Job) -> str:
    """Return the state; of a job that has not ended, what the section does not say, or an empty text."""
    if job.ended_at is None and job.state != JobState.STOPPING:
        return "starting" if job.state == JobState.STARTING else ""
    return job.state


def _seconds(at: float) -> str:
    return datetime.fromtimestamp(int(at)).strftime("%Y-%m-%d %H:%M:%S")  # local time, as Scrapyd's
