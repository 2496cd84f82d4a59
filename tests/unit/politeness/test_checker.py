"""The checker against logs that it must accept and reject, and against one that looks at every moment."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.model.crawl import DomainPolicy
from tests.politeness.checker import BLUR_SECONDS, Change, Checked, Hit, check
from tests.politeness.rules import Rule, rule_of

TWO_A_SECOND = rule_of(DomainPolicy(hits=2, window_seconds=1.0, moderated=False, concurrency=9), DomainPolicy())


def rule(hits: int, window: float, *, cap: int = 99, scope: str = "domain", spacing: float = 0.0) -> Rule:
    return Rule(hits, window, spacing, cap, by_spider="type" in scope, by_egress="ip" in scope, off=False)


def log(times: Sequence[float], *, lasting: float = 0.01, spider: str = "link", egress: str = "e0") -> list[Hit]:
    return [Hit(time, time + lasting, spider, egress) for time in times]


def judged(rule: Rule, hits: Sequence[Hit]) -> Checked:
    return check([Change(rule)], hits)


# --- one rule ---------------------------------------------------------------------------------------------------------


def test_a_full_window_is_allowed_and_one_more_is_not() -> None:
    assert judged(TWO_A_SECOND, log([0, 0.1, 1.0, 1.1, 2.0])).faults == []
    (fault,) = judged(TWO_A_SECOND, log([0, 0.1, 0.7, 1.6])).faults
    assert (fault.at, fault.what, fault.found, fault.allowed, fault.times) == (0.7, "budget", 3, 2, (0, 0.1, 0.7))


def test_what_the_network_blurs_is_forgiven_and_not_a_moment_more() -> None:
    assert judged(TWO_A_SECOND, log([0, 0, 1 - BLUR_SECONDS])).faults == []
    assert len(judged(TWO_A_SECOND, log([0, 0, 0.999 - BLUR_SECONDS])).faults) == 1


def test_a_burst_across_the_edge_of_a_second_is_seen() -> None:
    assert len(judged(TWO_A_SECOND, log([0.9, 0.9, 1.1, 1.1])).faults) == 2


def test_the_share_of_the_fullest_window() -> None:
    assert judged(rule(4, 1.0), log([0, 0.1, 2, 3])).worst_window == 0.5
    assert judged(rule(2, 1.0), log([0, 0.1, 0.2])).worst_window == 1.5


def test_requests_in_flight_are_counted_by_their_ends() -> None:
    slow = log([0, 0.1, 0.2], lasting=0.15)
    assert judged(rule(9, 1.0, cap=2), slow).faults == []
    assert judged(rule(9, 1.0, cap=2), slow).worst_cap == 1.0
    assert [fault.what for fault in judged(rule(9, 1.0, cap=1), slow).faults] == ["cap", "cap"]
    assert judged(rule(9, 1.0, cap=1), log([0, 0.1], lasting=0.1)).faults == []


def test_a_request_without_an_end_is_in_flight_for_ever() -> None:
    assert len(judged(rule(9, 1.0, cap=1), [Hit(0, math.inf, "link", "e0"), *log([50])]).faults) == 1


def test_spacing_where_it_is_promised() -> None:
    even = rule_of(DomainPolicy(hits=4, window_seconds=8.0, elastic=False), DomainPolicy())
    assert even.spacing == 2.0
    assert judged(even, log([0, 2, 4, 6, 8])).faults == []
    assert judged(even, log([0, 1.85, 4])).faults == []
    assert [fault.what for fault in judged(even, log([0, 1.5, 4])).faults] == ["spacing"]
    catching_up = rule_of(DomainPolicy(hits=4, window_seconds=8.0, concurrency=9), DomainPolicy())
    assert judged(catching_up, log([0, 0.1, 0.2, 0.3, 8.0])).faults == []


@pytest.mark.parametrize(
    ("scope", "faults"),
    [("domain", 3), ("type", 2), ("ip", 2), ("type+ip", 0)],
    ids=["domain", "type", "ip", "type+ip"],
)
def test_who_shares_a_budget(scope: str, faults: int) -> None:
    hits = [Hit(0.01 * n, 0.01 * n + 0.001, f"s{n % 2}", f"e{n // 2}") for n in range(4)]
    assert len(judged(rule(1, 1.0, scope=scope), hits).faults) == faults


def test_nothing_is_fetched_while_a_domain_is_off() -> None:
    paused = rule_of(DomainPolicy(scale=0.0), DomainPolicy())
    black = rule_of(DomainPolicy(blacklisted=True), DomainPolicy())
    for off in (paused, black):
        assert [fault.what for fault in judged(off, log([5.0])).faults] == ["off"]
        assert check([Change(TWO_A_SECOND), Change(off, 3.0, 4.0)], log([4.9])).faults == []
        assert len(check([Change(TWO_A_SECOND), Change(off, 3.0, 4.0)], log([5.1])).faults) == 1


def test_a_log_that_was_kept_waiting_knows_only_when_a_request_came_at_the_latest() -> None:
    late = [Hit(1.0, 1.01, "link", "e0", early=0.5), *log([1.0, 1.4])]
    assert judged(TWO_A_SECOND, late).faults == []
    assert len(judged(TWO_A_SECOND, [Hit(1.0, 1.01, "link", "e0", early=0.1), *log([1.0, 1.4])]).faults) == 1


# --- changes ----------------------------------------------------------------------------------------------------------


def test_either_rule_holds_for_a_second_after_a_change() -> None:
    slower = [Change(rule(4, 1.0)), Change(rule(1, 1.0), 10.0, 10.5)]
    assert check(slower, log([11.0, 11.1, 11.2, 11.3])).faults == []
    assert [fault.at for fault in check(slower, log([11.6, 11.7])).faults] == [11.7]
    faster = [Change(rule(1, 1.0)), Change(rule(4, 1.0), 10.0, 10.5)]
    assert check(faster, log([10.0, 10.1, 10.2])).faults == []
    assert [fault.at for fault in check(faster, log([9.8, 9.9])).faults] == [9.9]


def test_neither_rule_may_be_broken_in_that_second() -> None:
    assert len(check([Change(rule(2, 1.0)), Change(rule(3, 1.0), 10.0, 10.0)], log([10.1] * 4)).faults) == 1


def test_a_smaller_budget_waits_until_the_larger_ones_hits_have_left_the_window() -> None:
    timeline = [Change(rule(10, 10.0)), Change(rule(2, 10.0), 20.0, 20.0)]
    before = [19.0] * 10
    assert [fault.found for fault in check(timeline, log([*before, 22.0])).faults] == [11]
    assert check(timeline, log([*before, 29.0])).faults == []


def test_a_longer_window_looks_no_further_back_than_the_one_before() -> None:
    timeline = [Change(rule(2, 1.0)), Change(rule(2, 60.0), 20.0, 20.0)]
    assert check(timeline, log([10.0, 12.0, 18.0, 22.0, 23.0])).faults == []
    assert len(check(timeline, log([19.5, 22.0, 23.0])).faults) == 1


def test_a_new_scope_begins_with_nothing() -> None:
    timeline = [Change(rule(2, 10.0)), Change(rule(2, 10.0, scope="type"), 20.0, 20.0)]
    assert check(timeline, log([19.0, 19.0, 21.1, 21.1])).faults == []
    assert len(check(timeline, log([19.0, 21.1, 21.1, 21.1])).faults) == 1


# --- against every moment ---------------------------------------------------------------------------------------------

moments = st.lists(st.integers(0, 100).map(lambda n: n / 10), max_size=25)


@given(moments, st.integers(1, 4), st.sampled_from([0.5, 1.0, 3.0]))
def test_budgets_as_counted_from_every_request(times: list[float], hits: int, window: float) -> None:
    """Any `hits + 1` requests that follow each other must take a window, but for the blur."""
    ordered = sorted(times)
    crowded = any(ordered[i + hits] - ordered[i] < window - BLUR_SECONDS - 1e-9 for i in range(len(ordered) - hits))
    exact = any(
        abs(ordered[i + hits] - ordered[i] - (window - BLUR_SECONDS)) < 1e-9 for i in range(len(ordered) - hits)
    )
    if not exact:
        assert bool(judged(rule(hits, window), log(times)).faults) == crowded


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=20), st.integers(1, 4))
def test_caps_as_counted_at_every_moment(flights: list[tuple[int, int]], cap: int) -> None:
    hits = [Hit(start, start + lasting, "link", "e0") for start, lasting in flights]
    most = max((sum(hit.at <= moment < hit.ended for hit in hits) for moment in range(71)), default=0)
    found = judged(rule(1000, 1.0, cap=cap), hits)
    assert any(fault.what == "cap" for fault in found.faults) == (most > cap)
    assert found.worst_cap == pytest.approx(most / cap)


@given(moments, st.integers(1, 4), st.integers(1, 4), st.integers(0, 80))
def test_a_log_that_keeps_the_smaller_of_two_budgets_is_never_at_fault(
    times: list[float], one: int, other: int, changed: int
) -> None:
    kept: list[float] = []
    for time in sorted(times):
        if len([earlier for earlier in kept if earlier > time - 1.0]) < min(one, other):
            kept.append(time)
    timeline = [Change(rule(one, 1.0)), Change(rule(other, 1.0), changed / 10, changed / 10 + 0.3)]
    assert check(timeline, log(kept)).faults == []
