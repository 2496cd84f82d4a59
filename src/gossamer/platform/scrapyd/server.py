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
import fcntl
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from gossamer.errors import BadInput
from gossamer.platform.manager.artefacts import ArtefactStore
from gossamer.platform.manager.local_link import LocalLink, Retention
from gossamer.platform.manager.operations import Manager
from gossamer.platform.manager.vault import load_vault
from gossamer.platform.node.agent import NodeAgent
from gossamer.platform.schedules.firing import fire_schedules
from gossamer.platform.scrapyd.app import ScrapydApp
from gossamer.platform.scrapyd.config import ScrapydConfig
from gossamer.platform.scrapyd.files import ScrapydFiles
from gossamer.platform.scrapyd.importer import import_queues
from gossamer.platform.state.database import StateDatabase
from gossamer.platform.v1.access import is_loopback

log = logging.getLogger("gossamer.platform.scrapyd")

_LOCK_SECONDS: Final = 5.0
"""Time for which a process waits for the lock of one that has just been killed. May be changed."""
_OWNER_SECONDS: Final = 2.0
"""Pause between two looks whether the database is still this process's own. May be changed."""
_BACKLOG: Final = 128
"""Connections that wait until they are accepted. May be changed."""
_CLEAN_SECONDS: Final = 3600.0
"""Pause between two deletions of what is not needed any more. May be changed."""
_DRAIN_SECONDS: Final = 5
"""Time that running requests have at the end. Whole seconds, for uvicorn. May be changed."""


