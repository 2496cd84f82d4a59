"""Runs a node: takes jobs from managers elsewhere and runs them in a folder of its own.

    FOLDER/name           random name of the folder, by which a manager tells two nodes of one name apart
    FOLDER/attempts/      attempts that run
    FOLDER/artefacts/     copies of artefacts
    FOLDER/environments/  isolated environments of versions
    FOLDER/files/         logs and items until the manager has them; see node/uploads.py
    FOLDER/valid_until    time until which the attempts may run; see node/heartbeat.py

The process may be killed at any moment; jobs run on for the manager's limit, and the next process in the folder
continues with them. Fixed: the lock comes first, because two processes would start one attempt twice.
"""

import asyncio
import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from gossamer.errors import BadInput
from gossamer.pauses import happens_within
from gossamer_platform.node.agent import NodeAgent, NodeTimes, RemoteParts
from gossamer_platform.node.http_link import HttpLink, ManagerAddress
from gossamer_platform.node.uploads import FileUploader
from gossamer_platform.node.users import ProjectUsers
from gossamer_platform.serving.locks import lock_folder

log = logging.getLogger("gossamer.platform.node")

_LISTING_SECONDS: Final = 120.0
"""Time limit for listing the spiders of a version."""
_STOP_GRACE_SECONDS: Final = 120.0
"""Time that a cancelled job has to end by itself before its processes are killed."""
_PROBE_SECONDS: Final = 5.0
"""Time limit of the request that finds out whether a manager needs a password."""
_CLEAN_SECONDS: Final = 3600.0
"""Pause between two deletions of what was not used for long."""


class NodeOptions(NamedTuple):
    """Options of a node."""

    managers: Sequence[str]
    """Addresses of managers on one database."""
    token: str
    """Empty: none, for a manager on this machine."""
    name: str
    folder: Path
    slots: int
    labels: Sequence[str]
    project_users: range | None = None
    """Numbers of users of which each project gets one. None: jobs run as the node's user."""
    must_separate: bool = False
    """True: end rather than run jobs that could use the manager as administrators."""


async def run_node(options: NodeOptions, *, stopping: asyncio.Event, ready: Callable[[float], None]) -> None:
    """Take and run jobs until `stopping` is set. `ready` is called with the manager's limit in seconds once a manager
    has registered the node. Raises BadInput if the folder cannot be used, LinkRefused if the manager refuses the node.
    """
    async with contextlib.AsyncExitStack() as closing:
        folder = options.folder.absolute()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            await lock_folder(closing, folder / "lock", command="gossamer node", what=f"the folder {folder}")
            folder_name = _folder_name(folder)
        except OSError as error:
            raise BadInput(f"the folder {folder} cannot be used: {error.strerror}") from None
        fence = folder / "valid_until"
        address = ManagerAddress(options.managers, options.token, options.name, folder_name)
        users = await asyncio.to_thread(_separate_projects, options, folder)
        if users is not None:
            closing.callback(users.close)
        link = HttpLink(address, folder / "files", fence, registered=ready)
        closing.push_async_callback(link.close)
        uploader = FileUploader(folder / "files", folder / "attempts", link.send_part)
        agent = NodeAgent(
            link,
            folder,
            slots=options.slots,
            times=NodeTimes(_STOP_GRACE_SECONDS, _LISTING_SECONDS),
            labels=options.labels,
            remote=RemoteParts(fence, uploader),
            users=users,
        )
        link.attach(agent)
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.run(stopping))
            group.create_task(link.watch(stopping))
            group.create_task(uploader.run(stopping))
            group.create_task(_clean(agent, stopping))
        await link.leave()


def _separate_projects(options: NodeOptions, folder: Path) -> ProjectUsers | None:
    """Return the users of projects. None: they have none. Raises BadInput if projects could not be separated."""
    if options.project_users is None:
        why = "" if os.geteuid() == 0 else ", because the node does not run as root"
        log.warning("projects are not separated from each other: all jobs run as the user of this node%s", why)
        return None
    open_manager = next((manager for manager in options.managers if _is_open(manager)), None)
    if open_manager is not None:
        reason = (
            f"jobs could use {open_manager} as administrators, because it takes requests from this machine without a "
            "password. Set username and password in its scrapyd.conf (gossamer manager --scrapyd-conf)"
        )
        if options.must_separate:
            raise BadInput(reason)
        log.warning("projects are separated only in part: %s", reason)
    users = ProjectUsers(folder, options.project_users)
    users.check_rights()
    os.umask(0o077)
    users.open([])
    return users


def _is_open(manager: str) -> bool:
    """Return whether a manager answers this machine without a token. One that does not answer now counts as closed."""
    try:
        return httpx.get(f"{manager.rstrip('/')}/v1/projects", timeout=_PROBE_SECONDS).status_code == 200
    except httpx.HTTPError:
        return False


async def _clean(agent: NodeAgent, stopping: asyncio.Event) -> None:
    """Delete now and then what was not used for long."""
    while not await happens_within(stopping, _CLEAN_SECONDS):
        try:
            await agent.forget(None)
        except OSError as error:
            log.warning("old artefacts and environments cannot be deleted: %s", error)


def _folder_name(folder: Path) -> str:
    file = folder / "name"
    with contextlib.suppress(FileNotFoundError):
        if name := file.read_text().strip():
            return name
    name = uuid.uuid4().hex
    new = folder / ".name"
    new.write_text(f"{name}\n")
    new.rename(file)
    return name
