"""Rules that decide when a page is fetched again, compared on pages whose changes are known, in simulated time.

    python -m bench.recrawl                      # 10,000 pages, 60 days, about two minutes
    python -m bench.recrawl --pages 1000 --days 40 --plot docs/images/recrawl.svg
    python -m bench.recrawl --pages 400 --days 40 --plot-budgets docs/images

The pages change as those of real sites do: at random with a constant rate, with a daily rhythm, in bursts, with dates
that always say "now", and with entity tags that change by themselves. Every 20 days a new template changes the bytes of
all pages and the text of none, which counts as no change: rules that compare bytes take it for one. Every rule gets the
same budget of fetches. The second half of the time counts; the first is for learning.

The adaptive rules of Nutch and StormCrawler are written here from their documentation: `AdaptiveFetchSchedule`
(interval times 1.4 after a fetch without a change, times 0.8 after one with a change, which also comes 0.3 of the time
since the change earlier, 60 s to 90 days) and `AdaptiveScheduler` (times 1.5 and times 0.5, one hour to 14 days). Both
start at one day, and what is due first is fetched first where their intervals ask for more than the budget.
"""

import argparse
import heapq
import math
import sys
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bench.cluster.charts import Axis, Line, chart
from gossamer.policy.change_rates import History, Observation, dated
from gossamer.policy.revisits import (
    BudgetTooSmall,
    IntervalLimits,
    classes_of,
    interval,
    jittered,
    price_for,
    smoothed,
)

DAY = 86_400.0
KINDS = {"constant": 0.5, "daily": 0.15, "bursts": 0.1, "lying date": 0.1, "broken tag": 0.15}
"""Kinds of pages, with their shares."""
AT_RANDOM = ("constant", "lying date", "broken tag")
"""Kinds whose changes come at random with a constant rate."""
_TEMPLATE_DAYS = 20
"""Days from one template of the site to the next."""
_BURST = 6
"""Mean number of changes of a burst, within an hour."""
_TRUSTED = 0.8
"""Share of truthful dates from which a site's dates are used."""
BUDGETS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Fetches a day for each page, of the comparison of budgets."""
LIMITS = IntervalLimits(shortest=600.0, longest=60 * DAY)
_GAMMA = 0.5772156649015329


@dataclass(slots=True)
class Page:
    """A page with all of its changes, and what a rule has found."""

    kind: str
    rate: float
    """Mean number of changes per second."""
    changes: list[float]
    fetched: float = 0.0
    cost: float = 0.0
    stale: float = 0.0
    age: float = 0.0


def make_pages(count: int, days: float, seed: int) -> list[Page]:
    """Return pages with change rates from one in two months to ten a day."""
    chance, pages = Random(seed), []
    for _ in range(count):
        kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
        rate = math.exp(chance.uniform(math.log(1 / 60), math.log(10))) / DAY
        pages.append(Page(kind, rate, sorted(_moments(kind, rate, days * DAY, chance))))
    return pages


def _moments(kind: str, rate: float, end: float, chance: Random) -> list[float]:
    """Return the changes of a page from 0 to `end`."""
    times, at = [], 0.0
    if kind == "bursts":
        while (at := at + chance.expovariate(rate / _BURST)) < end:
            times += [at + chance.random() * 3600 for _ in range(1 + int(chance.expovariate(1 / (_BURST - 0.5))))]
        return [time for time in times if time < end]
    most = 2 * rate if kind == "daily" else rate  # by day twice the mean, at night nearly none
    while (at := at + chance.expovariate(most)) < end:
        if kind != "daily" or chance.random() < (1 - math.cos(2 * math.pi * at / DAY)) / 2:
            times.append(at)
    return times


class Rule(ABC):
    """Decides when a page is fetched again."""

    name: str
    compares_bytes = True
    """True: takes another template for a change."""

    @abstractmethod
    def due(self, number: int, at: float, since: float, change: float | None) -> float:
        """Return when a page is due next. It was fetched `at`, `since` seconds after the fetch before it. `change`: its
        latest change since then; None: it has not changed."""

    def each_day(self) -> None:  # noqa: B027 (few rules have something to do)
        """Look at all pages; called once a day."""


class Uniform(Rule):
    """Every page equally often."""

    name = "uniform"

    def __init__(self, budget: float, pages: Sequence[Page]) -> None:
        self._seconds = len(pages) / budget

    def due(self, number: int, at: float, since: float, change: float | None) -> float:
        return at + self._seconds


class GreatestFreshness(Rule):
    """The optimum of the freshness for fixed intervals (Cho, Garcia-Molina 2003), from the true rates."""

    name = "greatest freshness"

    def __init__(self, budget: float, pages: Sequence[Page]) -> None:
        rates = [page.rate for page in pages]
        low, high = 1e-9, 1e12

        def seconds(rate: float, value: float) -> float:
            """Return the interval with (1 - (1 + rI) exp(-rI)) / r = value; infinite: the page is not worth it."""
            if value * rate >= 1 - 1e-9:
                return math.inf
            return _solve(lambda x: 1 - (1 + x) * math.exp(-x), value * rate) / rate

        for _ in range(80):
            value = math.sqrt(low * high)
            low, high = (value, high) if sum(1 / seconds(rate, value) for rate in rates) > budget else (low, value)
        self._seconds = [seconds(rate, high) for rate in rates]

    def due(self, number: int, at: float, since: float, change: float | None) -> float:
        return at + self._seconds[number]


class Nutch(Rule):
    """Nutch's AdaptiveFetchSchedule."""

    name = "Nutch"

    def __init__(self, budget: float, pages: Sequence[Page]) -> None:
        self._seconds = [DAY] * len(pages)

    def due(self, number: int, at: float, since: float, change: float | None) -> float:
        seconds = self._seconds[number] * (1.4 if change is None else 0.8)
        # It is shifted towards the change that it has found.
        shift = 0.0 if change is None else 0.3 * (at - change)
        seconds = self._seconds[number] = min(max(seconds, 60.0), 90 * DAY)
        return at + max(seconds - shift, 60.0)


