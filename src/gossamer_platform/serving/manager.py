"""Runs a manager: Scrapyd's interface and /v1, and everything that nodes on other machines need. It runs no job itself.

    STORE/state.db        projects, versions, jobs, nodes, tokens; or a PostgreSQL database
    STORE/eggs/           artefacts of versions that jobs can run
    STORE/uploads/        artefacts of versions that are being built
    STORE/files/          logs and items of jobs

STORE may also be an fsspec address, such as s3://bucket/prefix; it has artefacts/ in place of eggs/ and uploads/.

Any number of managers may run on one PostgreSQL database with one store; on SQLite it is one. The process may be killed
at any moment: jobs run on at their nodes, and another manager, or the next one, continues. Fixed: the order of the
start, with the locks first; and that only a manager that is alone compares the database with the folder of eggs.
"""

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from gossamer.errors import BadInput
from gossamer.net.credentials import hide_secrets
from gossamer.net.listening import listen_tcp, url_of
from gossamer.pauses import happens_within
from gossamer.storage.objects import ObjectMissing, ObjectStorage, StorageUnavailable, is_folder
from gossamer_platform.manager.artefacts import ArtefactStore
from gossamer_platform.manager.chunk_store import ChunkStore
from gossamer_platform.manager.nodes import NodeOperations
from gossamer_platform.manager.operations import Manager
from gossamer_platform.manager.retention import delete_outdated
from gossamer_platform.manager.storage import open_platform_storage
from gossamer_platform.manager.stored_artefacts import StoredArtefacts
from gossamer_platform.manager.vault import load_vault
from gossamer_platform.manager.wakeups import WakeUps
from gossamer_platform.scrapyd.app import ScrapydApp
from gossamer_platform.scrapyd.config import ScrapydConfig
from gossamer_platform.scrapyd.remote_files import RemoteFiles
from gossamer_platform.serving.locks import open_database, own_database, stay_owner, wait_for_database
from gossamer_platform.serving.services import start_services
from gossamer_platform.state.nodes import limit_local_nodes
from gossamer_platform.state.retention import RetentionPolicy
from gossamer_platform.v1.context import RemoteNodes
from gossamer_platform.v1.reading import in_receiver

log = logging.getLogger("gossamer.platform.serving")

_COMMAND: Final = "gossamer manager"
_CLEAN_SECONDS: Final = 3600.0
"""Pause between two deletions of what is not needed any more."""
_MAINTENANCE_SECONDS: Final = 10.0
"""Pause between two looks for logs and items to merge."""


class ManagerOptions(NamedTuple):
    """Options of a manager."""

    config: ScrapydConfig
    """Configuration of Scrapyd's interface. Its folders are those of the store."""
    store: str
    """Folder, or fsspec address, which all managers of the database share."""
    keep: RetentionPolicy
    """Retention of projects that have none of their own."""
    limit_seconds: float
    """Silence after which a node kills its jobs, and somewhat later is lost."""


async def run_manager(options: ManagerOptions, *, stopping: asyncio.Event, ready: Callable[[str], None]) -> None:
    """Serve until `stopping` is set. `ready` is called with the address once requests are accepted. Raises BadInput if
    a folder, the database or the address cannot be used."""
    config = options.config
    async with contextlib.AsyncExitStack() as closing:
        _make_folders(options)
        url = config.database_url or f"sqlite:///{Path(options.store, 'state.db')}"
        database = await open_database(closing, url, command=_COMMAND)
        listening = await listen_tcp(config.bind_address, config.http_port, option="--port")
        for sock in listening:
            closing.callback(sock.close)
        vault = load_vault(os.environ, config.secret_keys_file)
        if not await wait_for_database(database, stopping):
            return
        await database.migrate()
        # Before all else: with the folder of another platform, all versions would seem to be deleted.
        storage = await open_platform_storage(database, options.store)
        artefacts = _artefacts(options, storage, closing)
        manager = Manager(database, artefacts, vault, run_settings=config.run_settings)
        await _open(manager, options)
        wake_ups = WakeUps(database, on_listed=manager.notice_listing)
        manager.has_remote_nodes = True
        manager.wake_nodes, manager.wake_clients = wake_ups.wake_nodes, wake_ups.wake_clients
        manager.send_signal = wake_ups.send_signal
        nodes = NodeOperations(manager, limit_seconds=options.limit_seconds)
        chunk_store = ChunkStore(database, storage)
        files = RemoteFiles(chunk_store, database)
        scrapyd = ScrapydApp(manager, config, files, RemoteNodes(nodes, wake_ups, chunk_store))
        async with asyncio.TaskGroup() as group:
            start_services(group, scrapyd, files, listening, stopping)
            group.create_task(wake_ups.listen(stopping))
            group.create_task(nodes.watch_nodes(stopping))
            group.create_task(stay_owner(database, stopping, command="gossamer scrapyd", shared=True))
            group.create_task(_clean(manager, files, options, stopping))
            group.create_task(_maintain(chunk_store, stopping))
            ready(url_of(config.bind_address, listening[0]))
            await stopping.wait()
            wake_ups.close()
            manager.stop_waiting()


async def _open(manager: Manager, options: ManagerOptions) -> None:
    """Bring the database up to date. Raises BadInput if it belongs to a server that does not share it."""
    database = manager.database
    if await database.own():
        await manager.open(options.config.local_projects)
        limit = options.limit_seconds
        await database.write(lambda connection: limit_local_nodes(connection, limit_seconds=limit))
        await database.share()
    else:  # other managers run, or start at this moment and will share
        await own_database(database, command="gossamer scrapyd", shared=True)
        await database.migrate()


async def _clean(manager: Manager, files: RemoteFiles, options: ManagerOptions, stopping: asyncio.Event) -> None:
    """Delete now and then what is not needed any more."""
    while not stopping.is_set():
        try:
            await delete_outdated(manager.database, files, options.keep, stopping=stopping)
            await manager.clean()  # which jobs are kept, `options.keep` says
        except (OSError, StorageUnavailable, SQLAlchemyError) as error:
            log.warning("rows and artefacts that are not needed cannot be deleted: %s", error)
        await happens_within(stopping, _CLEAN_SECONDS)


async def _maintain(store: ChunkStore, stopping: asyncio.Event) -> None:
    """Merge and delete what nodes have sent, as it becomes possible."""
    while not await happens_within(stopping, _MAINTENANCE_SECONDS):
        try:
            await in_receiver(store.maintain, stopping.is_set)
        except (StorageUnavailable, ObjectMissing, SQLAlchemyError) as error:
            log.warning("logs and items cannot be merged or deleted: %s", error)


def _artefacts(options: ManagerOptions, storage: ObjectStorage, closing: contextlib.AsyncExitStack) -> ArtefactStore:
    if is_folder(options.store):
        return ArtefactStore(Path(options.store, "eggs"), Path(options.store, "uploads"))
    return StoredArtefacts(storage, Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="gossamer-"))))


def _make_folders(options: ManagerOptions) -> None:
    if not is_folder(options.store):
        if not options.config.database_url:
            raise BadInput(
                f"--store {hide_secrets(options.store)} needs --database: SQLite keeps its file in a folder. Write "
                "--database sqlite:////FOLDER/state.db for one manager, or the address of a PostgreSQL database"
            )
        return
    for folder in (Path(options.store), Path(options.store, "eggs")):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"the folder {folder} cannot be created: {error.strerror}") from None
    Path(options.store).chmod(0o700)  # it contains arguments of jobs, which may be secrets
