"""Objects of scrapy-redis that a project's own code makes or calls, and what takes their place here.

scrapy-redis keeps queue and fingerprints in keys of Redis, which any program may open. Here the frontier has them, so
these objects would do nothing. Each is refused with a message that names its replacement. Fixed: the names and
parameters of scrapy-redis that are recognised.
"""

from typing import Final, NoReturn

from gossamer.errors import BadSetting

_WAITING: Final = "the frontier has the requests that wait"
_SEEN: Final = "the frontier drops duplicates"

REPLACEMENTS: Final = {
    "queue": (
        _WAITING,
        "In a spider or extension, add a request with crawler.engine.crawl(request); len(scheduler) is the number of "
        "waiting requests. Other programs push a URL or a JSON object to the spider's redis_key; `gossamer crawls "
        "show` shows what waits.",
    ),
    "dupefilter": (
        _SEEN,
        "In a spider or extension, ask scheduler.df.request_seen(request). A REQUEST_FINGERPRINTER_CLASS decides which "
        "requests are the same.",
    ),
    "scheduler": (
        "Scrapy makes the scheduler, with a crawler",
        'Set SCHEDULER = "gossamer.scrapy.redis.scheduler.Scheduler"; crawler.engine.crawl(request) adds a request.',
    ),
    "pipeline": (
        "Scrapy makes the pipeline, with a crawler",
        'Add "gossamer.scrapy.redis.pipelines.RedisPipeline" to ITEM_PIPELINES, or call '
        "RedisPipeline.from_crawler(crawler).",
    ),
    "start_requests": (
        "start requests come from the messages of redis_key",
        "Override make_request_from_data for other messages, next_requests to decide which requests are next, or "
        "`async def start` for requests that come from nowhere.",
    ),
}
"""Reason and replacement by kind of object."""


def explain(name: str, kind: str) -> str:
    """Return why an object or a method of scrapy-redis has no use here, and what has. `kind`: one of REPLACEMENTS."""
    reason, replacement = REPLACEMENTS[kind]
    return f"{name} cannot be used with Gossamer: {reason}. {replacement}"


def refuse(name: str, kind: str) -> NoReturn:
    """Raise BadSetting with `explain`."""
    raise BadSetting(explain(name, kind))
