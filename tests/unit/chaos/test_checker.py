"""The judge: a good run passes, and every promise that is broken in made-up evidence is found."""

import msgspec
import pytest

from gossamer.fakeweb.journal import How, Record
from gossamer_fakeweb.expected import Ends, Expected
from tests.chaos.checker import Death, Evidence, Kept, given_up_by_browsers, judge
from tests.chaos.repeats import Blow
from tests.chaos.schedule import Kind

PAGES = 100


def url(number: int) -> str:
    return f"http://site0.test/p/{number}"


def page(number: int, at: float, agent: str = "w0", how: How = How.WHOLE, status: int = 200) -> Record:
    return Record(
        url=url(number), host="site0.test", path=f"/p/{number}", method="GET", status=status, how=how, started=at,
        ended=at + 0.01, wall=at, agent=agent, connection=1,
    )  # fmt: skip


def kept(number: int, *, success: bool = True, reason: str = "", request_id: str = "") -> Kept:
    return Kept(url(number), success, reason, request_id or f"id{number}")


EXPECTED = {
    **{url(n): Expected(ends=Ends.PAGE, status=200, depth=0) for n in range(PAGES)},
    url(100): Expected(ends=Ends.FAILED, reason="not_found", status=404, depth=1),
    url(101): Expected(ends=Ends.DROPPED, reason="robots", depth=1, asked=False),
    url(102): Expected(ends=Ends.PAGE, status=200, depth=1, redirects=("http://site0.test/r/102/1",)),
}
LOG = [
    *(page(n, float(n)) for n in range(PAGES)),
    page(100, 100.0, status=404),
    page(102, 102.0, status=302),
    msgspec.structs.replace(page(102, 103.0), url="http://site0.test/r/102/1", path="/r/102/1"),
]
KEPT = [*(kept(n) for n in range(PAGES)), kept(100, success=False, reason="not_found"), kept(102)]


def evidence(**changed: object) -> Evidence:
    given: dict[str, object] = {
        "expected": EXPECTED,
        "log": LOG,
        "kept": KEPT,
        "fetched": PAGES + 1,
        "dead_after_seconds": 2.0,
        "budget": (2, 1.0),
    }
    return Evidence(**{**given, **changed})  # type: ignore[arg-type]


def test_a_good_run_passes() -> None:
    verdict = judge(evidence(deaths=[Death("w9", 50.0)]))
    assert (verdict.faults, verdict.pages, verdict.twice, verdict.standstill) == ([], PAGES + 1, 0, None)


def test_repeats_of_a_record_are_allowed() -> None:
    """At least once; a consumer knows them by the request id."""
    assert judge(evidence(kept=[*KEPT, *KEPT[:50]])).faults == []


