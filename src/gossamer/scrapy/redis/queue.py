"""scrapy-redis's queue classes as values of SCHEDULER_QUEUE_CLASS. Each stands for an order of the frontier, the queue
that all processes share.

The names, and what each means, are scrapy-redis's: fixed. The attributes of Base may be renamed together with the
scheduler of this package, which alone reads them.
"""

from typing import Any

from gossamer.model.crawl import Order
from gossamer.scrapy.redis.replacements import refuse


class Base:
    """Base of the queue classes. No object is ever created; the scheduler reads the class attributes."""

    order = Order.FIFO
    """Order of requests with the same priority."""
    priorities = True
    """True: a higher priority comes first. FifoQueue and LifoQueue ignore priorities, as in scrapy-redis."""

    def __init__(self, *args: Any, **named: Any) -> None:
        """Refuse `PriorityQueue(server, spider, key)`. Raises BadSetting."""
        refuse(f"{type(self).__name__}(server, spider, key)", "queue")


class PriorityQueue(Base):
    """Highest priority first; equal priorities oldest first."""


class FifoQueue(Base):
    """Oldest first, whatever the priority."""

    priorities = False


class LifoQueue(Base):
    """Newest first, whatever the priority."""

    order = Order.LIFO
    priorities = False


# The names that these classes had in older versions of scrapy-redis.
SpiderQueue = FifoQueue
SpiderStack = LifoQueue
SpiderPriorityQueue = PriorityQueue
