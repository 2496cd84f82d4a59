"""One run: schedules of one second fire, while one manager after the other is killed and started again.

No node takes the jobs, because only their making is judged. Fixed: a manager is killed only while the other one serves,
because the promise needs one that lives.
"""

import contextlib
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from tests.jobs import stand_in
from tests.jobs.estate import Estate, estate
from tests.jobs.run import broken_programs
from tests.schedules.judge import Firing, Verdict, judge_firings
from tests.servers.postgresql import PostgreSql
from tests.servers.scrapyd import egg

_NODE_LIMIT_SECONDS = 60.0
_WAIT_SECONDS = 120.0
_SECONDS_PER_KILL = 12.0
_LEAD_SECONDS = 2.0
"""Time from the request of the schedules to their first instant, and for each schedule so many seconds more."""
_LEAD_PER_SCHEDULE = 0.1
_PROJECT = "project"


@dataclass(frozen=True)
class Kill:
    """A manager that is killed and started again."""

    manager: int
    at: float
    """Seconds from the first instant."""
    away: float
    """Seconds until it is started."""


@dataclass(frozen=True)
class Plan:
    """What happens in a run: a pure function of its seed."""

    seed: int
    schedules: int
    seconds: int
    kills: tuple[Kill, ...]


@dataclass
class Outcome:
    """A run that came to its end."""

    plan: Plan
    verdict: Verdict
    kills: int
    seconds: float
    folder: Path


def make_plan(seed: int, *, schedules: int, seconds: int) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(seed)
    count = max(1, round(seconds / _SECONDS_PER_KILL))
    times = sorted(chance.uniform(0.0, 0.9 * seconds) for _ in range(count))
    return Plan(
        seed,
        schedules,
        seconds,
        tuple(Kill(chance.randrange(2), at, chance.choice((0.0, 0.5, 3.0))) for at in times),
    )


def run_plan(plan: Plan, folder: Path, database: PostgreSql) -> Outcome:
    """Run it."""
    began = time.monotonic()
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    with estate(folder, database, nodes=1, slots=1, limit_seconds=_NODE_LIMIT_SECONDS, stand_in=True) as found:
        _deploy(found)
        first = int(time.time() + _LEAD_SECONDS + _LEAD_PER_SCHEDULE * plan.schedules)
        instants = {name: _add_schedule(found, name, first, plan.seconds) for name in _names(plan)}
        kills = sum(_carry_out(found, kill, first, plan.seconds) for kill in plan.kills)
        ends_missed = _wait_for_end(found)
        verdict = judge_firings(instants, _firings(found), ends_missed)
        verdict.faults.extend(broken_programs(found))
        return Outcome(plan, verdict, kills, time.monotonic() - began, folder)


def _names(plan: Plan) -> list[str]:
    return [f"s{number}" for number in range(plan.schedules)]


def _deploy(found: Estate) -> None:
    """Deploy a project, which needs the node, and keep this from taking jobs."""
    _wait(lambda: [node["state"] for node in found.call("GET", "/v1/nodes").json()] == ["online"], "the node")
    form = {"project": _PROJECT, "version": "1"}
    content = egg(f"STRAY = {stand_in.STRAY!r}\n{stand_in.SPIDER}")
    answer = found.call("POST", "/addversion.json", data=form, files={"egg": ("project.egg", content)})
    assert answer.json()["status"] == "ok", answer.text
    [node] = found.call("GET", "/v1/nodes").json()
    assert found.call("PATCH", f"/v1/nodes/{node['name']}", json={"draining": True}).status_code == 200


def _add_schedule(found: Estate, name: str, first: int, seconds: int) -> list[int]:
    """Add a schedule, and return its instants. A request that came late on a slow machine leaves out the first ones."""
    last = first + seconds - 1
    body = {"project": _PROJECT, "spider": "quick", "name": name, "every": 1, "start": _iso(first), "end": _iso(last)}
    answer = found.call("POST", "/v1/schedules", json=body)
    assert answer.status_code == 201, answer.text
    return list(range(round(datetime.fromisoformat(answer.json()["next"][0]).timestamp()), last + 1))


def _iso(instant: int) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat()


def _carry_out(found: Estate, kill: Kill, first: int, seconds: int) -> bool:
    """Kill a manager and start it again. Return False if the schedules have ended before."""
    time.sleep(max(0.0, first + kill.at - time.time()))
    if time.time() > first + seconds:
        return False
    manager, port = found.managers[kill.manager], found.ports[kill.manager]
    _wait(lambda: all(_serves(each) for each in found.ports), "both managers")
    manager.kill()
    time.sleep(kill.away)
    manager.start()
    _wait(lambda: _serves(port), manager.name)
    return True


def _serves(port: int) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/v1/nodes", timeout=10.0).status_code == 200
    return False


def _wait_for_end(found: Estate) -> dict[str, int]:
    """Wait until no schedule has a further instant. Return the last ones of the schedules that have missed theirs."""
    rows: list[Any] = []

    def has_ended() -> bool:
        rows[:] = found.call("GET", f"/v1/schedules?project={_PROJECT}&limit=1000").json()
        return not any(row["next"] for row in rows)

    _wait(has_ended, "the end of the schedules")
    missed = (row for row in rows if row["last_result"] == "missed")
    return {row["name"]: round(datetime.fromisoformat(row["last"]).timestamp()) for row in missed}


def _firings(found: Estate) -> list[Firing]:
    fired = []
    after = ""
    while after is not None:
        page: Any = found.call("GET", f"/v1/jobs?limit=1000&after={after}").json()
        for row in page["jobs"]:
            name, _, instant = row["name"].rpartition("-")
            fired.append(Firing(name, int(instant), datetime.fromisoformat(row["created_at"]).timestamp()))
        after = page["next"]
    return fired


def _wait(condition: Any, what: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_WAIT_SECONDS:g} s for {what}")
        time.sleep(0.1)
