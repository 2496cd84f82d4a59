"""A manager and a node of the platform as processes beside another command, for `gossamer up --platform`.

Fixed: both run in sessions of their own, so that Ctrl-C in the terminal reaches only the parent, which stops them; and
both end when the parent is killed (PARENT_VARIABLE). The manager writes a line to its standard output when it serves:
an answer at its port could be another program's.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from gossamer.errors import BadInput
from gossamer.net.listening import listen_fault

PARENT_VARIABLE = "GOSSAMER_PARENT"
"""Environment variable with the pid of the command that runs a manager or a node beside itself. Fixed for one release:
both commands are of the same installation."""
_HOST = "127.0.0.1"
_START_SECONDS = 60.0
"""Time that a manager has to start, which migrates its database."""
_PAUSE_SECONDS = 1.0
"""Pause before a process that has ended is started again."""
_END_SECONDS = 20.0
"""Time that a process has to stop until it is killed."""
_REFUSED = 2
"""Exit code of a command whose start was refused, for a reason that it has shown."""


@contextlib.asynccontextmanager
async def platform_beside(
    folder: Path, port: int, say: Callable[[str], None], *, service: str, token: str
) -> AsyncIterator[str]:
    """Run a manager and one node with their files below `folder`, and yield the manager's address. `service`: address
    of the crawl service for schedules, whose token is `token`. Raises BadInput if the manager cannot start."""
    address = f"http://{_HOST}:{port}"
    manager = ("manager", "--host", _HOST, "--port", str(port), "--store", str(folder / "store"))
    known = {"SCRAPYD_CRAWL_SERVICE": service, "SCRAPYD_CRAWL_SERVICE_TOKEN": token}
    # Projects cannot be separated here: the manager has no password, so each of their jobs could use it.
    node = ("node", "--manager", address, "--folder", str(folder / "node"), "--name", "local", "--project-users", "off")
    _check_port(port)
    first = await _start(manager, known)
    try:
        await _wait_until_it_serves(first)
    except BaseException:
        await _stop(first)
        raise
    jobs = asyncio.create_task(_keep(node, {}, say))
    keeping = [asyncio.create_task(_keep(manager, known, say, first)), jobs]
    keeping[0].add_done_callback(lambda _: jobs.cancel())  # a manager of another program may have its port now
    try:
        yield address
    finally:
        for task in keeping:
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)


async def _keep(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    say: Callable[[str], None],
    process: asyncio.subprocess.Process | None = None,
) -> None:
    """Run a command until the task is cancelled; start it again when it ends. `process`: the first, if it runs."""
    while True:
        process = process or await _start(arguments, environment)
        try:
            code = await process.wait()
        finally:
            await _stop(process)
        process = None
        if code == _REFUSED:
            say(f"gossamer {arguments[0]} cannot run; its reason is above. The crawl service goes on without it.")
            return
        say(f"gossamer {arguments[0]} has ended with exit code {code} and is started again.")
        await asyncio.sleep(_PAUSE_SECONDS)


async def _start(arguments: Sequence[str], environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gossamer", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environment, PARENT_VARIABLE: str(os.getpid())},
        start_new_session=True,
    )


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop a process, unless it has ended. A caller that is cancelled meanwhile kills it."""
    try:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise


def _check_port(port: int) -> None:
    """Raise BadInput if another program uses the port."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            fault = listen_fault(f"port {port} of {_HOST}", error, option="--platform-port PORT")
            raise BadInput(f"--platform: {fault}") from None


async def _wait_until_it_serves(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_SECONDS):
            line = await process.stdout.readline()
    except TimeoutError:
        raise BadInput(f"--platform: the manager did not start within {_START_SECONDS:g} seconds") from None
    if not line:
        raise BadInput("--platform: the manager cannot run; its reason is above")
