"""Way of a node to the manager of the same process.

One node, which this machine's folder belongs to. It never loses contact with its manager while it lives, so nothing is
fenced off here; after a kill of both, the next pair finds the jobs again. Fixed: the name of the node, which is stored
with jobs.
"""

import asyncio
import contextlib
import logging
import shutil
import socket
from collections.abc import Awaitable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gossamer_platform.link import (
    Announcement,
    Artefact,
    AttemptId,
    JobAssignment,
    ManagerUnavailable,
    NodeOrders,
    NodeReport,
    NodeTurn,
)
from gossamer_platform.manager.files import FileKind, JobFiles
from gossamer_platform.manager.groups import write_input
from gossamer_platform.manager.nodes import NodeKey, NodeOperations, known_attempts
from gossamer_platform.state import jobs, projects, retention
from gossamer_platform.state.nodes import NewNode
from gossamer_platform.state.retention import KeptKind
from gossamer_platform.wire import RELEASE

T = TypeVar("T")

log = logging.getLogger("gossamer.platform.manager")

LOCAL_NODE: Final = "local"
"""Name of the node. Stored with jobs: fixed."""


class Retention(NamedTuple):
    """Numbers of ended jobs of which something is kept."""

    files: int
    """Jobs of each spider whose files are kept when another one starts. 0: all (Scrapyd's rule)."""
    jobs: int
    """Jobs that are kept although their files are deleted."""


class LocalLink:
    """Implements ManagerLink by calls of the database."""

    def __init__(self, nodes: NodeOperations, files: JobFiles, retention: Retention) -> None:
        self._nodes = nodes
        self._manager = nodes.manager
        self._files = files
        self._retention = retention
        self._key = NodeKey(LOCAL_NODE, "")

    async def register(self, node: Announcement) -> Mapping[AttemptId, bool]:
        self._key = NodeKey(LOCAL_NODE, node.incarnation)
        # Its folder is the one that has the database's lock, so it has no name of its own.
        new = NewNode(LOCAL_NODE, LOCAL_NODE, node.incarnation, node.slots, node.labels, socket.gethostname(), RELEASE)
        await self._call(self._manager.database.write(projects.repeat_listings))
        return known_attempts(await self._call(self._nodes.register(new)))

    async def turn(self, asked: NodeTurn) -> NodeOrders:
        orders = await self._call(self._nodes.turn(self._key, asked, places=self._files.places))
        spiders = {(each.artefact.project, each.spider) for each in orders.jobs}
        for project, spider in spiders if self._retention.files else ():
            with contextlib.suppress(ManagerUnavailable):  # the next job of this spider tries again
                await self._delete_outdated(project, spider)
        return orders

    async def _delete_outdated(self, project: str, spider: str) -> None:
        for kind, file_kind in ((KeptKind.LOGS, FileKind.LOG), (KeptKind.ITEMS, FileKind.ITEMS)):
            await self._delete_kind(project, spider, kind, file_kind)

    async def _delete_kind(self, project: str, spider: str, kind: KeptKind, file_kind: FileKind) -> None:
        keep = self._retention.files
        find = partial(retention.files_beyond, kind=kind, project=project, spider=spider, keep=keep)
        deleted = []
        for row in await self._call(self._manager.database.read(find)):
            try:
                await asyncio.to_thread(self._files.delete, row, file_kind)
                deleted.append(row.id)
            except OSError as error:
                log.warning("the files of job %d cannot be deleted: %s", row.id, error)
        if not deleted:
            return

        def forget(connection: Connection) -> None:
            retention.record_deleted(connection, kind, deleted)
            jobs.forget_jobs(connection, keep=self._retention.jobs)

        await self._call(self._manager.database.write(forget))

    def fetch(self, artefact: Artefact, target: Path) -> None:
        assert artefact.path is not None
        shutil.copyfile(artefact.path, target)

    async def fetch_input(self, assignment: JobAssignment, target: Path) -> None:
        await self._call(write_input(self._manager, assignment.id.job, target))

    async def report(self, report: NodeReport) -> None:
        await self._call(self._nodes.report(self._key, report))

    async def _call(self, operation: Awaitable[T]) -> T:
        try:
            return await operation
        except SQLAlchemyError as error:
            raise ManagerUnavailable(str(error)) from error