BROKEN: dict[str, tuple[dict[str, object], str]] = {
    "a page was never asked for": ({"log": LOG[1:]}, "never asked for: http://site0.test/p/0"),
    "a hop was never asked for": ({"log": LOG[:-1]}, "never asked for: http://site0.test/r/102/1"),
    "a page has no record": ({"kept": KEPT[1:]}, "without a record"),
    "a failure has no record": ({"kept": [*KEPT[:PAGES], kept(102)]}, "without a record"),
    "a page is recorded as failed": ({"kept": [kept(0, success=False, reason="worker_died"), *KEPT[1:]]}, "without a"),
    "a page is given up for deaths that did not happen": (
        {"kept": [kept(0, success=False, reason="worker_died"), *KEPT[1:]]}, "given up as worker_died"
    ),
    "a failure is recorded as a page": ({"kept": [*KEPT, kept(100)]}, "pages that are none"),
    "a forbidden page was asked for": ({"log": [*LOG, page(101, 104.0)]}, "robots.txt forbids"),
    "a record came from nowhere": ({"kept": [*KEPT, kept(7000)]}, "nobody asked for"),
    "a repeat has another id": ({"kept": [*KEPT, kept(3, request_id="other")]}, "several request ids"),
    "records cannot be read": ({"unreadable": ["pages.jsonl: torn"]}, "unreadable: pages.jsonl"),
    "too many were fetched twice": ({"log": [*LOG, *(page(n, 200.0 + n) for n in range(3))]}, "were fetched again"),
    "it never ended": ({"state": "running"}, "running, not finished"),
    "its end was never told": ({"ends": []}, "told as []"),
    "its end was told twice": ({"ends": ["finished", "finished"]}, "not once"),
    "the frontier counted otherwise": ({"fetched": PAGES}, "counted 100 fetched, not 101"),
    "a key stays": ({"endless": ["gossamer:{0}:q:x"]}, "without an end"),
    "a budget was exceeded": (
        {"log": [*LOG, *(page(100, 100.1 + n / 10, status=404) for n in range(2))]}, "was asked 3"
    ),
    "a process ended badly": ({"troubles": ["w3 ended with exit code 1"]}, "w3 ended"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_found(name: str) -> None:
    changed, told = BROKEN[name]
    assert any(told in fault for fault in judge(evidence(**changed)).faults)


def test_two_in_a_hundred_may_be_fetched_twice() -> None:
    """Where a fault explains each of them; three are too many even so."""
    killed = [Blow(Kind.KILL_WORKER, 0.5, 0.5, "w0"), Blow(Kind.KILL_WORKER, 201.0, 201.0, "w0")]
    again = [*LOG, page(0, 200.0), page(0, 202.0)]
    verdict = judge(evidence(log=again, blows=killed))
    assert (verdict.twice, verdict.faults, verdict.explained) == (2, [], {"kill-worker": 2})
    assert any(
        "3 of 101 pages were fetched again" in f
        for f in judge(evidence(log=[*again, page(1, 300.0)], blows=killed)).faults
    )


def test_a_repeat_that_no_fault_explains_is_a_fault() -> None:
    (fault,) = judge(evidence(log=[*LOG, page(0, 200.0)])).faults
    assert fault == "fetched again, and no fault explains it: http://site0.test/p/0 (by w0 at 0.00, by w0 at 200.00)"


def test_a_machine_that_was_late_too_often_judges_no_budget() -> None:
    times = [(n, 300.0 + n * 0.26) for n in range(12)]
    log = [*LOG, *(page(100, at, status=404) for _, at in times)]
    verdict = judge(evidence(log=log, lags=[(299.0, 306.0)]))
    assert verdict.forgiven == 10
    assert any("10 of 115 requests had to be forgiven" in fault for fault in verdict.faults)


def test_what_a_machine_that_was_late_blurs_is_no_fault() -> None:
    log = [*LOG, *(page(100, 100.1 + 0.6 * n, status=404) for n in range(2))]
    assert judge(evidence(log=log)).faults != []
    assert judge(evidence(log=log, lags=[(99.9, 100.2)])).faults == []
    assert judge(evidence(log=log, lags=[(90.0, 99.0), (101.0, 110.0)])).faults != []
    burst = [*LOG, *(page(100, 100.01, status=404) for _ in range(2))]
    assert judge(evidence(log=burst, lags=[(91.0, 100.0)])).faults != []


def test_it_says_how_blurred_the_budget_was() -> None:
    assert judge(evidence(lags=[(1.0, 1.1), (5.0, 5.3)])).blur == pytest.approx(0.5)
    assert judge(evidence(lags=[(1.0, 31.0)])).blur == pytest.approx(0.9)
    assert judge(evidence(budget=None)).blur == 0.0


def test_what_a_frozen_worker_was_sending_is_no_fault() -> None:
    log = [*LOG, *(page(100, 100.1 + n / 10, agent="w7", status=404) for n in range(2))]
    assert judge(evidence(log=log, thaws=[("w7", 100.05)])).faults == []
    assert judge(evidence(log=log, thaws=[("w8", 100.05)])).faults != []
    assert judge(evidence(log=log, thaws=[("w7", 90.0)])).faults != []


def test_robots_txt_is_in_nobodys_budget() -> None:
    robots = [msgspec.structs.replace(page(0, 5.0 + n / 100), url="x", path="/robots.txt") for n in range(9)]
    assert judge(evidence(log=[*LOG, *robots])).faults == []


# --- a dead worker's work -------------------------------------------------------------------------------------------

LEFT = page(50, 50.0, agent="w1", how=How.LEFT)
"""What the dead worker had under way."""


def died(*more: Record, silences: tuple[tuple[float, float], ...] = ()) -> float | None:
    log = sorted([*(record for record in LOG if record.url != url(50)), LEFT, *more], key=lambda r: r.started)
    return judge(evidence(log=log, deaths=[Death("w1", 50.5)], silences=silences)).standstill


def test_it_stands_still_until_somebody_else_asks() -> None:
    assert died(page(50, 53.0)) == 2.5


def test_the_first_page_taken_over_counts() -> None:
    whole = page(49, 49.0, agent="w1")
    assert died(whole, page(49, 52.5), page(50, 57.0)) == 2.0


def test_what_lasts_too_long_is_a_fault() -> None:
    log = [*(record for record in LOG if record.url != url(50)), LEFT, page(50, 54.6)]
    assert any("stood still for 4.1 s" in f for f in judge(evidence(log=log, deaths=[Death("w1", 50.5)])).faults)


def test_while_nobody_reached_the_store_nobody_could_go_on() -> None:
    assert died(page(50, 60.0), silences=((10.0, 20.0), (49.0, 52.0), (51.0, 54.0), (61.0, 70.0))) == 6.0
    assert died(page(50, 60.0), silences=((49.0, 50.2),)) == 9.5


def test_what_it_had_finished_is_not_its_work() -> None:
    """Another worker asks for a page that had failed under the dead one."""
    failed = page(51, 49.0, agent="w1", status=503)
    assert judge(evidence(log=[*LOG, failed, page(51, 200.0)], deaths=[Death("w1", 50.5)])).standstill is None


def test_what_another_had_asked_for_since_is_not_its_work() -> None:
    log = sorted([*LOG, page(60, 40.0, agent="w1"), page(60, 300.0)], key=lambda record: record.started)
    assert judge(evidence(log=log, deaths=[Death("w1", 70.0)])).standstill is None


def given_up(kills: int) -> list[str]:
    """The faults of a run in which a page was given up after so many of its three workers were killed."""
    asks = [page(0, 200.0 + number, agent=f"w{number}", how=How.LEFT) for number in range(1, 4)]
    return judge(
        evidence(
            log=[*LOG[1:], *asks],
            kept=[kept(0, success=False, reason="worker_died"), *KEPT[1:]],
            fetched=PAGES,
            deaths=[Death(f"w{number}", 200.5 + number) for number in range(1, kills + 1)],
        )
    ).faults


def test_a_page_with_which_three_workers_were_killed_may_be_given_up() -> None:
    assert given_up(3) == []


def test_a_page_with_which_two_workers_were_killed_may_not_be_given_up() -> None:
    assert any("given up as worker_died" in fault and url(0) in fault for fault in given_up(2))


def test_a_page_whose_browser_was_hit_in_its_last_attempt_may_be_given_up() -> None:
    log, given = [*LOG, page(0, 150.0)], [kept(0, success=False, reason="browser_crashed"), *KEPT[1:]]
    hit = Blow(Kind.KILL_RENDERER, 150.5, 150.6, "w0")
    assert given_up_by_browsers(log, given, [hit]) == {url(0)}
    assert given_up_by_browsers(log, [*given, kept(0)], [hit]) == set(), "another worker had it"
    assert given_up_by_browsers(LOG, given, [hit]) == set(), "its first attempt was the only one"
    assert given_up_by_browsers(log, given, [Blow(Kind.KILL_RENDERER, 50.5, 50.6, "w0")]) == set()
