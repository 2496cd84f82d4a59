"""The page index on SQLite and on a real PostgreSQL server: visits, changes, rounds, and what a repetition changes."""

import asyncio
import random
import re
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer import __version__
from gossamer.bus.base import Topics
from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.errors import BadInput, SinkError
from gossamer.fresh.database import open_database
from gossamer.fresh.index import BEFORE_ALL, PageIndex, VisitBudget
from gossamer.fresh.page import (
    ChangeKind,
    Fetch,
    Found,
    IndexedFacts,
    IndexedPage,
    PageKind,
    PageState,
    VisitSchedule,
    due_time,
    packed_facts,
)
from gossamer.fresh.rounds import KeptCrawl, RoundPlanner
from gossamer.fresh.scopes import ScopeChange
from gossamer.fresh.store import IndexStore, end_visits, kept_crawl
from gossamer.fresh.visited import IndexedVisits
from gossamer.model.crawl import Crawl, CrawlId, QueryOrder, RevisitOptions, RevisitRule, Run, Terms
from gossamer.model.record import ItemRecord, Output
from gossamer.model.request import Lease, Outcome, Settlement
from gossamer.policy.change_dates import FIRST_TRUST
from gossamer.policy.revisits import DAY_SECONDS, IntervalLimits
from gossamer.policy.sketches import sketch_of
from gossamer.policy.urls import fingerprint
from gossamer.scrapy.fresh_index import FreshIndex, KnownPage, packed_response, unpacked_response
from gossamer.services.recrawler import Recrawler
from gossamer.sinks.base import SinkThread
from gossamer.telemetry.logs import Troubles
from tests.servers.postgresql import PostgreSql, postgresql

NOW = 1_790_000_000.0
LIVE = Found.CONTENT


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSql]:
    with postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "index.sqlite")
    server: PostgreSql = request.getfixturevalue("server")
    return server.new_database().replace("+psycopg", "")


@pytest.fixture
def index(address: str) -> Iterator[PageIndex]:
    index = PageIndex.open(address, "0123456789abcdef", crawl_id="cli/one")
    yield index
    index.close()


@pytest.fixture
def store(address: str, tmp_path: Path) -> Iterator[IndexStore]:
    with closing(IndexStore(address if "://" in address else str(tmp_path))) as store:
        yield store


