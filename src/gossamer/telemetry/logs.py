"""Logging setup: quiet by default, plain lines on standard error when asked for."""

import logging
import sys

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up(level: str = "ERROR") -> None:
    """Log to standard error from `level` on (a name of the logging module, any case). May be repeated."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.setLevel(level.upper())  # the handler's own, so that whoever embeds Gossamer still hears the rest
    root = logging.getLogger("gossamer")
    root.handlers[:] = [handler]
    root.setLevel(min(handler.level, logging.WARNING))
