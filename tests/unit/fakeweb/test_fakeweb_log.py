"""The log answers truthfully: compared with slow, obvious ways to count."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.fakeweb.journal import How, Journal, Record
from gossamer_fakeweb.log import by_domain, domain_of, fetches, max_concurrency, max_in_any_window, read, repeated


def record(
    started: float, ended: float | None = None, *, host: str = "a.test", path: str = "/", how: How = How.WHOLE
) -> Record:
    return Record(
        url=f"http://{host}{path}",
        host=host,
        path=path,
        method="GET",
        status=200,
        how=how,
        started=started,
        ended=ended,
        wall=started,
        agent="",
        connection=1,
    )


moments = st.integers(0, 40).map(lambda tenths: tenths / 8)


@given(st.lists(moments), st.integers(1, 16).map(lambda eighths: eighths / 8))
def test_the_fullest_window_is_found(starts: list[float], window: float) -> None:
    slow = max((sum(start <= other < start + window for other in starts) for start in starts), default=0)
    assert max_in_any_window([record(start) for start in starts], "a.test", window) == slow


@given(st.lists(st.tuples(moments, moments.filter(bool))))
def test_the_busiest_moment_is_found(spans: list[tuple[float, float]]) -> None:
    records = [record(start, start + length) for start, length in spans]
    slow = max((sum(s <= start < s + length for s, length in spans) for start, _ in spans), default=0)
    assert max_concurrency(records, "a.test") == slow


def test_one_request_after_another_is_no_concurrency() -> None:
    assert max_concurrency([record(1, 2), record(2, 3), record(3, 4)], "a.test") == 1


def test_a_request_without_an_end_goes_on() -> None:
    assert max_concurrency([record(1), record(5, 6), record(7, 8)], "a.test") == 2


def test_a_domain_counts_its_hosts_and_robots_txt_is_outside_the_budget() -> None:
    records = [record(1, 2, host="a.test"), record(1, 2, host="x.a.test"), record(1, 2, host="ba.test")]
    records.append(record(1, 2, host="a.test", path="/robots.txt"))
    assert max_in_any_window(records, "a.test", 1) == 2
    assert max_in_any_window(records, "x.a.test", 1) == 1
    assert max_concurrency(records, "a.test") == 2
    assert max_concurrency(records, "a.test", counted=lambda _: True) == 3
    assert max_concurrency(records, "nobody.test") == 0
    assert {domain: len(several) for domain, several in by_domain(records).items()} == {"a.test": 3, "ba.test": 1}
    assert domain_of("x.y.a.test") == domain_of("a.test") == "a.test"


def test_what_was_fetched_twice_for_nothing() -> None:
    records = [record(1, 2, path="/twice"), record(2, 3, path="/twice"), record(4, 5, path="/once")]
    records += [record(1, 2, path="/again", how=How.RESET), record(2, 3, path="/again")]
    assert fetches(records) == {"http://a.test/twice": 2, "http://a.test/once": 1, "http://a.test/again": 2}
    assert repeated(records) == {"http://a.test/twice": 2}


def test_a_journal_keeps_every_request_in_memory_and_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "log"
    journal = Journal(base="http://{host}:80", file=file)
    first = journal.begin("a.test", "/1", "GET", 200, "spider", 1)
    second = journal.begin("a.test", "/2", "HEAD", 0, "", 2)
    journal.begin("a.test", "/3", "GET", 200, "spider", 2)
    journal.end(second, How.REFUSE)
    journal.end(first, How.WHOLE)
    records = list(journal.records())
    journal.close()
    journal.close()
    assert read(file) == records
    assert [(r.url, r.method, r.status, r.how, r.agent, r.connection) for r in records] == [
        ("http://a.test:80/1", "GET", 200, How.WHOLE, "spider", 1),
        ("http://a.test:80/2", "HEAD", 0, How.REFUSE, "", 2),
        ("http://a.test:80/3", "GET", 200, How.OPEN, "spider", 2),
    ]
    assert [r.ended is None for r in records] == [False, False, True]
    assert all(r.started <= (r.ended or r.started) for r in records)


def test_a_journal_that_was_cleared_ignores_what_began_before() -> None:
    journal = Journal(base="http://{host}")
    old = journal.begin("a.test", "/old", "GET", 200, "", 1)
    journal.clear()
    new = journal.begin("a.test", "/new", "GET", 200, "", 1)
    journal.end(old, How.LEFT)
    assert [(r.path, r.how) for r in journal.records()] == [("/new", How.OPEN)]
    journal.end(new, How.WHOLE)
    assert [(r.path, r.how) for r in journal.records()] == [("/new", How.WHOLE)]


def test_a_full_journal_says_what_it_missed() -> None:
    journal = Journal(base="http://{host}", limit=2)
    numbers = [journal.begin("a.test", f"/{n}", "GET", 200, "", 1) for n in range(5)]
    for number in numbers:
        journal.end(number, How.WHOLE)
    assert (len(journal), journal.missed) == (2, 3)


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("hello\n")
    with pytest.raises(msgspec.DecodeError):
        read(tmp_path / "log")
