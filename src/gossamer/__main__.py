"""Entry point of `gossamer` and `python -m gossamer`: prepares signals and streams, runs a command, sets the exit code.

Nothing but what Python has loaded already may be imported before `main` has set the first signal handler: until then,
Ctrl-C prints a traceback. Everything else is imported late, so that `gossamer --help` is quick. Fixed: the exit codes
of `run`, which scripts test.
"""

import sys

TYPE_CHECKING = False  # not from typing, which would be loaded
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

_COLLECT_AFTER = 200_000
"""Number of new objects after which Python looks for cycles of unused ones. At Python's default, loading a command's
modules takes a tenth more CPU time, for cycles that there are not."""


def main() -> "NoReturn":
    """Run the command line and exit."""
    import _signal  # type: ignore[import-not-found]  # the part of `signal` that is loaded already

    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # ends the process, without a word
    from gossamer.cli import terminal
    from gossamer.wiring import WORKER_PROCESS

    if sys.argv[1:] != [WORKER_PROCESS]:  # a worker process is stopped by its parent, which gets the signals
        terminal.watch_signals()
    terminal.replace_closed_streams()
    import gc

    gc.set_threshold(_COLLECT_AFTER)
    _exit_at_once(run(sys.argv[1:]))


def run(arguments: "Sequence[str]") -> int:
    """Run a command and return its exit code (docs/reference/exit-codes.md). An error is shown in one line."""
    from gossamer.cli import terminal
    from gossamer.errors import GossamerError, Interrupted
    from gossamer.telemetry import logs
    from gossamer.wiring import WORKER_PROCESS

    logs.set_up()
    try:
        if arguments == [WORKER_PROCESS]:
            from gossamer.cli.worker_process import run_worker_process

            return run_worker_process()
        from gossamer.cli.app import parse_and_run

        return parse_and_run(arguments)
    except Interrupted as error:
        terminal.say(str(error))
        return terminal.INTERRUPTED_EXIT_CODE
    except GossamerError as error:
        terminal.say(str(error))
        return error.exit_code
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1


def _exit_at_once(code: int) -> "NoReturn":
    """Exit at once. The interpreter's own exit would first remove the signal handlers and wait for threads, and a
    thread that writes to a stuck disk or pipe may never end."""
    import contextlib
    import os

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader is gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
