"""Live analytics of a crawl on one machine: `make analytics`.

Crawls a practice site, lets Spark read the records while they come, and shows a chart. At the end, compares the
results of Spark with a batch computation. Exit code 0: they are equal. 1: they differ, or a part failed.
"""

import argparse
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from examples.analytics import by_ftp, by_kafka, setup
from examples.analytics.batch import batch_facts, differences, live_facts, summary
from examples.analytics.chart import Chart
from examples.analytics.parts import Failure

from tests.servers import kafka

_EQUAL = "finished; equal to the batch"
_CRAWLS = {"kafka": by_kafka.crawl, "ftp": by_ftp.crawl}


def show(results: Path, pages: str) -> bool:
    """Print the answer, and whether Spark and the batch computation agree. Returns that."""
    live, batch = live_facts(results), batch_facts(pages)
    found = summary(batch)
    words = found["words"]
    print("\nWords in a title, and the mean price with and without them:")
    for row in [*words[:4], *words[-4:]]:
        print(f"  {row['word']:<12} {row['percent']:+6.1f} %   {row['n']:5} titles, £{row['mean']:,.2f} a week")
    print("Pages and errors by domain:")
    for row in found["domains"]:
        errors = ", ".join(f"{reason} {n}" for reason, n in row["errors"].items()) or "no errors"  # type: ignore[attr-defined]
        print(f"  {row['domain']:<12} {row['pages']:6} pages, {errors}")
    wrong = differences(live, batch)
    for sentence in wrong[:20]:
        print(f"  {sentence}")
    if wrong or not words:
        print(f"Spark and the batch computation differ in {len(wrong)} of {len(batch)} rows.")
        return False
    print(f"Spark and the batch computation of DuckDB agree in all {len(batch)} rows.")
    return True


def main() -> int:
    """Run the example. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="make analytics", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--from", dest="source", choices=_CRAWLS, default="kafka", help="how records come to Spark")
    parser.add_argument("--indexes", type=int, default=40, help="index pages of 30 properties each (default: 40)")
    parser.add_argument("--port", type=int, default=8088, help="port of the chart; 0: a free one (default: 8088)")
    parser.add_argument("--once", action="store_true", help="end after the comparison; do not keep the chart")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(options)
    except (Failure, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as failure:
        print(f"analytics: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run(options: argparse.Namespace) -> int:
    """Install what is missing, crawl, compare, and keep the chart. Returns the exit code."""
    if missing := setup.missing_programs():
        raise Failure(" ".join(missing))
    setup.install()
    kafka.install()
    work = setup.CACHE / "run"
    shutil.rmtree(work, ignore_errors=True)  # a checkpoint of an earlier run would count its records as read
    work.mkdir(parents=True)
    try:
        chart = Chart(work / "results.sqlite", options.port)
    except OSError as error:
        raise Failure(f"--port {options.port}: cannot listen there: {error.strerror}. Name another port.") from error
    print(f"The live chart: {chart.url}", flush=True)
    try:
        files = _CRAWLS[options.source](work, options.indexes, chart)
        agree = show(work / "results.sqlite", files)
        chart.state = _EQUAL if agree else "finished; differs from the batch"
        if sys.stdin.isatty() and not options.once:
            print(f"The chart stays at {chart.url} until Ctrl-C.", flush=True)
            _wait_for_interrupt()
    finally:
        chart.close()
    return 0 if agree else 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Treat SIGTERM as Ctrl-C, so that all parts are ended."""
    raise KeyboardInterrupt


def _wait_for_interrupt() -> None:
    """Return at Ctrl-C."""
    try:
        signal.pause()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    sys.exit(main())
