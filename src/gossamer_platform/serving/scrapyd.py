"""Runs Scrapyd's interface, the manager and one node in one process, in Scrapyd's folders.

    DBS/gossamer/state.db      projects, versions, jobs, tokens; or a PostgreSQL database (`database_url`)
    DBS/gossamer/node/         attempts that run, and copies of their eggs
    DBS/gossamer/uploads/      eggs of versions that are being built
    EGGS/, LOGS/, ITEMS/       as in Scrapyd

The process may be killed at any moment; jobs run on, and the next process in the same folders continues. Fixed: the
order of the start. The locks of the folder and of the database come first, because two processes with one state would
run every job twice.
"""

import asyncio
import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from gossamer.errors import BadInput
from gossamer.net.listening import listen_tcp, listen_unix, url_of
from gossamer.net.loopback import is_loopback
from gossamer.pauses import happens_within
from gossamer_platform.manager.artefacts import ArtefactStore
from gossamer_platform.manager.local_link import LocalLink, Retention
from gossamer_platform.manager.nodes import NodeOperations
from gossamer_platform.manager.operations import Manager
from gossamer_platform.manager.retention import delete_outdated
from gossamer_platform.manager.vault import load_vault
from gossamer_platform.node.agent import NodeAgent, NodeTimes
from gossamer_platform.scrapyd.app import ScrapydApp
from gossamer_platform.scrapyd.config import ScrapydConfig
from gossamer_platform.scrapyd.files import ScrapydFiles
from gossamer_platform.scrapyd.importer import ImportedJobs, import_queues, running_jobs
from gossamer_platform.scrapyd.separation import separate_projects
from gossamer_platform.serving.locks import (
    lock_folder,
    open_database,
    own_database,
    stay_owner,
    wait_for_database,
)
from gossamer_platform.serving.services import start_services
from gossamer_platform.state import projects
from gossamer_platform.state.retention import RetentionPolicy

log = logging.getLogger("gossamer.platform.serving")

_COMMAND: Final = "gossamer scrapyd"
_CLEAN_SECONDS: Final = 3600.0
"""Pause between two deletions of what is not needed any more."""


async def run_scrapyd(
    config: ScrapydConfig, *, stopping: asyncio.Event, ready: Callable[[str], None], say: Callable[[str], None]
) -> None:
    """Serve until `stopping` is set. `ready` is called with the address once requests are accepted; `say` shows a
    warning. Raises BadInput if a folder or an address cannot be used."""
    async with contextlib.AsyncExitStack() as closing:
        state = closing.enter_context(_state_folder(config))
        await lock_folder(closing, state / "lock", command=_COMMAND, what=f"the folder {state.parent}")
        listening = await _listen(config, closing)
        _warn(config, say)
        url = config.database_url or f"sqlite:///{state / 'state.db'}"
        database = await open_database(closing, url, command=_COMMAND)
        if not await wait_for_database(database, stopping):
            return
        await own_database(database, command=_COMMAND, shared=False)
        vault = load_vault(os.environ, config.secret_keys_file)
        artefacts = ArtefactStore(Path(config.eggs_dir), state / "uploads")
        manager = Manager(database, artefacts, vault, run_settings=config.run_settings)
        is_new = database.file is not None and not database.file.exists()
        await manager.open(config.local_projects)
        if config.keeps_state:
            imported = await import_queues(manager, Path(config.dbs_dir))
            if is_new or imported.waiting:
                await _say_what_was_there(manager, imported, say)
        files = ScrapydFiles(config)
        manager.has_files = files.has_files
        users = await asyncio.to_thread(separate_projects, config, state)
        if users is not None:
            closing.callback(users.close)
        agent = NodeAgent(
            LocalLink(
                NodeOperations(manager, limit_seconds=0), files, Retention(config.jobs_to_keep, config.finished_to_keep)
            ),
            state / "node",
            slots=config.slots,
            times=NodeTimes(config.stop_grace, config.listing_timeout, config.build_timeout),
            users=users,
        )
        manager.wake_nodes, manager.send_signal = agent.wake, agent.send_signal
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.run(stopping))
            start_services(group, ScrapydApp(manager, config, files), files, listening, stopping)
            group.create_task(stay_owner(database, stopping, command=_COMMAND, shared=False))
            group.create_task(_clean(manager, agent, files, config.finished_to_keep, stopping))
            ready(url_of(config.bind_address, listening[0]))
            await stopping.wait()
            manager.stop_waiting()


