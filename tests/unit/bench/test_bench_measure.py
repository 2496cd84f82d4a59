"""Running a crawler: what it used, and that nothing of it stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.errors import BenchFailed
from bench.measure import _resident_bytes, run


def _python(code: str, log: Path, *, timeout_seconds: float = 60.0) -> None:
    run([sys.executable, "-c", code], environment={}, log=log, timeout_seconds=timeout_seconds)


def test_a_child_of_the_command_counts(tmp_path: Path) -> None:
    """Its memory, which the command itself does not have."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'b = bytearray(200_000_000)'], check=True)"
    usage = run([sys.executable, "-c", code], environment={}, log=tmp_path / "log", timeout_seconds=60.0)
    assert usage.peak_bytes > 200_000_000
    assert usage.cpu_seconds > 0


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count shared memory apart")
def test_memory_that_forked_processes_share_counts_once() -> None:
    code = "import os; b = b'x' * 200_000_000; os.fork(); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert [parent.stdout.readline() for _ in range(2)] == [b"\n", b"\n"]  # both have it
        together = _resident_bytes(parent.pid)
        parent.stdin.close()
        assert 200_000_000 < together < 300_000_000


def test_a_failure_ends_with_what_the_command_said(tmp_path: Path) -> None:
    with pytest.raises(BenchFailed, match=r"exit 3: .*no such site"):
        _python("import sys; print('no such site'); sys.exit(3)", tmp_path / "log")


def test_nothing_outlives_the_command(tmp_path: Path) -> None:
    """A pipe tells: it ends when nobody can write to it any more."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    child = f"import time; p = open({str(pipe)!r}, 'wb', 0); p.write(b'here'); print(flush=True); time.sleep(600)"
    code = (
        "import subprocess, sys;"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE);"
        "child.stdout.readline(); sys.exit(3)"
    )
    try:
        with pytest.raises(BenchFailed, match="exit 3"):
            _python(code, tmp_path / "log")
        os.set_blocking(reading, True)
        assert os.read(reading, 100) == b"here"
        assert os.read(reading, 100) == b""
    finally:
        os.close(reading)


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(BenchFailed, match="took longer than"):
        _python("import time; time.sleep(600)", tmp_path / "log", timeout_seconds=0.1)
