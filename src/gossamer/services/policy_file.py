"""A YAML file of domain policies that programs edit: what is written there is in force within a second."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gossamer.control import domains
from gossamer.control.domains import MOST_BYTES
from gossamer.errors import BadInput
from gossamer.frontier.base import Frontier
from gossamer.telemetry import logs as names
from gossamer.telemetry.logs import Troubles

log = logging.getLogger("gossamer.services.policies")

_LOOK_SECONDS = 0.3
SETTLED_SECONDS = 0.2
"""A file that did not change for so long is not being written."""
_TROUBLE = "policy-file"
"""Not the role's name: who keeps the role ends that trouble after every step."""

_Stamp = tuple[int, int, int, int]
"""What tells one content of the file from another: its times, its size and its inode."""


@dataclass(frozen=True, slots=True)
class _Content:
    """What a look at the file found."""

    stamp: _Stamp
    text: bytes


class PolicyFile:
    """Implements Role. Takes the place of the original's ZooKeeper node: the file's policies replace all others when it
    changes, at the start, and when the frontier lost its data.

    A file is loaded when it is whole (`load_policies`) and did not change for SETTLED_SECONDS. One that is gone, empty,
    cut off or wrong changes nothing, and that is said once."""

    name = "policies"

    def __init__(
        self,
        frontier: Frontier,
        path: Path,
        troubles: Troubles,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`monotonic`, `clock`: seconds; `clock` is the one of the file's times."""
        self._frontier = frontier
        self._path = path
        self._troubles = troubles
        self._monotonic = monotonic
        self._clock = clock
        self._judged: _Stamp | None = None
        """Of the content that was loaded or refused last."""
        self._found: tuple[_Content, float] | None = None
        """The newest content, and when it was seen first."""
        self._wrong = ""
        """What is wrong with the content that was judged."""
        self._lost_shards = frontier.lost_shards

    @property
    def pause_seconds(self) -> float:
        return SETTLED_SECONDS if self._found else _LOOK_SECONDS

    async def run_once(self) -> bool:
        if self._frontier.lost_shards != self._lost_shards:  # the policies are lost as well
            self._lost_shards = self._frontier.lost_shards
            self._judged = None
        try:
            content = await asyncio.to_thread(self._look)
        except OSError as error:
            self._say(f"{self._path} cannot be read ({error.strerror}); the policies stay as they are")
            return False
        if content is None:  # as it was, perhaps after a while away
            if self._wrong:
                self._say(self._wrong)
            else:
                self._in_force()
        elif self._is_settled(content):
            await self._judge(content)
        return False

    async def close(self) -> None:
        return

    async def _judge(self, content: _Content) -> None:
        try:
            version = await domains.load(self._frontier, content.text, whole=True)
        except BadInput as error:
            self._wrong = f"{self._path}: {error.detail}; the policies stay as they are"
            self._say(self._wrong)
        else:
            self._wrong = ""
            self._in_force()
            log.info("%s %s version %d", names.POLICIES_LOADED, self._path, version)
        self._judged, self._found = content.stamp, None

    def _is_settled(self, content: _Content) -> bool:
        """Whether nobody seems to be writing the file. At the start its own times may tell that, without a wait."""
        now = self._monotonic()
        if self._found is None or self._found[0] != content:
            self._found = (content, now)
        changed = max(content.stamp[:2]) / 1e9
        is_old = self._judged is None and self._clock() - changed >= SETTLED_SECONDS
        return is_old or now - self._found[1] >= SETTLED_SECONDS

    def _look(self) -> _Content | None:
        """None: the file is as it was when it was judged."""
        with self._path.open("rb") as stream:
            facts = os.fstat(stream.fileno())
            stamp = (facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino)
            return None if stamp == self._judged else _Content(stamp, stream.read(MOST_BYTES + 1))

    def _in_force(self) -> None:
        self._troubles.end(_TROUBLE, f"{self._path} is in force again.")

    def _say(self, sentence: str) -> None:
        if self._troubles.current.get(_TROUBLE) != sentence:
            self._troubles.current.pop(_TROUBLE, None)  # one fault in the place of another: not over, but new
            self._troubles.begin(_TROUBLE, sentence)
