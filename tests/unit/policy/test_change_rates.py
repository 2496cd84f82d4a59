"""Estimates of change rates: known solutions, irregular intervals, limits, the stored form, and their error."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.policy.change_rates import (
    HIGHEST_RATE,
    LOWEST_RATE,
    PRIOR_SPREAD,
    REMEMBERED,
    History,
    Observation,
    dated,
    estimated_rate,
)

DAY = 86_400.0

observations = st.lists(st.builds(Observation, st.floats(1, 400 * DAY), st.booleans()), max_size=REMEMBERED)


def test_without_observations_the_expected_rate_is_estimated() -> None:
    for expected in (1e-8, 1 / DAY, 0.01):
        assert estimated_rate([], expected=expected) == pytest.approx(expected, rel=1e-5)


def test_many_equal_intervals_give_the_known_solution() -> None:
    changed, unchanged = 600, 400
    found = [Observation(DAY, True)] * changed + [Observation(DAY, False)] * unchanged
    # With equal intervals the likelihood is greatest at 1 - exp(-r t) = changed / all.
    assert estimated_rate(found, expected=1 / DAY) == pytest.approx(-math.log(0.4) / DAY, rel=0.01)


@given(observations, st.floats(1e-9, 1e-2))
def test_the_estimate_is_a_maximum_of_the_likelihood_within_its_limits(
    found: list[Observation], expected: float
) -> None:
    rate = estimated_rate(found, expected=expected)
    assert LOWEST_RATE <= rate <= HIGHEST_RATE

    def likelihood(at: float) -> float:
        prior = -((math.log(at / expected) / PRIOR_SPREAD) ** 2) / 2
        return prior + sum(
            math.log(-math.expm1(-at * one.seconds)) if one.changed else -at * one.seconds for one in found
        )

    best = likelihood(rate)
    for factor in (0.98, 1.02):
        if LOWEST_RATE < rate * factor < HIGHEST_RATE:
            assert likelihood(rate * factor) <= best + 1e-9 * abs(best)


@given(observations, st.integers(0, REMEMBERED - 1))
def test_a_change_in_the_place_of_none_never_lowers_the_estimate(found: list[Observation], at: int) -> None:
    if at >= len(found):
        return
    more = [*found]
    more[at] = Observation(found[at].seconds, True)
    less = [*found]
    less[at] = Observation(found[at].seconds, False)
    assert estimated_rate(more, expected=1 / DAY) >= estimated_rate(less, expected=1 / DAY) * (1 - 1e-5)


def test_pages_that_always_or_never_change_have_finite_estimates() -> None:
    always = estimated_rate([Observation(DAY, True)] * 20, expected=1 / DAY)
    never = estimated_rate([Observation(DAY, False)] * 20, expected=1 / DAY)
    assert 2 / DAY < always < 20 / DAY
    assert 0 < never < 0.1 / DAY


@pytest.mark.parametrize("interval", [0.7, 1.6, 2.2])
def test_after_twenty_fetches_half_of_the_estimates_are_within_a_fifth(interval: float) -> None:
    """Intervals are given in mean times between two changes, and differ by a third to either side. The chance of a
    fetch to show anything falls to both ends: with 20 fetches no estimator can do much better."""
    chance = random.Random(1)
    errors = []
    for _ in range(2000):
        rate = math.exp(chance.uniform(math.log(0.05 / DAY), math.log(20 / DAY)))
        history = History()
        for _ in range(20):
            seconds = interval / rate * chance.uniform(2 / 3, 4 / 3)
            history.add(Observation(seconds, chance.random() < -math.expm1(-rate * seconds)))
        errors.append(abs(history.rate(expected=rate * math.exp(chance.gauss(0, 1))) / rate - 1))
    assert statistics.median(errors) < (0.2 if interval > 1 else 0.25)


def test_truthful_dates_make_estimates_better_where_pages_change_more_often_than_they_are_fetched() -> None:
    chance = random.Random(2)
    seconds = 1 * DAY
    with_dates, without = [], []
    for _ in range(1000):
        known, unknown = History(), History()
        rate = chance.uniform(2, 20) / DAY
        for _ in range(12):
            age = chance.expovariate(rate)
            unknown.add(Observation(seconds, age < seconds))
            for observation in dated(seconds, age) if age < seconds else [Observation(seconds, False)]:
                known.add(observation)
        with_dates.append(abs(known.rate(expected=1 / DAY) / rate - 1))
        without.append(abs(unknown.rate(expected=1 / DAY) / rate - 1))
    assert statistics.median(with_dates) < statistics.median(without) / 1.3


@pytest.mark.parametrize("age", [-5.0, 0.0, 2 * DAY, math.inf])
def test_a_date_outside_of_the_interval_is_ignored(age: float) -> None:
    assert dated(DAY, age) == (Observation(DAY, True),)


@given(observations)
def test_a_history_survives_its_stored_form_and_estimates_the_same(found: list[Observation]) -> None:
    history = History(found)
    again = History.unpack(history.pack())
    assert len(history.pack()) == 2 * len(history) <= 2 * len(found)
    assert again.observations() == history.observations()
    assert history.rate(expected=1 / DAY) == pytest.approx(estimated_rate(found, expected=1 / DAY), rel=0.01)


def test_fetches_without_a_change_take_no_room() -> None:
    history = History([Observation(DAY, True), *[Observation(DAY, False)] * 1000])
    assert len(history) == 2
    assert history.observations()[1].seconds == pytest.approx(1000 * DAY, rel=0.05)


def test_a_history_forgets_the_oldest_and_ignores_what_took_no_time() -> None:
    history = History(Observation(DAY * (day + 1), day % 2 == 0) for day in range(REMEMBERED + 5))
    assert len(history) == REMEMBERED
    assert history.observations()[0].seconds == pytest.approx(6 * DAY, rel=0.001)
    history.add(Observation(0.0, True))
    history.add(Observation(-3.0, False))
    assert len(history) == REMEMBERED
