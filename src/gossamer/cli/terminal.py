"""Connects a command with its terminal: standard input, output and error, Ctrl-C and the other signals that end it.

`__main__` imports this module first, so that Ctrl-C works at once. It therefore imports only the standard library,
`errors.py`, `controls.py` and `net/credentials.py`; a module that loads slowly, such as asyncio or a package for the
terminal, must not be added.

Fixed: exit codes, and the order of what three signals do, on which a user in a hurry relies. What runs in a signal
handler must neither raise nor wait for a lock.
"""

import codecs
import contextlib
import errno
import os
import signal
import stat
import sys
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self, TextIO

from gossamer.controls import without_controls
from gossamer.errors import BadInput, Declined, Interrupted, SinkError
from gossamer.net.credentials import hide_secrets_in

_STREAMS = {0: "stdin", 1: "stdout", 2: "stderr"}
"""Attributes of `sys` by file descriptor, in order; set by POSIX, must not change."""

closed_at_start: set[int] = set()
"""Those of the descriptors 0, 1 and 2 that were closed when the program started."""


def replace_closed_streams() -> None:
    """Open /dev/null for each standard stream that is closed (`2>&-`), before a file or socket gets its number."""
    for number, name in _STREAMS.items():
        try:
            os.fstat(number)
        except OSError:
            closed_at_start.add(number)
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one: _STREAMS is in this order
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def check_open(number: int, *, option: str = "") -> None:
    """Raise BadInput if standard input (0) or output (1), which a command is to read or write, was closed when the
    program started. `option`: as in BadInput."""
    if number in closed_at_start:
        raise BadInput(f"standard {'output' if number else 'input'} is closed. Open it, or name a file.", option=option)


def say(sentence: str) -> None:
    """Show a sentence for a person on standard error, without passwords. Never raises."""
    print_stderr(f"gossamer: {sentence}")


def say_in_terminal(sentence: str) -> None:
    """Show a sentence for a person who waits, if there is one: standard output and error are a terminal. Never
    raises."""
    if sys.stdout.isatty() and sys.stderr.isatty():
        say(sentence)


def print_stderr(line: str) -> None:
    """Write a line to standard error, without passwords. Never raises: a crawl goes on when its terminal is gone."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{without_controls(hide_secrets_in(line))}\n")
        sys.stderr.flush()


def print_result(text: str, *, on_stderr: bool = False, styled: bool = False) -> bool:
    """Write the result of a command and a line end to standard output, or to standard error (`on_stderr`). `styled`:
    the text has colours of our own, and nothing of others.

    Return False if the reader of the stream is gone, such as `head` or a closed terminal: the result is dropped. Raises
    SinkError if writing fails for another reason.
    """
    stream = sys.stderr if on_stderr else sys.stdout
    return _write(stream, f"{without_controls(text) if stream.isatty() and not styled else text}\n")


def print_parts(parts: Iterable[bytes], *, on_stderr: bool = False) -> None:
    """Write a text in UTF-8 as it comes to standard output, or to standard error (`on_stderr`), like `print_result`
    without a line end. Bytes that are no text go unchanged to a file or a pipe.

    Returns when the reader of the stream is gone. Raises SinkError, and what `parts` raises.
    """
    stream = sys.stderr if on_stderr else sys.stdout
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a part may end within a character
    for part in parts:
        if not _write(stream, without_controls(decoder.decode(part)) if stream.isatty() else part):
            return


def _write(stream: TextIO, content: str | bytes) -> bool:
    """Return False if the reader of the stream is gone. Raises SinkError if writing fails for another reason."""
    if isinstance(content, str) and not content.isascii():  # names of files that are not UTF-8 have lone surrogates
        content = content.encode(stream.encoding, "surrogateescape" if stream is sys.stdout else "backslashreplace")
    try:
        if isinstance(content, bytes):
            stream.buffer.write(content)
        else:
            stream.write(content)
        stream.flush()
    except OSError as error:
        if error.errno == errno.EPIPE or (error.errno == errno.EIO and _is_terminal(stream)):
            return False
        raise SinkError(f"standard {'error' if stream is sys.stderr else 'output'}: {error.strerror}") from None
    return True


def print_json(value: Any) -> None:
    """Write the result of a command to standard output as JSON on one line."""
    from gossamer.model.json_codec import encode_value  # late: few commands need it

    print_result(encode_value(value).decode())


def _is_terminal(stream: TextIO) -> bool:
    """Return whether the stream is a terminal. Unlike `isatty`, this is also true after the terminal was closed. (It is
    true for every character device, such as /dev/null; these do not fail as a closed terminal does.)"""
    return stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)


def cut(text: str, width: int) -> str:
    """Return a text that is not longer than this; a long one without its middle."""
    if len(text) <= width:
        return text
    end = max(0, width - 1) // 3
    return f"{text[: max(0, width - 1 - end)]}…{text[len(text) - end :]}"


def width() -> int | None:
    """Return the number of columns of the terminal that standard output is. None: it is none, so lines of any length
    may be written."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


