"""Sink of a service's worker: outputs that all applications share, and outputs of single applications.

Must hold: an application's own outputs are written by `SplitWrite.own` only, so that one that is away delays no other
application's pages.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from gossamer.model.record import Output
from gossamer.sinks.base import Sink, SplitSink, SplitWrite, WriteCall, WriteTogether


class ApplicationFanout:
    """Sink that writes each batch to all shared outputs, and each record to its application's own. Implements
    SplitSink."""

    def __init__(self, shared: Sequence[Sink], bus: SplitSink | None, own: Mapping[str, Sequence[Sink]]) -> None:
        """`bus`: takes all records, on topics of its own for each application; None: there is none. `own`: by appid,
        sinks that get this application's records only."""
        self._shared = list(shared)
        self._bus = bus
        self._own = own
        self._sinks = [*shared, *(sink for sinks in own.values() for sink in sinks), *([bus] if bus else [])]
        self.wants_wire = any(sink.wants_wire for sink in self._sinks)
        self.wants_text = any(sink.wants_text for sink in self._sinks)

    def split(self, outputs: Sequence[Output]) -> SplitWrite:
        on_bus = self._bus.split(outputs) if self._bus is not None else None
        shared: list[WriteCall] = [partial(sink.write, outputs) for sink in self._shared]
        own: dict[str, list[WriteCall]] = {}
        if on_bus is not None:
            shared.append(on_bus.shared)
            own = {appid: [call] for appid, call in on_bus.own.items()}
        for appid in self._own.keys() & {output.record.appid for output in outputs}:
            theirs = [output for output in outputs if output.record.appid == appid]
            own.setdefault(appid, []).extend(partial(sink.write, theirs) for sink in self._own[appid])
        return SplitWrite(WriteTogether(shared), {appid: WriteTogether(calls) for appid, calls in own.items()})

    async def check(self) -> None:
        if self._bus is not None:
            await self._bus.check()

    async def write(self, outputs: Sequence[Output]) -> None:
        parts = self.split(outputs)
        await WriteTogether([parts.shared, *parts.own.values()])()

    async def close(self) -> None:
        await WriteTogether([sink.close for sink in self._sinks])()
