"""Holds what the jobs themselves noted against what the platform says of them.

Times are those of the machine's monotonic clock, which all processes of a run share.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.jobs.plan import End, Job

BEAT_TOLERANCE_SECONDS = 0.5
"""A job notes a beat ten times a second; on a loaded machine a note of a killed one may be written this much late."""


class Frozen(NamedTuple):
    """A machine that stood still; until its first heartbeat after it, its jobs may run beside their next attempts."""

    since: float
    until: float


@dataclass
class Ran:
    """One attempt, by its own notes."""

    attempt: str
    pids: set[int] = field(default_factory=set)
    first: float = float("inf")
    last: float = 0.0
    completed: bool = False


@dataclass
class Verdict:
    """What a run showed."""

    faults: list[str]
    """Broken promises. Empty: none."""
    jobs: int
    attempts: int
    states: Mapping[str, int]
    overlaps: list[float]
    """Seconds for which an attempt on a frozen machine ran beside the next one."""


def read_notes(judge: Path) -> dict[str, dict[str, Ran]]:
    """Return what each job noted, by job and attempt. Children that were left behind count as their attempt."""
    found: dict[str, dict[str, Ran]] = defaultdict(dict)
    for line in judge.read_text().splitlines():
        note = json.loads(line)
        ran = found[note["job"]].setdefault(note["attempt"], Ran(note["attempt"]))
        ran.first, ran.last = min(ran.first, note["at"]), max(ran.last, note["at"])
        if note["event"] == "begin":
            ran.pids.add(note["pid"])
        ran.completed = ran.completed or note["event"] == "end"
    return found


def judge_run(
    planned: Sequence[Job],
    accepted: set[str],
    told: Mapping[str, Any],
    notes: Mapping[str, Mapping[str, Ran]],
    *,
    frozen: Sequence[Frozen],
    waking_seconds: float,
) -> Verdict:
    """Compare. `accepted`: jobs whose request was answered. `told`: by job, what the platform says at the end.
    `frozen`: times at which a machine stood still. `waking_seconds`: the bound after it."""
    faults: list[str] = []
    overlaps: list[float] = []
    states: dict[str, int] = defaultdict(int)
    for job in planned:
        if job.name not in accepted:
            continue
        row = told.get(job.name)
        if row is None:
            faults.append(f"{job.name} was accepted and is lost")
            continue
        states[row["state"]] += 1
        ran = notes.get(job.name, {})
        faults += _end_faults(job, row, ran)
        faults += _overlap_faults(job, ran, frozen, waking_seconds, overlaps)
    for name in set(told) - {job.name for job in planned}:
        faults.append(f"the platform has a job {name} that nobody asked for")
    attempts = sum(len(ran) for ran in notes.values())
    return Verdict(faults, len(accepted), attempts, dict(states), overlaps)


def _end_faults(job: Job, row: Mapping[str, Any], ran: Mapping[str, Ran]) -> list[str]:
    state, reason = row["state"], row.get("reason") or ""
    said = f"{job.name} ({job.end}) is {state} {reason}".strip()
    if state not in ("finished", "failed", "cancelled"):
        return [f"{said}: it has not ended"]
    good = job.end in (End.GOOD, End.ESCAPE)
    faults = []
    if state == "finished" and not (good and any(one.completed for one in ran.values())):
        faults.append(f"{said}, but no attempt did what it should")
    if state == "cancelled" and job.cancel_after is None:
        faults.append(f"{said}, but nobody cancelled it")
    if state == "failed":
        faults += _failure_faults(job, row, said, good=good)
    return faults


def _failure_faults(job: Job, row: Mapping[str, Any], said: str, *, good: bool) -> list[str]:
    reason = row.get("reason") or ""
    expected = {End.CODE: "exit_code: 3", End.SILENT: "no_reason"}
    by_fault = any(reason.startswith(word) for word in OUTSIDE)
    if good and not by_fault:
        return [f"{said}, though it did what it should"]
    if not good and not by_fault and reason != expected[job.end]:
        return [f"{said}, not {expected[job.end]}"]
    if row.get("retries_left"):
        return [f"{said}, though {row['retries_left']} retries were left"]
    return []


OUTSIDE = ("node_lost", "shim_lost", "attempt_lost", "machine_restarted", "fenced", "signal")
"""Reasons that come from a fault of the run, not from the job."""


def _overlap_faults(
    job: Job, ran: Mapping[str, Ran], frozen: Sequence[Frozen], waking: float, overlaps: list[float]
) -> list[str]:
    faults = []
    in_order = sorted(ran.values(), key=lambda one: one.first)
    faults += [f"{job.name}: attempt {one.attempt} ran {len(one.pids)} times" for one in in_order if len(one.pids) > 1]
    for before, after in itertools.pairwise(in_order):
        overlap = before.last - after.first
        if overlap <= 0:
            continue
        # An attempt on a machine that stood still may go on until that machine has spoken to a manager again.
        woken = [stood.until for stood in frozen if stood.since <= after.first and before.last <= stood.until + waking]
        if woken and any(before.first <= stood.until for stood in frozen):
            overlaps.append(overlap)
        else:
            faults.append(f"{job.name}: {before.attempt} and {after.attempt} ran at the same time for {overlap:.2f} s")
    return faults
