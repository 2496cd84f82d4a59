"""What is waiting, and stopping it: the answers to `info` and `stop`."""

from dataclasses import dataclass, field

from gossamer.frontier.base import Frontier
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.info import AppInfo, CrawlInfo, DomainInfo

MOST_DOMAINS = 10_000
"""Named in one answer; more of them are counted, not named."""
_PAGE = 1000
_FEWEST_DOMAINS = 10
"""Of each crawl in an answer about an application, where it has so many."""


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


async def pending_of_app(
    frontier: Frontier, appid: str, *, spider: str, cursor: str = ""
) -> tuple[AppInfo, list[Pending], str]:
    """What waits of an application in all, a page of its crawls that have something waiting, and the next page's cursor
    ('' at the end). Raises BadInput for a cursor that is none."""
    whole = await frontier.app_info(appid, spider=spider)
    page, following = await frontier.crawl_page(appid=appid, state=CrawlState.RUNNING, cursor=cursor, limit=_PAGE)
    infos = [info for info in page if waiting(info, spider)]
    most = max(_FEWEST_DOMAINS, MOST_DOMAINS // max(1, len(infos)))
    domains = await frontier.first_domains([info.crawl for info in infos], most=most)
    found = []
    for info, shares in zip(infos, domains, strict=True):
        one = Pending(info.crawl, total=waiting(info, spider), expires=int(info.expires_at(spider)))
        for domain in shares:
            one.count(domain, spider)
        if len(shares) == most:  # more of them than are named
            one.total_domains = max(one.total_domains, info.domains)
        found.append(one)
    return whole, found, following


def waiting(info: CrawlInfo, spider: str) -> int:
    """Requests of this spider that are queued or due later; empty: of all."""
    part = info.spiders.get(spider) if spider else info.total()
    return part.queued + part.later if part else 0
