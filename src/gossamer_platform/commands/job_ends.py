"""Follows jobs and groups of jobs to their end, for the commands that wait for it.

Fixed: exit codes.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

from gossamer.cli import targets, terminal
from gossamer.platform_client.platform import ENDED, PlatformClient
from gossamer_platform.outcome import meaning_of

_PROGRESS_SECONDS: Final = 5.0
"""Least time between two lines about a group that is waited for."""


class GroupProgress:
    """Tells on standard error how far a group is that a command waits for, at most every few seconds."""

    def __init__(self) -> None:
        self._said_at = float("-inf")

    def __call__(self, group: dict[str, Any]) -> None:
        """Tell it, if it is time to."""
        if time.monotonic() - self._said_at >= _PROGRESS_SECONDS:
            self._said_at = time.monotonic()
            done = sum(count for state, count in group["jobs"].items() if state in ENDED)
            counts = f"{done} of {sum(group['jobs'].values())} jobs have ended ({states_text(group)})"
            terminal.say(f"group g{group['id']}: {counts}")


def states_text(group: dict[str, Any]) -> str:
    """Return the states of a group's jobs: `3 running, 17 finished`."""
    return ", ".join(f"{count} {state}" for state, count in sorted(group["jobs"].items())) or "no jobs left"


def follow_log(client: PlatformClient, number: int, *, on_stderr: bool = False) -> None:
    """Print the log of a job until it has ended."""
    terminal.print_parts(_log_parts(client, number), on_stderr=on_stderr)


def _log_parts(client: PlatformClient, number: int) -> Iterator[bytes]:
    """Yield the log of a job as it is written. Tell about its attempts in between."""
    attempt = 0
    for kind, data in client.follow(number):
        if kind == "log":
            yield data["text"].encode(errors="replace")
        elif data["state"] == "pending" and data["attempt"]:
            say_retry(client.job(number))
        elif data["attempt"] > max(attempt, 1):
            terminal.say(f"attempt {data['attempt']} of job {number} is {data['state']}")
        if kind == "state":
            attempt = data["attempt"]


def say_retry(job: dict[str, Any]) -> None:
    """Tell that an attempt of a job has failed, and when the next one begins."""
    if earlier := job["earlier_attempts"]:
        waits = f". The job waits for {job['waits_for']}" if job.get("waits_for") else ""
        terminal.say(f"attempt {len(earlier)} of job {job['id']} has failed: {earlier[-1]['reason']}{waits}")


def exit_code_of(ended: dict[str, Any]) -> int:
    """Return the exit code of a command that waited for a job."""
    return 0 if ended["state"] == "finished" else 1


def show_end(ended: dict[str, Any], *, on_stderr: bool = False, with_advice: bool = True) -> None:
    """Print how a job ended. `with_advice`: also how to see the log of one that failed."""
    state, after = ended["state"], targets.runtime_text(ended)
    if state == "failed":
        sentence = f"Job {ended['id']} has failed after {after}: {ended['reason']}"
    else:
        sentence = f"Job {ended['id']} is {state}, after {after}."
    terminal.print_result(sentence, on_stderr=on_stderr)
    if state == "failed" and (meaning := meaning_of(ended["reason"])):
        terminal.print_stderr(meaning)
    if state == "failed" and with_advice and not on_stderr:
        terminal.print_stderr(f"To see its log: gossamer jobs log {ended['id']}")
