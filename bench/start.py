"""Measures how much CPU time commands take to start: `gossamer --help`, and `gossamer crawl` until its first request.

    python -m bench.start [--runs 9]

The smallest of several runs counts, because other programs on the machine only add to it. The Valkey server that a
crawl starts is a process of its own and does not count.
"""

import argparse
import os
import resource
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

_TIMEOUT_SECONDS = 60.0
"""Longest wait for the first request."""


def help_seconds() -> float:
    """Return the CPU seconds of `gossamer --help`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "gossamer", "--help"], stdout=subprocess.DEVNULL, env=environment(), check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_request_seconds(folder: Path) -> float:
    """Return the CPU seconds that `gossamer crawl` has taken when its first request arrives."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_TIMEOUT_SECONDS)
        url = f"http://a.test:{server.getsockname()[1]}/"
        command = [sys.executable, "-m", "gossamer", "crawl", url, "--resolve", "a.test:127.0.0.1", "-q"]
        with subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.DEVNULL) as crawl:
            try:
                connection, _ = server.accept()
                seconds = _cpu_seconds(crawl.pid)
                connection.close()
            finally:
                crawl.terminate()
    return seconds


def environment() -> dict[str, str]:
    """Return an environment in which Python keeps its compiled modules, as an installed program does."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {"PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "gossamer-bench-start"), **kept}


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all threads of a process, as Linux counts them."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def main() -> None:
    """Print the smallest and the median CPU time of each start."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    measured: dict[str, list[float]] = {"gossamer --help": [], "gossamer crawl, first request": []}
    help_seconds()  # compiles the modules
    with tempfile.TemporaryDirectory() as folder:
        first_request_seconds(Path(folder))
        for number in range(runs):
            (own := Path(folder) / str(number)).mkdir()
            measured["gossamer --help"].append(help_seconds())
            measured["gossamer crawl, first request"].append(first_request_seconds(own))
    for name, seconds in measured.items():
        seconds.sort()
        print(f"{name:32} {seconds[0]:.3f} s CPU (median {seconds[len(seconds) // 2]:.3f} s)")


if __name__ == "__main__":
    main()
