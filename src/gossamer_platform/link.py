"""Interface between a node and its manager: what a node is given, and what it reports.

Nodes call the manager, never the other way round. Every call may be repeated with the same result, because an answer
may be lost. Fields may be added with a default; nothing may be removed while nodes of an earlier release may run.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Protocol

from msgspec import Meta, Struct
from msgspec.structs import replace

from gossamer.errors import GossamerError
from gossamer_platform.lifecycle import EnvironmentKind
from gossamer_platform.outcome import MAX_FAULT, AttemptEnd
from gossamer_platform.values import Whole

MAX_SLOTS: Final = 10_000
"""Largest number of jobs that a node may take at a time."""
_MAX_SPIDERS, _MAX_SPIDER = 20_000, 1000
"""Spiders of a version, and characters of a name."""
_MAX_WARNINGS: Final = 20
"""Warnings of a version that are kept."""
_MAX_REQUIREMENTS: Final = 2000
"""Lines of requirements that are kept."""
_MAX_LOG: Final = 64 * 1024
"""Characters of what a builder, or the listing, printed."""


class ManagerUnavailable(GossamerError):
    """The manager cannot answer at present; the call may be repeated."""


class LinkRefused(GossamerError):
    """The manager refuses the node: its token, its name, or its call. To repeat the call would not help."""

    only_detail = True


class UnknownAttempt(GossamerError):
    """The node has, and had, no such attempt, or its job was deleted. To repeat the call would not help."""

    only_detail = True


class AttemptId(Struct, frozen=True):
    """Identity of an attempt. Its text is the name of folders for its files."""

    job: Whole
    number: Whole

    def __str__(self) -> str:
        return f"{self.job}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> "AttemptId | None":
        """Return the attempt with this text. None: there is none."""
        job, _, number = text.partition("-")
        return cls(int(job), int(number)) if job.isdigit() and number.isdigit() else None


class Artefact(Struct, frozen=True):
    """Code of a version, and the names under which the project knows itself."""

    project: str
    version: str
    """Name of the version. Empty: there is no artefact; the code is on the node's Python path."""
    digest: str
    path: Path | None
    """File of the artefact where a node of the manager's own process may read it. None: there is none, or the node
    gets it with `fetch`."""
    settings_module: str
    version_id: int = 0
    environment: EnvironmentKind = EnvironmentKind.SHARED
    requirements: str = ""
    """Text of a requirements file that was given at the deployment."""


class EnvironmentReport(Struct, frozen=True):
    """State of a version's isolated environment on a node."""

    version_id: Whole
    digest: str
    status: str
    """`building`, `ready` or `failed`."""
    reason: str = ""
    """Reason why it failed."""
    requirements: tuple[str, ...] = ()
    built: str = ""
    """Versions of Python and Scrapy, and the builder, in a sentence. Empty: it is not ready."""
    log: str = ""
    """End of what the builder printed."""

    def bounded(self) -> "EnvironmentReport":
        """Return it as it is kept."""
        return replace(
            self,
            reason=self.reason[:MAX_FAULT],
            requirements=tuple(line[:MAX_FAULT] for line in self.requirements[:_MAX_REQUIREMENTS]),
            built=self.built[:MAX_FAULT],
            log=self.log[-_MAX_LOG:],
        )


class AttemptProgress(Struct, frozen=True):
    """Progress of an attempt that runs."""

    id: AttemptId
    stats: Mapping[str, Any]
    """Scrapy's counters."""


class ListingResult(Struct, frozen=True):
    """Outcome of listing the spiders of a version."""

    spiders: Sequence[str] = ()
    fault: str = ""
    """Reason why they cannot be listed. Empty: they are listed."""
    of_node: bool = False
    """True: the node is at fault (its disk is full, say), so this or another node tries again later."""
    warnings: Sequence[str] = ()
    """Faults that leave the other spiders usable: a module that cannot be imported, a name that two spiders have."""

    def bounded(self) -> "ListingResult":
        """Return it as it is kept."""
        if len(self.spiders) > _MAX_SPIDERS or any(len(name) > _MAX_SPIDER for name in self.spiders):
            fault = f"there are more than {_MAX_SPIDERS} spiders, or the name of one is longer than {_MAX_SPIDER}"
            return ListingResult(fault=fault)
        warnings = [text[:MAX_FAULT] for text in self.warnings[:_MAX_WARNINGS]]
        return replace(self, fault=self.fault[:_MAX_LOG], warnings=warnings)


class JobInput(Struct, frozen=True):
    """A file that a job finds on its node. All empty: it has none."""

    digest: str = ""
    """SHA-256 of the content."""
    name: str = ""
    use: str = ""
    """`start_urls`: its lines become the spider's start URLs. Otherwise: name of the argument with the file's path."""


