"""Progress, as a person sees it."""

import io
import time

from rich.console import Console

from gossamer.cli.summary import Display, waiting_text
from gossamer.crawling.work import Snapshot
from gossamer.telemetry.tally import OriginWait, Tally


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
    assert "errors: none   retries: 3 (dns 2, http_503 1)" in written.getvalue()
