"""A short run of `make jobs`: managers, nodes, machines, networks and the database fail while jobs run."""

from pathlib import Path

from tests.jobs.plan import make_plan
from tests.jobs.run import run_plan
from tests.servers.postgresql import postgresql

_LIMIT_SECONDS = 3.0


def test_no_job_is_lost_none_runs_twice_at_a_time_and_every_end_is_true(tmp_path: Path) -> None:
    plan = make_plan(4, jobs=40, limit_seconds=_LIMIT_SECONDS, request_seconds=8.0)
    with postgresql() as database:
        outcome = run_plan(plan, tmp_path / "run", database, real=False, limit_seconds=_LIMIT_SECONDS)
    assert outcome.verdict.faults == []
    assert outcome.verdict.jobs == 40
    assert len(outcome.done) == len(plan.events)
