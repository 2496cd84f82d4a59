"""Progress, as a person sees it."""

import io
import re
import time
from typing import Any

import msgspec
import pytest
from rich.console import Console

from gossamer.cli import summary
from gossamer.cli.commands.crawls import _domains_table
from gossamer.cli.summary import Display, waiting_text
from gossamer.cli.terminal import cut
from gossamer.crawling.work import Snapshot
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.info import CrawlInfo, NextRetry, SpiderCounts
from gossamer.telemetry.tally import OriginWait, Tally, WorkerCounts


def test_what_is_waited_for_is_named_with_its_reason() -> None:
    now = time.time()
    tally = Tally(
        waits={"http://b.test": OriginWait("503", now + 600), "http://a.test:81": OriginWait("429", now + 42)}
    )
    line = waiting_text(tally)
    assert line.startswith("robots.txt of http://a.test:81 (429; asked again in 4")
    assert line.endswith(" s), and of 1 more")
    due = Tally(waits={"http://b.test": OriginWait("503", now - 5)})
    assert waiting_text(due).endswith("(503; asked again in 0.0 s)")


def test_the_live_lines_show_it() -> None:
    """And nothing of it where nothing is waited for."""
    for waits, shown in (({"http://a.test": OriginWait("503", time.time() + 60)}, True), ({}, False)):
        written = io.StringIO()
        with Display("Crawling", console=Console(file=written, force_terminal=True, width=200)) as display:
            display.update(Snapshot(Tally(waits=waits), None, 1.0))
        assert ("waiting: robots.txt of http://a.test (503" in written.getvalue()) == shown


def test_domains_that_rest_after_a_refusal_are_shown() -> None:
    counts, other = WorkerCounts(Tally()), Tally(rests={"a.test": 1.0, "b.test": time.time() + 600})
    counts.rest("a.test", 90.0)
    counts.rest("a.test", 20.0)
    counts.rest("over.test", 0.0)
    counts.show()
    written = io.StringIO()
    with Display("Crawling", console=Console(file=written, force_terminal=True, width=200)) as display:
        display.update(Snapshot(counts.tally.plus(other), None, 1.0))
    assert "resting after a refusal: a.test (for 1 min " in written.getvalue()
    assert "), and 1 more" in written.getvalue()


def test_what_several_processes_wait_for_is_told_once() -> None:
    wait = OriginWait("503", 1.0)
    both = Tally(waits={"http://a.test": wait}).plus(Tally(waits={"http://a.test": wait, "http://b.test": wait}))
    assert sorted(both.waits) == ["http://a.test", "http://b.test"]


def test_retries_are_shown_with_what_went_wrong() -> None:
    """A mistyped host is seen while it is tried, not only when it has failed."""
    written = io.StringIO()
    one, other = Tally(), Tally()
    one.retry("dns")
    other.retry("dns")
    other.retry("http_503")
    with Display("Crawling", console=Console(file=written, force_terminal=True, width=200)) as display:
        display.update(Snapshot(one.plus(other), None, 1.0))
    assert "failed: none   retries: 3 (dns 2, http_503 1)" in written.getvalue()


def shown(snapshots: list[Snapshot], *, width: int = 80, max_pages: int | None = None, **console: Any) -> str:
    """The last of the progress that these snapshots show."""
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=width, **console)
    with Display("Crawling http://a.test/", console=terminal, max_pages=max_pages) as display:
        for snapshot in snapshots:
            written.truncate(0)
            written.seek(0)
            display.update(snapshot)
        return written.getvalue()


