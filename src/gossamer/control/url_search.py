"""Search for one URL in a crawl, for commands and the API.

Fixed: the computation of fingerprints, because the frontier has stored them.
"""

import itertools
from collections.abc import Sequence

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import QueryOrder, Run, Terms
from gossamer.model.info import UrlInfo
from gossamer.policy.parameters import dropped_parameters
from gossamer.policy.scrapy_urls import scrapy_fingerprint
from gossamer.policy.urls import fingerprint, host, registered_domain, spider_seed, with_sorted_query


async def find_in_crawl(
    frontier: ValkeyFrontier, run: Run, *, spiders: Sequence[str], terms: Sequence[Terms], url: str
) -> UrlInfo | None:
    """Return the state of a canonical URL in a crawl: of the first of these spiders that has seen it, else of the first
    spider. None: there are no spiders. `terms`: those of the crawl's submissions."""
    domain = registered_domain(host(url))
    await frontier.spiders.refresh(spiders)
    unseen: UrlInfo | None = None
    any_order = any(each.query_order is QueryOrder.IGNORED for each in terms)
    # The crawl may follow the URL without some of its parameters.
    urls = dict.fromkeys([url, *(dropped_parameters(each.drop_parameters).remove(url) for each in terms)])
    for spider, one in itertools.product(spiders, urls):
        seed = spider_seed(frontier.secret, spider)
        # Each kind of worker has its own fingerprints, and possibly no worker of the spider runs now: all are tried.
        fingerprints = (
            frontier.spiders.fingerprint(spider, one),
            fingerprint(one, seed=seed),
            fingerprint(scrapy_fingerprint(one), seed=seed),
            *([fingerprint(with_sorted_query(one), seed=seed)] if any_order else []),
        )
        for candidate in dict.fromkeys(fingerprints):
            found = await frontier.find_url(run, spider=spider, domain=domain, url=one, fingerprint=candidate)
            if found.seen:
                return found
            unseen = unseen or found
    return unseen
