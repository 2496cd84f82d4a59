"""Shows a project's jobs on several servers with Scrapyd's interface, one picture after the other.

Each server is asked in a thread of its own, so that one that does not answer delays none of the others. Safe to change:
numbers and the form of the picture (tests quote some). Fixed: the fields of TargetState, which are the JSON of
`gossamer monitor --json`.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from gossamer.errors import GossamerError
from gossamer.platform.client.scrapyd import ScrapydClient
from gossamer.platform.client.targets import DeployTarget

INTERVAL_SECONDS: Final = 5.0
"""Pause between two pictures. May be changed; the book that introduced this view had 5 seconds."""
_CALL_SECONDS: Final = 4.0
"""Time limit of a call. May be changed; shorter than the interval, so that a server that hangs is shown as such."""
_SHOWN_ENDED: Final = 3
"""Ended jobs that are shown of each server. May be changed."""
_WIDTH: Final = 80
"""Columns of the picture. May be changed."""


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
        return TargetState(name, target.url, project, str(error))
    except (KeyError, TypeError):
        return TargetState(name, target.url, project, "listjobs.json is not that of a Scrapyd")


def picture(states: Sequence[TargetState]) -> list[str]:
    """Return the lines of a picture."""
    lines = [f"{time.strftime('%H:%M:%S')}  {', '.join(dict.fromkeys(state.project for state in states))}"]
    for state in states:
        if state.trouble:
            lines += [f"{state.target}: DOWN", f"  {_cut(_short(state), _WIDTH - 2)}"]
            continue
        counts = f"{len(state.running)} running, {len(state.pending)} pending, {len(state.finished)} ended"
        lines.append(_cut(f"{state.target}: {counts}", _WIDTH))
        lines += [_row(job, "running", job["start_time"][:19]) for job in state.running]
        lines += [_row(job, "pending", "") for job in state.pending]
        lines += [_row(job, job.get("state", "ended"), _end(job)) for job in state.finished[:_SHOWN_ENDED]]
    return lines


def _short(state: TargetState) -> str:
    """Return the reason without the server's address, and without advice that does not fit here."""
    return state.trouble.removeprefix(state.url.rstrip("/")).lstrip(" :").partition(". ")[0]


def _end(job: dict[str, Any]) -> str:
    at = str(job["end_time"])
    shown = at[11:19] if at.startswith(time.strftime("%Y-%m-%d")) else at[:16]
    return shown + (f"  {job['reason']}" if job.get("reason") else "")


def _row(job: dict[str, Any], state: str, text: str) -> str:
    return _cut(f"  {state:9} {job['spider']:16.16} {job['id']:24.24} {text}".rstrip(), _WIDTH)


def _cut(text: str, width: int) -> str:
    # A server's names may have escape sequences, which a terminal would execute.
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def watch(targets: Sequence[tuple[DeployTarget, str]], show: Callable[[list[TargetState]], None]) -> None:
    """Show a picture every few seconds, without end."""
    while True:
        began = time.monotonic()
        show(poll(targets))
        time.sleep(max(0.0, began + INTERVAL_SECONDS - time.monotonic()))
