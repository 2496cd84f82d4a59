"""`python -m tests.schedules --seeds 10`: so many runs, a line each, a table at the end; 1 where a promise was broken.

Each run has two managers on a PostgreSQL server, and 60 schedules that make a job each second for a minute. One manager
at a time is killed at random and started again, as the seed says. A judge compares the jobs with the instants: each has
made one job, while one manager lived. Where the machine is so busy that a time comes more than a minute late, it is
missed, as the documentation says; the verdict counts these.

Ctrl-C ends the program with the verdict of the runs before. `--first 5` goes on with the others; `make proofs` merges
the verdicts of all parts on one commit.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from tests import proof
from tests.command import Runs, at_least, run_command, run_seeds, seeds_of, seeds_parser
from tests.schedules.run import Outcome, make_plan, run_plan
from tests.servers.postgresql import postgresql


def main() -> int:
    options = _options()
    seeds = seeds_of(options)
    print(f"{len(seeds)} runs of {options.schedules} schedules of one second for {options.seconds} s", flush=True)
    runs = run_seeds(seeds, lambda seed, folder: _one(seed, folder, options), _tell, keep=options.keep)
    if runs.outcomes or runs.broken:
        _prove(runs, options)
    return runs.exit_code()


def _options() -> argparse.Namespace:
    parser = seeds_parser("tests.schedules", __doc__, runs=10)
    parser.add_argument("--schedules", type=at_least(1), default=60, help="schedules of a run; default: 60")
    parser.add_argument("--seconds", type=at_least(2), default=60, help="their duration; default: 60")
    return parser.parse_args()


def _one(seed: int, folder: Path, options: argparse.Namespace) -> Outcome:
    with postgresql() as database:
        return run_plan(make_plan(seed, schedules=options.schedules, seconds=options.seconds), folder, database)


def _tell(outcome: Outcome) -> Sequence[str]:
    verdict = outcome.verdict
    print(
        f"{time.strftime('%H:%M:%S')} seed {outcome.plan.seed:>3} {'FAILED' if verdict.faults else 'ok':>6} "
        f"{outcome.seconds:5.0f} s, {verdict.firings:,} jobs, {verdict.missed:,} times missed by more than a minute, "
        f"{outcome.kills} kills, at most {verdict.latest:.2f} s late",
        flush=True,
    )
    return verdict.faults


def _prove(runs: Runs[Outcome], options: argparse.Namespace) -> None:
    """Write the verdict of all runs as JSON, and print it."""
    outcomes = runs.outcomes
    firings = sum(outcome.verdict.firings for outcome in outcomes)
    latest = max((outcome.verdict.latest for outcome in outcomes), default=0.0)
    missed = sum(outcome.verdict.missed for outcome in outcomes)
    kills = sum(outcome.kills for outcome in outcomes)
    bad = [f"seed {outcome.plan.seed}: {fault}" for outcome in outcomes for fault in outcome.verdict.faults]
    proof.write(
        "schedules",
        title=f"{options.schedules} schedules of one second for {options.seconds} s on two managers, {{runs}} runs",
        showed="{firings:,} times, {faults} kills of a manager: each time made one job, at most "
        "{longest_delay_seconds:.1f} s late; {missed:,} times were missed by more than a minute",
        seconds=runs.seconds,
        failures=bad + [f"seed {seed} broke off" for seed in runs.broken],
        figures={"runs": len(outcomes), "firings": firings, "longest_delay_seconds": round(latest, 2)},
        seeds=sorted([*runs.broken, *(outcome.plan.seed for outcome in outcomes)]),
        faults={"kill-manager": kills},
        forgiven={"missed": missed},
        is_part=True,
    )
    print(
        f"{len(outcomes)} runs, {runs.bad} failed; {len(runs.broken)} broke off; {firings:,} jobs, {missed:,} missed, "
        f"{kills} kills, at most {latest:.2f} s late",
        flush=True,
    )


if __name__ == "__main__":
    run_command(main)