def confirm(question: str, *, otherwise: str) -> None:
    """Ask the person at the terminal. Raises Declined for any answer but yes, and Interrupted for a signal that ends
    the command, with the text `otherwise`; BadInput where standard input is no terminal."""
    if not sys.stdin.isatty():
        raise BadInput("there is no terminal to ask for a confirmation. Add --yes.")
    answer = _answer(question, otherwise=otherwise)
    if answer.strip().lower() not in ("y", "yes"):
        raise Declined(otherwise)


def _answer(question: str, *, otherwise: str, hidden: bool = False) -> str:
    """Return the line that the person at the terminal types, with its end; empty: the person ended the input. Raises
    Interrupted for a signal, with the text `otherwise`."""
    global _listener
    before, answer = _listener, ""
    try:
        _listener = _refuse  # the event loop, which handles signals otherwise, stands still meanwhile
        if hidden:
            from getpass import getpass  # late: few commands need it

            answer = getpass(question, stream=sys.stderr) + "\n"
        else:
            sys.stderr.write(question)
            sys.stderr.flush()
            answer = sys.stdin.readline()
    except EOFError:
        pass
    except KeyboardInterrupt:
        raise Interrupted(otherwise) from None
    finally:
        _listener = before
        if not answer.endswith("\n"):
            sys.stderr.write("\n")
    return answer


def _refuse() -> NoReturn:
    raise KeyboardInterrupt


def typed(name: str, *, hidden: bool) -> str:
    """Return what the person at the terminal types for this name. `hidden`: the terminal does not show it. Raises
    Interrupted, and BadInput if the person ends the input."""
    line = _answer(f"{name}: ", otherwise="", hidden=hidden)
    if not line:
        raise BadInput(f"{name}: nothing was typed.")
    return line.removesuffix("\n")


INTERRUPTED_EXIT_CODE = 130
"""Exit code of a shell's command that Ctrl-C ended (128 + SIGINT). Scripts test for it; must not change."""
GRACE_SECONDS = 3.0
"""Seconds that a process has, after it was told to stop at once, for giving back its requests; then it exits. Requests
that it did not give back are reclaimed after the worker's heartbeats stop."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command."""
_SHOW_CURSOR = b"\x1b[?25h"
"""Control sequence for a cursor that the progress display may have hidden; set by terminals, must not change."""
_CLEAR_LINE = b"\x1b[K"
"""Control sequence that deletes the rest of a line, such as the progress that a sentence replaces."""

_listener: Callable[[], None] | None = None
"""Called with each signal. None: no Interruption has been entered yet."""


