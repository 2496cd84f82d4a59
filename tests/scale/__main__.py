"""`python -m tests.scale`: run one of them, or all, say what it showed, and whether that is what is promised."""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import proof
from tests.command import at_least, run_command
from tests.scale import troubles
from tests.scale.endless import FETCHES, MEMORY, endless
from tests.scale.interrupted import Size, Trouble, interrupted
from tests.scale.lanes import FastLane, Lane, ScrapyLane
from tests.scale.latency import TIMES, pace
from tests.scale.stores import one_of_eight
from tests.scale.submissions import GROWTH_BYTES, submissions
from tests.scale.verdict import described, faults, full_speed, partial_faults
from tests.servers.small_disk import CannotMount, mounted

_DISK = "128m"


def main(words: Sequence[str] | None = None) -> int:
    """0: everything is as promised. 1: not so; the lines that begin with ! say what."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.scale",
        description="What is promised at scale and through outages. Each takes two to eight minutes on two cores.",
    )
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"{', '.join(_RUNS)}; none: all of them")
    parser.add_argument(
        "--hosts", type=at_least(1), default=999, metavar="N", help="of endless, beside the endless one"
    )
    parser.add_argument("--pages", type=at_least(1), default=60, metavar="N", help="of each of these")
    parser.add_argument("--links", type=at_least(1), default=20, metavar="N", help="on each page of endless")
    parser.add_argument(
        "--submissions", type=at_least(100), default=100_000, metavar="N", help="of the run of this name"
    )
    parser.add_argument(
        "--seconds", type=at_least(0, float), default=60.0, metavar="N", help="that an outage or a full disk lasts"
    )
    parser.add_argument("--workers", type=at_least(1), default=2, metavar="N", help="that meet it")
    parser.add_argument(
        "--lane", choices=_LANES, default="fast", help="the built-in worker, or Scrapy processes; default: fast"
    )
    arguments = parser.parse_args(words)
    unknown = [name for name in arguments.what if name not in _RUNS]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(_RUNS)}")
    wrong = []
    for name in arguments.what or _RUNS:
        print(f"{name} …", flush=True)
        began = time.monotonic()
        for ran in _RUNS[name](arguments):
            proof.write(
                ran.name,
                title=ran.title,
                showed=ran.showed,
                seconds=time.monotonic() - began,
                failures=ran.wrong,
                figures=ran.figures,
            )
            wrong += [f"{ran.title}: {fault}" for fault in ran.wrong]
    for fault in wrong:
        print(f"! {fault}")
    return int(bool(wrong))


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one run."""

    name: str
    """Of its verdict file."""
    title: str
    showed: str
    wrong: list[str]
    """What was not as promised; empty: nothing."""
    figures: dict[str, proof.Figure]


def _endless(arguments: argparse.Namespace) -> Iterator[Ran]:
    done = endless(hosts=arguments.hosts, pages=arguments.pages, links=arguments.links)
    last, most = done.shares[-1], max(done.shares, key=lambda share: share.of_memory)
    peak = max(share.memory for share in done.shares)
    print(
        f"endless: {arguments.hosts} hosts of {arguments.pages} pages and an endless one, {arguments.links} links a "
        f"page, in {last.seconds:.0f} s\n"
        f"  of {last.fetched + last.endless_fetched:,} fetches {last.endless_fetched:,} are the endless one's, "
        f"{last.of_fetches:.2%}\n"
        f"  of the frontier's memory {most.of_memory:.1%} when it has most ({most.endless_memory / 1024:,.0f} of "
        f"{most.memory / 1024:,.0f} KiB, {most.endless_queued:,} URLs queued), "
        f"{last.endless_memory / peak:.1%} of its peak"
    )
    wrong = [f"{done.lost:,} pages of the others were lost"] if done.lost else []
    if last.of_fetches > FETCHES:
        wrong.append(f"{last.of_fetches:.2%} of the fetches are the endless one's")
    if most.of_memory > MEMORY:
        wrong.append(f"{most.of_memory:.1%} of the memory is the endless one's")
    yield Ran(
        "scale-endless",
        f"an endless host among {arguments.hosts:,}",
        f"{last.of_fetches:.2%} of the fetches, {most.of_memory:.1%} of the frontier's memory; no other page lost",
        wrong,
        {"share_of_fetches": round(last.of_fetches, 5), "share_of_memory": round(most.of_memory, 4)},
    )


def _latency(_: argparse.Namespace) -> Iterator[Ran]:
    one, eight = pace(1), pace(8)
    times = eight.rate / one.rate
    print(f"latency: hosts that take 500 ms, 64 slots a process; eight processes are worth {times:.2f}")
    for result in (one, eight):
        print(
            f"  {result.processes} x 64: {result.rate:,.1f} pages/s of {result.most:,.0f}; "
            f"{result.in_flight} in flight at most; {result.idle:.0%} of the machine's CPU idle"
        )
    idle = f"{eight.idle:.0%} of the machine's CPU was idle"
    yield Ran(
        "scale-latency",
        "8 processes against 1, on hosts that take 500 ms",
        f"{times:.1f} times the pages a second",
        [f"eight processes are worth {times:.2f} of one, not {TIMES}; {idle}"] if times < TIMES else [],
        {"times": round(times, 2)},
    )


