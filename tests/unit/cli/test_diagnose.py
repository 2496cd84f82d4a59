"""`gossamer diagnose` on recordings in a folder: which one it takes, what it predicts, and how it compares two runs."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.cli.app import parse_and_run
from gossamer.errors import BadInput
from gossamer.fakeweb.benchmark import BenchmarkOptions
from gossamer.model.performance import MeasuredProcess, Measurement, StageLimits
from gossamer.policy.words import duration_text
from gossamer.telemetry.recordings import COLUMNS, RecordingFile, log_row


def record(
    folder: Path,
    name: str,
    *,
    started: float,
    rate: int,
    seconds: int = 10,
    requests: int = 16,
    pid: int = 7,
    host: str = "",
    knobs: dict[str, int | float | str | bool] | None = None,
    **figures: Any,
) -> Path:
    """Keep the recording of a crawl of so many seconds, with so many pages a second."""
    limits = StageLimits(requests=requests, site_requests=16, items=100, bytes=5_000_000)
    process = MeasuredProcess(
        name=name, kind="scrapy", host=host, pid=pid, started=started, limits=limits, knobs=knobs or {}
    )
    file = RecordingFile(folder / "performance", process)
    given = {
        "requested": rate, "responses": rate, "page_responses": rate, "items": rate, "response_seconds": 0.25 * rate,
        "loop_cpu": 0.005 * rate, "cpu": 0.005 * rate, **figures,
    }  # fmt: skip
    for second in range(seconds):
        file.append(Measurement(at=started + second + 1, **given))
    file.close(started + seconds)
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
    assert "scheduler empty, 8 items/s." in text
    assert "start requests (times) 1 -> 8: 64 items/s; this run: 56 (-12%)" in text
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
    with pytest.raises(
        BadInput, match=r"neither a recording nor a log .* every GOSSAMER_PERFORMANCE_LOG seconds \(5\)"
    ):
        parse_and_run(["diagnose", str(tmp_path / "scrapy.log")])
    with pytest.raises(BadInput, match="there is no recording of nothing in"):
        parse_and_run(["diagnose", "nothing", "--data-dir", str(folder)])
    for missing in ("missing.log", "logs/missing", str(tmp_path / "missing.jsonl")):
        with pytest.raises(BadInput, match=r"there is no file .*missing"):
            parse_and_run(["diagnose", missing, "--data-dir", str(folder)])
    empty = record(tmp_path, "empty", started=4000, rate=0)
    with pytest.raises(BadInput, match=r"no response was measured in the 10\.0 s of this crawl"):
        parse_and_run(["diagnose", str(empty)])


FULL: dict[str, Any] = {"downloader": 15.0, "pages": 15.0, "scheduler": 300.0}
"""Figures of a healthy crawl, whose advice is more requests at once."""


def before(capsys: pytest.CaptureFixture[str], folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(said(capsys, folder, "prices", "--json"))["before"]
    return found


def test_a_run_that_was_too_short_is_not_compared_and_the_one_before_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, "prices", started=1000, rate=50, **FULL)
    record(tmp_path, "prices", started=1500, rate=90, seconds=2, **FULL)
    record(tmp_path, "prices", started=2000, rate=50, **FULL)
    assert before(capsys, tmp_path)["rate"] == 50
    (tmp_path / "performance").joinpath("prices--7-1000.jsonl").unlink()
    text = said(capsys, tmp_path, "prices")
    assert "not compared  only 2.0 s with 180 pages of it were measured; 5 s and 20 pages are needed" in text
    assert "%)" not in text


def test_pages_are_not_compared_with_items(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, "prices", started=1000, rate=50, items=0, **FULL)
    record(tmp_path, "prices", started=2000, rate=50, **FULL)
    text = said(capsys, tmp_path, "prices")
    assert "its throughput is counted in pages, that of this run in items" in text
    assert "%)" not in text


def test_runs_on_different_machines_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, "prices", started=1000, rate=50, host="large", **FULL)
    record(tmp_path, "prices", started=2000, rate=50, host="small", **FULL)
    assert before(capsys, tmp_path)["refused"] == "it ran on another machine, large"


def test_cases_of_a_benchmark_with_other_options_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The advice is to raise --concurrency; only runs are compared that differ in nothing else."""
    knobs = BenchmarkOptions().knobs
    record(tmp_path, "prices", started=1000, rate=50, knobs=knobs, **FULL)
    record(tmp_path, "prices", started=2000, rate=20, knobs={**knobs, "pipeline_time": 0.1}, **FULL)
    text = said(capsys, tmp_path, "prices")
    assert "another option differs: --pipeline-time was 0.0, that of this run is 0.1" in text
    assert "%)" not in text
    record(tmp_path, "prices", started=3000, rate=90, requests=24, knobs={**knobs, "concurrency": 24}, **FULL)
    text = said(capsys, tmp_path, "prices")
    assert "50 items/s then, 90 now (+80%)" in text  # with the first, not with the one between


