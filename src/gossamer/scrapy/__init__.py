"""The Scrapy lane: the same frontier behind the scheduler of an unmodified Scrapy project (extra `scrapy`).

`SCHEDULER = "gossamer.scrapy.Scheduler"` and `GOSSAMER_FRONTIER = "redis://…"` are all that a project needs;
`ADDONS = {"gossamer.scrapy.Addon": 0}` in the place of the first makes it fast as well.
"""

from gossamer.scrapy.addon import Addon
from gossamer.scrapy.cluster.spiders import ClusterSpider
from gossamer.scrapy.fingerprinter import RequestFingerprinter
from gossamer.scrapy.scheduler import Scheduler

__all__ = ["Addon", "ClusterSpider", "RequestFingerprinter", "Scheduler"]