class StormCrawler(Rule):
    """StormCrawler's AdaptiveScheduler."""

    name = "StormCrawler"

    def __init__(self, budget: float, pages: Sequence[Page]) -> None:
        self._seconds = [DAY] * len(pages)

    def due(self, number: int, at: float, since: float, change: float | None) -> float:
        seconds = self._seconds[number] * (1.5 if change is None else 0.5)
        seconds = self._seconds[number] = min(max(seconds, 3600.0), 14 * DAY)
        return at + seconds


class Gossamer(Rule):
    """Gossamer's rule: the most likely rate, and the interval of the least harmonic cost within the budget."""

    name = "Gossamer"
    compares_bytes = False  # but the main text

    def __init__(self, budget: float, pages: Sequence[Page], chance: Random) -> None:
        self._budget = budget
        self._pages = pages
        self._chance = chance
        self._histories = [History() for _ in pages]
        self._fetches = [0] * len(pages)
        self._mean = 1 / DAY
        self._rates = [self._mean] * len(pages)
        self._trust = dict.fromkeys(KINDS, 0.5)
        self._price = 0.0
        self.each_day()

    def each_day(self) -> None:
        price = price_for(classes_of((rate, 1.0) for rate in self._rates), self._budget, LIMITS)
        if isinstance(price, BudgetTooSmall):
            raise SystemExit(f"the budget is too small: {price.needed * DAY:.0f} fetches a day are needed")
        self._price = price
        # Logarithms, because rates differ by factors.
        self._mean = math.exp(sum(map(math.log, self._rates)) / len(self._rates))

    def due(self, number: int, at: float, since: float, change: float | None) -> float:
        history, kind = self._histories[number], self._pages[number].kind
        self._fetches[number] += 1
        # A page with a lying date names the moment of the fetch, whether it has changed or not.
        date = at if kind == "lying date" else change
        if kind == "lying date" or change is not None:
            self._trust[kind] = smoothed(self._trust[kind], float(change is not None and date != at), share=0.01)
        if change is None:
            history.add(Observation(since, False))
        elif date is not None and self._trust[kind] > _TRUSTED and kind != "broken tag":
            for observation in dated(since, at - date):
                history.add(observation)
        else:
            history.add(Observation(since, True))
        rate = self._rates[number] = history.rate(expected=self._mean)
        seconds = interval(rate, price=self._price, limits=LIMITS)
        return at + LIMITS.clamped(jittered(seconds, self._chance.random()))

    def errors(self, days: float) -> list[float]:
        """Return the relative errors of the estimates of pages with a constant rate, after 20 fetches or more that may
        have seen ten changes: from fewer changes no rule can tell a rate."""
        return sorted(
            abs(self._rates[number] / page.rate - 1)
            for number, page in enumerate(self._pages)
            if page.kind == "constant" and self._fetches[number] >= 20 and page.rate * days * DAY >= 10
        )


