"""`gossamer diagnose` on recordings in a folder: which one it takes, what it predicts, and how it compares two runs."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.cli.app import parse_and_run
from gossamer.errors import BadInput
from gossamer.model.performance import MeasuredProcess, Measurement, StageLimits
from gossamer.telemetry.recordings import RecordingFile


def record(folder: Path, name: str, *, started: float, rate: int, **figures: Any) -> Path:
    """Keep the recording of a crawl of ten seconds, with so many pages a second."""
    limits = StageLimits(requests=16, site_requests=16, items=100, bytes=5_000_000)
    file = RecordingFile(
        folder / "performance", MeasuredProcess(name=name, kind="scrapy", pid=7, started=started, limits=limits)
    )
    for second in range(10):
        file.append(
            Measurement(
                at=started + second + 1, requested=rate, responses=rate, page_responses=rate, items=rate,
                response_seconds=0.25 * rate, loop_cpu=0.005 * rate, cpu=0.005 * rate, **figures,
            )
        )  # fmt: skip
    file.close(started + 10)
    os.utime(file.path, (started, started))
    return file.path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    record(tmp_path, "prices", started=1000, rate=8, downloader=2.0, pages=2.0, scheduler_empty=1.0)
    record(tmp_path, "prices", started=2000, rate=56, downloader=15.0, pages=15.0, scheduler=30.0)
    record(tmp_path, "other", started=3000, rate=4, downloader=1.0, pages=1.0, scheduler_empty=1.0)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> str:
    assert parse_and_run(["diagnose", *arguments, "--data-dir", str(folder)]) == 0
    return capsys.readouterr().out


def test_the_second_run_is_compared_with_what_the_first_one_promised(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, folder, "prices")
    assert text.startswith("prices: healthy")
    assert "scheduler empty, 8.0 items/s." in text
    assert "predicted for start requests (times) 1 -> 8: 64.0 items/s; this run: 56.0 (-12%)" in text
    shown = msgspec.json.decode(said(capsys, folder, "prices", "--json"))
    assert (shown["case"], shown["before"]["case"]) == ("healthy", "scheduler_empty")
    assert shown["before"]["predicted"] == pytest.approx(64)


def test_without_a_name_the_latest_is_diagnosed_and_has_nothing_to_be_compared_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, folder, "--pages", "4000")
    assert text.startswith("other: the scheduler is empty")
    assert "The run before" not in text
    assert "a job of 4,000 pages would take 16 min 40 s; after the change: 2 min 5 s" in text


def test_a_recording_may_be_named_by_its_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = min((folder / "performance").iterdir(), key=lambda path: path.stat().st_mtime)
    assert said(capsys, Path("elsewhere"), str(first)).startswith("prices: the scheduler is empty")


def test_what_is_no_recording_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "scrapy.log").write_text("2030-01-01 INFO: Spider opened\n")
    with pytest.raises(BadInput, match="neither a recording nor a log"):
        parse_and_run(["diagnose", str(tmp_path / "scrapy.log")])
    with pytest.raises(BadInput, match="there is no recording of nothing in"):
        parse_and_run(["diagnose", "nothing", "--data-dir", str(folder)])
    empty = record(tmp_path, "empty", started=4000, rate=0)
    with pytest.raises(BadInput, match="no responses were measured yet"):
        parse_and_run(["diagnose", str(empty)])


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--pipeline", "blok", "--pipeline: cannot read 'blok'. Write none, wait, block, cpu, threads or store."),
        ("--items", "0", "--items: cannot use 0. Write 1 or more."),
        ("--api-time", "inf", "--api-time: cannot use inf. Write 0 or more."),
        ("--processes", "-1", "--processes: cannot use -1. Write 1 or more."),
    ],
)
def test_a_benchmark_with_a_wrong_option_names_what_can_be_written(option: str, value: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_and_run(["bench", "spider", option, value])
    assert str(caught.value) == message


def test_wrong_numbers_for_a_diagnosis_are_refused() -> None:
    with pytest.raises(BadInput, match="--pages: 0 is no number of pages"):
        parse_and_run(["diagnose", "--pages", "0"])
    with pytest.raises(BadInput, match="--interval: 0 is no time between lines"):
        parse_and_run(["diagnose", "--interval", "0"])
