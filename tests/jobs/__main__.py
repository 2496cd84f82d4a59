"""`python -m tests.jobs --seeds 50`: so many runs, a line each, a table at the end; 1 where a promise was broken.

Each run has two managers on a PostgreSQL server and four nodes. 500 jobs are requested while managers, nodes, shims,
whole machines, networks and the database are killed, frozen and cut off as the seed says (tests/jobs/plan.py). The jobs
note when they run; a judge compares that with what the platform says: no job is lost, none runs twice at a time, every
end is true, and no process is left over. In the first two runs 50 jobs are run by Scrapy, in the others by a stand-in.

Ctrl-C ends the program with the verdict of the runs before. `--first 18` goes on with the others; `make proofs` merges
the verdicts of all parts on one commit.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests import proof
from tests.command import Runs, at_least, run_command, run_seeds, seeds_of, seeds_parser
from tests.jobs.plan import make_plan
from tests.jobs.run import Outcome, run_plan
from tests.servers.postgresql import postgresql

LIMIT_SECONDS = 3.0
"""Silence after which a node is lost."""
JOBS = 500
REAL_JOBS = 50
_REAL_RUNS = (1, 2)
"""Seeds whose jobs are run by Scrapy."""
_JOBS_A_SECOND = 12.0
_REAL_JOBS_A_SECOND = 1.2


def main() -> int:
    options = _options()
    seeds = seeds_of(options)
    print(f"{len(seeds)} runs of {options.jobs:,} jobs on 4 nodes", flush=True)
    runs = run_seeds(seeds, lambda seed, folder: _one(seed, folder, options), _tell, keep=options.keep)
    if runs.outcomes or runs.broken:
        _prove(runs)
    return runs.exit_code()


def _options() -> argparse.Namespace:
    parser = seeds_parser("tests.jobs", __doc__, runs=50)
    parser.add_argument("--jobs", type=at_least(10), default=JOBS, help=f"jobs of a run; default: {JOBS}")
    return parser.parse_args()


def _one(seed: int, folder: Path, options: argparse.Namespace) -> Outcome:
    real = seed in _REAL_RUNS
    jobs = min(REAL_JOBS, options.jobs) if real else options.jobs
    rate = _REAL_JOBS_A_SECOND if real else _JOBS_A_SECOND
    plan = make_plan(seed, jobs=jobs, limit_seconds=LIMIT_SECONDS, request_seconds=jobs / rate)
    with postgresql() as database:
        return run_plan(plan, folder, database, real=real, limit_seconds=LIMIT_SECONDS)


def _tell(outcome: Outcome) -> Sequence[str]:
    print(_line(outcome), flush=True)
    return outcome.verdict.faults


def _line(outcome: Outcome) -> str:
    verdict = outcome.verdict
    faults = " ".join(f"{kind}x{n}" if n > 1 else kind for kind, n in Counter(outcome.done).items())
    states = ", ".join(f"{count} {state}" for state, count in sorted(verdict.states.items()))
    word = "FAILED" if verdict.faults else "ok"
    return (
        f"{time.strftime('%H:%M:%S')} seed {outcome.plan.seed:>3} {word:>6} {outcome.seconds:5.0f} s, {states}; "
        f"{verdict.attempts} attempts, overlap of frozen machines {max(verdict.overlaps, default=0.0):.1f} s; {faults}"
    )


def _prove(runs: Runs[Outcome]) -> None:
    """Write the verdict of all runs as JSON, and print a table."""
    outcomes = runs.outcomes
    verdicts = [outcome.verdict for outcome in outcomes]
    kinds: Counter[str] = Counter(kind for outcome in outcomes for kind in outcome.done)
    jobs, attempts = sum(verdict.jobs for verdict in verdicts), sum(verdict.attempts for verdict in verdicts)
    overlaps = [overlap for verdict in verdicts for overlap in verdict.overlaps]
    states: Counter[str] = Counter()
    for verdict in verdicts:
        states.update(verdict.states)
    bad = [f"seed {outcome.plan.seed}: {fault}" for outcome in outcomes for fault in outcome.verdict.faults]
    proof.write(
        "jobs",
        title="jobs on four nodes under fire, {runs} runs",
        showed="{jobs:,} jobs in {attempts:,} attempts, {faults} faults of {fault_kinds} kinds: none lost, every end "
        "true, none twice at a time but {overlaps} times beside a frozen machine, for at most "
        "{longest_overlap_seconds:.1f} s",
        seconds=runs.seconds,
        failures=bad + [f"seed {seed} broke off" for seed in runs.broken],
        figures={"runs": len(outcomes), "jobs": jobs, "attempts": attempts}
        | {f"jobs_{state}": count for state, count in sorted(states.items())},
        seeds=sorted([*runs.broken, *(outcome.plan.seed for outcome in outcomes)]),
        faults=kinds,
        forgiven={"overlaps": len(overlaps), "longest_overlap_seconds": round(max(overlaps, default=0.0), 2)},
        is_part=True,
    )
    rows = [
        ("runs", f"{len(outcomes)}, {runs.bad} failed; {len(runs.broken)} broke off"),
        ("jobs", f"{jobs:,}: " + ", ".join(f"{count} {state}" for state, count in sorted(states.items()))),
        ("attempts", f"{attempts:,}"),
        ("beside a frozen machine", f"{len(overlaps)}, at most {max(overlaps, default=0.0):.1f} s"),
        *((kind, str(count)) for kind, count in sorted(kinds.items())),
    ]
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"{name:<{width}}  {value}" for name, value in rows), flush=True)


if __name__ == "__main__":
    run_command(main)