def fetch(name: str, visit: int, found: Found = LIVE, *, body: int = 0, at: float = NOW, **more: object) -> Fetch:
    status = {LIVE: 200, Found.NOT_MODIFIED: 304, Found.MISSING: 404, Found.GONE: 410}.get(found, 0)
    return Fetch(
        url=f"https://{name}", request_id=f"{visit:08x}{len(name):024x}", at=at, found=found, status=status,
        body=body if found is LIVE else 0, text=body if found is LIVE else 0, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def kinds(index: PageIndex, since: int = 0) -> list[tuple[str, str]]:
    return [(change.url.removeprefix("https://"), str(change.change)) for change in index.changes(since)]


def test_a_page_from_new_to_back(index: PageIndex) -> None:
    visits: list[tuple[Found, int]] = [
        (LIVE, 1), (LIVE, 1), (Found.NOT_MODIFIED, 0), (LIVE, 2), (Found.FAILED, 0), (Found.MISSING, 0),
        (Found.MISSING, 0), (Found.MISSING, 0), (LIVE, 2), (Found.GONE, 0), (LIVE, 3),
    ]  # fmt: skip
    for visit, (found, body) in enumerate(visits, 1):
        index.settle([fetch("a.test/x", visit, found, body=body, at=NOW + visit * DAY_SECONDS)])
    assert [kind for _, kind in kinds(index)] == ["new", "changed", "gone", "back", "gone", "back"]


@pytest.mark.parametrize(("confirmed", "asked"), [('"a"', '"a"'), ('W/"a"', 'W/"a"'), ("", '"a"'), ('"b"', "")])
def test_a_page_that_is_confirmed_by_another_tag_is_asked_for_without_conditions(
    index: PageIndex, confirmed: str, asked: str
) -> None:
    index.settle([fetch("a.test/x", 1, body=1, etag='"a"', modified="Wed, 21 Oct 2015 07:28:00 GMT")])
    index.settle([fetch("a.test/x", 2, Found.NOT_MODIFIED, at=NOW + 9, etag=confirmed)])
    page = index.page("https://a.test/x")
    assert page is not None
    assert (page.facts.etag, bool(page.facts.modified)) == (asked, bool(asked))


def test_a_page_that_was_missing_once_is_no_change(index: PageIndex) -> None:
    for visit, found in enumerate((LIVE, Found.MISSING, LIVE), 1):
        index.settle([fetch("a.test/x", visit, found, body=7, at=NOW + visit)])
    assert kinds(index) == [("a.test/x", "new")]


def test_an_announcement_takes_nothing_back_that_another_process_settles_meanwhile(
    index: PageIndex, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.settle([fetch("a.test/x", 1, body=1, etag='"a"')])
    later = fetch("a.test/x", 2, body=2, etag='"b"', at=NOW + 9)
    monkeypatch.setattr("gossamer.fresh.database._LOCK_SECONDS", 0.1)
    with closing(PageIndex.open(address, "0123456789abcdef", crawl_id="cli/one")) as other:
        if "://" in address:
            other._database.run("SET lock_timeout = 100")
        trust, waiting = index._trust, [later]

        def trust_while_another_settles(domains: Iterable[int]) -> dict[int, float]:
            with suppress(SinkError):  # it has to wait for the end of the announcement
                other.settle([later])
                waiting.clear()
            return trust(domains)

        monkeypatch.setattr(index, "_trust", trust_while_another_settles)
        index.announce({"https://a.test/x": int(NOW) + 5})
        other.settle(waiting)
        page = other.page("https://a.test/x")
    assert page is not None
    assert (page.facts.etag, page.fetched) == ('"b"', NOW + 9)


@pytest.mark.parametrize("found", [LIVE, Found.MISSING, Found.FAILED, Found.NOT_MODIFIED, Found.REDIRECTED])
def test_a_visit_that_is_settled_again_changes_nothing(index: PageIndex, found: Found) -> None:
    index.settle([fetch("a.test/x", 1, body=1)])
    later = fetch("a.test/x", 2, found, body=2, at=NOW + 9 * DAY_SECONDS)
    index.settle([later])
    before, told = index.page("https://a.test/x"), kinds(index)
    for _ in range(3):
        index.settle([later])
    assert index.page("https://a.test/x") == before
    assert kinds(index) == told


def test_a_visit_that_finds_more_when_it_is_repeated_tells_it_under_another_id(index: PageIndex) -> None:
    index.settle([fetch("a.test/x", 1, body=1)])
    index.settle([fetch("a.test/x", 1, body=2)])
    first, second = index.changes(0)
    assert (first.change, second.change) == (ChangeKind.NEW, ChangeKind.CHANGED)
    assert first.id != second.id


def test_a_result_that_comes_after_a_later_one_of_its_page_changes_nothing(index: PageIndex) -> None:
    """The worker with the first one stood still until another had its request, or the page was visited again."""
    index.settle([fetch("a.test/x", 1, body=1)])
    index.settle([fetch("a.test/x", 2, body=2, at=NOW + 60)])
    before, told = index.page("https://a.test/x"), kinds(index)
    for visit, found in ((2, LIVE), (1, LIVE), (2, Found.MISSING)):
        assert index.settle([fetch("a.test/x", visit, found, body=1, at=NOW + 30)]) == []
    assert index.page("https://a.test/x") == before
    assert kinds(index) == told


def test_links_to_known_pages_are_known_whatever_their_state(index: PageIndex) -> None:
    index.settle(
        [fetch("a.test/x", 1, body=1), fetch("b.test/y", 2, Found.MISSING), fetch("b.test/z", 3, Found.REFUSED)]
    )
    keys = {name: index.key(f"https://{name}") for name in ("a.test/x", "b.test/y", "b.test/z", "b.test/new")}
    assert index.known(keys.values()) == set(keys.values()) - {keys["b.test/new"]}


def test_a_round_visits_each_page_once_and_survives_its_process(address: str) -> None:
    index = PageIndex.open(address, "0123456789abcdef", crawl_id="cli/one")
    index.settle([fetch(f"a.test/{number}", number + 1, body=1) for number in range(25)])
    begun = index.begin_round(NOW + 100, only_due=False, most=1000)
    assert index.begin_round(NOW + 200, only_due=False, most=1000) == begun
    first = index.visits(begun, after=-(1 << 63), limit=10)
    index.settle([fetch(page.url.removeprefix("https://"), 99, body=1, at=NOW + 101) for page in first])
    index.close()

    index = PageIndex.open(address, "0123456789abcdef", crawl_id="cli/one")
    again = index.open_round()
    assert again == begun
    left = index.visits(begun, after=-(1 << 63), limit=1000)
    assert len(left) == 15
    assert not {page.url for page in left} & {page.url for page in first}
    index.end_round(begun, NOW + 300)
    assert index.open_round() is None
    index.close()


def test_a_round_of_what_is_due_takes_the_pages_that_wait_longest(index: PageIndex) -> None:
    index.schedule = VisitSchedule(limits=IntervalLimits(DAY_SECONDS, DAY_SECONDS))
    index.settle([fetch(f"a.test/{number}", number + 1, body=1, at=NOW + number * DAY_SECONDS) for number in range(20)])
    begun = index.begin_round(NOW + 12 * DAY_SECONDS, only_due=True, most=4)
    found = index.visits(begun, after=-(1 << 63), limit=100)
    assert {page.url for page in found} == {f"https://a.test/{number}" for number in range(4)}
    assert index.visited_since(NOW) == 4
    index.end_round(begun, NOW + 13 * DAY_SECONDS)
    assert index.visited_since(NOW + 14 * DAY_SECONDS) == 0


def single_rounds(
    index: PageIndex, options: RevisitOptions, begins: Sequence[float], changed: Callable[[str, float], bool]
) -> list[set[str]]:
    """Do a single round at each of these times, as commands do, and return the names that each has visited. `changed`:
    tells whether a page differs at a time from what it was at the time of the round before."""
    now, visit, visited = [0.0], 100, []
    index.clock = lambda: now[0]
    for at in begins:
        now[0] = at
        planner = RoundPlanner(index, options, is_endless=False)
        current = planner.begin()
        pages = index.visits(current, after=-(1 << 63), limit=1000)
        names = [page.url.removeprefix("https://") for page in pages]
        fetches = [
            fetch(name, (visit := visit + 1), body=visit if changed(name, at) else 1, at=at + 60) for name in names
        ]
        index.settle(fetches)
        planner.end(current)
        planner.plan()
        visited.append(set(names))
    return visited


def test_single_rounds_visit_what_is_due_at_the_round_that_is_nearest(index: PageIndex) -> None:
    names = [f"a.test/{number}" for number in range(10)] + ["a.test/slow", "a.test/window"]
    index.settle([fetch(name, number + 1, body=1) for number, name in enumerate(names)])
    rules = (
        RevisitRule(match="/slow", shortest=3 * DAY_SECONDS, longest=3 * DAY_SECONDS),
        RevisitRule(match="/window", window="0 12 * * *"),
    )
    chance = random.Random(1)
    # A command that cron starts once a day, a little earlier or later.
    begins = [NOW + day * DAY_SECONDS + chance.uniform(-20, 20) for day in range(10)]
    found = single_rounds(index, RevisitOptions(rules=rules), begins, lambda *_: False)
    usual = {f"a.test/{number}" for number in range(10)}
    assert [names & usual for names in found[1:]] == [usual] * 9, "one visit a day for each page, on average"
    assert [day for day, names in enumerate(found) if "a.test/slow" in names] == [3, 6, 9]
    assert not any("a.test/window" in names for names in found)


def test_single_rounds_each_hour_visit_a_page_as_often_as_its_changes_are_worth(index: PageIndex) -> None:
    names = ["a.test/often", *(f"a.test/{number}" for number in range(9))]
    index.settle([fetch(name, number + 1, body=1) for number, name in enumerate(names)])
    begins = [NOW + hour * 3600 for hour in range(1, 15 * 24)]
    found = single_rounds(index, RevisitOptions(), begins, lambda name, _: name == "a.test/often")
    visits = Counter(name for names in found for name in names)
    others = [visits[name] for name in names[1:]]
    assert sum(visits.values()) <= 1.2 * 15 * len(names), "one visit a day for each page, on average"
    assert min(others) >= 3
    assert visits["a.test/often"] > 3 * max(others)


def test_the_budget_of_a_day_is_there_again_for_a_round_that_begins_a_little_early(index: PageIndex) -> None:
    options = RevisitOptions(longest=DAY_SECONDS, budget_visits=6, budget_seconds=DAY_SECONDS)
    index.follow(options)  # before the pages are fetched, so that all of them are due after a day
    index.settle([fetch(f"a.test/{number}", number + 1, body=1) for number in range(20)])
    begins = [NOW + DAY_SECONDS, NOW + DAY_SECONDS + 5000, NOW + 2 * DAY_SECONDS - 30]
    assert [len(names) for names in single_rounds(index, options, begins, lambda *_: False)] == [6, 0, 6]


def test_no_stretch_of_a_budgets_time_has_more_visits_wherever_it_begins(index: PageIndex) -> None:
    chance, now, visits = random.Random(5), [NOW], deque[float]()
    index.clock = lambda: now[0]
    options = RevisitOptions(shortest=1.0, longest=5.0, budget_visits=5, budget_seconds=60.0)
    planners = [RoundPlanner(index, options, is_endless=True) for _ in range(2)]
    index.settle([fetch(f"a.test/{number}", number + 1, body=1) for number in range(12)])
    for visit in range(120):
        now[0] += chance.choice((0.1, 1, 4, 15))
        current = chance.choice(planners).begin()  # the round of the other one, if that is open
        left = index.visits(current, after=BEFORE_ALL, limit=99)
        done = left[: chance.randrange(9)]
        for page in done:
            now[0] += chance.random()
            visits.append(now[0])
            index.settle([fetch(page.url.removeprefix("https://"), 1000 + visit, body=1, at=now[0])])
        if len(done) == len(left):
            chance.choice(planners).end(current)
    at_most = max(sum(begun <= other < begun + 60 for other in visits) for begun in visits)
    assert at_most == 5
    assert len(visits) > 4 * (now[0] - NOW) / 60, "the budget is used"


def test_a_round_that_another_process_had_since_the_budget_was_read_counts(index: PageIndex) -> None:
    index.settle([fetch(f"a.test/{number}", number + 1, body=1) for number in range(9)])
    budget = VisitBudget(5, NOW)
    for begun, expected in ((NOW + 30 * DAY_SECONDS, 4), (NOW + 31 * DAY_SECONDS, 1), (NOW + 32 * DAY_SECONDS, 0)):
        current = index.begin_round(begun, most=4, budget=budget)
        assert len(index.visits(current, after=BEFORE_ALL, limit=99)) == expected
        assert index.confirm_missing(current, most=0, budget=budget) == 0
        index.end_round(current, begun + 1)


def test_a_lost_round_reads_all_pages_again_within_the_budget(index: PageIndex) -> None:
    now = [NOW + DAY_SECONDS * 2]
    index.clock = lambda: now[0]
    index.settle([fetch(f"a.test/{number}", number + 1, body=1, etag="x") for number in range(20)])
    planner = RoundPlanner(index, RevisitOptions(budget_visits=9, budget_seconds=100.0), is_endless=False)
    index.plan(None)
    lost = index.enter_run(index.begin_round(now[0], most=4), 7)
    again = planner.restart(lost)
    visits = index.visits(again, after=-(1 << 63), limit=100)
    assert (again.run, len(visits), planner.allowed()) == (0, 9 - 4, 0)
    index.settle([fetch(page.url.removeprefix("https://"), 99, body=1, at=now[0], etag="x") for page in visits])
    planner.end(again)
    now[0] += 200
    index.plan(None)
    found = index.visits(planner.begin(), after=-(1 << 63), limit=100)
    assert len(found) == 9
    assert not {page.url for page in found} & {page.url for page in visits}
    assert all(not page.facts.etag for page in [*visits, *found])


def test_an_announced_page_stays_due_when_all_pages_are_planned_anew(index: PageIndex) -> None:
    index.clock = lambda: NOW + 10
    index.settle([fetch("a.test/x", 1, body=1), fetch("a.test/y", 2, body=1)])
    assert index.announce({"https://a.test/x": int(NOW + 9)}, is_certain=True) == (1, ())
    index.plan(None)
    due = index.visits(index.begin_round(NOW + 10, most=9), after=-(1 << 63), limit=9)
    assert [page.url for page in due] == ["https://a.test/x"]


def test_pages_that_change_often_are_due_sooner(index: PageIndex) -> None:
    chance = random.Random(1)
    for visit in range(20):
        at = NOW + visit * DAY_SECONDS
        pages = [fetch(f"a.test/slow{number}", visit * 100 + number + 1, body=1, at=at) for number in range(10)]
        pages += [fetch(f"a.test/fast{number}", visit * 100 + number + 50, body=chance.random() and visit + 1, at=at)
                  for number in range(10)]  # fmt: skip
        index.settle(pages)
    assert index.plan(10 / DAY_SECONDS) == []
    again = PageIndex(index._database)
    again.settle([fetch("a.test/slow1", 7001, body=1, at=NOW + 21 * DAY_SECONDS)])
    again.settle([fetch("a.test/fast1", 7002, body=99, at=NOW + 21 * DAY_SECONDS)])
    slow, fast = again.page("https://a.test/slow1"), again.page("https://a.test/fast1")
    assert slow is not None
    assert fast is not None
    assert fast.rate > 5 * slow.rate
    assert fast.due < slow.due


def test_a_budget_that_is_too_small_is_told_with_the_one_that_would_do(index: PageIndex) -> None:
    index.settle([fetch(f"a.test/{number}", number + 1, body=1) for number in range(60)])
    [found] = index.plan(1 / DAY_SECONDS)
    assert (found.name, found.pages) == ("a.test", 60)
    assert found.needed * DAY_SECONDS == pytest.approx(2)


def test_rules_leave_the_rest_of_a_budget_to_the_other_pages(index: PageIndex) -> None:
    month = 30 * DAY_SECONDS
    index.follow(RevisitOptions(rules=(RevisitRule(match="/old/", shortest=month, longest=3 * month),)))
    names = [f"a.test/{folder}/{number}" for folder in ("old", "new") for number in range(10)]
    index.settle([fetch(name, number + 1, body=1) for number, name in enumerate(names)])
    assert index.plan(10 / DAY_SECONDS) == []
    new, old = index.page("https://a.test/new/1"), index.page("https://a.test/old/1")
    assert new is not None
    assert old is not None
    assert index.interval(old) == month
    assert index.interval(new) == pytest.approx(DAY_SECONDS / (1 - 1 / 30), rel=0.001)
    assert index.planned_rate * DAY_SECONDS == pytest.approx(10)
    assert index.outlooks()["a.test"].fetches * DAY_SECONDS == pytest.approx(10)
    index.plan(None)  # a visit a day for each page that may have one
    assert index.interval(new) == pytest.approx(DAY_SECONDS, rel=0.001)


def test_fixed_intervals_that_a_budget_cannot_reach_are_told(index: PageIndex) -> None:
    index.follow(RevisitOptions(rules=(RevisitRule(match="/news/", shortest=3600.0, longest=3600.0),)))
    index.settle([fetch(f"a.test/news/{number}", number + 1, body=1) for number in range(10)])
    [found] = index.plan(10 / DAY_SECONDS)
    assert found.visits_a_day == 240


def test_a_rule_plans_no_more_visits_than_there_are_single_rounds(index: PageIndex) -> None:
    index.settle([fetch(f"a.test/news/{number}", number + 1, body=1) for number in range(10)])
    rules = (RevisitRule(match="/news/", shortest=3600.0, longest=3600.0),)
    single_rounds(
        index,
        RevisitOptions(rules=rules, budget_visits=10, budget_seconds=DAY_SECONDS),
        [NOW + day * DAY_SECONDS for day in range(1, 6)],
        lambda *_: False,
    )
    [found] = index.outlooks().values()
    assert (found.needed, round(found.fetches * DAY_SECONDS, 1)) == (0.0, 10.0)


def test_a_page_that_was_missing_a_moment_ago_is_confirmed_once(index: PageIndex) -> None:
    index.follow(RevisitOptions(confirm=0.0))
    index.settle([fetch("a.test/x", 1, body=1, at=NOW - 9)])
    current = index.begin_round(NOW, most=9, only_due=False)
    index.settle([fetch("a.test/x", 2, Found.MISSING, at=NOW)])  # in the second in which the round began
    assert index.visit_announced(current, NOW + 1, most=9) == 0
    assert index.confirm_missing(current, most=9) == 1


def test_a_redirect_leads_to_a_page_of_its_own(index: PageIndex) -> None:
    index.settle([fetch("a.test/x", 1, body=1)])
    moved = fetch("a.test/x", 2, Found.REDIRECTED, at=NOW + 9, target="https://a.test/y")
    index.settle([moved, fetch("a.test/y", 2, body=1, at=NOW + 9)])
    assert kinds(index) == [("a.test/x", "new"), ("a.test/x", "changed"), ("a.test/y", "new")]
    page = index.page("https://a.test/x")
    assert page is not None
    assert page.state is PageState.REDIRECTED


@pytest.mark.parametrize(
    ("visits", "told"),
    [
        ([(Found.REDIRECTED, "y"), (Found.NOT_MODIFIED, "")], ["changed redirect", "changed redirect"]),
        ([(Found.REDIRECTED, "y"), (LIVE, "")], ["changed redirect", "changed redirect"]),
        ([(Found.REDIRECTED, "y"), (Found.REDIRECTED, "y")], ["changed redirect"]),
        ([(Found.REDIRECTED, "y"), (Found.REDIRECTED, "z")], ["changed redirect", "changed redirect"]),
        ([(Found.MISSING, ""), (Found.REDIRECTED, "y")], ["changed redirect"]),
        ([(Found.GONE, ""), (Found.REDIRECTED, "y"), (LIVE, "")], ["gone", "back redirect", "changed redirect"]),
        ([(Found.REDIRECTED, "y"), (Found.MISSING, ""), (Found.REDIRECTED, "y")], ["changed redirect"]),
        ([(Found.REDIRECTED, "y"), (Found.MISSING, ""), (LIVE, "")], ["changed redirect", "changed redirect"]),
    ],
)
def test_where_a_page_leads_to_is_a_change(index: PageIndex, visits: list[tuple[Found, str]], told: list[str]) -> None:
    index.settle([fetch("a.test/x", 1, body=1)])
    for visit, (found, target) in enumerate(visits, 2):
        url = f"https://a.test/{target}" if target else ""
        index.settle([fetch("a.test/x", visit, found, body=1, at=NOW + visit * DAY_SECONDS, target=url)])
    assert [" ".join((one.change, *one.what)) for one in index.changes(1)] == told
    # An archive's record of a 304 refers to this time, at which it has the response.
    page = index.page("https://a.test/x")
    assert page is not None
    assert page.facts.changed == int(NOW)


def test_changes_come_in_pieces_and_old_cursors_are_refused(index: PageIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    index.settle([fetch(f"a.test/{number}", number + 1, body=1) for number in range(30)])
    first = index.changes(0, 12)
    assert [change.cursor for change in first] == sorted(change.cursor for change in first)
    assert len(first) == 12
    assert len(index.changes(first[-1].cursor, 100)) == 18
    monkeypatch.setattr("gossamer.fresh.index.MOST_CHANGES", 10)
    index.end_round(index.begin_round(NOW + 1, only_due=False, most=1), NOW + 2)
    with pytest.raises(BadInput, match=r"the cursor 5 is too old: the changes up to 20 are deleted"):
        index.changes(5)
    assert len(index.changes(20)) == 10
    for cursor in (-1, 31):
        with pytest.raises(BadInput, match=f"the cursor {cursor} is not one of this crawl: its last one is 30"):
            index.changes(cursor)


def test_a_page_that_stays_gone_is_forgotten_and_a_later_one_is_new(index: PageIndex) -> None:
    index.settle([fetch("a.test/x", 1, body=1)])
    at, visit = NOW, 1
    while (page := index.page("https://a.test/x")) is not None:
        at, visit = max(page.due, at + 1), visit + 1
        assert visit < 100
        index.settle([fetch("a.test/x", visit, Found.MISSING, at=at)])
    assert at > NOW + 100 * DAY_SECONDS
    index.settle([fetch("a.test/x", visit + 1, body=1, at=at + 1)])
    assert [kind for _, kind in kinds(index)] == ["new", "gone", "new"]


def test_pages_fetched_by_a_clock_that_was_wrong_are_due_in_their_interval(index: PageIndex) -> None:
    index.settle([fetch(f"a.test/{number}", number + 1, body=1, at=NOW + 900 * DAY_SECONDS) for number in range(5)])
    index.clock = lambda: NOW
    index.plan(None)
    due = index.next_due()
    assert due is not None
    assert NOW < due < NOW + 2 * DAY_SECONDS


def test_a_clock_that_is_set_back_while_nothing_is_due_delays_no_visit(index: PageIndex) -> None:
    now = [NOW + 365 * DAY_SECONDS]
    index.clock = lambda: now[0]
    index.settle([fetch("a.test/x", 1, body=1, at=now[0])])
    planner = RoundPlanner(index, RevisitOptions(), is_endless=True)
    planner.plan()
    assert (planner.next_due() or 0) > now[0]
    now[0] = NOW
    assert NOW < (planner.next_due() or 0) < NOW + 30 * DAY_SECONDS


@pytest.mark.parametrize("is_endless", [True, False])
def test_rounds_by_a_clock_that_was_wrong_do_not_use_up_the_budget(index: PageIndex, is_endless: bool) -> None:
    now = [NOW + DAY_SECONDS]
    index.clock = lambda: now[0]
    index.settle([fetch(f"a.test/{number}", number + 1, body=1) for number in range(5)])
    options = RevisitOptions(longest=10.0, shortest=10.0, budget_visits=5, budget_seconds=10.0)
    planner = RoundPlanner(index, options, is_endless=is_endless)
    planner.end(planner.begin())
    now[0] = NOW
    planner = RoundPlanner(index, options, is_endless=is_endless)
    planner.plan()
    now[0] += 11
    assert planner.allowed() == 5


def test_rounds_that_count_for_no_budget_are_deleted_and_those_that_do_are_merged(
    index: PageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.fresh.index._KEPT_ROUNDS", 5)
    monkeypatch.setattr("gossamer.fresh.index._ROUNDS_A_BUDGET", 10)
    index.settle([fetch("a.test/x", 1, body=1)])
    for at in range(int(NOW), int(NOW) + 300, 5):
        index.end_round(index.begin_round(at, only_due=False, most=1), at + 1, window=100.0)
    [(rows,)] = index._database.rows("SELECT count(*) FROM rounds")
    assert rows <= 10 + 5 + 1
    assert index.round_count() == 60
    assert 20 <= index.visited_since(NOW + 200) <= 22


def test_an_announced_change_makes_a_page_due_until_its_site_has_lied_often(index: PageIndex) -> None:
    index.schedule = VisitSchedule(limits=IntervalLimits(9 * DAY_SECONDS, 9 * DAY_SECONDS))
    now, visit, due = NOW, 1, []
    index.clock = lambda: now
    index.settle([fetch("a.test/x", 1, body=1)])
    assert index.announce({"https://a.test/x": int(NOW - 5)}) == (0, ()), "it was fetched after that"
    for _ in range(40):  # each time the date moves, and the page does not
        now, visit = now + 100, visit + 1
        assert index.announce({"https://a.test/x": int(now - 5), "https://a.test/y": 1}) == (1, ("https://a.test/y",))
        page = index.page("https://a.test/x")
        assert page is not None
        due.append(page.due <= now)
        index.settle([fetch("a.test/x", visit, body=1, at=now)])
    assert due[0]
    assert not due[-1]
    now += 100
    index.announce({"https://a.test/x": int(now)}, is_certain=True)
    page = index.page("https://a.test/x")
    assert page is not None
    assert page.due <= now


def test_a_url_that_was_announced_is_due_as_a_new_page(index: PageIndex) -> None:
    index.clock = lambda: NOW
    index.settle([fetch("a.test/x", 1, body=1)])
    index.enter(["https://a.test/y", "https://a.test/x"], depth=1)
    begun = index.begin_round(NOW + 1, only_due=True, most=9)
    assert [page.url for page in index.visits(begun, after=-(1 << 63), limit=9)] == ["https://a.test/y"]
    index.settle([fetch("a.test/y", 2, body=1)])
    assert kinds(index) == [("a.test/x", "new"), ("a.test/y", "new")]


def test_another_template_is_told_once_for_its_pattern(index: PageIndex) -> None:
    names = [f"a.test/docs/page{number}.html" for number in range(12)]
    index.settle([fetch(name, number + 1, body=1, link_set=1) for number, name in enumerate(names)])
    told = index.last_change()
    for first in (0, 6):  # two batches, both twice
        pages = [fetch(name, 100 + number, body=2, at=NOW + 9) for number, name in enumerate(names)][first : first + 6]
        same_text = [msgspec.structs.replace(page, text=1, link_set=2) for page in pages]  # a link in the menu
        index.settle(same_text)
        index.settle(same_text)
    found = index.changes(told)
    assert [(change.change, change.what) for change in found] == [
        *[(ChangeKind.CHANGED, ("bytes", "links"))] * 3,
        (ChangeKind.TEMPLATE, ("bytes", "links")),
    ]
    assert found[-1].pattern == "https://a.test/docs/*"


def test_rules_decide_by_url_when_a_page_is_due_and_what_counts(index: PageIndex) -> None:
    rules = (
        RevisitRule(match="/news/", shortest=60.0, longest=60.0, level="text"),
        RevisitRule(match="/shop/", level="items"),
        RevisitRule(match="/list/", level="links"),
    )
    index.follow(RevisitOptions(shortest=DAY_SECONDS, rules=rules, unchanged=True))
    names = ("a.test/news/x", "a.test/shop/x", "a.test/list/x", "a.test/x")
    index.settle([fetch(name, number + 1, body=1, link_set=1) for number, name in enumerate(names)])
    intervals = []
    for name in names:
        page = index.page(f"https://{name}")
        assert page is not None
        intervals.append(page.due - page.fetched)
    assert intervals[0] < 100
    assert min(intervals[1:]) > 0.8 * DAY_SECONDS
    told = index.last_change()
    for visit, (text, items, links) in enumerate(((1, 0, 1), (2, 0, 1), (2, 7, 1), (2, 7, 2)), 2):
        for number, name in enumerate(names):
            found = fetch(name, visit * 100 + number, body=visit, at=NOW + visit, link_set=links)
            index.settle([msgspec.structs.replace(found, text=text, items=items)])
    kinds_of = {name: [kind for page, kind in kinds(index, told) if page == name] for name in names}
    assert kinds_of == {
        "a.test/news/x": ["unchanged", "changed", "changed", "unchanged"],
        "a.test/shop/x": ["unchanged", "unchanged", "changed", "unchanged"],
        "a.test/list/x": ["unchanged", "unchanged", "unchanged", "changed"],
        "a.test/x": ["changed", "changed", "changed", "changed"],
    }
    assert [change.what for change in index.changes(told) if change.url == "https://a.test/x"] == [
        ("bytes",), ("bytes", "text"), ("bytes", "items"), ("bytes", "links")
    ]  # fmt: skip


def test_the_level_of_a_rule_decides_what_counts_for_the_estimate(index: PageIndex) -> None:
    index.follow(RevisitOptions(rules=(RevisitRule(match="/list/", level="links"),)))
    for visit in range(10):  # texts change each day, links once
        index.settle([
            fetch(name, visit * 9 + number + 1, body=visit + 1, at=NOW + visit * DAY_SECONDS, link_set=1 + visit // 5)
            for number, name in enumerate(("a.test/list/x", "a.test/x"))
        ])  # fmt: skip
    listed, other = index.page("https://a.test/list/x"), index.page("https://a.test/x")
    assert listed is not None
    assert other is not None
    assert other.rate > 5 * listed.rate


def test_a_change_tells_the_share_of_the_text(index: PageIndex) -> None:
    texts = ["One sentence. Two sentences. And a third one, with more words in it."] * 2 + ["All is different today."]
    for visit, text in enumerate(texts, 1):
        index.settle([fetch("a.test/x", visit, body=visit, at=NOW + visit, sketch=sketch_of(text))])
    index.settle([fetch("a.test/x", 9, body=9, at=NOW + 9)])
    first, second, third = index.changes(1)
    assert (first.share, second.share, third.share) == (0.01, 1.0, None)


def test_an_index_whose_connection_was_closed_makes_another_one(index: PageIndex) -> None:
    index.settle([fetch("a.test/x", 1, body=1)])
    index.close()
    index.close()
    assert kinds(index) == [("a.test/x", "new")]
    index.close()
    index.settle([fetch("a.test/x", 2, body=2)])
    assert len(kinds(index)) == 2


def test_a_store_has_an_index_for_each_crawl_that_is_kept_up_to_date(store: IndexStore) -> None:
    one, two = CrawlId("app", "one"), CrawlId("app", "two")
    terms = Terms(recrawl=RevisitOptions(longest=9.0), attrs={"a": 1})
    store.keep([KeptCrawl(crawl=Crawl(id=one), spider="link", priority=1, terms=Terms(recrawl=RevisitOptions()))])
    kept = KeptCrawl(crawl=Crawl(id=one), spider="link", priority=2, terms=terms)
    store.keep([kept])
    assert store.names() == [one.token]
    index = store.find(one)
    assert kept_crawl(index) == kept
    assert index.take_turn("me", now=NOW, seconds=5)
    assert not index.take_turn("other", now=NOW + 4, seconds=5)
    assert index.take_turn("me", now=NOW + 4, seconds=5)
    assert index.take_turn("other", now=NOW + 10, seconds=5)
    assert index.take_turn("me", now=NOW - 1000, seconds=5), "a clock was set back"
    end_visits(index)
    assert kept_crawl(index) is None
    index.close()
    with pytest.raises(BadInput, match="the crawl app/two is not kept up to date"):
        store.find(two)


def test_a_store_goes_on_writing_into_indexes_that_are_there(store: IndexStore, address: str, tmp_path: Path) -> None:
    terms = Terms(recrawl=RevisitOptions())
    crawls = [CrawlId("app", f"crawl{number}") for number in range(18)]
    for crawl in [*crawls, crawls[-1]]:
        kept = KeptCrawl(crawl=Crawl(id=crawl), spider="link", priority=1, terms=terms)
        store.keep([kept], {crawl: {"https://a.test/": terms}})
    assert list(store._open._indexes) == crawls[2:]
    if "://" not in address:
        for file in tmp_path.glob(f"{crawls[-1].token}.sqlite*"):
            file.unlink()
    store.keep([kept])
    found = store.find(crawls[-1])
    assert kept_crawl(found) == kept
    found.close()


def test_urls_that_are_submitted_again_with_another_scope_forget_and_read_pages(store: IndexStore) -> None:
    crawl = CrawlId("app", "one")

    def submit(**seeds: Terms) -> None:
        given = {f"https://{name}.test/": terms for name, terms in seeds.items()}
        kept = KeptCrawl(crawl=Crawl(id=crawl), spider="link", priority=1, terms=[*seeds.values()][-1])
        store.keep([kept], {crawl: given})

    def only(*names: str, **more: Any) -> Terms:
        return Terms(recrawl=RevisitOptions(), allowed_domains=tuple(f"{name}.test" for name in names), **more)

    submit(a=only("a", "c"), b=only("b"))
    index = store.find(crawl)
    index.clock = lambda: NOW
    names = ["a.test/", "a.test/docs", "a.test/deep", "b.test/", "b.test/docs", "c.test/x"]
    depths = [0, 1, 2, 0, 1, 1]
    index.settle([fetch(name, visit, body=1, depth=depth, etag="e")
                  for visit, (name, depth) in enumerate(zip(names, depths, strict=True), 1)])  # fmt: skip

    def adopted() -> tuple[list[ScopeChange], set[str], set[str]]:
        """The results, the pages that are left, and those that are read again."""
        found = index.adopt_scopes()
        pages = {name: index.page(f"https://{name}") for name in names}
        left = {name for name, page in pages.items() if page is not None}
        return found, left, {name for name in left if not pages[name].facts.etag}  # type: ignore[union-attr]

    assert adopted() == ([], set(names), set())
    submit(d=only("d"))
    submit(b=only("b"), a=only("a", "c"))
    assert adopted() == ([], set(names), set()), "none has changed"
    submit(a=only("a", "b", maxdepth=1))
    again = {"a.test/", "a.test/docs", "b.test/", "b.test/docs"}
    assert adopted() == ([(2, 4)], again, again)
    assert adopted()[0] == []
    submit(a=only("z"))
    assert adopted() == ([(1, 1)], again - {"a.test/docs"}, again - {"a.test/docs"}), "given URLs stay"
    assert index.next_due() == 0
    index.close()


class CountedStore(IndexStore):
    """A store that notes which indexes are opened."""

    opened: list[str]

    def open(self, name: str, crawl: CrawlId | None = None) -> PageIndex:
        self.opened.append(name)
        return super().open(name, crawl)


def test_a_recrawler_opens_an_index_that_is_not_kept_only_when_it_has_changed(address: str, tmp_path: Path) -> None:
    store = CountedStore(address if "://" in address else str(tmp_path))
    store.opened = []
    crawls = [CrawlId("app", name) for name in ("kept", "ended", "other")]
    kept = [KeptCrawl(crawl=Crawl(id=one), spider="link", priority=1, terms=Terms(recrawl=RevisitOptions()))
            for one in crawls]  # fmt: skip
    store.keep(kept)
    for one in crawls[1:]:
        index = store.find(one)
        end_visits(index)
        index.close()
    role = Recrawler(None, None, Topics(), store, secret=0, owner="me")  # type: ignore[arg-type]
    role._look()
    store.opened.clear()
    last = time.monotonic() + 30
    while True:  # a server tells about changes a little later
        role._look()
        if not store.opened:
            break
        assert time.monotonic() < last
        store.opened.clear()
    role._look()
    assert store.opened == []
    store.keep([kept[1]])
    while store.opened != [crawls[1].token]:  # by the recrawler; the store still has it open
        role._look()
        assert time.monotonic() < last
    assert set(role._indexes) == {crawls[0].token, crawls[1].token}
    asyncio.run(role.close())
    store.close()


def test_an_announced_url_is_the_page_that_the_crawl_means(tmp_path: Path) -> None:
    store, crawl = IndexStore(str(tmp_path)), CrawlId("app", "one")
    terms = Terms(recrawl=RevisitOptions(), drop_parameters=("utm_*",), query_order=QueryOrder.IGNORED)
    store.keep([KeptCrawl(crawl=Crawl(id=crawl), spider="link", priority=1, terms=terms)])
    index = store.find(crawl)
    index.settle([fetch("a.test/x?a=1&b=2", 1, body=1)])
    announced = index.announce({"https://a.test/x?b=2&utm_source=me&a=1": int(NOW) + 9}, is_certain=True)
    assert announced == (1, ())
    index.close()
    store.close()


def test_a_part_of_a_sitemap_index_is_skipped_as_long_as_its_date_says_so(index: PageIndex) -> None:
    index.follow(RevisitOptions(longest=9 * DAY_SECONDS))
    now = NOW
    index.clock = lambda: now
    url = "https://a.test/part.xml"
    index.enter([url], depth=0, announced={url: int(NOW - DAY_SECONDS)})
    part = fetch("a.test/part.xml", 1, body=1, kind=PageKind.LISTED_SITEMAP)

    def visited() -> bool:
        begun = index.begin_round(now, only_due=False, most=9)
        found = index.visits(begun, after=-(1 << 63), limit=9)
        index.end_round(begun, now)
        return bool(found)

    assert index.wanted_parts([index.key(url)]) == {index.key(url)}, "it was not read yet"
    assert visited()
    index.settle([part])
    now = NOW + DAY_SECONDS
    assert not visited()
    assert index.wanted_parts([index.key(url)]) == set()
    due = index.next_due()
    assert due is not None
    assert now < due <= NOW + 9 * DAY_SECONDS
    now = NOW + 9 * DAY_SECONDS
    assert visited(), "the longest age holds whatever the date says"
    index.settle([msgspec.structs.replace(part, request_id=f"{2:032x}", at=now)])
    index.announce({url: int(now + 5)})
    assert index.wanted_parts([index.key(url)]) == {index.key(url)}
    assert visited()
    told = index.last_change()
    index.settle([msgspec.structs.replace(part, request_id=f"{3:032x}", at=now + 60, body=2)])
    assert index.last_change() == told, "a source of pages is no change"
    [(trust,)] = index._database.rows("SELECT trust FROM signals")
    assert trust > FIRST_TRUST, "the date was true"
    now += 100
    assert not visited()
    for scope in ("one", "other"):
        index.adopt_scope(scope, lambda page: True)
    assert visited(), "entries that were out of scope before are read"


FIRST_TABLES = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE domains (number {serial}, name TEXT UNIQUE NOT NULL, price DOUBLE PRECISION, rate DOUBLE PRECISION)",
    "CREATE TABLE pages (key BIGINT PRIMARY KEY, url TEXT NOT NULL, domain INTEGER NOT NULL, state SMALLINT NOT NULL, "
    "fetched BIGINT NOT NULL, due BIGINT NOT NULL, depth INTEGER NOT NULL, round INTEGER NOT NULL, "
    "facts {blob} NOT NULL)",
    "CREATE INDEX pages_due ON pages (due)",
    "CREATE TABLE rounds (number {serial}, begun DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION, "
    "run BIGINT NOT NULL, is_plain SMALLINT NOT NULL, entered BIGINT NOT NULL)",
    "CREATE TABLE changes (number {serial}, id TEXT UNIQUE NOT NULL, at DOUBLE PRECISION NOT NULL, "
    "change {blob} NOT NULL)",
)
"""Tables of the first release, as far as they have rows here."""


def test_an_index_of_the_first_format_is_converted_and_fetches_nothing_again(address: str) -> None:
    database = open_database(address, "0123456789abcdef")
    database.prepare(FIRST_TABLES)
    database.run("INSERT INTO facts (name, value) VALUES ('format', '1'), ('crawl', 'cli/one')")
    database.run("INSERT INTO domains (name, price, rate) VALUES ('a.test', 100.0, 0.00001)")
    database.run("INSERT INTO rounds (begun, run, is_plain, entered) VALUES (?, 3, 0, 1)", [NOW])
    due = int(NOW + DAY_SECONDS)
    facts = [bytes.fromhex("00000001") + b"more", 7, -(1 << 40) + 8, b"", 0, int(NOW), '"tag"', int(NOW)]
    facts += [0, 150, 0, 0, False, 1 << 40 | 5]  # without the last fields, which came later
    rows = [
        (fingerprint(url, seed=0), url, 1, PageState.LIVE, int(NOW), due, 2, entered, msgspec.msgpack.encode(facts))
        for url, entered in (("https://a.test/x", 0), ("https://www.a.test/y", 1))
    ]
    database.run_many("INSERT INTO pages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    change = msgspec.msgpack.encode({"url": "https://a.test/x", "change": "new", "at": NOW, "id": "a"})
    database.run("INSERT INTO changes (id, at, change) VALUES ('a', ?, ?)", [NOW, change])
    database.close()

    for _ in range(2):  # the second time, it has been converted
        index = PageIndex.open(address, "0123456789abcdef", crawl_id="cli/one")
        index.clock = lambda: NOW + 60
        converted = IndexedFacts(1, 7, 8, changed=int(NOW), etag='"tag"', modified=int(NOW), links=150, items=5)
        for key, url, *_ in rows:
            page = index.page(url)
            assert page == IndexedPage(key, url, 1, PageState.LIVE, int(NOW), due, 2, converted)
        current = index.open_round()
        assert current is not None
        assert current.run == 3
        assert [page.url for page in index.visits(current, after=BEFORE_ALL, limit=9)] == ["https://www.a.test/y"]
        index.close()

    index = PageIndex.open(address, "0123456789abcdef", crawl_id="cli/one")
    index.clock = lambda: NOW + 60
    assert current is not None
    index.plan(None)
    assert index.count_due(NOW + 60) == 0
    told = index.last_change()
    assert index.settle([fetch("www.a.test/y", 1, body=7)]) == [], "it was settled before the upgrade"
    assert index.visits(current, after=BEFORE_ALL, limit=9) == []
    for visit, link_set in ((2, 5), (3, 6)):
        found = fetch("a.test/x", visit, body=7, at=NOW + visit * DAY_SECONDS, link_set=link_set, items=5)
        index.settle([msgspec.structs.replace(found, text=8)])
    assert [change.what for change in index.changes(told)] == [("links",)], "what it did not know before is no change"
    index.close()


def test_what_is_taken_back_is_not_remembered(index: PageIndex) -> None:
    database = index._database
    database.run("ALTER TABLE changes RENAME TO away")
    with pytest.raises(SinkError):
        index.settle([fetch("a.test/x", 1)])
    database.run("ALTER TABLE away RENAME TO changes")
    index.settle([fetch("b.test/x", 1)])
    index.settle([fetch("a.test/x", 1)])
    assert [(one.name, one.pages) for one in index.figures(NOW)] == [("a.test", 1), ("b.test", 1)]
    assert [index.page(f"https://{name}.test/x") is not None for name in "ab"] == [True, True]


def test_a_page_that_is_forgotten_leaves_nothing_but_its_changes(index: PageIndex) -> None:
    index.follow(RevisitOptions(versions=2))
    names = ("a.test/in", "a.test/out")
    index.settle([fetch(name, number + 1, body=1, content=b"x") for number, name in enumerate(names)])
    assert index.admit_feeds(["https://a.test/out"]) == []
    index._database.run("INSERT INTO feeds VALUES (?, ?, 1)", [index.key("https://a.test/out"), "https://a.test/out"])
    begun = index.begin_round(NOW + 9, most=9, only_due=False)
    for scope in ("one", "other"):
        index.adopt_scope(scope, lambda page: page.url.endswith("/in"))
    left = [url for url in ("https://a.test/in", "https://a.test/out") if index.versions(url)]
    assert left == ["https://a.test/in"]
    assert [page.url for page in index.visits(begun, after=BEFORE_ALL, limit=9)] == left
    assert index._database.rows("SELECT count(*) FROM feeds") == [(0,)]
    assert [change for _, change in kinds(index)] == ["new", "new"]


def test_a_limit_of_pages_holds_in_all_rounds_together(index: PageIndex) -> None:
    links = [(number, "a.test") for number in range(5)] + [(9, "b.test")]
    assert index.room.admitted(links, most=2, domain_most=1) == {0, 1, 2, 3, 4, 9}, "the run has these limits"
    index.settle([fetch(f"www.a.test/{number}", number + 1, body=1) for number in range(3)])
    index.settle([fetch("a.test/gone", 9, Found.GONE)])
    index.enter(["https://a.test/announced"], depth=1)
    index.end_round(index.begin_round(NOW + 1, most=1), NOW + 2)
    index = PageIndex(index._database)
    assert index.room.admitted(links, most=None, domain_most=4) == {9}
    index = PageIndex(index._database)
    assert index.room.admitted(links, most=None, domain_most=6) == {0, 1, 9}
    assert index.room.admitted(links, most=None, domain_most=6) == {0, 1, 9}, "these have their room"
    assert index.room.admitted([(7, "b.test")], most=7, domain_most=6) == set(), "4 pages, and 3 that enter"
    assert index.room.admitted([(7, "b.test")], most=8, domain_most=6) == {7}
    pushed = [f"https://www.a.test/pushed/{number}" for number in range(9)]
    assert PageIndex(index._database).enter(pushed, depth=1, domain_most=6) == 2
    assert index.count() == 4 + 1 + 2


@pytest.mark.parametrize(
    "url", ["https://a.test", "https://a.test/", "http://a.test:81/x//y?q=https://b.test/", "s3://b/c"]
)
def test_a_url_comes_back_as_it_was(index: PageIndex, url: str) -> None:
    index.enter([url], depth=1 << 40)
    page = index.page(url)
    assert page is not None
    assert page.url == url
    found = PageIndex(index._database).page(url)
    assert found == page


def test_times_far_away_are_stored(index: PageIndex) -> None:
    index.clock = lambda: 4_000_000_000.0  # a clock that is wrong by decades
    index.settle([fetch("a.test/x", 1, at=index.clock())])
    index.clock = lambda: NOW
    index.plan(None)
    page = index.page("https://a.test/x")
    assert page is not None
    assert page.fetched == NOW
    assert page.due <= NOW + index.schedule.limits.longest


def test_facts_are_stored_without_the_last_ones_that_are_empty() -> None:
    assert packed_facts(IndexedFacts()) == b"\x90"
    for facts in (IndexedFacts(misses=1), IndexedFacts(visit=5, signalled=True), IndexedFacts(1, etag='W/"a"')):
        assert msgspec.msgpack.decode(packed_facts(facts), type=IndexedFacts) == facts


@pytest.mark.parametrize("seconds", [1.0, 999.5, 3600.0, 86_400.0, 30 * 86_400.0])
def test_a_page_is_due_at_most_a_thousandth_early_and_never_before_its_shortest_interval(seconds: float) -> None:
    for second in range(1000):
        at = NOW + second * 7.3
        due = due_time(at, seconds, IntervalLimits(1.0, 30 * DAY_SECONDS))
        assert at + seconds - max(seconds / 1000, 0.5) <= due <= at + seconds + 0.5
        assert due_time(at, seconds, IntervalLimits(seconds, seconds)) == round(at + seconds)


def test_an_index_of_a_newer_release_is_refused(index: PageIndex, address: str) -> None:
    assert index.fact("release") == __version__
    index.note("format", "3")
    index._database.run("DROP INDEX pages_due")
    for release, writer in (("9.1", "release 9.1"), ("", "a newer release")):
        index.note("release", release)
        with pytest.raises(BadInput, match=f"by {writer} of Gossamer, and this is {re.escape(__version__)}"):
            PageIndex.open(address, "0123456789abcdef", crawl_id="cli/one")
    index._database.run("CREATE INDEX pages_due ON pages (key)")  # nothing was made again


def test_the_outlook_of_a_budget_that_is_too_small_has_the_one_that_would_do(index: PageIndex) -> None:
    index.settle([fetch(f"a.test/{number}", number + 1, body=1) for number in range(60)])
    index.plan(1 / DAY_SECONDS)
    assert index.outlooks()["a.test"].needed * DAY_SECONDS == pytest.approx(2)
    index.plan(10 / DAY_SECONDS)
    assert index.outlooks()["a.test"].needed == 0


def test_the_index_of_another_crawl_is_refused(index: PageIndex, address: str) -> None:
    with pytest.raises(BadInput, match="is the page index of another crawl, cli/one"):
        PageIndex.open(address, "0123456789abcdef", crawl_id="cli/other")


def test_what_is_no_index_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    text, other = tmp_path / "pages.jsonl", tmp_path / "pages.sqlite"
    text.write_text('{"type": "page"}\n' * 100)
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE pages (url TEXT)")
    for path in (text, other, tmp_path):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(BadInput, match=f"{path} is something else than a page index"):
            PageIndex.open(str(path), "0123456789abcdef", crawl_id="cli/one")
        assert (path.read_bytes() if path.is_file() else b"") == before
    (tmp_path / "empty").touch()
    PageIndex.open(str(tmp_path / "empty"), "0123456789abcdef", crawl_id="cli/one").close()


def visits_of_one_crawl(path: Path) -> tuple[IndexedVisits, Settlement]:
    """Return the indexes of a worker, at a path, and the settlement of a page that it fetched."""
    crawl, terms = CrawlId("app", "one"), Terms(recrawl=RevisitOptions())
    lease = Lease(
        id=1, worker="worker-1", shard=0, run=Run(Crawl(id=crawl), 1, 1), spider="link", domain="a.test", priority=1,
        depth=0, attempt=0, deaths=0, url="https://a.test/", payload=None, terms=terms, request_id="", identity=b"",
        charged=0.0,
    )  # fmt: skip
    visits = IndexedVisits(
        lambda crawl, terms: PageIndex.open(str(path), crawl.token, crawl_id=str(crawl)), SinkThread("test"), secret=0
    )
    return visits, Settlement(lease, Outcome.FETCHED)


@pytest.mark.parametrize("value", ["half a pair: \ud800", 10**5000, [[]]], ids=["surrogate", "integer", "nested"])
async def test_no_value_in_an_item_ends_the_worker(tmp_path: Path, value: Any) -> None:
    if value == [[]]:
        for _ in range(100_000):
            value = [value]
    record = ItemRecord(
        appid="app", crawlid="one", spiderid="mine", request_id="1", attempt=0, url="https://a.test/", attrs=None,
        timestamp="2026-01-02T03:04:05Z", item={"a": value},
    )  # fmt: skip
    visits, settlement = visits_of_one_crawl(tmp_path / "index.sqlite")
    await visits.enter([FinishedLease(settlement, outputs=[Output(record=record)])])
    await visits.close()


async def test_a_worker_waits_until_an_index_that_cannot_be_used_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    path.write_text("no database" * 100)
    visits, settlement = visits_of_one_crawl(path)
    finished = [FinishedLease(settlement)]
    with pytest.raises(SinkError, match=r"the page index of app/one cannot be used: .* is something else"):
        await visits.enter(finished)
    path.unlink()
    await visits.enter(finished)
    assert path.exists()
    await visits.close()


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    with closing(PageIndex.open(str(path), "shop", crawl_id="shop")) as index:
        index.settle([fetch(str(number), 1) for number in range(2000)])
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * (path.stat().st_size - 3 * 4096))
    with (
        pytest.raises(SinkError, match="is damaged: stop, and put a whole copy in its place, or move it away"),
        closing(PageIndex.open(str(path), "shop", crawl_id="shop")) as index,
    ):
        index.settle([fetch(str(number), 1) for number in range(2000)])


def test_visits_become_due_in_windows_only(index: PageIndex) -> None:
    rules = (RevisitRule(match="/news/", window="* 12 * * *"),)
    index.follow(RevisitOptions(shortest=3600.0, longest=3600.0, rules=rules, window="* 1-2 * * *", zone="Asia/Tokyo"))
    names = ("a.test/news/x", "a.test/x")
    midnight = NOW - NOW % DAY_SECONDS + 15 * 3600  # in Tokyo
    index.settle([fetch(name, number + 1, body=1, at=midnight) for number, name in enumerate(names)])

    def due() -> list[float]:
        pages = [index.page(f"https://{name}") for name in names]
        return [(page.due - midnight) / 3600 for page in pages if page is not None]

    def visited(hour: float) -> set[str]:
        begun = index.begin_round(midnight + hour * 3600, only_due=True, most=9)
        found = {page.url.removeprefix("https://") for page in index.visits(begun, after=-(1 << 63), limit=9)}
        index.end_round(begun, midnight + hour * 3600)
        return found

    news, other = due()
    assert news == 12
    assert 1 <= other < 1.2
    assert visited(0.5) == set()
    assert visited(2.9) == {"a.test/x"}
    index.settle([fetch("a.test/x", 7, body=1, at=midnight + 1.5 * 3600)])
    assert visited(13.5) == set(), "both windows are over: what was not visited waits for the next ones"
    index.clock = lambda: midnight + 14 * 3600
    index.plan(None)
    assert due() == [36, 25]
    assert visited(25) == {"a.test/x"}
    assert visited(36.5) == {"a.test/news/x"}


async def test_the_index_of_a_scrapy_project_returns_what_was_stored(address: str) -> None:
    crawl = CrawlId("app", "shop")
    page = KnownPage(1, -2, True, 'W/"tag"', "date", packed_response([("A", ["1", "2"])], b"body"))
    index = FreshIndex(address, crawl, Retrier(Troubles()))
    await index.open()
    try:
        assert await index.look_up(-5) is None
        await asyncio.gather(*(index.store(key, page._replace(content=key)) for key in range(-700, 700)))
        found = await asyncio.gather(*(index.look_up(key) for key in range(-701, 700)))
        assert found == [None, *(page._replace(content=key) for key in range(-700, 700))]
        await index.store(7, None)
    finally:
        await index.close()
    again = FreshIndex(address, crawl, Retrier(Troubles()))
    again.store_now([(8, KnownPage(3, 4, has_requests=False))])
    await again.open()
    assert [await again.look_up(key) for key in (6, 7, 8)] == [page._replace(content=6), None, KnownPage(3, 4, False)]
    assert unpacked_response(page.response) == ([("A", ["1", "2"])], b"body")
    await again.close()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("used.sqlite", "used.sqlite is the index of another crawl, app/other. Name another place."),
        ("folder", "folder is something else than a page index. Name another place."),
        ("mysql://h/d", "cannot keep an index in mysql://h/d. Write the path of a SQLite file"),
        ("postgresql://u@127.0.0.1:1/d", "Name a place that can be written."),
    ],
)
async def test_a_place_that_cannot_be_the_index_of_a_scrapy_project_is_refused(
    tmp_path: Path, place: str, message: str
) -> None:
    (tmp_path / "folder").mkdir()
    other = FreshIndex(str(tmp_path / "used.sqlite"), CrawlId("app", "other"), Retrier(Troubles()))
    await other.open()
    await other.close()
    index = FreshIndex(place if "://" in place else str(tmp_path / place), CrawlId("app", "shop"), Retrier(Troubles()))
    with pytest.raises(BadInput) as raised:
        await index.open()
    assert str(raised.value).startswith("GOSSAMER_FRESH_INDEX: ")
    assert "--index" not in str(raised.value)
    assert message in str(raised.value)
    await index.close()
