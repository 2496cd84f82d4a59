"""One event loop for a command: uvloop's where it is installed, in a process tuned for pages."""

import asyncio
import ctypes
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_KEPT_BYTES = 32 * 1024 * 1024


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it to its end."""
    # Pages make many objects and hardly a cycle: looking for cycles as often as Python does costs a tenth of the CPU.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    _keep_freed_memory()
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)


def _keep_freed_memory() -> None:
    """Have glibc keep up to 32 MiB of freed memory. By itself it returns what a parsed page leaves and asks for it anew
    for the next one, and the kernel's clearing of those pages is a tenth of all CPU. Elsewhere nothing happens."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
