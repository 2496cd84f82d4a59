"""What is waiting, and stopping it: the answers to `info` and `stop`."""

from dataclasses import dataclass, field

from gossamer.frontier.base import Frontier
from gossamer.model.crawl import CrawlId
from gossamer.model.info import CrawlInfo, DomainInfo

MOST_DOMAINS = 10_000
"""Named in one answer; more of them are counted, not named."""
MOST_CRAWLS = 10_000
"""The same, of one application's crawls."""
_PAGE = 1000


@dataclass(slots=True)
class Pending:
    """What of one crawl waits for one spider, or for all."""

    crawl: CrawlId
    total: int = 0
    domains: dict[str, dict[int, int]] = field(default_factory=dict)
    """By domain and priority; at most MOST_DOMAINS of them."""
    total_domains: int = 0
    """Those that are not named, too."""
    expires: int = 0
    """Epoch seconds; 0: it does not."""

    def count(self, domain: DomainInfo, spider: str) -> None:
        """Take in a domain's share, where it has one for this spider; empty: for any."""
        shares = domain.by_spider.get(spider) if spider else domain.by_priority
        if not shares:
            return
        self.total_domains += 1
        if len(self.domains) < MOST_DOMAINS:
            self.domains[domain.domain] = shares


async def pending(frontier: Frontier, crawl: CrawlId, *, spider: str) -> Pending | None:
    """What waits of a crawl for one spider, by domain; `spider` empty: for all. None: no such crawl. Counters only: its
    cost grows with the domains, not with the requests."""
    info = await frontier.crawl_info(crawl)
    if info is None:
        return None
    found = Pending(crawl, total=waiting(info, spider), expires=int(info.expires_at(spider)))
    cursor = ""
    while True:
        domains, cursor = await frontier.crawl_domains(crawl, cursor=cursor, limit=_PAGE)
        for domain in domains:
            found.count(domain, spider)
        if not cursor:
            return found


async def pending_of_app(frontier: Frontier, appid: str, *, spider: str) -> list[Pending]:
    """The same for every crawl of an application that has something waiting; at most MOST_CRAWLS."""
    found: list[Pending] = []
    cursor = ""
    while True:
        crawls, cursor = await frontier.crawls(appid=appid, cursor=cursor, limit=_PAGE)
        for crawl in crawls:
            one = await pending(frontier, crawl, spider=spider)
            if one is not None and one.total:
                found.append(one)
            if len(found) == MOST_CRAWLS:
                return found
        if not cursor:
            return found


def waiting(info: CrawlInfo, spider: str) -> int:
    """Requests of this spider that are queued or due later; empty: of all."""
    part = info.spiders.get(spider) if spider else info.total()
    return part.queued + part.later if part else 0
