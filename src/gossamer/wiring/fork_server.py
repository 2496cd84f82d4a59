"""Starts worker processes as copies of this program that have its modules loaded already.

A program that may start worker processes forks a fork server, before it has threads, connections or an event loop. The
fork server does nothing but fork again for each worker process. So a worker process starts in a few milliseconds,
because it need not load the modules, and it shares their memory. It is a copy of the program at that moment; spiders
and other code of users, which may hold connections or threads, must not be loaded before.

This needs Linux, whose file descriptors of processes (pidfd) tell when a process ends that is not a child. Elsewhere
`start` returns None, and worker processes load their modules. Safe to change: what the two sides send each other, which
are of the same release. Fixed: the fork server ends with the program, however that ends, because its socket does.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, Self

_PR_SET_NAME = 15  # operation of Linux's prctl(2): fixed
_SERVER_NAME, _WORKER_NAME = b"gossamer-forks", b"gossamer-worker"
"""Names that `top` and `ps` show, of up to 15 bytes. Tests look for the second."""
_MESSAGE_BYTES = 64
"""Must exceed the longest message: two numbers."""


class ForkedProcess:
    """A worker process, used like one of `asyncio.subprocess`."""

    def __init__(self, server: "ForkServer", pid: int, stdin: asyncio.WriteTransport) -> None:
        self.pid = pid
        self.stdin = stdin
        self.returncode: int | None = None
        """None: the process runs, or `wait` has not been called."""
        self._server = server
        self._descriptor = os.pidfd_open(pid)
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._descriptor, self._on_end)

    def _on_end(self) -> None:
        """Hook of the event loop: the process has ended."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        self._ended.set()

    async def wait(self) -> int:
        """Return the exit code when the process has ended; negative: the number of the signal that killed it. 1 where
        that is not known, because the fork server is gone. May be repeated."""
        await self._ended.wait()
        if self.returncode is None:
            code = await self._server.exit_code(self.pid)
            if self.returncode is None:  # else another call was faster
                self.returncode = code
                os.close(self._descriptor)
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM. Raises ProcessLookupError if the process has ended."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL. Raises ProcessLookupError if the process has ended."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._descriptor, number)


class ForkServer:
    """The fork server of this program, as the program sees it."""

    current: "ForkServer | None" = None
    """None: the program has none, so that its worker processes are started anew."""

    def __init__(self, pid: int, requests: socket.socket) -> None:
        self._pid = pid
        self._requests = requests
        self._turn = asyncio.Lock()

    @classmethod
    def start(cls, main: Callable[[], int]) -> Self | None:
        """Fork the fork server of this program. `main` is what its worker processes do, and returns their exit code.
        None where this system cannot do it, or the program has threads, which a fork does not copy."""
        if not _can_fork():
            return None
        _flush()  # or each copy would write what waits
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                pid = os.fork()
            except OSError:  # too many processes: the worker processes may fit when they are started
                ours.close()
                return None
            if pid == 0:
                ours.close()
                _serve(theirs, main)
        ours.setblocking(False)
        cls.current = server = cls(pid, ours)
        return server

    def close(self) -> None:
        """End the fork server and wait for it, so that the CPU time of the worker processes counts as this program's.
        Worker processes that still run go on."""
        ForkServer.current = None
        self._requests.close()
        os.waitpid(self._pid, 0)

    async def fork(self, report: int) -> tuple[ForkedProcess, int]:
        """Start a worker process that has the descriptor `report`; return it with the number of that descriptor there.
        The descriptor stays open here. Raises OSError."""
        # A copy, because a caller that is cancelled closes its own, and the number could be another file's then.
        return await asyncio.shield(asyncio.ensure_future(self._fork(os.dup(report))))

    async def _fork(self, report: int) -> tuple[ForkedProcess, int]:
        theirs, ours = os.pipe()
        stdin, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, os.fdopen(ours, "wb"))
        try:
            pid, number = await self._ask(b"fork", [theirs, report])
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
        except BaseException:
            stdin.close()  # a worker process ends when its standard input does
            raise
        finally:
            os.close(theirs)
            os.close(report)
        return ForkedProcess(self, pid, stdin), number

    async def exit_code(self, pid: int) -> int:
        """Return the exit code of a process that has ended; 1 where the fork server is gone."""
        try:
            code, _ = await asyncio.shield(asyncio.ensure_future(self._ask(str(pid).encode())))
        except OSError:
            return 1
        return code

    async def _ask(self, message: bytes, descriptors: Sequence[int] = ()) -> tuple[int, int]:
        """Return the two numbers that the fork server answers. Must not be cancelled: the next question would get its
        answer."""
        async with self._turn:
            socket.send_fds(self._requests, [message], descriptors)  # a single message always fits
            answer = await asyncio.get_running_loop().sock_recv(self._requests, _MESSAGE_BYTES)
        if not answer:
            raise BrokenPipeError
        first, second = map(int, answer.split())
        return first, second


def _can_fork() -> bool:
    """Return whether this program may fork, and the system tells when a process ends that is not a child."""
    try:
        if len(os.listdir("/proc/self/task")) > 1:
            return False
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):  # no Linux, or an old one, or a container that forbids it
        return False
    return True


def _serve(requests: socket.socket, main: Callable[[], int]) -> NoReturn:
    """Answer requests until the program has ended."""
    os.setsid()  # Ctrl-C in the terminal is for the program alone
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a service manager signals all processes; this one ends with the program
    _set_name(_SERVER_NAME)
    try:
        while True:
            message, descriptors, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, 2)
            if not message:
                break
            if descriptors:
                requests.send(_answer_fork(requests, main, *descriptors))
            else:
                _, status = os.waitpid(int(message), 0)
                requests.send(b"%d 0" % os.waitstatus_to_exitcode(status))
    finally:  # never back into the program
        os._exit(0)


def _answer_fork(requests: socket.socket, main: Callable[[], int], stdin: int, report: int) -> bytes:
    """Fork a worker process. Return its number and that of its descriptor, or the negative number of an error and 0."""
    try:
        pid = os.fork()
        if pid == 0:
            requests.close()
            _work(main, stdin, report)
    except OSError as error:
        return b"%d 0" % -(error.errno or 1)
    finally:
        os.close(stdin)
        os.close(report)
    return b"%d %d" % (pid, report)


def _work(main: Callable[[], int], stdin: int, report: int) -> NoReturn:
    """Become a worker process."""
    _set_name(_WORKER_NAME)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(stdin, 0)
    os.close(stdin)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.set_inheritable(report, False)  # programs that the worker starts must not keep it open
    code = 1
    try:
        code = main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _flush()
        os._exit(code)


def _flush() -> None:
    """Write what waits in the standard streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader is gone
            stream.flush()


def _set_name(name: bytes) -> None:
    """Set the name of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name, 0, 0, 0)