def _submissions(arguments: argparse.Namespace) -> Iterator[Ran]:
    done = submissions(arguments.submissions, say=lambda pages: print(f"  {pages} requests", flush=True))
    grown, before = done.growth / 2**20, done.before / 2**20
    wrong = [f"{done.submissions - done.fetched:,} pages were lost"] if done.fetched < done.submissions else []
    if done.growth >= GROWTH_BYTES:
        wrong.append(f"the worker's memory grew by {grown:.0f} MiB")
    print(f"submissions: {done.submissions:,}, each with attributes of its own; {before:.0f} MiB and {grown:.0f} more")
    yield Ran(
        "scale-submissions",
        f"{done.submissions:,} submissions with distinct attributes through one worker",
        f"its memory grew by {grown:.0f} MiB from {before:.0f} MiB",
        wrong,
        {"before_mib": round(before, 1), "growth_mib": round(grown, 1)},
    )


def _outage(arguments: argparse.Namespace) -> Iterator[Ran]:
    for file, name, trouble in (
        ("frozen", "Valkey stands still (SIGSTOP)", troubles.frozen),
        ("away", "Valkey is shut down and started again", troubles.away),
        ("killed", "Valkey is killed and started again", troubles.killed),
    ):
        yield _interrupted(f"scale-{file}", name, trouble, arguments, None)


def _one_shard(arguments: argparse.Namespace) -> Iterator[Ran]:
    lane, hosts, pages = _LANES[arguments.lane]
    size = Size(
        trouble_seconds=arguments.seconds,
        workers=arguments.workers,
        hosts=hosts // 2,
        pages=pages + int(2 * arguments.seconds),
        concurrency=32,
        cross_host_share=0.02,
    )
    for file, name, trouble in (
        ("frozen", "one of 8 shards stands still (SIGSTOP)", troubles.frozen),
        ("killed", "one of 8 shards is killed and started again", troubles.killed),
    ):
        done = asyncio.run(interrupted(trouble, size, lane=lane, stores=one_of_eight))
        full = done.spared * size.hits_a_second
        title = f"{name} for {size.trouble_seconds:g} s"
        showed = (
            f"{done.pages:,} pages: {done.lost:,} lost, {done.twice:,} fetched twice, {done.taken_for_dead} taken "
            f"for dead; the other shards' hosts at {done.spared_rate / full:.0%} of their speed meanwhile"
        )
        print(f"{title}, {size.workers} workers ({arguments.lane}):\n  {showed}\n{described(done)}")
        figures: dict[str, proof.Figure] = {"pages": done.pages, "lost": done.lost, "twice": done.twice}
        figures |= {"spared_rate": round(done.spared_rate, 1), "spared_full": full}
        yield Ran(f"scale-one-shard-{file}", title, showed, partial_faults(done, size), figures)


def _full_disk(arguments: argparse.Namespace) -> Iterator[Ran]:
    title = "the output's disk is full"
    try:
        with tempfile.TemporaryDirectory(prefix="full-") as name, mounted(Path(name, "disk"), _DISK) as disk:
            yield _interrupted("scale-full-disk", title, troubles.full, arguments, disk)
    except CannotMount as error:
        yield Ran("scale-full-disk", title, "", [f"not tried: {error}"], {})


def _interrupted(file: str, name: str, trouble: Trouble, arguments: argparse.Namespace, outputs: Path | None) -> Ran:
    lane, hosts, pages = _LANES[arguments.lane]
    size = Size(trouble_seconds=arguments.seconds, workers=arguments.workers, hosts=hosts, pages=pages)
    done = asyncio.run(interrupted(trouble, size, lane=lane, outputs=outputs))
    print(f"{name} for {size.trouble_seconds:g} s, {size.workers} workers ({arguments.lane}):\n{described(done)}")
    return Ran(
        file,
        f"{name} for {size.trouble_seconds:g} s",
        f"{done.pages:,} pages: {done.lost:,} lost, {done.twice:,} fetched twice; full speed {full_speed(done)}",
        faults(done, size),
        {"pages": done.pages, "lost": done.lost, "twice": done.twice, "before": done.before, "after": done.after},
    )


_LANES: dict[str, tuple[Lane, int, int]] = {"fast": (FastLane(), 100, 160), "scrapy": (ScrapyLane(), 20, 150)}
"""With as many hosts, and pages of each, as they can keep up with."""

_RUNS: dict[str, Callable[[argparse.Namespace], Iterator[Ran]]] = {
    "endless": _endless,
    "latency": _latency,
    "submissions": _submissions,
    "outage": _outage,
    "one_shard": _one_shard,
    "full_disk": _full_disk,
}

if __name__ == "__main__":
    run_command(main)