@dataclass
class Result:
    """Means over all pages in the second half of the time."""

    name: str
    cost: float
    random_cost: float
    """Cost of the pages that change at random with a constant rate, for which the optimum is known."""
    freshness: float
    age: float
    fetches: float
    """Fetches per second, in the whole time."""
    course: list[tuple[float, float]] = field(default_factory=list)
    """Day, and the harmonic cost on that day."""


def simulate(rule: Rule, pages: Sequence[Page], budget: float, days: float, chance: Random) -> Result:
    """Fetch pages as the rule asks for and the budget allows: one fetch every 1 / budget seconds, the one first that is
    due first."""
    end, begin = days * DAY, days * DAY / 2
    for page in pages:
        page.fetched = page.cost = page.stale = page.age = 0.0
    queue = [(chance.random() * len(pages) / budget, number) for number in range(len(pages))]
    heapq.heapify(queue)
    at, fetches, next_day = 0.0, 0, DAY
    course: list[tuple[float, float]] = []
    daily = [0.0] * (int(days) + 1)
    while queue:
        due, number = heapq.heappop(queue)
        at = max(at + 1 / budget, due)
        if at >= end:
            break
        while at >= next_day:
            rule.each_day()
            next_day += DAY
        page = pages[number]
        since = at - page.fetched
        changed = _account(page, at, begin, daily)
        template = at // (_TEMPLATE_DAYS * DAY) * _TEMPLATE_DAYS * DAY
        if rule.compares_bytes and at - since < template:
            changed = max(changed or 0.0, template)
        fetches += 1
        heapq.heappush(queue, (rule.due(number, at, since, changed), number))
    for page in pages:
        _account(page, end, begin, daily)
    seconds = (end - begin) * len(pages)
    at_random = [page for page in pages if page.kind in AT_RANDOM]
    course = [(day + 0.5, cost / DAY / len(pages)) for day, cost in enumerate(daily[: int(days)])]
    return Result(
        rule.name,
        sum(page.cost for page in pages) / seconds,
        sum(page.cost for page in at_random) / (end - begin) / len(at_random),
        1 - sum(page.stale for page in pages) / seconds,
        sum(page.age for page in pages) / seconds,
        fetches / end,
        course,
    )


