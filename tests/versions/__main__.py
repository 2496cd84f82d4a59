"""`python -m tests.versions`: an older installed version and this one work together; 1 where they do not.

Two environments get a wheel each. A process of each version works at one crawl, whose frontier both share; one is
killed in between, and every page must have been fetched, none twice but those in flight. Then it is the other's turn.
Versions whose frontiers have different formats, which only different minor versions may have, must refuse each other's.
Last, a node of the older version runs a job for a manager of this one.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from tests.command import at_least, run_command
from tests.versions.installation import Installation, last_release, wheel_of
from tests.versions.run import Outcome, crawl, platform


def main() -> int:
    """Run all."""
    options = _options()
    old_source = options.old or last_release()
    if not old_source:
        raise OSError("there is no release yet. Name a wheel or a revision: make versions OLD=path-or-revision")
    base = Path(tempfile.mkdtemp(prefix="gossamer-versions-"))
    began = time.monotonic()
    old = _installed("old", old_source, base)
    new = _installed("new", "", base)
    print(f"old: {old.version} ({old_source}); new: {new.version}; {time.monotonic() - began:.0f} s", flush=True)
    good = True
    for number, (first, second) in enumerate(((old, new), (new, old))):
        good = _tell(crawl(first, second, base / f"crawl-{number}", pages=options.pages)) and good
    good = _tell(platform(new, old, base / "platform")) and good
    if good and not options.keep:
        shutil.rmtree(base, ignore_errors=True)
    else:
        print(f"files in {base}")
    return 0 if good else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", default="", help="wheel or revision of the older version; default: the last release")
    parser.add_argument("--pages", type=at_least(200), default=2000, help="pages of each crawl; default: 2000")
    parser.add_argument("--keep", action="store_true", help="keep the files, also of a good run")
    return parser.parse_args()


def _installed(name: str, source: str, base: Path) -> Installation:
    print(f"Installing the {name} version", flush=True)
    installation = Installation(name, wheel_of(source, base / name), base / name / "environment")
    installation.install()
    return installation


def _tell(outcome: Outcome) -> bool:
    """Print a line about an outcome, and its faults. Return whether it is good."""
    shares = ", ".join(f"{name} {count}" for name, count in outcome.pages.items())
    verdict = "FAILED" if outcome.faults else "ok"
    print(f"{verdict}: {outcome.title}: {shares}; fetched twice {outcome.repeated}", flush=True)
    print("".join(f"    {fault}\n" for fault in outcome.faults[:20]), end="")
    return not outcome.faults


if __name__ == "__main__":
    run_command(main)
