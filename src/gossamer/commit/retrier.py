"""Retries of calls that the frontier (the store of the requests that wait) or an output cannot serve now.

Fixed: there is no limit on retries, because giving up would lose pages. Any other error must be raised at once: the
same call would fail again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gossamer.errors import (
    FrontierForgot,
    FrontierFull,
    FrontierUnavailable,
    GossamerError,
    OutputClosed,
    SinkError,
    SinkFull,
)
from gossamer.policy.retry import outage_pause
from gossamer.telemetry.logs import Troubles

T = TypeVar("T")

# Names of troubles. People see them in logs and metrics: document a change.
_FRONTIER = "frontier"
_OUTPUT = "output"


class Retrier:
    """Repeats a call until it succeeds, with growing, jittered pauses, and reports each outage once.

    An outage of the frontier or a full disk pauses a crawl; nothing is lost and the crawl does not end. Tasks of one
    event loop may share a retrier.
    """

    def __init__(self, troubles: Troubles) -> None:
        self.reports = troubles
        """Troubles of this process."""
        self._unreachable_shards: set[int | None] = set()
        """Shards (parts of the frontier) whose last call failed; None stands for calls that concern no single shard.
        The frontier's trouble ends when the set is empty."""
        self._failing_writes: set[object] = set()
        """Calls of `write_output` whose last attempt failed. The output's trouble ends with the last one: of several
        stores, one may be away, and batches without records for it are written meanwhile."""

    @property
    def troubles(self) -> list[str]:
        """Names of all current troubles of this process."""
        return list(self.reports.current)

    @property
    def is_waiting(self) -> bool:
        """True while a call to the frontier or an output is being repeated."""
        return not {_FRONTIER, _OUTPUT}.isdisjoint(self.reports.current)

    async def call_frontier(
        self,
        call: Callable[[], Awaitable[T]],
        *,
        shard: int | None = None,
        on_failure: Callable[[], None] | None = None,
    ) -> T:
        """Return the result of `call`, repeated while the frontier is unavailable or full; other errors are raised.

        A failed call may have been carried out, so a repeat must be harmless. `shard`: the only shard that the call
        concerns; None: no single one. `on_failure` is called before each pause. FrontierForgot is raised at once.
        """
        failures = 0
        while True:
            try:
                result = await call()
            except FrontierForgot:
                raise  # nothing was sent: the caller has to do something else first
            except FrontierUnavailable as error:
                self._unreachable_shards.add(shard)
                self.reports.begin(_FRONTIER, _join(error, "Waiting for it."))
            except FrontierFull as error:
                self._unreachable_shards.add(shard)
                self.reports.begin(_FRONTIER, _join(error, "Waiting for room; nothing is lost."))
            except Exception:  # the frontier answered, with an error
                self._note_reply(shard)
                raise
            else:
                self._note_reply(shard)
                return result
            if on_failure:
                on_failure()
            failures += 1
            await asyncio.sleep(outage_pause(failures, random=random.random()))

    def _note_reply(self, shard: int | None) -> None:
        """Record that a call to the shard was answered. The trouble ends with the last unreachable shard."""
        if self._unreachable_shards:
            self._unreachable_shards.discard(shard)
            if not self._unreachable_shards:
                self.reports.end(_FRONTIER, "The frontier is back; going on.")

    async def write_output(self, write: Callable[[], Awaitable[None]]) -> None:
        """Return when the output has accepted the records. Raises OutputClosed when it never will."""
        failures = 0
        this_call = object()
        try:
            while True:
                try:
                    await write()
                except OutputClosed:  # a kind of SinkError, but no reader is left: a repeat could write records twice
                    raise
                except SinkFull as error:
                    self.reports.begin(_OUTPUT, _join(error, "Waiting for room; nothing is lost."))
                except SinkError as error:
                    self.reports.begin(_OUTPUT, _join(error, "Waiting until it can be written; nothing is lost."))
                else:
                    if self._failing_writes <= {this_call}:
                        self.reports.end(_OUTPUT, "The output can be written again; going on.")
                    return
                self._failing_writes.add(this_call)
                failures += 1
                await asyncio.sleep(outage_pause(failures, random=random.random()))
        finally:
            self._failing_writes.discard(this_call)


def _join(error: GossamerError, sentence: str) -> str:
    """Return the error's message as a sentence, and another one behind it."""
    return f"{str(error).rstrip('.')}. {sentence}"