def test_a_prediction_counts_only_where_the_advice_was_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, "prices", started=1000, rate=50, **FULL)
    advice = msgspec.json.decode(said(capsys, tmp_path, "prices", "--json"))
    after, promised = int(advice["advice"]["after"]), advice["predicted"]
    record(tmp_path, "prices", started=2000, rate=50, **FULL)
    assert "CONCURRENT_REQUESTS is 16 as before: 50 items/s then, 50 now (+0%)" in said(capsys, tmp_path, "prices")
    record(tmp_path, "prices", started=2000, rate=90, requests=after // 2, **FULL)
    text = said(capsys, tmp_path, "prices")
    assert f"CONCURRENT_REQUESTS is {after // 2}, not {after} as advised: 50 items/s then, 90 now (+80%)" in text
    record(tmp_path, "prices", started=2000, rate=160, requests=after, **FULL)
    text = said(capsys, tmp_path, "prices")
    assert f"CONCURRENT_REQUESTS 16 -> {after}: {promised:g} items/s; this run: 160 (+0%)" in text


def test_processes_of_one_crawl_are_summed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    busy = {**FULL, "loop_cpu": 0.97, "cpu": 0.97, "idle_cpus": 1.0}
    record(tmp_path, "prices", started=1000, rate=50, **busy)
    record(tmp_path, "prices", started=2000, rate=48, pid=8, **busy)
    record(tmp_path, "prices", started=2001, rate=46, pid=9, **busy)
    text = said(capsys, tmp_path, "prices")
    assert "2 processes: 46 + 48 = 94 items/s" in text
    assert "processes 1 -> 2: 100 items/s; this run: 94 (-6%)" in text


def test_the_predicted_time_of_a_job_is_that_of_all_processes_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, "prices", started=2000, rate=30, pid=8, **FULL)
    record(tmp_path, "prices", started=2001, rate=50, pid=9, **FULL)
    text = said(capsys, tmp_path, "prices", "--pages", "80000")
    assert "job time      of this process: 500 pages x " in text
    assert "a job of 80,000 pages would take 16 min 40 s with 2 processes" in text


def test_of_the_processes_of_a_crawl_one_with_pages_is_diagnosed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, "prices", started=2000, rate=48, pid=8, **FULL)
    record(tmp_path, "prices", started=2001, rate=0, pid=9)  # it measured last
    assert "process       8," in said(capsys, tmp_path, "prices")
    with pytest.raises(BadInput, match="no response was measured"):
        said(capsys, tmp_path, "9")


def test_a_run_that_was_killed_may_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed = record(tmp_path, "prices", started=1000, rate=50, pid=2**22 + 1, host=os.uname().nodename, **FULL)
    killed.write_bytes(b"".join(killed.read_bytes().splitlines(keepends=True)[:-1]))
    os.utime(killed, (1000, 1000))
    record(tmp_path, "prices", started=2000, rate=50, host=os.uname().nodename, **FULL)
    assert before(capsys, tmp_path)["refused"] == ""


NUMBER = r"([\d,]+(?:\.\d+)?)"


@pytest.mark.parametrize(
    ("rate", "inside"), [(3, 0.34), (56, 15.0), (7, 0.0449), (411, 63.7), (1, 16.0)], ids=lambda value: str(value)
)
def test_the_arithmetic_that_is_shown_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: int, inside: float
) -> None:
    record(tmp_path, "prices", started=1000, rate=rate, seconds=40, downloader=inside, pages=inside, scheduler=900.0)
    text = said(capsys, tmp_path, "prices")
    job = re.search(
        rf"{NUMBER} pages x \({NUMBER} s response \+ {NUMBER} s overhead\) / {NUMBER} \+ {NUMBER} s = (.*)", text
    )
    assert job is not None
    pages, response, overhead, concurrency, start_stop = (float(part.replace(",", "")) for part in job.groups()[:5])
    assert job[6] == duration_text(pages * (response + overhead) / concurrency + start_stop)
    assert pages * (response + overhead) / concurrency == pytest.approx(40, rel=0.002)
    rows = re.findall(rf"^  \w+ +{NUMBER} +{NUMBER} +{NUMBER}$", text, re.MULTILINE)
    assert len(rows) == 4
    for number, out, seconds in rows:
        assert float(out) * float(seconds) == pytest.approx(float(number), rel=0.001, abs=1e-6)
    if given := re.search(rf"should give +{NUMBER} x {NUMBER} = {NUMBER} ", text):
        now, factor, then = map(float, given.groups())
        assert now * factor == pytest.approx(then, rel=0.001)


def test_a_folder_or_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="this is no file"):
        parse_and_run(["diagnose", str(tmp_path)])
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 1000)
    with pytest.raises(BadInput, match="neither a recording nor a log"):
        parse_and_run(["diagnose", str(tmp_path / "binary")])


def test_a_log_of_any_size_is_read_with_bounded_memory(tmp_path: Path) -> None:
    rows = [COLUMNS, *(log_row(Measurement(at=float(at), page_responses=9, items=9, downloader=16.0)) for at in (1, 2))]
    path = tmp_path / "large.log"
    with path.open("w") as file:
        file.write("x" * 5_000_000 + "\n")  # a line without an end
        for _ in range(15_000):
            file.writelines(f"INFO: Performance: {row}\n" for row in rows)
    program = (
        "import resource, sys\n"
        "from gossamer.cli.app import parse_and_run\n"
        "parse_and_run(['--help'])\n"
        "parse_and_run(['diagnose', '--json', sys.argv[1]])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
    )
    sizes = []
    for number in (100_000, None):
        given = path if number is None else tmp_path / "small.log"
        if number is not None:
            given.write_text(path.read_text()[5_000_001 : 5_000_001 + number])
        ran = subprocess.run([sys.executable, "-c", program, str(given)], capture_output=True, text=True, check=True)
        assert '"rate":9.0' in ran.stdout
        sizes.append(int(ran.stderr.splitlines()[-1]))
    assert sizes[1] - sizes[0] < 12_000  # kilobytes; the log has more than 10 MB


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
        parse_and_run(["bench", option, value])
    assert str(caught.value) == message


def test_wrong_numbers_for_a_diagnosis_are_refused() -> None:
    with pytest.raises(BadInput, match="--pages: 0 is no number of pages"):
        parse_and_run(["diagnose", "--pages", "0"])
    with pytest.raises(BadInput, match="--interval: 0 is no time between lines"):
        parse_and_run(["diagnose", "--interval", "0"])
