"""A node's agent: takes jobs while slots are free, runs each under a shim, and reports how it ended.

The agent may be killed at any moment: jobs run on under their shims, and the next agent in the same folder finds them.
Fixed: the order in `_adopt_all`, which asks the manager before it looks at the folders (an attempt that the manager
gives away in between would be taken for a stray), and that a folder is removed only after the manager has confirmed the
end.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import select
import shutil
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from gossamer.telemetry import logs
from gossamer_platform.link import (
    Announcement,
    Artefact,
    AttemptId,
    AttemptLimits,
    AttemptProgress,
    Ended,
    EnvironmentReport,
    JobAssignment,
    LinkRefused,
    Listed,
    Listing,
    ListingResult,
    ManagerLink,
    ManagerUnavailable,
    NodeTurn,
    Prepared,
    Progress,
    Returned,
    Started,
    StopOrder,
)
from gossamer_platform.node.attempt import AttemptState, Command, JobAttempt, readable
from gossamer_platform.node.code import CodeStore
from gossamer_platform.node.environments import EnvironmentFailed, EnvironmentStore
from gossamer_platform.node.listing import LISTING_BYTES, list_spiders
from gossamer_platform.node.processes import CHILDREN
from gossamer_platform.node.surroundings import environment_of, user_of, work_folder
from gossamer_platform.node.uploads import FileUploader
from gossamer_platform.node.users import NoUserLeft, ProjectUser, ProjectUsers
from gossamer_platform.outcome import AttemptEnd
from gossamer_platform.packages import NotAnArtefact

T = TypeVar("T")

log = logging.getLogger("gossamer.platform.node")

_PROGRESS_SECONDS: Final = 5.0
"""Pause between two reports of counters."""
_IDLE_SECONDS: Final = 5.0
"""Longest pause between looks for jobs when no wake-up came."""
_LISTINGS: Final = 4
"""Versions whose spiders are listed at a time. Each takes a process that imports the project."""
_CLAIM_SECONDS: Final = 5.0
"""Time for a shim of an earlier agent to write its start."""
_LOOK_SECONDS: Final = 0.02
"""Pause between two looks for that start."""
_PROGRESS_AT_ONCE: Final = 50
"""Attempts whose counters one call reports."""
_ROOM_BYTES: Final = 1024 * 1024
"""Room that the disk must have for another job to be taken: some times what its folder takes without an input."""
_RETRY_SECONDS: Final = 1.0
"""Pause before a call is repeated that the manager could not answer."""


class RemoteParts(NamedTuple):
    """Parts that only a node on another machine than its manager needs."""

    fence: Path
    """File whose time of change is when the shims kill their attempts; see `heartbeat.py`."""
    uploads: FileUploader | None
    """Sends logs and items to the manager. None: they stay on this machine."""


class NodeTimes(NamedTuple):
    """Time limits of a node, in seconds."""

    grace: float
    """A stopped job may take so long to end by itself; then its process tree is killed."""
    listing: float
    """Listing the spiders of a version."""
    build: float = 1800.0
    """Building an environment."""


class NodeAgent:
    """Runs up to `slots` attempts at a time in folders below `folder`."""

    def __init__(
        self,
        link: ManagerLink,
        folder: Path,
        *,
        slots: int,
        times: NodeTimes,
        labels: Sequence[str] = (),
        remote: RemoteParts | None = None,
        users: ProjectUsers | None = None,
    ) -> None:
        """`remote`: parts of a node whose manager is elsewhere. `users`: gives each project a user of its own. None:
        all processes are the node's user's."""
        self.incarnation = uuid.uuid4().hex
        self._link = link
        self._labels = labels
        self._remote = remote
        self._folder = folder / "attempts"
        self._code = CodeStore(folder / "artefacts", link.fetch)
        self._environments = EnvironmentStore(
            folder / "environments",
            self._folder,
            self._report_environment,
            build_seconds=times.build,
            builder=None if users is None else users.builder,
        )
        self._users = users
        self._slots = slots
        self._times = times
        self._running: dict[AttemptId, JobAttempt] = {}
        self._preparing: dict[AttemptId, asyncio.Task[int]] = {}
        """Attempts whose processes do not exist yet; a stop just cancels the task."""
        self._stopped_early: set[AttemptId] = set()
        """Those of them that were stopped."""
        self._given_away: set[AttemptId] = set()
        """Those that run and are not this node's any more."""
        self._watches: set[asyncio.Task[None]] = set()
        self._work = asyncio.Event()
        """Set: there may be something to do."""
        self._had_room = True
        """True: the disk had room for another job at the last turn."""
        self._listing_slots = asyncio.Semaphore(_LISTINGS)
        self._listing: set[int] = set()
        """Versions whose spiders are being listed."""
        self._progress: dict[AttemptId, Mapping[str, Any]] = {}
        """Counters of attempts that were reported last."""
        self._progress_at = 0.0
        """Time of `time.monotonic` from which on they may be reported again."""

    def wake(self) -> None:
        """Look for work now. Call this in the agent's event loop."""
        self._work.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Take and run jobs until `stopping` is set. Jobs that run then go on; the next agent adopts them."""
        CHILDREN.inherit()
        stopped = asyncio.create_task(stopping.wait())
        beginning = asyncio.create_task(self._begin())
        try:
            await asyncio.wait({beginning, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not beginning.done():  # no manager has answered yet
                return
            beginning.result()
            while not stopping.is_set():
                self._work.clear()
                try:
                    await self._take_turn()
                    await self._report_progress()
                except (ManagerUnavailable, LinkRefused) as error:
                    log.warning("%s", error)
                except Exception:
                    log.exception("%s node", logs.SERVICE_BROKE)
                woken = asyncio.create_task(self._work.wait())
                await asyncio.wait({woken, stopped}, timeout=_IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
        finally:
            tasks = [stopped, beginning, *self._watches]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(CHILDREN.dismiss_spare)

    async def _begin(self) -> None:
        await self._adopt_all()
        await self._environments.clean_up()
        await self._keep_spare()

    # --- taking -------------------------------------------------------------------------------------------------------

    async def _take_turn(self) -> None:
        free = max(0, self._slots - len(self._running)) if await self._has_room() else 0
        orders = await self._link.turn(NodeTurn(free, list(self._running), sorted(self._listing)))
        for assignment in orders.jobs:
            if assignment.id not in self._running:
                attempt = self._running[assignment.id] = self._attempt(assignment.id)
                self._watch(self._run_job(assignment, attempt))
        for listing in orders.listings:
            if listing.version_id not in self._listing:
                self._listing.add(listing.version_id)
                self._watch(self._list(listing))
        for order in orders.stops:
            self.stop(order)

    async def _has_room(self) -> bool:
        """Return whether the folder's disk has room for another job, which would fail without. Log changes."""
        had_room, self._had_room = self._had_room, await asyncio.to_thread(_free_bytes, self._folder) >= _ROOM_BYTES
        if had_room and not self._had_room:
            log.error("the disk of %s is full: this node takes no jobs until there is room", self._folder)
        elif self._had_room and not had_room:
            log.warning("the disk of %s has room again: this node takes jobs", self._folder)
        return self._had_room

    async def _run_job(self, assignment: JobAssignment, attempt: JobAttempt) -> None:
        preparing = asyncio.create_task(self._prepare(assignment, attempt))
        self._preparing[assignment.id] = preparing
        try:
            started = await preparing
        except asyncio.CancelledError:
            if assignment.id not in self._stopped_early:  # the agent ends; the next one looks at the folders
                raise
            await self._give_back(assignment.id, attempt, "")
        except EnvironmentFailed as error:
            if error.of_node:
                await self._give_back(assignment.id, attempt, f"environment: {error}")
            else:
                await self._report_end(assignment.id, attempt, AttemptEnd(fault=f"environment: {error}"))
        except (OSError, NotAnArtefact, NoUserLeft) as error:  # no memory, no space, too many processes or files
            log.error("job %d could not be started: %s", assignment.id.job, error)
            await self._report_end(assignment.id, attempt, AttemptEnd(fault=f"start_failed: {error}"))
        except ValueError as error:  # the artefact is not what it was when it was checked
            log.exception("job %d could not be started", assignment.id.job)
            await self._report_end(assignment.id, attempt, AttemptEnd(fault=f"start_failed: {error}"))
        else:
            await self._see_through(assignment.id, attempt, started)
        finally:
            self._preparing.pop(assignment.id, None)
            self._stopped_early.discard(assignment.id)

    async def _prepare(self, assignment: JobAssignment, attempt: JobAttempt) -> int:
        """Start an attempt in its environment, which is built before if need be. Return as JobAttempt.start does."""
        group_start = time.time() - assignment.group_age  # before the environment, which may take minutes
        user = await asyncio.to_thread(user_of, self._users, assignment)
        file = await self._fetch_code(assignment.artefact, user)
        async with (
            self._fetched_input(assignment) as own,
            self._environments.use(assignment.artefact, file) as environment,
        ):
            job = {
                "artefact": await asyncio.to_thread(self._code.importable, file),
                "settings_module": assignment.artefact.settings_module,
                "spider": assignment.spider,
                "arguments": dict(assignment.arguments),
                "settings": dict(assignment.settings),
                "items": assignment.items,
                "input": own.name if own else "",
                "input_use": assignment.input.use,
                "shares_frontier": assignment.shares_frontier,
                "group_start": group_start,
            }
            command = Command(
                "crawl",
                job,
                environment.complete(environment_of(assignment.artefact, assignment.variables, user)),
                work_folder(file, user),
                assignment.output,
                AttemptLimits.of(assignment),
                python=environment.python,
                input=own,
                user=user,
            )
            if self._remote is not None:
                command = command._replace(valid_until=str(self._remote.fence))
            # From here on a stop goes to the shim: an attempt that may have been started is not given back.
            self._preparing.pop(assignment.id, None)
            started = await asyncio.to_thread(_launch, attempt, command)
            if assignment.id in self._given_away:
                attempt.stop(signal.SIGKILL, grace_seconds=0)
            return started

    async def _fetch_code(self, artefact: Artefact, user: ProjectUser | None) -> Path | None:
        """Return the node's copy of an artefact, as CodeStore.file does."""
        return await _insist(lambda: asyncio.to_thread(self._code.file, artefact, user))

    @contextlib.asynccontextmanager
    async def _fetched_input(self, assignment: JobAssignment) -> AsyncIterator[Path | None]:
        """Give the file with the input of a job, and delete it in the end unless it was moved. None: there is none."""
        if not assignment.input.digest:
            yield None
            return
        folder = self._folder / f".input-{assignment.id.job}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            path = folder / f"input{Path(assignment.input.name).suffix}"
            await _insist(self._link.fetch_input, assignment, path)
            yield path
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, True)

    async def _give_back(self, number: AttemptId, attempt: JobAttempt, reason: str) -> None:
        """Return a job that was never started."""
        await _insist(self._link.report, Returned(number, reason))
        await self._forget(number, attempt)

    async def _forget(self, number: AttemptId, attempt: JobAttempt) -> None:
        self._running.pop(number, None)
        self._given_away.discard(number)
        await asyncio.to_thread(attempt.remove)
        self.wake()

    def _watch(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._watches.add(task)
        task.add_done_callback(self._watched)

    def _watched(self, task: asyncio.Task[None]) -> None:
        self._watches.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an attempt could not be followed", exc_info=error)

    async def _report_progress(self) -> None:
        """Report Scrapy's counters of the attempts that run, if they have changed."""
        if time.monotonic() < self._progress_at:
            return
        self._progress_at = time.monotonic() + _PROGRESS_SECONDS
        running = list(self._running.items())
        found = await asyncio.to_thread(lambda: {number: attempt.stats() for number, attempt in running})
        changed = [
            AttemptProgress(number, stats) for number, stats in found.items() if stats != self._progress.get(number)
        ]
        if changed := [each for each in changed if each.stats]:
            for begin in range(0, len(changed), _PROGRESS_AT_ONCE):  # each may have 100 KB
                await self._link.report(Progress(changed[begin : begin + _PROGRESS_AT_ONCE]))
        self._progress = dict(found)

    # --- following ----------------------------------------------------------------------------------------------------

    async def _see_through(self, number: AttemptId, attempt: JobAttempt, started: int | None) -> None:
        """Report the start and the end of an attempt. `started`: descriptor from JobAttempt.start, or None."""
        if started is not None:
            await readable(started)
            os.close(started)
            await self._keep_spare()  # now, because its start would have delayed that of the job
        uploads = self._remote.uploads if self._remote is not None else None
        if uploads is not None:
            files = attempt.read("attempt.json")
            if files is not None:  # otherwise the files are sent as those that an earlier process has left
                uploads.begin(number, files["output"], files["items"])
        while True:
            try:
                if (pid := attempt.pid()) is not None:
                    await _insist(self._link.report, Started(number, pid))
                await attempt.wait()
                end = await asyncio.to_thread(attempt.end)
                break
            except OSError:  # no file descriptors left, say; the attempt keeps its slot until its end is known
                log.exception("attempt %d of job %d cannot be followed at present", number.number, number.job)
            await asyncio.sleep(_RETRY_SECONDS)
        if uploads is not None:
            await uploads.complete(number)
        await self._report_end(number, attempt, end)

    async def _keep_spare(self) -> None:
        """Have a shim wait for the next attempt, which starts sooner then."""
        try:
            await asyncio.to_thread(CHILDREN.keep_spare, self._folder)
        except OSError as error:  # no memory, too many processes or files
            log.warning("no shim can be started in advance: %s", error)

    async def _report_end(self, number: AttemptId, attempt: JobAttempt, end: AttemptEnd) -> None:
        await _insist(self._link.report, Ended(number, end))
        await self._forget(number, attempt)

    async def _list(self, listing: Listing) -> None:
        attempt = JobAttempt(self._folder / f"list-{listing.version_id}-{uuid.uuid4().hex[:8]}")
        try:
            result = await self._list_in(attempt, listing)
        except EnvironmentFailed as error:
            result = ListingResult(fault=str(error), of_node=error.of_node)
        except NotAnArtefact as error:
            result = ListingResult(fault=str(error))
        except (OSError, NoUserLeft) as error:  # no memory, no space, too many processes or files
            result = ListingResult(fault=f"the node cannot list the spiders: {error}", of_node=True)
        except Exception as error:  # otherwise the deployment would wait for ever
            log.exception("the spiders of version %d cannot be listed", listing.version_id)
            result = ListingResult(fault=f"the node cannot list the spiders: {type(error).__name__}: {error}")
        await _insist(self._link.report, Listed(listing.version_id, result))
        self._listing.discard(listing.version_id)
        await self._keep_spare()
        await asyncio.to_thread(attempt.remove)

    async def _list_in(self, attempt: JobAttempt, listing: Listing) -> ListingResult:
        user = await asyncio.to_thread(user_of, self._users, listing)
        file = await self._fetch_code(listing.artefact, user)
        async with self._environments.use(listing.artefact, file, anew=True) as environment:
            artefact = await asyncio.to_thread(self._code.importable, file)
            job = {"artefact": artefact, "settings_module": listing.artefact.settings_module}
            variables = environment.complete(environment_of(listing.artefact, listing.variables, user))
            limits = AttemptLimits(time_limit=self._times.listing, memory_limit=LISTING_BYTES)
            command = Command("list", job, variables, work_folder(file, user), limits=limits)
            async with self._listing_slots:
                return await list_spiders(attempt, listing, command._replace(python=environment.python, user=user))

    # --- stopping -----------------------------------------------------------------------------------------------------

    def stop(self, order: StopOrder) -> None:
        """Stop an attempt, unless that was done. Call this in the agent's event loop."""
        if (attempt := self._running.get(order.id)) is not None and not self._was_stopped_early(order.id):
            for _ in range(order.stops - attempt.stops()):
                try:
                    attempt.stop(order.signal, grace_seconds=self._times.grace)
                except FileNotFoundError:  # not there yet (the next look stops it), or removed
                    return
                except OSError as error:  # the disk is full, say
                    log.error("job %d cannot be stopped yet; the next turn tries again: %s", order.id.job, error)
                    return

    def _was_stopped_early(self, number: AttemptId) -> bool:
        """Stop an attempt that has no process yet. Return False if it may have one."""
        if (preparing := self._preparing.pop(number, None)) is not None:
            self._stopped_early.add(number)
            preparing.cancel()
        return number in self._stopped_early

    def give_up(self, number: AttemptId) -> None:
        """Kill an attempt that the manager has given away. Call this in the agent's event loop."""
        if (attempt := self._running.get(number)) is not None and number not in self._given_away:
            log.warning("attempt %d of job %d is not this node's any more; it is killed", number.number, number.job)
            self._given_away.add(number)
            if self._was_stopped_early(number):
                return
            try:
                attempt.stop(signal.SIGKILL, grace_seconds=0)
            except FileNotFoundError:  # not there yet (it is killed when it is), or removed
                pass
            except OSError as error:  # the disk is full, say
                log.error("job %d cannot be killed yet; the next heartbeat tries again: %s", number.job, error)
                self._given_away.discard(number)

    def attempts(self) -> list[tuple[AttemptId, AttemptState]]:
        """Return the attempts that run, or whose end is still to be reported. May be called in any thread."""
        return [(number, attempt.state()) for number, attempt in list(self._running.items())]

    def send_signal(self, number: AttemptId, what: int) -> None:
        """Send a signal to the process of a running attempt that does not stop it."""
        if (attempt := self._running.get(number)) is not None:
            try:
                attempt.stop(what, grace_seconds=0, only_signal=True)
            except OSError as error:
                log.error("job %d does not get the signal %d: %s", number.job, what, error)

    # --- adopting -----------------------------------------------------------------------------------------------------

    async def _adopt_all(self) -> None:
        """Find the attempts of an earlier agent in this folder."""
        node = Announcement(self.incarnation, self._slots, self._labels)
        known = await _insist(self._link.register, node)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folders = {entry.name for entry in self._folder.iterdir()}
        for name in folders:
            attempt = JobAttempt(self._folder / name)
            if name.startswith("."):  # half made, or half removed
                await asyncio.to_thread(shutil.rmtree, attempt.folder, True)
            elif (number := AttemptId.parse(name)) is not None and number in known:
                self._running[number] = attempt
                self._watch(self._adopt(number, attempt))
            else:
                try:
                    await asyncio.to_thread(self._kill, attempt)
                except OSError as error:  # the disk is full, say; the node works all the same
                    log.error("%s cannot be removed; the node's next start tries again: %s", attempt.folder, error)
        for number, was_started in known.items():
            if str(number) not in folders:
                if was_started:
                    await _insist(self._link.report, Ended(number, AttemptEnd(fault="attempt_lost")))
                else:
                    await _insist(self._link.report, Returned(number))

    async def _adopt(self, number: AttemptId, attempt: JobAttempt) -> None:
        while True:
            try:
                was_revoked = await asyncio.to_thread(attempt.revoke)
                break
            except OSError as error:  # the disk is full, say; the attempt keeps its slot until it is revoked
                log.error("attempt %d of job %d cannot be adopted at present: %s", number.number, number.job, error)
            await asyncio.sleep(_RETRY_SECONDS)
        if was_revoked:
            await self._give_back(number, attempt, "")
            return
        log.info("attempt %d of job %d was found again: %s", number.number, number.job, attempt.state().name)
        # A shim that has just claimed the attempt has not written its start yet.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLAIM_SECONDS):
                while attempt.state() is AttemptState.RUNNING and attempt.pid() is None:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_SECONDS)
        await self._see_through(number, attempt, None)

    def _kill(self, attempt: JobAttempt) -> None:
        """End an attempt that is none of the manager's, such as one whose end is known."""
        if not attempt.revoke():
            attempt.stop(signal.SIGKILL, grace_seconds=0)
            descriptor = attempt.open_shim()
            if descriptor is not None:
                select.select([descriptor], [], [])
                os.close(descriptor)
            attempt.end()
        attempt.remove()

    # --- code and environments ----------------------------------------------------------------------------------------

    async def forget(self, wanted: set[str] | None) -> None:
        """Delete old copies of artefacts with other digests than these, and environments that nothing uses. `wanted`:
        None: those of artefacts that were not used for weeks."""
        await asyncio.to_thread(self._forget_code, wanted)
        await self._environments.forget()

    def _forget_code(self, wanted: set[str] | None) -> None:
        folders = self._folder.iterdir() if self._folder.exists() else ()  # the agent may not have begun
        jobs = [JobAttempt(folder).read("job.json") or {} for folder in folders]
        used = {Path(job.get("artefact") or "none").name.split("-")[0].split(".")[0] for job in jobs}
        self._code.forget(wanted, used)

    async def _report_environment(self, report: EnvironmentReport) -> None:
        await _insist(self._link.report, Prepared(report))

    def _attempt(self, number: AttemptId) -> JobAttempt:
        return JobAttempt(self._folder / str(number))


async def _insist(call: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Repeat a call until the manager answers. A report that got lost would keep its slot for ever."""
    for count in itertools.count(1):
        try:
            return await call(*arguments)
        except ManagerUnavailable as error:
            if count.bit_count() == 1:  # the 1st, 2nd, 4th, 8th time: many calls may wait for one manager
                log.warning("%s", error)
        await asyncio.sleep(_RETRY_SECONDS)
    raise AssertionError("the loop has no end")


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _launch(attempt: JobAttempt, command: Command) -> int:
    attempt.prepare(command)
    return attempt.start()
