"""Shows a project's jobs on several servers with Scrapyd's interface, one picture after the other.

Each server is asked in a thread of its own, so that one that does not answer delays none of the others. Fixed: the
fields of TargetState, which are the JSON of `gossamer monitor --json`.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from gossamer.controls import without_controls
from gossamer.errors import GossamerError
from gossamer.platform_client.http import ServerRefused, ServerUnreachable
from gossamer.platform_client.scrapyd import ScrapydClient
from gossamer.platform_client.targets import DeployTarget

INTERVAL_SECONDS: Final = 5.0
"""Pause between two pictures."""
_CALL_SECONDS: Final = 4.0
"""Time limit of a call. Shorter than the interval, so that a server that hangs is shown as such."""
_SHOWN_ENDED: Final = 3
"""Ended jobs that are shown of each server."""
_SHOWN_LIVE: Final = 20
"""Running and pending jobs that are shown of each server."""
_WIDEST_SPIDER, _NARROWEST_JOB = 24, 12
"""Columns of a spider's name at most, and of a job's at least."""
_HEADINGS: Final = ("state", "spider", "job", "started / ended", "reason")


class TargetState(NamedTuple):
    """A server at one moment."""

    target: str
    """Name in scrapy.cfg, or the address."""
    url: str
    project: str
    trouble: str
    """Reason why the server could not be asked. Empty: it was."""
    pending: Sequence[dict[str, Any]] = ()
    running: Sequence[dict[str, Any]] = ()
    finished: Sequence[dict[str, Any]] = ()
    """Ended jobs, the latest first, with `state` and `reason` where the server knows them."""
    is_down: bool = False
    """True: the server cannot be reached. False with a trouble: it refused the request."""


def poll(targets: Sequence[tuple[DeployTarget, str]]) -> list[TargetState]:
    """Return the state of each (target, project) now."""
    with ThreadPoolExecutor(max_workers=min(32, len(targets))) as pool:
        return list(pool.map(_state, targets))


def _state(wanted: tuple[DeployTarget, str]) -> TargetState:
    target, project = wanted
    name = target.name or target.url
    try:
        found = ScrapydClient(target, _CALL_SECONDS).get("listjobs", project=project)
        return TargetState(name, target.url, project, "", found["pending"], found["running"], found["finished"])
    except GossamerError as error:
        is_down = isinstance(error, ServerUnreachable)
        return TargetState(name, target.url, project, _trouble(error, target, project), is_down=is_down)
    except (KeyError, TypeError):
        return TargetState(name, target.url, project, "listjobs.json is not that of a Scrapyd")


def _trouble(error: GossamerError, target: DeployTarget, project: str) -> str:
    if isinstance(error, ServerRefused) and error.status == 401:
        return "401: wrong user or password" if target.credentials.header() else "401: a user and a password are needed"
    if isinstance(error, ServerRefused) and f"project '{project}' not found" in str(error):
        return f"no project {project}"
    return str(error)


def picture(states: Sequence[TargetState], width: int = 0) -> list[str]:
    """Return the lines of a picture. `width`: columns; 0: those of the terminal."""
    width = width or shutil.get_terminal_size().columns
    rows = [row for state in states for row in _rows(state)]
    widths = _widths(rows, width)
    headings = _HEADINGS if any(row[-1] for row in rows) else (*_HEADINGS[:-1], "")  # most jobs have no reason
    lines = [f"{time.strftime('%H:%M:%S')}  {', '.join(dict.fromkeys(state.project for state in states))}"]
    for state in states:
        if state.is_down:
            lines += [f"{state.target}: DOWN", f"  {_short(state)}"]
        elif state.trouble:
            lines.append(f"{state.target}: {_short(state)}")
        else:
            counts = f"{len(state.running)} running, {len(state.pending)} pending, {len(state.finished)} ended"
            lines.append(f"{state.target}: {counts}")
            lines += [_line(row, widths) for row in ([headings] if _rows(state) else []) + _rows(state)]
            if hidden := sum(max(0, len(jobs) - _SHOWN_LIVE) for jobs in (state.running, state.pending)):
                lines.append(f"  and {hidden} more that are running or pending")
    return [_cut(line, width) for line in lines]


def _rows(state: TargetState) -> list[tuple[str, ...]]:
    """Return the cells of the jobs that are shown: state, spider, job, time, reason."""
    live = [("running", job, job.get("start_time")) for job in state.running[:_SHOWN_LIVE]]
    live += [("pending", job, None) for job in state.pending[:_SHOWN_LIVE]]
    live += [(str(job.get("state", "ended")), job, job.get("end_time")) for job in state.finished[:_SHOWN_ENDED]]
    return [
        (word, str(job["spider"]), str(job["id"]), _time(at), str(job.get("reason") or "")) for word, job, at in live
    ]


def _widths(rows: Sequence[tuple[str, ...]], width: int) -> list[int]:
    """Return the widths of the columns. Names of jobs get what is left: those of a group differ at their end."""
    found = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    found[1] = min(found[1], _WIDEST_SPIDER)
    found[2] = min(found[2], max(_NARROWEST_JOB, width - found[0] - found[1] - found[3] - 8))
    return found


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    state, spider, job, at, reason = row
    cells = (state, _without_middle(spider, widths[1]), _without_middle(job, widths[2]), at)
    return (
        "  " + "  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=False)) + f"  {reason}"
    ).rstrip()


def _without_middle(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def _short(state: TargetState) -> str:
    """Return the reason without the server's address, and without advice that does not fit here."""
    return state.trouble.removeprefix(state.url.rstrip("/")).lstrip(" :").partition(". ")[0]


def _time(at: Any) -> str:
    """Return a time of Scrapyd without today's date."""
    text = "" if at is None else str(at)
    return text[11:19] if text.startswith(time.strftime("%Y-%m-%d")) else text[:16]


def _cut(text: str, width: int) -> str:
    text = without_controls(text, one_line=True)  # a server's names may have escape sequences
    return text if len(text) <= width else f"{text[: width - 1]}…"


def watch(targets: Sequence[tuple[DeployTarget, str]], show: Callable[[list[TargetState]], object]) -> None:
    """Show a picture every few seconds, without end."""
    while True:
        began = time.monotonic()
        show(poll(targets))
        time.sleep(max(0.0, began + INTERVAL_SECONDS - time.monotonic()))
