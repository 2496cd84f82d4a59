"""scrapy-redis's queue classes as values of SCHEDULER_QUEUE_CLASS. Each stands for an order of the frontier."""

from gossamer.model.crawl import Order


class Base:
    """Base of the queue classes. No object is ever created; the scheduler reads the class attributes."""

    order = Order.FIFO
    priorities = True
    """True: a higher priority comes first. FifoQueue and LifoQueue ignore priorities, as in scrapy-redis."""


class PriorityQueue(Base):
    """Highest priority first; equal priorities oldest first."""


class FifoQueue(Base):
    """Oldest first, whatever the priority."""

    priorities = False


class LifoQueue(Base):
    """Newest first, whatever the priority."""

    order = Order.LIFO
    priorities = False


SpiderQueue = FifoQueue
SpiderStack = LifoQueue
SpiderPriorityQueue = PriorityQueue
