"""What the programs that prove promises (chaos, politeness, hostile, soak, scale) have in common as commands."""

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

from gossamer.errors import GossamerError
from tests.servers.reaper import go_on_below_reaper

T = TypeVar("T")

_INTERRUPTED = 130


@dataclass
class Runs(Generic[T]):
    """What came of a program's runs."""

    outcomes: list[T] = field(default_factory=list)
    bad: int = 0
    """Outcomes with a broken promise."""
    broken: list[int] = field(default_factory=list)
    """Seeds whose run itself broke off."""
    seconds: float = 0.0
    was_interrupted: bool = False

    def exit_code(self) -> int:
        """Of the program."""
        return 1 if self.bad or self.broken else _INTERRUPTED if self.was_interrupted else 0


def at_least(least: float, kind: Callable[[str], float] = int) -> Callable[[str], float]:
    """An argparse type: a number that is at least this."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be at least {least:g}, not {text}")
        return value

    return read


def seeds_parser(program: str, description: str | None, *, runs: int) -> argparse.ArgumentParser:
    """Return a parser with the options of each program that has a run for each seed. `runs`: how many, by default."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=at_least(1), default=runs, help=f"how many runs; default: {runs}")
    parser.add_argument("--first", type=int, default=1, help="the first run's seed; default: 1")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--keep", action="store_true", help="keep the files of good runs, too")
    return parser


def seeds_of(options: argparse.Namespace) -> Sequence[int]:
    """Return the seeds that the options of `seeds_parser` name."""
    return [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)


def run_seeds(
    seeds: Sequence[int], run: Callable[[int, Path], T], tell: Callable[[T], Sequence[str]], *, keep: bool
) -> Runs[T]:
    """Run each seed in a folder of its own, until Ctrl-C. `tell` prints a line about an outcome, and returns the
    promises that were broken. Files of good runs are deleted, unless `keep`."""
    base = Path(tempfile.mkdtemp(prefix="gossamer-runs-"))
    base.chmod(0o755)
    print(f"files in {base}", flush=True)
    found: Runs[T] = Runs()
    began = time.monotonic()
    for seed in seeds:
        folder = base / f"seed-{seed}"
        try:
            outcome = run(seed, folder)
        except KeyboardInterrupt:
            found.was_interrupted = True
            print(f"Interrupted in seed {seed}; the {len(found.outcomes)} runs before it count.", flush=True)
            break
        except Exception as error:  # of the run itself: the others go on
            found.broken.append(seed)
            traceback.print_exception(error, file=sys.stdout)
            print(f"    seed {seed} broke off; files: {folder}", flush=True)
            continue
        found.outcomes.append(outcome)
        if faults := tell(outcome):
            found.bad += 1
            print("".join(f"    {fault}\n" for fault in faults[:20]), end="")
            print(f"    to repeat it: --seed {seed}; files: {folder}", flush=True)
        elif not keep:
            shutil.rmtree(folder, ignore_errors=True)
    found.seconds = time.monotonic() - began
    if not found.bad and not found.broken and not keep:
        shutil.rmtree(base, ignore_errors=True)
    return found


def run_command(main: Callable[[], int]) -> NoReturn:
    """Ends the process with what `main` returns; Ctrl-C, a closed pipe and what cannot be used are told in a line. No
    server or other process of the program is left, however it ends."""
    if sys.platform == "linux":
        go_on_below_reaper()
    try:
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        code = _INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more to say, at the exit either
        code = 1
    except (GossamerError, OSError) as error:
        print(f"It could not be run: {error}", file=sys.stderr)
        code = 1
    sys.exit(code)