class Interruption:
    """Context manager that stops the work of a command at Ctrl-C, SIGTERM or SIGHUP.

    Enter it in the task that does the work. What the signals do:

    - first: calls `drain`; without `drain`, cancels the task; after `set_ending`, only shows that the command is about
      to end
    - second: the process exits in GRACE_SECONDS if it still runs then; cancels the task, unless after `set_ending`
    - third: the process exits at once

    If the task was cancelled, the context raises Interrupted. After the context, the first signal leaves the command
    GRACE_SECONDS, so that it does not cut the summary off; the third exits at once, as before.
    """

    def __init__(self, drain: Callable[[], None] | None, show: Callable[[str], None]) -> None:
        """`drain`: begins an orderly end of the work; may be set later. `show`: shows a sentence to the user."""
        self.drain = drain
        self.was_interrupted = False
        """True after the first signal. The work sets it, too, when it ends early for another reason, such as an output
        whose reader went away."""
        self.exit_message = ""
        """Shown when the process exits without waiting for the work. Empty: a sentence for work that has a `drain`, or
        has none."""
        self.message_before_work = ""
        """Text of the Interrupted that the context raises. A person sees it only if the signal came before the work
        began, because the work catches its own cancellation."""
        self._show = show
        self._count = 0
        """Number of signals so far."""
        self._is_ending = False
        self._has_exited = False
        """True after the end of the `with` block."""

    def __enter__(self) -> Self:
        global _listener
        import asyncio  # late: `gossamer --help` does without it

        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        _listener = self._on_signal
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        import asyncio

        self._has_exited = True
        if self.was_interrupted and isinstance(error, asyncio.CancelledError):
            raise Interrupted(self.message_before_work) from None

    def set_ending(self) -> None:
        """Record that the work is over and that the rest of the command ends without being asked."""
        self._is_ending = True

    def set_working(self) -> None:
        """Record that the work goes on after `set_ending`, and that a signal is to end it."""
        self._is_ending = False

    def limit_time(self) -> None:
        """Exit in GRACE_SECONDS if the process still runs then."""
        exit_within(GRACE_SECONDS, self._exit_message())

    def _exit_message(self) -> str:
        if self.exit_message or self.drain is None:
            return self.exit_message or "Stopped at once."
        return "Stopped at once; requests in flight will be fetched again."

    def _on_signal(self) -> None:
        # Runs inside whatever code was interrupted: must not raise, nor wait for a lock.
        self.was_interrupted = True
        self._count += 1
        if self._count > 2:
            exit_now(self._exit_message())
        if self._count == 2 or self._has_exited:
            self.limit_time()  # first: the event loop may be blocked, and would then never handle the signal
        if not self._has_exited:
            self._loop.call_soon_threadsafe(self._on_first_signal if self._count == 1 else self._on_second_signal)

    def _on_first_signal(self) -> None:
        if self._is_ending:
            self._show("Ending; press Ctrl-C again to end at once.")
        elif self.drain is not None:
            self._show("Finishing requests in flight; press Ctrl-C again to stop at once.")
            self.drain()
        elif self._task is not None:
            self._task.cancel()

    def _on_second_signal(self) -> None:
        if not self._is_ending and self._task is not None:
            self._task.cancel()


def watch_signals() -> None:
    """Handle the signals that end a process.

    Until an Interruption is entered, a signal exits at once. That is as safe as SIGKILL: nothing that was stored is
    lost.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # the exit codes of child processes would be lost
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in _SIGNALS:
        # Under nohup SIGHUP stays ignored, so that the command outlives its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle_signal)


def exit_on_signal(sentence: str, code: int = INTERRUPTED_EXIT_CODE) -> None:
    """From now on, a signal shows this sentence (if not empty) and exits with this code. For commands that only wait or
    watch, and need no orderly end."""
    call_on_signal(lambda: exit_now(sentence, code))


def exit_below_picture() -> None:
    """From now on, a signal exits with the code 0, below a picture on standard output that is renewed in place.

    The last line of such a picture has no end, so the shell's prompt would overwrite it.
    """
    call_on_signal(_exit_below_picture)


def _exit_below_picture() -> NoReturn:
    if os.isatty(1):
        with contextlib.suppress(OSError):
            os.write(1, b"\r\n" + _SHOW_CURSOR)
    exit_now("", 0)


def call_on_signal(listener: Callable[[], None]) -> None:
    """From now on, a signal calls this function. It runs inside whatever code was interrupted: it must not raise, nor
    wait for a lock."""
    global _listener
    _listener = listener


def exit_now(sentence: str, code: int = INTERRUPTED_EXIT_CODE) -> NoReturn:
    """Show this sentence (if not empty) and exit. Safe in a signal handler and in any thread."""
    write_now(sentence)
    os._exit(code)


def write_now(sentence: str) -> None:
    """Show this sentence (if not empty) on standard error. Safe in a signal handler and in any thread."""
    with contextlib.suppress(OSError):
        begin = b"\r" + (_CLEAR_LINE if sentence else b"") + _SHOW_CURSOR if os.isatty(2) else b""
        os.write(2, begin + (f"gossamer: {sentence}\n".encode(errors="replace") if sentence else b""))


def exit_within(seconds: float, sentence: str, code: int = INTERRUPTED_EXIT_CODE) -> None:
    """Call `exit_now` after these seconds, if the process still runs then."""

    def wait() -> None:
        time.sleep(seconds)
        exit_now(sentence, code)

    # Not `threading`: the interrupted code may hold its locks.
    start_new_thread(wait, ())


def _handle_signal(number: int, frame: FrameType | None) -> None:
    if _listener is None:
        exit_now("Interrupted.")
    _listener()
