"""`python -m tests.rebuilds`: a crawl of 100,000 pages loses its frontier half-way; 1 where a promise was broken.

The frontier's server and the crawl are killed. An empty server is filled from the records by `gossamer crawls rebuild`,
which is killed once, too. The same crawl goes on there. No page with a record may be fetched again, and all others must
be.
"""

import argparse
import time
from collections.abc import Sequence

from tests import proof
from tests.command import Runs, at_least, run_command, run_seeds, seeds_of, seeds_parser
from tests.rebuilds.run import Outcome, run


def main() -> int:
    options = _options()
    runs = run_seeds(
        seeds_of(options),
        lambda seed, folder: run(seed, folder, pages=options.pages, hosts=options.hosts, page_bytes=options.page_bytes),
        _tell,
        keep=options.keep,
    )
    if runs.outcomes or runs.broken:
        _prove(runs)
    return runs.exit_code()


def _options() -> argparse.Namespace:
    parser = seeds_parser("tests.rebuilds", __doc__, runs=1)
    parser.add_argument("--pages", type=at_least(100), default=100_000, help="pages of the web; default: 100000")
    parser.add_argument("--hosts", type=at_least(1), default=20, help="that share them; default: 20")
    parser.add_argument("--page-bytes", type=at_least(200), default=4000, help="of each page; default: 4000")
    return parser.parse_args()


def _tell(outcome: Outcome) -> Sequence[str]:
    print(
        f"{time.strftime('%H:%M:%S')} {'FAILED' if outcome.faults else 'ok'}: {outcome.pages:,} pages, lost after "
        f"{outcome.recorded:,} records; rebuilt in {outcome.rebuild_seconds:.0f} s with {outcome.rebuild_mib:.0f} MiB; "
        f"{len(outcome.fetched_again)} fetched again, {len(outcome.missing)} missing",
        flush=True,
    )
    return outcome.faults


def _prove(runs: Runs[Outcome]) -> None:
    """Write the verdict of all runs as JSON."""
    outcomes = runs.outcomes
    proof.write(
        "rebuilds",
        title="a frontier lost half-way through {pages:,} pages, and filled again from the records",
        showed="{recorded:,} recorded pages: {fetched_again} fetched again; of all others {missing} were missed; "
        "rebuilt in {longest_rebuild_seconds} s with {longest_rebuild_mib} MiB, after a rebuild that was killed",
        seconds=runs.seconds,
        failures=[fault for outcome in outcomes for fault in outcome.faults]
        + [f"seed {seed} broke off" for seed in runs.broken],
        figures={
            "pages": sum(outcome.pages for outcome in outcomes),
            "recorded": sum(outcome.recorded for outcome in outcomes),
            "fetched_again": sum(len(outcome.fetched_again) for outcome in outcomes),
            "missing": sum(len(outcome.missing) for outcome in outcomes),
            "longest_rebuild_seconds": round(max((one.rebuild_seconds for one in outcomes), default=0.0)),
            "longest_rebuild_mib": round(max((one.rebuild_mib for one in outcomes), default=0.0)),
        },
        seeds=sorted({*runs.broken, *range(1, len(outcomes) + 1)}),
        faults={"kill-server": len(outcomes), "kill-crawl": len(outcomes), "kill-rebuild": len(outcomes)},
        is_part=True,
    )


if __name__ == "__main__":
    run_command(main)
