"""Logging setup, names of log events, and the troubles of a process: problems that last, such as an unreachable server.

Logs go to standard error, by default from level ERROR on: as lines for people, or as one JSON object a line. Fixed,
because people filter and alert by them: the names of events, with which messages begin, the names of loggers (below
`gossamer`), and the fields of the JSON. The rest of a message may be worded freely.
"""

import logging
import sys
from collections.abc import Callable, Iterable
from typing import Final

from gossamer.controls import without_controls

# Names of log events. Names may be added, never changed.
# Words: a worker is a process that fetches pages, a spider the code that reads them. The frontier is the cluster's
# queue of requests, divided into shards. A lease is a request that a worker holds. A run is one life of a crawl.
WORKER_STARTED: Final = "worker_started"
WORKER_DRAINING: Final = "worker_draining"
"""The worker was asked to stop; it finishes the requests in progress and gives the others back."""
WORKER_STOPPED: Final = "worker_stopped"
WORKER_STALE: Final = "worker_stale"
"""The worker was declared dead; it dropped its leases and began a new session."""
PAGE_BROKE: Final = "page_broke"
"""A page made the worker's own code fail. The page is recorded as `internal_error`; the crawl continues."""
SENT_LATE: Final = "sent_late"
"""A request left later than its site's rate limit allows, because its process stood still at that moment."""
SPIDER_BROKE: Final = "spider_broke"
"""A spider's `parse` raised. The page is recorded as `spider_error`."""
SEED_FAILED: Final = "seed_failed"
"""A URL that a crawl starts from could not be fetched; it may be retried."""
SPIDER_BLOCKED: Final = "spider_blocked"
"""A spider's `parse` kept its process from fetching for a long time."""
TROUBLE_BEGAN: Final = "trouble_began"
"""The process waits for something that is unavailable (`Troubles`)."""
TROUBLE_ENDED: Final = "trouble_ended"
RECORDS_MISSING: Final = "records_missing"
"""Records that were durable in an output are gone: the file was deleted or truncated."""
BROWSER_NOT_REPLACED: Final = "browser_not_replaced"
"""A browser that was to be replaced could not be: another one did not start."""
BROWSER_NOT_STARTED: Final = "browser_not_started"
"""A browser did not start; it is tried again."""
ROWS_REFUSED: Final = "rows_refused"
"""Rows did not fit the table of a store. They are in a file, with the reason."""
HISTORY_REFUSED: Final = "history_refused"
"""The database of the history refused what the historian was to record. It goes on without that."""
AUDIT_INCOMPLETE: Final = "audit_incomplete"
"""The audit lacks a change, or its outcome, because its database could not be written. The message has all of it."""
FRONTIER_LOST: Final = "frontier_lost"
"""Shards of the frontier lost their data; the process continues with what is left."""
RUN_FORGOTTEN: Final = "run_forgotten"
"""A shard of the frontier had data of a run that the run's home shard has no record of; the data were deleted."""
EVENTS_LOST: Final = "events_lost"
"""Ends of crawls were not published within the retention, or were too many to be kept; they never will be."""
FRONTIER_REPAIRED: Final = "frontier_repaired"
"""A server of the frontier had lost a part of its writes: queues and counts were corrected, lost requests counted."""
ROUND_LOST: Final = "round_lost"
"""The frontier lost a run that visited pages of a crawl that is kept up to date; all of its pages are visited again."""
SCOPE_ADOPTED: Final = "scope_adopted"
"""URLs of a crawl that is kept up to date were submitted again with another scope: pages were forgotten, and others are
due, without conditions."""
INDEX_REFUSED: Final = "index_refused"
"""The page index of a crawl cannot be used, so the crawl is not kept up to date."""
BUDGET_TOO_SMALL: Final = "budget_too_small"
"""The budget of a crawl that is kept up to date cannot reach the longest age of its pages; the message has one that
would."""
HUB_REFUSED: Final = "hub_refused"
"""A WebSub hub did not take a subscription to a feed, or did not verify it; it is asked again later."""
PAGES_WITHOUT_END: Final = "pages_without_end"
"""The pages of a crawl may have no end: the message names the pattern of their URLs, and options that bound them."""
CLOCK_SET: Final = "clock_set"
"""The clock of a frontier's server was set; the frontier's own time continues evenly."""
PROCESS_DIED: Final = "process_died"
"""A worker process ended unexpectedly; its parent starts another."""
SERVICE_STARTED: Final = "service_started"
SERVICE_STOPPED: Final = "service_stopped"
SERVICE_BROKE: Final = "service_broke"
"""A step of a service failed because of a bug in Gossamer; the service retries it."""
HANDLER_BROKE: Final = "handler_broke"
"""The handler of a request raised an unexpected error; the request is refused with that error."""
POLICIES_LOADED: Final = "policies_loaded"
"""The watched policy file was loaded and is in force."""
REQUEST_BROKE: Final = "request_broke"
"""A request to the API failed because of a bug in Gossamer; the API answered 500."""
REQUEST_LATE: Final = "request_late"
"""A change that a page of the dashboard no longer waited for has ended; the message says how."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""Lines for people. Programs should read the JSON."""

