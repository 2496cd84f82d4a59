"""Live analytics of a crawl on one machine: `make analytics`.

Crawls a practice site, lets Spark read the records while they come, and shows a chart. At the end, compares the
results of Spark with a batch computation. Exit code 0: they are equal. 1: they differ, or a part failed.
"""

import argparse
import contextlib
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

_EQUAL = "finished; equal to the batch"
_FEWEST_INDEXES = 4
_CRAWLS = {"kafka": by_kafka.crawl, "ftp": by_ftp.crawl}


def show(results: Path, pages: str) -> bool:
    """Print the answer, and whether Spark and the batch computation agree. Returns that."""
    live, batch = live_facts(results), batch_facts(pages)
    found = summary(batch)
    words = found["words"]
    print("\nWords in a title, and the mean price with and without them:")
    for row in [*words[:4], *words[4:][-4:]]:
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
    if options.indexes < _FEWEST_INDEXES:
        parser.error(
            f"--indexes: at least {_FEWEST_INDEXES}, because the chart leaves out words of fewer than 20 titles"
        )
    treat_as_interrupts(signal.SIGTERM, signal.SIGHUP)  # SIGHUP: the terminal is closed
    try:
        return run(options)
    except (Failure, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as failure:
        print(f"analytics: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be closed
            print("\nStopped. All parts have ended.", flush=True)
        return 130


def run(options: argparse.Namespace) -> int:
    """Install what is missing, crawl, compare, and keep the chart. Returns the exit code."""
    if missing := setup.missing_programs():
        raise Failure(" ".join(missing))
    work = setup.CACHE / "run"
    with contextlib.ExitStack() as stack:
        try:
            chart = Chart(work / "results.sqlite", options.port)
        except (OSError, OverflowError) as error:
            cause = f"cannot listen there: {getattr(error, 'strerror', error)}"
            raise Failure(
                f'--port {options.port}: {cause}. Name another port: ARGS="--port 0" takes a free one.'
            ) from error
        stack.callback(chart.close)
        stack.enter_context(setup.only_run())
        shutil.rmtree(work, ignore_errors=True)  # a checkpoint of an earlier run would count its records as read
        print(f"The live chart: {chart.url}", flush=True)
        chart.state = "installing"
        setup.install()
        work.mkdir(parents=True)
        chart.state = "starting"
        files = _CRAWLS[options.source](work, options.indexes, chart)
        shutil.rmtree(work / "tmp", ignore_errors=True)
        agree = show(work / "results.sqlite", files)
        chart.state = _EQUAL if agree else "finished; differs from the batch"
        if sys.stdin.isatty() and not options.once:
            print(f"The chart stays at {chart.url} until Ctrl-C.", flush=True)
            _wait_for_interrupt()
    return 0 if agree else 1


def treat_as_interrupts(*numbers: signal.Signals) -> None:
    """Let signals raise KeyboardInterrupt, as Ctrl-C does, so that all parts are ended."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupt)


def _wait_for_interrupt() -> None:
    """Return at Ctrl-C."""
    try:
        signal.pause()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    sys.exit(main())
