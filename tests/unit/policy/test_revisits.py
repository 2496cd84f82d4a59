"""The share of a budget that each page of a domain gets: the optimum, its limits, and what it promises."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.policy.revisits import (
    DAY_SECONDS,
    BudgetTooSmall,
    IntervalLimits,
    PageClass,
    classes_of,
    expected_age,
    expected_freshness,
    fetch_rate,
    harmonic_cost,
    interval,
    jittered,
    outlook,
    page_weight,
    price_for,
    spent,
)

WIDE = IntervalLimits(1.0, 1e15)
DAY = DAY_SECONDS

pages = st.lists(
    st.builds(PageClass, st.floats(1e-8, 1e-2), st.floats(0.1, 10), st.integers(1, 1000), st.none()),
    min_size=1,
    max_size=30,
)


def price_of(found: list[PageClass], budget: float, limits: IntervalLimits) -> float:
    price = price_for(found, budget, limits)
    assert not isinstance(price, BudgetTooSmall)
    return price


@given(pages, st.floats(0.01, 100))
def test_the_whole_budget_is_spent_and_never_more(found: list[PageClass], fetches_a_day_and_page: float) -> None:
    budget = fetches_a_day_and_page / DAY * sum(page.number for page in found)
    price = price_of(found, budget, WIDE)
    assert spent(found, price, WIDE) <= budget * (1 + 1e-9)
    assert spent(found, price, WIDE) == pytest.approx(budget, rel=1e-6)


@given(pages, st.floats(0.01, 100), st.randoms())
def test_no_exchange_between_two_pages_makes_the_cost_lower(
    found: list[PageClass], fetches_a_day_and_page: float, chance: random.Random
) -> None:
    budget = fetches_a_day_and_page / DAY * sum(page.number for page in found)
    price = price_of(found, budget, WIDE)
    one, other = chance.choice(found), chance.choice(found)
    rates = [fetch_rate(page.change_rate, weight=page.weight, price=price) for page in (one, other)]

    def cost(first: float, second: float) -> float:
        return one.weight * harmonic_cost(one.change_rate, first) + other.weight * harmonic_cost(
            other.change_rate, second
        )

    moved = 0.01 * min(rates)
    best = cost(*rates)
    if one is not other:
        assert cost(rates[0] + moved, rates[1] - moved) >= best - 1e-9 * abs(best)
        assert cost(rates[0] - moved, rates[1] + moved) >= best - 1e-9 * abs(best)


@given(pages, st.floats(0.1, 10))
def test_pages_that_change_more_often_or_weigh_more_are_never_fetched_less(
    found: list[PageClass], fetches_a_day_and_page: float
) -> None:
    limits = IntervalLimits(3600, 30 * DAY)
    budget = fetches_a_day_and_page / DAY * sum(page.number for page in found)
    price = price_of(found, budget, limits)
    for page in found:
        seconds = interval(page.change_rate, weight=page.weight, price=price, limits=limits)
        assert limits.shortest <= seconds <= limits.longest
        assert interval(2 * page.change_rate, weight=page.weight, price=price, limits=limits) <= seconds * (1 + 1e-9)
        assert interval(page.change_rate, weight=2 * page.weight, price=price, limits=limits) <= seconds * (1 + 1e-9)


def test_a_page_that_never_changes_is_fetched_at_the_longest_age() -> None:
    limits = IntervalLimits(3600, 30 * DAY)
    assert interval(0.0, price=1.0, limits=limits) == limits.longest


def test_a_page_that_changes_all_the_time_is_not_starved_as_by_the_greatest_freshness() -> None:
    price = price_of([PageClass(1 / DAY, number=99), PageClass(100 / DAY)], 100 / DAY, WIDE)
    assert interval(100 / DAY, price=price, limits=WIDE) < interval(1 / DAY, price=price, limits=WIDE)


def test_a_budget_that_cannot_reach_the_longest_age_tells_the_number_that_would() -> None:
    answer = price_for([PageClass(1 / DAY, number=300)], 5 / DAY, IntervalLimits(3600, 30 * DAY))
    assert isinstance(answer, BudgetTooSmall)
    assert answer.needed == pytest.approx(10 / DAY)


def test_a_budget_beyond_the_shortest_interval_is_not_spent() -> None:
    limits = IntervalLimits(3600, 30 * DAY)
    found = [PageClass(1 / DAY, number=10)]
    price = price_of(found, 1.0, limits)
    assert spent(found, price, limits) == pytest.approx(10 / 3600)


def test_no_pages_cost_nothing() -> None:
    assert price_of([], 0.0, WIDE) > 0
    assert outlook([], 1.0, WIDE).freshness == 1.0


def test_equal_limits_are_a_fixed_interval() -> None:
    fixed = IntervalLimits(DAY, DAY)
    assert interval(100 / DAY, price=1e-9, limits=fixed) == interval(0.01 / DAY, price=1e9, limits=fixed) == DAY


def test_hubs_weigh_more() -> None:
    assert page_weight(links_per_fetch=3.0) > page_weight(links_per_fetch=0.5) > page_weight() == 1.0


def test_classes_stand_for_their_pages() -> None:
    chance = random.Random(3)
    rates = [math.exp(chance.uniform(math.log(0.01), math.log(50))) / DAY for _ in range(20_000)]
    found = classes_of((rate, 1.0) for rate in rates)
    assert sum(one.number for one in found) == len(rates)
    assert len(found) < 250
    budget = len(rates) / DAY
    limits = IntervalLimits(60, 365 * DAY)
    exact = price_of([PageClass(rate) for rate in rates[:2000]], 2000 / DAY, limits)
    assert price_of(classes_of((rate, 1.0) for rate in rates[:2000]), 2000 / DAY, limits) == pytest.approx(
        exact, rel=0.01
    )
    assert spent(found, price_of(found, budget, limits), limits) == pytest.approx(budget, rel=1e-6)


def test_pages_without_changes_have_a_class() -> None:
    assert classes_of([(0.0, 1.0), (0.0, 1.0)]) == [PageClass(0.0, 1.0, 2)]


@pytest.mark.parametrize("changes", [1e-6, 0.01, 0.5, 3.0, 40.0])
def test_freshness_and_age_are_those_of_a_simulated_page(changes: float) -> None:
    rate, seconds = changes / DAY, DAY
    steps = 20_000
    times = [(step + 0.5) * seconds / steps for step in range(steps)]
    fresh = sum(math.exp(-rate * at) for at in times) / steps
    # The mean of the time since the first change, which lies before `at` with the density rate * exp(-rate * x).
    age = sum(at - (1 - math.exp(-rate * at)) / rate for at in times) / steps
    assert expected_freshness(rate, seconds) == pytest.approx(fresh, rel=1e-3)
    assert expected_age(rate, seconds) == pytest.approx(age, rel=1e-2, abs=1e-3)


def test_a_jittered_interval_stays_near() -> None:
    assert jittered(100.0, 0.0) == pytest.approx(90)
    assert jittered(100.0, 1.0) == pytest.approx(110)
    assert jittered(100.0, 0.5) == pytest.approx(100)


def test_twice_the_budget_buys_more_freshness() -> None:
    found = [PageClass(1 / DAY, number=50), PageClass(10 / DAY, number=50)]
    limits = IntervalLimits(60, 365 * DAY)
    once = outlook(found, price_of(found, 100 / DAY, limits), limits)
    twice = outlook(found, price_of(found, 200 / DAY, limits), limits)
    assert once.freshness < twice.freshness < 1
    assert once.age > twice.age
    assert twice.fetches == pytest.approx(200 / DAY, rel=1e-6)
