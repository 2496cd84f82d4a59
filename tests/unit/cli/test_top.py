"""`gossamer top` on recordings in a folder: columns by the width of the terminal, sums, and silent processes."""

import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from gossamer.cli.app import parse_and_run
from gossamer.cli.performance_report import advice_lines, process_rows
from gossamer.errors import BadInput
from gossamer.model.performance import MeasuredProcess, Measurement, StageLimits
from gossamer.telemetry.metrics import Metrics
from gossamer.telemetry.recordings import RecordingFile, process_ticks, running_processes

STAGES = ["sched", "downl", "scrap", "pipes", "done", "MB"]


def run(folder: Path, name: str, pid: int, *, kind: str = "scrapy", age: float = 0.0) -> Path:
    """Keep the recording of a process that runs, and has measured until so many seconds ago."""
    now = time.time() - age
    process = MeasuredProcess(
        name=name, kind=kind, host=os.uname().nodename, pid=pid, started=now - 9, limits=StageLimits(requests=16),
        ticks=process_ticks(pid) or 0,
    )  # fmt: skip
    file = RecordingFile(folder / "performance", process)
    for second in range(9):
        file.append(
            Measurement(
                at=now - 8 + second, scheduler=1_234_567.0, downloader=16.0, pages=16.0, transferring=16.0, scraper=3.0,
                pipelines=2.0, held_bytes=4.2e6, responses=60, page_responses=60, items=50, response_seconds=15.0,
                items_in_all=123_456, loop_cpu=0.2, cpu=0.2, lag=0.0123, blocked=0.04,
            )
        )  # fmt: skip
    os.utime(file.path, (now, now))
    return file.path


def table(folder: Path, width: int) -> list[str]:
    return process_rows(folder / "performance", None, running_processes(folder / "performance", last=10), width)


@pytest.mark.parametrize("width", [80, 100, 120, 140, 200])
def test_a_table_fits_the_terminal_and_has_all_stages(tmp_path: Path, width: int) -> None:
    run(tmp_path, "a-spider-with-a-name-that-is-longer-than-its-column", os.getpid())
    run(tmp_path, "two", os.getppid())
    lines = table(tmp_path, width)
    assert max(map(len, lines)) <= width
    headings = lines[0].split()
    assert [one for one in headings if one in STAGES][: len(STAGES)] == STAGES
    assert ("latency" in headings) == (width >= 120)
    row = next(line for line in lines if f" {os.getpid()} " in line)
    assert all(part in row.split() for part in ("50.0", "60.0", "1.23M", "16/16", "3", "2", "123k", "4.2"))
    assert lines[-1].split()[:5] == ["all", "2", "processes", "100.0", "120.0"]


def test_a_worker_has_no_number_of_stages_that_it_does_not_have(tmp_path: Path) -> None:
    run(tmp_path, "crawl", os.getpid(), kind="worker")
    row = table(tmp_path, 80)[1].split()
    assert [row[5], row[7]] == ["-", "-"]


def test_advice_is_wrapped_to_the_terminal(tmp_path: Path) -> None:
    run(tmp_path, "shop", os.getpid())
    lines = advice_lines(running_processes(tmp_path / "performance", last=10), 80)
    assert lines[1].startswith(f"shop {os.getpid()}: healthy")
    assert max(map(len, lines)) < 80


def test_processes_with_the_same_advice_share_its_lines(tmp_path: Path) -> None:
    asleep = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for pid in (os.getpid(), os.getppid(), asleep.pid):
        run(tmp_path, "shop", pid)
    lines = advice_lines(running_processes(tmp_path / "performance", last=10), 200)
    asleep.communicate()
    assert sorted(lines[1].partition(":")[0].split(", ")) == sorted(
        f"shop {pid}" for pid in (os.getpid(), os.getppid(), asleep.pid)
    )
    assert len([line for line in lines if "healthy" in line]) == 1