def plain(text: str) -> list[str]:
    """Its lines without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text).splitlines()


def state(*, added: int, queued: int, fetched: int, later: int = 0) -> CrawlInfo:
    counts = SpiderCounts(added=added, queued=queued, fetched=fetched, later=later)
    return CrawlInfo(CrawlId("cli", "one"), "one", CrawlState.RUNNING, 1, 0.0, None, 2, 0, spiders={"link": counts})


class Clock:
    seconds = 100.0

    def monotonic(self) -> float:
        self.seconds += 5.0
        return self.seconds

    time = staticmethod(time.time)


@pytest.mark.parametrize(
    ("added", "max_pages", "estimate"),
    [
        (600, None, "500 queued on 2 domains; about 50 s left"),
        (650, None, "at least 50 s left"),
        (600, 150, "5 s left"),
    ],
    ids=["a queue that shrinks", "one that grows", "a limit of pages"],
)
def test_what_is_left_is_estimated_honestly(
    monkeypatch: pytest.MonkeyPatch, added: int, max_pages: int | None, estimate: str
) -> None:
    """Fifty pages in five seconds; five hundred are left, or fifty of those that may be fetched."""
    monkeypatch.setattr(summary, "time", Clock())
    before = Snapshot(Tally(pages=50), state(added=600, queued=550, fetched=50), 5.0)
    now = Snapshot(Tally(pages=100), state(added=added, queued=500, fetched=100), 10.0)
    assert estimate in shown([before, now], max_pages=max_pages)


def test_waiting_retries_make_the_estimate_a_lower_bound_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows here when a retry is due."""
    monkeypatch.setattr(summary, "time", Clock())
    before = Snapshot(Tally(pages=50), state(added=600, queued=540, later=10, fetched=50), 5.0)
    now = Snapshot(Tally(pages=100), state(added=600, queued=490, later=10, fetched=100), 10.0)
    assert "500 queued on 2 domains, 10 of them for a retry; at least 50 s left" in shown([before, now])
    only_retries = Snapshot(Tally(pages=100), state(added=600, queued=0, later=10, fetched=590), 10.0)
    assert "left" not in shown([before, only_retries])


def test_the_next_retry_is_shown_with_its_host_and_what_failed_before() -> None:
    """The failed attempts are those of the crawl, where this command, which resumes it, has had none."""
    counts = SpiderCounts(added=15, later=10, fetched=5, retried={"connect": 10})
    info = msgspec.structs.replace(state(added=15, queued=0, fetched=5), spiders={"link": counts})
    text = shown([Snapshot(Tally(), info, 9.0, NextRetry("a.test", time.time() + 300.2))], width=120)
    assert re.search(r"10 queued on 2 domains, 10 of them for a retry; next retry in (300|29\d) s: a.test", text)
    assert "attempts that failed before: connect 10" in text
    assert "next retry" not in shown([Snapshot(Tally(), info, 9.0, NextRetry("a.test", time.time() - 1))])


def test_nothing_is_estimated_without_a_rate() -> None:
    stuck = Snapshot(Tally(), state(added=600, queued=600, fetched=0), 10.0)
    assert "left" not in shown([stuck, stuck])


def test_classes_of_responses_and_what_is_fetched_now_are_shown() -> None:
    tally = Tally(responses={200: 1200, 204: 3, 301: 2, 404: 7, 503: 1}, failed={"http_404": 7, "dns": 2})
    tally.fetching = {"http://a.test/slow": 12.3, "http://a.test/quick": 0.2}
    lines = plain(shown([Snapshot(tally, None, 1.0)]))
    assert "  2xx 1,203   3xx 2   4xx 7   5xx 1   other failures 2" in [line.rstrip() for line in lines]
    assert "  now http://a.test/slow (12.3 s)" in lines
    assert "      http://a.test/quick" in lines


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    tally = Tally(responses=dict.fromkeys(range(200, 600), 1_000_000), retried={"http_503": 10**9, "dns": 10**9})
    tally.fetching = {f"http://a.test/{'x' * 300}/end": 3.0}
    text = shown([Snapshot(tally, state(added=10**9, queued=10**8, fetched=10**8, later=10**7), 1.0)], width=width)
    lines = plain(text)
    assert len(lines) == 6
    assert max(map(len, lines)) <= width
    assert lines[-1].endswith("/end (3.0 s)")


def test_there_is_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Snapshot(Tally(responses={200: 1, 404: 1}), None, 1.0)
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
    assert colour.search(shown([snapshot], color_system="standard"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.search(shown([snapshot], color_system="standard"))


def test_a_long_text_loses_its_middle() -> None:
    assert cut("http://a.test/", 20) == "http://a.test/"
    assert cut("http://a.test/0123456789/end", 20) == "http://a.test…89/end"
    assert len(cut("x" * 100, 1)) == 1


def test_priorities_of_a_domain_are_a_range_only_where_they_differ() -> None:
    screen = io.StringIO()
    domains = {
        "a.test": {"total": 7, "high_priority": -9, "low_priority": -9},
        "b.test": {"total": 3, "high_priority": 5, "low_priority": -1},
    }
    Console(file=screen, width=80).print(_domains_table(domains))
    assert [line.split() for line in screen.getvalue().splitlines()[1:]] == [
        ["a.test", "7", "-9"], ["b.test", "3", "5", "to", "-1"]
    ]  # fmt: skip
