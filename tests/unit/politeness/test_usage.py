"""How much of an allowed rate was used, where it counts and where it does not."""

import pytest

from tests.politeness.checker import Change, Hit
from tests.politeness.rules import Rule
from tests.politeness.usage import Usage, usage, without


def rule(hits: int, window: float, *, scope: str = "domain") -> Rule:
    return Rule(hits, window, 0.0, 9, by_spider="type" in scope, by_egress="ip" in scope, off=False)


def used(timeline: list[Change], hits: list[Hit], **changed: object) -> Usage:
    given = {"span": (0.0, 100.0), "spiders": ["link", "wandering"], "egresses": ["e0", "e1"], **changed}
    return usage(timeline, hits, **given)  # type: ignore[arg-type]


def every(seconds: float, *, until: float = 100.0, spider: str = "link", egress: str = "e0") -> list[Hit]:
    return [Hit(n * seconds, n * seconds, spider, egress) for n in range(int(until / seconds))]


def test_all_of_it() -> None:
    assert used([Change(rule(1, 2.0))], every(2.0)).share == pytest.approx(1.0)
    bursts = [Hit(second, second, "link", "e0") for second in range(0, 100, 10) for _ in range(5)]
    assert used([Change(rule(5, 10.0))], bursts).share == pytest.approx(1.0)


def test_half_of_it_and_nothing() -> None:
    assert used([Change(rule(1, 2.0))], every(4.0)).share == pytest.approx(0.5, abs=0.02)
    assert used([Change(rule(1, 2.0))], []).share == 0.0


def test_a_domain_that_stops_is_seen() -> None:
    assert used([Change(rule(1, 1.0))], every(1.0, until=50.0)).share == pytest.approx(0.5, abs=0.02)


def test_each_scope_has_its_own() -> None:
    one = every(1.0)
    assert used([Change(rule(1, 1.0, scope="type"))], one).share == pytest.approx(0.5, abs=0.02)
    assert used([Change(rule(1, 1.0, scope="type+ip"))], one).share == pytest.approx(0.25, abs=0.02)
    both = one + every(1.0, egress="e1")
    assert used([Change(rule(1, 1.0, scope="ip"))], both).share == pytest.approx(1.0)


def test_what_a_dead_worker_held_is_left_out() -> None:
    hits = [hit for hit in every(1.0) if not 40 < hit.at < 60]
    assert used([Change(rule(1, 1.0))], hits).share < 0.85
    assert used([Change(rule(1, 1.0))], hits, holds=[(40.0, 60.0)]).share == pytest.approx(1.0)


def test_an_egress_without_a_worker_is_left_out_where_budgets_are_per_egress() -> None:
    hits = every(1.0) + every(1.0, until=50.0, egress="e1")
    assert used([Change(rule(1, 1.0, scope="ip"))], hits).share < 0.85
    outages = {"e1": [(50.0, 100.0)]}
    assert used([Change(rule(1, 1.0, scope="ip"))], hits, outages=outages).share == pytest.approx(1.0)


def test_a_change_is_measured_once_its_windows_are_its_own() -> None:
    timeline = [Change(rule(1, 1.0)), Change(rule(1, 5.0), 50.0, 50.0)]
    hits = every(1.0, until=50.0) + [Hit(second, second, "link", "e0") for second in range(55, 100, 5)]
    found = used(timeline, hits)
    assert found.share == pytest.approx(1.0)
    assert found.seconds == pytest.approx((50 - 2 + 1) + (100 - 61))


def test_paused_is_not_unused() -> None:
    off = Rule(1, 1.0, 0.0, 1, by_spider=False, by_egress=False, off=True)
    assert used([Change(rule(1, 1.0)), Change(off, 50.0, 50.0)], every(1.0, until=50.0)).share == pytest.approx(1.0)


def test_what_is_left_of_an_interval() -> None:
    assert without((0, 10), []) == [(0, 10)]
    assert without((0, 10), [(2, 3), (1, 4), (9, 99)]) == [(0, 1), (4, 9)]
    assert without((0, 10), [(-5, 11)]) == []
    assert without((0, 10), [(5, 4)]) == [(0, 10)]
