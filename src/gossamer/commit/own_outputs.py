"""Writes pages of a service to outputs of single applications, and lets an application wait alone while its output is
away.

A service's pages go to shared outputs, and to outputs of their application alone (a topic, a database). While an
output of one application cannot be written, only the pages of that application wait. A worker settles a lease (a
request that it holds) by reporting its outcome to the frontier, the store of requests that wait.

Must hold: a page is settled as fetched only when every output has it. Pages wait for a bounded time and in bounded
memory, because they hold leases, of which a domain has few. A page that waited in vain goes back to the frontier and is
fetched again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec

from gossamer.commit.outages import AppOutages
from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.errors import OutputClosed, SinkError
from gossamer.model.record import Output
from gossamer.model.request import Outcome, Settlement
from gossamer.policy.retry import outage_pause
from gossamer.sinks.base import SplitSink, WriteCall

RECORD_TOO_LARGE = "record_too_large"
"""Reason of a page whose record no message of its topic can hold. Fixed: clients read it."""
OUTPUT_AWAY = "output_away"
"""Reason under which pages are counted that are fetched again because no output took them: a label of metrics, fixed.
"""
_TROUBLE = "app_output"
"""Name of the trouble that an application's output is away. Fixed: people filter by it."""


class OwnOutputLimits(msgspec.Struct, frozen=True):
    """Bounds of what waits for outputs of single applications."""

    prompt_seconds: float = 1.0
    """Time that a batch waits for an application's output that has worked so far. Afterwards the pages of the other
    applications are settled. With a longer one, an output that hangs delays them longer, once."""
    patience_seconds: float = 30.0
    """Time for which writing to an output that fails is tried again. Must exceed the 15 s after which Kafka gives a
    message up, or it would be tried once."""
    pause_seconds: float = 30.0
    """Time without requests of an application after its output failed for so long. One request follows as a trial."""
    waiting_bytes: int = 16 * 1024 * 1024
    """Memory for waiting pages of all applications. A single one may take a quarter, or one batch."""
    waiting_pages: int = 64
    """Waiting pages of an application beyond which none of its requests is started. More may come, from requests in
    progress."""


class _Waiting(msgspec.Struct):
    """Pages of an application that wait for its own output."""

    pages: int = 0
    bytes: int = 0


