"""What is usual follows a way that becomes longer, and is not taken in by one answer that was held up; what is late by
little where requests follow each other quickly; requests that were held up together; and hosts that connect slowly."""

import pytest

from gossamer.policy.lateness import START_WITHIN_SECONDS, is_late, max_start_delay, round_trip_estimate, send_by
from gossamer.policy.pacing import Pacing
from gossamer.policy.slow_hosts import SlowHosts


def test_the_first_answer_may_have_been_held_up() -> None:
    assert is_late(round_trip_estimate(0.0, 0.5), now=0.5)


def test_a_quicker_one_at_once() -> None:
    assert round_trip_estimate(0.3, 0.001) == 0.001


def test_one_that_was_held_up_is_not() -> None:
    usual = round_trip_estimate(0.001, 3.0)
    assert is_late(10.0 + usual, now=13.0)


def test_a_way_that_stays_longer_is_believed_after_some() -> None:
    usual, calls = 0.001, 0
    while is_late(usual, now=1.0):
        usual = round_trip_estimate(usual, 1.0)
        calls += 1
    assert 1 < calls <= 12


def test_what_is_a_little_slower_is_never_late() -> None:
    assert not is_late(round_trip_estimate(0.001, START_WITHIN_SECONDS), now=START_WITHIN_SECONDS)


@pytest.mark.parametrize(("spacing", "most"), [(0.0, 0.1), (10.0, 0.1), (0.15, 0.1), (0.06, 0.04), (0.025, 0.02)])
def test_a_request_may_be_late_by_less_than_the_even_gap(spacing: float, most: float) -> None:
    assert max_start_delay(spacing) == pytest.approx(most)
    assert send_by(5.0, spacing) == pytest.approx(5.0 + 1.5 * most)
    assert not is_late(0.0, spacing, now=0.99 * most)
    assert is_late(0.0, spacing, now=1.01 * most)


@pytest.mark.parametrize("spacing", [0.00001, 0.001, 0.01])
def test_a_busy_worker_need_not_be_more_punctual_than_an_event_loop_is(spacing: float) -> None:
    """It would give back most of its leases, to get them again."""
    starts_after_turns_of_64_pages = 64 * 0.0012
    assert not is_late(0.0, spacing, now=starts_after_turns_of_64_pages)
    assert is_late(0.0, spacing, now=1.01 * START_WITHIN_SECONDS)


def test_requests_that_were_held_up_together_do_not_start_together() -> None:
    pacing = Pacing()
    starts = [pacing.next_start("a.test", number * 0.01, 0.01, now=0.04) for number in range(2, 7)]
    assert starts == pytest.approx([0.04, 0.046, 0.052, 0.058, 0.064])
    assert pacing.next_start("b.test", 0.02, 0.01, now=0.04) == 0.04
    assert pacing.next_start("a.test", 0.5, 0.01, now=0.45) == 0.5


def test_requests_that_need_no_spacing_start_together() -> None:
    pacing = Pacing()
    assert [pacing.next_start("a.test", 1.0, 0.0, now=1.05) for _ in range(3)] == [1.05, 1.05, 1.05]


def test_requests_of_two_scopes_do_not_wait_for_each_other() -> None:
    """Two spiders with a budget each may have hits of one domain for the same moment, or in any order."""
    pacing = Pacing()
    due = [10.0, 10.0, 10.02, 10.01, 28.0, 28.0]
    assert [pacing.next_start("a.test", start, 18.0, now=start) for start in due] == due


def test_a_request_that_comes_too_late_takes_no_moment() -> None:
    pacing = Pacing()
    assert pacing.next_start("a.test", 0.0, 0.06, now=0.05) is None
    assert pacing.next_start("a.test", 0.05, 0.06, now=0.05) == 0.05


@pytest.mark.parametrize("spacing", [0.05, 0.15, 10.0])
def test_a_request_is_never_held_up_by_more_than_the_one_before_it(spacing: float) -> None:
    """Else requests that are all a little late would push each other back until none is in time."""
    pacing = Pacing()
    late = 0.99 * max_start_delay(spacing)
    assert pacing.next_start("a.test", 0.0, spacing, now=late) == late
    for number in range(1, 20):
        start = 0.9 * spacing * number
        at = pacing.next_start("a.test", start, spacing, now=start)
        assert at is not None
        assert at - start < late


def test_to_a_slow_host_requests_may_be_late_by_what_connecting_takes() -> None:
    slow = SlowHosts()
    now, tries = 100.0, 0
    while (allowed := slow.allowance("a.test", now=now)) < 3.0:
        slow.on_late("a.test", took=3.0, allowed=allowed, began=now, now=now + 3.0)
        now, tries = now + 4.0, tries + 1
    assert tries <= 5
    assert slow.allowance("a.test", now=now) < 4.0
    assert slow.allowance("b.test", now=now) == 0.0


def test_requests_that_a_stall_held_up_together_raise_the_allowance_once() -> None:
    slow = SlowHosts()
    slow.on_late("a.test", took=0.4, allowed=0.2, began=100.0, now=100.4)
    usual = slow.allowance("a.test", now=101.0)
    assert 0.4 <= usual <= 0.5
    for number in range(8):
        slow.on_late("a.test", took=4.0, allowed=usual, began=101.0 + number / 20, now=105.0)
    assert slow.allowance("a.test", now=105.1) < 1.5
    slow.on_connected("a.test", took=0.4, now=105.5)
    assert slow.allowance("a.test", now=105.6) <= 0.5


def test_a_host_that_connects_in_time_again_is_forgotten() -> None:
    slow = SlowHosts()
    slow.on_late("a.test", took=0.4, allowed=0.0, began=100.0, now=100.4)
    slow.on_connected("a.test", took=0.3, now=105.0)
    assert slow.allowance("a.test", now=110.0) > 0.0
    assert slow.allowance("a.test", now=116.0) == 0.0
    slow.on_connected("a.test", took=0.3, now=117.0)
    assert slow.allowance("a.test", now=117.0) == 0.0
