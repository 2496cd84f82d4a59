"""Statements on nodes: register, note heartbeats, drain, declare lost, forget.

A node is a program on some machine that runs jobs. It calls a manager at least every third of its limit; a call that
shows that it lives is a heartbeat, which counts up `beats`. A node that was silent for its limit kills its own jobs by
its own clock. A manager that has seen no new heartbeat for `lost_after` of that limit, by its own clock, declares the
node lost and takes its jobs away. So no two clocks are ever compared.

Every function runs in a transaction of its caller. Fixed: that each change of a node first locks its row, so that a
node that is declared lost is not given a job in the same moment.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, case, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import fetch, fetch_first
from gossamer_platform.lifecycle import ACTIVE, JobState
from gossamer_platform.outcome import AttemptEnd
from gossamer_platform.state.events import report_lost_node
from gossamer_platform.state.jobs import record_end
from gossamer_platform.state.projects import WANTED
from gossamer_platform.state.row_page import RowPage
from gossamer_platform.state.tables import Label, NodeRow, jobs, labels, nodes, versions

_KILL_SECONDS: Final = 3.0
"""Time that a node's shims need at least to notice that their time is over, and to kill. Must be several seconds."""
_STOPPED: Final = "stopped"
"""Incarnation of a node that was stopped while it had no jobs. No process has this name: fixed."""
_SLOWER: Final = 1.25
"""Factor by which a manager waits longer than the node. Must not be less."""


class NodeState(StrEnum):
    """State of a node. Shown to clients: a word must not change."""

    ONLINE = "online"
    DRAINING = "draining"
    """It runs its jobs to their ends and gets no more."""
    LOST = "lost"
    """It was silent for so long that its jobs were taken from it."""
    OFFLINE = "offline"
    """It was stopped while it had no jobs."""


class Node(NodeRow):
    """A node with its load."""

    running: int
    """Jobs that it has."""
    silent_seconds: float
    """Seconds since its last heartbeat."""


class WatchedNode(NamedTuple):
    """A node that can be lost."""

    name: str
    beats: int
    """Number of its last heartbeat."""
    limit_seconds: float


class NewNode(NamedTuple):
    """A node as it announces itself."""

    name: str
    folder: str
    """Random name of its folder. A node that starts again in the same folder has the same."""
    incarnation: str
    """Random name of its process."""
    slots: int
    labels: Sequence[str]
    address: str
    release: str


class LostJob(NamedTuple):
    """A job whose node was lost."""

    id: int
    state: JobState
    """The job's state afterwards."""
    project_id: int


def lost_after(limit_seconds: float) -> float:
    """Return the silence in seconds after which a node with this limit is lost. Its jobs are dead by then."""
    return max(_SLOWER * limit_seconds, limit_seconds + _KILL_SECONDS)


def state_of(node: NodeRow) -> NodeState:
    """Return the state of a node's row."""
    if node.lost_at is not None:
        return NodeState.OFFLINE if node.incarnation == _STOPPED else NodeState.LOST
    return NodeState.DRAINING if node.is_draining else NodeState.ONLINE


def register_node(connection: Connection, new: NewNode, *, limit_seconds: float) -> bool:
    """Add a node, or note that it has started again. Return False if a node with another folder has the name and is not
    lost. May be repeated. A node that was draining still is. `limit_seconds` 0: it is never lost."""
    columns = {
        **new._asdict(),
        "labels": list(new.labels),
        "limit_seconds": limit_seconds,
        "registered_at": DatabaseNow(),
        "beat_at": DatabaseNow(),
        "lost_at": None,
    }
    known = _lock(connection, new.name)
    if known is None:
        try:
            with connection.begin_nested():
                connection.execute(insert(nodes).values(**columns))
            return True
        except IntegrityError:  # another node of this name came first
            known = _lock(connection, new.name)
            assert known is not None
    if known.folder != new.folder and known.lost_at is None:
        return False
    if known.incarnation == new.incarnation:
        limit_seconds = max(limit_seconds, known.limit_seconds)
    columns |= {"beats": nodes.c.beats + 1, "limit_seconds": limit_seconds}
    connection.execute(update(nodes).where(nodes.c.id == known.id).values(**columns))
    if known.incarnation != new.incarnation:
        _return_listings(connection, known.incarnation)
    return True


