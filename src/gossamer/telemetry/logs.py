"""Logging setup: quiet by default, on standard error when asked for: lines for people, or a JSON object a line."""

import logging
import sys

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
