"""`scrapy ARGUMENTS`, for a process of a nursery."""

from scrapy.cmdline import execute as main

__all__ = ["main"]
