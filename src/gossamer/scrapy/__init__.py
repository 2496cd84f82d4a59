"""The Scrapy lane: the same frontier behind the scheduler of an unmodified Scrapy project (extra `scrapy`).

`SCHEDULER = "gossamer.scrapy.Scheduler"` and `GOSSAMER_FRONTIER = "redis://…"` are all that a project needs.
"""

from gossamer.scrapy.scheduler import Scheduler

__all__ = ["Scheduler"]
