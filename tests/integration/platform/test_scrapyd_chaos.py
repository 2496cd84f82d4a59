"""Servers and shims are killed while jobs run: none is lost, none runs twice at a time, every end is true."""

import contextlib
import json
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.servers.scrapyd import Scrapyd, egg, scrapyd, spider, until

_JOBS = 48
_KILLED_SERVERS = 4
_KILLED_SHIMS = 4


def _schedule(server: Scrapyd, name: str, judge: Path, chance: random.Random) -> dict[str, Any]:
    plan = {"seconds": round(chance.uniform(0.0, 1.5), 2), "end": chance.choice(["good", "good", "code", "none"])}
    answer = server.post("schedule", project="shop", spider="quick", jobid=name, judge=str(judge), **plan)
    assert answer["status"] == "ok"
    return plan


def _kill_a_shim(server: Scrapyd, chance: random.Random) -> None:
    mark = f"{server.folder}/dbs/gossamer/node/attempts/"
    shims = [
        process
        for process in psutil.process_iter(["cmdline"])
        if (line := process.info["cmdline"] or [])[-1:] and line[-1].startswith(mark) and "shim.py" in " ".join(line)
    ]
    if shims:
        with contextlib.suppress(psutil.NoSuchProcess):  # its job has just ended
            chance.choice(shims).kill()


def _times(judge: Path) -> dict[str, dict[int, tuple[float, float]]]:
    """By job and process: the first and the last time at which it ran."""
    found: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
    for line in judge.read_text().splitlines():
        noted = json.loads(line)
        first, _ = found[noted["job"]].get(noted["pid"], (noted["at"], 0.0))
        found[noted["job"]][noted["pid"]] = (first, noted["at"])
    return found


def test_kills_lose_no_job_and_run_none_twice(tmp_path: Path) -> None:
    """`make jobs` has the long runs, with more faults."""
    chance = random.Random(1)
    judge = tmp_path / "judge"
    judge.touch()
    plans: dict[str, dict[str, Any]] = {}
    with scrapyd(tmp_path, conf=f"max_proc = 6\nfinished_to_keep = {_JOBS}\njobs_to_keep = 0", quick=True) as server:
        server.deploy(egg(spider("quick")))
        for number in range(_JOBS):
            plans[f"job{number}"] = _schedule(server, f"job{number}", judge, chance)
            if number % (_JOBS // _KILLED_SERVERS) == 7:
                server.kill()
                time.sleep(chance.uniform(0.0, 0.5))
                server.start()
            if number % (_JOBS // _KILLED_SHIMS) == 3:
                _kill_a_shim(server, chance)
            time.sleep(chance.uniform(0.0, 0.1))
        until(lambda: server.get("daemonstatus")["finished"] == _JOBS, seconds=100, what=server.said)
        ended = {job["id"]: job for job in server.jobs()["finished"]}
        assert server.jobs()["running"] == server.jobs()["pending"] == []
    assert set(ended) == set(plans)
    times = _times(judge)
    events = [json.loads(line) for line in judge.read_text().splitlines()]
    completed = {noted["job"] for noted in events if noted["event"] == "end"}
    assert all(len(processes) == 1 for processes in times.values())  # nothing is retried, so each ran once at most
    for name, plan in plans.items():
        state, reason = ended[name]["state"], ended[name]["reason"]
        if reason == "shim_lost":
            continue
        assert name in completed, (name, ended[name])
        expected = {"good": ("finished", ""), "code": ("failed", "exit_code: 3"), "none": ("failed", "no_reason")}
        assert (state, reason) == expected[plan["end"]], name
    assert sum(job["reason"] == "shim_lost" for job in ended.values()) <= _KILLED_SHIMS


def test_a_schedule_that_was_answered_is_kept(tmp_path: Path) -> None:
    """The server is killed while clients schedule: every job whose id was returned is run."""
    judge = tmp_path / "judge"
    judge.touch()
    accepted = []
    with scrapyd(tmp_path, conf="max_proc = 4\nfinished_to_keep = 1000", quick=True) as server:
        server.deploy(egg(spider("quick")))
        for number in range(60):
            if number % 20 == 10:
                server.kill()
            try:
                accepted.append(
                    server.post("schedule", project="shop", spider="quick", judge=str(judge), seconds="0", end="good")[
                        "jobid"
                    ]
                )
            except httpx.TransportError:
                server.start()
        until(lambda: not server.jobs()["running"] and not server.jobs()["pending"])
        assert {job["id"] for job in server.jobs()["finished"]} >= set(accepted)
    assert len(accepted) == 57
    assert set(_times(judge)) >= set(accepted)
