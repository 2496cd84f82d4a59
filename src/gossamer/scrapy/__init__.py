"""Scrapy on the shared frontier (extra `scrapy`): a scheduler for unmodified Scrapy projects.

A project needs two settings: `SCHEDULER = "gossamer.scrapy.Scheduler"` and `GOSSAMER_FRONTIER = "redis://…"`.
`ADDONS = {"gossamer.scrapy.Addon": 0}` instead of the first also makes it faster. Projects write the names below
into their settings and imports, so they must not change; the modules that they come from may.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.scrapy.addon import Addon
    from gossamer.scrapy.batches import DistributedLinks
    from gossamer.scrapy.cluster.spiders import ClusterSpider
    from gossamer.scrapy.entries import RequestFingerprinter
    from gossamer.scrapy.feeds import WholeFeeds
    from gossamer.scrapy.performance import PerformanceView
    from gossamer.scrapy.proxies import ProxyPoolMiddleware
    from gossamer.scrapy.scheduler import Scheduler

__all__ = [
    "Addon",
    "ClusterSpider",
    "DistributedLinks",
    "PerformanceView",
    "ProxyPoolMiddleware",
    "RequestFingerprinter",
    "Scheduler",
    "WholeFeeds",
]

_MODULES = {
    "Addon": "gossamer.scrapy.addon",
    "DistributedLinks": "gossamer.scrapy.batches",
    "ClusterSpider": "gossamer.scrapy.cluster.spiders",
    "PerformanceView": "gossamer.scrapy.performance",
    "ProxyPoolMiddleware": "gossamer.scrapy.proxies",
    "RequestFingerprinter": "gossamer.scrapy.entries",
    "Scheduler": "gossamer.scrapy.scheduler",
    "WholeFeeds": "gossamer.scrapy.feeds",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that a project loads only the parts that it needs."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
