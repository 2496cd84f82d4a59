"""CPU time of a command with all that it starts."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BURN = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has it")
def test_processes_that_outlive_their_parents_count() -> None:
    script = f"({sys.executable} -c '{BURN}' &) ; exit 3"
    run = subprocess.run(
        [sys.executable, "-m", "bench.all_cpu", "sh", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 3, run.stderr
    assert float(run.stdout.splitlines()[-1]) >= 0.3
