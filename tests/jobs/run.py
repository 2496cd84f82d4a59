"""One run: requests the jobs of a plan while its faults are made, waits for all ends, and judges.

Requests, faults and cancellations each have a thread, because a fault may last while jobs are requested. Fixed: a
request carries an idempotency key and is repeated until it is answered, as a careful client does; so an accepted job
exists exactly once.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.jobs import stand_in
from tests.jobs.estate import Estate, Machine, estate
from tests.jobs.judge import Frozen, Verdict, judge_run, read_notes
from tests.jobs.plan import PROJECTS, End, Event, Fault, Plan
from tests.servers.postgresql import PostgreSql
from tests.servers.scrapyd import egg

RETRIES = 8
"""Of a job that does well: more than the faults that can meet it."""
_RETRIES_OF_BAD_JOBS = 1
RETRY_SECONDS = 0.2
_START_SECONDS = 90.0
_END_SECONDS = 240.0
"""Time for all jobs to end after the last fault."""
_WAKING_SECONDS = 3.0
"""Bound for a machine that stood still: its first heartbeat, and the kill."""


@dataclass
class Outcome:
    """A run that came to its end."""

    plan: Plan
    verdict: Verdict
    done: list[Fault]
    seconds: float
    folder: Path
    starts: list[float] = field(default_factory=list)


@dataclass
class _Run:
    plan: Plan
    estate: Estate
    judge: Path
    accepted: dict[str, int] = field(default_factory=dict)
    """By name, the number of the job."""
    requested: int = 0
    frozen: list[Frozen] = field(default_factory=list)
    done: list[Fault] = field(default_factory=list)
    broken: list[BaseException] = field(default_factory=list)


def run_plan(
    plan: Plan, folder: Path, database: PostgreSql, *, real: bool, limit_seconds: float, nodes: int = 4
) -> Outcome:
    """Run it. `real`: the jobs are run by Scrapy, not by the stand-in."""
    began = time.monotonic()
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    judge = folder / "judge"
    judge.touch()
    judge.chmod(0o666)  # jobs may run as users of their own
    with estate(folder, database, nodes=nodes, slots=6, limit_seconds=limit_seconds, stand_in=not real) as found:
        run = _Run(plan, found, judge)
        _wait_for_nodes(run)
        _deploy(run)
        threads = [
            threading.Thread(target=_guard, args=(run, work), daemon=True)
            for work in (_request_all, _cancel_all, _make_faults)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if run.broken:
            raise run.broken[0]
        told = _wait_for_ends(run)
        verdict = judge_run(
            plan.jobs,
            set(run.accepted),
            told,
            read_notes(judge),
            frozen=run.frozen,
            waking_seconds=_WAKING_SECONDS + limit_seconds,
        )
        if left := found.left_over():
            verdict.faults.append(f"{len(left)} processes of jobs are left over")
        verdict.faults.extend(broken_programs(found))
        return Outcome(plan, verdict, run.done, time.monotonic() - began, folder)


def _guard(run: _Run, work: Callable[[_Run], None]) -> None:
    try:
        work(run)
    except BaseException as error:
        run.broken.append(error)


def _wait_for_nodes(run: _Run) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        nodes = run.estate.call("GET", "/v1/nodes").json()
        if len([node for node in nodes if node["state"] == "online"]) == len(run.estate.machines):
            return
        time.sleep(0.1)
    raise TimeoutError(f"of the nodes only these are online: {nodes}")


def _deploy(run: _Run) -> None:
    code = f"STRAY = {stand_in.STRAY!r}\n{stand_in.SPIDER}"
    for project in PROJECTS:
        form = {"project": project, "version": "1"}
        answer = run.estate.call("POST", "/addversion.json", data=form, files={"egg": ("project.egg", egg(code))})
        assert answer.json()["status"] == "ok", answer.text


def _request_all(run: _Run) -> None:
    for job in run.plan.jobs:
        arguments = {"judge": str(run.judge), "title": job.name, "seconds": str(job.seconds), "end": job.end.value}
        retries = RETRIES if job.end in (End.GOOD, End.ESCAPE) else _RETRIES_OF_BAD_JOBS
        body = {"project": job.project, "spider": "quick", "name": job.name, "arguments": arguments}
        body |= {"retries": retries, "retry_seconds": RETRY_SECONDS}
        answer = run.estate.call("POST", "/v1/jobs", json=body, headers={"Idempotency-Key": job.name})
        assert answer.status_code in (200, 201), answer.text
        run.accepted[job.name] = answer.json()["id"]
        run.requested += 1
        time.sleep(job.pause)


def _cancel_all(run: _Run) -> None:
    for job in run.plan.jobs:
        if job.cancel_after is None:
            continue
        while job.name not in run.accepted:
            if run.broken:
                return
            time.sleep(0.02)
        time.sleep(job.cancel_after)
        answer = run.estate.call("POST", f"/v1/jobs/{run.accepted[job.name]}/cancel")
        assert answer.status_code == 202, answer.text


def _make_faults(run: _Run) -> None:
    for event in run.plan.events:
        while run.requested < event.at * len(run.plan.jobs):
            if run.broken:
                return
            time.sleep(0.02)
        _make(run, event)
        run.done.append(event.kind)


def _make(run: _Run, event: Event) -> None:
    match event.kind:
        case Fault.KILL_MANAGER | Fault.FREEZE_MANAGER:
            manager = run.estate.managers[int(event.whom * len(run.estate.managers))]
            if event.kind is Fault.KILL_MANAGER:
                manager.kill()
                time.sleep(event.seconds)
                manager.start()
            else:
                manager.signal(signal.SIGSTOP)
                time.sleep(event.seconds)
                manager.signal(signal.SIGCONT)
        case Fault.KILL_DATABASE:
            run.estate.database.kill()
            time.sleep(event.seconds)
            run.estate.database.start()
        case Fault.FREEZE_DATABASE:
            run.estate.signal_database(signal.SIGSTOP)
            time.sleep(event.seconds)
            run.estate.signal_database(signal.SIGCONT)
        case _:
            machine = run.estate.machines[int(event.whom * len(run.estate.machines))]
            _make_at_machine(run, machine, event)


def _make_at_machine(run: _Run, machine: Machine, event: Event) -> None:
    match event.kind:
        case Fault.KILL_NODE:
            machine.kill()
            time.sleep(event.seconds)
            machine.start()
        case Fault.STOP_NODE:
            machine.stop()
            time.sleep(event.seconds)
            machine.start()
        case Fault.KILL_MACHINE:
            machine.signal_all(signal.SIGKILL)
            machine.kill()
            time.sleep(event.seconds)
            machine.start()
        case Fault.FREEZE_NODE:
            machine.signal(signal.SIGSTOP)
            time.sleep(event.seconds)
            machine.signal(signal.SIGCONT)
        case Fault.FREEZE_MACHINE:
            since = time.monotonic()
            machine.signal_all(signal.SIGSTOP)
            time.sleep(event.seconds)
            run.frozen.append(Frozen(since, time.monotonic()))
            machine.signal_all(signal.SIGCONT)
        case Fault.KILL_SHIM:
            if shims := machine.shims():
                _kill(shims[int(event.whom * 7919) % len(shims)])
        case Fault.CUT_LINK:
            _all_links(machine, "cut")
        case Fault.PART_LINK:
            _all_links(machine, "part")
            time.sleep(event.seconds)
            _all_links(machine, "rejoin")
        case Fault.STALL_LINK:
            _all_links(machine, "stall")
            time.sleep(event.seconds)
            _all_links(machine, "resume")


def _all_links(machine: Machine, act: str) -> None:
    for link in machine.links:
        getattr(link, act)()


def _kill(pid: int) -> None:

    with contextlib.suppress(ProcessLookupError):  # its job has just ended
        os.kill(pid, signal.SIGKILL)


def _wait_for_ends(run: _Run) -> dict[str, Any]:
    """Return all jobs by name once all have ended, or what there is when the time is over: the judge says which."""
    deadline = time.monotonic() + _END_SECONDS
    while True:
        told = _all_jobs(run)
        open_jobs = [row for row in told.values() if row["ended_at"] is None]
        if not open_jobs or time.monotonic() > deadline:
            return told
        time.sleep(0.3)


def _all_jobs(run: _Run) -> dict[str, Any]:
    told: dict[str, Any] = {}
    after = ""
    while True:
        page = run.estate.call("GET", f"/v1/jobs?limit=1000&after={after}").json()
        for row in page["jobs"]:
            assert row["name"] not in told, f"there are two jobs {row['name']}"
            told[row["name"]] = row
        after = page["next"]
        if not after:
            return told


def broken_programs(found: Estate) -> list[str]:
    """Return what is wrong with the managers and nodes themselves: one has ended, or has written a traceback."""
    faults = [f"{one.name} has ended" for one in (*found.managers, *found.machines) if one.has_ended()]
    for name, output in found.outputs().items():
        if "Traceback" in output:
            faults.append(f"{name} has written a traceback: …{output[output.rindex('Traceback') :][-300:].strip()}")
    return faults
