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
_TROUBLE = "policy-file"
"""Not the role's name: who keeps the role ends that trouble after every step."""


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
        self._wrong = ""
        """What is wrong with the content that was seen."""
        self._lost_shards = frontier.lost_shards

    async def run_once(self) -> bool:
        lost_shards = self._frontier.lost_shards
        if lost_shards > self._lost_shards:  # the policies went with the data
            self._seen = None
        try:
            stamp, text = await asyncio.to_thread(self._look)
        except OSError as error:
            self._say(f"{self._path} cannot be read ({error.strerror}); the policies stay as they are")
            return False
        if text is None:  # as it was, perhaps after a while away
            if self._wrong:
                self._say(self._wrong)
            else:
                self._in_force()
            return False
        try:
            version = await domains.load(self._frontier, text)
        except BadInput as error:
            self._wrong = f"{self._path}: {error.detail}; the policies stay as they are"
            self._say(self._wrong)
        else:
            self._wrong = ""
            self._in_force()
            log.info("%s %s version %d", names.POLICIES_LOADED, self._path, version)
        self._seen = stamp
        self._lost_shards = lost_shards
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

    def _in_force(self) -> None:
        self._troubles.end(_TROUBLE, f"{self._path} is in force again.")

    def _say(self, sentence: str) -> None:
        if self._troubles.current.get(_TROUBLE) != sentence:
            self._troubles.current.pop(_TROUBLE, None)  # one fault in the place of another: not over, but new
            self._troubles.begin(_TROUBLE, sentence)
