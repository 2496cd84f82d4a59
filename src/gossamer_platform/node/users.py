"""Users of a node that runs as root: each project gets one of its own, so projects cannot touch each other.

    NODE/users.json        which project has which user; never given to another project
    NODE/homes/UID/        home of a project's user; stays between jobs
    NODE/attempts/…        see `attempt.py`

The users have numbers only; they need no entry in /etc/passwd. The first number of the range is that of the builder,
which builds environments; it belongs to no project.

Fixed: the form of users.json, and that a number is never given again while the folder exists: files of the earlier
project would belong to the next one.
"""

import contextlib
import fcntl
import json
import os
import pwd
import re
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gossamer.errors import BadInput, GossamerError
from gossamer.storage.files import write_whole

DEFAULT_RANGE: Final = range(70000, 80000)
"""Numbers that are used if the operator names none. Systems give such numbers to no one: people have lower ones,
containers' users higher ones."""
_PLACES: Final = "project_users in scrapyd.conf, --project-users of `gossamer node`"
_OFF: Final = (
    "Or let all jobs run as one user: `gossamer node --project-users off`, or project_users = off in scrapyd.conf"
)
_LOWEST: Final = 1000
"""Lowest number that a range may have. Lower ones belong to the system."""
_LOCK: Final = Path("/run/gossamer-users.lock")
"""File whose byte N is locked by the node that gives user N to its projects. Fixed: other releases use it, too."""
_FLOCK: Final = "hhqqi4x"
"""Form of Linux' struct flock on 64-bit machines: type, whence, start, length, pid. Linux': fixed."""
_CLAIM_SECONDS, _LOOK_SECONDS = 1.0, 0.1
"""Time for which the numbers of a node that has just been killed are waited for, and the pause between two looks."""
_CHECK_SECONDS: Final = 60.0
"""Time limit for the try to load Scrapy as a project's user."""
_PASSED: Final = re.compile(
    r"PATH|LANG|LANGUAGE|LC_\w+|TZ|PYTHON\w*|LD_LIBRARY_PATH|VIRTUAL_ENV"
    r"|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(?i:(?:https?|all|no|ftp)_proxy)"
)
"""Environment variables of the node that processes of projects get. None may be a secret of the node's."""


class NoUserLeft(GossamerError):
    """The node has no user left for another project."""

    only_detail = True


