"""What is usual follows a way that becomes longer, and is not taken in by one answer that was held up; what is late by
little where requests follow each other quickly; and requests that were held up together."""

import pytest

from gossamer.policy.lateness import START_WITHIN_SECONDS, Pacing, is_late, send_by, start_within, usual_seconds


def test_the_first_answer_may_have_been_held_up() -> None:
    assert is_late(usual_seconds(0.0, 0.5), now=0.5)


def test_a_quicker_one_at_once() -> None:
    assert usual_seconds(0.3, 0.001) == 0.001


def test_one_that_was_held_up_is_not() -> None:
    usual = usual_seconds(0.001, 3.0)
    assert is_late(10.0 + usual, now=13.0)


def test_a_way_that_stays_longer_is_believed_after_some() -> None:
    usual, calls = 0.001, 0
    while is_late(usual, now=1.0):
        usual = usual_seconds(usual, 1.0)
        calls += 1
    assert 1 < calls <= 12


def test_what_is_a_little_slower_is_never_late() -> None:
    assert not is_late(usual_seconds(0.001, START_WITHIN_SECONDS), now=START_WITHIN_SECONDS)


@pytest.mark.parametrize(("spacing", "most"), [(0.0, 0.1), (10.0, 0.1), (0.15, 0.1), (0.06, 0.04), (0.001, 0.02)])
def test_a_request_may_be_late_by_less_than_the_even_gap(spacing: float, most: float) -> None:
    assert start_within(spacing) == pytest.approx(most)
    assert send_by(5.0, spacing) == pytest.approx(5.0 + 1.5 * most)
    assert not is_late(0.0, spacing, now=0.99 * most)
    assert is_late(0.0, spacing, now=1.01 * most)


def test_requests_that_were_held_up_together_do_not_start_together() -> None:
    pacing = Pacing()
    starts = [pacing.next_start("a.test", number * 0.01, 0.01, now=0.05) for number in range(5)]
    assert starts == pytest.approx([0.05, 0.055, 0.06, 0.065, 0.07])
    assert pacing.next_start("b.test", 0.02, 0.01, now=0.05) == 0.05
    assert pacing.next_start("a.test", 0.5, 0.01, now=0.45) == 0.5


def test_requests_that_need_no_spacing_start_together() -> None:
    pacing = Pacing()
    assert [pacing.next_start("a.test", 1.0, 0.0, now=2.0) for _ in range(3)] == [2.0, 2.0, 2.0]
