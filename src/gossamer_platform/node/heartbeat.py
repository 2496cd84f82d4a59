"""Heartbeats of a node: a thread of its own, so that nothing that the node does delays them.

Each heartbeat lists all attempts of the node. Its answer says for each whether it goes on, and for how long the node
may go without another answer. That time becomes the time of change of a file, the fence, at which every shim looks: a
shim kills its attempt when the time is over, even if the node itself is frozen or was killed. The time counts from
before the call was sent, and the manager waits longer, from after it has arrived, before it gives the jobs to other
nodes.

Fixed: the order above; that the clock is CLOCK_BOOTTIME, which goes on while the machine is suspended; and that the
fence has no content, because a disk that is full takes none, and all jobs would be killed.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gossamer_platform.link import AttemptId, LinkRefused, ManagerUnavailable
from gossamer_platform.node.attempt import AttemptState
from gossamer_platform.node.shim import now
from gossamer_platform.wire import Beat, BeatAnswer, RunningAttempt

log = logging.getLogger("gossamer.platform.node")

_PER_LIMIT: Final = 4
"""Heartbeats within the time after which silence kills. Must be 3 or more: one may be lost."""
_LONGEST_PAUSE_SECONDS: Final = 10.0
"""Longest pause between two heartbeats."""


class NodeHeartbeats:
    """Sends heartbeats until it is stopped."""

    def __init__(
        self,
        fence: Path,
        *,
        send: Callable[[Beat, float], BeatAnswer],
        attempts: Callable[[], Sequence[tuple[AttemptId, AttemptState]]],
        obey: Callable[[BeatAnswer], None],
        refused: Callable[[LinkRefused], None],
    ) -> None:
        """`send` sends a heartbeat within a time in seconds. `attempts` returns the attempts of the node. `obey` gets
        each answer, `refused` the refusal that ends the thread; all are called in the thread."""
        self._fence = fence
        self._send = send
        self._attempts = attempts
        self._obey = obey
        self._refused = refused
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-heartbeat", daemon=True)
        self._limit_seconds = 0.0

    def start(self, limit_seconds: float, *, asked_at: float) -> None:
        """Start the thread. `asked_at`: time of `shim.now` before the call that has returned this limit."""
        self._extend(asked_at, limit_seconds)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. The attempts go on until the fence's time is over."""
        self._stopping.set()

    def _extend(self, asked_at: float, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        until = asked_at + limit_seconds
        try:
            os.utime(self._fence, (until, until))
        except FileNotFoundError:  # a new node; the file must not be there with the time of its creation
            new = self._fence.with_name(f".{self._fence.name}")
            new.touch()
            os.utime(new, (until, until))
            os.replace(new, self._fence)

    def _run(self) -> None:
        failed = False
        while not self._stopping.wait(self._pause(failed)):
            asked_at = now()
            try:
                running = [RunningAttempt(number, state.name.lower()) for number, state in self._attempts()]
                answer = self._send(Beat(running), self._limit_seconds / _PER_LIMIT)
                self._extend(asked_at, answer.limit_seconds)
                failed = False
            except LinkRefused as error:
                self._refused(error)
                return
            except (ManagerUnavailable, OSError) as error:
                if not failed:
                    log.warning("a heartbeat failed: %s", error)
                failed = True
                continue
            except Exception:  # the attempts go on only while there are heartbeats, so the thread must not end
                log.exception("a heartbeat failed")
                failed = True
                continue
            self._obey(answer)

    def _pause(self, failed: bool) -> float:
        pause = min(self._limit_seconds / _PER_LIMIT, _LONGEST_PAUSE_SECONDS)
        return min(pause, self._limit_seconds / _PER_LIMIT / 4) if failed else pause
