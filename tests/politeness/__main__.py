"""`python -m tests.politeness`: 8 workers, 200 domains, policies that change and workers that die; was it polite?"""

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from tests import proof
from tests.command import at_least, run_command
from tests.politeness.plan import make_plan, slower
from tests.politeness.run import HEARTBEAT_SECONDS, run
from tests.politeness.stalls import WORKERS, Stall, run_stalls
from tests.politeness.usage import Usage
from tests.politeness.verdict import (
    FORGIVEN_AT_MOST,
    USED_AT_LEAST,
    Evidence,
    Judged,
    faults,
    judge,
    silences,
    table,
)

_STALLED_DOMAINS = 10
MADE_AT_LEAST = 0.99
"""The share of the requests asked for without which a run does not count."""


def main(words: Sequence[str] | None = None) -> int:
    """0: no budget and no cap was exceeded, and what was allowed was used. 1: not so; the last lines say what."""
    parser = argparse.ArgumentParser(prog="python -m tests.politeness", description=__doc__)
    parser.add_argument("--requests", type=at_least(1000), default=200_000, metavar="N", help="default: 200000")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what the run is made from; default: 1")
    parser.add_argument("--workers", type=at_least(1), default=8, metavar="N", help="default: 8")
    parser.add_argument("--domains", type=at_least(1), default=200, metavar="N", help="default: 200")
    parser.add_argument(
        "--pages-a-second",
        type=at_least(1, float),
        default=380.0,
        metavar="N",
        help="all budgets together; default: 380",
    )
    parser.add_argument("--calm", action="store_true", help="no change of policy, no worker dies")
    parser.add_argument("--stalls", action="store_true", help="stall a steady crawl in several ways instead")
    options = parser.parse_args(words)
    if options.stalls:
        return _stalls()
    plan = make_plan(
        options.seed,
        requests=options.requests,
        workers=options.workers,
        domains=options.domains,
        pages_a_second=options.pages_a_second,
        dead_after_seconds=HEARTBEAT_SECONDS,
        turn_seconds=3.0,
        blow_seconds=20.0,
    )
    if options.calm:
        plan = slower(plan)
    evidence = asyncio.run(run(plan, requests=options.requests, say=_say))
    judged = judge(evidence)
    print(table(judged))
    gaps = silences(evidence.log)
    print(
        f"The machine kept a sleeper waiting {evidence.stall_seconds:.3f} s too long, at most, and the web silent "
        f"{len(gaps)} times for {sum(until - since for since, until in gaps):.1f} s."
    )
    late, arrivals = evidence.sent_late, evidence.arrivals
    print(
        f"Workers stood still while they sent {len(late)} requests, for {max(late.values(), default=0):.3f} s at most. "
        f"The network was {'not ' if arrivals is None else ''}recorded."
    )
    wrong = faults(evidence, judged)
    made, forgiven = sum(one.requests for one in judged), sum(one.forgiven for one in judged)
    print(f"{forgiven:,} of {made:,} requests were forgiven, at most {FORGIVEN_AT_MOST:.1%} may be.")
    if made < MADE_AT_LEAST * options.requests:
        wrong.append(f"only {made:,} requests were made in the time for {options.requests:,}: the machine is too slow")
    _prove(evidence, judged, wrong)
    if wrong:
        print("FAILED:")
    print(*(wrong or [f"No budget and no cap was exceeded; every domain used {USED_AT_LEAST:.0%} or more."]), sep="\n")
    return int(bool(wrong))


def _prove(evidence: Evidence, judged: Sequence[Judged], wrong: Sequence[str]) -> None:
    """Write the verdict as JSON."""
    plan, made = evidence.plan, sum(one.requests for one in judged)
    forgiven = sum(one.forgiven for one in judged)
    used = sum((one.usage for one in judged), Usage()).share
    blows = Counter(blow.kind.value for blow in plan.blows)
    changes = sum(one.changes for one in judged)
    proof.write(
        "politeness",
        title=f"politeness, {len(plan.sites)} domains, {plan.workers} workers",
        showed=f"{made:,} requests, {changes} policy changes, {blows.total()} kills and freezes: no budget and no cap "
        f"exceeded, {forgiven:,} requests forgiven; {used:.1%} of what is allowed used",
        seconds=evidence.span[1] - evidence.span[0],
        failures=wrong,
        figures={
            "requests": made,
            "policy_changes": changes,
            "used": round(used, 4),
            "sent_late": len(evidence.sent_late),
            "sent_late_seconds_at_most": max(evidence.sent_late.values(), default=0.0),
        },
        seeds=[plan.seed],
        faults=blows,
        forgiven={"requests": forgiven, "of": made, "at_most_share": FORGIVEN_AT_MOST},
    )


def _stalls() -> int:
    began = time.monotonic()
    wrong = asyncio.run(run_stalls(list(Stall), domains=_STALLED_DOMAINS, say=_say))
    proof.write(
        "politeness-stalls",
        title=f"politeness, {_STALLED_DOMAINS} domains, {WORKERS} workers, stalled",
        showed=f"stalled in {len(Stall)} ways: no budget exceeded, no burst, {USED_AT_LEAST:.0%} or more used between",
        seconds=time.monotonic() - began,
        failures=wrong,
        figures={},
        faults={stall.name.lower().replace("_", "-"): 1 for stall in Stall},
    )
    print(*(["FAILED:", *wrong] if wrong else ["Even spacing was regained after every stall."]), sep="\n")
    return int(bool(wrong))


def _say(what: str) -> None:
    print(time.strftime("%H:%M:%S"), what, flush=True)


if __name__ == "__main__":
    run_command(main)
