"""The bodies of statistics answers, as Scrapy Cluster's: counters over windows, processes alive, backlogs."""

from typing import Any

from gossamer.control.counters import Counters
from gossamer.frontier.base import Frontier

KINDS = ("all", "kafka-monitor", "redis-monitor", "crawler", "spider", "machine", "queue", "rest")
"""What can be asked for."""

INTAKE = "kafka-monitor"
ACTIONS = "redis-monitor"
CRAWLER = "crawler"
REST = "rest"
"""Groups of counters and roles of processes; the names are the original's, whatever the bus."""

_PLUGINS = {
    "crawl": "ScraperHandler",
    "action": "ActionHandler",
    "stats": "StatsHandler",
    "domain": "ZookeeperHandler",
}

MOST_DOMAINS = 1000
"""Named of one spider's backlog."""

_BETWEEN = "|"
"""Parts of a name in the group `crawler`: host, spider, status code."""


def crawled(host: str, spider: str, code: int) -> str:
    """The counter of a worker's pages with this status."""
    return f"{host.replace(_BETWEEN, '_')}{_BETWEEN}{spider.replace(_BETWEEN, '_')}{_BETWEEN}{code}"


def worker_node(host: str, spider: str, name: str) -> str:
    """How a worker that takes this spider's requests says that it lives, in the role `crawler`."""
    return f"{host.replace(_BETWEEN, '_')}{_BETWEEN}{spider.replace(_BETWEEN, '_')}:{name}"


def counted_as(kind: str) -> str:
    """The counter in the group INTAKE of requests of this kind: by the original's name of the plug-in."""
    return f"plugins:{_PLUGINS.get(kind, kind)}"


async def body(frontier: Frontier, counters: Counters, kind: str) -> dict[str, Any]:
    """The part of a stats answer that depends on what was asked, one of KINDS."""
    match kind:
        case "all":
            return {
                INTAKE: await body(frontier, counters, INTAKE),
                ACTIONS: await body(frontier, counters, ACTIONS),
                CRAWLER: await body(frontier, counters, CRAWLER),
                REST: await body(frontier, counters, REST),
            }
        case "kafka-monitor" | "redis-monitor":
            return _service(await counters.read(kind)) | {"nodes": await counters.nodes(kind)}
        case "rest":
            return {"nodes": await counters.nodes(REST)}
        case "spider":
            return {"spiders": await _spiders(counters)}
        case "machine":
            return {"machines": await _machines(counters)}
        case "queue":
            return {"queues": await queues(frontier)}
        case "crawler":
            return {
                "spiders": await _spiders(counters),
                "machines": await _machines(counters),
                "queue": await queues(frontier),
            }
    raise ValueError(kind)


async def queues(frontier: Frontier) -> dict[str, Any]:
    """The backlog of every spider with up to MOST_DOMAINS of its domains, the longest first among those that were
    looked at."""
    found: dict[str, Any] = {"total_backlog": 0}
    for backlog in await frontier.backlog():
        domains, cursor = await frontier.backlog_domains(backlog.spider, limit=MOST_DOMAINS)
        while cursor and len(domains) < MOST_DOMAINS:
            more, cursor = await frontier.backlog_domains(backlog.spider, cursor=cursor, limit=MOST_DOMAINS)
            domains += more
        domains.sort(key=lambda pair: (-pair[1], pair[0]))
        found["total_backlog"] += backlog.queued
        found[f"queue_{backlog.spider}"] = {
            "spider_backlog": backlog.queued,
            "num_domains": backlog.domains,
            "domains": [{"domain": domain, "backlog": count} for domain, count in domains[:MOST_DOMAINS]],
        }
    return found


def _service(counts: dict[str, dict[str, int]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    plugins: dict[str, dict[str, int]] = {}
    for name, windows in counts.items():
        kind, _, plugin = name.partition(":")
        if plugin:
            plugins[plugin] = windows
        else:
            found[kind] = windows
    return {**found, "plugins": plugins}


async def _spiders(counters: Counters) -> dict[str, Any]:
    spiders: dict[str, Any] = {}
    for name, windows in (await counters.read(CRAWLER)).items():
        _, spider, code = name.split(_BETWEEN)
        _sum_into(spiders.setdefault(spider, {"count": 0}).setdefault(code, {}), windows)
    for place, names in (await counters.nodes(CRAWLER)).items():
        _, spider = place.split(_BETWEEN)
        spiders.setdefault(spider, {"count": 0})["count"] += len(names)
    # A process may run several spiders; each counts, as in the original, where a process was a spider.
    total = sum(spider["count"] for spider in spiders.values())
    return {"unique_spider_count": len(spiders), "total_spider_count": total, **spiders}


async def _machines(counters: Counters) -> dict[str, Any]:
    machines: dict[str, Any] = {}
    for name, windows in (await counters.read(CRAWLER)).items():
        host, _, code = name.split(_BETWEEN)
        _sum_into(machines.setdefault(host, {}).setdefault(code, {}), windows)
    for place in await counters.nodes(CRAWLER):
        machines.setdefault(place.split(_BETWEEN)[0], {})
    return {"count": len(machines), **machines}


def _sum_into(sums: dict[str, int], windows: dict[str, int]) -> None:
    for window, number in windows.items():
        sums[window] = sums.get(window, 0) + number
