"""A short run of `make schedules`: two managers fire schedules, and one of them is killed."""

from pathlib import Path

from tests.schedules.judge import Firing, judge_firings
from tests.schedules.run import make_plan, run_plan
from tests.servers.postgresql import postgresql


def test_each_time_of_a_schedule_makes_one_job_although_a_manager_is_killed(tmp_path: Path) -> None:
    plan = make_plan(1, schedules=5, seconds=10)
    with postgresql() as database:
        outcome = run_plan(plan, tmp_path / "run", database)
    assert outcome.verdict.faults == []
    assert outcome.verdict.firings + outcome.verdict.missed > 0


def test_the_judge_finds_times_without_a_job_and_with_two() -> None:
    fired = [Firing("a", 1, 1.5), Firing("a", 3, 3.5), Firing("a", 3, 3.5), Firing("b", 1, 0.5), Firing("b", 9, 70.0)]
    assert judge_firings({"a": [1, 2, 3], "b": [1]}, fired, {"a": 2}).faults == [
        "a made no job at 2",
        "a made 2 jobs at 3",
        "b made a job at 9, which is none of its times",
        "b made the job of 1 0.500 s before its time",
    ]
    assert judge_firings({"a": [1]}, [Firing("a", 1, 1.5)], {}).faults == []


def test_the_judge_excuses_only_times_that_were_missed_by_more_than_a_minute() -> None:
    times = range(100)
    for first_after, missed, faults in ((62, 61, 0), (61, 0, 60)):
        fired = [Firing("a", instant, instant + 0.5) for instant in (0, *range(first_after, 100))]
        verdict = judge_firings({"a": times}, fired, {})
        assert (verdict.missed, len(verdict.faults)) == (missed, faults)
    begun = [Firing("a", instant, instant + 0.5) for instant in range(90)]
    assert judge_firings({"a": times}, begun, {"a": 90}).missed == 10
    assert len(judge_firings({"a": times}, begun, {"a": 89}).faults) == 10
    assert len(judge_firings({"a": times}, begun, {}).faults) == 10
