"""`python -m tests.recrawls --seeds 20`: so many runs, a line each; 1 where a promise was broken.

Each run keeps a site up to date with two services, two workers, Valkey and PostgreSQL. Its pages change and vanish,
while workers, services with their recrawlers, Valkey and the database are killed and started again, as the seed says.
Then a judge compares the changes that were told with what happened to the pages: none lost, none told twice, no
schedule lost, and never more visits than the budget allows, but for requests that killed workers had in flight.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence

from tests import proof
from tests.command import Runs, at_least, run_command, run_seeds, seeds_of, seeds_parser
from tests.recrawls.run import Outcome, run


def main() -> int:
    options = _options()
    runs = run_seeds(
        seeds_of(options),
        lambda seed, folder: run(seed, folder, seconds=options.seconds, pages=options.pages),
        _tell,
        keep=options.keep,
    )
    if runs.outcomes or runs.broken:
        _prove(runs)
    return runs.exit_code()


def _options() -> argparse.Namespace:
    parser = seeds_parser("tests.recrawls", __doc__, runs=20)
    parser.add_argument("--pages", type=at_least(3), default=30, help="pages of the site; default: 30")
    parser.add_argument("--seconds", type=at_least(2), default=40, help="time with faults; default: 40")
    return parser.parse_args()


def _tell(outcome: Outcome) -> Sequence[str]:
    verdict = outcome.verdict
    print(
        f"{time.strftime('%H:%M:%S')} seed {outcome.seed:>3} {'FAILED' if verdict.faults else 'ok':>6} "
        f"{outcome.seconds:5.0f} s, {verdict.visits:,} visits, {verdict.changes:,} changes, "
        f"{outcome.kills.total()} kills, at most {verdict.most_visits} visits in the time of the budget",
        flush=True,
    )
    return verdict.faults


def _prove(runs: Runs[Outcome]) -> None:
    """Write the verdict of all runs as JSON."""
    outcomes = runs.outcomes
    kills: Counter[str] = sum((outcome.kills for outcome in outcomes), Counter())
    bad = [f"seed {outcome.seed}: {fault}" for outcome in outcomes for fault in outcome.verdict.faults]
    proof.write(
        "recrawls",
        title="a site kept up to date under fire, {runs} runs",
        showed="{changes:,} changes in {visits:,} visits, {faults} kills of workers, recrawlers, Valkey and database: "
        "no change lost or told twice, no schedule lost, the budget kept",
        seconds=runs.seconds,
        failures=bad + [f"seed {seed} broke off" for seed in runs.broken],
        figures={
            "runs": len(outcomes),
            "changes": sum(outcome.verdict.changes for outcome in outcomes),
            "visits": sum(outcome.verdict.visits for outcome in outcomes),
        },
        seeds=sorted([*runs.broken, *(outcome.seed for outcome in outcomes)]),
        faults={f"kill-{what}": count for what, count in kills.items()},
        is_part=True,
    )


if __name__ == "__main__":
    run_command(main)
