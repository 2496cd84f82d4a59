"""Crawlers of the comparison: what is not installed is left out, with the reason."""

from pathlib import Path

import pytest

from bench import crawlers
from bench.crawl import _row
from bench.crawlers import CRAWLERS, Crawler, Job
from bench.websites import websites


def _crawler(home: Path) -> Crawler:
    return Crawler("spider", "spider (Rust)", lambda job: [], needs=home / "spider" / "bench-spider")


def test_the_reason_of_the_installation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawlers, "BUILT", tmp_path)
    crawler = _crawler(tmp_path)
    assert crawler.missing == "not installed"
    (tmp_path / "spider.skipped").write_text("there is no cargo\n")
    assert crawler.missing == "there is no cargo"
    (tmp_path / "spider").mkdir()
    (tmp_path / "spider" / "bench-spider").touch()
    assert not crawler.missing


def test_a_crawler_that_is_left_out_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is served or run for it."""
    monkeypatch.setattr(crawlers, "BUILT", tmp_path)
    row = _row(websites(quick=True)[0], None, _crawler(tmp_path), 1, {})  # type: ignore[arg-type]
    assert row.left_out
    assert not row.measured
    assert row.note == "left out: not installed"


def test_all_crawlers_get_the_same_job(tmp_path: Path) -> None:
    job = Job(tmp_path / "seeds", tmp_path / "pages.jsonl", "127.0.0.1:80", tmp_path, "redis://127.0.0.1")
    for crawler in CRAWLERS:
        words = crawler.command(job)
        assert f"--seeds={job.seeds}" in words, crawler.name
        assert f"--output={job.output}" in words, crawler.name
        assert "--concurrency=64" in words, crawler.name
