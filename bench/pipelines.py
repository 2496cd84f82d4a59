"""Items per CPU second into stores: Gossamer's pipelines against plain ones that insert items one by one.

`python -m bench.pipelines [ITEMS]` needs the servers of the tests (tests/servers/install). Each pipeline gets items as
Scrapy gives them: 100 at a time. The CPU time of the loop around the pipelines is measured with an empty pipeline, and
is left out. The rounds of the pipelines take turns.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import psutil
import psycopg
import pymysql
import redis
from opensearchpy import OpenSearch
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector

from gossamer.scrapy.pipelines import (
    MySqlPipeline,
    OpenSearchPipeline,
    PostgreSqlPipeline,
    RedisHashPipeline,
    StorePipeline,
)
from tests.servers.stores import KINDS, StoreServer, store_server

_CONCURRENT_ITEMS = 100  # Scrapy's default
_ROUNDS = 5


class Pipeline(Protocol):
    async def process_item(self, item: dict[str, Any]) -> dict[str, Any]: ...


class PlainPostgreSql:
    def __init__(self, address: str) -> None:
        url = urlsplit(address)
        host = parse_qs(url.query)["host"][0]
        self._connection = psycopg.connect(host=host, user="postgres", dbname=url.path[1:])
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS plain (url text PRIMARY KEY, title text, price double precision,"
            " description text, address text, images text, project text, spider text)"
        )
        self._connection.commit()

    async def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        columns = ("title", "price", "description", "address", "images", "project", "spider")
        self._connection.execute(
            "INSERT INTO plain (url, title, price, description, address, images, project, spider)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (url) DO UPDATE SET "
            + ", ".join(f"{name} = excluded.{name}" for name in columns),
            [item["url"], *(str(item[name]) if name == "images" else item[name] for name in columns)],
        )
        self._connection.commit()
        return item


class PlainMySql:
    def __init__(self, address: str) -> None:
        url = urlsplit(address)
        self._connection = pymysql.connect(
            host=url.hostname, port=url.port or 0, user=url.username, password=url.password or "",
            database=url.path[1:], charset="utf8mb4",
        )  # fmt: skip
        self._connection.cursor().execute(
            "CREATE TABLE IF NOT EXISTS plain (url VARCHAR(100) PRIMARY KEY, title TEXT, price DOUBLE,"
            " description TEXT, address TEXT, images TEXT, project TEXT, spider TEXT)"
        )

    async def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        names = ("url", "title", "price", "description", "address", "images", "project", "spider")
        with self._connection.cursor() as cursor:
            cursor.execute(
                "REPLACE INTO plain (url, title, price, description, address, images, project, spider)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
                [str(item[name]) if name == "images" else item[name] for name in names],
            )
        self._connection.commit()
        return item


class PlainOpenSearch:
    def __init__(self, address: str) -> None:
        url = urlsplit(address)
        self._client = OpenSearch([{"host": url.hostname, "port": url.port}])

    async def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        self._client.index(index="plain", id=item["url"], body=item)
        return item


class PlainRedis:
    def __init__(self, address: str) -> None:
        self._client = redis.Redis.from_url(address.partition("?")[0])

    async def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        self._client.hset("plain", item["url"], json.dumps(item))
        return item


PLAIN: dict[str, Callable[[str], Pipeline]] = {
    "postgresql": PlainPostgreSql,
    "mysql": PlainMySql,
    "opensearch": PlainOpenSearch,
    "redis": PlainRedis,
}
OURS: dict[str, type[StorePipeline]] = {
    "postgresql": PostgreSqlPipeline,
    "mysql": MySqlPipeline,
    "opensearch": OpenSearchPipeline,
    "redis": RedisHashPipeline,
}


class _Crawler:
    """The parts of a crawler that a pipeline uses."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = Settings(settings)
        self.stats = MemoryStatsCollector(self)  # type: ignore[arg-type]


def items(count: int, round_number: int) -> list[dict[str, Any]]:
    """Return items as those of an estate agent's site."""
    return [
        {
            "url": f"https://estate.example/properties/property_{round_number}_{number:06d}.html",
            "title": f"Bright flat number {number} near the river, two bedrooms",
            "price": 300.0 + number % 900,
            "description": "A quiet street, five minutes from the station. " * 5,
            "address": f"{number % 200} Long Road, Cambridge",
            "images": [f"https://estate.example/images/i{number % 16:02d}.jpg"],
            "project": "properties",
            "spider": "easy",
        }
        for number in range(count)
    ]


class Nothing:
    """A pipeline that does nothing: the cost of the loop around a pipeline."""

    async def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return item


@dataclass(slots=True)
class Cost:
    """Seconds for one item."""

    process: float
    """CPU time of the pipeline's process."""
    server: float
    """CPU time of the server's processes."""
    elapsed: float


def server_seconds(pid: int) -> float:
    """Return the CPU time of a server's processes so far."""
    first = psutil.Process(pid)
    times = [process.cpu_times() for process in (first, *first.children(recursive=True))]
    return sum(time.user + time.system + time.children_user + time.children_system for time in times)


async def measure(pipeline: Pipeline, server: StoreServer, batch: list[dict[str, Any]]) -> Cost:
    """Return the cost of an item."""
    waiting = iter(batch)

    async def take() -> None:
        for item in waiting:
            await pipeline.process_item(item)

    began, process, of_server = time.monotonic(), time.process_time(), server_seconds(server.pid)
    async with asyncio.TaskGroup() as group:
        for _ in range(_CONCURRENT_ITEMS):
            group.create_task(take())
    elapsed, process = time.monotonic() - began, time.process_time() - process
    count = len(batch)
    return Cost(process / count, (server_seconds(server.pid) - of_server) / count, elapsed / count)


async def compare(server: StoreServer, count: int) -> None:
    """Print items per CPU second of both pipelines, and their ratio."""
    address = server.address()
    with tempfile.TemporaryDirectory() as folder:
        setting = {OURS[server.kind].settings_names[0]: address, "GOSSAMER_DATA_DIR": folder}
        ours = OURS[server.kind].from_crawler(_Crawler(setting))  # type: ignore[arg-type]
        pipelines: dict[str, tuple[Pipeline, int]] = {
            "nothing": (Nothing(), count),
            "plain": (PLAIN[server.kind](address), count // 10),  # it is slow
            "ours": (ours, count),
        }
        found: dict[str, list[Cost]] = {name: [] for name in pipelines}
        for round_number in range(_ROUNDS):
            for name, (pipeline, number) in pipelines.items():
                found[name].append(await measure(pipeline, server, items(number, round_number)))
        await ours.close_spider()

    def median(name: str, cost: Callable[[Cost], float]) -> float:
        return statistics.median(map(cost, found[name]))

    empty = median("nothing", lambda cost: cost.process)
    views: dict[str, Callable[[Cost], float]] = {
        "process": lambda cost: cost.process - empty,
        "process and server": lambda cost: cost.process - empty + cost.server,
        "elapsed": lambda cost: cost.elapsed,
    }
    for name, view in views.items():
        plain, batched = median("plain", view), median("ours", view)
        ratio = plain / batched
        print(
            f"{server.kind:11} {name:19} {1 / batched:8,.0f} items/s  one by one {1 / plain:7,.0f}  ratio {ratio:5.1f}"
        )
    sys.stdout.flush()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    for kind in sys.argv[2:] or KINDS:
        with store_server(kind) as server:
            asyncio.run(compare(server, count))


if __name__ == "__main__":
    main()
