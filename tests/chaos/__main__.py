"""`python -m tests.chaos --seeds 50`: so many runs, a line each, a table at the end; 1 where a promise was broken.

Each run crawls a fake web with several processes while its seed's faults are done to them, to their network and to the
server (tests/chaos/schedule.py says what each is); then what the web saw and what was kept is held against its graph.
A run of 10,000 pages takes about half a minute, one with Scrapy's processes two; one of 300 rendered pages one.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests import proof
from tests.chaos import clustered, stores
from tests.chaos.checker import FORGIVEN_AT_MOST, FORGIVEN_RENDERED, TWICE_AT_MOST
from tests.chaos.run import HEARTBEAT_SECONDS, MakePlan, Outcome, run
from tests.chaos.schedule import Kind, make_browser_plan, make_plan
from tests.chaos.stores import Opener
from tests.command import at_least, run_command, seeds_of, seeds_parser

_TWICE_OF_PAGES = 10_000
"""Pages of a run of which TWICE_AT_MOST is the share that may be fetched twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What is under fire."""

    place: str
    opener: Opener = stores.single
    """Opens its store."""
    kinds: frozenset[Kind] = stores.SingleStore.kinds
    """Faults of the store."""
    shards: int = 1
    make_plan: MakePlan = make_plan
    pages: int = 10_000
    """Of each run's web, unless the options name another number."""
    pages_a_second: int = 500


TOPOLOGIES = {
    "single": Topology(place="one server"),
    "cluster": Topology(
        place="a cluster of three primaries with replicas",
        opener=clustered.clustered,
        kinds=clustered.ClusteredStore.kinds,
        shards=clustered.SHARDS,
    ),
    "browser": Topology(place="workers with browsers", make_plan=make_browser_plan, pages=300, pages_a_second=24),
}


def main() -> int:
    options = _options()
    seeds = seeds_of(options)
    base = Path(options.folder or tempfile.mkdtemp(prefix="chaos-"))
    base.mkdir(parents=True, exist_ok=True)
    print(f"{len(seeds)} runs of {options.pages:,} pages, {options.topology}; files in {base}", flush=True)
    outcomes: list[Outcome] = []
    broken = 0
    began = time.monotonic()
    for seed in seeds:
        try:
            outcomes.append(_one(seed, base / f"seed-{seed}", options))
        except KeyboardInterrupt:
            if options.folder is None and not options.keep and not any(o.verdict.faults for o in outcomes):
                shutil.rmtree(base)
            raise
        except Exception as error:  # of the run itself: the others go on
            broken += 1
            traceback.print_exception(error, file=sys.stdout)
            print(f"    again: {_again(options, seed)}\n    files: {base / f'seed-{seed}'}", flush=True)
            continue
        print(_line(outcomes[-1]), flush=True)
        if outcomes[-1].verdict.faults:
            print("".join(f"    {fault}\n" for fault in outcomes[-1].verdict.faults), end="")
            print(f"    again: {_again(options, seed)}\n    files: {outcomes[-1].folder}", flush=True)
        elif not options.keep:
            shutil.rmtree(outcomes[-1].folder)
    print(_table(outcomes, broken), flush=True)
    _prove(outcomes, broken, options, time.monotonic() - began)
    bad = [outcome for outcome in outcomes if outcome.verdict.faults]
    if not bad and not broken and not options.keep and options.folder is None:
        shutil.rmtree(base)
    return 1 if bad or broken else 0


def _options() -> argparse.Namespace:
    parser = seeds_parser("tests.chaos", __doc__, runs=50)
    parser.add_argument(
        "--pages", type=at_least(30), help="pages of each run's web; default: 10,000, of the topology browser 300"
    )
    parser.add_argument(
        "--pages-a-second", type=at_least(20), help="all domains' budgets together; default: 500, of the latter 24"
    )
    parser.add_argument(
        "--topology",
        choices=sorted(TOPOLOGIES),
        default="single",
        help="of the store: one Valkey (default), or three primaries with a replica each; browser: one Valkey, and "
        "browsers build all pages",
    )
    parser.add_argument("--cluster", action="store_const", const="cluster", dest="topology", help="--topology cluster")
    parser.add_argument("--folder", help="where the files of the runs go; else a temporary folder")
    options = parser.parse_args()
    topology = TOPOLOGIES[options.topology]
    options.pages = options.pages or topology.pages
    options.pages_a_second = options.pages_a_second or topology.pages_a_second
    return options


def _one(seed: int, folder: Path, options: argparse.Namespace) -> Outcome:
    topology = TOPOLOGIES[options.topology]
    shutil.rmtree(folder, ignore_errors=True)
    return asyncio.run(
        run(
            seed,
            folder,
            pages=options.pages,
            pages_a_second=options.pages_a_second,
            opener=topology.opener,
            kinds=topology.kinds,
            shards=topology.shards,
            # What is under way at a fault is as much in a smaller run, and a larger share of it.
            twice_at_most=TWICE_AT_MOST * max(1.0, _TWICE_OF_PAGES / options.pages),
            make_plan=topology.make_plan,
        )
    )


