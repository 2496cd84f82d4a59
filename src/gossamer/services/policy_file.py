"""A YAML file of domain policies that programs edit: what is written there is in force within a second."""

import asyncio
import logging
from pathlib import Path

from gossamer.control import domains
from gossamer.control.policy_yaml import MOST_BYTES
from gossamer.errors import BadInput
from gossamer.frontier.base import Frontier
from gossamer.telemetry import names
from gossamer.telemetry.troubles import Troubles

log = logging.getLogger("gossamer.services.policies")

_LOOK_SECONDS = 0.3


class PolicyFile:
    """Implements Role. Takes the place of the original's ZooKeeper node: the file's policies replace all others when it
    changes, and at the start. A file that is gone, empty by mistake or wrong changes nothing and is said."""

    name = "policies"
    pause_seconds = _LOOK_SECONDS

    def __init__(self, frontier: Frontier, path: Path, troubles: Troubles) -> None:
        self._frontier = frontier
        self._path = path
        self._troubles = troubles
        self._seen: tuple[int, int, int] | None = None

    async def run_once(self) -> bool:
        try:
            stamp, text = await asyncio.to_thread(self._look)
        except OSError as error:
            self._say(f"{self._path} cannot be read ({error.strerror}); the policies stay as they are")
            return False
        if text is None:
            return False
        try:
            version = await domains.load(self._frontier, text)
        except BadInput as error:
            self._say(f"{self._path}: {error.detail}; the policies stay as they are")
        else:
            self._troubles.end("policies", f"{self._path} is in force again.")
            log.info("%s %s version %d", names.POLICIES_LOADED, self._path, version)
        self._seen = stamp
        return False

    async def close(self) -> None:
        return

    def _look(self) -> tuple[tuple[int, int, int], bytes | None]:
        """(what tells this content from another, the content if it is new)."""
        facts = self._path.stat()
        stamp = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        if stamp == self._seen:
            return stamp, None
        with self._path.open("rb") as stream:
            return stamp, stream.read(MOST_BYTES + 1)

    def _say(self, sentence: str) -> None:
        self._troubles.begin("policies", sentence)
