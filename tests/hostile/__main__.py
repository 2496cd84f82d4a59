"""`python -m tests.hostile`: crawl the hostile web next to a healthy one; 1 where a promise was broken.

A table of what each case came to, and what is wrong. Where this system lets us, it runs in a network of its own in
which every address leads to a canary on this machine (`namespace`); elsewhere the canary stands on this machine's own
addresses, and the cases by name are left out.
"""

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb import expected
from tests import proof
from tests.command import at_least, run_command
from tests.hostile import namespace
from tests.hostile.canary import Canary
from tests.hostile.judge import Evidence, Row, all_faults, judged, table
from tests.hostile.names import Names
from tests.hostile.run import Crawled, Pace, crawl, visited
from tests.hostile.targets import PUBLIC, hostile, named, spelt

_FULL = Pace(total_seconds=30, first_byte_seconds=15, connect_seconds=10, domain_pages=20, give_up_seconds=600)
_SHORT = Pace(total_seconds=4, first_byte_seconds=3, connect_seconds=2, domain_pages=12, give_up_seconds=60)
_HERE = ("127.0.0.1", "127.9.9.9")
_EVERYWHERE = (*_HERE, "10.0.0.1", "100.64.0.1", "169.254.169.254", "192.168.1.1", "::1", "fd00::1", "64:ff9b::7f00:1")


def main(words: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help="some of the cases, in half a minute; all take two to three"
    )
    parser.add_argument(
        "--copies", type=at_least(0), default=8, help="of each case that takes much memory (default: 8)"
    )
    parser.add_argument("--folder", type=Path, help="where the files of the crawl go; else a temporary folder")
    parser.add_argument("--no-network", action="store_true", help="do not try to make a network of our own")
    parser.add_argument(namespace.INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.inside:
        sys.argv[:] = [word for word in sys.argv if word != namespace.INSIDE]  # the proof has what a person types
    elif not options.no_network:
        namespace.enter(words)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="hostile-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Crawling; what came of each case is told at the end. Files in {folder}", flush=True)
    try:
        faults = _run(options, folder)
    except KeyboardInterrupt:
        if options.folder is None:
            shutil.rmtree(folder)
        raise
    ending = f"{len(faults)} faults; files in {folder}" if faults else "All bounded, recorded and refused as promised."
    print(*faults, ending, sep="\n")
    if not faults and options.folder is None:
        shutil.rmtree(folder)
    return int(bool(faults))


def _run(options: argparse.Namespace, folder: Path) -> list[str]:
    pace = _SHORT if options.short else _FULL
    with contextlib.ExitStack() as stack:
        canary = stack.enter_context(Canary(allowed=(PUBLIC,), more_ports=(80, 443) if options.inside else ()))
        if options.inside:
            stack.enter_context(Names())
        unseen = canary.proven(_EVERYWHERE if options.inside else _HERE)
        spec = WebSpec(
            hosts=4 if options.short else 20, pages=10 if options.short else 20, hostile=True, hostile_port=canary.port
        )
        web = stack.enter_context(FakeWeb.start(spec))
        healthy = web.seeds()
        before = crawl(web, [], [], healthy, pace, folder / "healthy")
        targets = hostile(web, short=options.short, copies=0 if options.short else options.copies)
        links, no_urls = spelt(canary.port)
        names = named(canary.port) if options.inside else []
        crawled = crawl(web, targets, names, healthy, pace, folder / "hostile")
        evidence = Evidence(
            targets=targets,
            links=links,
            names=names,
            healthy=set(expected(web.site)),
            before=before,
            crawled=crawled,
            pace=pace,
            unseen=unseen,
            visits=visited(canary),
            welcomed=bool(canary.welcome),
        )
        rows = judged(evidence)
        faults = all_faults(evidence, rows)
        print(table(rows))
        print(_described(before, crawled, len(rows), len(links), len(no_urls), options.inside))
    _prove(evidence, rows, faults)
    return faults


def _prove(evidence: Evidence, rows: Sequence[Row], faults: Sequence[str]) -> None:
    """Write the verdict as JSON."""
    grown = (max(evidence.crawled.memory) - max(evidence.before.memory)) / 2**20
    proof.write(
        "hostile",
        title=f"hostile, {len(rows)} cases",
        showed=f"all bounded and recorded, no refused address connected to, the healthy site whole; the worker took "
        f"{grown:.0f} MiB more than with honest pages, with 64 slots",
        seconds=evidence.before.seconds + evidence.crawled.seconds,
        failures=faults,
        figures={"cases": len(rows), "requests": len(evidence.crawled.log), "more_mib": round(grown)},
    )


def _described(before: Crawled, crawled: Crawled, rows: int, links: int, no_urls: int, inside: bool) -> str:
    most, base = max(crawled.memory) / 2**20, max(before.memory) / 2**20
    where = "every address there is" if inside else "this machine's own addresses; no cases by name"
    return (
        f"\n{rows} rows, {len(crawled.log):,} requests, {len(crawled.lines):,} records in {crawled.seconds:.0f} s\n"
        f"worker: {base:.0f} MiB with honest pages, {most:.0f} MiB with hostile ones, {most - base:+.0f} MiB\n"
        f"private addresses: {links} spellings, {no_urls} more that are no URL; the canary stands on {where}\n"
    )


if __name__ == "__main__":
    run_command(main)
