"""Child process that extracts the main content of pages: `python -m gossamer.extract.content_process`.

`ContentPool` starts it, sends pages to its standard input and reads the results from its standard output; both run the
same installation, so the messages may change freely. For each message: four bytes with its length, then MessagePack.

The process protects its machine. The kernel kills it when a page takes more CPU time than allowed; a thread ends it
when a page takes more memory; it ends when its parent does, however that died. Fixed: `MEMORY_EXIT`, by which the
parent knows the reason, and that signals for a whole process group (Ctrl-C) leave it running, because its parent still
needs it to finish.
"""

import contextlib
import os
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any

import msgspec

from gossamer.model.content import ContentChunk, ContentError, ContentOptions, PageContent

MEMORY_EXIT = 77
"""Exit code of a process whose page took too much memory. Any code that Python itself does not use."""
MAX_REPLY_BYTES = 64 * 1024 * 1024
"""Longest reply. A page whose content is longer counts as one that takes too much memory. The parent holds such a reply
in memory."""
_WATCH_SECONDS = 0.05
"""Interval at which the memory is measured. A page may exceed its limit for so long."""
_LEFT_BEHIND_PART = 3
"""A process is replaced when pages have left behind one part in this many of the memory that a page may take. Above 1:
a larger number replaces processes more often, and a start takes half a second."""
_NICENESS = 10
"""Lower priority than the fetching processes, so that these keep their pace. Within 0 to 19."""
_HEADER = struct.Struct("!I")


class ProcessLimits(msgspec.Struct, frozen=True, array_like=True):
    """Limits for each page, the first message to the process."""

    cpu_seconds: float
    memory_bytes: int
    parent: int
    """Process id of the parent."""


class ContentRequest(msgspec.Struct, frozen=True, array_like=True):
    """A page whose content is wanted."""

    body: bytes
    encoding: str
    """Python codec of the body."""
    url: str
    """Canonical URL of the page."""
    options: ContentOptions


class ContentReply(msgspec.Struct, frozen=True, array_like=True):
    """The content of a page. A first reply, without content, says that the process is ready."""

    content: PageContent | None = None
    """None: in the first reply."""
    chunks: list[ContentChunk] | None = None
    """None: the crawl asks for none."""
    is_last: bool = False
    """True: the process ends now, because it has grown; the parent starts another."""


def frame(message: msgspec.Struct) -> bytes:
    """Return a message as it goes through a pipe."""
    data = msgspec.msgpack.encode(message)
    return _HEADER.pack(len(data)) + data


def frame_length(header: bytes) -> int:
    """Return the length of the message that follows these four bytes."""
    return int(_HEADER.unpack(header)[0])


FRAME_HEADER_BYTES = _HEADER.size


def main() -> None:
    """Extract the content of one page after the other, until standard input ends."""
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with the replies
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    first = _read(source)
    if first is None:
        return
    limits = msgspec.msgpack.decode(first, type=ProcessLimits)
    _end_with_parent(limits.parent)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
        if sys.platform == "linux":  # a process that fetches need not wait for the end of this one's time slice
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(10_000)  # trees are at most 256 levels deep, a few frames for each

    from gossamer.extract.content import extract_content  # takes half a second
    from gossamer.extract.encoding import decode_as

    def extract(data: bytes) -> ContentReply:
        request = msgspec.msgpack.decode(data, type=ContentRequest)
        try:
            return ContentReply(
                *extract_content(decode_as(request.body, request.encoding), request.url, request.options)
            )
        except MemoryError:
            os._exit(MEMORY_EXIT)
        except Exception as error:  # of a library, on a page that it cannot read
            print(f"{request.url}: {type(error).__name__}: {error}"[:500], file=sys.stderr)
            return ContentReply(PageContent(error=ContentError.CRASHED))

    _serve(source, target, limits, extract)


def _serve(
    source: IO[bytes], target: IO[bytes], limits: ProcessLimits, extract: Callable[[bytes], ContentReply]
) -> None:
    """Answer each request. Says first that it is ready."""
    memory = _MemoryWatch(limits.memory_bytes)
    target.write(frame(ContentReply()))
    target.flush()
    while (data := _read(source)) is not None:
        # The default action of SIGPROF ends the process, whatever code it is in.
        signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds)
        with memory:
            reply = extract(data)
            del data
            framed = frame(reply)
            if len(framed) > MAX_REPLY_BYTES:
                reply = ContentReply(PageContent(error=ContentError.MEMORY))
                framed = frame(reply)
        signal.setitimer(signal.ITIMER_PROF, 0)  # no limit until the next page
        is_last = memory.has_grown
        target.write(frame(msgspec.structs.replace(reply, is_last=True)) if is_last else framed)
        target.flush()
        if is_last:
            return


def _read(source: IO[bytes]) -> bytes | None:
    """Return the next message; None: there is none, or the parent died within it."""
    header = source.read(FRAME_HEADER_BYTES)
    if len(header) < FRAME_HEADER_BYTES:
        return None
    length = frame_length(header)
    data = source.read(length)
    return data if len(data) == length else None


class _MemoryWatch:
    """Ends the process when, while it is entered, the memory has grown by more than the limit since the start."""

    def __init__(self, limit_bytes: int) -> None:
        self._base = _resident_bytes()
        self._limit = limit_bytes
        self._is_working = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()
        if sys.platform == "linux":  # other systems do not keep this limit
            # A single allocation may exceed the machine's memory before the thread notices, so the kernel limits the
            # address space, too. That is larger than the memory in use: hence twice the limit, and 256 MiB more.
            size = _statm(_STATM_SIZE) + 2 * limit_bytes + 256 * 1024 * 1024
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))

    def __enter__(self) -> None:
        self._is_working.set()

    def __exit__(self, *_: Any) -> None:
        self._is_working.clear()
        self._check()

    @property
    def has_grown(self) -> bool:
        """True: earlier pages have left so much memory behind that the next one would be short of it."""
        return _resident_bytes() - self._base > self._limit // _LEFT_BEHIND_PART

    def _watch(self) -> None:
        """Check the memory again and again while a page is worked on. Runs in a thread."""
        while True:
            self._is_working.wait()
            time.sleep(_WATCH_SECONDS)
            if self._is_working.is_set():
                self._check()

    def _check(self) -> None:
        if _resident_bytes() - self._base > self._limit:
            os._exit(MEMORY_EXIT)


def _resident_bytes() -> int:
    """Return the memory that the process takes; outside of Linux, the most that it has taken so far."""
    if sys.platform == "linux":
        return _statm(_STATM_RESIDENT)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # macOS counts bytes, other systems KiB


_STATM_SIZE, _STATM_RESIDENT = 0, 1
"""Positions in /proc/self/statm, in pages: address space, and memory in use. Fixed by Linux."""


def _statm(field: int) -> int:
    """Return a number of /proc/self/statm in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[field]) * resource.getpagesize()


def _end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (Linux). Elsewhere it ends at the end of its input, after
    at most one page."""
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1  # PR_SET_PDEATHSIG
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(1)


if __name__ == "__main__":
    main()