log = logging.getLogger("gossamer")


def set_up(level: str = "ERROR", *, style: str = "human") -> None:
    """Log to standard error from `level` on (a name of the logging module, any case). May be called again.

    `style`: `human`, or `json`: one object a line with timestamp (UTC, ISO 8601), level, logger, message, exception
    where there is one, and the fields that the caller passed as `extra`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json_formatter() if style == "json" else _LineFormatter(_FORMAT))
    handler.setLevel(level.upper())  # on the handler, so that an embedding program still receives the other records
    root = logging.getLogger("gossamer")
    root.handlers[:] = [handler]  # in place of the handler of an earlier call
    root.setLevel(min(handler.level, logging.WARNING))  # warnings always reach an embedding program


class _LineFormatter(logging.Formatter):
    """Formats a log record for people. A message, or the error of a traceback, may have the text of a site, a hub or a
    client: it acts on no terminal, and none of its lines can be taken for another record, because they are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line, with further lines below it."""
        return without_controls(super().format(record)).replace("\n", "\n    ")


def shows_warnings() -> bool:
    """Return whether the log shows warnings. That of `set_up` does from its level on, that of a program always."""
    return all(handler.level <= logging.WARNING for handler in logging.getLogger("gossamer").handlers)


def _json_formatter() -> logging.Formatter:
    """Return the formatter that makes one JSON object of each log record."""
    import structlog  # here, because only JSON logs need it

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[  # in order: each adds to what the ones before have made
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


class Troubles:
    """Problems that a process has at present, each under a short name (`frontier`, `output`), with its message.

    A problem is logged once when it begins and once when it ends. The metric `gossamer_trouble` has the names as a
    label, so a name must be stable, and there must not be many of them.
    """

    def __init__(self, notify: Callable[[str], None] | None = None, *, level: int = logging.WARNING) -> None:
        """`notify` shows a message to a person. None: messages only go to the log. `level`: level at which beginnings
        and ends are logged; a lower one where `notify` writes to the same log."""
        self._notify = notify
        self._level = level
        self.current: dict[str, str] = {}
        """Messages by name."""

    def begin(self, name: str, message: str) -> None:
        """Record a problem. Does nothing while a problem of this name is recorded."""
        if name in self.current:
            return
        self.current[name] = message
        log.log(self._level, "%s %s: %s", TROUBLE_BEGAN, name, message)
        if self._notify:
            self._notify(message)

    def update(self, name: str, message: str) -> None:
        """Record a problem. If one of this name is recorded with another message, this message replaces it, and is
        logged as well."""
        if self.current.get(name) != message:
            self.current.pop(name, None)
            self.begin(name, message)

    def report(self, event: str, message: str) -> None:
        """Report a single event, which has no end. `event`: one of the names above. With `notify` it is shown to the
        person and logged at level INFO, without at level ERROR."""
        if self._notify:
            log.info("%s %s", event, message)
            self._notify(message)
        else:
            log.error("%s %s", event, message)

    def end(self, name: str, message: str) -> None:
        """Remove a problem. Does nothing when no problem of this name is recorded."""
        if self.current.pop(name, None) is None:
            return
        log.log(self._level, "%s %s", TROUBLE_ENDED, name)
        if self._notify:
            self._notify(message)


_OF_CRAWLS = ("robots", "proxies", "spider", "egress", "refusals", "login")
"""First words of the names of troubles that concern sites, proxies and spiders of single crawls."""


def service_troubles(names: Iterable[str]) -> list[str]:
    """Return those of the troubles for which the service itself waits, sorted: not those of single crawls."""
    return sorted(name for name in set(names) if not name.startswith(_OF_CRAWLS))


_MAX_SEED_ERRORS = 3
"""Most messages about seeds in one process. Must stay small: a list of thousands of dead URLs must not fill the
terminal."""


class SeedErrors:
    """Tells a person at once that a seed, a URL that a crawl starts from, cannot be fetched.

    It tells about the first seed of each reason, and about few in all: records and the summary have the others.
    """

    def __init__(self, troubles: Troubles) -> None:
        self._troubles = troubles
        self._told: set[str] = set()
        """Reasons that were told."""

    def wants(self, reason: str) -> bool:
        """Return whether a seed's failure for this reason is still to be told."""
        return reason not in self._told and len(self._told) < _MAX_SEED_ERRORS

    def report(self, reason: str, message: str) -> None:
        """Tell about a seed that cannot be fetched for this reason, if it is wanted."""
        if self.wants(reason):
            self._told.add(reason)
            self._troubles.report(SEED_FAILED, message)
