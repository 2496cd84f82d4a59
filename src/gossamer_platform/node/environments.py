"""Virtual environments of a node: finds or builds the one that a version needs, and deletes old ones.

    ENVIRONMENTS/DIGEST/       complete environment (it has the mark of `build.py`), read-only
    ENVIRONMENTS/DIGEST.lock   lock while it is put into place; its time is that of the last use
    ENVIRONMENTS/.new-…/       environment that is being built

The digest is made of the requirements, the Python, the platform and the addresses of package indexes, so versions and
projects with the same requirements share one. A fault is either the node's (a full disk, an index that cannot be
reached), then this or another node tries again later, or the version's (requirements that cannot be met).

Fixed: the names of files, which a later release finds; and that an environment is deleted only while no attempt on this
node uses it.
"""

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
import os
import platform
import re
import shutil
import sys
import sysconfig
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from gossamer.errors import GossamerError
from gossamer.net.credentials import hide_secrets_in
from gossamer_platform.lifecycle import EnvironmentKind
from gossamer_platform.link import Artefact, AttemptLimits, EnvironmentReport
from gossamer_platform.node import build
from gossamer_platform.node.attempt import OWN, Command, JobAttempt
from gossamer_platform.node.requirements import BadRequirements, names_scrapy, requirements_of, scrapy_requirement
from gossamer_platform.node.surroundings import environment_of
from gossamer_platform.node.users import ProjectUser
from gossamer_platform.outcome import AttemptEnd
from gossamer_platform.packages import PackageFile, remove_folder

log = logging.getLogger("gossamer.platform.node")

_BUILDS: Final = 2
"""Environments that are built at a time. Each build may use a CPU and the network."""
_REMEMBER_SECONDS: Final = 30.0
"""Time for which a failed build is not tried again for further jobs."""
_KEPT: Final = 20
"""Environments that are kept although nothing uses them, the latest ones. Each has 70 MB or more."""
_KEPT_SECONDS: Final = 30 * 86400.0
"""Time since its last use after which an environment is deleted."""
_LOG_BYTES: Final = 64 * 1024
"""Length of the end of a build's log that is kept."""
_OUTPUT_BYTES: Final = 32 * 1024 * 1024
"""Length of a build's log at which the build is ended."""
_REASON_LINES, _REASON_LENGTH = 12, 2000
"""Lines and characters of the log that the reason of a failed build has."""
_ADVICE: Final = ("note:", "hint:", "[notice]", "WARNING:", "ERROR: Ignored the following", "ERROR: Exception:")
"""Lines of pip and uv beside the reason of a failure."""
_CAUSE_BY_UV: Final = ("cause: ", "╰─▶ ")
"""Beginnings of the line with uv's reason, in its present release and in earlier ones."""
_INDEX_VARIABLES: Final = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"),
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX"),
)
"""Environment variables that decide where packages come from."""
_FAULTS_OF_NODE: Final = re.compile(
    r"no space left on device|disk quota exceeded|read-only file system|input/output error|cannot allocate memory"
    r"|too many open files|temporary failure in name resolution|name or service not known|dns error"
    r"|network is unreachable|connection (?:broken by|refused|reset|timed out)|failed to establish a new connection"
    r"|max retries exceeded|error sending request|could not connect|read timed out|connect timeout|operation timed out"
    r"|http(?: status)?(?: server)? error:? \(?5\d\d|request failed after \d+ retries",
    re.IGNORECASE,
)
"""Words of uv, pip and the system for a fault that has nothing to do with the requirements."""


class EnvironmentFailed(GossamerError):
    """The environment cannot be built."""

    only_detail = True

    def __init__(self, reason: str, *, of_node: bool, log: str = "") -> None:
        super().__init__(reason)
        self.of_node = of_node
        """True: the node is at fault, so another try may succeed. False: the version is."""
        self.log = log
        """End of what the builder printed."""


