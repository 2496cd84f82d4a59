"""A short run of `make jobs`: managers, nodes, machines, networks and the database fail while jobs run."""

from pathlib import Path

from tests.jobs.plan import make_plan
from tests.jobs.run import run_plan
from tests.servers.postgresql import postgresql

_LIMIT_SECONDS = 3.0
_SEED = 1915
"""Eight faults of seven kinds in a quarter of a minute: managers, a node, a machine, a shim and the database are
killed; nodes are frozen, and cut off until they are lost. Two nodes and 20 jobs meet them all."""


def test_no_job_is_lost_none_runs_twice_at_a_time_and_every_end_is_true(tmp_path: Path) -> None:
    plan = make_plan(_SEED, jobs=20, limit_seconds=_LIMIT_SECONDS, request_seconds=5.0)
    with postgresql() as database:
        outcome = run_plan(plan, tmp_path / "run", database, real=False, limit_seconds=_LIMIT_SECONDS, nodes=2)
    assert outcome.verdict.faults == []
    assert outcome.verdict.jobs == 20
    assert len(outcome.done) == len(plan.events)
