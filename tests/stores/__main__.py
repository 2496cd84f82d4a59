"""`python -m tests.stores`: crawls write 100,000 items to each store; a line and a verdict for each; 1 where one fails.

Each crawl runs at full speed. Meanwhile the store's server is killed twice and started again, and the process of the
crawl is killed twice and started again with the same command, after numbers of pages that the seed gives. Then the
items of the store are compared with those of the web's own graph: each must be there once.

Ctrl-C ends the program with the verdicts of the stores before.
"""

import argparse
import shutil
import tempfile
import time
import traceback
from pathlib import Path

from tests import proof
from tests.command import at_least, run_command
from tests.servers.stores import KINDS, store_server
from tests.stores.run import Outcome, make_plan, run_plan

_NAMES = {"postgresql": "PostgreSQL", "mysql": "MariaDB", "opensearch": "OpenSearch", "redis": "Valkey"}


def main() -> int:
    options = _options()
    base = Path(tempfile.mkdtemp(prefix="gossamer-stores-"))
    print(f"files in {base}", flush=True)
    bad = 0
    for kind in options.stores or KINDS:
        try:
            outcome = _run(kind, base / kind, options)
        except Exception as error:  # of the run itself: the others go on
            traceback.print_exception(error)
            print(f"{_NAMES[kind]:10} broke off; files: {base / kind}", flush=True)
            bad += 1
            continue
        _tell(outcome)
        _prove(outcome)
        if outcome.verdict.faults:
            bad += 1
        elif not options.keep:
            shutil.rmtree(base / kind)
    if not bad and not options.keep:
        shutil.rmtree(base)
    return 1 if bad else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stores", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stores", nargs="*", metavar="STORE", help=f"{', '.join(KINDS)}; none: all of them")
    parser.add_argument("--items", type=at_least(400), default=100_000, help="items of a crawl; default: 100,000")
    parser.add_argument("--seed", type=int, default=1, help="of the kills; default: 1")
    parser.add_argument("--keep", action="store_true", help="keep the files of good runs, too")
    options = parser.parse_args()
    if unknown := [name for name in options.stores if name not in KINDS]:
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(KINDS)}")
    return options


def _run(kind: str, folder: Path, options: argparse.Namespace) -> Outcome:
    with store_server(kind) as server:
        return run_plan(make_plan(options.seed, options.items), server, folder)


def _tell(outcome: Outcome) -> None:
    verdict = outcome.verdict
    print(
        f"{time.strftime('%H:%M:%S')} {_NAMES[outcome.store]:10} {'FAILED' if verdict.faults else 'ok':>6} "
        f"{verdict.expected:,} items in {outcome.seconds:.0f} s, {verdict.expected / outcome.seconds:,.0f} a second: "
        f"{verdict.lost:,} lost, {verdict.twice:,} more than once",
        flush=True,
    )
    print("".join(f"    {fault}\n" for fault in verdict.faults), end="", flush=True)


def _prove(outcome: Outcome) -> None:
    """Write the verdict of a store as JSON."""
    verdict, plan = outcome.verdict, outcome.plan
    kills = [f"kill-{kill.what}" for kill in plan.kills]
    proof.write(
        f"stores-{outcome.store}",
        title=f"{verdict.expected:,} items of a crawl into {_NAMES[outcome.store]}; server and crawl killed twice each",
        showed=f"{verdict.lost:,} lost, {verdict.twice:,} there more than once; "
        f"{verdict.expected / outcome.seconds:,.0f} items a second",
        seconds=outcome.seconds,
        failures=verdict.faults,
        figures={"items": verdict.expected, "lost": verdict.lost, "twice": verdict.twice, "unknown": verdict.unknown},
        seeds=[plan.seed],
        faults={kill: kills.count(kill) for kill in kills},
    )


if __name__ == "__main__":
    run_command(main)
