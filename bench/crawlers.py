"""The rows of the comparison: how each crawler is told to crawl the same site as fast as it can."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bench.places import COLLY, PEERS_PYTHON, ROOT

CONCURRENCY = 64
"""Requests in flight, for every crawler and, where it has such a limit, for every domain."""


class Store(Enum):
    """The Valkey that a crawler wants beside it, started anew for each crawl."""

    NONE = "none"
    VOLATILE = "volatile"
    """In memory only."""
    DURABLE = "durable"
    """As Gossamer's own embedded server: an append-only file, flushed to the disk before each answer."""


@dataclass(frozen=True, slots=True)
class Job:
    """One crawl to do."""

    seeds: Path
    """A URL a line."""
    output: Path
    address: str
    """host:port that all the site's hosts are at."""
    folder: Path
    """For whatever the crawler wants to put somewhere; empty."""
    store: str
    """Address of the Valkey; empty: none was asked for."""


@dataclass(frozen=True, slots=True)
class Crawler:
    """One row."""

    name: str
    title: str
    command: Callable[[Job], list[str]]
    store: Store = Store.NONE
    needs: Path | None = None
    """The program without which there is no such row."""

    @property
    def missing(self) -> bool:
        """Whether it cannot be run here."""
        return self.needs is not None and not self.needs.exists()


def _plain(*program: str) -> Callable[[Job], list[str]]:
    """Of the crawlers that were written for this bench: they all take the same options."""

    def command(job: Job) -> list[str]:
        return [
            *program,
            f"--seeds={job.seeds}",
            f"--output={job.output}",
            f"--address={job.address}",
            f"--concurrency={CONCURRENCY}",
        ]

    return command


_scrapy = _plain(str(PEERS_PYTHON), str(ROOT / "bench" / "peers" / "scrapy_crawl.py"))


def _scrapy_redis(job: Job) -> list[str]:
    return [*_scrapy(job), f"--redis={job.store}"]


def _lane(*flags: str) -> Callable[[Job], list[str]]:
    crawl = _plain(sys.executable, str(ROOT / "bench" / "peers" / "scrapy_crawl.py"))
    return lambda job: [*crawl(job), f"--frontier={job.store}", *flags]


_FIELDS = (
    "title=title", "heading=h1", "first=main > p", "about=meta[name=description]@content", "next=nav a@href @url",
)  # fmt: skip
"""Five fields of the pages of `gossamer.fakeweb`, by CSS."""


def _gossamer(processes: int, *fields: str) -> Callable[[Job], list[str]]:
    def command(job: Job) -> list[str]:
        return [
            *(sys.executable, "-m", "gossamer", "crawl"),
            f"--seeds={job.seeds}",
            f"--output={job.output}",
            f"--frontier={job.store}",
            f"--data-dir={job.folder}",
            f"--resolve=*:{job.address.rpartition(':')[0]}",
            f"--concurrency={CONCURRENCY}",
            f"--domain-concurrency={CONCURRENCY}",
            f"--processes={processes}",
            "--rate=100000/1",
            "--ignore-robots",
            "--insecure",
            "--quiet",
            *(f"--field={field}" for field in fields),
        ]

    return command


CRAWLERS = (
    Crawler("scrapy", "Scrapy", _scrapy, needs=PEERS_PYTHON),
    Crawler("scrapy-redis", "scrapy-redis", _scrapy_redis, Store.VOLATILE, PEERS_PYTHON),
    Crawler("scheduler", "Scrapy, our scheduler", _lane(), Store.DURABLE),
    Crawler("addon", "Scrapy, our add-on", _lane("--addon"), Store.DURABLE),
    Crawler("colly", "colly (Go)", _plain(str(COLLY)), needs=COLLY),
    Crawler("floor", "bare floor", _plain(sys.executable, "-m", "bench.floor")),
    Crawler("gossamer", "Gossamer", _gossamer(1), Store.DURABLE),
    Crawler("fields", "Gossamer, 5 fields", _gossamer(1, *_FIELDS), Store.DURABLE),
    Crawler("gossamer-2", "Gossamer, 2 processes", _gossamer(2), Store.DURABLE),
)
"""In the order of the table."""
