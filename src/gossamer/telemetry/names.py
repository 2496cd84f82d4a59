"""The names of log events. One file, so that a dashboard or an alert can rely on them."""

from typing import Final

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
PROCESS_DIED: Final = "process_died"
PROCESS_STARTED: Final = "process_started"
