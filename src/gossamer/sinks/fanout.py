"""Several outputs behind one."""

import asyncio
from collections.abc import Sequence

from gossamer.errors import SinkError, SinkFull
from gossamer.model.record import Output
from gossamer.sinks.base import Sink


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
