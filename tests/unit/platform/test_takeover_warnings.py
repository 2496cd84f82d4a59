"""What a server says about jobs that a Scrapyd has left running."""

import subprocess
import sys
from pathlib import Path

import pytest

from gossamer_platform.scrapyd.importer import running_jobs


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_jobs_that_a_scrapyd_started_in_this_folder_are_found(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    waits = [sys.executable, "-c", "print(flush=True); input()", "scrapyd.runner", "crawl", "words"]
    with subprocess.Popen(waits, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        job.stdout.readline()
        assert running_jobs(tmp_path) == [job.pid]
        assert running_jobs(tmp_path / "other") == []
        job.communicate(b"\n")
