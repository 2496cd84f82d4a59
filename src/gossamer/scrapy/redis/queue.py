"""The names of scrapy-redis's queues, as values of SCHEDULER_QUEUE_CLASS: each chooses an order of the frontier."""

from gossamer.model.crawl import Order


class Base:
    """Only a name; nothing is ever made of it."""

    order = Order.FIFO
    priorities = True
    """Whether a higher priority comes first. The other queues never looked at it."""


class PriorityQueue(Base):
    """The highest priority first; of equal ones the oldest."""


class FifoQueue(Base):
    """The oldest first, whatever its priority."""

    priorities = False


class LifoQueue(Base):
    """The newest first, whatever its priority."""

    order = Order.LIFO
    priorities = False


SpiderQueue = FifoQueue
SpiderStack = LifoQueue
SpiderPriorityQueue = PriorityQueue
