"""The table of a job's life, and that nothing goes past it."""

import ast
from pathlib import Path

import pytest

import gossamer_platform
from gossamer_platform.lifecycle import ACTIVE, ENDED, JOB_STEPS, VERSION_STEPS, JobEvent, JobState
from gossamer_platform.outcome import AttemptEnd, failure_of

_SOURCE = Path(gossamer_platform.__file__).parent


def test_every_state_is_reached_and_every_job_can_end() -> None:
    reached, before = {JobState.PENDING}, set()
    while reached != before:
        before = set(reached)
        reached |= {after for (state, _), after in JOB_STEPS.items() if state in reached}
    assert reached == set(JobState)
    assert all(any(state == source for source, _ in JOB_STEPS) for state in {JobState.PENDING, *ACTIVE})


def test_an_end_is_final() -> None:
    assert not {event for (state, event) in JOB_STEPS if state in ENDED}


def test_a_job_that_was_asked_to_stop_is_not_tried_again() -> None:
    assert (JobState.STOPPING, JobEvent.RETRIED) not in JOB_STEPS


def test_only_one_module_writes_states() -> None:
    """An insert sets the first state; every later one comes from `changes.py`."""
    writers = set()
    for path in _SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values":
                chain = ast.unparse(node.func.value)
                names = {word.arg for word in node.keywords} | {
                    key.value for part in ast.walk(node) if isinstance(part, ast.Dict) for key in part.keys
                    if isinstance(key, ast.Constant)
                }  # fmt: skip
                if "state" in names and not chain.startswith("insert("):
                    writers.add(path.name)
    assert writers == {"changes.py"}


def test_the_tables_name_known_states_only() -> None:
    assert {type(after) for after in JOB_STEPS.values()} == {JobState}
    assert len({state for state, _ in VERSION_STEPS}) == 3


@pytest.mark.parametrize(
    ("end", "failure"),
    [
        (AttemptEnd(exit_code=0, finish_reason="finished"), ""),
        (AttemptEnd(exit_code=0, finish_reason="closespider_itemcount"), ""),
        (AttemptEnd(exit_code=0, finish_reason=None), "no_reason"),
        (AttemptEnd(exit_code=0, finish_reason="start_error"), "finish_reason: start_error"),
        (AttemptEnd(exit_code=0, finish_reason="shutdown"), "finish_reason: shutdown"),
        (AttemptEnd(exit_code=1, finish_reason="finished"), "exit_code: 1"),
        (AttemptEnd(signal=9, finish_reason="finished"), "signal: 9"),
        (AttemptEnd(exit_code=0, finish_reason="finished", fault="fenced"), "fenced"),
    ],
)
def test_an_attempt_fails_unless_all_its_traces_are_good(end: AttemptEnd, failure: str) -> None:
    assert failure_of(end) == failure
