"""`python -m tests.links --pages 1000000 --folder DIR`: reads generated pages and all HTML files below DIR twice, with
the compiled extension and with the reference in Python; 1 where they differ for no known reason.

Real pages must be read alike without exception. Folders with many: the documentation of a programming language
(python3-doc, rust-docs, openjdk-17-doc), as its package installs it.
"""

import argparse
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests import proof
from tests.command import at_least, run_command
from tests.links.compare import BothExtractors, reason, shrink
from tests.links.generate import COSTLY, make_page, well_formed

_SHOWN = 10


def main() -> int:
    options = _options()
    began = time.monotonic()
    both = BothExtractors(texts=False)
    failures: list[str] = []
    reasons = _generated(both, options.pages, options.seed, failures)
    costly = _costly(both, options.pages // 10, options.seed, failures)
    whole = _well_formed(both, options.pages // 10, options.seed, failures)
    real = _real(both, options.folder, options.files, failures)
    for failure in failures[:_SHOWN]:
        print(failure)
    rows = [
        ("generated pages", options.pages),
        ("costly pages", costly),
        ("well-formed pages", whole),
        ("real pages", real),
        *reasons.items(),
    ]
    for name, count in rows:
        print(f"{count:>9,}  {name}")
    proof.write(
        "links",
        title="links by the compiled extension and by the reference",
        showed=f"{real:,} real pages and {whole:,} well-formed ones read alike, and {costly:,} that are not "
        f"parsed as a whole; of {options.pages:,} generated pages "
        f"{sum(reasons.values()):,} differ, all for a known reason",
        seconds=time.monotonic() - began,
        failures=failures[:_SHOWN],
        figures=dict(rows),
        seeds=[options.seed],
    )
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.links", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=at_least(10), default=1_000_000, help="generated pages; default: 1,000,000")
    parser.add_argument("--seed", type=int, default=1, help="of the generated pages; default: 1")
    parser.add_argument("--folder", action="append", default=[], type=Path, help="with real pages; may be repeated")
    parser.add_argument("--files", type=at_least(1), default=50_000, help="most real pages to read; default: 50,000")
    return parser.parse_args()


def _generated(both: BothExtractors, pages: int, seed: int, failures: list[str]) -> Counter[str]:
    chance = random.Random(seed)
    reasons: Counter[str] = Counter()
    for _ in range(pages):
        page = make_page(chance)
        if both.difference(page):
            shortest = shrink(both, page)
            why = reason(shortest)
            reasons[why or "no known reason"] += 1
            if not why:
                failures.append(f"{shortest!r}: {both.difference(shortest)}")
    return reasons


def _costly(both: BothExtractors, pages: int, seed: int, failures: list[str]) -> int:
    chance = random.Random(seed + 1)
    for _ in range(pages):
        page = COSTLY + make_page(chance)
        if difference := both.difference(page):
            failures.append(f"costly {page!r}: {difference}")
    return pages


def _well_formed(both: BothExtractors, pages: int, seed: int, failures: list[str]) -> int:
    chance = random.Random(seed)
    for _ in range(pages):
        page = f"<!doctype html><html><head><title>t</title></head><body>{well_formed(chance)}</body></html>".encode()
        if difference := both.difference(page):
            failures.append(f"well-formed {page!r}: {difference}")
    return pages


def _real(both: BothExtractors, folders: list[Path], most: int, failures: list[str]) -> int:
    count = 0
    for file in (file for folder in folders for file in _html_files(folder)):
        if count >= most:
            break
        data = file.read_bytes()
        if data:
            count += 1
            if difference := both.difference(data, f"http://site.test/{count}/x.html"):
                failures.append(f"{file}: {difference}")
    return count


def _html_files(folder: Path) -> Iterator[Path]:
    for parent, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if name.endswith((".html", ".htm")):
                yield Path(parent, name)


if __name__ == "__main__":
    run_command(main)
