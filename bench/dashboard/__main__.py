"""Measures the dashboard.

    python -m bench.dashboard log [--seconds 60] [--rate 10000]
    python -m bench.dashboard load [--crawls 100000] [--jobs 10000] [--domains 1000000] [--seconds 20]

`log` follows a log in Chromium. `load` fills a service, times every page while a crawl runs, and lets 50 browsers with
4 tabs each follow pages. Exits with 1 if a figure is worse than it should be. A test may not measure time; this program
does.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from bench.dashboard import followers, log, pages
from bench.dashboard.deployment import Amounts, deployment


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("log", "load"))
    parser.add_argument("--seconds", type=float, default=20.0, help="time of each measurement")
    parser.add_argument("--rate", type=int, default=10_000, help="lines of the log a second")
    parser.add_argument("--crawls", type=int, default=100_000, help="crawls in the history; one in a hundred runs")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--domains", type=int, default=1_000_000, help="domains on which a crawl waits")
    parser.add_argument("--policies", type=int, default=20_000, help="domains with a policy")
    parser.add_argument("--others", type=int, default=500, help="projects, schedules, nodes, groups and tokens, each")
    given = parser.parse_args()
    if given.what == "log":
        return 0 if log.measure(seconds=given.seconds, rate=given.rate) else 1
    amounts = Amounts(given.crawls, given.jobs, given.domains, given.policies, given.others)
    with tempfile.TemporaryDirectory(prefix="gossamer-bench-") as folder, deployment(Path(folder), amounts) as running:
        results = [followers.measure(running, seconds=given.seconds), pages.measure(running, Path(folder))]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
