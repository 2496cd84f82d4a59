"""Runs a command line, and how an error ends it. What a command needs is imported when it is known which it is."""

from collections.abc import Sequence

from gossamer import __version__
from gossamer.cli import interruption as signals
from gossamer.cli import standard
from gossamer.errors import GossamerError, Interrupted
from gossamer.telemetry import logs
from gossamer.wiring import WORKER_PROCESS


def run(arguments: Sequence[str]) -> int:
    """The exit code: 0 done, 1 nothing came of it, 2 bad input, 130 interrupted. Every error is one line."""
    logs.set_up()
    try:
        match arguments:
            case ["--version"]:
                standard.show(f"gossamer {__version__}")
                return 0
            case [command] if command == WORKER_PROCESS:
                from gossamer.cli.commands.worker import worker_process

                worker_process()
                return 0
            case _:
                from gossamer.cli.app import parse_and_run

                return parse_and_run(arguments)
    except Interrupted as error:
        standard.say(str(error))
        return signals.EXIT_CODE
    except GossamerError as error:
        standard.say(str(error))
        return 2
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