async def _say_what_was_there(manager: Manager, imported: ImportedJobs, say: Callable[[str], None]) -> None:
    """Say what was taken over from Scrapyd, if anything was."""
    names = await manager.read(projects.project_names)
    if not names and not any(imported):
        return
    versions = [len(await manager.versions(name)) for name in names]
    say(
        f"Taken over from Scrapyd: {_counted(len(names), 'project')} with {_counted(sum(versions), 'version')}, "
        f"{_counted(imported.waiting, 'waiting job')}, {_counted(imported.ended, 'ended job')}."
    )
    if running := await asyncio.to_thread(running_jobs, Path.cwd()):
        say(
            "Warning: jobs that a Scrapyd started in this folder still run; they are not shown here, and count for no "
            f"limit. Their processes: {', '.join(map(str, running))}."
        )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


async def _clean(
    manager: Manager, agent: NodeAgent, files: ScrapydFiles, ended_jobs: int, stopping: asyncio.Event
) -> None:
    """Delete now and then what is not needed any more."""
    while not stopping.is_set():
        try:
            await delete_outdated(manager.database, files, RetentionPolicy(), stopping=stopping)
            wanted = await manager.clean(ended_jobs=ended_jobs)
            await agent.forget(wanted)
        except (OSError, SQLAlchemyError) as error:
            log.warning("rows and artefacts that are not needed cannot be deleted: %s", error)
        await happens_within(stopping, _CLEAN_SECONDS)


@contextlib.contextmanager
def _state_folder(config: ScrapydConfig) -> Iterator[Path]:
    """Create the folders, and yield the one for the state."""
    with contextlib.ExitStack() as closing:
        if not config.keeps_state:
            dbs = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="gossamer-")))
        else:
            dbs = Path(config.dbs_dir)
        state = (dbs / "gossamer").absolute()
        folders = [state, Path(config.eggs_dir), config.logs_dir and Path(config.logs_dir)]
        for folder in (*folders, config.has_local_items and Path(config.items_folder)):
            try:
                if folder:
                    folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise BadInput(f"the folder {folder} cannot be created: {error.strerror}") from None
        state.chmod(0o700)  # it contains arguments of jobs, which may be secrets
        yield state


async def _listen(config: ScrapydConfig, closing: contextlib.AsyncExitStack) -> list[socket.socket]:
    """Return the sockets, which are closed with `closing`."""
    # As in Scrapyd: an empty address, or port 0, means no TCP.
    has_tcp = bool(config.bind_address and (config.http_port or not config.unix_socket_path))
    if not has_tcp and not config.unix_socket_path:
        raise BadInput("scrapyd.conf has neither bind_address and http_port nor unix_socket_path")
    tcp = await listen_tcp(config.bind_address, config.http_port, option="http_port in scrapyd.conf") if has_tcp else []
    unix = [listen_unix(config.unix_socket_path)] if config.unix_socket_path else []
    for sock in (*tcp, *unix):
        closing.callback(sock.close)
    return [*tcp, *unix]


def _warn(config: ScrapydConfig, say: Callable[[str], None]) -> None:
    if config.bind_address and not is_loopback(config.bind_address) and not (config.username and config.password):
        say(
            f"Other machines can reach {config.bind_address}, but there is no password, so their requests are refused "
            "unless they have a token. Set username and password in scrapyd.conf."
        )
