"""Page of one job: its state and the reason for it, its attempts, its files, the end of its log, and commands on it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gossamer_platform.lifecycle import ENDED
from gossamer_platform.scrapyd.frame import PageFrame
from gossamer_platform.state.jobs import Job

_TAIL_BYTES: Final = 100_000
"""Bytes at the end of the log that the link to its end shows."""


class FileUrls(NamedTuple):
    """Paths of the log and items of a job's last attempt on this server. None: there is no such file."""

    log: str | None
    items: str | None


class ShownJob(NamedTuple):
    """A job with all that its page shows."""

    row: Job
    """Row of the job, with the name of its project."""
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
    return frame.page(
        "job.html.j2",
        f"Job {row.id}: {row.project}/{row.spider}",
        here="/jobs",
        job=job,
        row=row,
        stats=row.stats or {},
        is_ended=row.state in ENDED,
        now=now,
        tail_bytes=_TAIL_BYTES,
    )
