"""scrapy-redis's modules, names and settings on the shared frontier, for projects that come from scrapy-redis.

Such a project writes `gossamer.scrapy.redis.` where `scrapy_redis.` stands. See docs/howto/from-scrapy-redis.md.
"""

from gossamer.scrapy.redis.connection import from_settings, get_redis, get_redis_from_settings

__all__ = ["from_settings", "get_redis", "get_redis_from_settings"]
