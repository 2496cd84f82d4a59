"""Parts of servers: locks that keep a second one out, and the limits of the HTTP server.

Fixed: the locks come first, because two processes with one state would run every job twice; and a Unix socket's file is
replaced only by the process that has the lock.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp

from gossamer.dashboard.app import beside_dashboard
from gossamer.errors import BadInput
from gossamer.web.bodies import BodyLimit
from gossamer.web.connections import ConnectionLimits
from gossamer.web.rates import RateLimit
from gossamer.web.server import ServerOptions, serve
from gossamer_platform.cloud.app import CloudApp
from gossamer_platform.dashboard.gate import PlatformGate
from gossamer_platform.dashboard.section import crawls_section, own_section
from gossamer_platform.delivery.crawls import CrawlService
from gossamer_platform.manager.files import JobFiles
from gossamer_platform.scrapyd.app import ScrapydApp
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.v1.app import answer_limit, longest_body
from gossamer_platform.v1.context import PRINCIPAL

log = logging.getLogger("gossamer.platform.serving")

_LOCK_SECONDS: Final = 5.0
"""Time for which a process waits for the lock of one that has just been killed."""
_DATABASE_SECONDS: Final = 15.0
"""Time for which a server waits at its start for a database that starts at the same time."""
_TRY_SECONDS, _SAY_SECONDS = 0.5, 3.0
"""Pauses between two tries to reach it, and between two lines that say so."""
_OWNER_SECONDS: Final = 2.0
"""Pause between two looks whether the database is still this process's own."""
_LIMITS: Final = ConnectionLimits(per_client=800)
"""Limits of connections. Many nodes may have one address, and each has a connection on which it waits for work."""
_REQUESTS_PER_SECOND: Final = 1000.0
"""Limit for one client address; bursts may have twice as many."""
_DRAIN_SECONDS: Final = 5
"""Time that running requests have at the end."""


async def stopped_within(seconds: float, stopping: asyncio.Event) -> bool:
    """Wait for `stopping`, but not longer. Return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
    return stopping.is_set()


def platform_app(app: CloudApp, scrapyd: ScrapydApp) -> ASGIApp:
    """Return the application with every interface of the platform, and the dashboard. `app`: all but the dashboard."""
    config, manager = scrapyd.config, scrapyd.manager
    sections = [own_section(scrapyd.v1, PRINCIPAL)]
    if config.crawl_service:
        service = CrawlService.of(config.crawl_service, config.crawl_service_token)
        sections.insert(0, crawls_section(service.url, service.token, manager))
    gate = PlatformGate(manager.database, scrapyd.access)
    return beside_dashboard(app, gate, sections, prefix_header=config.prefix_header)


async def serve_platform(
    scrapyd: ScrapydApp, files: JobFiles, listening: list[socket.socket], stopping: asyncio.Event
) -> None:
    """Serve every interface of the platform, and the dashboard, until `stopping` is set."""
    app = CloudApp(scrapyd, scrapyd.manager, files)
    await serve_within_limits(platform_app(app, scrapyd), listening, stopping, on_stopping=app.stop_streams)


async def serve_within_limits(
    app: ASGIApp, listening: list[socket.socket], stopping: asyncio.Event, *, on_stopping: Callable[[], None]
) -> None:
    """Serve an application within the platform's limits for clients, until `stopping` is set. `on_stopping` ends its
    streams."""
    limited = BodyLimit(app, longest=longest_body, answer=answer_limit)
    slowed = RateLimit(limited, per_second=_REQUESTS_PER_SECOND, monotonic=time.monotonic)
    options = ServerOptions(limits=_LIMITS, drain_seconds=_DRAIN_SECONDS, on_stopping=on_stopping)
    await serve(slowed, listening, stopping, options)


async def lock_folder(closing: contextlib.AsyncExitStack, file: Path, *, command: str, what: str) -> None:
    """Keep other processes that lock this file out until this one ends, and wait for one that has just been killed.

    Raises BadInput if one stays: `command` is its name, `what` names the thing that it uses.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    closing.callback(os.close, descriptor)
    deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if asyncio.get_running_loop().time() > deadline:
                owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
                raise BadInput(
                    f"another `{command}` (process {owner or 'unknown'}) uses {what}. Stop it, or start this one in "
                    "another folder"
                ) from None
            await asyncio.sleep(0.1)
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return


async def wait_for_database(
    database: StateDatabase, stopping: asyncio.Event, *, seconds: float = _DATABASE_SECONDS
) -> bool:
    """Wait until the database can be reached, and log a line every few seconds. Return False if `stopping` came first.

    Raises BadInput with the reason if it cannot be reached within `seconds`. Every reason may pass: a server that has
    just been started refuses connections first, and may have neither the user nor the database yet.
    """
    clock = asyncio.get_running_loop().time
    deadline, say_at = clock() + seconds, clock()
    while True:
        try:
            await database.check()
            return True
        except BadInput as error:
            if clock() > deadline:
                raise BadInput(f"{error} (tried for {seconds:g} seconds)") from None
            if clock() >= say_at:
                say_at = clock() + _SAY_SECONDS
                log.warning("waiting for the database, for up to %.0f seconds: %s", deadline - clock(), error)
        if await stopped_within(_TRY_SECONDS, stopping):
            return False


async def own_database(database: StateDatabase, *, command: str, shared: bool) -> None:
    """Wait for the database of a process that has just been killed. Raises BadInput if another one uses it that does
    not share it. `command`: name of this command."""
    deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
    while not await database.own(shared=shared):
        if asyncio.get_running_loop().time() > deadline:
            raise BadInput(
                f"another `{command}` uses the database of database_url. Stop it, or give this one a database of "
                "its own"
            )
        await asyncio.sleep(0.1)


async def stay_owner(database: StateDatabase, stopping: asyncio.Event, *, command: str, shared: bool) -> None:
    """Own the database again after an outage. Raises BadInput if a process came first that does not share it."""
    while not await stopped_within(_OWNER_SECONDS, stopping):
        try:
            is_owner = await database.own(shared=shared)
        except BadInput as error:  # it cannot be reached at present
            log.warning("%s", error)
            continue
        if not is_owner:
            raise BadInput(f"another `{command}` has taken the database of database_url over")
