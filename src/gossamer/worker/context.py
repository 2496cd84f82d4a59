"""What all requests of one submission have in common, worked out once: filters, headers, spider, memory of links."""

from collections import OrderedDict
from collections.abc import Callable, Collection

import msgspec

from gossamer.extract.links import LinkExtractor, Links
from gossamer.model.crawl import SHARED, QueryOrder, Run, Terms
from gossamer.model.request import Lease
from gossamer.policy.scope import Scope, compile_scope
from gossamer.policy.urls import fingerprint, spider_seed, with_sorted_query
from gossamer.worker.seen_cache import SeenCache
from gossamer.worker.spider import Spider

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
OWNED_BY_CLIENT = frozenset(("host", "connection", "content-length", "accept-encoding", "transfer-encoding"))


class Context:
    """One (run, spider, terms). Belongs to one worker."""

    def __init__(
        self,
        run: Run,
        spider_name: str,
        terms: Terms,
        *,
        spider: Spider,
        secret: int,
        user_agent: str,
        seen: SeenCache,
        links: bool = False,
        spiders: Collection[str] | None = None,
        proxy: str = "",
    ) -> None:
        """`links`: records name the links of every page, whatever the terms say. `spiders`: those that anybody runs for
        this crawl; None: any may be run by somebody. `proxy`: the operator's, where the terms name none."""
        self.run = run
        self.terms = terms
        self.spider_name = spider_name
        self.spider = spider
        self.spiders = spiders
        self.links = links or terms.links
        """Whether records name the links of their page."""
        self.scope: Scope = scope_of(terms)
        self.seed = spider_seed(secret, spider_name)
        self.extractor = LinkExtractor(
            self.scope,
            seed=self.seed,
            follow_nofollow=terms.follow_nofollow,
            texts=self.links,
            sorted_queries=terms.query_order is QueryOrder.IGNORED,
        )
        self.user_agent = terms.useragent or user_agent
        self.headers = request_headers(terms, self.user_agent)
        self.proxy = terms.proxy or proxy or None
        self.guard_proxy = run.crawl.pool == SHARED and terms.proxy is not None
        """Whether the proxy was named by a request to a service: no such may reach into the operator's networks."""
        self.private_hosts = frozenset(terms.private_hosts)
        self._sitemap_origins: set[str] = set()
        self._seen = seen
        self._era = seen.era
        self._part = (run.crawl.id.token, run.number, run.generation)

    def fingerprint(self, url: str, *, method: str = "GET", body: bytes = b"") -> int:
        """Return the number by which a request for this spider under these terms is remembered."""
        if self.terms.query_order is QueryOrder.IGNORED:
            url = with_sorted_query(url)
        return fingerprint(url, seed=self.seed, method=method, body=body)

    def follows_from(self, depth: int) -> bool:
        """Whether links of a page at this depth are followed."""
        return self.spider.ignores_maxdepth or self.terms.maxdepth is None or depth < self.terms.maxdepth

    def links_of(self, body: bytes, url: str, *, encoding: str) -> Links:
        """The page's links; of those that the frontier has for certain, only how many there are."""
        self._enter_era()
        return self.extractor.extract(body, url, encoding=encoding)

    def has_sitemaps_of(self, origin: str) -> bool:
        """Whether the frontier has what this origin's robots.txt names."""
        self._enter_era()
        return origin in self._sitemap_origins

    def got_sitemaps_of(self, origin: str, *, since: int) -> None:
        """The frontier has them; `since`: the era before they were sent to it."""
        if since == self.era:
            self._sitemap_origins.add(origin)

    def _enter_era(self) -> None:
        if self._era != self._seen.era:
            self._era = self._seen.era
            self.extractor.forget()
            self._sitemap_origins.clear()

    @property
    def era(self) -> int:
        """The frontier's, now."""
        return self._seen.era

    def unknown(self, links: Links) -> list[int]:
        """Positions of the links that may be new to the frontier."""
        return self._seen.unknown(self._part, links.fingerprints)

    def confirm(self, links: Links, rejected: Collection[int], *, since: int) -> None:
        """The frontier has these links now, all but the rejected fingerprints. `since`: the era in which they were
        found; in another one this means nothing."""
        if since != self._seen.era:
            return
        if not rejected:
            self._seen.remember(self._part, links.fingerprints)
            self.extractor.remember(links)
            return
        except_positions = [at for at, mark in enumerate(links.fingerprints) if mark in rejected]
        self._seen.remember(self._part, [mark for mark in links.fingerprints if mark not in rejected])
        self.extractor.remember(links, except_positions=except_positions)


def scope_of(terms: Terms) -> Scope:
    """The filters of discovered links and redirect targets. Raises BadInput for a regex that is none."""
    return compile_scope(
        allowed_domains=terms.allowed_domains,
        allowed_hosts=terms.allowed_hosts,
        allowed_prefixes=terms.allowed_prefixes,
        allow_regex=terms.allow_regex or (),
        deny_regex=terms.deny_regex or (),
        deny_extensions=terms.deny_extensions,
    )


def request_headers(terms: Terms, user_agent: str) -> tuple[tuple[str, str], ...]:
    """The request headers of a crawl, but for those that the client itself writes."""
    headers = {"user-agent": ("User-Agent", user_agent), "accept": ("Accept", ACCEPT)}
    headers["accept-language"] = ("Accept-Language", "en;q=0.8,*;q=0.5")
    for name, value in (terms.headers or {}).items():
        if name.lower() not in OWNED_BY_CLIENT:
            headers[name.lower()] = (name, value)
    return tuple(headers.values())


class Contexts:
    """Finds the context of a lease. Bounded; what was not needed for longest goes."""

    def __init__(self, make: Callable[[Run, str, Terms], Context], limit: int = 1000) -> None:
        self._make = make
        self._limit = limit
        self._by_identity: dict[tuple[int, int, str], tuple[Context, Run, Terms]] = {}
        self._by_value: OrderedDict[tuple[bytes, str], Context] = OrderedDict()

    def of(self, lease: Lease) -> Context:
        """Leases of one submission mostly share their run and terms objects, which spares comparing them."""
        key = (id(lease.run), id(lease.terms), lease.spider)
        known = self._by_identity.get(key)
        if known is not None:
            return known[0]
        value = (msgspec.msgpack.encode((lease.run, lease.terms)), lease.spider)
        context = self._by_value.get(value)
        if context is None:
            context = self._by_value[value] = self._make(lease.run, lease.spider, lease.terms)
            if len(self._by_value) > self._limit:
                self._by_value.popitem(last=False)
        else:
            self._by_value.move_to_end(value)
        if len(self._by_identity) >= 4 * self._limit:
            self._by_identity.clear()
        # The objects are kept beside their ids, so that no other object can take an id over meanwhile.
        self._by_identity[key] = (context, lease.run, lease.terms)
        return context