def test_its_metrics_are_those_of_the_recordings_and_no_counts_of_a_service(tmp_path: Path) -> None:
    run(tmp_path, "shop", os.getpid())
    metrics = Metrics()
    metrics.add_performance(tmp_path / "performance")
    text = metrics.render().decode()
    assert 'gossamer_crawl_pages_total{name="shop"}' in text
    names = {line.partition("{")[0] for line in text.splitlines() if not line.startswith("#")}
    assert not [name for name in names if not name.startswith("gossamer_crawl_")]


def test_a_process_that_measures_nothing_is_not_shown_as_if_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        path = run(tmp_path, "shop", asleep.pid, age=20)
        assert "silent 20 s" in table(tmp_path, 80)[1]
        asleep.send_signal(signal.SIGSTOP)
        while Path(f"/proc/{asleep.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        assert "stopped 2" in table(tmp_path, 80)[1]
        assert parse_and_run(["diagnose", "shop", "--data-dir", str(tmp_path)]) == 0
        said = capsys.readouterr().out
        assert f"It goes on after: kill -CONT {asleep.pid}" in said
        assert "the process is stopped; the figures are 2" in said
        assert ", runs for " in said
    finally:
        asleep.kill()
        asleep.wait()
    assert running_processes(tmp_path / "performance", last=1) == []
    assert parse_and_run(["diagnose", str(path)]) == 0
    assert ", was killed after 9.0 s" in capsys.readouterr().out


def test_a_process_that_has_just_started_is_told_so(tmp_path: Path) -> None:
    started = time.time() - 3
    process = MeasuredProcess(
        name="shop", kind="scrapy", host=os.uname().nodename, pid=os.getpid(), started=started,
        ticks=process_ticks(os.getpid()) or 0,
    )  # fmt: skip
    file = RecordingFile(tmp_path / "performance", process)
    assert "started 3" in table(tmp_path, 80)[1]
    with pytest.raises(BadInput, match=r"no response was measured in 0\.0 s\. Wait some seconds\."):
        parse_and_run(["diagnose", "--data-dir", str(tmp_path)])
    for second in range(3):
        file.append(Measurement(at=started + second, downloader=8.0))
    with pytest.raises(BadInput, match=r"8 requests are in the downloader\. The site does not answer so far"):
        parse_and_run(["diagnose", "--data-dir", str(tmp_path)])


def test_a_table_without_processes_names_the_next_step(tmp_path: Path) -> None:
    missing = tmp_path / "no such"
    assert table(missing, 80)[0] == f"There is no data directory {missing}. Another one: --data-dir DIR."
    (tmp_path / "performance").mkdir()
    assert table(tmp_path, 80)[0].startswith(f"No crawling process runs in the data directory {tmp_path}. ")
    assert not [line for line in table(tmp_path, 80) if "diagnose" in line]
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    run(tmp_path, "shop", ended.pid)
    ended.communicate()
    assert table(tmp_path, 80)[-1] == f"What limited the last run: gossamer diagnose --data-dir {tmp_path}"


def test_a_terminal_shows_sentences_whole(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 60))
    command = [sys.executable, "-m", "gossamer", "top", "--data-dir", "."]
    shown = b""
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=theirs, stdout=theirs, env=os.environ | {"TERM": "xterm"}
    ) as top:
        while b"PerformanceView" not in shown:
            shown += os.read(ours, 4096)
        top.send_signal(signal.SIGINT)
        assert top.wait() == 0
    os.close(theirs)
    os.close(ours)
    assert b"--data-dir DIR." in shown
    assert "…".encode() not in shown


@pytest.mark.parametrize("ending", ["--once", "--json"])
def test_metrics_are_refused_where_the_command_ends_at_once(tmp_path: Path, ending: str) -> None:
    with pytest.raises(BadInput, match=f"--metrics serves the figures until Ctrl-C, but {ending} ends at once"):
        parse_and_run(["top", ending, "--metrics", "127.0.0.1:0", "--data-dir", str(tmp_path)])