class VersionEnvironment(NamedTuple):
    """Python that runs a version, and the environment variables that belong to it."""

    python: str
    """Path of the interpreter. Empty: the node's own."""
    variables: Mapping[str, str]

    def complete(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment variables of a process, with those that belong to the environment."""
        return {**isolated(variables), **self.variables} if self.python else variables


SHARED: Final = VersionEnvironment("", {})
"""The node's own environment."""


class _Build(NamedTuple):
    """Plan of an environment."""

    digest: str
    requirements: list[str]
    adds_scrapy: bool
    """True: the project's requirements do not name Scrapy."""


class _Built(NamedTuple):
    """Environment that was built."""

    mark: Mapping[str, Any]
    """Content of the mark; see `build.py`."""
    log: str


class EnvironmentStore:
    """Environments below one folder. The coroutines belong to the agent's event loop."""

    def __init__(
        self,
        folder: Path,
        attempts: Path,
        report: Callable[[EnvironmentReport], Awaitable[None]],
        *,
        build_seconds: float,
        builder: ProjectUser | None = None,
    ) -> None:
        """`attempts`: folder of the node's attempts. `report` tells the manager about a build. `builder`: user of the
        builds. None: that of the node."""
        self._folder = folder
        self._attempts = attempts
        self._report = report
        self._build_seconds = build_seconds
        self._builder = builder
        self._builds: dict[str, asyncio.Task[_Built]] = {}
        """Builds that run, by digest. They go on when those that wait for them are stopped."""
        # One at a time for the builder's user: the code of a package could change another build of the same user.
        self._slots = asyncio.Semaphore(_BUILDS if builder is None else 1)
        self._users: defaultdict[str, int] = defaultdict(int)
        """Number of callers inside `use`, by digest."""
        self._failed: dict[str, tuple[float, EnvironmentFailed]] = {}
        self._told: set[tuple[int, str]] = set()
        """Versions and digests that the manager knows of."""

    @contextlib.asynccontextmanager
    async def use(
        self, artefact: Artefact, code: Path | None, *, anew: bool = False
    ) -> AsyncIterator[VersionEnvironment]:
        """Yield the environment of a version, and build it before if need be. Start the process within the block: after
        it an environment that no attempt uses may be deleted.

        `code`: file of the egg or wheel. `anew`: try again, even if a build failed a moment ago. Raises
        EnvironmentFailed.
        """
        if artefact.environment is not EnvironmentKind.ISOLATED or code is None:
            yield SHARED
            return
        try:
            plan = await asyncio.to_thread(_plan, code, artefact.requirements)
        except BadRequirements as error:
            raise EnvironmentFailed(str(error), of_node=False) from None
        self._users[plan.digest] += 1
        try:
            await self._require(plan, artefact, anew=anew)
            yield self._environment(plan.digest)
        finally:
            self._users[plan.digest] -= 1
            if not self._users[plan.digest]:
                del self._users[plan.digest]

    def _environment(self, digest: str) -> VersionEnvironment:
        scripts = self._folder / digest / "bin"
        found = {
            "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "VIRTUAL_ENV": str(scripts.parent),
            "PYTHONNOUSERSITE": "1",
        }
        return VersionEnvironment(str(scripts / "python"), found)

    async def _require(self, plan: _Build, artefact: Artefact, *, anew: bool) -> None:
        """Build the environment unless it is there. Raises EnvironmentFailed."""
        target = self._folder / plan.digest
        if plan.digest not in self._builds and await asyncio.to_thread(_is_complete, target):
            if (artefact.version_id, plan.digest) not in self._told:
                mark = json.loads((target / build.MARK).read_text())
                await self._tell(plan, artefact, "ready", _Built(mark, "The environment was there already."))
            return
        until, error = self._failed.get(plan.digest, (0.0, None))
        if error is not None and not anew and time.monotonic() < until:
            raise error
        task = self._builds.get(plan.digest)
        if task is None:
            task = self._builds[plan.digest] = asyncio.create_task(self._build(plan, artefact, target))
            task.add_done_callback(lambda done: self._built(plan.digest, done))
        try:
            await self._tell(plan, artefact, "building")
            built = await asyncio.shield(task)
        except EnvironmentFailed as failed:
            await self._tell(plan, artefact, "failed", _Built({}, failed.log), reason=str(failed))
            raise
        await self._tell(plan, artefact, "ready", built)

    def _built(self, digest: str, task: "asyncio.Task[_Built]") -> None:
        """Take note of the end of a build."""
        self._builds.pop(digest, None)
        now = time.monotonic()
        self._failed = {each: known for each, known in self._failed.items() if known[0] > now}
        if not task.cancelled() and isinstance(error := task.exception(), EnvironmentFailed):
            self._failed[digest] = (now + _REMEMBER_SECONDS, error)

    async def _build(self, plan: _Build, artefact: Artefact, target: Path) -> _Built:
        name = uuid.uuid4().hex[:8]
        attempt = JobAttempt(self._attempts / f"build-{plan.digest[:16]}-{name}")
        place = self._folder / f".new-{plan.digest}-{name}"
        job = {"new": str(place / "env"), "target": str(target), "requirements": plan.requirements, "uv": find_uv()}
        command = Command(
            "build",
            job,
            self._variables(artefact, attempt),
            str(self._attempts),
            limits=AttemptLimits(time_limit=self._build_seconds, file_limit=_OUTPUT_BYTES),
            program=(sys.executable, "-I", build.__file__, str(attempt.folder)),
            user=self._builder,
        )
        try:
            async with self._slots:
                await asyncio.to_thread(self._make_place, place)
                await asyncio.to_thread(attempt.prepare, command)
                os.close(await asyncio.to_thread(attempt.start))
                await attempt.wait()
                end = await asyncio.to_thread(attempt.end)
            built, text, details = await asyncio.to_thread(_read, attempt)
            is_built = built is not None and end.exit_code == 0 and not end.fault
            if is_built:
                # Without the requirements: they may have passwords, and all projects can read the mark.
                await asyncio.to_thread(build.finish, str(place / "env"), str(target), built or {})
        except OSError as error:
            await asyncio.to_thread(_remove, place, attempt)
            raise EnvironmentFailed(f"the environment cannot be built: {error}", of_node=True) from None
        # Not if the agent is being stopped: then the build goes on, and the next agent finds it by this folder.
        await asyncio.to_thread(_remove, place, attempt)
        if not is_built:
            raise self._failure(plan, end, text, details)
        return _Built(built or {}, text)

    def _make_place(self, place: Path) -> None:
        place.mkdir(parents=True, mode=0o700)
        if self._builder is not None:
            self._builder.own(place, 0o700)

    def _variables(self, artefact: Artefact, attempt: JobAttempt) -> Mapping[str, str]:
        """Return the environment variables of a build."""
        found = {**isolated(environment_of(artefact, None, self._builder)), "NO_COLOR": "1"}
        if self._builder is None:
            return found
        # A home and caches of its own: what one build leaves there, the next one would believe.
        indexes = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
        alone = {"HOME": str(attempt.folder / OWN / "tmp"), "PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}
        return {**found, **indexes, **alone}

    def _failure(self, plan: _Build, end: AttemptEnd, text: str, details: str) -> EnvironmentFailed:
        """Return what a build that ended in another way than well is to say."""
        last = _last_lines(text)
        # The conclusion comes last, as in a traceback: short views show the last line.
        if end.fault == "timed_out":
            reason = f"{last}\nbuilding the environment took more than {self._build_seconds:g} seconds"
            return EnvironmentFailed(reason, of_node=False, log=text)
        if end.exit_code is None or end.fault:
            reason = f"{last}\nthe build of the environment was ended: {end.fault or f'signal {end.signal}'}"
            return EnvironmentFailed(reason, of_node=not end.fault.startswith("file_limit"), log=text)
        reason = "the environment cannot be built from the requirements"
        if plan.adds_scrapy:
            reason += f" and {scrapy_requirement()}, which was added because they do not name Scrapy"
        of_node = end.exit_code == build.OWN_FAULT or is_fault_of_node(text + details)
        return EnvironmentFailed(f"{last}\n{reason}: {conclusion(text)}", of_node=of_node, log=text)

    async def _tell(
        self, plan: _Build, artefact: Artefact, status: str, built: _Built | None = None, *, reason: str = ""
    ) -> None:
        """Report the environment of a version to the manager."""
        mark = built.mark if built else {}
        told = f"Python {mark['python']}, Scrapy {mark['scrapy']}, built by {mark['builder']}" if mark else ""
        text = built.log if built else ""
        requirements = tuple(map(hide_secrets_in, plan.requirements))
        report = EnvironmentReport(artefact.version_id, plan.digest, status, reason, requirements, told, text)
        await self._report(report)
        if status == "ready":
            self._told.add((artefact.version_id, plan.digest))

    async def clean_up(self) -> None:
        """Delete what builds of an earlier agent have left. To be called when none of them runs any more."""
        for place in await asyncio.to_thread(lambda: list(self._folder.glob(".new-*"))):
            await asyncio.to_thread(remove_folder, place)

    async def forget(self) -> None:
        """Delete environments that nothing has used for weeks, and all but the latest; those in use stay."""
        if not self._folder.exists():
            return
        used = await asyncio.to_thread(self._used)
        found = await asyncio.to_thread(self._by_last_use)
        for place, (at, digest) in enumerate(found):
            is_old = place >= _KEPT or time.time() - at > _KEPT_SECONDS
            if not is_old or digest in used or digest in self._users or digest in self._builds:
                continue
            gone = self._folder / f".gone-{uuid.uuid4().hex}"
            with contextlib.suppress(OSError):
                (self._folder / digest).rename(gone)  # at once: nothing in this event loop can come between
            self._told = {each for each in self._told if each[1] != digest}
            await asyncio.to_thread(remove_folder, gone)
            log.info("the environment %s was deleted", digest)

    def _by_last_use(self) -> list[tuple[float, str]]:
        """Return time of the last use and digest of all environments, the latest first."""
        found = []
        for folder in self._folder.iterdir():
            if folder.name.startswith(".gone-"):
                remove_folder(folder)
            elif folder.is_dir() and not folder.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    found.append((Path(f"{folder}.lock").stat().st_mtime, folder.name))
        return sorted(found, reverse=True)

    def _used(self) -> set[str]:
        """Return the digests of the environments in which attempts run."""
        found = set()
        for folder in self._attempts.iterdir() if self._attempts.exists() else ():
            command = (JobAttempt(folder).read("attempt.json") or {}).get("command") or [""]
            if Path(command[0]).is_relative_to(self._folder):
                found.add(Path(command[0]).relative_to(self._folder).parts[0])
        return found


def _plan(code: Path, given: str) -> _Build:
    named = requirements_of(PackageFile(code), given)
    requirements = named if names_scrapy(named) else sorted([*named, scrapy_requirement()])
    indexes = {name: os.environ[name] for name in _INDEX_VARIABLES if os.environ.get(name)}
    here = [platform.python_implementation(), platform.python_version(), sysconfig.get_platform()]
    content = json.dumps([requirements, here, indexes], sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:32]
    return _Build(digest, requirements, adds_scrapy=requirements != named)


def find_uv() -> str:
    """Return the path of uv. Empty: the node has none, or GOSSAMER_PLATFORM_BUILDER is `pip`."""
    if os.environ.get("GOSSAMER_PLATFORM_BUILDER") == "pip":
        return ""
    beside = Path(sys.executable).with_name("uv")
    return shutil.which("uv") or (str(beside) if beside.exists() else "")


def isolated(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables without those that would add the node's own packages."""
    return {name: value for name, value in variables.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


def is_fault_of_node(text: str) -> bool:
    """Return whether the output of a failed build shows a fault of the node or its network."""
    return _FAULTS_OF_NODE.search(text) is not None


def _remove(place: Path, attempt: JobAttempt) -> None:
    remove_folder(place)
    attempt.remove()


def _is_complete(target: Path) -> bool:
    """Return whether the environment is there, and its Python, too. Take note of its use."""
    if not (target / build.MARK).exists() or not (target / "bin/python").exists():
        return False
    with contextlib.suppress(OSError):
        os.utime(f"{target}.lock")
    return True


def _read(attempt: JobAttempt) -> tuple[dict[str, str] | None, str, str]:
    """Return what a finished build says of itself, None: nothing, the end of what it printed, and of pip's own log."""
    text = hide_secrets_in(attempt.output_tail(_LOG_BYTES))
    built, details = attempt.read_result("built.json"), attempt.read_result("details.json")
    # The code of a package may have written both.
    names = ("scrapy", "python", "builder")
    said = {name: str(built.get(name, ""))[:50] for name in names} if isinstance(built, dict) else None
    return said, text, str(details.get("log", "")) if isinstance(details, dict) else ""


def conclusion(text: str) -> str:
    """Return the line of pip's or uv's output that says why requirements could not be installed. Both end with advice
    of their own, which says nothing about them. Empty: there is no output."""
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith(_ADVICE)]
    if "[end of output]" in said:  # of the build of a package, by pip
        said = said[: len(said) - 1 - said[::-1].index("[end of output]")]
    elif "[stderr]" not in said:  # else the same by uv
        if cause := next((place for place, line in enumerate(lines) if line.startswith(_CAUSE_BY_UV)), None):
            paragraph = " ".join(itertools.takewhile(bool, lines[cause:]))
            return paragraph.partition(" ")[2]
        said = [line for line in said if line.startswith("ERROR: ")][:1] or said
    return said[-1].removeprefix("ERROR: ") if said else ""


def _last_lines(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-_REASON_LINES:])[-_REASON_LENGTH:]
