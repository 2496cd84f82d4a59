"""For projects that come from scrapy-redis: the same modules and settings under `gossamer.scrapy.redis`.

Moving is changing `scrapy_redis.` to `gossamer.scrapy.redis.` wherever it stands; docs/howto/from-scrapy-redis.md.
"""

from gossamer.scrapy.redis.connection import from_settings, get_redis, get_redis_from_settings

__all__ = ["from_settings", "get_redis", "get_redis_from_settings"]
