"""The interface of an output (`Sink`) and what sinks share.

A new sink must keep these promises, on which commits rely: a batch is durable when `write` returns, because its
requests are marked as done after that and never fetched again; and a batch that `write` refused may be written
again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from gossamer.errors import OutputClosed, SinkError, SinkFull
from gossamer.model.record import Output


class Sink(Protocol):
    """Output for records (pages and items). Several tasks may call `write` at once; every process opens its own
    sink."""

    @property
    def wants_wire(self) -> bool:
        """True if `Output.wires`, the raw bytes of the HTTP exchanges, should be filled. Only archives need them."""

    @property
    def wants_text(self) -> bool:
        """True if the records of pages must have their bodies. False: the sink also takes `Output.body_apart`."""

    async def write(self, outputs: Sequence[Output]) -> None:
        """Append the batch in this order, and return when all of it survives a power cut. An empty batch does nothing.

        Raises `SinkFull` when there is no room: the batch is not written, and the same batch may be written again once
        there is room. Raises `SinkError` when it cannot be written at all (permission, a directory in its place, a
        broken disk); it may be written again once a person has solved that. A cancelled call may still write its batch.
        """

    async def close(self) -> None:
        """Wait for running writes, and build or upload what could not be written part by part.

        May be called again, also after a `SinkError`. What was written is safe in either case.
        """


WriteCall = Callable[[], Awaitable[None]]
"""Call that writes a part of a batch. Called again after a SinkError, it writes only what is missing."""


class SplitWrite(NamedTuple):
    """Write of one batch, in parts that may fail independently."""

    shared: WriteCall
    """Writes to the outputs that all applications share."""
    own: dict[str, WriteCall]
    """By application (appid): writes the application's records to its own outputs. Other applications' records are not
    written there."""


@runtime_checkable
class SplitSink(Sink, Protocol):
    """Sink of which some outputs belong to single applications, so that one of these may be away alone."""

    def split(self, outputs: Sequence[Output]) -> SplitWrite:
        """Return the write of a batch. The batch is durable when all its calls have returned."""

    async def check(self) -> None:
        """Raise SinkError if an output that all applications share is unavailable. A failure of an application's own
        output is then part of the same outage."""


class WriteTogether:
    """Calls that are made at the same time. Implements WriteCall."""

    def __init__(self, calls: Sequence[WriteCall]) -> None:
        self._missing = list(calls)

    async def __call__(self) -> None:
        calls = self._missing
        results = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
        self._missing = [call for call, result in zip(calls, results, strict=True) if result is not None]
        failures = [result for result in results if result is not None]
        if failures:
            raise _most_severe(failures)


class Fanout:
    """Sink that writes each batch to several sinks at the same time. A batch is durable when all of them have it.

    When some sinks fail to write a batch, the error is raised. The same `Output` objects, written again, then go only
    to the sinks that lack them: waiting for room on one disk must not repeat records on another.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = list(sinks)
        self.wants_wire = any(sink.wants_wire for sink in self.sinks)
        self.wants_text = any(sink.wants_text for sink in self.sinks)
        self._partial: dict[tuple[int, ...], tuple[Sequence[Output], set[int]]] = {}
        """By the ids of its outputs: each batch that some sinks could not write, and the indexes of those that did."""

    async def write(self, outputs: Sequence[Output]) -> None:
        if not outputs:
            return
        key = tuple(map(id, outputs))
        _, written = self._partial.pop(key, (outputs, set()))
        missing = [index for index in range(len(self.sinks)) if index not in written]
        results = await asyncio.gather(*(self.sinks[index].write(outputs) for index in missing), return_exceptions=True)
        written.update(index for index, result in zip(missing, results, strict=True) if result is None)
        failures = [result for result in results if result is not None]
        if failures:
            # The outputs must stay alive beside their ids, so that no other object can get one of these ids.
            self._partial[key] = (list(outputs), written)
            raise _most_severe(failures)

    async def close(self) -> None:
        results = await asyncio.gather(*(sink.close() for sink in self.sinks), return_exceptions=True)
        failures = [result for result in results if result is not None]
        if failures:
            raise _most_severe(failures)


class ReaderFirst:
    """Sink that hands each batch to a reader of this process, then writes to files what the reader took.

    When the reader closes, the files get the records that it took of the batch, and no more: the others come again when
    the crawl is resumed, and would be in the files twice.
    """

    def __init__(self, reader: Sink, files: Sink) -> None:
        self._reader = reader
        self._files = files
        self.wants_wire = files.wants_wire
        self.wants_text = True  # for the reader
        self._taken: dict[tuple[int, ...], Sequence[Output]] = {}
        """By the ids of its outputs: each batch that the reader took, and the files could not write."""

    async def write(self, outputs: Sequence[Output]) -> None:
        if not outputs:
            return
        key = tuple(map(id, outputs))
        if key not in self._taken:
            try:
                await self._reader.write(outputs)
            except OutputClosed as closed:
                await self._files.write(outputs[: closed.taken])
                raise
        self._taken[key] = outputs  # keeps the outputs alive, so that no other object can get one of these ids
        await self._files.write(outputs)
        del self._taken[key]

    async def close(self) -> None:
        await self._reader.close()
        await self._files.close()


def _most_severe(failures: Sequence[BaseException]) -> BaseException:
    """Return the failure that is hardest to solve: a bug before a SinkError, which is before a SinkFull."""
    return min(failures, key=lambda failure: (isinstance(failure, SinkError), isinstance(failure, SinkFull)))


class RecordFilter:
    """Sink that passes only some outputs to another sink."""

    def __init__(self, sink: Sink, wants: Callable[[Output], bool]) -> None:
        self.sink = sink
        self.wants_wire = sink.wants_wire
        self.wants_text = sink.wants_text
        self._wants = wants

    async def write(self, outputs: Sequence[Output]) -> None:
        await self.sink.write([output for output in outputs if self._wants(output)])

    async def close(self) -> None:
        await self.sink.close()


T = TypeVar("T")


class SinkThread:
    """Runs blocking calls one after the other, in their order.

    It must have one thread only: the file locks of this package exclude other processes, not other threads.
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, call: Callable[[], T]) -> T:
        """Run the call and return its result. Cancelling the wait does not stop the call."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        """Accept no more calls; accepted ones still run."""
        self._executor.shutdown(wait=False)
