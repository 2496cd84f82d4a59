"""Progress, on standard error: standard output has the tables and nothing else."""

import sys
import time

_began = time.monotonic()


def say(sentence: str) -> None:
    """One line, with the seconds since the start."""
    print(f"{time.monotonic() - _began:6.1f} s  {sentence}", file=sys.stderr, flush=True)
