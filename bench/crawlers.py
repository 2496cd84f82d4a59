"""The crawlers of the comparison, and the commands that make each crawl the same site as fast as it can."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bench.places import BUILT, PEERS_PYTHON, ROOT

CONCURRENCY = 64
"""Requests in flight, for every crawler and, where it has such a limit, for every domain."""


class Store(Enum):
    """Kinds of Valkey servers that are started beside a crawler, anew for each crawl."""

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
    """host:port at which all hosts of the site are served."""
    folder: Path
    """Empty folder for files of the crawler."""
    store: str
    """Address of the Valkey; empty: there is none."""


@dataclass(frozen=True, slots=True)
class Crawler:
    """A crawler: one row of the comparison."""

    name: str
    title: str
    command: Callable[[Job], list[str]]
    store: Store = Store.NONE
    needs: Path | None = None
    """Program that `bench/install` installs. None: the crawler needs nothing of it."""
    writes_bodies: bool = True
    """False: it writes only the URLs of the pages."""
    rival: str = ""
    """Name of the only crawler to compare it with: Scrapy with the same spider. Empty: it is compared with all."""
    is_slow: bool = False
    """True: it gets a tenth of a site's pages, so that the comparison takes minutes and not hours."""

    @property
    def missing(self) -> str:
        """Reason why it cannot run here. Empty: it can."""
        if self.needs is None or self.needs.exists():
            return ""
        reason = BUILT / f"{self.needs.relative_to(BUILT).parts[0]}.skipped"
        return reason.read_text().strip() if reason.exists() else "not installed"


def _plain(*program: str) -> Callable[[Job], list[str]]:
    """Return the command of a crawler that was written for this bench: they all take the same options."""

    def command(job: Job) -> list[str]:
        return [
            *program,
            f"--seeds={job.seeds}",
            f"--output={job.output}",
            f"--address={job.address}",
            f"--concurrency={CONCURRENCY}",
        ]

    return command


_PEERS = ROOT / "bench" / "peers"


def _scrapy(*flags: str) -> Callable[[Job], list[str]]:
    crawl = _plain(str(PEERS_PYTHON), str(_PEERS / "scrapy_crawl.py"))
    return lambda job: [*crawl(job), *flags]


def _scrapy_redis(job: Job) -> list[str]:
    return [*_scrapy()(job), f"--redis={job.store}"]


def _lane(*flags: str) -> Callable[[Job], list[str]]:
    crawl = _plain(sys.executable, str(_PEERS / "scrapy_crawl.py"))
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
            f"--domain-concurrency={CONCURRENCY * processes}",
            f"--processes={processes}",
            "--rate=100000/1",
            "--ignore-robots",
            "--insecure",
            "--quiet",
            *(f"--field={field}" for field in fields),
        ]

    return command


def _other_spider(name: str, title: str) -> tuple[Crawler, Crawler]:
    """Two rows for another spider of `scrapy_crawl.py`: with Scrapy alone, and with the add-on."""
    flag, rival = f"--spider={name}", f"scrapy-{name}"
    return (
        Crawler(rival, f"Scrapy, {title}", _scrapy(flag), needs=PEERS_PYTHON, rival=rival, is_slow=True),
        Crawler(
            f"addon-{name}", f"our add-on, {title}", _lane("--addon", flag), Store.DURABLE, rival=rival, is_slow=True
        ),
    )


_BARE_GO, _COLLY = BUILT / "go" / "bare", BUILT / "go" / "colly"
_BARE_RUST, _SPIDER = BUILT / "bare-rust" / "bench-bare", BUILT / "spider" / "bench-spider"
_CRAWLEE, _SCRAPLING = BUILT / "crawlee" / "crawlee.mjs", BUILT / "scrapling" / "bin" / "python"

CRAWLERS = (
    Crawler("bare-rust", "bare Rust (hyper, lol_html)", _plain(str(_BARE_RUST)), needs=_BARE_RUST),
    Crawler("bare-go", "bare Go (net/http, x/net/html)", _plain(str(_BARE_GO)), needs=_BARE_GO),
    Crawler("spider", "spider (Rust), no bodies", _plain(str(_SPIDER)), needs=_SPIDER, writes_bodies=False),
    Crawler("colly", "colly (Go)", _plain(str(_COLLY)), needs=_COLLY),
    Crawler("crawlee", "Crawlee (Node)", _plain("node", str(_CRAWLEE)), needs=_CRAWLEE, is_slow=True),
    Crawler(
        "scrapling",
        "Scrapling",
        _plain(str(_SCRAPLING), str(_PEERS / "scrapling_crawl.py")),
        needs=_SCRAPLING,
        is_slow=True,
    ),
    Crawler("scrapy", "Scrapy", _scrapy(), needs=PEERS_PYTHON, is_slow=True),
    Crawler("scrapy-redis", "scrapy-redis", _scrapy_redis, Store.VOLATILE, PEERS_PYTHON, is_slow=True),
    Crawler("scheduler", "Scrapy, our scheduler", _lane(), Store.DURABLE, is_slow=True),
    Crawler("addon", "Scrapy, our add-on", _lane("--addon"), Store.DURABLE, is_slow=True),
    *_other_spider("titles", "extractor in parse, a title"),
    *_other_spider("rules", "a rule, two selectors"),
    Crawler("floor", "bare floor", _plain(sys.executable, "-m", "bench.floor")),
    Crawler("gossamer", "Gossamer", _gossamer(1), Store.DURABLE),
    Crawler("fields", "Gossamer, 5 fields", _gossamer(1, *_FIELDS), Store.DURABLE),
    Crawler("gossamer-2", "Gossamer, 2 processes", _gossamer(2), Store.DURABLE),
)
"""In the order of the table."""
