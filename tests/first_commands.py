"""`python -m tests.first_commands [VERSION...]`: the first commands of the README in a fresh folder of a Debian with
that Python (tools/debian), from nothing to the pages of `gossamer demo`; 1 where they take too long or do not work.

Nothing is installed before, and no cache of packages is left. The crawl of a real site is left out. Needs root,
debootstrap and a package index.
"""

import argparse
import re
import shutil
import subprocess
import time
from pathlib import Path

from tests import proof
from tests.command import at_least, run_command

ROOT = Path(__file__).parents[1]
SUITES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "sid"}
"""Debians by their Python."""
_SECONDS = 60.0
"""How long the commands may take where the package index is near and the machine idle."""
_LAST = "gossamer demo"
_HAS_VERSION = "import sys; sys.exit('.'.join(map(str, sys.version_info[:2])) != sys.argv[1])"


def first_commands(readme: str) -> list[str]:
    """Return the commands of the first block, up to the demo. From the release on, the block installs that; here it is
    this checkout."""
    lines = readme.split("```")[1].strip().splitlines()
    return [re.sub(r"\bgossamer-crawl$", ".", line) for line in lines[: lines.index(_LAST) + 1]]


def seconds_of(version: str) -> float:
    """Return how long the commands take in a fresh folder. Raises CalledProcessError where one fails."""
    tool = str(ROOT / "tools" / "debian")
    made = subprocess.run([tool, "make", SUITES[version]], stdout=subprocess.PIPE, text=True, check=True)
    debian = Path(made.stdout.strip())
    subprocess.run([tool, "run", debian, "python3", "-c", _HAS_VERSION, version], check=True)
    for place in ("fresh", "root/.cache"):
        shutil.rmtree(debian / place, ignore_errors=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    for file in filter(None, files.split("\0")):
        if (ROOT / file).is_file():  # not deleted
            (debian / "fresh" / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, debian / "fresh" / file)
    script = "\n".join(["cd /fresh", *first_commands((ROOT / "README.md").read_text())])
    began = time.monotonic()
    subprocess.run([tool, "run", debian, "bash", "-euo", "pipefail", "-c", script], check=True)
    seconds = time.monotonic() - began
    shutil.rmtree(debian / "fresh")
    return seconds


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.first_commands",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("versions", metavar="VERSION", nargs="*", help=f"of {', '.join(SUITES)}; all by default")
    limit = "the longest time for each; more where the package index is far away"
    parser.add_argument("--seconds", type=at_least(1, float), default=_SECONDS, help=f"{limit}; default: {_SECONDS:g}")
    options = parser.parse_args()
    if unknown := [version for version in options.versions if version not in SUITES]:
        parser.error(f"there is no Debian with Python {unknown[0]} here; known: {', '.join(SUITES)}")
    taken: dict[str, float] = {}
    failures = []
    for version in options.versions or SUITES:
        print(f"Python {version}: the first commands of the README (a minute; two more to get its Debian)", flush=True)
        try:
            taken[version] = seconds_of(version)
        except subprocess.CalledProcessError as error:
            failures.append(f"Python {version}: a command ended with {error.returncode}")
        else:
            print(f"Python {version}: {taken[version]:.0f} s", flush=True)
            if taken[version] > options.seconds:
                failures.append(f"Python {version}: {taken[version]:.0f} s, more than {options.seconds:g} s")
    print("\n".join(failures) or "good")
    if not options.versions:  # the verdict is on all
        each = ", ".join(f"{seconds:.0f} s with {version}" for version, seconds in taken.items())
        proof.write(
            "first-commands",
            title="the README's first commands in a fresh folder, on three Pythons",
            showed=f"from nothing to the pages of the demo in {each}",
            seconds=sum(taken.values()),
            failures=failures,
            figures={f"seconds on {version}": round(seconds, 1) for version, seconds in taken.items()},
        )
    return 1 if failures else 0


if __name__ == "__main__":
    run_command(main)
