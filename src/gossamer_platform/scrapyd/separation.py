"""Prepares the folders of `gossamer scrapyd` for projects with users of their own: no job reads what is not its own.

A job gets into a folder only where the node lets its user in (`ProjectUser.let_in`). Everything else is closed here,
and what the server creates later is closed by its umask. Fixed: that a server without a password is refused (a job is a
program on this machine, whose requests the server would take for those of an administrator), and that what the users of
projects may enter stays as it is, because their jobs may be running.
"""

import logging
import os
from pathlib import Path

from gossamer.errors import BadInput
from gossamer.storage.secret_keys import KEYS_FILE_VARIABLE
from gossamer_platform.node.users import ProjectUsers
from gossamer_platform.scrapyd.config import ScrapydConfig

log = logging.getLogger("gossamer.platform.scrapyd")


def separate_projects(config: ScrapydConfig, state: Path) -> ProjectUsers | None:
    """Return the users of projects. None: they have none. Waits for the disk, and for a try to load Scrapy.

    `state`: folder of the server's state; the node's is in it. Raises BadInput if projects could not be separated.
    """
    if config.project_users is None:
        log.info("all jobs run as the user of this server; project_users = on in scrapyd.conf separates projects")
        return None
    users = ProjectUsers(state / "node", config.project_users)
    if config.bind_address and not (config.username and config.password):
        raise BadInput(
            "project_users separates projects only if the server has a password, because jobs can send requests, too. "
            "Set username and password in scrapyd.conf"
        )
    users.check_rights()
    for file in (*config.private_files, *filter(None, [os.environ.get(KEYS_FILE_VARIABLE)])):
        if os.path.exists(file) and os.stat(file).st_mode & 0o007:
            raise BadInput(f"jobs could read {file}, which has a password or keys. Change that with: chmod o= {file}")
    os.umask(0o077)
    shared = [Path(folder) for folder in (config.logs_dir, config.items_folder, config.jobs_dir) if folder]
    (state / "node").mkdir(exist_ok=True)
    for folder in (state, state.parent, *shared):
        folder.mkdir(parents=True, exist_ok=True)
        for entry in folder.iterdir():
            if entry not in (state, state / "node") and not entry.is_symlink():
                _close(entry, config.project_users)
        folder.chmod(0o711)
    Path(config.eggs_dir).chmod(0o700)
    users.open(shared)
    return users


def _close(entry: Path, numbers: range) -> None:
    """Keep other users from a file or folder, which an earlier server may have made readable for all, but not the
    project that was let in."""
    found = entry.stat()
    mode = found.st_mode & (0o770 if found.st_gid in numbers else 0o700)
    if mode != found.st_mode & 0o777:
        entry.chmod(mode)
