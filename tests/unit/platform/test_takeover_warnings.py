"""What a server says about where it listens, and about jobs that a Scrapyd has left running."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer_platform.scrapyd.importer import running_jobs
from gossamer_platform.serving.hosting import address_of


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


def test_the_address_of_all_interfaces_is_shown_as_one_that_a_client_can_use() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listening:
        port = listening.getsockname()[1]
        assert address_of("0.0.0.0", [listening]) == f"http://127.0.0.1:{port}"
        assert address_of("one.example", [listening]) == f"http://one.example:{port}"
