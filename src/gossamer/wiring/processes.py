"""Runs worker processes under one parent, which restarts dead ones and adds up their counters.

Parent and processes speak JSON over pipes: WorkerCommand down, WorkerReport up. Both run the same installation;
cli/worker_process.py is the other end of these messages. Fixed: the parent must keep the standard input of each process
open. A process ends when that input ends: it runs in a session of its own, and would not notice otherwise that its
parent died.
"""

import asyncio
import contextlib
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gossamer.errors import OutputClosed, WorkerFailed
from gossamer.model.crawl import Run
from gossamer.policy.urls import host, registered_domain
from gossamer.settings import Settings
from gossamer.telemetry import logs
from gossamer.telemetry.tally import Tally
from gossamer.wiring import WORKER_PROCESS
from gossamer.wiring.fork_server import ForkedProcess, ForkServer

if TYPE_CHECKING:
    from gossamer.wiring.plan import Plan

log = logging.getLogger("gossamer")

_QUICK_SECONDS = 5.0
"""A process that dies sooner than this after its start counts as a failed start. Must exceed the time that a process
takes to load its spiders on a slow machine; longer counts more deaths as failed starts."""
_MAX_FAILED_STARTS = 5
"""Failed starts in a row of one process after which the command gives up, unless another process works. An outage of
the frontier is none: a process waits for it."""

# Pauses before a new process; they double with each failed start. Longer ones spare a machine in trouble, shorter ones
# restore the crawl sooner.
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0

_REPEAT_AFTER_SECONDS = 10.0
"""Time for which the same sentence of several processes is shown once."""
_LONGEST_REPORT_BYTES = 1 << 20
"""Must exceed any report in JSON: after a longer one no more reports are read, and the process waits for ever to
write."""


class WorkerCommand(msgspec.Struct, kw_only=True):
    """Orders for a worker process, one line of JSON on its standard input, which stays open while the parent lives."""

    settings: dict[str, Any]
    """All settings as the parent has them. In the process each counts as set by the user, so defaults that depend on
    what was set (`bus_worker_settings`) must be applied before."""
    address: str
    """Address of the frontier, the server that holds the requests."""
    pool: str
    """Crawls to work for: those of this pool (the name of a group of workers)."""
    spiders: list[str]
    """Spiders whose requests the process fetches. Empty: all that are installed."""
    run: Run | None
    """The process ends when this run, one life of a crawl, is over. None: it works until it is stopped."""
    report_fd: int
    """File descriptor to which the process writes its reports."""
    bus: bool = False
    """True: pages go to the bus, the message queue of a service."""


class WorkerReport(msgspec.Struct, omit_defaults=True):
    """A message from a worker process to its parent, one line of JSON."""

    tally: Tally | None = None
    """Counters of the process since its start. None: no news of them."""
    say: str = ""
    """A sentence to show."""
    closed: bool = False
    """The reader of the output went away: this process ended, and the others have to end."""
    fault: str = ""
    """The reason why an output is not finished. Empty: no such trouble."""


_SMALL_CRAWL_PAGES = 2_000
_SLOW_CRAWL_PAGES_PER_SECOND = 100.0
"""A crawl up to these limits gets one process if the number is automatic: starting another one costs the CPU time of
some 200 pages, of 1,000 where it cannot be forked, and one process fetches several hundred pages a second. Documented
at the setting."""
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
"""Where Linux shows what a container or a unit of systemd may use, and which part is this process's own."""


