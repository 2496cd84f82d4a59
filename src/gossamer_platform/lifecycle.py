"""Life cycles of jobs and versions: every state, every event, and the table of the steps between them.

A job is one run of one spider with arguments and settings; an attempt is one process tree of a job on one node. A
version is one deployed artefact (an egg) of a project. `state/changes.py` reads these tables and is the only module
that writes a state; a test compares both.

Steps may be added. Fixed: the words of states and events, which are stored in the database and shown to clients; and
that no step leads out of an end state, because a client may have read that the job has ended.
"""

from enum import StrEnum
from typing import Final


class JobState(StrEnum):
    """State of a job. Stored: a word must not change."""

    PENDING = "pending"
    """The job waits for a slot of a node."""
    STARTING = "starting"
    """A node has taken the job; its process may or may not run yet."""
    RUNNING = "running"
    STOPPING = "stopping"
    """The job was asked to stop; its process tree may still exist."""
    FINISHED = "finished"
    """The job did what it should: exit code 0 and a good finish_reason."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    """The job was stopped by request, and its process tree is verified gone."""


class JobEvent(StrEnum):
    """Event in a job's life. Logged: a word must not change."""

    TAKEN = "taken"
    """A node takes the job."""
    RETURNED = "returned"
    """The node proves that it never started the process (it claimed the attempt before the shim could)."""
    STARTED = "started"
    SUCCEEDED = "succeeded"
    BROKE = "broke"
    """The attempt ended in any other way, or the job cannot be started at all."""
    STOP_REQUESTED = "stop_requested"
    GONE = "gone"
    """The process tree of a job that was asked to stop is gone, however it ended."""
    RETRIED = "retried"
    """The attempt ended badly, and the job's retry policy makes another one."""


ACTIVE: Final = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
"""States in which the job occupies a slot."""
ENDED: Final = frozenset({JobState.FINISHED, JobState.FAILED, JobState.CANCELLED})

JOB_STEPS: Final[dict[tuple[JobState, JobEvent], JobState]] = {
    (JobState.PENDING, JobEvent.TAKEN): JobState.STARTING,
    (JobState.PENDING, JobEvent.STOP_REQUESTED): JobState.CANCELLED,
    (JobState.PENDING, JobEvent.BROKE): JobState.FAILED,
    (JobState.STARTING, JobEvent.RETURNED): JobState.PENDING,
    (JobState.STARTING, JobEvent.STARTED): JobState.RUNNING,
    (JobState.STARTING, JobEvent.SUCCEEDED): JobState.FINISHED,
    (JobState.STARTING, JobEvent.BROKE): JobState.FAILED,
    (JobState.STARTING, JobEvent.RETRIED): JobState.PENDING,
    (JobState.STARTING, JobEvent.STOP_REQUESTED): JobState.STOPPING,
    (JobState.RUNNING, JobEvent.SUCCEEDED): JobState.FINISHED,
    (JobState.RUNNING, JobEvent.BROKE): JobState.FAILED,
    (JobState.RUNNING, JobEvent.RETRIED): JobState.PENDING,
    (JobState.RUNNING, JobEvent.STOP_REQUESTED): JobState.STOPPING,
    (JobState.STOPPING, JobEvent.STARTED): JobState.STOPPING,
    (JobState.STOPPING, JobEvent.STOP_REQUESTED): JobState.STOPPING,
    (JobState.STOPPING, JobEvent.GONE): JobState.CANCELLED,
}
"""State after an event. An event that has no row for a state does not apply: the caller learns it and changes nothing.

A job that is starting may end before its start was reported: a process can be quicker than the report of its start."""


class VersionState(StrEnum):
    """State of a version. Stored: a word must not change."""

    BUILDING = "building"
    """A node is to list the version's spiders, or does so. The version is no one's default yet."""
    READY = "ready"
    """Jobs may run it. Only a ready version can be a project's default."""
    BROKEN = "broken"
    DELETED = "deleted"


class VersionEvent(StrEnum):
    """Event in a version's life."""

    BUILT = "built"
    BUILD_FAILED = "build_failed"
    REMOVED = "removed"


VERSION_STEPS: Final[dict[tuple[VersionState, VersionEvent], VersionState]] = {
    (VersionState.BUILDING, VersionEvent.BUILT): VersionState.READY,
    (VersionState.BUILDING, VersionEvent.BUILD_FAILED): VersionState.BROKEN,
    (VersionState.BUILDING, VersionEvent.REMOVED): VersionState.DELETED,
    (VersionState.READY, VersionEvent.REMOVED): VersionState.DELETED,
    (VersionState.BROKEN, VersionEvent.REMOVED): VersionState.DELETED,
}
"""State after an event, as in JOB_STEPS."""


class EnvironmentKind(StrEnum):
    """Place where a version's code runs. Stored: a word must not change."""

    SHARED = "shared"
    """With the node's own Python and packages, as in Scrapyd."""
    ISOLATED = "isolated"
    """In a virtual environment with the version's own requirements."""
