"""Pipelines with threads, processes and programs: failures concern one item, and every end is an end."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from gossamer.scrapy.pipelines.programs import ProgramPool
from tests.integration.scrapy_lane.test_pipelines import (
    PIPELINES,
    WORK,
    begin_in_terminal,
    one_program,
)
from tests.servers.program import until

WAYS = ("stop", "exit", "interrupt", "unreadable", "unpicklable", "drop")


@pytest.mark.parametrize("pipeline", ["FailingInThreads", "FailingInProcesses"])
@pytest.mark.parametrize("reactor", ["selectreactor.SelectReactor", "asyncioreactor.AsyncioSelectorReactor"])
def test_an_exception_concerns_its_item_only(tmp_path: Path, pipeline: str, reactor: str) -> None:
    ways = [way for way in WAYS if way != "unpicklable" or pipeline == "FailingInProcesses"]
    items = [{"number": number, "way": way} for number, way in enumerate([None, *ways, None])]
    settings = {
        "ITEM_PIPELINES": json.dumps({f"{WORK}.{pipeline}": 1}),
        "PROCESS_PIPELINE_PROCESSES": "2",
        "TWISTED_REACTOR": f"twisted.internet.{reactor}",
    }
    process = begin_in_terminal(tmp_path, items, settings)
    try:
        code = process.wait(60)
    finally:
        process.kill()
        process.wait()
    log = (tmp_path / "log").read_text()
    done = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert code == 0, log
    assert sorted(item["number"] for item in done if item["done"]) == [0, len(items) - 1], log
    assert f"'log_count/ERROR': {len(ways) - 1}," in log
    assert "'item_dropped_reasons_count/DropItem': 1," in log
    assert "process_pipeline/broken" not in log
    if pipeline == "FailingInProcesses":
        assert "Unreadable: cannot be made again" in log


def is_running(pid: int) -> bool:
    """Return whether the process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends while its file is read
        return False


STUCK = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    open(sys.argv[1] + "/mark", "w").write(str(os.getpid()))
    while True:
        time.sleep(60)
"""


@pytest.mark.parametrize(
    ("pipeline", "ending"),
    [
        (f"{WORK}.StuckInThreads", "twice"),
        (f"{WORK}.StuckInProcesses", "twice"),
        (f"{WORK}.StuckInProcesses", "killed"),
        (f"{PIPELINES}.ProgramPipeline", "twice"),
    ],
)
def test_a_forced_end_leaves_nothing_running(tmp_path: Path, pipeline: str, ending: str) -> None:
    """Ctrl-C twice, and SIGKILL, while an item is in work that never ends."""
    mark = tmp_path / "mark"
    (tmp_path / "program.py").write_text(STUCK)
    settings = {
        "ITEM_PIPELINES": json.dumps({f"{WORK}.Marked": 1, pipeline: 2}),
        "PROGRAM_PIPELINE_COMMAND": f"{sys.executable} {tmp_path / 'program.py'} {tmp_path}",
        "PROGRAM_PIPELINE_PROCESSES": "2",
        "PROGRAM_PIPELINE_START_SECONDS": "600",
    }
    process = begin_in_terminal(tmp_path, [{"price": 1.0}], settings)
    try:
        until(lambda: mark.exists() and mark.read_text() != "", "an item in work")
        pid = int(mark.read_text())
        if ending == "killed":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGINT)
            until(lambda: "Send again to force" in (tmp_path / "log").read_text(), "the first Ctrl-C")
            os.killpg(process.pid, signal.SIGINT)
        process.wait(30)
        until(lambda: not is_running(pid), "the end of the work")
    finally:
        process.kill()
        process.wait()


async def test_programs_that_have_ended_between_two_lines_cost_no_item() -> None:
    events: list[str] = []
    program = "import os\nwhile True: input(); print(os.getpid(), flush=True)"
    pool = ProgramPool(
        [sys.executable, "-c", program], processes=3, timeout_seconds=30, start_seconds=30, tries=1, count=events.append
    )
    try:
        answers = await asyncio.gather(*(pool.ask("pid") for _ in range(3)))
        pids = {int(answer or 0) for answer in answers}
        assert len(pids) == 3
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            await asyncio.to_thread(until, lambda pid=pid: not is_running(pid), "the program's end")
        assert await pool.ask("pid") is not None
    finally:
        await pool.close()
    assert set(events) == {"replaced"}


async def test_a_line_without_utf8_is_asked_too() -> None:
    async with one_program(["cat"]) as (pool, events):
        assert await pool.ask("10 \ud800") == "10 ?"
    assert events == []


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("raise SystemExit(3)", "it has ended with exit code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it was killed by signal 9"),
        ("import os; os.close(1); input(); input()", "it has closed its output"),
    ],
)
async def test_the_log_says_how_a_program_has_ended(
    caplog: pytest.LogCaptureFixture, program: str, sentence: str
) -> None:
    async with one_program([sys.executable, "-c", program]) as (pool, _):
        assert await pool.ask("10") is None
    assert f"{sys.executable} -c: {sentence}; the program is replaced" in caplog.messages