class _QuietServer(uvicorn.Server):
    """uvicorn's server without its own signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def run_scrapyd(
    config: ScrapydConfig, *, stopping: asyncio.Event, ready: Callable[[str], None], say: Callable[[str], None]
) -> None:
    """Serve until `stopping` is set. `ready` is called with the address once requests are accepted; `say` shows a
    warning. Raises BadInput if a folder or an address cannot be used."""
    async with contextlib.AsyncExitStack() as closing:
        state = closing.enter_context(_state_folder(config))
        await _lock(closing, state)
        sockets = closing.enter_context(_listen(config))
        _warn(config, say)
        database = StateDatabase(config.database_url or f"sqlite:///{state / 'state.db'}")
        closing.push_async_callback(database.close)
        await _own(database)
        vault = load_vault(os.environ, config.secret_keys_file)
        manager = Manager(database, ArtefactStore(Path(config.eggs_dir), state / "uploads"), vault)
        await manager.open(config.local_projects)
        if config.dbs_dir != ":memory:":
            await import_queues(manager, Path(config.dbs_dir))
        files = ScrapydFiles(config)
        agent = NodeAgent(
            LocalLink(manager, files, Retention(config.jobs_to_keep, config.finished_to_keep)),
            state / "node",
            slots=config.slots,
            grace_seconds=config.stop_grace,
            listing_seconds=config.listing_timeout,
            build_seconds=config.build_timeout,
        )
        manager.wake_nodes, manager.send_signal = agent.wake, agent.send_signal
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.run(stopping))
            group.create_task(_serve(ScrapydApp(manager, config, files), sockets, stopping))
            group.create_task(fire_schedules(database, manager.wake_nodes, stopping))
            group.create_task(_stay_owner(database, stopping))
            group.create_task(_clean(manager, agent, config.finished_to_keep, stopping))
            ready(_address(config, sockets))


async def _own(database: StateDatabase) -> None:
    """Wait for the database of a process that has just been killed. Raises BadInput if another one uses it."""
    deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
    while not await database.own():
        if asyncio.get_running_loop().time() > deadline:
            raise BadInput(
                "another `gossamer scrapyd` uses the database of database_url. Stop it, or give this one a database of "
                "its own"
            )
        await asyncio.sleep(0.1)


async def _stay_owner(database: StateDatabase, stopping: asyncio.Event) -> None:
    """Own the database again after an outage. Raises BadInput if another process came first."""
    while not await _stopped_within(_OWNER_SECONDS, stopping):
        try:
            is_owner = await database.own()
        except BadInput as error:  # it cannot be reached at present
            log.warning("%s", error)
            continue
        if not is_owner:
            raise BadInput("another `gossamer scrapyd` has taken the database of database_url over")


async def _stopped_within(seconds: float, stopping: asyncio.Event) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
    return stopping.is_set()


async def _clean(manager: Manager, agent: NodeAgent, ended_jobs: int, stopping: asyncio.Event) -> None:
    """Delete now and then what is not needed any more."""
    while not stopping.is_set():
        try:
            wanted = await manager.clean(ended_jobs=ended_jobs)
            await agent.forget(wanted)
        except (OSError, SQLAlchemyError) as error:
            log.warning("rows and artefacts that are not needed cannot be deleted: %s", error)
        await _stopped_within(_CLEAN_SECONDS, stopping)


async def _serve(app: ScrapydApp, sockets: list[socket.socket], stopping: asyncio.Event) -> None:
    server = _QuietServer(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=sockets))
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        server.should_exit = True
        await serving


@contextlib.contextmanager
def _state_folder(config: ScrapydConfig) -> Iterator[Path]:
    """Create the folders, and yield the one for the state."""
    with contextlib.ExitStack() as closing:
        if config.dbs_dir == ":memory:":  # Scrapyd's word for a state that ends with the process
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


async def _lock(closing: contextlib.AsyncExitStack, state: Path) -> None:
    """Keep other processes out of the folder until this one ends. Raises BadInput if one is there."""
    descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    closing.callback(os.close, descriptor)
    deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if asyncio.get_running_loop().time() > deadline:
                owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
                raise BadInput(
                    f"another `gossamer scrapyd` (process {owner or 'unknown'}) uses the folder {state.parent}. Stop "
                    "it, or start this one in another folder"
                ) from None
            await asyncio.sleep(0.1)
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return


@contextlib.contextmanager
def _listen(config: ScrapydConfig) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as closing:
        sockets = []
        # As in Scrapyd: an empty address, or port 0, means no TCP.
        if config.bind_address and (config.http_port or not config.unix_socket_path):
            sockets.append(closing.enter_context(_tcp(config.bind_address, config.http_port)))
        if config.unix_socket_path:
            sockets.append(closing.enter_context(_unix(os.path.abspath(config.unix_socket_path))))
        if not sockets:
            raise BadInput("scrapyd.conf has neither bind_address and http_port nor unix_socket_path")
        yield sockets


@contextlib.contextmanager
def _tcp(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        with contextlib.closing(sock):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # An answer is two writes; the second would wait 40 ms for the acknowledgement of the first.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.bind(address)
            sock.listen(_BACKLOG)
            yield sock
    except OSError as error:
        raise BadInput(f"cannot listen at {host}:{port}: {error.strerror or error}") from None


@contextlib.contextmanager
def _unix(path: str) -> Iterator[socket.socket]:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # left by a process that was killed; a living one has the lock
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.closing(sock):
        try:
            sock.bind(path)
            os.chmod(path, 0o660)
        except OSError as error:
            raise BadInput(f"cannot listen at {path}: {error.strerror or error}") from None
        sock.listen(_BACKLOG)
        yield sock


def _address(config: ScrapydConfig, sockets: list[socket.socket]) -> str:
    name = sockets[0].getsockname()
    if isinstance(name, str):
        return f"http+unix://{name}"
    host = f"[{config.bind_address}]" if ":" in config.bind_address else config.bind_address
    return f"http://{host}:{name[1]}"


def _warn(config: ScrapydConfig, say: Callable[[str], None]) -> None:
    if config.bind_address and not is_loopback(config.bind_address) and not (config.username and config.password):
        say(
            f"Other machines can reach {config.bind_address}, but there is no password, so requests to any other name "
            "than localhost are refused. Set username and password in scrapyd.conf."
        )
