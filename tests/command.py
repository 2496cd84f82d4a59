"""What the programs that prove promises (chaos, politeness, hostile, soak, scale) have in common as commands."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from gossamer.errors import GossamerError

_INTERRUPTED = 130


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


def run_command(main: Callable[[], int]) -> NoReturn:
    """Ends the process with what `main` returns; Ctrl-C, a closed pipe and what cannot be used are told in a line."""
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
