"""Decides how often each page of a domain is fetched again, within the domain's budget of fetches.

Rates are in changes or fetches per second. The cost of a page is harmonic: n changes that were missed cost
1 + 1/2 + ... + 1/n, times the weight of the page. With fetches at random times its mean is
weight * log(1 + change rate / fetch rate), and the cheapest fetch rates for a budget are those at which one more fetch
would save the same everywhere, the price (Kolobov, Peres, Lu, Horvitz, NeurIPS 2019). Unlike the rates for the greatest
freshness, they starve no page: a page that changes all the time is fetched often, and one that never changes now and
then.

Domains have budgets of their own (their sites limit them), so no domain needs to know of another one. Nothing here
reads a clock or a random number; callers pass both.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

DAY_SECONDS: Final = 86_400.0
_ROUNDS: Final = 60
"""Steps of the search for a price; each halves the error of its logarithm."""
_ROUNDED: Final = 1 + 1e-9
"""Error of sums of rates, which may be those of the budget exactly."""
_CLASSES_PER_DOUBLING: Final = 16
"""Classes into which `classes_of` divides change rates for each factor of two: all pages of one have nearly equal
rates, so that millions of pages cost as much as some hundred."""


class IntervalLimits(NamedTuple):
    """Shortest and longest time between two fetches of a page, in seconds, whatever its estimate says."""

    shortest: float = 3600.0
    longest: float = 30 * DAY_SECONDS

    def clamped(self, seconds: float) -> float:
        """Return the time that lies in the limits and is nearest to this one."""
        return min(max(seconds, self.shortest), self.longest)


class PageClass(NamedTuple):
    """Pages with the same change rate and weight."""

    change_rate: float
    weight: float = 1.0
    number: int = 1
    """Number of the pages."""
    limits: IntervalLimits | None = None
    """Limits of these pages. None: those that a function gets for all."""


def page_weight(*, importance: float = 1.0, links_per_fetch: float = 0.0) -> float:
    """Return the weight of a page: what users set, and more for hubs, pages that show new links. `links_per_fetch`:
    mean number of new links that a fetch of the page found; each is a page that would be missed otherwise."""
    return importance * (1.0 + links_per_fetch)


def classes_of(pages: Iterable[tuple[float, float]]) -> list[PageClass]:
    """Return the classes of pages, each given by its change rate and weight. Pages of a class differ by less than 5 %;
    the class has their mean."""
    sums: dict[tuple[int, int], list[float]] = {}
    for change_rate, weight in pages:
        key = _step(change_rate), _step(weight)
        if (found := sums.get(key)) is None:
            sums[key] = [change_rate, weight, 1]
        else:
            found[0] += change_rate
            found[1] += weight
            found[2] += 1
    return [PageClass(rate / count, weight / count, int(count)) for rate, weight, count in sums.values()]


def _step(value: float) -> int:
    """Return the class of a positive number, or one of its own for 0."""
    return round(_CLASSES_PER_DOUBLING * math.log2(value)) if value > 0 else -10_000


def fetch_rate(change_rate: float, *, weight: float = 1.0, price: float) -> float:
    """Return the fetch rate of a page, at which one more fetch per second would save `price`. Without limits."""
    # Written as a quotient: the difference of two nearly equal numbers would lose digits for a page that changes often.
    gain = weight * change_rate / price
    return 2 * gain / (change_rate + math.sqrt(change_rate * change_rate + 4 * gain)) if gain > 0 else 0.0


def interval(change_rate: float, *, weight: float = 1.0, price: float, limits: IntervalLimits) -> float:
    """Return the seconds between two fetches of a page at this price."""
    rate = fetch_rate(change_rate, weight=weight, price=price)
    return limits.clamped(1 / rate) if rate > 0 else limits.longest


def jittered(seconds: float, chance: float, *, share: float = 0.1) -> float:
    """Return an interval that differs by up to `share` of it, so that pages spread out, and that a page with a daily
    rhythm is not always fetched at the same hour. `chance`: a random number from 0 to 1."""
    return seconds * (1 + share * (2 * chance - 1))


class BudgetTooSmall(NamedTuple):
    """The budget does not even reach the longest age of every page."""

    needed: float
    """Fetches per second that reach it."""


def price_for(pages: Sequence[PageClass], budget: float, limits: IntervalLimits) -> float | BudgetTooSmall:
    """Return the price at which the fetch rates of all pages add up to the budget, in fetches per second.

    Where the budget is larger than the shortest interval of all pages lets them use, the price is so low that all have
    the shortest interval."""
    if not pages:
        return 1.0
    if (needed := least_rate(pages, limits)) > budget * _ROUNDED:
        return BudgetTooSmall(needed)
    # With r = 1 / shortest, the price of a page is at most weight / r * (change rate) / (r + change rate) < weight / r;
    # below the lowest price all pages are at the shortest interval, above the highest at the longest.
    longest = max((one.limits or limits).longest for one in pages)
    low, high = 1e-30, 2 * longest * max(one.weight for one in pages) + 1.0
    for _ in range(_ROUNDS + 20):
        price = math.sqrt(low * high)
        if spent(pages, price, limits) > budget:
            low = price
        else:
            high = price
    return high


def spent(pages: Iterable[PageClass], price: float, limits: IntervalLimits) -> float:
    """Return the fetches per second of all pages at this price."""
    return sum(one.number / _interval_of(one, price, limits) for one in pages)


def least_rate(pages: Iterable[PageClass], limits: IntervalLimits) -> float:
    """Return the fetches per second that reach the longest age of each page."""
    return sum(one.number / (one.limits or limits).longest for one in pages)


def _interval_of(one: PageClass, price: float, limits: IntervalLimits) -> float:
    return interval(one.change_rate, weight=one.weight, price=price, limits=one.limits or limits)


def expected_freshness(change_rate: float, seconds: float) -> float:
    """Return the share of time for which the copy of a page is up to date that is fetched in this interval."""
    changes = change_rate * seconds
    return -math.expm1(-changes) / changes if changes > 1e-9 else 1.0


def expected_age(change_rate: float, seconds: float) -> float:
    """Return the mean time in seconds since the first change that the copy lacks (0 while it is up to date), of a page
    that is fetched in this interval."""
    changes = change_rate * seconds
    if changes < 1e-4:  # the exact form would lose its digits
        return seconds * changes / 6
    return seconds * (0.5 - 1 / changes + -math.expm1(-changes) / (changes * changes))


def harmonic_cost(change_rate: float, rate: float) -> float:
    """Return the mean cost of a page of weight 1 that is fetched at random times at this rate."""
    return math.log1p(change_rate / rate) if rate > 0 else math.inf


class DomainOutlook(NamedTuple):
    """Result that a budget buys on a domain: means over its pages, by their weights."""

    freshness: float
    """Expected share of copies that are up to date."""
    age: float
    """Expected mean age of copies in seconds; see `expected_age`."""
    fetches: float
    """Fetches per second."""


def outlook(pages: Sequence[PageClass], price: float, limits: IntervalLimits) -> DomainOutlook:
    """Return what is to be expected of pages that are fetched at this price."""
    total = sum(one.weight * one.number for one in pages)
    if not total:
        return DomainOutlook(1.0, 0.0, 0.0)
    freshness = age = 0.0
    for one in pages:
        seconds = _interval_of(one, price, limits)
        share = one.weight * one.number / total
        freshness += share * expected_freshness(one.change_rate, seconds)
        age += share * expected_age(one.change_rate, seconds)
    return DomainOutlook(freshness, age, spent(pages, price, limits))


def smoothed(mean: float, value: float, *, share: float = 0.2) -> float:
    """Return a mean that follows the latest values: of new links per fetch, of the trust in dates."""
    return mean + share * (value - mean)
