"""Results of measurements: the rows of the comparison, and ratios between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

PEERS = ("bare-rust", "bare-go", "spider", "colly", "scrapy", "scrapy-redis", "floor")
"""Names of the crawlers that every row is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlRow:
    """One crawler on one site; of several crawls, the one in the middle."""

    crawler: str
    title: str
    rival: str = ""
    """Name of the only crawler to compare it with: Scrapy with the same spider. Empty: it is compared with all."""
    pages: int = 0
    crawls: int = 0
    """Number of crawls that were made."""
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time of the crawling processes, from their start to their end."""
    startup_cpu_seconds: float = 0.0
    """CPU time of the same command, and the Valkey beside it, for a single page without links."""
    web_cpu_seconds: float = 0.0
    """CPU time of the web server."""
    store_cpu_seconds: float = 0.0
    """CPU time of the Valkey beside it; 0 without one."""
    peak_bytes: int = 0
    """Resident memory of the crawling processes together."""
    note: str = ""
    """Reason why there are no figures, or faults of the output."""
    left_out: bool = False
    """True: the crawler is not installed here, for the reason of the note."""

    @property
    def measured(self) -> bool:
        """True: there are figures."""
        return self.crawls > 0

    @property
    def pages_per_second(self) -> float:
        return self.pages / self.wall_seconds if self.wall_seconds else 0.0

    @property
    def all_cpu_seconds(self) -> float:
        """CPU of the crawling processes and of the Valkey beside them."""
        return self.cpu_seconds + self.store_cpu_seconds

    @property
    def pages_per_cpu_second(self) -> float:
        """Pages per CPU-second of the whole command, with its start and end, and of the Valkey."""
        return self.pages / self.all_cpu_seconds if self.all_cpu_seconds else 0.0

    @property
    def running_pages_per_cpu_second(self) -> float:
        """Pages per CPU-second without start and end, as a longer crawl would have. 0 where less than a tenth of a
        second is left."""
        crawling = self.all_cpu_seconds - self.startup_cpu_seconds
        return self.pages / crawling if crawling >= 0.1 else 0.0


@dataclass(slots=True)
class SiteResult:
    """All crawlers on one site."""

    name: str
    description: str
    server: str
    """The web server's name."""
    rows: list[CrawlRow]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the frontier's or the service's table."""

    name: str
    value: float
    unit: str
    wanted: str = ""
    """Figure that the project promises, for comparison."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run of the bench."""

    machine: str
    sites: list[SiteResult]
    frontier: list[Figure]
    service: list[Figure] = field(default_factory=list)


def ratios(row: CrawlRow, rows: Sequence[CrawlRow], *, running: bool = False) -> dict[str, float]:
    """Return the row's pages per CPU-second as a multiple of each measured peer's, by the peer's name.

    `running`: start and end left out on both sides. A row with a rival is compared with that, under the name of Scrapy.
    """
    mine = row.running_pages_per_cpu_second if running else row.pages_per_cpu_second
    found = {}
    for peer in rows:
        theirs = peer.running_pages_per_cpu_second if running else peer.pages_per_cpu_second
        name = peer.crawler if not row.rival else "scrapy" if peer.crawler == row.rival else ""
        if name in PEERS and mine and theirs:
            found[name] = mine / theirs
    return found


def middle(rows: Sequence[CrawlRow]) -> CrawlRow:
    """The row in the middle by pages per CPU-second; of an even number, the lower one of the two. Not empty."""
    return sorted(rows, key=lambda row: row.pages_per_cpu_second)[(len(rows) - 1) // 2]
