"""What a person reads at the end."""

import json

import pytest

from gossamer.cli.summary import Summary
from gossamer.cli.terminal import without_passwords
from gossamer.telemetry.tally import Tally


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("ftp://me:secret@ftp.test/pages.jsonl", "ftp://me:***@ftp.test/pages.jsonl"),
        (
            "gossamer crawl http://a.test/ --proxy http://u:p@w.test:3128",
            "gossamer crawl http://a.test/ --proxy http://u:***@w.test:3128",
        ),
        ("pages.jsonl", "pages.jsonl"),
        ("http://a.test/x:y@z", "http://a.test/x:y@z"),
    ],
)
def test_passwords_are_not_shown(text: str, safe: str) -> None:
    assert without_passwords(text) == safe


def test_no_output_is_named_that_nothing_was_written_to() -> None:
    summary = Summary("one", None, Tally(), 1.0, ("pages.jsonl",))
    assert "pages.jsonl" not in summary.as_text()
    assert json.loads(summary.as_json())["pages"] == 0


def test_a_worker_is_no_crawl_that_was_interrupted() -> None:
    said = Summary("of the pool shared", None, Tally(pages=2), 1.0, ("pages.jsonl",), interrupted=True, pool="shared")
    assert said.as_text().startswith("The worker for the pool shared has stopped;")
    assert "pages are in pages.jsonl" in said.as_text()


def test_a_crawl_that_was_finished_before_says_where_its_pages_are() -> None:
    said = Summary("one", None, Tally(), 0.0, ("pages.jsonl",), already_finished=True)
    assert "pages are in pages.jsonl" in said.as_text()