class AttemptLimits(Struct, frozen=True, kw_only=True):
    """Limits that a node enforces on an attempt. 0: none."""

    time_limit: float = 0.0
    """Seconds after which the attempt is ended."""
    memory_limit: int = 0
    """Bytes of memory of the process tree at which the attempt is killed."""
    file_limit: int = 0
    """Bytes of the log, and of the items, at which the attempt is ended."""
    open_files_limit: int = 0
    """Files and connections that each of its processes may have open. 0: as many as the node's own process."""

    @classmethod
    def of(cls, limits: object) -> "AttemptLimits":
        """Return the limits among the attributes of an object: the row of a job, or an assignment."""
        return AttemptLimits(**{name: getattr(limits, name) for name in AttemptLimits.__struct_fields__})


class JobAssignment(AttemptLimits, frozen=True, kw_only=True):
    """An attempt that the node is to run."""

    id: AttemptId
    spider: str
    artefact: Artefact
    arguments: Mapping[str, str]
    settings: Mapping[str, str]
    output: str
    """File for the log. Empty: one in the attempt's folder."""
    items: str
    """File for the items. Empty: items are not kept."""
    variables: Mapping[str, str] = {}
    """Environment variables of the project, secrets included."""
    input: JobInput = JobInput()
    shares_frontier: bool = False
    """True: the job takes its requests from the frontier (the queue of a crawl) that its group shares."""
    group_age: float = 0.0
    """Seconds since the first job of a group that shares a frontier was started. 0: none was."""
    enters: Sequence[str] = ()
    """Folders of the project outside of the node's own that its user must enter, the outer ones first. They are made if
    they do not exist."""
    owns: Sequence[str] = ()
    """Folders that the project's user gets, and that are made if they do not exist."""


class Listing(Struct, frozen=True):
    """A version whose spiders the node is to list."""

    version_id: int
    artefact: Artefact
    variables: Mapping[str, str] = {}
    """As in JobAssignment."""


class StopOrder(Struct, frozen=True):
    """Order to stop an attempt."""

    id: AttemptId
    signal: int
    stops: int
    """Number of stops that were asked for so far; the node catches up when it missed some."""


class NodeTurn(Struct, frozen=True):
    """A node that asks what it is to do."""

    free: Annotated[int, Meta(ge=0, le=MAX_SLOTS)]
    """Further jobs that it can run. 0: none."""
    attempts: Sequence[AttemptId] = ()
    """Attempts that it has. One that it was given and that is not among them was lost on the way: it is given again."""
    listings: Sequence[Whole] = ()
    """Numbers of the versions whose spiders it lists. As above."""


class NodeOrders(Struct, frozen=True):
    """Orders for a node."""

    jobs: Sequence[JobAssignment] = ()
    listings: Sequence[Listing] = ()
    stops: Sequence[StopOrder] = ()


class Announcement(NamedTuple):
    """A node that has just started."""

    incarnation: str
    """Random name of its process."""
    slots: int
    labels: Sequence[str] = ()
    """Words for what its machine has or may do. A job may demand one."""


class Started(Struct, frozen=True):
    """Report that the process of an attempt runs."""

    attempt: AttemptId
    pid: Annotated[int, Meta(gt=0, lt=2**31)]


class Returned(Struct, frozen=True):
    """Report that an attempt was never started and never will be."""

    attempt: AttemptId
    reason: str = ""
    """Fault of the node, so that the job waits for a while. Empty: there is none."""


class Ended(Struct, frozen=True):
    """Report of the end of an attempt, whose process tree is gone."""

    attempt: AttemptId
    end: AttemptEnd


class Progress(Struct, frozen=True):
    """Report of Scrapy's counters of attempts that run."""

    attempts: Sequence[AttemptProgress]


class Listed(Struct, frozen=True):
    """Report of the spiders of a version, or why they could not be listed."""

    version_id: Whole
    result: ListingResult


class Prepared(Struct, frozen=True):
    """Report of the state of a version's isolated environment on the node."""

    report: EnvironmentReport


NodeReport = Started | Returned | Ended | Progress | Listed | Prepared
"""Report that the manager only confirms. Its path is the name of its class in lower case: a name must not change."""


class BeatOrder(StrEnum):
    """The manager's answer for one attempt that a heartbeat lists. On the wire: fixed."""

    KEEP = "keep"
    STOP = "stop"
    UNKNOWN = "unknown"
    """The attempt is not the node's any more; it must kill what is left of it."""


class ManagerLink(Protocol):
    """A node's way to its manager."""

    async def register(self, node: Announcement) -> Mapping[AttemptId, bool]:
        """Announce a node that has just started. Return the attempts that it has by what the manager knows; True: the
        process was started. Raises LinkRefused."""

    def fetch(self, artefact: Artefact, target: Path) -> None:
        """Write a copy of an artefact to a new file. Waits for the disk or the network: call it in a thread. Raises
        OSError, or ManagerUnavailable to be called again."""

    async def turn(self, asked: NodeTurn) -> NodeOrders:
        """Take jobs and listings, and learn which attempts are to stop. Make one such call at a time."""

    async def fetch_input(self, assignment: JobAssignment, target: Path) -> None:
        """Write the input of a job into a new file. Raises OSError, or ManagerUnavailable to be called again."""

    async def report(self, report: NodeReport) -> None:
        """Report something."""