def usable_cpus() -> int:
    """Return how many CPUs this process may use: of the machine, of its set, and of its container."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for limit in _cgroup_limits("cpu.max"):
        quota, period = limit.split()  # microseconds, or max
        if quota != "max":
            cpus = min(cpus, max(1, int(quota) // int(period)))
    return cpus


def memory_limit() -> int | None:
    """Return how many bytes the container or the unit of this process may use. None: without a limit of theirs."""
    limits = [*_cgroup_limits("memory.max"), *_cgroup_limits("memory/memory.limit_in_bytes")]
    return min((int(limit) for limit in limits if limit != "max"), default=None)


def _cgroup_limits(file: str) -> Iterator[str]:
    """Yield this limit of a container, whose own cgroup is the root that it sees, and of a unit of systemd."""
    for folder in ("", *re.findall(r"^0::/(.+)$", _read(_OWN_CGROUP), re.MULTILINE)):
        if limit := _read(_CGROUPS / folder / file):
            yield limit


def _read(path: Path) -> str:
    """Return the text of a file; without one, an empty text."""
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""


def with_process_count(settings: Settings, plan: "Plan | None" = None) -> Settings:
    """Return the settings with a number of worker processes where that is automatic. `plan`: the crawl to do; None: a
    service without an end."""
    if settings.worker.processes:
        return settings
    count = 1 if plan is not None and _is_small(plan) else usable_cpus()
    return settings.copy(worker=settings.worker.copy(processes=count))


def _is_small(plan: "Plan") -> bool:
    """Return whether one process suffices for a crawl."""
    if 0 < (plan.crawl.max_pages or 0) <= _SMALL_CRAWL_PAGES:
        return True
    terms, rate = plan.terms, plan.crawl.rate
    if not (terms.allowed_domains or terms.allowed_hosts or terms.allowed_prefixes):
        return False  # any number of domains
    domains = {registered_domain(host(url)) for url in plan.seeds}.union(terms.allowed_domains or ())
    pages_per_second = rate.hits / rate.window_seconds if rate else 1.0
    return len(domains) * pages_per_second <= _SLOW_CRAWL_PAGES_PER_SECOND


async def _start_process(report_fd: int) -> tuple[asyncio.subprocess.Process | ForkedProcess, int]:
    """Start a worker process with the descriptor to which it reports; return it with the number of that descriptor
    there."""
    if ForkServer.current is not None:
        try:
            return await ForkServer.current.fork(report_fd)
        except OSError as error:
            log.info("%s: %s; starting the process anew", ForkServer.__name__, error)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # not the working folder: a file there called json.py must not hide a module
        "-m",
        "gossamer",
        WORKER_PROCESS,
        stdin=asyncio.subprocess.PIPE,
        pass_fds=(report_fd,),
        start_new_session=True,
    )
    return process, report_fd


class WorkerProcesses:
    """Runs `worker.processes` worker processes until all end by themselves or `stop` is called.

    They run in sessions of their own, so that Ctrl-C in the terminal reaches only the parent.
    """

    def __init__(
        self,
        settings: Settings,
        address: str,
        *,
        pool: str,
        spiders: list[str],
        run: Run | None,
        say: Callable[[str], None],
        bus: bool,
    ) -> None:
        """The other parameters are those of WorkerCommand. `say` shows a sentence to a person."""
        self._settings = settings
        self._command = WorkerCommand(
            settings=settings.as_json(),
            address=address,
            pool=pool,
            spiders=spiders,
            run=run,
            report_fd=-1,
            bus=bus,
        )
        self._say = say
        self._recent_sentences: set[str] = set()
        self._alive: dict[int, asyncio.subprocess.Process | ForkedProcess] = {}
        self._current: dict[int, Tally] = {}
        """Latest counters of each process that is alive, by its number."""
        self._ended = Tally()
        """Sum of the counters of ended processes."""
        self._stopping = asyncio.Event()
        self._some_ended_well = False
        """True: a process has ended by itself, because its run is over or an output cannot be finished."""
        self._output_closed = False
        self.fault = ""
        """The reason why an output is not finished; its records are kept until it can be. Empty: no such trouble."""

    @property
    def is_working(self) -> bool:
        """True while a process lives that has reported its counters."""
        return bool(self._current)

    def tally(self) -> Tally:
        """Return the sum over all processes, dead ones included."""
        total = self._ended
        for tally in tuple(self._current.values()):
            total = total.plus(tally)
        return total

    async def run(self) -> None:
        """Run until all processes have ended normally. Raises WorkerFailed when one keeps dying at its start and no
        other works, and BrowserMissing before the first one is started. Raises an ExceptionGroup with OutputClosed when
        the reader of the output went away."""
        from gossamer.wiring.browser_lane import takes_browser_lane  # imported late: it imports this module

        if takes_browser_lane(self._settings, self._command.run):
            from gossamer.wiring.browser import check_browser  # imported late: most workers have no browser

            await check_browser(self._settings)
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._settings.worker.processes):
                    group.create_task(self._keep_alive(number))
        except* WorkerFailed as failures:
            raise failures.exceptions[0] from None
        finally:
            for process in list(self._alive.values()):
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    def stop(self) -> None:
        """Tell all processes to finish their requests and end. May be repeated."""
        self._stopping.set()
        for process in self._alive.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    async def _keep_alive(self, number: int) -> None:
        """Run process `number`, and start it again whenever it dies."""
        loop = asyncio.get_running_loop()
        failed_starts = 0
        while True:
            started = loop.time()
            try:
                code = await self._run_process(number)
            except OSError as error:  # too many processes or open files, or no memory: perhaps for a moment
                code, cause = 1, f"error: {error.strerror or error}"
                sentence = f"A worker process could not be started ({cause}); trying again."
            else:
                cause = f"signal {-code}" if code < 0 else f"exit code {code}"
                sentence = f"A worker process died ({cause}); starting another. Nothing is lost."
            if self._output_closed:
                raise OutputClosed
            if code == 0 or self._stopping.is_set():
                self._some_ended_well = True
                return
            failed_starts = failed_starts + 1 if loop.time() - started < _QUICK_SECONDS else 0
            log.warning("%s %d: %s", logs.PROCESS_DIED, number, cause)
            if failed_starts < _MAX_FAILED_STARTS:
                self._say(sentence)
            elif self._some_ended_well:
                return  # the work is over for the others, too
            elif not self._alive:
                raise WorkerFailed(f"the last one by {cause}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_FIRST_PAUSE_SECONDS * 2**failed_starts, _LONGEST_PAUSE_SECONDS)):
                    await self._stopping.wait()
                    return  # `stop` was called during the pause

    async def _run_process(self, number: int) -> int:
        """Run one process to its end, and return its exit code; negative: the number of the signal that killed it.
        Raises OSError if it cannot be started."""
        # No pipe: uvloop closes its descriptor twice, the second time perhaps that of another thread's file.
        ours, theirs = socket.socketpair()
        try:
            reader = asyncio.StreamReader(limit=_LONGEST_REPORT_BYTES)
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), ours
            )
            try:
                process, report_fd = await _start_process(theirs.fileno())
            except BaseException:
                transport.close()
                raise
        finally:
            theirs.close()  # only the process holds this end now, so that reading ends with the process
        self._alive[number] = process
        try:
            assert process.stdin
            command = msgspec.structs.replace(self._command, report_fd=report_fd)
            process.stdin.write(msgspec.json.encode(command) + b"\n")
            if self._stopping.is_set():  # `stop` was called before this process was in `_alive`
                process.terminate()
            with contextlib.suppress(ValueError):  # a line is incomplete, because the process was killed, or too long
                await self._read_reports(number, reader)
            return await process.wait()
        finally:
            transport.close()
            if process.stdin:
                process.stdin.close()
            if process.returncode is None:
                process.kill()
                await process.wait()
            self._alive.pop(number, None)
            last = self._current.pop(number, None)
            if last is not None:
                # An ended process has no requests in flight any more, so only its totals are added.
                self._ended = self._ended.plus(last.without_current())

    async def _read_reports(self, number: int, reader: asyncio.StreamReader) -> None:
        """Read the reports of process `number` until it ends: keep its latest counters, and show its sentences."""
        decoder = msgspec.json.Decoder(WorkerReport)
        while line := await reader.readline():
            report = decoder.decode(line)
            if report.tally is not None:
                self._current[number] = report.tally
            self._output_closed |= report.closed
            self.fault = report.fault or self.fault
            if report.say and report.say not in self._recent_sentences:
                # All processes meet the same trouble; show it once.
                self._recent_sentences.add(report.say)
                asyncio.get_running_loop().call_later(_REPEAT_AFTER_SECONDS, self._recent_sentences.discard, report.say)
                self._say(report.say)
