"""What a person reads at the end."""

import json

import pytest

from gossamer.cli.summary import Summary, error_lines, failing_lines
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.info import CrawlInfo, SpiderCounts
from gossamer.telemetry.tally import HostCount, Tally, WorkerCounts


def test_no_output_is_named_that_nothing_was_written_to() -> None:
    summary = Summary("one", None, Tally(), 1.0, ("pages.jsonl",))
    assert "pages.jsonl" not in summary.as_text()
    assert json.loads(summary.as_json())["pages"] == 0


def test_a_worker_is_no_crawl_that_was_interrupted() -> None:
    said = Summary("of the pool shared", None, Tally(pages=2), 1.0, ("pages.jsonl",), interrupted=True, pool="shared")
    assert said.as_text().startswith("The worker for the pool shared has stopped;")
    assert "pages are in pages.jsonl" in said.as_text()


def test_a_crawl_that_another_command_starts_again_meanwhile_is_not_unknown() -> None:
    info = CrawlInfo(CrawlId("cli", "one"), "one", CrawlState.RUNNING, 1, 0.0, None, domains=1, seen=3)
    said = Summary("one", info, Tally(pages=2), 1.0, ("pages.jsonl",))
    assert said.as_text().startswith("The crawl one ended; another command has started it again meanwhile.")


@pytest.mark.parametrize(
    ("here", "abandoned", "written", "said"),
    [
        (34, 16, 18, "written in all: 18 pages; pages not written are fetched again"),
        (34, 16, 58, "written in all: 58 pages; pages not written are fetched again"),  # 40 by earlier commands
        (34, 0, 58, "in all: 58 pages"),
        (34, 0, 34, ""),
    ],
)
def test_pages_that_were_fetched_and_not_written_are_not_missing_from_the_sum(
    here: int, abandoned: int, written: int, said: str
) -> None:
    info = CrawlInfo(CrawlId("cli", "one"), "one", CrawlState.RUNNING, 1, 0.0, None, domains=1, seen=3)
    info.spiders["link"] = SpiderCounts(fetched=written)
    tally = Tally(pages=here, abandoned=abandoned)
    lines = Summary("one", info, tally, 1.0, ("pages.jsonl",), interrupted=True).as_text().splitlines()
    assert [line.strip() for line in lines if "in all" in line] == ([said] if said else [])


def test_a_crawl_that_was_finished_before_says_where_its_pages_are() -> None:
    said = Summary("one", None, Tally(), 0.0, ("pages.jsonl",), already_finished=True)
    assert "pages are in pages.jsonl" in said.as_text()


def test_responses_errors_and_hosts_are_told_in_words() -> None:
    tally = Tally(pages=90)
    counts = WorkerCounts(tally)
    for name, seconds in (("fast.test", 0.02), ("slow.test", 2.5)):
        for _ in range(45):
            counts.count_response(name, 200, seconds)
    for number in range(3):
        counts.count_response("fast.test", 404, 0.02)
        counts.fail("fast.test", "http_404", f"http://fast.test/{number}")
    counts.fail("gone.test", "tls", "https://gone.test/")
    counts.show()
    lines = Summary("one", None, tally, 10.0, ("pages.jsonl",)).as_text().splitlines()
    assert lines[2:4] == [
        "  status codes: 200 90, 404 3; 1.2 s on average",
        "  slowest hosts: slow.test 2.5 s, fast.test 20 ms",
    ]
    assert error_lines(tally.failed, tally.examples) == [
        "404 Not Found: 3, for example http://fast.test/0",
        "The secure connection could not be established: 1, for example https://gone.test/ (The field exception of "
        "its record has the cause. Where it is the certificate, --ca-file names an authority of your own, and "
        "--insecure accepts any.)",
    ]
    assert failing_lines(tally) == ["    most on: fast.test 3, gone.test 1"]


def test_the_same_is_in_the_json() -> None:
    tally = Tally(responses={200: 2, 404: 1}, failed={"http_404": 1}, examples={"http_404": "http://a.test/x"})
    tally.hosts = {"a.test": HostCount(3, 0.3, 1)}
    told = json.loads(Summary("one", None, tally, 1.0, ()).as_json())
    assert told["status_codes"] == {"200": 2, "404": 1}
    assert told["slowest_hosts"] == [{"host": "a.test", "responses": 3, "seconds": 0.1}]
    assert told["failing_hosts"] == [{"host": "a.test", "failed": 1}]
    assert told["errors"] == [{"reason": "http_404", "text": "404 Not Found", "count": 1, "example": "http://a.test/x"}]


def test_one_host_is_not_compared_with_itself() -> None:
    counts = WorkerCounts(Tally(pages=1))
    counts.count_response("a.test", 200, 0.1)
    counts.fail("a.test", "http_404", "http://a.test/")
    counts.show()
    assert "slowest hosts" not in Summary("one", None, counts.tally, 1.0, ()).as_text()
    assert failing_lines(counts.tally) == []
