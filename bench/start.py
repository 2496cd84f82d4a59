"""Measures how much CPU time commands take to start: `gossamer --help`, and `gossamer crawl` until its first request.

    python -m bench.start [--runs 9] [--against PYTHON]

The smallest of several runs counts, because other programs on the machine only add to it. The Valkey server that a
crawl starts is a process of its own and does not count. With --against, the Gossamer of another Python is measured in
turn, and the exit code is 1 if this one takes more than 1.5 times as long until the first request.
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
_MOST = 1.5
"""Largest ratio to the other Python. The smallest of three runs differs by up to a fifth on a busy machine."""


def help_seconds(python: str = sys.executable) -> float:
    """Return the CPU seconds of `gossamer --help`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-m", "gossamer", "--help"], stdout=subprocess.DEVNULL, env=environment(), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_request_seconds(folder: Path, python: str = sys.executable) -> float:
    """Return the CPU seconds that `gossamer crawl` has taken when its first request arrives."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_TIMEOUT_SECONDS)
        url = f"http://a.test:{server.getsockname()[1]}/"
        command = [python, "-m", "gossamer", "crawl", url, "--resolve", "a.test:127.0.0.1", "-q"]
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


def main() -> int:
    """Print the smallest and the median CPU time of each start; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--against", metavar="PYTHON", type=os.path.abspath, help="the Python of another installation")
    options = parser.parse_args()
    pythons = [sys.executable, *filter(None, [options.against])]
    helps: list[list[float]] = [[] for _ in pythons]
    requests: list[list[float]] = [[] for _ in pythons]
    with tempfile.TemporaryDirectory() as folder:
        for run in range(options.runs + 1):
            for number, python in enumerate(pythons):
                (own := Path(folder) / f"{run}-{number}").mkdir()
                helps[number].append(help_seconds(python))
                requests[number].append(first_request_seconds(own, python))
    for number, python in enumerate(pythons):
        if options.against:
            print(f"{python}:")
        for name, taken in (("gossamer --help", helps), ("gossamer crawl, first request", requests)):
            seconds = sorted(taken[number][1:])  # the first run compiles the modules
            print(f"{name:32} {seconds[0]:.3f} s CPU (median {seconds[len(seconds) // 2]:.3f} s)")
    if options.against:
        ratio = min(requests[0]) / min(requests[1])
        print(f"Until the first request, the first takes {ratio:.2f} times what the second takes (at most {_MOST}).")
        return int(ratio > _MOST)
    return 0


if __name__ == "__main__":
    sys.exit(main())
