"""Surroundings of a project's processes: their user, their environment variables, their current folder.

Fixed: a project's user gets into the folders of its own project only, and its processes get none of the node's
variables that may be a secret (`ProjectUser.variables`).
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gossamer.platform_client.secret_variables import SECRET_VARIABLES
from gossamer_platform.link import Artefact, JobAssignment, Listing
from gossamer_platform.node.attempt import MARK
from gossamer_platform.node.users import ProjectUser, ProjectUsers

_HIDDEN: Final = frozenset({*SECRET_VARIABLES, "SCRAPYD_USERNAME", MARK})
"""Environment variables that jobs do not get: they are the manager's, or another attempt's."""


def user_of(users: ProjectUsers | None, work: JobAssignment | Listing) -> ProjectUser | None:
    """Return the user of a project, who has access to its files now. None: that of the node. Waits for the disk.

    Raises NoUserLeft and OSError.
    """
    if users is None:
        return None
    user = users.of(work.artefact.project)
    for folder in work.enters if isinstance(work, JobAssignment) else ():
        Path(folder).mkdir(parents=True, exist_ok=True)
        user.let_in(Path(folder))
    for folder in work.owns if isinstance(work, JobAssignment) else ():
        Path(folder).mkdir(parents=True, exist_ok=True)
        user.own(Path(folder), 0o700)
    return user


def environment_of(
    artefact: Artefact, variables: Mapping[str, str] | None = None, user: ProjectUser | None = None
) -> Mapping[str, str]:
    """Return the environment of a project's processes: that of the node, or what a project's user gets of it, with the
    project's and Scrapyd's variables."""
    found = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    if user is not None:
        found = user.variables(found)
    found.update(variables or {})
    found["SCRAPY_PROJECT"] = artefact.project
    if artefact.version:
        found["SCRAPYD_EGG_VERSION"] = artefact.version
    return found


def work_folder(code: Path | None, user: ProjectUser | None) -> str:
    """Return the current folder of a project's processes: that of the node, where code without an artefact is."""
    return os.getcwd() if user is None or code is None else str(user.home)
