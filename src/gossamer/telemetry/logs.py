"""Logging setup: quiet by default, on standard error when asked for: lines for people, or a JSON object a line."""

import logging
import sys
from collections.abc import Callable
from typing import Final

from gossamer.telemetry import logs as names

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up(level: str = "ERROR", *, form: str = "human") -> None:
    """Log to standard error from `level` on (a name of the logging module, any case). May be repeated.

    `form`: `human`, or `json`: an object a line with timestamp (UTC, ISO 8601), level, logger, message, exception
    where there is one, and whatever the call gave as `extra`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json() if form == "json" else logging.Formatter(FORMAT))
    handler.setLevel(level.upper())  # the handler's own, so that whoever embeds Gossamer still hears the rest
    root = logging.getLogger("gossamer")
    root.handlers[:] = [handler]
    root.setLevel(min(handler.level, logging.WARNING))


def _json() -> logging.Formatter:
    import structlog  # only who asks for it pays for it

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(default=str),
        ],
    )


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


WORKER_STARTED: Final = "worker_started"
WORKER_DRAINING: Final = "worker_draining"
WORKER_STOPPED: Final = "worker_stopped"
WORKER_STALE: Final = "worker_stale"
"""The worker was taken for dead, dropped what it held and began anew."""
PAGE_BROKE: Final = "page_broke"
"""A page made the worker's own code fail: recorded as `internal_error`, the crawl goes on."""
SPIDER_BROKE: Final = "spider_broke"
"""A spider's `parse` raised: the page is recorded as `spider_error`."""
TROUBLE_BEGAN: Final = "trouble_began"
TROUBLE_ENDED: Final = "trouble_ended"
RECORDS_MISSING: Final = "records_missing"
"""Records that were durable in an output vanished from it: the file was deleted or cut."""
FRONTIER_LOST: Final = "frontier_lost"
"""Shards of the frontier lost their data; the process goes on with what is left."""
CLOCK_SET: Final = "clock_set"
"""The clock of a frontier's server was set; the frontier's time goes on as before."""
PROCESS_DIED: Final = "process_died"
PROCESS_STARTED: Final = "process_started"
SERVICE_STARTED: Final = "service_started"
SERVICE_STOPPED: Final = "service_stopped"
SERVICE_BROKE: Final = "service_broke"
"""A step of a service failed for a reason of our own; it is tried again."""
HANDLER_BROKE: Final = "handler_broke"
"""The handler of a request raised what it should not: the request is refused with that."""
POLICIES_LOADED: Final = "policies_loaded"
"""The watched policy file was put in force."""
REQUEST_BROKE: Final = "request_broke"
"""A request to the API met a fault of our own: it was answered with 500."""