class ProjectUser(NamedTuple):
    """User of a project's processes. Its group has the same number."""

    uid: int
    home: Path

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return those of the node's environment variables that the user's processes get, and their own."""
        passed = {name: value for name, value in environment.items() if _PASSED.fullmatch(name)}
        name = f"gossamer-{self.uid}"  # programs that look it up in /etc/passwd find nothing
        return {**passed, "HOME": str(self.home), "USER": name, "LOGNAME": name}

    def own(self, path: Path, mode: int) -> None:
        """Give the user a file or folder."""
        os.chown(path, self.uid, self.uid, follow_symlinks=False)
        os.chmod(path, mode)

    def let_in(self, folder: Path) -> None:
        """Let the user's group enter a folder of the node's, but not list it, and no one else."""
        os.chown(folder, -1, self.uid)
        os.chmod(folder, 0o710)  # noqa: S103 (the group is the user's own)


def parse_project_users(text: str) -> range | None:
    """Return the range that `on`, `off` or `FIRST-LAST` means. None: `off`. Raises BadInput."""
    if text in ("on", "off"):
        return DEFAULT_RANGE if text == "on" else None
    found = re.fullmatch(r"(\d{1,9})-(\d{1,9})", text, re.ASCII)
    if found is None or not _LOWEST <= int(found[1]) < int(found[2]):
        raise BadInput(
            f"project users: {text} is neither on, off, nor a range of user numbers from {_LOWEST} on, such as "
            f"{DEFAULT_RANGE.start}-{DEFAULT_RANGE.stop - 1}"
        )
    return range(int(found[1]), int(found[2]) + 1)


class ProjectUsers:
    """Users of one node's projects. Calls wait for the disk: make them in a thread."""

    def __init__(self, folder: Path, numbers: range) -> None:
        """`folder`: the node's. `numbers`: at least two."""
        self._folder = folder
        self._numbers = numbers
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}
        self._descriptor = -1

    @property
    def builder(self) -> ProjectUser:
        """User that builds environments."""
        return self._user(self._numbers.start)

    def open(self, places: Iterable[Path]) -> None:
        """Take the numbers, and check that users with them can run jobs on this machine.

        `places`: folders below which jobs have files. Raises BadInput with what to do.
        """
        self.check_rights()
        self._claim()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711)
        for name in ("homes", "attempts", "artefacts", "environments", "files"):
            (self._folder / name).mkdir(exist_ok=True)
            (self._folder / name).chmod(0o711)
        self.builder.home.mkdir(exist_ok=True)
        self.builder.own(self.builder.home, 0o700)
        with contextlib.suppress(FileNotFoundError):
            self._known = json.loads((self._folder / "users.json").read_text())
        self._check_python()
        for place in (self._folder, *places):
            if (closed := _closed_folder(place)) is not None:
                raise BadInput(
                    f"jobs of separated projects cannot reach {place}, because only its owner may enter {closed}. Use "
                    f"another folder, or allow it with: chmod o+x {closed}"
                )

    def check_rights(self) -> None:
        """Raise BadInput if this process cannot start processes of these users."""
        if os.geteuid() != 0:
            raise BadInput(f"only a node that runs as root can give projects users of their own. {_OFF}")
        for line in Path("/proc/self/uid_map").read_text().splitlines():
            first, _, count = map(int, line.split())
            if first <= self._numbers.start and self._numbers.stop <= first + count:
                return
        raise BadInput(
            f"this container has no users with the numbers {self._numbers.start} to {self._numbers.stop - 1}; give it "
            "a range that /proc/self/uid_map has"
        )

    def of(self, project: str) -> ProjectUser:
        """Return the user of a project, which gets one if it has none. Raises NoUserLeft or OSError."""
        with self._lock:
            number = self._known.get(project)
            if number is None or number not in self._numbers:
                number = self._free_number()
                known = {**self._known, project: number}
                _write(self._folder / "users.json", known)
                self._known = known
            user = self._user(number)
            user.home.mkdir(exist_ok=True)
            user.own(user.home, 0o700)
            return user

    def _user(self, number: int) -> ProjectUser:
        return ProjectUser(number, self._folder / "homes" / str(number))

    def _free_number(self) -> int:
        # Homes, too: the range may have been changed, and files of those projects may still exist.
        homes = {int(home.name) for home in (self._folder / "homes").iterdir() if home.name.isdigit()}
        taken = {self._numbers.start, *self._known.values(), *homes, *_numbers_of_processes()}
        for number in self._numbers:
            if number not in taken and not _has_name(number):
                return number
        raise NoUserLeft(
            f"all numbers from {self._numbers.start} to {self._numbers.stop - 1} belong to projects; give the "
            "node a longer range"
        )

    def _claim(self) -> None:
        """Keep other nodes of this machine off the numbers, until this process ends."""
        try:
            self._descriptor = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BadInput(f"{_LOCK}, which keeps two nodes apart, cannot be opened: {error.strerror}") from None
        lock = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, self._numbers.start, len(self._numbers), 0)
        deadline = time.monotonic() + _CLAIM_SECONDS
        while True:
            try:
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, lock)
                return
            except OSError:
                if time.monotonic() < deadline:
                    time.sleep(_LOOK_SECONDS)
                    continue
            self.close()
            raise BadInput(
                f"another node of this machine gives users from {self._numbers.start} to {self._numbers.stop - 1} to "
                f"its projects. Give this one another range ({_PLACES})"
            )

    def close(self) -> None:
        """Let another node have the numbers."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _check_python(self) -> None:
        """Raise BadInput if a project's user cannot run the node's own Python with Scrapy."""
        user = self.builder
        reason = f"it took more than {_CHECK_SECONDS:g} seconds"
        with contextlib.suppress(subprocess.TimeoutExpired):
            try:
                done = subprocess.run(
                    [sys.executable, "-c", "import scrapy"],
                    user=user.uid,
                    group=user.uid,
                    extra_groups=[],
                    cwd="/",
                    env=user.variables(os.environ),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_CHECK_SECONDS,
                )
            except PermissionError as error:
                reason = str(error)
            else:
                if done.returncode == 0:
                    return
                reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        closed = _closed_folder(Path(sys.executable).resolve().parent)
        where = f", because only its owner may enter {closed}" if closed else f" ({reason})"
        raise BadInput(
            f"jobs of separated projects cannot use {sys.executable}{where}. Install Python and Gossamer where all "
            f"users can read them, such as /opt. {_OFF}"
        )


def _closed_folder(path: Path) -> Path | None:
    """Return the first folder on a path that other users may not enter. None: they can reach it."""
    absolute = path.absolute()
    for folder in (*reversed(absolute.parents), absolute):
        try:
            if not folder.stat().st_mode & stat.S_IXOTH:
                return folder
        except FileNotFoundError:
            return None
    return None


def _has_name(number: int) -> bool:
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True


def _numbers_of_processes() -> Iterator[int]:
    """Yield the users of the processes that run: a node that is stopped may have jobs."""
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                yield os.stat(f"/proc/{entry}").st_uid


def _write(path: Path, content: Mapping[str, int]) -> None:
    write_whole(path, json.dumps(content).encode(), mode=0o600)
