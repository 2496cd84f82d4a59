"""What is wrong right now: said once when it begins and once when it ends, however often it is met meanwhile."""

import logging
from collections.abc import Callable

from gossamer.telemetry import names

log = logging.getLogger("gossamer")


class Troubles:
    """The troubles of one process, by a short name (`frontier`, `output`)."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        """`say` tells a person; None: only the log is told."""
        self._say = say
        self.current: dict[str, str] = {}

    def begin(self, name: str, message: str) -> None:
        """It is wrong. Nothing happens if that was said already."""
        if name in self.current:
            return
        self.current[name] = message
        log.warning("%s %s: %s", names.TROUBLE_BEGAN, name, message)
        if self._say:
            self._say(message)

    def end(self, name: str, message: str) -> None:
        """It is well again. Nothing happens if it was not wrong."""
        if self.current.pop(name, None) is None:
            return
        log.warning("%s %s", names.TROUBLE_ENDED, name)
        if self._say:
            self._say(message)
