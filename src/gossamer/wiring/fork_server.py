"""Starts worker processes as copies of this program that have its modules loaded already.

A program that may start worker processes forks a fork server, before it has threads, connections or an event loop. The
fork server does nothing but fork again for each worker process. So a worker process starts in a few milliseconds,
because it need not load the modules, and it shares their memory. It is a copy of the program at that moment; spiders
and other code of users, which may hold connections or threads, must not be loaded before.

This needs Linux, whose file descriptors of processes (pidfd) tell when a process ends that is not a child. Elsewhere
`start` returns None, and worker processes load their modules. Fixed: the fork server ends with the program, however
that ends, because its socket does.
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

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # operations of Linux's prctl(2): fixed
_SERVER_NAME, _WORKER_NAME = b"gossamer-forks", b"gossamer-worker"
"""Names that `top` and `ps` show, of up to 15 bytes. Tests look for the second."""
_MESSAGE_BYTES = 64
"""Must exceed the longest message: two numbers."""
_ANSWER_SECONDS = 10.0
"""Time after which a fork server that does not answer counts as gone. It answers in milliseconds; a longer time only
delays the program where the fork server is stopped (SIGSTOP), a shorter one forks less on a machine in trouble."""
_PROGRAM_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that are for the program alone. The fork server blocks them: a service manager sends them to all processes,
and the program still asks for exit codes then."""


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
        self._exit_code: asyncio.Future[int] | None = None
        """The question for the exit code: it may be asked once, and goes on when a caller of `wait` is cancelled."""
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
            if self._exit_code is None:
                self._exit_code = asyncio.ensure_future(self._server.exit_code(self.pid))
            code = await asyncio.shield(self._exit_code)
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
        self._is_gone = False

    @classmethod
    def start(cls, main: Callable[[], int]) -> Self | None:
        """Fork the fork server of this program. `main` is what its worker processes do, and returns their exit code.
        None where this system cannot do it, or the program has threads, which a fork does not copy."""
        if not _can_fork():
            return None
        _flush()  # or each copy would write what waits
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The copy must not handle one as the program would.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _PROGRAM_SIGNALS)
        with theirs:
            try:
                pid = os.fork()
                if pid == 0:
                    ours.close()
                    _serve(theirs, main, before)
            except OSError:  # too many processes: the worker processes may fit when they are started
                ours.close()
                return None
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        ours.setblocking(False)
        cls.current = server = cls(pid, ours)
        return server

    def close(self) -> None:
        """End the fork server and wait for it, so that the CPU time of the worker processes counts as this program's.
        Worker processes that still run go on."""
        ForkServer.current = None
        self._requests.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # code of users has waited for it
            os.kill(self._pid, signal.SIGKILL)  # a process that is stopped would not notice the end of the socket
            os.waitpid(self._pid, 0)

    async def fork(self, report: int) -> tuple[ForkedProcess, int]:
        """Start a worker process that has the descriptor `report`; return it with the number of that descriptor there.
        The descriptor stays open here. Raises OSError."""
        # A copy, because a caller that is cancelled closes its own, and the number could be another file's then.
        forking = asyncio.ensure_future(self._fork(os.dup(report)))
        try:
            return await asyncio.shield(forking)
        except asyncio.CancelledError:
            forking.add_done_callback(_end_unused)
            raise

    async def _fork(self, report: int) -> tuple[ForkedProcess, int]:
        with contextlib.ExitStack() as after:
            after.callback(os.close, report)
            # No pipe: uvloop closes its descriptor twice, the second time perhaps that of another thread's file.
            theirs, ours = socket.socketpair()
            after.callback(theirs.close)
            stdin, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, ours)
            try:
                pid, number = await self._ask(b"fork", [theirs.fileno(), report])
                if pid < 0:
                    raise OSError(-pid, os.strerror(-pid))
                return ForkedProcess(self, pid, stdin), number
            except BaseException:
                stdin.close()  # a worker process ends when its standard input does
                raise

    async def exit_code(self, pid: int) -> int:
        """Return the exit code of a process that has ended; 1 where the fork server is gone. May be asked once. Must
        not be cancelled, as `_ask`."""
        try:
            code, _ = await self._ask(str(pid).encode())
        except OSError:
            return 1
        return code

    async def _ask(self, message: bytes, descriptors: Sequence[int] = ()) -> tuple[int, int]:
        """Return the two numbers that the fork server answers. Raises OSError when it is gone or does not answer. It
        counts as gone from then on, and when the caller is cancelled: the next question would get a late answer."""
        async with self._turn:
            if self._is_gone:
                raise BrokenPipeError
            self._is_gone = True  # until it answers
            socket.send_fds(self._requests, [message], descriptors)  # a single message always fits
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await asyncio.get_running_loop().sock_recv(self._requests, _MESSAGE_BYTES)
            if not answer:
                raise BrokenPipeError
            self._is_gone = False
        first, second = map(int, answer.split())
        return first, second


def _end_unused(forking: "asyncio.Future[tuple[ForkedProcess, int]]") -> None:
    """End a worker process that was started for a caller who was cancelled meanwhile."""
    if not forking.cancelled() and forking.exception() is None:
        process, _ = forking.result()
        process.stdin.close()


def _can_fork() -> bool:
    """Return whether this program may fork, and the system tells when a process ends that is not a child."""
    try:
        if len(os.listdir("/proc/self/task")) > 1:
            return False
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):  # no Linux, or an old one, or a container that forbids it
        return False
    return True


def _serve(requests: socket.socket, main: Callable[[], int], before: set[int | signal.Signals]) -> NoReturn:
    """Answer requests until the program has ended. The program's signals are blocked here; `before`: the signals that
    worker processes block."""
    try:
        os.setsid()  # Ctrl-C in the terminal is for the program alone
        _prctl(_PR_SET_NAME, _SERVER_NAME)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a process that is stopped does not notice the end of the socket
        while True:
            message, descriptors, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, 2)
            if not message:
                break
            if descriptors:
                requests.send(_answer_fork(requests, main, before, *descriptors))
            else:
                _, status = os.waitpid(int(message), 0)
                requests.send(b"%d 0" % os.waitstatus_to_exitcode(status))
    finally:  # never back into the program
        os._exit(0)


def _answer_fork(
    requests: socket.socket, main: Callable[[], int], before: set[int | signal.Signals], stdin: int, report: int
) -> bytes:
    """Fork a worker process. Return its number and that of its descriptor, or the negative number of an error and 0."""
    try:
        pid = os.fork()
    except OSError as error:
        return b"%d 0" % -(error.errno or 1)
    else:
        if pid == 0:
            requests.close()
            _work(main, before, stdin, report)
        return b"%d %d" % (pid, report)
    finally:
        os.close(stdin)
        os.close(report)


def _work(main: Callable[[], int], before: set[int | signal.Signals], stdin: int, report: int) -> NoReturn:
    """Become a worker process."""
    code = 1
    try:
        _prctl(_PR_SET_NAME, _WORKER_NAME)
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it stays ignored
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # a signal that came since the fork is handled now
        os.dup2(stdin, 0)
        os.close(stdin)
        sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115
        os.set_inheritable(report, False)  # programs that the worker starts must not keep it open
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


def continue_without_parent() -> None:
    """Have the system continue this process when its parent ends: a process that is stopped (SIGSTOP) would not notice
    the end of its standard input. Does nothing where the system is not Linux."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _prctl(operation: int, value: bytes | int) -> None:
    """Set a property of this process, where the C library can do it."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).prctl(operation, value, 0, 0, 0)
