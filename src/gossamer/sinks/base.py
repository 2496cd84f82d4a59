"""The contract of an output: what is written is durable when `write` returns, and nothing is settled before that."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from gossamer.errors import SinkError, SinkFull
from gossamer.model.record import Output


class Sink(Protocol):
    """Where records go. One process may call `write` from several tasks at once; every process opens its own sink."""

    @property
    def wants_wire(self) -> bool:
        """Whether `Output.wires` should be filled: only an archive of the exchange needs those bytes."""

    async def write(self, outputs: Sequence[Output]) -> None:
        """Append the batch, in this order; return when all of it survives a power cut. An empty batch does nothing.

        `SinkFull`: no room. Nothing of this batch counts, and the same batch may be written again once there is room.
        `SinkError`: it cannot be written at all (permission, a directory in its place, a broken disk). It may be
        repeated too, should somebody mend that. A call that is cancelled may still write its batch.
        """

    async def close(self) -> None:
        """Finish what is open: wait for writes under way, build or upload what could not be made part by part.

        Repeatable, also after a `SinkError`; what was written is safe either way.
        """


class Fanout:
    """Writes each batch to every sink, at once. Durable when all have it.

    When some sinks took a batch and others did not, the failure is raised, and the same `Output` objects written again
    go only to those that still lack them: waiting for room on one disk must not repeat records on another.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = list(sinks)
        self.wants_wire = any(sink.wants_wire for sink in self.sinks)
        self._partly: dict[tuple[int, ...], tuple[Sequence[Output], set[int]]] = {}

    async def write(self, outputs: Sequence[Output]) -> None:
        if not outputs:
            return
        key = tuple(map(id, outputs))
        _, done = self._partly.pop(key, (outputs, set()))
        missing = [index for index in range(len(self.sinks)) if index not in done]
        results = await asyncio.gather(*(self.sinks[index].write(outputs) for index in missing), return_exceptions=True)
        done.update(index for index, result in zip(missing, results, strict=True) if result is None)
        failures = [result for result in results if result is not None]
        if failures:
            # The outputs are kept beside their ids, so that no other object can take an id over meanwhile.
            self._partly[key] = (list(outputs), done)
            raise _gravest(failures)

    async def close(self) -> None:
        results = await asyncio.gather(*(sink.close() for sink in self.sinks), return_exceptions=True)
        failures = [result for result in results if result is not None]
        if failures:
            raise _gravest(failures)


def _gravest(failures: Sequence[BaseException]) -> BaseException:
    """What will not pass by waiting comes first: a bug, then an error, then no room."""
    return min(failures, key=lambda failure: (isinstance(failure, SinkError), isinstance(failure, SinkFull)))


T = TypeVar("T")


class SinkThread:
    """Runs one call after the other, in the order they came. One thread, because a lock between processes is none
    between threads."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, call: Callable[[], T]) -> T:
        """Wait for the call; a cancelled wait does not stop it."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        """Take no more calls; those that were taken are finished."""
        self._executor.shutdown(wait=False)
