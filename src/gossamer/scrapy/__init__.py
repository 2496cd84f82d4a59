"""The Scrapy lane: the same frontier behind the scheduler of an unmodified Scrapy project (extra `scrapy`).

`SCHEDULER = "gossamer.scrapy.Scheduler"` and `GOSSAMER_FRONTIER = "redis://…"` are all that a project needs;
`ADDONS = {"gossamer.scrapy.Addon": 0}` in the place of the first makes it fast as well.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.scrapy.addon import Addon
    from gossamer.scrapy.cluster.spiders import ClusterSpider
    from gossamer.scrapy.entries import RequestFingerprinter
    from gossamer.scrapy.scheduler import Scheduler

__all__ = ["Addon", "ClusterSpider", "RequestFingerprinter", "Scheduler"]

_PLACES = {
    "Addon": "gossamer.scrapy.addon",
    "ClusterSpider": "gossamer.scrapy.cluster.spiders",
    "RequestFingerprinter": "gossamer.scrapy.entries",
    "Scheduler": "gossamer.scrapy.scheduler",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for: a project on the scheduler need not wait for what only a service's spiders use."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
