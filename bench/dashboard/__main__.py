"""Measures the dashboard.

    python -m bench.dashboard log [--seconds 60] [--rate 10000]

`log` follows a log in Chromium. Exits with 1 if a figure is worse than it should be. A test may not measure time; this
program does.
"""

import argparse
import sys

from bench.dashboard import log


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("log",))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=10_000, help="lines a second")
    given = parser.parse_args()
    return 0 if log.measure(seconds=given.seconds, rate=given.rate) else 1


if __name__ == "__main__":
    sys.exit(main())