def _return_listings(connection: Connection, incarnation: str) -> None:
    """Have the spiders listed anew that a process of a node was listing when it ended."""
    connection.execute(update(versions).where(versions.c.listing == incarnation).values(listing=WANTED))


def record_beat(connection: Connection, name: str, incarnation: str, *, limit_seconds: float) -> Node | None:
    """Note a heartbeat, and return the node's row. None: there is no such node, or another process has its name.

    A node that was lost is online again. It has no jobs then: they were taken from it.
    """
    known = _lock(connection, name)
    if known is None or known.incarnation != incarnation:
        return None
    # Never shorter for this process: the answer with a shorter limit may not arrive.
    limit = max(limit_seconds, known.limit_seconds)
    values = {"beats": nodes.c.beats + 1, "beat_at": DatabaseNow(), "limit_seconds": limit, "lost_at": None}
    connection.execute(update(nodes).where(nodes.c.id == known.id).values(**values))
    return find_node(connection, name)


def limit_local_nodes(connection: Connection, *, limit_seconds: float) -> None:
    """Let nodes be lost that never were: those of a server that had the database for itself and has ended."""
    connection.execute(update(nodes).where(nodes.c.limit_seconds == 0).values(limit_seconds=limit_seconds))


def taking_node(connection: Connection, name: str, incarnation: str) -> NodeRow | None:
    """Return the row of a node that may have jobs, and keep it so until the end of the transaction. None: it is lost,
    or another process has its name. One that is draining must be given no new jobs."""
    known = fetch_first(connection, NodeRow, select(nodes).where(nodes.c.name == name).with_for_update(read=True))
    if known is None or known.incarnation != incarnation or known.lost_at is not None:
        return None
    return known


def lose_node(connection: Connection, name: str, *, beats: int) -> list[LostJob] | None:
    """Declare a node lost that has sent no heartbeat since the one with this number, and take its jobs away: each is
    tried again where its retries permit it, cancelled if it was asked to stop, and failed otherwise.

    Return the jobs. None: the node has sent a heartbeat, or is lost already.
    """
    lost = update(nodes).where(nodes.c.name == name, nodes.c.beats == beats, nodes.c.lost_at.is_(None))
    if not connection.execute(lost.values(lost_at=DatabaseNow())).rowcount:
        return None
    _return_listings(connection, connection.scalars(select(nodes.c.incarnation).where(nodes.c.name == name)).one())
    found = []
    for row in connection.execute(select(jobs).where(jobs.c.node == name, jobs.c.state.in_(ACTIVE))).all():
        end = AttemptEnd(fault="node_lost")
        if (state := record_end(connection, row.id, row.attempt, end)) is not None:
            found.append(LostJob(row.id, state, row.project_id))
    report_lost_node(connection, name, [(job.id, job.project_id) for job in found])
    return found


def leave_node(connection: Connection, name: str, incarnation: str) -> bool:
    """Note that a node's process ends. Return False, and change nothing, if it has jobs, which go on, or if another
    process has its name. May be repeated."""
    known = _lock(connection, name)
    if known is None or known.incarnation != incarnation or known.lost_at is not None:
        return False
    if connection.execute(select(jobs.c.id).where(jobs.c.node == name, jobs.c.state.in_(ACTIVE)).limit(1)).first():
        return False
    _return_listings(connection, incarnation)
    values = {"lost_at": DatabaseNow(), "incarnation": _STOPPED}
    connection.execute(update(nodes).where(nodes.c.id == known.id).values(**values))
    return True