class OwnOutputs:
    """Writes batches to a sink that has outputs of single applications."""

    def __init__(
        self,
        sink: SplitSink,
        retrier: Retrier,
        limits: OwnOutputLimits,
        settle: Callable[[Sequence[FinishedLease]], Awaitable[None]],
    ) -> None:
        """`settle`: adds the links of pages, and settles them."""
        self._sink = sink
        self._retrier = retrier
        self._limits = limits
        self._settle = settle
        self.on_given_back: Callable[[Sequence[FinishedLease]], None] | None = None
        """Called with pages that go back to the frontier."""
        self.on_refused: Callable[[FinishedLease], None] | None = None
        """Called with a page whose record no message can hold: it has failed."""
        self._waiting: dict[str, _Waiting] = {}
        self._waiting_bytes = 0
        self._outages = AppOutages(
            retrier.reports,
            name=_TROUBLE,
            effect="Pages of these applications wait; those of others do not.",
            end="The outputs of all applications can be written again.",
            patience_seconds=limits.patience_seconds,
            pause_seconds=limits.pause_seconds,
        )

    async def write(
        self, batch: Sequence[FinishedLease], start: Callable[[Coroutine[Any, Any, None]], object]
    ) -> list[FinishedLease]:
        """Write a batch. Return the pages that all outputs have. Others wait, and are settled in a task of their own.

        `start`: starts this task. Raises OutputClosed."""
        pages_of: dict[str, list[FinishedLease]] = {}
        written: list[FinishedLease] = []
        for page in batch:
            if page.outputs:
                pages_of.setdefault(page.outputs[0].record.appid, []).append(page)
            else:
                written.append(page)
        parts = self._sink.split([output for pages in pages_of.values() for page in pages for output in page.outputs])
        writing = {appid: asyncio.ensure_future(self._write_own(appid, call)) for appid, call in parts.own.items()}
        try:
            await self._retrier.write_output(parts.shared)
            prompt = [task for appid, task in writing.items() if not self._is_late(appid)]
            if prompt:
                await asyncio.wait(prompt, timeout=self._limits.prompt_seconds)
        except BaseException as error:
            for started in writing.values():
                started.cancel()
            if isinstance(error, OutputClosed):
                raise OutputClosed(error.detail) from error  # no `taken`: an own output may have none of these records
            raise
        for appid, pages in pages_of.items():
            task = writing.get(appid)  # None: the application has no output of its own
            if task is None or (task.done() and task.result()):
                self._release(pages)
                written += pages
            else:
                start(self._wait(appid, pages, task))
        return written

    async def publish(self, output: Output) -> float:
        """Write a single record. Return 0 when all outputs have it; else after how many seconds its request should be
        made again, because its application's own output is away."""
        appid = output.record.appid
        parts = self._sink.split([output])
        await self._retrier.write_output(parts.shared)
        call = parts.own.get(appid)
        if call is None:
            return 0.0
        task = asyncio.ensure_future(self._write_own(appid, call))
        try:
            await asyncio.wait({task}, timeout=self._limits.prompt_seconds)
            if not task.done():
                waiting = self._waiting.get(appid)
                if waiting is not None and waiting.pages >= self._limits.waiting_pages:
                    return self._limits.pause_seconds
                self._count_waiting(appid, 1, 0)
                try:
                    await task
                finally:
                    self._count_waiting(appid, -1, 0)
            return 0.0 if task.result() else self._outages.seconds_to_trial(appid) or self._limits.pause_seconds
        finally:
            task.cancel()

    def hold_seconds(self, appid: str) -> float:
        """Return for how many seconds no request of this application should start, because its own output is away. 0:
        the request may start."""
        waiting = self._waiting.get(appid)
        if appid not in self._outages:
            is_full = waiting is not None and waiting.pages >= self._limits.waiting_pages
            return self._limits.prompt_seconds if is_full else 0.0
        if waiting is not None:  # these pages show when the output is back
            return self._limits.patience_seconds / 4
        seconds = self._outages.seconds_to_trial(appid)
        if not seconds:
            self._outages.begin_trial(appid)
        return seconds

    @property
    def is_any_late(self) -> bool:
        """True while `hold_seconds` of some application is not 0."""
        return bool(self._waiting or self._outages)

    def _is_late(self, appid: str) -> bool:
        """Return whether batches should not wait for this application's output."""
        return appid in self._waiting or appid in self._outages

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _write_own(self, appid: str, call: WriteCall) -> bool:
        """Write an application's part of a batch. Return whether it is written; False: its pages are given up."""
        failures = 0
        while True:
            try:
                async with asyncio.timeout(self._limits.patience_seconds):
                    await call()
            except SinkError as error:
                reason = str(error)
            except TimeoutError:
                reason = f"no answer in {self._limits.patience_seconds:g} s"
            else:
                self._outages.end(appid)
                return True
            if await self._wait_for_shared_outputs():
                self._outages.end(appid)  # its own output may be in order
            elif not self._outages.fail(appid, reason):
                return False
            failures += 1
            await asyncio.sleep(outage_pause(failures, random=0.5))

    async def _wait_for_shared_outputs(self) -> bool:
        """Return whether outputs that all applications share were away. Waits until they are back."""
        try:
            await self._sink.check()
        except SinkError:
            await self._retrier.write_output(self._sink.check)
            return True
        return False

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def _wait(self, appid: str, pages: Sequence[FinishedLease], task: "asyncio.Future[bool]") -> None:
        """Settle pages when their application's output has them. If that takes too long, or too many wait, give them
        back to the frontier."""
        size = sum(page.size for page in pages)
        for page in pages:
            page.release_memory()  # else waiting pages would take the room of other applications' pages
        if not self._has_room(appid, size):
            task.cancel()
            await self._give_back(appid, pages)
            return
        self._count_waiting(appid, len(pages), size)
        try:
            if await task:
                self._release(pages)
                await self._settle(pages)
            else:
                await self._give_back(appid, pages)
        finally:
            task.cancel()
            self._count_waiting(appid, -len(pages), -size)

    def _count_waiting(self, appid: str, pages: int, size: int) -> None:
        """Add pages, or take them away, that wait for an application's output."""
        waiting = self._waiting.setdefault(appid, _Waiting())
        waiting.pages += pages
        waiting.bytes += size
        self._waiting_bytes += size
        if not waiting.pages:
            del self._waiting[appid]

    def _has_room(self, appid: str, size: int) -> bool:
        """Return whether pages of so many bytes may wait. The first of an application may always, if there is room."""
        most = self._limits.waiting_bytes
        if self._waiting_bytes + size > most:
            return not self._waiting
        waiting = self._waiting.get(appid)
        return waiting is None or waiting.bytes + size <= most / 4

    async def _give_back(self, appid: str, pages: Sequence[FinishedLease]) -> None:
        """Send pages back to the frontier, to be fetched again when the output may be back."""
        delay = self._outages.seconds_to_trial(appid) or self._limits.pause_seconds
        if self.on_given_back:
            self.on_given_back(pages)
        await self._settle(
            [
                FinishedLease(Settlement(page.settlement.lease, Outcome.POSTPONED, OUTPUT_AWAY, delay_seconds=delay))
                for page in pages
            ]
        )

    def _release(self, pages: Sequence[FinishedLease]) -> None:
        """Release the records of pages that are written. A page with a record that an output refuses for good has
        failed."""
        for page in pages:
            settlement = page.settlement
            if settlement.outcome is Outcome.FETCHED and any(output.refused for output in page.outputs):
                settlement.outcome, settlement.reason = Outcome.FAILED, RECORD_TOO_LARGE
                if self.on_refused:
                    self.on_refused(page)
            page.release_outputs()