def _prove(outcomes: list[Outcome], broken: int, options: argparse.Namespace, seconds: float) -> None:
    """Write the verdict of all runs as JSON."""
    verdicts = [outcome.verdict for outcome in outcomes]
    kinds: Counter[str] = Counter(kind for outcome in outcomes for kind in outcome.done)
    causes = sum((verdict.explained for verdict in verdicts), Counter[str]())
    pages, most = sum(verdict.pages for verdict in verdicts), max((v.twice_share for v in verdicts), default=0.0)
    still = max((v.standstill for v in verdicts if v.standstill is not None), default=0.0)
    requests, forgiven = sum(verdict.requests for verdict in verdicts), sum(verdict.forgiven for verdict in verdicts)
    proof.write(
        f"chaos-{options.topology}",
        title=f"chaos on {TOPOLOGIES[options.topology].place}, {len(outcomes)} runs",
        showed=f"{pages:,} pages, {sum(kinds.values())} faults of {len(kinds)} kinds: none lost; at most {most:.2%} of "
        f"a run fetched twice, each repeat explained by a fault; a dead worker's pages were continued within "
        f"{still:.1f} s (heartbeat {HEARTBEAT_SECONDS:g} s); {forgiven:,} of {requests:,} requests forgiven",
        seconds=seconds,
        failures=[f"seed {outcome.plan.seed}: {fault}" for outcome in outcomes for fault in outcome.verdict.faults]
        + ([f"{broken} runs broke off"] if broken else []),
        figures={"runs": len(outcomes), "pages": pages, "most_fetched_twice": round(most, 5), "standstill": still}
        | {f"fetched_twice_by_{cause.replace('-', '_')}": count for cause, count in causes.items()},
        seeds=[outcome.plan.seed for outcome in outcomes],
        faults=kinds,
        forgiven={
            "requests": forgiven,
            "of": requests,
            "at_most_share_of_a_run": FORGIVEN_RENDERED if options.topology == "browser" else FORGIVEN_AT_MOST,
        },
    )


def _line(outcome: Outcome) -> str:
    verdict = outcome.verdict
    faults = " ".join(f"{kind}x{count}" if count > 1 else kind for kind, count in Counter(outcome.done).items())
    still = "-" if verdict.standstill is None else f"{verdict.standstill:.1f} s"
    word = "FAILED" if verdict.faults else "ok"
    return (
        f"{time.strftime('%H:%M:%S')} seed {outcome.plan.seed:>3} {word:>6} {outcome.seconds:5.0f} s, "
        f"{verdict.pages:,} pages, {verdict.twice_share:.2%} fetched twice, stood still {still}; {faults}"
    )


def _again(options: argparse.Namespace, seed: int) -> str:
    return (
        f"{_python()} -m tests.chaos --seed {seed} --pages {options.pages} --pages-a-second {options.pages_a_second} "
        f"--topology {options.topology}"
    )


def _python() -> str:
    """As it was started, so that the line can be pasted."""
    here = Path(sys.executable)
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)


def _table(outcomes: list[Outcome], broken: int) -> str:
    """All runs together; `broken` more did not come to their end."""
    verdicts = [outcome.verdict for outcome in outcomes]
    stills = [verdict.standstill for verdict in verdicts if verdict.standstill is not None]
    kinds: Counter[str] = Counter(kind for outcome in outcomes for kind in outcome.done)
    causes = sum((verdict.explained for verdict in verdicts), Counter[str]())
    most = max((verdict.twice_share for verdict in verdicts), default=0.0)
    rows = [
        ("runs", f"{len(outcomes)}, {sum(bool(verdict.faults) for verdict in verdicts)} failed; {broken} broke off"),
        ("pages", f"{sum(verdict.pages for verdict in verdicts):,}"),
        ("faults", f"{sum(kinds.values())}, at least {min((len(o.done) for o in outcomes), default=0)} a run"),
        ("kinds a run", f"at least {min((len(set(outcome.done)) for outcome in outcomes), default=0)}"),
        ("fetched twice", f"{sum(verdict.twice for verdict in verdicts):,}, at most {most:.2%} of a run"),
        ("because of", ", ".join(f"{cause} {count}" for cause, count in causes.most_common()) or "-"),
        ("requests forgiven", f"{sum(v.forgiven for v in verdicts):,} of {sum(v.requests for v in verdicts):,}"),
        ("budgets held but for a blur of", _blurs([verdict.blur for verdict in verdicts if verdict.blur])),
        ("dead worker's work stood still", f"at most {max(stills, default=0.0):.1f} s ({len(stills)} runs)"),
        *((kind, str(count)) for kind, count in sorted(kinds.items())),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _blurs(blurs: list[float]) -> str:
    return f"{median(blurs):.2f} s, at most {max(blurs):.2f} s ({len(blurs)} runs)" if blurs else "-"


if __name__ == "__main__":
    run_command(main)