def watched_nodes(connection: Connection) -> list[WatchedNode]:
    """Return all nodes that can be lost and are not."""
    watched = (nodes.c.lost_at.is_(None), nodes.c.limit_seconds > 0)
    statement = select(nodes.c.name, nodes.c.beats, nodes.c.limit_seconds).where(*watched)
    return fetch(connection, WatchedNode, statement)


def find_node(connection: Connection, name: str) -> Node | None:
    """Return a node's row with `running`, the number of its jobs, and `silent_seconds`. None: there is no such node."""
    return fetch_first(connection, Node, _with_jobs().where(nodes.c.name == name))


def list_nodes(connection: Connection) -> list[Node]:
    """Return the rows of all nodes by name, as `find_node` does."""
    return fetch(connection, Node, _with_jobs().order_by(nodes.c.name))


def node_page(connection: Connection, page: RowPage, state: NodeState | None = None) -> list[Node]:
    """Return a page of the rows of nodes, or of those in a state, in the order in which they came."""
    wanted = () if state is None else (_states() == state.value,)
    return fetch(connection, Node, page.of(_with_jobs().where(*wanted), nodes.c.id))


def count_nodes(connection: Connection) -> tuple[dict[NodeState, int], int]:
    """Return the number of nodes by state, and the number of jobs that those that are online run at a time."""
    state = _states().label("state")
    counted = select(state, func.count(), func.sum(nodes.c.slots)).group_by(state)
    rows = [(NodeState(name), count, slots) for name, count, slots in connection.execute(counted)]
    return {each: count for each, count, _ in rows}, sum(int(n) for each, _, n in rows if each is NodeState.ONLINE)


def _states() -> ColumnElement[str]:
    """Return the state of each node, as `state_of` does."""
    return case(
        (and_(nodes.c.lost_at.is_not(None), nodes.c.incarnation == _STOPPED), NodeState.OFFLINE.value),
        (nodes.c.lost_at.is_not(None), NodeState.LOST.value),
        (nodes.c.is_draining, NodeState.DRAINING.value),
        else_=NodeState.ONLINE.value,
    )


def set_draining(connection: Connection, name: str, *, is_draining: bool) -> bool:
    """Stop or resume giving jobs to a node. Return False if there is no such node."""
    statement = update(nodes).where(nodes.c.name == name).values(is_draining=is_draining)
    return bool(connection.execute(statement).rowcount)


def forget_node(connection: Connection, name: str) -> bool:
    """Delete a node that is lost or offline. Return False if there is none of this name that is."""
    lost = (nodes.c.name == name, nodes.c.lost_at.is_not(None))
    return bool(connection.execute(delete(nodes).where(*lost)).rowcount)


def has_nodes(connection: Connection) -> bool:
    """Return whether any node is not lost."""
    return connection.execute(select(nodes.c.id).where(nodes.c.lost_at.is_(None)).limit(1)).first() is not None


def list_labels(connection: Connection) -> list[Label]:
    """Return name and limit of the labels that have one."""
    return fetch(connection, Label, select(labels).order_by(labels.c.name))


def limit_label(connection: Connection, name: str, max_running: int | None) -> None:
    """Set how many jobs with a label run at a time. None: as many as there are slots."""
    connection.execute(delete(labels).where(labels.c.name == name))
    if max_running is not None:
        connection.execute(insert(labels).values(name=name, max_running=max_running))


def _with_jobs() -> Select[Any]:
    running = select(func.count()).where(jobs.c.node == nodes.c.name, jobs.c.state.in_(ACTIVE)).scalar_subquery()
    return select(nodes, running.label("running"), (DatabaseNow() - nodes.c.beat_at).label("silent_seconds"))


def _lock(connection: Connection, name: str) -> NodeRow | None:
    return fetch_first(connection, NodeRow, select(nodes).where(nodes.c.name == name).with_for_update())