def _account(page: Page, at: float, begin: float, daily: list[float]) -> float | None:
    """Count what the page has cost since its last fetch, and fetch it. Returns its latest change since then."""
    first = bisect_right(page.changes, page.fetched)
    last = bisect_right(page.changes, at)
    for missed, change in enumerate(page.changes[first:last], 1):
        if at > begin:
            page.cost += (at - max(change, begin)) / missed
        day = int(change // DAY)
        while day < len(daily) and day * DAY < at:
            daily[day] += (min(at, (day + 1) * DAY) - max(change, day * DAY)) / missed
            day += 1
    if last > first and at > begin:
        stale, since = page.changes[first], max(page.changes[first], begin)
        page.stale += at - since
        page.age += ((at - stale) ** 2 - (since - stale) ** 2) / 2
    page.fetched = at
    return page.changes[last - 1] if last > first else None


# --- the optimum ------------------------------------------------------------------------------------------------------


def _solve(function: Callable[[float], float], value: float) -> float:
    """Return x with function(x) = value, for a function that grows from 0."""
    low, high = 1e-9, 1e9
    for _ in range(70):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if function(middle) < value else (low, middle)
    return high


def ein(x: float) -> float:
    """Return the integral of (1 - exp(-u)) / u from 0 to x: the mean harmonic number of a Poisson number of mean x."""
    if x < 20:
        total, term = 0.0, -1.0
        for k in range(1, 200):
            term *= -x / k
            total += term / k
            if abs(term) < 1e-17:
                break
        return total
    return math.log(x) + _GAMMA  # what is left out is below exp(-20)


def optimal_cost(pages: Sequence[Page], budget: float) -> float:
    """Return the least mean harmonic cost of the pages that change at random, with fixed intervals, if the budget is
    divided among all pages as if all did.

    With x = rate * interval, the cost of a page is ein(x) - (x - 1 + exp(-x)) / x, and its derivative says that the
    optimum has x - 1 + exp(-x) proportional to the rate."""
    low, high = 1e-9, 1e12
    for _ in range(60):
        price = math.sqrt(low * high)
        used = sum(page.rate / _solve(_excess, price * page.rate) for page in pages)
        low, high = (price, high) if used > budget else (low, price)
    costs = []
    for page in pages:
        if page.kind not in AT_RANDOM:
            continue
        x = _solve(_excess, high * page.rate)
        costs.append(ein(x) - _excess(x) / x)
    return sum(costs) / len(costs)


def _excess(x: float) -> float:
    return x + math.expm1(-x) if x > 1e-4 else x * x / 2


# --- the report -------------------------------------------------------------------------------------------------------


@dataclass
class Comparison:
    """Results of all rules, and what they are measured by."""

    results: dict[str, Result]
    optimum: float
    errors: list[float]


def compare(count: int, days: float, seed: int, fetches_a_day: float) -> Comparison:
    """Run all rules on the same pages. `fetches_a_day`: budget for each page."""
    pages = make_pages(count, days, seed)
    budget = count * fetches_a_day / DAY
    chance = Random(seed + 1)
    ours = Gossamer(budget, pages, chance)
    others = [make(budget, pages) for make in (Uniform, GreatestFreshness, Nutch, StormCrawler)]
    results = {rule.name: simulate(rule, pages, budget, days, chance) for rule in (ours, *others)}
    return Comparison(results, optimal_cost(pages, budget), ours.errors(days))


def table(found: Comparison) -> str:
    """Return the results as a table in Markdown."""
    lines = [
        "| rule | harmonic cost | of the optimum (random changes) | fresh | mean age (h) | fetches a day |",
        "|---|---|---|---|---|---|",
    ]
    for name, result in found.results.items():
        lines.append(
            f"| {name} | {result.cost:.3f} | {result.random_cost / found.optimum:.2f} | {result.freshness:.1%} | "
            f"{result.age / 3600:.1f} | {result.fetches * DAY:,.0f} |"
        )
    return "\n".join(lines)


def plot(found: Comparison, days: float) -> str:
    """Return a picture: the harmonic cost by day, for each rule, and the optimum."""
    most = max(cost for result in found.results.values() for _, cost in result.course)
    lines = [Line(result.name, result.course) for result in found.results.values()]
    return chart(
        "Missed changes at the same budget (harmonic cost; lower is better)",
        Axis("day", 0, days),
        Axis("cost of a page", 0, 1.05 * most),
        lines,
    )


def by_budget(count: int, days: float, seed: int) -> dict[str, list[tuple[float, Result]]]:
    """Return for each rule its results at each budget, in fetches a day for each page."""
    courses: dict[str, list[tuple[float, Result]]] = {}
    for fetches in BUDGETS:
        for name, result in compare(count, days, seed, fetches).results.items():
            courses.setdefault(name, []).append((fetches, result))
    return courses


def plot_budgets(courses: Mapping[str, Sequence[tuple[float, Result]]]) -> dict[str, str]:
    """Return two pictures by the names of their files: the share of up-to-date copies, and the harmonic cost, at each
    budget."""
    results = [result for course in courses.values() for _, result in course]
    least = math.floor(10 * min(result.freshness for result in results)) / 10
    across = Axis("visits a day for each page", BUDGETS[0], BUDGETS[-1], is_logarithmic=True)
    return {
        "recrawl-freshness.svg": chart(
            "What a budget buys: pages that are up to date (higher is better)",
            across,
            Axis("up to date", least, 1),
            [Line(name, [(budget, one.freshness) for budget, one in course]) for name, course in courses.items()],
        ),
        "recrawl-costs.svg": chart(
            "What a budget buys: missed changes (harmonic cost; lower is better)",
            across,
            Axis("cost of a page", 0, 1.05 * max(result.cost for result in results)),
            [Line(name, [(budget, one.cost) for budget, one in course]) for name, course in courses.items()],
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--days", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fetches", type=float, default=1.0, help="budget: fetches a day for each page")
    parser.add_argument("--plot", type=Path, help="write the picture to this file")
    parser.add_argument(
        "--plot-budgets", type=Path, help="compare several budgets, and write that picture to this file"
    )
    arguments = parser.parse_args()
    if arguments.plot_budgets:
        courses = by_budget(arguments.pages, arguments.days, arguments.seed)
        for name, picture in plot_budgets(courses).items():
            (arguments.plot_budgets / name).write_text(picture)
        for name, course in courses.items():
            print(f"| {name} | " + " | ".join(f"{one.freshness:.0%}, {one.cost:.2f}" for _, one in course) + " |")
        return 0
    found = compare(arguments.pages, arguments.days, arguments.seed, arguments.fetches)
    print(table(found))
    print(f"\nThe least possible cost of pages that change at random is {found.optimum:.3f}.")
    if found.errors:
        print(f"Median error of their estimates after 20 fetches: {found.errors[len(found.errors) // 2]:.0%}.")
    if arguments.plot:
        arguments.plot.write_text(plot(found, arguments.days))
    return 0


if __name__ == "__main__":
    sys.exit(main())
