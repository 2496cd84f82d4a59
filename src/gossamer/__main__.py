"""`gossamer`, and `python -m gossamer`: what must be seen to before a command is even imported, and how it ends."""

import contextlib
import os
import sys
from typing import NoReturn

from gossamer.cli import interruption as signals
from gossamer.wiring import WORKER_PROCESS


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 1 nothing came of it, 2 bad input, 130 interrupted."""
    if sys.argv[1:] != [WORKER_PROCESS]:  # who started it hears of the signals, and tells it
        signals.watch()
    from gossamer.cli import standard

    standard.open_missing()
    from gossamer.cli.run import run

    _leave(run(sys.argv[1:]))


def _leave(code: int) -> NoReturn:
    """End here. The interpreter's own end would take the signals' handlers away first, and wait for threads: one that
    writes to a disk or a pipe that takes nothing may never end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
