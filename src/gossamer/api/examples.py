"""An answer of each endpoint, for OpenAPI. A test holds them to the forms."""

from typing import Any

_COUNTS = {
    "added": 42,
    "queued": 20,
    "later": 1,
    "leased": 1,
    "fetched": 17,
    "failed": {"dns": 1},
    "dropped": {"robots": 2},
    "links_dropped": {"offsite": 90},
}
_SUMMARY = {
    "appid": "shop",
    "crawlid": "prices",
    "state": "running",
    "run": 1,
    "started": 1767225600.0,
    "ended": None,
    "domains": 1,
    "total": _COUNTS,
}
_POLICY = {"hits": 10, "window": 60.0}
_IN_FORCE = {
    **_POLICY,
    "moderated": True,
    "elastic": True,
    "scale": 1.0,
    "scope": "domain",
    "blacklisted": False,
    "when_blacklisted": "held",
}
_DOMAIN = {"domain": "example.com", "policy": _POLICY, "in_force": _IN_FORCE}
_RECORD = {
    "type": "page",
    "appid": "shop",
    "crawlid": "prices",
    "url": "https://example.com/",
    "status_code": 200,
    "success": True,
    "body": "<html>…",
}
_TAKEN = {
    "added": True,
    "reason": "",
    "field": "",
    "status": 201,
    "appid": "shop",
    "crawlid": "prices",
    "spiderid": "link",
    "url": "https://example.com/",
}
_ROOT = {
    "kafka_connected": True,
    "redis_connected": True,
    "uptime_sec": 3600,
    "my_id": "d2b8f0c4a6e1",
    "node_health": "GREEN",
}


def _success(data: object) -> dict[str, Any]:
    return {"status": "SUCCESS", "data": data, "error": None}


def _failure(message: str, cause: str = "") -> dict[str, Any]:
    error = {"message": message, "cause": cause} if cause else {"message": message}
    return {"status": "FAILURE", "data": None, "error": error}


_AWAY = _failure("Unable to connect to Redis", "The frontier could not be reached")
_CURSOR = "eyIwIjo0Mn0"

ANSWERS: dict[tuple[str, str], Any] = {
    ("submit", "201"): _TAKEN,
    ("submit", "200"): {**_TAKEN, "added": False, "reason": "duplicate", "status": 200},
    ("submit", "207"): {
        "added": 1,
        "duplicates": 0,
        "refused": 1,
        "items": [
            {"added": True, "reason": "", "field": "", "status": 201},
            {"added": False, "reason": "must be at least 0", "field": "maxdepth", "status": 400},
        ],
    },
    ("list_crawls", "200"): {"items": [_SUMMARY], "cursor": ""},
    ("show_crawl", "200"): {
        **_SUMMARY,
        "seen": 42,
        "queued_by_priority": {"1": 2, "-9": 18},
        "spiders": {"link": _COUNTS},
        "max_pages": None,
        "order": "fifo",
        "rate": None,
        "domain_concurrency": None,
        "queued_by_domain": {
            "items": [
                {
                    "domain": "example.com",
                    "queued": 20,
                    "later": 0,
                    "by_priority": {"1": 2, "-9": 18},
                    "by_spider": {"link": 20},
                }
            ],
            "cursor": "",
        },
    },
    ("stop_crawl", "200"): {"appid": "shop", "crawlid": "prices", "spiderid": None, "purged": 21},
    ("crawl_pages", "200"): {"items": [_RECORD], "cursor": _CURSOR, "more": False},
    ("crawl_failures", "200"): {
        "items": [{**_RECORD, "status_code": 0, "success": False, "reason": "dns", "body": ""}],
        "cursor": _CURSOR,
        "more": False,
    },
    ("crawl_items", "200"): {
        "items": [{"type": "item", "appid": "shop", "crawlid": "prices", "item": {"price": 12}}],
        "cursor": _CURSOR,
        "more": False,
    },
    ("list_domains", "200"): {"version": 7, "default": {}, "domains": {"example.com": _POLICY}, "cursor": ""},
    ("replace_domains", "200"): {"version": 8, "domains": 1},
    ("show_domain", "200"): _DOMAIN,
    ("set_domain", "200"): _DOMAIN,
    ("change_domain", "200"): _DOMAIN,
    ("workers", "200"): {
        "items": [{"name": "host-4711-5f0c-1", "silent_seconds": 0.4, "leased": 64}],
        "processes": {"rest": {"host": ["1267c5f0a6e1"]}},
    },
    ("queues", "200"): {"total": 20, "items": [{"spiderid": "link", "queued": 20, "domains": 1}]},
    ("queue_domains", "200"): {"items": [{"domain": "example.com", "queued": 20}], "cursor": ""},
    ("classic_index", "200"): _ROOT,
    ("classic_index_post", "200"): _ROOT,
    ("classic_feed", "200"): _success({"poll_id": "b1"}),
    ("classic_feed", "400"): _failure("JSON did not validate against schema.", "maxdepth: must be at least 0"),
    ("classic_feed", "500"): _AWAY,
    ("classic_poll", "200"): _success(
        {"uuid": "b1", "appid": "shop", "stats": "queue", "queues": {"total_backlog": 0}}
    ),
    ("classic_poll", "400"): _failure("JSON did not validate against schema.", '"poll_id" is a required property'),
    ("classic_poll", "404"): _failure("Could not find matching poll_id"),
    ("classic_poll", "500"): _AWAY,
}
"""By operation and status."""
